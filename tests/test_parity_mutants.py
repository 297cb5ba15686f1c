"""Each boundary, multiple, pad and architecture of the mirrors matters: nudged, it misses an engine answer.

The loaded rules are changed, not the files. A changed rule is tried on the cases that it could be about:
those that meet all its conditions but the changed one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

import pytest
from engine_tables import MACHINES, Case, size_cases, table
from mirrors import (
    Dispatched,
    Mirrors,
    Told,
    after_dispatch,
    built_in,
    dispatched,
    mirrors_of,
    told,
    untrue,
    wrong,
)

from moe_align import Facts, Policy
from moe_align.known import known
from moe_align.packs import Condition, Multiple, Outcome, Pack, Pad, Rule
from moe_align.space import Ints
from moe_align.versions import VersionSet, release

PACKS = ("vllm-mxfp4-model", "vllm-all2all", "vllm-mxfp4", "vllm-unquantized", "vllm-aiter-launch")
RELEASES = [release(name).key for name in table("engine", "sizes")]
OPEN = object()

# A change that no answer can show, with the reason.
EQUIVALENT = {
    # above 192 a multiple of 64 and one of 128 give the same sizes up to 256
    "vllm-unquantized/aiter-narrow: intermediate_per_partition up to 193",
}


class Mutant(NamedTuple):
    """A rule with one thing changed; `loose` is the fact whose condition changed, if one did."""

    label: str
    rule: Rule
    changed: Rule
    loose: str | None = None


class Probe(NamedTuple):
    """One engine answer, with its facts as conditions compare them; `fails` says whether mirrors miss it."""

    values: dict[str, Any]
    fails: Callable[[Mirrors], bool]


def nudged_versions(accepts: VersionSet) -> Iterator[tuple[str, VersionSet]]:
    ((low, high),) = accepts.intervals
    for end, key in (("from", low), ("below", high)):
        if key not in RELEASES:
            continue
        at = RELEASES.index(key)
        for other in {max(at - 1, 0), min(at + 1, len(RELEASES) - 1)} - {at}:
            moved = RELEASES[other]
            interval = (moved, high) if end == "from" else (low, moved)
            yield f"{end} {'.'.join(map(str, moved))}", VersionSet((interval,))


def nudged_integers(accepts: Ints) -> Iterator[tuple[str, Ints]]:
    low, high = accepts.min(), accepts.max()
    if high is not None:
        yield from ((f"up to {moved}", Ints.between(low, moved)) for moved in (high - 1, high + 1))
    if low > 1:
        yield from ((f"from {moved}", Ints.between(moved, high)) for moved in (low - 1, low + 1))


def nudged_archs(rule: Rule, accepts: frozenset[str]) -> Iterator[tuple[str, frozenset[str]]]:
    """Each architecture that the rule's platform has, taken in or left out."""
    platforms = next((one.accepts for one in rule.when if one.key == "platform"), frozenset({"cuda", "rocm"}))
    for platform, arch in MACHINES["engine"]:
        if arch is not None and platform in platforms:
            yield f"{'without' if arch in accepts else 'with'} {arch}", accepts ^ {arch}


def nudged_conditions(rule: Rule) -> Iterator[Mutant]:
    for at, condition in enumerate(rule.when):
        for text, accepts in _nudged(rule, condition):
            changed = (*rule.when[:at], condition._replace(accepts=accepts), *rule.when[at + 1 :])
            label = f"{rule.address}: {condition.key} {text}"
            yield Mutant(label, rule, rule._replace(when=changed), condition.key)
    for at, condition in enumerate(rule.unless):
        for text, accepts in _nudged(rule, condition):
            changed = (*rule.unless[:at], condition._replace(accepts=accepts), *rule.unless[at + 1 :])
            yield Mutant(
                f"{rule.address}: unless {condition.key} {text}", rule, rule._replace(unless=changed)
            )


def _nudged(rule: Rule, condition: Condition) -> Iterator[tuple[str, Any]]:
    if isinstance(condition.accepts, VersionSet):
        yield from nudged_versions(condition.accepts)
    elif isinstance(condition.accepts, Ints):
        yield from nudged_integers(condition.accepts)
    elif condition.key == "arch":
        yield from nudged_archs(rule, condition.accepts)


def nudged_outcome(rule: Rule) -> Iterator[Mutant]:
    for label, outcome in (*_nudged_multiples(rule.outcome), *_nudged_pads(rule.outcome)):
        yield Mutant(f"{rule.address}: {label}", rule, rule._replace(outcome=outcome))


def _nudged_multiples(outcome: Outcome) -> Iterator[tuple[str, Outcome]]:
    for text, multiple in _others(outcome.hidden):
        yield f"hidden {text}", outcome._replace(hidden=multiple)
    for text, multiple in _others(outcome.intermediate):
        yield f"intermediate {text}", outcome._replace(intermediate=multiple)


def _others(multiple: Multiple | None) -> Iterator[tuple[str, Multiple]]:
    """Each number of a multiple a little smaller and larger; in place of a native size the smallest tile."""
    for at, item in enumerate(multiple.items if multiple else ()):
        assert multiple is not None
        assert isinstance(item, int)
        for moved in (item - 1, item + 1) if item > 1 else (64,):
            items = (*multiple.items[:at], moved, *multiple.items[at + 1 :])
            yield f"{item} → {moved}", multiple._replace(items=items)


def _nudged_pads(outcome: Outcome) -> Iterator[tuple[str, Outcome]]:
    for at, pad in enumerate(outcome.pads or ()):
        for other in _other_pads(pad):
            pads = tuple(other if index == at else one for index, one in enumerate(outcome.pads or ()))
            yield f"pad {at} {pad} → {other}", outcome._replace(pads=pads)  # type: ignore[arg-type]


def _other_pads(pad: Pad) -> Iterator[Pad]:
    if pad.form == "floor":
        yield from (pad._replace(floor=pad.floor + step) for step in (-1, 1))
        yield pad._replace(times=pad.times + 1)
    yield from (Pad(form) for form in ("exact", "zero", "absent") if form != pad.form)


@cache
def rules() -> tuple[Rule, ...]:
    """The rules of which a nudge can show. A fused shared expert changes no width, and has its own cases."""
    mine = (rule for rule in built_in(False).whole.stack.rules() if rule.pack in PACKS)
    return tuple(rule for rule in mine if all(one.key != "fused_shared_experts" for one in rule.when))


def mutants() -> list[Mutant]:
    return [mutant for rule in rules() for mutant in (*nudged_conditions(rule), *nudged_outcome(rule))]


@cache
def probes(pack: str) -> tuple[Probe, ...]:
    """The engine answers that a pack is about."""
    if pack == "vllm-aiter-launch":
        return tuple(_about_pads(one) for _, found in told("engine") for one in found)
    if pack == "vllm-all2all":
        return tuple(_about_a_transport(one) for _, found in dispatched("engine") for one in found)
    kinds = {"vllm-mxfp4-model": {"model"}}.get(pack, {"whole", "allocate"})
    return tuple(_about_sizes(case) for case in size_cases("engine") if case.kind in kinds)


def _about_pads(one: Told) -> Probe:
    return Probe(_values(one.facts), lambda mirrors: bool(untrue(one, mirrors)))


def _about_a_transport(one: Dispatched) -> Probe:
    return Probe(_values(one.facts), lambda mirrors: after_dispatch(one, mirrors) != one.said)


def _about_sizes(case: Case) -> Probe:
    facts = {**case.facts, "vllm": case.release}
    return Probe(_values(facts), lambda mirrors: bool(wrong(case, mirrors)))


def _values(facts: Any) -> dict[str, Any]:
    return known(built_in(False).whole.stack.vocabulary, Facts.of(facts)).values


def may_hold(conditions: tuple[Condition, ...], values: dict[str, Any], loose: str | None) -> bool:
    """Whether conditions may hold of these facts; open facts and the loosened one do not stand in the way."""
    return all(
        one.key == loose or values.get(one.key, OPEN) is OPEN or values[one.key] in one.accepts
        for one in conditions
    )


def with_rule(mutant: Mutant) -> Mirrors:
    stack = built_in(False).whole.stack
    packs = [_exchanged(pack, mutant) for pack in stack.phases[mutant.rule.phase]]
    return mirrors_of(Policy(stack._replace(phases={**stack.phases, mutant.rule.phase: tuple(packs)})))


def _exchanged(pack: Pack, mutant: Mutant) -> Pack:
    return pack.having(rules=tuple(mutant.changed if one is mutant.rule else one for one in pack.rules))


def survives(mutant: Mutant) -> bool:
    mirrors = with_rule(mutant)
    about = (
        probe for probe in probes(mutant.rule.pack) if may_hold(mutant.rule.when, probe.values, mutant.loose)
    )
    return not any(probe.fails(mirrors) for probe in about)


@pytest.mark.parametrize("address", [rule.address for rule in rules()])
def test_a_nudge_misses_an_engine_answer(address: str) -> None:
    """Also: what is listed as equivalent is, and is still there."""
    (rule,) = (rule for rule in rules() if rule.address == address)
    mine = [*nudged_conditions(rule), *nudged_outcome(rule)]
    survivors = {mutant.label for mutant in mine if survives(mutant)}
    assert survivors == {label for label in EQUIVALENT if label.startswith(f"{address}:")}


def test_every_pack_is_nudged() -> None:
    assert {mutant.rule.pack for mutant in mutants()} == set(PACKS)
    assert len(mutants()) > 250
