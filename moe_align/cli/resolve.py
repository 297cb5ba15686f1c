"""`resolve`: what is allocated, by which rule, what that costs, and what would change it."""

from __future__ import annotations

import typer

from ..cost import layer_cost
from ..deployment.question import explained, with_model
from ..errors import PolicyError
from ..facts import SIZES, VERSIONS, Facts
from ..flow import entering
from ..known import known
from ..report import json_text
from ..report.resolve import Answer, ModelCost, is_yes, resolve_plain, resolve_text
from ..resolve import NO, verdict
from .asking import Question, question
from .flags import Json, Said, about_layer
from .terminal import note, say, style

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..decision import Decision, Difference
    from ..known import Known
    from ..models import Model
    from ..versions import VersionSet

EXAMPLE = "moe-align resolve --backend aiter_bf16 --act silu --tp 8"

#: So many alternatives get a column of their own beside the known models: one fits into 80 columns.
_MOST_COLUMNS = 1


@about_layer
def command(said: Said, *, json: Json = False) -> None:
    """What is allocated, by which rule, at what cost."""
    asked = question(said)
    answer = answer_of(asked, models=not json)
    if json:
        for text in answer.notes:
            note(f"note: {text}")
        say(json_text(resolve_plain(answer, asked.policy.digest)))
    else:
        say(resolve_text(answer, style()))
    raise typer.Exit(0 if is_yes(answer.decision) else 1)


def answer_of(asked: Question, *, models: bool) -> Answer:
    """All that is said about a question; with `models`, what it costs too.

    Raises:
        PolicyError: names that no pack declares, facts that contradict each other.
    """
    policy, facts = asked.policy, asked.facts
    try:
        decision = policy.resolve(facts)
        differences = _possible(policy.differences(facts), decision) if decision.status == "decided" else ()
        state = known(policy.stack.vocabulary, facts)
    except PolicyError as fault:
        raise explained(fault, asked.model) from None
    values = state.values
    answer = Answer(
        decision,
        differences,
        values,
        _covered(asked, state),
        [layer.name for layer in policy.stack.layers],
        (*decision.notes, *asked.notes),
    )
    if decision.status != "decided" or not models:
        return answer
    if any(key in facts for key in (*SIZES, "intermediate", "native_hidden", "native_intermediate")):
        return answer._replace(
            asked=_of_question(asked, decision, values),
            then_bytes=[_created(asked, facts, other, asked.model) for other in differences],
        )
    return _with_models(asked, answer)


def _possible(differences: tuple[Difference, ...], decision: Decision) -> tuple[Difference, ...]:
    """The differences that can be, those alike as one.

    There is no transport of experts where no experts are spread.
    """
    spread = decision.implied.get("moe_ep", 1) != 1
    alike: dict[tuple[str, str], Difference] = {}
    for other in differences:
        if other.key == "all2all" and not spread:
            continue
        before = alike.setdefault((other.key, other.then), other)
        if before is not other:
            accepts = before.accepts | other.accepts  # type: ignore[operator]  # sets of one key's sort
            alike[other.key, other.then] = before._replace(accepts=accepts, values=str(accepts))
    return tuple(alike.values())


def _covered(asked: Question, state: Known) -> dict[str, VersionSet]:
    """The releases of which the rules for this question speak: in every phase, one pack or another."""
    covered: dict[str, VersionSet] = {}
    flow = entering(state)
    # Nothing is selected where the backend is given, and nobody waits for the launch to know a size.
    unasked = {"launch", "select"} if "backend" in state.given else {"launch"}
    for phase, packs in asked.policy.stack.phases.items():
        of_phase: dict[str, VersionSet] = {}
        for pack in packs:
            if phase in unasked or verdict(pack.needs, (), state, flow)[0] is NO:
                continue
            for key, accepts, _ in pack.covers:
                of_phase[key] = of_phase[key] | accepts if key in of_phase else accepts  # type: ignore[operator,assignment]
        for key, releases in of_phase.items():
            covered[key] = covered[key] & releases if key in covered else releases
    return covered


def _of_question(asked: Question, decision: Decision, values: Mapping[str, object]) -> ModelCost | None:
    model = asked.model
    cost = layer_cost(decision, values, zero_points=bool(model and model.zero_points))
    if model is None and cost is None:
        return None
    name, layers = (model.name, model.moe_layers) if model else ("these sizes", None)
    return ModelCost(name, layers, *_split(values), decision, cost)


def _split(values: Mapping[str, object]) -> tuple[int | None, int]:
    whole, ranks = values.get("intermediate"), values.get("moe_tp")
    return whole if isinstance(whole, int) else None, ranks if isinstance(ranks, int) else 1


def _created(asked: Question, facts: Facts, other: Difference, model: Model | None) -> int | None:
    """What a layer takes when it is created, where one of the assumptions is another."""
    changed = Facts.of({**dict(facts.items()), other.key: _member(other)})
    try:
        values = known(asked.policy.stack.vocabulary, changed).values
        cost = layer_cost(
            asked.policy.resolve(changed), values, zero_points=bool(model and model.zero_points)
        )
    except PolicyError:
        return None
    return cost.created if cost else None


def _member(other: Difference) -> object:
    """One of the values that make the difference."""
    if isinstance(other.accepts, frozenset):
        return min(other.accepts)
    if other.key in VERSIONS:
        from ..versions import key_text

        return key_text(other.accepts.intervals[-1][0])  # type: ignore[union-attr]
    return other.accepts.witness()


def _with_models(asked: Question, answer: Answer) -> Answer:
    """The answer with the known models that it is about, and an alternative for each."""
    columns: dict[str, Difference] = {}
    for other in answer.differences:
        if other.then.startswith(("×", "hidden", "native")):
            columns.setdefault(other.then, other)
    chosen = dict(list(columns.items())[:_MOST_COLUMNS])
    found = [
        _model_cost(asked, model, facts, list(chosen.values())) for model, facts in _fitting(asked, answer)
    ]
    shown = sorted((one for one in found if one is not None), key=_size, reverse=True)
    return answer._replace(alternatives=list(chosen), models=shown)


def _size(one: ModelCost) -> tuple[int, str]:
    return (one.cost.created * (one.layers or 0) if one.cost else 0), one.name


def _fitting(asked: Question, answer: Answer) -> Iterator[tuple[Model, Facts]]:
    """The known models that have the scheme and activation of the question, with the facts of each."""
    from ..cache import cached_models

    scheme = answer.values.get("scheme")
    if scheme is None:
        return
    vocabulary = asked.policy.stack.vocabulary
    settled = {key: value for key, value in answer.values.items() if key not in answer.decision.assumed}
    for model in cached_models():
        facts = model.facts()
        if facts.get("scheme") != scheme or not {"hidden", "intermediate", "experts"} <= facts.keys():
            continue
        if all(_agrees(settled, key, value) for key, value in facts.items()):
            yield model, with_model(vocabulary, asked.facts, model)


def _agrees(settled: Mapping[str, object], key: str, value: object) -> bool:
    return key not in settled or str(settled[key]).lower() == str(value).lower()


def _model_cost(asked: Question, model: Model, facts: Facts, others: list[Difference]) -> ModelCost | None:
    # A model whose facts no rule knows, or that contradict what is asked, is none of this answer.
    try:
        decision = asked.policy.resolve(facts)
        values = known(asked.policy.stack.vocabulary, facts).values
    except PolicyError:
        return None
    if decision.status not in ("decided", "rejected"):
        return None
    cost = layer_cost(decision, values, zero_points=model.zero_points)
    created = tuple(_created(asked, facts, other, model) for other in others)
    return ModelCost(model.name, model.moe_layers, *_split(values), decision, cost, created)
