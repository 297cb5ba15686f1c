"""The compiled file: what it is written from, and files that cannot be used."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from moe_align import Facts, Policy, PolicyError, load_compiled, load_policy, packs
from moe_align import compile as compiling
from moe_align.layers import built_in_rules

RULES = """
language: 1
pack: mine
phase: allocate
vocabulary:
  backend: {{fast: {{aliases: [quick], implies: {{platform: rocm}}, note: new}}}}
  arch: {{mine: [gfx942]}}
defaults: {{topk: 4}}
rules:
  - id: refined
    when: {{backend: fast, hidden: {{min: 10, multiple_of: 3}}, vllm: ">=0.20"}}
    unless: {{arch: mine}}
    refine: {{blocks: [block_n], floor: 8}}
    else: {{align: {{intermediate: {{lcm: [8, group], at_least: 9}}}}}}
    rows: {{w13: 2}}
    columns: {{w2: 4}}
    experts: 1
    why: blocks
  - id: added
    when: {{backend: quick, topk: 4}}
    add: {{hidden: 3, intermediate: {{bytes: 4}}}}
    why: {why}
"""
OTHERS = """
language: 1
pack: call
phase: launch
rules:
  - {id: told, declare: {hidden_pad: exact, intermediate_pad: {floor: 2, times: 3}}}
"""
CONTRACTS = """
language: 1
pack: kernels
contracts:
  - {id: one, require: {hidden: {any_of: [3, 5]}, facts: {arch: gfx950}}, breaks: slow, why: a tile}
"""
ASKED = [
    Facts(backend="quick", hidden=12, intermediate_per_partition=7, block_n=64, arch="gfx950"),
    Facts(backend="fast", hidden=12, intermediate_per_partition=7, block_n=63, group=2, arch="gfx950"),
    Facts(backend="fast", hidden=13),
    Facts(backend="fast"),
    Facts(backend="aiter_bf16", activation="silu", tp=8),
]


@pytest.fixture
def layer(tmp_path: Path) -> Path:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "mine.yaml").write_text(RULES.format(why="a guard"))
    (folder / "call.yaml").write_text(OTHERS)
    (folder / "kernels.yaml").write_text(CONTRACTS)
    return folder


#: Words for a policy without the shipped rules.
WORDS = Path(__file__).parents[1] / "language" / "with" / "words.yaml"


def small(layer: Path) -> Policy:
    return load_policy(layer, WORDS, environ={}, built_in=False)


def write(layer: Path, policy: Policy | None = None) -> Path:
    path = layer.parent / "policy.json"
    path.write_text(compiling.compiled(policy or load_policy(layer, environ={})), encoding="utf-8")
    return path


def refusal(path: Path) -> str:
    with pytest.raises(PolicyError) as caught:
        load_compiled(path)
    return str(caught.value)


def test_a_compiled_policy_is_the_same_policy(layer: Path) -> None:
    policy, again = load_policy(layer, environ={}), load_compiled(write(layer))
    assert again.digest == policy.digest
    assert again.stack.phases == policy.stack.phases
    assert again.stack.contracts == policy.stack.contracts
    assert again.stack.layers == policy.stack.layers
    for facts in ASKED:
        assert again.resolve(facts)._replace(missed=()) == policy.resolve(facts)._replace(missed=())
        assert again.resolve(facts).trace == policy.resolve(facts).trace
        assert again.differences(facts) == policy.differences(facts)
    assert compiling.compiled(again) == compiling.compiled(policy)


def test_without_the_scanner_of_json_the_file_reads_alike(
    layer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(layer)
    digest = load_compiled(path).digest
    monkeypatch.setitem(__import__("sys").modules, "_json", None)
    assert load_compiled(path).digest == digest


AGAIN = "\n  fix: write it again with `moe-align compile`"


def test_files_that_are_no_compiled_policy(tmp_path: Path) -> None:
    path = tmp_path / "policy.json"
    missing = f"{path}:1:1: no such file [C501]\n  fix: write it with `moe-align compile`"
    assert refusal(path) == missing
    path.mkdir()
    assert refusal(path) == f"{path}:1:1: cannot be read: Is a directory [C501]\n  fix: check its rights"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "1:1: is truncated or no compiled policy [C502]"),
        (b"language: 1\n", "1:1: is truncated or no compiled policy [C502]"),
        (b'{"moe_align":\n {"format": 1', "2:14: is truncated or no compiled policy [C502]"),
        (b"{} {}", "1:4: is truncated or no compiled policy [C502]"),
        (b"\xff\xfe{}", "1:1: is truncated or no compiled policy [C502]"),
        (b"[" * 200_000, "1:1: is truncated or no compiled policy [C502]"),
        (b"[]", "1:1: is no compiled policy [C502]"),
        (b"{}", "1:1: is no compiled policy [C502]"),
        (b"null", "1:1: is no compiled policy [C502]"),
        (b'{"moe_align": {"format": 3}}', "1:1: is no compiled policy [C502]"),
        (
            b'{"moe_align": {"format": 3, "language": 9}}',
            f"1:1: has format 3 of language 9, not {packs.FORMAT} of {packs.LANGUAGE} [C503]",
        ),
        (
            b'{"moe_align": {"format": "old", "language": 1}}',
            f"1:1: has format old of language 1, not {packs.FORMAT} of {packs.LANGUAGE} [C503]",
        ),
        (b'{"moe_align": {"format": 3, "language": 1}}', "1:1: is damaged [C502]"),
        (b'{"moe_align": {"format": 3, "language": 1}, "layers": [[1]]}', "1:1: is damaged [C502]"),
    ],
)
def test_a_file_of_something_else_is_refused(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "policy.json"
    path.write_bytes(content)
    assert refusal(path) == f"{path}:{said}{AGAIN}"


def test_a_truncated_file_is_refused_wherever_it_ends(layer: Path) -> None:
    path = write(layer, small(layer))
    whole = path.read_bytes()
    for end in range(0, len(whole) - 1, 97):
        path.write_bytes(whole[:end])
        assert "is truncated or no compiled policy [C502]" in refusal(path)


def damaged(content: Any, kind: str) -> None:
    pack = next(pack for pack in content["packs"] if pack["name"] == "mine")
    if kind == "phase":
        pack["phase"] = "alocate"
    elif kind == "condition":
        pack["needs"] = [["arch"]]
    elif kind == "vocabulary":
        content["vocabulary"]["terms"]["backend"] = ["fast"]
    elif kind == "rules":
        pack["rules"] = pack["rules"].replace("refined", 'refi"ned')
    elif kind == "outcome":
        pack["rules"] = pack["rules"].replace("block_n", "block_n\\u0000").replace('"floor"', '"flor"')
        pack["rules"] = pack["rules"].replace('"form"', '"forms"')


@pytest.mark.parametrize("kind", ["phase", "condition", "vocabulary", "rules", "outcome"])
def test_a_damaged_file_is_refused_at_the_latest_by_the_first_question(kind: str, layer: Path) -> None:
    path = write(layer)
    content = json.loads(path.read_text(encoding="utf-8"))
    damaged(content, kind)
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(PolicyError, match=r"is damaged \[C502\]"):
        load_compiled(path).resolve(ASKED[0])


def stale(path: Path, name: str) -> str:
    return f"{path}:1:1: is stale: `{name}` has changed since [C504]{AGAIN}"


def test_a_file_that_is_older_than_its_rules_is_refused(layer: Path) -> None:
    path = write(layer)
    (layer / "mine.yaml").write_text(RULES.format(why="a guarD"))
    assert refusal(path) == stale(path, "mine.yaml")


def test_rules_that_cannot_be_read_any_more_have_changed(layer: Path) -> None:
    path = write(layer)
    (layer / "mine.yaml").unlink()
    (layer / "mine.yaml").mkdir()
    assert refusal(path) == stale(path, "mine.yaml")


def test_rules_that_are_elsewhere_cannot_disagree(layer: Path) -> None:
    path = write(layer)
    digest = load_compiled(path).digest
    shutil.rmtree(layer)
    assert load_compiled(path).digest == digest


def test_built_in_rules_may_lie_elsewhere_and_must_be_all_of_them(
    layer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(layer)
    elsewhere = layer.parent / "rules"
    shutil.copytree(built_in_rules(), elsewhere)
    for module in ("restore", "layers"):
        monkeypatch.setattr(f"moe_align.{module}.built_in_rules", lambda: os.fspath(elsewhere))
    load_compiled(path)
    (elsewhere / "more.yaml").write_text("language: 1\n")
    assert refusal(path) == stale(path, "more.yaml")
    (elsewhere / "more.yaml").unlink()
    (elsewhere / "vocabulary.yaml").unlink()
    assert refusal(path) == stale(path, "vocabulary.yaml")


def test_nothing_is_compiled_from_rules_that_are_gone(layer: Path) -> None:
    policy = small(layer)
    (layer / "mine.yaml").unlink()
    with pytest.raises(PolicyError, match=r"a rule file cannot be read: No such file or directory \[C505\]"):
        compiling.compiled(policy)
