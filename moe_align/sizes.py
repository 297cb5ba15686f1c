"""Integer arithmetic of sizes: rounding up, common multiples, cutting a dimension into shards."""

from __future__ import annotations

import math
from itertools import pairwise

from .record import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def ceil_div(size: int, divisor: int) -> int:
    """The least number of pieces of `divisor` elements that hold `size` elements.

    Raises:
        ValueError: if `size` is below 0 or `divisor` below 1.
    """
    _check_size(size)
    _check_at_least_one("divisor", divisor)
    return -(-size // divisor)


def round_up(size: int, multiple: int) -> int:
    """The least multiple of `multiple` that is not below `size`.

    Raises:
        ValueError: if `size` is below 0 or `multiple` below 1.
    """
    _check_size(size)
    _check_at_least_one("multiple", multiple)
    return -(-size // multiple) * multiple


def lcm(*multiples: int) -> int:
    """The least common multiple; 1 of no multiples.

    Raises:
        ValueError: if one of them is below 1.
    """
    for multiple in multiples:
        _check_at_least_one("multiple", multiple)
    return math.lcm(*multiples)


def snap(size: int, choices: Iterable[int]) -> int | None:
    """The least of `choices` that is not below `size`, or None when all are.

    Raises:
        ValueError: if `size` is below 0.
    """
    _check_size(size)
    return min((choice for choice in choices if choice >= size), default=None)


class Shard(NamedTuple):
    """What one rank holds: the real elements `start` to `stop` (exclusive), in `size` allocated ones."""

    start: int
    stop: int
    size: int

    @property
    def real(self) -> int:
        """The number of real elements."""
        return self.stop - self.start

    @property
    def pad(self) -> int:
        """The number of elements that only padding fills."""
        return self.size - self.real


def cut(size: int, ranks: int, multiple: int) -> tuple[Shard, ...]:
    """Cut `size` elements into one shard per rank, in rank order, never inside a block.

    All shards get one padded size, a multiple of `multiple`; the last ones may hold fewer
    real elements, or none. 1536 over 8 ranks by 128: six shards of 256 and two empty ones.

    Raises:
        ValueError: if `size` is below 0, or `ranks` or `multiple` below 1.
    """
    _check_at_least_one("ranks", ranks)
    padded = round_up(ceil_div(size, ranks), multiple)
    bounds = [min(rank * padded, size) for rank in range(ranks + 1)]
    return tuple(Shard(start, stop, padded) for start, stop in pairwise(bounds))


def _check_size(size: int) -> None:
    if size < 0:
        raise ValueError(f"a size is at least 0, not {size}")


def _check_at_least_one(name: str, number: int) -> None:
    if number < 1:
        raise ValueError(f"`{name}` is at least 1, not {number}")
