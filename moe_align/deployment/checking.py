"""Will it load: the verdict for one deployment, per dimension, with what else could be done."""

from __future__ import annotations

from ..errors import PolicyError
from ..facts import VERSIONS, Facts
from ..models import Model
from ..record import NamedTuple
from .backends import over_backends
from .dims import Dim, dims
from .outcome import LOADS, VERDICTS, Outcome, outcome
from .question import explained, find, of_sizes, overruled, spread, with_model
from .ways import Scenario, Way, scenarios, ways

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Unpack

    from ..facts import Given
    from ..policy import Policy

#: The code of parallel sizes that an engine does not have: an answer, not a wrong question.
PARALLEL = "F022"

#: Facts that are said to one engine alone.
_OF_ONE_ENGINE = frozenset({"engine", "backend", "requested", "method", "kernel", "all2all", *VERSIONS})


class Report(NamedTuple):
    """The answer to one deployment of one model. `verdict` is the worst of `dims`.

    `others` are what the other engines make of the same deployment, `notes` what is to be said of
    the facts themselves.
    """

    model: Model
    verdict: str
    outcome: Outcome
    dims: tuple[Dim, ...]
    scenarios: tuple[Scenario, ...] = ()
    ways: tuple[Way, ...] = ()
    others: tuple[Report, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def loads(self) -> bool:
        return self.verdict in LOADS

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why it does not load as it is: one sentence for each dimension that says no."""
        said = [f"{dim.name}: {dim.reason}" for dim in self.dims if dim.reason]
        return tuple(dict.fromkeys(said or [one for one in (self.outcome.reason,) if one]))


def check(
    model: Model | str | None = None, *, policy: Policy | None = None, **given: Unpack[Given]
) -> Report:
    """The verdict for `model` (a name, a path, or what is known of one) deployed as the facts say.

    Without a model the facts say its sizes. `ep` may be `True`: over all ranks of the engine.

    Raises:
        PolicyError: no such model, unknown names, contradictions.
    """
    if policy is None:
        from ..cache import cached_policy

        policy = cached_policy()
    facts = Facts.of(spread(given))
    return asked(policy, model, facts)


def asked(policy: Policy, model: Model | str | None, facts: Facts) -> Report:
    """The verdict for a model by its name or as it is, with what is to be said of the facts.

    Raises:
        PolicyError: as `check`.
    """
    if model is None:
        model = of_sizes(facts)
    elif isinstance(model, str):
        model = find(model)
    vocabulary = policy.stack.vocabulary
    notes = (*overruled(vocabulary, model, facts), *model.notes)
    known = with_model(vocabulary, facts, model)
    try:
        return checked(policy, model, known)._replace(notes=notes)
    except PolicyError as fault:
        if [problem.code for problem in fault.problems] != [PARALLEL]:
            raise explained(fault, model) from None
        return _unexpressed(policy, model, known, fault.problems[0].message)._replace(notes=notes)


def _unexpressed(policy: Policy, model: Model, facts: Facts, reason: str) -> Report:
    """The answer where the engine does not have such parallel sizes: refused, with ways out.

    Raises:
        PolicyError: as `check`.
    """
    ranks = facts.get("ep")
    first = outcome(policy, facts.without("ep"), model)
    size = model.num_experts
    refused = Dim("experts", size, ranks if isinstance(ranks, int) else 1, None, None, "reject", None, reason)
    return Report(model, "reject", first, (refused,), (), ways(policy, model, first, "reject"))


def checked(policy: Policy, model: Model, facts: Facts, *, alone: bool = False) -> Report:
    """The verdict for `model` where `facts` hold what the model says; `alone` leaves out all else.

    Raises:
        PolicyError: unknown names, contradictions.
    """
    first = over_backends(policy, model, outcome(policy, facts, model))
    found = dims(policy, model, first)
    verdict = max((first.verdict, *(dim.verdict for dim in found)), key=VERDICTS.index)
    if alone:
        return Report(model, verdict, first, found)
    return Report(
        model,
        verdict,
        first,
        found,
        scenarios(policy, model, first),
        ways(policy, model, first, verdict) if verdict != "native" else (),
        _others(policy, model, first) if verdict != "native" else (),
    )


def _others(policy: Policy, model: Model, first: Outcome) -> tuple[Report, ...]:
    """What the other engines make of the same deployment, where their packs say."""
    engine = first.values.get("engine")
    kept = {
        key: value
        for key, value in first.facts.items()
        if key not in _OF_ONE_ENGINE and not key.startswith("env.")
    }
    for key in first.machine or ():
        del kept[key]
    found = []
    for other in sorted(policy.stack.vocabulary.domain("engine") - {str(engine)}):
        facts = Facts.of({**kept, "engine": other})
        try:
            one = checked(policy, model, with_model(policy.stack.vocabulary, facts, model), alone=True)
        except PolicyError:
            continue
        if one.verdict != "unknown" or one.outcome.decision.status == "undecided":
            found.append(one)
    return tuple(found)
