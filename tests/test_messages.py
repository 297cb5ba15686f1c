"""Errors of engines, back to dimension, numbers and rules: the texts behind the public reports."""

from __future__ import annotations

import pytest

from moe_align import load_policy
from moe_align.deployment.messages import MESSAGES, messages_in
from moe_align.report.lines import Style
from moe_align.report.messages import Explained, messages_plain, messages_text

#: An error as it is printed, the message that it is, its size and multiple.
TEXTS = [
    (
        "ValueError: The output_size of gate's and up's weight = 192 is not divisible by weight quantization"
        " block_n = 128.",
        ("gate-up-block", 192, 128),
    ),
    (
        "The input_size of down's weight = 192 is not divisible by weight quantization block_k = 128.",
        ("down-block", 192, 128),
    ),
    (
        "Weight input_size_per_partition = 64 is not divisible by weight quantization block_k = 128.",
        ("linear-input-block", 64, 128),
    ),
    (
        "Weight output_partition_size = 576 is not divisible by weight quantization block_n = 128.",
        ("linear-output-block", 576, 128),
    ),
    ("192 not divisible by block_n 128", ("short-block", 192, 128)),
    (
        "(VllmWorker rank=3 pid=9) ERROR RuntimeError: size_n = 5472 is not divisible by tile_n_size = 64",
        ("marlin-n", 5472, 64),
    ),
    ("size_k = 232 is not divisible by tile_k_size = 16", ("marlin-k", 232, 16)),
    (
        "Invalid thread config: thread_m_blocks = 1, thread_k = -1, thread_n = -1, num_threads = -1 for"
        " MKN = [16, 672, 1024] and num_bits = 8",
        ("marlin-config", 672, 64),
    ),
    ("RuntimeError: size_k must divisible by BLOCK_SIZE_K", ("wna16-block", None, 128)),
    ("    assert M % 128 == 0", ("trtllm-m", None, 64)),
    (
        "Error: Intermediate size padding for w1 and w3, for FLASHINFER_CUTLASS NvFp4 backend, but"
        " this is not currently supported",
        ("swizzle-gated", None, 64),
    ),
    ("RuntimeError: K must be divisible by blockK", ("block-layout", None, 64)),
    (
        "wrong! device_gemm with the specified compilation parameters does not support this GEMM problem",
        ("ck-gemm", None, None),
    ),
    (
        "RuntimeError: shape '[128, 2, 464, 2688]' is invalid for input of size 159645696",
        ("marlin-shards", 464, 64),
    ),
    ("RuntimeError: shape '[-1, 90, 2, 16, 11, 2, 4, 1]' is invalid", ("scale-swizzle", None, 256)),
    (
        "n_physical_experts=256 must be divisible by ep_size=3. Adjust num_redundant_experts.",
        ("physical-experts", 256, 3),
    ),
    (
        "RuntimeError: The size of tensor a (3072) must match the size of tensor b (2688) at non-singleton"
        " dimension 1",
        ("hidden-loaded", 2688, None),
    ),
    (
        "ValueError: For qwen3-vl-fp8 models, please make sure (text_config.moe_intermediate_size=768 //"
        " (self.tp_size=8 // self.moe_ep_size=7)) % weight_block_size_n=128 == 0.",
        ("qwen-vl-block", 768, 128),
    ),
    (
        "Total number of attention heads (64) must be divisible by tensor parallel size (3).",
        ("tensor-parallel", 64, 3),
    ),
    (
        "DeepGemm disabled due to unaligned problem size. M: 14, N: 4096, K: 7168",
        ("deepgemm-unaligned", None, 128),
    ),
]


@pytest.mark.parametrize(("text", "expected"), TEXTS, ids=[expected[0] for _, expected in TEXTS])
def test_a_text_is_known(text: str, expected: tuple[str, int | None, int | None]) -> None:
    (found,) = messages_in(text)
    assert (found.message.id, found.size, found.multiple) == expected
    assert found.message.dim in messages_text(Explained([found]), Style())


def test_a_log_tells_each_message_once_with_its_line() -> None:
    log = "\n".join(["INFO start", TEXTS[0][0], "noise 12", TEXTS[0][0], TEXTS[5][0]])
    assert [(found.message.id, found.line) for found in messages_in(log)] == [
        ("gate-up-block", 2),
        ("marlin-n", 5),
    ]


def test_nothing_is_read_into_other_text() -> None:
    assert messages_in("INFO 192 experts, 128 tokens\n" * 3) == ()
    assert messages_plain(Explained([]))["messages"] == []


def test_every_rule_that_a_message_names_is_there() -> None:
    stack = load_policy(environ={}).stack
    there = {rule.address for rule in stack.rules()} | {one.address for one in stack.all_contracts()}
    named = {address for message in MESSAGES for address in message.rules}
    assert named <= there, named - there
