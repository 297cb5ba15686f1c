"""`test`: cases in YAML beside the rules."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from ..cases import Result, case_files, read_cases, run
from ..coverage import missing, missing_text
from ..load import load_policy
from ..report import json_text
from .flags import Json, Rules
from .terminal import note, say

EXAMPLE = "moe-align test tests/cases --rules my-rules.yaml"

_Paths = Annotated[
    list[str], typer.Argument(metavar="PATH...", help="Files or folders with cases.", show_default=False)
]
_Coverage = Annotated[
    bool,
    typer.Option("--coverage", help="Rules that no case reaches, as cases to paste.", show_default=False),
]
_Watch = Annotated[
    bool, typer.Option("--watch", help="Run again whenever a file changes.", show_default=False)
]


def command(
    paths: _Paths,
    rules: Rules = None,
    coverage: _Coverage = False,
    watch: _Watch = False,
    json: Json = False,
) -> None:
    """Whether every case decides as it says; with --coverage, what no case reaches."""
    status = _once(paths, rules or (), coverage, json)
    while watch:
        _wait([*paths, *(rules or ())])
        status = _once(paths, rules or (), coverage, json)
    raise typer.Exit(status)


def _once(paths: Sequence[str], rules: Sequence[str], coverage: bool, json: bool) -> int:
    policy = load_policy(*rules)
    results = run(policy, read_cases(case_files(paths)))
    failed = [result for result in results if result.differences]
    lacking = missing(policy, [result.case for result in results]) if coverage else ()
    if json:
        listed = [_plain(result) for result in results]
        uncovered = [one.rule for one in lacking]
        say(
            json_text(
                {
                    "version": 1,
                    "cases": len(results),
                    "failed": len(failed),
                    "results": listed,
                    "uncovered": uncovered,
                }
            )
        )
    else:
        for result in failed:
            say("\n  ".join([f"{result.case.location}: the case fails", *result.differences]))
        if lacking:
            say(missing_text(policy, lacking))
        note(
            f"{len(results) - len(failed)} of {len(results)} cases hold"
            + (f" · {len(lacking)} rules without" if coverage else "")
        )
    return 1 if failed or lacking else 0


def _plain(result: Result) -> dict[str, object]:
    place = result.case.location
    return {
        "file": place.file,
        "line": place.line,
        "holds": not result.differences,
        "differences": list(result.differences),
    }


def _wait(paths: Sequence[str]) -> None:
    """Return once one of the files, or one in the folders, has changed."""
    before = _stamps(paths)
    while _stamps(paths) == before:
        time.sleep(0.3)


def _stamps(paths: Sequence[str]) -> list[tuple[str, float]]:
    files = [
        file
        for path in map(Path, paths)
        for file in ([path] if path.is_file() else sorted(path.rglob("*.yaml")))
    ]
    return [(str(file), os.stat(file).st_mtime) for file in files if file.exists()]
