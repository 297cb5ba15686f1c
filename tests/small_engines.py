"""Two small engines, written for tests: one rounds in the layer and in weight creation, one has an oracle.

Their numbers are their own. Names and shapes of the functions are those that `moe_align.verify` asks.
"""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

_LAYERS = "vllm/model_executor/layers"

_COMMON = {
    "vllm/platforms/__init__.py": "",
    "vllm/triton_utils.py": "",
    "vllm/model_executor/utils.py": "",
    "vllm/utils/math_utils.py": "def round_up(n, by): return -(-n // by) * by",
    "vllm/_aiter_ops.py": """
        from vllm import envs
        class rocm_aiter_ops:
            @staticmethod
            def fused_moe(x, w1, w2, *, hidden_pad=0, intermediate_pad=0):
                import torch
                return torch.ops.vllm.rocm_aiter_fused_moe(x, hidden_pad, intermediate_pad)
            @staticmethod
            def fused_topk(x):
                import torch
                return torch.ops.vllm.topk(x)
        def _rocm_aiter_fused_moe_impl(x, hidden_pad, intermediate_pad):
            from aiter.fused_moe import fused_moe
            return fused_moe(x, hidden_pad=hidden_pad, intermediate_pad=intermediate_pad)
        """,
    f"{_LAYERS}/fused_moe/all2all_utils.py": """
        from vllm.utils.math_utils import round_up
        def maybe_roundup_layer_hidden_size(hidden_size, act_dtype, moe_parallel_config):
            if moe_parallel_config.use_deepep_ht_kernels:
                return round_up(hidden_size, 64 // act_dtype.itemsize)
            if moe_parallel_config.use_nixl_ep_kernels:
                if hidden_size > 4096:
                    raise ValueError(hidden_size)
                return 4096
            return hidden_size
        """,
}

_CREATE = """
    def create_weights(self, layer, num_experts, hidden_size, intermediate_size_per_partition, **more):
        import torch
        from vllm.model_executor.utils import set_weight_attrs
        i = self.padded(intermediate_size_per_partition)
        w13 = torch.nn.Parameter(torch.empty(num_experts, 2 * i, hidden_size // 2), requires_grad=False)
        layer.register_parameter("w13_weight", w13)
        set_weight_attrs(w13, more)
        w2 = torch.nn.Parameter(torch.zeros(num_experts, hidden_size, i // 2))
        layer.register_parameter("w2_weight", w2)
"""

OLD = {
    **_COMMON,
    f"{_LAYERS}/fused_moe/config.py": "class FusedMoEConfig:\n    hidden_dim: int",
    f"{_LAYERS}/fused_moe/layer.py": """
        from vllm.utils.math_utils import round_up
        from .all2all_utils import maybe_roundup_layer_hidden_size
        def maybe_roundup_hidden_size(hidden_size, act_dtype, quant_config, moe_parallel_config):
            from vllm.model_executor.layers.quantization.mxfp4 import Mxfp4Backend, get_mxfp4_backend
            hidden_size = maybe_roundup_layer_hidden_size(hidden_size, act_dtype, moe_parallel_config)
            if not quant_config or quant_config.get_name() != "mxfp4":
                return hidden_size
            return round_up(hidden_size, 64) if get_mxfp4_backend(False) == Mxfp4Backend.CK else hidden_size
        """,
    f"{_LAYERS}/fused_moe/unquantized_fused_moe_method.py": """
        class UnquantizedFusedMoEMethod:
            def padded(self, n): return n
            CREATE
        """,
    f"{_LAYERS}/fused_moe/rocm_aiter_fused_moe.py": """
        from vllm._aiter_ops import rocm_aiter_ops
        def rocm_aiter_fused_experts(hidden_states, w1, w2, activation="silu", quant_config=None):
            return rocm_aiter_ops.fused_moe(hidden_states, w1, w2)
        """,
    f"{_LAYERS}/quantization/mxfp4.py": """
        from enum import Enum
        from vllm._aiter_ops import rocm_aiter_ops
        from vllm.platforms import current_platform
        from vllm.triton_utils import triton
        from vllm.utils.math_utils import round_up
        class Mxfp4Backend(Enum):
            MARLIN = 1
            CK = 2
        def get_mxfp4_backend(lora): ...
        def _can_support_mxfp4(*layer): ...
        class Mxfp4MoEMethod:
            def padded(self, n):
                if not current_platform.is_rocm():
                    return n
                arch = triton.runtime.driver.active.get_current_target().arch
                return round_up(n, 32 if arch == "gfx950" else 16)
            CREATE
            def apply_monolithic(self, layer, x, router_logits):
                weights, ids = rocm_aiter_ops.fused_topk(x)
                pads = dict(hidden_pad=self.hidden_pad, intermediate_pad=2 * self.intermediate_pad)
                return rocm_aiter_ops.fused_moe(x, None, None, **pads)
        """,
    f"{_LAYERS}/quantization/quark/quark_moe.py": """
        class QuarkOCP_MX_MoEMethod:
            def padded(self, n):
                assert n % 2 == 0
                return n + 2 if self.model_type == "gpt_oss" else n
            CREATE
        """,
}

NEW = {
    **_COMMON,
    "vllm/platforms/rocm.py": """
        def _get_gcn_arch(): return "the real one"
        _GCN_ARCH = _get_gcn_arch()
        def on_gfx950(): return "gfx950" in _GCN_ARCH
        """,
    f"{_LAYERS}/fused_moe/activation.py": """
        from enum import Enum
        class MoEActivation(Enum):
            SILU = "silu"
            SITU = "situ"
            RELU = "relu"
        """,
    f"{_LAYERS}/fused_moe/config.py": "class FusedMoEConfig:\n    intermediate_pad: int | None = None",
    f"{_LAYERS}/fused_moe/oracle/mxfp4.py": """
        from enum import Enum
        from vllm.platforms import current_platform
        from vllm.utils.math_utils import round_up
        from vllm.model_executor.layers.fused_moe.activation import MoEActivation
        class Mxfp4MoeBackend(Enum):
            AITER_MXFP4_BF16 = "A"
            AITER = "A"
            TRITON = "T"
        def mxfp4_round_up_hidden_size_and_intermediate_size(
            backend, hidden_size, intermediate_size, activation=None
        ):
            if not current_platform.is_rocm():
                return hidden_size, round_up(intermediate_size, 4)
            from vllm.platforms.rocm import on_gfx950
            fine = backend == Mxfp4MoeBackend.AITER or on_gfx950()
            by = 8 if activation == MoEActivation.SILU and fine else 16
            return round_up(hidden_size, by), round_up(intermediate_size, by)
        """,
    f"{_LAYERS}/fused_moe/oracle/unquantized.py": """
        from enum import Enum
        class UnquantizedMoeBackend(Enum):
            TRITON = "T"
        """,
    f"{_LAYERS}/fused_moe/unquantized_fused_moe_method.py": """
        class UnquantizedFusedMoEMethod:
            def maybe_roundup_sizes(self, hidden, intermediate, act_dtype, moe_parallel_config):
                return hidden, intermediate
        """,
    f"{_LAYERS}/fused_moe/experts/rocm_aiter_moe.py": """
        from vllm import envs
        from vllm._aiter_ops import rocm_aiter_ops
        from vllm.model_executor.layers.fused_moe.activation import MoEActivation
        def rocm_aiter_fused_experts(hidden_states, w1, w2, moe_config, activation, quant_config):
            if activation == MoEActivation.RELU:
                raise ValueError(activation)
            hidden = hidden_states.shape[1] - moe_config.hidden_dim_unpadded
            pad = moe_config.intermediate_pad
            if pad is None:
                pad = moe_config.intermediate_size_per_partition
                pad -= moe_config.intermediate_size_per_partition_unpadded
            times = 2 if moe_config.tp_size == 1 and not quant_config.use_mxfp4_w4a4 else 1
            pads = dict(hidden_pad=hidden, intermediate_pad=pad * times)
            return rocm_aiter_ops.fused_moe(hidden_states, w1, w2, **pads)
        """,
    f"{_LAYERS}/quantization/mxfp4.py": """
        from vllm.model_executor.layers.fused_moe.oracle import mxfp4 as oracle
        from vllm.model_executor.layers.fused_moe.activation import MoEActivation
        def _use_k3_situ_aiter(moe):
            from vllm.platforms import current_platform
            return current_platform.is_rocm() and moe.activation == MoEActivation.SITU
        class Mxfp4MoEMethod:
            def maybe_roundup_sizes(self, hidden, intermediate, act_dtype, moe_parallel_config):
                if self.is_k3_situ_aiter:
                    return hidden, intermediate
                round_up = oracle.mxfp4_round_up_hidden_size_and_intermediate_size
                return round_up(self.mxfp4_backend, hidden, intermediate, activation=self.moe.activation)
        class GptOssMxfp4MoEMethod(Mxfp4MoEMethod):
            def maybe_roundup_sizes(self, hidden, intermediate, act_dtype, moe_parallel_config):
                round_up = oracle.mxfp4_round_up_hidden_size_and_intermediate_size
                return round_up(self.mxfp4_backend, hidden, intermediate)
        """,
}


#: Classes of which a layer is whole blocks: one rounds up to them, one refuses what is cut.
BLOCKS = {
    "vllm/utils/b12x.py": "B12X_BLOCK_CODECS = {'a': (32, 9), 'b': (256, 74)}",
    f"{_LAYERS}/quantization/online/fp8.py": """
        from vllm.utils.math_utils import round_up
        class _Online:
            def maybe_roundup_sizes(self, hidden, intermediate, act_dtype, moe_parallel_config):
                return hidden, intermediate
        class Fp8PerBlockOnlineMoEMethod(_Online):
            def __init__(self, moe):
                super().__init__(weight_block_size=[64, 64], moe=moe)
            def maybe_roundup_sizes(self, hidden, intermediate, act_dtype, moe_parallel_config):
                sizes = super().maybe_roundup_sizes(hidden, intermediate, act_dtype, moe_parallel_config)
                return tuple(round_up(size, self.weight_block_size[0]) for size in sizes)
        """,
    f"{_LAYERS}/quantization/modelopt_block_quant.py": """
        class ModelOptBlockQuantMoEMethod:
            def maybe_roundup_sizes(self, hidden, intermediate, act_dtype, moe_parallel_config):
                if hidden % max(96, self.block_size) or intermediate % 64:
                    raise NotImplementedError("cut")
                return hidden, intermediate
        """,
}


def write(engine: dict[str, str], root: Path) -> Path:
    """Write the modules of an engine under `root`, and return it."""
    for name, text in engine.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text).replace("    CREATE\n", _CREATE), encoding="utf-8")
    return root
