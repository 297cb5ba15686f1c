"""Sets of integers in words."""

from __future__ import annotations

import math

from moe_align.space.pieces import Piece, runs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_MOST_RESIDUE_RUNS = 4
_FEWEST_STEPS = 5


def ints_text(pieces: Sequence[Piece]) -> str:
    """What the pieces hold, for people: `<= 192`, `193..256`, `multiple of 128, >= 1024`."""
    if not pieces:
        return "none"
    texts = [_piece_text(piece) for piece in _folded(pieces)]
    plain = all(text[0].isdigit() and " " not in text for text in texts)
    return (", " if plain else " or ").join(texts)


def _folded(pieces: Sequence[Piece]) -> Iterator[Piece]:
    """The pieces, with five or more single integers in a row at equal steps, multiples of it, as one."""
    at = 0
    while at < len(pieces):
        steps = _equal_steps(pieces[at:])
        if steps < _FEWEST_STEPS:
            yield pieces[at]
            at += 1
            continue
        yield Piece(pieces[at].low, pieces[at + steps - 1].high, pieces[at + 1].low - pieces[at].low)
        at += steps


def _equal_steps(pieces: Sequence[Piece]) -> int:
    """How many single integers stand first in `pieces`, neighbours among the multiples of one step."""
    if len(pieces) < _FEWEST_STEPS:
        return 0
    start, step = pieces[0].low, pieces[1].low - pieces[0].low
    if start % step:
        return 0
    expected = (Piece(start + step * index, start + step * index) for index in range(len(pieces)))
    return next(
        (index for index, pair in enumerate(zip(pieces, expected, strict=True)) if pair[0] != pair[1]),
        len(pieces),
    )


def _piece_text(piece: Piece) -> str:
    low, high, modulus, mask = piece
    if modulus == 1:
        return _interval_text(low, high)
    bounds = [f">= {low}"] if low >= modulus or mask & ((1 << low) - 1) else []
    bounds += [] if high is None else [f"<= {high}"]
    return ", ".join([_classes_text(modulus, mask), *bounds])


def _interval_text(low: int, high: int | None) -> str:
    if high is None:
        return f">= {low}" if low else "any"
    if low == high:
        return str(low)
    return f"{low}..{high}" if low else f"<= {high}"


def _classes_text(modulus: int, mask: int) -> str:
    if mask == 1:
        return f"multiple of {modulus}"
    residues = list(runs(Piece(_lowest(mask), mask.bit_length() - 1, modulus, mask)))
    step = math.gcd(modulus, *(run.low if run.low == run.high else 1 for run in residues))
    if mask.bit_count() == modulus // step - 1 and not mask & 1:
        return f"multiple of {step}, not of {modulus}" if step > 1 else f"not multiple of {modulus}"
    if len(residues) > _MOST_RESIDUE_RUNS:
        return f"{mask.bit_count()} residues mod {modulus}"
    return ", ".join(
        f"{run.low}" if run.low == run.high else f"{run.low}..{run.high}" for run in residues
    ) + (f" mod {modulus}")


def _lowest(mask: int) -> int:
    return (mask & -mask).bit_length() - 1
