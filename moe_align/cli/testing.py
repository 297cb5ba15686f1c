"""`test`: cases in YAML beside the rules."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from ..cases import Result, case_files, read_cases, run
from ..coverage import Lacking, lacking_text, missing, missing_text, missing_values
from ..errors import PolicyError
from ..findings import Finding
from ..layers import BUILT_IN, VARIABLE
from ..load import load_policy
from ..policy import Policy
from ..report import json_text
from .analysis import Format, annotate
from .flags import Json, Rules
from .terminal import fail, note, say

EXAMPLE = "moe-align test tests/cases --rules my-rules.yaml"

#: So often files are looked at for a change.
PAUSE_SECONDS = 0.3

_Paths = Annotated[
    list[str], typer.Argument(metavar="PATH...", help="Files or folders with cases.", show_default=False)
]
_Coverage = Annotated[
    bool,
    typer.Option("--coverage", help="Rules that no case reaches, as cases to paste.", show_default=False),
]
_Regions = Annotated[
    bool,
    typer.Option(
        "--regions", help="The same, and values that a rule lists and no case has.", show_default=False
    ),
]
_Watch = Annotated[
    bool, typer.Option("--watch", help="Run again whenever a file changes.", show_default=False)
]


class _Tested(NamedTuple):
    """What came of one run: every case, and what no case reaches."""

    policy: Policy
    results: tuple[Result, ...]
    lacking: tuple[Lacking, ...]

    @property
    def failed(self) -> list[Result]:
        return [result for result in self.results if result.differences]

    @property
    def status(self) -> int:
        return 1 if self.failed or self.lacking else 0


def command(
    paths: _Paths,
    rules: Rules = None,
    coverage: _Coverage = False,
    regions: _Regions = False,
    watch: _Watch = False,
    form: Format = "text",
    json: Json = False,
) -> None:
    """Whether every case decides as it says; with --coverage, what no case reaches."""
    form = "json" if json else form
    while watch:
        seen = _stamps([*paths, *_layers(rules or ())])
        try:
            _say(_tested(paths, rules or (), coverage, regions), form, coverage or regions)
        except PolicyError as fault:
            fail(str(fault))  # the next change may mend it
        _wait([*paths, *_layers(rules or ())], seen)
    tested = _tested(paths, rules or (), coverage, regions)
    _say(tested, form, coverage or regions)
    raise typer.Exit(tested.status)


def _tested(paths: Sequence[str], rules: Sequence[str], coverage: bool, regions: bool) -> _Tested:
    policy = load_policy(*rules)
    results = run(policy, read_cases(case_files(paths)))
    cases = [result.case for result in results]
    # Over the built-in rules, those of the layers above them are the ones that want cases.
    layers = {layer.name for layer in policy.stack.layers} - {BUILT_IN} or {BUILT_IN}
    lacking = missing(policy, cases, layers) if coverage or regions else ()
    if regions:
        named = {one.rule for one in lacking}
        lacking += tuple(one for one in missing_values(policy, cases, layers) if one.rule not in named)
    return _Tested(policy, results, lacking)


def _say(tested: _Tested, form: str, is_covering: bool) -> None:
    if form == "json":
        say(json_text(_plain(tested)))
        return
    if form != "text":
        annotate(tuple(_findings(tested)), form)
        return
    for result in tested.failed:
        say("\n  ".join([f"{result.case.location}: the case fails", *result.differences]))
    if tested.lacking:
        say(missing_text(tested.policy, tested.lacking))
    total = len(tested.results)
    said = f"{total - len(tested.failed)} of {total} cases hold"
    note(said + (f" · {_lacking_text(tested.lacking)}" if is_covering else ""))


def _lacking_text(lacking: Sequence[Lacking]) -> str:
    values = sum(bool(one.where) for one in lacking)
    rules = f"{len(lacking) - values} rules without"
    return f"{rules}, {values} values" if values else rules


def _findings(tested: _Tested) -> Iterator[Finding]:
    for result in tested.failed:
        case = result.case
        said = "; ".join(result.differences)
        yield Finding("T920", f"the case fails: {said}", case.location, facts=dict(case.facts.items()))
    for one in tested.lacking:
        yield Finding(
            "T921",
            f"no case reaches it at {one.where}"
            if one.where
            else "lacks a case that it decides or just misses",
            one.rule.location,
            one.rule.address,
            level="warning",
            fix=f"paste this, if it is what is meant:\n{lacking_text(tested.policy, one)}".rstrip(),
            facts=dict(one.wins.items()) if one.wins else {},
        )


def _plain(tested: _Tested) -> dict[str, object]:
    return {
        "version": 1,
        "cases": len(tested.results),
        "failed": len(tested.failed),
        "results": [
            {
                "file": result.case.location.file,
                "line": result.case.location.line,
                "holds": not result.differences,
                "differences": list(result.differences),
            }
            for result in tested.results
        ],
        "uncovered": [
            {"rule": one.rule.address, "where": one.where or None, "paste": lacking_text(tested.policy, one)}
            for one in tested.lacking
        ],
    }


def _layers(rules: Sequence[str]) -> list[str]:
    """The files and folders of rules that a person may edit meanwhile."""
    return [*rules, *filter(None, os.environ.get(VARIABLE, "").split(os.pathsep))]


def _wait(paths: Sequence[str], before: Sequence[tuple[str, int]]) -> None:
    """Return once one of the files, or one in the folders, is not what it was."""
    while _stamps(paths) == before:
        time.sleep(PAUSE_SECONDS)


def _stamps(paths: Sequence[str]) -> list[tuple[str, int]]:
    stamps = []
    for path in map(Path, paths):
        for file in sorted(path.rglob("*.y*ml")) if path.is_dir() else [path]:
            try:
                stamps.append((str(file), os.stat(file).st_mtime_ns))
            except OSError:
                continue  # it is being written anew, or is gone
    return stamps
