"""Packs of older releases, of linear layers and of selection that was read: a case for every rule."""

from __future__ import annotations

from pathlib import Path

from moe_align import load_policy
from moe_align.cases import read_cases

FILE = Path(__file__).parent / "cases" / "older_releases.yaml"


def test_every_rule_of_their_packs_decides_a_case() -> None:
    named = {address for case in read_cases([FILE]) for address in case.named}
    packs = {address.partition("/")[0] for address in named}
    there = {rule.address for rule in load_policy(environ={}).stack.rules() if rule.pack in packs}
    assert len(packs) >= 17
    assert there - named == set()


def test_every_known_fault_says_where_it_ends_or_where_it_was_read() -> None:
    stack = load_policy(environ={}).stack
    faults = [contract for contract in stack.all_contracts() if contract.pack == "known-faults"]
    assert faults
    for fault in faults:
        ends = any(condition.key in ("vllm", "sglang") for condition in fault.when)
        assert ends, fault.address
        assert fault.source, fault.address
