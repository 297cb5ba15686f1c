"""An engine's own expert parameters: their shapes for given sizes, and what loading makes of them."""

from __future__ import annotations

from ..layout import GIVEN, SCHEMES, WHOLE
from ..record import NamedTuple
from ..sizes import ceil_div

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..layout import Experts, Scheme

#: What a saved parameter is: as the engine allocated it and the loader filled it, or as it was left by
#: the engine's own repacking after loading.
CREATED, PROCESSED = "created", "processed"
LAYOUTS = (CREATED, PROCESSED)

#: Backends, by scheme, whose repacking leaves every parameter as it was created, so that a saved one can
#: be loaded, and padded, like one of a checkpoint.
#: Source: vllm v0.24.0 to v0.33.0: fused_moe/oracle/unquantized.py, oracle/fp8.py.
_LEFT_ALONE: Mapping[str, frozenset[str]] = {
    "unquantized": frozenset({"triton", "batched_triton"}),
    "fp8_block": frozenset({"triton", "batched_triton"}),
}

#: Repacking that was tried on parameters that were repacked already, and gave other tokens.
WRONG_TWICE: Mapping[str, frozenset[str]] = {"unquantized": frozenset({"cpu"})}

#: Schemes of which each parameter's shape is known; those of packed integers differ by method.
SHAPED = frozenset(
    {"unquantized", "mxfp4", "mxfp8", "nvfp4", "fp8_block", "fp8_tensor", "fp8_channel", "int8_w8a8"}
)

#: Types in which a scheme's weights and scales are saved.
DTYPES: Mapping[str, tuple[frozenset[str], frozenset[str]]] = {
    "unquantized": (frozenset({"BF16", "F16", "F32"}), frozenset()),
    "mxfp4": (frozenset({"U8", "I8"}), frozenset({"U8", "F8_E8M0"})),
    "mxfp8": (frozenset({"F8_E4M3"}), frozenset({"U8", "F8_E8M0"})),
    "nvfp4": (frozenset({"U8"}), frozenset({"F8_E4M3"})),
    "fp8_block": (frozenset({"F8_E4M3", "F8_E4M3FNUZ"}), frozenset({"F32", "BF16", "F8_E8M0", "U8"})),
    "fp8_tensor": (frozenset({"F8_E4M3", "F8_E4M3FNUZ"}), frozenset({"F32", "BF16"})),
    "fp8_channel": (frozenset({"F8_E4M3", "F8_E4M3FNUZ"}), frozenset({"F32", "BF16"})),
    "int8_w8a8": (frozenset({"I8"}), frozenset({"F32", "BF16"})),
}

_NUMBERS = frozenset({"weight_scale_2", "input_scale", "weight_global_scale", "input_global_scale"})

#: Parts of a projection that have a scale for each block.
SCALES = frozenset({"weight_scale", "weight_scale_inv", "scale", "scale_inv", "scales"})
WEIGHTS = frozenset({"weight", "weight_packed", "blocks"})


def is_left_alone(scheme: str, backend: str | None, *, fnuz: bool) -> bool:
    """Whether repacking leaves parameters as they were created.

    `fnuz` hardware (gfx942) reads FP8 of another bias, so there weights and scales are converted first.
    """
    return backend in _LEFT_ALONE.get(scheme, ()) and not (fnuz and scheme.startswith("fp8"))


class Axis(NamedTuple):
    """One dimension of a parameter: `parts` times the cells of a size, each of which holds `elements` of it.

    `size` is `hidden` or `intermediate`. A cell at the edge may hold fewer elements (`partial`). The size
    of a cell is `WHOLE` where one cell is for all of them. Parts follow each other, or take turns cell by
    cell (`interleaved`): then all of them have their pads at the end.
    """

    size: str
    elements: int
    parts: int = 1
    partial: bool = False
    interleaved: bool = False

    def cells(self, size: int) -> int:
        """Cells of one part, for so many elements."""
        if self.elements == WHOLE:
            return 1
        return ceil_div(size, self.elements) if self.partial else size // self.elements

    def live(self, size: int) -> int:
        """Cells of one part that hold an element of `size`; what is behind them is pad."""
        return 1 if self.elements == WHOLE else ceil_div(size, self.elements)

    def is_whole(self, size: int) -> bool:
        """Whether cells end where the size does, so that nothing of it is without a cell."""
        return self.elements == WHOLE or self.partial or size % self.elements == 0


class Parameter(NamedTuple):
    """A parameter of all experts of a rank: its two axes (a bias has one), and what a cell of a pad holds."""

    rows: Axis
    columns: Axis | None
    is_scale: bool

    def shape(self, experts: int, hidden: int, intermediate: int) -> tuple[int, ...]:
        sizes = {"hidden": hidden, "intermediate": intermediate}
        axes = [self.rows] if self.columns is None else [self.rows, self.columns]
        return (experts, *(axis.parts * axis.cells(sizes[axis.size]) for axis in axes))


def is_number(scheme: str, part: str) -> bool:
    """Whether a part holds numbers for an expert or a projection of it, so that no size runs along it."""
    return part in _NUMBERS or (part in SCALES and scheme == "fp8_tensor")


def parameter_of(
    experts: Experts, projection: str, part: str, *, interleaved: bool = False
) -> Parameter | None:
    """The parameter of a projection (`gate_up` or `down`), or `None` where its shape is not known.

    With `interleaved` rows gate and up take turns, so both are one run.
    """
    if experts.scheme not in SHAPED or projection not in ("gate_up", "down"):
        return None
    scheme = SCHEMES[experts.scheme]
    sizes = ("intermediate", "hidden") if projection == "gate_up" else ("hidden", "intermediate")
    shards = experts.shards if projection == "gate_up" else 1
    if part == "bias":
        return Parameter(Axis(sizes[0], 1, shards, False, interleaved), None, False)
    if part in WEIGHTS:
        cell = 8 // scheme.bits if scheme.bits < 8 else 1
        return Parameter(Axis(sizes[0], 1, shards, False, interleaved), Axis(sizes[1], cell), False)
    if part in SCALES and scheme.scale_bits:
        return _scale(experts, scheme, sizes, shards, interleaved)
    return None


def _scale(
    experts: Experts, scheme: Scheme, sizes: tuple[str, str], shards: int, interleaved: bool
) -> Parameter | None:
    rows, columns = scheme.scale_rows, scheme.scale_columns
    if rows == GIVEN:
        if experts.block is None:
            return None
        rows, columns = experts.block
    if interleaved and rows != 1:
        # A block of rows would hold gate and up of half as many elements: no engine is known to do so.
        return None
    return Parameter(
        Axis(sizes[0], rows, shards, scheme.partial, interleaved),
        Axis(sizes[1], columns, 1, scheme.partial),
        True,
    )
