"""Asks vLLM how large its expert tensors are: runs `create_weights` of an unpacked wheel on shapes.

    python scripts/engine_layout.py UNPACKED_WHEEL VERSION > tests/data/layout_vllm.json

Neither vLLM nor torch is needed: each quant-method class's own function runs alone, with a torch
whose tensors are a shape and an item size.
"""

from __future__ import annotations

import ast
import json
import sys
from itertools import product
from math import prod
from pathlib import Path
from types import MethodType, SimpleNamespace
from typing import Any

ITEM_BYTES = {
    "uint8": 1, "int8": 1, "float8_e4m3fn": 1, "float8_e8m0fnu": 1, "bfloat16": 2, "float16": 2,
    "int32": 4, "uint32": 4, "float32": 4, "int64": 8,
}  # fmt: skip
METHODS = ("create_weights", "get_weight_shape", "get_packed_dim")
SIZES = ((8, 4096, 1536), (3, 2048, 768), (4, 2880, 2944))
QUANTIZATION = "vllm/model_executor/layers/quantization/"
CT = f"{QUANTIZATION}compressed_tensors/compressed_tensors_moe/compressed_tensors_moe_"


class Tensor:
    """A shape and the bytes of one item."""

    def __init__(self, *shape: Any, dtype: int | None = None, **_: Any) -> None:
        sides = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple) else shape
        self.shape = sides
        self.bytes = prod(sides) * (dtype or ITEM_BYTES["float32"])
        self.data = self


class Anything:
    """Stands for what does not change a shape."""

    def __getattr__(self, name: str) -> Anything:
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Anything:
        return self


class Layer:
    def __init__(self, hidden: int, intermediate: int) -> None:
        self.tensors: dict[str, Tensor] = {}
        self.hidden_size = hidden
        self.intermediate_size_per_partition = intermediate

    def register_parameter(self, name: str, tensor: Tensor | None) -> None:
        if tensor is not None:
            self.tensors[name] = tensor
        setattr(self, name, tensor)


def stand_ins() -> dict[str, Any]:
    def keep(data: Tensor | None = None, *_: Any, **__: Any) -> Tensor | None:
        return data

    torch = SimpleNamespace(**ITEM_BYTES, empty=Tensor, zeros=Tensor, ones=Tensor)
    torch.full = lambda shape, value, dtype=None, **_: Tensor(shape, dtype=dtype)
    torch.nn = SimpleNamespace(Parameter=keep, Module=object)
    strategies = SimpleNamespace(TENSOR="tensor", CHANNEL="channel", BLOCK="block", GROUP="group")
    return {
        "torch": torch,
        "Parameter": keep,
        "ModelWeightParameter": keep,
        "PerTensorScaleParameter": keep,
        "set_weight_attrs": lambda *_: None,
        "FusedMoeWeightScaleSupported": Anything(),
        "Mxfp4MoEMethod": Anything(),
        "QuantizationStrategy": strategies,
        "validate_fp8_block_shape_moe": lambda *_: None,
        "get_tensor_model_parallel_world_size": lambda: 1,
        "MXFP8_BLOCK_SIZE": 32,
        "OCP_MX_BLOCK_SIZE": 32,
        "MXFP8_VALUE_DTYPE": ITEM_BYTES["float8_e4m3fn"],
        "MXFP8_SCALE_DTYPE": ITEM_BYTES["uint8"],
    }


def created(file: Path, name: str, attributes: dict[str, Any], sizes: tuple[int, int, int]) -> dict[str, int]:
    """Bytes of every tensor that the class makes for experts, hidden size and intermediate size."""
    classes = (node for node in ast.parse(file.read_text()).body if isinstance(node, ast.ClassDef))
    body = next(node for node in classes if node.name == name).body
    functions = [node for node in body if isinstance(node, ast.FunctionDef) and node.name in METHODS]
    for function in functions:
        function.decorator_list, function.returns = [], None
        for argument in function.args.args:
            argument.annotation = None
    names = stand_ins()
    exec(compile(ast.Module([*functions], []), str(file), "exec"), names)
    method = SimpleNamespace(**attributes)
    for function in functions:
        setattr(method, function.name, MethodType(names[function.name], method))
    layer = Layer(*sizes[1:])
    more = {"weight_loader": None, "global_num_experts": sizes[0]}
    method.create_weights(layer, *sizes, ITEM_BYTES["bfloat16"], **more)
    return {tensor: stored.bytes for tensor, stored in layer.tensors.items()}


Row = tuple[str, str, str, dict[str, Any], dict[str, Any]]


def classes(gated: bool, bias: bool) -> list[Row]:
    """Scheme, file, class, what the class is made with, and what `moe_align.layout` is told."""
    moe = SimpleNamespace(
        w13_num_shards=1 + gated,
        is_act_and_mul=gated,
        has_bias=bias,
        intermediate_size_per_partition_unpadded=1,
        hidden_dim_unpadded=1,
    )
    fp8 = {"weight_scale_refine": None, "moe_block_shape": (64, 64), "weight_scale_name": "weight_scale"}
    fp8["quant_config"] = SimpleNamespace(activation_scheme="dynamic")
    block, tensor = {"block_quant": True, "weight_block_size": [128, 128]}, {"block_quant": False}
    tensor["weight_block_size"] = None
    dynamic = {"static_input_scales": False, "has_bias": bias}
    by_channel = {"weight_quant": SimpleNamespace(strategy="channel")}
    four = {"packed_factor": 8, "num_bits": 4, "symmetric": True, "strategy": "group"}
    eight = {"packed_factor": 4, "num_bits": 8, "symmetric": True, "strategy": "group"}
    quark, ct = f"{QUANTIZATION}quark/quark_moe.py", "CompressedTensors"
    serialized = SimpleNamespace(
        is_checkpoint_fp8_serialized=True, is_checkpoint_nvfp4_serialized=True, group_size=16
    )
    rows: list[Row] = [
        ("mxfp4", f"{QUANTIZATION}mxfp4.py", "Mxfp4MoEMethod", {}, {}),
        ("mxfp4", f"{QUANTIZATION}mxfp4.py", "GptOssMxfp4MoEMethod", {}, {}),
        (
            "unquantized",
            "vllm/model_executor/layers/fused_moe/unquantized_fused_moe_method.py",
            "UnquantizedFusedMoEMethod",
            {},
            {},
        ),
        ("fp8_block", f"{QUANTIZATION}fp8.py", "Fp8MoEMethod", fp8 | block, {"block": (128, 128)}),
        ("fp8_tensor", f"{QUANTIZATION}fp8.py", "Fp8MoEMethod", fp8 | tensor, {}),
        ("mxfp6", quark, "QuarkOCP_MX_MoEMethod", dynamic | {"weight_dtype": "mxfp6_e2m3"}, {}),
        ("mxfp4", quark, "QuarkOCP_MX_MoEMethod", dynamic | {"weight_dtype": "mxfp4"}, {"method": "quark"}),
        ("int4_wna16", f"{CT}wna16.py", f"{ct}WNA16MoEMethod", four | {"group_size": 32}, {"group": 32}),
        ("int8_wna16", f"{CT}wna16.py", f"{ct}WNA16MoEMethod", eight | {"group_size": 128}, {"group": 128}),
        (
            "int4_wna16",
            f"{CT}wna16.py",
            f"{ct}WNA16MoEMethod",
            four | {"group_size": -1, "strategy": "channel"},
            {"group": -1},
        ),
        (
            "int4_wna16",
            f"{CT}wna16.py",
            f"{ct}WNA16MoEMethod",
            four | {"group_size": 32, "symmetric": False},
            {"group": 32, "zero_points": True},
        ),
    ]
    if not bias:
        awq = SimpleNamespace(pack_factor=8, group_size=128, weight_bits=4, zero_point=True)
        gptq4 = SimpleNamespace(pack_factor=8, group_size=128, desc_act=False)
        gptq8 = SimpleNamespace(pack_factor=4, group_size=64, desc_act=False)
        plain = {"input_dtype": None}
        rows += [
            ("nvfp4", f"{QUANTIZATION}modelopt.py", "ModelOptNvFp4FusedMoE", {"use_global_sf": False}, {}),
            ("nvfp4", f"{CT}w4a4_nvfp4.py", f"{ct}W4A4Nvfp4MoEMethod", {"group_size": 16}, {}),
            ("mxfp8", f"{QUANTIZATION}modelopt.py", "ModelOptMxFp8FusedMoE", {}, {}),
            ("mxfp8", f"{CT}w8a8_mxfp8.py", f"{ct}W8A8Mxfp8MoEMethod", {}, {}),
            ("fp8_tensor", f"{QUANTIZATION}modelopt.py", "ModelOptFp8MoEMethod", {}, {"method": "modelopt"}),
            ("fp8_channel", f"{CT}w8a8_fp8.py", f"{ct}W8A8Fp8MoEMethod", tensor | by_channel | dynamic, {}),
            (
                "fp8_block",
                f"{CT}w8a8_fp8.py",
                f"{ct}W8A8Fp8MoEMethod",
                block | dynamic | {"weight_quant": SimpleNamespace(strategy="block")},
                {"block": (128, 128)},
            ),
            ("int8_w8a8", f"{CT}w8a8_int8.py", f"{ct}W8A8Int8MoEMethod", dynamic | by_channel, {}),
            (
                "w4a8_fp8",
                f"{CT}w4a8_fp8.py",
                f"{ct}W4A8Fp8MoEMethod",
                {"packed_factor": 8, "group_size": 128},
                {"group": 128},
            ),
            (
                "int4_wna16",
                f"{QUANTIZATION}auto_awq.py",
                "AutoAWQMoEMethod",
                plain | {"quant_config": awq},
                {"method": "awq", "group": 128, "zero_points": True},
            ),
            (
                "int4_wna16",
                f"{QUANTIZATION}auto_gptq.py",
                "AutoGPTQMoEMethod",
                plain | {"quant_config": gptq4},
                {"method": "gptq", "group": 128},
            ),
            (
                "int8_wna16",
                f"{QUANTIZATION}auto_gptq.py",
                "AutoGPTQMoEMethod",
                plain | {"quant_config": gptq8},
                {"method": "gptq", "group": 64},
            ),
        ]
    if gated:
        made_with = dynamic | {"group_size": 128}
        rows.append(("w4a8_int8", f"{CT}w4a8_int8.py", f"{ct}W4A8Int8MoEMethod", made_with, {"group": 128}))
    common = {"moe": moe, "quant_config": serialized}
    return [(scheme, file, name, common | made_with, told) for scheme, file, name, made_with, told in rows]


def fits(scheme: str, sizes: tuple[int, int, int], told: dict[str, Any]) -> bool:
    """Whether the class takes these sizes at all."""
    multiple = 256 if scheme == "w4a8_fp8" else max(told.get("group", 1), 1)
    return not any(size % multiple for size in sizes[1:])


def main(wheel: str, version: str) -> None:
    rows = []
    for gated, bias in product((True, False), repeat=2):
        for scheme, file, name, attributes, told in classes(gated, bias):
            for sizes in filter(lambda sizes: fits(scheme, sizes, told), SIZES):
                stored = created(Path(wheel) / file, name, attributes, sizes)
                keys = dict(zip(("num_experts", "hidden_size", "intermediate_size"), sizes, strict=True))
                # A class that makes no bias, whatever the model has, is asked as one without.
                kept = bias and any("bias" in tensor for tensor in stored)
                asked = {"scheme": scheme, "class": name, **keys, "gated": gated, "bias": kept, **told}
                line = json.dumps(asked | {"bytes": stored})
                if line not in rows:
                    rows.append(line)
    print(f'{{"{version}": [\n' + ",\n".join(rows) + "\n]}")


if __name__ == "__main__":
    main(*sys.argv[1:])
