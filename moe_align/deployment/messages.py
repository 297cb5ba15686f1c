"""What engines say when a size does not fit, back to the dimension, the numbers, and what to do.

Each message is known by words that do not change between releases; `{…}` stands for a number of it.
"""

from __future__ import annotations

import re

from ..record import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

#: What a number of a message may be called.
_NUMBER = r"(?P<{}>\d+)"

#: A log is read line by line; no line is looked at beyond this.
_LONGEST = 4000


class Message(NamedTuple):
    """One kind of message: a pattern with named numbers, and what it means.

    `dim` is the dimension that it is about, `size` and `multiple` are names of its numbers (a
    multiple that the message leaves out is given as a number), `means` and `do` are for people, and
    `rules` the rules and contracts that say the same before a byte is loaded.
    """

    id: str
    pattern: str
    dim: str
    means: str
    do: str
    size: str | None = None
    multiple: str | int | None = None
    rules: tuple[str, ...] = ()


class Found(NamedTuple):
    """One message in a text: its line, counted from 1, and the numbers that it names."""

    message: Message
    line: int
    text: str
    numbers: dict[str, int]

    @property
    def size(self) -> int | None:
        return self.numbers.get(self.message.size or "")

    @property
    def multiple(self) -> int | None:
        wanted = self.message.multiple
        return self.numbers.get(wanted) if isinstance(wanted, str) else wanted


_CUT_BLOCK = "a rank's shard cuts a quantization block, whose one scale no rank can take along"
_WHOLE = "keep experts whole with expert parallelism, or take fewer tensor-parallel ranks"
_TILE = "Marlin repacks weights in tiles, and the shard is no whole number of them"
_PAD_RELEASE = "take a release that pads for Marlin (vLLM 0.24 or 0.25 on, by format), or fewer ranks"

#: The first that fits a line is taken: the particular ones come first.
MESSAGES = (
    Message(
        "gate-up-block",
        r"gate's and up's weight = {size} is not divisible by weight quantization block_n = {block}",
        "routed.intermediate",
        _CUT_BLOCK,
        _WHOLE,
        "size",
        "block",
        ("vllm-fp8-block/before-padding", "sglang-fp8/block-shared", "vllm-fp8-block-before-0-14/sharded"),
    ),
    Message(
        "down-block",
        r"input_size of down's weight = {size} is not divisible by weight quantization block_k = {block}",
        "routed.intermediate",
        _CUT_BLOCK,
        _WHOLE,
        "size",
        "block",
        ("vllm-fp8-block/before-padding", "sglang-fp8/block-shared", "vllm-fp8-block-before-0-14/sharded"),
    ),
    Message(
        "linear-input-block",
        r"input_size_per_partition = {size} is not divisible by weight quantization block_k = {block}",
        "shared or dense MLP",
        f"{_CUT_BLOCK}; it is a linear layer, which expert parallelism does not touch",
        "take fewer tensor-parallel ranks; in SGLang give dense layers their own with --moe-dense-tp-size 1",
        "size",
        "block",
        ("vllm-linear/fp8-block-split", "sglang-linear/fp8-block-split"),
    ),
    Message(
        "linear-output-block",
        r"output_partition_size = {size} is not divisible by weight quantization block_n = {block}",
        "shared or dense MLP",
        f"{_CUT_BLOCK}; it is a linear layer, which expert parallelism does not touch",
        "take fewer tensor-parallel ranks; in SGLang give dense layers their own with --moe-dense-tp-size 1",
        "size",
        "block",
        ("vllm-linear/fp8-block-split", "sglang-linear/fp8-block-split"),
    ),
    Message(
        "generic-block",
        r"(?:size|partition)\D{{0,40}}{size} (?:is )?not divisible by [a-z ]{{0,24}}block_[nk] = {block}",
        "intermediate",
        _CUT_BLOCK,
        _WHOLE,
        "size",
        "block",
        ("vllm-fp8-block/before-padding", "sglang-fp8/block-shared", "vllm-fp8-block-before-0-14/sharded"),
    ),
    Message(
        "short-block",
        r"{size} (?:is )?not divisible by block_[nk]\D{{0,4}}{block}",
        "intermediate",
        _CUT_BLOCK,
        _WHOLE,
        "size",
        "block",
        ("vllm-fp8-block/before-padding", "sglang-fp8/block-shared", "vllm-fp8-block-before-0-14/sharded"),
    ),
    Message(
        "qwen-vl-block",
        r"moe_intermediate_size\D{{0,40}}{size}\D+tp_size\D{{0,9}}{tp}\D+ep_size\D{{0,9}}{ep}\D+% \D*{block}",
        "routed.intermediate",
        _CUT_BLOCK,
        "choose an expert-parallel size that divides the tensor-parallel one and leaves whole blocks",
        "size",
        "block",
        ("sglang-fp8/block-shared",),
    ),
    Message(
        "marlin-n",
        r"size_n = {size} is not divisible by tile_n_size = {tile}",
        "w13 rows, or a linear layer beside the experts",
        _TILE,
        _PAD_RELEASE,
        "size",
        "tile",
        ("vllm-linear-fp8/marlin-asked", "kernel-contracts/marlin-fp8"),
    ),
    Message(
        "marlin-k",
        r"size_k = {size} is not divisible by tile_k_size = {tile}",
        "w2 columns",
        _TILE,
        _PAD_RELEASE,
        "size",
        "tile",
        ("kernel-contracts/marlin-fp8", "kernel-contracts/marlin-integers"),
    ),
    Message(
        "marlin-thread-n",
        r"output_size_per_partition = {size} is not divisible by\s+min_thread_n = {tile}",
        "a linear layer, or w13 rows",
        _TILE,
        _PAD_RELEASE,
        "size",
        "tile",
        ("kernel-contracts/marlin-integers",),
    ),
    Message(
        "marlin-thread-k",
        r"input_size_per_partition = {size} is not divisible by\s+min_thread_k = {tile}",
        "a linear layer, or w2 columns",
        _TILE,
        _PAD_RELEASE,
        "size",
        "tile",
        ("kernel-contracts/marlin-integers",),
    ),
    Message(
        "marlin-config",
        r"Invalid thread config: .*?for MKN = \[\d+, {size}, \d+\]",
        "w2 columns",
        _TILE,
        _PAD_RELEASE,
        "size",
        64,
        ("kernel-contracts/marlin-fp8", "kernel-contracts/marlin-fp4-wide-tile"),
    ),
    Message(
        "wna16-block",
        r"size_k must (?:be )?divisi?ble by BLOCK_SIZE_K",
        "routed.intermediate",
        "the integer kernel steps the shard by its group and looks when it is called: loading proves nothing",
        f"{_WHOLE}; the shard must hold whole groups (`moe-align group-size`)",
        None,
        128,
        ("known-faults/wna16-cuda-tile",),
    ),
    Message(
        "trtllm-m",
        r"assert M % 128 == 0|M must be a multiple of 128",
        "routed.intermediate",
        "TRTLLM shuffles scales by 128 rows: a gated shard must be a multiple of 64, another one of 128",
        f"{_WHOLE}; vLLM pads it from 0.26 on",
        None,
        64,
        ("vllm-nvfp4-trtllm-repack/gated-0.20", "kernel-contracts/trtllm-nvfp4-gated"),
    ),
    Message(
        "swizzle-gated",
        r"size padding for w1 and w3|not implemented for gated act|NotImplementedError.*(?:gated|pad)",
        "routed.intermediate",
        "padding behind gate and up together would move the border between them, and the engine refuses",
        f"{_WHOLE}; the shard must be a multiple of 64",
        None,
        64,
        ("vllm-nvfp4-repack/swizzled-gated",),
    ),
    Message(
        "block-layout",
        r"K must be divisible by blockK|K % (?:blockK|block_k) == 0",
        "routed.intermediate",
        "TRTLLM's block layout cuts weights into blocks of 128 bytes, for BF16 too",
        "choose the Triton or CUTLASS backend, or fewer tensor-parallel ranks",
        None,
        64,
        ("kernel-contracts/trtllm-unquantized",),
    ),
    Message(
        "ck-gemm",
        r"device_gemm.*does not support this GEMM problem",
        "routed.intermediate",
        "AITER has no CK kernel for this width",
        "take ranks that leave a multiple of 256 (MXFP4) or 128, or set VLLM_ROCM_USE_AITER_MOE=0",
        None,
        None,
        ("known-faults/ck-mxfp4-tiles", "known-faults/ck-unquantized-narrow"),
    ),
    Message(
        "marlin-shards",
        r"shape '\[\d+, 2, {size}, \d+\]' is invalid for input",
        "routed.intermediate",
        "the code that pads w13 sees a gate half, and these experts have none",
        "take a rank count that leaves whole tiles of 64, or another backend than Marlin",
        "size",
        64,
        ("known-faults/fp8-marlin-one-projection",),
    ),
    Message(
        "scale-swizzle",
        r"shape '\[-1, {columns}, 2, 16, 11, 2, 4, 1\]' is invalid|swizzle.*shape '\[[-\d, ]+\]' is invalid",
        "scale columns",
        "the swizzle of scales on CDNA 4 wants whole tiles, and the class did not pad",
        "take a release or a backend that pads (`moe-align check` with --arch gfx950)",
        None,
        256,
        ("known-faults/scale-swizzle-cdna4",),
    ),
    Message(
        "physical-experts",
        r"n_physical_experts={size} must be divisible by (?:ep|tp)_size={ranks}",
        "experts",
        "every rank holds as many experts, and they do not come out even",
        "take a number of ranks that divides them, or add redundant experts (with EPLB) that make them even",
        "size",
        "ranks",
        ("known-faults/deepseek-v4-even-experts", "vllm-model/rebalancing-even"),
    ),
    Message(
        "hidden-loaded",
        r"size of tensor a \({size}\) must match the size of tensor b \({native}\)",
        "routed.hidden",
        "a width was padded on one side alone: for a transport, or for routed experts beside a shared one",
        "choose another all-to-all backend, or a release whose loader knows padded widths (vLLM 0.20 on)",
        "native",
        None,
        ("known-faults/low-latency-hidden-not-loaded", "vllm-all2all/deepep-low-latency"),
    ),
    Message(
        "hidden-supported",
        r"Hidden [Ss]ize {size} not in supported",
        "routed.hidden",
        "the low-latency transport is compiled for some hidden sizes alone",
        "choose another all-to-all backend",
        "size",
        None,
        ("vllm-all2all/deepep-low-latency", "kernel-contracts/deepep-ll"),
    ),
    Message(
        "deepgemm-unaligned",
        r"DeepGemm disabled due to unaligned problem size|DeepGEMM disabled due to unaligned problem size",
        "tokens of a batch",
        "a line of the log alone: below 128 tokens, or beside 128 in width, another kernel is called",
        "nothing: sizes of weights are not what it is about, where they are multiples of 128",
        None,
        128,
        ("kernel-contracts/deepgemm-fp8",),
    ),
    Message(
        "tensor-parallel",
        r"attention heads \({size}\) must be divisible by tensor parallel size \({ranks}\)",
        "attention heads",
        "attention is split by heads: this has nothing to do with experts",
        "take a tensor-parallel size that divides the heads",
        "size",
        "ranks",
        (),
    ),
)


def _compiled(message: Message) -> re.Pattern[str]:
    names = re.findall(r"(?<!\{)\{(\w+)\}(?!\})", message.pattern)
    written = {name: _NUMBER.format(name) for name in names}
    return re.compile(message.pattern.format(**written))


def messages_in(text: str) -> tuple[Found, ...]:
    """Every known message in an error or a whole log, each kind with its numbers once."""
    first: dict[object, Found] = {}
    for found in _found(text):
        first.setdefault((found.message.id, *found.numbers.values()), found)
    return tuple(first.values())


def _found(text: str) -> Iterator[Found]:
    patterns = [(message, _compiled(message)) for message in MESSAGES]
    for number, line in enumerate(text.splitlines(), 1):
        for message, pattern in patterns:
            match = pattern.search(line[:_LONGEST])
            if match is not None:
                numbers = {name: int(value) for name, value in match.groupdict().items() if value}
                yield Found(message, number, line.strip(), numbers)
                break
