"""Conditions, outcomes and demands of rules and contracts, as a person reads them."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ..packs import Condition, Contract, Demand, Multiple, Outcome


def conditions_text(conditions: Iterable[Condition]) -> list[str]:
    """Each condition in a few words."""
    return [f"{condition.key} {condition.text}" for condition in conditions]


def outcome_text(outcome: Outcome) -> str:
    """What a rule does, in a few words."""
    return ", ".join(_outcome(outcome))


def _outcome(outcome: Outcome) -> Iterator[str]:
    yield _form(outcome)
    if outcome.experts:
        yield f"{outcome.experts:+d} experts"
    if outcome.error:
        yield f"raises {outcome.error}"
    for name, padded in (("rows", outcome.rows), ("columns", outcome.columns)):
        if padded:
            said = " and ".join(f"{tensor} × {multiple}" for tensor, multiple in padded)
            yield f"scale {name} of {said}"
    if outcome.otherwise is not None:
        yield f"else {outcome_text(outcome.otherwise)}"


def _form(outcome: Outcome) -> str:
    if outcome.form == "reject":
        return f"reject: {outcome.target}"
    if outcome.form == "use":
        return f"use {outcome.target}"
    if outcome.form == "declare" and outcome.pads:
        return f"tell hidden_pad {outcome.pads[0]}, intermediate_pad {outcome.pads[1]}"
    if outcome.form == "refine" and outcome.refine:
        refine = outcome.refine
        return f"divide {', '.join(refine.blocks)} to fit {refine.fits}, at least {refine.floor}"
    if outcome.form == "add":
        where = " of the row stride" if outcome.stride else ""
        amounts = (f"{name} + {amount.number} {amount.unit}{where}" for name, amount in outcome.add)
        return ", ".join(amounts)
    verb = {"align": "", "require": "require ", "set": "set "}[outcome.form]
    sizes = _sizes(outcome.hidden, outcome.intermediate)
    if outcome.counted is None:
        return verb + sizes
    return (
        f"{verb}experts × {outcome.counted}"
        if sizes == "both native"
        else f"{verb}{sizes}, experts × {outcome.counted}"
    )


def _sizes(hidden: Multiple | None, intermediate: Multiple | None) -> str:
    if hidden == intermediate and hidden is not None:
        return "both native" if hidden.is_native else f"both × {hidden}"
    named = (("hidden", hidden), ("intermediate", intermediate))
    return ", ".join(
        f"{name} native" if multiple.is_native else f"{name} × {multiple}"
        for name, multiple in named
        if multiple is not None
    )


def demands_text(contract: Contract) -> str:
    """What a contract demands, in a few words."""
    said = [_demand(demand) for demand in contract.demands]
    return "; ".join((*said, *(f"{key} {text}" for key, _, text in contract.facts)))


def _demand(demand: Demand) -> str:
    parts = [demand.wanted] if demand.wanted else []
    if demand.at_most_actual:
        parts.append("no more than the real padding")
    read = f" as read in steps of {demand.floor}" if demand.floor > 1 else ""
    return f"{demand.of}{read} {', '.join(parts)}"
