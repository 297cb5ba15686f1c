"""`reviewed.yaml` beside rules: findings about mirrors that are known, so that only new ones fail."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from .errors import PolicyError, Problem
from .findings import Finding
from .layers import Layer
from .load.reader import parse, read_bytes

NAME = "reviewed.yaml"

#: The reason of a finding that is known and that nobody has looked at.
UNSEEN = "not looked at yet"

#: Code, rule, and the contract or claim that it is about (empty where there is none).
Key = tuple[str, str, str]


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
            found.update(_read(Path(path), layer.shown(path)))
    return found


def _read(path: Path, shown: str) -> Iterator[tuple[Key, str]]:
    document = parse(read_bytes(path, shown), shown)
    problems = list(document.problems)
    entries = document.root if isinstance(document.root, list) else []
    if not isinstance(document.root, list):
        problems.append(
            Problem("K890", "is no list", "write `- {code, rules, claim, why}`", document.locate(()))
        )
    for index, entry in enumerate(entries):
        if not _is_entry(entry):
            said = "an entry has `code`, `rules` (a list), `why`, and `claim` where it is about one"
            problems.append(Problem("K890", said, None, document.locate((index,))))
    if problems:
        raise PolicyError(problems)
    for entry in entries:
        for rule in entry["rules"]:
            yield (entry["code"], rule, entry.get("claim", "")), entry["why"]


def _is_entry(entry: object) -> bool:
    if not isinstance(entry, dict) or entry.keys() - {"code", "rules", "claim", "why"}:
        return False
    texts = (entry.get("code"), entry.get("why"), entry.get("claim", ""))
    rules = entry.get("rules")
    return all(isinstance(said, str) for said in texts) and isinstance(rules, list) and bool(rules)


def key(finding: Finding) -> Key:
    """What a finding is told apart by."""
    return finding.code, finding.rule or "", finding.rules[0] if finding.rules else ""


def unreviewed(findings: Iterable[Finding], known: Mapping[Key, str]) -> tuple[Finding, ...]:
    """The findings that the list does not hold."""
    return tuple(finding for finding in findings if key(finding) not in known)


def known_text(findings: Iterable[Finding], known: Mapping[Key, str]) -> str:
    """How many findings the list holds, and how many of those nobody has looked at."""
    reasons = [known[key(finding)] for finding in findings if key(finding) in known]
    unseen = reasons.count(UNSEEN)
    return f"{len(reasons)} known, {unseen} of them not looked at yet (`--all` shows them)" if reasons else ""
