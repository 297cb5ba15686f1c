"""What the adapter will not do, and what it makes of a decision: questions with one answer each."""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING, Any

from ...layers import BUILT_IN
from ...layout import SCHEMES
from .methods import STRICT_BACKENDS, STRICT_LAYERS, STRICT_MODELS, entry_of
from .reading import Process, read_layer
from .records import Pair

if TYPE_CHECKING:
    from ...decision import Decision
    from ...policy import Policy

#: The phases whose sizes are those of the weights when they are created.
_ALLOCATING = ("model", "dispatch", "allocate")


def built_in(policy: Policy) -> Policy:
    """The policy without its users' layers. Its vocabulary stays: a name has one meaning in one process."""
    from ...policy import Policy

    stack = policy.stack
    phases = {
        phase: tuple(pack for pack in packs if pack.layer == BUILT_IN)
        for phase, packs in stack.phases.items()
    }
    contracts = tuple(pack for pack in stack.contracts if pack.layer == BUILT_IN)
    layers = tuple(layer for layer in stack.layers if layer.name == BUILT_IN)
    return Policy(stack._replace(phases=phases, contracts=contracts, layers=layers))


def user_rule(policy: Policy, decision: Decision) -> str | None:
    """The address of a user's rule that made or refused the allocated sizes, or may where facts are open."""
    of_users = {
        rule.address
        for phase in _ALLOCATING
        for pack in policy.stack.phases[phase]
        if pack.layer != BUILT_IN
        for rule in pack.rules
    }
    winners = [step.rule.address for step in decision.steps if step.phase in _ALLOCATING]
    winners += [alternative.rule for alternative in decision.alternatives if alternative.rule]
    return next((address for address in (decision.rule, *winners) if address in of_users), None)


def allocated(decision: Decision) -> Pair | None:
    """Both sizes, or None where the decision has none."""
    hidden, intermediate = decision.hidden.allocated, decision.intermediate.allocated
    return None if hidden is None or intermediate is None else (hidden, intermediate)


def broken(decision: Decision, *breaks: str) -> tuple[str, ...]:
    """A sentence for every contract of these kinds (`silent`, `raises`, `slow`) that the decision breaks."""
    return tuple(
        f"{check.contract.address} ({check.contract.breaks}): {check.said}"
        for check in decision.contracts
        if check.holds is False and check.contract.breaks in breaks
    )


def refusal(layer: Any, method: Any, model_type: str | None, given_sizes: Pair) -> str:
    """Why the adapter never changes the sizes of such a layer; empty: it may."""
    entry = entry_of(method)
    if entry is None:
        return f"the quant method {type(method).__name__} is not known"
    if entry.refuses:
        return entry.refuses
    for name in (base.__name__ for base in type(layer).__mro__):
        if name in STRICT_LAYERS:
            return STRICT_LAYERS[name]
    if model_type is not None and model_type in STRICT_MODELS:
        return STRICT_MODELS[model_type]
    given = read_layer(layer, method, given_sizes) or {}
    if given.get("backend") in STRICT_BACKENDS:
        return STRICT_BACKENDS[str(given["backend"])]
    if getattr(layer.moe_config, "tp_shard_with_padding", False):
        return "vLLM cuts ranks by a padded width of its own here"
    if getattr(method, "weight_scale_refine", None) is not None:
        return "vLLM has refined the weight blocks for the native size"
    return ""


def fault(decision: Decision, entering: Pair, process: Process, layer: Any, method: Any) -> str:
    """Why a decision of a user's rule cannot be carried out; empty: it can."""
    sizes = allocated(decision)
    if decision.status != "decided" or sizes is None:
        reason = decision.reason or "it gives no sizes"
        return f"the decision is {decision.status}: {reason}{_alternatives(decision)}"
    for name, native, size in zip(("hidden", "intermediate"), entering, sizes, strict=True):
        if size < native:
            return f"{name} {size} is below the native {native}"
    if process.elastic and sizes != entering:
        return "elastic expert parallelism sets the sizes back to the native ones when it scales"
    return _split_blocks(sizes, entering, layer, method)


def _alternatives(decision: Decision) -> str:
    if not decision.alternatives:
        return ""
    said = (
        f"{', '.join(f'{key} {value}' for key, value in each.where.items())} → {each.then}"
        for each in decision.alternatives
    )
    return f" ({' · '.join(said)})"


def _split_blocks(sizes: Pair, entering: Pair, layer: Any, method: Any) -> str:
    """Blocks and groups must be whole, and those of the checkpoint must not lie on two ranks."""
    given = read_layer(layer, method, entering) or {}
    scheme = SCHEMES.get(str(given.get("scheme")))
    if scheme is None:
        return ""
    rows = int(given.get("block_n", max(scheme.scale_rows, 1)))
    columns = int(given.get("block_k", given.get("group", max(scheme.scale_columns, 1))))
    for block in sorted({rows, columns}):
        for name, size in zip(("hidden", "intermediate"), sizes, strict=True):
            if size % block:
                return f"{name} {size} is not a whole number of blocks of {block}"
        if int(given["moe_tp"]) > 1 and entering[1] % block:
            return f"a rank's {entering[1]} columns do not end on the checkpoint's blocks of {block}"
    return ""


def unseen(model: Any, seen: Container[Any]) -> tuple[str, ...]:
    """Modules that hold expert weights and never passed the seam, each class once with its first place."""
    first: dict[str, str] = {}
    for name, module in model.named_modules():
        kind = type(module).__name__
        lower = f"{name}.{kind}".lower()
        if module in seen or kind in first or not ("expert" in lower or "moe" in lower):
            continue
        if any(parameter.ndim >= 3 for parameter in module.parameters(recurse=False)):
            first[kind] = name
    return tuple(f"{kind} (first at {name})" for kind, name in first.items())


def gate_that_sees_pads(model: Any, records: Any) -> str | None:
    """The first expert runner that holds its router and whose experts got a larger hidden size by a rule."""
    for name, module in model.named_modules():
        experts = getattr(module, "routed_experts", None)
        if experts is None or getattr(module, "gate", None) is None:
            continue
        record = records.get(experts)
        if record is None or not record.applied:
            continue
        if record.allocated[0] > record.entering[0] and not experts.quant_method.skip_forward_padding:
            return str(name)
    return None
