"""What is wrong with a set of rules as a set, exactly: over every point of the space, not over examples."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, combinations, islice, pairwise

from . import facts as keys
from .findings import MOST_BOXES, Finding, region_text
from .layers import BUILT_IN
from .packs import NATIVE, PHASES, Condition, Contract, Demand, Outcome, Pack, Rule
from .regions import Part, Phase, Regions, boxes_of, facts_of, friendly
from .space import Box, Ints, Region, VersionSet
from .stack import Stack
from .versions import key_text
from .vocabulary import Term

#: Phases in which a size that no rule speaks of stays as it is.
_SILENT = ("model", "dispatch", "repack")


def lint(stack: Stack) -> tuple[Finding, ...]:
    """Everything that `lint` can say of a stack, in the order of files and lines."""
    regions = Regions(stack)
    found = chain(
        *(_of_phase(regions, name) for name in PHASES),
        _gaps(regions),
        _contracts(regions),
        _unused(stack),
        _sources(stack),
    )
    return tuple(sorted(found, key=_order))


def _order(finding: Finding) -> tuple[str, int, str]:
    place = finding.location
    return (place.file, place.line, finding.code) if place else ("", 0, finding.code)


def _of_phase(regions: Regions, name: str) -> Iterator[Finding]:
    phase = regions.phase(name)
    for part in phase.parts:
        if part.rule is None:
            continue
        if not part.asked:
            yield _impossible(part.rule)
            continue
        first = next(phase.decided(part), None)
        if first is None:
            yield _shadowed(phase, part, part.rule)
        elif _is_redundant(phase, part, name):
            yield _redundant(regions, phase, part, part.rule, first)
        yield from _idle_exception(regions, part, part.rule)
    yield from _holes(regions, phase)
    yield from _swallowed(regions, phase)


def _impossible(rule: Rule | Contract) -> Finding:
    return Finding(
        "L702",
        "asks for facts that exclude each other",
        rule.location,
        rule.address,
        fix="leave out one of its conditions, or correct what the vocabulary implies",
    )


def _shadowed(phase: Phase, part: Part, rule: Rule) -> Finding:
    by = tuple(other.address for other in covering(phase, part))
    said = "an earlier rule takes" if len(by) == 1 else f"{len(by)} earlier rules together take"
    fix = f"move it above `{by[-1]}`, narrow that, or delete the rule"
    return Finding(
        "L701",
        f"is never reached: {said} all that it asks for",
        rule.location,
        rule.address,
        fix=fix,
        where=region_text(part.asked),
        rules=by,
    )


def covering(phase: Phase, part: Part) -> tuple[Part, ...]:
    """The earlier parts that take what `part` asks for."""
    takers = {
        winner.place: winner
        for box in part.asked
        for winner, _ in phase.winners(box)
        if winner is not None and winner.place < part.place
    }
    return tuple(takers[place] for place in sorted(takers))


def _is_redundant(phase: Phase, part: Part, name: str) -> bool:
    """Whether everything that the rule decides would come out the same without it."""
    assert part.rule is not None
    outcome = part.rule.outcome
    for box in phase.decided(part):
        # The next rule that meets the box wins some of it: as a rule that says enough.
        following = (
            other
            for other, asked in phase.near(box)
            if other.place > part.place and not asked.isdisjoint(box)
        )
        heir = next(following, None)
        if heir is not None and not _same(outcome, heir, name):
            return False
        if not all(_same(outcome, other, name) for other, _ in phase.winners(box, part.place)):
            return False
    return True


def _same(outcome: Outcome, other: Part | None, phase: str) -> bool:
    if other is None:
        return phase in _SILENT and outcome == Outcome("align", NATIVE, NATIVE)
    return other.rule is not None and other.rule.outcome == outcome


def _redundant(regions: Regions, phase: Phase, part: Part, rule: Rule, first: Box) -> Finding:
    heirs = {
        other.place: other.address
        for box in phase.decided(part)
        for other, _ in phase.winners(box, part.place)
        if other is not None
    }
    return Finding(
        "L703",
        "is redundant: without it the rules behind it decide the same",
        rule.location,
        rule.address,
        level="warning",
        fix="delete the rule, or say in its outcome what it is there for",
        where=_effective(phase, part),
        facts=_point(regions, first),
        rules=tuple(heirs[place] for place in sorted(heirs)),
    )


def _idle_exception(regions: Regions, part: Part, rule: Rule) -> Iterator[Finding]:
    if not rule.unless:
        return
    pack = part.pack
    both = (*pack.needs, *pack.covers, *rule.when, *rule.unless)
    if not boxes_of(regions.space, both):
        yield Finding(
            "L709",
            "has an `unless` that never holds where `when` does",
            rule.location,
            rule.address,
            level="warning",
            fix="leave `unless` out",
            where=region_text(part.asked),
        )


def _point(regions: Regions, box: Box) -> dict[str, str | int]:
    """A point of the box by the facts that it is about."""
    point = friendly(regions.stack, box)
    return dict(facts_of(regions.stack, {key: point[key] for key in point if key in box.sets}).items())


def _gaps(regions: Regions) -> Iterator[Finding]:
    """What an allocating pack is about and leaves open, a finding for each pack."""
    phase = regions.phase("allocate")
    for pack in regions.stack.phases["allocate"]:
        open_boxes = [box for said in regions.spoken_for(pack) for box in phase.left_open(said)]
        if open_boxes:
            cover = Region.of(regions.space, open_boxes).cover()
            yield Finding(
                "L704",
                "is about facts that none of its rules decides",
                pack.location,
                pack.name,
                fix="add a last rule without `when`, or narrow `for:`",
                where=region_text(cover),
                facts=_point(regions, cover[0]),
            )


def _holes(regions: Regions, phase: Phase) -> Iterator[Finding]:
    """Releases between two that are decided, for the same facts, in which nothing decides."""
    for part in phase.parts:
        for box in part.asked if part.rule else ():
            for key in box.sets:
                members = box[key]
                if isinstance(members, VersionSet):
                    yield from _holes_above(regions, phase, part, box, key, members)


def _holes_above(
    regions: Regions, phase: Phase, part: Part, box: Box, key: str, members: VersionSet
) -> Iterator[Finding]:
    rule = part.rule
    assert rule is not None
    for _, high in members.intervals:
        after = VersionSet.at_least(high) if high is not None else VersionSet.empty()
        above = box.free(key) & regions.space.box({key: after & _covered(part.pack, key)})
        if above.is_empty or high is None:
            continue
        found = _hole(phase, part, above, key, high)
        if found is not None:
            hole, heir = found
            releases = hole[key]
            assert isinstance(releases, VersionSet)
            yield Finding(
                "L705",
                f"ends at {key} {key_text(high)}, and nothing decides {releases} before `{heir}` goes on",
                rule.location,
                rule.address,
                level="warning",
                fix=f"let one of the two ranges reach the other, or decide {key} {releases}",
                where=region_text([hole]),
                facts=_point(regions, hole),
                rules=(heir,),
            )


def _swallowed(regions: Regions, phase: Phase) -> Iterator[Finding]:
    """Releases between rules that are alike in all but the release, which fall to another rule."""
    alike: dict[tuple[str, str, Box, Outcome], list[tuple[Part, VersionSet]]] = {}
    for part in phase.parts:
        if part.rule is None:
            continue
        outcome = part.rule.outcome
        for box in part.asked:
            for key in keys.VERSIONS:
                if key in box.sets and isinstance(members := box[key], VersionSet):
                    like = part.pack.name, key, box.free(key), outcome
                    alike.setdefault(like, []).append((part, members))
    for (_, key, free, _), ranges in alike.items():
        together = VersionSet(())
        for _, members in ranges:
            together |= members
        for (_, low), (high, _) in pairwise(together.intervals):
            between = VersionSet(((low, high),)) if low else VersionSet(())
            taken = regions.space.box({**free.sets, key: between})
            winner = next((part for part, _ in phase.winners(taken) if part and part.rule), None)
            if low and winner and winner.rule:
                part = next(part for part, members in ranges if members.intervals[-1][1] == low)
                assert part.rule is not None
                yield Finding(
                    "L705",
                    f"ends at {key} {key_text(low)} and its like begins at {key_text(high)}: between, "
                    f"`{winner.address}` decides",
                    part.rule.location,
                    part.rule.address,
                    level="warning",
                    fix="let one of the two ranges reach the other",
                    where=region_text([taken]),
                    facts=_point(regions, taken),
                    rules=(winner.address,),
                )


def _covered(pack: Pack, key: str) -> VersionSet:
    for condition in pack.covers:
        if condition.key == key and isinstance(condition.accepts, VersionSet):
            return condition.accepts
    return VersionSet.all()


def _hole(phase: Phase, ended: Part, above: Box, key: str, high: tuple[int, ...]) -> tuple[Box, str] | None:
    """A box right above a bound that nothing decides, and the rule of its pack that goes on later."""
    holes = [hole for piece in phase.left_open(above) if (hole := _from(piece, key, high)) is not None]
    if not holes:
        return None
    heirs = [
        (later.address, share.free(key))
        for later, share in phase.winners(above)
        if later is not None and later.rule and later.pack is ended.pack
    ]
    return next(
        ((hole, heir) for hole in holes for heir, share in heirs if not share.isdisjoint(hole.free(key))),
        None,
    )


def _from(piece: Box, key: str, release: tuple[int, ...]) -> Box | None:
    """The part of a box in the releases from one on, up to where the first interval ends."""
    releases = piece[key]
    assert isinstance(releases, VersionSet)
    if release not in releases or releases.intervals[0][1] is None:
        return None
    return piece & piece.space.box({key: VersionSet(releases.intervals[:1])})


def _contracts(regions: Regions) -> Iterator[Finding]:
    placed = [
        (contract, boxes_of(regions.space, (*pack.needs, *contract.when), contract.unless))
        for pack in regions.stack.contracts
        for contract in pack.contracts
        if contract.breaks != "slow"  # a preference, which may give way
    ]
    yield from (_impossible(contract) for contract, boxes in placed if not boxes)
    bounded = [(contract, boxes) for contract, boxes in placed if any(map(_is_bounded, contract.demands))]
    for (one, boxes), (two, others) in combinations(bounded, 2):
        dimension = _at_odds(one, two)
        shared = dimension and next((a & b for a in boxes for b in others if not a.isdisjoint(b)), None)
        if shared:
            yield Finding(
                "L706",
                f"and `{two.address}` cannot both hold: no {dimension} is enough for the two",
                one.location,
                one.address,
                fix="correct one of them, or the facts that it is about",
                where=region_text([shared]),
                rules=(two.address,),
            )


def _is_bounded(demand: Demand) -> bool:
    return bool(demand.exactly) or demand.highest is not None


def _at_odds(one: Contract, two: Contract) -> str | None:
    for first in one.demands:
        for second in two.demands:
            if first.of == second.of and (allowed(first) & allowed(second)).is_empty:
                return first.of
    return None


def allowed(demand: Demand) -> Ints:
    """The numbers that a demand takes; multiples that rest on other facts are left out of it."""
    numbers = Ints.between(max(demand.lowest or 0, 0 if demand.of.endswith("_pad") else 1), demand.highest)
    if demand.exactly:
        numbers &= Ints.of(*demand.exactly)
    fixed = [item.items[0] for item in demand.multiples if item.op == "times"]
    if fixed and len(fixed) == len(demand.multiples) and all(isinstance(item, int) for item in fixed):
        choices = Ints.empty()
        for item in fixed:
            choices |= Ints.multiples(int(item))
        numbers &= choices
    return numbers


def _unused(stack: Stack) -> Iterator[Finding]:
    """Values that no condition names, that mean nothing else, and that no engine calls by a name."""
    named = _named(stack)
    implied = {
        (key, value)
        for terms in stack.vocabulary.terms.values()
        for term in terms.values()
        for key, values in term.implies
        for value in values
    }
    for key, terms in stack.vocabulary.terms.items():
        grouped = {value for members in stack.vocabulary.groups.get(key, {}).values() for value in members}
        spoken_of = named.get(key, set()) | grouped | {str(stack.vocabulary.defaults.get(key))}
        idle = [
            value
            for value, term in terms.items()
            if value not in spoken_of and (key, value) not in implied and _says_nothing(term)
        ]
        if idle and not _is_switch(key, named):
            yield Finding(
                "L707",
                f"no rule and no contract names {key} {', '.join(f'`{value}`' for value in idle)}",
                level="note",
                fix="write a rule for it, say in a `note` what it is, or leave it out",
            )


def _says_nothing(term: Term) -> bool:
    """Whether a value implies nothing, has no note, and no engine calls it by a name."""
    return not (term.implies or term.note or any(alias.scope for alias in term.aliases))


def _is_switch(key: str, named: dict[str, set[str]]) -> bool:
    """Whether the fact is a switch at which some rule looks: its other values are then its other side."""
    return key.partition(".")[0] in keys.NAMESPACES and bool(named.get(key))


def _named(stack: Stack) -> dict[str, set[str]]:
    named: dict[str, set[str]] = {}
    for condition in _conditions(stack):
        if isinstance(condition.accepts, frozenset):
            said = named.setdefault(condition.key, set())
            # What stands under `not` was named, the rest was not.
            domain = stack.vocabulary.domain(condition.key)
            said |= domain - condition.accepts if condition.text.startswith("not ") else condition.accepts
    for rule in stack.rules():
        if rule.outcome.form == "use" and rule.outcome.target:
            named.setdefault("backend", set()).add(rule.outcome.target)
    return named


def _conditions(stack: Stack) -> Iterator[Condition]:
    packs = [*(pack for phase in PHASES for pack in stack.phases[phase]), *stack.contracts]
    for pack in packs:
        yield from pack.needs
        for rule in pack.rules:
            yield from (*rule.when, *rule.unless)
        for contract in pack.contracts:
            yield from (*contract.when, *contract.unless, *contract.facts)


def _sources(stack: Stack) -> Iterator[Finding]:
    for phase in PHASES:
        for pack in stack.phases[phase]:
            for rule in pack.rules:
                yield from _unsourced(rule, pack.layer)
    for pack in stack.contracts:
        for contract in pack.contracts:
            yield from _unsourced(contract, pack.layer)


def _unsourced(entry: Rule | Contract, layer: str) -> Iterator[Finding]:
    lacking = [] if entry.source else ["source"]
    lacking += [] if entry.evidence or layer != BUILT_IN else ["evidence"]
    if lacking:
        yield Finding(
            "L708",
            f"has no {' and no '.join(f'`{name}`' for name in lacking)}",
            entry.location,
            entry.address,
            level="warning",
            fix="say where it comes from: an issue, a pull request, or tag:path",
        )


#: A region of more boxes is not made shorter before it is shown.
_MOST_JOINED = 4 * MOST_BOXES


def _effective(phase: Phase, part: Part) -> tuple[str, ...]:
    """Where a part is the one that decides, in words."""
    boxes = list(islice(phase.decided(part), _MOST_JOINED + 1))
    if len(boxes) > _MOST_JOINED:
        return region_text(boxes)
    return region_text(Region.of(boxes[0].space, boxes).cover())
