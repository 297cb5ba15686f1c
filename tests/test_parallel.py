"""Who holds what: the split of each engine, against its own arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moe_align.parallel import (
    MoeParallel,
    RankExperts,
    atom_parallel,
    block_shard,
    dummy_experts,
    even_experts,
    even_shard,
    sglang_parallel,
    vllm_experts,
    vllm_parallel,
)
from moe_align.sizes import cut

ranks = st.integers(1, 16)


@pytest.mark.parametrize(
    ("launched", "moe_tp", "moe_ep"),
    [
        ({}, 1, 1),
        ({"tp": 8}, 8, 1),
        ({"dp": 2}, 2, 1),
        ({"tp": 2, "dp": 2}, 4, 1),
        ({"tp": 2, "dp": 2, "pcp": 2}, 8, 1),
        ({"tp": 8, "ep": True}, 1, 8),
        ({"tp": 2, "dp": 2, "ep": True}, 1, 4),
        ({"ep": True}, 1, 1),
    ],
)
def test_vllm(launched: dict[str, int], moe_tp: int, moe_ep: int) -> None:
    split = vllm_parallel(**launched)  # type: ignore[arg-type]
    assert split == MoeParallel(moe_tp, moe_ep)
    assert split.ranks == launched.get("tp", 1) * launched.get("dp", 1) * launched.get("pcp", 1)


@pytest.mark.parametrize(
    ("launched", "split"),
    [
        ({"tp": 8}, MoeParallel(8, 1)),
        ({"tp": 8, "ep": 8}, MoeParallel(1, 8)),
        ({"tp": 8, "ep": 2}, MoeParallel(4, 2)),
        ({"tp": 8, "moe_dp": 2}, MoeParallel(4, 1, 2)),
        ({"tp": 8, "ep": 4, "moe_dp": 2}, MoeParallel(1, 4, 2)),
    ],
)
def test_sglang(launched: dict[str, int], split: MoeParallel) -> None:
    assert sglang_parallel(**launched) == split
    assert split.ranks == launched["tp"]


@pytest.mark.parametrize(
    ("launched", "message"),
    [
        ({"tp": 8, "moe_dp": 3}, "tp 8 is not a multiple of moe_dp 3"),
        ({"tp": 8, "ep": 2, "moe_dp": 2}, "ep 2 × moe_dp 2 = 4 is not tp 8"),
        ({"tp": 8, "ep": 3}, "tp 8 is not a multiple of ep 3 × moe_dp 1 = 3"),
        ({"tp": 0}, "`tp` is at least 1, not 0"),
    ],
)
def test_sglang_refuses(launched: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sglang_parallel(**launched)


@pytest.mark.parametrize(
    ("launched", "split"),
    [
        ({"tp": 8}, MoeParallel(8, 1)),
        ({"tp": 4, "dp": 2}, MoeParallel(4, 1, 2)),
        ({"tp": 4, "dp": 2, "ep": True}, MoeParallel(1, 4, 2)),
        ({"tp": 1, "dp": 8, "ep": True, "dp_attention": True}, MoeParallel(1, 8)),
        ({"tp": 4, "dp": 2, "dp_attention": True}, MoeParallel(8, 1)),
        ({"tp": 4, "pcp": 2}, MoeParallel(4, 1, 2)),
        ({"tp": 4, "pcp": 2, "pcp_merge": True, "ep": True}, MoeParallel(1, 8)),
        ({"pcp": 2, "pcp_merge": True, "ep": True}, MoeParallel(2, 1)),
    ],
)
def test_atom(launched: dict[str, int], split: MoeParallel) -> None:
    assert atom_parallel(**launched) == split  # type: ignore[arg-type]


def test_experts_with_a_remainder_go_to_the_first_ranks() -> None:
    assert [vllm_experts(10, 4, rank).routed for rank in range(4)] == [3, 3, 2, 2]
    assert vllm_experts(10, 4, 2) == RankExperts(6, 8)


def test_shared_and_redundant_experts() -> None:
    held = vllm_experts(256, 8, 7, redundant=32, fused_shared=1, eplb=True)
    assert held == RankExperts(252, 288, 1)
    assert held.total == 37
    assert even_experts(256, 8, 1, redundant=32, fused_shared=2) == RankExperts(36, 72, 2)


@given(st.integers(1, 1024), ranks)
def test_every_expert_is_held_once(num_experts: int, ep_size: int) -> None:
    held = [vllm_experts(num_experts, ep_size, rank) for rank in range(ep_size)]
    assert held[0].start == 0
    assert held[-1].stop == num_experts
    assert all(one.stop == other.start for one, other in pairwise(held))
    assert max(one.routed for one in held) - min(one.routed for one in held) <= 1


@given(st.integers(1, 64), ranks)
def test_even_shares_are_what_vllm_gives_too(share: int, ep_size: int) -> None:
    for rank in range(ep_size):
        assert even_experts(share * ep_size, ep_size, rank) == vllm_experts(share * ep_size, ep_size, rank)


REFUSED: list[tuple[Callable[[], object], str]] = [
    (lambda: vllm_parallel(tp=0), "`tp` is at least 1, not 0"),
    (lambda: vllm_experts(8, 2, 2), "`ep_rank` is 0 to 1, not 2"),
    (lambda: vllm_experts(0, 2, 0), "`num_experts` is at least 1, not 0"),
    (lambda: vllm_experts(8, 2, 0, fused_shared=-1), "`fused_shared` is at least 0, not -1"),
    (lambda: vllm_experts(8, 2, 0, redundant=2), "2 redundant experts need expert load balancing"),
    (
        lambda: vllm_experts(8, 4, 0, redundant=2, eplb=True),
        r"8 experts \+ 2 redundant = 10 is not a multiple of 4 EP ranks",
    ),
    (lambda: even_experts(10, 4, 0), "10 experts is not a multiple of 4 EP ranks"),
    (lambda: even_shard(3072, 7), "3072 / 7 is not a whole number"),
    (lambda: block_shard(2881, 8), "2881 is not a multiple of the block of 32"),
]


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_widths() -> None:
    assert even_shard(3072, 8) == 384
    assert [block_shard(2880, tp) for tp in (1, 2, 4, 8)] == [2880, 1440, 736, 384]
    assert [shard.real for shard in cut(2880, 8, 32)] == [384] * 7 + [192]


def test_dummy_experts_fill_up_to_even_shares() -> None:
    assert dummy_experts(250, 8) == 6
    assert dummy_experts(256, 8) == 0
