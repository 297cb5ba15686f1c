"""Sets of integers from 0 up: finite unions of intervals, each cut down to some residue classes."""

from __future__ import annotations

import operator

from moe_align.space.pieces import (
    Piece,
    canonical,
    divided,
    joined,
    lowered,
    multiplied,
    rounded,
    sweep,
    unrounded,
)
from moe_align.space.residues import checked
from moe_align.space.words import ints_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from moe_align.space.pieces import Operation


class Ints:
    """A set of integers from 0 up. Equal sets are equal values, with equal hashes."""

    __slots__ = ("pieces",)

    pieces: tuple[Piece, ...]
    """In order, disjoint, with members at both ends; see `pieces.canonical`."""

    def __init__(self, pieces: tuple[Piece, ...]) -> None:
        object.__setattr__(self, "pieces", pieces)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a set of integers is frozen")

    def __reduce__(self) -> tuple[object, ...]:
        return Ints, (self.pieces,)

    def __repr__(self) -> str:
        return f"Ints({self})"

    @classmethod
    def all(cls) -> Ints:
        """Every integer from 0 up."""
        return _ALL

    @classmethod
    def empty(cls) -> Ints:
        """No integer."""
        return _EMPTY

    @classmethod
    def of(cls, *members: int) -> Ints:
        """The given integers.

        Raises:
            ValueError: if one is below 0.
        """
        listed = sorted(set(members))
        if listed and listed[0] < 0:
            raise ValueError(f"sets hold integers from 0 up, not {listed[0]}")
        return cls(tuple(joined(Piece(member, member) for member in listed)))

    @classmethod
    def between(cls, low: int, high: int | None) -> Ints:
        """The integers from `low` to `high`, both of them in; without end if `high` is None."""
        low = max(low, 0)
        return _EMPTY if high is not None and high < low else cls((Piece(low, high),))

    @classmethod
    def multiples(cls, multiple: int) -> Ints:
        """The multiples of `multiple`, 0 among them.

        Raises:
            ValueError: if `multiple` is below 1 (`SpaceTooLarge`: or above the most residues held).
        """
        if multiple < 1:
            raise ValueError(f"a multiple is at least 1, not {multiple}")
        return cls((Piece(0, None, checked(multiple)),))

    def __and__(self, other: Ints) -> Ints:
        if len(self.pieces) == len(other.pieces) == 1:
            one, two = self.pieces[0], other.pieces[0]
            if one.modulus == two.modulus == 1:
                return Ints.between(max(one.low, two.low), _lesser(one.high, two.high))
        return self._combine(other, operator.and_)

    def __or__(self, other: Ints) -> Ints:
        return self._combine(other, operator.or_)

    def __sub__(self, other: Ints) -> Ints:
        return self._combine(other, _without)

    def __le__(self, other: Ints) -> bool:
        if self.is_singleton:
            return self.pieces[0].low in other
        if self.is_empty or self.pieces == other.pieces:
            return True
        return other._spans(self) and (self - other).is_empty

    def __contains__(self, member: object) -> bool:
        return isinstance(member, int) and any(
            low <= member and (high is None or member <= high) and mask >> member % modulus & 1
            for low, high, modulus, mask in self.pieces
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ints):
            return NotImplemented
        if self.pieces == other.pieces:
            return True
        # Where every run below the endless piece is listed, one set has one form. A long repeating
        # part that ends somewhere can be held in more than one.
        if self._is_listed and other._is_listed:
            return False
        return not sweep(self.pieces, other.pieces, operator.xor)

    def __hash__(self) -> int:
        if self.is_empty:
            return 0
        last = self.pieces[-1]
        return hash((self.pieces[0].low, last if last.high is None else last.high))

    def isdisjoint(self, other: Ints) -> bool:
        """Whether no integer is in both."""
        if self.is_singleton:
            return self.pieces[0].low not in other
        if other.is_singleton:
            return other.pieces[0].low not in self
        return (self & other).is_empty

    @property
    def is_empty(self) -> bool:
        """Whether no integer is in it."""
        return not self.pieces

    @property
    def is_singleton(self) -> bool:
        """Whether exactly one integer is in it."""
        return len(self.pieces) == 1 and self.pieces[0].low == self.pieces[0].high

    def min(self) -> int:
        """The least member.

        Raises:
            ValueError: if there is none.
        """
        return self._end(0).low

    def max(self) -> int | None:
        """The greatest member, or None if they have no end.

        Raises:
            ValueError: if there is none.
        """
        return self._end(-1).high

    witness = min

    def preimage_round_up(self, multiple: int) -> Ints:
        """The integers that, rounded up to a multiple of `multiple`, are in the set.

        Raises:
            ValueError: if `multiple` is below 1.
        """
        reached = self & Ints.multiples(multiple)
        return _made(unrounded(piece, multiple) for piece in reached.pieces)

    def image_round_up(self, multiple: int) -> Ints:
        """The members, each rounded up to a multiple of `multiple`.

        Raises:
            ValueError: if `multiple` is below 1.
        """
        image = _EMPTY
        for piece in self.pieces:
            image |= _made([rounded(piece, multiple)])
        return image

    def preimage_add(self, amount: int) -> Ints:
        """The integers that, with `amount` added, are in the set.

        Raises:
            ValueError: if `amount` is below 0.
        """
        if amount < 0:
            raise ValueError(f"what is added is at least 0, not {amount}")
        reached = self & Ints.between(amount, None)
        return _made(lowered(piece, amount) for piece in reached.pieces)

    def preimage_floor_div(self, divisor: int) -> Ints:
        """The multiples of `divisor` that, divided by it, are in the set: what splits evenly into members.

        Raises:
            ValueError: if `divisor` is below 1.
        """
        if divisor < 1:
            raise ValueError(f"a divisor is at least 1, not {divisor}")
        return _made(multiplied(piece, divisor) for piece in self.pieces)

    def quotients(self, divisor: int) -> Ints:
        """What the multiples of `divisor` in the set are when divided by it.

        Raises:
            ValueError: if a divisor is below 1.
        """
        reached = self & Ints.multiples(divisor)
        return _made(divided(piece, divisor) for piece in reached.pieces)

    def __str__(self) -> str:
        return ints_text(self.pieces)

    def _combine(self, other: Ints, operation: Operation) -> Ints:
        return _combined(self.pieces, other.pieces, operation)

    def _end(self, index: int) -> Piece:
        if self.is_empty:
            raise ValueError("an empty set has no member")
        return self.pieces[index]

    def _spans(self, other: Ints) -> bool:
        """Whether the members of `other`, which has some, lie between the ends of this set."""
        if self.is_empty or other.pieces[0].low < self.pieces[0].low:
            return False
        high, end = other.pieces[-1].high, self.pieces[-1].high
        return end is None or (high is not None and high <= end)

    @property
    def _is_listed(self) -> bool:
        return all(piece.modulus == 1 or piece.high is None for piece in self.pieces)


#: What sets have made together: analyses put the same few together again and again. `functools` would take
#: longer to import than a serving process takes to read its policy.
_TOGETHER: dict[tuple[tuple[Piece, ...], tuple[Piece, ...], Operation], Ints] = {}
_MOST_KEPT = 2**14


def _combined(ones: tuple[Piece, ...], twos: tuple[Piece, ...], operation: Operation) -> Ints:
    key = (ones, twos, operation)
    made = _TOGETHER.get(key)
    if made is None:
        if len(_TOGETHER) >= _MOST_KEPT:
            _TOGETHER.clear()
        made = _TOGETHER[key] = Ints(canonical(sweep(ones, twos, operation)))
    return made


def _made(pieces: Iterable[Piece | None]) -> Ints:
    return Ints(canonical([piece for piece in pieces if piece]))


def _without(one: int, two: int) -> int:
    return one & ~two


def _lesser(one: int | None, two: int | None) -> int | None:
    if one is None or two is None:
        return two if one is None else one
    return min(one, two)


_EMPTY = Ints(())
_ALL = Ints((Piece(0, None),))
