"""What is said of a deployment → the question: the facts of its model under those that were given."""

from __future__ import annotations

from ..errors import PolicyError, Problem
from ..facts import FIRST_SIZES, SIZES, Facts
from ..models import Model

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ..vocabulary import Vocabulary

#: Facts of a model that another value of a fact makes void.
_VOID = {
    "scheme": ("method", "block_n", "block_k", "group"),
    "activation": ("gated",),
    "intermediate_per_partition": ("intermediate",),
    "native_intermediate": ("intermediate",),
    "native_hidden": ("hidden",),
}

#: What a model is called that is known by its sizes alone.
SIZES_ALONE = "these sizes"


def find(name: str) -> Model:
    """The model of a path, the known one of that name, or that of a hub id.

    Raises:
        PolicyError: no such model, or a config that cannot be used.
    """
    import os

    if os.path.exists(name) or name.endswith(".json"):
        from pathlib import Path

        from ..models import read_model

        return read_model(Path(name))
    from ..cache import cached_models
    from ..models import find_model

    try:
        return find_model(cached_models(), name)
    except PolicyError as fault:
        if name.count("/") != 1:
            raise
        return _from_hub(name, fault)


def _from_hub(name: str, fault: PolicyError) -> Model:
    """The model of a hub id, through `huggingface_hub` where it is installed.

    Raises:
        PolicyError: it is not installed, there is no network, or the hub has no such model.
    """
    try:
        from huggingface_hub import hf_hub_download
    except ImportError:
        fix = f"{_fix_of(fault)}; or install `moe-align[hub]` to ask the hub"
        raise PolicyError([problem._replace(fix=fix) for problem in fault.problems]) from None
    from pathlib import Path

    from ..models import read_model

    try:
        path = hf_hub_download(name, "config.json")
    # The hub's client raises what its HTTP library raises: there is no common type.
    except Exception as why:
        said = f"the hub gave no config of `{name}`: {_first_line(why)}"
        fix = "check the name and the network, or give a `config.json`"
        raise PolicyError([Problem("M011", said, fix)]) from None
    return read_model(Path(path), name)


def _fix_of(fault: PolicyError) -> str:
    return fault.problems[0].fix or "give a `config.json`"


def _first_line(fault: Exception) -> str:
    return next(iter(str(fault).strip().splitlines()), type(fault).__name__)


def of_sizes(facts: Facts) -> Model:
    """A model of which the facts say all that is known.

    Raises:
        PolicyError: they do not say how wide its experts are.
    """
    hidden = _whole(facts.get("hidden")) or _whole(facts.get("native_hidden"))
    sized = any(facts.get(key) is not None for key in ("intermediate", SIZES[1], *FIRST_SIZES))
    if not sized:
        fix = "name a model, or give `--hidden --intermediate --experts`"
        raise PolicyError([Problem("M012", "no model and no sizes: there is nothing to check", fix)])
    return Model(
        SIZES_ALONE,
        hidden_size=hidden,
        moe_intermediate_size=_whole(facts.get("intermediate")),
        num_experts=_whole(facts.get("experts")),
    )


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


def overruled(vocabulary: Vocabulary, model: Model, facts: Facts) -> Iterator[str]:
    """One sentence for each fact that was given otherwise than the model has it."""
    for key, value in model.facts().items():
        said = facts.get(key)
        if said is not None and not _same(vocabulary, key, said, _text(value)):
            yield f"--{key.replace('_', '-')} {said}, though {model.name} has {_text(value)}"


def _text(value: object) -> object:
    return str(value).lower() if isinstance(value, bool) else value


def explained(fault: PolicyError, model: Model | None) -> PolicyError:
    """A contradiction of facts, with the facts that came from the model."""
    if model is None:
        return fault
    said = ", ".join(f"{key} {_text(value)}" for key, value in _worth_saying(model.facts()))
    return PolicyError(
        problem._replace(fix="; ".join(filter(None, (problem.fix, f"{model.name} has {said}"))))
        for problem in fault.problems
    )


def _worth_saying(facts: Mapping[str, object]) -> list[tuple[str, object]]:
    return [
        (key, value)
        for key, value in facts.items()
        if key in ("scheme", "method", "activation", "gated", "bias")
    ]


#: Engines that spread experts over all ranks where expert parallelism is on, whatever number is said.
_ALL_RANKS = frozenset({"vllm", "atom"})


def spread(given: Mapping[str, object]) -> dict[str, object]:
    """Facts as they were given, with `ep` as a number where it was said to be on or off."""
    facts = dict(given)
    if facts.get("ep") is False:
        facts["ep"] = 1
    elif facts.get("ep") is True:
        facts["ep"] = all_ranks(facts)
    return facts


def all_ranks(facts: Mapping[str, object]) -> int:
    """The ranks over which the engine spreads experts where expert parallelism is on."""
    counted: Iterable[str] = ("tp",)
    if str(facts.get("engine") or "vllm").lower() in _ALL_RANKS:
        counted = ("tp", "dp", "pcp")
    ranks = 1
    for key in counted:
        ranks *= _whole(facts.get(key)) or 1
    return ranks


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) else None
