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
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from .known import Known
    from .packs import Accepts, Amount, Condition, Count, Multiple, Outcome, Pad, Rule
    from .space import Ints

    Step = tuple[str, Any]  # what is done, and the number or the sizes with which

#: Conditions on these see the first size, whatever the phases have made of it.
BASE = {"native_hidden": "hidden", "native_intermediate": "intermediate_per_partition"}

_NAMES = {key: name for name, key in DIMENSIONS.items()}


class Dimension(NamedTuple):
    """One size: before padding, now, as `created` by `allocate`, and the multiple that it is known to be of.

    `steps` are taken on an open size, in order. `pending` says in words what the size comes to where
    neither a number nor the multiple does. `needs` names the open facts without which nothing more
    can be said of it. `required` says that the multiple is demanded, not made.
    """

    native: int | None
    size: int | None
    created: Dimension | None = None
    multiple: int | None = 1
    steps: tuple[Step, ...] = ()
    pending: str | None = None
    needs: tuple[str, ...] = ()
    required: bool = False


class Flow(NamedTuple):
    """All that outcomes change on their way: both sizes, blocks, the backend, experts, storage, pads."""

    hidden: Dimension
    intermediate: Dimension
    blocks: tuple[tuple[str, int | None], ...] = ()
    backend: str | None = None
    experts: int = 0
    storage: tuple[tuple[str, Amount, bool], ...] = ()
    rows: tuple[tuple[str, int], ...] = ()
    columns: tuple[tuple[str, int], ...] = ()
    pads: tuple[int | None, int | None] | None = None
    pads_text: str | None = None

    def of(self, name: str) -> Dimension:
        """The dimension that files call `name`."""
        return self.hidden if name == "hidden" else self.intermediate

    def having(self, name: str, dimension: Dimension) -> Flow:
        """The same with one dimension replaced."""
        return self._replace(hidden=dimension) if name == "hidden" else self._replace(intermediate=dimension)

    @property
    def needs(self) -> tuple[str, ...]:
        """The open facts without which the sizes are not known."""
        return tuple(dict.fromkeys(self.hidden.needs + self.intermediate.needs))


def entering(state: Known) -> Flow:
    """The sizes as they enter the first phase."""
    hidden, intermediate = (state.values.get(key) for key in DIMENSIONS.values())
    return Flow(_entering(hidden), _entering(intermediate))


def _entering(size: object) -> Dimension:
    known = size if isinstance(size, int) else None
    return Dimension(known, known)


def after(state: Known, flow: Flow) -> Known:
    """What is known once a phase is over: conditions see the new sizes, blocks and backend."""
    values = dict(state.values)
    changed: list[tuple[str, int | None]] = [(key, flow.of(name).size) for name, key in DIMENSIONS.items()]
    for key, size in (*changed, *flow.blocks):
        if size is not None:
            values[key] = size
        else:
            values.pop(key, None)
    if flow.backend is not None:
        values["backend"] = flow.backend
    return state if values == state.values else state.having(values)


def held(state: Known, flow: Flow, condition: Condition) -> str:
    """Whether a condition on an open fact holds: `yes`, `no` or `depends`."""
    if lacking(flow, condition):
        return "depends"
    domain = state.domain(BASE.get(condition.key, condition.key))
    accepts = entering_part(state, flow, condition)
    if domain <= accepts:  # type: ignore[operator]  # both are sets of one key's sort
        return "yes"
    return "no" if domain.isdisjoint(accepts) else "depends"  # type: ignore[arg-type]


def lacking(flow: Flow, condition: Condition) -> bool:
    """Whether the condition is on a size or block of which nothing can be said before others are known."""
    name = _NAMES.get(condition.key)
    if name is not None:
        return bool(flow.of(name).needs)
    return (condition.key, None) in flow.blocks


def entering_part(state: Known, flow: Flow, condition: Condition) -> Accepts:
    """The values of the open fact behind a condition with which the condition holds."""
    name = _NAMES.get(condition.key)
    if name is None:
        return condition.accepts
    accepts: Ints = condition.accepts  # type: ignore[assignment]
    for step, by in reversed(flow.of(name).steps):
        accepts = _BEFORE[step](accepts, by)
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
        return declared(outcome, flow), "decided", None
    if outcome.form == "refine":
        flow, reason = _refined(rule, state, flow)
    elif outcome.form == "add":
        flow, reason = _added(outcome, flow), None
    else:
        flow, reason = _both(rule, outcome, state, flow)
    if rule.phase == "allocate" and reason is None:
        hidden, intermediate = flow.hidden, flow.intermediate
        flow = flow._replace(
            hidden=hidden._replace(created=hidden),
            intermediate=intermediate._replace(created=intermediate),
        )
    return flow, "decided" if reason is None else "rejected", reason


def _both(rule: Rule, outcome: Outcome, state: Known, flow: Flow) -> tuple[Flow, str | None]:
    for name, multiple in (("hidden", outcome.hidden), ("intermediate", outcome.intermediate)):
        if multiple is None or multiple == NATIVE:
            continue
        made, reason = _FORMS[outcome.form](flow.of(name), multiple, state, rule, name)
        if reason is not None:
            return flow, reason
        flow = flow.having(name, made)
    return (flow, None) if outcome.counted is None else _counted(rule, outcome.counted, state, flow)


def _counted(rule: Rule, count: Count, state: Known, flow: Flow) -> tuple[Flow, str | None]:
    """The flow with the experts that are missing to the count; or why that is refused."""
    experts, factor = state.values.get("experts"), _known(count.multiple, state)
    least = 1 if count.at_least is None else _known(count.at_least, state)
    redundant = state.values.get("redundant_experts", 0)
    if not (isinstance(experts, int) and isinstance(redundant, int) and factor and least):
        return flow, None
    total = experts + redundant + flow.experts
    made = _round_up(max(total, least), factor)
    if made == total:
        return flow, None
    if rule.outcome.form == "require":
        wanted = f"a multiple of {factor}" if total % factor else f"at least {least}"
        return flow, f"{total} experts are not {wanted}: {rule.why}"
    return flow._replace(experts=flow.experts + made - total), None


def _known(item: int | str, state: Known) -> int | None:
    value = state.values.get(item) if isinstance(item, str) else item
    return value if isinstance(value, int) else None


def number(multiple: Multiple, state: Known) -> int | None:
    """The multiple as a number, or `None` where an open fact is needed for it (or it is a `snap`)."""
    if multiple.op == "snap" or open_facts(multiple, state):
        return None
    numbers: list[int] = [item if isinstance(item, int) else state.values[item] for item in multiple.items]  # type: ignore[misc]
    if multiple.op == "lcm":
        return math.lcm(*numbers)
    if multiple.op == "bytes":
        return -(-numbers[0] // state.values["act_bytes"])  # type: ignore[operator]
    return max(numbers)


def open_facts(multiple: Multiple, state: Known) -> tuple[str, ...]:
    """The facts that the multiple needs and that are not known."""
    return tuple(key for key in facts_of(multiple) if not isinstance(state.values.get(key), int))


def facts_of(multiple: Multiple) -> tuple[str, ...]:
    """The integer facts that the multiple is computed from."""
    named = tuple(item for item in multiple.items if isinstance(item, str))
    return (*named, "act_bytes") if multiple.op == "bytes" else named


def _aligned(
    dimension: Dimension, multiple: Multiple, state: Known, rule: Rule, name: str
) -> tuple[Dimension, str | None]:
    """The dimension rounded up; with a reason where no listed size is large enough."""
    if dimension.needs:
        rounded = f"× {multiple}" if multiple.op == "times" else str(multiple)
        return dimension._replace(pending=f"{dimension.pending}, then {rounded}"), None
    if multiple.op == "snap":
        return _snapped(dimension, multiple, name)
    factor = number(multiple, state)
    if factor is None:
        return _waiting(dimension, str(multiple), open_facts(multiple, state)), None
    return _rounded(dimension, factor, multiple.at_least or 0), None


def _waiting(dimension: Dimension, pending: str, needs: tuple[str, ...]) -> Dimension:
    return dimension._replace(size=None, multiple=None, pending=pending, needs=needs)


def _rounded(dimension: Dimension, factor: int, least: int) -> Dimension:
    """The dimension after `at_least` and `round_up`, with steps in the one form that both can be said in."""
    least = -(-least // factor) * factor
    steps: list[Step] = [("at_least", least)] if least > factor else []
    steps += [("round_up", factor)] if factor > 1 else []
    known = dimension.multiple or 1
    return _taken(dimension, steps, factor if known % factor else math.gcd(known, least))


def _taken(dimension: Dimension, steps: Sequence[Step], multiple: int | None) -> Dimension:
    if dimension.size is not None:
        return dimension._replace(size=walked(dimension.size, steps), multiple=multiple)
    return dimension._replace(steps=_joined(dimension.steps, steps), multiple=multiple)


def _joined(steps: tuple[Step, ...], more: Sequence[Step]) -> tuple[Step, ...]:
    """All steps in order; of two roundings in a row, one of which is the other's multiple, the coarser."""
    for step in more:
        last, by = steps[-1] if steps else ("", 1)
        if step[0] == last == "round_up" and by % step[1] == 0:
            continue
        if step[0] == last == "round_up" and step[1] % by == 0:
            steps = steps[:-1]
        steps = (*steps, step)
    return steps


def walked(size: int, steps: Sequence[Step]) -> int:
    """A size after all steps."""
    for step, by in steps:
        size = _STEPS[step](size, by)
    return size


def _snapped(dimension: Dimension, multiple: Multiple, name: str) -> tuple[Dimension, str | None]:
    choices: tuple[int, ...] = multiple.items  # type: ignore[assignment]
    if dimension.size is None:
        made = _taken(dimension, [("snap", choices)], math.gcd(*choices))
        return made._replace(pending=str(multiple)), None
    if dimension.size > choices[-1]:
        listed = ", ".join(map(str, choices))
        return dimension, f"{name} {dimension.size} is above {choices[-1]}, the largest of {listed}"
    return _taken(dimension, [("snap", choices)], math.gcd(*choices)), None


def _required(
    dimension: Dimension, multiple: Multiple, state: Known, rule: Rule, name: str
) -> tuple[Dimension, str | None]:
    made, reason = _aligned(dimension, multiple, state, rule, name)
    if reason is not None or dimension.size is None or made.size in (None, dimension.size):
        return made._replace(required=True), reason
    if multiple.op == "snap":
        wanted = f"one of {', '.join(map(str, multiple.items))}"
    else:
        wanted = f"a multiple of {number(multiple, state)}"
    if multiple.at_least is not None:
        wanted += f" of at least {multiple.at_least}"
    return dimension, f"{_sum(dimension, state, name)} is not {wanted}: {rule.why}"


def _sum(dimension: Dimension, state: Known, name: str) -> str:
    """The size in words, with the sum that it comes from."""
    whole, ranks = state.values.get("intermediate"), state.values.get("moe_tp")
    shown = f"{name} {dimension.size}"
    is_shard = name == "intermediate" and dimension.size == dimension.native
    return f"{shown} = {whole} / {ranks}" if is_shard and isinstance(whole, int) and ranks != 1 else shown


def _set(
    dimension: Dimension, multiple: Multiple, state: Known, rule: Rule, name: str
) -> tuple[Dimension, str | None]:
    """The dimension as model code sets it; a constant is a size of its own, not a multiple."""
    if multiple.op == "snap" or multiple.items == (1,):
        return _aligned(dimension, multiple, state, rule, name)
    size = number(multiple, state)
    if size is None:
        return _waiting(dimension, str(multiple), open_facts(multiple, state)), None
    size = max(size, multiple.at_least or 0)
    if dimension.size is not None and size < dimension.size:
        return dimension, f"{name} is set to {size}, below {dimension.size}: {rule.why}"
    return dimension._replace(native=dimension.native or size, size=size, multiple=1), None


_FORMS: dict[str, Callable[[Dimension, Multiple, Known, Rule, str], tuple[Dimension, str | None]]] = {
    "align": _aligned,
    "require": _required,
    "set": _set,
}


def _refined(rule: Rule, state: Known, flow: Flow) -> tuple[Flow, str | None]:
    refine, otherwise = rule.outcome.refine, rule.outcome.otherwise
    assert refine is not None
    assert otherwise is not None
    names = tuple(DIMENSIONS) if refine.fits == "both" else (refine.fits,)
    known = {name: state.values.get(name) for name in refine.blocks}
    blocks = {name: block for name, block in known.items() if isinstance(block, int)}
    sizes = [size for size in (flow.of(name).size for name in names) if size is not None]
    if len(sizes) < len(names) or blocks.keys() != known.keys():
        pending = f"{', '.join(refine.blocks)} that fit"
        missing = tuple(name for name in known if name not in blocks)
        flow = flow._replace(blocks=tuple((name, None) for name in known))
        for name in names:
            dimension = flow.of(name)
            needs = dimension.needs or missing or (DIMENSIONS[name],)
            flow = flow.having(name, _waiting(dimension, pending, needs))
        return flow, None
    fitted = fitted_blocks(blocks, sizes, refine.fits)
    if fitted == blocks or min(fitted.values()) >= refine.floor:
        return flow._replace(blocks=tuple(fitted.items())), None
    if otherwise.form == "reject":
        return flow, otherwise.target
    return _both(rule, otherwise, state, flow)


def fitted_blocks(blocks: Mapping[str, int], sizes: Sequence[int], fits: str) -> dict[str, int]:
    """The blocks that fit: each for itself in one size; in both sizes all become one, if any has to."""
    if fits != "both":
        return {name: math.gcd(block, *sizes) for name, block in blocks.items()}
    if all(size % block == 0 for block in blocks.values() for size in sizes):
        return dict(blocks)
    return dict.fromkeys(blocks, math.gcd(*blocks.values(), *sizes))


def _added(outcome: Outcome, flow: Flow) -> Flow:
    for name, amount in outcome.add:
        flow = flow._replace(storage=(*flow.storage, (name, amount, outcome.stride)))
        dimension = flow.of(name)
        if outcome.stride or amount.unit != "elements":
            continue
        if dimension.needs:
            made = dimension._replace(pending=f"{dimension.pending}, then + {amount.number}")
        else:
            made = _taken(
                dimension, [("add", amount.number)], math.gcd(dimension.multiple or 1, amount.number)
            )
        flow = flow.having(name, made)
    return flow


def declared(outcome: Outcome, flow: Flow) -> Flow:
    """The flow with the pads that a kernel call is told, where the sizes are known."""
    assert outcome.pads is not None
    hidden, intermediate = outcome.pads
    flow = flow._replace(pads_text=f"hidden_pad {hidden}, intermediate_pad {intermediate}")
    actual = _pad_of(hidden, flow.hidden), _pad_of(intermediate, flow.intermediate)
    if actual[0] is None or actual[1] is None:
        return flow
    return flow._replace(pads=(hidden.of(actual[0]), intermediate.of(actual[1])))


def _pad_of(pad: Pad, dimension: Dimension) -> int | None:
    """The elements that are padding, as far as what is declared depends on them."""
    if pad.form in ("absent", "zero"):
        return 0
    if dimension.native is None or dimension.size is None:
        return None
    return dimension.size - dimension.native


def _round_up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


def _snap(size: int, choices: tuple[int, ...]) -> int:
    return next(choice for choice in choices if choice >= size)


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


_STEPS: dict[str, Callable[[int, Any], int]] = {
    "round_up": _round_up,
    "at_least": max,
    "snap": _snap,
    "add": int.__add__,
}
_BEFORE: dict[str, Callable[[Ints, Any], Ints]] = {
    "round_up": _before_round_up,
    "at_least": _before_at_least,
    "snap": _before_snap,
    "add": _before_add,
}
