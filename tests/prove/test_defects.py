"""Ten planted defects, each found and named by the analysis that is for it."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from moe_align import PolicyError, load_policy
from moe_align.findings import Finding, of_problem
from moe_align.lint import lint
from moe_align.packs import Pack
from moe_align.prove import contract_findings
from moe_align.regions import Regions
from moe_align.stack import Stack

ROOT = Path(__file__).parents[2]
DEFECTS = yaml.safe_load((ROOT / "tests" / "defects" / "planted.yaml").read_text(encoding="utf-8"))


def planted(defect: dict[str, Any], folder: Path) -> Path:
    rules = folder / "rules"
    shutil.copytree(ROOT / "rules", rules)
    file = rules / defect["file"]
    text = file.read_text(encoding="utf-8")
    if "move" in defect:
        changed = moved(text, defect["move"], defect["before"])
    elif "add" in defect:
        (rules / defect["add"]["file"]).write_text(defect["add"]["text"], encoding="utf-8")
        return rules
    else:
        assert text.count(defect["replace"]) == 1, (
            f"{defect['file']} no longer holds {defect['replace']!r} once"
        )
        changed = text.replace(defect["replace"], defect["by"])
    file.write_text(changed, encoding="utf-8")
    return rules


def moved(text: str, rule: str, before: str) -> str:
    """The text of a pack with one rule moved before another."""
    block = re.search(rf"  - id: {re.escape(rule)}\n(?:(?!  - id: ).*\n)*", text)
    assert block
    rest = text.replace(block[0], "")
    return rest.replace(f"  - id: {before}\n", f"{block[0]}  - id: {before}\n")


def found(defect: dict[str, Any], rules: Path) -> list[Finding]:
    try:
        stack = load_policy(rules, environ={}, built_in=False).stack
    except PolicyError as fault:
        return list(map(of_problem, fault.problems))
    if defect["found_by"] == "lint":
        return list(lint(stack))
    return list(contract_findings(Regions(only(stack, defect["rules"][0]))))


def only(stack: Stack, address: str) -> Stack:
    """The stack with one contract alone: others have findings of their own."""
    packs = []
    for pack in stack.contracts:
        kept = tuple(one for one in pack.contracts if one.address == address)
        head = pack.name, pack.phase, pack.needs, pack.covers, pack.before
        packs += [Pack(*head, pack.rules, kept, pack.layer, pack.location)] if kept else []
    return stack._replace(contracts=tuple(packs))


def is_named(defect: dict[str, Any], finding: Finding) -> bool:
    said = " ".join([finding.message, str(finding.location), *finding.where])
    return (
        finding.code == defect["code"]
        and finding.rule == defect.get("rule", finding.rule)
        and set(defect.get("rules", ())) <= set(finding.rules)
        and defect.get("where", "") in said
    )


def test_there_are_ten() -> None:
    assert len({defect["name"] for defect in DEFECTS}) == 10


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect["name"].replace(" ", "-"))
def test_a_planted_defect_is_found_and_named(defect: dict[str, Any], tmp_path: Path) -> None:
    findings = found(defect, planted(defect, tmp_path))
    assert any(is_named(defect, finding) for finding in findings), [str(finding) for finding in findings]


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect["name"].replace(" ", "-"))
def test_the_shipped_rules_do_not_have_it(defect: dict[str, Any], tmp_path: Path) -> None:
    """The finding comes of the defect: the copy without it has none like it."""
    shutil.copytree(ROOT / "rules", tmp_path / "rules")
    assert not any(is_named(defect, finding) for finding in found(defect, tmp_path / "rules"))
