"""Regions: unions of boxes, and their cover by a few that are good to read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from moe_align.space.box import Box, Space
from moe_align.space.sets import FactSet, Member, Point, join, minus

# Above so many boxes a cover is only merged, not widened as well.
_MOST_WIDENED = 256


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """A union of boxes of one space. Equal regions hold the same points, however they are cut."""

    space: Space
    boxes: tuple[Box, ...]
    """None is empty; they may overlap."""

    @classmethod
    def of(cls, space: Space, boxes: Iterable[Box] = ()) -> Region:
        """The union of `boxes`."""
        return cls(space, tuple(_outermost([], (box for box in boxes if not box.is_empty))))

    @classmethod
    def everything(cls, space: Space) -> Region:
        """All points that the space admits."""
        return cls.of(space, [space.box()])

    def __or__(self, other: Region) -> Region:
        return Region(self.space, tuple(_outermost(self.boxes, other.boxes)))

    def __and__(self, other: Region) -> Region:
        return Region.of(self.space, (one & two for one in self.boxes for two in other.boxes))

    def __sub__(self, other: Region) -> Region:
        return Region(self.space, tuple(outside(self.boxes, other.boxes)))

    def __le__(self, other: Region) -> bool:
        return next(outside(self.boxes, other.boxes), None) is None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Region):
            return NotImplemented
        return self.space is other.space and self <= other and other <= self

    def __hash__(self) -> int:
        # Only what every description of the same points has in common.
        return hash((id(self.space), self.is_empty))

    def isdisjoint(self, other: Region) -> bool:
        """Whether no point is in both."""
        return all(one.isdisjoint(two) for one in self.boxes for two in other.boxes)

    @property
    def is_empty(self) -> bool:
        """Whether no point is in it."""
        return not self.boxes

    def contains(self, point: Point) -> bool:
        """Whether `point`, which names every fact, is in it."""
        return any(box.contains(point) for box in self.boxes)

    def witness(self) -> dict[str, Member]:
        """A point of the region, with every fact of the space.

        Raises:
            ValueError: if there is none.
        """
        if self.is_empty:
            raise ValueError("an empty region has no point")
        return self.boxes[0].witness()

    def disjoint(self) -> Region:
        """The same points in boxes of which no two share one."""
        boxes: list[Box] = []
        for box in self.boxes:
            boxes += list(outside([box], boxes))
        return Region(self.space, tuple(boxes))

    def cover(self) -> tuple[Box, ...]:
        """The same points in few boxes with few and short conditions, by their text; they may overlap."""
        boxes = _merged(self.space, map(_unimplied, self.boxes))
        if len(boxes) <= _MOST_WIDENED:
            rest = tuple(outside([self.space.box()], self.boxes))
            boxes = _merged(self.space, _needed([_widened(box, rest) for box in boxes]))
        return tuple(sorted(boxes, key=str))

    def __str__(self) -> str:
        return "\n".join(map(str, self.boxes)) or "none"


def outside(boxes: Sequence[Box], others: Sequence[Box]) -> Iterator[Box]:
    """The points of `boxes` in none of `others`, lazily; what comes from one box is disjoint."""
    rest = [(box, 0) for box in reversed(boxes) if not box.is_empty]
    while rest:
        box, at = rest.pop()
        while at < len(others) and box.isdisjoint(others[at]):
            at += 1
        if at == len(others):
            yield box
        else:
            rest += [(piece, at + 1) for piece in box.pieces_outside(others[at])]


def _outermost(boxes: Iterable[Box], more: Iterable[Box]) -> list[Box]:
    """The boxes and those of `more`; none of `more` plainly part of another, nor a box of one of them."""
    kept = list(boxes)
    for box in more:
        if not any(box.within(other) for other in kept):
            kept = [other for other in kept if not other.within(box)]
            kept.append(box)
    return kept


def _merged(space: Space, boxes: Iterable[Box]) -> list[Box]:
    """The boxes, with those that differ in one fact only made one."""
    merged = _outermost([], boxes)
    before = -1
    while before != len(merged):
        before = len(merged)
        for fact in sorted({fact for box in merged for fact in box.sets}):
            merged = _merged_along(space, merged, fact)
    return merged


def _merged_along(space: Space, boxes: Iterable[Box], fact: str) -> list[Box]:
    sets: dict[Box, FactSet] = {}
    for box in boxes:
        free = box.free(fact)
        sets[free] = join(sets[free], box[fact]) if free in sets else box[fact]
    return [space.made({**free.sets, fact: members}) for free, members in sets.items()]


def _unimplied(box: Box) -> Box:
    """The same points without the conditions that the other conditions imply."""
    for fact in tuple(box.sets):
        free = box.free(fact)
        if box.space.involves(fact) and free <= box:
            box = free
    return box


def _widened(box: Box, rest: Sequence[Box]) -> Box:
    """The box, with each condition that can go gone, and each that can be said shorter said so."""
    for fact in tuple(box.sets):
        free = box.free(fact)
        wider = box.space.domain[fact]
        for other in rest:
            if not free.isdisjoint(other):
                wider = minus(wider, other[fact])
        # Where points of the box share a value with others, the value itself is not forbidden.
        wider = join(wider, box[fact])
        if wider == box.space.domain[fact] or len(str(wider)) < len(str(box[fact])):
            box = box.space.made({**box.sets, fact: wider})
    return box


def _needed(boxes: Iterable[Box]) -> list[Box]:
    """The boxes without those that the others hold together, the narrowest going first."""
    kept = _outermost([], boxes)
    for box in sorted(kept, key=lambda each: (-len(each.sets), str(each))):
        others = [other for other in kept if other is not box]
        if next(outside([box], others), None) is None:
            kept = others
    return kept
