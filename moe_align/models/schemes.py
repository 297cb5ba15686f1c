"""`quantization_config` → how the experts are stored: scheme, quant-method class, block or group.

Each quantizer writes its own dialect. Here a dialect is a function that finds the format of the
experts' weights and inputs, and one table turns formats into schemes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Quantization = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Storage:
    """How experts are stored. `scheme` is `None` where that is not known, and `note` says why.

    `block` is rows × columns of one scale, `group` columns of one scale (-1: a whole row), both in
    elements. `zero_points` stands for asymmetric integers, `act_scale` for where the scale of FP8
    activations is from (`static` or `dynamic`, of weights with one scale), `activations` for what
    Quark wants of them between MXFP4 weights: `none`, `fp8` or `mxfp4`.
    """

    scheme: str | None
    method: str = "default"
    block: tuple[int, int] | None = None
    group: int | None = None
    zero_points: bool = False
    act_scale: str | None = None
    activations: str | None = None
    note: str | None = None


class Malformed(Exception):
    """A value of `quantization_config` that cannot be; `path` leads to it from there."""

    def __init__(self, path: tuple[str, ...], message: str, fix: str | None = None) -> None:
        super().__init__(message)
        self.path = path
        self.fix = fix


UNQUANTIZED = Storage("unquantized")


@dataclass(frozen=True, slots=True)
class Format:
    """A number format of a tensor: `int` or `float`, bits, and what one scale covers."""

    kind: str
    bits: int
    strategy: str
    group: int | None = None
    block: tuple[int, int] | None = None
    symmetric: bool = True
    dynamic: bool = False


#: Scheme by weights (kind, bits, strategy) and inputs (kind and bits, `None` as they are, or `*`).
_SCHEME_OF: Mapping[tuple[str, int, str, tuple[str, int] | str | None], str] = {
    ("float", 8, "tensor", "*"): "fp8_tensor",
    ("float", 8, "channel", "*"): "fp8_channel",
    ("float", 8, "block", "*"): "fp8_block",
    ("float", 8, "group", "*"): "mxfp8",
    ("float", 6, "group", "*"): "mxfp6",
    ("float", 4, "group", "*"): "mxfp4",
    ("float", 4, "tensor_group", "*"): "nvfp4",
    ("int", 8, "tensor", ("int", 8)): "int8_w8a8",
    ("int", 8, "channel", ("int", 8)): "int8_w8a8",
    ("int", 8, "channel", None): "int8_wna16",
    ("int", 8, "group", None): "int8_wna16",
    ("int", 4, "channel", None): "int4_wna16",
    ("int", 4, "group", None): "int4_wna16",
    ("int", 4, "channel", ("int", 8)): "w4a8_int8",
    ("int", 4, "group", ("int", 8)): "w4a8_int8",
    ("int", 4, "channel", ("float", 8)): "w4a8_fp8",
    ("int", 4, "group", ("float", 8)): "w4a8_fp8",
}

#: Groups that a format fixes, whatever a config says of them.
_GROUP_OF: Mapping[str, int] = {"mxfp4": 32, "mxfp6": 32, "mxfp8": 32, "nvfp4": 16}

#: ModelOpt's names of algorithms.
_MODELOPT: Mapping[str, str] = {
    "FP8": "fp8_tensor",
    "FP8_PER_CHANNEL_PER_TOKEN": "fp8_channel",
    "FP8_PB_WO": "fp8_block",
    "MXFP8": "mxfp8",
    "NVFP4": "nvfp4",
    "NVFP4_AWQ": "nvfp4",
    "W4A16_NVFP4": "nvfp4",
    "W4A4_NVFP4": "nvfp4",
    "MXFP4": "mxfp4",
}

#: Methods that mean one scheme by their name: scheme and quant-method class.
_NAMED: Mapping[str, tuple[str, str]] = {
    "mxfp4": ("mxfp4", "default"),
    "gpt_oss_mxfp4": ("mxfp4", "gpt_oss"),
    "mxfp8": ("mxfp8", "default"),
    "fbgemm_fp8": ("fp8_channel", "default"),
    "ptpc_fp8": ("fp8_channel", "default"),
    "w8a8_fp8": ("fp8_channel", "default"),
    "w8a8_int8": ("int8_w8a8", "default"),
    "experts_int8": ("int8_w8a8", "default"),
}

_QUARK_KIND: Mapping[str, tuple[str, int]] = {
    "fp4": ("float", 4),
    "fp6_e2m3": ("float", 6),
    "fp6_e3m2": ("float", 6),
    "fp8_e4m3": ("float", 8),
    "int4": ("int", 4),
    "uint4": ("int", 4),
    "int8": ("int", 8),
}
_QUARK_STRATEGY: Mapping[str, str] = {"per_tensor": "tensor", "per_channel": "channel", "per_group": "group"}


def read_storage(
    quantization: Quantization | None, model_type: str | None, expert_dtype: str | None
) -> Storage:
    """How the experts of a checkpoint are stored.

    `quantization` is the checkpoint's `quantization_config` (or that of `hf_quant_config.json`),
    `expert_dtype` what DeepSeek-V4 says of its experts beside it.

    Raises:
        Malformed: if something in it cannot be.
    """
    if not quantization:
        return UNQUANTIZED
    method = quantization.get("quant_method")
    name = method.lower() if isinstance(method, str) else _unnamed(quantization)
    moe_algorithm = quantization.get("moe_quant_algo")
    if isinstance(moe_algorithm, str):
        return _modelopt_storage(moe_algorithm, quantization)
    if expert_dtype is not None:
        return _expert_dtype(expert_dtype, quantization)
    if model_type == "deepseek_v4" and name == "fp8":
        return Storage(None, note="`expert_dtype` is not written, so experts may be FP4 or FP8")
    if _experts_left_out(quantization):
        return UNQUANTIZED
    if name in _NAMED:
        scheme, its_method = _NAMED[name]
        if scheme == "mxfp4" and model_type == "gpt_oss":
            its_method = "gpt_oss"
        return Storage(scheme, its_method, group=_GROUP_OF.get(scheme))
    dialect = _DIALECTS.get(name)
    if dialect is None:
        return Storage(None, note=f"quantization method `{name}` is not known")
    return dialect(quantization)


def _unnamed(quantization: Quantization) -> str:
    """The dialect of a config that does not name its own."""
    if "quant_algo" in quantization or "quantized_layers" in quantization:
        return "modelopt"
    return "compressed-tensors" if "config_groups" in quantization else "without a name"


def _expert_dtype(expert_dtype: str, quantization: Quantization) -> Storage:
    if expert_dtype == "fp4":
        return Storage("mxfp4", group=_GROUP_OF["mxfp4"])
    if expert_dtype == "fp8":
        return _fp8(quantization)
    return Storage(None, note=f"`expert_dtype` {expert_dtype} is not known")


def _fp8(quantization: Quantization) -> Storage:
    block = _block(quantization.get("weight_block_size"), ("weight_block_size",))
    if block is None:
        said = quantization.get("activation_scheme")
        return Storage("fp8_tensor", act_scale=said if said in ("static", "dynamic") else None)
    return Storage("fp8_block", block=block)


def _integer_groups(method: str) -> Callable[[Quantization], Storage]:
    def read(quantization: Quantization) -> Storage:
        bits = _whole(quantization, "bits", "w_bit", "weight_bits")
        group = _whole(quantization, "group_size", "q_group_size")
        asymmetric = quantization.get("zero_point") is True or quantization.get("sym") is False
        if bits not in (4, 8):
            return Storage(
                None, method, group=group, note=f"{method} with {bits or 'unknown'} bits is not known"
            )
        return Storage(f"int{bits}_wna16", method, group=group, zero_points=asymmetric)

    return read


def _w4afp8(quantization: Quantization) -> Storage:
    return Storage("w4a8_fp8", "w4afp8", group=_whole(quantization, "group_size"))


def _modelopt(quantization: Quantization) -> Storage:
    algorithm = quantization.get("quant_algo")
    if algorithm != "MIXED_PRECISION":
        return _modelopt_storage(algorithm, quantization)
    layers = quantization.get("quantized_layers")
    found = sorted(set(_expert_algorithms(layers))) if isinstance(layers, dict) else []
    if len(found) == 1:
        return _modelopt_storage(found[0], quantization)
    what = " and ".join(found) if found else "not named"
    return Storage(None, "modelopt", note=f"mixed precision: the algorithm of the experts is {what}")


def _expert_algorithms(layers: Mapping[str, object]) -> Iterator[str]:
    for name, entry in layers.items():
        if _is_experts(name) and isinstance(entry, dict):
            yield str(entry.get("quant_algo"))


def _modelopt_storage(algorithm: object, quantization: Quantization) -> Storage:
    scheme = _MODELOPT.get(str(algorithm).upper())
    if scheme is None:
        return Storage(None, "modelopt", note=f"ModelOpt's algorithm `{algorithm}` is not known")
    block = (
        _block(quantization.get("weight_block_size"), ("weight_block_size",))
        if scheme == "fp8_block"
        else None
    )
    scale = "static" if scheme == "fp8_tensor" else None
    return Storage(scheme, "modelopt", block=block, group=_GROUP_OF.get(scheme), act_scale=scale)


def _compressed_tensors(quantization: Quantization) -> Storage:
    groups = quantization.get("config_groups")
    entries = list(groups.items()) if isinstance(groups, dict) else []
    entries = [(name, entry) for name, entry in entries if isinstance(entry, dict)]
    named = [(name, entry) for name, entry in entries if any(map(_is_experts, _targets(entry)))]
    chosen = named or [(name, entry) for name, entry in entries if "Linear" in _targets(entry)]
    storages = {_group_storage(entry, name) for name, entry in chosen}
    if len(storages) > 1:
        name = chosen[-1][0]
        raise Malformed(
            ("config_groups", name), "two groups give the experts different formats", "keep one of the two"
        )
    if not storages:
        return Storage(None, "compressed_tensors", note="no group of compressed-tensors is about the experts")
    return storages.pop()


def _targets(entry: Mapping[str, object]) -> list[str]:
    targets = entry.get("targets")
    return [target for target in targets if isinstance(target, str)] if isinstance(targets, list) else []


def _group_storage(entry: Mapping[str, object], name: str) -> Storage:
    path = ("config_groups", name, "weights")
    weights = _format(entry.get("weights"), path)
    if weights is None:
        return Storage(None, "compressed_tensors", note="compressed-tensors without a format of weights")
    return _storage_of(weights, _format(entry.get("input_activations"), path), "compressed_tensors")


def _format(written: object, path: tuple[str, ...]) -> Format | None:
    """A tensor's format as compressed-tensors writes it."""
    if not isinstance(written, dict):
        return None
    bits, kind = _whole(written, "num_bits"), str(written.get("type", "int"))
    group = _whole(written, "group_size")
    block = _block(written.get("block_structure"), (*path, "block_structure"))
    strategy = written.get("strategy")
    if not isinstance(strategy, str):
        strategy = "group" if group and group > 0 else "tensor"
    if kind == "float" and bits == 4 and group == _GROUP_OF["nvfp4"]:
        strategy = "tensor_group"
    symmetric, dynamic = written.get("symmetric") is not False, bool(written.get("dynamic"))
    return Format(kind, bits or 0, strategy, group, block, symmetric, dynamic)


def _quark(quantization: Quantization) -> Storage:
    chosen = quantization.get("global_quant_config")
    layers = quantization.get("layer_quant_config")
    for pattern, entry in layers.items() if isinstance(layers, dict) else ():
        if _is_experts(pattern.rstrip("*.")):
            chosen = entry
    if not isinstance(chosen, dict):
        return Storage(None, "quark", note="Quark without a format for all layers")
    weight = chosen.get("weight")
    stages = [_quark_format(stage) for stage in (weight if isinstance(weight, list) else [weight])]
    inputs = _quark_format(chosen.get("input_tensors"))
    if None in stages:
        return Storage(None, "quark", note="Quark's format of the experts is not known")
    formats = [stage for stage in stages if stage is not None]
    # Two stages: FP8 weights that are stored as INT4 with a scale for each row.
    narrowest = min(formats, key=lambda stage: stage.bits)
    if len(formats) > 1:
        inputs = Format("float", 8, "tensor")
    return _storage_of(narrowest, inputs, "quark")


def _quark_format(written: object) -> Format | None:
    if not isinstance(written, dict):
        return None
    kind = _QUARK_KIND.get(str(written.get("dtype")))
    strategy = _QUARK_STRATEGY.get(str(written.get("qscheme")))
    if kind is None or strategy is None:
        return None
    return Format(
        *kind,
        strategy,
        _whole(written, "group_size"),
        symmetric=written.get("symmetric") is not False,
        dynamic=bool(written.get("is_dynamic")),
    )


def _storage_of(weights: Format, inputs: Format | None, method: str) -> Storage:
    read_as = (inputs.kind, inputs.bits) if inputs else None
    key = (weights.kind, weights.bits, weights.strategy)
    scheme = _SCHEME_OF.get((*key, read_as)) or _SCHEME_OF.get((*key, "*"))
    if scheme is None:
        what = f"{weights.kind}{weights.bits} by {weights.strategy}"
        return Storage(None, method, note=f"{what} is not a known format of experts")
    group = -1 if weights.strategy == "channel" and weights.kind == "int" else weights.group
    return Storage(
        scheme,
        method,
        block=weights.block if scheme == "fp8_block" else None,
        group=_GROUP_OF.get(
            scheme, group if scheme.startswith(("int", "w4")) and scheme != "int8_w8a8" else None
        ),
        zero_points=weights.kind == "int" and not weights.symmetric,
        act_scale=_act_scale(inputs) if scheme == "fp8_tensor" else None,
        activations=_activations(inputs) if scheme == "mxfp4" and method == "quark" else None,
    )


def _act_scale(inputs: Format | None) -> str | None:
    """Where the scale of the activations is from, if the checkpoint says how they are quantized."""
    if inputs is None:
        return None
    return "dynamic" if inputs.dynamic else "static"


def _activations(inputs: Format | None) -> str | None:
    if inputs is None:
        return "none"
    return {8: "fp8", 4: "mxfp4"}.get(inputs.bits) if inputs.kind == "float" else None


def _experts_left_out(quantization: Quantization) -> bool:
    """Whether a list of modules that stay as they are names all experts."""
    for key in ("ignore", "ignored_layers", "exclude", "exclude_modules", "modules_to_not_convert"):
        listed = quantization.get(key)
        for name in listed if isinstance(listed, list) else ():
            if isinstance(name, str) and not re.search(r"\d", name) and _is_experts(name.rstrip("*.$")):
                return True
    return False


def _is_experts(name: str) -> bool:
    """Whether a module's name, or a pattern of names, ends in routed experts or in a projection of them."""
    words = re.findall(r"[a-z_]+", name.lower())
    return "experts" in words and not any("shared" in word for word in words)


def _block(written: object, path: tuple[str, ...]) -> tuple[int, int] | None:
    if written is None:
        return None
    sides = written if isinstance(written, list) else []
    if len(sides) != 2 or any(
        isinstance(side, bool) or not isinstance(side, int) or side < 1 for side in sides
    ):
        message = f"`{path[-1]}` is {_shown(written)}"
        raise Malformed(path, message, "two whole numbers of at least 1, rows and columns")
    return sides[0], sides[1]


def _whole(written: Quantization, *names: str) -> int | None:
    for name in names:
        number = written.get(name)
        if isinstance(number, int) and not isinstance(number, bool):
            return number
    return None


def _shown(value: object) -> str:
    text = str(value)
    return text if len(text) < 40 else f"{text[:37]}…"


_DIALECTS: Mapping[str, Callable[[Quantization], Storage]] = {
    "fp8": _fp8,
    "modelopt": _modelopt,
    "modelopt_fp4": _modelopt,
    "modelopt_mxfp8": _modelopt,
    "modelopt_mixed": _modelopt,
    "compressed-tensors": _compressed_tensors,
    "quark": _quark,
    "gptq": _integer_groups("gptq"),
    "gptq_marlin": _integer_groups("gptq"),
    "awq": _integer_groups("awq"),
    "awq_marlin": _integer_groups("awq"),
    "moe_wna16": _integer_groups("wna16"),
    "auto-round": _integer_groups("inc"),
    "inc": _integer_groups("inc"),
    "w4afp8": _w4afp8,
}
