"""Which rules, and which of the values that they list, no case reaches, with cases to paste that would."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from .cases import Case
from .decision import Decision
from .errors import PolicyError
from .facts import FIRST_SIZES, SIZES, Facts
from .known import known
from .packs import PHASES, Rule
from .policy import Policy
from .regions import Part, Regions, facts_of, friendly
from .routes import routes
from .space import Box, Ints, Values, VersionSet
from .versions import key_text

#: So many boxes of a rule are tried for a point that the resolver takes to it as well.
_MOST_BOXES = 8


@dataclass(frozen=True, slots=True)
class Lacking:
    """A rule without a case: facts that it decides, and facts that miss it by one, as far as found.

    With `where`, one of the values that it lists, and nothing that misses it.
    """

    rule: Rule
    wins: Facts | None
    misses: Facts | None = None
    where: str = ""


def missing(
    policy: Policy, cases: Iterable[Case], layers: Container[str] | None = None
) -> tuple[Lacking, ...]:
    """The rules (of `layers`) for which no case says that they decide, or none that it just misses them."""
    listed = tuple(cases)
    decided = {address for case in listed for address in case.named}
    missed = {case.misses for case in listed}
    regions = Regions(policy.stack)
    found = []
    for name in PHASES:
        for part in _of_layers(regions, name, layers):
            if part.rule and not (part.address in decided and part.address in missed):
                wins, misses = _example(policy, regions, part)
                found.append(Lacking(part.rule, wins, misses))
    return tuple(found)


def _of_layers(regions: Regions, phase: str, layers: Container[str] | None) -> Iterator[Part]:
    return (part for part in regions.phase(phase).parts if layers is None or part.pack.layer in layers)


def missing_values(
    policy: Policy, cases: Iterable[Case], layers: Container[str] | None = None
) -> tuple[Lacking, ...]:
    """The values that rules list (`backend: [a, b]`) with which no case reaches them, where one could."""
    seen = {reached for case in cases for reached in _reached(policy, case)}
    regions = Regions(policy.stack)
    found: list[Lacking] = []
    for name in PHASES:
        for part in _of_layers(regions, name, layers):
            for key, value in _listed(part.rule):
                if (part.address, key, value) not in seen:
                    found += _lacking_value(policy, regions, part, key, value)
    return tuple(found)


def _reached(policy: Policy, case: Case) -> Iterator[tuple[str, str, object]]:
    try:
        decision = policy.resolve(case.facts)
        values = {**known(policy.stack.vocabulary, case.facts).values, "backend": decision.backend}
    except PolicyError:
        return
    for step in decision.steps:
        yield from ((step.rule.address, key, value) for key, value in values.items())


def _listed(rule: Rule | None) -> Iterator[tuple[str, str]]:
    for key, accepts, text in rule.when if rule else ():
        if isinstance(accepts, frozenset) and len(accepts) > 1 and not text.startswith("not "):
            yield from ((key, value) for value in sorted(accepts))


def _lacking_value(policy: Policy, regions: Regions, part: Part, key: str, value: str) -> Iterator[Lacking]:
    assert part.rule is not None
    within = regions.space.box({key: Values.of([value])})
    if next(regions.phase(part.rule.phase).decided(part, within), None) is None:
        return  # earlier rules take it
    wins, _ = _example(policy, regions, part, within)
    yield Lacking(part.rule, wins, where=f"{key}: {value}")


def _example(
    policy: Policy, regions: Regions, part: Part, within: Box | None = None
) -> tuple[Facts | None, Facts | None]:
    """Facts that a part decides (in `within`, if given), and without that, facts that just miss it."""
    only_wins: Facts | None = None
    for box in islice(_boxes(regions, part, within), _MOST_BOXES):
        tried = (_facts(policy, part, box, whole=whole) for whole in (False, True))
        facts = next((one for one in tried if takes(policy, one, part.address)), None)
        if facts is None:
            continue
        facts = _shorter(policy, facts, within.sets if within else ())
        if within is not None:
            return facts, None
        only_wins = only_wins or facts
        misses = _miss(policy, regions, part, facts)
        if misses is not None:
            return facts, misses
    return only_wins, None


def _boxes(regions: Regions, part: Part, within: Box | None) -> Iterator[Box]:
    """Where a part decides, as facts that enter the first phase; those that are allocated first."""
    assert part.rule is not None
    phase = part.rule.phase
    if phase == "select":
        yield from regions.phase(phase).decided(part, within)
        return
    for piece in islice(regions.phase(phase).decided(part, within), _MOST_BOXES):
        kept = piece.space.box({key: piece[key] for key in piece.sets if key not in (*SIZES, *FIRST_SIZES)})
        found = (route.box for route in routes(regions, kept, "launch", [part]) if route.status != "unknown")
        yield from islice(found, 3)


def _facts(policy: Policy, part: Part, box: Box, *, whole: bool) -> Facts:
    """A point of a box as facts: those that it is about and both sizes, or all but what rules still pick."""
    point = friendly(policy.stack, box)
    picked = ("backend", "intermediate") if part.rule and part.rule.phase == "select" else ("intermediate",)
    shown = {
        key: point[key] for key in point if key in box.sets or key in SIZES or (whole and key not in picked)
    }
    return facts_of(policy.stack, shown)


def takes(policy: Policy, facts: Facts, address: str) -> bool:
    """Whether a rule decides a phase for the facts."""
    decision = _resolved(policy, facts)
    return decision is not None and any(step.rule.address == address for step in decision.steps)


def _resolved(policy: Policy, facts: Facts) -> Decision | None:
    try:
        decision = policy.resolve(facts)
    except PolicyError:
        return None
    return None if decision.status == "undecided" else decision


def _shorter(policy: Policy, facts: Facts, kept: Container[str]) -> Facts:
    """The facts without those that change nothing, `kept` ones and sizes aside."""
    whole = _resolved(policy, facts)
    for key in list(facts):
        less = facts.without(key)
        decision = _resolved(policy, less)
        if decision is None or whole is None or key in SIZES or key in kept:
            continue
        if [step.rule for step in decision.steps] == [step.rule for step in whole.steps]:
            same = (decision.status, decision.hidden, decision.intermediate, decision.launch)
            if same == (whole.status, whole.hidden, whole.intermediate, whole.launch):
                facts = less
    return facts


def _miss(policy: Policy, regions: Regions, part: Part, facts: Facts) -> Facts | None:
    """The same facts but one, for which another rule decides, or none; facts of the rule itself first."""
    assert part.rule is not None
    own = [condition.key for condition in (*part.rule.when, *part.rule.unless)]
    pack = [condition.key for condition in part.pack.needs]
    earlier = [key for key in regions.space.domain if key not in own and key not in pack]
    for key in dict.fromkeys([*own, *pack, *earlier]):
        if key in FIRST_SIZES:
            continue
        for value in _values(regions, part, key, facts):
            other = Facts.of({**dict(facts.items()), key: value})
            decision = _resolved(policy, other)
            if decision is not None and not any(step.rule is part.rule for step in decision.steps):
                return other
    return None


def _values(regions: Regions, part: Part, key: str, facts: Facts) -> Iterator[str | int]:
    """Values of one fact on the other side of the conditions that look at it."""
    domain = regions.space.domain.get(key)
    if isinstance(domain, Values):
        yield from (value for value in domain if value != facts.get(key))
        return
    asked = [box[key] for box in part.asked if key in box.sets]
    for members in asked:
        if isinstance(members, VersionSet):
            for low, high in members.intervals:
                yield from (_release(end) for end in (high, _below(low)) if end is not None)
        elif isinstance(members, Ints) and isinstance(domain, Ints):
            beyond = domain - members
            yield from (edge for edge in _near(beyond, facts.get(key)) if edge in domain)
    if not asked and isinstance(domain, Ints):
        yield from (
            value for value in (1, 2, 64, 100, 128, 256, 320, 500, 8192, 9216) if value != facts.get(key)
        )
    if not asked and isinstance(domain, VersionSet):
        yield from (f"0.{minor}.0" for minor in range(33, 13, -1))


def _near(beyond: Ints, value: object) -> Iterator[int]:
    around = value if isinstance(value, int) else 1
    yield from (size for step in range(1, 300) for size in (around + step, around - step) if size in beyond)


def _below(low: tuple[int, ...]) -> tuple[int, ...] | None:
    """The release of the minor version before, as engines number them."""
    return (low[0], low[1] - 1) if len(low) > 1 and low[1] > 0 else None


def _release(end: tuple[int, ...]) -> str:
    return key_text(end) if min(end) < 0 else ".".join(map(str, (*end, 0, 0)[: max(3, len(end))]))


def missing_text(policy: Policy, lacking: Iterable[Lacking]) -> str:
    """Cases to paste, with what the policy answers today; rules without one are named in a comment."""
    return "\n".join(lacking_text(policy, one) for one in lacking)


def lacking_text(policy: Policy, one: Lacking) -> str:
    """The cases for one rule or value."""
    name = one.rule.address
    about = f"{name} at {one.where}" if one.where else name
    if one.wins is None:
        return f"# {about}: no facts were found that it decides\n"
    text = case_text(policy, one.wins)
    if one.where:
        return text
    if one.misses is None:
        return f"{text}# {about}: no single fact was found that misses it\n"
    return text + "\n" + case_text(policy, one.misses, name)


def case_text(policy: Policy, facts: Facts, misses: str | None = None) -> str:
    """One case as YAML: the facts, and what the policy answers."""
    decision = policy.resolve(facts)
    lines = [f"- facts: {_flow(dict(facts.items()))}"]
    if decision.status != "decided":
        lines.append(f"  status: {decision.status}")
    else:
        for name, size in (("hidden", decision.hidden), ("intermediate", decision.intermediate)):
            if size.resident is not None and size.resident != size.allocated:
                lines.append(f"  {name}: {{allocated: {size.allocated}, resident: {size.resident}}}")
            elif size.allocated is not None:
                lines.append(f"  {name}: {size.allocated}")
    if decision.rule:
        lines.append(f"  rule: {decision.rule}")
    steps = [taken.rule.address for taken in decision.steps if taken.rule.address != decision.rule]
    if steps:
        lines.append(f"  steps: [{', '.join(steps)}]")
    if decision.launch is not None and decision.status == "decided":
        pads = decision.launch.hidden_pad, decision.launch.intermediate_pad
        hidden, intermediate = ("null" if pad is None else pad for pad in pads)
        lines.append(f"  launch: {{hidden_pad: {hidden}, intermediate_pad: {intermediate}}}")
    if misses:
        lines.append(f"  misses: {misses}")
    return "\n".join(lines) + "\n"


_QUOTED = {"true", "false", "yes", "no", "on", "off", "null"}


def _flow(facts: Mapping[str, str | int]) -> str:
    return "{" + ", ".join(f"{key}: {_scalar(value)}" for key, value in facts.items()) + "}"


def _scalar(value: str | int) -> str:
    if isinstance(value, int):
        return str(value)
    number_like = value.replace(".", "", 1).isdigit()
    return f'"{value}"' if number_like or value in _QUOTED or "#" in value or ":" in value else value
