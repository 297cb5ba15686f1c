"""Safetensors files of any size that take no room: a true header, and holes where the weights would be."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from moe_align.snapshot.headers import BITS

Said = tuple[str, str, tuple[int, ...]]  # name, dtype, shape


def size_of(said: Said) -> int:
    """Bytes of a tensor."""
    bits = BITS[said[1]]
    for size in said[2]:
        bits *= size
    return bits // 8


def header_of(
    tensors: Iterable[Said], metadata: Mapping[str, str] | None = None
) -> tuple[dict[str, Any], int]:
    """The header's object, and the bytes of all tensors."""
    document: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    place = 0
    for name, dtype, shape in tensors:
        end = place + size_of((name, dtype, shape))
        document[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [place, end]}
        place = end
    return document, place


def write_raw(path: Path, header: bytes, data: int | bytes = 0, length: int | None = None) -> Path:
    """A file with any header; `data` are its bytes, or how many there are; `length` is what it claims."""
    with open(path, "wb") as file:
        file.write((len(header) if length is None else length).to_bytes(8, "little"))
        file.write(header)
        if isinstance(data, bytes):
            file.write(data)
        else:
            file.truncate(8 + len(header) + data)
    return path


def write_sparse(path: Path, tensors: Iterable[Said]) -> Path:
    """A file that says that it holds these tensors."""
    document, size = header_of(tensors, {"format": "pt"})
    text = json.dumps(document, separators=(",", ":")).encode()
    return write_raw(path, text + b" " * (-len(text) % 8), size)
