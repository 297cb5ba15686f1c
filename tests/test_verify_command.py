"""`verify` and `lift` on small engines: certificates, differences as boxes, rules lifted and held again."""

from __future__ import annotations

import json
import math
import re
import shlex
import shutil
import zipfile
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from click_result import Result, run
from engine_tables import MACHINES, members
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from small_engines import BLOCKS, NEW, OLD, write

from moe_align import cli, load_policy
from moe_align.report.shapes import shape
from moe_align.shortest import shortest
from moe_align.verify import Unlinked, releases
from moe_align.verify.questions import REFUSALS
from moe_align.verify.terms import (
    BOUND,
    Term,
    differing,
    everything,
    floor_of,
    multiple_of,
    pace,
    round_up,
    size_of,
    split,
    values,
)
from moe_align.verify.traced import Explored, Trace, Traced, explore, is_proven

ROOT = Path(__file__).parent.parent
_VERSION = "__version__ = version = '{}'\n"


def moe_align(line: str) -> Result:
    return run(cli.app, shlex.split(line))


Step = tuple[str, int]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(("+", "//", "%", "*")), st.integers(1, 12)),
        st.tuples(st.just("up"), st.sampled_from((2, 32, 96, 128))),
        st.tuples(st.just("-"), st.integers(0, 5)),
        st.tuples(st.sampled_from(("above", "divides")), st.integers(2, 300)),
    ),
    max_size=5,
)


_DONE: dict[str, Callable[[Any, int], Any]] = {
    "+": lambda size, by: size + by,
    "-": lambda size, by: size - by,
    "*": lambda size, by: by * size,
    "//": lambda size, by: size // by,
    "%": lambda size, by: size % by,
}


def walked(steps: list[Step], size: Any) -> Any:
    """A function of a size as an engine would write it; works on plain and on traced sizes."""
    for sign, by in steps:
        if sign == "up":
            size = (size + by - 1) // by * by
        elif sign == "above":
            size = size + 1 if size > by else size
        elif sign == "divides":
            size = size if size % by == 0 else size + by
        else:
            size = _DONE[sign](size, by)
    return size


def explored(steps: list[Step]) -> Explored:
    return explore(lambda hidden: walked(steps, hidden), {"hidden": everything(1)}, REFUSALS)


def said(found: Explored, size: int) -> int:
    (cell,) = [cell for cell in found.cells if dict(cell.where)["hidden"] >> size & 1]
    assert not isinstance(cell.answer, str)
    assert cell.answer[0] is not None
    return values(cell.answer[0])[size]


@given(STEPS, st.lists(st.integers(1, BOUND), min_size=1, max_size=20))
def test_a_function_of_a_size_is_what_its_terms_say(steps: list[Step], sizes: list[int]) -> None:
    found = explored(steps)
    assert [said(found, size) for size in sizes] == [walked(steps, size) for size in sizes]


@given(STEPS, STEPS, st.integers(BOUND + 1, 10**9))
def test_what_is_proven_holds_beyond_the_bound(one: list[Step], other: list[Step], size: int) -> None:
    first, second = explored(one), explored(other)
    periods = [pace(cell.answer[0]).period for cell in second.cells if cell.answer[0] is not None]
    seen = [
        (first_cell.answer[0], second_cell.answer[0], both)
        for first_cell, second_cell in product(first.cells, second.cells)
        if (both := dict(first_cell.where)["hidden"] & dict(second_cell.where)["hidden"])
    ]
    equal = not any(differing(mine, theirs) & both for mine, theirs, both in seen)
    common = Explored(first.cells, first.compared | second.compared)
    if equal and is_proven(common, periods):
        assert walked(one, size) == walked(other, size)


@given(STEPS, st.integers(1, 2000))
def test_a_term_gains_the_same_with_each_period(steps: list[Step], size: int) -> None:
    for cell in explored(steps).cells:
        assert not isinstance(cell.answer, str)
        assert cell.answer[0] is not None
        period, gain = pace(cell.answer[0])
        if size + period <= BOUND:
            assert values(cell.answer[0])[size + period] == values(cell.answer[0])[size] + gain


def traced(number: int = 7) -> Any:
    return Traced(number, "hidden", Trace())


@pytest.mark.parametrize(
    "use",
    [
        lambda size: {size: 1},
        lambda size: [0] * 9 if size in {7} else 0,
        lambda size: range(9)[size],
        lambda size: int(size),
        lambda size: size / 2,
        lambda size: 8 / size,
        lambda size: size**2,
        lambda size: size & 1,
        lambda size: size * size,
        lambda size: 64 // size,
        lambda size: 64 % size,
        lambda size: size // 0,
        lambda size: size + 0.5,
        lambda size: math.gcd(size, 8),
    ],
)
def test_what_cannot_be_followed_ends_the_run(use: Callable[[Any], object]) -> None:
    with pytest.raises(Unlinked):
        use(traced())


def test_a_size_compares_as_an_integer_does() -> None:
    size = traced()
    assert size == 7
    assert size != 8
    assert (size < 8, size <= 6, size > 6, size >= 8, bool(size)) == (True, False, True, False, True)
    assert (size == "7", size != "7") == (False, True)
    assert [(size + 1).number, (1 - size).number, (-size).number] == [8, -6, -7]
    assert len(size.trace.tests) == 7


def test_sizes_that_meet_cannot_be_told_apart() -> None:
    with pytest.raises(Unlinked, match="depends on the other"):
        size_of(("+", "hidden", "intermediate"))
    with pytest.raises(Unlinked):
        explore(
            lambda hidden, moe_tp: hidden if hidden < moe_tp else 0,
            {"hidden": everything(1), "moe_tp": everything(1)},
            REFUSALS,
        )


def test_multiples_and_floors_are_recognised() -> None:
    assert multiple_of(round_up("hidden", 96), everything(1)) == 96
    assert multiple_of(("//", ("*", "hidden", 2), 2), everything(1)) == 1
    assert multiple_of(("+", "hidden", 2), everything(1)) is None
    assert multiple_of(64, everything(1)) is None
    assert floor_of(("*", ("//", "pad", 64), 64)) == (64, 1)
    assert floor_of(("*", "pad", 2)) == (1, 2)
    assert floor_of(("+", "pad", 1)) is None
    assert split([everything(0)], 0) == [everything(0)]
    assert everything(2, step=2).bit_count() == BOUND // 2


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xyz"), st.integers(0, 2)), max_size=6),
    st.data(),
)
def test_the_list_gives_every_point_its_outcome(
    boxes: list[tuple[str, str, int]], data: st.DataObject
) -> None:
    points = [{"one": one, "two": two, "three": three} for one in "abc" for two in "xyz" for three in "12"]
    outcomes: list[object] = [None] * len(points)
    for one, two, wanted in boxes:
        for number, point in enumerate(points):
            if point["one"] == one and point["two"] != two:
                outcomes[number] = wanted
    nothing = data.draw(st.sampled_from((None, "none such")))
    rules = shortest(points, outcomes, nothing)
    for point, outcome in zip(points, outcomes, strict=True):
        matched = [said for when, said, _ in rules if all(point[key] in held for key, held in when.items())]
        assert (matched[0] if matched else nothing) == outcome
    assert sorted(number for _, _, numbers in rules for number in numbers) == [
        number for number, outcome in enumerate(outcomes) if outcome != nothing
    ]


def engine(
    root: Path, release: str, modules: Mapping[str, str] = NEW, changed: Mapping[str, str] | None = None
) -> Path:
    """A small engine that says it is `release`; `changed` replaces text in all of its modules."""
    texts = dict(modules)
    for old, new in (changed or {}).items():
        texts = {name: text.replace(old, new) for name, text in texts.items()}
    write(texts, root)
    (root / "vllm" / "_version.py").write_text(_VERSION.format(release), encoding="utf-8")
    return root


@pytest.fixture
def words(tmp_path: Path) -> Path:
    """The built-in vocabulary alone."""
    folder = tmp_path / "words"
    folder.mkdir()
    for file in (ROOT / "rules").glob("vocabulary*.yaml"):
        shutil.copy(file, folder)
    return folder


def lifted(tree: Path, words: Path, into: Path) -> Path:
    found = moe_align(f"lift vllm --tree {tree} --alone --rules {words} --out {into}/")
    assert found.exit_code == 0, found.stderr
    return into


def test_what_is_lifted_is_equal_alone(tmp_path: Path, words: Path) -> None:
    tree = engine(tmp_path / "e", "0.33.0")
    rules = lifted(tree, words, tmp_path / "lifted")
    found = moe_align(f"verify vllm --tree {tree} --alone --rules {rules} --rules {words}")
    assert (found.exit_code, found.stderr) == (0, "")
    assert re.search(r"equal on ([\d,]+) of \1 points", found.stdout)
    assert "which proves the rest" in found.stdout
    text = (rules / "lifted_mxfp4.yaml").read_text(encoding="utf-8")
    assert 'covers: {vllm: "==0.33.0"}' in text
    assert text.count("- id: ") <= 7
    assert 'relu: {aliases: [{name: "RELU", engine: vllm, vllm: ">=0.33.0"}]}' in text
    assert "  # vllm/model_executor/layers/fused_moe/oracle/mxfp4.py:" in text


def test_every_table_can_be_lifted_alone(tmp_path: Path, words: Path) -> None:
    tree = engine(tmp_path / "e", "0.33.0")
    for table in ("mxfp4", "unquantized", "launch", "transports"):
        found = moe_align(f"lift vllm --tree {tree} --alone --rules {words} --table {table}")
        assert found.exit_code == 0
        (tmp_path / f"{table}.yaml").write_text(found.stdout, encoding="utf-8")
        load_policy(tmp_path / f"{table}.yaml", words, built_in=False, environ={})


def test_what_a_class_of_blocks_demands_is_lifted_and_held(tmp_path: Path, words: Path) -> None:
    tree = engine(tmp_path / "e", "0.33.0", {**NEW, **BLOCKS})
    rules = lifted(tree, words, tmp_path / "lifted")
    online, codecs = rules / "lifted_online_blocks.yaml", rules / "lifted_block_codecs.yaml"
    assert "\n    align: 64\n" in online.read_text(encoding="utf-8")
    text = codecs.read_text(encoding="utf-8")
    demands = "{hidden: 96, intermediate: 64}", "{hidden: 256, intermediate: 64}"
    assert all(f"\n    require: {demand}\n    error: NotImplementedError\n" in text for demand in demands)
    verify = f"verify vllm --tree {tree} --alone --rules {rules} --rules {words}"
    assert moe_align(verify).exit_code == 0
    for right, wrong in (("hidden: 96", "hidden: 48"), ("error: NotImpl", "error: Other")):
        codecs.write_text(text.replace(right, wrong, 1), encoding="utf-8")
        found = moe_align(verify)
        assert found.exit_code == 1
        assert found.stdout.count("  where: ") >= 1
        assert "block-codecs: vLLM 0.33.0 makes it refused (NotImplementedError)" in found.stdout


def test_a_class_that_refuses_more_than_what_is_cut(tmp_path: Path, words: Path) -> None:
    """Multiples from some size on: no demand of the language says that in one."""
    changed = {"or intermediate % 64": "or intermediate % 64 or intermediate < 256"}
    tree = engine(tmp_path / "e", "0.33.0", {**NEW, **BLOCKS}, changed)
    found = moe_align(f"lift vllm --tree {tree} --alone --rules {words} --table block-codecs")
    assert found.exit_code == 2
    assert "told apart by what divides them [E922]" in found.stderr


def test_a_wrong_multiple_in_one_arch_is_one_box(tmp_path: Path, words: Path) -> None:
    tree = engine(tmp_path / "e", "0.33.0")
    rules = lifted(tree, words, tmp_path / "lifted")
    (rules / "planted.yaml").write_text(
        "language: 1\npack: planted\nphase: allocate\nbefore: [lifted-mxfp4-0-33-0]\n"
        "for: {engine: vllm, scheme: mxfp4, arch: gfx90a, activation: silu, method: gpt_oss}\n"
        "rules:\n  - id: wrong\n    align: 48\n    why: planted\n    source: vllm#1\n",
        encoding="utf-8",
    )
    line = f"verify vllm --tree {tree} --alone --rules {rules} --rules {words}"
    found = moe_align(line)
    assert found.exit_code == 1
    assert re.findall("where: (.*)", found.stdout) == ["activation: silu · arch: gfx90a · method: gpt_oss"]
    place = "vllm/model_executor/layers/fused_moe/oracle/mxfp4.py"
    assert re.search(
        rf"planted\.yaml:7:5: `planted/wrong` mxfp4: .* hidden × 16 .*\({place}:\d+\)", found.stdout
    )
    assert "the rules say hidden × 48 · intermediate × 48 [E910]" in found.stdout
    plain = json.loads(moe_align(f"{line} --json").stdout)
    Draft202012Validator(shape("verify-vllm")).validate(plain)
    assert (plain["fails"], plain["holds"], plain["of"] - plain["equal"]) == (True, False, 2)
    assert len(plain["findings"][0]["where"]) == 1
    assert moe_align(f"{line} --format github").stdout.startswith("::error file=")
    assert json.loads(moe_align(f"{line} --format sarif").stdout)["version"] == "2.1.0"


def test_a_wrong_threshold_is_the_sizes_between(tmp_path: Path, words: Path) -> None:
    narrow = {
        "vllm/model_executor/layers/fused_moe/unquantized_fused_moe_method.py": """
            from vllm.utils.math_utils import round_up
            class UnquantizedFusedMoEMethod:
                def maybe_roundup_sizes(self, hidden, intermediate, act_dtype, moe_parallel_config):
                    return hidden, round_up(intermediate, 64 if intermediate <= 200 else 128)
            """
    }
    tree = engine(tmp_path / "e", "0.33.0", {**NEW, **narrow})
    rules = lifted(tree, words, tmp_path / "lifted")
    file = rules / "lifted_unquantized.yaml"
    text = file.read_text(encoding="utf-8")
    assert "id: from-201\n    when: {intermediate_per_partition: {min: 201}}" in text
    assert moe_align(f"verify vllm --tree {tree} --alone --rules {rules} --rules {words}").exit_code == 0
    file.write_text(text.replace("min: 201", "min: 301"), encoding="utf-8")
    found = moe_align(f"verify vllm --tree {tree} --alone --rules {rules} --rules {words}")
    assert re.findall("where: (.*)", found.stdout) == ["intermediate_per_partition: 201..300"]


def test_pads_that_are_told_otherwise_are_found(tmp_path: Path, words: Path) -> None:
    tree = engine(tmp_path / "e", "0.33.0")
    rules = lifted(tree, words, tmp_path / "lifted")
    file = rules / "lifted_launch.yaml"
    text = file.read_text(encoding="utf-8")
    assert "intermediate_pad: {floor: 1, times: 2}" in text
    file.write_text(
        text.replace("intermediate_pad: {floor: 1, times: 2}", "intermediate_pad: zero"), encoding="utf-8"
    )
    found = moe_align(f"verify vllm --tree {tree} --alone --rules {rules} --rules {words}")
    assert "intermediate_pad as it is, × 2" in found.stdout
    assert "intermediate_pad = 0 [E910]" in found.stdout
    assert re.findall("where: (.*)", found.stdout) == [
        "activation: silu, situ · backend: aiter, aiter_bf16 · moe_tp: 1"
    ]


def test_a_name_that_the_vocabulary_lacks_is_told(tmp_path: Path, words: Path) -> None:
    tree = engine(tmp_path / "e", "0.33.0")
    found = moe_align(f"verify vllm --tree {tree}")
    place = "vllm/model_executor/layers/fused_moe/activation.py:6"
    assert f"vLLM 0.33.0 has the activation `RELU` for mxfp4 ({place})" in found.stdout
    assert re.search(r"left out: [\d,]+ points with a name that the vocabulary lacks", found.stdout)


def test_names_of_schemes_that_nothing_is_asked_of(tmp_path: Path, words: Path) -> None:
    """FP8 has no function here, but its enumeration is read; what another scheme knows stays its own."""
    fp8 = """
        from enum import Enum
        class Fp8MoeBackend(Enum):
            DEEPGEMM = "D"
            AITER_MXFP4_BF16 = "A"
            ODD = "O"
        """
    tree = engine(
        tmp_path / "e", "0.33.0", {**NEW, "vllm/model_executor/layers/fused_moe/oracle/fp8.py": fp8}
    )
    found = moe_align(f"verify vllm --tree {tree}")
    assert (
        "has the backend `ODD` for fp8_block, mxfp8 (vllm/model_executor/layers/fused_moe/oracle/fp8.py:6)"
        in (found.stdout)
    )
    rules = lifted(tree, words, tmp_path / "lifted")
    assert "odd" not in (rules / "lifted_mxfp4.yaml").read_text(encoding="utf-8")


def test_an_answer_that_no_rule_can_say(tmp_path: Path, words: Path) -> None:
    """The OCP MX class of this old engine adds 2: that is no multiple."""
    tree = engine(tmp_path / "e", "0.18.1", OLD)
    found = moe_align(f"lift vllm --tree {tree} --alone --rules {words} --out {tmp_path}/lifted/")
    assert found.exit_code == 2
    assert "quark_moe.py" in found.stderr
    assert found.stderr.strip().split("\n")[0].endswith("[E922]")
    said = moe_align(f"verify vllm --tree {tree}")
    assert said.exit_code == 1
    assert "intermediate (((intermediate_per_partition + 2) * 2) // 2)" in said.stdout


_UNQUANTIZED = "vllm/model_executor/layers/fused_moe/unquantized_fused_moe_method.py"


def rounding(body: str) -> dict[str, str]:
    """An engine whose unquantized layers are rounded by these lines."""
    head = [
        "from vllm.utils.math_utils import round_up",
        "class UnquantizedFusedMoEMethod:",
        "    def maybe_roundup_sizes(self, hidden, intermediate, act_dtype, moe_parallel_config):",
    ]
    return {**NEW, _UNQUANTIZED: "\n".join([*head, *(f"        {line}" for line in body.split("\n"))])}


def equal(tree: Path, words: Path, rules: Path) -> bool:
    return moe_align(f"verify vllm --tree {tree} --alone --rules {rules} --rules {words}").exit_code == 0


def test_a_refusal_is_lifted_as_one(tmp_path: Path, words: Path) -> None:
    body = "if intermediate > 512:\n    raise ValueError\nreturn round_up(hidden, 64), intermediate"
    tree = engine(tmp_path / "e", "0.33.0", rounding(body))
    rules = lifted(tree, words, tmp_path / "lifted")
    text = (rules / "lifted_unquantized.yaml").read_text(encoding="utf-8")
    assert "    reject: the engine refuses these sizes\n    error: ValueError\n" in text
    assert "    align: {hidden: 64}\n" in text
    assert equal(tree, words, rules)
    changed = text.replace("error: ValueError", "error: NotImplementedError")
    (rules / "lifted_unquantized.yaml").write_text(changed, encoding="utf-8")
    found = moe_align(f"verify vllm --tree {tree} --alone --rules {rules} --rules {words}")
    assert "makes it refused (ValueError)" in found.stdout
    assert "the rules say refused (NotImplementedError) [E910]" in found.stdout


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return hidden, intermediate + 2", "intermediate_per_partition comes to"),
        ("return hidden, 512", "intermediate_per_partition comes to 512"),
        (
            "return hidden, intermediate if intermediate % 3 else intermediate // 3",
            "sizes are told apart by what divides them",
        ),
    ],
)
def test_what_the_language_cannot_say(tmp_path: Path, words: Path, body: str, said: str) -> None:
    tree = engine(tmp_path / "e", "0.33.0", rounding(body))
    found = moe_align(f"lift vllm --tree {tree} --alone --rules {words} --table unquantized")
    assert found.exit_code == 2
    assert re.search(rf"{_UNQUANTIZED}:\d+: the rule language cannot say .*{said}.* \[E922\]", found.stderr)
    assert moe_align(f"verify vllm --tree {tree}").exit_code == 1


@pytest.mark.parametrize(
    ("pads", "said"),
    [
        ("intermediate_pad=7", "a pad of 7, whatever it is"),
        ("intermediate_pad=pad + 1", "a pad that is neither floored nor multiplied"),
    ],
)
def test_pads_that_the_language_cannot_say(tmp_path: Path, words: Path, pads: str, said: str) -> None:
    tree = engine(tmp_path / "e", "0.33.0", changed={"intermediate_pad=pad * times": pads})
    found = moe_align(f"lift vllm --tree {tree} --alone --rules {words} --table launch")
    assert found.exit_code == 2
    assert said in found.stderr
    assert "intermediate_pad" in moe_align(f"verify vllm --tree {tree}").stdout


def test_a_pad_that_is_not_passed(tmp_path: Path, words: Path) -> None:
    changed = {"fused_moe(x, hidden_pad=hidden_pad, intermediate_pad=intermediate_pad)": "fused_moe(x)"}
    tree = engine(tmp_path / "e", "0.16.0", OLD, changed)
    found = moe_align(f"lift vllm --tree {tree} --alone --rules {words} --table launch")
    assert "declare: {hidden_pad: absent, intermediate_pad: absent}" in found.stdout
    assert "hidden_pad not passed" not in moe_align(f"verify vllm --tree {tree}").stdout
    later = moe_align(f"verify vllm --tree {tree} --as 0.33.0").stdout
    assert "makes it hidden_pad not passed · intermediate_pad not passed" in later


def test_models_that_set_the_pad_by_themselves(tmp_path: Path, words: Path) -> None:
    models = {
        "vllm/models/minimax_m3/amd/model.py": "experts = make(hidden=1, intermediate_pad=0)",
        "vllm/models/deepseek_v41/amd/model.py": "class M:\n    experts_intermediate_pad = 0",
        "vllm/models/qwen3_moe/amd/model.py": "x = y = 0\nexperts = make(intermediate_pad=pad)",
    }
    tree = engine(tmp_path / "e", "0.33.0", {**NEW, **models})
    rules = lifted(tree, words, tmp_path / "lifted")
    text = (rules / "lifted_launch.yaml").read_text(encoding="utf-8")
    assert "model_type: {not: [deepseek_v41, minimax_m3]}" in text
    assert "intermediate_pad: zero" in text
    assert equal(tree, words, rules)


def test_a_rounding_that_asks_first_is_one_multiple(tmp_path: Path, words: Path) -> None:
    by = "64 // act_dtype.itemsize"
    rounded = f"round_up(hidden_size, {by})"
    asking = {f"return {rounded}": f"return hidden_size if hidden_size % ({by}) == 0 else {rounded}"}
    tree = engine(tmp_path / "e", "0.33.0", changed=asking)
    rules = lifted(tree, words, tmp_path / "lifted")
    text = (rules / "lifted_transports.yaml").read_text(encoding="utf-8")
    assert "align: {hidden: {bytes: 64}}" in text
    assert "align: {hidden: {snap: [4096]}}" in text
    assert equal(tree, words, rules)


@pytest.mark.parametrize(
    "rounded",
    ["4096 if hidden_size > 64 else round_up(hidden_size, 32)", "hidden_size if hidden_size > 64 else 64"],
)
def test_a_transport_that_the_language_cannot_say(tmp_path: Path, words: Path, rounded: str) -> None:
    changed = {"return round_up(hidden_size, 64 // act_dtype.itemsize)": f"return {rounded}"}
    tree = engine(tmp_path / "e", "0.33.0", changed=changed)
    found = moe_align(f"lift vllm --tree {tree} --alone --rules {words} --table transports")
    assert found.exit_code == 2
    assert "hidden comes to " in found.stderr


def test_rules_are_held_for_all_that_is_open(tmp_path: Path, words: Path) -> None:
    """One model, and sizes that are told apart by what divides them."""
    tree = engine(tmp_path / "e", "0.33.0", rounding("return hidden, round_up(intermediate, 32)"))
    rules = lifted(tree, words, tmp_path / "lifted")
    (rules / "planted.yaml").write_text(
        "language: 1\npack: planted\nphase: allocate\nbefore: [lifted-unquantized-0-33-0]\n"
        "for: {engine: vllm, scheme: unquantized}\n"
        "rules:\n  - id: odd-model\n"
        "    when: {model_type: mixtral, intermediate_per_partition: {multiple_of: 96}}\n"
        "    align: {intermediate: {multiple: 32, at_least: 128}}\n    why: planted\n    source: vllm#1\n",
        encoding="utf-8",
    )
    found = moe_align(f"verify vllm --tree {tree} --alone --rules {rules} --rules {words}")
    assert found.exit_code == 1
    assert "`planted/odd-model` unquantized" in found.stdout
    assert "--intermediate-per-partition 96" in found.stdout


def wheel_of(tree: Path, path: Path, version: str | None = "0.33.0") -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for file in tree.rglob("*.py"):
            archive.write(file, file.relative_to(tree).as_posix())
        if version:
            archive.writestr("vllm-1.dist-info/METADATA", f"Metadata-Version: 2.1\nVersion: {version}\n")
    return path


def test_a_wheel_is_read_and_leaves_nothing(
    tmp_path: Path, words: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = engine(tmp_path / "e", "0.33.0")
    rules = lifted(tree, words, tmp_path / "lifted")
    wheel = wheel_of(tree, tmp_path / "vllm-0.33.0.whl")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    found = moe_align(f"verify vllm --wheel {wheel} --alone --rules {rules} --rules {words}")
    assert found.exit_code == 0, found.stdout
    assert list((tmp_path / "here").iterdir()) == []
    without = wheel_of(tree, tmp_path / "plain.whl", None)
    assert moe_align(f"verify vllm --wheel {without} --alone --rules {rules} --rules {words}").exit_code == 0
    said = moe_align(f"verify vllm --tree {tree / 'vllm'} --alone --rules {rules} --rules {words}")
    assert said.exit_code == 0


def test_what_is_installed_is_asked(tmp_path: Path, words: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = engine(tmp_path / "e", "0.33.0")
    (tree / "vllm" / "__init__.py").write_text("raise RuntimeError('imported')\n", encoding="utf-8")
    rules = lifted(tree, words, tmp_path / "lifted")
    # Beside it lies what it imports: that is no part of the engine.
    (tree / "aiter").mkdir()
    (tree / "aiter" / "fused_moe.py").write_text("raise RuntimeError('imported')\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tree))
    found = moe_align(f"verify vllm --alone --rules {rules} --rules {words}")
    assert found.exit_code == 0, found.stdout + found.stderr


def refusals(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """Command lines, each with the code that it must end with."""
    tree = engine(tmp_path / "e", "0.33.0")
    wheel = wheel_of(tree, tmp_path / "whole.whl")
    cut = tmp_path / "cut.whl"
    cut.write_bytes(wheel.read_bytes()[:-400])
    torn = bytearray(wheel.read_bytes())
    torn[2000:2060] = bytes(60)
    (tmp_path / "torn.whl").write_bytes(torn)
    other = tmp_path / "other.whl"
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("numpy/core.py", "")
    yield f"--wheel {wheel} --tree {tree}", "E901"
    yield f"--wheel {tmp_path}/none.whl", "E902"
    yield f"--wheel {other}", "E903"
    yield f"--wheel {cut}", "E904"
    yield f"--wheel {tmp_path}/torn.whl", "E904"
    yield f"--tree {tmp_path}", "E905"
    unknown = engine(tmp_path / "unknown", "0.33.0")
    (unknown / "vllm" / "_version.py").unlink()
    yield f"--tree {unknown}", "E907"
    yield f"--tree {tree} --release soon", "E907"
    yield f"--tree {tree} --release 0.99.0", "E908"
    yield f"--tree {tree} --release 0.1.0", "E908"
    yield f"--tree {tree} --as 0.98.0", "E908"
    bare = write({"vllm/_version.py": _VERSION.format("0.33.0")}, tmp_path / "bare")
    yield f"--tree {bare}", "E909"
    yield f"--tree {tree} --format yaml", "U040"


def test_what_cannot_be_asked_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for line, code in refusals(tmp_path):
        found = moe_align(f"verify vllm {line}")
        assert found.exit_code == 2, line
        assert found.stdout == ""
        if code != "U040":
            assert found.stderr.split("\n")[0].endswith(f"[{code}]"), line
        assert "fix: " in found.stderr or code == "U040"
    monkeypatch.setattr("sys.path", [])
    found = moe_align("verify vllm")
    assert (found.exit_code, found.stdout) == (2, "")
    assert "`vllm` is not installed here [E906]" in found.stderr


def test_a_size_used_in_a_way_that_cannot_be_followed(tmp_path: Path) -> None:
    tree = engine(
        tmp_path / "e", "0.33.0", changed={"return -(-n // by) * by": "return int(n / by + 0.5) * by"}
    )
    found = moe_align(f"verify vllm --tree {tree}")
    assert found.exit_code == 2
    assert (
        "vLLM 0.33.0 cannot be asked: a size is used in a way that cannot be followed [E909]" in found.stderr
    )


@pytest.mark.parametrize("command", ["verify", "lift"])
def test_a_function_that_wants_more_than_it_is_given(command: str, tmp_path: Path) -> None:
    """As one of a release to come may: that is no bug of ours, and nothing is said of it."""
    changed = {"intermediate, act_dtype, moe_parallel_config)": "intermediate, act_dtype, parallel, new)"}
    tree = engine(tmp_path / "e", "0.33.0", changed=changed)
    found = moe_align(f"{command} vllm --tree {tree}")
    assert found.exit_code == 2
    assert "vLLM 0.33.0 cannot be asked: TypeError: " in found.stderr
    assert "missing 1 required positional argument: 'new' [E909]" in found.stderr


def test_lift_writes_over_nothing(tmp_path: Path, words: Path) -> None:
    tree = engine(tmp_path / "e", "0.33.0")
    line = f"lift vllm --tree {tree} --alone --rules {words}"
    several = moe_align(line)
    assert several.exit_code == 2
    assert "4 packs, and standard output takes one [E920]" in several.stderr
    unknown = moe_align(f"{line} --table mxfp5")
    assert unknown.exit_code == 2
    assert "fix: write `mxfp4`" in unknown.stderr
    file = tmp_path / "one.yaml"
    assert moe_align(f"{line} --table mxfp4 --out {file}").exit_code == 0
    before = file.read_text(encoding="utf-8")
    again = moe_align(f"{line} --table launch --out {file}")
    assert again.exit_code == 2
    assert "is there already [E921]" in again.stderr
    assert file.read_text(encoding="utf-8") == before


def test_the_recipe_for_a_new_release(tmp_path: Path, words: Path) -> None:
    """0.33 treated as unknown: rules know 0.32, and 0.33 has a new backend and another multiple."""
    old = engine(tmp_path / "old", "0.32.0")
    known = lifted(old, words, tmp_path / "known")
    for file in known.iterdir():
        text = file.read_text(encoding="utf-8")
        file.write_text(text.replace('"==0.32.0"', '">=0.32,<0.33"'), encoding="utf-8")
    changed = {
        'TRITON = "T"\n        def mxfp4': 'TRITON = "T"\n            FRESH = "F"\n        def mxfp4',
        "by = 8 if": "by = 24 if",
    }
    new = engine(tmp_path / "new", "0.33.0", changed=changed)
    vocabulary = words / "vocabulary.yaml"
    text = re.sub(r'vllm: "?0\.33\.0"?', 'vllm: "0.32.0"', vocabulary.read_text(encoding="utf-8"))
    vocabulary.write_text(text, encoding="utf-8")
    verify = f"verify vllm --tree {new} --alone --rules {known} --rules {words}"

    unknown = moe_align(verify)
    assert unknown.exit_code == 2
    assert "vLLM 0.33.0 is newer than every release that the rules cover [E908]" in unknown.stderr
    assert "--as 0.32.0" in unknown.stderr
    assert "docs/verify.md" in unknown.stderr

    against = moe_align(f"{verify} --as 0.32.0")
    assert against.exit_code == 1
    assert "vLLM 0.33.0 has the backend `FRESH` for mxfp4" in against.stdout
    assert "hidden × 24 · intermediate × 24" in against.stdout
    assert "the rules say hidden × 8 · intermediate × 8 [E910]" in against.stdout

    for file in known.iterdir():
        file.write_text(file.read_text(encoding="utf-8").replace("<0.33", "<0.34"), encoding="utf-8")
    raised = moe_align(verify)
    assert raised.exit_code == 1
    assert raised.stdout.count("[E910]") == against.stdout.count("[E910]")

    known_rules = f"--alone --rules {known} --rules {words}"
    found = moe_align(f"lift vllm --tree {new} {known_rules} --table mxfp4 --out {tmp_path}/new.yaml")
    assert found.exit_code == 0, found.stderr
    text = (tmp_path / "new.yaml").read_text(encoding="utf-8")
    assert 'fresh: {aliases: [{name: "FRESH", engine: vllm, vllm: ">=0.33.0"}]}' in text
    with_new = f"--alone --rules {tmp_path}/new.yaml --rules {known} --rules {words}"
    done = moe_align(f"verify vllm --tree {new} {with_new}")
    assert done.exit_code == 0, done.stdout
    before = moe_align(f"verify vllm --tree {old} {with_new}")
    assert before.exit_code == 0, before.stdout


def rows() -> dict[str, list[str]]:
    text = (ROOT / "docs" / "certificates.md").read_text(encoding="utf-8")
    lines = [line.strip("| ").split(" | ") for line in text.split("\n") if re.match(r"\| \d", line)]
    return {line[0]: line[1:] for line in lines}


def test_there_is_a_certificate_of_every_release() -> None:
    assert list(rows()) == list(releases())
    for columns in rows().values():
        equal = re.fullmatch(r"([\d,]+) of ([\d,]+), all sizes", columns[-1])
        assert equal
        assert equal[1] == equal[2]


def test_the_newest_certificate_counts_what_was_kept() -> None:
    """As many points as the kept answers have classes, backends, activations and machines."""
    newest = list(releases())[-1]
    kept: dict[str, set[str]] = {}
    for row in members()[newest]:
        kept.setdefault(row["enumeration"], set()).add(row["canonical"])
    machines = len(MACHINES["engine"])
    mxfp4 = 4 * len(kept["backend.mxfp4"]) * len(kept["activation"]) * machines
    unquantized = len(kept["backend.unquantized"]) * machines
    assert rows()[newest][:2] == [f"{mxfp4:,}", f"{unquantized:,}"]


AITER = {
    "aiter/__init__.py": "",
    "aiter/_version.py": "__version__ = '0.1.7'",
    "aiter/fused_moe.py": """
        def fused_moe(x, dtype, use_g1u1, hidden_pad, intermediate_pad):
            assert dtype in [dtypes.fp16, dtypes.bf16]
            twice = intermediate_pad // 64 * 64
            stage1(x, n_pad_zeros=intermediate_pad // 64 * 64 * (2 if use_g1u1 else 1))
            stage1(x, k_pad_zeros=hidden_pad // 128 * 128)
            stage2(x, n_pad_zeros=hidden_pad - hidden_pad // 1, k_pad_zeros=intermediate_pad // 128 * 128)
        BOUND = int(os.getenv("GPTOSS_SWIGLU_MXFP4_BF16_BOUND", "256"))
        """,
    "aiter/ops/shuffle.py": """
        def shuffle_weight(x, layout=(16, 16)):
            IN, IK = layout
            BK = IK * 2
            BN = IN
        """,
    "aiter_meta/csrc/ck_gemm_moe_2stages_codegen/gemm_moe_ck2stages_common.py": """
        a16w16_gemm1_kernels_list: dict = {
            0: kernelInstanceGEMM1(256, 32, 64, 128, 1, 4, 1),
            1: kernelInstanceGEMM1(256, 32, 64, 64, 1, 4, 1),
        }
        a8w8_gemm1_kernels_list = {0: kernelInstanceGEMM1(256, 32, 64, 64, 1, 4, 1)}
        """,
    "aiter/fhmoe.py": "SHAPE = (7168, 384)",
}  # fmt: skip


def probed(root: Path) -> dict[tuple[str, str], str]:
    plain = json.loads(moe_align(f"verify aiter --tree {root} --json").stdout)
    Draft202012Validator(shape("verify-aiter")).validate(plain)
    return {(one["contract"].partition("/")[2], one["meant"]): one["verdict"] for one in plain["probes"]}


def test_probes_say_what_holds_and_what_has_changed(tmp_path: Path) -> None:
    found = probed(write(AITER, tmp_path))
    assert found["ck-tile-stage1-pads", "intermediate_pad floored to 64, then doubled"] == "holds"
    assert found["ck-tile-stage1-pads", "hidden_pad floored to 128"] == "holds"
    assert found["ck-tile-stage2-pads", "hidden_pad floored to 64"] == "changed"
    assert found["output-type", "writes BF16 or FP16"] == "holds"
    assert found["flydsl-swiglu-many-tokens", "stacked SwiGLU changes kernels at 256 tokens"] == "holds"
    assert found["ck-bf16", "stage 1 steps by 64"] == "holds"
    assert found["ck-8bit-hidden", "stage 1 steps by 128"] == "changed"
    assert found["shuffle-8bit", "pieces of 32 values"] == "holds"
    assert found["fhmoe-i384", "one shape, DeepSeek-V4-Pro on 8 ranks"] == "changed"
    assert found["v2-gemm2", "sizes up to 8192"] == "not found"


def test_a_changed_number_fails_and_an_absent_kernel_does_not(tmp_path: Path) -> None:
    root = write(AITER, tmp_path)
    found = moe_align(f"verify aiter --tree {root}")
    assert found.exit_code == 1
    assert found.stdout.strip().split("\n")[-1].startswith("AITER 0.1.7: ")
    assert "changed    aiter-contracts/fhmoe-i384 " in found.stdout
    assert "no longer says 6 (aiter/fhmoe.py:1)" in found.stdout
    notes = moe_align(f"verify aiter --tree {root} --format github").stdout.split("\n")
    assert {line.partition(" ")[0] for line in notes if line} == {"::error", "::notice"}
    (root / "aiter" / "fhmoe.py").unlink()
    table = root / "aiter_meta/csrc/ck_gemm_moe_2stages_codegen/gemm_moe_ck2stages_common.py"
    table.unlink()
    fused = root / "aiter" / "fused_moe.py"
    text = fused.read_text(encoding="utf-8").replace("hidden_pad - hidden_pad // 1", "hidden_pad // 64 * 64")
    fused.write_text(text, encoding="utf-8")
    assert moe_align(f"verify aiter --tree {root}").exit_code == 0


@pytest.mark.parametrize(
    ("pads", "verdict"),
    [
        ("n_pad_zeros=intermediate_pad // 64 * 128", "holds"),
        ("n_pad_zeros=(intermediate_pad // 64 + intermediate_pad // 64) * 64", "holds"),
        ("n_pad_zeros=floored(intermediate_pad)", "changed"),
        ("n_pad_zeros=intermediate_pad // tile * 64", "changed"),
        ("n_pad_zeros=intermediate_pad // 0", "changed"),
        ("n_pad_zeros=intermediate_pad // 64.0", "changed"),
        ("n_pad_zeros=tokens", "not found"),
    ],
)
def test_a_pad_is_known_by_what_it_comes_to(tmp_path: Path, pads: str, verdict: str) -> None:
    root = write({**AITER, "aiter/fused_moe.py": f"stage1(x, {pads})"}, tmp_path)
    assert probed(root)["ck-tile-stage1-pads", "intermediate_pad floored to 64, then doubled"] == verdict


def test_every_probe_names_a_contract() -> None:
    from moe_align.verify.aiter import PROBES

    addresses = {contract.address for contract in load_policy(environ={}).stack.all_contracts()}
    assert {one.contract for one in PROBES} <= addresses


def test_the_other_aiter_is_recognised(tmp_path: Path) -> None:
    (tmp_path / "aiter").mkdir()
    (tmp_path / "aiter" / "__init__.py").write_text("", encoding="utf-8")
    found = moe_align(f"verify aiter --tree {tmp_path}")
    assert found.exit_code == 2
    assert "another library of that name, not AMD's kernels [E912]" in found.stderr
    assert "amd-aiter" in found.stderr


def test_terms_say_what_they_are() -> None:
    term: Term = ("*", ("//", "hidden", 2), 2)
    assert size_of(term) == "hidden"
    assert size_of(3) is None
