"""The command as a person and as a program use it: answers, wrong usage, help, completion, pipes."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click_result import Result, run
from jsonschema import Draft202012Validator

from moe_align import cli, load_compiled
from moe_align.cli import COMMANDS
from moe_align.cli.schemas import RULES, schema_of
from moe_align.codes import page, pages
from moe_align.facts import BOOLEANS, DISCRETE, INTEGERS, NAMESPACES, VERSIONS
from moe_align.report.shapes import NAMES

ROOT = Path(__file__).parent.parent
DATA = Path(__file__).parent / "data"
LAB = str(DATA / "rules")
CARD = "resolve --backend aiter_bf16 --act silu --tp 8"
SIZES = "--hidden 7168 --intermediate 3072"


@pytest.fixture(autouse=True)
def clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("MOE_ALIGN_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def moe_align(line: str) -> Result:
    return run(cli.app, shlex.split(line))


def answer(line: str) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(moe_align(f"{line} --json").stdout)
    return plain


def process(line: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """The command as a process of its own, in a pipe."""
    command = [sys.executable, str(ROOT / "cli.py"), *shlex.split(line)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environ})


def test_the_cards_command_is_worth_reading() -> None:
    ran = process(CARD)
    assert (ran.returncode, ran.stderr) == (0, "")
    lines = ran.stdout.split("\n")
    assert lines[0] == "hidden × 128 · intermediate × 128          vllm-mxfp4/aiter-bf16-silu-situ"
    for line in (
        "implied   mxfp4 · rocm · gfx950",
        "deepseek-v4-pro   61 L   3072 / 8 = 384 → 384              95.70 → 96.33     127.60",
        "deepseek-v4-flash 43 L   2048 / 8 = 256 → 256              17.13 → 17.13      17.13",
    ):
        assert line in lines
    assert any(line.startswith("assumed   vLLM 0.33.0 · EP off · DP 1 · method default") for line in lines)
    assert any(line.startswith("differs   vLLM < 0.28 → × 256 · method gpt_oss, ") for line in lines)
    assert any(line.startswith("why       the A16W4 layout") for line in lines)
    assert any(line.startswith("warning   on gfx950 the a8w4 kernels step hidden by 256") for line in lines)


@pytest.mark.parametrize(
    ("more", "hidden", "intermediate", "rule"),
    [
        ("", 7168, 384, "vllm-mxfp4/aiter-bf16-silu-situ"),
        ("--vllm 0.26.0", 7168, 512, "vllm-mxfp4/rocm-generic"),
        ("--engine vllm==0.26.0", 7168, 512, "vllm-mxfp4/rocm-generic"),
        ("--method gpt_oss", 7168, 512, "vllm-mxfp4/rocm-generic"),
        (
            "--fused-shared-experts 1 --rules examples/fused-shared-experts",
            7168,
            512,
            "fused-shared-experts/one-fused-shared-expert",
        ),
        ("--backend AITER_MXFP4_BF16", 7168, 384, "vllm-mxfp4/aiter-bf16-silu-situ"),
        ("--ep 8", 7168, 3072, "vllm-mxfp4/aiter-bf16-silu-situ"),
    ],
)
def test_sizes_by_rule(
    more: str, hidden: int, intermediate: int, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    found = answer(f"{CARD} {SIZES} {more}")
    assert (found["hidden"]["allocated"], found["intermediate"]["allocated"]) == (hidden, intermediate)
    assert found["rule"] == rule


def test_another_activation_is_another_rule() -> None:
    assert (
        answer(f"resolve --backend aiter_bf16 --act swigluoai --tp 8 {SIZES}")["intermediate"]["allocated"]
        == 512
    )


@pytest.mark.parametrize(
    "model",
    ["deepseek-v4-pro", "deepseek-ai/DeepSeek-V4-Pro", str(DATA / "configs" / "deepseek-v4-pro.json")],
)
def test_a_model_gives_its_facts(model: str) -> None:
    found = answer(f"resolve --model {model} --backend aiter_bf16 --tp 8")
    assert found["intermediate"] == {"native": 384, "allocated": 384, "resident": 384, "multiple": 128}
    text = moe_align(f"resolve --model {model} --backend aiter_bf16 --tp 8").stdout
    assert "61 layers and 384 experts on each rank" in text
    assert "95.70 created → 96.33 resident, per rank" in text
    assert "vLLM < 0.28 → intermediate 512, 127.60 GiB" in text


def test_the_backend_that_an_engine_picks_is_said() -> None:
    """The default start on gfx950 costs 31 GiB that AITER's kernels would not."""
    text = moe_align("resolve --model deepseek-v4-pro --tp 8 --arch gfx950").stdout
    assert "intermediate 3072 / 8 = 384 → 512" in text
    assert "backend   triton_unfused (vllm-mxfp4-select/" in text
    assert "127.60 created → 127.60 resident, unpadded 95.70, per rank" in text
    text = moe_align(
        "resolve --model deepseek-v4-pro --tp 8 --arch gfx950 --env VLLM_ROCM_USE_AITER=1"
    ).stdout
    assert "intermediate 3072 / 8 = 384 → 384" in text
    assert "backend   aiter_bf16 (vllm-mxfp4-select/aiter)" in text


def test_rules_that_give_the_same_sizes_are_all_named() -> None:
    text = moe_align("resolve --engine sglang==0.5.20 --model deepseek-v3 --tp 8 --arch sm100").stdout
    assert text.startswith("hidden 7168 → 7168 · intermediate 2048 / 8 = 256 → 256\n")
    assert "if        backend trtllm → by sglang-fp8-block-before-0-5-23/trtllm" in text


def test_a_folder_with_a_config_is_a_model(tmp_path: Path) -> None:
    shutil.copy(DATA / "configs" / "deepseek-v4-pro.json", tmp_path / "config.json")
    assert (
        answer(f"resolve --model {tmp_path} --backend aiter_bf16 --tp 8")["intermediate"]["allocated"] == 384
    )


def test_what_is_said_wins_over_the_model_and_is_shown() -> None:
    line = "resolve --model deepseek-v4-pro --backend aiter_bf16 --tp 8 --hidden 4096 --act situ"
    text = moe_align(line).stdout
    assert "hidden 4096 → 4096" in text
    assert "note      --hidden 4096, though deepseek-v4-pro has 7168" in text
    assert "note      --activation situ, though deepseek-v4-pro has silu" in text
    assert "note: --hidden 4096, though deepseek-v4-pro has 7168" in moe_align(f"{line} --json").stderr


def test_the_same_in_other_words_is_no_contradiction() -> None:
    line = "resolve --model deepseek-v4-pro --backend aiter_bf16 --act SwiGLU --gated"
    assert "note" not in moe_align(line).stdout


def test_another_scheme_makes_the_models_blocks_void() -> None:
    found = moe_align("resolve --model deepseek-v3 --scheme mxfp4 --backend aiter_bf16")
    assert found.exit_code == 0
    assert "note      --scheme mxfp4, though deepseek-v3 has fp8_block" in found.stdout


def test_a_contradiction_with_the_model_names_the_model() -> None:
    found = moe_align("resolve --model deepseek-v3 --backend aiter_bf16")
    assert found.exit_code == 2
    assert "backend `aiter_bf16` is only for scheme mxfp4, and scheme is `fp8_block` [F020]" in found.stderr
    assert "deepseek-v3 has scheme fp8_block" in found.stderr


def test_a_build_is_treated_as_its_release_and_the_answer_says_so() -> None:
    found = moe_align(f"{CARD} --vllm 0.33.1rc1.dev50")
    assert "note      vllm 0.33.1rc1.dev50: pre-release treated as 0.33.1" in found.stdout


def test_sizes_without_a_model_cost_a_layer() -> None:
    text = moe_align(f"{CARD} {SIZES} --experts 384").stdout
    assert "model     these sizes: 384 experts on each rank" in text
    assert "GiB       1.57 created → 1.58 resident, per rank and layer" in text
    assert "\nmodel" not in moe_align(f"{CARD} {SIZES}").stdout


def test_models_that_a_rule_refuses_are_listed_as_such() -> None:
    text = moe_align(f"resolve --backend strict --rules {LAB}").stdout
    assert "rejected: intermediate 2880 is not a multiple of 128" in text
    assert "hidden native · intermediate must be × 128" in text


@pytest.mark.parametrize(
    ("line", "status", "said"),
    [
        (f"{CARD} --tp 7 {SIZES}", "rejected", "rejected: 3072 / 7 = 438.86 is no whole number"),
        (f"{CARD} --vllm 0.99", "unknown", "covers vllm"),
        (f"resolve --backend tile --rules {LAB}", "undecided", "if        arch gfx942 → × 256"),
        (f"resolve --backend tile --rules {LAB}", "undecided", "say       more: --arch"),
        (f"resolve --backend refusing --rules {LAB}", "rejected", "raises    ValueError"),
        ("resolve", "undecided", "more answers: see --json"),
    ],
)
def test_no_is_an_answer_with_status_1(line: str, status: str, said: str) -> None:
    found = moe_align(line)
    assert (found.exit_code, found.stderr) == (1, "")
    assert found.stdout.startswith(status)
    assert said in found.stdout
    assert answer(line)["status"] == status


def test_sizes_that_a_kernel_misreads_are_no_yes() -> None:
    found = moe_align(f"resolve --backend exact --hidden 2944 --intermediate 256 --rules {LAB}")
    assert found.exit_code == 1
    assert "unsafe    hidden 2944 is not a multiple of 256" in found.stdout
    plain = answer(f"resolve --backend exact --hidden 2944 --intermediate 256 --rules {LAB}")
    assert {"id": "lab-contracts/silent-hidden", "holds": False, "breaks": "silent"} in plain["contracts"]


def test_open_facts_are_there_value_by_value() -> None:
    assert answer(f"resolve --backend tile --rules {LAB}")["open"] == {
        "arch": {"gfx942": "× 256", "gfx950": "× 128"}
    }


def test_switches_and_capabilities() -> None:
    assert answer(f"resolve --backend wide --env LAB_SWITCH=1 --rules {LAB}")["hidden"]["multiple"] == 512
    assert answer(f"resolve --backend wide --rules {LAB}")["hidden"]["multiple"] == 1
    assert moe_align(f"resolve --backend wide --has wide_kernel --rules {LAB}").exit_code == 0
    assert moe_align(f"resolve --backend wide --has wide_kernel=false --rules {LAB}").exit_code == 0


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("resolve --backend aiter_bf17", "unknown backend `aiter_bf17` [F010]\n  fix: write `aiter_bf16`"),
        ("resolve --hidden 7168.5", "`hidden` is '7168.5', not a whole number [F003]"),
        ("resolve --hidden 1e9", "not a whole number [F003]"),
        ("resolve --hidden 7_168", "not a whole number [F003]"),
        ("resolve --hidden ''", "not a whole number [F003]"),
        (f"resolve --hidden {'9' * 5000}", "not a whole number [F003]"),
        ("resolve --hidden 99999999999", "`hidden` is 99999999999, above 2147483648 [F005]"),
        ("resolve --tp 0", "`tp` is 0, below 1 [F004]"),
        ("resolve --tp -1", "`tp` is -1, below 1 [F004]"),
        ("resolve --tp=-1", "`tp` is -1, below 1 [F004]"),
        ("resolve --vllm banana", "[F015]"),
        ("resolve --engine vlm", "unknown engine `vlm` [F010]\n  fix: write `vllm`"),
        ("resolve --engine vlm==0.33.0", "[U002]\n  fix: write `vllm==0.33.0`"),
        ("resolve --engine banana==1", "[U002]\n  fix: engines with releases are vllm"),
        ("resolve --engine vllm==0.33.0 --vllm 0.26.0", "[U003]"),
        ("resolve --env FOO", "[U001]\n  fix: write `--env FOO=1`"),
        ("resolve --env =1", "[U001]\n  fix: write `--env NAME=1`"),
        ("resolve --env FOO=1", "no pack knows the switch `FOO` [F014]"),
        (f"resolve --has wide_kernl --rules {LAB}", "[U004]\n  fix: write `wide_kernel`"),
        ("resolve --has banana", "no pack knows the capability `banana` [U004]"),
        ("resolve --backend aiter_bf16 --platform cuda", "[F020]"),
        (
            "resolve --model deepseek-v4-por",
            "no known model `deepseek-v4-por` [M010]\n  fix: write `deepseek-v4-pro`",
        ),
        ("resolve --model nowhere.json", "no such file: `nowhere.json` [M001]"),
        ("resolve --rules /nowhere", "/nowhere:1:1: no such file or folder [Y001]"),
        ("resolve --bakend x", "No such option: --bakend"),
        ("resolve x", "unexpected extra argument"),
        ("reslove", "No such command 'reslove'"),
        ("reslove", "'resolve'"),
        ("list bakend", "no list `bakend` [U006]\n  fix: write `backend`"),
        ("list qqqqqqqq", "[U006]\n  fix: legal are rules"),
        ("list tp", "`tp` has whole numbers for values [U006]"),
        ("list vllm", "`vllm` has releases for values [U006]"),
        ("rule vllm-mxfp4/aiter-bf16-silu-sit", "[U005]\n  fix: write `vllm-mxfp4/aiter-bf16-silu-situ`"),
        ("rule qqqqqqqq", "[U005]\n  fix: see `moe-align list rules`"),
        ("rule otherwise", "is in several packs [U005]"),
        ("rule", "Missing argument"),
        ("schema resolv", "[U007]\n  fix: write `resolve`"),
        ("schema qqqqqqqq", "[U007]\n  fix: legal are rules"),
        ("compile --out /nowhere/policy.json", "cannot be written: No such file or directory [U008]"),
    ],
)
def test_wrong_usage_is_one_clear_message_and_status_2(line: str, said: str) -> None:
    found = moe_align(line)
    assert found.exit_code == 2
    assert found.stdout == ""
    assert said in found.stderr
    assert "Traceback" not in found.stderr


def test_several_problems_are_said_at_once() -> None:
    found = moe_align("resolve --hidden 1.5 --tp 0")
    assert found.stderr.count("fix:") == 2


@pytest.mark.parametrize("broken", ["language: 1\n\tx", "a: [1", "\x00", "&a b", "- 1"])
def test_wrong_files_are_refused_before_anything_is_said(tmp_path: Path, broken: str) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(broken)
    for command in (CARD, "list rules", "explain", "compile", "rule marlin"):
        found = moe_align(f"{command} --rules {file}")
        assert (found.exit_code, found.stdout) == (2, "")
        assert found.stderr.startswith(f"{file}:")


def test_compile_leaves_nothing_half_done(tmp_path: Path) -> None:
    (tmp_path / "policy.json").mkdir()
    assert moe_align(f"compile --out {tmp_path}/policy.json").exit_code == 2
    assert [path.name for path in tmp_path.iterdir() if path.name != "cache"] == ["policy.json"]


@pytest.fixture
def buggy(monkeypatch: pytest.MonkeyPatch) -> None:
    def command() -> None:
        """Fails."""
        raise KeyError("a\nb")

    module = ModuleType("moe_align.cli.buggy")
    vars(module).update(command=command, EXAMPLE="moe-align buggy")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(COMMANDS, "buggy", "buggy")


@pytest.mark.usefixtures("buggy")
def test_a_bug_of_ours_is_said_to_be_one(monkeypatch: pytest.MonkeyPatch) -> None:
    found = moe_align("buggy")
    assert found.exit_code == 3
    assert found.stderr.startswith("this is a bug of moe-align, not of yours: KeyError: ")
    assert "Traceback" not in found.stderr
    monkeypatch.setenv("MOE_ALIGN_DEBUG", "1")
    assert "Traceback" in moe_align("buggy").stderr


@pytest.mark.parametrize("name", [RULES, *NAMES])
def test_the_committed_schemas_are_those_of_the_code(name: str) -> None:
    """Write it anew with `moe-align schema NAME > docs/schema/NAME.json`."""
    file = ROOT / "docs" / "schema" / f"{name}.json"
    assert json.loads(file.read_text()) == schema_of(name)
    assert moe_align(f"schema {name}").stdout == file.read_text()
    Draft202012Validator.check_schema(schema_of(name))


@pytest.mark.parametrize(
    "line",
    [
        CARD,
        f"{CARD} {SIZES}",
        f"{CARD} --tp 7 {SIZES}",
        f"{CARD} --vllm 0.99",
        "resolve",
        f"resolve --backend tile --rules {LAB}",
        f"resolve --backend exact --hidden 2944 --intermediate 60 --rules {LAB}",
        f"explain {CARD.removeprefix('resolve ')}",
        "explain --scheme mxfp4",
        f"explain --backend exact --hidden 256 --rules {LAB}",
        *(
            f"list {what}"
            for what in ("", "rules", "contracts", "packs", "facts", "values", "models", "codes", "arch")
        ),
        "rule vllm-mxfp4/aiter-bf16-silu-situ",
        "rule aiter-contracts/flydsl-hidden",
        "rule R203",
        "compile --out policy.json",
        "doctor",
    ],
)
def test_json_has_its_shape(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plain = answer(line)
    assert plain["version"] == 1
    Draft202012Validator(schema_of(line.split()[0])).validate(plain)


def test_resolve_has_the_keys_of_its_contract() -> None:
    keys = (
        "version status hidden intermediate rule steps launch contracts assumed implied open differs reason"
    )
    assert " ".join(answer(CARD)) == f"{keys} policy"


def test_rule_files_fit_the_schema_of_rule_files() -> None:
    import yaml

    validator = Draft202012Validator(schema_of(RULES))
    for file in (*ROOT.glob("rules/*.yaml"), *ROOT.glob("examples/*/rules.yaml"), *Path(LAB).glob("*.yaml")):
        if file.name not in ("models.yaml", "reviewed.yaml"):
            validator.validate(yaml.safe_load(file.read_text()))


def test_explain_names_the_condition_that_failed() -> None:
    text = moe_align("explain --backend aiter_bf16 --act silu --vllm 0.26.0").stdout
    assert re.search(r"no +aiter-bf16-silu-situ +vllm is 0\.26, must be >=0\.28\n", text)
    assert re.search(r"wins +rocm-generic +both × 256 – the generic ROCm tile\n", text)
    assert re.search(r"later +otherwise +an earlier rule has won\n", text)
    assert re.search(r"  vllm-unquantized, all \d+ rules: scheme is mxfp4, must be unquantized\n", text)


def test_explain_shows_what_open_facts_leave_open() -> None:
    text = moe_align(f"explain --backend tile --rules {LAB}").stdout
    assert re.search(r"depends +tile-new +arch is open, must be gfx950\n", text)
    assert re.search(r"depends +tile +matches where no rule before it does\n", text)
    assert re.search(r"no +exact +backend is tile, must be exact\n", text)
    undecided = moe_align(f"explain --arch gfx950 --backend wide --vllm 0.40 --rules {LAB}")
    assert undecided.exit_code == 1


def test_explain_shows_exceptions_and_contracts() -> None:
    text = moe_align(f"explain --backend wide --rules {LAB}").stdout
    assert "env.LAB_SWITCH is unset, which `unless` excepts: unset" in text
    text = moe_align(f"explain --backend exact --hidden 256 --intermediate 60 --rules {LAB}").stdout
    assert "holds   lab-contracts/silent-hidden: hidden 256 is a multiple of 256" in text
    assert "broken  lab-contracts/raises-small" in text
    found = moe_align(f"explain --backend refusing --rules {LAB}")
    assert re.search(r"later +strict|– +|wins +refusing", found.stdout)


def test_a_backend_of_ones_own_resolves_lists_and_explains(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        "language: 1\n"
        "pack: mine\n"
        "phase: allocate\n"
        "for: {engine: vllm, backend: my_kernel}\n"
        "vocabulary:\n"
        "  backend: {my_kernel: {aliases: [MY_KERNEL], implies: {scheme: mxfp4, platform: rocm}}}\n"
        "rules:\n"
        "  - {id: all, align: 96, why: the tile of my kernel}\n"
    )
    rules = f"--rules {tmp_path / 'mine.yaml'}"
    found = answer(f"resolve --backend MY_KERNEL --tp 8 {SIZES} {rules}")
    assert found["intermediate"]["allocated"] == 384
    assert found["rule"] == "mine/all"
    assert "my_kernel" in moe_align(f"list backend {rules}").stdout
    assert "mine/all" in moe_align(f"list rules {rules}").stdout
    assert (
        "wins     all  both × 96 – the tile of my kernel"
        in moe_align(f"explain --backend my_kernel {rules}").stdout
    )
    assert "deepseek-v4-pro" in moe_align(f"rule mine/all {rules}").stdout


def test_lists_have_what_there_is() -> None:
    assert "deepseek-v4-pro" in moe_align("list models").stdout
    assert re.search(r"gfx942 .*implies platform rocm", moe_align("list arch").stdout)
    assert "any of gfx942" in moe_align(f"list arch --rules {LAB}").stdout
    assert "env.LAB_SWITCH" in moe_align(f"list facts --rules {LAB}").stdout
    assert "widens everything" in moe_align(f"list env.lab_switch --rules {LAB}").stdout
    assert "unless env.LAB_SWITCH unset" in moe_align(f"list rules --rules {LAB}").stdout
    assert {item["fact"] for item in answer("list facts")["items"]} >= {*DISCRETE, *INTEGERS, *VERSIONS}
    assert {item["name"] for item in answer("list")["items"]} >= {"rules", "models", "codes"}


def test_a_list_of_nothing_says_so() -> None:
    assert moe_align("list routing --json").exit_code == 0


def test_the_page_of_a_rule_has_its_place_and_the_models_that_it_decides() -> None:
    lines = moe_align("rule vllm-mxfp4/aiter-bf16-silu-situ").stdout.split("\n")
    assert lines[0] == "vllm-mxfp4/aiter-bf16-silu-situ   rule of phase allocate"
    assert "does      both × 128" in lines
    assert "source    vllm#51473" in lines
    decided = next(line for line in lines if line.startswith("decides"))
    assert "deepseek-v4-pro" in decided
    assert "gpt-oss" not in decided
    place = re.search(
        r"stands    rules/vllm_mxfp4\.yaml:(\d+):\d+ · \d+ of \d+ in its pack", "\n".join(lines)
    )
    assert place
    assert (
        "aiter-bf16-silu-situ" in (ROOT / "rules/vllm_mxfp4.yaml").read_text().split("\n")[int(place[1]) - 1]
    )


def test_the_page_of_a_contract_says_what_it_breaks() -> None:
    text = moe_align("rule aiter-contracts/flydsl-hidden").stdout
    assert "demands   hidden a multiple of 256" in text
    assert "breaks    silent: wrong results and no error" in text


def test_an_id_is_enough_where_only_one_rule_has_it() -> None:
    assert moe_align("rule AITER-bf16-silu-situ").stdout.startswith("vllm-mxfp4/aiter-bf16-silu-situ")


def test_packs_that_are_tried_first_are_named(tmp_path: Path) -> None:
    text = "language: 1\npack: mine\nphase: allocate\nrules:\n  - {id: all, align: 96, why: x}\n"
    (tmp_path / "mine.yaml").write_text(text)
    found = moe_align(f"rule vllm-mxfp4/marlin --rules {tmp_path}").stdout
    assert "after     the packs mine" in found


def test_a_compiled_policy_answers_as_its_files_do(tmp_path: Path) -> None:
    file = tmp_path / "policy.json"
    said = moe_align(f"compile --out {file}").stdout
    policy = load_compiled(file)
    assert policy.digest[:12] in said
    assert policy.digest == answer(CARD)["policy"]["digest"]
    assert moe_align("compile").stdout == file.read_text()


def test_doctor_finds_all_well_here() -> None:
    found = moe_align("doctor")
    assert found.stdout.rstrip().endswith("all is well")
    assert found.exit_code == 0
    assert f"python             {sys.version_info[0]}.{sys.version_info[1]}" in found.stdout
    assert re.search(r"^amd-aiter +", found.stdout, re.MULTILINE)


def test_doctor_says_what_is_wrong(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MOE_ALIGN_RULES", "/nowhere")
    monkeypatch.setenv("MOE_ALIGN_MOD", "apply")
    monkeypatch.setenv("MOE_ALIGN_QQQQQQ", "x")
    monkeypatch.setenv("MOE_ALIGN_MODE", "aply")
    monkeypatch.setenv("MOE_ALIGN_CACHE", "off")
    found = moe_align("doctor")
    assert found.exit_code == 1
    for text in (
        "problem            /nowhere:1:1: no such file or folder [Y001]",
        "unknown variable MOE_ALIGN_MOD\n                     fix: write MOE_ALIGN_MODE",
        "unknown variable MOE_ALIGN_QQQQQQ\n",
        "MOE_ALIGN_MODE is `aply`\n                     fix: write one of observe, apply, off",
        "variable           MOE_ALIGN_MOD=apply",
        "cache              off",
        "not well",
    ):
        assert text in found.stdout
    assert answer("doctor")["well"] is False
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.delenv("MOE_ALIGN_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    assert "cannot be written: nothing is kept" in moe_align("doctor").stdout


def test_the_other_aiter_is_said_to_be_unrelated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, version, summary in (
        ("aiter", "0.13.2", "Wrapper utils for\n  AsyncIterators"),
        ("vllm", "0.33.0", ""),
    ):
        info = tmp_path / f"{name}-{version}.dist-info"
        info.mkdir()
        summary_line = f"Summary: {summary}\n" if summary else ""
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{summary_line}"
        )
    monkeypatch.syspath_prepend(str(tmp_path))
    text = moe_align("doctor").stdout
    assert "aiter              0.13.2 · unrelated to AMD's AITER (Wrapper utils for AsyncIterators)" in text
    assert "vllm               0.33.0" in text


def codes_in_source() -> Iterator[str]:
    for file in (ROOT / "moe_align").rglob("*.py"):
        yield from re.findall(r'"([A-Z]\d{3})"', file.read_text())


def test_every_code_has_a_page_and_every_page_a_code() -> None:
    listed = [one.code for one in pages()]
    assert set(listed) == set(codes_in_source())
    assert len(listed) == len(set(listed))


@pytest.mark.parametrize("one", pages(), ids=lambda one: one.code)
def test_a_page_is_worth_opening(one: Any) -> None:
    assert one.title[0].isupper() or one.title.startswith("`")
    assert len(one.text) > 20
    assert max(map(len, one.text.split("\n"))) <= 120
    assert moe_align(f"rule {one.code.lower()}").stdout.startswith(
        f"{one.code}   {one.title}\n\n{one.text}\n"
    )


def test_an_unknown_code_has_none() -> None:
    assert page("Z999") is None


def _project(folder: Path) -> None:
    """A project of somebody who has rules of their own, as the examples take it for granted."""
    rules = "language: 1\npack: mine\nvocabulary: {backend: {mine: {}}}\n"
    facts = "- facts: {scheme: mxfp4, backend: aiter_bf16, activation: silu}"
    case = f"{facts}\n  rule: vllm-mxfp4/aiter-bf16-silu-situ\n"
    (folder / "tests" / "cases").mkdir(parents=True)
    (folder / "rules").mkdir()
    (folder / "my-rules.yaml").write_text(rules, encoding="utf-8")
    (folder / "rules" / "mine.yaml").write_text(rules, encoding="utf-8")
    (folder / "tests" / "cases" / "mine.yaml").write_text(case, encoding="utf-8")
    when = "{engine: vllm, backend: marlin, scheme: mxfp4, method: default}"
    claim = f"- {{id: whole, when: {when}, always: {{intermediate: {{multiple_of: 64}}}}, why: ours}}\n"
    (folder / "claims.yaml").write_text(claim, encoding="utf-8")
    for arguments in (
        ["init", "-q", "-b", "main"],
        ["add", "."],
        ["-c", "user.name=x", "-c", "user.email=x@example.org", "commit", "-q", "-m", "rules"],
    ):
        subprocess.run(["git", *arguments], cwd=folder, check=True)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_ends_with_an_example_that_works(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    help_text = moe_align(f"{name} --help").stdout
    last = " ".join(help_text.strip().split("\n\n")[-1].split())
    example = re.fullmatch(r"Example: moe-align (.*)", last)
    assert example
    assert help_text == moe_align(f"{name} -h").stdout
    _project(tmp_path)
    monkeypatch.chdir(tmp_path)
    ran = moe_align(example[1].partition(" > ")[0])
    assert ran.exit_code == 0
    assert ran.stdout or ran.stderr or (tmp_path / "policy.json").exists()


def test_every_fact_is_a_flag() -> None:
    help_text = moe_align("resolve --help").stdout
    for key in (*DISCRETE, *INTEGERS, *VERSIONS, *NAMESPACES):
        flag = f"--{key.replace('_', '-')}"
        assert re.search(rf"{flag}\b", help_text)
        assert bool(re.search(rf"--no-{flag[2:]}\b", help_text)) == (key in BOOLEANS)


def test_without_a_command_there_is_help() -> None:
    found = moe_align("")
    assert found.exit_code == 0
    for name in COMMANDS:
        assert f"\n  {name} " in found.stdout


def test_the_version_is_printed() -> None:
    from moe_align import __version__

    assert moe_align("--version").stdout == f"moe-align {__version__}\n"


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("re", "resolve"),
        ("resolve --backend aiter_b", "aiter_bf16"),
        ("resolve --act sil", "silu"),
        ("list mod", "models"),
        ("list bac", "backend"),
        ("rule vllm-mxfp4/marl", "vllm-mxfp4/marlin"),
        ("rule Y00", "Y001"),
        ("schema expl", "explain"),
    ],
)
def test_shells_complete(words: str, wanted: str) -> None:
    line = f"moe-align {words}"
    ran = process(
        "", _MOE_ALIGN_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=str(len(line.split(" ")) - 1)
    )
    assert wanted in ran.stdout.split()


def test_completion_is_silent_where_rules_are_broken() -> None:
    for words in ("resolve --backend ai", "rule vl"):
        line = f"moe-align {words}"
        ran = process(
            "",
            _MOE_ALIGN_COMPLETE="complete_bash",
            COMP_WORDS=line,
            COMP_CWORD=str(len(line.split(" ")) - 1),
            MOE_ALIGN_RULES="/nowhere",
        )
        assert (ran.stdout.strip(), ran.stderr) == ("", "")


def on_terminal(line: str, columns: int, **environ: str) -> str:
    """What the command shows on a terminal of so many columns."""
    leader, follower = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": str(columns), "LINES": "50", **environ}
    environment.pop("NO_COLOR", None) if "NO_COLOR" not in environ else None
    command = [sys.executable, str(ROOT / "cli.py"), *shlex.split(line)]
    ran = subprocess.Popen(command, stdout=follower, stderr=follower, env=environment)
    os.close(follower)
    shown = b""
    while True:
        try:
            part = os.read(leader, 65536)
        except OSError:
            break
        if not part:
            break
        shown += part
    os.close(leader)
    ran.wait()
    return shown.decode().replace("\r\n", "\n")


ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_a_terminal_has_colours_and_an_edge(columns: int) -> None:
    shown = on_terminal(CARD, columns)
    assert ESCAPE.search(shown)
    lines = ESCAPE.sub("", shown).split("\n")
    assert max(map(len, lines)) <= columns
    assert lines[0].startswith("hidden × 128 · intermediate × 128")
    assert ("deepseek-v4-pro   61 L  3072 / 8 = 384 → 384             95.70 → 96.33    127.60" in lines) == (
        columns == 80
    )
    assert any("not shown for want of room" in line for line in lines) == (columns < 80)


@pytest.mark.parametrize("environ", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_colours_can_be_declined(environ: dict[str, str]) -> None:
    assert not ESCAPE.search(on_terminal(CARD, 100, **environ))


def test_errors_on_a_terminal_are_as_plain() -> None:
    shown = on_terminal("resolve --backend aiter_bf17", 100)
    assert "unknown backend `aiter_bf17` [F010]\n  fix: write `aiter_bf16`\n" in shown


def test_a_pipe_gets_plain_text_on_long_lines() -> None:
    ran = process(f"explain {CARD.removeprefix('resolve ')}", COLUMNS="40")
    assert not ESCAPE.search(ran.stdout)
    assert max(map(len, ran.stdout.split("\n"))) > 100


def test_a_pipe_that_closes_is_no_error() -> None:
    command = f"{shlex.quote(sys.executable)} {shlex.quote(str(ROOT / 'cli.py'))} list values | head -1"
    ran = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert ran.stdout.startswith("fact")
    assert "Traceback" not in ran.stderr


def test_an_encoding_without_arrows_gets_words() -> None:
    ran = process(f"{CARD} {SIZES}", PYTHONIOENCODING="ascii")
    assert ran.stdout.startswith("hidden 7168 -> 7168 - intermediate 3072 / 8 = 384 -> 384")
    assert ran.returncode == 0
    ran = process("resolve --hidden 0", PYTHONIOENCODING="ascii")
    assert "give an integer >= 1" in ran.stderr
