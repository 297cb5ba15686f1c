"""All ways through the phases at once: which rules decide, and what becomes of sizes that nobody has given.

A route is a box of facts as they enter the first phase, with the steps that sizes take from there.
Conditions on sizes are turned back into conditions on the entering ones, as `resolve` does. `select`
is walked where that is asked for; elsewhere routes begin with a backend, whoever has chosen it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import count, product

from .flow import Dimension, Flow, apply, entering_part, fitted_blocks, number, walked
from .known import Known
from .packs import DIMENSIONS, PHASES, Condition, Multiple, Outcome, Pad, Rule
from .record import NamedTuple
from .regions import CHANGED, Part, Regions, shares
from .space import Box, FactSet, Ints, SpaceTooLarge, Values, outside
from .space.pieces import Piece, canonical
from .space.sets import contains
from .vocabulary import Vocabulary

WALKED = tuple(phase for phase in PHASES if phase != "select")

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

#: Sizes are enumerated up to this before they are called too many.
MOST_SIZES = 2**17

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


def routes(
    regions: Regions,
    within: Box | None = None,
    last: str = "launch",
    through: Iterable[Part] = (),
    select: bool = False,
) -> Iterator[Route]:
    """Every way through the phases up to `last`, for the facts of `within` (all, if nothing is said).

    With `through`, only the ways on which these parts, one of a phase, decide theirs. With `select` the
    backend is not among the facts: the engine chooses it on the way.
    """
    start = Route.entering(within or regions.space.box())
    parts = {part.rule.phase: part for part in through if part.rule}
    phases = PHASES if select else WALKED
    yield from _walked(regions, start, phases[: phases.index(last) + 1], parts)


def _walked(
    regions: Regions, route: Route, phases: tuple[str, ...], through: Mapping[str, Part]
) -> Iterator[Route]:
    if not phases or route.status != "decided":
        yield route
        return
    wanted = through.get(phases[0])
    for further in _through(regions, route, phases[0], wanted):
        yield from _walked(regions, further, phases[1:], through)


def _through(regions: Regions, route: Route, phase: str, wanted: Part | None) -> Iterator[Route]:
    if not regions.stack.phases[phase]:
        yield _after(route, phase)
        return
    for part, box in _shares(regions, route, phase, wanted):
        here = route._replace(box=box)
        if part is None:
            yield here._replace(status="unknown") if phase == "allocate" else here
        elif part.rule is None:
            yield here if phase == "launch" else here._replace(status="unknown")
        else:
            yield from (_after(done, phase) for done in applied(here, part.rule))


def _shares(
    regions: Regions, route: Route, phase: str, wanted: Part | None
) -> Iterator[tuple[Part | None, Box]]:
    if wanted is None:
        yield from winners(regions, route, phase)
        return
    memo = _turned_back(regions, route.flow)
    for asked in wanted.asked:
        entering = _entering(memo, route, asked)
        if entering is not None and not route.box.isdisjoint(entering):
            here = route.at(route.box & entering)
            earlier = [box for part, box in _asking(regions, here, phase) if part.place < wanted.place]
            yield from ((wanted, piece) for piece in outside([here.box], earlier))


def _asking(regions: Regions, route: Route, phase: str) -> Iterator[tuple[Part, Box]]:
    """The parts of a phase that may match where a route has come to, with the facts as they entered."""
    if _is_untouched(route):
        yield from regions.phase(phase).near(route.box)
        return
    memo = _turned_back(regions, route.flow)
    for part, asked in regions.phase(phase).near(_seen(route)):
        entering = _entering(memo, route, asked)
        if entering is not None:
            yield part, entering


def _turned_back(regions: Regions, flow: Flow) -> dict[int, Box | None]:
    """What was found of `entered` for these sizes, by the box that was asked for, which lives as long."""
    found: dict[int, Box | None] = regions.memo("entered", "").setdefault(
        (flow.hidden, flow.intermediate, flow.blocks, flow.backend), {}
    )
    return found


def _entering(memo: dict[int, Box | None], route: Route, asked: Box) -> Box | None:
    if id(asked) not in memo:
        memo[id(asked)] = entered(route, asked)
    return memo[id(asked)]


def ways(regions: Regions, within: Box, last: str, through: Iterable[Part]) -> Iterator[Route]:
    """What sizes may become on the ways of `routes`, quickly: boxes are wider than where rules decide.

    Every route that is decided lies in one of these, with the same sizes and pads. Rules of one phase
    that leave sizes as they are go together with none.
    """
    parts = {part.rule.phase: part for part in through if part.rule}
    yield from _wandered(regions, Route.entering(within), WALKED[: WALKED.index(last) + 1], parts)


def _wandered(
    regions: Regions, route: Route, phases: tuple[str, ...], through: Mapping[str, Part]
) -> Iterator[Route]:
    if not phases:
        yield route
        return
    phase, wanted = phases[0], through.get(phases[0])
    if wanted is None and phase != "allocate" and _can_leave(regions, route, phase):
        left = _after(route, phase)._replace(trail=(*route.trail, (phase, route.flow, None)))
        yield from _wandered(regions, left, phases[1:], through)
    for part, entering in _meeting(regions, route, phase, wanted):
        assert part.rule is not None
        here = route._replace(box=entering, trail=(*route.trail, (phase, route.flow, part.rule)))
        for further in applied(here, part.rule):
            counts = wanted or phase == "allocate" or not _is_left(further, route.flow)
            if further.status == "decided" and counts:
                yield from _wandered(regions, _after(further, phase), phases[1:], through)


def _can_leave(regions: Regions, route: Route, phase: str) -> bool:
    """Whether a phase leaves the sizes of a route as they are for some of its facts."""
    return next(_leaving(regions, route, phase), None) is not None


def _is_left(route: Route, flow: Flow) -> bool:
    """Whether later phases and contracts see the same sizes and blocks as before."""
    now = route.flow
    return (now.hidden, now.intermediate, now.blocks) == (flow.hidden, flow.intermediate, flow.blocks)


def confirmed(regions: Regions, way: Route, box: Box, first: Part) -> Iterator[Box]:
    """The parts of `box`, inside that of a way, where its rules do decide, lazily; `first` first."""

    def order(step: tuple[str, Flow, Rule | None]) -> int:
        return 0 if step[2] is first.rule else 1 if step[2] else 2

    yield from _confirmed(regions, sorted(way.trail, key=order), box)


def _confirmed(regions: Regions, trail: Sequence[tuple[str, Flow, Rule | None]], box: Box) -> Iterator[Box]:
    if not trail:
        yield box
        return
    (phase, flow, rule), *rest = trail
    if any(next(_kept(regions, box, *step), None) is None for step in rest):
        # A step that goes nowhere in the whole box goes nowhere in its parts.
        return
    for kept in _kept(regions, box, phase, flow, rule):
        yield from _confirmed(regions, rest, kept)


def _kept(regions: Regions, box: Box, phase: str, flow: Flow, rule: Rule | None) -> Iterator[Box]:
    """The parts of a box where, with these sizes, a rule decides a phase, or nothing changes them."""
    here = Route(box, flow)
    if rule is None:
        return _leaving(regions, here, phase)
    return (piece for _, piece in _shares(regions, here, phase, regions.part(rule)))


def _leaving(regions: Regions, route: Route, phase: str) -> Iterator[Box]:
    """Where a phase leaves the sizes of a route as they are, and refuses nothing, lazily."""
    asking = [(part, box) for part, box in _asking(regions, route, phase) if not route.box.isdisjoint(box)]
    yield from outside([route.box], [box for _, box in asking])
    for place, (part, box) in enumerate(asking):
        if not _may_leave(regions, part, route.flow):
            continue
        for piece in outside([route.box & box], [taken for _, taken in asking[:place]]):
            if part.rule is None:
                yield piece
                continue
            for further in applied(route.at(piece), part.rule):
                if further.status == "decided" and _is_left(further, route.flow):
                    yield further.box


def _may_leave(regions: Regions, part: Part, flow: Flow) -> bool:
    """Whether a part can leave such sizes as they are, whatever the facts."""
    if part.rule is None:
        return part.pack.phase == "launch"
    memo = regions.memo("may leave", part.rule.address)
    sizes = (flow.hidden, flow.intermediate, flow.blocks)
    if sizes not in memo:
        made = applied(Route(regions.space.box(), flow), part.rule)
        memo[sizes] = any(one.status == "decided" and _is_left(one, flow) for one in made)
    found: bool = memo[sizes]
    return found


def _meeting(regions: Regions, route: Route, phase: str, wanted: Part | None) -> Iterator[tuple[Part, Box]]:
    """The rules of a phase that a route can meet, each with where it asks for it."""
    of_phase = regions.phase(phase)
    near = of_phase.near(_seen(route)) if wanted is None else ((wanted, asked) for asked in wanted.asked)
    memo = _turned_back(regions, route.flow)
    unchanged = route.box.space.made(
        {fact: route.box.sets[fact] for fact in route.box.sets if fact not in CHANGED}
    )
    for part, asked in near:
        if part is not wanted and all(box.isdisjoint(unchanged) for box in of_phase.reach(part)):
            continue
        entering = _entering(memo, route, asked) if part.rule else None
        if entering is not None and not route.box.isdisjoint(entering):
            yield part, route.box & entering


def _after(route: Route, phase: str) -> Route:
    if phase != "allocate":
        return route
    return route._replace(allocated=(route.flow.hidden, route.flow.intermediate))


def winners(regions: Regions, route: Route, phase: str) -> Iterator[tuple[Part | None, Box]]:
    """The parts of a phase that match where a route has come to, each with the facts as they entered."""
    return shares(route.box, list(_asking(regions, route, phase)))


def _is_untouched(route: Route) -> bool:
    """Whether conditions see the facts as they entered, and none tells first sizes apart from those."""
    flow = route.flow
    changed = (
        flow.blocks
        or flow.backend
        or any(
            dimension.steps or dimension.size is not None for dimension in (flow.hidden, flow.intermediate)
        )
    )
    return not changed and not any(key in route.box.space.domain for key in _FIRST)


def _seen(route: Route) -> Box:
    """A box that every part which can match meets: without the facts that rules have changed."""
    sets = route.box.sets
    changed = {name for name, _ in route.flow.blocks}
    if route.flow.backend is not None:
        sets = {**sets, "backend": Values.of([route.flow.backend])}
    return Box(route.box.space, {fact: sets[fact] for fact in sorted(sets) if fact not in changed})


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


@lru_cache(maxsize=16384)
def sizes_that_become(dimension: Dimension, accepts: Ints) -> Ints | None:
    """The entering sizes that by now are in `accepts`; `None` for none, everything for a constant in it."""
    if dimension.size is not None:
        return Ints.between(1, None) if dimension.size in accepts else None
    # A dimension as `flow` carries it: the condition is turned back through its steps.
    flow = Flow(dimension, dimension)
    entering = entering_part(_NOTHING_KNOWN, flow, Condition("hidden", accepts, ""))
    assert isinstance(entering, Ints)
    return entering


_NO_WORDS = Vocabulary({}, {}, {})
_NOTHING_KNOWN = Known(_NO_WORDS, {}, {}, {}, {})


# --- outcomes -----------------------------------------------------------------------------------------------


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
    state = Known(_NO_WORDS, {}, dict(values), {}, {})
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


# --- sizes as functions of the entering ones ----------------------------------------------------------------


def size_after(dimension: Dimension, entering: int) -> int | None:
    """What a size that enters the first phase has become; `None` where a rule has refused it."""
    if dimension.size is not None:
        return dimension.size
    size = entering
    for step, by in dimension.steps:
        if step == "snap" and size > by[-1]:
            return None
        size = walked(size, ((step, by),))
    return size


def sizes_where(
    dimensions: Sequence[Dimension],
    holds: Callable[[int, Sequence[int]], bool],
    multiples: Iterable[int] = (),
) -> Ints:
    """The entering sizes for which `holds`, given such a size and what `dimensions` make of it.

    The claim must repeat with the roundings of `dimensions` and with `multiples`. Beyond every bound of
    the steps all of it repeats with their least common multiple, so the sizes below, and one period
    after, say everything.

    Raises:
        SpaceTooLarge: more than `MOST_SIZES` would have to be tried.
    """
    period, start = math.lcm(*multiples), 1
    for dimension in dimensions:
        for step, by in dimension.steps:
            if step == "round_up":
                period = math.lcm(period, by)
            else:
                start = max(start, max(by) if isinstance(by, tuple) else by)
    start += period + 1
    if start + period > MOST_SIZES:
        raise SpaceTooLarge(f"{start + period} sizes would have to be tried, more than {MOST_SIZES}")
    columns = [_after_all(dimension, start + period) for dimension in dimensions]
    found = [
        size
        for size, *after in zip(count(1), *columns, strict=False)
        if None not in after and holds(size, after)
    ]
    below = Ints.of(*(size for size in found if size < start))
    above = [size for size in found if size >= start]
    if not above:
        return below
    mask = sum(1 << size % period for size in above)
    return below | Ints(canonical([Piece(above[0], None, period, mask)]))


@lru_cache(maxsize=256)
def _after_all(dimension: Dimension, stop: int) -> tuple[int | None, ...]:
    """What each size from 1 up to, not with, `stop` has become."""
    return tuple(size_after(dimension, size) for size in range(1, stop))
