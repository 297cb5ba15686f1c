"""One rank of DeepSeek-V4-Pro on a real GPU, native and padded: bytes as predicted, bytes as they are, time.

    python bench/gpu/experts.py                                  # one GPU with 130 GiB free, two minutes
    python bench/gpu/experts.py --device cpu --layers 1 --experts 2 --tokens 1 4      # to try the program

Needs torch and this checkout, nothing else. The rank is that of TP 8: 3072 / 8 = 384 columns of each of 384
experts. It is allocated at 384, as vLLM 0.28 and later allocates it for AITER, and at 512, as its generic
ROCm rule did before. Ends with an error if a prediction is wrong.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
from tables import report

from moe_align.adapters.torch import Padding, allocate, expert_tensors, pad
from moe_align.layout import Experts, expert_bytes

HIDDEN, NATIVE, PADDED = 7168, 384, 512
GIB = 2**30

#: How far the allocator's own rounding may take its count above the tensors' bytes.
ROUNDING = 0.002

ROUNDS = 15


def memory(experts: int, layers: int, width: int, device: torch.device) -> dict[str, float]:
    """GiB of `layers` layers of one width: predicted, summed over the tensors, and as the allocator counts.

    Raises:
        SystemExit: if the sum is not exactly what was predicted, or the count is not near it.
    """
    layer = Experts("mxfp4", experts, HIDDEN, width)
    before = _allocated(device)
    held = [allocate(expert_tensors(layer, native_intermediate=NATIVE), device) for _ in range(layers)]
    there = sum(tensor.nbytes for tensors in held for tensor in tensors.values())
    counted = _allocated(device) - before
    predicted = layers * expert_bytes(layer).total
    if there != predicted:
        raise SystemExit(f"width {width}: predicted {predicted} bytes, the tensors have {there}")
    if device.type == "cuda" and not 0 <= counted / predicted - 1 <= ROUNDING:
        raise SystemExit(f"width {width}: predicted {predicted} bytes, the allocator counts {counted}")
    return {"width": width, "predicted": predicted / GIB, "tensors": there / GIB, "allocator": counted / GIB}


def _allocated(device: torch.device) -> int:
    return torch.cuda.memory_allocated(device) if device.type == "cuda" else 0


class Layer:
    """The expert GEMMs of one BF16 layer, each expert with the same number of tokens."""

    def __init__(self, w13: torch.Tensor, w2: torch.Tensor) -> None:
        self.w13 = w13.transpose(1, 2)  # [experts, hidden, 2 · width]
        self.w2 = w2.transpose(1, 2)  # [experts, width, hidden]

    def __call__(self, tokens: torch.Tensor) -> torch.Tensor:
        """`[experts, tokens, hidden]` → the same shape."""
        gate, up = torch.bmm(tokens, self.w13).chunk(2, dim=-1)
        return torch.bmm(torch.nn.functional.silu(gate) * up, self.w2)


def layers(experts: int, device: torch.device) -> tuple[Layer, Layer]:
    """The layer at its native width, and the same one padded with zeros."""
    torch.manual_seed(0)
    w13 = torch.randn(experts, 2 * NATIVE, HIDDEN, dtype=torch.bfloat16, device=device) / HIDDEN**0.5
    w2 = torch.randn(experts, HIDDEN, NATIVE, dtype=torch.bfloat16, device=device) / NATIVE**0.5
    padded = Layer(pad(w13, [Padding(1, NATIVE, PADDED, parts=2)]), pad(w2, [Padding(2, NATIVE, PADDED)]))
    return Layer(w13, w2), padded


def speed(experts: int, each: int, device: torch.device, native: Layer, padded: Layer) -> dict[str, float]:
    """Milliseconds of both layers with `each` tokens an expert: medians of rounds that run A B, B A, A B, …

    Raises:
        SystemExit: if the two do not give the same outputs.
    """
    tokens = torch.randn(experts, each, HIDDEN, dtype=torch.bfloat16, device=device)
    difference = (native(tokens).float() - padded(tokens).float()).abs().max().item()
    # The sums may be split otherwise at another width: a few units in the last place of BF16.
    if difference > 0.05:
        raise SystemExit(f"{each} tokens an expert: outputs differ by {difference}")
    times: dict[str, list[float]] = {"native": [], "padded": []}
    jobs = [("native", native), ("padded", padded)]
    for number in range(ROUNDS + 1):
        for name, layer in jobs[:: -1 if number % 2 else 1]:
            taken = _milliseconds(partial(layer, tokens), device)
            if number:  # the first round warms up
                times[name].append(taken)
    ratios = [after / before for before, after in zip(times["native"], times["padded"], strict=True)]
    return {
        "tokens": each,
        "native": median(times["native"]),
        "padded": median(times["padded"]),
        "ratio": median(ratios),
        "least": min(ratios),
        "greatest": max(ratios),
    }


def _milliseconds(job: Callable[[], object], device: torch.device, repeats: int = 5) -> float:
    """The mean time of `repeats` runs, after one more."""
    job()
    if device.type == "cuda":
        start = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        start.record()
        for _ in range(repeats):
            job()
        end.record()
        torch.cuda.synchronize(device)
        return float(start.elapsed_time(end)) / repeats
    began = time.perf_counter()
    for _ in range(repeats):
        job()
    return (time.perf_counter() - began) * 1000 / repeats


def main() -> None:
    """Measure, print the tables, and leave `h200.json` under `$OUT` if that is set."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--layers", type=int, default=61)
    parser.add_argument("--experts", type=int, default=384)
    parser.add_argument(
        "--tokens", type=int, nargs="+", default=[1, 2, 4, 16, 128, 512], help="of each expert"
    )
    options = parser.parse_args()
    device = torch.device(options.device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    found: dict[str, Any] = {
        "device": name,
        "torch": torch.__version__,
        "layers": options.layers,
        "experts": options.experts,
        "hidden": HIDDEN,
        "memory": [],
        "speed": [],
    }
    for width in (NATIVE, PADDED):
        found["memory"].append(memory(options.experts, options.layers, width, device))
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
    pair = layers(options.experts, device)
    found["speed"] = [speed(options.experts, each, device, *pair) for each in options.tokens]
    print(report(found))
    if "OUT" in os.environ:
        (Path(os.environ["OUT"]) / "h200.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
