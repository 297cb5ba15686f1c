"""The shortest ordered list of rules that is found for points with outcomes; the first match decides.

Points are numbered, and sets of them are integers with one bit a point. A list is built from its end: first
what holds for most points, then, on top, again and again the box that puts most points right. What the list
does not need is taken out at the end. It gives every point its outcome; that none is shorter is not claimed.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping, Sequence

    Points = int
    """A set of points: bit `n` is set where point `n` is in it."""
    When = dict[str, frozenset[Hashable]]
    Rules = list[tuple[When, Hashable]]

#: So many outcomes are tried as the last rule.
_MOST_LAST = 4


def shortest(
    points: Sequence[Mapping[str, Hashable]], outcomes: Sequence[Hashable], nothing: Hashable = None
) -> list[tuple[When, Hashable, list[int]]]:
    """The rules in order, each with its conditions, its outcome, and the numbers of the points it decides.

    Points with the outcome `nothing` are those that no rule may be about; they are left to the end.
    """
    grid = _Grid(points, outcomes, nothing)
    most = sorted(grid.outcomes, key=lambda outcome: -grid.outcomes[outcome].bit_count())
    last = [nothing] if grid.nothing else most[:_MOST_LAST]
    lists = [_pruned(grid, _built(grid, base)) for base in last]
    rules = min(lists, key=lambda found: (len(found), sum(len(when) for when, _ in found)))
    left, decided = grid.all, []
    for when, outcome in rules:
        mine = grid.box(when) & left
        left &= ~mine
        if outcome != nothing:
            decided.append((when, outcome, [number for number in range(len(points)) if mine >> number & 1]))
    return decided


class _Grid:
    """Points as sets, by value of each fact and by outcome; `nothing` are those that no rule is about."""

    def __init__(
        self, points: Sequence[Mapping[str, Hashable]], outcomes: Sequence[Hashable], nothing: Hashable
    ) -> None:
        self.all: Points = (1 << len(points)) - 1
        self.values: dict[str, dict[Hashable, Points]] = {}
        self.outcomes: dict[Hashable, Points] = {}
        for number, (facts, outcome) in enumerate(zip(points, outcomes, strict=True)):
            bit = 1 << number
            for key, value in facts.items():
                held = self.values.setdefault(key, {})
                held[value] = held.get(value, 0) | bit
            self.outcomes[outcome] = self.outcomes.get(outcome, 0) | bit
        self.nothing = self.outcomes.get(nothing, 0)

    def box(self, when: Mapping[str, frozenset[Hashable]], without: str | None = None) -> Points:
        """The points that meet all conditions, but for one."""
        points = self.all
        for key, members in when.items():
            if key != without:
                points &= self._any(key, members)
        return points

    def _any(self, key: str, members: frozenset[Hashable]) -> Points:
        points = 0
        for value in members:
            points |= self.values[key][value]
        return points


def _built(grid: _Grid, base: Hashable) -> Rules:
    """The list in which `base` is last, and each rule on top of it puts more points right than it breaks."""
    rules: Rules = [({}, base)]
    right = grid.outcomes[base]
    while right != grid.all:
        when, outcome = _best(grid, right)
        box = grid.box(when)
        rules.insert(0, (when, outcome))
        right = (right & ~box) | (box & grid.outcomes[outcome])
    return rules


def _best(grid: _Grid, right: Points) -> tuple[When, Hashable]:
    """The rule that gains most when it is put on top; of equals the one with fewer conditions."""
    found: tuple[int, int, When, Hashable] | None = None
    for outcome, points in grid.outcomes.items():
        gained, broken = points & ~right, right & ~points
        if not gained:
            continue
        for when in _seeds(grid, gained):
            grown = _grown(grid, when, gained, broken)
            gain = _gain(grid.box(grown), gained, broken, grid.nothing)
            if found is None or (gain, -len(grown)) > found[:2]:
                found = gain, -len(grown), grown, outcome
    assert found is not None
    return found[2], found[3]


def _seeds(grid: _Grid, gained: Points) -> Iterator[When]:
    """Where to begin: each value of each fact, and one point with all that it has."""
    for key, held in grid.values.items():
        yield from ({key: frozenset({value})} for value, points in held.items() if points & gained)
    first = gained & -gained
    yield {
        key: frozenset({value})
        for key, held in grid.values.items()
        for value, points in held.items()
        if points & first
    }


def _gain(box: Points, gained: Points, broken: Points, nothing: Points) -> int:
    """How many points a box puts right, less those that it breaks; what no rule is about must stay so."""
    lost = (box & broken).bit_count() + (box & nothing).bit_count() * nothing.bit_length()
    return (box & gained).bit_count() - lost


def _grown(grid: _Grid, when: When, gained: Points, broken: Points) -> When:
    """The conditions, with the values of each fact chosen that gain more than they break, in turn."""
    for _ in range(3):
        before = when
        for key, held in grid.values.items():
            others = grid.box(when, without=key)
            score = {
                value: _gain(points & others, gained, broken, grid.nothing) for value, points in held.items()
            }
            chosen = frozenset(value for value, gain in score.items() if gain > 0)
            rest = {name: members for name, members in when.items() if name != key}
            if not chosen or all(gain >= 0 for gain in score.values()):
                when = rest if chosen else when
            else:
                when = {**rest, key: chosen}
        if when == before:
            break
    return when


def _pruned(grid: _Grid, rules: Rules) -> Rules:
    """The list without rules and conditions that it does not need."""
    for number in range(len(rules) - 2, -1, -1):
        shorter = rules[:number] + rules[number + 1 :]
        if _is_right(grid, shorter):
            rules = shorter
    for number, (when, outcome) in enumerate(rules):
        for key in tuple(when):
            less = {name: members for name, members in when.items() if name != key}
            tried = [*rules[:number], (less, outcome), *rules[number + 1 :]]
            if _is_right(grid, tried):
                rules, when = tried, less
    return rules


def _is_right(grid: _Grid, rules: Rules) -> bool:
    rest = grid.all
    for when, outcome in rules:
        box = grid.box(when) & rest
        if box & ~grid.outcomes[outcome]:
            return False
        rest &= ~box
    return not rest
