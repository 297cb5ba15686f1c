"""Decisions held against what kernels demand: every contract that may match, whoever allocated."""

from __future__ import annotations

from .flow import number
from .known import Known
from .packs import DIMENSIONS
from .record import NamedTuple
from .resolve import DEPENDS, NO, YES, Leaf, verdict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .flow import Flow
    from .packs import Condition, Contract, Demand
    from .stack import Stack

    Candidate = tuple[Contract, Condition | None]


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
    return checked(_of_packs(stack, leaf), leaf)


def about(stack: Stack, leaf: Leaf) -> tuple[Candidate, ...]:
    """The contracts that may be about this leaf, each with the open fact by which its pack may be."""
    return tuple(
        (contract, missing)
        for contract, missing in _of_packs(stack, leaf)
        if verdict(contract.when, contract.unless, leaf.state, leaf.flow)[0] is not NO
    )


def checked(candidates: Iterable[Candidate], leaf: Leaf) -> tuple[Check, ...]:
    """Those of the contracts that may be about the leaf, held against it."""
    state, flow = leaf.state, leaf.flow
    found = []
    for contract, missing in candidates:
        held, condition, _ = verdict(contract.when, contract.unless, state, flow)
        if held is not NO:
            found.append(_check(contract, missing or condition, state, flow))
    return tuple(found)


def _of_packs(stack: Stack, leaf: Leaf) -> Iterator[Candidate]:
    for pack in stack.contracts:
        needed, missing, _ = verdict(pack.needs, (), leaf.state, leaf.flow)
        if needed is not NO:
            for contract in pack.contracts:
                yield contract, missing


def _check(contract: Contract, unsure_if: Condition | None, state: Known, flow: Flow) -> Check:
    """The contract against what is known; `unsure_if` decides whether it is about this layer at all."""
    demands = [_demand(demand, state, flow) for demand in contract.demands]
    demands += [_fact(wanted, state, flow) for wanted in contract.facts]
    broken = [said for holds, said in demands if holds is False]
    unsure = [said for holds, said in demands if holds is None]
    said = "; ".join(broken or unsure or [said for _, said in demands])
    if not broken and not unsure:
        return Check(contract, True, said)
    if unsure_if is not None:
        return Check(contract, None, f"{said} (where {unsure_if.key} is {unsure_if.text})")
    return Check(contract, False if broken else None, said)


def _fact(wanted: Condition, state: Known, flow: Flow) -> tuple[bool | None, str]:
    """Whether a fact that is no size is as the kernel needs it."""
    held, _, _ = verdict((wanted,), (), state, flow)
    if wanted.key not in state.values:
        return (
            True if held is YES else None if held is DEPENDS else False,
            f"{wanted.key} must be {wanted.text}",
        )
    return held is YES, f"{wanted.key} is {state.text(wanted.key)}, must be {wanted.text}"


def _demand(demand: Demand, state: Known, flow: Flow) -> tuple[bool | None, str]:
    if demand.of.endswith("_pad"):
        return _pad_demand(demand, state, flow)
    size = _size(demand.of, state, flow)
    wanted = demand.wanted
    if demand.native and (size is None or size != flow.of(demand.of).native):
        return (
            (None, f"{demand.of} must be native")
            if size is None
            else (False, f"{demand.of} {size} is padded")
        )
    if size is None:
        return (True if _always(demand, state, flow) else None), f"{demand.of} must be {wanted}"
    fits = _fits(demand, size, state)
    if fits is None:
        return None, f"{demand.of} {size} must be {wanted}"
    return fits, f"{demand.of} {size} is {'' if fits else 'not '}{wanted}"


def _always(demand: Demand, state: Known, flow: Flow) -> bool:
    """Whether an open size meets the demand whatever it is, since its multiple does."""
    if demand.of not in DIMENSIONS or demand.exactly or demand.highest is not None:
        return False
    multiple = flow.of(demand.of).multiple or 1
    numbers = [number(wanted, state) for wanted in demand.multiples]
    divides = any(factor is not None and multiple % factor == 0 for factor in numbers)
    return divides and multiple >= (demand.lowest or 0)


def _size(of: str, state: Known, flow: Flow) -> int | None:
    if of in DIMENSIONS:
        return flow.of(of).size
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


def _pad_demand(demand: Demand, state: Known, flow: Flow) -> tuple[bool | None, str]:
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
    return _fits(demand, read, state), said
