"""A stack as exact sets: what each rule asks for, and where it is the one that decides.

Boxes are made from the sets of the same conditions that `resolve` looks at. All is said phase by
phase, over the facts as they enter it; `routes` carries sizes through the phases.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import facts as keys
from .facts import Facts
from .packs import PHASES, Condition, Multiple, Pack, Rule
from .space import FEW, Box, FactSet, Index, Ints, Space, Values, VersionSet, outside
from .stack import Stack
from .versions import key_text
from .vocabulary import Vocabulary

#: Facts that rules change on the way.
CHANGED = frozenset({*keys.SIZES, *keys.FIRST_SIZES, "block_n", "block_k", "group"})


@dataclass(frozen=True, slots=True)
class Part:
    """What one rule asks for in its phase, or, without a rule, where a pack does not cover a release.

    Parts stand in the order in which they are tried, at `place`: the first that matches wins.
    """

    place: int
    pack: Pack
    rule: Rule | None
    asked: tuple[Box, ...]

    @property
    def address(self) -> str:
        return self.rule.address if self.rule else f"{self.pack.name} (not covered)"


class Phase:
    """The parts of one phase in order, and which of them a box can meet."""

    def __init__(self, space: Space, packs: Sequence[Pack]) -> None:
        self.parts = tuple(_parts(space, packs))
        self._owners = tuple(part for part in self.parts for _ in part.asked)
        self._reach: dict[int, tuple[Box, ...]] = {}
        self._index = Index(box for part in self.parts for box in part.asked)

    def near(self, box: Box) -> Iterator[tuple[Part, Box]]:
        """The parts that may match in `box`, in order, each with one box that it asks for."""
        return ((self._owners[position], self._index.boxes[position]) for position in self._index.near(box))

    def decided(self, part: Part, within: Box | None = None) -> Iterator[Box]:
        """Where `part` is the one that matches (in `within`, if given), lazily, as disjoint boxes."""
        for asked in part.asked:
            box = asked if within is None else asked & within
            yield from outside([box], [other for owner, other in self.near(box) if owner.place < part.place])

    def reach(self, part: Part) -> tuple[Box, ...]:
        """Disjoint boxes that hold all that `part` decides, whatever becomes of sizes before it."""
        if part.place not in self._reach:
            earlier = [
                other
                for box in part.asked
                for owner, other in self.near(box)
                if owner.place < part.place and CHANGED.isdisjoint(other.sets)
            ]
            self._reach[part.place] = tuple(outside(part.asked, earlier))
        return self._reach[part.place]

    def winners(self, box: Box, after: int = -1) -> Iterator[tuple[Part | None, Box]]:
        """The parts behind place `after` that match in `box`, each with its share; `None` where none does."""
        asking = [(part, asked) for part, asked in self.near(box) if part.place > after]
        if len(asking) <= FEW:
            yield from shares(box, asking)
            return
        asking = [(part, asked) for part, asked in asking if not box.isdisjoint(asked)]
        yield from ((None, piece) for piece in outside([box], [asked for _, asked in asking]))
        for part, asked in asking:
            share = box & asked
            earlier = [taken for other, taken in self.near(share) if after < other.place < part.place]
            yield from ((part, piece) for piece in outside([share], earlier))

    def left_open(self, box: Box) -> Iterator[Box]:
        """What of `box` no part asks for, lazily, as disjoint boxes."""
        for part in self._index.apart(box):
            yield from outside([part], [asked for _, asked in self.near(part)])


def shares(box: Box, asking: Sequence[tuple[Part, Box]]) -> Iterator[tuple[Part | None, Box]]:
    """What of `box` is left to nobody (`None`), then what each part that asks for it gets, lazily."""
    meeting = [(part, asked) for part, asked in asking if not box.isdisjoint(asked)]
    yield from ((None, piece) for piece in outside([box], [asked for _, asked in meeting]))
    for place, (part, asked) in enumerate(meeting):
        earlier = [taken for _, taken in meeting[:place]]
        yield from ((part, piece) for piece in outside([box & asked], earlier))


class Regions:
    """The phases of a stack as sets; each is made when it is first asked for."""

    def __init__(self, stack: Stack, space: Space | None = None) -> None:
        self.stack = stack
        self.space = space or space_of([stack])
        self._phases: dict[str, Phase] = {}
        self._memos: dict[tuple[str, str], dict[Any, Any]] = {}

    def phase(self, name: str) -> Phase:
        if name not in self._phases:
            self._phases[name] = Phase(self.space, self.stack.phases[name])
        return self._phases[name]

    def part(self, rule: Rule) -> Part:
        """The part of a rule."""
        memo = self.memo("part", rule.phase)
        if not memo:
            memo.update({id(part.rule): part for part in self.phase(rule.phase).parts if part.rule})
        found: Part = memo[id(rule)]
        return found

    def memo(self, of: str, about: str) -> dict[Any, Any]:
        """What an analysis wants to find once: a dictionary that lives as long as the regions."""
        return self._memos.setdefault((of, about), {})

    def spoken_for(self, pack: Pack) -> tuple[Box, ...]:
        """Everything that a pack says it is about: what it needs, in the releases that it covers."""
        return boxes_of(self.space, (*pack.needs, *pack.covers))

    def undecided(self, phase: str) -> Iterator[Box]:
        """What the packs of a phase are about and none of its rules decides, as boxes, lazily."""
        for pack in self.stack.phases[phase]:
            for box in self.spoken_for(pack):
                yield from self.phase(phase).left_open(box)


def space_of(stacks: Sequence[Stack]) -> Space:
    """The space of all facts that rules or contracts look at or compute with, and of those linked to them.

    Where vocabularies differ in what a value implies, the first one's word holds.
    """
    looked_at = {condition.key for stack in stacks for condition in _conditions(stack)}
    linked = {key for stack in stacks for key in stack.vocabulary.linked}
    numbers = {key for stack in stacks for key in _numbers(stack)}
    used = looked_at | linked | numbers | set(keys.SIZES)
    domain: dict[str, FactSet] = {}
    for key in sorted(used):
        values = _domain(stacks, key)
        if not values.is_empty:
            domain[key] = values
    return Space(domain, _implications([stack.vocabulary for stack in stacks], domain))


def _conditions(stack: Stack) -> Iterator[Condition]:
    packs = [pack for phase in PHASES for pack in stack.phases[phase]]
    for pack in (*packs, *stack.contracts):
        yield from (*pack.needs, *pack.covers)
        for rule in pack.rules:
            yield from (*rule.when, *rule.unless)
        for contract in pack.contracts:
            yield from (*contract.when, *contract.unless, *contract.facts)


def _numbers(stack: Stack) -> Iterator[str]:
    """The integer facts that multiples and blocks are made of."""
    multiples: list[Multiple | None] = []
    for rule in stack.rules():
        for outcome in (rule.outcome, rule.outcome.otherwise):
            if outcome is not None:
                multiples += [outcome.hidden, outcome.intermediate]
                yield from outcome.refine.blocks if outcome.refine else ()
    for contract in stack.all_contracts():
        multiples += [multiple for demand in contract.demands for multiple in demand.multiples]
    for multiple in multiples:
        if multiple is not None:
            yield from (item for item in multiple.items if isinstance(item, str))
            yield from ("act_bytes",) if multiple.op == "bytes" else ()


def _domain(stacks: Sequence[Stack], key: str) -> FactSet:
    sort = keys.kind(key)
    if sort == "integer":
        return Ints.between(keys.lowest(key), None)
    if sort == "version":
        return VersionSet.all()
    return Values.of(value for stack in stacks for value in stack.vocabulary.domain(key))


def _implications(
    vocabularies: Iterable[Vocabulary], domain: Mapping[str, FactSet]
) -> dict[tuple[str, str], dict[str, FactSet]]:
    made: dict[tuple[str, str], dict[str, FactSet]] = {}
    for vocabulary in vocabularies:
        for key, terms in vocabulary.terms.items():
            for value, term in terms.items():
                sets: dict[str, FactSet] = {other: Values(accepts) for other, accepts in term.implies}
                if sets and key in domain:
                    made.setdefault((key, value), sets)
    return made


def box_of(space: Space, conditions: Iterable[Condition]) -> Box:
    """The box in which all conditions hold."""
    sets: dict[str, FactSet] = {}
    for key, accepts, _ in conditions:
        members: FactSet = Values(accepts) if isinstance(accepts, frozenset) else accepts
        sets[key] = sets[key] & members if key in sets else members  # type: ignore[operator]  # of one sort
    return space.box(sets)


def boxes_of(space: Space, when: Iterable[Condition], unless: Sequence[Condition] = ()) -> tuple[Box, ...]:
    """Where `when` holds and `unless` does not, as disjoint boxes."""
    box = box_of(space, when)
    if box.is_empty:
        return ()
    return box - box_of(space, unless) if unless else (box,)


def _parts(space: Space, packs: Sequence[Pack]) -> Iterator[Part]:
    place = 0
    for pack in packs:
        if pack.covers:
            needed = box_of(space, pack.needs)
            yield Part(place, pack, None, needed - box_of(space, pack.covers))
            place += 1
        for rule in pack.rules:
            when = (*pack.needs, *pack.covers, *rule.when)
            yield Part(place, pack, rule, boxes_of(space, when, rule.unless))
            place += 1


#: Facts that are settled first, since others follow from them.
_ORDER = ("engine", "scheme", "method", "backend", "platform", "arch", "activation")

#: Tried in order before the least member of a set.
_FAMILIAR: dict[str, tuple[str | int, ...]] = {
    "activation": ("silu",),
    "platform": ("rocm", "cuda"),
    "arch": ("gfx950", "sm100", "sm90"),
    "scheme": ("mxfp4",),
    "hidden": (7168, 2880, 4096, 2048, 6144),
    "intermediate_per_partition": (384, 192, 360, 2880, 768, 3072, 2048),
    "moe_tp": (8, 1),
    "block_n": (128,),
    "block_k": (128,),
    "group": (32, 128),
    "act_bytes": (2, 1),
    "experts": (128, 256),
    "topk": (8, 4),
}


def friendly(stack: Stack, box: Box, named: Collection[str] | None = None) -> dict[str, str | int]:
    """A point of the box as facts that one would give: defaults and familiar values wherever they are in it.

    With `named` only these facts of it.

    Raises:
        ValueError: if there is none.
    """
    if box.is_empty:
        raise ValueError("an empty box has no point")
    point: dict[str, str | int] = {}
    for key in sorted(box.space.domain if named is None else named, key=_settling_order):
        box, value = _settled(stack, box, key)
        point[key] = value
    return point


def _settling_order(key: str) -> tuple[int, str]:
    return (_ORDER.index(key) if key in _ORDER else len(_ORDER), key)


def _settled(stack: Stack, box: Box, key: str) -> tuple[Box, str | int]:
    members = box[key]
    if isinstance(members, VersionSet):
        value = _release(stack, key, members)
        return box, value
    for candidate in _candidates(stack, key, members):
        one: FactSet = Values.of([candidate]) if isinstance(candidate, str) else Ints.of(candidate)
        narrowed = box & box.space.made({key: one})
        # A fact that no implication speaks of takes nothing from the others.
        if not box.space.involves(key) or not narrowed.is_empty:
            return narrowed, candidate
    raise ValueError("an empty box has no point")


def _candidates(stack: Stack, key: str, members: Values | Ints) -> Iterator[str | int]:
    default = stack.vocabulary.assumptions.get(key)
    tried = [value for value in (default, *_FAMILIAR.get(key, ())) if isinstance(value, (str, int))]
    yield from (value for value in tried if value in members)
    if isinstance(members, Ints):
        yield members.min()
    else:
        yield from (value for value in stack.vocabulary.terms.get(key, ()) if value in members)
        yield from members


def _release(stack: Stack, key: str, members: VersionSet) -> str:
    """The release that is assumed, or the first one of the newest interval."""
    default = stack.vocabulary.assumptions.get(key)
    if default in members:
        return str(stack.vocabulary.defaults[key])
    low = members.intervals[-1][0]
    return key_text(low) if min(low) < 0 else ".".join(map(str, (*low, 0, 0)[: max(3, len(low))]))


def facts_of(stack: Stack, point: Mapping[str, str | int]) -> Facts:
    """A point as facts to resolve: without sizes said twice, and without what is assumed anyway."""
    defaults = stack.vocabulary.defaults
    silent = {
        key: value for key, value in stack.vocabulary.assumptions.items() if isinstance(value, (str, int))
    }
    silent.update(defaults)
    return Facts.of(
        {
            key: value
            for key, value in point.items()
            if silent.get(key) != value and key not in keys.FIRST_SIZES
        }
    )
