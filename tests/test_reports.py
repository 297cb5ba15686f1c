"""Public reports about sizes of experts: what the engine of that day did is what `check` says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from public_reports import cases, table, told

from moe_align import Policy, check, load_policy

DOCUMENT = Path(__file__).parent.parent / "docs" / "reports.md"
IN_SCOPE = [case for case in cases() if "out" not in case]


@pytest.fixture(scope="module")
def policy() -> Policy:
    return load_policy(environ={})


@pytest.mark.parametrize("case", IN_SCOPE, ids=lambda case: str(case["id"]))
def test_a_report_and_the_answer(policy: Policy, case: dict[str, Any]) -> None:
    one = told(policy, case)
    assert one.agrees is ("disagree" not in case), f"{one.reported}; ours {one.ours}"


@pytest.mark.parametrize(
    "case", [case for case in IN_SCOPE if "now" in case], ids=lambda case: str(case["id"])
)
def test_what_the_newest_release_makes_of_it(policy: Policy, case: dict[str, Any]) -> None:
    report = check(case.get("model"), policy=policy, **{**case["ask"], "vllm": "0.33.0"})
    assert report.verdict == case["now"]["verdict"]
    if "padded" in case["now"]:
        assert report.outcome.decision.intermediate.resident == case["now"]["padded"]


def test_enough_of_them_are_in_scope_and_agree(policy: Policy) -> None:
    high = [told(policy, case) for case in IN_SCOPE if case["confidence"] == "high"]
    assert len(cases()) == 80
    assert len(IN_SCOPE) >= 55
    assert sum(one.agrees for one in high) >= 0.95 * len(high)


def test_the_document_has_the_table(policy: Policy) -> None:
    assert "\n".join(table(policy)) in DOCUMENT.read_text("utf-8")
