"""What a decision costs: bytes of one layer's experts on the rank that holds the most of them."""

from __future__ import annotations

from .layout import Experts, Repack, expert_bytes, repack_of, resident_bytes
from .record import NamedTuple
from .sizes import ceil_div

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from .decision import Decision


class Cost(NamedTuple):
    """Bytes of one layer on one rank, and the experts that they are for.

    `created` is what the engine allocates before it loads weights, `resident` what stays once it has
    repacked them, `native` what the sizes before padding would take; `None` where that is not known.
    """

    experts: int
    native: int | None
    created: int
    resident: int | None


def layer_cost(decision: Decision, values: Mapping[str, object], *, zero_points: bool = False) -> Cost | None:
    """What the decided sizes cost, or `None` where they, the experts or the storage are not known.

    `values` are all facts that are known of the layer, as `known` gives them.
    """
    hidden, intermediate = decision.hidden, decision.intermediate
    count = rank_experts(decision, values)
    # Bytes between rows are counted once they are there; other bytes that storage gains have no place.
    if count is None or any(
        amount.unit != "elements" and not stride for _, amount, stride in decision.storage
    ):
        return None
    created = _experts(decision, values, count, hidden.allocated, intermediate.allocated, zero_points)
    if created is None:
        return None
    try:
        bytes_created = expert_bytes(created).total
    except ValueError:
        return None
    native = _experts(decision, values, count, hidden.native, intermediate.native, zero_points)
    stays = _experts(decision, values, count, hidden.resident, intermediate.resident, zero_points)
    return Cost(
        count,
        expert_bytes(native).total if native else None,
        bytes_created,
        _resident(decision, values, stays) if stays else None,
    )


def rank_experts(decision: Decision, values: Mapping[str, object]) -> int | None:
    """The experts of the fullest rank: its share of the routed ones with copies, and all fused ones."""
    total, ranks, fused = decision.experts, values.get("moe_ep"), values.get("fused_shared_experts")
    if total is None or not isinstance(ranks, int) or not isinstance(fused, int):
        return None
    copies = _whole(values.get("redundant_experts")) or 0
    return ceil_div(total - fused + copies, ranks) + fused


def _experts(
    decision: Decision,
    values: Mapping[str, object],
    count: int,
    hidden: int | None,
    intermediate: int | None,
    zero_points: bool,
) -> Experts | None:
    scheme, gated = values.get("scheme"), values.get("gated")
    if hidden is None or intermediate is None or not isinstance(scheme, str) or gated is None:
        return None
    blocks = {**values, **dict(decision.blocks)}
    return Experts(
        scheme=scheme,
        num_experts=count,
        hidden_size=hidden,
        intermediate_size=intermediate,
        gated=gated == "true",
        bias=values.get("bias") == "true",
        block=_block(blocks.get("block_n"), blocks.get("block_k")),
        group=_group(blocks.get("group")),
        zero_points=zero_points,
        method=str(values.get("method")),
    )


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _group(elements: object) -> int | None:
    """The group as `layout` counts it: to rules 1 is one scale over a whole row."""
    return -1 if elements == 1 else _whole(elements)


def _block(rows: object, columns: object) -> tuple[int, int] | None:
    return (rows, columns) if isinstance(rows, int) and isinstance(columns, int) else None


def _resident(decision: Decision, values: Mapping[str, object], experts: Experts) -> int | None:
    platform = values.get("platform")
    repack = repack_of(experts.scheme, decision.backend or "", str(platform) if platform else None)
    if repack is None and (decision.rows or decision.columns):
        repack = Repack(_widest(decision.rows), _widest(decision.columns))
    return resident_bytes(experts, repack).total + _between_rows(decision, experts) if repack else None


def _between_rows(decision: Decision, experts: Experts) -> int:
    """Bytes by which rows lie further apart: those of w13 hold the hidden size, those of w2 the other one."""
    rows = {"hidden": experts.shards * experts.intermediate_size, "intermediate": experts.hidden_size}
    strides = [
        (name, amount) for name, amount, stride in decision.storage if stride and amount.unit == "bytes"
    ]
    return sum(experts.num_experts * rows[name] * amount.number for name, amount in strides)


def _widest(padded: tuple[tuple[str, int], ...]) -> int:
    """What scales are a multiple of, where a rule says it; rules have one number for both tensors."""
    return max((multiple for _, multiple in padded), default=1)
