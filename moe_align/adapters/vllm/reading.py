"""What the policy's facts are for one expert layer, read off vLLM's own objects."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from ...facts import kind
from .methods import Lookup, entry_of

if TYPE_CHECKING:
    from ...vocabulary import Vocabulary

#: Facts by key, as `moe_align.Facts.of` takes them.
Given = dict[str, str | int | bool]

_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}


@dataclass(frozen=True, slots=True)
class Process:
    """What is the same for every layer of this process."""

    platform: str
    arch: str | None
    vllm: str
    aiter: str | None
    model_type: str | None
    elastic: bool  # expert parallelism may scale while the engine runs

    def facts(self) -> Given:
        given: Given = {
            "engine": "vllm",
            "vllm": self.vllm,
            "platform": self.platform,
        }
        optional = {"arch": self.arch, "aiter": self.aiter, "model_type": self.model_type}
        return given | {key: value for key, value in optional.items() if value is not None}


def read_process(vllm_config: Any, aiter: str | None) -> Process:
    """The facts of this process, from the configuration that vLLM builds the model under."""
    import vllm
    from vllm.platforms import current_platform

    model = vllm_config.model_config
    platform = _platform(current_platform)
    return Process(
        platform=platform,
        arch=_arch(platform, current_platform),
        vllm=vllm.__version__,
        aiter=aiter,
        model_type=getattr(getattr(model, "hf_config", None), "model_type", None),
        elastic=getattr(vllm_config.parallel_config, "enable_elastic_ep", False),
    )


def read_layer(layer: Any, method: Any, entering: tuple[int, int]) -> Given | None:
    """The facts of one layer whose sizes are `entering` (hidden, intermediate per partition).

    None for a quant method that is not in the table.
    """
    entry = entry_of(method)
    if entry is None:
        return None
    moe = layer.moe_config
    parallel = moe.moe_parallel_config
    given: Given = {
        "scheme": _scheme(method, entry.scheme),
        "method": entry.method,
        "requested": str(moe.moe_backend),
        "activation": moe.activation.value,
        "gated": moe.is_act_and_mul,
        "act_dtype": _DTYPES.get(_name(moe.in_dtype), _name(moe.in_dtype)),
        "act_bytes": moe.in_dtype.itemsize,
        "all2all": str(parallel.all2all_backend) if parallel.use_all2all_kernels else "none",
        "bias": moe.has_bias,
        "lora": moe.is_lora_enabled,
        **_parallel(parallel),
        "fused_shared_experts": layer.expert_map_manager.num_fused_shared_experts,
        "experts": moe.num_logical_experts,
        "topk": moe.experts_per_token,
        "hidden": entering[0],
        "intermediate_per_partition": entering[1],
    }
    if moe.intermediate_size == entering[1] * parallel.tp_size:
        # Elsewhere vLLM has padded the shard before this point: only what enters is known for sure.
        given["intermediate"] = moe.intermediate_size
    if entry.backend:
        given["backend"] = _backend(method, entry.backend)
    blocks = _path(method, entry.block) if entry.block else None
    if blocks:
        given["block_n"], given["block_k"] = int(blocks[0]), int(blocks[1])
    group = _path(method, entry.group) if entry.group else None
    if group and group > 0:
        given["group"] = int(group)
    return given


def spoken(vocabulary: Vocabulary, given: Given) -> Given:
    """The facts in the words of `vocabulary`, with the environment switches that it declares.

    A key for which it has no words can be in no rule, so it is left out. A model type that it does not have
    is `other`. Every other unknown name stays: that no pack knows it has to be said.
    """
    facts = {
        key: value for key, value in given.items() if kind(key) != "discrete" or _has_words(vocabulary, key)
    }
    if "model_type" in facts and vocabulary.members("model_type", str(facts["model_type"])) is None:
        facts["model_type"] = "other"
    switches = (key for key in vocabulary.terms if key.startswith("env."))
    set_ones = {key: os.environ[key[4:]] for key in switches if key[4:] in os.environ}
    return facts | set_ones


def _has_words(vocabulary: Vocabulary, key: str) -> bool:
    return bool(vocabulary.domain(key))


def _path(value: Any, dotted: str) -> Any:
    return reduce(lambda at, name: getattr(at, name, None), dotted.split("."), value)


def _scheme(method: Any, scheme: str | Lookup) -> str:
    if isinstance(scheme, str):
        return scheme
    value = _path(method, scheme.attribute)
    # A member of a string enum hashes by its name, not as the string that it equals.
    value = getattr(value, "value", value)
    return scheme.values.get(value, f"{value}")


def _backend(method: Any, attribute: str) -> str:
    backend = getattr(method, attribute, None)
    return getattr(backend, "name", None) or str(backend)


def _parallel(parallel: Any) -> Given:
    """The ranks as launched, and as they share the experts: vLLM folds the first into the second."""
    ranks = parallel.ep_size if parallel.use_ep else parallel.tp_size
    return {
        "tp": ranks // (parallel.dp_size * parallel.pcp_size),
        "dp": parallel.dp_size,
        "pcp": parallel.pcp_size,
        "ep": parallel.ep_size if parallel.use_ep else 1,
        "moe_tp": parallel.tp_size,
        "moe_ep": parallel.ep_size,
    }


def _name(dtype: object) -> str:
    return str(dtype).removeprefix("torch.")


def _platform(platform: Any) -> str:
    for name in ("rocm", "cuda", "xpu", "cpu", "tpu"):
        if getattr(platform, f"is_{name}")():
            return name
    return str(platform.device_type)


def _arch(platform: str, current: Any) -> str | None:
    """The architecture, without a HIP or CUDA context where the platform can tell without one."""
    if platform == "rocm":
        from vllm.platforms import rocm

        name = str(getattr(rocm, "_GCN_ARCH", "") or "")
        return name.partition(":")[0] or None
    if platform == "cuda":
        capability = current.get_device_capability()
        return f"sm{capability.to_int()}" if capability else None
    return "none"
