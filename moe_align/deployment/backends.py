"""What the kernels say where nobody knows which one will run: each that may take the scheme, by itself."""

from __future__ import annotations

from ..errors import PolicyError
from ..facts import Facts
from .outcome import Outcome, outcome

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..models import Model
    from ..policy import Policy


#: Backends that only a low-latency transport of experts leads to.
BATCHED = "batched_"


def over_backends(policy: Policy, model: Model, first: Outcome) -> Outcome:
    """The outcome where the backend is open: that of all kernels, `unknown` where they do not agree.

    Where some load it as it is, so does the answer: engines choose a kernel that can.
    """
    if not _is_open(first):
        return first
    found = list(_each(policy, model, first))
    verdicts = {one.verdict for _, one in found}
    if not verdicts or "native" in verdicts:
        return first
    said = "; ".join(f"{name}: {one.reason or one.verdict}" for name, one in found[:3])
    if len(verdicts) == 1:
        one = found[0][1]
        return one._replace(facts=first.facts, decision=one.decision._replace(backend=None))
    return first._replace(verdict="unknown", reason=f"depends on the backend: {said}")


def _is_open(first: Outcome) -> bool:
    """Whether the answer, or what a kernel demands of it, hangs on a backend that is not known."""
    decision = first.decision
    if decision.status == "undecided":
        return first.verdict == "unknown" and "backend" in decision.open
    if decision.status != "decided" or decision.backend is not None or first.verdict != "native":
        return False
    return any(one.holds is None and one.contract.breaks == "raises" for one in decision.contracts)


def _each(policy: Policy, model: Model, first: Outcome) -> Iterator[tuple[str, Outcome]]:
    for backend in _named(policy, str(first.values.get("scheme"))):
        facts = Facts.of({**dict(first.facts.items()), "backend": backend})
        try:
            yield backend, outcome(policy, facts, model)
        except PolicyError:
            continue


def _named(policy: Policy, scheme: str) -> list[str]:
    """The backends of which a contract says something for this scheme."""
    found: set[str] = set()
    for contract in policy.stack.all_contracts():
        of = {condition.key: condition.accepts for condition in contract.when}
        if not of.keys().isdisjoint(("requested", "vllm", "sglang", "atom", "kernel")):
            continue
        backends, schemes = of.get("backend"), of.get("scheme")
        if isinstance(backends, frozenset) and isinstance(schemes, frozenset) and scheme in schemes:
            found |= {name for name in backends if not name.startswith(BATCHED)}
    return sorted(found)
