"""Stack and facts → a decision: phases in order, first match, three-valued over open facts.

One evaluator, `verdict`, makes the answer and the explanation: the conditions that failed are kept
while the rules are tried.
"""

from __future__ import annotations

from . import flow as sizes
from .facts import SIZES
from .known import Known, consistent
from .packs import PHASES
from .record import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from .flow import Flow
    from .packs import Accepts, Condition, Outcome, Pack, Rule
    from .stack import Stack

YES, NO, DEPENDS = "yes", "no", "depends"


class Miss(NamedTuple):
    """A rule that did not decide: the condition that failed, or `None` where an earlier rule had won.

    `got` is the value that failed it; `excepted` says that the condition stands under `unless`.
    """

    rule: Rule
    condition: Condition | None
    got: object
    excepted: bool = False


class Passed(NamedTuple):
    """A pack that was passed over whole: the need of it that failed, and the value that failed it."""

    pack: Pack
    condition: Condition
    got: object


if TYPE_CHECKING:
    Missed = Miss | Passed


class Step(NamedTuple):
    """What one phase did: the rule that won, and the sizes after it (`None`: open)."""

    phase: str
    rule: Rule
    hidden: int | None
    intermediate: int | None


class Leaf(NamedTuple):
    """The outcome for one part of what is open: `splits` are the open facts that it narrows."""

    state: Known
    splits: dict[str, Accepts]
    status: str
    flow: Flow
    steps: tuple[Step, ...]
    misses: tuple[Missed, ...]
    reason: str | None
    error: str | None = None

    @property
    def rule(self) -> Rule | None:
        """The rule behind the allocated sizes, or behind the refusal."""
        if self.status == "rejected":
            return self.steps[-1].rule if self.steps else None
        return next((step.rule for step in self.steps if step.phase == "allocate"), None)


class _At(NamedTuple):
    """Where the resolver goes on after a split: all that led here, and the phase, pack and rule to try.

    A `rule` of `_BEFORE` means that the pack itself has not been looked at yet.
    """

    state: Known
    splits: dict[str, Accepts]
    flow: Flow
    steps: tuple[Step, ...] = ()
    misses: tuple[Missed, ...] | None = ()
    phase: int = 0
    pack: int = 0
    rule: int = -1


_BEFORE = -1


class _Wait(NamedTuple):
    """The resolver cannot go on before the open fact of `condition` is narrowed."""

    condition: Condition
    pack: int
    rule: int


def verdict(
    conditions: Sequence[Condition], unless: Sequence[Condition], state: Known, flow: Flow
) -> tuple[str, Condition | None, bool]:
    """Whether conditions hold: with `NO` the first that fails, with `DEPENDS` the first that is open."""
    values = state.values
    open_condition = None
    for condition in conditions:
        key = condition[0]
        value = values.get(key)
        if value is not None:
            if value not in condition[1]:
                return NO, condition, False
        else:
            held = sizes.held(state, flow, condition)
            if held is NO:
                return NO, condition, False
            if held is DEPENDS and open_condition is None:
                open_condition = condition
    if unless:
        held, condition_or_none = _exception(unless, state, flow)
        if held is YES:
            return NO, condition_or_none, True
        if held is DEPENDS and open_condition is None:
            return DEPENDS, condition_or_none, True
    if open_condition is not None:
        return DEPENDS, open_condition, False
    return YES, None, False


def _exception(unless: Sequence[Condition], state: Known, flow: Flow) -> tuple[str, Condition | None]:
    open_condition = None
    for condition in unless:
        value = state.values.get(condition[0])
        held = sizes.held(state, flow, condition) if value is None else YES if value in condition[1] else NO
        if held is NO:
            return NO, None
        if held is DEPENDS and open_condition is None:
            open_condition = condition
    return (YES, unless[0]) if open_condition is None else (DEPENDS, open_condition)


def spread(misses: Iterable[Missed]) -> tuple[Miss, ...]:
    """One miss for every rule, those of packs that were passed over among them."""
    found: list[Miss] = []
    for miss in misses:
        if isinstance(miss, Passed):
            found += [Miss(rule, miss.condition, miss.got) for rule in miss.pack.rules]
        else:
            found.append(miss)
    return tuple(found)


def leaves(stack: Stack, state: Known, *, trace: bool = True) -> tuple[Leaf, ...]:
    """The outcome for every part of the open facts; one leaf where nothing that is open matters.

    Without `trace` rules behind the first match are not looked at, and leaves have no misses.
    """
    flow = sizes.entering(state)
    if state.refusal is not None:
        return (Leaf(state, {}, "rejected", flow, (), (), state.refusal),)
    try:
        return tuple(_decide(stack, _At(state, {}, flow, (), () if trace else None)))
    except ValueError as fault:
        from .space import SpaceTooLarge

        if not isinstance(fault, SpaceTooLarge):
            raise
        return (Leaf(state, {}, "undecided", flow, (), (), f"{fault}: give the sizes"),)


def _decide(stack: Stack, at: _At) -> Iterator[Leaf]:
    state, splits, flow, steps, before, first, pack, rule = at
    misses = None if before is None else list(before)
    for index in range(first, len(PHASES)):
        phase = PHASES[index]
        packs = stack.phases[phase]
        if not packs or (phase == "select" and "backend" in state.given):
            continue
        found = _phase(packs, state, flow, misses, pack, rule)
        pack, rule = 0, _BEFORE
        if isinstance(found, _Wait) and sizes.lacking(flow, found.condition):
            yield _lacking(state, splits, flow, steps, misses)
            return
        if isinstance(found, _Wait):
            kept = None if misses is None else tuple(misses)
            here = _At(state, splits, flow, steps, kept, index, found.pack, found.rule)
            for part in _parts(found.condition, here):
                yield from _decide(stack, part)
            return
        if isinstance(found, str):
            if phase != "launch":
                yield Leaf(state, splits, "unknown", flow, steps, tuple(misses or ()), found)
                return
        elif found is not None:
            flow, status, reason = sizes.apply(found, state, flow)
            state = sizes.after(state, flow)
            steps = (*steps, Step(phase, found, flow.hidden.size, flow.intermediate.size))
            if status != "decided":
                said = _error(found.outcome)
                yield Leaf(state, splits, status, flow, steps, tuple(misses or ()), reason, said)
                return
        elif phase == "allocate":
            break
    if not any(step.phase == "allocate" for step in steps):
        yield Leaf(state, splits, "unknown", flow, steps, tuple(misses or ()), _nobody(stack, state))
        return
    if any(key not in SIZES for key in flow.needs):
        yield _lacking(state, splits, flow, steps, misses)
        return
    yield Leaf(state, splits, "decided", flow, steps, tuple(misses or ()), None)


def _error(outcome: Outcome) -> str | None:
    """The engine's exception: that of the rule, or of the `else` which came of it."""
    return outcome.error or (outcome.otherwise.error if outcome.otherwise else None)


def _lacking(
    state: Known, splits: dict[str, Accepts], flow: Flow, steps: tuple[Step, ...], misses: list[Missed] | None
) -> Leaf:
    """The end where sizes are computed from facts that are open: each value of them gives another answer."""
    reason = f"depends on {', '.join(flow.needs)}"
    return Leaf(state, splits, "undecided", flow, steps, tuple(misses or ()), reason)


def _phase(
    packs: Sequence[Pack], state: Known, flow: Flow, misses: list[Missed] | None, first: int, rule: int
) -> _Wait | Rule | str | None:
    """The first rule of a phase that matches, why no pack answers, or the condition to wait for.

    Rules that do not decide are added to `misses`, those after the first match as well; where it is
    `None` nobody asks for them.
    """
    winner: Rule | None = None
    values = state.values
    for index in range(first, len(packs)):
        pack = packs[index]
        if rule == _BEFORE:
            held, condition, _ = verdict(pack.needs, (), state, flow)
            if held is NO and condition is not None:
                got = values.get(condition.key)
                if misses is not None:
                    misses.append(Passed(pack, condition, got))
                continue
            if held is DEPENDS and condition is not None and winner is None:
                return _Wait(condition, index, _BEFORE)
            if winner is None and pack.covers:
                held, condition, _ = verdict(pack.covers, (), state, flow)
                if condition is not None:
                    return (
                        _not_covered(pack, condition, state)
                        if held is NO
                        else _Wait(condition, index, _BEFORE)
                    )
        rules = pack.rules
        for number in range(max(rule, 0), len(rules)):
            candidate = rules[number]
            held, condition, excepted = verdict(candidate.when, candidate.unless, state, flow)
            if held is NO and condition is not None:
                if misses is not None:
                    misses.append(Miss(candidate, condition, values.get(condition[0]), excepted))
            elif winner is not None and misses is not None:
                misses.append(Miss(candidate, None, None))
            elif condition is None:
                winner = candidate
                if misses is None:
                    return winner
            else:
                return _Wait(condition, index, number)
        rule = _BEFORE
    return winner


def _parts(condition: Condition, at: _At) -> Iterator[_At]:
    """The place once where the condition holds and once where it does not, as far as each can be."""
    inside = sizes.entering_part(at.state, at.flow, condition)
    key = sizes.BASE.get(condition.key, condition.key)
    domain = at.state.domain(key)
    for part in (domain & inside, domain - inside):  # type: ignore[operator]  # sets of one key's sort
        narrowed = at.state.within(key, part)
        if narrowed is not None and consistent(narrowed):
            yield at._replace(state=narrowed, splits={**at.splits, key: part})


def _not_covered(pack: Pack, condition: Condition, state: Known) -> str:
    key = condition.key
    shown = state.text(key) if key in state.values else state.domain(key)
    return f"pack `{pack.name}` covers {key} {condition.text}, not {shown}"


def _nobody(stack: Stack, state: Known) -> str:
    """Why no rule allocates: no pack speaks of these facts, or none of its rules matches."""
    near = [
        pack.name
        for pack in stack.phases["allocate"]
        if verdict(pack.needs, (), state, sizes.entering(state))[0] is YES
    ]
    if near:
        return f"no rule of {', '.join(f'`{name}`' for name in near)} matches"
    said = [f"{key} {state.values[key]}" for key in ("engine", "scheme") if key in state.values]
    return f"no pack says what {', '.join(said) or 'these facts'} allocates"
