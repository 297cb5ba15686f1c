"""`schema`: JSON Schemas of rule files and of what `--json` prints."""

from __future__ import annotations

from typing import Annotated

import typer

from ..errors import PolicyError, Problem, did_you_mean
from ..report import json_text
from ..report.shapes import NAMES, shape
from .completing import starting
from .flags import Json
from .terminal import say

EXAMPLE = "moe-align schema rules > moe-align.schema.json"

#: The schema of rule files.
RULES = "rules"

_Name = Annotated[
    str,
    typer.Argument(
        metavar="[NAME]",
        help=f"{RULES} for rule files, or {', '.join(NAMES)} for what the command prints with --json.",
        autocompletion=lambda incomplete: starting(incomplete, (RULES, *NAMES)),
    ),
]


def command(name: _Name = RULES, json: Json = False) -> None:
    """JSON Schemas of rule files and of --json."""
    say(json_text(schema_of(name.lower())))


def schema_of(name: str) -> dict[str, object]:
    """A schema by its name.

    Raises:
        PolicyError: there is none of that name.
    """
    if name == RULES:
        from ..schema import json_schema

        return json_schema()
    if name in NAMES:
        return shape(name)
    near = did_you_mean(name, (RULES, *NAMES))
    fix = f"write `{near}`" if near else f"legal are {', '.join((RULES, *NAMES))}"
    raise PolicyError([Problem("U007", f"no schema `{name}`", fix)])
