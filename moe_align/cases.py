"""Cases: facts and the decision that they must give, in YAML beside the rules; read, run, compared.

A file is a list. An entry has `facts` (a flat mapping) and what must come out of them:

    status        decided (what is meant where nothing is said), undecided, rejected or unknown
    hidden        the allocated size, or a mapping of native, allocated, resident, multiple
    intermediate  the same
    rule          the rule behind the sizes, or behind the refusal
    steps         rules that decided a phase, whichever
    launch        what the kernel call is told: hidden_pad, intermediate_pad
    breaks        contracts that the decision breaks
    reason        words that stand in the reason, in any order
    misses        the rule that these facts miss by one of them
    note, link    what the case is about, and where it was reported
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from errno import ENOENT
from pathlib import Path
from typing import Any

from .decision import Decision, Size
from .errors import Location, PolicyError, Problem, did_you_mean
from .facts import Facts
from .policy import Policy

STATUSES = ("decided", "undecided", "rejected", "unknown")
_SIZES = ("native", "allocated", "resident", "multiple")
_PADS = ("hidden_pad", "intermediate_pad")
_KEYS = ("facts", "status", "hidden", "intermediate", "rule", "steps", "launch", "breaks", "reason", "misses",
         "note", "link")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Case:
    """One entry of a file: the facts, and what must come out of them (nothing where it is empty)."""

    location: Location
    facts: Facts
    status: str = "decided"
    hidden: tuple[tuple[str, int], ...] = ()
    intermediate: tuple[tuple[str, int], ...] = ()
    rule: str | None = None
    steps: tuple[str, ...] = ()
    launch: tuple[tuple[str, int | None], ...] = ()
    breaks: tuple[str, ...] = ()
    reason: tuple[str, ...] = ()
    misses: str | None = None
    note: str | None = None
    link: str | None = None

    @property
    def named(self) -> tuple[str, ...]:
        """The rules that the case says decide."""
        return tuple(dict.fromkeys((*((self.rule,) if self.rule else ()), *self.steps)))


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a case: where the decision differs from it, one sentence each; none where it holds."""

    case: Case
    differences: tuple[str, ...]


def case_files(paths: Iterable[str | os.PathLike[str]]) -> tuple[Path, ...]:
    """The files of cases in the given files and folders, in order.

    Raises:
        PolicyError: a path that does not exist, or nothing found at all.
    """
    found: list[Path] = []
    problems: list[Problem] = []
    for path in map(Path, paths):
        start = Location(str(path), 1, 1)
        try:
            path.stat()
            inside = [path] if not path.is_dir() else list(path.iterdir())
        except OSError as fault:
            said = "no such file or folder" if fault.errno == ENOENT else f"cannot be read: {fault.strerror}"
            problems.append(Problem("T901", said, "check the path and its rights", start))
            continue
        found += sorted(file for file in inside if file is path or file.suffix in (".yaml", ".yml"))
    if not found and not problems:
        problems.append(Problem("T902", "no case found", "name a file or folder with cases"))
    if problems:
        raise PolicyError(problems)
    return tuple(found)


def read_cases(files: Iterable[Path]) -> tuple[Case, ...]:
    """The cases of all files, in order.

    Raises:
        PolicyError: faults of the files, all at once; or no case in any of them.
    """
    from .load.reader import parse, read_bytes

    cases: list[Case] = []
    problems: list[Problem] = []
    for file in files:
        try:
            document = parse(read_bytes(file, str(file)), str(file))
            cases += _cases(document)
            problems += document.problems
        except PolicyError as fault:
            problems += fault.problems
    if not cases and not problems:
        problems.append(Problem("T902", "no case found", "write a list of entries with `facts:`"))
    if problems:
        raise PolicyError(problems)
    return tuple(cases)


def run(policy: Policy, cases: Iterable[Case]) -> tuple[Result, ...]:
    """Every case held against the policy.

    Raises:
        PolicyError: a case that names a rule or contract which the policy does not have.
    """
    listed = tuple(cases)
    problems = list(_unknown_names(policy, listed))
    if problems:
        raise PolicyError(problems)
    return tuple(Result(case, tuple(_differences(policy, case))) for case in listed)


def _differences(policy: Policy, case: Case) -> Iterator[str]:
    try:
        decision = policy.resolve(case.facts)
    except PolicyError as fault:
        yield f"the facts are refused: {fault}"
        return
    if decision.status != case.status:
        why = f" ({decision.reason})" if decision.reason else ""
        yield f"status is {decision.status}{why}, not {case.status}"
    for name, wanted in (("hidden", case.hidden), ("intermediate", case.intermediate)):
        size: Size = getattr(decision, name)
        for part, number in wanted:
            if getattr(size, part) != number:
                yield f"{name} {part} is {getattr(size, part)}, not {number}"
    if case.rule is not None and decision.rule != case.rule:
        yield f"rule is {decision.rule}, not {case.rule}"
    took = [step.rule.address for step in decision.steps]
    yield from (f"{address} decides nothing" for address in case.steps if address not in took)
    for part, pad in case.launch:
        said = getattr(decision.launch, part) if decision.launch else "not called"
        if said != pad:
            yield f"{part} is {said}, not {pad}"
    yield from _broken(decision, case)
    if case.misses is not None and case.misses in took:
        yield f"{case.misses} decides, where it should be missed"
    reason = decision.reason or ""
    yield from (f"`{words}` is not in the reason `{reason}`" for words in case.reason if words not in reason)


def _broken(decision: Decision, case: Case) -> Iterator[str]:
    broken = {check.contract.address for check in decision.contracts if check.holds is False}
    yield from (f"contract {address} is not broken" for address in case.breaks if address not in broken)


def _unknown_names(policy: Policy, cases: Iterable[Case]) -> Iterator[Problem]:
    rules = {rule.address for rule in policy.stack.rules()}
    contracts = {contract.address for contract in policy.stack.all_contracts()}
    for case in cases:
        missed = (case.misses,) if case.misses else ()
        for sort, known, named in (
            ("rule", rules, case.named + missed),
            ("contract", contracts, case.breaks),
        ):
            for name in named:
                if name not in known:
                    near = did_you_mean(name, known)
                    fix = f"write `{near}`" if near else f"see `moe-align list {sort}s`"
                    yield Problem("T910", f"unknown {sort} `{name}`", fix, case.location)


def _cases(document: Any) -> Iterator[Case]:
    if not isinstance(document.root, list):
        place = document.locate(())
        document.problems.append(
            Problem("T903", "is no list of cases", "begin each case with `- facts:`", place)
        )
        return
    for index, entry in enumerate(document.root):
        case = _case(document, index, entry)
        if case is not None:
            yield case


def _case(document: Any, index: int, entry: object) -> Case | None:
    def problem(code: str, message: str, fix: str | None, *path: str | int, at_key: bool = False) -> None:
        document.problems.append(Problem(code, message, fix, document.locate((index, *path), at_key)))

    before = len(document.problems)
    if not isinstance(entry, dict):
        problem("T903", "a case is a mapping", "write `- facts: {…}`")
        return None
    for key in entry:
        if key not in _KEYS:
            near = did_you_mean(key, _KEYS)
            fix = f"write `{near}`" if near else f"legal are {', '.join(_KEYS)}"
            problem("T904", f"unknown key `{key}`", fix, key, at_key=True)
    if not isinstance(entry.get("facts"), dict):
        problem("T905", "`facts` is missing or no mapping", "write `facts: {scheme: mxfp4, …}`", "facts")
        return None
    if entry.get("status", "decided") not in STATUSES:
        problem("T906", f"unknown status `{entry['status']}`", f"legal are {', '.join(STATUSES)}", "status")
    for key in ("rule", "misses", "note", "link"):
        if not isinstance(entry.get(key, ""), str):
            problem("T907", f"`{key}` is no text", "put it in quotes", key)
    for key, fields in (("hidden", _SIZES), ("intermediate", _SIZES), ("launch", _PADS)):
        if not _is_numbers(entry.get(key, {}), fields, key):
            problem("T908", f"`{key}` is no number, nor a mapping of {', '.join(fields)}", None, key)
    facts = _facts(document, index, entry["facts"])
    if facts is None or len(document.problems) > before:
        return None
    return Case(
        location=document.locate((index,)),
        facts=facts,
        status=entry.get("status", "decided"),
        hidden=_numbers(entry.get("hidden", {})),
        intermediate=_numbers(entry.get("intermediate", {})),
        rule=entry.get("rule"),
        steps=_texts(entry.get("steps")),
        launch=_numbers(entry.get("launch", {})),
        breaks=_texts(entry.get("breaks")),
        reason=_texts(entry.get("reason")),
        misses=entry.get("misses"),
        note=entry.get("note"),
        link=entry.get("link"),
    )


def _facts(document: Any, index: int, said: Mapping[str, object]) -> Facts | None:
    try:
        return Facts.of(said)
    except PolicyError as fault:
        place = document.locate((index, "facts"))
        document.problems.extend(problem._replace(location=place) for problem in fault.problems)
        return None


def _is_numbers(said: object, fields: Iterable[str], key: str) -> bool:
    if isinstance(said, dict):
        allowed = (int, type(None)) if key == "launch" else (int,)
        return all(name in fields and isinstance(number, allowed) for name, number in said.items())
    return isinstance(said, int) and key != "launch"


def _numbers(said: Any) -> Any:
    return (("allocated", said),) if isinstance(said, int) else tuple(said.items())


def _texts(said: object) -> tuple[str, ...]:
    if said is None:
        return ()
    return tuple(map(str, said)) if isinstance(said, list) else (str(said),)
