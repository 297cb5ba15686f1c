"""Finding, among many boxes, those that a box can meet, without looking at all of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from moe_align.space.box import Box
from moe_align.space.values import Values

#: So many boxes are looked at one by one.
FEW = 200


class Index:
    """Boxes in order, by the values that they ask of discrete facts."""

    __slots__ = ("_by_value", "_free", "boxes")

    def __init__(self, boxes: Iterable[Box]) -> None:
        self.boxes = tuple(boxes)
        self._by_value: dict[str, dict[str, list[int]]] = {}
        for position, box in enumerate(self.boxes):
            for fact, members in box.sets.items():
                if isinstance(members, Values):
                    by_value = self._by_value.setdefault(fact, {})
                    for value in members.members:
                        by_value.setdefault(value, []).append(position)
        self._free = {
            fact: [position for position, box in enumerate(self.boxes) if fact not in box.sets]
            for fact in self._by_value
        }

    def near(self, box: Box) -> list[int]:
        """The positions of boxes that may meet `box`, rising; all that do are among them."""
        candidates = [
            self._candidates(fact, members)
            for fact, members in box.sets.items()
            if isinstance(members, Values) and fact in self._by_value
        ]
        fewest = min(candidates, key=lambda lists: sum(map(len, lists)), default=None)
        if fewest is None:
            return list(range(len(self.boxes)))
        return sorted({position for positions in fewest for position in positions})

    def apart(self, box: Box) -> Iterator[Box]:
        """`box` in disjoint parts, each of which can meet few of the boxes; the whole, where they are few.

        It is cut along the fact with the most values: one part for each that boxes name, one for the rest.
        """
        if len(self.near(box)) <= FEW or not self._by_value:
            yield box
            return
        fact = max(self._by_value, key=lambda one: len(self._by_value[one]))
        members = box[fact]
        assert isinstance(members, Values)
        named = sorted(members.members & self._by_value[fact].keys())
        parts = [Values.of([value]) for value in named] + [members - Values.of(named)]
        for part in parts:
            cut = box & box.space.box({fact: part})
            if not cut.is_empty:
                yield cut

    def _candidates(self, fact: str, members: Values) -> list[list[int]]:
        by_value = self._by_value[fact]
        return [self._free[fact], *(by_value[value] for value in members.members if value in by_value)]
