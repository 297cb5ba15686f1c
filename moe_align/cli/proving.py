"""`prove`: claims about every decision, held over all facts."""

from __future__ import annotations

from typing import Annotated

import typer

from ..claims import claim_findings
from ..load.claims import read_claims
from ..packs import BREAKS
from ..prove import prove
from .analysis import All, Format, OnlyRules, held_against_list, loaded, report
from .flags import Json
from .linting import Rules

EXAMPLE = "moe-align prove --claims claims.yaml"

_Claims = Annotated[
    list[str] | None,
    typer.Option("--claims", metavar="FILE", help="What must never or always be, in YAML; again for more."),
]
_Loud = Annotated[
    bool,
    typer.Option("--loud", help="Also contracts that break loudly or are only slow.", show_default=False),
]


def command(
    rules: Rules = None,
    claims: _Claims = None,
    loud: _Loud = False,
    everything: All = False,
    alone: OnlyRules = False,
    form: Format = "text",
    json: Json = False,
) -> None:
    """Every decision against every contract, declared pads against real ones, and your own claims."""
    policy = loaded(rules or (), alone)
    if isinstance(policy, tuple):
        report(policy, form, json, "the files cannot be put together")
        return
    stack = policy.stack
    listed = [claim for file in claims or () for claim in read_claims(file, stack.vocabulary)]
    breaks = BREAKS if loud else ("silent",)
    found = (*prove(stack, breaks), *claim_findings(stack, listed))
    contracts = sum(contract.breaks in breaks for contract in stack.all_contracts())
    said = f"{contracts} contracts and {len(listed)} claims over all facts"
    held_against_list(stack, found, form, json, said, everything)
