"""An engine's own functions held against a policy, on every point of the domain that they look at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from .errors import Location, PolicyError
from .facts import Facts
from .flow import Dimension
from .known import known
from .packs import Outcome, Pack, Pad, Rule
from .policy import Policy
from .resolve import Leaf, leaves
from .space import FactSet, Ints, Values
from .verify import MORE_MACHINES, Machine
from .verify.domain import Asked, domain, member_place, names
from .verify.questions import REFUSALS
from .verify.terms import (
    BOUND,
    Mask,
    Term,
    differing,
    everything,
    holds,
    least,
    pace,
    round_up,
    size_of,
    split,
)
from .verify.traced import Cell, Explored, Place, explore, is_proven
from .vocabulary import Vocabulary

Answer = tuple[Term | None, ...] | str

#: Facts that hold a size, in conditions of rules.
_SIZE_FACTS = {
    "hidden": "hidden",
    "native_hidden": "hidden",
    "intermediate_per_partition": "intermediate_per_partition",
    "native_intermediate": "intermediate_per_partition",
    "moe_tp": "moe_tp",
}


class Said(NamedTuple):
    """What a policy answers to one question: sizes that it treats alike, the answer there, the rule."""

    where: Mapping[str, Mask]
    answer: Answer
    rule: Rule | None


class Apart(NamedTuple):
    """A point on which the two differ: its facts as the vocabulary names them, and the sizes.

    `where` are the sizes that both treat alike, `point` some of them for which the answers are not the same.
    """

    asked: Asked
    facts: Mapping[str, str | int]
    where: Mapping[str, Mask]
    point: Mapping[str, int]
    engine: Answer
    place: Place
    policy: Answer
    rule: Rule | None


@dataclass(frozen=True, slots=True)
class Certificate:
    """How far a policy and a release agree.

    `asked` are the choices of facts by table, each of them for all sizes. `lacking` are names of the
    engine that the vocabulary does not have, with their place, and `skipped` points have one. `proven`
    says whether looking at sizes up to `BOUND` says everything.
    """

    release: str
    asked: Mapping[str, Sequence[Mapping[str, str | int]]]
    apart: tuple[Apart, ...]
    lacking: tuple[tuple[str, str, Place | None], ...]
    skipped: int
    proven: bool

    @property
    def points(self) -> int:
        """The number of choices of facts."""
        return sum(map(len, self.asked.values()))

    @property
    def equal(self) -> int:
        """The number of points on which the two agree."""
        return self.points - len({(one.asked.table, *one.facts.items()) for one in self.apart})

    @property
    def holds(self) -> bool:
        """Whether they agree on everything."""
        return not self.apart and not self.lacking


_NOWHERE = Location("", 1, 1)


class Parts:
    """One policy, cut into the parts that answer questions.

    What values imply is left out everywhere: a fact that forbids another could hide a wrong rule. Nor is
    anything assumed in a part that is one phase: what is not asked about may be anything. Only what other
    code of a transport refuses, by facts that its rounding does not see, is left out by the defaults.
    """

    def __init__(self, policy: Policy) -> None:
        stack = policy.without_implications().stack._replace(contracts=())
        nothing: dict[str, tuple[Pack, ...]] = dict.fromkeys(stack.phases, ())
        rule = Rule("plainly", "plainly", "allocate", (), (), Outcome("align"), None, None, None, _NOWHERE)
        plainly = (Pack("plainly", "allocate", (), (), (), (rule,), (), "plainly", _NOWHERE),)

        def only(phase: str, words: Vocabulary, **more: tuple[Pack, ...]) -> Policy:
            phases = {**nothing, **more, phase: stack.phases[phase]}
            return Policy(stack._replace(phases=phases, vocabulary=words))

        self.vocabulary = assuming = stack.vocabulary
        unassuming = Vocabulary(assuming.terms, assuming.groups, {})
        self.policies = {
            "whole": Policy(stack._replace(phases={**stack.phases, "repack": (), "launch": ()})),
            "model": only("model", unassuming, allocate=plainly),
            "dispatch": only("dispatch", assuming, allocate=plainly),
            "allocate": only("allocate", unassuming),
            "launch": only("launch", unassuming, allocate=plainly),
        }

    def value(self, scheme: str, key: str, name: str | int, release: str) -> str | int:
        """The value that an engine's name stands for.

        Raises:
            PolicyError: there is none.
        """
        facts = Facts.of({"engine": "vllm", "vllm": release, "scheme": scheme, key: name})
        found = known(self.vocabulary, facts).values[key]
        assert isinstance(found, str | int)
        return found

    def lacking(self, named: Mapping[str, Sequence[str]], release: str) -> list[tuple[str, str]]:
        """Of an engine's names, by `schemes/fact`, those that mean nothing to the vocabulary."""
        return [
            (key, name)
            for key, members in named.items()
            for schemes, _, fact in [key.partition("/")]
            for name in members
            if not any(self._has(scheme, fact, name, release) for scheme in schemes.split(","))
        ]

    def _has(self, scheme: str, fact: str, name: str, release: str) -> bool:
        try:
            self.value(scheme, fact, name, release)
        except PolicyError:
            return False
        return True

    def ranks(self) -> list[Mask]:
        """Numbers of ranks that share an expert, in the sets that rules of the launch treat alike."""
        sets = [everything(1)]
        for rule in self.policies["launch"].stack.rules():
            for condition in (*rule.when, *rule.unless):
                if condition.key == "moe_tp" and isinstance(condition.accepts, Ints):
                    sets = split(sets, _mask(condition.accepts))
        return sets


@cache
def _mask(accepts: Ints) -> Mask:
    return sum(1 << size for size in range(BOUND + 1) if size in accepts)


def said(parts: Parts, asked: Asked, release: str) -> tuple[Said, ...]:
    """What the policy answers to a question, for all sizes."""
    facts = {"engine": "vllm", "vllm": release, **_BESIDE.get(asked.part, {}), **asked.facts}
    found: list[Said] = []
    if "moe_tp" not in asked.sizes:
        for part in ("whole", "allocate") if asked.part == "whole" else (asked.part,):
            found += _leaves(parts, part, facts, asked.sizes)
        return tuple(found)
    for ranks in parts.ranks():
        shared = {**asked.sizes, "moe_tp": ranks}
        found += _leaves(parts, asked.part, {**facts, "moe_tp": least(ranks)}, shared)
    return tuple(found)


#: A layer below a transport, which the engine's function does not see.
_BESIDE: Mapping[str, Mapping[str, str]] = {
    "dispatch": {"scheme": "unquantized", "backend": "triton", "platform": "cuda"},
}


def _leaves(
    parts: Parts, part: str, facts: Mapping[str, str | int], sizes: Mapping[str, Mask]
) -> Iterator[Said]:
    """The answer for every part of what is open: sizes, and facts that the engine's function does not see."""
    stack = parts.policies[part].stack
    for leaf in leaves(stack, known(stack.vocabulary, Facts.of(facts)), trace=False):
        where = dict(sizes)
        for key, accepts in leaf.splits.items():
            name = _SIZE_FACTS.get(key)
            if name in where and isinstance(accepts, Ints):
                where[name] &= _mask(accepts)
        if all(where.values()):
            yield from _declared(leaf, where) if part == "launch" else _sized(leaf, part, where)


def _declared(leaf: Leaf, where: Mapping[str, Mask]) -> Iterator[Said]:
    rule = next((step.rule for step in leaf.steps if step.phase == "launch"), None)
    if rule is None or rule.outcome.pads is None:
        yield Said(where, "nothing" if leaf.status == "decided" else leaf.status, rule)
        return
    named = zip(rule.outcome.pads, ("hidden_pad", "intermediate_pad"), strict=True)
    yield Said(where, tuple(_pad_term(pad, name) for pad, name in named), rule)


def _pad_term(pad: Pad, name: str) -> Term | None:
    if pad.form == "absent":
        return None
    if pad.form in ("zero", "exact"):
        return 0 if pad.form == "zero" else name
    floored: Term = ("*", ("//", name, pad.floor), pad.floor)
    return floored if pad.times == 1 else ("*", floored, pad.times)


def _sized(leaf: Leaf, part: str, where: Mapping[str, Mask]) -> Iterator[Said]:
    phase = "allocate" if part == "whole" else part
    rule = next((step.rule for step in leaf.steps if step.phase == phase), leaf.rule)
    if leaf.status != "decided":
        word = f"error: {leaf.error or 'ValueError'}" if leaf.status == "rejected" else leaf.status
        yield Said(where, word, rule)
        return
    dimensions = {"hidden": leaf.flow.hidden, "intermediate_per_partition": leaf.flow.intermediate}
    walks = [_walked(name, dimensions[name], where[name]) for name in where]
    for ways in product(*walks):
        here = {name: mask for name, (mask, _) in zip(where, ways, strict=True)}
        refused = any(term is None for _, term in ways)
        error = rule.outcome.error if rule else None
        yield Said(here, f"error: {error or 'ValueError'}" if refused else tuple(t for _, t in ways), rule)


def _walked(name: str, dimension: Dimension, whole: Mask) -> list[tuple[Mask, Term | None]]:
    """What the steps of a dimension make of an open size, set by set; `None` where it is refused.

    Of a size that is demanded, not made, only what all steps leave as it is is taken.
    """
    ways: list[tuple[Mask, Term | None]] = [(whole, name)]
    for step, by in dimension.steps:
        ways = [after for mask, term in ways for after in _stepped(step, by, mask, term) if after[0]]
    if dimension.required:
        ways = [after for mask, term in ways for after in _demanded(name, mask, term) if after[0]]
    return ways


def _demanded(name: str, mask: Mask, term: Term | None) -> Iterator[tuple[Mask, Term | None]]:
    changed = mask if term is None else mask & differing(term, name)
    yield mask & ~changed, term
    yield changed, None


def _stepped(step: str, by: Any, mask: Mask, term: Term | None) -> Iterator[tuple[Mask, Term | None]]:
    if term is None or step in ("round_up", "add"):
        yield mask, None if term is None else round_up(term, by) if step == "round_up" else ("+", term, by)
        return
    listed = by if step == "snap" else (by,)
    for choice in listed:
        yield mask & (below := holds("<=", term, choice)), choice
        mask &= ~below
    yield mask, None if step == "snap" else term


def certify(
    root: Path,
    release: str,
    policy: Policy,
    against: str | None = None,
    machines: Sequence[Machine] = MORE_MACHINES,
) -> Certificate:
    """Ask the engine under `root` everything, and hold its answers against what `policy` says of its release.

    With `against` they are held against what the policy says of that release.

    Raises:
        Unlinked: the engine's code does something that cannot be followed, or lacks a function.
    """
    parts = Parts(policy)
    held = against or release
    unknown = parts.lacking(names(root), held)
    lacking = tuple((key, name, member_place(root, key, name)) for key, name in unknown)
    counted: dict[str, list[dict[str, str | int]]] = {}
    apart: list[Apart] = []
    proven, skipped = True, 0
    canonical: dict[tuple[str, str, str], str | int] = {}
    for asked in domain(root, machines):
        if _names_unknown(asked, unknown):
            skipped += 1
            continue
        facts = canonical_facts(parts, asked.facts, held, canonical)
        counted.setdefault(asked.table, []).append(facts)
        explored = explore(asked.question, asked.sizes, REFUSALS)
        theirs = said(parts, asked, held)
        proven = proven and _is_proven(explored, theirs)
        apart += [
            Apart(
                asked, facts, where, point, cell.answer, cell.place or asked.place, other.answer, other.rule
            )
            for where, point, cell, other in _apart(explored, theirs)
        ]
    return Certificate(release, counted, tuple(apart), lacking, skipped, proven)


def _names_unknown(asked: Asked, unknown: Sequence[tuple[str, str]]) -> bool:
    """Whether a fact of a question has a name that the vocabulary lacks; all schemes share activations."""
    scheme = asked.facts.get("scheme")
    return any(
        asked.facts.get(fact) == name and (fact == "activation" or scheme in of.split(","))
        for key, name in unknown
        for of, _, fact in [key.partition("/")]
    )


def canonical_facts(
    parts: Parts,
    asked: Mapping[str, str | int],
    release: str,
    kept: dict[tuple[str, str, str], str | int],
    new: Sequence[str] = (),
) -> dict[str, str | int]:
    """Facts by the vocabulary's own names; `kept` remembers them, and `new` values stay as they are."""
    scheme = str(asked.get("scheme", "unquantized"))
    found: dict[str, str | int] = {}
    for key, value in asked.items():
        place = (scheme, key, str(value))
        if place not in kept:
            kept[place] = value if value in new else parts.value(scheme, key, value, release)
        found[key] = kept[place]
    return found


def _apart(
    explored: Explored, theirs: Sequence[Said]
) -> Iterator[tuple[dict[str, Mask], dict[str, int], Cell, Said]]:
    """The sizes that both treat alike and on which their answers differ, with some for which they do."""
    for cell in explored.cells:
        for other in theirs:
            both = {name: mask & other.where[name] for name, mask in cell.where}
            if all(both.values()) and (point := _unlike(both, cell.answer, other.answer)):
                yield both, point, cell, other


def _unlike(both: Mapping[str, Mask], one: Answer, other: Answer) -> dict[str, int] | None:
    """Sizes for which two answers are not the same; `None` if they are for all."""
    if isinstance(one, str) or isinstance(other, str):
        return None if _same_words(one, other) else _point(both)
    for mine, theirs in zip(one, other, strict=True):
        if mine == theirs:
            continue
        if mine is None or theirs is None:
            return _point(both)
        name = size_of(("-", mine, theirs))
        unlike = differing(mine, theirs) & (everything(0) if name is None else both[name])
        if unlike:
            return _point(both if name is None else {**both, name: unlike})
    return None


#: Sizes that are good to read, tried before the least of a set.
_FAMILIAR = (7168, 4096, 2880, 384, 192, 360, 720)


def _point(sizes: Mapping[str, Mask]) -> dict[str, int]:
    tried = {name: (8,) if name == "moe_tp" else _FAMILIAR for name in sizes}
    return {
        name: next((size for size in tried[name] if mask >> size & 1), least(mask))
        for name, mask in sizes.items()
    }


def _same_words(one: Answer, other: Answer) -> bool:
    """A refusal is one of the engine's: no pads are declared where the call is refused."""
    return one == other or (other == "nothing" and isinstance(one, str) and one.startswith("error: "))


def _is_proven(explored: Explored, theirs: Sequence[Said]) -> bool:
    bounds: list[int] = []
    periods: list[int] = []
    for one in theirs:
        for mask in one.where.values():
            bounds += [edge for edge in (least(mask), (everything(0) & ~mask).bit_length()) if edge < BOUND]
        if not isinstance(one.answer, str):
            periods += [pace(term).period for term in one.answer if term is not None]
    return is_proven(explored, periods, bounds)


def sets_of(one: Apart) -> dict[str, FactSet]:
    """A point as sets, with the interval of each size that is not all of it."""
    sets: dict[str, FactSet] = {
        key: Ints.of(value) if isinstance(value, int) else Values.of([value])
        for key, value in one.facts.items()
    }
    for name, mask in one.where.items():
        if mask != one.asked.sizes[name] and (interval := interval_of(mask)):
            sets[name] = interval
    return sets


def interval_of(sizes: Mask) -> Ints | None:
    """Sizes without a hole between them; `None` where there are holes."""
    low, high = least(sizes), sizes.bit_length() - 1
    if sizes.bit_count() != high - low + 1:
        return None
    return Ints.between(low, None if high == BOUND else high)
