"""How each engine spreads experts over ranks: TP, EP and DP as launched → what one rank holds.

Pure arithmetic, counted in ranks, experts and elements. What an engine refuses to start is a
`ValueError` here, with the sum that does not come out; whoever plans a deployment turns it into an answer.
"""

from __future__ import annotations

from .record import NamedTuple
from .sizes import ceil_div, cut


class MoeParallel(NamedTuple):
    """The split of an expert layer: `moe_tp` ranks share one expert, `moe_ep` ranks share the experts.

    `copies` groups of `moe_tp * moe_ep` ranks hold the same weights once more.
    """

    moe_tp: int
    moe_ep: int
    copies: int = 1

    @property
    def ranks(self) -> int:
        """All ranks that hold expert weights."""
        return self.moe_tp * self.moe_ep * self.copies


class RankExperts(NamedTuple):
    """What one EP rank holds: routed experts `start` to `stop` (exclusive), and fused shared ones.

    Redundant experts (copies for load balancing) are counted as further routed ones.
    """

    start: int
    stop: int
    fused_shared: int = 0

    @property
    def routed(self) -> int:
        return self.stop - self.start

    @property
    def total(self) -> int:
        """The first axis of the rank's weights."""
        return self.routed + self.fused_shared


def vllm_parallel(*, tp: int = 1, dp: int = 1, pcp: int = 1, ep: bool = False) -> MoeParallel:
    """The split in vLLM: every rank of DP, PCP and TP takes part, over experts if `ep`, else inside each.

    Source: vllm v0.14.0 to v0.33.0, FusedMoEParallelConfig.make.

    Raises:
        ValueError: if a size is below 1.
    """
    ranks = _product(tp=tp, dp=dp, pcp=pcp)
    return MoeParallel(1, ranks) if ep else MoeParallel(ranks, 1)


def sglang_parallel(*, tp: int = 1, ep: int = 1, moe_dp: int = 1) -> MoeParallel:
    """The split in SGLang, where `tp` counts all ranks of a pipeline stage and EP and MoE-DP cut it up.

    SGLang itself checks the last sum for block-quantized experts alone; elsewhere the floor of a
    division would give groups that overlap, so it is refused here as well.
    Source: sglang v0.5.23, runtime_context.py (widths), arg_groups/parallel_hook.py and
    model_executor/model_runner_components/moe_ep_setup.py (refusals).

    Raises:
        ValueError: if a size is below 1, or if the three do not fit into each other.
    """
    _product(tp=tp, ep=ep, moe_dp=moe_dp)
    if tp % moe_dp:
        raise ValueError(f"tp {tp} is not a multiple of moe_dp {moe_dp}")
    if moe_dp > 1 and ep > 1 and ep * moe_dp != tp:
        raise ValueError(f"ep {ep} × moe_dp {moe_dp} = {ep * moe_dp} is not tp {tp}")
    if tp % (ep * moe_dp):
        raise ValueError(f"tp {tp} is not a multiple of ep {ep} × moe_dp {moe_dp} = {ep * moe_dp}")
    return MoeParallel(tp // ep // moe_dp, ep, moe_dp)


def atom_parallel(
    *,
    tp: int = 1,
    dp: int = 1,
    pcp: int = 1,
    ep: bool = False,
    dp_attention: bool = False,
    pcp_merge: bool = False,
) -> MoeParallel:
    """The split in ATOM: DP ranks take part only with DP attention, PCP ranks only if merged.

    Elsewhere they hold copies. `pcp_merge` is its switch ATOM_PCP_MOE_MERGE.
    Source: ROCm/ATOM ffdf3bb5:atom/model_ops/moe.py, FusedMoEParallelConfig.make.

    Raises:
        ValueError: if a size is below 1.
    """
    everyone = _product(tp=tp, dp=dp, pcp=pcp)
    ranks = tp * (dp if dp_attention else 1) * (pcp if pcp_merge else 1)
    # EP is on only if DP and TP together have more than one rank, whoever takes part in it.
    spread = ep and dp * tp > 1
    return MoeParallel(1 if spread else ranks, ranks if spread else 1, everyone // ranks)


def vllm_experts(
    num_experts: int,
    ep_size: int,
    ep_rank: int,
    *,
    redundant: int = 0,
    fused_shared: int = 0,
    eplb: bool = False,
) -> RankExperts:
    """The experts of one rank in vLLM: even shares, the first ranks take one more of a remainder.

    `fused_shared` experts are held by every rank. The interval is that of linear placement; with
    round robin the count is the same. `redundant` needs `eplb`, and then shares must be even.
    Source: vllm v0.14.0 to v0.33.0, determine_expert_map, FusedMoEFactory.

    Raises:
        ValueError: if a number is out of range, or if EPLB cannot make even shares.
    """
    _check_rank(num_experts, ep_size, ep_rank)
    _check_extra(redundant=redundant, fused_shared=fused_shared)
    if redundant and not eplb:
        raise ValueError(f"{redundant} redundant experts need expert load balancing")
    physical = num_experts + redundant
    if eplb and physical % ep_size:
        raise ValueError(f"{_sum(num_experts, redundant)} is not a multiple of {ep_size} EP ranks")
    share, remainder = divmod(physical, ep_size)
    start = ep_rank * share + min(ep_rank, remainder)
    return RankExperts(start, start + share + (ep_rank < remainder), fused_shared)


def even_experts(
    num_experts: int, ep_size: int, ep_rank: int, *, redundant: int = 0, fused_shared: int = 0
) -> RankExperts:
    """The experts of one rank in SGLang and ATOM, which refuse a remainder.

    ATOM with all-to-all and EPLB routes fused shared experts like any other: there they belong to
    `num_experts`, and `redundant` fills up to an even share.
    Source: sglang v0.5.23:srt/layers/moe/fused_moe_triton/layer.py:394-423;
    ROCm/ATOM ffdf3bb5:atom/model_ops/moe.py:2745-2798.

    Raises:
        ValueError: if a number is out of range or the experts do not come out even.
    """
    _check_rank(num_experts, ep_size, ep_rank)
    _check_extra(redundant=redundant, fused_shared=fused_shared)
    physical = num_experts + redundant
    if physical % ep_size:
        raise ValueError(f"{_sum(num_experts, redundant)} is not a multiple of {ep_size} EP ranks")
    share = physical // ep_size
    return RankExperts(ep_rank * share, (ep_rank + 1) * share, fused_shared)


def even_shard(intermediate_size: int, moe_tp: int) -> int:
    """The width of one rank's part of an expert where the engine only takes an even split.

    vLLM, SGLang and ATOM all do, whatever the model. Source: vllm v0.14.0 to v0.33.0
    (`intermediate_size % tp_size == 0`), sglang v0.5.23:srt/layers/moe/fused_moe_triton/layer.py:427.

    Raises:
        ValueError: if a number is below 1 or the split leaves a remainder.
    """
    _product(intermediate_size=intermediate_size, moe_tp=moe_tp)
    if intermediate_size % moe_tp:
        raise ValueError(f"{intermediate_size} / {moe_tp} is not a whole number")
    return intermediate_size // moe_tp


def block_shard(intermediate_size: int, moe_tp: int, block: int = 32) -> int:
    """The width of the widest rank where a loader hands out whole blocks: gpt-oss in vLLM and SGLang.

    2880 over 8 ranks by 32: 90 blocks, 12 to a rank, 384; the last rank gets 6 real ones.
    `sizes.cut` gives every rank's interval. Source: vllm v0.33.0:vllm/model_executor/models/gpt_oss.py,
    sglang v0.5.23:srt/layers/quantization/quark/weights.py.

    Raises:
        ValueError: if a number is below 1 or `intermediate_size` is no multiple of `block`.
    """
    _product(intermediate_size=intermediate_size, moe_tp=moe_tp, block=block)
    if intermediate_size % block:
        raise ValueError(f"{intermediate_size} is not a multiple of the block of {block}")
    return cut(intermediate_size, moe_tp, block)[0].size


def dummy_experts(num_experts: int, ep_size: int) -> int:
    """How many experts that no token reaches a model adds so that EP ranks get even shares.

    Inkling in vLLM does so. Source: vllm v0.33.0:vllm/models/inkling/nvidia/moe.py.

    Raises:
        ValueError: if a number is below 1.
    """
    _product(num_experts=num_experts, ep_size=ep_size)
    return ceil_div(num_experts, ep_size) * ep_size - num_experts


def _product(**sizes: int) -> int:
    product = 1
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"`{name}` is at least 1, not {size}")
        product *= size
    return product


def _check_rank(num_experts: int, ep_size: int, ep_rank: int) -> None:
    _product(num_experts=num_experts, ep_size=ep_size)
    if not 0 <= ep_rank < ep_size:
        raise ValueError(f"`ep_rank` is 0 to {ep_size - 1}, not {ep_rank}")


def _check_extra(**counts: int) -> None:
    for name, count in counts.items():
        if count < 0:
            raise ValueError(f"`{name}` is at least 0, not {count}")


def _sum(num_experts: int, redundant: int) -> str:
    if not redundant:
        return f"{num_experts} experts"
    return f"{num_experts} experts + {redundant} redundant = {num_experts + redundant}"
