"""One way through the phases, and what a rule makes of it: a route for each part of the facts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import product

from .entering import NO_WORDS, sizes_that_become
from .flow import Dimension, Flow, apply, fitted_blocks, number
from .known import Known
from .packs import DIMENSIONS, Multiple, Outcome, Pad, Rule
from .record import NamedTuple
from .space import Box, FactSet, Ints
from .space.pieces import Piece, canonical
from .space.sets import contains

#: An open number that a multiple is made of is tried with these values, and those at which the numbers
#: that conditions ask for begin and end; with no others.
TRIED: Mapping[str, tuple[int, ...]] = {
    "act_bytes": (1, 2, 4),
    "block_n": (128, 32, 64, 256),
    "block_k": (128, 32, 64, 256),
    "group": (16, 32, 64, 128),
}
_TRIED_ELSE = (1, 2, 4, 8)

#: So many pieces of what a box says of such a number are looked at for further ones.
_MOST_ENDS = 4

_FIRST = {"native_hidden": "hidden", "native_intermediate": "intermediate_per_partition"}
_NAMES = {key: name for name, key in DIMENSIONS.items()}

#: A size of which nothing is known.
OPEN = Dimension(None, None)


class Route(NamedTuple):
    """One way through the phases: for the facts of `box`, these rules decide, with this outcome.

    `sizes` are the steps of both dimensions as far as the route has come, `allocated` those up to
    the end of `allocate`.
    """

    box: Box
    flow: Flow
    rules: tuple[Rule, ...] = ()
    status: str = "decided"
    reason: str | None = None
    pads: tuple[Pad, Pad] | None = None
    allocated: tuple[Dimension, Dimension] | None = None
    trail: tuple[tuple[str, Flow, Rule | None], ...] = ()
    """Of a way: each phase, the sizes that entered it, and the rule that changed them, if one did."""

    def rule_of(self, phase: str) -> Rule | None:
        """The rule that decided a phase."""
        return next((rule for rule in self.rules if rule.phase == phase), None)

    def at(self, box: Box) -> Route:
        """The same for other facts."""
        return self._replace(box=box)

    @classmethod
    def entering(cls, box: Box, hidden: Dimension = OPEN, intermediate: Dimension = OPEN) -> Route:
        """A route that has not gone anywhere, with sizes that may have come a way already."""
        return cls(box, Flow(hidden, intermediate))

    @property
    def rule(self) -> Rule | None:
        """The rule behind the sizes, or behind the refusal."""
        if self.status == "rejected":
            return self.rules[-1]
        return self.rule_of("allocate")


def entered(route: Route, asked: Box) -> Box | None:
    """The facts as they entered for which a route is, by now, in `asked`; `None` where it never is."""
    blocks = dict(route.flow.blocks)
    sets: dict[str, FactSet] = {}
    for key, members in asked.sets.items():
        settled = route.flow.backend if key == "backend" else blocks.get(key)
        if settled is not None:
            if not contains(members, settled):
                return None
            continue
        fact, entering = _FIRST.get(key, key), members
        if key in _NAMES:
            assert isinstance(members, Ints)
            found = sizes_that_become(route.flow.of(_NAMES[key]), members)
            if found is None:
                return None
            entering = found
        if entering == asked.space.domain[fact]:
            continue
        sets[fact] = sets[fact] & entering if fact in sets else entering  # type: ignore[operator]  # of one sort
    return asked.space.box(sets)


def applied(route: Route, rule: Rule) -> Iterator[Route]:
    """What comes of a rule: one route for each part of the facts that it tells apart."""
    route = route._replace(rules=(*route.rules, rule))
    for part, values in fixed(route, _numbers_of(rule.outcome)):
        yield from _outcome(part, rule, rule.outcome, values)


@lru_cache(maxsize=1024)
def _numbers_of(outcome: Outcome) -> tuple[str, ...]:
    """The open numbers that an outcome computes with."""
    needed: list[str] = []
    for each in (outcome, outcome.otherwise):
        for multiple in (each.hidden, each.intermediate) if each else ():
            if multiple is not None:
                needed += [item for item in multiple.items if isinstance(item, str)]
                needed += ["act_bytes"] if multiple.op == "bytes" else []
    if outcome.refine:
        needed += outcome.refine.blocks
    return tuple(dict.fromkeys(needed))


def fixed(route: Route, names: tuple[str, ...]) -> Iterator[tuple[Route, dict[str, int]]]:
    """The route once for each way to fix the numbers that an outcome computes with."""
    blocks = dict(route.flow.blocks)
    known = {name: number for name in names if (number := blocks.get(name)) is not None}
    open_names = [name for name in names if name not in known]
    for numbers in product(*(_values(route.box, name) for name in open_names)):
        values = dict(zip(open_names, numbers, strict=True))
        box = route.box & route.box.space.box(
            {name: Ints.of(number) for name, number in values.items() if name in route.box.space.domain}
        )
        if not box.is_empty:
            yield route._replace(box=box), {**known, **values}


def _values(box: Box, name: str) -> tuple[int, ...]:
    tried = TRIED.get(name, _TRIED_ELSE)
    if name not in box.sets:
        return tried
    members = box[name]
    assert isinstance(members, Ints)
    # Where rules or contracts name numbers, what they name begins or ends a piece.
    ends = [end for piece in members.pieces[:_MOST_ENDS] for end in piece[:2] if end is not None]
    return tuple(dict.fromkeys([*(number for number in tried if number in members), *ends]))


def _outcome(route: Route, rule: Rule, outcome: Outcome, values: Mapping[str, int]) -> Iterator[Route]:
    state = Known(NO_WORDS, {}, dict(values), {}, {})
    if outcome.form == "refine":
        yield from _refined(route, rule, outcome, values)
        return
    refused = Ints.empty()
    for name, multiple in (("hidden", outcome.hidden), ("intermediate", outcome.intermediate)):
        if multiple is None or outcome.form not in ("align", "require", "set"):
            continue
        refused = _refused(outcome.form, multiple, number(multiple, state) or 1)
        fits, refused_route = _split(route, name, refused)
        if refused_route is not None:
            yield refused_route._replace(status="rejected", reason=rule.why)
        if fits is None:
            return
        route = fits
    flow, status, reason = apply(rule._replace(outcome=outcome), state, _open(route.flow))
    if outcome.form == "require":
        flow = flow._replace(hidden=route.flow.hidden, intermediate=route.flow.intermediate)
    pads = outcome.pads if outcome.form == "declare" else route.pads
    yield route._replace(flow=flow, status=status, reason=reason, pads=pads)


def _open(flow: Flow) -> Flow:
    """The flow with the words about open sizes taken off: here every size is carried by its steps."""
    return flow._replace(
        hidden=flow.hidden._replace(pending=None, needs=()),
        intermediate=flow.intermediate._replace(pending=None, needs=()),
    )


@lru_cache(maxsize=1024)
def _refused(form: str, multiple: Multiple, factor: int) -> Ints:
    """The sizes, as they come to a rule, that it refuses; `factor` is what the multiple comes to."""
    everything = Ints.between(1, None)
    if multiple.op == "snap":
        choices = [item for item in multiple.items if isinstance(item, int)]
        return everything - Ints.of(*choices) if form == "require" else Ints.between(choices[-1] + 1, None)
    if form == "require":
        return everything - (Ints.multiples(factor) & Ints.between(multiple.at_least or 1, None))
    if form == "set" and multiple.items != (1,):
        return Ints.between(max(factor, multiple.at_least or 0) + 1, None)
    return Ints.empty()


def _split(route: Route, name: str, refused: Ints) -> tuple[Route | None, Route | None]:
    """A route as far as its size is not in `refused`, and as far as it is."""
    if refused.is_empty:
        return route, None
    dimension, key = route.flow.of(name), DIMENSIONS[name]
    if dimension.size is not None:
        return (None, route) if dimension.size in refused else (route, None)
    sides = []
    for sizes in _sides(dimension, refused):
        box = route.box & route.box.space.box({key: sizes})
        sides.append(None if box.is_empty else route._replace(box=box))
    return sides[0], sides[1]


@lru_cache(maxsize=4096)
def _sides(dimension: Dimension, refused: Ints) -> tuple[Ints, Ints]:
    """The entering sizes that have not become one of `refused`, and those that have."""
    entering = sizes_that_become(dimension, refused) or Ints.empty()
    return Ints.between(1, None) - entering, entering


def _refined(route: Route, rule: Rule, outcome: Outcome, values: Mapping[str, int]) -> Iterator[Route]:
    """A route for each way in which the blocks come out, and what `else` says where none fits."""
    refine, otherwise = outcome.refine, outcome.otherwise
    assert refine is not None
    assert otherwise is not None
    blocks = {name: values[name] for name in refine.blocks}
    for fitted, sizes in _fitting(tuple(blocks.items()), refine.fits):
        box = route.box
        for name, entering in sizes:
            box &= _where(route, name, entering)
        if box.is_empty:
            continue
        here = route._replace(box=box)
        if min(fitted) < refine.floor:
            yield from _outcome(here, rule, otherwise, values)
        else:
            pairs = tuple(zip(blocks, fitted, strict=True))
            yield here._replace(flow=route.flow._replace(blocks=pairs))


_Fitting = tuple[tuple[int, ...], tuple[tuple[str, Ints], ...]]


@lru_cache(maxsize=1024)
def _fitting(items: tuple[tuple[str, int], ...], fits: str) -> tuple[_Fitting, ...]:
    """The blocks that come out, each with the sizes; their common divisors with the blocks matter."""
    blocks = dict(items)
    names = tuple(DIMENSIONS) if fits == "both" else (fits,)
    modulus = math.lcm(*blocks.values())
    divisors = [number for number in range(1, modulus + 1) if modulus % number == 0]
    found: list[_Fitting] = []
    for first in divisors if len(names) > 1 else (modulus,):
        alike: dict[tuple[int, ...], Ints] = {}
        for last in divisors:
            sizes = (first, last) if len(names) > 1 else (last,)
            fitted = tuple(fitted_blocks(blocks, sizes, fits).values())
            alike[fitted] = alike.get(fitted, Ints.empty()) | _with_divisor(modulus, last)
        for fitted, last_sizes in alike.items():
            both = ((names[0], _with_divisor(modulus, first)),) if len(names) > 1 else ()
            found.append((fitted, (*both, (names[-1], last_sizes))))
    return tuple(found)


def _where(route: Route, name: str, sizes: Ints) -> Box:
    """Where a dimension has become one of `sizes`."""
    entering = sizes_that_become(route.flow.of(name), sizes)
    return route.box.space.box({DIMENSIONS[name]: Ints.empty() if entering is None else entering})


@lru_cache(maxsize=1024)
def _with_divisor(modulus: int, divisor: int) -> Ints:
    """The integers whose greatest common divisor with `modulus` is `divisor`."""
    residues = [residue for residue in range(1, modulus + 1) if math.gcd(modulus, residue) == divisor]
    mask = sum(1 << residue % modulus for residue in residues)
    return Ints(canonical([Piece(residues[0], None, modulus, mask)]))
