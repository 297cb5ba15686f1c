"""`group-size`: which block or group sizes a quantizer may choose, so that a split still loads."""

from __future__ import annotations

from typing import Annotated

import typer

from ..deployment.groups import survivors
from ..deployment.question import find
from ..errors import PolicyError, Problem
from ..models import Model
from ..report import json_text
from ..report.groups import groups_plain, groups_text
from .flags import Json
from .terminal import say, style

EXAMPLE = "moe-align group-size Qwen3-30B-A3B --tp 8"

_Model = Annotated[
    str | None, typer.Argument(metavar="[MODEL]", help="A known model, a hub id, a config.json, or a folder.")
]
_Size = Annotated[int | None, typer.Option(metavar="N", min=1, help="In place of a model: one of its sizes.")]


def command(
    model: _Model = None,
    tp: Annotated[int, typer.Option("--tp", metavar="N", min=1, help="Ranks that share one expert.")] = 1,
    hidden: _Size = None,
    intermediate: _Size = None,
    json: Json = False,
) -> None:
    """Which block or group sizes survive a split."""
    if model is None and (hidden is None or intermediate is None):
        fix = "name a model, or give `--hidden` and `--intermediate`"
        raise PolicyError([Problem("M012", "no model and no sizes: there is nothing to check", fix)])
    asked = find(model) if model is not None else Model("these sizes")
    sizes = Model(
        asked.name,
        hidden_size=hidden or asked.routed_hidden_size,
        moe_intermediate_size=intermediate or asked.moe_intermediate_size,
    )
    found = survivors(sizes, tp)
    if found is None:
        raise PolicyError(
            [Problem("M012", f"the sizes of {asked.name} are not known", "give a `config.json`")]
        )
    say(json_text(groups_plain(found)) if json else groups_text(found, style()))
    raise typer.Exit(0 if found.best else 1)
