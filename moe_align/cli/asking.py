"""What the command line says of a layer → the question: a policy, facts, the model behind them."""

from __future__ import annotations

from typing import NamedTuple

from ..cache import cached_policy
from ..deployment.question import find, overruled, with_model
from ..errors import PolicyError, Problem, did_you_mean
from ..facts import Facts
from .flags import Said

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..models import Model
    from ..policy import Policy
    from ..vocabulary import Vocabulary


class Question(NamedTuple):
    """A policy and what is given of one layer; `notes` say where that is not just what was written."""

    policy: Policy
    facts: Facts
    model: Model | None
    notes: tuple[str, ...]


def question(said: Said) -> Question:
    """The question that flags ask.

    Raises:
        PolicyError: rules or a model that cannot be used, values that are no facts.
    """
    policy = cached_policy(said.rules)
    facts = Facts.of(said.facts)
    check_capabilities(policy.stack.vocabulary, facts)
    if said.model is None:
        return Question(policy, facts, None, ())
    model = find(said.model)
    vocabulary = policy.stack.vocabulary
    notes = (*overruled(vocabulary, model, facts), *model.notes)
    return Question(policy, with_model(vocabulary, facts, model), model, notes)


def check_capabilities(vocabulary: Vocabulary, facts: Facts) -> None:
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
