"""The dimensions of a model on one rank: routed experts, their number, shared and dense MLPs."""

from __future__ import annotations

from ..facts import Facts
from ..parallel import even_experts, vllm_experts
from ..record import NamedTuple
from .outcome import Outcome, grows, tried, whole

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..models import Model
    from ..policy import Policy

#: The method under which packs say what an engine demands of linear layers: dense and shared MLPs.
LINEAR = "linear"

#: The facts of a deployment that hold for linear layers too.
_SHARED_FACTS = (
    *("engine", "scheme", "platform", "arch", "backend", "tp", "block_n", "block_k", "group"),
    *("vllm", "sglang", "atom", "hidden"),
)


class Dim(NamedTuple):
    """One dimension of the model on one rank, in elements (or experts), with the rule that decides it.

    `native` of `whole` is the share of one of `ranks`. `unit` is the block or group that no shard may
    cut, where there is one; `resident` is what stays once weights are loaded.
    """

    name: str
    whole: int | None
    ranks: int
    native: int | None
    allocated: int | None
    verdict: str
    rule: str | None
    reason: str | None = None
    unit: int | None = None
    resident: int | None = None


def dims(policy: Policy, model: Model, first: Outcome) -> tuple[Dim, ...]:
    """Every dimension of `model` under the outcome of its routed experts."""
    return tuple(_dims(policy, model, first))


def _dims(policy: Policy, model: Model, first: Outcome) -> Iterator[Dim]:
    yield _hidden(model, first)
    yield _intermediate(first)
    yield from _experts(first)
    listed = (
        ("shared.intermediate", model.shared_expert_intermediate_size),
        ("dense.intermediate", model.dense_intermediate_size),
    )
    for name, width in listed:
        if width and not (name == "shared.intermediate" and whole(first.values.get("fused_shared_experts"))):
            yield _linear(policy, name, width, first)


def _hidden(model: Model, first: Outcome) -> Dim:
    latent = model.expert_hidden_size is not None and model.expert_hidden_size != model.hidden_size
    size = first.decision.hidden
    about = first.verdict in ("reject", "unsafe") and _is_about(first, "hidden")
    verdict = first.verdict if about else "pad" if grows(size) else "native"
    name = "routed.latent" if latent else "routed.hidden"
    return Dim(
        name=name,
        whole=size.native,
        ranks=1,
        native=size.native,
        allocated=size.allocated,
        verdict=verdict,
        rule=first.rule if about and first.rule else first.decision.rule,
        reason=first.reason if about else None,
        resident=size.resident,
    )


def _intermediate(first: Outcome) -> Dim:
    decision, values = first.decision, first.values
    size, ranks = decision.intermediate, whole(values.get("moe_tp")) or 1
    verdict = first.verdict
    if (verdict in ("reject", "unsafe") and _is_about(first, "hidden")) or (
        verdict == "pad" and not grows(size)
    ):
        verdict = "native"
    reason = first.reason if verdict in ("reject", "unsafe", "unknown") else None
    return Dim(
        name="routed.intermediate",
        whole=whole(values.get("intermediate")),
        ranks=ranks,
        native=size.native,
        allocated=size.allocated,
        verdict=verdict,
        rule=first.rule or decision.rule,
        reason=reason,
        unit=unit_of(values),
        resident=size.resident,
    )


def _is_about(first: Outcome, name: str) -> bool:
    """Whether a refusal names this dimension first."""
    return (first.reason or "").startswith(f"{name} ")


def unit_of(values: Mapping[str, object]) -> int | None:
    """The block or group of the checkpoint that a shard of the intermediate size should not cut."""
    return whole(values.get("block_n")) or whole(values.get("group"))


def _experts(first: Outcome) -> Iterator[Dim]:
    values = first.values
    experts, ranks = whole(values.get("experts")), whole(values.get("moe_ep")) or 1
    if experts is None:
        return
    redundant = whole(values.get("redundant_experts")) or 0
    try:
        share = _share(values, experts, ranks, redundant)
    except ValueError as fault:
        yield Dim("experts", experts, ranks, experts // ranks, None, "reject", None, str(fault))
        return
    count = first.cost.experts if first.cost else share
    yield Dim("experts", experts, ranks, share, count, "native", None)


def _share(values: Mapping[str, object], experts: int, ranks: int, redundant: int) -> int:
    """The routed experts of the fullest rank.

    Raises:
        ValueError: the engine takes even shares alone, and these are not.
    """
    if values.get("engine") == "vllm":
        eplb = values.get("eplb") == "true"
        return vllm_experts(experts, ranks, 0, redundant=redundant, eplb=eplb).routed
    return even_experts(experts, ranks, 0, redundant=redundant).routed


def _linear(policy: Policy, name: str, size: int, first: Outcome) -> Dim:
    """A dense or shared MLP, which tensor parallelism splits whatever is done with routed experts."""
    ranks = whole(first.values.get("tp")) or 1
    if size % ranks:
        quotient = f"{size} / {ranks} = {size / ranks:.2f}"
        return Dim(name, size, ranks, None, None, "reject", None, f"{quotient} is no whole number")
    unit = whole(first.values.get("block_n"))
    found = _linear_outcome(policy, size, ranks, first)
    if found is None or found.decision.status in ("undecided", "unknown"):
        return Dim(name, size, ranks, size // ranks, size // ranks, "native", None, None, unit)
    decision = found.decision
    allocated = decision.intermediate.allocated
    reason = found.reason if found.verdict == "reject" else None
    return Dim(name, size, ranks, size // ranks, allocated, found.verdict, decision.rule, reason, unit)


def _linear_outcome(policy: Policy, size: int, ranks: int, first: Outcome) -> Outcome | None:
    """What the packs about linear layers say; `None` where there is none: then the split alone is known."""
    facts = {key: first.facts.get(key) for key in _SHARED_FACTS if first.facts.get(key) is not None}
    asked = Facts.of(
        {**facts, "method": LINEAR, "intermediate": size, "moe_tp": ranks, "moe_ep": 1, "ep": 1, "dp": 1}
    )
    if not _is_linear(policy, asked, first):
        return None
    return tried(policy, asked, None)


def _is_linear(policy: Policy, asked: Facts, first: Outcome) -> bool:
    """Whether a pack about linear layers speaks of this engine and scheme."""
    known = {**first.values, **dict(asked.items()), "method": LINEAR}
    return any(
        any(LINEAR in need.accepts for need in pack.needs if need.key == "method")
        and all(str(known.get(need.key)) in need.accepts for need in pack.needs if need.key != "method")
        for pack in policy.stack.phases["allocate"]
    )
