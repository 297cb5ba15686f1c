"""What the commands of analysis share: forms of output, the list of reviewed findings, the exit status."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NoReturn

import typer

from .. import __version__
from ..errors import PolicyError, Problem, did_you_mean
from ..findings import Finding, fails, github, of_problem, plain, sarif, text
from ..policy import Policy
from ..report import json_text
from ..reviewed import known_text, reviewed, unreviewed
from ..stack import Stack
from .terminal import note, say

FORMATS = ("text", "json", "github", "sarif")


def _form(said: str) -> str:
    """The form that was asked for, before any work is done.

    Raises:
        PolicyError: there is none of that name.
    """
    if said in FORMATS:
        return said
    near = did_you_mean(said, FORMATS)
    fix = f"write `{near}`" if near else f"write one of {', '.join(FORMATS)}"
    raise PolicyError([Problem("U040", f"unknown format `{said}`", fix)])


Format = Annotated[
    str,
    typer.Option(
        "--format",
        metavar="|".join(FORMATS),
        help="How findings are written.",
        show_default=True,
        callback=_form,
    ),
]

OnlyRules = Annotated[
    bool,
    typer.Option(
        "--alone", help="Without the built-in rules: the given ones are a whole policy.", show_default=False
    ),
]


All = Annotated[
    bool, typer.Option("--all", help="Also what the list of known findings holds.", show_default=False)
]


def loaded(rules: Sequence[str], alone: bool, form: str, json: bool) -> Policy:
    """The policy of the given layers; where it cannot be put together, its problems are reported as findings.

    Raises:
        PolicyError: files that are not there.
    """
    from ..load import load_policy

    try:
        return load_policy(*rules, built_in=not alone)
    except PolicyError as fault:
        if any(problem.code in ("Y001", "Y002", "Y008") for problem in fault.problems):
            raise
        report(tuple(map(of_problem, fault.problems)), form, json, "the files cannot be put together")


def held_against_list(
    stack: Stack, found: Sequence[Finding], form: str, json: bool, said: str, everything: bool
) -> None:
    """Report the findings that `reviewed.yaml` does not hold, or with `everything` all of them.

    Raises:
        PolicyError: a list that is not as it should be.
    """
    listed = reviewed(stack.layers)
    known = known_text(found, listed)
    shown = found if everything else unreviewed(found, listed)
    report(shown, form, json, f"{said} · {known}" if known else said)


def report(found: Sequence[Finding], form: str, json: bool, said: str) -> NoReturn:
    """Write findings in the form that was asked for, and end the command."""
    if json or form == "json":
        listed = [plain(finding) for finding in found]
        say(json_text({"version": 1, "fails": fails(found), "findings": listed}))
    elif form == "text":
        if found:
            say(text(found))
        note(_summary(found, said))
    else:
        annotate(found, form)
    raise typer.Exit(1 if fails(found) else 0)


def annotate(found: Sequence[Finding], form: str) -> None:
    """Write findings for a service that shows them beside the lines: `github` or `sarif`."""
    if form == "sarif":
        say(sarif(found, __version__))
    elif found:
        say(github(found))


def _summary(found: Sequence[Finding], said: str) -> str:
    if not found:
        return f"nothing new · {said}" if " known, " in said else f"nothing found · {said}"
    counts = [
        f"{number} {level}{'s' if number > 1 else ''}"
        for level in ("error", "warning", "note")
        if (number := sum(finding.level == level for finding in found))
    ]
    return f"{', '.join(counts)} · {said}"
