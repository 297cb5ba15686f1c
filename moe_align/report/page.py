"""The page of one rule, contract or problem code."""

from __future__ import annotations

from ..record import NamedTuple
from . import SHAPE
from .lines import Row, Style, folded, rows
from .outcomes import conditions_text, demands_text, outcome_text
from .words import listed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..codes import Page
    from ..packs import Condition, Contract, Pack, Rule

    Plain = dict[str, object]


class RulePage(NamedTuple):
    """One rule or contract in its place.

    `position` of `siblings` is where it stands in its pack, from 1; `before` are the packs of its phase
    that are tried first; `models` the known models of which it decides a size.
    """

    pack: Pack
    rule: Rule | Contract
    position: int
    siblings: int
    before: Sequence[str] = ()
    models: Sequence[str] = ()


_EVIDENCE = {
    "read": "read: the code was read",
    "ran": "ran: the engine's own code was run and said so",
    "measured": "measured: it was seen on the hardware",
    "reported": "reported: somebody who saw it says so",
}

_BREAKS = {
    "silent": "silent: wrong results and no error",
    "raises": "raises: an error",
    "slow": "slow: right results, on a slower path",
}


def _does(rule: Rule | Contract) -> str:
    demands = getattr(rule, "demands", None)
    return demands_text(rule) if demands is not None else outcome_text(rule.outcome)  # type: ignore[union-attr,arg-type]


def rule_plain(page: RulePage) -> Plain:
    """The page of a rule or contract as `--json` gives it."""
    pack, rule = page.pack, page.rule
    return {
        "version": SHAPE,
        "kind": "contract" if pack.phase is None else "rule",
        "id": rule.address,
        "phase": pack.phase,
        "layer": pack.layer,
        "place": str(rule.location),
        "position": page.position,
        "does": _does(rule),
        "breaks": getattr(rule, "breaks", None),
        "for": _named(pack.needs),
        "covers": _named(pack.covers),
        "when": _named(rule.when),
        "unless": _named(rule.unless),
        "why": rule.why,
        "source": rule.source,
        "evidence": rule.evidence,
        "models": list(page.models),
    }


def _named(conditions: Iterable[Condition]) -> dict[str, str]:
    return {condition.key: condition.text for condition in conditions}


def rule_text(page: RulePage, style: Style) -> str:
    """The page of a rule or contract as a person reads it."""
    rule, pack = page.rule, page.pack
    kind = "contract" if pack.phase is None else f"rule of phase {pack.phase}"
    head = style.paint(rule.address, "strong") + f"   {kind}"
    return "\n".join([head, *rows(style, filter(lambda row: any(row.items), _rows(page)))])


def _rows(page: RulePage) -> Iterable[Row]:
    rule, pack = page.rule, page.pack
    breaks = getattr(rule, "breaks", None)
    yield Row("demands" if breaks else "does", [_does(rule)], "strong")
    if breaks:
        yield Row("breaks", [_BREAKS[breaks]])
    yield Row("when", conditions_text(rule.when) or ["always"])
    yield Row("unless", conditions_text(rule.unless))
    yield Row("for", conditions_text(pack.needs))
    yield Row("covers", conditions_text(pack.covers))
    yield Row("why", [rule.why or ""])
    yield Row("source", [rule.source or ""])
    yield Row("evidence", [_EVIDENCE.get(rule.evidence or "", "")])
    yield Row(
        "stands",
        [str(rule.location), f"{page.position} of {page.siblings} in its pack", f"layer {pack.layer}"],
    )
    if page.before:
        yield Row("after", [f"the packs {listed(page.before)}"])
    if page.models:
        yield Row("decides", [listed(page.models, 24)])


def code_plain(page: Page) -> Plain:
    """The page of a problem code as `--json` gives it."""
    return {"version": SHAPE, "kind": "code", "id": page.code, "title": page.title, "text": page.text}


def code_text(page: Page, style: Style) -> str:
    """The page of a problem code; what is indented in it stays as it is."""
    lines = [style.paint(f"{page.code}", "strong") + f"   {page.title}", ""]
    for line in page.text.split("\n"):
        lines += [line] if line.startswith(" ") else folded(line, style.width)
    return "\n".join(lines)
