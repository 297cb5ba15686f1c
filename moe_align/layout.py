"""Bytes of expert weights: what each tensor of a layer takes on one rank, per scheme, from a table.

Sizes are elements, results whole bytes. `w13` is `[experts, shards · intermediate, hidden]` with two
shards (gate and up) or one, `w2` is `[experts, hidden, intermediate]`. A scale tensor has one scale
per block of a weight; where the engine rounds the number of blocks down, so does the table.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .sizes import ceil_div, round_up

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: A block of this many rows or columns is as large as the weight itself.
WHOLE = 0

#: The side of a block is what the checkpoint says: block_n rows, block_k or group columns.
GIVEN = -1


@dataclass(frozen=True, slots=True)
class Scheme:
    """How one format stores an expert. Bits of one weight, of one scale, of one bias.

    One scale covers `scale_rows` rows (output elements) and `scale_columns` columns (elements that
    are summed over) of a gate, up or down projection. `partial` blocks at the edge have a scale of
    their own (`True`), or the engine makes none (`False`). `projection_bytes` are further numbers for
    each gate, up and down projection (global scales, static activation scales), `expert_bytes` those
    for each expert. `created_bits` differs from `bits` where the engine packs weights after loading.
    With `zero_points` or `biases` those tensors exist whatever the checkpoint holds.
    """

    bits: int
    scale_bits: int = 0
    scale_rows: int = 1
    scale_columns: int = WHOLE
    partial: bool = False
    created_bits: int | None = None
    projection_bytes: int = 0
    expert_bytes: int = 0
    bias_bits: int = 16
    zero_points: bool = False
    biases: bool = False
    source: str = ""


_CT = "vllm v0.33.0: compressed_tensors/compressed_tensors_moe/compressed_tensors_moe_"
_QUANT = "vllm v0.33.0: quantization/"
_QUARK = f"{_QUANT}quark/quark_moe.py"

#: Every scheme whose bytes are known, as vLLM creates the tensors; under `scheme/method` what one
#: quant-method class does otherwise. Static activation scales of other classes, 8 bytes an expert,
#: depend on the checkpoint and are left out.
SCHEMES: Mapping[str, Scheme] = {
    "unquantized": Scheme(16, source="vllm v0.33.0: fused_moe/unquantized_fused_moe_method.py"),
    "mxfp4": Scheme(4, 8, 1, 32, source=f"{_QUANT}mxfp4.py"),
    "mxfp4/quark": Scheme(4, 8, 1, 32, bias_bits=32, source=_QUARK),
    "mxfp6": Scheme(6, 8, 1, 32, bias_bits=32, source=_QUARK),
    "mxfp8": Scheme(8, 8, 1, 32, source=f"{_QUANT}modelopt.py"),
    "nvfp4": Scheme(4, 8, 1, 16, projection_bytes=8, source=f"{_QUANT}modelopt.py"),
    "fp8_block": Scheme(8, 32, GIVEN, GIVEN, partial=True, source=f"{_QUANT}fp8.py"),
    "fp8_tensor": Scheme(8, 32, WHOLE, WHOLE, source=f"{_QUANT}fp8.py"),
    "fp8_tensor/modelopt": Scheme(8, 32, WHOLE, WHOLE, expert_bytes=8, source=f"{_QUANT}modelopt.py"),
    "fp8_channel": Scheme(8, 32, 1, WHOLE, source=f"{_CT}w8a8_fp8.py"),
    "int8_w8a8": Scheme(8, 32, 1, WHOLE, source=f"{_CT}w8a8_int8.py"),
    "int4_wna16": Scheme(4, 16, 1, GIVEN, expert_bytes=16, source=f"{_CT}wna16.py"),
    "int8_wna16": Scheme(8, 16, 1, GIVEN, expert_bytes=16, source=f"{_CT}wna16.py"),
    "int4_wna16/awq": Scheme(4, 16, 1, GIVEN, zero_points=True, source=f"{_QUANT}auto_awq.py"),
    "int4_wna16/gptq": Scheme(4, 16, 1, GIVEN, zero_points=True, biases=True, source=f"{_QUANT}auto_gptq.py"),
    "int8_wna16/gptq": Scheme(8, 16, 1, GIVEN, zero_points=True, biases=True, source=f"{_QUANT}auto_gptq.py"),
    "w4a8_fp8": Scheme(4, 16, 1, GIVEN, expert_bytes=16, source=f"{_CT}w4a8_fp8.py"),
    "w4a8_int8": Scheme(4, 16, 1, GIVEN, created_bits=8, source=f"{_CT}w4a8_int8.py"),
}


@dataclass(frozen=True, slots=True)
class ExpertBytes:
    """Bytes of the tensors of one layer on one rank."""

    w13: int
    w2: int
    w13_scale: int = 0
    w2_scale: int = 0
    w13_zero: int = 0
    w2_zero: int = 0
    other: int = 0
    w13_bias: int = 0
    w2_bias: int = 0

    @property
    def total(self) -> int:
        return sum(size for _, size in self)

    def __iter__(self) -> Iterator[tuple[str, int]]:
        """Every tensor's name and bytes, in the order of the fields."""
        return ((name, getattr(self, name)) for name in self.__dataclass_fields__)


@dataclass(frozen=True, slots=True)
class Experts:
    """The experts of one layer on one rank, as they are stored: what `expert_bytes` counts.

    `block` is rows × columns of one scale (FP8 blocks), `group` the columns of one scale; both in
    elements, and needed only by the schemes that leave them to the checkpoint. `group` -1 means one
    scale for a whole row. `zero_points` are stored by asymmetric integer formats. `method` is the
    engine's quant-method class, where that changes what is stored.
    """

    scheme: str
    num_experts: int
    hidden_size: int
    intermediate_size: int
    gated: bool = True
    bias: bool = False
    block: tuple[int, int] | None = None
    group: int | None = None
    zero_points: bool = False
    method: str = "default"

    @property
    def shards(self) -> int:
        """Projections that w13 holds: gate and up, or up alone."""
        return 2 if self.gated else 1


@dataclass(frozen=True, slots=True)
class Repack:
    """How an engine's repacking after loading widens scales and biases; weights keep their bytes.

    Scale rows and columns of each expert become multiples of `scale_rows` and `scale_columns`;
    with `joined` the rows of all experts are rounded up together.
    """

    scale_rows: int = 1
    scale_columns: int = 1
    joined: bool = False
    bias_bits: int | None = None
    source: str = ""


_ORACLE = "vllm v0.33.0: fused_moe/oracle/mxfp4.py"
_SHUFFLE = "aiter e4048607: ops/shuffle.py:shuffle_scale"
_TRITON = Repack(bias_bits=32, source=f"{_ORACLE}; triton_kernels: cdna4_scale.py")
_PLAIN = Repack(source="vllm v0.33.0: fused_moe/oracle/unquantized.py")

#: What is known of repacking, by scheme and backend. A platform's own layout stands under
#: `backend/platform`. A backend that is not here, or Triton on CUDA with its own padding of weights
#: and scales: not known.
REPACKS: Mapping[str, Mapping[str, Repack]] = {
    "unquantized": {
        "aiter": _PLAIN,
        "triton": _PLAIN,
        "batched_triton": _PLAIN,
        "trtllm": _PLAIN,
        "cutlass": _PLAIN,
        "xpu": _PLAIN,
    },
    "mxfp4": {
        "aiter_bf16": Repack(1, 8, bias_bits=32, source=f"{_ORACLE}; {_SHUFFLE}"),
        # Gate and up stay apart: the scales of all experts are shuffled as one matrix.
        "aiter_mxfp4": Repack(256, 8, joined=True, bias_bits=32, source=f"{_ORACLE}; {_SHUFFLE}"),
        "triton/rocm": _TRITON,
        "triton_unfused/rocm": _TRITON,
        "aiter_fp8": _TRITON,
        "aiter_triton_bf16": _TRITON,
        "trtllm_bf16": Repack(bias_bits=32, source=_ORACLE),
        "trtllm_mxfp8": Repack(bias_bits=32, source=_ORACLE),
        "cutlass_bf16": Repack(source=_ORACLE),
        "cutlass_mxfp8": Repack(source=_ORACLE),
        "marlin": Repack(source="vllm v0.33.0: quantization/utils/marlin_utils_fp4.py"),
        "batched_marlin": Repack(source="vllm v0.33.0: quantization/utils/marlin_utils_fp4.py"),
        "xpu": Repack(source=_ORACLE),
        "emulation": Repack(source=_ORACLE),
    },
}


def repack_of(scheme: str, backend: str, platform: str | None = None) -> Repack | None:
    """What repacking does to the layer, or `None` where it is not known."""
    known = REPACKS.get(scheme, {})
    return known.get(f"{backend}/{platform}") or known.get(backend)


def expert_bytes(experts: Experts) -> ExpertBytes:
    """The bytes that the engine allocates for the layer before it loads weights.

    Raises:
        ValueError: an unknown scheme, a block or group that the scheme needs and is not given, or a
            size below its least.
    """
    scheme = _scheme(experts)
    _check(experts)
    return _count(experts, scheme, Repack(), scheme.created_bits or scheme.bits)


def resident_bytes(experts: Experts, repack: Repack) -> ExpertBytes:
    """The bytes that stay after the engine has repacked the layer.

    Raises:
        ValueError: as `expert_bytes`.
    """
    scheme = _scheme(experts)
    _check(experts)
    if repack.bias_bits is not None:
        scheme = replace(scheme, bias_bits=repack.bias_bits)
    return _count(experts, scheme, repack, scheme.bits)


def peak_bytes(created: ExpertBytes, resident: ExpertBytes, layers: int) -> int:
    """An upper bound of what `layers` equal layers take while they are repacked one after another.

    Layers that are done are resident, the rest as created; the largest tensor of the layer at work
    exists twice, since a shuffle writes a new tensor before the old one goes.

    Raises:
        ValueError: if `layers` is below 1.
    """
    if layers < 1:
        raise ValueError(f"`layers` is at least 1, not {layers}")
    extra = max(size for tensors in (created, resident) for _, size in tensors)
    return layers * max(created.total, resident.total) + extra


def bits_per_weight(experts: Experts) -> float:
    """Bits that one weight takes on average, scales and all: 4.25 for MXFP4."""
    weights = experts.num_experts * (experts.shards + 1) * experts.hidden_size * experts.intermediate_size
    return 8 * expert_bytes(experts).total / weights


def _scheme(experts: Experts) -> Scheme:
    scheme = SCHEMES.get(f"{experts.scheme}/{experts.method}") or SCHEMES.get(experts.scheme)
    if scheme is None:
        raise ValueError(f"no bytes are known for scheme `{experts.scheme}`")
    return scheme


def _check(experts: Experts) -> None:
    for name in ("num_experts", "hidden_size", "intermediate_size"):
        size = getattr(experts, name)
        if size < 1:
            raise ValueError(f"`{name}` is at least 1, not {size}")


def _count(experts: Experts, scheme: Scheme, repack: Repack, bits: int) -> ExpertBytes:
    count, shards = experts.num_experts, experts.shards
    hidden, width = experts.hidden_size, experts.intermediate_size
    # Gate and up have blocks of their own: a block never reaches from one into the other.
    w13_rows, w13_columns = _grid(experts, scheme, width, hidden)
    w2_rows, w2_columns = _grid(experts, scheme, hidden, width)
    zero = experts.zero_points or scheme.zero_points
    bias = experts.bias or scheme.biases
    return ExpertBytes(
        w13=count * shards * width * (hidden * bits // 8),
        w2=count * hidden * (width * bits // 8),
        w13_scale=_scales(count, shards * w13_rows, w13_columns, scheme.scale_bits, repack),
        w2_scale=_scales(count, w2_rows, w2_columns, scheme.scale_bits, repack),
        w13_zero=count * (shards * w13_rows * scheme.bits // 8) * w13_columns if zero else 0,
        w2_zero=count * (w2_rows * scheme.bits // 8) * w2_columns if zero else 0,
        other=count * ((shards + 1) * scheme.projection_bytes + scheme.expert_bytes),
        w13_bias=count * shards * width * scheme.bias_bits // 8 if bias else 0,
        w2_bias=count * hidden * scheme.bias_bits // 8 if bias else 0,
    )


def _grid(experts: Experts, scheme: Scheme, rows: int, columns: int) -> tuple[int, int]:
    """How many scales one projection of `rows` × `columns` has down and across."""
    block_n, block_k = _block(experts, scheme)
    return _blocks(rows, block_n, scheme.partial), _blocks(columns, block_k, scheme.partial)


def _block(experts: Experts, scheme: Scheme) -> tuple[int, int]:
    if scheme.scale_columns != GIVEN:
        return scheme.scale_rows, scheme.scale_columns
    if scheme.scale_rows == GIVEN:
        if experts.block is None or min(experts.block) < 1:
            raise ValueError(f"scheme `{experts.scheme}` needs its block: two sizes of at least 1")
        return experts.block
    if experts.group is None or experts.group < -1 or experts.group == 0:
        raise ValueError(f"scheme `{experts.scheme}` needs its group: at least 1, or -1 for a whole row")
    return scheme.scale_rows, max(experts.group, WHOLE)


def _blocks(size: int, side: int, partial: bool) -> int:
    if side == WHOLE:
        return 1
    return ceil_div(size, side) if partial else size // side


def _scales(count: int, rows: int, columns: int, bits: int, repack: Repack) -> int:
    if repack.joined:
        all_rows = round_up(count * rows, repack.scale_rows)
    else:
        all_rows = count * round_up(rows, repack.scale_rows)
    return all_rows * round_up(columns, repack.scale_columns) * bits // 8
