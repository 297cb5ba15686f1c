"""The answer to one question: sizes, the rule behind each phase, what was assumed, what is open."""

from __future__ import annotations

from . import facts as keys
from .contracts import Check, checks
from .record import NamedTuple
from .resolve import Leaf, Miss, Step, leaves, spread
from .versions import release

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any, TypeVar

    from .flow import Dimension, Flow
    from .known import Known
    from .packs import Accepts, Amount, Rule
    from .resolve import Missed
    from .stack import Stack

    T = TypeVar("T")


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
    """What holds in one part of the open facts: `where` maps each to its values, `then` says it briefly.

    `accepts` are the same values as sets; a fact that is not named may be anything.
    """

    where: Mapping[str, str]
    then: str
    status: str
    rule: str | None
    accepts: Mapping[str, Accepts]


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
    would hold if all were on it: routed, fused shared and those that rules add. `missed` has
    what did not decide as it was met, `trace` the same rule by rule. Where facts are open, all of
    these say what holds whatever they are; where the sizes are alike and only the rules behind them differ,
    `rule` is `None` and `alternatives` has the rules. `notes` tell which releases stand for a build.
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
    blocks: tuple[tuple[str, int | None], ...]
    storage: tuple[tuple[str, Amount, bool], ...]
    rows: tuple[tuple[str, int], ...]
    columns: tuple[tuple[str, int], ...]
    assumed: Mapping[str, str | int]
    implied: Mapping[str, str | int]
    open: tuple[str, ...]
    alternatives: tuple[Alternative, ...]
    reason: str | None
    error: str | None
    missed: tuple[tuple[Missed, ...], ...]
    pads_text: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def trace(self) -> tuple[Miss, ...]:
        """For every rule that did not decide, the first condition that failed."""
        first, *others = self.missed or ((),)
        return _common_misses(first, others) if others else spread(first)

    @property
    def winner(self) -> Rule | None:
        """The rule of `rule`."""
        return next((step.rule for step in self.steps if step.rule.address == self.rule), None)


def decision(stack: Stack, state: Known, *, trace: bool = True) -> Decision:
    """The decision for what is known of one layer; without `trace` it cannot say why not other rules."""
    return decision_of(stack, state, leaves(stack, state, trace=trace), trace=trace)


def decision_of(stack: Stack, state: Known, found: tuple[Leaf, ...], *, trace: bool = True) -> Decision:
    """What the leaves of a layer come to together."""
    first = found[0]
    flow = first.flow
    decided = len({_outcome(leaf) for leaf in found}) == 1
    status = first.status if decided else "undecided"
    rule = _alike(found, lambda leaf: leaf.rule.address if leaf.rule else None)
    backend = _alike(found, lambda leaf: leaf.flow.backend or leaf.state.values.get("backend"))
    pads = _alike(found, lambda leaf: leaf.flow.pads)
    by_several = status == "decided" and len(found) > 1 and rule is None
    apart = not decided or by_several or (status == "undecided" and bool(flow.needs))
    return Decision(
        status=status,
        hidden=_size(found, status, lambda flow: flow.hidden),
        intermediate=_size(found, status, lambda flow: flow.intermediate),
        rule=rule if status in ("decided", "rejected") else None,
        steps=first.steps if len(found) == 1 else _common_steps(found),
        launch=Launch(*pads) if pads is not None else None,
        contracts=() if status != "decided" else _shared(stack, found),
        backend=str(backend) if backend is not None else None,
        experts=_experts(state, found),
        blocks=_alike(found, lambda leaf: leaf.flow.blocks) or (),
        storage=(_alike(found, lambda leaf: leaf.flow.storage) or ()) if decided else (),
        rows=(_alike(found, lambda leaf: leaf.flow.rows) or ()) if decided else (),
        columns=(_alike(found, lambda leaf: leaf.flow.columns) or ()) if decided else (),
        assumed=_origins(state, assumed=True),
        implied=_origins(state, assumed=False),
        open=() if status != "undecided" else _open_facts(found),
        alternatives=tuple(_alternatives(state, found)) if apart else (),
        reason=first.reason if decided else f"depends on {', '.join(_open_facts(found))}",
        error=first.error if decided else None,
        missed=tuple(leaf.misses for leaf in found) if trace else (),
        pads_text=_alike(found, lambda leaf: leaf.flow.pads_text),
        notes=_notes(state),
    )


def _alike(found: tuple[Leaf, ...], of: Callable[[Leaf], T]) -> T | None:
    """What all leaves have in common, or `None` where they differ."""
    first = of(found[0])
    return first if all(of(leaf) == first for leaf in found[1:]) else None


def differences(
    stack: Stack, state: Known, of: Callable[[str], bool] | None = None
) -> tuple[Difference, ...]:
    """Which assumed facts would change the sizes, and to what: exact over all their values.

    `of` says which facts are asked about; without it all are.

    Nothing where the answer depends on open facts: then there are no sizes yet that could change.
    """
    base = leaves(stack, state, trace=False)
    now = _outcome(base[0])
    if any(_outcome(leaf) != now for leaf in base[1:]):
        return ()
    looked_at = _looked_at(stack)
    found: list[Difference] = []
    for key, origin in state.origin.items():
        if origin != "assumed" or key not in looked_at or key in _LAUNCH_SIZES:
            continue
        if of is not None and not of(key):
            continue
        found += _other_values(stack, state, key, now)
    return tuple(found)


#: Opening one of these would change every size that is derived from it: that is another question.
_LAUNCH_SIZES = frozenset({"engine", "tp", "dp", "pcp", "ep", "sp"})


def _other_values(stack: Stack, state: Known, key: str, now: object) -> Iterable[Difference]:
    opened = state.opened(key)
    other = [
        leaf
        for leaf in leaves(stack, opened, trace=False)
        if leaf.status != "unknown" and _outcome(leaf) != now
    ]
    for part in _parts(opened, other, by_rule=False):
        where = [
            f"{name} is {_where_text(opened, name, accepts)}"
            for name, accepts in part.shown.items()
            if name != key
        ]
        then = f"{said(part.leaf)} where {' and '.join(where)}" if where else said(part.leaf)
        accepts = part.shown.get(key, opened.domain(key))
        yield Difference(key, accepts_text(accepts), then, accepts)


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
    if leaf.status not in ("decided", "undecided"):
        return f"{leaf.status}: {leaf.reason}"
    flow = leaf.flow
    hidden, intermediate = _brief(flow.hidden), _brief(flow.intermediate)
    alike = flow.hidden.native is None and flow.intermediate.native is None and hidden == intermediate
    parts = [hidden if alike else f"hidden {hidden}, intermediate {intermediate}"]
    parts += [f"{name} {block or 'open'}" for name, block in flow.blocks]
    parts += [
        _stored(name, amount, stride)
        for name, amount, stride in flow.storage
        if stride or amount.unit == "bytes"
    ]
    parts += [f"{flow.experts} more experts"] if flow.experts else []
    return ", ".join(parts)


def _stored(name: str, amount: Amount, stride: bool) -> str:
    return f"{'stride of ' if stride else ''}{name} + {amount.number} {amount.unit}"


def _brief(dimension: Dimension) -> str:
    """The size as allocated, and what becomes of it afterwards where that is another one."""
    created, text = dimension.created, _size_text(dimension)
    before = text if created is None else _size_text(created)
    return text if before == text else f"{before} ({text} once loaded)"


def _size_text(dimension: Dimension) -> str:
    if dimension.size is not None:
        return str(dimension.size)
    if dimension.needs:
        return str(dimension.pending)
    text = ", then ".join(_STEP_TEXTS[step](by) for step, by in dimension.steps) or "native"
    return f"{text} required" if dimension.required else text


_STEP_TEXTS: dict[str, Callable[[Any], str]] = {
    "round_up": "× {}".format,
    "at_least": "at least {}".format,
    "add": "+ {}".format,
    "snap": lambda choices: f"next of {', '.join(map(str, choices))}",
}


def _outcome(leaf: Leaf) -> object:
    """What must be equal for two parts of the open facts to have one answer."""
    flow = leaf.flow
    if leaf.status not in ("decided", "undecided"):
        return leaf.status, leaf.reason
    # Strides and scales that are wider here and there are no sizes, and elements that are added are in them.
    beside = tuple(one for one in flow.storage if not one[2] and one[1].unit != "elements")
    stored = flow.blocks, beside, flow.experts
    return leaf.status, _measure(flow.hidden), _measure(flow.intermediate), stored


def _measure(dimension: Dimension) -> object:
    created = dimension.created or dimension
    if dimension.size is not None:
        return created.size, dimension.size
    known = dimension.multiple, dimension.pending, dimension.required, dimension.steps
    return known, created.multiple, created.steps, created.size


def _size(found: tuple[Leaf, ...], status: str, of: Callable[[Flow], Dimension]) -> Size:
    """One size; where only what comes after allocation differs or refuses, what is created all the same."""
    first = of(found[0].flow)
    created = first.created or first
    if status == "decided":
        return Size(first.native, created.size, first.size, created.multiple)
    size = _alike(found, lambda leaf: _created(of(leaf.flow)))
    return Size(first.native, size, None, None if size is None else created.multiple)


def _created(dimension: Dimension) -> int | None:
    return dimension.created.size if dimension.created else None


def _experts(state: Known, found: tuple[Leaf, ...]) -> int | None:
    experts, fused = state.values.get("experts"), state.values.get("fused_shared_experts")
    more = _alike(found, lambda leaf: leaf.flow.experts)
    if not isinstance(experts, int) or not isinstance(fused, int) or more is None:
        return None
    return experts + fused + more


def _origins(state: Known, *, assumed: bool) -> dict[str, str | int]:
    return {
        key: state.text(key)
        for key, origin in state.origin.items()
        if (origin == "assumed") is assumed and key in state.values and not _is_silent(key, state.values[key])
    }


def _is_silent(key: str, value: object) -> bool:
    """Whether an assumption goes without saying: a switch that is not set, a capability not probed."""
    return value in ("unset", "false") and key.partition(".")[0] in keys.NAMESPACES


def _notes(state: Known) -> tuple[str, ...]:
    """What is to be said of releases that stand for a build."""
    given = ((key, release(text)) for key, text in state.texts.items())
    return tuple(f"{key} {said.text}: {said.note}" for key, said in given if said.note)


def _open_facts(found: tuple[Leaf, ...]) -> tuple[str, ...]:
    """The open facts that matter: those that were split, and those that sizes are computed from."""
    split = [key for leaf in found for key in leaf.splits]
    needed = [key for leaf in found if leaf.status == "undecided" for key in leaf.flow.needs]
    return tuple(dict.fromkeys(split + needed))


class _Part(NamedTuple):
    """A part of the open facts: as it was split, as the vocabulary leaves it, and what holds in it."""

    splits: dict[str, Accepts]
    shown: dict[str, Accepts]
    leaf: Leaf


def _alternatives(state: Known, found: tuple[Leaf, ...]) -> Iterable[Alternative]:
    """One alternative per outcome, rule and part of the open facts."""
    for _, shown, leaf in _parts(state, found):
        texts = {key: accepts_text(accepts) for key, accepts in shown.items()}
        yield Alternative(texts, said(leaf), leaf.status, leaf.rule.address if leaf.rule else None, shown)


def _parts(state: Known, found: Iterable[Leaf], by_rule: bool = True) -> Iterable[_Part]:
    """The parts of the open facts by outcome, and by rule; those that differ in one fact alone are joined."""
    groups: dict[object, list[_Part]] = {}
    for leaf in found:
        told = _outcome(leaf), leaf.rule.address if by_rule and leaf.rule else None
        groups.setdefault(told, []).append(_Part(leaf.splits, _shown(leaf), leaf))
    return [part for parts in groups.values() for part in _joined(parts, state)]


def _joined(parts: list[_Part], state: Known) -> list[_Part]:
    """The parts, with those united that differ in one fact alone."""
    done: list[_Part] = []
    for part in parts:
        done = _adding(done, part, state)
    return done


def _adding(done: list[_Part], part: _Part, state: Known) -> list[_Part]:
    for index, other in enumerate(done):
        united = _united(other, part, state)
        if united is not None:
            return _adding(done[:index] + done[index + 1 :], united, state)
    return [*done, part]


def _united(one: _Part, two: _Part, state: Known) -> _Part | None:
    differing = [key for key in one.splits | two.splits if one.splits.get(key) != two.splits.get(key)]
    if len(differing) > 1 or any(key not in one.splits or key not in two.splits for key in differing):
        return None
    splits = {key: accepts | two.splits[key] for key, accepts in one.splits.items()}  # type: ignore[operator]
    whole = {key for key in differing if splits[key] == state.domain(key)}
    kept = [key for key in splits if key not in whole]
    shown = {key: one.shown[key] | two.shown[key] for key in kept}  # type: ignore[operator]
    return _Part({key: splits[key] for key in kept}, shown, one.leaf)


def _shown(leaf: Leaf) -> dict[str, Accepts]:
    """The values of the facts that were split, as far as the vocabulary leaves them."""
    return {key: _left(leaf, key, accepts) for key, accepts in leaf.splits.items()}


def _left(leaf: Leaf, key: str, accepts: Accepts) -> Accepts:
    if not isinstance(accepts, frozenset):
        return accepts
    value = leaf.state.values.get(key)
    left = leaf.state.domain(key) if value is None else frozenset({str(value)})
    # A phase may have put another value in its place: then what was split is all there is to say.
    return accepts & left or accepts  # type: ignore[operator]


def _where_text(state: Known, key: str, accepts: Accepts) -> str:
    """A part of an open fact's values; most of them are said by the others."""
    domain = state.domain(key)
    if isinstance(accepts, frozenset) and isinstance(domain, frozenset):
        others = domain - accepts
        if len(others) < min(len(accepts), _MOST_EXCLUDED):
            return f"not {accepts_text(others)}"
    return accepts_text(accepts)


_MOST_EXCLUDED = 4


def _common_steps(found: tuple[Leaf, ...]) -> tuple[Step, ...]:
    """The steps of the first part that are those of all parts, or give the same two sizes by another rule."""
    elsewhere = [{_step_key(step) for step in leaf.steps} for leaf in found[1:]]
    return tuple(step for step in found[0].steps if all(_step_key(step) in steps for steps in elsewhere))


def _step_key(step: Step) -> tuple[object, ...]:
    sized = step.hidden is not None and step.intermediate is not None and step.phase != "launch"
    return (step.phase, step.hidden, step.intermediate, "" if sized else step.rule.address)


def _common_misses(first: tuple[Missed, ...], others: list[tuple[Missed, ...]]) -> tuple[Miss, ...]:
    """The misses of all leaves: rules that fail alike whatever the open facts are."""
    elsewhere = [{_key(miss) for miss in spread(misses)} for misses in others]
    return tuple(miss for miss in spread(first) if all(_key(miss) in keys for keys in elsewhere))


def _key(miss: Miss) -> tuple[str, int, bool]:
    return miss.rule.address, id(miss.condition), miss.excepted


def _shared(stack: Stack, found: tuple[Leaf, ...]) -> tuple[Check, ...]:
    """The contracts of all leaves together: settled only where they are settled everywhere alike."""
    held = [checks(stack, leaf) for leaf in found]
    if len(held) == 1:
        return held[0]
    merged: dict[str, list[Check]] = {}
    for check in (check for one in held for check in one):
        merged.setdefault(check.contract.address, []).append(check)
    return tuple(_merged(alike, len(found)) for alike in merged.values())


def _merged(alike: list[Check], parts: int) -> Check:
    """One contract over all parts: settled where it is settled alike in all of them."""
    first = alike[0]
    if all(check.holds for check in alike):
        return first
    if len(alike) == parts and all(check.holds is False for check in alike):
        return first
    return next(check for check in alike if not check.holds)._replace(holds=None)
