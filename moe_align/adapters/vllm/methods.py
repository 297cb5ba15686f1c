"""vLLM's quant methods as data: which scheme and backend each holds, and whether its sizes may be changed.

Read in vLLM 0.24 to 0.33. A class that is not here takes the entry of its nearest base class that is; without
one, the layer is reported as unknown and left alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Lookup:
    """A value that an attribute of the method decides: `attribute` is its path, `values` its meanings."""

    attribute: str
    values: Mapping[Any, str]


@dataclass(frozen=True, slots=True)
class QuantMethod:
    """How one class is read.

    `method` is the name that rules know the class by (`default` where a pack has one rule for all). `backend`
    names the attribute that holds the chosen kernel backend, `None` if there is one kernel only. `block` and
    `group` are dotted paths of the weight block and the scale group. `refuses` says why its sizes are never
    changed by the adapter; empty: they may be.
    """

    scheme: str | Lookup
    method: str = "default"
    backend: str | None = None
    block: str | None = None
    group: str | None = None
    refuses: str = ""


_FP8 = {True: "fp8_block", False: "fp8_tensor"}
_STRATEGY = {"block": "fp8_block", "channel": "fp8_channel", "tensor": "fp8_tensor"}
_QSCHEME = {"per_block": "fp8_block", "per_channel": "fp8_channel", "per_tensor": "fp8_tensor"}
_OCP = {"mxfp4": "mxfp4", "mxfp6_e3m2": "mxfp6", "mxfp6_e2m3": "mxfp6"}
_BITS = {4: "int4_wna16", 8: "int8_wna16"}

_UNPROVEN = "no padded layer of this class has been tried"
_PACKED = "packed integers: zero points and group indices have no neutral pad"
_STRIDES = "its loader cuts ranks by the allocated width, so padding would move live columns"
_CHECKS = "the engine checks these sizes itself and refuses others"
_OWN_PADDING = "it pads inside create_weights, unseen by the engine"

METHODS: Mapping[str, QuantMethod] = {
    "UnquantizedFusedMoEMethod": QuantMethod("unquantized", backend="unquantized_backend"),
    "Mxfp4MoEMethod": QuantMethod("mxfp4", backend="mxfp4_backend"),
    "GptOssMxfp4MoEMethod": QuantMethod("mxfp4", "gpt_oss", "mxfp4_backend", refuses=_STRIDES),
    "Mxfp4OnlineMoEMethod": QuantMethod("mxfp4", "online", "mxfp4_backend"),
    "QuarkOCP_MX_MoEMethod": QuantMethod(Lookup("weight_dtype", _OCP), "quark", "mxfp4_backend"),
    "CompressedTensorsW4A4Mxfp4MoEMethod": QuantMethod(
        "mxfp4", "compressed_tensors", "mxfp4_backend", group="group_size", refuses=_UNPROVEN
    ),
    "INCMxfp4MoEMethod": QuantMethod("mxfp4", "inc", "mxfp4_backend", group="group_size", refuses=_UNPROVEN),
    "Fp8MoEMethod": QuantMethod(Lookup("block_quant", _FP8), "default", "fp8_backend", "weight_block_size"),
    "CompressedTensorsW8A8Fp8MoEMethod": QuantMethod(
        Lookup("weight_quant.strategy", _STRATEGY), "compressed_tensors", "fp8_backend", "weight_block_size"
    ),
    "ModelOptFp8MoEMethod": QuantMethod("fp8_tensor", "modelopt", "fp8_backend", refuses=_UNPROVEN),
    "QuarkW8A8Fp8MoEMethod": QuantMethod(
        Lookup("weight_qscheme", _QSCHEME), "quark", "fp8_backend", "weight_block_size", refuses=_UNPROVEN
    ),
    "Fp8PerTensorOnlineMoEMethod": QuantMethod("fp8_tensor", "online", "fp8_backend", refuses=_UNPROVEN),
    "Fp8PerBlockOnlineMoEMethod": QuantMethod(
        "fp8_block", "online", "fp8_backend", "weight_block_size", refuses=_UNPROVEN
    ),
    "Fp8PtpcOnlineMoEMethod": QuantMethod("fp8_channel", "online", "fp8_backend", refuses=_UNPROVEN),
    "ModelOptMxFp8FusedMoE": QuantMethod("mxfp8", "modelopt", "mxfp8_backend", refuses=_CHECKS),
    "CompressedTensorsW8A8Mxfp8MoEMethod": QuantMethod(
        "mxfp8", "compressed_tensors", "fp8_backend", refuses=_UNPROVEN
    ),
    "INCMxfp8MoEMethod": QuantMethod("mxfp8", "inc", "mxfp8_backend", refuses=_CHECKS),
    "QuarkW8A8Mxfp8MoEMethod": QuantMethod("mxfp8", "quark", "mxfp8_backend", refuses=_CHECKS),
    "Mxfp8OnlineMoEMethod": QuantMethod("mxfp8", "online", "fp8_backend", refuses=_CHECKS),
    "ModelOptNvFp4FusedMoE": QuantMethod("nvfp4", "modelopt", "nvfp4_backend", refuses=_UNPROVEN),
    "CompressedTensorsW4A4Nvfp4MoEMethod": QuantMethod(
        "nvfp4", "compressed_tensors", "nvfp4_backend", refuses=_UNPROVEN
    ),
    "QuarkNvfp4MoEMethod": QuantMethod("nvfp4", "quark", "nvfp4_backend", refuses=_UNPROVEN),
    "Nvfp4OnlineMoEMethod": QuantMethod("nvfp4", "online", "nvfp4_backend", refuses=_UNPROVEN),
    "CompressedTensorsW8A8Int8MoEMethod": QuantMethod(
        "int8_w8a8", "compressed_tensors", "int8_backend", refuses=_UNPROVEN
    ),
    "QuarkW8A8Int8MoEMethod": QuantMethod("int8_w8a8", "quark", "int8_backend", refuses=_UNPROVEN),
    "Int8OnlineMoEMethod": QuantMethod("int8_w8a8", "online", "int8_backend", refuses=_UNPROVEN),
    "AutoGPTQMoEMethod": QuantMethod(
        Lookup("quant_config.weight_bits", _BITS),
        "gptq",
        "wna16_moe_backend",
        group="quant_config.group_size",
        refuses=_PACKED,
    ),
    "AutoAWQMoEMethod": QuantMethod(
        Lookup("quant_config.weight_bits", _BITS),
        "awq",
        "wna16_moe_backend",
        group="quant_config.group_size",
        refuses=_PACKED,
    ),
    "MoeWNA16Method": QuantMethod(
        Lookup("quant_config.weight_bits", _BITS),
        "moe_wna16",
        "wna16_backend",
        group="quant_config.group_size",
        refuses=_PACKED,
    ),
    "CompressedTensorsWNA16MoEMethod": QuantMethod(
        Lookup("num_bits", _BITS), "compressed_tensors", "wna16_backend", group="group_size", refuses=_PACKED
    ),
    "CompressedTensorsWNA16MarlinMoEMethod": QuantMethod(
        Lookup("num_bits", _BITS), "compressed_tensors", group="group_size", refuses=_PACKED
    ),
    "BitsAndBytesMoEMethod": QuantMethod("bitsandbytes", "bitsandbytes", refuses=_PACKED),
    "CompressedTensorsW4A16FlydslMoEMethod": QuantMethod(
        "int4_wna16", "compressed_tensors", group="group_size", refuses=_PACKED
    ),
    "QuarkW4A16Int4MoEMethod": QuantMethod(
        "int4_wna16", "quark", "wna16_backend", group="group_size", refuses=_PACKED
    ),
    "CompressedTensorsW4A8Fp8MoEMethod": QuantMethod(
        "w4a8_fp8", "compressed_tensors", "w4a8_backend", group="group_size", refuses=_CHECKS
    ),
    "QuarkW4A8Fp8MoEMethod": QuantMethod("w4a8_fp8", "quark", refuses=_UNPROVEN),
    "CompressedTensorsW4A8Int8MoEMethod": QuantMethod(
        "w4a8_int8", "compressed_tensors", group="group_size", refuses=_CHECKS
    ),
    "ModelOptBlockQuantMoEMethod": QuantMethod("modelopt_block", "modelopt", refuses=_CHECKS),
    "HummingMoEMethod": QuantMethod("humming", "humming", refuses=_OWN_PADDING),
}

#: `RoutedExperts` classes whose loaders copy strictly or place columns by native offsets.
STRICT_LAYERS: Mapping[str, str] = {
    "DbrxExperts": "its loader puts the up half at the native offset and copies w2 whole",
    "GptOssRoutedExperts": _STRIDES,
    "DeepseekV4HeterogeneousSharedRoutedExperts": "its kernel takes exactly one size",
}

#: Model types whose own code loads the experts, or runs them on kernels of one exact size.
STRICT_MODELS: Mapping[str, str] = {
    "dbrx": "its loader puts the up half at the native offset and copies w2 whole",
    "inkling": "its loader copies strictly",
    "flint": "its decode kernels refuse padded experts",
    "gpt_oss": _STRIDES,
}

#: Backends that check sizes after loading, or replace the weights by ones of their own.
STRICT_BACKENDS: Mapping[str, str] = {
    "MOONEP": "it replaces the weights by ones of its own after loading",
    "HUMMING": _OWN_PADDING,
}


def entry_of(method: object) -> QuantMethod | None:
    """The entry of the method's class, or of the nearest base class that has one."""
    return next((METHODS[base.__name__] for base in type(method).__mro__ if base.__name__ in METHODS), None)
