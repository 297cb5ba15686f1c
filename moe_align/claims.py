"""What a user says that decisions must never or always be, held over all facts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain

from .entering import sizes_that_become
from .findings import Finding, region_text
from .load.claims import Claim
from .packs import DIMENSIONS
from .points import MOST_LAUNCHES, Point, real, sayable
from .regions import Regions, box_of
from .resolve import Leaf
from .route import Route
from .routes import confirmed, routes, ways
from .space import Box, Ints, SpaceTooLarge
from .stack import Stack


def claim_findings(stack: Stack, claims: Iterable[Claim]) -> Iterator[Finding]:
    """A finding for each claim that some decision breaks: the rule, where, and a point."""
    regions = Regions(stack)
    for claim in claims:
        try:
            broken = next(_broken(regions, claim), None)
        except SpaceTooLarge as fault:
            said = f"the claim `{claim.id}` is not proven: {fault}"
            yield Finding("K808", said, claim.location, level="warning", rules=(claim.id,))
            continue
        if broken is None:
            continue
        rule, box, point = broken
        said = "always" if claim.always else "never"
        why = f": {claim.why}" if claim.why else ""
        yield Finding(
            "K810",
            f"breaks the claim `{claim.id}`, which must {said} hold{why}",
            claim.location,
            rule,
            where=region_text([box]),
            facts=point,
            rules=(claim.id,),
        )


def _broken(regions: Regions, claim: Claim) -> Iterator[tuple[str | None, Box, Point]]:
    """The rules behind decisions that break a claim, each with where, and facts that show it."""
    shows = partial(_breaks, claim=claim)
    for within in sayable(regions, [box_of(regions.space, claim.when)]):
        for route, suspect, boxes in _suspects(regions, claim, within):
            for box in chain([suspect], boxes):
                point = real(regions, box, shows, tries=MOST_LAUNCHES)
                if point is not None:
                    yield (route.rule.address if route.rule else None), box, point


def _suspects(regions: Regions, claim: Claim, within: Box) -> Iterator[tuple[Route, Box, Iterable[Box]]]:
    """Routes that may break a claim, with where they may, and, lazily, where they surely do."""
    if claim.sizes and (not claim.statuses or not claim.always):
        # Only decisions count: they are quickly found by what sizes may become.
        for way in ways(regions, within, "allocate", ()):
            rule = next((rule for _, _, rule in way.trail if rule and rule.phase == "allocate"), None)
            for box in _breaking(way, claim) if rule else ():
                if rule is not None and not box.is_empty:
                    yield way, box, confirmed(regions, way, box, regions.part(rule))
        return
    # Who chooses the backend can be refused for it, so both are asked.
    for select in (False, True) if "backend" not in within.sets else (False,):
        for route in routes(regions, within, "allocate", select=select):
            for box in _breaking(route, claim):
                if not box.is_empty:
                    yield route, box, ()


def _breaks(found: tuple[Leaf, ...], claim: Claim) -> bool:
    """Whether all these decisions do what a claim says must not be."""
    return all(_counts(leaf, claim) and _is_so(leaf, claim) != claim.always for leaf in found)


def _counts(leaf: Leaf, claim: Claim) -> bool:
    """Whether a claim is about such decisions: one of sizes alone says nothing of refusals."""
    return leaf.status == "decided" or bool(claim.statuses) or not claim.sizes


def _is_so(leaf: Leaf, claim: Claim) -> bool:
    """Whether a decision is as the claim says."""
    if claim.statuses and leaf.status not in claim.statuses:
        return False
    if claim.sizes and leaf.status != "decided":
        return False
    sizes = {key: leaf.flow.of(name).created for name, key in DIMENSIONS.items()}
    made = ((sizes[condition.key], condition) for condition in claim.sizes)
    return all(size is not None and size.size in condition.accepts for size, condition in made)


def _breaking(route: Route, claim: Claim) -> Iterator[Box]:
    """Where a route does what must never, or not what must always be."""
    wanted = not claim.statuses or route.status in claim.statuses
    if not claim.sizes or (route.status != "decided" and not claim.statuses):
        if bool(claim.sizes) or wanted != claim.always:
            yield from () if claim.sizes and not claim.statuses else (route.box,)
        return
    if not wanted or route.status != "decided":
        yield from (route.box,) if claim.always else ()
        return
    held = route.box
    for condition in claim.sizes:
        name = next(name for name, key in DIMENSIONS.items() if key == condition.key)
        accepts = condition.accepts
        assert isinstance(accepts, Ints)
        outside = sizes_that_become(route.flow.of(name), Ints.between(1, None) - accepts)
        inside = sizes_that_become(route.flow.of(name), accepts)
        if claim.always and outside is not None:
            yield route.box & route.box.space.box({condition.key: outside})
        held &= route.box.space.box({condition.key: inside or Ints.empty()})
    if not claim.always:
        yield held
