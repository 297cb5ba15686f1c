"""adapters/aiter against the real wheel: its `fused_moe`, its shuffles, how an installation is told apart."""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from moe_align import Facts, load_policy
from moe_align.adapters.aiter import (
    READINGS,
    Installed,
    LiveElementsMaskedError,
    WrongPackageError,
    fill_tiles,
    installed,
    pad_arguments,
    tensor_arguments,
)
from moe_align.adapters.torch import ExpertTensor, expert_tensors
from moe_align.decision import Decision, Launch
from moe_align.layout import Experts

#: Where scripts/engine_env.sh puts the wheel.
WHEEL = Path(sys.prefix) / "aiter"

#: Stands in for the enums that the wheel would compile with hipcc when it is imported.
ENUMS = """
import enum, sys, types

class ActivationType(enum.IntEnum):
    "Members: as in aiter_enum.h"
    No, Silu, Gelu, Swiglu = range(-1, 3)

class QuantType(enum.IntEnum):
    "Members: as in aiter_enum.h"
    No, per_Tensor, per_Token, per_1x32, per_1x128, per_128x128 = range(6)

module = types.ModuleType("module_aiter_enum")
module.__file__, module.ActivationType, module.QuantType = "compiled", ActivationType, QuantType
sys.modules[module.__name__] = module
"""


def in_the_wheel(tmp_path: Path, code: str) -> object:
    """What `code` puts into `answer`, with the real wheel imported on a machine without ROCm."""
    rocm = tmp_path / "rocm"
    (rocm / ".info").mkdir(parents=True)
    (rocm / ".info" / "version").write_text("6.4.3\n")
    (rocm / "bin").mkdir()
    hipconfig = rocm / "bin" / "hipconfig"
    hipconfig.write_text("#!/bin/sh\necho 6.4.43482\n")
    hipconfig.chmod(0o755)
    environment = {
        **os.environ,
        "ROCM_HOME": str(rocm),
        "AITER_JIT_DIR": str(tmp_path / "jit"),
        "AITER_AOT_IMPORT": "1",
        "GPU_ARCHS": "gfx950",
        "CU_NUM": "256",
        "PYTHONPATH": os.pathsep.join([str(WHEEL), os.environ.get("PYTHONPATH", "")]),
    }
    done = subprocess.run(
        # Past the interpreter's exit: torch's clean-up does not know names such as aiter's.
        [
            sys.executable,
            "-c",
            f"{ENUMS}\n{code}\nimport json, os\nprint('ANSWER', json.dumps(answer), flush=True)\nos._exit(0)",
        ],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    answers = [line for line in done.stdout.splitlines() if line.startswith("ANSWER ")]
    assert answers, done.stdout + done.stderr
    return json.loads(answers[-1].removeprefix("ANSWER "))


@pytest.fixture(scope="module")
def deepseek_v4_pro() -> tuple[Decision, tuple[ExpertTensor, ...]]:
    """The decision for one rank of eight, and the layer's tensors."""
    decision = load_policy(environ={}).resolve(
        Facts(backend="aiter_bf16", activation="silu", tp=8, hidden=7168, intermediate=3072, experts=384)
    )
    hidden, intermediate = decision.hidden.allocated, decision.intermediate.allocated
    assert hidden is not None
    assert intermediate is not None
    return decision, expert_tensors(Experts("mxfp4", 2, hidden, intermediate))


def test_the_arguments_bind_to_the_wheels_fused_moe(tmp_path: Path, deepseek_v4_pro: Any) -> None:
    decision, tensors = deepseek_v4_pro
    keywords = {**tensor_arguments(tensors), **pad_arguments(decision)}
    code = f"""
import inspect
from aiter.fused_moe import fused_moe
keywords = {keywords!r}
bound = inspect.signature(fused_moe).bind(hidden_states=0, topk_weight=0, topk_ids=0, **keywords)
answer = sorted(bound.arguments)
"""
    assert in_the_wheel(tmp_path, code) == sorted([*keywords, "hidden_states", "topk_weight", "topk_ids"])
    assert keywords["w1"] == (2, 768, 3584)
    assert keywords["w2"] == (2, 7168, 192)


def test_the_wheels_shuffle_takes_the_padded_shapes(tmp_path: Path, deepseek_v4_pro: Any) -> None:
    _, tensors = deepseek_v4_pro
    code = f"""
import torch
from aiter.ops.shuffle import shuffle_weight
weights = [torch.zeros(shape, dtype=torch.uint8) for shape in {[tensors[0].shape, tensors[2].shape]!r}]
answer = [list(shuffle_weight(weight).shape) for weight in weights]
"""
    assert in_the_wheel(tmp_path, code) == [[2, 768, 3584], [2, 7168, 192]]


def test_the_wheels_scale_shuffle_makes_no_cells_that_are_not_neutral(tmp_path: Path) -> None:
    """By itself it leaves them as memory was, here 0xFF, which is a NaN."""
    code = """
import torch
from aiter.utility import fp4_utils
from moe_align.adapters.aiter import neutral_scale_shuffles

torch.use_deterministic_algorithms(True, warn_only=True)
torch.utils.deterministic.fill_uninitialized_memory = True
scale = torch.full((384, 12), 120, dtype=torch.uint8)

def cells():
    shuffled = fp4_utils.e8m0_shuffle(scale)
    return [list(shuffled.shape), sorted(set(shuffled.flatten().tolist())), int((shuffled == 120).sum())]

before = fp4_utils.e8m0_shuffle
alone = cells()
with neutral_scale_shuffles():
    filled = cells()
answer = [alone, filled, fp4_utils.e8m0_shuffle is before]
"""
    live = 384 * 12
    assert in_the_wheel(tmp_path, code) == [
        [[512, 16], [120, 255], live],
        [[512, 16], [120, 127], live],
        True,
    ]


def test_whole_tiles_are_left_as_they_are() -> None:
    scale = torch.zeros(256, 16, dtype=torch.uint8)
    assert fill_tiles(scale) is scale


def test_the_wheel_is_told_by_its_files_and_its_version() -> None:
    assert installed([str(WHEEL)]) == Installed("0.1.7.post2.dev18", False, WHEEL / "aiter")


def test_no_aiter_is_none(tmp_path: Path) -> None:
    assert installed([str(tmp_path)]) is None


def test_the_unrelated_package_of_that_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "aiter").mkdir()
    (tmp_path / "aiter" / "__init__.py").write_text("")
    (tmp_path / "aiter-0.13.dist-info").mkdir()
    (tmp_path / "aiter-0.13.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: aiter\nVersion: 0.13\n"
    )
    with pytest.raises(WrongPackageError, match="pip uninstall aiter"):
        installed([str(tmp_path)])


def test_a_module_of_that_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "aiter.py").write_text("")
    with pytest.raises(WrongPackageError, match=r"aiter\.py is not AMD's AITER"):
        installed([str(tmp_path)])


@pytest.mark.parametrize(
    ("distribution", "version", "is_build"),
    [
        ("amd-aiter", "0.1.20", False),
        ("amd-aiter", "0.1.20+46.gabc1234", True),
        ("aiter", "0.1.20.dev46", True),
        (None, "0.1.7.post2", True),
    ],
)
def test_a_source_build_is_told_apart(
    tmp_path: Path, distribution: str | None, version: str, is_build: bool
) -> None:
    (tmp_path / "aiter").mkdir()
    (tmp_path / "aiter" / "fused_moe.py").write_text("")
    (tmp_path / "aiter" / "_version.py").write_text(f"__version__ = '{version}'\n")
    if distribution:
        metadata = tmp_path / f"{distribution.replace('-', '_')}-{version}.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n"
        )
    assert installed([str(tmp_path)]) == Installed(version, is_build, tmp_path / "aiter")


@cache
def some_decision() -> Decision:
    """Any decision that has sizes."""
    facts = Facts(backend="aiter_bf16", activation="swigluoai", hidden=2880, intermediate_per_partition=2880)
    return load_policy(environ={}).resolve(facts)


def padded(hidden: int, intermediate: int, launch: Launch | None) -> Decision:
    """A decision that pads by so much, and declares that."""
    decision = some_decision()
    return decision._replace(
        hidden=decision.hidden._replace(native=2880, allocated=2880 + hidden),
        intermediate=decision.intermediate._replace(native=2880, allocated=2880 + intermediate),
        launch=launch,
    )


@settings(deadline=None)  # the first example loads the rules
@given(st.integers(0, 512), st.integers(0, 512))
def test_exact_pads_never_hide_a_live_element(hidden: int, intermediate: int) -> None:
    told = pad_arguments(padded(hidden, intermediate, None))
    assert told == {"hidden_pad": hidden, "intermediate_pad": intermediate}
    for reading in READINGS:
        actual = {"hidden_pad": hidden, "intermediate_pad": intermediate}[reading.pad]
        assert told[reading.pad] // reading.floor * reading.floor <= actual


def test_a_pad_that_the_caller_doubled_is_refused() -> None:
    """What vLLM declares at TP 1: AITER doubles by itself, so live columns would be skipped."""
    with pytest.raises(
        LiveElementsMaskedError, match=r"intermediate_pad 384 is read as 384 .* 192 live ones"
    ):
        pad_arguments(padded(192, 192, Launch(128, 384)))


def test_a_pad_that_is_not_declared_is_left_out() -> None:
    assert pad_arguments(padded(192, 192, Launch(None, 128))) == {"intermediate_pad": 128}


def test_a_decision_without_sizes_has_no_arguments() -> None:
    decision = load_policy(environ={}).resolve(Facts(backend="aiter_bf16", activation="silu"))
    with pytest.raises(ValueError, match="has no sizes"):
        pad_arguments(decision)
