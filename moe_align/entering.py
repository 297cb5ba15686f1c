"""Sizes as functions of those that entered: what becomes of them, and which become what is asked for."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import count

from .flow import Dimension, Flow, entering_part, walked
from .known import Known
from .packs import Condition
from .space import Ints, SpaceTooLarge
from .space.pieces import Piece, canonical
from .vocabulary import Vocabulary

#: Sizes are enumerated up to this before they are called too many.
MOST_SIZES = 2**17

#: A vocabulary without a word, for what is about sizes alone.
NO_WORDS = Vocabulary({}, {}, {})
_NOTHING_KNOWN = Known(NO_WORDS, {}, {}, {}, {})


@lru_cache(maxsize=16384)
def sizes_that_become(dimension: Dimension, accepts: Ints) -> Ints | None:
    """The entering sizes that by now are in `accepts`; `None` for none, everything for a constant in it."""
    if dimension.size is not None:
        return Ints.between(1, None) if dimension.size in accepts else None
    # A dimension as `flow` carries it: the condition is turned back through its steps.
    flow = Flow(dimension, dimension)
    entering = entering_part(_NOTHING_KNOWN, flow, Condition("hidden", accepts, ""))
    assert isinstance(entering, Ints)
    return entering


def size_after(dimension: Dimension, entering: int) -> int | None:
    """What a size that enters the first phase has become; `None` where a rule has refused it."""
    if dimension.size is not None:
        return dimension.size
    size = entering
    for step, by in dimension.steps:
        if step == "snap" and size > by[-1]:
            return None
        size = walked(size, ((step, by),))
    return size


def sizes_where(
    dimensions: Sequence[Dimension],
    holds: Callable[[int, Sequence[int]], bool],
    multiples: Iterable[int] = (),
) -> Ints:
    """The entering sizes for which `holds`, given such a size and what `dimensions` make of it.

    The claim must repeat with the roundings of `dimensions` and with `multiples`. Beyond every bound of
    the steps all of it repeats with their least common multiple, so the sizes below, and one period
    after, say everything.

    Raises:
        SpaceTooLarge: more than `MOST_SIZES` would have to be tried.
    """
    period, start = math.lcm(*multiples), 1
    for dimension in dimensions:
        for step, by in dimension.steps:
            if step == "round_up":
                period = math.lcm(period, by)
            else:
                start = max(start, max(by) if isinstance(by, tuple) else by)
    start += period + 1
    if start + period > MOST_SIZES:
        raise SpaceTooLarge(f"{start + period} sizes would have to be tried, more than {MOST_SIZES}")
    columns = [_after_all(dimension, start + period) for dimension in dimensions]
    found = [
        size
        for size, *after in zip(count(1), *columns, strict=False)
        if None not in after and holds(size, after)
    ]
    below = Ints.of(*(size for size in found if size < start))
    above = [size for size in found if size >= start]
    if not above:
        return below
    mask = sum(1 << size % period for size in above)
    return below | Ints(canonical([Piece(above[0], None, period, mask)]))


@lru_cache(maxsize=256)
def _after_all(dimension: Dimension, stop: int) -> tuple[int | None, ...]:
    """What each size from 1 up to, not with, `stop` has become."""
    return tuple(size_after(dimension, size) for size in range(1, stop))
