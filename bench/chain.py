"""Written by `python bench/table.py`: the 30 rules of the table as an engine writes them."""
# ruff: noqa: E501, RET505, SIM114
# fmt: off

VLLM = (0, 33)


def chain(
    *,
    backend: str,
    activation: str,
    platform: str,
    fused_shared_experts: int,
    hidden: int,
    intermediate_per_partition: int,
) -> tuple[int, int]:
    if backend == "emulation" and VLLM < (0, 26):
        return hidden, intermediate_per_partition
    elif backend == "emulation":
        return -(-hidden // 32) * 32, -(-intermediate_per_partition // 32) * 32
    elif backend == "b12x_bf16" and platform == "cuda":
        return hidden, intermediate_per_partition
    elif backend == "deepgemm" and fused_shared_experts >= 1 and VLLM >= (0, 30):
        return -(-hidden // 128) * 128, -(-intermediate_per_partition // 256) * 256
    elif backend == "deepgemm":
        return -(-hidden // 128) * 128, -(-intermediate_per_partition // 128) * 128
    elif backend in ("marlin", "batched_marlin") and platform == "xpu":
        return -(-hidden // 128) * 128, -(-intermediate_per_partition // 128) * 128
    elif backend in ("marlin", "batched_marlin") and activation == "relu2" and VLLM >= (0, 29):
        return -(-hidden // 256) * 256, -(-intermediate_per_partition // 64) * 64
    elif backend in ("marlin", "batched_marlin"):
        return -(-hidden // 256) * 256, -(-intermediate_per_partition // 128) * 128
    elif backend in ("trtllm_bf16", "trtllm_mxfp8") and activation in ("gelu", "relu2") and VLLM >= (0, 31):
        return -(-hidden // 512) * 512, -(-intermediate_per_partition // 128) * 128
    elif backend in ("trtllm_bf16", "trtllm_mxfp8") and VLLM >= (0, 27):
        return -(-hidden // 256) * 256, -(-intermediate_per_partition // 128) * 128
    elif backend in ("trtllm_bf16", "trtllm_mxfp8"):
        return -(-hidden // 256) * 256, -(-intermediate_per_partition // 256) * 256
    elif backend == "cutlass_mxfp4" and activation in ("silu", "swiglu_oai") and VLLM >= (0, 32):
        return -(-hidden // 128) * 128, -(-intermediate_per_partition // 64) * 64
    elif backend in ("cutlass_bf16", "cutlass_mxfp8", "cutlass_mxfp4"):
        return -(-hidden // 128) * 128, -(-intermediate_per_partition // 128) * 128
    elif backend == "aiter_bf16" and activation == "silu" and platform == "rocm" and fused_shared_experts >= 1:
        return -(-hidden // 128) * 128, -(-intermediate_per_partition // 512) * 512
    elif backend == "aiter_bf16" and activation in ("silu", "situ") and platform == "rocm" and VLLM >= (0, 28):
        return -(-hidden // 128) * 128, -(-intermediate_per_partition // 128) * 128
    elif backend == "aiter_bf16" and activation == "situ" and platform == "rocm" and VLLM < (0, 28):
        return hidden, intermediate_per_partition
    elif backend == "aiter_mxfp4" and platform == "rocm" and VLLM >= (0, 32):
        return -(-hidden // 256) * 256, -(-intermediate_per_partition // 128) * 128
    elif backend == "aiter_mxfp4" and platform == "rocm" and VLLM < (0, 32):
        return -(-hidden // 256) * 256, -(-intermediate_per_partition // 256) * 256
    elif backend == "triton_unfused" and activation in ("silu", "situ") and platform == "rocm" and VLLM >= (0, 31):
        return -(-hidden // 128) * 128, -(-intermediate_per_partition // 128) * 128
    elif backend in ("triton", "triton_unfused") and activation == "swiglu_step" and fused_shared_experts >= 2:
        return -(-hidden // 64) * 64, -(-intermediate_per_partition // 128) * 128
    elif backend in ("triton", "triton_unfused") and platform == "xpu":
        return -(-hidden // 32) * 32, -(-intermediate_per_partition // 64) * 64
    elif platform == "rocm" and VLLM < (0, 19):
        return -(-hidden // 128) * 128, -(-intermediate_per_partition // 128) * 128
    elif platform == "rocm":
        return -(-hidden // 256) * 256, -(-intermediate_per_partition // 256) * 256
    elif backend == "humming" and activation in ("silu", "gelu") and platform == "cuda":
        return -(-hidden // 64) * 64, -(-intermediate_per_partition // 192) * 192
    elif backend == "humming" and fused_shared_experts >= 2:
        return -(-hidden // 64) * 64, -(-intermediate_per_partition // 384) * 384
    elif activation == "gelu" and platform == "cpu":
        return -(-hidden // 16) * 16, -(-intermediate_per_partition // 64) * 64
    elif platform == "cpu":
        return -(-hidden // 32) * 32, -(-intermediate_per_partition // 32) * 32
    elif platform == "xpu" and fused_shared_experts >= 1:
        return -(-hidden // 64) * 64, -(-intermediate_per_partition // 128) * 128
    elif activation == "swiglu_step" and platform == "cuda":
        return hidden, -(-intermediate_per_partition // 96) * 96
    else:
        return hidden, -(-intermediate_per_partition // 64) * 64
