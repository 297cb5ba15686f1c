"""What one deployment of one model gives: the decision, as a verdict with bytes per rank."""

from __future__ import annotations

from ..cost import Cost, layer_cost
from ..decision import decision as made
from ..errors import PolicyError
from ..facts import Facts
from ..known import known
from ..record import NamedTuple
from ..versions import VersionSet, key_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..decision import Decision, Size
    from ..models import Model
    from ..packs import Accepts
    from ..policy import Policy

#: From good to bad. `fallback`: it runs, on another backend than asked for. `unsafe`: it runs and the
#: kernel computes something else than the model. `unknown`: no pack says.
VERDICTS = ("native", "refine", "pad", "fallback", "unknown", "unsafe", "reject")

#: Verdicts of deployments that serve the model as it is.
LOADS = frozenset({"native", "refine", "pad", "fallback"})

#: The platform that is assumed where nothing names one: the one that the engine is mostly run on.
_PLATFORMS = {"atom": "rocm"}


class Outcome(NamedTuple):
    """One deployment's outcome.

    `facts` are all that were used, `values` all that is known, `machine` the platform and architecture
    that had to be assumed. `layers` are the MoE layers that the bytes count, 1 where that is not known.
    `rule` is the contract behind a verdict, where it is none of the decision's own rule.
    """

    verdict: str
    reason: str | None
    facts: Facts
    values: Mapping[str, object]
    decision: Decision
    cost: Cost | None
    layers: int
    machine: Mapping[str, str] | None = None
    rule: str | None = None

    @property
    def loads(self) -> bool:
        return self.verdict in LOADS

    @property
    def native_bytes(self) -> int | None:
        """Bytes per rank of all routed experts without any padding."""
        return self.cost.native * self.layers if self.cost and self.cost.native is not None else None

    @property
    def created_bytes(self) -> int | None:
        """Bytes per rank that the engine allocates before it loads weights."""
        return self.cost.created * self.layers if self.cost else None

    @property
    def resident_bytes(self) -> int | None:
        """Bytes per rank that stay after repacking; what was created where repacking is not known."""
        if self.cost is None:
            return None
        return (self.cost.created if self.cost.resident is None else self.cost.resident) * self.layers


def outcome(policy: Policy, facts: Facts, model: Model | None) -> Outcome:
    """The outcome of one deployment.

    Raises:
        PolicyError: unknown names, contradictions.
    """
    decision, values = _decided(policy, facts)
    machine: dict[str, str] = {}
    platform = _platform(policy, facts, decision)
    if platform is not None:
        machine["platform"] = platform
        facts = facts.having(platform=platform)
        decision, values = _decided(policy, facts)
    arch = _arch(facts, decision, values, policy)
    if arch is not None:
        machine["arch"] = arch
        facts = facts.having(arch=arch)
        decision, values = _decided(policy, facts)
    if decision.status == "undecided":
        decision = _agreed(policy, facts, decision) or decision
    verdict, reason, rule = _verdict(decision, facts)
    layers = (model.moe_layers if model else None) or 1
    cost = None
    if decision.status == "decided":
        cost = layer_cost(decision, values, zero_points=bool(model and model.zero_points))
    return Outcome(verdict, reason, facts, values, decision, cost, layers, machine or None, rule)


def _decided(policy: Policy, facts: Facts) -> tuple[Decision, Mapping[str, object]]:
    """The decision, without a trace, and all that is known of the layer."""
    state = known(policy.stack.vocabulary, facts)
    return made(policy.stack, state, trace=False), state.values


def _platform(policy: Policy, facts: Facts, decision: Decision) -> str | None:
    """The platform that has to be assumed: where the answer, or what a kernel demands, hangs on it."""
    if "platform" in facts or "platform" in decision.implied:
        return None
    usual = usual_platform(facts)
    if decision.status == "undecided":
        return usual if "platform" in decision.open else None
    if all(one.holds is not None for one in decision.contracts):
        return None
    try:
        there = policy.resolve(facts.having(platform=usual), trace=False)
    except PolicyError:
        return None
    return usual if _verdict(there, facts) != _verdict(decision, facts) else None


#: The architecture that is assumed where the answer hangs on it; FP4 weights are for machines that have FP4.
_ARCHES = {"cuda": "sm90", "rocm": "gfx942"}
_FP4_ARCHES = {"rocm": "gfx950"}


def _arch(facts: Facts, decision: Decision, values: Mapping[str, object], policy: Policy) -> str | None:
    """The architecture that has to be assumed, where the answer hangs on it and an assumption settles it."""
    if decision.status != "undecided" or "arch" not in decision.open or "arch" in facts:
        return None
    platform = str(values.get("platform"))
    usual = _FP4_ARCHES if values.get("scheme") == "mxfp4" else {}
    arch = usual.get(platform) or _ARCHES.get(platform)
    if arch is None or _agreed(policy, facts, decision) is not None:
        return None
    return None if policy.resolve(facts.having(arch=arch), trace=False).status == "undecided" else arch


def usual_platform(facts: Facts) -> str:
    """The platform on which such a deployment mostly runs."""
    if str(facts.get("requested")).startswith("aiter"):
        return "rocm"
    return _PLATFORMS.get(str(facts.get("engine")), "cuda")


#: So many parts of what is open are looked at one by one.
_MOST_PARTS = 24


def _agreed(policy: Policy, facts: Facts, decision: Decision) -> Decision | None:
    """What all parts of the open facts have in common, where they allocate the same sizes.

    They may still differ in what repacking makes of scales, and in the backend: that stays open.
    """
    parts = [_part(policy, facts, one.accepts) for one in decision.alternatives[:_MOST_PARTS]]
    first = parts[0] if parts else None
    if first is None or len(decision.alternatives) > _MOST_PARTS:
        return None
    if any(one is None or _sizes(one) != _sizes(first) for one in parts):
        return None
    loaded = all(one is not None and _loaded(one) == _loaded(first) for one in parts)
    return first._replace(
        backend=None,
        rule=None,
        contracts=(),
        hidden=first.hidden if loaded else first.hidden._replace(resident=None),
        intermediate=first.intermediate if loaded else first.intermediate._replace(resident=None),
        rows=(),
        columns=(),
    )


def _part(policy: Policy, facts: Facts, where: Mapping[str, Accepts]) -> Decision | None:
    """The decision in one part of the open facts, where one value of each settles it."""
    chosen = {key: member(accepts) for key, accepts in where.items()}
    try:
        found = policy.resolve(Facts.of({**dict(facts.items()), **chosen}), trace=False)
    except PolicyError:
        return None
    return found if found.status == "decided" else None


def _sizes(decision: Decision) -> object:
    hidden, intermediate = decision.hidden, decision.intermediate
    return hidden.allocated, intermediate.allocated, decision.blocks, decision.storage, decision.experts


def _loaded(decision: Decision) -> object:
    return decision.hidden.resident, decision.intermediate.resident


def member(accepts: Accepts) -> object:
    """One of the values: of releases the last one's first."""
    if isinstance(accepts, frozenset):
        return min(accepts)
    if isinstance(accepts, VersionSet):
        return key_text(accepts.intervals[-1][0])
    return accepts.witness()


def tried(policy: Policy, facts: Facts, model: Model | None) -> Outcome | None:
    """The outcome, or `None` where the facts contradict each other."""
    try:
        return outcome(policy, facts, model)
    except PolicyError:
        return None


def whole(value: object) -> int | None:
    """A value where it is a whole number."""
    return value if isinstance(value, int) else None


def _verdict(decision: Decision, facts: Facts) -> tuple[str, str | None, str | None]:
    """The verdict, its reason, and the contract behind it."""
    if decision.status == "rejected":
        return "reject", decision.reason, None
    if decision.status == "undecided":
        return (*_undecided(decision), None)
    if decision.status == "unknown":
        return "unknown", decision.reason, None
    for breaks, verdict in (("raises", "reject"), ("silent", "unsafe")):
        broken = next(
            (one for one in decision.contracts if one.holds is False and one.contract.breaks == breaks), None
        )
        if broken is not None:
            return verdict, f"{broken.said}: {broken.contract.why}", broken.contract.address
    if _fell_back(decision, facts):
        return "fallback", f"{facts.get('requested')} was asked for, and {decision.backend} runs", None
    if decision.blocks and any(facts.get(name) not in (None, size) for name, size in decision.blocks):
        return "refine", None, None
    return ("pad" if _grown(decision) else "native"), None, None


#: What the name of a backend has in it where it is the one that was asked for.
_FAMILIES = {
    "aiter": "aiter",
    "deep_gemm": "deepgemm",
    "flashinfer_cutlass": "cutlass",
    "flashinfer_trtllm": "trtllm",
    "marlin": "marlin",
    "triton": "triton",
}


def _fell_back(decision: Decision, facts: Facts) -> bool:
    """Whether another kernel runs than was asked for."""
    family = _FAMILIES.get(str(facts.get("requested")))
    return family is not None and decision.backend is not None and family not in decision.backend


def _grown(decision: Decision) -> bool:
    wider = any(grows(size) for size in (decision.hidden, decision.intermediate))
    return wider or any(not stride for _, _, stride in decision.storage)


def grows(size: Size) -> bool:
    """Whether a dimension is padded, when it is allocated or once weights are loaded."""
    widest = max(size.allocated or 0, size.resident or 0)
    return size.native is not None and widest > size.native


def _undecided(decision: Decision) -> tuple[str, str | None]:
    """One verdict where every part of what is open has it, else `unknown`."""
    parts = decision.alternatives
    if parts and all(part.status == "rejected" for part in parts):
        return "reject", parts[0].then.removeprefix("rejected: ")
    said = "; ".join(f"{_where(part.where)} → {part.then}" for part in parts[:4])
    more = f"; and {len(parts) - 4} more" if len(parts) > 4 else ""
    return "unknown", f"{decision.reason}: {said}{more}"


def _where(where: Mapping[str, str]) -> str:
    return ", ".join(f"{key} {values}" for key, values in where.items())
