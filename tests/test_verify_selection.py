"""The room that runs an engine's own selectors, on a small engine written for the purpose."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_engines import write

from moe_align.verify import Machine, Unlinked
from moe_align.verify.selection import SCHEMES, Layer, machine_link

_LAYERS = "vllm/model_executor/layers"
_ORACLE = f"{_LAYERS}/fused_moe/oracle"

_NAMED = """
    import enum
    from vllm import envs
    from vllm._aiter_ops import rocm_aiter_ops
    from vllm.platforms import current_platform
    from vllm.utils.flashinfer import has_flashinfer, has_hpc
    class Backend(enum.Enum):
        NVIDIA = 1
        AITER = 2
        TRITON = 3
    """

#: Its machines, switches and choices are its own; names and shapes are those that the room asks.
SELECTING = {
    "vllm/platforms/__init__.py": "",
    "vllm/platforms/interface.py": """
        from typing import NamedTuple
        class DeviceCapability(NamedTuple):
            major: int
            minor: int
        class Platform:
            def is_cuda(self):
                return False
        """,
    "vllm/platforms/cuda.py": """
        from vllm.platforms.interface import Platform
        class CudaPlatformBase(Platform):
            def is_cuda(self):
                return self.get_device_capability().major >= 8
        """,
    "vllm/platforms/rocm.py": """
        from vllm.platforms.interface import Platform
        _GCN_ARCH = None
        def _capability_from_gcn_arch(arch):
            return (9, int(arch[4:]))
        class RocmPlatform(Platform):
            pass
        """,
    "vllm/platforms/cpu.py": """
        from vllm.platforms.interface import Platform
        class CpuPlatform(Platform):
            pass
        """,
    "vllm/envs.py": """
        import os
        environment_variables = {
            "VLLM_ROCM_USE_AITER": lambda: os.getenv("VLLM_ROCM_USE_AITER", "0") == "1",
            "VLLM_ROCM_USE_AITER_MOE": lambda: os.environ.get("VLLM_ROCM_USE_AITER_MOE", "1") == "1",
        }
        """,
    "vllm/_aiter_ops.py": """
        IS_AITER_FOUND = False
        def is_aiter_found_and_supported():
            from vllm.platforms.rocm import _GCN_ARCH
            return IS_AITER_FOUND and _GCN_ARCH == "gfx942"
        def is_aiter_found_and_supported_on_rdna4():
            from vllm.platforms.rocm import _GCN_ARCH
            return _GCN_ARCH == "gfx1200"
        """,
    "vllm/config.py": "def get_current_vllm_config(): raise AssertionError",
    "vllm/distributed.py": "def get_tensor_model_parallel_world_size(): raise AssertionError",
    "vllm/utils/flashinfer.py": "",
    "vllm/utils/humming.py": "",
    f"{_LAYERS}/fused_moe/config.py": """
        import enum
        from dataclasses import dataclass
        class RoutingMethodType(enum.IntEnum):
            Renormalize = 1
        @dataclass
        class FusedMoEParallelConfig:
            tp_size: int
            pcp_size: int
            dp_size: int
            ep_size: int
            tp_rank: int
            pcp_rank: int
            dp_rank: int
            ep_rank: int
            sp_size: int
            use_ep: bool
            all2all_backend: str
            enable_eplb: bool
        """,
    f"{_LAYERS}/fused_moe/activation.py": """
        import enum
        class MoEActivation(enum.Enum):
            SILU = "silu"
        """,
    f"{_LAYERS}/quantization/utils/quant_utils.py": """
        from typing import NamedTuple
        class GroupShape(NamedTuple):
            row: int
            col: int
        def create_fp8_quant_key(static, group_shape):
            return ("fp8", static, group_shape)
        kFp8Dynamic128Sym = "fp8 dynamic"
        kNvfp4Static = "nvfp4"
        kNvfp4Dynamic = "nvfp4 dynamic"
        """,
    f"{_LAYERS}/quantization/utils/fp8_utils.py": """
        def validate_fp8_block_shape_moe(size, block):
            from vllm.distributed import get_tensor_model_parallel_world_size
            if size % block[0] and get_tensor_model_parallel_world_size() > 1:
                raise ValueError(size)
        """,
    f"{_ORACLE}/fp8.py": _NAMED
    + """
    from vllm.config import get_current_vllm_config
    def resolve_fp8_moe_weight_block_shape(config, block, key, serialized):
        if config.moe_backend == "auto" and config.intermediate_size_per_partition % 64 == 0:
            return [64, 64], None
        return block, None
    def select_fp8_moe_backend(config, weight_key, activation_key, allow_vllm_cutlass):
        if get_current_vllm_config().model_config.hf_text_config.model_type == "shy":
            raise NotImplementedError
        if rocm_aiter_ops.is_fused_moe_enabled() and not rocm_aiter_ops.is_rdna_aiter_enabled():
            return Backend.AITER, None
        if envs.is_set("VLLM_ROCM_USE_AITER"):
            return Backend.TRITON, None
        return (Backend.NVIDIA if current_platform.is_cuda() and has_flashinfer() else Backend.TRITON), None
    """,
    f"{_ORACLE}/nvfp4.py": _NAMED
    + """
    def select_nvfp4_moe_backend(config, weight_key, activation_key):
        return (Backend.NVIDIA if has_hpc() else Backend.TRITON), None
    """,
    f"{_ORACLE}/unquantized.py": _NAMED
    + """
    def select_unquantized_moe_backend(config):
        return (Backend.AITER if config.moe_parallel_config.use_ep else Backend.TRITON), None
    """,
    f"{_ORACLE}/mxfp4.py": _NAMED
    + """
    def select_mxfp4_moe_backend(config):
        return Backend.NVIDIA if config.nothing_such else None
    def select_deepseek_v4_mxfp4_moe_backend(config):
        from vllm.elsewhere import choose
        return choose(config) and Backend.NVIDIA
    """,
}
H100, MI300X, RDNA4, HOST = (
    Machine("cuda", "sm90"),
    Machine("rocm", "gfx942"),
    Machine("rocm", "gfx1200"),
    Machine("cpu"),
)
ON = {"VLLM_ROCM_USE_AITER": "1"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write(SELECTING, tmp_path)


def test_fp8_blocks_come_with_block_and_width(root: Path) -> None:
    engine = machine_link(root, H100, {})
    assert SCHEMES["fp8_block"](engine, Layer(intermediate=192)) == ("NVIDIA", "64", "192")
    assert SCHEMES["fp8_block"](engine, Layer(requested="triton")) == ("NVIDIA", "128", "512")
    assert SCHEMES["fp8_block"](engine, Layer(tp=2, intermediate=200)) == ("error: ValueError",)
    assert SCHEMES["fp8_block"](engine, Layer(model_type="shy")) == ("error: NotImplementedError",)


@pytest.mark.parametrize(
    ("machine", "said", "backend"),
    [
        (MI300X, ON, "AITER"),
        (MI300X, {**ON, "VLLM_ROCM_USE_AITER_MOE": "0"}, "TRITON"),
        (MI300X, {}, "TRITON"),
        (RDNA4, ON, "TRITON"),
        (HOST, {}, "TRITON"),
    ],
)
def test_switches_and_machines_are_the_engines_own(
    root: Path, machine: Machine, said: dict[str, str], backend: str
) -> None:
    assert SCHEMES["fp8_block"](machine_link(root, machine, said), Layer())[0] == backend


def test_other_schemes_give_the_backend_alone(root: Path) -> None:
    engine = machine_link(root, H100, {})
    assert SCHEMES["nvfp4"](engine, Layer()) == ("TRITON",)
    assert SCHEMES["unquantized"](engine, Layer()) == ("TRITON",)
    assert SCHEMES["unquantized"](engine, Layer(ep=True, tp=2)) == ("AITER",)


def test_a_gap_is_no_answer(root: Path) -> None:
    engine = machine_link(root, H100, {})
    with pytest.raises(AttributeError):
        SCHEMES["mxfp4"](engine, Layer())
    with pytest.raises(Unlinked):
        SCHEMES["mxfp4_deepseek"](engine, Layer())
    with pytest.raises(AttributeError):
        machine_link(root, MI300X, ON).tree.get("vllm.envs").VLLM_NO_SUCH_SWITCH  # type: ignore[attr-defined]  # noqa: B018
