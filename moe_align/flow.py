"""Sizes on their way through the phases: what an outcome makes of them, also where they are open.

An open size is carried as the steps that will be taken on it, so that a later condition on it can be
turned back into a condition on the size as it entered.
"""

from __future__ import annotations

import math

from .packs import DIMENSIONS, NATIVE
from .record import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .known import Known
    from .packs import Accepts, Amount, Condition, Multiple, Outcome, Rule
    from .space import Ints

#: Conditions on these see the size as it enters the phase; the open fact behind them is the first size.
BASE = {"native_hidden": "hidden", "native_intermediate": "intermediate_per_partition"}


class Dimension(NamedTuple):
    """One size: before padding, now, as allocated, and the multiple that it is known to be of.

    `steps` are taken on an open size, in order; `pending` names the open facts that its multiple
    needs; `required` says that the multiple is demanded, not made.
    """

    native: int | None
    size: int | None
    allocated: int | None = None
    multiple: int | None = 1
    steps: tuple[tuple[str, object], ...] = ()
    pending: str | None = None
    required: bool = False


class Flow(NamedTuple):
    """All that outcomes change on their way: both sizes, blocks, the backend, experts, storage, pads."""

    hidden: Dimension
    intermediate: Dimension
    blocks: tuple[tuple[str, int], ...] = ()
    backend: str | None = None
    experts: int = 0
    storage: tuple[tuple[str, Amount, bool], ...] = ()
    rows: tuple[tuple[str, int], ...] = ()
    columns: tuple[tuple[str, int], ...] = ()
    pads: tuple[int | None, int | None] | None = None
    pads_text: str | None = None


def entering(state: Known) -> Flow:
    """The sizes as they enter the first phase."""
    return Flow(*(_entering(state.values.get(key)) for key in DIMENSIONS.values()))


def _entering(size: object) -> Dimension:
    known = size if isinstance(size, int) else None
    return Dimension(known, known)


def narrowed(state: Known, flow: Flow) -> Flow:
    """The flow once an open size has got its one value: its steps are taken."""
    changed = flow
    for name, key in DIMENSIONS.items():
        dimension: Dimension = getattr(flow, name)
        size = state.values.get(key)
        if dimension.native is None and isinstance(size, int):
            made = dimension._replace(native=size, size=_walked(size, dimension.steps), steps=())
            changed = changed._replace(**{name: made})
    return changed


def _walked(size: int, steps: tuple[tuple[str, object], ...]) -> int | None:
    walked: int | None = size
    for step, by in steps:
        if walked is not None:
            walked = _STEPS[step](walked, by)  # type: ignore[operator]
    return walked


def after(state: Known, flow: Flow) -> Known:
    """What is known once a phase is over: conditions see the new sizes, blocks and backend."""
    from .known import Known

    values = dict(state.values)
    for name, key in DIMENSIONS.items():
        size = getattr(flow, name).size
        if size is not None:
            values[key] = size
    values.update(flow.blocks)
    if flow.backend is not None:
        values["backend"] = flow.backend
    if values == state.values:
        return state
    return Known(state.vocabulary, state.given, values, state.domains, state.origin, state.refusal)


def held(state: Known, flow: Flow, condition: Condition) -> str:
    """Whether a condition on an open fact holds: `yes`, `no` or `depends`."""
    key = BASE.get(condition.key, condition.key)
    domain = state.domain(key)
    accepts = entering_part(state, flow, condition)
    if domain <= accepts:  # type: ignore[operator]  # both are sets of one key's sort
        return "yes"
    return "no" if domain.isdisjoint(accepts) else "depends"  # type: ignore[arg-type]


def entering_part(state: Known, flow: Flow, condition: Condition) -> Accepts:
    """The values of the open fact behind a condition with which the condition holds."""
    name = {key: name for name, key in DIMENSIONS.items()}.get(condition.key)
    if name is None:
        return condition.accepts
    accepts: Ints = condition.accepts  # type: ignore[assignment]
    for step, by in reversed(getattr(flow, name).steps):
        accepts = _BEFORE[step](accepts, by)  # type: ignore[operator]
    return accepts


def apply(rule: Rule, state: Known, flow: Flow) -> tuple[Flow, str, str | None]:
    """The flow after a rule, with the status and, where it is not `decided`, the reason."""
    outcome = rule.outcome
    flow = flow._replace(
        experts=flow.experts + outcome.experts,
        rows=flow.rows + outcome.rows,
        columns=flow.columns + outcome.columns,
    )
    if outcome.form == "reject":
        return flow, "rejected", outcome.target
    if outcome.form == "use":
        return flow._replace(backend=outcome.target), "decided", None
    if outcome.form == "declare":
        return _declared(outcome, flow), "decided", None
    if outcome.form == "refine":
        flow, status, reason = _refined(rule, state, flow)
    elif outcome.form == "add":
        flow, status, reason = _added(outcome, flow), "decided", None
    else:
        flow, status, reason = _both(rule, outcome, state, flow)
    if rule.phase == "allocate":
        flow = flow._replace(
            hidden=flow.hidden._replace(allocated=flow.hidden.size),
            intermediate=flow.intermediate._replace(allocated=flow.intermediate.size),
        )
    return flow, status, reason


def _both(rule: Rule, outcome: Outcome, state: Known, flow: Flow) -> tuple[Flow, str, str | None]:
    for name, key in DIMENSIONS.items():
        multiple: Multiple | None = getattr(outcome, name)
        if multiple is None:
            continue
        dimension: Dimension = getattr(flow, name)
        if outcome.form == "require":
            made, reason = _required(dimension, multiple, state, rule, name)
        elif outcome.form == "set":
            made, reason = _set(dimension, multiple, state), None
        else:
            made, reason = aligned(dimension, multiple, state, name)
        flow = flow._replace(**{name: made})
        if reason is not None:
            return flow, "rejected", reason
    return flow, "decided", None


def number(multiple: Multiple, state: Known) -> int | None:
    """The multiple as a number, or `None` where an open fact is needed for it (or it is a `snap`)."""
    if multiple.op == "snap":
        return None
    items = [item if isinstance(item, int) else state.values.get(item) for item in multiple.items]
    if not all(isinstance(item, int) for item in items):
        return None
    numbers: list[int] = items  # type: ignore[assignment]
    if multiple.op == "lcm":
        return math.lcm(*numbers)
    if multiple.op == "bytes":
        item_bytes = state.values.get("act_bytes")
        return math.ceil(numbers[0] / item_bytes) if isinstance(item_bytes, int) else None
    return max(numbers)


def aligned(
    dimension: Dimension, multiple: Multiple, state: Known, name: str
) -> tuple[Dimension, str | None]:
    """The dimension rounded up; with a reason where no listed size is large enough."""
    if multiple == NATIVE:
        return dimension, None
    if multiple.op == "snap":
        return _snapped(dimension, multiple, name)
    factor = number(multiple, state)
    if factor is None:
        return dimension._replace(size=None, multiple=None, pending=str(multiple)), None
    steps = [("at_least", multiple.at_least)] if multiple.at_least is not None else []
    steps += [("round_up", factor)] if factor > 1 else []
    return _taken(dimension, steps, factor), None


def _taken(dimension: Dimension, steps: list[tuple[str, object]], factor: int) -> Dimension:
    size = None if dimension.size is None else _walked(dimension.size, tuple(steps))
    known = dimension.multiple or 1
    return dimension._replace(
        size=size,
        multiple=known if known % factor == 0 else factor,
        steps=dimension.steps if dimension.native is not None else (*dimension.steps, *steps),
        required=False,
    )


def _snapped(dimension: Dimension, multiple: Multiple, name: str) -> tuple[Dimension, str | None]:
    choices: tuple[int, ...] = multiple.items  # type: ignore[assignment]
    if dimension.size is None:
        made = _taken(dimension, [("snap", choices)], math.gcd(*choices))
        return made._replace(pending=str(multiple)), None
    fitting = [choice for choice in choices if choice >= dimension.size]
    if not fitting:
        return (
            dimension,
            f"{name} {dimension.size} is above {choices[-1]}, the largest of {', '.join(map(str, choices))}",
        )
    return dimension._replace(size=fitting[0], multiple=math.gcd(*choices)), None


def _required(
    dimension: Dimension, multiple: Multiple, state: Known, rule: Rule, name: str
) -> tuple[Dimension, str | None]:
    made, reason = aligned(dimension, multiple, state, name)
    if reason is not None or dimension.size is None or made.size is None:
        return made._replace(required=multiple != NATIVE), reason
    if made.size == dimension.size:
        return made._replace(required=multiple != NATIVE), None
    wanted = (
        f"one of {', '.join(map(str, multiple.items))}"
        if multiple.op == "snap"
        else f"a multiple of {number(multiple, state)}"
    )
    if multiple.at_least is not None:
        wanted += f" of at least {multiple.at_least}"
    return dimension, f"{_sum(dimension, state, name)} is not {wanted}: {rule.why}"


def _sum(dimension: Dimension, state: Known, name: str) -> str:
    whole, ranks = state.values.get("intermediate"), state.values.get("moe_tp")
    shown = f"{name} {dimension.size}"
    if (
        name == "intermediate"
        and isinstance(whole, int)
        and dimension.size == dimension.native
        and ranks != 1
    ):
        return f"{shown} = {whole} / {ranks}"
    return shown


def _set(dimension: Dimension, multiple: Multiple, state: Known) -> Dimension:
    size = number(multiple, state)
    if multiple.at_least is not None:
        step = [("at_least", multiple.at_least)]
        return _taken(dimension, step, 1) if multiple.items == (1,) else _constant(dimension, size, multiple)
    return _constant(dimension, size, multiple)


def _constant(dimension: Dimension, size: int | None, multiple: Multiple) -> Dimension:
    if size is None:
        return dimension._replace(size=None, multiple=None, pending=str(multiple))
    return dimension._replace(
        size=size, steps=(), native=dimension.native if dimension.native is not None else size
    )


def _refined(rule: Rule, state: Known, flow: Flow) -> tuple[Flow, str, str | None]:
    refine, otherwise = rule.outcome.refine, rule.outcome.otherwise
    assert refine is not None
    assert otherwise is not None
    size = getattr(flow, refine.fits).size
    blocks = {name: state.values.get(name) for name in refine.blocks}
    if size is None or not all(isinstance(block, int) for block in blocks.values()):
        dimension = getattr(flow, refine.fits)._replace(pending=f"blocks {', '.join(refine.blocks)}")
        return flow._replace(**{refine.fits: dimension}), "decided", None
    fitted = {name: math.gcd(int(block), size) for name, block in blocks.items()}  # type: ignore[arg-type]
    if min(fitted.values()) >= refine.floor:
        return flow._replace(blocks=tuple(fitted.items())), "decided", None
    if otherwise.form == "reject":
        return flow, "rejected", otherwise.target
    return _both(rule, otherwise, state, flow)


def _added(outcome: Outcome, flow: Flow) -> Flow:
    for name, amount in outcome.add:
        flow = flow._replace(storage=(*flow.storage, (name, amount, outcome.stride)))
        if outcome.stride or amount.unit != "elements":
            continue
        dimension: Dimension = getattr(flow, name)
        made = _taken(dimension, [("add", amount.number)], 1)
        flow = flow._replace(**{name: made._replace(multiple=1)})
    return flow


def _declared(outcome: Outcome, flow: Flow) -> Flow:
    assert outcome.pads is not None
    actual = [_pad_of(flow.hidden), _pad_of(flow.intermediate)]
    text = f"hidden_pad {outcome.pads[0]}, intermediate_pad {outcome.pads[1]}"
    if any(pad is None for pad in actual):
        return flow._replace(pads_text=text)
    hidden, intermediate = (pad.of(real) for pad, real in zip(outcome.pads, actual, strict=True))  # type: ignore[arg-type]
    return flow._replace(pads=(hidden, intermediate), pads_text=text)


def _pad_of(dimension: Dimension) -> int | None:
    if dimension.native is None or dimension.allocated is None:
        return None
    return dimension.allocated - dimension.native


def _round_up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


def _snap(size: int, choices: tuple[int, ...]) -> int | None:
    return next((choice for choice in choices if choice >= size), None)


def _before_round_up(accepts: Ints, multiple: int) -> Ints:
    return accepts.preimage_round_up(multiple)


def _before_at_least(accepts: Ints, least: int) -> Ints:
    from .space import Ints

    above = accepts & Ints.between(least, None)
    return above | Ints.between(0, least) if least in accepts else above


def _before_snap(accepts: Ints, choices: tuple[int, ...]) -> Ints:
    from .space import Ints

    entering, below = Ints.empty(), -1
    for choice in choices:
        if choice in accepts:
            entering |= Ints.between(below + 1, choice)
        below = choice
    return entering


def _before_add(accepts: Ints, amount: int) -> Ints:
    return accepts.preimage_add(amount)


_STEPS = {"round_up": _round_up, "at_least": max, "snap": _snap, "add": int.__add__}
_BEFORE = {
    "round_up": _before_round_up,
    "at_least": _before_at_least,
    "snap": _before_snap,
    "add": _before_add,
}
