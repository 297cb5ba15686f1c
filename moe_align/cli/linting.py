"""`lint`: what is wrong with rules as a set."""

from __future__ import annotations

from typing import Annotated

import typer

from ..lint import lint
from ..reviewed import reviewed, unreviewed
from .analysis import Format, OnlyRules, loaded, report
from .flags import Json

EXAMPLE = "moe-align lint my-rules.yaml"

Rules = Annotated[
    list[str] | None,
    typer.Argument(metavar="[PATH]...", help="Files or folders of rules that stand over the built-in ones."),
]


def command(
    rules: Rules = None,
    alone: OnlyRules = False,
    form: Format = "text",
    json: Json = False,
) -> None:
    """Rules that are never reached or change nothing, facts that nobody decides, holes between releases."""
    policy = loaded(rules or (), alone)
    if isinstance(policy, tuple):
        report(policy, form, json, "the files cannot be put together")
        return
    stack = policy.stack
    found = unreviewed(lint(stack), reviewed(stack.layers))
    report(found, form, json, f"{len(list(stack.rules()))} rules in {len(stack.layers)} layers")
