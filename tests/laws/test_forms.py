"""The forms of one policy: digest, compiled file, bound function, pickle, other hash seeds, threads."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small import DIMENSIONS, OPEN, SIZES, WORDS, Plain, contracts, files, full_facts, policy_of, resolved

from moe_align import Decision, Facts, Policy, PolicyError, load_compiled, load_policy
from moe_align.compile import compiled

LAYERS = files()
FACTS = full_facts()
PACKAGE = Path(__file__).parents[2]


def plain_copy(layers: list[list[Plain]]) -> Any:
    return json.loads(json.dumps(layers))


def without_files(text: str) -> str:
    """A compiled file that names no rule files: those of the examples are gone."""
    content = json.loads(text)
    content["layers"] = [[name, []] for name, _ in content["layers"]]
    return json.dumps(content)


def through_json(policy: Policy, folder: Path) -> Policy:
    stack = policy.stack
    bare = Policy(stack._replace(layers=tuple(layer._replace(files=()) for layer in stack.layers)))
    path = folder / "policy.json"
    path.write_text(compiled(bare), encoding="utf-8")
    return load_compiled(path)


@given(LAYERS, contracts(), st.lists(FACTS, min_size=1, max_size=5), st.data())
def test_a_compiled_policy_answers_alike(
    tmp_path_factory: pytest.TempPathFactory,
    layers: list[list[Plain]],
    held: Plain,
    asked: list[Plain],
    data: st.DataObject,
) -> None:
    policy = policy_of([*layers, [held]])
    again = through_json(policy, tmp_path_factory.mktemp("compiled"))
    assert again.digest == policy.digest
    assert through_json(again, tmp_path_factory.mktemp("compiled")).digest == policy.digest
    for facts in asked:
        left_out = data.draw(st.sampled_from([*OPEN, *DIMENSIONS.values()]))
        some = {key: value for key, value in facts.items() if key != left_out}
        assert told(resolved(again, some)) == told(resolved(policy, some))


def told(answer: Any) -> Any:
    """A decision with its trace spread out: what is passed over as a pack is other objects after loading."""
    return (answer._replace(missed=()), answer.trace) if isinstance(answer, Decision) else answer


@given(LAYERS, st.data())
def test_the_digest_sees_what_decides_and_nothing_else(
    layers: list[list[Plain]], data: st.DataObject
) -> None:
    digest = policy_of(layers).digest
    prose = plain_copy(layers)
    for layer in prose:
        for number, file in enumerate(layer):
            file["pack"] += "-renamed"
            for rule in file["rules"]:
                rule.update(id=f"other-{rule['id']}", why="another reason", source=f"issue {number}")
                if "reject" in rule:
                    rule["reject"] = "in other words"
                rule["when"] = dict(reversed(rule.get("when", {}).items()))
    assert policy_of(prose).digest == digest
    changed = plain_copy(layers)
    rules = data.draw(st.sampled_from([file["rules"] for layer in changed for file in layer]))
    rule = data.draw(st.sampled_from(rules))
    rule["why"] = "a tile"
    kind = data.draw(st.sampled_from(["condition", "exception", "outcome", "experts", "more"]))
    if kind == "condition":
        rule["when"] = {"topk": 3}
    elif kind == "exception":
        rule["unless"] = {"topk": 3}
    elif kind == "outcome":
        for form in ("align", "add", "require", "reject"):
            rule.pop(form, None)
        rule["align"] = {"hidden": 1021}
    elif kind == "experts":
        rule["experts"] = 7
    else:
        rules.append({"id": "more", "when": {"topk": 3}, "align": 5, "why": "a tile"})
    assert policy_of(changed).digest != digest


CHANGED_WORDS: list[tuple[str, Any]] = [
    ("another value", {"vocabulary": {"activation": {"mish": {}}}}),
    ("another alias", {"vocabulary": {"activation": {"silu": {"aliases": ["swish"]}}}}),
    ("another implication", {"vocabulary": {"activation": {"silu": {"implies": {"gated": True}}}}}),
    ("another default", {"defaults": {"topk": 8}}),
    ("a declared switch", {"vocabulary": {"env.SWITCH": {"1": {}}}}),
]


@pytest.mark.parametrize(("name", "more"), CHANGED_WORDS)
def test_the_digest_sees_words(name: str, more: Plain) -> None:
    file = {"language": 1, "pack": "p", "phase": "allocate", "rules": [{"id": "all", "align": "native"}]}
    before = policy_of([[file]]).digest
    assert policy_of([[{**file, **more}]]).digest != before, name


def test_the_digest_does_not_see_notes_of_words() -> None:
    file = {"language": 1, "pack": "p", "vocabulary": {"activation": {"silu": {"note": "the usual one"}}}}
    assert policy_of([[file]]).digest == policy_of([]).digest


@given(contracts(), st.data())
def test_the_digest_sees_contracts(held: Plain, data: st.DataObject) -> None:
    digest = policy_of([[held]]).digest
    contract = data.draw(st.sampled_from(held["contracts"]))
    key, value = data.draw(
        st.sampled_from([("when", {"topk": 3}), ("breaks", "slow"), ("require", {"topk": {"max": 99}})])
    )
    changed = {
        **held,
        "contracts": [{**one, key: value} if one is contract else one for one in held["contracts"]],
    }
    assert policy_of([[changed]]).digest != digest
    prose = [{**one, "id": f"x{one['id']}", "why": "another reason"} for one in held["contracts"]]
    assert policy_of([[{**held, "contracts": prose}]]).digest == digest


@given(LAYERS, FACTS, st.data())
def test_bound_sizes_are_those_of_resolve(
    layers: list[list[Plain]], facts: Plain, data: st.DataObject
) -> None:
    policy = policy_of(layers)
    kept = data.draw(st.sets(st.sampled_from(sorted(OPEN))))
    fixed = {key: facts[key] for key in kept}
    bound = resolved_bind(policy, fixed)
    names = bound.__self__.keywords
    for _ in range(3):
        others = data.draw(FACTS)
        later = {key: others[key] for key in names if key in others}
        for hidden in (1, *data.draw(st.lists(st.sampled_from(SIZES), max_size=2))):
            sizes = {"hidden": hidden, "intermediate_per_partition": data.draw(st.sampled_from(SIZES))}
            decision = resolved(policy, {**fixed, **later, **sizes})
            if isinstance(decision, set):
                with pytest.raises(PolicyError):
                    bound(**later, **sizes)
            elif decision.status == "decided":
                assert bound(**later, **sizes) == (decision.hidden.allocated, decision.intermediate.allocated)
            else:
                with pytest.raises(PolicyError, match=decision.status):
                    bound(**later, **sizes)


def resolved_bind(policy: Policy, fixed: Plain) -> Any:
    """The bound function; facts that exclude each other are left out until none do."""
    while True:
        try:
            return policy.bind(**fixed)
        except PolicyError:
            fixed.popitem()


@given(LAYERS, FACTS)
def test_everything_public_can_be_pickled(layers: list[list[Plain]], facts: Plain) -> None:
    policy = policy_of(layers)
    asked = Facts.of(facts)
    decision = policy.resolve(asked)
    assert pickle.loads(pickle.dumps(asked)) == asked
    again = pickle.loads(pickle.dumps(policy))
    assert again.digest == policy.digest
    assert again.resolve(asked) == decision
    assert pickle.loads(pickle.dumps(decision)) == decision
    bound: Any = policy.bind(engine="vllm")
    assert pickle.loads(pickle.dumps(bound)).__self__.keywords == bound.__self__.keywords


def test_threads_get_the_answers_that_one_gets() -> None:
    rules = [
        {
            "id": f"{activation}-{size}",
            "when": {"hidden": {"max": size}, "activation": activation},
            "align": size,
            "why": "x",
        }
        for size in SIZES
        for activation in ("silu", "gelu")
    ]
    file = {
        "language": 1,
        "pack": "p",
        "phase": "allocate",
        "rules": [*rules, {"id": "rest", "align": "native"}],
    }
    policy = policy_of([[file]])
    asked = [
        {"hidden": hidden, "intermediate_per_partition": other, "activation": activation}
        for hidden in SIZES
        for other in SIZES[:5]
        for activation in ("silu", "gelu", "relu2")
    ]
    alone = Policy(policy.stack)
    expected = [alone.resolve(Facts.of(facts)) for facts in asked]
    sizes = policy.bind(engine="vllm")
    with ThreadPoolExecutor(8) as threads:
        for _ in range(3):
            assert list(threads.map(lambda facts: policy.resolve(Facts.of(facts)), asked)) == expected
            pairs = threads.map(lambda facts: sizes(**facts), asked)
            assert list(pairs) == [(one.hidden.allocated, one.intermediate.allocated) for one in expected]


SEEDED = """
import json, sys
from moe_align import Facts, load_policy
policy = load_policy(environ={})
facts = [dict(backend="aiter_bf16", activation="silu", tp=8), dict(scheme="mxfp4"), dict(platform="rocm")]
answers = [policy.resolve(Facts.of(one)) for one in facts]
print(policy.digest)
print([[(other.where, other.then) for other in answer.alternatives] for answer in answers])
for answer in answers:
    print([(miss.rule.address, miss.condition and miss.condition.key) for miss in answer.trace])
for one in facts:
    print([other[:3] for other in policy.differences(Facts.of(one))])
"""


def test_answers_do_not_depend_on_the_hash_seed() -> None:
    said = set()
    for seed in ("0", "1", "4711"):
        environ = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(PACKAGE)}
        ran = subprocess.run(
            [sys.executable, "-c", SEEDED], env=environ, capture_output=True, text=True, check=True
        )
        said.add(ran.stdout)
    assert len(said) == 1


def test_the_words_of_the_laws_are_all_used() -> None:
    assert set(OPEN) - {"experts", "vllm", "fused_shared_experts"} <= set(WORDS["vocabulary"])
    load_policy(environ={})
