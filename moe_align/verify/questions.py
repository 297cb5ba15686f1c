"""Questions put to an engine's own functions, one machine at a time; answers are what they returned."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TypeVar, cast

from moe_align.verify.stand_ins import (
    DTYPES,
    Aiter,
    AiterEnum,
    Logger,
    Machine,
    Namespace,
    Platform,
    Tensor,
    Unknown,
    Unlinked,
    torch,
)
from moe_align.verify.tree import Tree

_MOE = "vllm.model_executor.layers.fused_moe"
_QUANT = "vllm.model_executor.layers.quantization"
_EXPERTS = 2
_ROUND_MXFP4 = f"{_MOE}.oracle.mxfp4.mxfp4_round_up_hidden_size_and_intermediate_size"

# An engine that refuses says so with one of these; anything else is a gap in the linking and ends the run.
REFUSALS = (ValueError, AssertionError, NotImplementedError, RuntimeError)

Sizes = tuple[int, int]
Pads = tuple[int | None, int | None]
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine tree, linked for one machine."""

    tree: Tree
    machine: Machine
    aiter: Aiter


def link(root: Path, machine: Machine) -> Engine:
    """Return the engine under `root` as `machine` would run it."""
    aiter = Aiter()
    stand_ins: dict[str, object] = {}
    tree = Tree(root, stand_ins, "vllm")
    rocm = f"{machine.arch}:sramecc+:xnack-" if machine.platform == "rocm" else ""

    def operator(name: str) -> object:
        if name == "rocm_aiter_fused_moe":
            return tree.get("vllm._aiter_ops._rocm_aiter_fused_moe_impl")
        return lambda *_args, **_kwargs: (Unknown(name), Unknown(name))

    stand_ins.update(
        {
            "torch": torch(operator),
            "torch.nn": Namespace(Module=object),
            "torch.nn.parameter": Namespace(Parameter=lambda data, requires_grad=True: data),
            "aiter": Namespace(ActivationType=AiterEnum("ActivationType"), QuantType=AiterEnum("QuantType")),
            "aiter.fused_moe": aiter,
            "aiter.ops.flydsl.moe_common": Namespace(GateMode=_GATE_MODES),
            "vllm.envs": Namespace(**_SWITCHES),
            "vllm.logger.init_logger": lambda _name: Logger(),
            "vllm.platforms.current_platform": Platform(machine),
            "vllm.platforms.rocm._get_gcn_arch": lambda: rocm,
            "vllm.triton_utils.triton": _triton(machine),
            "vllm.model_executor.utils.set_weight_attrs": lambda *_args: None,
        }
    )
    tree.replace(stand_ins)
    return Engine(tree, machine, aiter)


# AITER on, as its backends require; everything else as the engine sets it when nothing is given.
_SWITCHES: dict[str, object] = {
    "VLLM_MOE_ROUTING_SIMULATION_STRATEGY": "",
    "VLLM_ROCM_USE_AITER": True,
    "VLLM_ROCM_USE_AITER_MOE": True,
    "VLLM_ROCM_USE_AITER_MOE_SITUV2": "auto",
    "VLLM_ROCM_USE_AITER_MOE_SITUV2_A8W4": False,
    "AITER_SITUV2_A8W4": False,
}
_GATE_MODES = SimpleNamespace(
    INTERLEAVE=SimpleNamespace(value="interleave"), SEPARATED=SimpleNamespace(value="separated")
)


def _triton(machine: Machine) -> Namespace:
    target = SimpleNamespace(arch=machine.arch)
    active = SimpleNamespace(get_current_target=lambda: target)
    return Namespace(runtime=SimpleNamespace(driver=SimpleNamespace(active=active)))


def members(tree: Tree, dotted: str) -> tuple[tuple[str, enum.Enum], ...]:
    """Return every name of an enumeration, aliases among them, with its member; none if it is absent."""
    if not tree.has(dotted):
        return ()
    return tuple(cast("type[enum.Enum]", tree.get(dotted)).__members__.items())


def activations(tree: Tree) -> tuple[tuple[str, enum.Enum], ...]:
    return members(tree, f"{_MOE}.activation.MoEActivation")


def mxfp4_backends(tree: Tree) -> tuple[tuple[str, enum.Enum], ...]:
    new = members(tree, f"{_MOE}.oracle.mxfp4.Mxfp4MoeBackend")
    return new or members(tree, f"{_QUANT}.mxfp4.Mxfp4Backend")


def unquantized_backends(tree: Tree) -> tuple[tuple[str, enum.Enum], ...]:
    return members(tree, f"{_MOE}.oracle.unquantized.UnquantizedMoeBackend")


def ask(question: Callable[[], _T]) -> _T | str:
    """Return what the engine answers, or its refusal as `error: TypeName`."""
    try:
        return question()
    except REFUSALS as refusal:
        return f"error: {type(refusal).__name__}"


def _call(function: Callable[..., object], offered: dict[str, object]) -> object:
    """Call with those of the offered arguments that the function takes."""
    wanted = inspect.signature(function).parameters
    return function(**{name: value for name, value in offered.items() if name in wanted})


class Transport:
    """A parallel configuration whose only active transport is `name`, if any."""

    def __init__(self, name: str | None = None) -> None:
        self._active = f"use_{name}_kernels"

    def __getattr__(self, attribute: str) -> bool:
        if not attribute.startswith("use_"):
            raise Unlinked(f"the transport has no `{attribute}`")
        return attribute == self._active


def _bare(cls: type, **attributes: object) -> object:
    """Return an instance that never ran `__init__` and has just these attributes."""
    made: object = object.__new__(cls)
    vars(made).update(attributes)
    return made


class _Layer(Namespace):
    """A layer that keeps the parameters which weight creation registers."""

    def register_parameter(self, name: str, value: object) -> None:
        setattr(self, name, value)


def _created(method: object, hidden: int, intermediate: int) -> Sizes:
    """Run weight creation and return the sizes that its tensors have.

    `w13_weight` is `[experts, 2 * intermediate, packed hidden]`, `w2_weight` is `[experts, hidden, …]`.
    """
    layer = _Layer()
    create = cast("Callable[..., object]", method.create_weights)  # type: ignore[attr-defined]
    create(
        layer=layer,
        num_experts=_EXPERTS,
        hidden_size=hidden,
        intermediate_size_per_partition=intermediate,
        params_dtype=DTYPES["bfloat16"],
        weight_loader=None,
    )
    w13, w2 = cast(Tensor, layer.w13_weight), cast(Tensor, layer.w2_weight)
    return w2.shape[1], w13.shape[1] // 2


_PLAIN_LAYER = SimpleNamespace(has_bias=False, is_lora_enabled=False, is_act_and_mul=True)


def layer_hidden(
    engine: Engine, backend: enum.Enum | None, config: str | None, model_type: str, hidden: int
) -> int:
    """Return the hidden size that the layer's constructor made of `hidden` (before there was an oracle).

    `config` is the name of the quantization config, `mxfp4` or `quark`, both with MXFP4 weights, or `None`.
    """
    engine.tree.replace({f"{_QUANT}.mxfp4.get_mxfp4_backend": lambda _lora: backend})
    rounded = _call(
        cast("Callable[..., object]", engine.tree.get(f"{_MOE}.layer.maybe_roundup_hidden_size")),
        {
            "hidden_size": hidden,
            "act_dtype": DTYPES["bfloat16"],
            "quant_config": SimpleNamespace(get_name=lambda: config) if config else None,
            "moe_parallel_config": Transport(),
            "is_lora_enabled": False,
            "model_type": model_type,
            "is_mxfp4_quant": config is not None,
        },
    )
    return cast(int, rounded)


def mxfp4_weights(engine: Engine, backend: enum.Enum, hidden: int, intermediate: int) -> Sizes:
    """Return the sizes that the MXFP4 method allocated (before there was an oracle)."""
    cls = cast(type, engine.tree.get(f"{_QUANT}.mxfp4.Mxfp4MoEMethod"))
    return _created(_bare(cls, mxfp4_backend=backend, moe=_PLAIN_LAYER), hidden, intermediate)


def quark_weights(engine: Engine, model_type: str, hidden: int, intermediate: int) -> Sizes:
    """Return the sizes that the OCP MX method allocates for MXFP4 weights."""
    cls = cast(type, engine.tree.get(f"{_QUANT}.quark.quark_moe.QuarkOCP_MX_MoEMethod"))
    method = _bare(
        cls,
        weight_dtype="mxfp4",
        model_type=model_type,
        has_bias=False,
        static_input_scales=False,
        moe=_PLAIN_LAYER,
    )
    return _created(method, hidden, intermediate)


def unquantized_weights(engine: Engine, hidden: int, intermediate: int) -> Sizes:
    cls = cast(type, engine.tree.get(f"{_MOE}.unquantized_fused_moe_method.UnquantizedFusedMoEMethod"))
    return _created(_bare(cls, moe=_PLAIN_LAYER), hidden, intermediate)


def has_oracle(tree: Tree) -> bool:
    return tree.has(_ROUND_MXFP4)


def round_mxfp4(
    engine: Engine, backend: enum.Enum, activation: enum.Enum | None, hidden: int, intermediate: int
) -> Sizes:
    """Return what the oracle's rounding function makes of the sizes."""
    function = cast("Callable[..., object]", engine.tree.get(_ROUND_MXFP4))
    offered: dict[str, object] = {
        "backend": backend,
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "activation": activation,
    }
    return cast(Sizes, _call(function, offered))


def takes_activation(engine: Engine) -> bool:
    """Whether the oracle's rounding function looks at the activation in this release."""
    return (
        "activation"
        in inspect.signature(cast("Callable[..., object]", engine.tree.get(_ROUND_MXFP4))).parameters
    )


METHODS = {
    "GptOssMxfp4MoEMethod": f"{_QUANT}.mxfp4",
    "Mxfp4MoEMethod": f"{_QUANT}.mxfp4",
    "Mxfp4OnlineMoEMethod": f"{_QUANT}.online.mxfp4",
    "QuarkOCP_MX_MoEMethod": f"{_QUANT}.quark.quark_moe",
}
"""The layer classes that round an MXFP4 layer, and where they live."""


def _own_route(engine: Engine, backend: enum.Enum | None, layer: object) -> bool:
    """Whether the MXFP4 method sends this layer to AITER by itself, past the backend selector.

    It then runs that one backend, so a layer with another backend has not taken this route.
    """
    dotted = f"{_QUANT}.mxfp4._use_k3_situ_aiter"
    if not engine.tree.has(dotted) or backend is None or backend.name != "AITER_MXFP4_BF16":
        return False
    return bool(cast("Callable[[object], object]", engine.tree.get(dotted))(layer))


def round_by_method(
    engine: Engine,
    dotted: str,
    backend: enum.Enum,
    activation: enum.Enum | None,
    hidden: int,
    intermediate: int,
) -> Sizes:
    """Return what `maybe_roundup_sizes` of a layer class makes of the sizes, with no transport active."""
    cls = cast(type, engine.tree.get(dotted))
    layer = SimpleNamespace(activation=activation, activation_situ_linear_beta=1.0, **vars(_PLAIN_LAYER))
    method = _bare(
        cls,
        mxfp4_backend=backend,
        unquantized_backend=backend,
        weight_dtype="mxfp4",
        moe=layer,
        is_k3_situ_aiter=_own_route(engine, backend, layer),
    )
    rounding = cast("Callable[..., object]", method.maybe_roundup_sizes)  # type: ignore[attr-defined]
    return cast(Sizes, rounding(hidden, intermediate, DTYPES["bfloat16"], Transport()))


def block_codecs(tree: Tree) -> Mapping[str, int]:
    """Return the engine's block codecs, each with the elements of its block."""
    listed = cast("Mapping[str, tuple[int, int]]", tree.get("vllm.utils.b12x.B12X_BLOCK_CODECS"))
    return {codec: block for codec, (block, _) in listed.items()}


def round_to_blocks(
    engine: Engine, dotted: str, attributes: Mapping[str, object], hidden: int, intermediate: int
) -> Sizes:
    """Return what `maybe_roundup_sizes` of a class of blocks makes of the sizes, with no transport active."""
    method = _bare(cast(type, engine.tree.get(dotted)), **attributes)
    rounding = cast("Callable[..., object]", method.maybe_roundup_sizes)  # type: ignore[attr-defined]
    return cast(Sizes, rounding(hidden, intermediate, DTYPES["bfloat16"], Transport()))


def unquantized(engine: Engine, backend: enum.Enum | None, hidden: int, intermediate: int) -> Sizes:
    """Return the sizes of an unquantised layer before its weights exist."""
    dotted = f"{_MOE}.unquantized_fused_moe_method.UnquantizedFusedMoEMethod"
    if not has_oracle(engine.tree):
        return unquantized_weights(engine, layer_hidden(engine, None, None, "other", hidden), intermediate)
    return round_by_method(engine, dotted, cast(enum.Enum, backend), None, hidden, intermediate)


def transport_hidden(engine: Engine, transport: str, dtype: str, hidden: int) -> int:
    """Return the hidden size that a transport asks for."""
    function = cast(
        "Callable[..., object]", engine.tree.get(f"{_MOE}.all2all_utils.maybe_roundup_layer_hidden_size")
    )
    return cast(int, function(hidden, DTYPES[dtype], Transport(transport)))


def transports(engine: Engine, known: Iterable[str]) -> tuple[str, ...]:
    """Return those of the known transports that the common rounding function names."""
    source = inspect.unwrap(
        cast(
            "Callable[..., object]", engine.tree.get(f"{_MOE}.all2all_utils.maybe_roundup_layer_hidden_size")
        )
    )
    named = source.__code__.co_names
    return tuple(name for name in known if f"use_{name}_kernels" in named)


def _quant_config(w4a4: bool) -> object:
    flags = {"use_mxfp4_w4a4": w4a4, "use_mxfp4_w4a16": not w4a4}
    absent = ("block_shape", "w1_scale", "w2_scale", "a1_scale", "a2_scale", "w1_bias", "w2_bias")
    off = ("per_act_token_quant", "per_out_ch_quant", "use_fp8_w8a8")
    return SimpleNamespace(**flags, **dict.fromkeys(absent), **dict.fromkeys(off, False))


def aiter_module(tree: Tree) -> str:
    """The module that holds the AITER expert function."""
    for module in (f"{_MOE}.experts.rocm_aiter_moe", f"{_MOE}.rocm_aiter_fused_moe"):
        if tree.has(f"{module}.rocm_aiter_fused_experts"):
            return module
    raise Unlinked("there is no AITER expert function in this tree")


def _passed(engine: Engine) -> Pads:
    told = engine.aiter.call
    return cast(Pads, (told.get("hidden_pad"), told.get("intermediate_pad")))


def has_pad_override(tree: Tree) -> bool:
    """Whether the layer's configuration can carry an intermediate padding of its own."""
    config = cast(type, tree.get(f"{_MOE}.config.FusedMoEConfig"))
    return "intermediate_pad" in config.__annotations__


def aiter_pads(
    engine: Engine,
    activation: enum.Enum | None,
    w4a4: bool,
    moe_tp: int,
    override: int | None,
    hidden_pad: int,
    intermediate_pad: int,
) -> Pads:
    """Return the padding arguments that reach AITER by the expert function, `None` for one that does not."""
    hidden, intermediate = 4096, 512
    token = Tensor((4, hidden + hidden_pad), DTYPES["bfloat16"])
    function = cast(
        "Callable[..., object]", engine.tree.get(f"{aiter_module(engine.tree)}.rocm_aiter_fused_experts")
    )
    engine.aiter.call.clear()
    offered: dict[str, object] = {
        "hidden_states": token,
        "w1": None,
        "w2": None,
        "topk_weights": token,
        "topk_ids": token,
        "quant_config": _quant_config(w4a4),
        "moe_config": SimpleNamespace(
            hidden_dim_unpadded=hidden,
            intermediate_size_per_partition=intermediate + intermediate_pad,
            intermediate_size_per_partition_unpadded=intermediate,
            intermediate_pad=override,
            tp_size=moe_tp,
            swiglu_limit=None,
            activation_situ_beta=None,
            activation_situ_linear_beta=None,
            use_mxfp4_w4a4_dsv4=False,
        ),
    }
    if activation is not None:
        offered["activation"] = activation
    _call(function, offered)
    return _passed(engine)


def ck_method_pads(engine: Engine, hidden_pad: int, intermediate_pad: int) -> Pads:
    """Return the padding arguments that reach AITER from the MXFP4 method's own CK branch."""
    cls = cast(type, engine.tree.get(f"{_QUANT}.mxfp4.Mxfp4MoEMethod"))
    backend = dict(mxfp4_backends(engine.tree))["CK"]
    engine.tree.replace({f"{_QUANT}.mxfp4._can_support_mxfp4": lambda *_args: True})
    method = _bare(
        cls, mxfp4_backend=backend, moe=_PLAIN_LAYER, hidden_pad=hidden_pad, intermediate_pad=intermediate_pad
    )
    engine.aiter.call.clear()
    token = Tensor((4, 4096), DTYPES["bfloat16"])
    method.apply_monolithic(Namespace(enable_eplb=False), token, token)  # type: ignore[attr-defined]
    return _passed(engine)


def has_ck_method(tree: Tree) -> bool:
    return not has_oracle(tree) and "CK" in dict(mxfp4_backends(tree))
