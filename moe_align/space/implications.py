"""Whether facts can hold together when the values of some imply sets for others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from moe_align.space.sets import FactSet, disjoint, meet
from moe_align.space.values import Values

# (fact, value) → what else must then hold.
Implications = Mapping[tuple[str, str], Mapping[str, FactSet]]

# In the search a set of words is a mask with a bit for each, in alphabetical order.
_Code = int | FactSet
_Codes = dict[str, _Code]
# Of one fact: the bit of a value, and what it implies.
_Implied = list[tuple[int, list[tuple[str, _Code]]]]


class Solver:
    """Finds sets that all implications allow, by trying the values that imply something one by one."""

    __slots__ = ("_bits", "_domain", "_implied", "_speaking")

    def __init__(self, domain: Mapping[str, FactSet], implications: Implications) -> None:
        involved = sorted(
            {fact for fact, _ in implications} | {name for sets in implications.values() for name in sets}
        )
        self._bits: dict[str, dict[str, int]] = {}
        for fact in involved:
            members = domain[fact]
            if isinstance(members, Values):
                self._bits[fact] = {value: 1 << index for index, value in enumerate(members)}
        self._domain: _Codes = {fact: self._code(fact, domain[fact]) for fact in involved}
        self._implied: dict[str, _Implied] = {}
        for (fact, value), sets in sorted(implications.items(), key=lambda item: item[0]):
            consequences = [(name, self._code(name, members)) for name, members in sets.items()]
            self._implied.setdefault(fact, []).append((self._bits[fact][value], consequences))
        self._speaking = {fact: sum(bit for bit, _ in implied) for fact, implied in self._implied.items()}

    def __contains__(self, fact: str) -> bool:
        """Whether an implication speaks of `fact`."""
        return fact in self._domain

    def solution(self, sets: Mapping[str, FactSet]) -> dict[str, FactSet] | None:
        """Sets inside `sets` whose every combination is allowed, of all facts that implications speak of.

        None if nothing inside `sets`, none of which may be empty, is allowed.
        """
        codes = self._search(
            self._domain
            | {fact: self._code(fact, members) for fact, members in sets.items() if fact in self._domain}
        )
        return None if codes is None else {fact: self._set(fact, code) for fact, code in codes.items()}

    def _code(self, fact: str, members: FactSet) -> _Code:
        if not isinstance(members, Values):
            return members
        bits = self._bits[fact]
        return sum(bits[value] for value in members.members)

    def _set(self, fact: str, code: _Code) -> FactSet:
        if not isinstance(code, int):
            return code
        return Values.of(value for value, bit in self._bits[fact].items() if code & bit)

    def _search(self, codes: _Codes) -> _Codes | None:
        tight = self._tightened(codes)
        if tight is None:
            return None
        undecided = {
            fact: mask
            for fact, speaking in self._speaking.items()
            if (mask := _mask(tight[fact])) & speaking and mask & mask - 1
        }
        if not undecided:
            return tight
        fact = min(undecided, key=lambda each: undecided[each].bit_count())
        for choice in _choices(undecided[fact], self._speaking[fact]):
            found = self._search({**tight, fact: choice})
            if found is not None:
                return found
        return None

    def _tightened(self, codes: _Codes) -> _Codes | None:
        """`codes` without the values whose consequences cannot be met, with those of a value left alone."""
        tight = dict(codes)
        changed = True
        while changed:
            changed = False
            for fact, implied in self._implied.items():
                mask = _mask(tight[fact])
                kept = mask & ~sum(bit for bit, then in implied if mask & bit and not _possible(then, tight))
                if not kept:
                    return None
                if kept != mask:
                    tight[fact] = kept
                    changed = True
                for bit, then in implied:
                    if bit == kept:
                        narrowed = {name: _meet(tight[name], code) for name, code in then}
                        changed = changed or any(tight[name] != code for name, code in narrowed.items())
                        tight |= narrowed
        return tight


def _choices(mask: int, speaking: int) -> Iterator[int]:
    """The values of `mask` that imply nothing, together, then the others one by one."""
    if mask & ~speaking:
        yield mask & ~speaking
    rest = mask & speaking
    while rest:
        yield rest & -rest
        rest &= rest - 1


def _possible(consequences: list[tuple[str, _Code]], codes: _Codes) -> bool:
    return all(_overlap(codes[name], code) for name, code in consequences)


def _overlap(one: _Code, other: _Code) -> bool:
    if isinstance(one, int) and isinstance(other, int):
        return one & other != 0
    assert not isinstance(one, int)
    assert not isinstance(other, int)
    return not disjoint(one, other)


def _meet(one: _Code, other: _Code) -> _Code:
    if isinstance(one, int) and isinstance(other, int):
        return one & other
    assert not isinstance(one, int)
    assert not isinstance(other, int)
    return meet(one, other)


def _mask(code: _Code) -> int:
    assert isinstance(code, int)
    return code
