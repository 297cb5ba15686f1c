"""What else could be: other values of what was assumed, and changes that load."""

from __future__ import annotations

from ..facts import VERSIONS, Facts
from ..record import NamedTuple
from ..versions import VersionSet
from .dims import dims
from .outcome import LOADS, VERDICTS, Outcome, member, tried, usual_platform, whole
from .question import all_ranks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..models import Model
    from ..packs import Accepts
    from ..policy import Policy

#: Tensor-parallel sizes that are tried as ways out.
_SIZES = (1, 2, 4, 8, 16, 32, 64)

#: So many ways out are worth reading.
_MOST = 5


class Way(NamedTuple):
    """A change to the deployment, as flags of the engine, and what it gives."""

    change: str
    outcome: Outcome


class Scenario(NamedTuple):
    """What one assumption gives if it is another: the values of `key`, one of them, and their outcome."""

    key: str
    values: tuple[str, ...]
    outcome: Outcome


#: Assumptions whose other values are worth a line of their own.
_SCENARIO_KEYS = ("requested", *VERSIONS)


def scenarios(policy: Policy, model: Model, first: Outcome) -> tuple[Scenario, ...]:
    """What other requested backends, switches and releases would give: exactly those that differ."""
    if first.decision.status not in ("decided", "rejected"):
        return ()
    return tuple(_scenarios(policy, model, first))


def _scenarios(policy: Policy, model: Model, first: Outcome) -> Iterator[Scenario]:
    """One scenario for each key and outcome; values that come to the same are named together."""
    groups: dict[tuple[str, object], tuple[list[Accepts], Outcome]] = {}
    for key, accepts in _other_values(policy, first):
        more = {key: member(accepts)}
        if key == "requested" and "platform" not in first.facts:
            more["platform"] = usual_platform(first.facts.having(requested=str(more[key])))
        found = tried(policy, _with(first.facts, **more), model)
        # A request that is refused is none of the choices.
        refused = found is None or found.verdict == "unknown" or _is_no_choice(key, found)
        if found is None or refused or _told(found) == _told(first):
            continue
        groups.setdefault((key, _told(found)), ([], found))[0].append(accepts)
    for (key, _), (listed, found) in groups.items():
        yield Scenario(key, _texts(listed), found)


def _other_values(policy: Policy, first: Outcome) -> Iterator[tuple[str, Accepts]]:
    """Assumptions and the values of them that would change sizes; of names each by itself."""
    found = [
        other
        for other in policy.differences(first.facts, _is_choice)
        if other.key != "requested" or not other.then.startswith("rejected")
    ]
    for key in dict.fromkeys(other.key for other in found):
        listed = [other.accepts for other in found if other.key == key]
        spans = [accepts for accepts in listed if isinstance(accepts, VersionSet)]
        names = [accepts for accepts in listed if isinstance(accepts, frozenset)]
        yield from ((key, span) for span in _apart(spans))
        yield from ((key, frozenset({name})) for name in sorted(frozenset().union(*names)))


def _apart(listed: list[VersionSet]) -> Iterator[VersionSet]:
    """The releases of all sets, cut wherever one of the sets begins or ends: inside a piece all is alike."""
    intervals = [interval for accepts in listed for interval in accepts.intervals]
    cuts = sorted({edge for interval in intervals for edge in interval if edge is not None})
    for low, high in zip(cuts, [*cuts[1:], None][: len(cuts)], strict=True):
        if any(start <= low and (end is None or low < end) for start, end in intervals):
            yield VersionSet(((low, high),))


def _is_choice(key: str) -> bool:
    return key in _SCENARIO_KEYS or key.startswith("env.")


def _is_no_choice(key: str, found: Outcome) -> bool:
    """Whether a request is refused, or nobody knows what it leads to."""
    return key == "requested" and (found.verdict == "reject" or found.decision.backend is None)


def _texts(listed: list[Accepts]) -> tuple[str, ...]:
    """Sets of values as they are written: names one by one, releases and numbers as one range."""
    united = listed[0]
    for accepts in listed[1:]:
        united = united | accepts  # type: ignore[operator]  # sets of one key's sort
    return tuple(sorted(united)) if isinstance(united, frozenset) else (str(united),)


def _told(found: Outcome) -> tuple[object, ...]:
    decision = found.decision
    return found.verdict, found.reason, decision.intermediate.allocated, decision.hidden.allocated


def _with(facts: Facts, **more: object) -> Facts:
    return Facts.of({**dict(facts.items()), **more})


def ways(policy: Policy, model: Model, first: Outcome, verdict: str) -> tuple[Way, ...]:
    """Changes that load and are better, best first: no padding before padding, then fewest bytes."""
    found = [
        way for way in _candidates(policy, model, first, verdict) if _is_better(way.outcome, first, verdict)
    ]
    found.sort(key=lambda way: (VERDICTS.index(way.outcome.verdict), _bytes(way.outcome)))
    return tuple(found[:_MOST])


def _bytes(found: Outcome) -> int:
    return found.resident_bytes or 0


def _is_better(other: Outcome, first: Outcome, verdict: str) -> bool:
    if verdict not in LOADS:
        return True
    better = VERDICTS.index(other.verdict) < VERDICTS.index(verdict)
    # A way that takes twice the memory is none where things load as they are.
    return better and (verdict != "pad" or _bytes(other) <= _bytes(first))


def _candidates(policy: Policy, model: Model, first: Outcome, verdict: str) -> Iterator[Way]:
    given: dict[str, object] = dict(first.facts.items())
    tp, engine = whole(first.values.get("tp")) or 1, str(first.values.get("engine"))
    flags = FLAGS.get(engine, FLAGS["vllm"])
    ranks = all_ranks({**first.values, "engine": engine})
    if ranks > 1 and first.values.get("ep") == 1:
        yield from _way(policy, model, {**given, "ep": ranks}, flags["ep"].format(ranks))
    yield from _fewer_ranks(policy, model, given, tp, flags["tp"])
    # Where blocks are cut every other backend pads: the scenarios have them.
    if "backend" not in given and verdict != "refine" and first.verdict not in ("native", "refine"):
        for value in sorted(policy.stack.vocabulary.domain("requested") - {"auto"}):
            change = flags["backend"].format(value)
            ways_of = _way(policy, model, {**given, "requested": value}, change)
            yield from (way for way in ways_of if way.outcome.decision.backend is not None)
    yield from _more_experts(policy, model, first, given)


def _fewer_ranks(policy: Policy, model: Model, given: dict[str, object], tp: int, flag: str) -> Iterator[Way]:
    """Smaller tensor-parallel sizes, until one needs no padding: those below it only take more memory."""
    smaller = {key: value for key, value in given.items() if key != "ep"}
    for size in reversed(_SIZES):
        if size < tp and tp % size == 0:
            for way in _way(policy, model, {**smaller, "tp": size}, flag.format(size)):
                yield way
                if way.outcome.verdict == "native":
                    return


def _more_experts(policy: Policy, model: Model, first: Outcome, given: dict[str, object]) -> Iterator[Way]:
    """Redundant experts that make even shares, where the engine balances experts."""
    experts, ranks = whole(first.values.get("experts")), whole(first.values.get("moe_ep")) or 1
    if experts is None or first.values.get("eplb") != "true" or not experts % ranks:
        return
    missing = -experts % ranks
    change = f"--eplb-config.num_redundant_experts {missing}"
    yield from _way(policy, model, {**given, "redundant_experts": missing}, change)


#: How each engine is told to do it.
FLAGS = {
    "vllm": {
        "ep": "--enable-expert-parallel",
        "tp": "--tensor-parallel-size {}",
        "backend": "--moe-backend {}",
    },
    "sglang": {"ep": "--ep-size {}", "tp": "--tp-size {}", "backend": "--moe-runner-backend {}"},
    "atom": {"ep": "--enable-expert-parallel", "tp": "-tp {}", "backend": "--moe-backend {}"},
}


def _way(policy: Policy, model: Model, given: dict[str, object], change: str) -> Iterator[Way]:
    found = tried(policy, Facts.of(given), model)
    if found is None or not found.loads:
        return
    if all(dim.verdict in LOADS for dim in dims(policy, model, found)):
        yield Way(change, found)
