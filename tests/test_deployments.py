"""Files of deployments: what is one, and where each fault of an entry stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from moe_align import PolicyError
from moe_align.load.deployments import is_list, read_deployments


@pytest.mark.parametrize(
    ("name", "text", "listed"),
    [
        ("a.yaml", "- {model: x}", True),
        ("a.json", '\ufeff [{"model": "x"}]', True),
        ("a.json", '{"model_type": "x"}', False),
        ("a.txt", "- {model: x}", False),
    ],
)
def test_a_list_is_told_from_a_config(tmp_path: Path, name: str, text: str, listed: bool) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert is_list(tmp_path / name) is listed


def test_a_file_that_is_not_there_is_no_list(tmp_path: Path) -> None:
    assert not is_list(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("- 7", "2:3: is no deployment [U030]"),
        ("- {model: true}", "2:11: `model` is `true` [U031]"),
        ("- {name: 7, tp: 8}", "2:10: `name` is `7` [U031]"),
        ("- {model: a, model: b}", "2:14: key `model` again [Y016]"),
    ],
)
def test_a_fault_belongs_to_its_entry(tmp_path: Path, entry: str, said: str) -> None:
    file = tmp_path / "deployments.yaml"
    file.write_text(f"- {{model: good, tp: 2}}\n{entry}\n- {{model: good}}\n", encoding="utf-8")
    first, second, third = read_deployments(file)
    assert not first.problems
    assert not third.problems
    assert [f"{file}:{said}" in str(problem) for problem in second.problems] == [True]


@pytest.mark.parametrize(
    ("text", "said"), [("model: a\n", "1:1: is no list of deployments [U030]"), ("[]", "[U030]")]
)
def test_a_file_that_is_no_list_is_refused(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "deployments.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(PolicyError, match=re.escape(said)):
        read_deployments(file)
