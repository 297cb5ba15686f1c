"""Decisions that break contracts: which rules, where, and a point of each that the resolver was asked about.

A contract is held against every way through the phases at once. What is found is found exactly: sizes
by intervals and residues, beside the numbers that `routes` tries and the launches that `points` tries.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TypeVar

from .contracts import checks
from .demands import NOWHERE, PADS, against, can_mislead, can_refuse, misread, misread_in
from .findings import MOST_BOXES
from .flow import Dimension
from .layers import BUILT_IN
from .packs import BREAKS, DIMENSIONS, NATIVE, Contract, Demand, Pack, Pad, Rule
from .points import MOST_LAUNCHES, Point, Shows, chosen, real, sayable
from .regions import CHANGED, Part, Phase, Regions, boxes_of
from .resolve import Leaf
from .route import OPEN, Route, applied
from .routes import confirmed, ways
from .space import Box, SpaceTooLarge
from .stack import Stack

_Found = TypeVar("_Found")


@dataclass(frozen=True, slots=True)
class Broken:
    """Decisions of one rule that break one contract.

    `local` is where, by the sizes as they enter the rule's phase, `point` facts for `resolve` that show
    it. With `default` the engine comes to it without being asked for the backend. A contract that is not
    silent is broken by the rule's pack, of which this rule is the first found.
    """

    contract: Contract
    rule: Rule
    local: tuple[Box, ...]
    point: Point
    default: bool = False


def broken_contracts(regions: Regions, mirrors: Collection[str] = BREAKS) -> Iterator[Broken]:
    """Every contract that some decision breaks, by contract and rule, or by contract and pack.

    Built-in rules are held against contracts of the kinds in `mirrors` alone.

    Contracts that demand nothing of sizes or pads are about facts of the caller, not about decisions.
    """
    packs = [pack for phase in regions.stack.phases.values() for pack in phase]
    built_in = {pack.name for pack in packs if pack.layer == BUILT_IN}
    nearer = any(pack.layer != BUILT_IN for pack in packs)
    for pack in regions.stack.contracts:
        for contract in pack.contracts:
            if contract.breaks not in mirrors and not nearer:
                continue
            found = set() if contract.breaks in mirrors else set(built_in)
            boxes = boxes_of(regions.space, (*pack.needs, *contract.when), contract.unless)
            for box in sayable(regions, boxes):
                case = _Case(
                    regions, contract, box, _unchanged(box), found, _alone(regions.stack, pack, contract)
                )
                yield from _by_sizes(case)
                yield from _by_pads(case)


def _unchanged(box: Box) -> Box:
    """The box without its word on facts that rules change on the way."""
    return box.space.box({fact: members for fact, members in box.sets.items() if fact not in CHANGED})


def _alone(stack: Stack, pack: Pack, contract: Contract) -> Stack:
    """The stack with one contract."""
    one = Pack(pack.name, None, pack.needs, pack.covers, (), (), (contract,), pack.layer, pack.location)
    return stack._replace(contracts=(one,))


Claim = Callable[[Route], Iterator[Box]]


@dataclass(frozen=True, slots=True)
class _Case:
    """One contract in one box of where it speaks, and the rules and packs that are known to break it."""

    regions: Regions
    contract: Contract
    box: Box
    kept: Box
    found: set[str]
    stack: Stack

    @property
    def is_loud(self) -> bool:
        return self.contract.breaks != "silent"

    def about(self, part: Part) -> str:
        return part.pack.name if self.is_loud else part.address

    def broken(
        self,
        part: Part,
        local: Callable[[], Iterable[Box]],
        within: Box,
        last: str,
        claim: Claim,
        also: tuple[Part, ...] = (),
    ) -> Broken | None:
        """How `part` breaks the contract for the facts of `within`, if it does; `local` says where."""
        rule = part.rule
        assert rule is not None
        shows = partial(_shows, stack=self.stack, rule=rule)
        found = point_of(self.regions, part, within, last, claim, shows, also)
        if found is None:
            return None
        box, point = found
        self.found.add(self.about(part))
        by_default = None if self.is_loud else chosen(self.regions, box, point, shows)
        shown = (box,) if self.is_loud else local()
        return Broken(self.contract, rule, tuple(shown), by_default or point, by_default is not None)


def _shows(found: tuple[Leaf, ...], stack: Stack, rule: Rule) -> bool:
    """Whether these decisions owe their sizes or pads to a rule and break the one contract of a stack."""
    return all(
        leaf.status == "decided"
        and rule is _behind(leaf, rule.phase)
        and any(check.holds is False for check in checks(stack, leaf))
        for leaf in found
    )


def _behind(leaf: Leaf, phase: str) -> Rule | None:
    """The rule behind the pads, or behind the sizes: first comes repacking that changes them."""
    rules = {step.phase: step.rule for step in leaf.steps}
    repack = rules.get("repack")
    if phase == "launch":
        return rules.get("launch")
    return repack if repack and _changes(repack) else rules.get("allocate")


def _by_sizes(case: _Case) -> Iterator[Broken]:
    demands = [demand for demand in case.contract.demands if demand.of in DIMENSIONS]
    for name in ("allocate", "repack") if demands else ():
        for part, asked in case.regions.phase(name).near(case.kept):
            if part.rule is None or case.about(part) in case.found or asked.isdisjoint(case.kept):
                continue
            broken = tried(case.regions, part.rule, partial(_broken_by_size, case, part, asked, demands))
            if broken is not None:
                yield broken


def _broken_by_size(case: _Case, part: Part, asked: Box, demands: Sequence[Demand]) -> Broken | None:
    assert part.rule is not None
    if part.rule.phase == "repack" and not _changes(part.rule):
        return None
    if not any(_can_break(case.regions, part, demand) for demand in demands):
        return None
    phase = case.regions.phase(part.rule.phase)
    if all(box.isdisjoint(case.kept) for box in phase.reach(part)):
        return None
    within = asked & case.kept
    local = partial(_where, phase, part, within, demands)
    return case.broken(part, local, within, "repack", partial(against, box=case.box, demands=demands))


def tried(regions: Regions, rule: Rule, find: Callable[[], _Found | None]) -> _Found | None:
    """What is found of a rule; where that would need too many sizes it is noted instead."""
    try:
        return find()
    except SpaceTooLarge as fault:
        regions.memo("too large", "").setdefault(rule.address, (rule, str(fault)))
        return None


def _where(phase: Phase, part: Part, within: Box, demands: Sequence[Demand]) -> tuple[Box, ...]:
    """Where a part decides facts that a contract is about, by the sizes that it makes wrong."""
    assert part.rule is not None
    found: list[Box] = []
    for route in applied(Route.entering(within), part.rule):
        for demand in demands:
            for bad in against(route, route.box, [demand]):
                found += islice(phase.decided(part, bad), MOST_BOXES + 1 - len(found))
    return tuple(found)


def point_of(
    regions: Regions,
    part: Part,
    within: Box,
    last: str,
    claim: Claim,
    shows: Shows,
    also: tuple[Part, ...] = (),
) -> tuple[Box, Point] | None:
    """A box of facts as they enter the first phase for which `part` decides and a claim finds something.

    With it comes a point whose decision shows it.
    """
    assert part.rule is not None
    if part.rule.phase == "allocate":
        # Most sizes come to a rule as they are: no other phase need be walked for those.
        plain = (route for route in applied(Route.entering(within), part.rule) if route.status == "decided")
        for suspect in (suspect for route in plain for suspect in claim(route)):
            point = real(regions, suspect, shows)
            if point is not None:
                return suspect, point
    for way in ways(regions, within, last, [part, *also]):
        for suspect in claim(way) if _is_by(way, part) else ():
            point = real(regions, suspect, shows)
            if point is not None:
                return suspect, point
            for box in confirmed(regions, way, suspect, part):
                point = real(regions, box, shows, tries=MOST_LAUNCHES)
                if point is not None:
                    return box, point
    return None


def _can_break(regions: Regions, part: Part, demand: Demand) -> bool:
    """Whether `part` can leave a size that a demand does not take, whatever size comes to it."""
    assert part.rule is not None
    memo = regions.memo("sizes after", part.rule.address)
    if demand.of not in memo:
        memo[demand.of] = frozenset(made(OPEN, part.rule, demand.of))
    sizes: frozenset[Dimension] = memo[demand.of]
    return any(can_refuse(demand, size) for size in sizes)


def made(entering: Dimension, rule: Rule, name: str) -> Iterator[Dimension]:
    """What a size may become by a rule, unless it is refused."""
    if rule.outcome.form == "refine" and rule.outcome.otherwise:
        yield entering
        rule = rule._replace(outcome=rule.outcome.otherwise)
    start = Route.entering(NOWHERE, entering, entering)
    yield from (route.flow.of(name) for route in applied(start, rule) if route.status == "decided")


def _sizes_after(regions: Regions, rule: Rule, name: str) -> frozenset[Dimension]:
    """What a size can be after an allocating rule, for every way in which it may have been changed before."""
    memo = regions.memo("sizes allocated", rule.address)
    if name not in memo:
        before = _sizes_before(regions, name)
        memo[name] = frozenset(size for entering in before for size in made(entering, rule, name))
    found: frozenset[Dimension] = memo[name]
    return found


def _sizes_before(regions: Regions, name: str) -> frozenset[Dimension]:
    """What a size can be when it enters `allocate`."""
    memo = regions.memo("sizes before", "allocate")
    if name not in memo:
        sizes = {OPEN}
        for earlier in ("model", "dispatch"):
            rules = [part.rule for part in regions.phase(earlier).parts if part.rule]
            each_way = (made(entering, rule, name) for entering in tuple(sizes) for rule in rules)
            sizes |= {size for each in each_way for size in each}
        memo[name] = frozenset(sizes)
    found: frozenset[Dimension] = memo[name]
    return found


def _changes(rule: Rule) -> bool:
    """Whether a rule can change a size, not only what lies around it."""
    outcome = rule.outcome
    if outcome.form == "require":
        return False
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


def _by_pads(case: _Case) -> Iterator[Broken]:
    demands = [demand for demand in case.contract.demands if demand.of in PADS]
    launch = case.regions.phase("launch")
    for part, asked in launch.near(case.kept) if demands else ():
        if part.rule is None or case.about(part) in case.found or asked.isdisjoint(case.kept):
            continue
        broken = tried(case.regions, part.rule, partial(_broken_by_pad, case, part, asked, demands))
        if broken is not None:
            yield broken


def _broken_by_pad(case: _Case, part: Part, asked: Box, demands: Sequence[Demand]) -> Broken | None:
    pads = part.rule.outcome.pads if part.rule else None
    misleading = [demand for demand in demands if pads and can_mislead(pads[PADS[demand.of]], demand)]
    if pads is None or not misleading:
        return None
    claim = partial(misread_in, box=case.box, demands=misleading)
    within = asked & case.kept
    local = partial(_decided, case.regions.phase("launch"), part, within)
    allocating = _padding(case.regions, within, pads, misleading)
    broken_ways = (case.broken(part, local, within, "launch", claim, (one,)) for one in allocating)
    return next((broken for broken in broken_ways if broken is not None), None)


def _decided(phase: Phase, part: Part, within: Box) -> Iterator[Box]:
    return islice(phase.decided(part, within), MOST_BOXES + 1)


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
            at = PADS[demand.of]
            sizes = _sizes_after(regions, part.rule, tuple(DIMENSIONS)[at])
            if any(not misread(pads[at], demand, size, size).is_empty for size in sizes):
                yield part
                break
