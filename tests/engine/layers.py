"""Real expert layers of vLLM with real quant methods, built one at a time without engine or hardware."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.model_executor.layers.fused_moe.activation import MoEActivation
from vllm.model_executor.layers.fused_moe.config import (
    FusedMoEConfig,
    FusedMoEParallelConfig,
    RoutingMethodType,
)
from vllm.model_executor.layers.fused_moe.expert_map_manager import ExpertMapManager
from vllm.model_executor.layers.fused_moe.routed_experts import RoutedExperts
from vllm.model_executor.layers.quantization.base_config import QuantizationConfig
from vllm.platforms import current_platform

from moe_align.adapters.vllm.session import Session

#: Wraps vLLM's layers for one test, with a session of a mode, and gives the session.
Watch = Callable[..., Session]

#: Makes texts the packs of the user's layer.
Rules = Callable[..., None]

PLATFORMS = ("cpu", "cuda", "rocm", "xpu", "tpu")


class Given(QuantizationConfig):  # type: ignore[misc]  # typed in the engine environment
    """A quantisation config that gives each expert layer the method that `make` makes."""

    def __init__(self, make: Callable[[Any], Any], name: str = "given") -> None:
        super().__init__()
        self.make = make
        self.name = name

    def get_name(self) -> str:
        return self.name

    def get_quant_method(self, layer: torch.nn.Module, prefix: str) -> Any:
        return self.make(layer)

    @classmethod
    def get_supported_act_dtypes(cls) -> list[torch.dtype]:
        return [torch.bfloat16]

    @classmethod
    def get_min_capability(cls) -> int:
        return 0

    @staticmethod
    def get_config_filenames() -> list[str]:
        return []

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Given":
        raise NotImplementedError


@dataclass(frozen=True)
class Shape:
    """A model's experts and how they are cut."""

    hidden: int
    intermediate: int
    experts: int = 4
    tp: int = 1
    tp_rank: int = 0
    activation: str = "silu"


DEEPSEEK_V4_PRO = Shape(7168, 3072, experts=384, tp=8)


def build(
    shape: Shape, make: Callable[[Any], Any], *, layer_class: type = RoutedExperts, device: str = "meta"
) -> Any:
    """A `RoutedExperts` layer with the quant method `make(layer)`, as a model would build it."""
    parallel = FusedMoEParallelConfig(
        tp_size=shape.tp,
        pcp_size=1,
        dp_size=1,
        ep_size=1,
        tp_rank=shape.tp_rank,
        pcp_rank=0,
        dp_rank=0,
        ep_rank=0,
        sp_size=1,
        use_ep=False,
        all2all_backend="allgather_reducescatter",
        enable_eplb=False,
    )
    moe = FusedMoEConfig(
        num_experts=shape.experts,
        experts_per_token=2,
        hidden_dim=shape.hidden,
        intermediate_size=shape.intermediate,
        num_local_experts=shape.experts,
        num_logical_experts=shape.experts,
        activation=MoEActivation(shape.activation),
        device=device,
        routing_method=RoutingMethodType.Renormalize,
        moe_parallel_config=parallel,
        in_dtype=torch.bfloat16,
    )
    experts = ExpertMapManager(
        max_num_batched_tokens=64,
        top_k=2,
        global_num_experts=shape.experts,
        num_redundant_experts=0,
        num_expert_group=None,
        moe_parallel_config=parallel,
        placement_strategy="linear",
        enable_eplb=False,
    )
    up = "up_proj" if moe.is_act_and_mul else None
    with torch.device(device):
        return layer_class(
            "model.layers.3.mlp.experts",
            torch.bfloat16,
            moe,
            Given(make),
            experts,
            ckpt_up_proj_name=up,
        )


@contextlib.contextmanager
def configured(model_type: str = "deepseek_v4", **parallel: Any) -> Iterator[VllmConfig]:
    """vLLM's current configuration, for a model of a type."""
    config = VllmConfig()
    config.model_config = SimpleNamespace(hf_config=SimpleNamespace(model_type=model_type))
    for name, value in parallel.items():
        setattr(config.parallel_config, name, value)
    with set_current_vllm_config(config):
        yield config


def pretend(monkeypatch: Any, platform: str, arch: str = "gfx950") -> None:
    """Have vLLM take this machine for one of `platform`; on ROCm its GPU is an `arch`."""
    for name in PLATFORMS:
        monkeypatch.setattr(current_platform, f"is_{name}", lambda name=name: name == platform, raising=False)
    monkeypatch.setattr(current_platform, "is_cuda_alike", lambda: platform in ("cuda", "rocm"))
    if platform == "rocm":
        monkeypatch.setattr(
            torch.cuda, "get_device_properties", lambda device: SimpleNamespace(gcnArchName=f"{arch}:xnack-")
        )
        import vllm.platforms.rocm as rocm

        monkeypatch.setattr(rocm, "_GCN_ARCH", arch)
        for known in ("gfx90a", "gfx942", "gfx950", "gfx1250"):
            monkeypatch.setattr(rocm, f"_ON_{known.upper()}", known == arch)
