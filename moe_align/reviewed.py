"""`reviewed.yaml` beside rules: findings about mirrors that are known, so that only new ones fail."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from .errors import PolicyError, Problem
from .findings import Finding
from .layers import Layer
from .load.reader import parse, read_bytes
from .record import NamedTuple

NAME = "reviewed.yaml"

#: The reason of a finding that is known and that nobody has looked at.
UNSEEN = "not looked at yet"

#: Code, rule or pack, and the contract or claim that it is about (empty where there is none).
Key = tuple[str, str, str]

_KEYS = frozenset({"code", "rules", "packs", "claims", "why"})


class Entry(NamedTuple):
    """Findings of one cause: of a code, about rules (or all rules of packs) and contracts or claims."""

    code: str
    rules: tuple[str, ...]
    packs: tuple[str, ...]
    claims: tuple[str, ...]
    why: str

    @property
    def keys(self) -> Iterator[Key]:
        for about in (*self.rules, *self.packs):
            yield from ((self.code, about, claim) for claim in self.claims or ("",))


def reviewed(layers: Iterable[Layer]) -> Mapping[Key, str]:
    """The known findings of all layers, each with what was found to be so, or `UNSEEN`.

    Raises:
        PolicyError: a file that is not as it should be.
    """
    found: dict[Key, str] = {}
    for layer in layers:
        folder = os.path.dirname(layer.files[0]) if layer.files else ""
        path = os.path.join(folder, NAME)
        if os.path.exists(path):
            found.update((key, entry.why) for entry in entries(path, layer.shown(path)) for key in entry.keys)
    return found


def entries(path: str, shown: str) -> tuple[Entry, ...]:
    """The entries of one list, in its order.

    Raises:
        PolicyError: every fault of the file.
    """
    document = parse(read_bytes(Path(path), shown), shown)
    problems = list(document.problems)
    said = document.root if isinstance(document.root, list) else []
    if not isinstance(document.root, list):
        fix = "write `- {code, rules, claims, why}`"
        problems.append(Problem("K890", "is no list", fix, document.locate(())))
    for index, entry in enumerate(said):
        if not _is_entry(entry):
            message = "an entry has `code`, `rules` or `packs`, `why`, and `claims` where it is about some"
            problems.append(
                Problem("K890", message, "all but `code` and `why` are lists", document.locate((index,)))
            )
    if problems:
        raise PolicyError(problems)
    return tuple(_entry(entry) for entry in said)


def _entry(entry: Mapping[str, object]) -> Entry:
    lists = (tuple(map(str, _list(entry.get(key)))) for key in ("rules", "packs", "claims"))
    rules, packs, claims = lists
    return Entry(str(entry["code"]), rules, packs, claims, str(entry["why"]))


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _is_entry(entry: object) -> bool:
    if not isinstance(entry, dict) or entry.keys() - _KEYS:
        return False
    texts = (entry.get("code"), entry.get("why"))
    lists = [entry[key] for key in ("rules", "packs", "claims") if key in entry]
    about = bool(entry.get("rules")) or bool(entry.get("packs"))
    return (
        about and all(isinstance(said, str) for said in texts) and all(isinstance(one, list) for one in lists)
    )


def key(finding: Finding) -> Key:
    """What a finding is told apart by."""
    return finding.code, finding.rule or "", finding.rules[0] if finding.rules else ""


def reason(finding: Finding, known: Mapping[Key, str]) -> str | None:
    """What the list says of a finding, by its rule before its pack; `None` for one that it does not hold."""
    code, about, claim = key(finding)
    by_pack = (code, about.partition("/")[0], claim)
    return known.get((code, about, claim), known.get(by_pack))


def unreviewed(findings: Iterable[Finding], known: Mapping[Key, str]) -> tuple[Finding, ...]:
    """The findings that the list does not hold."""
    return tuple(finding for finding in findings if reason(finding, known) is None)


def known_text(findings: Iterable[Finding], known: Mapping[Key, str]) -> str:
    """How many findings the list holds, and how many of those nobody has looked at."""
    reasons = [said for finding in findings if (said := reason(finding, known)) is not None]
    if not reasons:
        return ""
    unseen = reasons.count(UNSEEN)
    looked = f"{unseen} of them not looked at yet" if unseen else "all looked at"
    return f"{len(reasons)} known, {looked} (`--all` shows them)"


def idle(findings: Iterable[Finding], listed: Iterable[Entry]) -> tuple[str, ...]:
    """The rules, packs and claims of entries that no finding needs any more, each with the entry's code."""
    keys = {key(finding) for finding in findings}
    keys |= {(code, rule.partition("/")[0], claim) for code, rule, claim in keys}
    gone: dict[str, None] = {}
    for entry in listed:
        for about in (*entry.rules, *entry.packs):
            if not any((entry.code, about, claim) in keys for claim in entry.claims or ("",)):
                gone[f"{entry.code} {about}"] = None
        for claim in entry.claims:
            if not any((entry.code, about, claim) in keys for about in (*entry.rules, *entry.packs)):
                gone[f"{entry.code} {claim}"] = None
    return tuple(gone)
