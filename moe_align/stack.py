"""Packs of all layers → one ordered stack: nearer layers first, `before` inside a layer, overlaps refused."""

from __future__ import annotations

from .errors import PolicyError, Problem
from .known import Known, consistent
from .packs import PHASES, Condition, Pack, Rule
from .record import NamedTuple
from .vocabulary import Vocabulary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from .layers import Layer
    from .packs import Accepts, Contract


class Stack(NamedTuple):
    """An ordered stack of packs: `phases` has the rule packs of each phase, nearest first.

    `layers` are the layers, nearest first; the last one is the built-in layer where there is one.
    """

    vocabulary: Vocabulary
    phases: Mapping[str, tuple[Pack, ...]]
    contracts: tuple[Pack, ...]
    layers: tuple[Layer, ...]

    def rules(self) -> Iterable[Rule]:
        """Every rule in the order of phases and packs."""
        return (rule for packs in self.phases.values() for pack in packs for rule in pack.rules)

    def all_contracts(self) -> Iterable[Contract]:
        return (contract for pack in self.contracts for contract in pack.contracts)


def assemble(packs: Sequence[Pack], vocabulary: Vocabulary, layers: tuple[Layer, ...]) -> Stack:
    """The stack of `packs`, which stand in the order of `layers`.

    Raises:
        PolicyError: a name twice, `before` in a circle or of nobody, packs of one layer and phase that
            may both match.
    """
    problems = _name_problems(packs)
    phases = {}
    for phase in PHASES:
        ordered: list[Pack] = []
        for layer in layers:
            among = [pack for pack in packs if pack.layer == layer.name and pack.phase == phase]
            ordered += _ordered(among, problems)
            problems += _overlaps(among, vocabulary)
        phases[phase] = tuple(ordered)
    problems += _before_problems(packs)
    if problems:
        raise PolicyError(problems)
    return Stack(vocabulary, phases, tuple(pack for pack in packs if pack.contracts), layers)


def _name_problems(packs: Sequence[Pack]) -> list[Problem]:
    problems = []
    first: dict[str, Pack] = {}
    for pack in packs:
        before = first.setdefault(pack.name, pack)
        if before is not pack:
            # Of two layers the nearer one is to change, which stands first; of one layer the later file.
            one, other = (before, pack) if before.layer != pack.layer else (pack, before)
            said = f"pack `{pack.name}` again: it is also {other.location.file}:{other.location.line}"
            fix = "give it another name; a nearer layer's rules win anyway"
            problems.append(Problem("P401", said, fix, one.location))
    return problems


def _before_problems(packs: Sequence[Pack]) -> list[Problem]:
    problems = []
    for pack in packs:
        siblings = {other.name for other in packs if other.layer == pack.layer and other.phase == pack.phase}
        for name in pack.before:
            if name not in siblings or name == pack.name:
                said = f"`before: {name}` names no other pack of this layer and phase"
                legal = ", ".join(sorted(siblings - {pack.name}))
                fix = f"legal are {legal}" if legal else "leave it out"
                problems.append(Problem("P402", said, fix, pack.location))
    return problems


def _ordered(packs: list[Pack], problems: list[Problem]) -> list[Pack]:
    """The packs so that each stands before those it names; else in the order of the files."""
    left, ordered = list(packs), []
    while left:
        free = next((pack for pack in left if not _is_behind(pack, left)), None)
        if free is None:
            names = ", ".join(f"`{pack.name}`" for pack in left)
            problems.append(
                Problem(
                    "P403",
                    f"{names} stand `before` each other in a circle",
                    "leave one out",
                    left[0].location,
                )
            )
            return packs
        left.remove(free)
        ordered.append(free)
    return ordered


def _is_behind(pack: Pack, left: list[Pack]) -> bool:
    return any(pack.name in other.before for other in left if other is not pack)


def _overlaps(packs: list[Pack], vocabulary: Vocabulary) -> list[Problem]:
    problems = []
    after = {pack.name: _after(pack, packs) for pack in packs}
    for index, one in enumerate(packs):
        for two in packs[index + 1 :]:
            if two.name in after[one.name] or one.name in after[two.name]:
                continue
            pair = _first_overlap(one, two, vocabulary)
            if pair is not None:
                both = f"`{pair[0].address}` and `{pair[1].address}`"
                said = f"packs `{one.name}` and `{two.name}` may both match: {both}"
                fix = f"add `before: {two.name}` to `{one.name}`, or the other way round"
                problems.append(Problem("P404", said, fix, pair[1].location))
    return problems


def _after(pack: Pack, packs: list[Pack]) -> set[str]:
    """The packs that stand behind one, as `before` says or as follows from it."""
    after: set[str] = set()
    left = list(pack.before)
    while left:
        name = left.pop()
        if name not in after:
            after.add(name)
            left += [further for other in packs if other.name == name for further in other.before]
    return after


def _first_overlap(one: Pack, two: Pack, vocabulary: Vocabulary) -> tuple[Rule, Rule] | None:
    shared = _both(_both({}, one.needs + one.covers), two.needs + two.covers)
    if shared is None:
        return None
    for rule in one.rules:
        inside = _both(shared, rule.when)
        if inside is None:
            continue
        for other in two.rules:
            box = _both(inside, other.when)
            if box is not None and _reachable(box, (rule.unless, other.unless), vocabulary):
                return rule, other
    return None


def _both(box: Mapping[str, Accepts] | None, conditions: tuple[Condition, ...]) -> dict[str, Accepts] | None:
    """`box` narrowed by conditions, or `None` where nothing is left."""
    if box is None:
        return None
    narrowed = dict(box)
    for key, accepts, _ in conditions:
        before = narrowed.get(key)
        if before is not None:
            if before.isdisjoint(accepts):  # type: ignore[arg-type]  # both are sets of one key's sort
                return None
            accepts = before & accepts  # type: ignore[operator]
        narrowed[key] = accepts
    return narrowed


def _reachable(
    box: Mapping[str, Accepts], exceptions: tuple[tuple[Condition, ...], ...], vocabulary: Vocabulary
) -> bool:
    """Whether a point of `box` lies outside every exception and agrees with the vocabulary."""
    state: Known | None = Known(vocabulary, {}, {}, {}, {})
    for key, accepts in box.items():
        state = state and state.within(key, accepts)
    return state is not None and _outside(state, exceptions)


def _outside(state: Known, exceptions: tuple[tuple[Condition, ...], ...]) -> bool:
    if not exceptions:
        return consistent(state)
    if not exceptions[0]:
        return _outside(state, exceptions[1:])
    for key, accepts, _ in exceptions[0]:
        value = state.values.get(key)
        if value is not None:
            outside = None if value in accepts else state
        else:
            outside = state.within(key, state.domain(key) - accepts)  # type: ignore[operator]
        if outside is not None and _outside(outside, exceptions[1:]):
            return True
    return False
