"""Real tensors for a decision: shapes, allocation, padding, and a rank's slice of a checkpoint tensor.

`expert_tensors` says what a layer's tensors look like, `allocate` makes them; `pad`, `unpad`, `fill_pads` and
`load_shard` work on any tensor. All of it runs on meta tensors too, where only shapes are true.

A tensor is described by its `Padding`s, one for each dimension that a padded size runs along, counted in
cells of that very tensor: half as many bytes as elements in packed MXFP4, one per block in a scale. Stacked
gate and up are one dimension of two parts, each with its own pad at its end. Interleaved rows (gate 0, up 0,
gate 1, …) are one part of twice the size: their pad is a tail, so no second case is needed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, NoReturn

from ..layout import GIVEN, SCHEMES, WHOLE, Experts, Scheme
from ..sizes import ceil_div

if TYPE_CHECKING:
    import torch

#: The E8M0 byte that means a scale of 1.
E8M0_ONE = 127


@dataclass(frozen=True, slots=True)
class Storage:
    """How torch holds a scheme's weights and scales, and the scale at which a pad adds nothing.

    Weights of a pad are zero bytes. Where that byte does not mean 0 (an unsigned integer with an implicit
    zero point of half its range), the scale has to be 0 instead.
    """

    weight: str
    scale: str | None = None
    neutral_scale: float = 1


#: The torch types of every scheme that `layout` has bytes for.
STORAGE: Mapping[str, Storage] = {
    "unquantized": Storage("bfloat16"),
    "mxfp4": Storage("uint8", "uint8", E8M0_ONE),
    "mxfp6": Storage("uint8", "uint8", E8M0_ONE),
    "mxfp8": Storage("float8_e4m3fn", "uint8", E8M0_ONE),
    "nvfp4": Storage("uint8", "float8_e4m3fn"),
    "fp8_block": Storage("float8_e4m3fn", "float32"),
    "fp8_tensor": Storage("float8_e4m3fn", "float32"),
    "fp8_channel": Storage("float8_e4m3fn", "float32"),
    "int8_w8a8": Storage("int8", "float32"),
    "int4_wna16": Storage("uint8", "bfloat16", 0),
    "int8_wna16": Storage("uint8", "bfloat16", 0),
    "w4a8_fp8": Storage("uint8", "bfloat16", 0),
    "w4a8_int8": Storage("int8", "bfloat16", 0),
}


@dataclass(frozen=True, slots=True)
class Padding:
    """How dimension `dim` of a tensor holds a padded size: `parts` equal runs, each with a pad at its end."""

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


@dataclass(frozen=True, slots=True)
class ExpertTensor:
    """One tensor of a layer: `[num_experts, rows, columns]`, a bias `[num_experts, rows]`."""

    name: str  # as vLLM names its parameters: w13_weight, w2_weight_scale, …
    shape: tuple[int, ...]
    dtype: str
    paddings: tuple[Padding, ...]
    neutral: float  # what a pad cell holds


def expert_tensors(
    experts: Experts,
    *,
    native_hidden: int | None = None,
    native_intermediate: int | None = None,
    interleaved: bool = False,
) -> tuple[ExpertTensor, ...]:
    """Every tensor of a layer of `experts`, whose sizes are the allocated ones.

    The native sizes say where the pads begin (left out: there are none). `interleaved`: gate and up rows take
    turns in w13, so its pad is one tail.

    Raises:
        ValueError: a native size above the allocated one, or a block or group that is missing.
    """
    hidden = (native_hidden or experts.hidden_size, experts.hidden_size)
    width = (native_intermediate or experts.intermediate_size, experts.intermediate_size)
    rows, parts = width, experts.shards
    if interleaved:
        rows, parts = (width[0] * parts, width[1] * parts), 1
    return (
        *_projection(experts, "w13", rows, parts, hidden),
        *_projection(experts, "w2", hidden, 1, width),
        *_numbers(experts),
    )


def allocate(
    tensors: Sequence[ExpertTensor], device: torch.device | str | None = None
) -> dict[str, torch.Tensor]:
    """Name → tensor for each of `tensors`: pads hold their neutral value, live cells whatever memory held."""
    import torch

    made = {}
    for tensor in tensors:
        made[tensor.name] = torch.empty(tensor.shape, dtype=getattr(torch, tensor.dtype), device=device)
        fill_pads(made[tensor.name], tensor.paddings, tensor.neutral)
    return made


def _projection(
    experts: Experts, name: str, rows: tuple[int, int], parts: int, columns: tuple[int, int]
) -> Iterator[ExpertTensor]:
    """The tensors of w13 or w2, with `parts` runs of rows; rows and columns are (native, allocated)."""
    scheme, storage = _scheme(experts), STORAGE[experts.scheme]
    bits = scheme.created_bits or scheme.bits
    cell_bits = 8 if bits < 8 else bits

    def tensor(suffix: str, cells: tuple[int, int], dtype: str, neutral: float) -> ExpertTensor:
        shape = (experts.num_experts, *cells)
        along = (
            padding_of(1, cells[0], *rows, parts),
            padding_of(2, cells[1], *columns),
        )
        return ExpertTensor(name + suffix, shape, dtype, along, neutral)

    yield tensor("_weight", (parts * rows[1], columns[1] * bits // cell_bits), storage.weight, 0)
    if storage.scale:
        grid = _scale_grid(experts, rows[1], columns[1])
        yield tensor("_weight_scale", (parts * grid[0], grid[1]), storage.scale, storage.neutral_scale)
        if experts.zero_points or scheme.zero_points:
            packed = (parts * grid[0] * scheme.bits // 8, grid[1])
            yield tensor("_weight_zero_point", packed, "uint8", 0)
    if experts.bias or scheme.biases:
        along_rows = (Padding(1, *rows, parts),)
        dtype = {16: "bfloat16", 32: "float32"}[scheme.bias_bits]
        yield ExpertTensor(name + "_bias", (experts.num_experts, parts * rows[1]), dtype, along_rows, 0)


def _numbers(experts: Experts) -> Iterator[ExpertTensor]:
    """One tensor for the global and activation scales of every expert, which no padded size runs along."""
    scheme = _scheme(experts)
    count = ((experts.shards + 1) * scheme.projection_bytes + scheme.expert_bytes) // 4
    if count:
        yield ExpertTensor("numbers", (experts.num_experts, count), "float32", (), 1)


def _scheme(experts: Experts) -> Scheme:
    return SCHEMES.get(f"{experts.scheme}/{experts.method}") or SCHEMES[experts.scheme]


def _scale_grid(experts: Experts, rows: int, columns: int) -> tuple[int, int]:
    """How many scales stand down and across one part."""
    scheme = _scheme(experts)
    block_n, block_k = scheme.scale_rows, scheme.scale_columns
    if block_n == GIVEN:
        block_n, block_k = experts.block or _missing(experts.scheme, "block")
    elif block_k == GIVEN:
        block_k = max(experts.group or _missing(experts.scheme, "group"), WHOLE)
    down, across = (
        1 if side == WHOLE else ceil_div(size, side) if scheme.partial else size // side
        for size, side in ((rows, block_n), (columns, block_k))
    )
    return down, across


def _missing(scheme: str, name: str) -> NoReturn:
    raise ValueError(f"scheme `{scheme}` leaves its {name} to the checkpoint: give it")


def padding_of(dim: int, cells: int, native: int, allocated: int, parts: int = 1) -> Padding:
    """The padding of a dimension of `cells` cells, for `parts × allocated` elements, `parts × native` live.

    A cell is as many elements as the division gives: 2 where `cells` are bytes of MXFP4, 128 for the scale of
    a block of 128. A cell that holds a single live element is live.

    Raises:
        ValueError: if the parts do not end on cell boundaries.
    """
    if cells == 0:
        return Padding(dim, 0, 0, parts)
    if cells % parts:
        raise ValueError(f"{cells} cells do not split into {parts} parts")
    elements_per_cell = Fraction(allocated * parts, cells)
    live = math.ceil(native / elements_per_cell)
    return Padding(dim, live, cells // parts, parts)


def fill_pads(tensor: torch.Tensor, paddings: Sequence[Padding], value: float) -> None:
    """Set every pad cell of `tensor` to `value`, in place; live cells are not written."""
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

    `split` is the dimension that tensor parallelism cuts (None: every rank holds all of it). Shards follow
    the native size, so a pad moves no other rank's elements.

    Raises:
        ValueError: if the checkpoint tensor does not hold `tp_size` native shards.
    """
    import torch

    native = _resized(buffer, paddings, to_native=True)
    whole = tuple(size * (tp_size if dim == split else 1) for dim, size in enumerate(native))
    if tuple(checkpoint.shape) != whole:
        raise ValueError(
            f"the checkpoint tensor is {tuple(checkpoint.shape)}; {tp_size} shards of {native} make {whole}"
        )
    shard = checkpoint
    if split is not None:
        parts = next((padding.parts for padding in paddings if padding.dim == split), 1)
        # Of stacked gate and up each rank takes a slice of both halves, not the rows of one range.
        size = native[split] // parts
        halves = (checkpoint.narrow(split, (part * tp_size + tp_rank) * size, size) for part in range(parts))
        shard = torch.cat(list(halves), dim=split)
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
    """Fill `view`; one-byte floats by their bytes, since not all of these types can be filled."""
    import torch

    if view.itemsize == 1 and view.is_floating_point():
        byte = torch.tensor(value, dtype=torch.float32).to(view.dtype).view(torch.uint8)
        view.view(torch.uint8).fill_(int(byte))
    else:
        view.fill_(value)
