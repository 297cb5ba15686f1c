"""Boxes: one set per fact, all of which must hold, inside a space of facts that imply others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from moe_align.space.ints import Ints
from moe_align.space.values import Values
from moe_align.versions import Key, VersionSet

FactSet = Values | Ints | VersionSet
Member = str | int | Key
Point = Mapping[str, Member]
Sets = dict[str, FactSet]
# (fact, value) → what else must then hold.
Implications = Mapping[tuple[str, str], Mapping[str, FactSet]]

_MOST_REMEMBERED = 2**16


@dataclass(frozen=True, slots=True, eq=False)
class Space:
    """All facts with everything each may be, and what the values of some imply for others.

    Two spaces are one only if they are the same object: boxes and regions of different spaces do not mix.
    """

    domain: Mapping[str, FactSet]
    """What each fact may be at all."""
    implications: Implications = field(default_factory=dict)
    """For a fact with a value: the sets that other facts are then in."""
    _implied: dict[str, dict[str, Mapping[str, FactSet]]] = field(init=False, repr=False)
    _involved: frozenset[str] = field(init=False, repr=False)
    _remembered: dict[tuple[tuple[str, FactSet], ...], Sets | None] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        for fact, members in self.domain.items():
            if members.is_empty:
                raise ValueError(f"`{fact}` can have no value at all")
        implied: dict[str, dict[str, Mapping[str, FactSet]]] = {}
        involved = set()
        for (fact, value), sets in self.implications.items():
            if self._checked(fact, Values.of([value])).is_empty:
                raise ValueError(f"`{value}` is not a value of `{fact}`")
            implied.setdefault(fact, {})[value] = {name: self._checked(name, sets[name]) for name in sets}
            involved |= {fact, *sets}
        object.__setattr__(self, "_implied", implied)
        object.__setattr__(self, "_involved", frozenset(involved))
        object.__setattr__(self, "_remembered", {})

    def __reduce__(self) -> tuple[type[Space], tuple[Mapping[str, FactSet], Implications]]:
        return Space, (dict(self.domain), dict(self.implications))

    def _checked(self, fact: str, members: FactSet) -> FactSet:
        """The part of `members` that the fact can be."""
        if fact not in self.domain:
            raise ValueError(f"unknown fact `{fact}`")
        domain = self.domain[fact]
        if type(domain) is not type(members):
            raise ValueError(f"`{fact}` is in {type(domain).__name__}, not in {type(members).__name__}")
        return meet(domain, members)

    def box(self, sets: Mapping[str, FactSet] | None = None) -> Box:
        """The box of all points whose facts are in `sets`; facts not named are free.

        Raises:
            ValueError: if a fact is unknown or its set is of another kind than its domain.
        """
        return self.made({fact: self._checked(fact, members) for fact, members in (sets or {}).items()})

    def made(self, sets: Sets) -> Box:
        """The box of sets that are known to lie inside the domain."""
        kept = sorted(fact for fact in sets if sets[fact] != self.domain[fact])
        return Box(self, {fact: sets[fact] for fact in kept})

    def admits(self, point: Point) -> bool:
        """Whether `point`, which names every fact, is in the domain and breaks no implication."""
        return all(contains(members, point[fact]) for fact, members in self.domain.items()) and all(
            contains(members, point[name])
            for (fact, value), sets in self.implications.items()
            if point[fact] == value
            for name, members in sets.items()
        )

    def solution(self, sets: Mapping[str, FactSet]) -> Sets | None:
        """Sets inside `sets` (inside the domain, of some facts), every point of which the space admits.

        Only the facts that implications speak of are in it; None if no point is admitted.
        """
        if any(members.is_empty for members in sets.values()):
            return None
        key = tuple((fact, members) for fact, members in sets.items() if fact in self._involved)
        if key not in self._remembered:
            if len(self._remembered) >= _MOST_REMEMBERED:
                self._remembered.clear()
            start = {fact: sets.get(fact, self.domain[fact]) for fact in sorted(self._involved)}
            self._remembered[key] = self._search(start)
        return self._remembered[key]

    def _search(self, sets: Sets) -> Sets | None:
        tight = self.tightened(sets)
        if tight is None:
            return None
        undecided = [fact for fact in self._implied if not tight[fact].is_singleton]
        if not undecided:
            return tight
        fact = min(undecided, key=lambda name: len(_values(tight[name]).members))
        tries = (self._search(tight | {fact: Values.of([value])}) for value in _values(tight[fact]))
        return next((found for found in tries if found is not None), None)

    def tightened(self, sets: Sets) -> Sets | None:
        """`sets`, of all facts of the implications, without what each implication rules out by itself.

        None if that leaves nothing.
        """
        if any(members.is_empty for members in sets.values()):
            return None
        tight = dict(sets)
        changed = True
        while changed:
            before = dict(tight)
            for fact, implied in self._implied.items():
                values = _possible(_values(tight[fact]), implied, tight)
                if values.is_empty:
                    return None
                tight[fact] = values
                tight |= _consequences(values, implied, tight)
            changed = tight != before
        return tight


def _possible(values: Values, implied: Mapping[str, Mapping[str, FactSet]], sets: Sets) -> Values:
    """The values whose consequences can still be met."""
    return Values(
        frozenset(
            value
            for value in values.members
            if not any(disjoint(sets[name], members) for name, members in implied.get(value, {}).items())
        )
    )


def _consequences(values: Values, implied: Mapping[str, Mapping[str, FactSet]], sets: Sets) -> Sets:
    """The narrower sets of the facts about which every one of `values` implies something."""
    consequences = [implied.get(value, {}) for value in values]
    narrowed = {}
    for name in consequences[0]:
        if all(name in sets_implied for sets_implied in consequences):
            allowed = consequences[0][name]
            for sets_implied in consequences[1:]:
                allowed = join(allowed, sets_implied[name])
            narrowed[name] = meet(sets[name], allowed)
    return narrowed


@dataclass(frozen=True, slots=True)
class Box:
    """The points of a space whose every fact is in the set given for it. Made by `Space.box`.

    Equality compares the sets; where implications give two boxes the same points, compare regions.
    """

    space: Space
    sets: Mapping[str, FactSet]
    """By fact, in alphabetical order; a fact that is not named is free."""

    def __hash__(self) -> int:
        return hash(tuple(self.sets.items()))

    def __getitem__(self, fact: str) -> FactSet:
        """What `fact` may be in this box."""
        members = self.sets.get(fact)
        return self.space.domain[fact] if members is None else members

    def __and__(self, other: Box) -> Box:
        sets = dict(self.sets)
        for fact, members in other.sets.items():
            sets[fact] = meet(self[fact], members)
        return Box(self.space, dict(sorted(sets.items())))

    def __sub__(self, other: Box) -> tuple[Box, ...]:
        """The points that are not in `other`, as disjoint boxes, none of them empty."""
        if self.is_empty:
            return ()
        if self.isdisjoint(other):
            return (self,)
        return tuple(self._pieces_outside(other))

    def _pieces_outside(self, other: Box) -> Iterator[Box]:
        inside = dict(self.sets)
        for fact, theirs in other.sets.items():
            mine = self[fact]
            piece = self.space.made(inside | {fact: minus(mine, theirs)})
            if not piece.is_empty:
                yield piece
            inside[fact] = meet(mine, theirs)

    def __le__(self, other: Box) -> bool:
        return self.within(other) or not (self - other)

    def within(self, other: Box) -> bool:
        """Whether every set is part of the other's set: enough for being a part, and quick."""
        return all(subset(self[fact], members) for fact, members in other.sets.items())

    def isdisjoint(self, other: Box) -> bool:
        """Whether no point is in both."""
        small, large = (self, other) if len(self.sets) <= len(other.sets) else (other, self)
        if any(
            disjoint(members, large.sets[fact]) for fact, members in small.sets.items() if fact in large.sets
        ):
            return True
        return (self & other).is_empty

    @property
    def is_empty(self) -> bool:
        """Whether the space admits no point in it."""
        return self._solution() is None

    def _solution(self) -> Sets | None:
        return self.space.solution(self.sets)

    def free(self, fact: str) -> Box:
        """The box without its word on `fact`."""
        return Box(self.space, {name: members for name, members in self.sets.items() if name != fact})

    def contains(self, point: Point) -> bool:
        """Whether `point`, which names every fact, is in the box and admitted by the space."""
        return all(contains(members, point[fact]) for fact, members in self.sets.items()) and (
            self.space.admits(point)
        )

    def witness(self) -> dict[str, Member]:
        """A point of the box, with every fact of the space.

        Raises:
            ValueError: if there is none.
        """
        solution = self._solution()
        if solution is None:
            raise ValueError("an empty box has no point")
        return {fact: solution.get(fact, self[fact]).witness() for fact in self.space.domain}

    def __str__(self) -> str:
        return " · ".join(f"{fact}: {members}" for fact, members in self.sets.items()) or "any"


def meet(one: FactSet, other: FactSet) -> FactSet:
    """The members of both. Here and below the two are sets of one kind: a space takes no others."""
    return one & other  # type: ignore[operator]


def join(one: FactSet, other: FactSet) -> FactSet:
    """The members of either."""
    return one | other  # type: ignore[operator]


def minus(one: FactSet, other: FactSet) -> FactSet:
    """The members of the first alone."""
    return one - other  # type: ignore[operator]


def subset(one: FactSet, other: FactSet) -> bool:
    """Whether the second has all members of the first."""
    return one <= other  # type: ignore[operator]


def disjoint(one: FactSet, other: FactSet) -> bool:
    """Whether no member is in both."""
    return one.isdisjoint(other)  # type: ignore[arg-type]


def contains(members: FactSet, member: Member) -> bool:
    """Whether `member` is one of the members."""
    return member in members  # type: ignore[operator]


def _values(members: FactSet) -> Values:
    assert isinstance(members, Values)
    return members
