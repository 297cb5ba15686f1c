"""What one deployment of one model gives: the decision, as a verdict with bytes per rank."""

from __future__ import annotations

from ..cost import Cost, layer_cost
from ..errors import PolicyError
from ..facts import Facts
from ..known import known
from ..record import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..decision import Decision, Size
    from ..models import Model
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

    `facts` are all that were used, `values` all that is known, `assumed_platform` the platform that
    had to be assumed. `layers` are the MoE layers that the bytes count, 1 where that is not known.
    `rule` is the contract behind a verdict, where it is none of the decision's own rule.
    """

    verdict: str
    reason: str | None
    facts: Facts
    values: Mapping[str, object]
    decision: Decision
    cost: Cost | None
    layers: int
    assumed_platform: str | None = None
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
    decision = policy.resolve(facts)
    assumed = None
    if decision.status == "undecided" and "platform" not in facts and "platform" in decision.open:
        assumed = _PLATFORMS.get(str(facts.get("engine")), "cuda")
        facts = facts.having(platform=assumed)
        decision = policy.resolve(facts)
    values = known(policy.stack.vocabulary, facts).values
    verdict, reason, rule = _verdict(decision, facts)
    layers = (model.moe_layers if model else None) or 1
    cost = None
    if decision.status == "decided":
        cost = layer_cost(decision, values, zero_points=bool(model and model.zero_points))
    return Outcome(verdict, reason, facts, values, decision, cost, layers, assumed, rule)


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
    if decision.blocks and any(facts.get(name) not in (None, size) for name, size in decision.blocks):
        return "refine", None, None
    return ("pad" if _grown(decision) else "native"), None, None


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
