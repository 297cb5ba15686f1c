"""Small checkpoints, and the shards that an engine makes of them, apart from the code that is tested."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy
from sparse import Said, header_of, write_raw

from moe_align.snapshot.headers import BITS
from moe_align.snapshot.manifest import Sizes
from moe_align.snapshot.wanted import Wanted

Array = numpy.ndarray[Any, numpy.dtype[numpy.uint8]]

#: A tensor's type, shape and bytes.
Saved = dict[str, tuple[str, tuple[int, ...], bytes]]

#: For each scheme: types of weight and scale, elements of a cell of a weight, rows and columns of a scale,
#: the scale's name, and the bytes of a scale of 1.
FORMATS: dict[str, tuple[str, str, int, int, int, str, bytes]] = {
    "unquantized": ("BF16", "", 1, 0, 0, "", b""),
    "mxfp4": ("U8", "U8", 2, 1, 32, "weight_scale", b"\x7f"),
    "mxfp8": ("F8_E4M3", "U8", 1, 1, 32, "weight_scale", b"\x7f"),
    "nvfp4": ("U8", "F8_E4M3", 2, 1, 16, "weight_scale", b"\x38"),
    "fp8_block": ("F8_E4M3", "F32", 1, 32, 32, "weight_scale_inv", b"\x00\x00\x80\x3f"),
    "fp8_channel": ("F8_E4M3", "F32", 1, 1, 10**6, "weight_scale", b"\x00\x00\x80\x3f"),
}


@dataclass(frozen=True)
class Tiny:
    """A model whose experts are random bytes: two layers, four experts of `hidden` × `width`."""

    scheme: str = "unquantized"
    hidden: int = 64
    width: int = 192
    experts: int = 4
    layers: int = 2
    bias: bool = False
    seed: int = 0
    cells: dict[str, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        generator = numpy.random.default_rng(self.seed)
        for name, (dtype, shape) in self.shapes().items():
            size = (*shape, BITS[dtype] // 8)
            self.cells[name] = generator.integers(1, 255, size, numpy.uint8)

    def shapes(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Every expert tensor of the checkpoint, with its type."""
        weight, scale, cell, rows, columns, suffix, _ = FORMATS[self.scheme]
        found: dict[str, tuple[str, tuple[int, ...]]] = {}
        for layer in range(self.layers):
            for expert in range(self.experts):
                for projection in ("gate_proj", "up_proj", "down_proj"):
                    at = f"model.layers.{layer}.mlp.experts.{expert}.{projection}"
                    high, wide = (
                        (self.hidden, self.width) if projection == "down_proj" else (self.width, self.hidden)
                    )
                    found[f"{at}.weight"] = (weight, (high, wide // cell))
                    if scale:
                        found[f"{at}.{suffix}"] = (scale, (-(-high // rows), -(-wide // columns)))
                    if self.bias:
                        found[f"{at}.bias"] = ("BF16", (high,))
        return found

    def checkpoint(self) -> Saved:
        """The checkpoint, with a norm and embeddings."""
        saved = {
            name: (dtype, shape, self.cells[name].tobytes()) for name, (dtype, shape) in self.shapes().items()
        }
        return saved | other_tensors()

    def shard(self, rank: int, tp: int, to: Sizes, *, ep: int = 1, interleaved: bool = False) -> Saved:
        """What rank `rank` allocates and loads: `to` are its sizes, pads hold what is neutral."""
        saved = dict(other_tensors())
        for layer in range(self.layers):
            for name, (dtype, array) in self._parameters(layer, rank, tp, to, ep, interleaved):
                saved[f"model.layers.{layer}.mlp.experts.routed_experts.{name}"] = (
                    dtype,
                    array.shape[:-1],
                    array.tobytes(),
                )
        return saved

    def _parameters(
        self, layer: int, rank: int, tp: int, to: Sizes, ep: int, interleaved: bool
    ) -> Iterator[tuple[str, tuple[str, Array]]]:
        weight, scale, cell, rows, columns, suffix, one = FORMATS[self.scheme]
        kinds = [("weight", weight, 1, cell, b"\x00" * (BITS[weight] // 8))]
        kinds += [(suffix, scale, rows, columns, one)] if scale else []
        kinds += [("bias", "BF16", 1, 0, b"\x00\x00")] if self.bias else []
        for part, dtype, high, wide, pad in kinds:
            yield (
                f"w13_{part}",
                (dtype, self._w13(layer, rank, tp, to, ep, interleaved, part, high, wide, pad)),
            )
            yield f"w2_{part}", (dtype, self._w2(layer, rank, tp, to, ep, part, high, wide, pad))

    def _mine(self, rank: int, ep: int) -> range:
        share = self.experts // ep
        return range(rank % ep * share, (rank % ep + 1) * share)

    def _w13(
        self,
        layer: int,
        rank: int,
        tp: int,
        to: Sizes,
        ep: int,
        turns: bool,
        part: str,
        high: int,
        wide: int,
        pad: bytes,
    ) -> Array:
        width = -(-to.intermediate // high)
        shape = (self.experts // ep, 2 * width, *((-(-to.hidden // wide),) if wide else ()), len(pad))
        made = numpy.empty(shape, numpy.uint8)
        made[:] = numpy.frombuffer(pad, numpy.uint8)
        for place, expert in enumerate(self._mine(rank, ep)):
            for half, projection in enumerate(("gate_proj", "up_proj")):
                whole = self.cells[f"model.layers.{layer}.mlp.experts.{expert}.{projection}.{part}"]
                count = whole.shape[0] // tp
                mine = whole[rank % tp * count :][:count]
                at = made[place, half::2] if turns else made[place, half * width : (half + 1) * width]
                if wide:
                    at[:count, : mine.shape[1]] = mine
                else:
                    at[:count] = mine
        return made

    def _w2(
        self, layer: int, rank: int, tp: int, to: Sizes, ep: int, part: str, high: int, wide: int, pad: bytes
    ) -> Array:
        rows = -(-to.hidden // high)
        shape = (self.experts // ep, rows, *((-(-to.intermediate // wide),) if wide else ()), len(pad))
        made = numpy.empty(shape, numpy.uint8)
        made[:] = numpy.frombuffer(pad, numpy.uint8)
        for place, expert in enumerate(self._mine(rank, ep)):
            whole = self.cells[f"model.layers.{layer}.mlp.experts.{expert}.down_proj.{part}"]
            if not wide:
                made[place, : whole.shape[0]] = whole
                continue
            count = max(whole.shape[1] // tp, 1)
            first = 0 if whole.shape[1] == 1 else rank % tp * count
            made[place, : whole.shape[0], :count] = whole[:, first : first + count]
        return made

    def wanted(self, to: Sizes, tp: int = 1, ep: int = 1, **more: Any) -> Wanted:
        """What the engine loads into."""
        rows, columns = FORMATS[self.scheme][3:5]
        return Wanted(
            **{
                "experts": self.experts,
                "native": Sizes(self.hidden, self.width // tp),
                "allocated": to,
                "whole": self.width,
                "scheme": self.scheme,
                "gated": True,
                "bias": self.bias,
                "block": (rows, columns) if self.scheme == "fp8_block" else None,
                "backend": "triton",
                "tp": tp * ep,
                "dp": 1,
                "moe_tp": tp,
                "moe_ep": ep,
                "layout": "created",
                **more,
            }
        )


def other_tensors() -> Saved:
    """What belongs to no expert."""
    return {
        "model.embed_tokens.weight": ("BF16", (32, 64), bytes(range(256)) * 16),
        "model.norm.weight": ("BF16", (64,), b"\x80\x3f" * 64),
    }


def write(path: Path, tensors: Saved) -> Path:
    """A file with these tensors."""
    said: list[Said] = [(name, dtype, shape) for name, (dtype, shape, _) in tensors.items()]
    text = json.dumps(header_of(said, {"format": "pt"})[0]).encode()
    text += b" " * (-len(text) % 8)
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_raw(path, text, b"".join(data for _, _, data in tensors.values()))


def write_ranks(
    folder: Path, tiny: Tiny, to: Sizes, tp: int = 1, ep: int = 1, parts: int = 1, **more: Any
) -> Path:
    """`folder`, now holding the shards of all ranks as `sharded_state` names them."""
    for rank in range(tp * ep):
        tensors = list(tiny.shard(rank, tp, to, ep=ep, **more).items())
        for part in range(parts):
            write(folder / f"model-rank-{rank}-part-{part}.safetensors", dict(tensors[part::parts]))
    return folder


def read(path: Path) -> Saved:
    """The tensors of a file."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    document = json.loads(data[8 : 8 + length])
    document.pop("__metadata__", None)
    body = data[8 + length :]
    return {
        name: (said["dtype"], tuple(said["shape"]), body[slice(*said["data_offsets"])])
        for name, said in document.items()
    }
