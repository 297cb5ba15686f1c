"""What code does to integers, as terms: sums, differences, multiples, divisions and residues by constants.

A term is a function of one size. Sizes are looked at one by one up to `BOUND`, and how a term goes on says
what that proves of all others.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from moe_align.verify.stand_ins import Unlinked

#: Sizes are looked at one by one up to here. `steady_from` says whether that proves the rest.
BOUND = 16384

Term = int | str | tuple[str, "Term", "Term"]
"""A constant, the name of a size, or an operation on two terms."""

Mask = int
"""A set of sizes from 0 to `BOUND`: bit `n` is set where `n` is in it."""

ARITHMETIC: Mapping[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
}
COMPARISONS: Mapping[str, Callable[[int, int], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


def everything(lowest: int, step: int = 1) -> Mask:
    """All multiples of `step` from `lowest` to `BOUND`."""
    return sum(1 << size for size in range(lowest, BOUND + 1, step)) if step > 1 else _ALL - (1 << lowest)


_ALL = 1 << (BOUND + 1)


def least(sizes: Mask) -> int:
    """The least size of a set that is not empty."""
    return (sizes & -sizes).bit_length() - 1


def split(sets: Sequence[Mask], by: Mask) -> list[Mask]:
    """The parts of the sets inside and outside of `by`, without empty ones."""
    return [part for one in sets for part in (one & by, one & ~by) if part]


@lru_cache(maxsize=4096)
def size_of(term: Term) -> str | None:
    """The name of the one size that a term is made of; `None` for a constant.

    Raises:
        Unlinked: it is made of two.
    """
    if isinstance(term, int | str):
        return term if isinstance(term, str) else None
    names = {size_of(part) for part in term[1:]} - {None}
    if len(names) > 1:
        raise Unlinked("one size depends on the other")
    return names.pop() if names else None


@lru_cache(maxsize=1024)
def values(term: Term) -> Sequence[int]:
    """What a term is for 0, 1, … `BOUND`."""
    if isinstance(term, str):
        return range(BOUND + 1)
    if isinstance(term, int):
        return (term,) * (BOUND + 1)
    sign, left, right = term
    return tuple(map(ARITHMETIC[sign], values(left), values(right)))


class Pace(NamedTuple):
    """After `period` more elements a term is `gain` more, wherever one begins."""

    period: int
    gain: int


@lru_cache(maxsize=4096)
def pace(term: Term) -> Pace:
    """How a term goes on. Sums and multiples keep it; a division needs a gain that it divides."""
    if isinstance(term, int | str):
        return Pace(1, 0 if isinstance(term, int) else 1)
    sign, left, right = term
    one, two = pace(left), pace(right)
    if sign == "*":
        assert isinstance(right, int)
        return Pace(one.period, one.gain * right)
    if sign in ("//", "%"):
        assert isinstance(right, int)
        times = right // math.gcd(right, one.gain)
        gain = one.gain * times // right if sign == "//" else 0
        return Pace(one.period * times, gain)
    period = math.lcm(one.period, two.period)
    first, second = one.gain * (period // one.period), two.gain * (period // two.period)
    return Pace(period, first + second if sign == "+" else first - second)


@lru_cache(maxsize=1024)
def holds(sign: str, left: Term, right: Term) -> Mask:
    """The sizes for which a comparison holds."""
    compare = COMPARISONS[sign]
    bits = ("1" if compare(one, two) else "0" for one, two in zip(values(left), values(right), strict=True))
    return int("".join(bits)[::-1], 2)


@lru_cache(maxsize=1024)
def differing(one: Term, two: Term) -> Mask:
    """The sizes for which two terms are not the same number."""
    return holds("!=", one, two)


@lru_cache(maxsize=1024)
def steady_from(left: Term, right: Term) -> tuple[int, int]:
    """From where on a comparison of the two repeats, and after how many elements.

    Their difference `d` gains the same with each period. Without a gain the comparison repeats from the
    start; with one its outcome stays once the gains outweigh whatever `d` is within the first period.
    """
    period, gain = pace(("-", left, right))
    if not gain:
        return 0, period
    first = values(("-", left, right))[:period]
    return period * (1 + math.ceil(max(map(abs, first)) / abs(gain))), 1


def round_up(term: Term, multiple: int) -> Term:
    """A term rounded up to a multiple."""
    if multiple == 1:
        return term
    return ("*", ("//", ("+", term, multiple - 1), multiple), multiple)


@lru_cache(maxsize=1024)
def multiple_of(term: Term, within: Mask) -> int | None:
    """The multiple to which a term rounds its size up, for all sizes of a set; `None` if it does not."""
    size = size_of(term)
    if size is None or not within:
        return None
    for multiple in sorted({*_constants(term), values(term)[least(within)], 1}):
        if multiple >= 1 and not differing(term, round_up(size, multiple)) & within:
            return multiple
    return None


@lru_cache(maxsize=256)
def floor_of(term: Term) -> tuple[int, int] | None:
    """What a declared pad is floored to, and how often it counts; `None` if it is something else."""
    pads = values(term)
    floor = next((pad for pad, said in enumerate(pads) if said), 0)
    if not floor:
        return None
    times = pads[floor] // floor
    same = all(said == pad // floor * floor * times for pad, said in enumerate(pads))
    return (floor, times) if same and times else None


def _constants(term: Term) -> set[int]:
    if isinstance(term, int | str):
        return {term} if isinstance(term, int) else set()
    return _constants(term[1]) | _constants(term[2])
