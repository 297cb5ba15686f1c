"""What a user says that decisions must never or always be, held over all facts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .findings import Finding, region_text
from .load.claims import Claim
from .packs import DIMENSIONS
from .prove import witness
from .regions import Regions, box_of
from .routes import Route, routes, sizes_that_become
from .space import Box, Ints
from .stack import Stack


def claim_findings(stack: Stack, claims: Iterable[Claim]) -> Iterator[Finding]:
    """A finding for each claim that some decision breaks: the rule, where, and a point."""
    regions = Regions(stack)
    for claim in claims:
        broken = next(_broken(regions, claim), None)
        if broken is None:
            continue
        route, box = broken
        said = "always" if claim.always else "never"
        why = f": {claim.why}" if claim.why else ""
        yield Finding(
            "K810",
            f"breaks the claim `{claim.id}`, which must {said} hold{why}",
            claim.location,
            route.rule.address if route.rule else None,
            where=region_text([box]),
            facts=witness(regions, box),
            rules=(claim.id,),
        )


def _broken(regions: Regions, claim: Claim) -> Iterator[tuple[Route, Box]]:
    for route in routes(regions, box_of(regions.space, claim.when), "allocate"):
        for box in _breaking(route, claim):
            if not box.is_empty:
                yield route, box


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
