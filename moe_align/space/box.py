"""Boxes: one set per fact, all of which must hold, inside a space of facts that imply others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from moe_align.space.implications import Implications, Solver
from moe_align.space.sets import FactSet, Member, Point, contains, disjoint, meet, minus, subset
from moe_align.space.values import Values

Sets = dict[str, FactSet]

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
    _solver: Solver = field(init=False, repr=False)
    _involved: tuple[str, ...] = field(init=False, repr=False)
    _remembered: dict[tuple[tuple[str, FactSet], ...], Sets | None] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        for fact, members in self.domain.items():
            if members.is_empty:
                raise ValueError(f"`{fact}` can have no value at all")
        for fact, value in self.implications:
            if self._checked(fact, Values.of([value])).is_empty:
                raise ValueError(f"`{value}` is not a value of `{fact}`")
        implications = {
            premise: {name: self._checked(name, members) for name, members in sets.items()}
            for premise, sets in self.implications.items()
        }
        solver = Solver(self.domain, implications)
        object.__setattr__(self, "_solver", solver)
        object.__setattr__(self, "_involved", tuple(fact for fact in sorted(self.domain) if fact in solver))
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

    def involves(self, fact: str) -> bool:
        """Whether an implication speaks of `fact`."""
        return fact in self._involved

    def solution(self, sets: Mapping[str, FactSet]) -> Sets | None:
        """Sets inside `sets` (inside the domain), of some facts, every point of which the space admits.

        Only the facts that implications speak of are in it; None if no point is admitted.
        """
        for members in sets.values():
            if members.is_empty:
                return None
        return self._solved(tuple([(fact, sets[fact]) for fact in self._involved if fact in sets]))

    def _solved(self, key: tuple[tuple[str, FactSet], ...]) -> Sets | None:
        """The solution for the sets of facts that implications speak of, in alphabetical order."""
        if key in self._remembered:
            return self._remembered[key]
        if len(self._remembered) >= _MOST_REMEMBERED:
            self._remembered.clear()
        found = self._remembered[key] = self._solver.solution(dict(key))
        return found

    def excludes(self, ours: Mapping[str, FactSet], theirs: Mapping[str, FactSet]) -> bool:
        """Whether no point that the space admits is in both of two boxes."""
        for fact, members in ours.items():
            if members.is_empty or (fact in theirs and disjoint(members, theirs[fact])):
                return True
        for members in theirs.values():
            if members.is_empty:
                return True
        # Facts that no implication speaks of cannot empty what two boxes share in other ways.
        both = []
        for fact in self._involved:
            one, two = ours.get(fact), theirs.get(fact)
            if one is not None:
                both.append((fact, one if two is None else meet(one, two)))
            elif two is not None:
                both.append((fact, two))
        return self._solved(tuple(both)) is None


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
            sets[fact] = meet(sets[fact], members) if fact in sets else members
        return Box(self.space, {fact: sets[fact] for fact in sorted(sets)})

    def __sub__(self, other: Box) -> tuple[Box, ...]:
        """The points that are not in `other`, as disjoint boxes, none of them empty."""
        if self.is_empty:
            return ()
        if self.isdisjoint(other):
            return (self,)
        return tuple(self.pieces_outside(other))

    def pieces_outside(self, other: Box) -> Iterator[Box]:
        """`self - other`, for two boxes that are known to meet."""
        inside = dict(self.sets)
        for fact, theirs in other.sets.items():
            mine = self[fact]
            outside = minus(mine, theirs)
            if outside.is_empty:
                continue
            piece = self.space.made(inside | {fact: outside})
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
        return self.space.excludes(self.sets, other.sets)

    @property
    def is_empty(self) -> bool:
        """Whether the space admits no point in it."""
        return self.space.solution(self.sets) is None

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
        solution = self.space.solution(self.sets)
        if solution is None:
            raise ValueError("an empty box has no point")
        return {fact: solution.get(fact, self[fact]).witness() for fact in self.space.domain}

    def __str__(self) -> str:
        return " · ".join(f"{fact}: {members}" for fact, members in self.sets.items()) or "any"
