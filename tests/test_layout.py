"""Bytes of expert tensors, against what engines allocate and what people measured."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moe_align.layout import (
    REPACKS,
    SCHEMES,
    Experts,
    Repack,
    bits_per_weight,
    expert_bytes,
    peak_bytes,
    repack_of,
    resident_bytes,
)

GIB = 2**30
DATA = Path(__file__).parent / "data"

# Created by vLLM itself: its `create_weights`, run by `scripts/engine_layout.py`.
ENGINE: list[dict[str, Any]] = [
    row for rows in json.loads((DATA / "layout_vllm.json").read_text()).values() for row in rows
]


@pytest.mark.parametrize("row", ENGINE, ids=lambda row: f"{row['class']}-{row['intermediate_size']}")
def test_created_bytes_are_those_of_the_engine(row: dict[str, Any]) -> None:
    given = {name: value for name, value in row.items() if name not in ("class", "bytes", "block")}
    block = tuple(row["block"]) if "block" in row else None
    created = expert_bytes(Experts(**given, block=block))
    assert created.total == sum(row["bytes"].values())
    endings = ("weight", "weight_packed")
    weights = [size for name, size in row["bytes"].items() if size and name.endswith(endings)]
    assert [created.w13, created.w2] == weights


def test_every_scheme_is_held_against_an_engine() -> None:
    held = {row["scheme"] for row in ENGINE} | {f"{row['scheme']}/{row.get('method')}" for row in ENGINE}
    assert set(SCHEMES) <= held


def pro(intermediate: int, experts: int = 384) -> Experts:
    return Experts("mxfp4", experts, 7168, intermediate)


def flash(intermediate: int) -> Experts:
    return Experts("mxfp4", 256, 4096, intermediate)


def qwen3(intermediate: int, block: int, experts: int = 128) -> Experts:
    return Experts("fp8_block", experts, 2048, intermediate, block=(block, block))


AITER = REPACKS["mxfp4"]["aiter_bf16"]
UNFUSED = REPACKS["mxfp4"]["triton_unfused/rocm"]


# Reported: vllm#51473 (DeepSeek-V4-Pro on 8 ranks), sglang#31450 (one layer with shared expert and router).
@pytest.mark.parametrize(
    ("experts", "layers", "created", "resident", "repack"),
    [
        pytest.param(pro(384), 1, 1.569, 1.579, AITER, id="one layer, native"),
        pytest.param(pro(512), 1, 2.092, 2.092, UNFUSED, id="one layer at 512"),
        pytest.param(pro(384), 61, 95.70, 96.33, AITER, id="TP 8"),
        pytest.param(pro(512), 61, 127.60, 127.60, UNFUSED, id="TP 8, generic rule"),
        pytest.param(pro(3072, 48), 61, 95.70, 95.70, AITER, id="EP 8"),
        pytest.param(flash(256), 43, 17.13, 17.13, AITER, id="flash, TP 8"),
        pytest.param(qwen3(192, 64), 48, 6.76, 6.76, Repack(), id="TP 4, refined blocks"),
        pytest.param(qwen3(256, 128), 48, 9.00, 9.00, Repack(), id="TP 4, padded"),
        pytest.param(qwen3(768, 128, 32), 48, 6.75, 6.75, Repack(), id="EP 4"),
        pytest.param(qwen3(384, 128), 48, 13.50, 13.50, Repack(), id="TP 2"),
    ],
)
def test_known_deployments(
    experts: Experts, layers: int, created: float, resident: float, repack: Repack
) -> None:
    digits = 3 if layers == 1 else 2
    assert round(layers * expert_bytes(experts).total / GIB, digits) == created
    assert round(layers * resident_bytes(experts, repack).total / GIB, digits) == resident


def test_deepseek_v4_pro_over_all_ranks() -> None:
    assert round(8 * 62 * expert_bytes(pro(384)).total / GIB, 3) == 778.148


def test_saving_of_the_native_width() -> None:
    at_512 = resident_bytes(pro(512), UNFUSED).total
    assert round(61 * (at_512 - resident_bytes(pro(384), AITER).total) / GIB, 2) == 31.27


def test_gpt_oss_biases_become_wider() -> None:
    experts = Experts("mxfp4", 128, 2880, 360, bias=True)
    created, resident = expert_bytes(experts), resident_bytes(experts, AITER)
    assert (created.w13_bias, created.w2_bias) == (128 * 720 * 2, 128 * 2880 * 2)
    assert (resident.w13_bias, resident.w2_bias) == (128 * 720 * 4, 128 * 2880 * 4)


def test_plain_shuffle_rounds_the_rows_of_all_experts_together() -> None:
    experts = Experts("mxfp4", 3, 288, 96)
    resident = resident_bytes(experts, REPACKS["mxfp4"]["aiter_mxfp4"])
    assert resident.w13_scale == 768 * 16  # 3 × 192 = 576 rows, 9 columns
    assert resident.w2_scale == 1024 * 8  # 3 × 288 = 864 rows, 3 columns


def test_weights_that_are_packed_after_loading_halve() -> None:
    experts = Experts("w4a8_int8", 8, 1024, 512, group=128)
    created, resident = expert_bytes(experts), resident_bytes(experts, Repack())
    assert (created.w13, created.w2) == (2 * resident.w13, 2 * resident.w2)
    assert created.w13_scale == resident.w13_scale


@pytest.mark.parametrize(
    ("scheme", "bits"), [("mxfp4", 4.25), ("unquantized", 16.0), ("mxfp8", 8.25), ("mxfp6", 6.25)]
)
def test_bits_per_weight(scheme: str, bits: float) -> None:
    assert bits_per_weight(Experts(scheme, 8, 4096, 1024)) == bits


def test_peak_is_one_tensor_above_the_layers() -> None:
    created, resident = expert_bytes(pro(384)), resident_bytes(pro(384), AITER)
    assert peak_bytes(created, resident, 61) == 61 * resident.total + created.w13
    with pytest.raises(ValueError, match="`layers` is at least 1, not 0"):
        peak_bytes(created, resident, 0)


def test_repacking_that_is_known() -> None:
    assert repack_of("mxfp4", "aiter_bf16") == AITER
    assert repack_of("mxfp4", "triton_unfused", "rocm") == UNFUSED
    assert repack_of("mxfp4", "triton_unfused", "cuda") is None
    assert repack_of("unquantized", "cpu") is None
    assert repack_of("nvfp4", "trtllm") is None


@pytest.mark.parametrize(
    ("experts", "message"),
    [
        (Experts("mxfp5", 1, 1, 1), "no bytes are known for scheme `mxfp5`"),
        (Experts("mxfp4", 0, 64, 64), "`num_experts` is at least 1, not 0"),
        (Experts("mxfp4", 1, -1, 64), "`hidden_size` is at least 1, not -1"),
        (Experts("mxfp4", 1, 64, 0), "`intermediate_size` is at least 1, not 0"),
        (Experts("fp8_block", 1, 64, 64), "scheme `fp8_block` needs its block"),
        (Experts("fp8_block", 1, 64, 64, block=(128, 0)), "scheme `fp8_block` needs its block"),
        (Experts("int4_wna16", 1, 64, 64), "scheme `int4_wna16` needs its group"),
        (Experts("int4_wna16", 1, 64, 64, group=0), "scheme `int4_wna16` needs its group"),
        (Experts("int4_wna16", 1, 64, 64, group=-2), "scheme `int4_wna16` needs its group"),
    ],
)
def test_refused(experts: Experts, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        expert_bytes(experts)
    with pytest.raises(ValueError, match=message):
        resident_bytes(experts, Repack())


layers = st.builds(
    Experts,
    scheme=st.sampled_from(sorted(name for name in SCHEMES if "/" not in name)),
    num_experts=st.integers(1, 64),
    hidden_size=st.integers(1, 64).map(lambda n: 64 * n),
    intermediate_size=st.integers(1, 64).map(lambda n: 64 * n),
    gated=st.booleans(),
    bias=st.booleans(),
    block=st.sampled_from([(64, 64), (128, 128), (1, 128)]),
    group=st.sampled_from([-1, 32, 64]),
)


@given(layers)
def test_twice_the_experts_take_twice_the_bytes(experts: Experts) -> None:
    twice = replace(experts, num_experts=2 * experts.num_experts)
    assert expert_bytes(twice).total == 2 * expert_bytes(experts).total


@given(layers, st.sampled_from([Repack(), Repack(1, 8), Repack(256, 8, joined=True), Repack(32, 4)]))
def test_repacking_never_narrows_a_scale(experts: Experts, repack: Repack) -> None:
    created, resident = expert_bytes(experts), resident_bytes(experts, repack)
    assert resident.w13_scale >= created.w13_scale
    assert resident.w2_scale >= created.w2_scale
    assert resident.total == sum(size for _, size in resident)


@given(layers)
def test_a_wider_layer_takes_more(experts: Experts) -> None:
    wider = replace(experts, intermediate_size=experts.intermediate_size + 64)
    assert expert_bytes(wider).total > expert_bytes(experts).total
