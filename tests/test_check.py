"""`check`, `plan` and `group-size`: their screens, numbers, JSON, lists, and what is wrong input."""

from __future__ import annotations

import json
import os
import pickle
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click_result import Result, run
from jsonschema import validate

from moe_align import Policy, PolicyError, check, cli, load_policy, plan
from moe_align.cli.plan import memory_bytes
from moe_align.cli.schemas import schema_of
from moe_align.deployment.groups import survivors
from moe_align.deployment.layouts import curve
from moe_align.models import Model

ROOT = Path(__file__).parent.parent
GIB = 2**30


@pytest.fixture(autouse=True)
def clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("MOE_ALIGN_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def policy() -> Policy:
    return load_policy(environ={})


def moe_align(line: str) -> Result:
    return run(cli.app, shlex.split(line))


def plain(line: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(moe_align(f"{line} --json").stdout)
    return found


def test_the_first_screen() -> None:
    ran = moe_align("check Qwen3-30B-A3B-FP8 --tp 4")
    lines = ran.stdout.split("\n")
    assert ran.exit_code == 0
    assert lines[0] == "Loads, on a slower kernel     vLLM 0.33.0 · TP 4 · EP off · backend auto"
    assert lines[1] == "routed.intermediate   768 / 4 = 192 = 1.5 blocks of 128"
    rows = [" ".join(line.split()) for line in lines]
    for row in (
        "auto refine blocks 128 → 64, triton only 192 6.76",
        "auto, VLLM_ROCM_USE_AITER=1 reject: ValueError before loading – –",
        "aiter, deep_gemm, flashinfer_cutlass and 4 more pad; rank 3 holds only padding 256 9.00 + 33%",
        "--enable-expert-parallel 32 experts × 768 6.75",
        "--tensor-parallel-size 2 384 = 3 blocks of 128 13.50",
    ):
        assert row in rows
    assert "SGLang 0.5.23 rejects it at start" in ran.stdout


def test_groups_that_are_halved_are_told_as_groups() -> None:
    asked = (
        "--scheme int4_wna16 --method gptq --group 128 --hidden 2048 --intermediate 768 --experts 128 --tp 8"
    )
    rows = [" ".join(line.split()) for line in moe_align(f"check {asked}").stdout.split("\n")]
    assert any(row.startswith("auto refine groups 128 → 32, triton only 96") for row in rows)


@pytest.mark.parametrize(
    ("facts", "verdict", "native", "allocated"),
    [
        ({"tp": 2}, "native", 384, 384),
        ({"tp": 4}, "refine", 192, 192),
        ({"tp": 4, "vllm": "0.10.2"}, "reject", 192, None),
        ({"tp": 4, "requested": "deep_gemm", "arch": "sm90"}, "pad", 192, 256),
        ({"tp": 4, "ep": True}, "native", 768, 768),
        ({"tp": 4, "engine": "sglang"}, "reject", 192, None),
        ({"tp": 4, "engine": "sglang", "sglang": "0.4.9"}, "reject", 192, None),
        ({"tp": 5}, "reject", None, None),
    ],
)
def test_one_model_many_deployments(
    policy: Policy, facts: dict[str, Any], verdict: str, native: int | None, allocated: int | None
) -> None:
    report = check("Qwen3-30B-A3B-FP8", policy=policy, **facts)
    size = report.outcome.decision.intermediate
    assert (report.verdict, size.native, size.allocated) == (verdict, native, allocated)
    assert report.loads is (verdict != "reject")
    assert bool(report.reasons) is (verdict == "reject")


#: The widths that hurt most, over ranks, schemes and kernels.
WIDTHS = [
    ({"scheme": "fp8_block", "intermediate": 2560, "tp": 8, "vllm": "0.28.0"}, "reject", 320, None),
    ({"scheme": "fp8_block", "intermediate": 2560, "tp": 8}, "refine", 320, 320),
    (
        {"scheme": "nvfp4", "intermediate": 1856, "tp": 1, "backend": "trtllm", "activation": "relu2_no_mul"},
        "pad",
        1856,
        1920,
    ),
    (
        {"scheme": "nvfp4", "intermediate": 1856, "tp": 8, "backend": "marlin", "activation": "relu2_no_mul"},
        "pad",
        232,
        256,
    ),
    ({"scheme": "nvfp4", "intermediate": 704, "tp": 4, "backend": "trtllm"}, "pad", 176, 192),
    ({"scheme": "nvfp4", "intermediate": 704, "tp": 4, "backend": "cutlass"}, "reject", 176, None),
    ({"scheme": "nvfp4", "intermediate": 640, "tp": 4, "backend": "cutlass"}, "reject", 160, None),
    ({"scheme": "nvfp4", "intermediate": 640, "tp": 2, "backend": "cutlass"}, "native", 320, 320),
    (
        {"scheme": "mxfp4", "intermediate": 2880, "tp": 8, "method": "gpt_oss", "backend": "marlin"},
        "pad",
        360,
        384,
    ),
    ({"scheme": "fp8_tensor", "intermediate": 1408, "tp": 8, "backend": "marlin"}, "pad", 176, 192),
    (
        {
            "scheme": "fp8_tensor",
            "intermediate": 1856,
            "tp": 4,
            "backend": "marlin",
            "activation": "relu2_no_mul",
        },
        "reject",
        464,
        512,
    ),
    (
        {
            "scheme": "int4_wna16",
            "method": "compressed_tensors",
            "group": 128,
            "intermediate": 640,
            "tp": 2,
            "backend": "marlin",
        },
        "reject",
        320,
        None,
    ),
    ({"scheme": "unquantized", "intermediate": 1792, "tp": 8, "backend": "aiter"}, "pad", 224, 256),
    ({"scheme": "unquantized", "intermediate": 1536, "tp": 8, "backend": "aiter"}, "native", 192, 192),
    (
        {"scheme": "unquantized", "intermediate": 768, "tp": 8, "backend": "trtllm", "vllm": "0.20.0"},
        "reject",
        96,
        None,
    ),
]


@pytest.mark.parametrize(
    ("facts", "verdict", "native", "padded"),
    WIDTHS,
    ids=[f"{facts['scheme']}-{native}-{verdict}" for facts, verdict, native, _ in WIDTHS],
)
def test_widths_that_hurt(
    policy: Policy, facts: dict[str, Any], verdict: str, native: int, padded: int | None
) -> None:
    given = {"hidden": 4096, "experts": 128, "activation": "silu", "platform": None, **facts}
    if facts["scheme"] == "fp8_block":
        given |= {"block_n": 128, "block_k": 128}
    if facts["scheme"] == "nvfp4":
        given |= {"group": 16, "method": "modelopt"}
    if given["backend" if "backend" in given else "platform"] == "marlin":
        given["platform"] = "cuda"
    report = check(policy=policy, **given)
    size = report.outcome.decision.intermediate
    assert (report.verdict, size.native) == (verdict, native)
    if padded is not None:
        assert max(size.allocated or 0, size.resident or 0) == padded


def test_linear_layers_are_dimensions_of_their_own(policy: Policy) -> None:
    report = check("qwen3.6-35b-a3b-fp8", policy=policy, tp=8, ep=True)
    said = {dim.name: dim.verdict for dim in report.dims}
    assert said["routed.intermediate"] == "native"
    assert said["shared.intermediate"] == "reject"
    assert report.verdict == "reject"
    dense = check("deepseek-r1", policy=policy, tp=32, engine="sglang", sglang="0.4.4")
    assert ("dense.intermediate", 576) in [(dim.name, dim.native) for dim in dense.dims]


def test_experts_that_do_not_come_out_even(policy: Policy) -> None:
    uneven = check("qwen3-30b-a3b", policy=policy, tp=6, ep=True, eplb=True)
    assert [dim.verdict for dim in uneven.dims if dim.name == "experts"] == ["reject"]
    assert "--eplb-config.num_redundant_experts 4" in [way.change for way in uneven.ways]
    assert check("qwen3-30b-a3b", policy=policy, tp=6, ep=True).verdict == "native"
    assert check("qwen3-30b-a3b", policy=policy, engine="sglang", tp=8, ep=7).verdict == "reject"


def test_a_transport_may_widen_the_hidden_size(policy: Policy) -> None:
    report = check("nemotron-3-nano-30b-a3b", policy=policy, tp=2, ep=True, all2all="deepep_ll")
    assert {dim.name: (dim.native, dim.allocated) for dim in report.dims}["routed.hidden"] == (2688, 3072)


def test_answers_are_values(policy: Policy) -> None:
    report = check("Qwen3-30B-A3B-FP8", policy=policy, tp=4)
    assert pickle.loads(pickle.dumps(report)) == report
    with pytest.raises(AttributeError):
        report.verdict = "native"  # type: ignore[misc]


def test_several_engines_and_json() -> None:
    both = moe_align("check deepseek-v3 --engine vllm --engine sglang==0.5.23 --tp 16")
    assert (both.exit_code, both.stdout.count("Loads as it is")) == (0, 2)
    answer = plain("check Qwen3-30B-A3B-FP8 --tp 4 --vllm 0.28.0")
    assert (answer["verdict"], answer["engine"]["release"]) == ("reject", "0.28.0")
    assert answer["dims"][1]["native"] == 192
    assert moe_align("check Qwen3-30B-A3B-FP8 --tp 4 --vllm 0.28.0").exit_code == 1


@pytest.mark.parametrize(
    ("shape", "line"),
    [
        ("check", "check Qwen3-30B-A3B-FP8 --tp 4"),
        ("check", "check Qwen3-30B-A3B-FP8 --tp 4 --vllm 0.28.0"),
        ("check", "check deepseek-v3 --engine vllm --engine atom --tp 3"),
        ("check", "check --hidden 2048 --intermediate 704 --experts 8 --scheme nvfp4 --group 16"),
        ("plan", "plan deepseek-v4-pro --gpus 8 --arch gfx950 --memory 288GiB"),
        ("plan", "plan deepseek-v3 --engine vllm --engine sglang --gpus 16"),
        ("group-size", "group-size Qwen3-30B-A3B --tp 8"),
        ("explain-error", "explain --error 'size_n = 5472 is not divisible by tile_n_size = 64'"),
    ],
)
def test_json_has_its_shape(shape: str, line: str) -> None:
    validate(plain(line), schema_of(shape))


LIST = """\
- {model: Qwen3-30B-A3B-FP8, tp: 4}
- {name: wide, model: deepseek-v4-pro, tp: 8, ep: true, arch: gfx950, engine: [vllm==0.33.0, vllm]}
- {model: qwen3-235b-a22b-fp8, tp: 8, vllm: "0.28.0"}
"""


def test_a_list_is_answered_as_a_whole(tmp_path: Path) -> None:
    file = tmp_path / "deployments.yaml"
    file.write_text(LIST)
    ran = moe_align(f"check {file}")
    assert ran.exit_code == 1
    listed = [line.split()[0] for line in ran.stdout.strip().split("\n")[1:]]
    assert listed == ["Qwen3-30B-A3B-FP8", "wide", "wide", "qwen3-235b-a22b-fp8"]
    assert "wide on vllm==0.33.0" in ran.stdout
    validate(plain(f"check {file}"), schema_of("check"))
    file.write_text(json.dumps([{"model": "qwen3-30b-a3b", "tp": 2}]))
    as_json = tmp_path / "deployments.json"
    file.rename(as_json)
    assert moe_align(f"check {as_json}").exit_code == 0


def test_one_wrong_entry_is_named_and_the_others_are_answered(tmp_path: Path) -> None:
    file = tmp_path / "deployments.yaml"
    file.write_text(
        "- {model: Qwen3-30B-A3B-FP8, tp: 4}\n"
        "- model: nobody\n  tp: 8\n"
        "- {model: qwen3-30b-a3b, tpp: 2}\n"
        "- 7\n"
    )
    ran = moe_align(f"check {file}")
    assert ran.exit_code == 2
    assert "refine" in ran.stdout
    for place in (
        f"{file}:2:3: no known model",
        f"{file}:4:26: unknown fact `tpp`",
        f"{file}:5:3: is no dep",
    ):
        assert place in ran.stderr


def test_the_plan_of_the_largest_model() -> None:
    ran = moe_align("plan deepseek-v4-pro --gpus 8 --arch gfx950 --chart")
    assert ran.exit_code == 0
    rows = [" ".join(line.split()) for line in ran.stdout.split("\n")]
    assert rows[0] == "routed experts, 61 layers, vLLM 0.33.0, 8 GPUs"
    for row in (
        "EP 8 aiter_bf16 48 × 3072 95.70 --moe-backend aiter",
        "MoE-TP 8 aiter_bf16 384 × 384 96.33 --moe-backend aiter",
        "MoE-TP 8 triton_unfused 384 × 512 127.60 what a default start gives",
    ):
        assert row in rows
    assert "+ 31.27 GiB with VLLM_ROCM_USE_AITER=1" in ran.stdout
    assert "2.37 M KV tokens at 14,177 bytes" in ran.stdout
    assert "TP 8  █████░░ 127.60" in ran.stdout


def test_a_plan_counts_tokens_and_memory(policy: Policy) -> None:
    made = plan("deepseek-v4-pro", gpus=8, policy=policy, arch="gfx950", memory=100 * GIB)
    default, best, saved = made.saving or (None, None, 0)
    assert default is not None
    assert best is not None
    assert (best.outcome.decision.backend, round(saved / GIB, 2)) == ("aiter_bf16", 31.27)
    assert saved // (made.kv_bytes or 1) == 2_368_670
    sizes = [one.fits for one in made.layouts if one.fits is not None]
    assert sizes == sorted(sizes)
    assert [tp for tp, _ in curve(policy, made)] == [1, 2, 4, 8]


def test_every_engine_has_its_own_splits(policy: Policy) -> None:
    of_sglang = plan("deepseek-v3", gpus=8, policy=policy, engine="sglang")
    assert {(one.moe_tp, one.moe_ep) for one in of_sglang.layouts} == {(8, 1), (4, 2), (2, 4), (1, 8)}
    of_vllm = plan("deepseek-v3", gpus=8, policy=policy)
    assert {(one.moe_tp, one.moe_ep) for one in of_vllm.layouts} == {(8, 1), (1, 8)}
    assert plan("mixtral-8x7b", gpus=1, policy=policy).layouts


def test_a_plan_as_csv_and_where_nothing_loads() -> None:
    lines = moe_align("plan deepseek-v4-pro --gpus 8 --arch gfx950 --csv").stdout.strip().split("\n")
    assert lines[0].startswith("moe_tp,moe_ep,tp_dp,requested,backend")
    assert len({line.count(",") for line in lines}) == 1
    none = moe_align("plan qwen3-235b-a22b-fp8 --gpus 7")
    assert none.exit_code == 0 or "no layout loads" in none.stdout


@pytest.mark.parametrize(
    ("text", "size"),
    [("288GiB", 288 * GIB), ("80 GB", 80 * 10**9), ("1.5TiB", 3 * 2**39), ("24g", 24 * GIB), (None, None)],
)
def test_memory_as_people_write_it(text: str | None, size: int | None) -> None:
    assert memory_bytes(text) == size


def test_which_groups_survive() -> None:
    ran = moe_align("group-size Qwen3-30B-A3B --tp 8")
    assert (ran.exit_code, ran.stdout.split("\n")[0]) == (0, "group or block of 32 or less survives TP 8")
    assert plain("group-size Qwen3-30B-A3B --tp 4")["best"] == 64
    assert moe_align("group-size --hidden 100 --intermediate 100 --tp 3").exit_code == 1
    assert survivors(Model("unknown"), 2) is None


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("check", "no model and no sizes"),
        ("check nobody --tp 2", "no known model `nobody`"),
        ("check somebody/nobody", "moe-align[hub]"),
        ("check qwen3-30b-a3b --tp 0", "`tp` is 0, below 1"),
        ("check qwen3-30b-a3b --engine triton-server", "unknown engine `triton-server`"),
        (
            "check qwen3-30b-a3b --scheme mxfp4 --backend aiter --platform cuda",
            "is only for platform rocm",
        ),
        ("plan qwen3-30b-a3b --gpus 0", "0 GPUs"),
        ("plan qwen3-30b-a3b --gpus 8 --tp 2", "a plan chooses the parallel sizes itself"),
        ("plan qwen3-30b-a3b --gpus 8 --memory '12 bananas'", "`--memory 12 bananas` is no size"),
        ("plan qwen3-30b-a3b --gpus 8 --memory 0GiB", "is nothing"),
        ("plan qwen3-30b-a3b --gpus 8 --kv-bytes-per-token many", "`--kv-bytes-per-token many` is none"),
        ("group-size", "no model and no sizes"),
    ],
)
def test_wrong_input(line: str, said: str) -> None:
    ran = moe_align(line)
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert said in ran.stderr


def test_an_engine_that_is_too_new_is_not_guessed_at() -> None:
    ran = moe_align("check qwen3-30b-a3b-fp8 --tp 4 --vllm 0.99")
    assert ran.exit_code == 1
    assert ran.stdout.startswith("Not known")
    assert "not 0.99" in ran.stdout


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not JSON"),
        ('{"architectures": ["LlamaForCausalLM"], "hidden_size": 4096}', ""),
        ("[]", "is no list of deployments"),
    ],
)
def test_files_that_cannot_be_used(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "config.json"
    file.write_text(text)
    ran = moe_align(f"check {file} --tp 2")
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert said in ran.stderr


def test_the_library_says_the_same() -> None:
    with pytest.raises(PolicyError):
        check("nobody")
    with pytest.raises(PolicyError):
        plan("qwen3-30b-a3b", gpus=0)


def test_importing_the_package_loads_none_of_it() -> None:
    code = "import sys, moe_align; print([m for m in sys.modules if 'deployment' in m or m == 'typer'])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert ran.stdout.strip() == "[]"
