"""Decisions against contracts, pads and claims: the shipped rules, and small layers."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moe_align import Facts, Policy, PolicyError, load_policy
from moe_align.claims import claim_findings
from moe_align.findings import Finding, fails, text
from moe_align.load.claims import read_claims
from moe_align.prove import contract_findings, prove, size_findings
from moe_align.regions import Regions
from moe_align.reviewed import reviewed, unreviewed


@cache
def shipped() -> Policy:
    return load_policy(environ={})


@cache
def findings() -> tuple[Finding, ...]:
    return prove(shipped().stack)


def test_the_shipped_rules_break_nothing_that_nobody_looked_at() -> None:
    new = unreviewed(findings(), reviewed(shipped().stack.layers))
    assert not fails(new), text(new)


def test_the_doubled_pad_of_one_rank_is_found() -> None:
    """vLLM 0.33 doubles the pad where one rank holds the expert; AITER doubles it again by itself."""
    pads = [finding for finding in findings() if finding.code == "K804"]
    (finding,) = [one for one in pads if "stage1" in one.rules[0] and one.facts.get("moe_tp") == 1
                  and one.rules[0].startswith("aiter-contracts/ck-tile")]  # fmt: skip
    # From 0.33 on one model has a rule of its own; any other is launched as in the release that was found.
    facts = Facts.of({**finding.facts, "vllm": "0.33.0", "model_type": "other"})
    broken = [check.contract.address for check in shipped().resolve(facts).contracts if check.holds is False]
    assert finding.rules[0] in broken


@pytest.mark.parametrize("finding", findings(), ids=lambda one: f"{one.rule}-{one.rules[0]}")
def test_a_counterexample_breaks_the_contract(finding: Finding) -> None:
    """The point, asked of the resolver, does not satisfy the contract, unless it means other facts there."""
    given_facts = {key: value for key, value in finding.facts.items() if key != "intermediate"}
    try:
        decision = shipped().resolve(Facts.of(given_facts))
    except PolicyError:
        return
    if finding.rule not in [step.rule.address for step in decision.steps]:
        # What the engine derives (`moe_tp` from `tp`) is a fact of its own in a region.
        return
    held = {check.contract.address: check.holds for check in decision.contracts}
    assert held.get(finding.rules[0]) is not True


LAYER = """language: 1
pack: mine
phase: allocate
for: {{engine: vllm, scheme: ours}}
vocabulary:
  scheme: {{ours: {{note: our own}}}}
rules:
  - id: only
    align: {{hidden: 128, intermediate: {made}}}
    why: so it is
    source: us#1
"""
CONTRACTS = """language: 1
pack: demands
for: {{scheme: ours}}
contracts:
  - id: one
    require: {{intermediate: {demand}}}
    breaks: {breaks}
    why: so it is
    source: us#2
"""


def layer(folder: Path, demand: object, made: int = 128, breaks: str = "silent") -> Policy:
    (folder / "mine.yaml").write_text(LAYER.format(made=made), encoding="utf-8")
    (folder / "demands.yaml").write_text(CONTRACTS.format(demand=demand, breaks=breaks), encoding="utf-8")
    return load_policy(folder, environ={})


def of_layer(policy: Policy) -> list[Finding]:
    own = tuple(pack for pack in policy.stack.contracts if pack.name == "demands")
    return list(contract_findings(Regions(policy.stack._replace(contracts=own))))


BROKEN = [
    (128, None),
    (64, None),
    (256, "K801"),
    ("{multiple: 128, max: 512}", "K801"),
    ("{any_of: [96, 128]}", None),
    ("{exactly: native}", "K801"),
    ("{min: 128}", None),
    ("{min: 129}", "K801"),
]


@pytest.mark.parametrize(("demand", "code"), BROKEN)
def test_a_contract_against_a_multiple(tmp_path: Path, demand: object, code: str | None) -> None:
    found = of_layer(layer(tmp_path, demand))
    assert [finding.code for finding in found] == ([code] if code else [])


@settings(deadline=None, max_examples=15)
@given(st.sampled_from([32, 48, 64, 96, 128]), st.sampled_from([32, 64, 96, 128, 192]))
def test_found_if_and_only_if_some_size_breaks_it(
    tmp_path_factory: pytest.TempPathFactory, made: int, demand: int
) -> None:
    policy = layer(tmp_path_factory.mktemp("layer"), demand, made)
    sizes = [-(-size // made) * made for size in range(1, 2 * made * demand)]
    assert bool(of_layer(policy)) == any(size % demand for size in sizes)


KINDS = [("raises", "K802", "warning"), ("slow", "K803", "note")]


@pytest.mark.parametrize(("breaks", "code", "level"), KINDS)
def test_kinds_of_contracts(tmp_path: Path, breaks: str, code: str, level: str) -> None:
    policy = layer(tmp_path, 256, breaks=breaks)
    (finding,) = of_layer(policy)
    assert (finding.code, finding.level) == (code, level)
    assert list(contract_findings(Regions(policy.stack), ())) == []


def test_no_rule_allocates_too_little_or_too_much() -> None:
    assert list(size_findings(Regions(shipped().stack))) == []


CLAIMS = [
    ("always: {intermediate: {multiple_of: 64}}", False),
    ("always: {status: decided, intermediate: {multiple_of: 128}}", False),
    ("always: {intermediate: {multiple_of: 256}}", True),
    ("always: {status: decided}", False),
    ("always: {status: [rejected, unknown]}", True),
    ("never: {intermediate: {min: 4096}}", True),
    ("never: {intermediate: [64, 192]}", False),
    ("never: {status: decided}", True),
]


@pytest.mark.parametrize(("claim", "broken"), CLAIMS)
def test_claims(tmp_path: Path, claim: str, broken: bool) -> None:
    policy = layer(tmp_path, 128)
    file = tmp_path / "claims.txt"
    when = (
        "{engine: vllm, scheme: ours, all2all: none, model_type: other, platform: cpu, vllm: '>=0.27,<0.34'}"
    )
    file.write_text(f"- id: mine\n  when: {when}\n  {claim}\n  why: so it is\n", encoding="utf-8")
    found = list(claim_findings(policy.stack, read_claims(file, policy.stack.vocabulary)))
    assert [finding.code for finding in found] == (["K810"] if broken else [])


FAULTS = [
    ("{}", "K891"),
    ("- id: a", "K891"),
    ("- {id: a, never: {size: 3}}", "K891"),
    ("- {id: a, when: {backend: nobody}, never: {status: decided}}", "R203"),
    ("- {id: a, when: {tp: {mim: 3}}, never: {status: decided}}", "S101"),
]


@pytest.mark.parametrize(("said", "code"), FAULTS)
def test_broken_files_of_claims(tmp_path: Path, said: str, code: str) -> None:
    file = tmp_path / "claims.yaml"
    file.write_text(said, encoding="utf-8")
    with pytest.raises(PolicyError) as fault:
        read_claims(file, shipped().stack.vocabulary)
    assert code in [problem.code for problem in fault.value.problems]
