"""Real tensors for a decision: shapes, allocation, padding, and a rank's slice of a checkpoint tensor.

A tensor is described by its `Padding`s, one for each dimension that a padded size runs along, counted in cells of
that very tensor: half as many bytes as elements in packed MXFP4, one per block in a scale. Stacked gate and up are
one dimension of two parts, each with its own pad at its end. Interleaved rows (gate 0, up 0, gate 1, …) are one part
of twice the size: their pad is a tail, so no second case is needed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Padding:
    """How dimension `dim` of a tensor holds a padded size: `parts` equal runs, each with its pad at the end."""

    dim: int
    native: int  # live cells of one part
    allocated: int  # cells of one part, pad included
    parts: int = 1  # 2 for stacked gate and up

    def __post_init__(self) -> None:
        if self.parts < 1 or not 0 <= self.native <= self.allocated:
            raise ValueError(f"no padding of {self.native} cells to {self.allocated} in {self.parts} parts")

    @property
    def pad(self) -> int:
        """Cells of padding in one part."""
        return self.allocated - self.native


def padding_of(dim: int, cells: int, native: int, allocated: int, parts: int = 1) -> Padding:
    """The padding of a dimension of `cells` cells that holds `parts × allocated` elements, `parts × native` live.

    A cell is as many elements as the division gives: 1/2 of a byte for MXFP4 (`cells` are bytes), 128 for the
    scale of a block of 128. A cell that holds a single live element is live.

    Raises:
        ValueError: if the parts do not end on cell boundaries.
    """
    if cells % parts:
        raise ValueError(f"{cells} cells do not split into {parts} parts")
    elements_per_cell = Fraction(allocated * parts, cells)
    live = math.ceil(native / elements_per_cell)
    return Padding(dim, live, cells // parts, parts)


def fill_pads(tensor: torch.Tensor, paddings: Sequence[Padding], value: float) -> None:
    """Set every pad cell of `tensor` to `value`, in place; live cells are not written. Nothing on a meta tensor."""
    for padding in paddings:
        for part in range(padding.parts if padding.pad else 0):
            _fill(tensor.narrow(padding.dim, part * padding.allocated + padding.native, padding.pad), value)


def pad(tensor: torch.Tensor, paddings: Sequence[Padding], value: float = 0) -> torch.Tensor:
    """A copy of native `tensor` with its pads, filled with `value`.

    Raises:
        ValueError: if the tensor has not the native shape that the paddings give.
    """
    shape = _resized(tensor, paddings, to_native=False)
    padded = tensor.new_empty(shape)
    _copy_live(padded, _live(tensor, paddings, native=True), paddings)
    fill_pads(padded, paddings, value)
    return padded


def unpad(tensor: torch.Tensor, paddings: Sequence[Padding]) -> torch.Tensor:
    """A copy of padded `tensor` without its pads.

    Raises:
        ValueError: if the tensor has not the padded shape that the paddings give.
    """
    native = tensor.new_empty(_resized(tensor, paddings, to_native=True))
    for target, source in zip(
        _live(native, paddings, native=True), _live(tensor, paddings, native=False), strict=True
    ):
        target.copy_(source)
    return native


def load_shard(
    buffer: torch.Tensor,
    checkpoint: torch.Tensor,
    paddings: Sequence[Padding],
    split: int | None,
    tp_rank: int,
    tp_size: int,
    value: float = 0,
) -> None:
    """Copy rank `tp_rank`'s share of a whole checkpoint tensor into its padded `buffer`, and fill the pads.

    `split` is the dimension that tensor parallelism cuts (None: every rank holds all of it). Shards follow the
    native size, so a pad moves no other rank's elements.

    Raises:
        ValueError: if the checkpoint tensor does not hold `tp_size` native shards.
    """
    native = _resized(buffer, paddings, to_native=True)
    whole = tuple(size * (tp_size if dim == split else 1) for dim, size in enumerate(native))
    if tuple(checkpoint.shape) != whole:
        raise ValueError(
            f"the checkpoint tensor is {tuple(checkpoint.shape)}, where {tp_size} shards of {native} make {whole}"
        )
    shard = checkpoint
    if split is not None:
        parts = next((padding.parts for padding in paddings if padding.dim == split), 1)
        # Of stacked gate and up each rank takes a slice of both halves, not the rows of one range.
        rows = checkpoint.unflatten(split, (parts, tp_size, -1)).select(split + 1, tp_rank)
        shard = rows.flatten(split, split + 1)
    _copy_live(buffer, _live(shard, paddings, native=True), paddings)
    fill_pads(buffer, paddings, value)


def _copy_live(padded: torch.Tensor, sources: Iterator[torch.Tensor], paddings: Sequence[Padding]) -> None:
    for target, source in zip(_live(padded, paddings, native=False), sources, strict=True):
        target.copy_(source)


def _resized(tensor: torch.Tensor, paddings: Sequence[Padding], *, to_native: bool) -> tuple[int, ...]:
    """The shape of `tensor` after its pads are cut off, or put on."""
    shape = list(tensor.shape)
    for padding in paddings:
        before, after = padding.allocated, padding.native
        if not to_native:
            before, after = after, before
        if shape[padding.dim] != padding.parts * before:
            raise ValueError(
                f"dimension {padding.dim} of {tuple(tensor.shape)} holds {shape[padding.dim]} cells, "
                f"not {padding.parts} × {before}"
            )
        shape[padding.dim] = padding.parts * after
    return tuple(shape)


def _live(tensor: torch.Tensor, paddings: Sequence[Padding], *, native: bool) -> Iterator[torch.Tensor]:
    """Views of the live cells, one for each combination of parts; `native`: the tensor has no pads."""
    for combination in itertools.product(*(range(padding.parts) for padding in paddings)):
        view = tensor
        for padding, part in zip(paddings, combination, strict=True):
            stride = padding.native if native else padding.allocated
            view = view.narrow(padding.dim, part * stride, padding.native)
        yield view


def _fill(view: torch.Tensor, value: float) -> None:
    """Fill `view`; the one-byte float formats by their bytes, since not all of them can be filled as they are."""
    import torch

    if view.itemsize == 1 and view.is_floating_point():
        byte = torch.tensor(value, dtype=torch.float32).to(view.dtype).view(torch.uint8)
        view.view(torch.uint8).fill_(int(byte))
    else:
        view.fill_(value)
