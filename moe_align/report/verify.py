"""A certificate in words: the summary, and a finding for each way in which engine and rules differ."""

from __future__ import annotations

from ..boxes import boxes
from ..certificate import sets_of
from ..findings import Finding, box_text
from ..verify.aiter import CHANGED, HOLDS, NOT_FOUND
from ..verify.terms import BOUND, floor_of, least, multiple_of, size_of, values

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from ..certificate import Answer, Apart, Certificate
    from ..verify.aiter import Result
    from ..verify.terms import Mask, Term

#: How sizes are called, and what stands between a name and a multiple.
_NAMES = {"hidden": "hidden", "intermediate_per_partition": "intermediate"}


def certificate_text(found: Certificate, against: str) -> str:
    """The summary: how many points are equal, and for which sizes that is known."""
    tables = " · ".join(f"{table} {len(asked):,}" for table, asked in found.asked.items())
    held = "" if against == found.release else f", held against the rules of {against}"
    sizes = (
        f"for all sizes: looked at up to {BOUND:,}, which proves the rest"
        if found.proven
        else f"for sizes up to {BOUND:,}; beyond that nothing is claimed"
    )
    lines = [
        f"vLLM {found.release}{held}: equal on {found.equal:,} of {found.points:,} points",
        f"  {sizes}",
        f"  points: {tables}",
    ]
    if found.skipped:
        lines.append(f"  left out: {found.skipped:,} points with a name that the vocabulary lacks")
    return "\n".join(lines)


def certificate_plain(found: Certificate, against: str, digest: str) -> dict[str, Any]:
    """The summary as JSON has it."""
    return {
        "release": found.release,
        "against": against,
        "policy": digest,
        "points": {table: len(asked) for table, asked in found.asked.items()},
        "equal": found.equal,
        "of": found.points,
        "left_out": found.skipped,
        "holds": found.holds,
        "sizes": {"bound": BOUND, "proven": found.proven},
    }


def certificate_findings(found: Certificate, against: str) -> tuple[Finding, ...]:
    """Every way in which the two differ, with the fewest boxes found for it, and names without a value."""
    groups: dict[tuple[object, ...], list[Apart]] = {}
    for one in found.apart:
        theirs = answer_text(one.engine, one.where)
        ours = answer_text(one.policy, one.where)
        rule = one.rule.address if one.rule else None
        groups.setdefault((one.asked.table, one.place, theirs, rule, ours), []).append(one)
    differing = [
        _finding(found, against, members, str(key[2]), str(key[4])) for key, members in groups.items()
    ]
    return (*differing, *_lacking(found))


_FIX = "correct the rule, or say in `vllm:` for which releases it holds"
_FIX_WITHOUT_RULE = "add a rule, or raise the releases that the pack covers"


def _finding(found: Certificate, against: str, members: Sequence[Apart], theirs: str, ours: str) -> Finding:
    one = members[0]
    table = one.asked.table
    lowest = {name: least(sizes) for name, sizes in one.asked.sizes.items()}
    where = [box_text(box) for box in boxes([*map(sets_of, members)], found.asked[table], lowest)]
    facts = {"vllm": against, **one.facts, **one.point}
    silent = {("arch", "none")}
    shown = {
        key: value for key, value in facts.items() if (key, value) not in silent and not key.endswith("_pad")
    }
    said = f"the rules say {ours}" if one.rule else f"no rule decides: {ours}"
    return Finding(
        "E910",
        f"{table}: vLLM {found.release} makes it {theirs} ({one.place}), {said}",
        one.rule.location if one.rule else None,
        one.rule.address if one.rule else None,
        fix=_FIX if one.rule else _FIX_WITHOUT_RULE,
        where=tuple(where) if len(where) <= 12 else (*where[:12], f"and {len(where) - 12} more"),
        facts=shown,
    )


def _lacking(found: Certificate) -> Iterator[Finding]:
    for key, name, place in found.lacking:
        scheme, _, fact = key.partition("/")
        said = f"vLLM {found.release} has the {fact} `{name}`"
        at = f" ({place})" if place else ""
        fix = f"add it to `vocabulary:` as `{name.lower()}` or as an alias; `moe-align lift` writes it"
        schemes = scheme.replace(",", ", ")
        yield Finding("E911", f"{said} for {schemes}{at}, which the vocabulary does not", fix=fix)


def answer_text(answer: Answer, where: Mapping[str, Mask]) -> str:
    """What sizes come to, in words."""
    if isinstance(answer, str):
        return f"refused ({answer.removeprefix('error: ')})" if answer.startswith("error: ") else answer
    named = [name for name in where if name != "moe_tp"]
    return " · ".join(_term_text(name, term, where[name]) for name, term in zip(named, answer, strict=True))


def _term_text(name: str, term: Term | None, within: Mask) -> str:
    shown = _NAMES.get(name, name)
    if term is None:
        return f"{shown} not passed"
    if size_of(term) is None:
        return f"{shown} = {values(term)[0]}"
    if name.endswith("_pad"):
        return f"{shown} {_pad_text(term, within)}"
    multiple = multiple_of(term, within)
    if multiple is None:
        return f"{shown} {formula(term)}"
    return f"{shown} native" if multiple == 1 else f"{shown} × {multiple}"


def _pad_text(term: Term, within: Mask) -> str:
    floored = floor_of(term)
    if floored is None:
        return formula(term)
    floor, times = floored
    head = f"floored to {floor}" if floor > 1 else "as it is"
    return head if times == 1 else f"{head}, × {times}"


def formula(term: Term) -> str:
    """A term as arithmetic."""
    if isinstance(term, tuple):
        sign, left, right = term
        return f"({formula(left)} {sign} {formula(right)})"
    return str(term)


def probes_text(release: str | None, results: Sequence[Result]) -> str:
    """One line a probe, and how many there are of each outcome."""
    width = max(len(one.contract) for one in results)
    lines = [f"{one.verdict:9}  {one.contract:{width}}  {_probe_text(one)}" for one in results]
    counts = ", ".join(
        f"{number} {verdict}"
        for verdict in (HOLDS, CHANGED, NOT_FOUND)
        if (number := sum(one.verdict == verdict for one in results))
    )
    return "\n".join([*lines, f"AITER {release or '(no version)'}: {counts}"])


def _probe_text(one: Result) -> str:
    at = f" ({one.place})" if one.place else ""
    return f"{one.meant}: {one.said}{at}"


def probes_plain(release: str | None, results: Sequence[Result]) -> dict[str, Any]:
    """The probes as JSON has them."""
    return {
        "release": release,
        "probes": [{**one._asdict(), "place": str(one.place) if one.place else None} for one in results],
    }


def probe_findings(results: Sequence[Result]) -> tuple[Finding, ...]:
    """What has changed as errors, and what is not there as notes: no kernel, no contract to break."""
    fix = "read the kernel, then correct the contract and this probe"
    return tuple(
        Finding("E913", f"{one.verdict}: {_probe_text(one)}", None, one.contract, level, fix)
        for one in results
        if (level := {CHANGED: "error", NOT_FOUND: "note"}.get(one.verdict))
    )
