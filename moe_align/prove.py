"""Claims about every decision of a stack: contracts, sizes and pads, and what users say must always hold.

Exact over all facts: sizes by intervals and residues, over every way through the phases. The numbers
that multiples are made of (`routes.TRIED`) take the values that are listed there, and no others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain, islice

from .findings import MOST_BOXES, Finding, region_text
from .flow import Dimension, number
from .known import Known
from .packs import BREAKS, DIMENSIONS, NATIVE, Contract, Demand, Pad, Rule
from .regions import Part, Phase, Regions, boxes_of, facts_of, friendly
from .routes import (
    CHANGED,
    OPEN,
    Route,
    applied,
    confirmed,
    entered,
    fixed,
    size_after,
    sizes_that_become,
    sizes_where,
    ways,
)
from .space import Box, Ints, Space
from .stack import Stack
from .vocabulary import Vocabulary

#: What a broken contract comes to: its code, how bad it is, and in a word.
_BREAKS = {
    "silent": ("K801", "error", "unsafe"),
    "raises": ("K802", "warning", "raises"),
    "slow": ("K803", "note", "slow"),
}


@dataclass(frozen=True, slots=True)
class Broken:
    """Decisions of one rule that break one contract.

    `local` is where, by the sizes as they enter the rule's phase; `point` a box of facts as they enter
    the first phase, every point of which breaks it.
    """

    contract: Contract
    rule: Rule
    local: tuple[Box, ...]
    point: Box


def prove(stack: Stack, breaks: Collection[str] = ("silent",)) -> tuple[Finding, ...]:
    """Every claim that does not hold of the decisions of a stack, with where and a point of it.

    `breaks` are the kinds of contracts to look at: what breaks loudly (`raises`) or is only `slow` is
    for those who ask.
    """
    regions = Regions(stack)
    return (*contract_findings(regions, breaks), *size_findings(regions))


# --- contracts ----------------------------------------------------------------------------------------------


def contract_findings(regions: Regions, breaks: Collection[str] = BREAKS) -> Iterator[Finding]:
    """A finding for each contract of these kinds and each rule whose decisions break it."""
    for broken in broken_contracts(regions, breaks):
        code, level, word = _BREAKS[broken.contract.breaks]
        if broken.rule.phase == "launch":
            code = "K804"
        yield Finding(
            code,
            f"{word}: {broken.contract.address} does not hold: {broken.contract.why}",
            broken.rule.location,
            broken.rule.address,
            level,
            where=region_text(broken.local),
            facts=witness(regions, broken.point),
            rules=(broken.contract.address,),
        )


def broken_contracts(regions: Regions, breaks: Collection[str] = BREAKS) -> Iterator[Broken]:
    """Every contract that some decision breaks, by contract and rule.

    Contracts that demand nothing of sizes or pads are about facts of the caller, not about decisions.
    """
    for pack in regions.stack.contracts:
        for contract in pack.contracts:
            if contract.breaks not in breaks:
                continue
            found: dict[str, Broken] = {}
            for box in boxes_of(regions.space, (*pack.needs, *contract.when), contract.unless):
                for broken in chain(_by_sizes(regions, contract, box), _by_pads(regions, contract, box)):
                    found.setdefault(broken.rule.address, broken)
            yield from found.values()


def _unchanged(box: Box) -> Box:
    """The box without its word on facts that rules change on the way."""
    return box.space.box({fact: members for fact, members in box.sets.items() if fact not in CHANGED})


def _by_sizes(regions: Regions, contract: Contract, box: Box) -> Iterator[Broken]:
    demands = [demand for demand in contract.demands if demand.of in DIMENSIONS]
    if not demands:
        return
    kept = _unchanged(box)
    for name in ("allocate", "repack"):
        phase = regions.phase(name)
        for part, asked in phase.near(kept):
            rule = part.rule
            if rule is None or (name == "repack" and not _changes(rule)) or asked.isdisjoint(kept):
                continue
            if not any(_can_break(regions, part, demand) for demand in demands):
                continue
            claim = partial(_against, box=box, demands=demands)
            point = _point(regions, part, asked & kept, "repack", claim)
            if point is not None:
                yield Broken(contract, rule, _where(phase, part, asked & kept, demands), point)


def _where(phase: Phase, part: Part, within: Box, demands: Sequence[Demand]) -> tuple[Box, ...]:
    """Where a part decides facts that a contract is about, by the sizes that it makes wrong."""
    assert part.rule is not None
    found: list[Box] = []
    for route in applied(Route.entering(within), part.rule):
        for demand in demands:
            for bad in _against(route, route.box, [demand]):
                found += islice(phase.decided(part, bad), MOST_BOXES + 1 - len(found))
    return tuple(found)


Claim = Callable[[Route], Iterator[Box]]


def _point(
    regions: Regions, part: Part, within: Box, last: str, claim: Claim, also: tuple[Part, ...] = ()
) -> Box | None:
    """A box of facts as they enter the first phase for which `part` decides and a claim finds something."""
    for way in ways(regions, within, last, [part, *also]):
        for suspect in claim(way) if _is_by(way, part) else ():
            found = next(confirmed(regions, way, suspect, part), None)
            if found is not None:
                return found
    return None


def _can_break(regions: Regions, part: Part, demand: Demand) -> bool:
    """Whether `part` can leave a size that a demand does not take, whatever size comes to it."""
    assert part.rule is not None
    memo = regions.memo("sizes after", part.rule.address)
    if demand.of not in memo:
        memo[demand.of] = frozenset(_made(OPEN, part.rule, demand.of))
    sizes: frozenset[Dimension] = memo[demand.of]
    if any(isinstance(item, str) for multiple in demand.multiples for item in multiple.items):
        return bool(sizes)
    return any(not _refused_by(demand, size).is_empty for size in sizes)


@lru_cache(maxsize=4096)
def _refused_by(demand: Demand, size: Dimension) -> Ints:
    """The entering sizes that become one which a demand does not take."""
    (allowed,) = (sizes for _, sizes in _allowed(Route.entering(_NOWHERE), demand))
    return _bad_sizes(size, allowed, demand.native)


def _bad_sizes(size: Dimension, allowed: Ints, native: bool) -> Ints:
    """The entering sizes that do not become one of `allowed`, or, if it must be `native`, another one."""
    bad = sizes_that_become(size, Ints.between(1, None) - allowed) or Ints.empty()
    return bad | _padded(size) if native else bad


@lru_cache(maxsize=4096)
def _padded(dimension: Dimension) -> Ints:
    return sizes_where([dimension], lambda size, after: after[0] != size)


#: For sizes alone, whatever the facts.
_NOWHERE = Space({key: Ints.between(1, None) for key in DIMENSIONS.values()}).box()


def _made(entering: Dimension, rule: Rule, name: str) -> Iterator[Dimension]:
    """What a size may become by a rule, unless it is refused."""
    if rule.outcome.form == "refine" and rule.outcome.otherwise:
        yield entering
        rule = rule._replace(outcome=rule.outcome.otherwise)
    start = Route.entering(_NOWHERE, entering, entering)
    yield from (route.flow.of(name) for route in applied(start, rule) if route.status == "decided")


def _sizes_after(regions: Regions, rule: Rule, name: str) -> frozenset[Dimension]:
    """What a size can be after an allocating rule, for every way in which it may have been changed before."""
    memo = regions.memo("sizes allocated", rule.address)
    if name not in memo:
        before = _sizes_before(regions, name)
        memo[name] = frozenset(size for entering in before for size in _made(entering, rule, name))
    found: frozenset[Dimension] = memo[name]
    return found


def _sizes_before(regions: Regions, name: str) -> frozenset[Dimension]:
    """What a size can be when it enters `allocate`."""
    memo = regions.memo("sizes before", "allocate")
    if name not in memo:
        sizes = {OPEN}
        for earlier in ("model", "dispatch"):
            rules = [part.rule for part in regions.phase(earlier).parts if part.rule]
            made = (_made(entering, rule, name) for entering in tuple(sizes) for rule in rules)
            sizes |= {size for each in made for size in each}
        memo[name] = frozenset(sizes)
    found: frozenset[Dimension] = memo[name]
    return found


def _changes(rule: Rule) -> bool:
    """Whether a rule can change a size, not only what lies around it."""
    outcome = rule.outcome
    if outcome.form == "add":
        return not outcome.stride and any(amount.unit == "elements" for _, amount in outcome.add)
    return any(multiple not in (None, NATIVE) for multiple in (outcome.hidden, outcome.intermediate))


def _is_by(route: Route, part: Part) -> bool:
    """Whether a route decides and owes its sizes to `part`: first comes repacking that changes them."""
    if route.status != "decided" or part.rule is None:
        return False
    if part.rule.phase == "launch":
        return True
    repack = route.rule_of("repack")
    return part.rule is (repack if repack and _changes(repack) else route.rule_of("allocate"))


def _against(route: Route, box: Box, demands: Iterable[Demand]) -> Iterator[Box]:
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
        state = Known(_NO_WORDS, {}, dict(values), {}, {})
        sizes = Ints.empty()
        for multiple in demand.multiples:
            sizes |= Ints.multiples(number(multiple, state) or 1)
        yield part.box, bounds & sizes


_NO_WORDS = Vocabulary({}, {}, {})


# --- declared pads ------------------------------------------------------------------------------------------


def _by_pads(regions: Regions, contract: Contract, box: Box) -> Iterator[Broken]:
    demands = [demand for demand in contract.demands if demand.of in _PADS]
    if not demands:
        return
    kept = _unchanged(box)
    launch = regions.phase("launch")
    for part, asked in launch.near(kept):
        pads = part.rule.outcome.pads if part.rule else None
        if part.rule is None or pads is None or asked.isdisjoint(kept):
            continue
        misleading = [demand for demand in demands if _can_mislead(pads[_PADS[demand.of]], demand)]
        claim = partial(_misread_in, box=box, demands=misleading)
        for allocating in _padding(regions, asked & kept, pads, misleading):
            point = _point(regions, part, asked & kept, "launch", claim, (allocating,))
            if point is not None:
                where = islice(launch.decided(part, asked & kept), MOST_BOXES + 1)
                yield Broken(contract, part.rule, tuple(where), point)
                break


def _padding(
    regions: Regions, within: Box, pads: tuple[Pad, Pad], demands: Sequence[Demand]
) -> Iterator[Part]:
    """The allocating parts after which a declared pad can be read as more than what is there."""
    seen: set[int] = set()
    for part, asked in regions.phase("allocate").near(within) if demands else ():
        if part.rule is None or part.place in seen or asked.isdisjoint(within):
            continue
        seen.add(part.place)
        for demand in demands:
            at = _PADS[demand.of]
            sizes = _sizes_after(regions, part.rule, tuple(DIMENSIONS)[at])
            if any(not _misread(pads[at], demand, size, size).is_empty for size in sizes):
                yield part
                break


_PADS = {"hidden_pad": 0, "intermediate_pad": 1}


def _misread_in(route: Route, box: Box, demands: Iterable[Demand]) -> Iterator[Box]:
    inside = entered(route, box)
    if inside is None or route.pads is None or route.allocated is None:
        return
    for demand in demands:
        at = _PADS[demand.of]
        name, key = tuple(DIMENSIONS.items())[at]
        bad = _misread(route.pads[at], demand, route.allocated[at], route.flow.of(name))
        narrowed = route.box & inside & box.space.box({key: bad})
        if not narrowed.is_empty:
            yield narrowed


def _can_mislead(pad: Pad, demand: Demand) -> bool:
    """Whether a pad declared in this way can be read otherwise than a demand allows, whatever was padded.

    What is floored, or passed as it is, is never more than what is there.
    """
    if demand.at_most_actual and pad.form == "floor" and pad.times > 1:
        return True
    return pad.form in ("floor", "exact") and bool(demand.exactly or demand.highest is not None)


@lru_cache(maxsize=4096)
def _misread(pad: Pad, demand: Demand, allocated: Dimension, resident: Dimension) -> Ints:
    """The entering sizes for which the pad, as the kernel reads it, is not what the demand wants."""

    def misread(size: int, after: Sequence[int]) -> bool:
        declared = pad.of(after[0] - size)
        if declared is None:
            return False
        read = declared // demand.floor * demand.floor
        if demand.at_most_actual and read > after[1] - size:
            return True
        if demand.exactly and read not in demand.exactly:
            return True
        return demand.highest is not None and read > demand.highest

    return sizes_where((allocated, resident), misread, (demand.floor, pad.floor))


# --- sizes --------------------------------------------------------------------------------------------------


def size_findings(regions: Regions) -> Iterator[Finding]:
    """Sizes that a rule allocates below native ones, or that are not the least that it allows."""
    for part in regions.phase("allocate").parts:
        rule = part.rule
        for code, said, wrong in _SIZE_CLAIMS if rule else ():
            assert rule is not None
            sizes = {size for name in DIMENSIONS for size in _made(OPEN, rule, name)}
            if all(wrong(size).is_empty for size in sizes):
                continue
            claim = partial(_where_wrong, wrong=wrong)
            boxes = (_point(regions, part, asked, "allocate", claim) for asked in part.asked)
            box = next((found for found in boxes if found is not None), None)
            if box is not None:
                facts = witness(regions, box)
                yield Finding(code, said, rule.location, rule.address, where=region_text([box]), facts=facts)


def _where_wrong(route: Route, wrong: Callable[[Dimension], Ints]) -> Iterator[Box]:
    for name, key in DIMENSIONS.items():
        bad = wrong(route.flow.of(name))
        if not bad.is_empty:
            box = route.box & route.box.space.box({key: bad})
            if not box.is_empty:
                yield box


@lru_cache(maxsize=4096)
def _too_small(dimension: Dimension) -> Ints:
    if dimension.size is None:
        # No step makes a size smaller: only one that is set can be.
        return Ints.empty()
    return sizes_where([dimension], lambda size, after: after[0] < size)


@lru_cache(maxsize=4096)
def _too_large(dimension: Dimension) -> Ints:
    """Sizes for which a smaller one, not below native, would be left alone by every step."""
    if len(dimension.steps) < 2 or any(step == "add" for step, _ in dimension.steps):
        # One step is the least by itself; what is added on purpose has no least.
        return Ints.empty()
    # A size is least if it is the first that the steps leave alone, from the native one up.
    return sizes_where(
        [dimension],
        lambda size, after: any(size_after(dimension, least) == least for least in range(size, after[0])),
    )


_SIZE_CLAIMS = (
    ("K805", "allocates less than the native size", _too_small),
    ("K806", "allocates more than the least that it allows", _too_large),
)


# --- points -------------------------------------------------------------------------------------------------


def witness(regions: Regions, box: Box) -> dict[str, str | int]:
    """A point of a box as facts to resolve: those that the box is about, and both sizes."""
    point = friendly(regions.stack, box)
    shown = {key: point[key] for key in point if key in box.sets or key in DIMENSIONS.values()}
    return dict(facts_of(regions.stack, shown).items())
