"""What an analysis found, and how it is written: text, JSON, annotations of GitHub, SARIF."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from .codes import page
from .errors import Location, Problem
from .facts import BOOLEANS
from .space import Box, FactSet, Values

#: Worst first. A `note` alone is no reason to fail.
LEVELS = ("error", "warning", "note")

#: So many boxes of a region are written out.
MOST_BOXES = 6


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that an analysis found: what, where in the files, for which facts, and what to do.

    `where` says the region in words, one box a line, `facts` one point of it that can be resolved, and
    `rules` the other rules and contracts that have a part in it.
    """

    code: str
    message: str
    location: Location | None = None
    rule: str | None = None
    level: str = "error"
    fix: str | None = None
    where: tuple[str, ...] = ()
    facts: Mapping[str, str | int] = field(default_factory=dict)
    rules: tuple[str, ...] = ()


def of_problem(problem: Problem) -> Finding:
    """A fault of a file as a finding."""
    return Finding(problem.code, problem.message, problem.location, problem.rule, fix=problem.fix)


def fails(findings: Iterable[Finding]) -> bool:
    """Whether something that was found is worse than a note."""
    return any(finding.level != "note" for finding in findings)


def box_text(box: Box) -> str:
    """The conditions of a box; a set that leaves out few values is said by those that it leaves out."""
    parts = (f"{fact}: {_set_text(members, box.space.domain[fact])}" for fact, members in box.sets.items())
    return " · ".join(parts) or "everything"


def _set_text(members: FactSet, domain: FactSet) -> str:
    if not isinstance(members, Values) or not isinstance(domain, Values):
        return str(members)
    left_out = domain - members
    if len(members.members) > 3 and len(left_out.members) < len(members.members):
        return f"not {left_out}"
    return str(members)


def region_text(boxes: Sequence[Box]) -> tuple[str, ...]:
    """The first boxes in words, and how many more there are."""
    shown = [box_text(box) for box in boxes[:MOST_BOXES]]
    more = len(boxes) - len(shown)
    return (*shown, *([f"and {more} more"] if more > 0 else []))


def facts_text(facts: Mapping[str, str | int]) -> str:
    """Facts as flags of the command line."""
    return " ".join(_flag(key, value) for key, value in facts.items())


def _flag(key: str, value: str | int) -> str:
    namespace, dot, name = key.partition(".")
    if dot:
        return f"--{namespace} {name}={value}"
    flag = key.replace("_", "-")
    if key in BOOLEANS:
        return f"--{flag}" if value == "true" else f"--no-{flag}"
    return f"--{flag} {value}"


def text(findings: Sequence[Finding]) -> str:
    """For people: one block a finding."""
    return "\n".join(map(_block, findings))


def _block(finding: Finding) -> str:
    place = f"{finding.location}: " if finding.location else ""
    rule = f"`{finding.rule}` " if finding.rule else ""
    level = "" if finding.level == "error" else f"{finding.level}: "
    lines = [f"{place}{level}{rule}{finding.message} [{finding.code}]"]
    lines += [f"  where: {box}" for box in finding.where]
    if finding.rules:
        lines.append(f"  by: {', '.join(finding.rules)}")
    if finding.facts:
        lines.append(f"  try: moe-align resolve {facts_text(finding.facts)}")
    if finding.fix:
        lines.append(f"  fix: {finding.fix}")
    return "\n".join(lines)


def plain(finding: Finding) -> dict[str, Any]:
    """A finding as JSON has it."""
    place = finding.location
    return {
        "code": finding.code,
        "level": finding.level,
        "message": finding.message,
        "rule": finding.rule,
        "file": place.file if place else None,
        "line": place.line if place else None,
        "column": place.column if place else None,
        "where": list(finding.where),
        "facts": dict(finding.facts),
        "rules": list(finding.rules),
        "fix": finding.fix,
    }


_COMMANDS = {"error": "error", "warning": "warning", "note": "notice"}


def github(findings: Sequence[Finding]) -> str:
    """Workflow commands, which GitHub shows beside the lines of a pull request."""
    return "\n".join(map(_annotation, findings))


def _annotation(finding: Finding) -> str:
    place = finding.location
    at = f"file={_property(place.file)},line={place.line},col={place.column}," if place else ""
    said = "\n".join([f"{finding.rule or ''} {finding.message}".strip(), *finding.where, finding.fix or ""])
    return f"::{_COMMANDS[finding.level]} {at}title={finding.code}::{_escaped(said.strip())}"


def _property(said: str) -> str:
    return _escaped(said).replace(":", "%3A").replace(",", "%2C")


def _escaped(said: str) -> str:
    return said.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def sarif(findings: Sequence[Finding], version: str) -> str:
    """A SARIF 2.1.0 log, for code scanning."""
    codes = sorted({finding.code for finding in findings})
    run = {
        "tool": {"driver": {"name": "moe-align", "version": version, "rules": list(map(_descriptor, codes))}},
        "columnKind": "unicodeCodePoints",
        "results": [_result(finding, codes.index(finding.code)) for finding in findings],
    }
    log = {"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": [run]}
    return json.dumps(log, indent=2, ensure_ascii=False)


def _descriptor(code: str) -> dict[str, Any]:
    """What a log says of a code: the title of its page, and the page."""
    said = page(code)
    if said is None:
        return {"id": code}
    return {"id": code, "shortDescription": {"text": said.title}, "help": {"text": said.text}}


def _result(finding: Finding, index: int) -> dict[str, Any]:
    said = f"{finding.rule or ''} {finding.message}".strip()
    lines = [said, *finding.where, *([f"fix: {finding.fix}"] if finding.fix else [])]
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": index,
        "level": finding.level,
        "message": {"text": "\n".join(lines)},
    }
    if finding.location:
        region = {"startLine": finding.location.line, "startColumn": finding.location.column}
        place = {"artifactLocation": {"uri": _uri(finding.location.file)}, "region": region}
        result["locations"] = [{"physicalLocation": place}]
    return result


def _uri(file: str) -> str:
    """A path as SARIF has it: a reference relative to the checkout, or a whole URI."""
    return f"file://{quote(file)}" if os.path.isabs(file) else quote(file)
