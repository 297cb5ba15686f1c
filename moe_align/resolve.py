"""Stack and facts → a decision: phases in order, first match, three-valued over open facts.

One evaluator, `verdict`, makes the answer and the explanation: the conditions that failed are kept
while the rules are tried.
"""

from __future__ import annotations

from . import flow as sizes
from .known import Known, consistent, known
from .packs import PHASES
from .record import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from .facts import Facts
    from .flow import Flow
    from .packs import Accepts, Condition, Pack, Rule
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
    misses: tuple[Miss, ...]
    reason: str | None
    error: str | None = None

    @property
    def rule(self) -> Rule | None:
        """The rule behind the allocated sizes, or behind the refusal."""
        if self.status == "rejected":
            return self.steps[-1].rule if self.steps else None
        return next((step.rule for step in self.steps if step.phase == "allocate"), None)


class _Run(NamedTuple):
    """Where the resolver stands: the phase, the pack and rule to try next, and all that led here."""

    state: Known
    splits: dict[str, Accepts]
    flow: Flow
    steps: tuple[Step, ...] = ()
    misses: tuple[Miss, ...] = ()
    phase: int = 0
    pack: int = 0
    rule: int = 0
    entered: bool = False


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
        elif open_condition is None or key != open_condition[0]:
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


def leaves(stack: Stack, state: Known) -> tuple[Leaf, ...]:
    """The outcome for every part of the open facts; one leaf where nothing that is open matters."""
    flow = sizes.entering(state)
    if state.refusal is not None:
        return (Leaf(state, {}, "rejected", flow, (), (), state.refusal),)
    return tuple(_decide(stack, _Run(state, {}, flow)))


def _decide(stack: Stack, run: _Run) -> Iterator[Leaf]:
    while run.phase < len(PHASES):
        phase = PHASES[run.phase]
        if phase == "select" and "backend" in run.state.given:
            run = run._replace(phase=run.phase + 1, pack=0, rule=0, entered=False)
            continue
        found = _phase(stack.phases[phase], run)
        if isinstance(found, _Split):
            for part in _parts(found):
                yield from _decide(stack, part)
            return
        run, rule, unknown = found
        if unknown is not None and phase != "launch":
            yield _leaf(run, "unknown", unknown)
            return
        if rule is not None:
            flow, status, reason = sizes.apply(rule, run.state, run.flow)
            step = Step(phase, rule, flow.hidden.size, flow.intermediate.size)
            run = run._replace(flow=flow, steps=(*run.steps, step), state=sizes.after(run.state, flow))
            if status != "decided":
                yield _leaf(run, status, reason, rule.outcome.error)
                return
        elif phase == "allocate":
            yield _leaf(run, "unknown", _nobody(stack, run.state))
            return
        run = run._replace(phase=run.phase + 1, pack=0, rule=0, entered=False)
    yield _leaf(run, "decided", None)


def _leaf(run: _Run, status: str, reason: str | None, error: str | None = None) -> Leaf:
    return Leaf(run.state, run.splits, status, run.flow, run.steps, run.misses, reason, error)


class _Split(NamedTuple):
    """The resolver cannot go on before an open fact is narrowed: the run, and the condition on it."""

    run: _Run
    condition: Condition


def _phase(packs: Sequence[Pack], run: _Run) -> _Split | tuple[_Run, Rule | None, str | None]:
    """The first rule of a phase that matches, with the misses before and after it."""
    state, flow = run.state, run.flow
    misses = list(run.misses)
    winner: Rule | None = None
    for index in range(run.pack, len(packs)):
        pack = packs[index]
        entered = run.entered and index == run.pack
        start = run.rule if index == run.pack else 0
        if not entered:
            held, condition, _ = verdict(pack.needs, (), state, flow)
            if held is NO:
                misses.extend(Miss(rule, condition, state.values.get(condition[0])) for rule in pack.rules)  # type: ignore[index]
                continue
            if winner is not None:
                held = YES
            if held is DEPENDS:
                return _Split(
                    run._replace(misses=tuple(misses), pack=index, rule=0, entered=False), condition
                )  # type: ignore[arg-type]
            if winner is None:
                held, condition, _ = verdict(pack.covers, (), state, flow)
                if held is DEPENDS:
                    return _Split(
                        run._replace(misses=tuple(misses), pack=index, rule=0, entered=False), condition
                    )  # type: ignore[arg-type]
                if held is NO:
                    unknown = _not_covered(pack, condition, state)  # type: ignore[arg-type]
                    return run._replace(misses=tuple(misses)), None, unknown
        for number in range(start, len(pack.rules)):
            rule = pack.rules[number]
            held, condition, excepted = verdict(rule.when, rule.unless, state, flow)
            if held is NO:
                misses.append(Miss(rule, condition, state.values.get(condition[0]), excepted))  # type: ignore[index]
            elif winner is not None:
                misses.append(Miss(rule, None, None))
            elif held is YES:
                winner = rule
            else:
                waiting = run._replace(misses=tuple(misses), pack=index, rule=number, entered=True)
                return _Split(waiting, condition)  # type: ignore[arg-type]
    return run._replace(misses=tuple(misses)), winner, None


def _parts(split: _Split) -> Iterator[_Run]:
    """The run once where the condition holds and once where it does not, as far as each can be."""
    key, state = split.condition.key, split.run.state
    inside = sizes.entering_part(state, split.run.flow, split.condition)
    base = sizes.BASE.get(key, key)
    domain = state.domain(base)
    for part in (domain & inside, domain - inside):  # type: ignore[operator]  # sets of one key's sort
        narrowed = state.within(base, part)
        if narrowed is not None and consistent(narrowed):
            splits = {**split.run.splits, base: part}
            yield split.run._replace(
                state=narrowed, splits=splits, flow=sizes.narrowed(narrowed, split.run.flow)
            )


def _not_covered(pack: Pack, condition: Condition, state: Known) -> str:
    from .versions import key_text

    value = state.values.get(condition.key)
    shown = key_text(value) if isinstance(value, tuple) else "open"
    return f"pack `{pack.name}` covers {condition.key} {condition.text}, not {shown}"


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


def every_rule(stack: Stack) -> Iterable[Rule]:
    return stack.rules()


__all__ = ["DEPENDS", "NO", "YES", "Facts", "Leaf", "Miss", "Step", "known", "leaves", "verdict"]
