"""Which backend an engine selects: its own selectors run, on a machine, with switches and a request.

The machine is whole: FlashInfer, DeepGEMM, Triton kernels, AITER and Humming are installed, as the engine's
own requirements install them; the packages in `ABSENT` are not.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from moe_align.verify.questions import REFUSALS, Engine, link
from moe_align.verify.stand_ins import DTYPES, Machine, Namespace, Unlinked

_MOE = "vllm.model_executor.layers.fused_moe"
_QUANT = "vllm.model_executor.layers.quantization"
_KEYS = f"{_QUANT}.utils.quant_utils"

_INSTALLED = [
    "has_deep_gemm",
    "has_flashinfer",
    "has_flashinfer_cutedsl_grouped_gemm_nt_masked",
    "has_flashinfer_cutedsl_moe_nvfp4",
    "has_flashinfer_cutlass_fused_moe",
    "has_flashinfer_moe",
    "has_flashinfer_situ_activation",
    "has_humming",
    "has_flashinfer_trtllm_fused_moe",
    "has_triton_kernels",
    "has_flashinfer_b12x_moe",
]
#: Packages that the engine's requirements leave out.
ABSENT = ("has_hpc", "has_quark", "has_moonep")


@dataclass(frozen=True, slots=True)
class Layer:
    """An expert layer and its launch, as the engine's selectors see it; `intermediate` is per rank.

    Experts are spread (`ep`) only over more than one rank: the engine takes one rank for none.
    """

    requested: str = "auto"
    activation: str = "SILU"
    gated: bool = True
    hidden: int = 4096
    intermediate: int = 512
    tp: int = 1
    dp: int = 1
    ep: bool = False
    all2all: str = "allgather_reducescatter"
    lora: bool = False
    bias: bool = False
    experts: int = 128
    topk: int = 8
    routing: str = "Renormalize"
    model_type: str = "other"
    block: int = 128
    eplb: bool = False
    clamp: float | None = None


class _Switches:
    """The engine's environment switches, read by its own parsers out of `said`."""

    def __init__(self, said: Mapping[str, str]) -> None:
        self.said = said
        self.parsers: Mapping[str, Callable[[], object]] = {}

    def is_set(self, name: str) -> bool:
        return name in self.said

    def __getattr__(self, name: str) -> object:
        if name not in self.parsers:
            raise AttributeError(name)
        return self.parsers[name]()


class _AiterOps:
    """The engine's AITER gates, whose guard `link` strips: found on this machine, and switched on."""

    def __init__(self, engine: Engine, switches: _Switches) -> None:
        self._tree, self._switches = engine.tree, switches

    def _found(self) -> bool:
        return bool(
            cast("Callable[[], object]", self._tree.get("vllm._aiter_ops.is_aiter_found_and_supported"))()
        )

    def is_enabled(self) -> bool:
        return bool(self._switches.VLLM_ROCM_USE_AITER) and self._found()

    def is_fused_moe_enabled(self) -> bool:
        return self.is_enabled() and bool(self._switches.VLLM_ROCM_USE_AITER_MOE)

    def fused_moe_supports_gate_mode(self) -> bool:
        return self._found()

    def is_rdna_aiter_enabled(self) -> bool:
        found = cast(
            "Callable[[], object]", self._tree.get("vllm._aiter_ops.is_aiter_found_and_supported_on_rdna4")
        )
        return bool(found()) and bool(self._switches.VLLM_ROCM_USE_AITER)


def machine_link(root: Path, machine: Machine, said: Mapping[str, str]) -> Engine:
    """The engine under `root` on `machine`, with its own platform class and the switches in `said`."""
    engine = link(root, machine)
    tree = engine.tree
    switches = _Switches(said)
    system = Namespace(getenv=lambda name, other=None: said.get(name, other), environ=dict(said))
    tree.replace(
        {
            "os": system,
            "regex": re,
            "vllm.envs": switches,
            "vllm.platforms.rocm._GCN_ARCH": machine.arch or "",
        }
    )
    switches.parsers = cast("Mapping[str, Callable[[], object]]", tree.get("vllm.envs.environment_variables"))
    platform = _platform(engine, machine)
    stand_ins: dict[str, object] = {"vllm.platforms.current_platform": platform}
    for module in ("vllm.utils.flashinfer", "vllm.utils.import_utils", "vllm.utils.deep_gemm"):
        stand_ins.update((f"{module}.{name}", lambda: True) for name in _INSTALLED)
        stand_ins.update((f"{module}.{name}", lambda: False) for name in ABSENT)
    stand_ins["vllm._aiter_ops.IS_AITER_FOUND"] = True
    # Compiled: grouped FP8 GEMMs are there from Hopper on, MXFP4 ones from Blackwell on.
    stand_ins["vllm._custom_ops.cutlass_group_gemm_supported"] = lambda capability: capability >= 90
    stand_ins["vllm._custom_ops.mxfp4_experts_quant_supported"] = lambda capability: capability >= 100
    stand_ins[f"{_MOE}.b12x.get_b12x_fused_moe"] = lambda: SimpleNamespace(is_supported=lambda: True)
    stand_ins["vllm.utils.humming.GemmType"] = _GemmType
    stand_ins["vllm._aiter_ops.rocm_aiter_ops"] = _AiterOps(engine, switches)
    tree.replace(stand_ins)
    return engine


class _GemmType(enum.Enum):
    """Humming's kinds of GEMM, as far as the engine names them."""

    INDEXED = "indexed"
    GROUPED_CONTIGUOUS = "grouped_contiguous"
    GROUPED_MASKED = "grouped_masked"


_CLASSES = {
    "cuda": "vllm.platforms.cuda.CudaPlatformBase",
    "rocm": "vllm.platforms.rocm.RocmPlatform",
    "xpu": "vllm.platforms.xpu.XPUPlatform",
    "cpu": "vllm.platforms.cpu.CpuPlatform",
}


def _platform(engine: Engine, machine: Machine) -> object:
    """An instance of the engine's own platform class that knows this machine's capability."""
    cls = cast(type, engine.tree.get(_CLASSES[machine.platform]))
    return _on_machine(cls, engine, machine)()


def _on_machine(cls: type, engine: Engine, machine: Machine) -> type:
    capability = _capability(engine, machine)
    names = {
        "get_device_capability": classmethod(lambda _cls, device_id=0: capability),
        "device_name": machine.arch or machine.platform,
    }
    return type(cls.__name__, (cls,), names)


def _capability(engine: Engine, machine: Machine) -> object:
    make = cast("Callable[..., object]", engine.tree.get("vllm.platforms.interface.DeviceCapability"))
    if machine.platform == "cuda":
        number = int((machine.arch or "sm0")[2:])
        return make(major=number // 10, minor=number % 10)
    if machine.platform == "rocm":
        found = cast("Callable[[str], Any]", engine.tree.get("vllm.platforms.rocm._capability_from_gcn_arch"))
        major, minor = found(machine.arch or "")
        return make(major=major, minor=minor)
    return None


def _config(engine: Engine, layer: Layer) -> SimpleNamespace:
    tree = engine.tree
    make = cast("Callable[..., object]", tree.get(f"{_MOE}.config.FusedMoEParallelConfig"))
    ranks = layer.tp * layer.dp
    spread = layer.ep and ranks > 1
    moe_tp, moe_ep = (1, ranks) if spread else (ranks, 1)
    parallel = make(
        tp_size=moe_tp,
        pcp_size=1,
        dp_size=layer.dp,
        ep_size=moe_ep,
        tp_rank=0,
        pcp_rank=0,
        dp_rank=0,
        ep_rank=0,
        sp_size=1,
        use_ep=spread,
        all2all_backend=layer.all2all,
        enable_eplb=layer.eplb,
    )
    activation = cast("Mapping[str, object]", tree.get(f"{_MOE}.activation.MoEActivation").__members__)  # type: ignore[attr-defined]
    routing = cast("Mapping[str, object]", tree.get(f"{_MOE}.config.RoutingMethodType").__members__)  # type: ignore[attr-defined]
    return SimpleNamespace(
        moe_backend=layer.requested,
        is_act_and_mul=layer.gated,
        activation=activation[layer.activation],
        moe_parallel_config=parallel,
        has_hash_routing=False,
        require_decomposed_backend=False,
        routing_method=routing[layer.routing],
        router_logits_dtype=DTYPES["bfloat16"],
        hidden_dim=layer.hidden,
        hidden_dim_unpadded=layer.hidden,
        intermediate_size=layer.intermediate * moe_tp,
        intermediate_size_per_partition=layer.intermediate,
        intermediate_size_per_partition_unpadded=layer.intermediate,
        tp_size=moe_tp,
        dp_size=layer.dp,
        ep_size=moe_ep,
        is_lora_enabled=layer.lora,
        has_bias=layer.bias,
        num_experts=layer.experts,
        num_local_experts=layer.experts,
        experts_per_token=layer.topk,
        in_dtype=DTYPES["bfloat16"],
        swiglu_limit=layer.clamp,
        swiglu_alpha=None,
        swiglu_beta=None,
        activation_situ_beta=4.0,
        activation_situ_linear_beta=25.0,
        tp_shard_with_padding=False,
        use_ep=spread,
        skip_final_all_reduce=False,
    )


def _model(engine: Engine, layer: Layer) -> None:
    """Let the engine see the layer's model type where a selector asks for the current configuration."""
    text = SimpleNamespace(model_type=layer.model_type)
    model = SimpleNamespace(hf_text_config=text, quantization_config=None)
    parallel = SimpleNamespace(enable_dbo=False, enable_eplb=layer.eplb)
    current = SimpleNamespace(model_config=model, parallel_config=parallel, weight_transfer_config=None)
    askers = ("oracle.fp8", "oracle.mxfp4", "flashinfer_moe_ep")
    names: dict[str, object] = {
        f"{_MOE}.{asker}.get_current_vllm_config": lambda: current for asker in askers
    }
    names["vllm.config.get_current_vllm_config"] = lambda: current
    names["vllm.distributed.get_tensor_model_parallel_world_size"] = lambda: layer.tp
    engine.tree.replace(names)


Chosen = tuple[str, ...]
"""The name of the backend, then for FP8 blocks the block and the width per rank; or a refusal."""


def _ask(question: Callable[[], Chosen]) -> Chosen:
    try:
        return question()
    except Unlinked:
        raise
    except REFUSALS as refusal:
        return (f"error: {type(refusal).__name__}",)


def fp8_block(engine: Engine, layer: Layer) -> Chosen:
    """What a layer of 128x128-block FP8 weights of a checkpoint is given: backend, block, width per rank."""
    _model(engine, layer)
    tree, config = engine.tree, _config(engine, layer)
    dynamic = tree.get(f"{_KEYS}.kFp8Dynamic128Sym")

    def question() -> Chosen:
        module = f"{_MOE}.oracle.fp8"
        resolve = cast("Callable[..., Any]", tree.get(f"{module}.resolve_fp8_moe_weight_block_shape"))
        block, _ = resolve(config, [layer.block, layer.block], dynamic, True)
        shape = cast("Callable[..., object]", tree.get(f"{_KEYS}.GroupShape"))(*block)
        key = cast("Callable[..., object]", tree.get(f"{_KEYS}.create_fp8_quant_key"))(
            static=True, group_shape=shape
        )
        select = cast("Callable[..., Any]", tree.get(f"{module}.select_fp8_moe_backend"))
        backend, _ = select(config, key, dynamic, allow_vllm_cutlass=False)
        check = cast(
            "Callable[..., object]", tree.get(f"{_QUANT}.utils.fp8_utils.validate_fp8_block_shape_moe")
        )
        check(config.intermediate_size_per_partition, list(block))
        return backend.name, str(block[0]), str(config.intermediate_size_per_partition)

    return _ask(question)


def fp8(weight: str, activation: str, cutlass: bool) -> Callable[[Engine, Layer], Chosen]:
    """The question for a class of FP8 weights that no shard can cut: one scale per tensor or per channel.

    `weight` and `activation` are the engine's names of the two formats; `cutlass` is whether the class
    lets vLLM's own CUTLASS kernels be chosen.
    """

    def question(engine: Engine, layer: Layer) -> Chosen:
        _model(engine, layer)
        tree, config = engine.tree, _config(engine, layer)
        select = cast("Callable[..., Any]", tree.get(f"{_MOE}.oracle.fp8.select_fp8_moe_backend"))
        keys = tree.get(f"{_KEYS}.{weight}"), tree.get(f"{_KEYS}.{activation}")
        return _ask(lambda: (select(config, *keys, allow_vllm_cutlass=cutlass)[0].name,))

    return question


def mxfp8(engine: Engine, layer: Layer) -> Chosen:
    """What a layer of MXFP8 weights and activations is given."""
    _model(engine, layer)
    config = _config(engine, layer)
    select = cast("Callable[..., Any]", engine.tree.get(f"{_MOE}.oracle.mxfp8.select_mxfp8_moe_backend"))
    return _ask(lambda: (select(config)[0].name,))


def nvfp4(engine: Engine, layer: Layer) -> Chosen:
    """What a layer of NVFP4 weights and activations is given."""
    _model(engine, layer)
    tree, config = engine.tree, _config(engine, layer)
    keys = tree.get(f"{_KEYS}.kNvfp4Static"), tree.get(f"{_KEYS}.kNvfp4Dynamic")
    select = cast("Callable[..., Any]", tree.get(f"{_MOE}.oracle.nvfp4.select_nvfp4_moe_backend"))
    return _ask(lambda: (select(config, *keys)[0].name,))


def unquantized(engine: Engine, layer: Layer) -> Chosen:
    """What a layer of unquantized weights is given."""
    _model(engine, layer)
    config = _config(engine, layer)
    select = cast(
        "Callable[..., Any]", engine.tree.get(f"{_MOE}.oracle.unquantized.select_unquantized_moe_backend")
    )
    return _ask(lambda: (select(config)[0].name,))


def mxfp4(engine: Engine, layer: Layer) -> Chosen:
    """What a layer of MXFP4 weights and 16-bit activations is given, as for GPT-OSS."""
    _model(engine, layer)
    config = _config(engine, layer)
    select = cast("Callable[..., Any]", engine.tree.get(f"{_MOE}.oracle.mxfp4.select_mxfp4_moe_backend"))
    return _ask(lambda: (select(config)[0].name,))


def mxfp4_deepseek(engine: Engine, layer: Layer) -> Chosen:
    """What a layer of the MXFP4 class itself is given: DeepSeek-V4, Kimi K3."""
    _model(engine, layer)
    config = _config(engine, layer)
    select = cast(
        "Callable[..., Any]", engine.tree.get(f"{_MOE}.oracle.mxfp4.select_deepseek_v4_mxfp4_moe_backend")
    )
    return _ask(lambda: (select(config)[0].name,))


def mxfp4_activations(activation: str) -> Callable[[Engine, Layer], Chosen]:
    """The question for MXFP4 weights whose class wants activations in the format of this name."""

    def question(engine: Engine, layer: Layer) -> Chosen:
        _model(engine, layer)
        tree, config = engine.tree, _config(engine, layer)
        select = cast("Callable[..., Any]", tree.get(f"{_MOE}.oracle.mxfp4.select_mxfp4_moe_backend"))
        key = tree.get(f"{_KEYS}.{activation}")
        return _ask(lambda: (select(config, activation_key=key)[0].name,))

    return question


def mxfp4_plain(engine: Engine, layer: Layer) -> Chosen:
    """What compressed-tensors gives a layer of MXFP4 weights, mostly past the selector."""
    _model(engine, layer)
    module = f"{_QUANT}.compressed_tensors.compressed_tensors_moe.compressed_tensors_moe_w4a4_mxfp4"
    make = cast("Callable[..., Any]", engine.tree.get(f"{module}.CompressedTensorsW4A4Mxfp4MoEMethod"))

    def question() -> Chosen:
        method = make(_config(engine, layer))
        return ("CUTLASS_MXFP4_MXFP4" if method.use_cutlass_mxfp4 else method.mxfp4_backend.name,)

    return _ask(question)


#: How to ask, by the selector.
SCHEMES = {
    "fp8_block": fp8_block,
    "fp8_tensor_static": fp8("kFp8StaticTensorSym", "kFp8StaticTensorSym", False),
    "fp8_tensor_dynamic": fp8("kFp8StaticTensorSym", "kFp8DynamicTensorSym", False),
    "fp8_tensor_cutlass": fp8("kFp8StaticTensorSym", "kFp8StaticTensorSym", True),
    "fp8_tensor_groups": fp8("kFp8StaticTensorSym", "kFp8Dynamic128Sym", True),
    "fp8_channel": fp8("kFp8StaticChannelSym", "kFp8DynamicTokenSym", False),
    "fp8_channel_cutlass": fp8("kFp8StaticChannelSym", "kFp8DynamicTokenSym", True),
    "mxfp8": mxfp8,
    "nvfp4": nvfp4,
    "unquantized": unquantized,
    "mxfp4": mxfp4,
    "mxfp4_deepseek": mxfp4_deepseek,
    "mxfp4_activations": mxfp4_activations("kMxfp4Dynamic"),
    "mxfp4_fp8_activations": mxfp4_activations("kFp8StaticTensorSym"),
    "mxfp4_plain": mxfp4_plain,
}
