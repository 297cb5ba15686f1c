"""The sets that one fact can be in, of whichever kind; two that meet here are always of one kind."""

from __future__ import annotations

from collections.abc import Mapping

from moe_align.space.ints import Ints
from moe_align.space.values import Values
from moe_align.versions import Key, VersionSet

FactSet = Values | Ints | VersionSet
Member = str | int | Key
Point = Mapping[str, Member]


def meet(one: FactSet, other: FactSet) -> FactSet:
    """The members of both."""
    return one & other  # type: ignore[operator]


def join(one: FactSet, other: FactSet) -> FactSet:
    """The members of either."""
    return one | other  # type: ignore[operator]


def minus(one: FactSet, other: FactSet) -> FactSet:
    """The members of the first alone."""
    return one - other  # type: ignore[operator]


def subset(one: FactSet, other: FactSet) -> bool:
    """Whether the second has all members of the first."""
    return one <= other  # type: ignore[operator]


def disjoint(one: FactSet, other: FactSet) -> bool:
    """Whether no member is in both."""
    return one.isdisjoint(other)  # type: ignore[arg-type]


def contains(members: FactSet, member: Member) -> bool:
    """Whether `member` is one of the members."""
    return member in members
