"""All ways through the phases at once: which rules decide, and what becomes of sizes that nobody has given.

A route is a box of facts as they enter the first phase, with the steps that sizes take from there.
Conditions on sizes are turned back into conditions on the entering ones, as `resolve` does. `select`
is walked where that is asked for; elsewhere routes begin with a backend, whoever has chosen it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from .flow import Flow
from .packs import DIMENSIONS, PHASES, Rule
from .regions import CHANGED, Part, Regions, shares
from .route import Route, applied, entered
from .space import Box, Values, outside

WALKED = tuple(phase for phase in PHASES if phase != "select")

_FIRST = {"native_hidden": "hidden", "native_intermediate": "intermediate_per_partition"}
_NAMES = {key: name for name, key in DIMENSIONS.items()}


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
