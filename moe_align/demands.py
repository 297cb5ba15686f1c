"""What contracts demand, turned into sets: the entering sizes that a demand does not take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from .entering import NO_WORDS, size_after, sizes_that_become, sizes_where
from .flow import Dimension, number
from .known import Known
from .packs import DIMENSIONS, Demand, Pad
from .route import Route, entered, fixed
from .space import Box, Ints, Space

#: For sizes alone, whatever the facts.
NOWHERE = Space({key: Ints.between(1, None) for key in DIMENSIONS.values()}).box()

#: The place of each declared pad among the two.
PADS = {"hidden_pad": 0, "intermediate_pad": 1}


def can_refuse(demand: Demand, size: Dimension) -> bool:
    """Whether a size that has become this can be one which the demand does not take."""
    if any(isinstance(item, str) for multiple in demand.multiples for item in multiple.items):
        return True
    return not _refused_by(demand, size).is_empty


@lru_cache(maxsize=4096)
def _refused_by(demand: Demand, size: Dimension) -> Ints:
    (allowed,) = (sizes for _, sizes in _allowed(Route.entering(NOWHERE), demand))
    return _bad_sizes(size, allowed, demand.native)


def against(route: Route, box: Box, demands: Iterable[Demand]) -> Iterator[Box]:
    """Where a route has come into the box of a contract with a size that it does not take."""
    inside = entered(route, box)
    if inside is None or route.box.isdisjoint(inside):
        return
    for demand in demands:
        key = DIMENSIONS[demand.of]
        for part, allowed in _allowed(route.at(route.box & inside), demand):
            bad = _bad_sizes(route.flow.of(demand.of), allowed, demand.native)
            narrowed = part & part.space.box({key: bad})
            if not narrowed.is_empty:
                yield narrowed


@lru_cache(maxsize=4096)
def _bad_sizes(size: Dimension, allowed: Ints, native: bool) -> Ints:
    """The entering sizes that do not become one of `allowed`, or, if it must be `native`, another one."""
    bad = sizes_that_become(size, Ints.between(1, None) - allowed) or Ints.empty()
    return bad | _padded(size) if native else bad


@lru_cache(maxsize=4096)
def _padded(dimension: Dimension) -> Ints:
    return sizes_where([dimension], lambda size, after: after[0] != size)


def _allowed(route: Route, demand: Demand) -> Iterator[tuple[Box, Ints]]:
    """The sizes that a demand takes, for each way to fix the numbers that its multiples are made of."""
    bounds = Ints.between(max(demand.lowest or 1, 1), demand.highest)
    if demand.exactly:
        bounds &= Ints.of(*demand.exactly)
    if not demand.multiples:
        yield route.box, bounds
        return
    items = (item for multiple in demand.multiples for item in multiple.items if isinstance(item, str))
    for part, values in fixed(route, tuple(dict.fromkeys(items))):
        state = Known(NO_WORDS, {}, dict(values), {}, {})
        sizes = Ints.empty()
        for multiple in demand.multiples:
            sizes |= Ints.multiples(number(multiple, state) or 1)
        yield part.box, bounds & sizes


def misread_in(route: Route, box: Box, demands: Iterable[Demand]) -> Iterator[Box]:
    """Where a route has come into the box of a contract with a declared pad that it does not take."""
    inside = entered(route, box)
    if inside is None or route.pads is None or route.allocated is None:
        return
    for demand in demands:
        at = PADS[demand.of]
        name, key = tuple(DIMENSIONS.items())[at]
        bad = misread(route.pads[at], demand, route.allocated[at], route.flow.of(name))
        narrowed = route.box & inside & box.space.box({key: bad})
        if not narrowed.is_empty:
            yield narrowed


def can_mislead(pad: Pad, demand: Demand) -> bool:
    """Whether a pad declared in this way can be read otherwise than a demand allows, whatever was padded.

    What is floored, or passed as it is, is never more than what is there.
    """
    if demand.at_most_actual and pad.form == "floor" and pad.times > 1:
        return True
    return pad.form in ("floor", "exact") and bool(demand.exactly or demand.highest is not None)


@lru_cache(maxsize=4096)
def misread(pad: Pad, demand: Demand, allocated: Dimension, resident: Dimension) -> Ints:
    """The entering sizes for which the pad, as the kernel reads it, is not what the demand wants."""

    def is_misread(size: int, after: Sequence[int]) -> bool:
        declared = pad.of(after[0] - size)
        if declared is None:
            return False
        read = declared // demand.floor * demand.floor
        if demand.at_most_actual and read > after[1] - size:
            return True
        if demand.exactly and read not in demand.exactly:
            return True
        return demand.highest is not None and read > demand.highest

    return sizes_where((allocated, resident), is_misread, (demand.floor, pad.floor))


@lru_cache(maxsize=4096)
def too_small(dimension: Dimension) -> Ints:
    """The entering sizes that have become smaller ones."""
    if dimension.size is None:
        # No step makes a size smaller: only one that is set can be.
        return Ints.empty()
    return sizes_where([dimension], lambda size, after: after[0] < size)


@lru_cache(maxsize=4096)
def too_large(dimension: Dimension) -> Ints:
    """The entering sizes for which a smaller one, not below native, would be left alone by every step."""
    if len(dimension.steps) < 2 or any(step == "add" for step, _ in dimension.steps):
        # One step is the least by itself; what is added on purpose has no least.
        return Ints.empty()
    # A size is least if it is the first that the steps leave alone, from the native one up.
    return sizes_where(
        [dimension],
        lambda size, after: any(size_after(dimension, least) == least for least in range(size, after[0])),
    )
