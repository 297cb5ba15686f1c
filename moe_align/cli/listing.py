"""`list`: rules, contracts, packs, facts, values, models, codes, or the values of one fact."""

from __future__ import annotations

from typing import Annotated

import typer

from ..cache import cached_models, cached_policy
from ..codes import pages
from ..errors import PolicyError, Problem, did_you_mean
from ..facts import DISCRETE, kind
from ..report import json_text
from ..report import listing as lists
from .completing import starting
from .flags import Json, Rules
from .terminal import say, style

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..policy import Policy

EXAMPLE = "moe-align list backend"

_LISTS = ("rules", "contracts", "packs", "facts", "values", "models", "codes")


def _complete(incomplete: str) -> list[str]:
    return starting(incomplete, (*_LISTS, *DISCRETE))


_Of = Annotated[
    str | None,
    typer.Argument(
        metavar="[WHAT]",
        help=f"{', '.join(_LISTS)}, or a fact, of which the values are listed.",
        autocompletion=_complete,
    ),
]


def command(of: _Of = None, rules: Rules = None, json: Json = False) -> None:
    """Rules, contracts, facts, values, models, codes."""
    listing = _listing(of, cached_policy(rules or ()))
    say(json_text(lists.listing_plain(listing)) if json else lists.listing_text(listing, style()))


def _listing(of: str | None, policy: Policy) -> lists.Listing:
    name = (of or "").lower()
    if not name:
        return lists.overview(policy, cached_models(), pages())
    if name == "models":
        return lists.models(cached_models())
    if name == "codes":
        return lists.codes(pages())
    made = {
        "rules": lists.rules,
        "contracts": lists.contracts,
        "packs": lists.packs,
        "facts": lists.facts,
        "values": lists.values,
    }.get(name)
    return made(policy) if made else _of_fact(of or "", policy)


def _of_fact(said: str, policy: Policy) -> lists.Listing:
    declared = {key.lower(): key for key in (*DISCRETE, *policy.stack.vocabulary.terms)}
    key = declared.get(said.lower())
    if key is not None:
        return lists.values(policy, key)
    sort = kind(said.lower())
    if sort is not None:
        numbers = "whole numbers" if sort == "integer" else "releases"
        raise PolicyError(
            [Problem("U006", f"`{said}` has {numbers} for values", "write `moe-align list facts`")]
        )
    near = did_you_mean(said, (*_LISTS, *declared))
    fix = f"write `{near}`" if near else f"legal are {', '.join(_LISTS)}, or a fact"
    raise PolicyError([Problem("U006", f"no list `{said}`", fix)])
