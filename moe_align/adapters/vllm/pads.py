"""The pads of a layer's parameters, and what they have to hold so that they add nothing.

vLLM's own loader says which way a parameter lies: in w13 the intermediate size runs along the rows (gate and
up one after the other), in w2 along the columns, the other way round where it is marked as transposed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..torch import E8M0_ONE, Padding, fill_pads, padding_of

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Sizes:
    """Native and allocated sizes of one layer, in elements."""

    native: tuple[int, int]  # hidden, intermediate per partition
    allocated: tuple[int, int]
    gated: bool

    @property
    def hidden(self) -> tuple[int, int]:
        return self.native[0], self.allocated[0]

    @property
    def intermediate(self) -> tuple[int, int]:
        return self.native[1], self.allocated[1]


def fill_layer(layer: Any, sizes: Sizes) -> int:
    """Fill every pad of the layer's expert parameters with its neutral value; how many have one.

    Raises:
        ValueError: for a parameter that the sizes do not explain; filling it by a guess could erase weights.
    """
    filled = 0
    for name, parameter in layer.named_parameters(recurse=False):
        if name.startswith(("w13_", "w2_")) and parameter.ndim > 1:
            paddings = paddings_of(name, parameter, sizes)
            fill_pads(parameter.data, paddings, neutral(name, parameter))
            filled += any(padding.pad for padding in paddings)
    return filled


def paddings_of(name: str, parameter: torch.Tensor, sizes: Sizes) -> tuple[Padding, ...]:
    """The paddings of a parameter `[num_experts, …]`.

    Raises:
        ValueError: if a dimension has more cells than the sizes have elements.
    """
    in_w13 = name.startswith("w13_")
    parts = 2 if in_w13 and sizes.gated else 1
    rows = (sizes.intermediate, parts) if in_w13 else (sizes.hidden, 1)
    columns = (sizes.hidden, 1) if in_w13 else (sizes.intermediate, 1)
    dims = [rows, columns][: parameter.ndim - 1]
    if getattr(parameter, "is_transposed", False):
        dims.reverse()
    paddings = []
    for dim, ((native, allocated), run) in enumerate(dims, start=1):
        cells = parameter.shape[dim]
        # A single cell (the scale of a whole row) has no pad, however many elements stand behind it.
        if cells > run * allocated or (cells % run and cells > 1):
            raise ValueError(
                f"{name} has {cells} cells along dimension {dim}, where {run} × {allocated} elements lie"
            )
        if cells > 1:
            paddings.append(padding_of(dim, cells, native, allocated, run))
    return tuple(paddings)


def neutral(name: str, parameter: torch.Tensor) -> float:
    """What a pad cell of the parameter holds: weights and biases 0, scales 1 in their own format."""
    if "scale" not in name:
        return 0
    # Stored as bytes, an E8M0 scale is its exponent.
    return E8M0_ONE if not parameter.is_floating_point() else 1
