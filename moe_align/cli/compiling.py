"""`compile`: the policy as one JSON file that needs neither YAML nor pydantic."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from ..cache import cached_policy
from ..compile import compiled
from ..errors import PolicyError, Problem
from ..report import json_text
from .flags import Json, Rules
from .terminal import say

EXAMPLE = "moe-align compile --rules my-rules.yaml --out policy.json"

_Out = Annotated[
    str | None,
    typer.Option("--out", metavar="FILE", help="Where to write it; without this, to standard output."),
]


def command(out: _Out = None, rules: Rules = None, json: Json = False) -> None:
    """All layers of rules as one JSON file."""
    policy = cached_policy(rules or ())
    text = compiled(policy)
    if out is None:
        say(text.rstrip("\n"))
        return
    _write(out, text)
    stack = policy.stack
    counts = {"rules": len(list(stack.rules())), "contracts": len(list(stack.all_contracts()))}
    if json:
        layers = [layer.name for layer in stack.layers]
        say(
            json_text(
                {"version": 1, "file": out, **counts, "policy": {"digest": policy.digest, "layers": layers}}
            )
        )
        return
    say(f"{out}: {counts['rules']} rules, {counts['contracts']} contracts, digest {policy.digest[:12]}")


def _write(file: str, text: str) -> None:
    """Put the whole text in place at once, so that nobody reads half a policy.

    Raises:
        PolicyError: it cannot be written.
    """
    beside = f"{file}.{os.getpid()}.new"
    try:
        with open(beside, "w", encoding="utf-8") as stream:
            stream.write(text)
        os.replace(beside, file)
    except OSError as fault:
        if os.path.exists(beside):
            os.remove(beside)
        said = f"`{file}` cannot be written: {fault.strerror}"
        raise PolicyError([Problem("U008", said, "name a file in a folder that you may write to")]) from None
