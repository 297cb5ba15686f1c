"""What the command line says of a layer → the question: a policy, facts, the model behind them."""

from __future__ import annotations

from typing import NamedTuple

from ..cache import cached_models, cached_policy
from ..errors import PolicyError, Problem, did_you_mean
from ..facts import Facts
from .flags import Said, flag_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..models import Model
    from ..policy import Policy
    from ..vocabulary import Vocabulary


class Question(NamedTuple):
    """A policy and what is given of one layer; `notes` say where that is not just what was written."""

    policy: Policy
    facts: Facts
    model: Model | None
    notes: tuple[str, ...]


#: Facts of a model that a flag on another fact makes void.
_VOID = {
    "scheme": ("method", "block_n", "block_k", "group"),
    "activation": ("gated",),
    "intermediate_per_partition": ("intermediate",),
    "native_intermediate": ("intermediate",),
    "native_hidden": ("hidden",),
}


def question(said: Said) -> Question:
    """The question that flags ask.

    Raises:
        PolicyError: rules or a model that cannot be used, values that are no facts.
    """
    policy = cached_policy(said.rules)
    facts = Facts.of(said.facts)
    _check_capabilities(policy.stack.vocabulary, facts)
    if said.model is None:
        return Question(policy, facts, None, ())
    model = find(said.model)
    vocabulary = policy.stack.vocabulary
    notes = (*_overruled(vocabulary, model, facts), *model.notes)
    return Question(policy, with_model(vocabulary, facts, model), model, notes)


def _check_capabilities(vocabulary: Vocabulary, facts: Facts) -> None:
    """Refuse capabilities that no pack declares: no rule could look at them.

    Raises:
        PolicyError: naming each, with the nearest that there is.
    """
    declared = [key for key in vocabulary.terms if key.startswith("has.")]
    problems = []
    for key in facts:
        if key.startswith("has.") and key not in declared:
            near = did_you_mean(key, declared)
            fix = f"write `{near[4:]}`" if near else None
            problems.append(Problem("U004", f"no pack knows the capability `{key[4:]}`", fix))
    if problems:
        raise PolicyError(problems)


def find(name: str) -> Model:
    """The model of a path, or the known one of that name.

    Raises:
        PolicyError: no such model, or a config that cannot be used.
    """
    import os

    if os.path.exists(name) or name.endswith(".json"):
        from pathlib import Path

        from ..models import read_model

        return read_model(Path(name))
    from ..models import find_model

    return find_model(cached_models(), name)


def with_model(vocabulary: Vocabulary, facts: Facts, model: Model) -> Facts:
    """The facts with those of the model that they leave open."""
    known = _named(vocabulary, model)
    for key, others in _VOID.items():
        if key in facts and not _same(vocabulary, key, facts.get(key), known.get(key)):
            known = {name: value for name, value in known.items() if name not in others}
    return Facts.of({**known, **dict(facts.items())})


def _named(vocabulary: Vocabulary, model: Model) -> dict[str, object]:
    """The model's facts; a model type at which no rule looks is any other one."""
    known: dict[str, object] = dict(model.facts())
    model_type = known.get("model_type")
    if model_type is not None and vocabulary.members("model_type", str(model_type)) is None:
        del known["model_type"]
    return known


def _same(vocabulary: Vocabulary, key: str, one: object, other: object) -> bool:
    """Whether two names mean one value."""
    if one == other:
        return True
    meant = [vocabulary.members(key, str(name).lower()) for name in (one, other)]
    return meant[0] is not None and meant[1] is not None and not meant[0].isdisjoint(meant[1])


def _overruled(vocabulary: Vocabulary, model: Model, facts: Facts) -> Iterator[str]:
    for key, value in model.facts().items():
        said = facts.get(key)
        if said is not None and not _same(vocabulary, key, said, _text(value)):
            yield f"{flag_name(key)} {said}, though {model.name} has {_text(value)}"


def _text(value: object) -> object:
    return str(value).lower() if isinstance(value, bool) else value


def explained(fault: PolicyError, asked: Question) -> PolicyError:
    """A contradiction of facts, with the facts that came from the model."""
    if asked.model is None:
        return fault
    said = ", ".join(f"{key} {_text(value)}" for key, value in _worth_saying(asked.model.facts()))
    return PolicyError(
        problem._replace(fix="; ".join(filter(None, (problem.fix, f"{asked.model.name} has {said}"))))
        for problem in fault.problems
    )


def _worth_saying(facts: Mapping[str, object]) -> list[tuple[str, object]]:
    return [
        (key, value)
        for key, value in facts.items()
        if key in ("scheme", "method", "activation", "gated", "bias")
    ]
