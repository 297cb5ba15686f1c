"""Intervals of integers cut down to residue classes: the parts that a set of integers is made of.

Everywhere a sequence of pieces is in order and disjoint, and `low` and `high` of each are members.
"""

from __future__ import annotations

import operator
from itertools import chain, islice

from moe_align.record import NamedTuple
from moe_align.sizes import round_up
from moe_align.space.residues import (
    checked,
    common_modulus,
    first_from,
    full,
    last_to,
    least_period,
    smear,
    spread,
    turn,
    widen,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    Operation = Callable[[int, int], int]

# Below the part that repeats for ever, up to so many runs of neighbours are listed one by one.
MOST_RUNS = 24


class Piece(NamedTuple):
    """The integers from `low` to `high` (None: without end) whose residue modulo `modulus` is in `mask`."""

    low: int
    high: int | None
    modulus: int = 1
    mask: int = 1


def trimmed(piece: Piece) -> Piece | None:
    """The same integers with the least modulus and with members at both ends; None if there are none."""
    low, high, modulus, mask = piece
    if not mask:
        return None
    if modulus > 1:
        mask, modulus = least_period(mask, modulus)
        low = first_from(mask, modulus, low)
        high = None if high is None else last_to(mask, modulus, high)
    if high is None or high > low:
        return Piece(low, high, modulus, mask)
    return Piece(low, high) if high == low else None


def sweep(ones: Sequence[Piece], twos: Sequence[Piece], operation: Operation) -> list[Piece]:
    """The integers whose two memberships `operation` maps to 1; it must map 0 and 0 to 0."""
    cuts = sorted(_cuts(ones) | _cuts(twos))
    highs: list[int | None] = [cut - 1 for cut in cuts[1:]]
    highs += [None] if cuts else []
    swept = []
    for low, high, one, two in zip(cuts, highs, _classes(ones, cuts), _classes(twos, cuts), strict=True):
        modulus = common_modulus(one[0], two[0])
        mask = operation(widen(one[1], one[0], modulus), widen(two[1], two[0], modulus))
        piece = trimmed(Piece(low, high, modulus, mask))
        if piece:
            swept.append(piece)
    return swept


def _cuts(pieces: Sequence[Piece]) -> set[int]:
    return {piece.low for piece in pieces} | {piece.high + 1 for piece in pieces if piece.high is not None}


def _classes(pieces: Sequence[Piece], cuts: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The modulus and mask that hold from each of `cuts` to the next."""
    rest = iter(pieces)
    piece = next(rest, None)
    for cut in cuts:
        if piece and piece.high is not None and piece.high < cut:
            piece = next(rest, None)
        inside = piece is not None and piece.low <= cut
        yield (piece.modulus, piece.mask) if piece and inside else (1, 0)


def canonical(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """The same integers in one form: the endless piece as low as it reaches, few runs below it listed."""
    if not pieces:
        return ()
    body, tail = (pieces, None) if pieces[-1].high is not None else (pieces[:-1], pieces[-1])
    if tail:
        body, tail = _settled(body, tail)
    listed = list(islice(joined(chain.from_iterable(map(runs, body))), MOST_RUNS + 1))
    if len(listed) > MOST_RUNS:
        listed = list(joined(body))
    return (*listed, tail) if tail else tuple(listed)


def _settled(body: Sequence[Piece], tail: Piece) -> tuple[Sequence[Piece], Piece]:
    """Body and tail, with what the tail's pattern already says moved from the body to the tail."""
    _, _, modulus, mask = tail
    if not body or body[-1].high != last_to(mask, modulus, tail.low - 1):
        return body, tail
    differing = sweep(body, [Piece(0, tail.low - 1, modulus, mask)], operator.xor)
    if not differing:
        return (), Piece(first_from(mask, modulus, 0), None, modulus, mask)
    last = differing[-1].high
    assert last is not None
    return (
        sweep(body, [Piece(0, last)], operator.and_),
        Piece(first_from(mask, modulus, last + 1), None, modulus, mask),
    )


def joined(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """The same integers with neighbours of one pattern as one piece. No piece is endless."""
    before: Piece | None = None
    for piece in pieces:
        both = _as_one(before, piece) if before else None
        if before and not both:
            yield before
        before = both or piece
    if before:
        yield before


def _as_one(before: Piece, piece: Piece) -> Piece | None:
    """The two pieces as one, if the pattern of one goes on in the other, which may be a single integer."""
    assert before.high is not None
    if before[2:] == piece[2:] or piece.low == piece.high:
        follows = first_from(before.mask, before.modulus, before.high + 1) == piece.low
        return before._replace(high=piece.high) if follows else None
    if before.low == before.high:
        precedes = last_to(piece.mask, piece.modulus, piece.low - 1) == before.low
        return piece._replace(low=before.low) if precedes else None
    return None


def runs(piece: Piece) -> Iterator[Piece]:
    """The runs of neighbouring members of a piece that has an end."""
    low, end, modulus, mask = piece
    assert end is not None
    outside = full(modulus) & ~mask
    while low <= end:
        high = min(first_from(outside, modulus, low) - 1, end) if outside else end
        yield Piece(low, high)
        low = first_from(mask, modulus, high + 1)


def rounded(piece: Piece, multiple: int) -> Piece | None:
    """The members, each rounded up to a multiple of `multiple`."""
    low = round_up(piece.low, multiple)
    high = None if piece.high is None else round_up(piece.high, multiple)
    modulus = common_modulus(piece.modulus, multiple)
    # The members at both ends make it right to look at whole blocks there too.
    reached = smear(widen(piece.mask, piece.modulus, modulus), modulus, multiple, up=True)
    return trimmed(Piece(low, high, modulus, reached & widen(1, multiple, modulus)))


def unrounded(piece: Piece, multiple: int) -> Piece | None:
    """What, rounded up to a multiple of `multiple`, is in `piece`, whose members all are such multiples."""
    modulus = common_modulus(piece.modulus, multiple)
    reached = widen(piece.mask, piece.modulus, modulus) & widen(1, multiple, modulus)
    low = max(piece.low - multiple + 1, 0)
    return trimmed(Piece(low, piece.high, modulus, smear(reached, modulus, multiple, up=False)))


def multiplied(piece: Piece, factor: int) -> Piece | None:
    """The members times `factor`."""
    low, high, modulus, mask = piece
    wider = checked(modulus * factor)
    return trimmed(Piece(low * factor, None if high is None else high * factor, wider, spread(mask, factor)))


def divided(piece: Piece, divisor: int) -> Piece | None:
    """The members, all of them multiples of `divisor`, divided by it."""
    low, high, modulus, mask = piece
    wider = common_modulus(modulus, divisor)
    mask = widen(mask, modulus, wider)
    narrow = sum(1 << at // divisor for at in range(0, wider, divisor) if mask >> at & 1)
    return trimmed(Piece(low // divisor, None if high is None else high // divisor, wider // divisor, narrow))


def lowered(piece: Piece, amount: int) -> Piece | None:
    """The members, none of them below `amount`, each less `amount`."""
    low, high, modulus, mask = piece
    residues = turn(mask, modulus, -amount)
    return trimmed(Piece(low - amount, None if high is None else high - amount, modulus, residues))
