"""How each family of architectures spells its sizes in `config.json`: a table, and rules of layers.

What stands here was read from the engine's own model code (vllm v0.33.0:
vllm/model_executor/models and vllm/models) and from published configs. A key that a config does not
have is unknown: no default of a config class stands here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Contradiction(Exception):
    """Two things that a config says and that cannot both hold; `key` is where one of them stands."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


#: What a rule of layers sees: whole numbers by key (`None` if not written), lists by key, all layers.
Number = Callable[[str], "int | None"]
Value = Callable[[str], object]
LayerRule = Callable[[Number, Value, int], "int | None"]


@dataclass(frozen=True, slots=True)
class Family:
    """One way of writing an MoE model.

    `names` are values of `architectures` and of `model_type`, with spaces between them. `keys` give
    the spellings of a field, all of them meaning the same. `moe_layers` counts the layers with
    experts. `shared` says how wide the shared experts are together: as the key says (`key`), that
    times their number (`each`), or that number times the routed width (`routed`). `one_shared`
    families have one shared expert wherever the key of its width is above 0. `blocks` is the list of
    block types, one for each layer, where a layer without experts may be no dense MLP either.
    """

    names: str
    keys: Mapping[str, tuple[str, ...]]
    moe_layers: LayerRule
    shared: str = "key"
    one_shared: bool = False
    blocks: str | None = None
    fixed: Mapping[str, str | int | bool] = field(default_factory=dict)


def every_layer(number: Number, value: Value, layers: int) -> int | None:
    return layers


def after_dense(key: str) -> LayerRule:
    """All layers but the first ones, as many as `key` says."""

    def count(number: Number, value: Value, layers: int) -> int | None:
        dense = number(key)
        if dense is None:
            return None
        if dense > layers:
            raise Contradiction(key, f"{dense} dense layers of {layers} layers")
        return layers - dense

    return count


def deepseek(number: Number, value: Value, layers: int) -> int | None:
    """From `first_k_dense_replace` on every `moe_layer_freq`-th layer, or a flag for each layer."""
    flags = value("moe_layer_freq")
    if isinstance(flags, list):
        return _flags("moe_layer_freq", flags, layers)
    frequency, dense = number("moe_layer_freq"), number("first_k_dense_replace")
    if frequency is None or dense is None:
        return None
    if dense > layers:
        raise Contradiction("first_k_dense_replace", f"{dense} dense layers of {layers} layers")
    return sum(layer >= dense and layer % max(frequency, 1) == 0 for layer in range(layers))


def qwen(number: Number, value: Value, layers: int) -> int | None:
    """Every `decoder_sparse_step`-th layer that is not among `mlp_only_layers`."""
    step = number("decoder_sparse_step")
    exceptions = value("mlp_only_layers") or []
    if step is None or not isinstance(exceptions, list):
        return None
    beyond = [layer for layer in exceptions if not isinstance(layer, int) or not 0 <= layer < layers]
    if beyond:
        raise Contradiction("mlp_only_layers", f"layer {beyond[0]} of {layers} layers")
    return sum((layer + 1) % max(step, 1) == 0 for layer in range(layers) if layer not in exceptions)


def llama4(number: Number, value: Value, layers: int) -> int | None:
    """The layers that `moe_layers` lists, or every `interleave_moe_layer_step`-th."""
    listed = value("moe_layers")
    if isinstance(listed, list):
        return _listed("moe_layers", listed, layers)
    step = number("interleave_moe_layer_step")
    if step is None:
        return None
    return layers // step if step else 0


def ernie(number: Number, value: Value, layers: int) -> int | None:
    """Every `moe_layer_interval`-th layer from the start index to the end index."""
    start, interval = number("moe_layer_start_index"), number("moe_layer_interval")
    end = number("moe_layer_end_index")
    if start is None or interval is None:
        return None
    last = layers - 1 if end is None or end < 0 else end
    if last >= layers:
        raise Contradiction("moe_layer_end_index", f"layer {last} of {layers} layers")
    return sum((layer + 1) % max(interval, 1) == 0 for layer in range(start, last + 1))


def jamba(number: Number, value: Value, layers: int) -> int | None:
    """One layer in each `expert_layer_period`, at `expert_layer_offset`."""
    period, offset = number("expert_layer_period"), number("expert_layer_offset")
    if period is None or offset is None:
        return None
    return sum(layer % max(period, 1) == offset for layer in range(layers))


def nemotron(number: Number, value: Value, layers: int) -> int | None:
    """The blocks that the pattern marks `E`, or that the list of block types calls `moe`."""
    blocks = value("layers_block_type")
    if isinstance(blocks, list):
        return _flags("layers_block_type", [block == "moe" for block in blocks], layers)
    pattern = value("hybrid_override_pattern")
    if not isinstance(pattern, str):
        return None
    return _flags("hybrid_override_pattern", [block == "E" for block in pattern], layers)


def step(number: Number, value: Value, layers: int) -> int | None:
    """A type for each layer, a list of layers with experts, or a number of dense ones in front."""
    types, listed = value("mlp_layer_types"), value("moe_layers_enum")
    if isinstance(types, list):
        return _flags("mlp_layer_types", [kind == "sparse" for kind in types], layers)
    if isinstance(listed, str) and listed:
        names = [name.strip() for name in listed.split(",")]
        return _listed("moe_layers_enum", [int(name) if name.isdigit() else name for name in names], layers)
    return after_dense("first_k_dense_replace")(number, value, layers)


def _flags(key: str, flags: Sequence[object], layers: int) -> int:
    if len(flags) != layers:
        raise Contradiction(key, f"{len(flags)} entries for {layers} layers")
    return sum(map(bool, flags))


def _listed(key: str, listed: Sequence[object], layers: int) -> int:
    beyond = [layer for layer in listed if not isinstance(layer, int) or not 0 <= layer < layers]
    if beyond:
        raise Contradiction(key, f"layer {beyond[0]} of {layers} layers")
    return len(set(listed))


#: What most families write alike; each takes it over and names its own spellings.
COMMON: Mapping[str, tuple[str, ...]] = {
    "hidden_size": ("hidden_size",),
    "moe_intermediate_size": ("moe_intermediate_size",),
    "num_experts": ("num_experts",),
    "experts_per_token": ("num_experts_per_tok",),
    "layers": ("num_hidden_layers",),
    "activation": ("hidden_act",),
    "dense_intermediate_size": ("intermediate_size",),
    "mtp_layers": ("num_nextn_predict_layers",),
}

#: Families whose experts have the width that the config calls `intermediate_size`.
_PLAIN: Mapping[str, tuple[str, ...]] = {
    **{name: keys for name, keys in COMMON.items() if name != "dense_intermediate_size"},
    "moe_intermediate_size": ("intermediate_size",),
    "num_experts": ("num_local_experts",),
}

_DEEPSEEK: Mapping[str, tuple[str, ...]] = {
    **COMMON,
    "num_experts": ("n_routed_experts",),
    "num_shared_experts": ("n_shared_experts",),
}

FAMILIES: tuple[Family, ...] = (
    Family(
        "DeepseekForCausalLM DeepseekV2ForCausalLM DeepseekV3ForCausalLM DeepseekV32ForCausalLM "
        "GlmMoeDsaForCausalLM MistralLarge3ForCausalLM AXK1ForCausalLM deepseek deepseek_v2 "
        "deepseek_v3 deepseek_v32 kimi_k2 glm_moe_dsa",
        _DEEPSEEK,
        deepseek,
        shared="routed",
    ),
    Family(
        "DeepseekV4ForCausalLM DeepseekV41ForCausalLM DeepseekV4ForConditionalGeneration "
        "deepseek_v4 deepseek_v41",
        _DEEPSEEK,
        every_layer,
        shared="routed",
    ),
    Family(
        "Glm4MoeForCausalLM Glm4MoeLiteForCausalLM Dots1ForCausalLM glm4_moe glm4_moe_lite "
        "glm4v_moe_text dots1",
        _DEEPSEEK,
        after_dense("first_k_dense_replace"),
        shared="routed",
    ),
    Family(
        "MiMoV2FlashForCausalLM MiMoV2ForCausalLM mimo_v2_flash mimo_v2",
        _DEEPSEEK,
        deepseek,
        shared="routed",
    ),
    Family(
        "KimiLinearForCausalLM KimiK3ForConditionalGeneration kimi_linear kimi_k3",
        {
            **COMMON,
            "experts_per_token": ("num_experts_per_token", "num_experts_per_tok"),
            "num_shared_experts": ("num_shared_experts",),
            "expert_hidden_size": ("routed_expert_hidden_size",),
        },
        deepseek,
        shared="routed",
    ),
    Family(
        "Qwen2MoeForCausalLM Qwen3NextForCausalLM qwen2_moe qwen3_next",
        {
            **COMMON,
            "shared_expert_intermediate_size": ("shared_expert_intermediate_size",),
            "mtp_layers": ("mtp_num_hidden_layers",),
        },
        qwen,
        one_shared=True,
    ),
    Family(
        "Qwen3MoeForCausalLM Qwen3VLMoeForConditionalGeneration Qwen3OmniMoeForConditionalGeneration "
        "qwen3_moe qwen3_vl_moe_text qwen3_omni_moe_text",
        COMMON,
        qwen,
        fixed={"num_shared_experts": 0},
    ),
    Family(
        "Qwen3_5MoeForCausalLM Qwen3_5MoeForConditionalGeneration qwen3_5_moe qwen3_5_moe_text",
        {
            **COMMON,
            "shared_expert_intermediate_size": ("shared_expert_intermediate_size",),
            "mtp_layers": ("mtp_num_hidden_layers",),
        },
        every_layer,
        one_shared=True,
    ),
    Family(
        "GptOssForCausalLM gpt_oss",
        _PLAIN,
        every_layer,
        fixed={"activation": "swigluoai", "bias": True, "num_shared_experts": 0},
    ),
    Family(
        "MixtralForCausalLM PhiMoEForCausalLM PhimoeForCausalLM mixtral phimoe",
        _PLAIN,
        every_layer,
        fixed={"num_shared_experts": 0},
    ),
    Family(
        "MiniMaxM2ForCausalLM MiniMaxM1ForCausalLM MiniMaxText01ForCausalLM minimax_m2 minimax_m1 "
        "minimax_text_01 minimax",
        {
            **_PLAIN,
            "shared_expert_intermediate_size": ("shared_intermediate_size",),
            "mtp_layers": ("num_mtp_modules",),
        },
        every_layer,
        one_shared=True,
    ),
    Family(
        "MiniMaxM3ForCausalLM MiniMaxM3SparseForCausalLM MiniMaxM3SparseForConditionalGeneration "
        "minimax_m3 minimax_m3_vl minimax_m3_vl_text",
        {
            **_PLAIN,
            "dense_intermediate_size": ("dense_intermediate_size",),
            "num_shared_experts": ("n_shared_experts",),
            "shared_expert_intermediate_size": ("shared_intermediate_size",),
            "mtp_layers": ("num_mtp_modules",),
        },
        deepseek,
        shared="each",
        # The engine's kernels take gate and up stacked, whatever the config calls the activation.
        fixed={"activation": "swigluoai_uninterleave"},
    ),
    Family(
        "Llama4ForCausalLM Llama4ForConditionalGeneration llama4_text llama4",
        {
            **_PLAIN,
            "dense_intermediate_size": ("intermediate_size_mlp",),
            "shared_expert_intermediate_size": ("intermediate_size",),
        },
        llama4,
        fixed={"num_shared_experts": 1},
    ),
    Family(
        "Gemma4ForCausalLM Gemma4ForConditionalGeneration gemma4_text gemma4",
        {
            **COMMON,
            "experts_per_token": ("top_k_experts",),
            "activation": ("hidden_activation", "hidden_act"),
        },
        every_layer,
    ),
    Family(
        "NemotronHForCausalLM NemotronHPuzzleForCausalLM nemotron_h nemotron_h_puzzle",
        {
            **{name: keys for name, keys in _DEEPSEEK.items() if name != "dense_intermediate_size"},
            "activation": ("mlp_hidden_act",),
            "shared_expert_intermediate_size": ("moe_shared_expert_intermediate_size",),
            "expert_hidden_size": ("moe_latent_size",),
        },
        nemotron,
        shared="each",
        blocks="layers_block_type",
        fixed={"gated": False},
    ),
    Family(
        "Ernie4_5_MoeForCausalLM ernie4_5_moe",
        {
            **COMMON,
            "num_experts": ("moe_num_experts",),
            "experts_per_token": ("moe_k",),
            "num_shared_experts": ("moe_num_shared_experts",),
        },
        ernie,
        shared="routed",
    ),
    Family(
        "BailingMoeForCausalLM BailingMoeV2ForCausalLM BailingMoeV2_5ForCausalLM bailing_moe "
        "bailing_moe_v2 bailing_moe_linear",
        {**COMMON, "num_shared_experts": ("num_shared_experts",)},
        after_dense("first_k_dense_replace"),
        shared="routed",
    ),
    Family(
        "Step3TextForCausalLM Step3VLForConditionalGeneration Step3p5ForCausalLM "
        "Step3p7ForConditionalGeneration Step3p7FlashForCausalLM step3_text step3_vl step3p5 step3p7",
        {
            **COMMON,
            "num_experts": ("moe_num_experts", "num_experts"),
            "experts_per_token": ("moe_top_k", "num_experts_per_tok"),
            "shared_expert_intermediate_size": ("share_expert_dim",),
        },
        step,
        fixed={"num_shared_experts": 1},
    ),
    Family(
        "LongcatFlashForCausalLM longcat_flash",
        {
            **COMMON,
            "moe_intermediate_size": ("expert_ffn_hidden_size", "moe_intermediate_size"),
            "num_experts": ("n_routed_experts",),
            "experts_per_token": ("moe_topk",),
            "dense_intermediate_size": ("ffn_hidden_size",),
            "layers": ("num_layers",),
        },
        every_layer,
        # It writes no activation: its code has SiLU.
        fixed={"num_shared_experts": 0, "activation": "silu"},
    ),
    Family(
        "HunYuanMoEV1ForCausalLM hunyuan_v1_moe hunyuan",
        {**COMMON, "experts_per_token": ("moe_topk",), "num_shared_experts": ("num_shared_expert",)},
        after_dense("moe_layer_num_skipped"),
        shared="routed",
    ),
    Family(
        "HYV3ForCausalLM hy_v3",
        {
            **COMMON,
            "moe_intermediate_size": ("expert_hidden_dim",),
            "num_shared_experts": ("num_shared_experts",),
        },
        after_dense("first_k_dense_replace"),
        shared="routed",
    ),
    Family(
        "DbrxForCausalLM dbrx",
        {
            "hidden_size": ("d_model",),
            "moe_intermediate_size": ("ffn_config.ffn_hidden_size",),
            "num_experts": ("ffn_config.moe_num_experts",),
            "experts_per_token": ("ffn_config.moe_top_k",),
            "layers": ("n_layers",),
            "activation": ("ffn_config.ffn_act_fn.name",),
        },
        every_layer,
        fixed={"num_shared_experts": 0},
    ),
    Family(
        "JambaForCausalLM jamba",
        {
            **_PLAIN,
            "num_experts": ("num_experts",),
            "dense_intermediate_size": ("intermediate_size",),
        },
        jamba,
        fixed={"num_shared_experts": 0},
    ),
    Family(
        "OlmoeForCausalLM FlexOlmoForCausalLM olmoe flex_olmo",
        {**_PLAIN, "num_experts": ("num_experts",)},
        every_layer,
        fixed={"num_shared_experts": 0},
    ),
    Family(
        "GraniteMoeForCausalLM granitemoe",
        _PLAIN,
        every_layer,
        fixed={"num_shared_experts": 0},
    ),
    Family(
        "GraniteMoeSharedForCausalLM GraniteMoeHybridForCausalLM granitemoeshared granitemoehybrid",
        {**_PLAIN, "shared_expert_intermediate_size": ("shared_intermediate_size",)},
        every_layer,
        one_shared=True,
    ),
    Family(
        "Lfm2MoeForCausalLM lfm2_moe",
        {name: keys for name, keys in COMMON.items() if name != "activation"},
        after_dense("num_dense_layers"),
        fixed={"num_shared_experts": 0},
    ),
    Family(
        "AfmoeForCausalLM afmoe",
        {**COMMON, "num_shared_experts": ("num_shared_experts",)},
        after_dense("num_dense_layers"),
        shared="routed",
    ),
    Family(
        "ExaoneMoeForCausalLM ExaoneMoEForCausalLM exaone_moe",
        {**COMMON, "num_shared_experts": ("num_shared_experts",)},
        step,
        shared="routed",
    ),
    Family(
        "Grok1ModelForCausalLM grok-1",
        {**_PLAIN, "activation": ("hidden_act",)},
        every_layer,
        fixed={"num_shared_experts": 0},
    ),
)

#: Wrappers around a text model of another name, which stands in a section of its own.
SECTIONS = ("text_config", "llm_config", "language_config", "thinker_config", "language_model")

FAMILY_OF: Mapping[str, Family] = {name: family for family in FAMILIES for name in family.names.split()}

#: Activations by the names that configs give them.
ACTIVATIONS: Mapping[str, str] = {
    "silu": "silu",
    "swish": "silu",
    "swiglu": "silu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_tanh": "gelu_tanh",
    "relu2": "relu2",
    "situ": "situ",
    "swigluoai": "swigluoai",
    "swiglu_oai": "swigluoai",
}
