"""What the resolver answers, held against a plain reading of the rules and against trying every value."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from small import (
    DIMENSIONS,
    OPEN,
    SIZES,
    Plain,
    contracts,
    files,
    fillings,
    full_facts,
    is_possible,
    packs,
    policy_of,
    read_plainly,
    resolved,
)

from moe_align import Decision, Facts, Policy
from moe_align.decision import decision
from moe_align.known import known

LAYERS = files()
FACTS = full_facts()


def answer(decision: Decision) -> tuple[Any, ...]:
    """What two decisions on known sizes must share to be one answer."""
    if decision.status != "decided":
        return decision.status, decision.reason
    hidden, intermediate = decision.hidden, decision.intermediate
    return (
        decision.status,
        (hidden.allocated, intermediate.allocated),
        (hidden.resident, intermediate.resident),
    )


@given(LAYERS, FACTS)
def test_rules_are_read_as_they_are_written(layers: list[list[Plain]], facts: Plain) -> None:
    status, rule, created, resident = read_plainly(layers, facts)
    decision = policy_of(layers).resolve(Facts.of(facts))
    assert (decision.status, decision.rule) == (status, rule)
    if status == "decided":
        assert (decision.hidden.allocated, decision.intermediate.allocated) == created
        assert (decision.hidden.resident, decision.intermediate.resident) == resident


@given(LAYERS, contracts(), FACTS, st.lists(st.tuples(*[st.sampled_from(SIZES)] * 2), min_size=3, max_size=5))
def test_other_sizes_of_a_layer_get_what_they_get_alone(
    layers: list[list[Plain]], held: Plain, facts: Plain, pairs: list[tuple[int, int]]
) -> None:
    """From the second question on, what holds whatever the sizes are is not worked out again."""
    policy = policy_of([*layers, [held]])
    for pair in pairs:
        asked = Facts.of({**facts, **dict(zip(DIMENSIONS.values(), pair, strict=True))})
        alone = decision(policy.stack, known(policy.stack.vocabulary, asked))
        assert policy.resolve(asked) == alone


@given(LAYERS, FACTS)
def test_nothing_is_allocated_below_its_native_size(layers: list[list[Plain]], facts: Plain) -> None:
    decision = policy_of(layers).resolve(Facts.of(facts))
    for size in (decision.hidden, decision.intermediate):
        assert size.native is not None
        if decision.status == "decided":
            assert size.allocated is not None
            assert size.resident is not None
            assert size.multiple is not None
            assert size.native <= size.allocated <= size.resident


@given(st.sampled_from((1, 2, 3, 4, 6, 8, 16, 96)), st.integers(1, 300), FACTS)
def test_a_size_is_the_least_multiple_and_stays(multiple: int, least: int, facts: Plain) -> None:
    align = {"multiple": multiple, "at_least": least}
    rule = {"id": "all", "align": align, "why": "a tile"}
    policy = policy_of([[{"language": 1, "pack": "p", "phase": "allocate", "rules": [rule]}]])
    decision = policy.resolve(Facts.of(facts))
    for name, key in DIMENSIONS.items():
        size = getattr(decision, name).allocated
        assert size % multiple == 0
        assert size >= max(facts[key], least)
        assert size - multiple < max(facts[key], least)
        again = policy.resolve(Facts.of({**facts, key: size}))
        assert getattr(again, name).allocated == size


@given(LAYERS, FACTS)
def test_a_multiple_divides_whatever_the_native_size(layers: list[list[Plain]], facts: Plain) -> None:
    policy = policy_of(layers)
    without = {key: value for key, value in facts.items() if key not in DIMENSIONS.values()}
    open_answer = policy.resolve(Facts.of(without))
    decision = policy.resolve(Facts.of(facts))
    if open_answer.status == "decided" and decision.status == "decided":
        for name in DIMENSIONS:
            assert getattr(decision, name).allocated % getattr(open_answer, name).multiple == 0


@st.composite
def opened(draw: st.DrawFn, sizes: bool) -> tuple[Plain, list[str]]:
    """Facts without some of them: so few that every value of the others can be tried."""
    facts = draw(FACTS)
    keys = [*OPEN, *(DIMENSIONS.values() if sizes else ())]
    taken = draw(st.lists(st.sampled_from(keys), min_size=1, max_size=2, unique=True))
    if "arch" in taken and draw(st.booleans()):
        taken.append("platform")
    taken = list(dict.fromkeys(taken))
    # What has a default is assumed where it is left out; the others are open.
    kept = {key: value for key, value in facts.items() if key not in taken}
    return kept, [key for key in taken if key not in ("vllm", "method", "fused_shared_experts")]


@given(files(), opened(sizes=False))
@settings(max_examples=150)
def test_open_facts_are_answered_as_if_each_value_were_asked_for(
    layers: list[list[Plain]], asked: tuple[Plain, list[str]]
) -> None:
    facts, open_keys = asked
    policy = policy_of(layers)
    whole = resolved(policy, facts)
    if not isinstance(whole, Decision):
        assert not any(is_possible(filled) for filled in fillings(facts, open_keys))
        return
    met: set[int] = set()
    for filled in fillings(facts, open_keys):
        if not is_possible(filled):
            assert resolved(policy, filled) in ({"F020"}, {"F023"})
            continue
        decision = policy.resolve(Facts.of(filled))
        if whole.status != "undecided":
            assert answer(decision) == answer(whole)
            assert whole.rule in (None, decision.rule)
        fitting = [
            index
            for index, other in enumerate(whole.alternatives)
            if all(filled[key] in accepts for key, accepts in compared(other.accepts).items())
        ]
        if whole.alternatives:
            (only,) = fitting
            met.add(only)
            told = whole.alternatives[only]
            assert told.rule == decision.rule
            assert told.status == decision.status
            assert told.then == brief(decision)
    assert met == set(range(len(whole.alternatives)))


def compared(accepts: Any) -> dict[str, Any]:
    return {key: values for key, values in accepts.items() if key != "vllm"}


def brief(decision: Decision) -> str:
    """A decision on known sizes in the words of an alternative."""
    if decision.status != "decided":
        return f"{decision.status}: {decision.reason}"
    texts = [
        f"{name} {size.allocated}"
        + (f" ({size.resident} once loaded)" if size.resident != size.allocated else "")
        for name, size in (("hidden", decision.hidden), ("intermediate", decision.intermediate))
    ]
    return ", ".join(texts)


@given(files(), opened(sizes=True), st.lists(st.sampled_from(SIZES), min_size=1, max_size=6))
@settings(max_examples=150)
def test_open_sizes_are_answered_as_if_each_were_asked_for(
    layers: list[list[Plain]], asked: tuple[Plain, list[str]], sizes: list[int]
) -> None:
    facts = {key: value for key, value in asked[0].items() if key != "hidden"}
    open_keys = [key for key in asked[1] if key not in DIMENSIONS.values()]
    policy = policy_of(layers)
    whole = resolved(policy, facts)
    if not isinstance(whole, Decision):
        return
    for filled in fillings(facts, open_keys):
        for size in sizes:
            full = {**filled, "hidden": size}
            if "intermediate_per_partition" not in full:
                full["intermediate_per_partition"] = sizes[-1]
            if is_possible(full):
                hold_against(whole, full, policy.resolve(Facts.of(full)))


def hold_against(whole: Decision, full: Plain, decision: Decision) -> None:
    """A decision on sizes against what was answered while they were open."""
    texts = [
        other.then
        for other in whole.alternatives
        if all(full[key] in accepts for key, accepts in compared(other.accepts).items())
    ]
    if (decision.reason or "").startswith("hidden "):
        # A phase refuses this size: while sizes are open that is part of the words, if anything follows.
        assert decision.status == "rejected"
        return
    if not whole.alternatives:
        if whole.status == "decided" and decision.status == "decided":
            assert whole.rule in (None, decision.rule)
        elif whole.status != "decided":
            assert answer(decision) == answer(whole)
        return
    (text,) = texts
    if text.startswith(("rejected: ", "unknown: ")):
        assert f"{decision.status}: {decision.reason}" == text
    else:
        assert decision.status == "decided"
        told = re.fullmatch(r"hidden (.*), intermediate (.*)", text)
        words = told.groups() if told else (text, text)
        for dimension, said in zip(DIMENSIONS, words, strict=True):
            created, resident = both(said)
            size = getattr(decision, dimension)
            assert size.allocated == walked(size.native, created)
            assert size.resident == walked(size.native, resident)


def both(said: str) -> tuple[str, str]:
    loaded = re.fullmatch(r"(.*) \((.*) once loaded\)", said)
    return (loaded[1], loaded[2]) if loaded else (said, said)


def walked(size: int, said: str) -> int:
    """What the words of an outcome make of a size."""
    for step in said.removesuffix(" required").split(", then "):
        name, _, number = step.rpartition(" ")
        if step.isdigit():
            size = int(step)
        elif name == "×":
            size = -(-size // int(number)) * int(number)
        elif name == "+":
            size += int(number)
        elif name == "at least":
            size = max(size, int(number))
        elif step.startswith("next of "):
            size = min(choice for choice in map(int, step[8:].split(", ")) if choice >= size)
        else:
            assert step == "native"
    return size


@given(files(), full_facts(), st.data())
def test_differences_are_those_of_asking_for_each_value(
    layers: list[list[Plain]], facts: Plain, data: st.DataObject
) -> None:
    key = data.draw(st.sampled_from(("method", "fused_shared_experts")))
    given_facts = {name: value for name, value in facts.items() if name != key}
    policy = policy_of(layers)
    base = policy.resolve(Facts.of(given_facts))
    differing = [other for other in policy.differences(Facts.of(given_facts)) if other.key == key]
    for value in OPEN[key]:
        decision = policy.resolve(Facts.of({**given_facts, key: value}))
        fitting = [other for other in differing if value in other.accepts]
        if answer(decision) == answer(base) or decision.status == "unknown":
            assert fitting == []
        else:
            (only,) = fitting
            assert only.then == brief(decision)


@given(LAYERS, FACTS, packs("more", "allocate"))
def test_a_rule_below_a_match_changes_nothing(layers: list[list[Plain]], facts: Plain, more: Plain) -> None:
    policy = policy_of(layers)
    decision = policy.resolve(Facts.of(facts))
    last = {**layers[-1][-1], "rules": [*layers[-1][-1]["rules"]]}
    last["rules"] += [{**rule, "id": f"more-{rule['id']}"} for rule in more["rules"]]
    longer = policy_of([*layers[:-1], [*layers[-1][:-1], last]]).resolve(Facts.of(facts))
    if decision.status != "unknown":
        assert answer(longer) == answer(decision)
        assert longer.rule == decision.rule
        assert longer.trace[: len(decision.trace)] or not decision.trace


@given(LAYERS, FACTS)
def test_every_rule_has_won_or_failed_by_a_condition(layers: list[list[Plain]], facts: Plain) -> None:
    policy = policy_of(layers)
    decision = policy.resolve(Facts.of(facts))
    if decision.status != "decided":
        return
    won = {step.rule.address for step in decision.steps}
    missed = {miss.rule.address for miss in decision.trace}
    assert won.isdisjoint(missed)
    assert won | missed == {rule.address for rule in policy.stack.rules()}


@given(LAYERS, contracts(), opened(sizes=True), st.randoms())
@settings(max_examples=60)
def test_the_order_of_contracts_does_not_matter(
    layers: list[list[Plain]], held: Plain, asked: tuple[Plain, list[str]], random: Any
) -> None:
    shuffled = {**held, "contracts": random.sample(held["contracts"], len(held["contracts"]))}
    one, two = (policy_of([*layers[:-1], [*layers[-1], pack]]) for pack in (held, shuffled))
    assert one.digest == two.digest
    first, second = resolved(one, asked[0]), resolved(two, asked[0])
    if isinstance(first, Decision):
        assert {check.contract.id: check.holds for check in first.contracts} == {
            check.contract.id: check.holds for check in second.contracts
        }


@given(LAYERS, contracts(), opened(sizes=True))
@settings(max_examples=60)
def test_a_contract_that_is_settled_is_settled_for_every_value(
    layers: list[list[Plain]], held: Plain, asked: tuple[Plain, list[str]]
) -> None:
    facts, open_keys = asked
    policy = policy_of([*layers[:-1], [*layers[-1], held]])
    whole = resolved(policy, facts)
    if not isinstance(whole, Decision) or whole.status != "decided":
        return
    settled = {check.contract.id: check.holds for check in whole.contracts}
    for filled in fillings(facts, open_keys[:1]):
        decision = resolved(policy, filled)
        if isinstance(decision, Decision) and decision.status == "decided":
            for check in decision.contracts:
                if check.holds is not None and settled.get(check.contract.id) is not None:
                    assert check.holds is settled[check.contract.id]


@given(LAYERS, FACTS, st.data())
def test_an_answer_depends_on_nothing_that_was_asked_before(
    layers: list[list[Plain]], facts: Plain, data: st.DataObject
) -> None:
    policy = policy_of(layers)
    others = data.draw(st.lists(full_facts(), max_size=3))
    for other in others:
        policy.resolve(Facts.of(other))
    fresh = Policy(policy.stack)
    assert policy.resolve(Facts.of(facts)) == fresh.resolve(Facts.of(facts))
    order = data.draw(st.permutations(list(facts)))
    assert fresh.resolve(Facts.of({key: facts[key] for key in order})) == policy.resolve(Facts.of(facts))
