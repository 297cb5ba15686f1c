"""Decisions held against what kernels demand: every contract that may match, whoever allocated."""

from __future__ import annotations

from .flow import number
from .known import Known
from .packs import DIMENSIONS
from .record import NamedTuple
from .resolve import DEPENDS, NO, YES, Leaf, verdict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from .flow import Flow
    from .packs import Condition, Contract, Demand
    from .stack import Stack


class Check(NamedTuple):
    """One contract against one decision: `holds` is `None` where an open fact or size decides it.

    `said` is what is demanded and what is there, with the numbers.
    """

    contract: Contract
    holds: bool | None
    said: str


def checks(stack: Stack, leaf: Leaf) -> tuple[Check, ...]:
    """Every contract that may be about this leaf; nothing is allocated where the leaf is not decided."""
    if leaf.status != "decided" or not stack.contracts:
        return ()
    return tuple(_checks(stack, leaf))


def _checks(stack: Stack, leaf: Leaf) -> Iterator[Check]:
    for pack in stack.contracts:
        held, _, _ = verdict(pack.needs, (), leaf.state, leaf.flow)
        if held is NO:
            continue
        for contract in pack.contracts:
            inner, condition, _ = verdict(contract.when, contract.unless, leaf.state, leaf.flow)
            if inner is NO:
                continue
            demands = [_demand(demand, leaf.state, leaf.flow) for demand in contract.demands]
            demands += [_fact(wanted, leaf.state, leaf.flow) for wanted in contract.facts]
            broken = [said for holds, said in demands if holds is False]
            unsure = [said for holds, said in demands if holds is None]
            said = "; ".join(broken or unsure or [said for _, said in demands])
            holds = False if broken else None if unsure else True
            if holds is not True and DEPENDS in (held, inner):
                holds, said = (
                    None,
                    f"{said} (where {condition.key} is {condition.text})" if condition else said,
                )
            yield Check(contract, holds, said)


def _fact(wanted: Condition, state: Known, flow: Flow) -> tuple[bool | None, str]:
    """Whether a fact that is no size is as the kernel needs it."""
    value = state.values.get(wanted.key)
    held, _, _ = verdict((wanted,), (), state, flow)
    if held is DEPENDS:
        return None, f"{wanted.key} must be {wanted.text}"
    if isinstance(value, tuple):
        from .versions import key_text

        value = key_text(value)
    return held is YES, f"{wanted.key} is {value or 'open'}, must be {wanted.text}"


def _demand(demand: Demand, state: Known, flow: Flow) -> tuple[bool | None, str]:
    if demand.of.endswith("_pad"):
        return _pad_demand(demand, flow)
    size = _size(demand.of, state, flow)
    wanted = _wanted(demand)
    if size is None:
        return (True if _always(demand, state, flow) else None), f"{demand.of} must be {wanted}"
    fits = _fits(demand, size, state)
    return (
        fits,
        f"{demand.of} {size} is {'' if fits else 'not '}{wanted}"
        if fits is not None
        else f"{demand.of} must be {wanted}",
    )


def _always(demand: Demand, state: Known, flow: Flow) -> bool:
    """Whether an open size meets the demand whatever it is, since its multiple does."""
    if demand.of not in DIMENSIONS or demand.exactly or demand.highest is not None:
        return False
    multiple = getattr(flow, demand.of).multiple or 1
    numbers = [number(wanted, state) for wanted in demand.multiples]
    divides = any(factor is not None and multiple % factor == 0 for factor in numbers)
    return divides and multiple >= (demand.lowest or 0)


def _always_fits(demand: Demand, state: Known, flow: Flow) -> bool | None:
    """Whether every size that the decided multiple allows is as demanded; else the size itself must be known."""
    dimension = {"hidden": flow.hidden, "intermediate": flow.intermediate}.get(demand.of)
    bounded = demand.exactly or demand.lowest is not None or demand.highest is not None
    if dimension is None or dimension.multiple is None or dimension.pending is not None or bounded:
        return None
    factors = [number(multiple, state) for multiple in demand.multiples]
    return True if any(factor and dimension.multiple % factor == 0 for factor in factors) else None


def _size(of: str, state: Known, flow: Flow) -> int | None:
    if of == "hidden":
        return flow.hidden.size
    if of == "intermediate":
        return flow.intermediate.size
    value = state.values.get(of)
    return value if isinstance(value, int) else None


def _fits(demand: Demand, size: int, state: Known) -> bool | None:
    if demand.exactly and size not in demand.exactly:
        return False
    if demand.lowest is not None and size < demand.lowest:
        return False
    if demand.highest is not None and size > demand.highest:
        return False
    if not demand.multiples:
        return True
    numbers = [number(multiple, state) for multiple in demand.multiples]
    if any(factor is not None and size % factor == 0 for factor in numbers):
        return True
    return None if None in numbers else False


def _wanted(demand: Demand) -> str:
    parts = []
    if demand.multiples:
        parts.append("a multiple of " + " or ".join(map(str, demand.multiples)))
    if demand.exactly:
        parts.append(" or ".join(map(str, demand.exactly)))
    if demand.lowest is not None:
        parts.append(f"at least {demand.lowest}")
    if demand.highest is not None:
        parts.append(f"at most {demand.highest}")
    return ", ".join(parts)


def _pad_demand(demand: Demand, flow: Flow) -> tuple[bool | None, str]:
    """A declared pad, as the kernel reads it, against the padding that is really there."""
    if flow.pads is None:
        return None, f"{demand.of} is not known"
    hidden = demand.of == "hidden_pad"
    declared = flow.pads[0 if hidden else 1]
    dimension = flow.hidden if hidden else flow.intermediate
    if declared is None or dimension.native is None or dimension.size is None:
        return True, f"{demand.of} is not declared"
    read = declared // demand.floor * demand.floor
    actual = dimension.size - dimension.native
    said = f"declared {demand.of} {declared}, read as {read}, padding {actual}"
    if demand.at_most_actual and read > actual:
        return False, f"{said}: {read - actual} live elements are masked"
    plain = demand._replace(floor=1, at_most_actual=False)
    bounded = _fits(plain, read, Known(_NO_WORDS, {}, {}, {}, {}))
    return bounded, said


_NO_WORDS = None  # type: ignore[var-annotated]
