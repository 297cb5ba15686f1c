"""What a change of rules changes: regions, classes, models, and nothing where nothing does."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from moe_align import Facts, Policy, load_policy
from moe_align.cache import cached_models
from moe_align.diff import Difference, diff
from moe_align.report.diff import diff_findings, diff_plain, diff_text, receipt

ROOT = Path(__file__).parents[2]


def changed(tmp_path: Path, file: str, old: str, new: str) -> Policy:
    """The shipped policy with one text replaced."""
    rules = tmp_path / "rules"
    shutil.copytree(ROOT / "rules", rules)
    path = rules / file
    said = path.read_text(encoding="utf-8")
    assert said.count(old) == 1
    path.write_text(said.replace(old, new), encoding="utf-8")
    return load_policy(rules, environ={}, built_in=False)


def without(tmp_path: Path, rule: str) -> Policy:
    text = (ROOT / "rules" / "vllm_mxfp4.yaml").read_text(encoding="utf-8")
    block = re.search(rf"  - id: {rule}\n(?:(?!  - id: ).*\n)*", text)
    assert block
    return changed(tmp_path, "vllm_mxfp4.yaml", block[0], "")


def shipped() -> Policy:
    return load_policy(ROOT / "rules", environ={}, built_in=False)


def of_pull_request(tmp_path: Path) -> Difference:
    old = without(tmp_path, "aiter-bf16-silu-situ")
    return diff(old, shipped(), cached_models({}))


def test_the_rule_of_the_pull_request(tmp_path: Path) -> None:
    """DeepSeek-V4-Pro on 8 ranks: 512 → 384, and what that gives back."""
    found = of_pull_request(tmp_path)
    silu = [change for change in found.changes if change.old == "vllm-mxfp4/rocm-generic"]
    assert {change.sort for change in silu} == {"tighter"}
    pro = [one for one in found.models if one.model == "deepseek-v4-pro" and one.tp == 8]
    assert [(one.old, one.new) for one in pro] == [((7168, 512), (7168, 384))]
    assert "−31.90 GiB created, −31.27 GiB resident per rank" in diff_text(found)
    assert not pro[0].fits


def test_the_receipt_stands_in_order(tmp_path: Path) -> None:
    said = receipt(of_pull_request(tmp_path))
    heads = [line for line in said.splitlines() if line.startswith("###")]
    assert heads == [
        "### Bytes per rank",
        "### KV tokens",
        "### Snapshots",
        "### Decisions",
        "### Not affected",
    ]
    assert "| deepseek-v4-pro | TP 8 | aiter_bf16 | 7168 × 512 → 384 | −31.90 GiB | −31.27 GiB |" in said


def test_a_point_is_decided_differently(tmp_path: Path) -> None:
    old, new = without(tmp_path, "aiter-bf16-silu-situ"), shipped()
    for change in diff(old, new).changes:
        facts = Facts.of(change.facts)
        before, after = old.resolve(facts), new.resolve(facts)
        assert (before.rule, after.rule) == (change.old, change.new)


SORTS = [("128", "64", "tighter"), ("128", "256", "looser"), ("128", "96", "incomparable")]


@pytest.mark.parametrize(("old", "new", "sort"), SORTS)
def test_classes(tmp_path: Path, old: str, new: str, sort: str) -> None:
    """The last rule for AITER without quantization, with another multiple."""
    said = "    align: {intermediate: 128}\n    why: above 192 one stage"
    policy = changed(tmp_path, "vllm_unquantized.yaml", said, said.replace(old, new))
    (change,) = diff(shipped(), policy).changes
    assert change.sort == sort
    assert change.where == (
        "backend: aiter · engine: vllm · intermediate_per_partition: >= 193 · "
        "scheme: unquantized · vllm: >=0.32,<0.34",
    )


def test_what_is_rejected_now_is_incomparable(tmp_path: Path) -> None:
    said = "    align: {intermediate: 128}\n    why: above 192 one stage"
    now = "    reject: no longer\n    why: above 192 one stage"
    (change,) = diff(shipped(), changed(tmp_path, "vllm_unquantized.yaml", said, now)).changes
    assert (change.sort, change.said) == (
        "incomparable",
        "hidden native, intermediate 128 → reject no longer",
    )


WIDE = "intermediate: 128"
UNCHANGING = [
    ("why: above 192 one stage", "why: another reason, above 192 one stage"),
    ("  - id: aiter-narrow\n", "  - id: aiter-thin\n"),
    (
        "align: {intermediate: 128}\n    why: above 192",
        "align: {hidden: native, intermediate: 128}\n    why: above 192",
    ),
]


@pytest.mark.parametrize(("old", "new"), UNCHANGING, ids=["prose", "name", "spelling"])
def test_changes_that_change_nothing(tmp_path: Path, old: str, new: str) -> None:
    found = diff(shipped(), changed(tmp_path, "vllm_unquantized.yaml", old, new))
    assert found.is_empty
    assert diff_text(found) == "no change"
    assert receipt(found).startswith("No change")
    assert diff_plain(found)["changed"] is False


def test_contracts_words_and_defaults_are_said(tmp_path: Path) -> None:
    layer = tmp_path / "mine.yaml"
    layer.write_text(
        "language: 1\npack: mine\ndefaults: {topk: 3}\nvocabulary: {backend: {mine: {note: ours}}}\n"
        "contracts:\n"
        "  - {id: one, when: {backend: mine}, require: {hidden: 64}, breaks: raises, why: so, source: u#1}\n",
        encoding="utf-8",
    )
    found = diff(load_policy(environ={}), load_policy(layer, environ={}))
    assert "contract mine/one is new" in found.other
    assert "backend mine is new" in found.other
    assert any(said.startswith("topk is assumed to be 3") for said in found.other)
    gone = diff(load_policy(layer, environ={}), load_policy(environ={}))
    assert "contract mine/one is gone" in gone.other


def test_a_receipt_says_so_where_no_known_model_changes(tmp_path: Path) -> None:
    said = "    align: {intermediate: 128}\n    why: above 192 one stage"
    policy = changed(tmp_path, "vllm_unquantized.yaml", said, said.replace("128", "96"))
    text = receipt(diff(shipped(), policy))
    for line in (
        "No known model has other sizes.",
        "As it was: no resident weight changes.",
        "Every snapshot of a known model that was saved before still fits.",
        "- **incomparable**, allocate: hidden native, intermediate 128 → hidden native, intermediate 96  ",
        "- Engines other than vllm.",
        "- Schemes other than unquantized.",
        "- Backends other than aiter.",
    ):
        assert f"\n{line}\n" in text


def test_findings_have_a_place_where_the_new_rule_stands(tmp_path: Path) -> None:
    found = diff_findings(of_pull_request(tmp_path))
    assert [finding.code for finding in found] == ["D701", "D701", "D703", "D703", "D703"]
    assert {finding.rule for finding in found if finding.location} == {"vllm-mxfp4/aiter-bf16-silu-situ"}
    assert [str(finding.location).rpartition("/")[2] for finding in found if finding.location]
    gone = diff_findings(diff(shipped(), without(tmp_path / "gone", "aiter-bf16-silu-situ")))
    assert all(finding.rules == ("vllm-mxfp4/aiter-bf16-silu-situ",) for finding in gone)
