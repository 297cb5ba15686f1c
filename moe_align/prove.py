"""Claims about every decision of a stack: contracts, sizes and pads.

Exact over all facts: sizes by intervals and residues, over every way through the phases. The numbers
that multiples are made of take the values that `routes` tries, and no others; launches those of
`points`. Every finding about sizes comes with a point that the resolver was asked about.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import partial

from .broken import broken_contracts, made, point_of, tried
from .demands import too_large, too_small
from .findings import Finding, region_text
from .flow import Dimension
from .packs import BREAKS, DIMENSIONS, Rule
from .points import Point
from .regions import Part, Regions
from .resolve import Leaf
from .route import OPEN, Route
from .space import Box, Ints, Values
from .space.sets import contains
from .stack import Stack

#: What a broken contract comes to: its code, how bad it is, and in a word.
_BREAKS = {
    "silent": ("K801", "error", "unsafe"),
    "raises": ("K802", "note", "raises"),
    "slow": ("K803", "note", "slow"),
}


def prove(stack: Stack, mirrors: Collection[str] = ("silent",)) -> tuple[Finding, ...]:
    """Every claim that does not hold of the decisions of a stack, with where and a point of it.

    Rules of nearer layers are held against every contract, built-in ones, which say what an engine does
    anyway, against contracts of the kinds in `mirrors`: what breaks loudly there is no fault of a rule.
    """
    regions = Regions(stack)
    found = (*contract_findings(regions, mirrors), *size_findings(regions), *choice_findings(regions))
    return (*found, *unproven(regions))


def contract_findings(regions: Regions, mirrors: Collection[str] = BREAKS) -> Iterator[Finding]:
    """A finding for each silent contract and each rule whose decisions break it.

    Whoever comes to break another contract is told at the start: for those one finding, a note, stands
    for all rules of a pack.
    """
    for broken in broken_contracts(regions, mirrors):
        code, level, word = _BREAKS[broken.contract.breaks]
        of_pack = broken.contract.breaks != "silent"
        if broken.rule.phase == "launch" and level == "error":
            code = "K804"
        by_default = " (the engine chooses the backend itself)" if broken.default else ""
        yield Finding(
            code,
            f"{word}: {broken.contract.address} does not hold: {broken.contract.why}{by_default}",
            broken.rule.location,
            broken.rule.pack if of_pack else broken.rule.address,
            level,
            where=region_text(broken.local),
            facts=broken.point,
            rules=(broken.contract.address, *([broken.rule.address] if of_pack else [])),
        )


def unproven(regions: Regions) -> Iterator[Finding]:
    """The rules of which something could not be proven so far, for want of room."""
    for rule, said in regions.memo("too large", "").values():
        fix = "use a multiple with smaller factors"
        yield Finding("K808", f"is not proven: {said}", rule.location, rule.address, "warning", fix)


def size_findings(regions: Regions) -> Iterator[Finding]:
    """Sizes that a rule allocates below native ones, or that are not the least that it allows."""
    for part in regions.phase("allocate").parts:
        rule = part.rule
        for code, said, wrong in _SIZE_CLAIMS if rule else ():
            assert rule is not None
            found = tried(regions, rule, partial(_wrong, regions, part, wrong))
            if found is not None:
                box, point = found
                yield Finding(code, said, rule.location, rule.address, where=region_text([box]), facts=point)


def _wrong(regions: Regions, part: Part, wrong: Callable[[Dimension], Ints]) -> tuple[Box, Point] | None:
    assert part.rule is not None
    sizes = {size for name in DIMENSIONS for size in made(OPEN, part.rule, name)}
    if all(wrong(size).is_empty for size in sizes):
        return None
    claim = partial(_where_wrong, wrong=wrong)
    shows = partial(_allocates, rule=part.rule)
    points = (point_of(regions, part, asked, "allocate", claim, shows) for asked in part.asked)
    return next((found for found in points if found is not None), None)


def _allocates(found: tuple[Leaf, ...], rule: Rule) -> bool:
    """Whether all these decisions are a rule's."""
    return all(leaf.status == "decided" and any(step.rule is rule for step in leaf.steps) for leaf in found)


def _where_wrong(route: Route, wrong: Callable[[Dimension], Ints]) -> Iterator[Box]:
    for name, key in DIMENSIONS.items():
        bad = wrong(route.flow.of(name))
        if not bad.is_empty:
            box = route.box & route.box.space.box({key: bad})
            if not box.is_empty:
                yield box


_SIZE_CLAIMS = (
    ("K805", "allocates less than the native size", too_small),
    ("K806", "allocates more than the least that it allows", too_large),
)


def choice_findings(regions: Regions) -> Iterator[Finding]:
    """Backends that the engine selects by itself where the vocabulary says that they cannot be.

    Where there are none, whatever `select` comes to is among the facts with a given backend, and what
    holds of those holds of all decisions. What is asked for by name is held against contracts instead.
    """
    phase = regions.phase("select")
    for part in phase.parts:
        rule = part.rule
        if rule is None or rule.outcome.form != "use" or rule.outcome.target is None:
            continue
        for key, accepts in regions.stack.vocabulary.implied("backend", rule.outcome.target):
            elsewhere = regions.space.domain[key] - Values(accepts)  # type: ignore[operator]  # of one sort
            for asked in filter(_is_by_itself, part.asked):
                box = next(phase.decided(part, asked & regions.space.box({key: elsewhere})), None)
                if box is not None:
                    yield Finding(
                        "K807",
                        f"selects `{rule.outcome.target}`, which is not for such {key}s",
                        rule.location,
                        rule.address,
                        where=region_text([box]),
                    )
                    break


def _is_by_itself(box: Box) -> bool:
    """Whether nobody has asked for a backend in some point of a box."""
    return "requested" not in box.sets or contains(box["requested"], "auto")
