"""Models from real-looking configs, from the list of known ones, and from files that are broken."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from moe_align.errors import PolicyError
from moe_align.layout import Experts, expert_bytes
from moe_align.models import CODES, Model, find_model, known_model, parse_config, read_model
from moe_align.models.families import FAMILY_OF

CONFIGS = Path(__file__).parent / "data" / "configs"
RULES = Path(__file__).parent.parent / "rules"

KNOWN: list[Model] = [
    known_model(entry) for entry in yaml.load((RULES / "models.yaml").read_text(), yaml.CSafeLoader)["models"]
]


def written(name: str) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((CONFIGS / f"{name}.json").read_text())
    return config


def model(config: dict[str, Any]) -> Model:
    return parse_config(json.dumps(config), "config.json", "it")


def message(call: Callable[[], object]) -> str:
    with pytest.raises(PolicyError) as error:
        call()
    assert all(problem.code in CODES for problem in error.value.problems)
    return str(error.value)


def fault(config: dict[str, Any]) -> str:
    """The message for a config that is written with one key in a line."""
    return message(lambda: parse_config(json.dumps(config, indent=1), "config.json"))


SIZES = (
    "hidden_size",
    "moe_intermediate_size",
    "num_experts",
    "experts_per_token",
    "moe_layers",
    "dense_layers",
)


@pytest.mark.parametrize(
    ("name", "sizes", "activation", "scheme", "method", "block", "group"),
    [
        ("deepseek-v4-pro", (7168, 3072, 384, 6, 61, 0), "silu", "mxfp4", "default", None, 32),
        ("deepseek-v3", (7168, 2048, 256, 8, 58, 3), "silu", "fp8_block", "default", (128, 128), None),
        ("qwen3-30b-a3b", (2048, 768, 128, 8, 48, 0), "silu", "unquantized", "default", None, None),
        ("qwen3-30b-a3b-fp8", (2048, 768, 128, 8, 48, 0), "silu", "fp8_block", "default", (128, 128), None),
        ("gpt-oss-120b", (2880, 2880, 128, 4, 36, 0), "swigluoai", "mxfp4", "gpt_oss", None, 32),
        ("mixtral-8x7b", (4096, 14336, 8, 2, 32, 0), "silu", "unquantized", "default", None, None),
        ("qwen3-vl-30b-a3b", (2048, 768, 128, 8, 48, 0), "silu", "unquantized", "default", None, None),
        ("nemotron-3-nano", (2688, 1856, 128, 6, 23, None), "relu2", "unquantized", "default", None, None),
        ("kimi-k2", (7168, 2048, 384, 8, 60, 1), "silu", "fp8_block", "default", (128, 128), None),
        ("kimi-k2.5-int4", (7168, 2048, 384, 8, 60, 1), "silu", "int4_wna16", "compressed_tensors", None, 32),
        ("kimi-k2.5-nvfp4", (7168, 2048, 384, 8, 60, 1), "silu", "nvfp4", "modelopt", None, 16),
        ("kimi-k3", (7168, 3072, 896, 16, 92, 1), "situ", "mxfp4", "default", None, 32),
        ("glm-4.5", (5120, 1536, 160, 8, 89, 3), "silu", "unquantized", "default", None, None),
        ("llama-4-maverick", (5120, 8192, 128, 1, 24, 24), "silu", "unquantized", "default", None, None),
        (
            "minimax-m3",
            (6144, 3072, 128, 4, 3, 3),
            "swigluoai_uninterleave",
            "unquantized",
            "default",
            None,
            None,
        ),
        ("step-3.7-flash", (4096, 1280, 288, 8, 42, 3), None, "unquantized", "default", None, None),
        ("dbrx", (6144, 10752, 16, 4, 40, 0), "silu", "unquantized", "default", None, None),
    ],
)
def test_config(
    name: str,
    sizes: tuple[int | None, ...],
    activation: str | None,
    scheme: str,
    method: str,
    block: tuple[int, int] | None,
    group: int | None,
) -> None:
    it = read_model(CONFIGS / f"{name}.json")
    assert tuple(getattr(it, size) for size in SIZES) == sizes
    assert (it.activation, it.scheme, it.method, it.block, it.group) == (
        activation,
        scheme,
        method,
        block,
        group,
    )


# (shared experts, their width together), gated, bias, hidden size of routed experts, MTP layers
@pytest.mark.parametrize(
    ("name", "shared", "gated", "bias", "hidden", "mtp"),
    [
        ("deepseek-v4-pro", (1, 3072), True, False, 7168, 1),
        ("qwen3-30b-a3b", (0, 0), True, False, 2048, None),
        ("gpt-oss-120b", (0, 0), True, True, 2880, None),
        ("nemotron-3-nano", (1, 3712), False, False, 2688, None),
        ("kimi-k3", (2, 6144), True, False, 3584, 0),
        ("llama-4-maverick", (1, 8192), True, False, 5120, None),
        ("minimax-m3", (1, 3072), True, False, 6144, 1),
        ("step-3.7-flash", (1, 1280), True, False, 4096, 3),
    ],
)
def test_beside_the_routed_sizes(
    name: str, shared: tuple[int, int], gated: bool, bias: bool, hidden: int, mtp: int | None
) -> None:
    it = read_model(CONFIGS / f"{name}.json")
    assert (it.num_shared_experts, it.shared_expert_intermediate_size) == shared
    assert (it.gated, it.bias, it.routed_hidden_size, it.mtp_layers) == (gated, bias, hidden, mtp)


def test_a_model_as_facts() -> None:
    assert read_model(CONFIGS / "qwen3-30b-a3b-fp8.json").facts() == {
        "scheme": "fp8_block",
        "method": "default",
        "model_type": "qwen3_moe",
        "activation": "silu",
        "gated": True,
        "bias": False,
        "experts": 128,
        "topk": 8,
        "hidden": 2048,
        "intermediate": 768,
        "block_n": 128,
        "block_k": 128,
    }
    assert read_model(CONFIGS / "nemotron-3-nano.json").facts()["activation"] == "relu2_no_mul"
    assert read_model(CONFIGS / "kimi-k3.json").facts()["hidden"] == 3584
    assert read_model(CONFIGS / "kimi-k3.json").facts()["model_type"] == "kimi_k3"
    assert Model("it", scheme="int4_wna16", group=-1).facts()["group"] == 1


def test_every_configs_model_is_what_its_name_says() -> None:
    known = {it.name: it for it in KNOWN}
    for path in CONFIGS.glob("*.json"):
        if path.stem in known and path.stem != "minimax-m3":  # fewer layers, to be read at a glance
            it, listed = read_model(path), known[path.stem]
            for field in (*SIZES, "activation", "gated", "scheme", "block", "group", "expert_hidden_size"):
                if getattr(listed, field) is not None:
                    assert getattr(it, field) == getattr(listed, field), (path.stem, field)


def test_a_folder_and_a_quantizers_own_file(tmp_path: Path) -> None:
    folder = tmp_path / "DeepSeek-V3-NVFP4"
    folder.mkdir()
    config = written("deepseek-v3")
    del config["quantization_config"]
    (folder / "config.json").write_text(json.dumps(config))
    assert read_model(folder).scheme == "unquantized"
    quantizer = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4", "group_size": 16}}
    (folder / "hf_quant_config.json").write_text(json.dumps(quantizer))
    it = read_model(folder)
    assert (it.name, it.scheme, it.method, it.group) == ("DeepSeek-V3-NVFP4", "nvfp4", "modelopt", 16)
    assert read_model(folder / "config.json", "mine").name == "mine"


def test_a_missing_key_is_unknown() -> None:
    config = written("deepseek-v3")
    for key in (
        "moe_intermediate_size",
        "hidden_act",
        "first_k_dense_replace",
        "n_shared_experts",
        "num_hidden_layers",
    ):
        del config[key]
    it = model(config)
    assert it.moe_intermediate_size is None
    assert (
        it.moe_layers
        is it.dense_layers
        is it.num_shared_experts
        is it.shared_expert_intermediate_size
        is None
    )
    assert it.activation is None
    assert it.notes == ("the config names no activation",)


def test_two_spellings_that_agree() -> None:
    assert model({**written("step-3.7-flash"), "moe_num_experts": 288}).num_experts == 288


def test_null_says_that_there_are_no_shared_experts() -> None:
    it = model({**written("deepseek-v3"), "n_shared_experts": None})
    assert (it.num_shared_experts, it.shared_expert_intermediate_size) == (0, 0)


def test_an_activation_that_nobody_knows() -> None:
    it = model({**written("mixtral-8x7b"), "hidden_act": "mish"})
    assert it.activation is None
    assert it.notes == ("activation `mish` is not known",)


def test_sizes_that_differ_between_layers() -> None:
    hunyuan = {"architectures": ["HunYuanMoEV1ForCausalLM"], "num_experts": 64, "hidden_size": 4096}
    it = model({**hunyuan, "moe_topk": [8, 8], "moe_intermediate_size": [3072, 1536], "hidden_act": "silu"})
    assert (it.experts_per_token, it.moe_intermediate_size) == (8, None)
    assert it.notes == ("`moe_intermediate_size` differs between layers",)


def test_experts_of_deepseek_v4_without_their_format() -> None:
    config = written("deepseek-v4-pro")
    del config["expert_dtype"]
    it = model({**config, "model_type": "deepseek_ref"})
    assert it.scheme is None
    assert it.notes == ("`expert_dtype` is not written, so experts may be FP4 or FP8",)
    assert model({**config, "expert_dtype": "fp8"}).block == (128, 128)
    inside = {**config["quantization_config"], "expert_dtype": "fp4"}
    assert model({**config, "quantization_config": inside}).scheme == "mxfp4"
    assert model({**config, "expert_dtype": "fp5"}).notes == ("`expert_dtype` fp5 is not known",)


def test_a_dense_model() -> None:
    assert message(lambda: read_model(CONFIGS / "llama-3.1-8b.json")).endswith(
        "llama-3.1-8b.json:1:1: no experts in this config of `LlamaForCausalLM` [M006]\n"
        "  fix: give the config of a model with experts"
    )
    gemma = {
        "architectures": ["Gemma4ForCausalLM"],
        "num_experts": None,
        "enable_moe_block": False,
        "top_k_experts": None,
    }
    assert "no experts in this config of `Gemma4ForCausalLM`" in fault(gemma)
    assert "no experts in this config of `no architecture`" in fault({})


def test_an_unknown_architecture() -> None:
    assert message(lambda: read_model(CONFIGS / "unknown-architecture.json")).endswith(
        "unknown-architecture.json:2:3: unknown architecture `QwenixMoeForCausalLM` [M005]\n"
        "  fix: is it like `Qwen3MoeForCausalLM`? give the sizes with `--hidden --intermediate --experts`"
    )
    # A new architecture may borrow the `model_type` of an old one.
    assert "unknown architecture `New`" in fault({**written("deepseek-v3"), "architectures": ["New"]})
    assert fault({"model_type": "zzz", "num_experts": 8}).startswith(
        "config.json:2:2: unknown architecture `zzz`"
    )
    assert "unknown architecture `no architecture`" in fault({"num_experts": 8})
    assert "unknown architecture `no architecture`" in fault({"num_experts": 8, "architectures": "one"})


def test_a_wrapper_is_of_the_family_of_its_text_model() -> None:
    config = written("kimi-k2.5-int4")
    assert config["architectures"][0] not in FAMILY_OF
    assert model(config).architecture == "KimiK25ForConditionalGeneration"
    omni = {"thinker_config": {"text_config": written("qwen3-30b-a3b")}, "architectures": ["Omni"]}
    assert model(omni).num_experts == 128


@pytest.mark.parametrize(
    ("name", "change", "expected"),
    [
        (
            "deepseek-v3",
            {"n_routed_experts": 0},
            "config.json:12:2: `n_routed_experts` is 0: no experts [M006]\n"
            "  fix: a dense model has no such key",
        ),
        (
            "deepseek-v3",
            {"hidden_size": -7168},
            "config.json:8:2: `hidden_size` is `-7168` [M007]\n"
            "  fix: a whole number from 1 to 2147483648 is meant",
        ),
        ("deepseek-v3", {"hidden_size": 7168.0}, "`hidden_size` is `7168.0` [M007]"),
        ("deepseek-v3", {"hidden_size": "7168"}, "`hidden_size` is `7168` [M007]"),
        ("deepseek-v3", {"hidden_size": True}, "`hidden_size` is `True` [M007]"),
        ("deepseek-v3", {"hidden_size": 10**12}, "`hidden_size` is `1000000000000` [M007]"),
        (
            "deepseek-v3",
            {"first_k_dense_replace": 62},
            "config.json:6:2: `first_k_dense_replace`: 62 dense layers of 61 layers [M008]\n"
            "  fix: correct one of the two",
        ),
        (
            "deepseek-v3",
            {"num_experts_per_tok": 300},
            "`num_experts_per_tok`: 300 of 256 experts for each token [M008]",
        ),
        (
            "glm-4.5",
            {"first_k_dense_replace": 93},
            "`first_k_dense_replace`: 93 dense layers of 92 layers [M008]",
        ),
        ("deepseek-v3", {"moe_layer_freq": [1, 1]}, "`moe_layer_freq`: 2 entries for 61 layers [M008]"),
        ("qwen3-30b-a3b", {"mlp_only_layers": [3, 48]}, "`mlp_only_layers`: layer 48 of 48 layers [M008]"),
        ("qwen3-30b-a3b", {"mlp_only_layers": ["x"]}, "`mlp_only_layers`: layer x of 48 layers [M008]"),
        ("nemotron-3-nano", {"hybrid_override_pattern": "ME"}, "2 entries for 52 layers [M008]"),
        (
            "step-3.7-flash",
            {"moe_num_experts": 280},
            "`num_experts`: 288, but `moe_num_experts` is 280 [M008]",
        ),
        ("step-3.7-flash", {"moe_layers_enum": "4,5,45"}, "`moe_layers_enum`: layer 45 of 45 layers [M008]"),
        (
            "step-3.7-flash",
            {"moe_layers_enum": "4,five"},
            "`moe_layers_enum`: layer five of 45 layers [M008]",
        ),
        (
            "deepseek-v3",
            {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128]}},
            "config.json:19:3: `weight_block_size` is [128] [M008]\n"
            "  fix: two whole numbers of at least 1, rows and columns",
        ),
        (
            "deepseek-v3",
            {"quantization_config": {"quant_method": "fp8", "weight_block_size": "a block of " + 40 * "x"}},
            "`weight_block_size` is a block of xxxxxxxxxxxxxxxxxxxxxxxxxx… [M008]",
        ),
        ("deepseek-v3", {"quantization_config": [1]}, "`quantization_config` is no object [M004]"),
        (
            "kimi-k2.5-int4",
            {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}},
            "`quantization_config` stands in two places and says two things [M008]\n"
            "  fix: keep one of the two",
        ),
    ],
)
def test_a_config_that_cannot_be(name: str, change: dict[str, Any], expected: str) -> None:
    assert expected in fault({**written(name), **change})


def layers(config: dict[str, Any]) -> int | None:
    return model(
        {"num_experts": 8, "num_local_experts": 8, "num_hidden_layers": 8, "hidden_act": "silu", **config}
    ).moe_layers


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (
            {
                "model_type": "deepseek_v2",
                "n_routed_experts": 8,
                "first_k_dense_replace": 1,
                "moe_layer_freq": 2,
            },
            3,
        ),
        ({"model_type": "deepseek_v2", "n_routed_experts": 8, "first_k_dense_replace": 1}, None),
        ({"model_type": "qwen2_moe", "decoder_sparse_step": 2, "mlp_only_layers": [1]}, 3),
        ({"model_type": "qwen2_moe", "decoder_sparse_step": 1}, 8),
        ({"model_type": "qwen2_moe"}, None),
        ({"model_type": "qwen2_moe", "decoder_sparse_step": 1, "mlp_only_layers": "none"}, None),
        ({"model_type": "llama4_text", "moe_layers": [1, 3, 5]}, 3),
        ({"model_type": "llama4_text", "interleave_moe_layer_step": 0}, 0),
        ({"model_type": "llama4_text"}, None),
        (
            {
                "model_type": "ernie4_5_moe",
                "moe_num_experts": 8,
                "moe_layer_start_index": 1,
                "moe_layer_interval": 1,
            },
            7,
        ),
        (
            {
                "model_type": "ernie4_5_moe",
                "moe_num_experts": 8,
                "moe_layer_start_index": 1,
                "moe_layer_interval": 2,
            }
            | {"moe_layer_end_index": 4},
            2,
        ),
        ({"model_type": "ernie4_5_moe", "moe_num_experts": 8}, None),
        ({"model_type": "jamba", "expert_layer_period": 2, "expert_layer_offset": 1}, 4),
        ({"model_type": "jamba", "expert_layer_period": 2}, None),
        ({"model_type": "nemotron_h", "n_routed_experts": 8, "layers_block_type": ["moe", "mamba"] * 4}, 4),
        ({"model_type": "nemotron_h", "n_routed_experts": 8}, None),
        ({"model_type": "step3p5", "mlp_layer_types": ["dense"] * 3 + ["sparse"] * 5}, 5),
        ({"model_type": "step3_text", "moe_layers_enum": "4, 5,6"}, 3),
        ({"model_type": "step3_text"}, None),
        ({"model_type": "lfm2_moe", "num_dense_layers": 2}, 6),
    ],
)
def test_layers_with_experts(config: dict[str, Any], expected: int | None) -> None:
    assert layers(config) == expected


def test_layers_are_counted_from_the_list_of_blocks() -> None:
    it = model(
        {"model_type": "nemotron_h", "n_routed_experts": 8, "layers_block_type": ["moe", "mamba", "moe"]}
    )
    assert (it.moe_layers, it.dense_layers) == (2, None)


def test_layers_beyond_the_last() -> None:
    ernie = {
        "model_type": "ernie4_5_moe",
        "moe_num_experts": 8,
        "moe_layer_start_index": 1,
        "moe_layer_interval": 1,
    }
    assert "`moe_layer_end_index`: layer 9 of 8 layers" in fault(
        {**ernie, "moe_layer_end_index": 9, "num_hidden_layers": 8}
    )


@pytest.mark.parametrize(
    ("config", "shared"),
    [
        ({"model_type": "qwen2_moe", "shared_expert_intermediate_size": 5632}, (1, 5632)),
        ({"model_type": "qwen2_moe", "shared_expert_intermediate_size": 0}, (0, 0)),
        ({"model_type": "qwen2_moe"}, (None, None)),
        ({"model_type": "llama4_text"}, (1, None)),
        ({"model_type": "gemma4_text"}, (None, None)),
    ],
)
def test_shared_experts(config: dict[str, Any], shared: tuple[int | None, int | None]) -> None:
    it = model({"num_experts": 8, "num_local_experts": 8, **config})
    assert (it.num_shared_experts, it.shared_expert_intermediate_size) == shared


def stored(quantization: object, **config: object) -> Model:
    base = {key: value for key, value in written("qwen3-30b-a3b").items() if key not in config}
    return model({**base, **config, "quantization_config": quantization})


def tensors(
    weights: dict[str, Any], inputs: dict[str, Any] | None = None, target: str = "Linear"
) -> dict[str, Any]:
    group = {"targets": [target], "weights": weights, "input_activations": inputs}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}}


FLOAT8 = {"num_bits": 8, "type": "float", "dynamic": True, "strategy": "token"}
INT8 = {"num_bits": 8, "type": "int", "dynamic": True, "strategy": "token"}


def weights(kind: str, bits: int, strategy: str | None = None, **more: object) -> dict[str, Any]:
    return {"num_bits": bits, "type": kind, "strategy": strategy, **more}


@pytest.mark.parametrize(
    ("quantization", "scheme", "method", "block", "group"),
    [
        ({"quant_method": "fp8"}, "fp8_tensor", "default", None, None),
        ({"quant_method": "mxfp4"}, "mxfp4", "default", None, 32),
        ({"quant_method": "mxfp8"}, "mxfp8", "default", None, 32),
        ({"quant_method": "fbgemm_fp8"}, "fp8_channel", "default", None, None),
        ({"quant_method": "w8a8_int8"}, "int8_w8a8", "default", None, None),
        ({"quant_method": "w4afp8", "group_size": 128}, "w4a8_fp8", "w4afp8", None, 128),
        (
            {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True},
            "int4_wna16",
            "gptq",
            None,
            128,
        ),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, "int8_wna16", "gptq", None, -1),
        ({"quant_method": "awq", "w_bit": 4, "q_group_size": 64}, "int4_wna16", "awq", None, 64),
        ({"quant_method": "auto-round", "bits": 4, "group_size": 128}, "int4_wna16", "inc", None, 128),
        ({"quant_method": "moe_wna16", "bits": 8, "group_size": 64}, "int8_wna16", "wna16", None, 64),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8_tensor", "modelopt", None, None),
        ({"quant_method": "modelopt", "quant_algo": "MXFP8"}, "mxfp8", "modelopt", None, 32),
        (
            {"quant_method": "modelopt", "quant_algo": "FP8_PB_WO", "weight_block_size": [128, 128]},
            "fp8_block",
            "modelopt",
            (128, 128),
            None,
        ),
        ({"quant_algo": "NVFP4"}, "nvfp4", "modelopt", None, 16),
        ({"quant_method": "fp8", "moe_quant_algo": "NVFP4"}, "nvfp4", "modelopt", None, 16),
        (
            {
                "quant_algo": "MIXED_PRECISION",
                "quantized_layers": {"layers.1.mlp.experts.0.up_proj": {"quant_algo": "NVFP4"}},
            },
            "nvfp4",
            "modelopt",
            None,
            16,
        ),
        (tensors(weights("float", 8, "tensor"), FLOAT8), "fp8_tensor", "compressed_tensors", None, None),
        (tensors(weights("float", 8, "channel"), FLOAT8), "fp8_channel", "compressed_tensors", None, None),
        (
            tensors(weights("float", 8, "block", block_structure=[128, 128]), FLOAT8),
            "fp8_block",
            "compressed_tensors",
            (128, 128),
            None,
        ),
        (tensors(weights("float", 8, "group", group_size=32)), "mxfp8", "compressed_tensors", None, 32),
        (tensors(weights("float", 4, "group", group_size=32)), "mxfp4", "compressed_tensors", None, 32),
        (
            tensors(weights("float", 4, "tensor_group", group_size=16)),
            "nvfp4",
            "compressed_tensors",
            None,
            16,
        ),
        (tensors(weights("int", 4, "channel")), "int4_wna16", "compressed_tensors", None, -1),
        (tensors(weights("int", 4, None, group_size=128)), "int4_wna16", "compressed_tensors", None, 128),
        (tensors(weights("int", 8, "channel"), INT8), "int8_w8a8", "compressed_tensors", None, None),
        (
            tensors(weights("int", 4, "group", group_size=128), FLOAT8),
            "w4a8_fp8",
            "compressed_tensors",
            None,
            128,
        ),
        (tensors(weights("int", 4, "channel"), INT8), "w4a8_int8", "compressed_tensors", None, -1),
        (
            {
                "quant_method": "quark",
                "global_quant_config": {"weight": {"dtype": "fp4", "qscheme": "per_group"}},
            },
            "mxfp4",
            "quark",
            None,
            32,
        ),
        (
            {
                "quant_method": "quark",
                "global_quant_config": {"weight": {"dtype": "fp8_e4m3", "qscheme": "per_tensor"}},
                "layer_quant_config": {
                    "*experts*": {"weight": {"dtype": "fp6_e2m3", "qscheme": "per_group"}}
                },
            },
            "mxfp6",
            "quark",
            None,
            32,
        ),
        (
            {
                "quant_method": "quark",
                "global_quant_config": {
                    "weight": [
                        {"dtype": "fp8_e4m3", "qscheme": "per_tensor"},
                        {"dtype": "int4", "qscheme": "per_channel"},
                    ]
                },
                "layer_quant_config": {"*self_attn*": {}},
            },
            "w4a8_fp8",
            "quark",
            None,
            -1,
        ),
        (
            {"quant_method": "fp8", "ignored_layers": ["model.layers.3.mlp.experts"]},
            "fp8_tensor",
            "default",
            None,
            None,
        ),
        (
            {"quant_method": "fp8", "ignored_layers": [7, "re:.*mlp.experts.*"]},
            "unquantized",
            "default",
            None,
            None,
        ),
        (
            {"quant_method": "fp8", "ignored_layers": ["re:.*shared_experts.*"]},
            "fp8_tensor",
            "default",
            None,
            None,
        ),
        ({}, "unquantized", "default", None, None),
    ],
)
def test_storage(
    quantization: dict[str, Any], scheme: str, method: str, block: tuple[int, int] | None, group: int | None
) -> None:
    it = stored(quantization)
    assert (it.scheme, it.method, it.block, it.group) == (scheme, method, block, group)
    assert it.notes == ()


PER_TENSOR = weights("float", 8, "tensor")


@pytest.mark.parametrize(
    ("quantization", "act_scale"),
    [
        ({"quant_method": "fp8", "activation_scheme": "static"}, "static"),
        ({"quant_method": "fp8", "activation_scheme": "dynamic"}, "dynamic"),
        ({"quant_method": "fp8"}, None),
        ({"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}, None),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "static"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, None),
        (tensors(PER_TENSOR, {**FLOAT8, "dynamic": False, "strategy": "tensor"}), "static"),
        (tensors(PER_TENSOR, {**FLOAT8, "strategy": "tensor"}), "dynamic"),
        (tensors(PER_TENSOR), None),
        (tensors(weights("float", 8, "channel"), FLOAT8), None),
        (
            {
                "quant_method": "quark",
                "global_quant_config": {
                    "weight": {"dtype": "fp8_e4m3", "qscheme": "per_tensor"},
                    "input_tensors": {"dtype": "fp8_e4m3", "qscheme": "per_tensor", "is_dynamic": False},
                },
            },
            "static",
        ),
    ],
)
def test_where_the_scale_of_activations_is_from(quantization: dict[str, Any], act_scale: str | None) -> None:
    assert stored(quantization).act_scale == act_scale
    assert stored(quantization).facts().get("act_scale") == act_scale


@pytest.mark.parametrize(
    ("inputs", "activations"),
    [
        (None, "none"),
        ({"dtype": "fp4", "qscheme": "per_group", "is_dynamic": True}, "mxfp4"),
        ({"dtype": "fp8_e4m3", "qscheme": "per_tensor"}, "fp8"),
        ({"dtype": "fp6_e2m3", "qscheme": "per_group"}, None),
        ({"dtype": "int8", "qscheme": "per_tensor"}, None),
    ],
)
def test_what_quark_wants_of_activations(inputs: dict[str, Any] | None, activations: str | None) -> None:
    chosen = {"weight": {"dtype": "fp4", "qscheme": "per_group"}, "input_tensors": inputs}
    read = stored({"quant_method": "quark", "global_quant_config": chosen})
    assert (read.scheme, read.facts().get("activations")) == ("mxfp4", activations)


def test_asymmetric_integers_have_zero_points() -> None:
    assert stored({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}).zero_points
    assert stored(tensors(weights("int", 4, "group", group_size=32, symmetric=False))).zero_points
    assert not stored(tensors(weights("int", 4, "group", group_size=32, symmetric=True))).zero_points


def test_the_group_that_names_experts_counts() -> None:
    quantization = tensors(weights("float", 8, "channel"), FLOAT8)
    quantization["config_groups"]["group_1"] = {
        "targets": ["re:.*mlp.experts.*"],
        "weights": weights("int", 4, "group", group_size=128),
    }
    assert stored(quantization).scheme == "int4_wna16"


def test_two_groups_about_the_experts() -> None:
    quantization = tensors(weights("float", 8, "channel"), FLOAT8)
    quantization["config_groups"]["group_1"] = {
        "targets": ["Linear"],
        "weights": weights("int", 4, "channel"),
    }
    assert "two groups give the experts different formats [M008]" in message(lambda: stored(quantization))


@pytest.mark.parametrize(
    ("quantization", "note"),
    [
        ({"quant_method": "bitsandbytes"}, "quantization method `bitsandbytes` is not known"),
        ({"bits": 4}, "quantization method `without a name` is not known"),
        ({"quant_method": "gptq", "bits": 3}, "gptq with 3 bits is not known"),
        ({"quant_method": "awq"}, "awq with unknown bits is not known"),
        ({"quant_method": "modelopt", "quant_algo": "W2"}, "ModelOpt's algorithm `W2` is not known"),
        (
            {"quant_algo": "MIXED_PRECISION", "quantized_layers": {"a.mlp": {"quant_algo": "FP8"}}},
            "mixed precision: the algorithm of the experts is not named",
        ),
        (
            {
                "quant_algo": "MIXED_PRECISION",
                "quantized_layers": {
                    "a.experts": {"quant_algo": "FP8"},
                    "b.experts": {"quant_algo": "NVFP4"},
                },
            },
            "mixed precision: the algorithm of the experts is FP8 and NVFP4",
        ),
        ({"quant_algo": "MIXED_PRECISION"}, "mixed precision: the algorithm of the experts is not named"),
        ({"config_groups": {}}, "no group of compressed-tensors is about the experts"),
        ({"config_groups": []}, "no group of compressed-tensors is about the experts"),
        (
            {"config_groups": {"group_0": {"targets": "Linear"}}},
            "no group of compressed-tensors is about the experts",
        ),
        (
            {"config_groups": {"group_0": {"targets": ["Linear"]}}},
            "compressed-tensors without a format of weights",
        ),
        (
            tensors(weights("int", 2, "group", group_size=64)),
            "int2 by group is not a known format of experts",
        ),
        ({"quant_method": "quark"}, "Quark without a format for all layers"),
        (
            {
                "quant_method": "quark",
                "global_quant_config": {"weight": {"dtype": "fp3", "qscheme": "per_group"}},
            },
            "Quark's format of the experts is not known",
        ),
        (
            {"quant_method": "quark", "global_quant_config": {"weight": None}},
            "Quark's format of the experts is not known",
        ),
    ],
)
def test_storage_that_is_not_known(quantization: dict[str, Any], note: str) -> None:
    it = stored(quantization)
    assert it.scheme is None
    assert it.notes == (note,)


def test_gpt_oss_has_a_class_of_its_own() -> None:
    assert model(written("gpt-oss-120b")).method == "gpt_oss"


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    missing = tmp_path / "config.json"
    assert message(lambda: read_model(missing)) == (
        f"no such file: `{missing}` [M001]\n  fix: give a model's `config.json`, its folder, or a known model"
    )
    assert f"no such file: `{missing}`" in message(lambda: read_model(tmp_path))
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    assert message(lambda: read_model(loop)) == f"too many levels of symbolic links: `{loop}` [M001]"
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert "not a file" in message(lambda: read_model(pipe))
    huge = tmp_path / "huge.json"
    with huge.open("wb") as file:
        file.truncate(1 << 30)
    assert "1074 MB, more than the 10 MB of any config" in message(lambda: read_model(huge))


@contextmanager
def without_privileges() -> Iterator[None]:
    """Root may read everything; drop that for a moment."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text("{}")
    path.chmod(0)
    with without_privileges():
        assert (
            message(lambda: read_model(path))
            == f"no permission to read: `{path}` [M001]\n  fix: make it readable"
        )


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", ":1:1: not JSON: expecting value [M002]\n  fix: repair or download it again"),
        (b'{\n "a": 1,\n}', ":3:1: not JSON: expecting property name enclosed in double quotes [M002]"),
        (b'{"hidden_size": 71', ":1:19: not JSON: expecting ',' delimiter [M002]"),
        (b"[1, 2]", ":1:1: a model's config is a JSON object [M004]"),
        (b'{"a": 1,\n "\xff": 2}', ":2:3: not UTF-8 text [M002]\n  fix: give a model's `config.json`"),
        (b"\x89PNG\r\n\x1a\n", ":1:1: not UTF-8 text [M002]"),
        (b"[" * 100_000, ":1:1: nested too deeply, or a number too long [M002]"),
        (b'{"a": ' + b"9" * 5000 + b"}", ":1:1: nested too deeply, or a number too long [M002]"),
        (
            b'{"num_experts": 8,\n "b": {"num_experts": 8, "num_experts": [8]}}',
            ":2:26: `num_experts` stands twice, with different values [M003]\n  fix: keep one of the two",
        ),
    ],
)
def test_text_that_is_no_config(tmp_path: Path, content: bytes, expected: str) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    assert message(lambda: read_model(path)).startswith(f"{path}{expected}")


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    shutil.copy(CONFIGS / "mixtral-8x7b.json", tmp_path / "config.json")
    text = (tmp_path / "config.json").read_text()
    (tmp_path / "config.json").write_text(text, encoding="utf-8-sig")
    assert read_model(tmp_path).num_experts == 8


def test_places_count_strings_and_lists() -> None:
    config = {"a": 'x "quoted": {[', "list": [1, {"b": 2}, [3]], **written("deepseek-v3"), "hidden_size": 0}
    assert fault(config).startswith("config.json:18:2: `hidden_size`")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from(sorted(path.stem for path in CONFIGS.glob("*.json"))), st.data())
def test_whatever_stands_in_a_config_is_read_or_refused(name: str, data: st.DataObject) -> None:
    config = written(name)
    for key in data.draw(st.sets(st.sampled_from(sorted(config)), min_size=1, max_size=2)):
        config[key] = data.draw(JSON)
    try:
        it = model(config)
    except PolicyError as error:
        codes = {problem.code for problem in error.problems}
    else:
        codes = {"M001"}
        assert it.num_experts is None or it.num_experts > 0
    assert codes <= set(CODES)


@given(
    st.dictionaries(
        st.sampled_from(["quant_method", "quant_algo", "config_groups", "bits", "group_size"]), JSON
    )
)
def test_whatever_a_quantizer_writes_is_read_or_refused(quantization: dict[str, Any]) -> None:
    try:
        codes = {stored(quantization).scheme and "M001"}
    except PolicyError as error:
        codes = {problem.code for problem in error.problems}
    assert codes <= {*CODES, None}


def test_known_models_are_complete_enough() -> None:
    assert len(KNOWN) == len({it.name for it in KNOWN}) == len({it.hf_id for it in KNOWN})
    for it in KNOWN:
        assert it.hidden_size
        assert it.num_experts
        assert it.source
        assert it.confidence in ("high", "medium")
        assert (it.experts_per_token or 1) <= it.num_experts
        assert it.block is None or it.scheme == "fp8_block"


def test_known_models_of_a_known_scheme_have_bytes() -> None:
    for it in KNOWN:
        if it.scheme and it.hidden_size and it.moe_intermediate_size and it.num_experts:
            experts = Experts(
                it.scheme,
                it.num_experts,
                it.routed_hidden_size or 0,
                it.moe_intermediate_size,
                gated=it.gated is not False,
                block=it.block,
                group=it.group,
            )
            assert expert_bytes(experts).total > 0


def test_a_known_model_by_any_of_its_names() -> None:
    for name in (
        "deepseek-v4-pro",
        "DeepSeek-V4-Pro",
        "deepseek-ai/DeepSeek-V4-Pro",
        "DEEPSEEK-AI/deepseek-v4-pro",
    ):
        assert find_model(KNOWN, name).moe_intermediate_size == 3072
    assert find_model(KNOWN, "Kimi-K2-Instruct").name == "kimi-k2"
    assert find_model([Model("alone")], "Alone").name == "alone"


def test_no_such_known_model() -> None:
    assert message(lambda: find_model(KNOWN, "deepseek-v4-por")) == (
        "no known model `deepseek-v4-por` [M010]\n  fix: write `deepseek-v4-pro`"
    )
    assert message(lambda: find_model(KNOWN, "zzzzzz")) == (
        "no known model `zzzzzz` [M010]\n  fix: give a `config.json`, or `--hidden --intermediate --experts`"
    )


ENTRY = {"id": "it", "hidden_size": 64, "moe_intermediate_size": 32, "num_experts": 4, "confidence": "high"}


def test_an_entry_with_everything() -> None:
    it = known_model(
        {**ENTRY, "block": [128, 64], "notes": "read twice", "gated": True, "num_shared_experts": 0}
    )
    assert it == Model(
        "it",
        hidden_size=64,
        moe_intermediate_size=32,
        num_experts=4,
        confidence="high",
        block=(128, 64),
        notes=("read twice",),
        gated=True,
        num_shared_experts=0,
    )


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            {"hidden_sise": 64},
            "known model `it`: unknown key `hidden_sise` [M009]\n  fix: write `hidden_size`",
        ),
        ({"qqqqqqqq": 64}, "known model `it`: unknown key `qqqqqqqq` [M009]"),
        ({"id": "It"}, "known model `It`: its id is `It` [M009]\n  fix: an id is a lower-case name"),
        ({"id": 3}, "known model `without an id`: its id is `3` [M009]"),
        ({"hidden_size": 0}, "`hidden_size` is `0` [M009]\n  fix: a whole number of at least 1 is meant"),
        ({"moe_layers": -1}, "`moe_layers` is `-1` [M009]\n  fix: a whole number of at least 0 is meant"),
        ({"num_experts": True}, "`num_experts` is `True` [M009]"),
        ({"num_experts": "4"}, "`num_experts` is `4` [M009]"),
        ({"activation": 1}, "`activation` is `1` [M009]\n  fix: a text is meant"),
        ({"gated": "yes"}, "`gated` is `yes` [M009]\n  fix: write `true` or `false`"),
        ({"confidence": "sure"}, "`confidence` is `sure` [M009]\n  fix: write `high`, `medium` or `low`"),
        (
            {"block": [128, 0]},
            "`block` is `[128, 0]` [M009]\n  fix: two whole numbers of at least 1 are meant",
        ),
        ({"block": 128}, "`block` is `128` [M009]"),
    ],
)
def test_an_entry_that_cannot_be(change: dict[str, Any], expected: str) -> None:
    assert expected in message(lambda: known_model({**ENTRY, **change}))


def test_all_faults_of_an_entry_at_once() -> None:
    text = message(lambda: known_model({"hidden_size": -1, "gated": 1}))
    assert len(text.splitlines()) == 6
