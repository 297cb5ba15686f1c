"""Many points in few boxes: what an engine was asked, as sets that are good to read."""

from __future__ import annotations

from .space import Box, FactSet, Implications, Ints, Region, Space, Values
from .space.sets import join

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Facts = Mapping[str, str | int]
    Sets = Mapping[str, FactSet]


def boxes(points: Sequence[Sets], asked: Sequence[Facts], lowest: Mapping[str, int]) -> tuple[Box, ...]:
    """Few boxes that hold the `points` and nothing else that was `asked`.

    `lowest` are open integers, each with the least that it may be; a point that does not name one has all.
    """
    silent = _settled(asked)
    asked = [{key: value for key, value in facts.items() if key not in silent} for facts in asked]
    points = [{key: members for key, members in sets.items() if key not in silent} for sets in points]
    space = _space(asked, lowest)
    return Region.of(space, (space.box(sets) for sets in _merged(points))).cover()


def _settled(asked: Sequence[Facts]) -> set[str]:
    """Facts that another one settles, so that a box needs no word of them."""
    always = sorted(set.intersection(*map(set, asked)))
    silent: set[str] = set()
    for key in always:
        for other in always:
            if other == key or other in silent:
                continue
            pairs = {(facts[other], facts[key]) for facts in asked}
            if len(pairs) == len({one for one, _ in pairs}):
                silent.add(key)
    return silent


def _space(asked: Sequence[Facts], lowest: Mapping[str, int]) -> Space:
    domain: dict[str, FactSet] = {key: Ints.between(low, None) for key, low in lowest.items()}
    for key in dict.fromkeys(key for facts in asked for key in facts):
        met = [facts[key] for facts in asked if key in facts]
        numbers = [one for one in met if isinstance(one, int)]
        domain[key] = Ints.of(*numbers) if numbers else Values.of(map(str, met))
    return Space(domain, _together(asked))


def _together(asked: Sequence[Facts]) -> Implications:
    """For each word those of other facts that it was asked with; a fact that is left out may be anything."""
    always = set.intersection(*map(set, asked))
    met: dict[tuple[str, str], dict[str, set[str]]] = {}
    for facts in asked:
        words = [(key, value) for key, value in facts.items() if isinstance(value, str) and key in always]
        for key, value in words:
            for other, its in words:
                if other != key:
                    met.setdefault((key, value), {}).setdefault(other, set()).add(its)
    return {word: {other: Values.of(its) for other, its in others.items()} for word, others in met.items()}


def _merged(points: Sequence[Sets]) -> Sequence[Sets]:
    """The same points, those that differ in one fact only made one, until none is left."""
    before = -1
    while before != len(points):
        before = len(points)
        for key in sorted({key for sets in points for key in sets}):
            points = _merged_along(points, key)
    return points


def _merged_along(points: Sequence[Sets], key: str) -> Sequence[Sets]:
    groups: dict[tuple[tuple[str, FactSet], ...], FactSet | None] = {}
    for sets in points:
        rest = tuple(item for item in sets.items() if item[0] != key)
        mine = sets.get(key)
        other = groups.get(rest, mine)
        groups[rest] = None if mine is None or other is None else join(other, mine)
    return [
        {**dict(rest), **({key: members} if members is not None else {})} for rest, members in groups.items()
    ]
