"""Points of boxes that are real: `resolve`, asked about one, comes to what was found of the box.

What the engine derives from its launch hangs together in them: `moe_tp` and `moe_ep` follow from the
parallel sizes, and the model's intermediate size is cut into those of the ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice, product

from . import facts as keys
from .errors import PolicyError
from .facts import Facts
from .known import known
from .record import NamedTuple
from .regions import Part, Regions, box_of, facts_of, friendly
from .resolve import Leaf, leaves
from .space import Box, FactSet, Ints, Values, outside
from .space.sets import contains
from .stack import Stack

Point = Mapping[str, str | int]

#: What was found, looked for in the answer of the resolver.
Shows = Callable[[tuple[Leaf, ...]], bool]

_LAUNCHED = ("tp", "dp", "pcp", "ep")
_DERIVED = ("moe_tp", "moe_ep")
_SPLIT = "intermediate"

#: Launches are looked for among these sizes and the least ones of a box, with experts spread or not.
_TRIED = {"tp": (1, 8, 2, 4, 16, 32, 64), "dp": (1, 2, 8), "pcp": (1, 2)}

#: So many launches are tried where it is known that rules decide.
MOST_LAUNCHES = 3


class Launch(NamedTuple):
    """A launch of an engine: its parallel sizes, and those that the engine derives from them."""

    engine: str
    sizes: tuple[tuple[str, int], ...]


def real(
    regions: Regions, box: Box, shows: Shows, left_out: frozenset[str] = frozenset(), tries: int = 1
) -> Point | None:
    """Facts of a box, as one gives them, for which the resolver's answer shows what was found, if any do.

    As many launches are tried as `tries` says, with the facts that the box speaks of; where it is more
    than one, with all facts as well.
    """
    for launched, launch, derived in islice(_launched(regions, box), tries):
        for named in (frozenset({*launched.sets, *keys.SIZES}), None)[: 1 if tries == 1 else 2]:
            point = {**friendly(regions.stack, launched, named), **launch}
            given = {key: value for key, value in point.items() if key not in derived | left_out}
            asked = dict(facts_of(regions.stack, given).items())
            if shown(regions.stack, asked, shows):
                return asked
    return None


def sayable(regions: Regions, boxes: Iterable[Box]) -> Iterator[Box]:
    """The boxes without facts that nobody can give: there the value's own name means another value."""
    memo = regions.memo("sayable", "")
    if not memo:
        memo["taken"] = tuple(_taken(regions))
    return outside(tuple(boxes), memo["taken"])


def _taken(regions: Regions) -> Iterator[Box]:
    vocabulary = regions.stack.vocabulary
    for key, terms in vocabulary.terms.items():
        for value in terms if key in regions.space.domain else ():
            for alias in vocabulary.names[key].get(value.lower(), ()):
                if alias.scope and alias.value != value:
                    box = box_of(regions.space, alias.scope)
                    yield box & regions.space.box({key: Values.of([value])})


def chosen(regions: Regions, box: Box, point: Point, shows: Shows) -> Point | None:
    """A point of the box for which the engine itself chooses the backend, if one is found."""
    choosing = _choosing(regions, box) if "backend" in box.sets else []
    if not choosing:
        return None
    asked = {key: value for key, value in point.items() if key != "backend"}
    if shown(regions.stack, asked, shows):
        return asked
    without = frozenset({"backend"})
    for target, part in choosing:
        for chooses in part.asked:
            narrowed = box & box.space.box({"backend": Values.of([target])}) & chooses
            found = None if narrowed.is_empty else real(regions, narrowed, shows, left_out=without)
            if found is not None:
                return found
    return None


def _choosing(regions: Regions, box: Box) -> list[tuple[str, Part]]:
    """The parts of `select` that choose a backend of a box, each with the backend."""
    memo = regions.memo("choosing", "")
    if not memo:
        parts = [
            part for part in regions.phase("select").parts if part.rule and part.rule.outcome.form == "use"
        ]
        memo["all"] = [(str(part.rule.outcome.target), part) for part in parts if part.rule]
    return [(target, part) for target, part in memo["all"] if contains(box["backend"], target)]


def shown(stack: Stack, point: Point, shows: Shows) -> bool:
    """Whether the resolver's answer about a point shows what was found."""
    try:
        state = known(stack.vocabulary, Facts.of(dict(point)))
    except PolicyError:
        # The resolver knows more of what excludes what than implications say.
        return False
    found = leaves(stack, state, trace=False)
    # Where facts that are left open give several answers, the point does not say enough.
    answers = {(leaf.status, leaf.flow.hidden, leaf.flow.intermediate) for leaf in found}
    return len(answers) == 1 and shows(found)


def _launched(regions: Regions, box: Box) -> Iterator[tuple[Box, Mapping[str, int], frozenset[str]]]:
    """The box for each launch that can be in it, with the launch, and the facts that follow from it.

    It is as it was where it says nothing of launches.
    """
    if not {*_LAUNCHED, *_DERIVED, _SPLIT}.intersection(box.sets):
        yield box, {}, frozenset({*_DERIVED, _SPLIT})
        return
    for launch in _launches(regions, box):
        sizes = dict(launch.sizes)
        sets: dict[str, FactSet] = {
            key: Ints.of(size) for key, size in sizes.items() if key in box.space.domain
        }
        if any(box[key].isdisjoint(size) for key, size in sets.items()):  # type: ignore[arg-type]  # of one sort
            continue
        if "engine" in box.space.domain:
            sets["engine"] = Values.of([launch.engine])
        narrowed = _cut(box & box.space.box(sets), sizes.get("moe_tp", 1))
        if not narrowed.is_empty:
            given = {key: size for key, size in sizes.items() if key in _LAUNCHED}
            yield narrowed, given, frozenset(sizes).intersection(_DERIVED) | {_SPLIT}


def _cut(box: Box, ranks: int) -> Box:
    """The box with what it says of the model's size said of the sizes per rank."""
    if _SPLIT not in box.sets:
        return box
    whole = box[_SPLIT]
    assert isinstance(whole, Ints)
    return (box & box.space.box({"intermediate_per_partition": whole.quotients(ranks)})).free(_SPLIT)


def _launches(regions: Regions, box: Box) -> Iterator[Launch]:
    """Launches of the engines of a box, simple ones first."""
    default = str(regions.stack.vocabulary.defaults.get("engine", "vllm"))
    engines = box["engine"] if "engine" in box.space.domain else Values.of([default])
    assert isinstance(engines, Values)
    for engine in sorted(engines.members, key=lambda name: (name != default, name)):
        yield from _of_engine(regions, engine, _least(box, "tp"), _least(box, "moe_tp"))


def _least(box: Box, key: str) -> int:
    members = box.space.domain.get(key) and box[key]
    return members.min() if isinstance(members, Ints) else 1


def _of_engine(regions: Regions, engine: str, *also: int) -> Iterator[Launch]:
    memo = regions.memo("launches", engine)
    if also not in memo:
        memo[also] = tuple(_made(regions.stack, engine, also))
    yield from memo[also]


def _made(stack: Stack, engine: str, also: tuple[int, ...]) -> Iterator[Launch]:
    widths = tuple(dict.fromkeys((*_TRIED["tp"], *also)))
    tried = sorted(
        product(widths, _TRIED["dp"], _TRIED["pcp"], (False, True)),
        key=lambda sizes: sum(size != 1 for size in sizes[:3]) + sizes[3],
    )
    for tp, dp, pcp, spread in tried:
        facts = {"engine": engine, "tp": tp, "dp": dp, "pcp": pcp}
        for ep in (tp * dp * pcp, tp) if spread else (1,):
            try:
                state = known(stack.vocabulary, Facts.of({**facts, "ep": ep}))
            except PolicyError:
                continue
            sizes = {key: state.values.get(key) for key in (*_LAUNCHED, *_DERIVED)}
            yield Launch(engine, tuple((key, size) for key, size in sizes.items() if isinstance(size, int)))
