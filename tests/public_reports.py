"""The public reports of `tests/data/reports`, put to `check`, and the table that the documentation shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import yaml

from moe_align import Policy, PolicyError, check
from moe_align.deployment.checking import Report

FILE = Path(__file__).parent / "data" / "reports" / "reports.yaml"

#: What a report may call a verdict of ours. A loader's bug is one on sizes that fit, or that are padded.
MEANS = {
    "reject": {"reject"},
    "pad": {"pad"},
    "native": {"native"},
    "fallback": {"fallback", "refine"},
    "corrupt": {"unsafe"},
    "bug": {"native", "pad"},
    "info": {"native", "pad", "reject"},
}


class Told(NamedTuple):
    """One report against our answer: `agrees`, and what we said."""

    id: str
    ref: str
    confidence: str
    reported: str
    ours: str
    agrees: bool


def cases() -> list[dict[str, Any]]:
    """All reports, in the order of the file."""
    found: list[dict[str, Any]] = yaml.safe_load(FILE.read_text("utf-8"))
    return found


def told(policy: Policy, case: dict[str, Any], **instead: str) -> Told:
    """A report in scope against the answer; `instead` are facts in place of its own."""
    says = case["says"]
    reported = " ".join(filter(None, (says["verdict"], *_sizes(says))))
    head = case["id"], case["ref"], case["confidence"], reported
    try:
        report = check(case.get("model"), policy=policy, **{**case["ask"], **instead})
    except PolicyError as fault:
        return Told(*head, str(fault), False)
    return Told(*head, _ours(says, report), report.verdict in MEANS[says["verdict"]] and _same(case, report))


def _sizes(says: dict[str, Any]) -> list[str]:
    return [f"{says['per_rank']}"] if says.get("per_rank") else []


def _ours(says: dict[str, Any], report: Report) -> str:
    """Our verdict and the dimension behind it: the one that the report is about, where it is one of them."""
    worst = [dim for dim in report.dims if dim.verdict == report.verdict] or list(report.dims)
    dim = next((dim for dim in worst if dim.native == says.get("per_rank")), worst[0])
    size = f" → {dim.resident or dim.allocated}" if report.verdict == "pad" else ""
    return f"{report.verdict}: {dim.name} {dim.native}{size}"


def _same(case: dict[str, Any], report: Report) -> bool:
    """Whether the numbers of the report are ours too."""
    says, shows = case["says"], case.get("shows", {})
    decision = report.outcome.decision
    for name, size in (("padded", decision.intermediate), ("padded_hidden", decision.hidden)):
        if report.verdict == "pad" and name in says and says[name] not in (size.allocated, size.resident):
            return False
    experts = next((dim.allocated for dim in report.dims if dim.name == "experts"), None)
    return (
        shows.get("experts", experts) == experts
        and shows.get("moe_tp", report.outcome.values.get("moe_tp")) == report.outcome.values.get("moe_tp")
        and ("way" not in shows or any(shows["way"] in way.change for way in report.ways))
        and _per_rank(says, report)
    )


def _per_rank(says: dict[str, Any], report: Report) -> bool:
    """Whether one of our dimensions has the size that the report gives for one rank."""
    if says.get("per_rank") is None:
        return True
    return any(says["per_rank"] == dim.native for dim in report.dims)


def table(policy: Policy) -> list[str]:
    """One line of Markdown for each report."""
    lines = ["| report | says | moe-align | |", "|---|---|---|---|"]
    for case in cases():
        says = case["says"]["verdict"]
        if "out" in case:
            lines.append(f"| {case['ref']} | {says} | – | out of scope: {case['out']} |")
            continue
        one = told(policy, case)
        if one.agrees:
            said = "agree" + (f"; {case['because']}" if "because" in case else "")
        else:
            said = f"disagree: {case.get('disagree', 'not yet')}"
        release = case["ask"].get(case["ask"]["engine"], "")
        asked = f"{case['ask']['engine']} {release}".strip()
        lines.append(f"| {case['ref']} | {one.reported} | {one.ours} ({asked}) | {said} |")
    return lines
