"""The same questions about a phase of rules, reachability and gaps, asked of z3 and of us.

Both begin with a loaded stack. For z3 every discrete fact is an enumeration, every
number an integer, every release an integer that counts the bounds below it; what values imply is asserted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from moe_align.packs import Condition
from moe_align.regions import Regions, space_of
from moe_align.space import Ints, Space, Values, VersionSet
from moe_align.stack import Stack

PHASE = "allocate"


class Said(NamedTuple):
    """The rules that some facts reach, in order, and the packs that leave facts undecided."""

    reached: tuple[str, ...]
    open: tuple[str, ...]


def ours(stack: Stack) -> Said:
    """As `lint` finds it."""
    regions = Regions(stack)
    phase = regions.phase(PHASE)
    reached = [
        part.address for part in phase.parts if part.rule and next(phase.decided(part), None) is not None
    ]
    gaps = [
        pack.name
        for pack in stack.phases[PHASE]
        if any(True for box in regions.spoken_for(pack) for _ in phase.left_open(box))
    ]
    return Said(tuple(reached), tuple(gaps))


def theirs(stack: Stack) -> Said:
    """As z3 finds it: one solver, which learns the rules one by one."""
    encoding = _Encoding(stack, space_of([stack]))
    solver = encoding.z3.Solver(ctx=encoding.context)
    solver.add(*encoding.world())
    reached, gaps = [], []
    for pack in stack.phases[PHASE]:
        needs, covers = encoding.all(pack.needs), encoding.all(pack.covers)
        if pack.covers:
            solver.add(encoding.z3.Not(encoding.z3.And(needs, encoding.z3.Not(covers))))
        for rule in pack.rules:
            when = encoding.z3.And(needs, covers, encoding.all(rule.when))
            if rule.unless:
                when = encoding.z3.And(when, encoding.z3.Not(encoding.all(rule.unless)))
            if encoding.holds(solver, when):
                reached.append(rule.address)
            solver.add(encoding.z3.Not(when))
    for pack in stack.phases[PHASE]:
        if encoding.holds(solver, encoding.z3.And(encoding.all(pack.needs), encoding.all(pack.covers))):
            gaps.append(pack.name)
    return Said(tuple(reached), tuple(gaps))


class _Encoding:
    """The facts of a space as variables of z3, and conditions as its formulas."""

    def __init__(self, stack: Stack, space: Space) -> None:
        import z3

        self.z3 = z3
        self.context = z3.Context()
        self._space = space
        self._variables: dict[str, Any] = {}
        self._values: dict[str, dict[str, Any]] = {}
        self._bounds = sorted(
            {end for found in _versions(stack) for pair in found.intervals for end in pair if end}
        )
        for key, domain in space.domain.items():
            if isinstance(domain, Values):
                self._enumerate(key, sorted(domain.members))
            else:
                self._variables[key] = z3.Int(key, self.context)

    def _enumerate(self, key: str, values: list[str]) -> None:
        sort, members = self.z3.EnumSort(key, [f"{key}={value}" for value in values], self.context)
        self._variables[key] = self.z3.Const(key, sort)
        self._values[key] = dict(zip(values, members, strict=True))

    def _and(self, formulas: Iterable[Any]) -> Any:
        return self.z3.And(self.z3.BoolVal(True, self.context), *formulas)

    def _or(self, formulas: Iterable[Any]) -> Any:
        return self.z3.Or(self.z3.BoolVal(False, self.context), *formulas)

    def world(self) -> Iterator[Any]:
        """What holds of every point: bounds of numbers, what values imply."""
        for key, domain in self._space.domain.items():
            if isinstance(domain, Ints):
                yield self._ints(key, domain)
            elif isinstance(domain, VersionSet):
                yield self.z3.And(self._variables[key] >= 0, self._variables[key] <= len(self._bounds))
        for (key, value), implied in self._space.implications.items():
            if value not in self._values.get(key, {}):
                continue
            is_value = self._variables[key] == self._values[key][value]
            for other, members in implied.items():
                if other in self._variables:
                    yield self.z3.Implies(is_value, self._in(other, members))

    def holds(self, solver: Any, formula: Any) -> bool:
        """Whether some facts fulfil it that fulfil what the solver knows."""
        solver.push()
        solver.add(formula)
        found = solver.check()
        solver.pop()
        assert found != self.z3.unknown
        return bool(found == self.z3.sat)

    def all(self, conditions: Iterable[Condition]) -> Any:
        return self._and(self._in(condition.key, condition.accepts) for condition in conditions)

    def _in(self, key: str, members: Any) -> Any:
        if isinstance(members, VersionSet):
            return self._releases(key, members)
        if isinstance(members, Ints):
            return self._ints(key, members)
        listed = members.members if isinstance(members, Values) else members
        values = self._values[key]
        return self._or(self._variables[key] == values[value] for value in sorted(listed) if value in values)

    def _releases(self, key: str, members: VersionSet) -> Any:
        number = self._variables[key]
        spans = []
        for low, high in members.intervals:
            span = [number >= self._bounds.index(low) + 1] if low else []
            span += [number <= self._bounds.index(high)] if high else []
            spans.append(self._and(span))
        return self._or(spans)

    def _ints(self, key: str, members: Ints) -> Any:
        number = self._variables[key]
        pieces = []
        for low, high, modulus, mask in members.pieces:
            piece = [number >= low] + ([number <= high] if high is not None else [])
            residues = [residue for residue in range(modulus) if mask >> residue & 1]
            if len(residues) < modulus:
                piece.append(self._or(number % modulus == residue for residue in residues))
            pieces.append(self._and(piece))
        return self._or(pieces)


def _versions(stack: Stack) -> Iterator[VersionSet]:
    for pack in stack.phases[PHASE]:
        for rule in pack.rules:
            for condition in (*pack.needs, *pack.covers, *rule.when, *rule.unless):
                if isinstance(condition.accepts, VersionSet):
                    yield condition.accepts


def only(stack: Stack, *packs: str) -> Stack:
    """The stack with these packs alone, in the phase that is asked about."""
    kept = tuple(pack for pack in stack.phases[PHASE] if not packs or pack.name in packs)
    phases = {name: kept if name == PHASE else () for name in stack.phases}
    return stack._replace(phases=phases, contracts=())
