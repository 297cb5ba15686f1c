"""Residue classes: bit `r` of a mask says whether the integers equal to `r` modulo its modulus are in."""

from __future__ import annotations

import math

MOST_RESIDUES = 2**20


class SpaceTooLarge(ValueError):
    """A set that would need more residue classes than this library is willing to hold."""


def common_modulus(*moduli: int) -> int:
    """The least modulus that all of `moduli` divide.

    Raises:
        SpaceTooLarge: if it is above `MOST_RESIDUES`.
    """
    return checked(math.lcm(*moduli))


def checked(modulus: int) -> int:
    """`modulus` itself.

    Raises:
        SpaceTooLarge: if it is above `MOST_RESIDUES`.
    """
    if modulus > MOST_RESIDUES:
        raise SpaceTooLarge(f"exact integers need {modulus} residue classes here, more than {MOST_RESIDUES}")
    return modulus


def full(modulus: int) -> int:
    """The mask of all residues."""
    return (1 << modulus) - 1


def widen(mask: int, modulus: int, wider: int) -> int:
    """The mask of the same integers modulo `wider`, a multiple of `modulus`."""
    while modulus * 2 <= wider:
        mask |= mask << modulus
        modulus *= 2
    if modulus < wider:
        mask |= (mask << modulus) & full(wider)
    return mask


def least_period(mask: int, modulus: int) -> tuple[int, int]:
    """The mask of the same integers by their least modulus, and that modulus."""
    for prime in _primes(modulus):
        while modulus % prime == 0 and _repeats(mask, modulus, modulus // prime):
            modulus //= prime
            mask &= full(modulus)
    return mask, modulus


def _repeats(mask: int, modulus: int, period: int) -> bool:
    return mask >> period == mask & full(modulus - period)


def _primes(number: int) -> tuple[int, ...]:
    """The distinct prime factors."""
    found = []
    prime = 2
    while prime * prime <= number:
        if number % prime == 0:
            found.append(prime)
            while number % prime == 0:
                number //= prime
        prime += 1
    return (*found, number) if number > 1 else tuple(found)


def first_from(mask: int, modulus: int, low: int) -> int:
    """The least integer in the classes of `mask`, which are not none, that is at least `low`."""
    turn = low % modulus
    above = mask >> turn
    if above:
        return low + _lowest(above)
    return low - turn + modulus + _lowest(mask)


def last_to(mask: int, modulus: int, high: int) -> int:
    """The greatest integer, even below 0, in the classes of `mask`, which are not none, up to `high`."""
    turn = high % modulus
    under = mask & full(turn + 1)
    if under:
        return high - turn + under.bit_length() - 1
    return high - turn - modulus + mask.bit_length() - 1


def _lowest(mask: int) -> int:
    return (mask & -mask).bit_length() - 1


def smear(mask: int, modulus: int, width: int, *, up: bool) -> int:
    """The residues that stand fewer than `width` steps above (else under) one in `mask`, or are in it."""
    done = 1
    while done < min(width, modulus):
        step = min(done, width - done)
        mask |= turn(mask, modulus, step if up else modulus - step)
        done += step
    return mask


def turn(mask: int, modulus: int, step: int) -> int:
    """The residues of `mask`, each plus `step`."""
    mask <<= step % modulus
    return (mask & full(modulus)) | (mask >> modulus)


def spread(mask: int, factor: int) -> int:
    """The residues times `factor`."""
    wide = 0
    while mask:
        lowest = _lowest(mask)
        wide |= 1 << lowest * factor
        mask &= mask - 1
    return wide
