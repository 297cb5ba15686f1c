"""The answer to one question: sizes, the rule behind each phase, what was assumed, what is open."""

from __future__ import annotations

from . import facts as keys
from .contracts import Check, checks
from .packs import DIMENSIONS
from .record import NamedTuple
from .resolve import Leaf, Miss, Step, leaves

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .flow import Dimension
    from .known import Known
    from .packs import Accepts, Amount, Rule
    from .stack import Stack


class Size(NamedTuple):
    """One dimension, in elements per rank; `None` where it is not known.

    `native` is before padding, `allocated` what weights are created with, `resident` what stays after
    repacking; `multiple` is what `allocated` is a multiple of whatever the native size.
    """

    native: int | None
    allocated: int | None
    resident: int | None
    multiple: int | None


class Launch(NamedTuple):
    """The pads that a kernel call is told, in elements; `None` where the argument is not passed."""

    hidden_pad: int | None
    intermediate_pad: int | None


class Alternative(NamedTuple):
    """What holds in one part of the open facts: `where` maps each to its values, `then` says it briefly."""

    where: Mapping[str, str]
    then: str
    status: str
    rule: str | None


class Difference(NamedTuple):
    """An assumption that would change the answer: other values of `key`, and what they would give."""

    key: str
    values: str
    then: str
    accepts: Accepts


class Decision(NamedTuple):
    """What a policy answers for given facts.

    `status` is `decided`, `undecided` (open facts matter: see `alternatives`), `rejected` (the engine
    refuses: see `reason`) or `unknown` (no pack says). `experts` are the experts whose weights a rank
    would hold if all were on it: routed, fused shared and those that rules add. `trace` has, for every
    rule that did not decide, the first condition that failed.
    """

    status: str
    hidden: Size
    intermediate: Size
    rule: str | None
    steps: tuple[Step, ...]
    launch: Launch | None
    contracts: tuple[Check, ...]
    backend: str | None
    experts: int | None
    blocks: tuple[tuple[str, int], ...]
    storage: tuple[tuple[str, Amount, bool], ...]
    rows: tuple[tuple[str, int], ...]
    columns: tuple[tuple[str, int], ...]
    assumed: Mapping[str, str | int]
    implied: Mapping[str, str | int]
    open: tuple[str, ...]
    alternatives: tuple[Alternative, ...]
    reason: str | None
    error: str | None
    trace: tuple[Miss, ...]
    pads_text: str | None = None

    @property
    def winner(self) -> Rule | None:
        """The rule of `rule`."""
        return next((step.rule for step in self.steps if step.rule.address == self.rule), None)


def decision(stack: Stack, state: Known) -> Decision:
    """The decision for what is known of one layer."""
    found = leaves(stack, state)
    outcomes = {_outcome(leaf) for leaf in found}
    first = found[0]
    decided = len(outcomes) == 1
    if len(found) == 1:
        held = checks(stack, first)
        alternatives: tuple[Alternative, ...] = ()
    else:
        held = _shared(stack, found) if decided else ()
        alternatives = () if decided else tuple(_alternatives(found))
    flow = first.flow
    alike = decided and first.status in ("decided", "rejected")
    split = _split_facts(found)
    backend = flow.backend or first.state.values.get("backend")
    return Decision(
        status=first.status if decided else "undecided",
        hidden=_size(flow.hidden, decided and first.status == "decided"),
        intermediate=_size(flow.intermediate, decided and first.status == "decided"),
        rule=first.rule.address if alike and first.rule else None,
        steps=first.steps if decided else (),
        launch=Launch(*flow.pads) if decided and flow.pads is not None else None,
        contracts=held,
        backend=str(backend) if decided and backend is not None else None,
        experts=_experts(first),
        blocks=flow.blocks,
        storage=flow.storage,
        rows=flow.rows,
        columns=flow.columns,
        assumed=_origins(state, assumed=True),
        implied=_origins(state, assumed=False),
        open=() if decided else split,
        alternatives=alternatives,
        reason=first.reason if decided else _undecided(split),
        error=first.error if decided else None,
        trace=first.misses,
        pads_text=flow.pads_text if decided else None,
    )


def differences(stack: Stack, state: Known) -> tuple[Difference, ...]:
    """Which assumed facts would change the sizes, and to what: exact over all their values."""
    base = {_outcome(leaf) for leaf in leaves(stack, state)}
    looked_at = _looked_at(stack)
    found: list[Difference] = []
    for key, origin in state.origin.items():
        if origin != "assumed" or key not in looked_at or key in _LAUNCH_SIZES:
            continue
        found += _other_values(stack, state, key, base)
    return tuple(found)


#: Opening one of these would change every size that is derived from it: that is another question.
_LAUNCH_SIZES = frozenset({"engine", "tp", "dp", "pcp", "ep", "sp"})


def _other_values(stack: Stack, state: Known, key: str, base: set[object]) -> Iterable[Difference]:
    merged: dict[str, Accepts] = {}
    for leaf in leaves(stack, state.opened(key)):
        if leaf.status == "unknown" or _outcome(leaf) in base:
            continue
        then = said(leaf)
        accepts = leaf.splits.get(key, leaf.state.domain(key))
        value = leaf.state.values.get(key)
        if isinstance(accepts, frozenset) and isinstance(value, str):
            accepts = frozenset({value})
        merged[then] = merged[then] | accepts if then in merged else accepts  # type: ignore[operator]
    return [Difference(key, accepts_text(accepts), then, accepts) for then, accepts in merged.items()]


def _looked_at(stack: Stack) -> frozenset[str]:
    packs = [pack for phase in stack.phases.values() for pack in phase]
    return frozenset(
        condition.key
        for pack in packs
        for conditions in (pack.needs, pack.covers, *(rule.when + rule.unless for rule in pack.rules))
        for condition in conditions
    )


def accepts_text(accepts: Accepts) -> str:
    """A set of values as a person reads it."""
    return ", ".join(sorted(accepts)) if isinstance(accepts, frozenset) else str(accepts)


def said(leaf: Leaf) -> str:
    """An outcome in a few words: the sizes where they are known, else the multiples."""
    if leaf.status != "decided":
        return f"{leaf.status}: {leaf.reason}"
    hidden, intermediate = (_brief(getattr(leaf.flow, name)) for name in DIMENSIONS)
    if leaf.flow.hidden.native is None and leaf.flow.intermediate.native is None and hidden == intermediate:
        return hidden
    return f"hidden {hidden}, intermediate {intermediate}"


def _brief(dimension: Dimension) -> str:
    if dimension.size is not None:
        return str(dimension.size)
    if dimension.pending is not None:
        return dimension.pending
    return "native" if dimension.multiple == 1 else f"× {dimension.multiple}"


def _outcome(leaf: Leaf) -> object:
    """What must be equal for two parts of the open facts to have one answer."""
    if leaf.status != "decided":
        return leaf.status, leaf.reason
    return leaf.status, *(_measure(getattr(leaf.flow, name)) for name in DIMENSIONS), leaf.flow.blocks


def _measure(dimension: Dimension) -> object:
    if dimension.size is not None:
        return dimension.size
    return dimension.multiple, dimension.pending, dimension.required, dimension.steps


def _size(dimension: Dimension, decided: bool) -> Size:
    if not decided:
        return Size(dimension.native, None, None, None)
    return Size(dimension.native, dimension.allocated, dimension.size, dimension.multiple)


def _experts(leaf: Leaf) -> int | None:
    experts = leaf.state.values.get("experts")
    fused = leaf.state.values.get("fused_shared_experts")
    if not isinstance(experts, int) or not isinstance(fused, int):
        return None
    return experts + fused + leaf.flow.experts


def _origins(state: Known, *, assumed: bool) -> dict[str, str | int]:
    return {
        key: _value_text(state, key)
        for key, origin in state.origin.items()
        if (origin == "assumed") is assumed and key in state.values and not _is_silent(key, state.values[key])
    }


def _is_silent(key: str, value: object) -> bool:
    """Whether an assumption goes without saying: a switch that is not set, a capability not probed."""
    return value in ("unset", "false") and key.partition(".")[0] in keys.NAMESPACES


def _value_text(state: Known, key: str) -> str | int:
    value = state.values[key]
    return state.vocabulary.defaults[key] if isinstance(value, tuple) else value


def _split_facts(found: tuple[Leaf, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(key for leaf in found for key in leaf.splits))


def _undecided(split: tuple[str, ...]) -> str:
    return f"depends on {', '.join(split)}"


def _alternatives(found: tuple[Leaf, ...]) -> Iterable[Alternative]:
    """One alternative per outcome and part; parts that differ in one fact alone are joined."""
    split = _split_facts(found)
    merged: dict[object, tuple[dict[str, Accepts], Leaf]] = {}
    for leaf in found:
        where = {key: _part(leaf, key) for key in split if key in leaf.splits or key in leaf.state.values}
        key = (
            _outcome(leaf),
            leaf.rule.address if leaf.rule else None,
            *(sorted(where) if len(split) > 1 else ()),
        )
        if len(split) == 1 and key in merged:
            before, kept = merged[key]
            joined = {name: before[name] | where[name] for name in where}  # type: ignore[operator]
            merged[key] = (joined, kept)
        else:
            merged[key if len(split) == 1 else (key, len(merged))] = (where, leaf)
    for where, leaf in merged.values():
        texts = {name: accepts_text(accepts) for name, accepts in where.items()}
        yield Alternative(texts, said(leaf), leaf.status, leaf.rule.address if leaf.rule else None)


def _part(leaf: Leaf, key: str) -> Accepts:
    value = leaf.state.values.get(key)
    if isinstance(value, str):
        return frozenset({value})
    return leaf.splits.get(key, leaf.state.domain(key))


def _shared(stack: Stack, found: tuple[Leaf, ...]) -> tuple[Check, ...]:
    """The contracts of all leaves together: settled only where they are settled everywhere alike."""
    merged: dict[str, Check] = {}
    seen: dict[str, int] = {}
    for leaf in found:
        for check in checks(stack, leaf):
            address = check.contract.address
            seen[address] = seen.get(address, 0) + 1
            before = merged.get(address)
            merged[address] = (
                check if before is None or before.holds is check.holds else check._replace(holds=None)
            )
    return tuple(
        check if seen[address] == len(found) or check.holds else check._replace(holds=None)
        for address, check in merged.items()
    )
