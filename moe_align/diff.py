"""What a change of rules changes: the facts whose decision differs, exactly, with a point of each region.

Differences are found phase by phase, over the facts as they enter it: a rule that stays, with the same
facts and the same outcome, is not looked at again. What comes of it is asked of both policies.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from .cost import layer_cost
from .decision import Decision
from .entering import sizes_where
from .errors import Location, PolicyError
from .facts import INTEGERS, SIZES, Facts
from .findings import region_text
from .flow import Dimension
from .known import known
from .models import Model
from .packs import NATIVE, PHASES, Outcome
from .policy import Policy
from .regions import Part, Phase, Regions, facts_of, friendly, space_of
from .route import OPEN, Route, applied
from .space import Box, Ints, Region, SpaceTooLarge, Values
from .stack import Stack

#: Fewer elements, more, or some of each (or an answer of another kind).
CLASSES = ("tighter", "looser", "incomparable")

#: Facts by which one says what a change leaves as it is.
_SPOKEN_OF = ("engine", "scheme", "backend")

#: The tensor-parallel sizes with which known models are tried.
RANKS = (1, 2, 4, 8, 16)

#: With experts split over so many ranks, then with whole experts on each of them.
_LAUNCHES = (*((ranks, 1) for ranks in RANKS), *((ranks, ranks) for ranks in RANKS[1:]))


@dataclass(frozen=True, slots=True)
class Change:
    """One region whose decision differs: the phase, the rules on both sides, what comes of it, a point."""

    phase: str
    old: str | None
    new: str | None
    sort: str
    said: str
    boxes: tuple[Box, ...]
    facts: Mapping[str, str | int]
    location: Location | None = None
    """Where the new rule stands, if there is one."""

    @property
    def where(self) -> tuple[str, ...]:
        return region_text(self.boxes)


@dataclass(frozen=True, slots=True)
class ModelChange:
    """A known model whose sizes differ; bytes are of all its layers, on one rank.

    With `ep` above 1, whole experts are spread over the ranks, otherwise each is split over them.
    """

    model: str
    tp: int
    ep: int
    facts: Mapping[str, str | int]
    old: tuple[int | None, int | None]
    new: tuple[int | None, int | None]
    old_bytes: tuple[int | None, int | None]
    new_bytes: tuple[int | None, int | None]
    """Created and resident."""
    fits: bool
    """Whether a snapshot of resident weights saved before can still be loaded."""

    @property
    def created(self) -> int | None:
        return _difference(self.new_bytes[0], self.old_bytes[0])

    @property
    def resident(self) -> int | None:
        return _difference(self.new_bytes[1], self.old_bytes[1])


@dataclass(frozen=True, slots=True)
class Difference:
    """All that differs between two policies; `other` says what is no decision: contracts, words, defaults.

    `affected` has, by discrete fact, the values for which some decision differs, where others are left.
    """

    changes: tuple[Change, ...]
    other: tuple[str, ...] = ()
    models: tuple[ModelChange, ...] = ()
    affected: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        return not self.changes and not self.other


def diff(old: Policy, new: Policy, models: Iterable[Model] = ()) -> Difference:
    """What `new` decides otherwise than `old`; with `models`, what that does to those."""
    space = space_of([new.stack, old.stack])
    before, after = Regions(old.stack, space), Regions(new.stack, space)
    changes = [change for phase in PHASES for change in _changes(before, after, phase)]
    return Difference(
        tuple(changes),
        tuple(_other(old.stack, new.stack)),
        tuple(_models(old, new, changes, models)),
        _affected(changes),
    )


def _affected(changes: Iterable[Change]) -> dict[str, tuple[str, ...]]:
    boxes = [box for change in changes for box in change.boxes]
    found = {}
    for key in _SPOKEN_OF:
        members = [box[key] for box in boxes if key in box.space.domain]
        values = sorted({str(value) for one in members if isinstance(one, Values) for value in one})
        domain = boxes[0].space.domain.get(key) if boxes else None
        if values and isinstance(domain, Values) and len(values) < len(domain.members):
            found[key] = tuple(values)
    return found


def _changes(before: Regions, after: Regions, name: str) -> Iterator[Change]:
    old, new = before.phase(name), after.phase(name)
    found: dict[tuple[str | None, str | None], list[Box]] = {}
    pairs: dict[tuple[str | None, str | None], tuple[Part | None, Part | None]] = {}
    for box in _touched(old, new):
        for was, share in old.winners(box):
            for now, both in new.winners(share):
                key = _address(was), _address(now)
                if _meaning(was) != _meaning(now):
                    found.setdefault(key, []).append(both)
                    pairs[key] = was, now
    for key, boxes in found.items():
        change = _change(after, name, *pairs[key], boxes)
        if change is not None:
            yield change


def _touched(old: Phase, new: Phase) -> list[Box]:
    """Boxes outside of which the same parts decide in the same order, as disjoint boxes."""
    ours = [(part.asked, _meaning(part)) for part in old.parts]
    theirs = [(part.asked, _meaning(part)) for part in new.parts]
    boxes: list[Box] = []
    for tag, i1, i2, j1, j2 in difflib.SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes():
        if tag != "equal":
            boxes += [box for part in (*old.parts[i1:i2], *new.parts[j1:j2]) for box in part.asked]
    if not boxes:
        return []
    return list(Region.of(boxes[0].space, boxes).disjoint().boxes)


def _address(part: Part | None) -> str | None:
    return part.address if part else None


def _meaning(part: Part | None) -> object:
    """What must be equal for two parts to decide alike; who says it does not matter."""
    if part is None:
        return None
    return part.rule.outcome if part.rule else "not covered"


def _change(after: Regions, name: str, was: Part | None, now: Part | None, boxes: list[Box]) -> Change | None:
    kind, said = _classed(name, was, now)
    if kind is None:
        return None
    region = Region.of(after.space, boxes).cover()
    point = friendly(after.stack, region[0])
    shown = {key: point[key] for key in point if key in region[0].sets or key in SIZES}
    facts = dict(facts_of(after.stack, shown).items())
    place = now.rule.location if now and now.rule else None
    return Change(name, _address(was), _address(now), kind, said, region, facts, place)


def _classed(phase: str, was: Part | None, now: Part | None) -> tuple[str | None, str]:
    """The class of a change and what it is in words; no class where nothing comes of it."""
    said = f"{_said(phase, was)} → {_said(phase, now)}"
    old, new = _sizes(phase, was), _sizes(phase, now)
    if old is None or new is None:
        return "incomparable", said
    fewer = more = False
    for before, after in zip(old, new, strict=True):
        try:
            fewer = fewer or not _where(before, after, below=True).is_empty
            more = more or not _where(before, after, below=False).is_empty
        except SpaceTooLarge:
            return "incomparable", said
    if not fewer and not more:
        return (None, said) if _rest(was) == _rest(now) else ("incomparable", said)
    return ("incomparable" if fewer and more else "tighter" if fewer else "looser"), said


def _where(before: Dimension, after: Dimension, *, below: bool) -> Ints:
    """The entering sizes that become less, or more, than before."""
    return sizes_where(
        (before, after), lambda _, sizes: sizes[1] < sizes[0] if below else sizes[1] > sizes[0]
    )


def _sizes(phase: str, part: Part | None) -> tuple[Dimension, Dimension] | None:
    """What a part makes of open sizes; nothing where it refuses, is not there, or counts with other facts."""
    if part is None:
        return None if phase == "allocate" else (OPEN, OPEN)
    rule = part.rule
    if rule is None or rule.outcome.form not in ("align", "set", "add") or not part.asked:
        return None
    space = part.asked[0].space
    found = [route for route in applied(Route.entering(space.box()), rule) if route.status == "decided"]
    return (found[0].flow.hidden, found[0].flow.intermediate) if len(found) == 1 else None


def _rest(part: Part | None) -> object:
    """An outcome without its multiples."""
    if part is None or part.rule is None:
        return Outcome("align")
    outcome = part.rule.outcome
    return outcome._replace(form="align", hidden=None, intermediate=None)


def _said(phase: str, part: Part | None) -> str:
    if part is None:
        return "unknown" if phase == "allocate" else "as it is"
    if part.rule is None:
        return "unknown (not covered)"
    outcome = part.rule.outcome
    if outcome.form in ("align", "set", "require"):
        sizes = outcome.hidden or NATIVE, outcome.intermediate or NATIVE
        head = "" if outcome.form == "align" else f"{outcome.form} "
        both = sizes[0] == sizes[1]
        return f"{head}{sizes[0]}" if both else f"{head}hidden {sizes[0]}, intermediate {sizes[1]}"
    if outcome.form == "declare" and outcome.pads:
        return f"hidden_pad {outcome.pads[0]}, intermediate_pad {outcome.pads[1]}"
    return f"{outcome.form} {outcome.target}" if outcome.target else outcome.form


def _other(old: Stack, new: Stack) -> Iterator[str]:
    ours = {contract.address: contract for contract in old.all_contracts()}
    theirs = {contract.address: contract for contract in new.all_contracts()}
    for address in sorted(ours.keys() | theirs.keys()):
        before, after = ours.get(address), theirs.get(address)
        if before is None or after is None:
            yield f"contract {address} is {'new' if before is None else 'gone'}"
        elif (before.when, before.unless, before.demands, before.facts, before.breaks) != (
            after.when, after.unless, after.demands, after.facts, after.breaks,
        ):  # fmt: skip
            yield f"contract {address} demands something else"
    for key in sorted(set(old.vocabulary.terms) | set(new.vocabulary.terms)):
        had, has = old.vocabulary.domain(key), new.vocabulary.domain(key)
        yield from (f"{key} {value} is new" for value in sorted(has - had))
        yield from (f"{key} {value} is gone" for value in sorted(had - has))
    for key in sorted(old.vocabulary.defaults.keys() | new.vocabulary.defaults.keys()):
        was, now = old.vocabulary.defaults.get(key), new.vocabulary.defaults.get(key)
        if was != now:
            yield f"{key} is assumed to be {now}, no longer {was}"


def _models(
    old: Policy, new: Policy, changes: Iterable[Change], models: Iterable[Model]
) -> Iterator[ModelChange]:
    listed = [model for model in models if {"hidden", "intermediate", "experts"} <= model.facts().keys()]
    seen: set[object] = set()
    for layer in _layers(new, changes):
        for model in listed:
            facts = {key: value for key, value in model.facts().items() if key != "model_type"}
            if any(str(facts[key]).lower() != str(layer[key]).lower() for key in layer if key in facts):
                continue
            for tp, ep in _LAUNCHES:
                for change in _model(old, new, model, layer, tp, ep):
                    named = tuple(layer.get(key) for key in ("engine", "scheme", "backend", "activation"))
                    key = change.model, tp, ep, named, change.old, change.new
                    if key not in seen:
                        seen.add(key)
                        yield change


def _layers(new: Policy, changes: Iterable[Change]) -> Iterator[dict[str, str | int]]:
    """What changed regions say of the layer by name or release; numbers are those of models and launches."""
    for change in changes:
        for box in change.boxes:
            point = friendly(new.stack, box)
            named = {key: point[key] for key in box.sets if key not in INTEGERS and key != "model_type"}
            yield dict(facts_of(new.stack, named).items())


def _model(
    old: Policy, new: Policy, model: Model, layer: Mapping[str, str | int], tp: int, ep: int
) -> Iterator[ModelChange]:
    known_of_model = {key: value for key, value in model.facts().items() if key != "model_type"}
    given = {**known_of_model, **layer, "tp": tp, **({"ep": ep} if ep > 1 else {})}
    try:
        facts = Facts.of(given)
        was, now = old.resolve(facts), new.resolve(facts)
    except PolicyError:
        return
    if "decided" not in (was.status, now.status) or _allocated(was) == _allocated(now):
        return
    yield ModelChange(
        model.name,
        tp,
        ep,
        layer,
        _allocated(was),
        _allocated(now),
        _bytes(old, was, facts, model),
        _bytes(new, now, facts, model),
        (was.hidden.resident, was.intermediate.resident) == (now.hidden.resident, now.intermediate.resident),
    )


def _allocated(decision: Decision) -> tuple[int | None, int | None]:
    return decision.hidden.allocated, decision.intermediate.allocated


def _bytes(policy: Policy, decision: Decision, facts: Facts, model: Model) -> tuple[int | None, int | None]:
    if decision.status != "decided" or model.moe_layers is None:
        return None, None
    values = known(policy.stack.vocabulary, facts).values
    cost = layer_cost(decision, values, zero_points=model.zero_points)
    if cost is None:
        return None, None
    resident = None if cost.resident is None else cost.resident * model.moe_layers
    return cost.created * model.moe_layers, resident


def _difference(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one - other
