"""`prove`: claims about every decision, held over all facts."""

from __future__ import annotations

from typing import Annotated

import typer

from ..claims import claim_findings
from ..load.claims import read_claims
from ..packs import BREAKS
from ..prove import prove
from .analysis import All, Format, OnlyRules, held_against_list, loaded
from .flags import Json
from .linting import Rules

EXAMPLE = "moe-align prove --claims claims.yaml"

_Claims = Annotated[
    list[str] | None,
    typer.Option("--claims", metavar="FILE", help="What must never or always be, in YAML; again for more."),
]


def command(
    rules: Rules = None,
    claims: _Claims = None,
    everything: All = False,
    alone: OnlyRules = False,
    form: Format = "text",
    json: Json = False,
) -> None:
    """Every decision against every contract, declared pads against real ones, and your own claims."""
    stack = loaded(rules or (), alone, form, json).stack
    listed = [claim for file in claims or () for claim in read_claims(file, stack.vocabulary)]
    proven = prove(stack, BREAKS if everything else ("silent",))
    loud = [finding for finding in proven if finding.level == "note"]
    kept = proven if everything else tuple(finding for finding in proven if finding.level != "note")
    contracts = sum(1 for _ in stack.all_contracts())
    said = f"{contracts} contracts and {len(listed)} claims over all facts"
    if loud and not everything:
        said += f" · {len(loud)} that stop a start or are slow (`--all` shows them)"
    held_against_list(stack, (*kept, *claim_findings(stack, listed)), form, json, said, everything)
