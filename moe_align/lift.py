"""From an engine's own functions to the shortest ordered lists of rules found for them, as packs."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from .certificate import Parts, canonical_facts, interval_of
from .errors import PolicyError, Problem
from .policy import Policy
from .shortest import shortest
from .space import Ints
from .verify.domain import Asked, domain, names
from .verify.questions import REFUSALS
from .verify.terms import (
    Mask,
    Term,
    differing,
    everything,
    floor_of,
    least,
    multiple_of,
    size_of,
    split,
    values,
)
from .verify.traced import Explored, Place, explore
from .versions import key_text
from .versions import release as release_of

Fact = str | int | Ints


class Outcome(NamedTuple):
    """What a rule does, as the file says it: the key, and what stands behind it."""

    key: str
    text: str
    error: str | None = None


NATIVE = Outcome("align", "native")
NOTHING = Outcome("nothing", "")
"""No rule: the call is never made, or the phase leaves the sizes as they are."""


class Lifted(NamedTuple):
    """One rule: values by fact, the outcome, and the lines of the engine that it was read from."""

    when: Mapping[str, frozenset[Fact]]
    outcome: Outcome
    places: tuple[Place, ...]


class Table(NamedTuple):
    """Everything that a table of the engine answers, point by point."""

    name: str
    facts: tuple[Mapping[str, Fact], ...]
    outcomes: tuple[Outcome, ...]
    places: tuple[Place, ...]
    new: Mapping[str, tuple[tuple[str, str], ...]]
    """By fact: values that the vocabulary lacks, each with the engine's name."""


#: So many lines of the engine are shown with a rule.
_MOST_LINES = 3

#: The phase of each table.
PHASES = {
    "mxfp4": "allocate",
    "mxfp4-layer": "model",
    "mxfp4-weights": "allocate",
    "quark-weights": "allocate",
    "unquantized": "allocate",
    "online-blocks": "allocate",
    "block-codecs": "allocate",
    "launch": "launch",
    "transports": "dispatch",
}


def tables(root: Path, release: str, policy: Policy, wanted: Collection[str] = ()) -> tuple[Table, ...]:
    """Everything that the engine under `root` answers, by table, in the vocabulary's names where it has them.

    With `wanted`, tables of these names alone; others are named and empty.

    Raises:
        Unlinked: the engine's code cannot be followed.
        PolicyError: an answer that the rule language cannot say.
    """
    parts = Parts(policy)
    found: dict[str, list[tuple[Asked, Explored]]] = {}
    for asked in domain(root):
        members = found.setdefault(asked.table, [])
        if not wanted or asked.table in wanted:
            members.append((asked, explore(asked.question, asked.sizes, REFUSALS)))
    lacking = parts.lacking(names(root), release)
    return tuple(_table(parts, name, members, release, lacking) for name, members in found.items())


def _table(
    parts: Parts,
    name: str,
    members: Sequence[tuple[Asked, Explored]],
    release: str,
    lacking: Sequence[tuple[str, str]],
) -> Table:
    facts: list[Mapping[str, Fact]] = []
    outcomes: list[Outcome] = []
    places: list[Place] = []
    kept: dict[tuple[str, str, str], str | int] = {}
    schemes = {str(asked.facts.get("scheme")) for asked, _ in members}
    new = {
        (fact, member): member.lower()
        for key, member in lacking
        for of, _, fact in [key.partition("/")]
        if fact == "activation" or schemes & set(of.split(","))
    }
    cuts = _cuts(members)
    for asked, explored in members:
        own = {key: new.get((key, str(value)), value) for key, value in asked.facts.items()}
        given = canonical_facts(parts, own, release, kept, tuple(new.values()))
        for where, outcome, place in _answers(name, asked, explored, cuts):
            facts.append({**given, **where})
            outcomes.append(outcome)
            places.append(place)
    used = {(key, value) for one in facts for key, value in one.items()}
    fresh: dict[str, tuple[tuple[str, str], ...]] = {}
    for (fact, member), value in new.items():
        if (fact, value) in used:
            fresh[fact] = (*fresh.get(fact, ()), (value, member))
    return Table(name, tuple(facts), tuple(outcomes), tuple(places), fresh)


def _cuts(members: Sequence[tuple[Asked, Explored]]) -> dict[str, list[Mask]]:
    """For each size the intervals in which some point of the table has an answer of its own."""
    sets: dict[str, list[Mask]] = {}
    for asked, explored in members:
        if _whole(asked, explored) is None:
            for cell in explored.cells:
                for name, mask in cell.where:
                    if name.endswith("_pad"):
                        continue
                    sets[name] = split(sets.get(name, [asked.sizes[name]]), mask)
    return {name: parts for name, parts in sets.items() if len(parts) > 1}


def _answers(
    table: str, asked: Asked, explored: Explored, cuts: Mapping[str, Sequence[Mask]]
) -> Iterator[tuple[dict[str, Fact], Outcome, Place]]:
    """What one point answers: one outcome, or one for each interval of the sizes that the table is cut by."""
    whole = _whole(asked, explored)
    place = next((cell.place for cell in explored.cells if cell.place), asked.place)
    if whole is not None and not cuts:
        yield {}, whole, place
        return
    ways: list[dict[str, Mask]] = [{}]
    for name, parts in cuts.items():
        ways = [{**way, name: part} for way in ways for part in parts]
    for way in ways:
        where: dict[str, Fact] = {}
        for name, part in way.items():
            interval = interval_of(part)
            if interval is None:
                raise _unsayable(asked, "sizes are told apart by what divides them")
            where[name] = interval
        if whole is not None:
            yield where, whole, place
            continue
        for cell in explored.cells:
            if all(dict(cell.where)[name] & part for name, part in way.items()):
                yield where, _outcome(asked, cell.answer, cell.where), cell.place or asked.place


def _whole(asked: Asked, explored: Explored) -> Outcome | None:
    """The one outcome that says all cells of a point; `None` where each needs its own."""
    cells = explored.cells
    if len(cells) == 1:
        return _outcome(asked, cells[0].answer, cells[0].where)
    demanded = _demanded(asked, explored)
    if demanded or len(asked.sizes) != 1:
        return demanded
    ((name, _),) = asked.sizes.items()
    listed = _snapped([(dict(cell.where)[name], cell.answer) for cell in cells])
    if listed:
        return Outcome("align", f"{{{name}: {{snap: [{', '.join(map(str, listed))}]}}}}")
    for cell in cells:
        if isinstance(cell.answer, str) or cell.answer[0] is None:
            return None
        multiple = multiple_of(cell.answer[0], dict(cell.where)[name])
        if (
            multiple
            and multiple > 1
            and all(_rounds(one.answer, dict(one.where)[name], multiple) for one in cells)
        ):
            return _aligned(asked, {name: multiple})
    return None


def _demanded(asked: Asked, explored: Explored) -> Outcome | None:
    """The demand of an engine that takes multiples as they are, and refuses every other size."""
    taken = [cell for cell in explored.cells if not isinstance(cell.answer, str)]
    refusals = {cell.answer for cell in explored.cells if isinstance(cell.answer, str)}
    if len(taken) != 1 or len(refusals) != 1:
        return None
    ((where, answer),) = ((dict(cell.where), cell.answer) for cell in taken)
    multiples = {name: least(mask) for name, mask in where.items()}
    for (name, multiple), term in zip(multiples.items(), answer, strict=True):
        listed = everything(multiple, step=multiple) & asked.sizes[name]
        if where[name] != listed or term is None or differing(term, name) & listed:
            return None
    said = _aligned(asked, multiples)
    return Outcome("require", said.text, str(*refusals).removeprefix("error: "))


def _snapped(parts: Sequence[tuple[Mask, tuple[Term | None, ...] | str]]) -> list[int]:
    """The sizes of a list to which others go up, each the end of its own interval; none if it is no list."""
    below = 0
    listed: list[int] = []
    for mask, answer in sorted(parts, key=lambda part: least(part[0])):
        if isinstance(answer, str):
            return listed if mask == everything(below + 1) else []
        if not isinstance(answer[0], int) or mask != everything(below + 1) & ~everything(answer[0] + 1):
            return []
        below = answer[0]
        listed.append(below)
    return []


def _rounds(answer: tuple[Term | None, ...] | str, within: Mask, multiple: int) -> bool:
    if isinstance(answer, str) or answer[0] is None or isinstance(answer[0], int):
        return False
    return multiple_of(answer[0], within) == multiple or all(
        said == -(-size // multiple) * multiple
        for size, said in enumerate(values(answer[0]))
        if within >> size & 1
    )


def _outcome(
    asked: Asked, answer: tuple[Term | None, ...] | str, where: Iterable[tuple[str, Mask]]
) -> Outcome:
    """An answer as a rule says it.

    Raises:
        PolicyError: the language cannot say it.
    """
    if isinstance(answer, str):
        if asked.part == "launch":
            return NOTHING
        return Outcome("reject", "the engine refuses these sizes", answer.removeprefix("error: "))
    if asked.part == "launch":
        pads = zip(("hidden_pad", "intermediate_pad"), answer, strict=True)
        said = ", ".join(f"{name}: {_pad(asked, term)}" for name, term in pads)
        return Outcome("declare", f"{{{said}}}")
    multiples: dict[str, int] = {}
    for (name, mask), term in zip(where, answer, strict=True):
        multiple = None if term is None else multiple_of(term, mask)
        if multiple is None:
            raise _unsayable(asked, f"{name} comes to {term}")
        multiples[name] = multiple
    return _aligned(asked, multiples)


def _aligned(asked: Asked, multiples: Mapping[str, int]) -> Outcome:
    item_bytes = asked.facts.get("act_bytes")
    shown = {name.partition("_")[0]: multiple for name, multiple in multiples.items()}
    if isinstance(item_bytes, int) and shown["hidden"] > 1:
        return Outcome("align", f"{{hidden: {{bytes: {shown['hidden'] * item_bytes}}}}}")
    if set(shown.values()) == {1}:
        return NATIVE if asked.part in ("whole", "allocate") else NOTHING
    if len(shown) == 2 and len(set(shown.values())) == 1:
        return Outcome("align", str(shown["hidden"]))
    said = ", ".join(f"{name}: {multiple}" for name, multiple in shown.items() if multiple > 1)
    return Outcome("align", f"{{{said}}}")


def _pad(asked: Asked, term: Term | None) -> str:
    if term is None:
        return "absent"
    if size_of(term) is None:
        if values(term)[0]:
            raise _unsayable(asked, f"a pad of {values(term)[0]}, whatever it is")
        return "zero"
    floored = floor_of(term)
    if floored is None:
        raise _unsayable(asked, "a pad that is neither floored nor multiplied")
    floor, times = floored
    parts = [f"floor: {floor}"] * (floor > 1 or times > 1) + [f"times: {times}"] * (times > 1)
    return f"{{{', '.join(parts)}}}" if parts else "exact"


def _unsayable(asked: Asked, what: str) -> PolicyError:
    said = f"{asked.place}: the rule language cannot say what this function does: {what}"
    return PolicyError([Problem("E922", said, "report it: the language has to grow")])


def rules_of(table: Table) -> tuple[Lifted, ...]:
    """The shortest ordered list found that gives every point of a table what the engine gave."""
    found = []
    for when, outcome, numbers in shortest(table.facts, table.outcomes, NOTHING):
        lines = sorted({table.places[number] for number in numbers})
        found.append(Lifted(when, outcome, tuple(lines[:_MOST_LINES])))  # type: ignore[arg-type]  # as given
    return tuple(found)


#: What a pack says with `for`: facts without which its phase is about something else.
_NEEDS = {
    "model": ("scheme", "method"),
    "allocate": ("scheme", "method"),
    "dispatch": ("all2all",),
    "launch": ("backend",),
}

#: Model types that stand for every other one that was not asked about.
_STAND_FOR_OTHERS = frozenset(("other", "deepseek_v4"))

_PLAIN = re.compile(r"[a-z][a-z0-9_]*")
_NOT_WORDS = frozenset(("true", "false", "null", "yes", "no", "on", "off"))


def pack_text(table: Table, rules: Sequence[Lifted], release: str) -> str:
    """The rules as a file, ready to be reviewed."""
    held = _held(table)
    shared = {
        key: frozenset(held[key])
        for key in _NEEDS[PHASES[table.name]]
        if all(key in facts for facts in table.facts)
    }
    needs = ", ".join(f"{key}: {_words(members)}" for key, members in shared.items())
    bound = _bound(release)
    lines = [
        f"# {table.name}, lifted from the functions of vLLM {release}: what they return, not why. Before it",
        "# is used, read each rule's lines, write its `why`, name it, and run `moe-align verify vllm`.",
        "language: 1",
        f"pack: lifted-{table.name}-{re.sub('[^0-9a-z]+', '-', release)}",
        *_vocabulary(table, bound),
        f"phase: {PHASES[table.name]}",
        f'for: {{engine: vllm, vllm: "=={bound}", {needs}}}',
        f'covers: {{vllm: "=={bound}"}}',
        "rules:",
    ]
    taken: set[str] = set()
    for rule in rules:
        lines += _rule_lines(rule, held, shared, release, taken)
    return "\n".join(lines) + "\n"


def _bound(release: str) -> str:
    """The release that a version text is treated as, in three numbers."""
    key = release_of(release).key
    return key_text(key) if min(key) < 0 else ".".join(map(str, (*key, 0, 0)[: max(3, len(key))]))


def _held(table: Table) -> dict[str, set[Fact]]:
    held: dict[str, set[Fact]] = {}
    for facts in table.facts:
        for key, value in facts.items():
            held.setdefault(key, set()).add(value)
    return held


def _vocabulary(table: Table, bound: str) -> Iterator[str]:
    if not table.new:
        return
    yield "vocabulary:"
    for fact, members in table.new.items():
        yield f"  {fact}:"
        for value, name in members:
            yield f'    {value}: {{aliases: [{{name: "{name}", engine: vllm, vllm: ">={bound}"}}]}}'


def _rule_lines(
    rule: Lifted,
    held: Mapping[str, set[Fact]],
    shared: Mapping[str, frozenset[Fact]],
    release: str,
    taken: set[str],
) -> Iterator[str]:
    at = rule.places[0]
    yield f"  # {' · '.join(map(str, rule.places))}"
    yield f"  - id: {_name(rule, taken)}"
    when = [f"{key}: {_condition(key, members, held[key])}" for key, members in rule.when.items()]
    if when:
        yield f"    when: {{{', '.join(when)}}}"
    yield f"    {rule.outcome.key}: {rule.outcome.text}"
    if rule.outcome.error:
        yield f"    error: {rule.outcome.error}"
    if rule.outcome != NATIVE:
        yield f"    why: returned by vLLM {release}; say here what the kernel needs it for"
    yield f"    source: vllm v{release}:{at.file}"
    yield "    evidence: ran"


def _condition(key: str, members: frozenset[Fact], all_of_it: set[Fact]) -> str:
    left_out = frozenset(all_of_it) - members
    if key == "model_type" and members & _STAND_FOR_OTHERS:
        return f"{{not: {_words(left_out)}}}"
    if any(isinstance(value, Ints) for value in members):
        return _interval(members)
    if len(left_out) < len(members) and len(members) > 2 and all(isinstance(value, str) for value in members):
        return f"{{not: {_words(left_out)}}}"
    return _words(members)


def _interval(members: frozenset[Fact]) -> str:
    joined = Ints.empty()
    for one in members:
        if isinstance(one, Ints):
            joined |= one
    (piece,) = joined.pieces
    bounds = [f"min: {piece.low}"] if piece.low > 1 else []
    bounds += [] if piece.high is None else [f"max: {piece.high}"]
    return f"{{{', '.join(bounds)}}}"


def _words(members: frozenset[Fact]) -> str:
    words = [_word(value) for value in sorted(members, key=str)]
    return words[0] if len(words) == 1 else f"[{', '.join(words)}]"


def _word(value: Fact) -> str:
    text = str(value)
    plain = isinstance(value, int) or (_PLAIN.fullmatch(text) and text not in _NOT_WORDS)
    return text if plain else f'"{text}"'


def _told(value: Fact) -> str:
    if not isinstance(value, Ints):
        return str(value)
    (piece,) = value.pieces
    return f"from-{piece.low}" if piece.high is None else f"to-{piece.high}"


def _name(rule: Lifted, taken: set[str]) -> str:
    """A name of its own, made of the values that the rule speaks of."""
    words = []
    for key, members in rule.when.items():
        if len(members) <= 2:
            words += [key] if any(isinstance(value, int) for value in members) else []
            words += sorted(map(_told, members))
    base = re.sub(r"[^a-z0-9]+", "-", "-".join(words).lower()).strip("-")[:60].strip("-") or "otherwise"
    base = base if rule.when else "otherwise"
    if base == "otherwise" and rule.when:
        base = "several"
    name, number = base, 2
    while name in taken:
        name, number = f"{base}-{number}", number + 1
    taken.add(name)
    return name
