"""Every tensor of DeepSeek-V4-Pro's checkpoint, by name, type and shape, as its config gives them.

FP8 weights have an E8M0 scale for each block of 128 × 128, experts MXFP4 with one for 32 columns. Where the
sum of all that are no routed experts meets vllm#51473's 27.171 GiB, types and shapes are right.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sparse import Said, size_of, write_sparse

HIDDEN, WIDTH, EXPERTS, LAYERS, VOCABULARY = 7168, 3072, 384, 61, 129280
HEADS, HEAD_DIM, Q_RANK, O_GROUPS, O_RANK = 128, 512, 1536, 16, 1024
INDEX_HEADS, INDEX_DIM, STREAMS, HASH_LAYERS, TOPK = 64, 128, 4, 3, 6
FILES = 64

#: Tokens that one compressed key stands for, layer by layer; the MTP layer at the end compresses none.
RATIOS = [128, 128, *[4, 128] * 29, 4, 0]


def tensors() -> Iterator[Said]:
    """All tensors, layer by layer."""
    yield "embed.weight", "BF16", (VOCABULARY, HIDDEN)
    for layer in range(LAYERS):
        yield from _layer(f"layers.{layer}", RATIOS[layer], layer < HASH_LAYERS)
    yield from _layer("mtp.0", RATIOS[LAYERS], False)
    yield from _fp8("mtp.0.e_proj", HIDDEN, HIDDEN)
    yield from _fp8("mtp.0.h_proj", HIDDEN, HIDDEN)
    for name in ("mtp.0.enorm.weight", "mtp.0.hnorm.weight", "mtp.0.norm.weight", "norm.weight"):
        yield name, "BF16", (HIDDEN,)
    for at in ("mtp.0.", ""):
        yield f"{at}hc_head_fn", "F32", (STREAMS, STREAMS * HIDDEN)
        yield f"{at}hc_head_base", "F32", (STREAMS,)
        yield f"{at}hc_head_scale", "F32", (1,)
    yield "head.weight", "BF16", (VOCABULARY, HIDDEN)


def _fp8(name: str, rows: int, columns: int) -> Iterator[Said]:
    yield f"{name}.weight", "F8_E4M3", (rows, columns)
    yield f"{name}.scale", "F8_E8M0", (-(-rows // 128), -(-columns // 128))


def _layer(at: str, ratio: int, is_hashed: bool) -> Iterator[Said]:
    yield from _attention(f"{at}.attn", ratio)
    for name in ("attn_norm", "ffn_norm"):
        yield f"{at}.{name}.weight", "BF16", (HIDDEN,)
    mixes = (2 + STREAMS) * STREAMS
    for name in ("hc_attn", "hc_ffn"):
        yield f"{at}.{name}_fn", "F32", (mixes, STREAMS * HIDDEN)
        yield f"{at}.{name}_base", "F32", (mixes,)
        yield f"{at}.{name}_scale", "F32", (3,)
    yield f"{at}.ffn.gate.weight", "BF16", (EXPERTS, HIDDEN)
    if is_hashed:
        yield f"{at}.ffn.gate.tid2eid", "I64", (VOCABULARY, TOPK)
    else:
        yield f"{at}.ffn.gate.bias", "F32", (EXPERTS,)
    shapes = {"w1": (WIDTH, HIDDEN), "w2": (HIDDEN, WIDTH), "w3": (WIDTH, HIDDEN)}
    for projection, (rows, columns) in shapes.items():
        yield from _fp8(f"{at}.ffn.shared_experts.{projection}", rows, columns)
        for expert in range(EXPERTS):
            yield f"{at}.ffn.experts.{expert}.{projection}.weight", "I8", (rows, columns // 2)
            yield f"{at}.ffn.experts.{expert}.{projection}.scale", "F8_E8M0", (rows, columns // 32)


def _attention(at: str, ratio: int) -> Iterator[Said]:
    yield from _fp8(f"{at}.wq_a", Q_RANK, HIDDEN)
    yield from _fp8(f"{at}.wq_b", HEADS * HEAD_DIM, Q_RANK)
    yield from _fp8(f"{at}.wkv", HEAD_DIM, HIDDEN)
    yield from _fp8(f"{at}.wo_a", O_GROUPS * O_RANK, HEADS * HEAD_DIM // O_GROUPS)
    yield from _fp8(f"{at}.wo_b", HIDDEN, O_GROUPS * O_RANK)
    yield f"{at}.q_norm.weight", "BF16", (Q_RANK,)
    yield f"{at}.kv_norm.weight", "BF16", (HEAD_DIM,)
    yield f"{at}.attn_sink", "F32", (HEADS,)
    if ratio:
        yield from _compressor(f"{at}.compressor", ratio, HEAD_DIM)
    if ratio == 4:
        yield from _fp8(f"{at}.indexer.wq_b", INDEX_HEADS * INDEX_DIM, Q_RANK)
        yield f"{at}.indexer.weights_proj.weight", "BF16", (INDEX_HEADS, HIDDEN)
        yield from _compressor(f"{at}.indexer.compressor", ratio, INDEX_DIM)


def _compressor(at: str, ratio: int, dim: int) -> Iterator[Said]:
    width = 2 * dim if ratio == 4 else dim
    yield f"{at}.wkv.weight", "BF16", (width, HIDDEN)
    yield f"{at}.wgate.weight", "BF16", (width, HIDDEN)
    yield f"{at}.ape", "F32", (ratio, width)
    yield f"{at}.norm.weight", "BF16", (dim,)


def write(folder: Path) -> Path:
    """`folder`, now holding the checkpoint in 64 sparse files of about one size."""
    listed = list(tensors())
    room = sum(map(size_of, listed)) / FILES
    parts: list[list[Said]] = [[] for _ in range(FILES)]
    place = 0
    for said in listed:
        parts[min(int(place / room), FILES - 1)].append(said)
        place += size_of(said)
    for number, part in enumerate(parts, 1):
        write_sparse(folder / f"model-{number:05}-of-{FILES:05}.safetensors", part)
    return folder
