"""`prove`: claims about every decision, held over all facts."""

from __future__ import annotations

from typing import Annotated

import typer

from ..claims import claim_findings
from ..load.claims import read_claims
from ..prove import prove
from ..reviewed import reviewed, unreviewed
from .analysis import Format, OnlyRules, loaded, report
from .flags import Json
from .linting import Rules

EXAMPLE = "moe-align prove --claims claims.yaml"

_Claims = Annotated[
    list[str] | None,
    typer.Option("--claims", metavar="FILE", help="What must never or always be, in YAML; again for more."),
]
_All = Annotated[
    bool, typer.Option("--all", help="Also what the list of reviewed findings holds.", show_default=False)
]


def command(
    rules: Rules = None,
    claims: _Claims = None,
    everything: _All = False,
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
    found = (*prove(stack), *claim_findings(stack, listed))
    if not everything:
        found = unreviewed(found, reviewed(stack.layers))
    contracts = len(list(stack.all_contracts()))
    report(found, form, json, f"{contracts} contracts and {len(listed)} claims over all facts")
