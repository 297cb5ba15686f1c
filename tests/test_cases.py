"""Every entry of `tests/cases` is a test; every shipped rule decides one and just misses another."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from engine_tables import size_cases, table
from mirrors import asked

from moe_align import Decision, Policy, PolicyError, load_policy
from moe_align import facts as keys
from moe_align.cases import Case, case_files, read_cases, run
from moe_align.decision import decision
from moe_align.known import known

ROOT = Path(__file__).parents[1]
FILES = case_files([ROOT / "tests" / "cases"])
CASES = read_cases(FILES)
EXAMPLES = sorted((ROOT / "examples").glob("*/cases"))


@cache
def policy(*rules: Path) -> Policy:
    return load_policy(*rules, environ={})


def name(case: Case) -> str:
    return f"{Path(case.location.file).stem}-{case.location.line}"


@pytest.mark.parametrize("case", CASES, ids=name)
def test_the_policy_decides_as_the_case_says(case: Case) -> None:
    assert run(policy(), [case])[0].differences == ()


def test_a_layer_of_other_sizes_gets_what_it_gets_alone() -> None:
    """From its second question on, what holds whatever the sizes are is not worked out again."""
    asked_anew, stack = Policy(policy().stack), policy().stack
    layers = {case.facts.without(*keys.SIZES, *keys.FIRST_SIZES, "intermediate") for case in CASES}
    answered = 0
    for layer in layers:
        for hidden, intermediate in ((7168, 384), (2880, 360), (96, 200)):
            sized = layer.having(hidden=hidden, intermediate_per_partition=intermediate)
            try:
                alone = decision(stack, known(stack.vocabulary, sized))
            except PolicyError:
                continue
            assert asked_anew.resolve(sized) == alone
            answered += 1
    assert answered > len(layers)


@pytest.mark.parametrize("folder", EXAMPLES, ids=lambda folder: folder.parent.name)
def test_the_cases_of_an_example_hold(folder: Path) -> None:
    results = run(policy(folder.parent), read_cases(case_files([folder])))
    assert [result for result in results if result.differences] == []


def test_there_are_cases_for_every_example() -> None:
    assert {folder.parent for folder in EXAMPLES} == {
        path.parent for path in (ROOT / "examples").glob("*/*.yaml")
    }


def shipped() -> set[str]:
    """The rules of the packs that have cases."""
    packs = {file.stem.replace("_", "-") for file in FILES}
    return {rule.address for rule in policy().stack.rules() if rule.pack in packs}


def test_every_rule_has_a_case_that_it_decides() -> None:
    decided = {address for case in CASES for address in case.named}
    assert sorted(shipped() - decided) == []


def test_every_rule_has_a_case_that_just_misses_it() -> None:
    missed = {case.misses for case in CASES}
    assert sorted(shipped() - missed) == []


@pytest.mark.parametrize("case", [case for case in CASES if case.misses], ids=name)
def test_a_case_misses_by_one_fact(case: Case) -> None:
    """Some case that the rule decides has the same facts but one."""
    facts = set(case.facts.items())
    wins = [set(other.facts.items()) for other in CASES if case.misses in other.named]
    assert any(len({key for key, _ in facts ^ other}) == 1 for other in wins)


@cache
def answers() -> dict[tuple[str, str], list[tuple[str, dict[str, object], dict[Any, Any]]]]:
    """Release and backend → kind of row, its facts as the vocabulary calls them, sizes in → sizes out."""
    found: dict[tuple[str, str], list[tuple[str, dict[str, object], dict[Any, Any]]]] = {}
    for row in size_cases("engine"):
        canonical = values({**row.facts, "vllm": row.release})
        if canonical is not None:
            sizes = {(h, i): (h2, i2) for h, i, h2, i2 in row.sizes if isinstance(h2, int)}
            key = row.release, str(canonical.get("backend"))
            found.setdefault(key, []).append((row.kind, canonical, sizes))
    return found


def values(facts: dict[str, Any]) -> dict[str, object] | None:
    from moe_align import Facts

    try:
        state = known(policy().stack.vocabulary, Facts.of(facts))
    except PolicyError:
        return None
    return {key: state.values[key] for key in facts}


def engine_sizes(case: Case) -> Iterator[tuple[int, int]]:
    """What the tables hold for a case; of weight creation alone where the layer left the sizes alone."""
    state = known(policy().stack.vocabulary, case.facts)
    asked_for = case.facts.get("hidden"), case.facts.get("intermediate_per_partition")
    decision = policy().resolve(case.facts)
    untouched = all(step.hidden == asked_for[0] for step in decision.steps if step.phase == "model")
    for backend in (str(state.values.get("backend")), "None"):
        for kind, facts, sizes in answers().get((str(case.facts.get("vllm")), backend), ()):
            about = kind == "whole" or (kind == "allocate" and untouched)
            same = all(state.values.get(key) == value for key, value in facts.items())
            if about and same and asked_for in sizes:
                yield sizes[asked_for]


def allocated(decision: Decision) -> tuple[int | None, int | None]:
    return decision.hidden.allocated, decision.intermediate.allocated


SIZED = ("vllm_mxfp4", "vllm_mxfp4_model", "vllm_unquantized")


@pytest.mark.parametrize("case", [case for case in CASES if Path(case.location.file).stem in SIZED], ids=name)
def test_sizes_are_those_of_the_engine(case: Case) -> None:
    said = set(engine_sizes(case))
    assert said == {(dict(case.hidden)["allocated"], dict(case.intermediate)["allocated"])}


@cache
def pads() -> dict[tuple[tuple[str, object], ...], dict[tuple[int, int], tuple[Any, Any]]]:
    found: dict[tuple[tuple[str, object], ...], dict[tuple[int, int], tuple[Any, Any]]] = {}
    for release, rows in table("engine", "aiter_pads").items():
        for row in rows:
            for facts in asked(release, row):
                canonical = values({key: value for key, value in facts.items() if key not in SIZES})
                if canonical is not None:
                    said = found.setdefault(tuple(sorted(canonical.items())), {})
                    said.update({(hp, ip): (hs, i_s) for hp, ip, hs, i_s in row["cases"]})
    return found


SIZES = ("hidden", "intermediate_per_partition", "platform", "arch")


@pytest.mark.parametrize(
    "case", [case for case in CASES if Path(case.location.file).stem == "vllm_aiter_launch"], ids=name
)
def test_pads_are_those_of_the_engine(case: Case) -> None:
    facts = values({key: value for key, value in case.facts.items() if key not in SIZES})
    assert facts is not None
    rows = pads().get(tuple(sorted(facts.items())))
    decision = policy().resolve(case.facts)
    hidden, intermediate = decision.hidden, decision.intermediate
    if rows is None:
        assert decision.backend not in ("aiter", "aiter_bf16", "aiter_mxfp4")
        return
    assert hidden.allocated is not None
    assert hidden.native is not None
    assert intermediate.allocated is not None
    assert intermediate.native is not None
    said = rows[hidden.allocated - hidden.native, intermediate.allocated - intermediate.native]
    if isinstance(said[0], str):
        assert case.launch == ()
    else:
        assert dict(case.launch) == dict(zip(("hidden_pad", "intermediate_pad"), said, strict=True))


@pytest.mark.parametrize(
    "case", [case for case in CASES if Path(case.location.file).stem == "vllm_all2all"], ids=name
)
def test_hidden_sizes_are_those_of_the_engine(case: Case) -> None:
    bytes_of = {"bf16": 2, "fp8": 1, "fp32": 4}
    rows = [
        row
        for row in table("engine", "all2all")[str(case.facts.get("vllm"))]
        if row["backend"] == case.facts.get("all2all")
        and (row["dtype"] == "*" or bytes_of[row["dtype"]] == case.facts.get("act_bytes"))
    ]
    entering = case.facts.get("hidden")
    said = {hidden: answer for row in rows for hidden, answer in row["cases"]}.get(entering, entering)
    if isinstance(said, str):
        assert case.status == "rejected"
    else:
        assert dict(case.hidden)["allocated"] == said


WRONG = [
    ("{}", "T903", "is no list of cases"),
    ("- 3", "T903", "a case is a mapping"),
    ("- fact: {}", "T904", "unknown key `fact`"),
    ("- rule: a/b", "T905", "`facts` is missing or no mapping"),
    ("- facts: {scheme: mxfp4}\n  status: maybe", "T906", "unknown status `maybe`"),
    ("- facts: {scheme: mxfp4}\n  rule: 3", "T907", "`rule` is no text"),
    (
        "- facts: {scheme: mxfp4}\n  hidden: wide",
        "T908",
        "`hidden` is no number, nor a mapping of native, allocated",
    ),
    ("- facts: {scheme: mxfp4}\n  launch: 0", "T908", "`launch` is no number"),
    ("- facts: {shceme: mxfp4}", "F001", "unknown fact `shceme`"),
    ("[]", "T902", "no case found"),
]


@pytest.mark.parametrize(("text", "code", "message"), WRONG)
def test_a_wrong_file_is_refused(tmp_path: Path, text: str, code: str, message: str) -> None:
    file = tmp_path / "cases.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(PolicyError) as fault:
        read_cases([file])
    assert code in [problem.code for problem in fault.value.problems]
    assert message in str(fault.value)


def test_no_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="no case found"):
        case_files([tmp_path])
    with pytest.raises(PolicyError, match="no such file or folder"):
        case_files([tmp_path / "absent"])


@pytest.mark.parametrize(
    ("expectation", "message"),
    [
        ("rule: vllm-mxfp4/rocm-genric", "[T910]\n  fix: write `vllm-mxfp4/rocm-generic`"),
        ("misses: nobody/nothing", "unknown rule `nobody/nothing`"),
        ("breaks: [nobody/nothing]", "unknown contract `nobody/nothing`"),
    ],
)
def test_a_case_for_an_unknown_rule_is_an_error(tmp_path: Path, expectation: str, message: str) -> None:
    file = tmp_path / "cases.yaml"
    file.write_text(f"- facts: {{scheme: mxfp4}}\n  {expectation}\n", encoding="utf-8")
    with pytest.raises(PolicyError) as fault:
        run(policy(), read_cases([file]))
    assert message in str(fault.value)


RULE = "vllm-mxfp4/aiter-bf16-silu-situ"
FACTS = "{backend: aiter_bf16, activation: silu, hidden: 7168, intermediate_per_partition: 384, moe_tp: 8}"


@pytest.mark.parametrize(
    ("expectation", "difference"),
    [
        ("status: rejected", "status is decided, not rejected"),
        ("intermediate: 512", "intermediate allocated is 384, not 512"),
        ("hidden: {multiple: 256}", "hidden multiple is 128, not 256"),
        ("rule: vllm-mxfp4/marlin", "rule is vllm-mxfp4/aiter-bf16-silu-situ, not vllm-mxfp4/marlin"),
        ("steps: [vllm-mxfp4/marlin]", "vllm-mxfp4/marlin decides nothing"),
        ("launch: {hidden_pad: 64}", "hidden_pad is 0, not 64"),
        ("misses: vllm-mxfp4/aiter-bf16-silu-situ", f"{RULE} decides, where it should be missed"),
        ("reason: because", "`because` is not in the reason ``"),
    ],
)
def test_what_differs_is_said(tmp_path: Path, expectation: str, difference: str) -> None:
    file = tmp_path / "cases.yaml"
    file.write_text(f"- facts: {FACTS}\n  {expectation}\n", encoding="utf-8")
    assert difference in run(policy(), read_cases([file]))[0].differences


def test_facts_that_are_refused_fail_the_case(tmp_path: Path) -> None:
    file = tmp_path / "cases.yaml"
    file.write_text("- facts: {backend: aiter_bf16, platform: cuda}\n", encoding="utf-8")
    (difference,) = run(policy(), read_cases([file]))[0].differences
    assert difference.startswith("the facts are refused")


def test_a_pad_that_is_not_declared_is_said(tmp_path: Path) -> None:
    file = tmp_path / "cases.yaml"
    file.write_text(
        "- facts: {scheme: mxfp4, backend: humming, platform: cuda}\n  launch: {hidden_pad: 0}\n", "utf-8"
    )
    assert run(policy(), read_cases([file]))[0].differences == ("hidden_pad is not called, not 0",)
