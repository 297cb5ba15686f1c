"""The rule language by cases: `language/*.yaml` has packs, and for facts what they must answer.

`layers` are the texts of rule files, nearest first (a list inside the list is one layer of several
files). Of an answer only what a case names is compared; `problem` is the whole text of a refusal.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from moe_align import Decision, Facts, Policy, PolicyError, load_policy
from moe_align.decision import Size
from moe_align.packs import Condition

LANGUAGE = Path(__file__).parent / "language"
WORDS = LANGUAGE / "with" / "words.yaml"
FILES = sorted(LANGUAGE.glob("*.yaml"))

Plain = dict[str, Any]


def entries() -> list[Any]:
    found = []
    for file in FILES:
        for entry in yaml.safe_load(file.read_text(encoding="utf-8")):
            found += [
                pytest.param(entry["layers"], case, id=f"{file.stem}: {entry['holds']} [{number}]")
                for number, case in enumerate(entry["cases"], 1)
            ]
    return found


def policy_of(layers: Sequence[Any], folder: Path) -> Policy:
    """The policy of file texts: each is a layer, a list of texts is a layer of several files."""
    paths = []
    for number, layer in enumerate(layers):
        path = folder / f"layer{number}"
        texts = [layer] if isinstance(layer, str) else layer
        path.mkdir(exist_ok=True)
        for index, text in enumerate(texts):
            (path / f"{index}.yaml").write_text(whole(text), encoding="utf-8")
        paths.append(str(path))
    return load_policy(*paths, str(WORDS), environ={}, built_in=False)


def whole(text: str) -> str:
    """A file text with the heads that it leaves out."""
    head = "" if "language:" in text else "language: 1\n"
    if "pack:" not in text:
        head += "pack: p\n"
    if "phase:" not in text and "rules:" in text:
        head += "phase: allocate\n"
    return head + text


@pytest.mark.parametrize(("layers", "case"), entries())
def test_a_case_is_answered(layers: Sequence[Any], case: Plain, tmp_path: Path) -> None:
    wanted = {key: value for key, value in case.items() if key not in ("facts", "unless")}
    assert answer(policy_of(layers, tmp_path), case["facts"], wanted) == wanted


def answer(policy: Policy, given: Mapping[str, object], wanted: Mapping[str, Any]) -> Plain:
    try:
        facts = Facts.of(given)
        decision = policy.resolve(facts)
    except PolicyError as refusal:
        return {"problem": str(refusal)}
    plain = plain_of(decision)
    plain["differs"] = [f"{other.key} {other.values} → {other.then}" for other in policy.differences(facts)]
    for key in ("assumed", "implied", "contracts", "trace"):
        if isinstance(wanted.get(key), dict):
            plain[key] = {inner: plain[key].get(inner) for inner in wanted[key]}
    return {key: plain[key] for key in wanted}


def plain_of(decision: Decision) -> Plain:
    return {
        "status": decision.status,
        "sizes": [decision.hidden.allocated, decision.intermediate.allocated],
        "resident": [decision.hidden.resident, decision.intermediate.resident],
        "native": [decision.hidden.native, decision.intermediate.native],
        "multiples": [decision.hidden.multiple, decision.intermediate.multiple],
        "rule": decision.rule,
        "steps": [f"{step.phase} {step.rule.address}" for step in decision.steps],
        "launch": None if decision.launch is None else list(decision.launch),
        "pads": decision.pads_text,
        "backend": decision.backend,
        "experts": decision.experts,
        "blocks": dict(decision.blocks),
        "storage": [
            f"{name} + {amount.number} {amount.unit}{', stride' if stride else ''}"
            for name, amount, stride in decision.storage
        ],
        "rows": dict(decision.rows),
        "columns": dict(decision.columns),
        "assumed": dict(decision.assumed),
        "implied": dict(decision.implied),
        "open": list(decision.open),
        "if": {
            " and ".join(f"{key} {values}" for key, values in other.where.items()) or "always": other.then
            for other in decision.alternatives
        },
        "rules": [other.rule for other in decision.alternatives],
        "reason": decision.reason,
        "error": decision.error,
        "contracts": {check.contract.id: [check.holds, check.said] for check in decision.contracts},
        "trace": {miss.rule.id: failed(miss.condition, miss.excepted) for miss in decision.trace},
        "notes": list(decision.notes),
    }


def failed(condition: Condition | None, excepted: bool) -> str:
    if condition is None:
        return "an earlier rule won"
    return f"{'unless ' if excepted else ''}{condition.key}: {condition.text}"


def test_every_file_has_cases() -> None:
    assert len(FILES) >= 8
    assert all(yaml.safe_load(file.read_text(encoding="utf-8")) for file in FILES)


def test_the_sizes_of_a_decision_have_four_numbers() -> None:
    assert Size._fields == ("native", "allocated", "resident", "multiple")


def test_every_form_of_the_language_has_a_case() -> None:
    text = "\n".join(file.read_text(encoding="utf-8") for file in FILES)
    forms = ["align", "add", "require", "refine", "use", "set", "reject", "declare", "else", "unless", "not"]
    forms += [
        "multiple_of",
        "at_least",
        "lcm",
        "max",
        "snap",
        "bytes",
        "stride",
        "experts",
        "rows",
        "columns",
    ]
    forms += [
        "error",
        "any_of",
        "exactly",
        "max_of",
        "at_most",
        "floor",
        "times",
        "before",
        "covers",
        "facts",
    ]
    assert [form for form in forms if not re.search(rf"\b{form}:", text)] == []
