"""Will it load: the verdict for one deployment, per dimension, with what else could be done."""

from __future__ import annotations

from ..facts import Facts
from ..record import NamedTuple
from .outcome import VERDICTS, Outcome, outcome, tried

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..decision import Decision, Size
    from ..models import Model
    from ..policy import Policy

#: The method under which packs say what an engine demands of linear layers: dense and shared experts.
LINEAR = "linear"

#: Tensor-parallel sizes that are tried as ways out.
_SIZES = (1, 2, 4, 8, 16, 32, 64)


class Dim(NamedTuple):
    """One dimension of the model on one rank, in elements (or experts), with the rule that decides it."""

    name: str
    whole: int | None
    ranks: int
    native: int | None
    allocated: int | None
    verdict: str
    rule: str | None
    reason: str | None = None


class Way(NamedTuple):
    """A change to the deployment, as flags of the engine, and what it gives."""

    change: str
    outcome: Outcome


class Scenario(NamedTuple):
    """What one assumption gives if it is another: values of `key`, and their outcome."""

    key: str
    values: str
    outcome: Outcome


class Report(NamedTuple):
    """The answer to one deployment of one model. `verdict` is the worst of `dims`."""

    model: Model
    verdict: str
    outcome: Outcome
    dims: tuple[Dim, ...]
    scenarios: tuple[Scenario, ...]
    ways: tuple[Way, ...]

    @property
    def loads(self) -> bool:
        return self.outcome.loads and self.verdict == self.outcome.verdict

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why it does not load as it is: one sentence for each dimension that says no."""
        said = [self.outcome.reason, *(f"{dim.name}: {dim.reason}" for dim in self.dims if dim.reason)]
        return tuple(dict.fromkeys(one for one in said if one))


def check(policy: Policy, model: Model, facts: Facts) -> Report:
    """The verdict for `model` deployed as `facts` say; `facts` already hold what the model says.

    Raises:
        PolicyError: unknown names, contradictions.
    """
    first = outcome(policy, facts, model)
    dims = tuple(_dims(policy, model, first))
    verdict = max((first.verdict, *(dim.verdict for dim in dims)), key=VERDICTS.index)
    return Report(
        model,
        verdict,
        first,
        dims,
        tuple(_scenarios(policy, first, model)),
        _ways(policy, model, first, verdict) if verdict not in ("native", "refine") or first.verdict == "refine" else (),
    )


def _dims(policy: Policy, model: Model, first: Outcome) -> Iterator[Dim]:
    decision, values = first.decision, first.values
    ranks = _whole(values.get("moe_tp")) or 1
    if decision is not None:
        latent = model.expert_hidden_size is not None and model.expert_hidden_size != model.hidden_size
        name = "routed.latent" if latent else "routed.hidden"
        yield _routed(name, decision.hidden, None, 1, decision, first)
        yield _routed("routed.intermediate", decision.intermediate, _whole(values.get("intermediate")), ranks, decision, first)
    yield from _experts(model, first)
    for name, size in (("shared.intermediate", model.shared_expert_intermediate_size), ("dense.intermediate", model.dense_intermediate_size)):
        if size is not None and not (name == "shared.intermediate" and _fused(first)):
            yield _linear(policy, name, size, first)


def _routed(name: str, size: Size, whole: int | None, ranks: int, decision: Decision, first: Outcome) -> Dim:
    verdict = first.verdict
    if first.verdict in ("pad", "refine", "unsafe"):
        grown = size.native is not None and size.allocated is not None and size.allocated > size.native
        verdict = "pad" if grown else first.verdict if name == "routed.intermediate" and first.verdict == "refine" else "native"
    elif first.verdict in ("reject", "unknown") and name != "routed.intermediate":
        verdict = "native"
    return Dim(name, whole if whole is not None else size.native, ranks, size.native, size.allocated, verdict, decision.rule)


def _experts(model: Model, first: Outcome) -> Iterator[Dim]:
    experts, ranks = model.num_experts, _whole(first.values.get("moe_ep")) or 1
    if experts is None:
        return
    share = first.cost.experts if first.cost else -(-experts // ranks)
    uneven = ranks > 1 and experts % ranks != 0
    reason = f"{experts} / {ranks} leaves {experts % ranks}: the first ranks hold one more" if uneven else None
    yield Dim("experts", experts, ranks, experts // ranks, share, "native", None, reason if uneven and not first.loads else None)


def _fused(first: Outcome) -> bool:
    return bool(_whole(first.values.get("fused_shared_experts")))


def _linear(policy: Policy, name: str, size: int, first: Outcome) -> Dim:
    """A dense or shared expert MLP, which tensor parallelism splits whatever is done with routed experts."""
    ranks = _whole(first.values.get("tp")) or 1
    kept = ("engine", "scheme", "tp", "block_n", "block_k", "group", "vllm", "sglang", "atom", "hidden")
    facts = Facts.of({key: first.facts.get(key) for key in kept if first.facts.get(key) is not None})
    if size % ranks:
        reason = f"{size} / {ranks} = {size / ranks:.2f} is no whole number"
        return Dim(name, size, ranks, None, None, "reject", None, reason)
    asked = facts.having(method=LINEAR, intermediate_per_partition=size // ranks)
    found = tried(policy, Facts.of({**dict(asked.items()), "moe_tp": ranks}), None)
    if found is not None and not _is_linear(policy, found):
        return Dim(name, size, ranks, size // ranks, size // ranks, "native", None)
    if found is None or found.decision is None or found.decision.status != "decided":
        rejected = found is not None and found.verdict == "reject"
        reason = found.reason if rejected and found else None
        rule = found.decision.rule if found and found.decision else None
        return Dim(name, size, ranks, size // ranks, None, "reject" if rejected else "native", rule, reason)
    decision = found.decision
    return Dim(name, size, ranks, size // ranks, decision.intermediate.allocated, found.verdict, decision.rule)


def _is_linear(policy: Policy, found: Outcome) -> bool:
    """Whether a pack about linear layers answered: elsewhere only the split itself is known."""
    rule = found.decision.rule if found.decision else None
    return any(
        rule is not None and rule.startswith(f"{pack.name}/") and any(LINEAR in need.accepts for need in pack.needs if need.key == "method")
        for pack in policy.stack.phases["allocate"]
    )


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) else None


#: Assumptions whose other values are worth a line of their own.
_SCENARIO_KEYS = ("requested", "vllm", "sglang", "atom")


def _scenarios(policy: Policy, first: Outcome, model: Model) -> Iterator[Scenario]:
    """What other requested backends, switches and releases would give: exactly those that differ."""
    if first.decision is None or first.decision.status == "undecided":
        return
    seen = set()
    for other in policy.differences(first.facts):
        if other.key not in _SCENARIO_KEYS and not other.key.startswith("env."):
            continue
        value = _member(other.key, other.accepts)
        found = tried(policy, Facts.of({**dict(first.facts.items()), other.key: value}), model)
        if found is None or found.verdict == "unknown" or (other.key, found.verdict, found.reason) in seen:
            continue
        if other.key == "requested" and found.verdict == "reject":
            continue
        seen.add((other.key, found.verdict, found.reason))
        yield Scenario(other.key, other.values, found)


def _member(key: str, accepts: object) -> object:
    if isinstance(accepts, frozenset):
        return min(accepts)
    from ..versions import VersionSet, key_text

    if isinstance(accepts, VersionSet):
        return key_text(accepts.intervals[-1][0])
    return accepts.witness()  # type: ignore[attr-defined]


def _ways(policy: Policy, model: Model, first: Outcome, verdict: str) -> tuple[Way, ...]:
    """Changes that load, best first: fewer padded bytes before more, then fewer bytes a rank."""
    found = [way for way in _candidates(policy, model, first) if _better(way.outcome, first, verdict)]
    found.sort(key=lambda way: (VERDICTS.index(way.outcome.verdict), way.outcome.resident_bytes or 0))
    return tuple(found[:5])


def _better(other: Outcome, first: Outcome, verdict: str) -> bool:
    if not other.loads:
        return False
    return verdict not in ("native", "refine", "pad", "fallback") or VERDICTS.index(other.verdict) < VERDICTS.index(first.verdict)


def _candidates(policy: Policy, model: Model, first: Outcome) -> Iterator[Way]:
    given = dict(first.facts.items())
    tp, engine = _whole(first.values.get("tp")) or 1, str(first.values.get("engine"))
    ranks = (_whole(first.values.get("dp")) or 1) * (_whole(first.values.get("pcp")) or 1) * tp
    flags = _FLAGS.get(engine, _FLAGS["vllm"])
    if ranks > 1 and first.values.get("ep") == 1:
        yield from _way(policy, model, {**given, "ep": ranks if engine != "sglang" else tp}, flags["ep"].format(tp), tp)
    for size in _SIZES:
        if size != tp and size <= max(tp, 8):
            yield from _way(policy, model, {**given, "tp": size}, flags["tp"].format(size), size)
    for backend in ("marlin", "triton", "flashinfer_trtllm", "flashinfer_cutlass", "aiter"):
        if "backend" not in given and given.get("requested", "auto") != backend:
            yield from _way(policy, model, {**given, "requested": backend}, flags["backend"].format(backend), tp)


#: How each engine is told to do it.
_FLAGS = {
    "vllm": {
        "ep": "--enable-expert-parallel",
        "tp": "--tensor-parallel-size {}",
        "backend": "--moe-backend {}",
    },
    "sglang": {"ep": "--ep-size {}", "tp": "--tp-size {}", "backend": "--moe-runner-backend {}"},
    "atom": {"ep": "--enable-expert-parallel", "tp": "-tp {}", "backend": "--moe-backend {}"},
}


def _way(policy: Policy, model: Model, given: dict[str, object], change: str, tp: int) -> Iterator[Way]:
    found = tried(policy, Facts.of(given), model)
    if found is None or found.verdict == "unknown":
        return
    if all(dim.verdict != "reject" for dim in _dims(policy, model, found)):
        yield Way(change, found)
