"""`lint`: what is wrong with rules as a set."""

from __future__ import annotations

from typing import Annotated

import typer

from ..lint import lint
from .analysis import All, Format, OnlyRules, held_against_list, loaded
from .flags import Json

EXAMPLE = "moe-align lint my-rules.yaml"

Rules = Annotated[
    list[str] | None,
    typer.Argument(metavar="[PATH]...", help="Files or folders of rules that stand over the built-in ones."),
]


def command(
    rules: Rules = None,
    everything: All = False,
    alone: OnlyRules = False,
    form: Format = "text",
    json: Json = False,
) -> None:
    """Rules that are never reached or change nothing, facts that nobody decides, holes between releases."""
    stack = loaded(rules or (), alone, form, json).stack
    said = f"{len(list(stack.rules()))} rules in {len(stack.layers)} layers"
    held_against_list(stack, lint(stack), form, json, said, everything)
