"""Finite sets of words: what a discrete fact may be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Values:
    """A set of the values of one discrete fact; booleans are the words `true` and `false`."""

    members: frozenset[str]

    @classmethod
    def of(cls, members: Iterable[str]) -> Values:
        """The set of the given values."""
        return cls(frozenset(members))

    def __and__(self, other: Values) -> Values:
        return Values(self.members & other.members)

    def __or__(self, other: Values) -> Values:
        return Values(self.members | other.members)

    def __sub__(self, other: Values) -> Values:
        return Values(self.members - other.members)

    def __le__(self, other: Values) -> bool:
        return self.members <= other.members

    def __contains__(self, value: object) -> bool:
        return value in self.members

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self.members))

    def isdisjoint(self, other: Values) -> bool:
        """Whether no value is in both."""
        return self.members.isdisjoint(other.members)

    @property
    def is_empty(self) -> bool:
        """Whether no value is in it."""
        return not self.members

    @property
    def is_singleton(self) -> bool:
        """Whether exactly one value is in it."""
        return len(self.members) == 1

    def witness(self) -> str:
        """The first member in alphabetical order.

        Raises:
            ValueError: if there is none.
        """
        if self.is_empty:
            raise ValueError("an empty set has no member")
        return min(self.members)

    def __str__(self) -> str:
        return ", ".join(self) or "none"
