"""A policy and its bound sizes as objects: frozen, of bounded memory, and with reasons."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from moe_align import Facts, Policy, PolicyError, load_policy, space
from moe_align import bind as binding
from moe_align import layers as lying
from moe_align import policy as policies
from moe_align.decision import differences
from moe_align.known import known
from moe_align.packs import Pack

WORDS = Path(__file__).parents[1] / "language" / "with" / "words.yaml"
RULES = """
language: 1
pack: p
phase: allocate
rules:
  - {id: refused, when: {activation: relu2}, require: {hidden: 64}, why: a tile}
  - {id: grouped, when: {activation: swigluoai}, align: {lcm: [64, group]}, why: a group}
  - {id: padded, when: {backend: marlin}, add: {hidden: 1}, why: a guard}
  - {id: repeated, when: {backend: triton}, align: {multiple: 64, at_least: 100}, why: a tile}
  - {id: aligned, when: {activation: silu}, align: 128, why: a tile}
  - id: refined
    when: {backend: trtllm}
    refine: {blocks: [block_n], floor: 8}
    else: {align: {intermediate: block_k}}
    why: blocks
"""


@pytest.fixture
def policy(tmp_path: Path) -> Policy:
    path = tmp_path / "p.yaml"
    path.write_text(RULES)
    return load_policy(path, WORDS, environ={}, built_in=False)


def test_a_policy_is_frozen(policy: Policy) -> None:
    with pytest.raises(AttributeError, match="a policy is frozen"):
        policy.stack = policy.stack


def test_a_policy_forgets_before_it_grows_too_large(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policies, "MOST_KEPT", 3)
    facts = [Facts(activation="silu", hidden=size, intermediate_per_partition=1) for size in range(1, 10)]
    first = [policy.resolve(one) for one in facts]
    assert [policy.resolve(one) for one in facts] == first
    assert len(policy._memo) <= 3


def test_the_same_question_gives_the_same_object(policy: Policy) -> None:
    facts = Facts(activation="silu")
    assert policy.resolve(facts) is policy.resolve(Facts(activation="silu"))


def test_bound_sizes_have_the_keywords_that_matter(policy: Policy) -> None:
    sizes = policy.bind(backend="marlin")
    assert set(sizes.__code__.co_varnames) >= {"activation", "group", "hidden"}
    with pytest.raises(TypeError, match="unexpected keyword argument 'weather'"):
        sizes(weather="fine", hidden=1, intermediate_per_partition=1)
    with pytest.raises(TypeError, match="missing 1 required keyword-only argument"):
        sizes(hidden=1)


@pytest.mark.parametrize(
    ("given", "sizes"),
    [
        ({"activation": "silu", "backend": "aiter"}, (128, 256)),
        ({"activation": "silu", "backend": "marlin"}, (101, 200)),
        ({"activation": "silu", "backend": "triton"}, (128, 256)),
        ({"activation": "swigluoai", "group": 96}, (192, 384)),
        ({"activation": "relu2"}, "rejected: hidden 100 is not a multiple of 64: a tile"),
        ({"activation": "swigluoai"}, "undecided: depends on group"),
        ({"backend": "nobody"}, "unknown backend `nobody`"),
    ],
)
def test_bound_sizes_answer_or_say_why_not(given: dict[str, object], sizes: object, policy: Policy) -> None:
    bound = policy.bind(engine="vllm")
    for _ in range(2):
        if isinstance(sizes, str):
            with pytest.raises(PolicyError, match=sizes):
                bound(**given, hidden=100, intermediate_per_partition=200)
        else:
            assert bound(**given, hidden=100, intermediate_per_partition=200) == sizes


def test_bound_sizes_forget_before_they_grow_too_large(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binding, "MOST_BOUND", 2)
    bound = policy.bind(activation="silu", backend="aiter")
    other = policy.bind(engine="vllm")
    for activation in ("silu", "swiglu", "Silu", "SILU", "SiLU"):
        assert other(activation=activation, backend="aiter", hidden=1, intermediate_per_partition=1) == (
            128,
            128,
        )
    assert bound(hidden=129, intermediate_per_partition=1) == (256, 128)


def test_bound_sizes_are_frozen(policy: Policy) -> None:
    bound = binding.Sizes(policy, Facts(engine="vllm"))
    with pytest.raises(AttributeError, match="bound sizes are frozen"):
        bound.policy = policy


def test_facts_that_cannot_be_bound_are_refused(policy: Policy) -> None:
    with pytest.raises(PolicyError, match="unknown backend `nobody`"):
        policy.bind(backend="nobody")


def test_without_implications_nothing_follows(policy: Policy) -> None:
    bare = policy.without_implications()
    assert bare.resolve(Facts(backend="trtllm", activation="silu")).implied.get("platform") is None
    assert bare.digest != policy.digest
    assert bare.stack.phases == policy.stack.phases


def test_a_pack_is_frozen_and_equal_by_what_it_says(policy: Policy) -> None:
    (pack,) = policy.stack.phases["allocate"]
    with pytest.raises(AttributeError, match="a pack is frozen"):
        pack.name = "other"
    assert pack == pack.having(pack.rules)
    assert hash(pack) == hash(pack.having(pack.rules))
    assert pack != pack.having(pack.rules[1:])
    assert pack != "pack"
    assert isinstance(pack, Pack)


def test_layers_come_from_arguments_then_the_environment_then_the_package(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.yaml").write_text("language: 1\n")
    (tmp_path / "a" / "notes.txt").write_text("no rules")
    said = os.pathsep.join([str(tmp_path / "b"), "", str(tmp_path / "c" / "c.yaml")])
    found = lying.layers_of([tmp_path / "a"], environ={lying.VARIABLE: said})
    assert [layer.name for layer in found] == [
        str(tmp_path / "a"),
        str(tmp_path / "b"),
        str(tmp_path / "c" / "c.yaml"),
        lying.BUILT_IN,
    ]
    assert [os.path.basename(file) for layer in found[:3] for file in layer.files] == [
        "a.yaml",
        "b.yaml",
        "c.yaml",
    ]
    assert found[0].shown("x/y.yaml") == "x/y.yaml"
    assert found[-1].shown("x/y.yaml") == "rules/y.yaml"
    assert lying.layers_of([], environ={}, built_in=False) == ()


def test_a_path_that_is_named_twice_is_one_layer(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("language: 1\n")
    (tmp_path / "link.yaml").symlink_to("a.yaml")
    said = os.pathsep.join([str(tmp_path / "link.yaml"), lying.built_in_rules()])
    found = lying.layers_of([tmp_path / "a.yaml"], environ={lying.VARIABLE: said})
    assert [layer.name for layer in found] == [str(tmp_path / "a.yaml"), lying.BUILT_IN]
    (again,) = lying.layers_of([lying.built_in_rules()], environ={}, built_in=False)
    assert again.name == lying.built_in_rules()


def test_the_environment_is_read_where_none_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(lying.VARIABLE, str(WORDS))
    assert lying.layers_of([], built_in=False)[0].name == str(WORDS)


def test_the_rules_of_an_installed_package_lie_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "moe_align"
    (package / "rules").mkdir(parents=True)
    monkeypatch.setattr(lying, "__file__", str(package / "layers.py"))
    assert lying.built_in_rules() == str(package / "rules")
    (package / "rules").rmdir()
    assert lying.built_in_rules() == str(tmp_path / "rules")


def test_all_contracts_of_a_stack_are_listed() -> None:
    stack = load_policy(environ={}).stack
    assert {contract.address for contract in stack.all_contracts()} == {
        contract.address for pack in stack.contracts for contract in pack.contracts
    }
    assert len(list(stack.rules())) == sum(
        len(pack.rules) for packs in stack.phases.values() for pack in packs
    )


def test_the_winner_is_the_rule_of_the_answer(policy: Policy) -> None:
    decision = policy.resolve(Facts(backend="aiter", activation="silu"))
    assert decision.winner is not None
    assert decision.winner.address == decision.rule == "p/aligned"
    assert policy.resolve(Facts(backend="aiter")).winner is None


def test_only_the_differences_that_are_asked_for_are_looked_for(policy: Policy, tmp_path: Path) -> None:
    path = tmp_path / "more.yaml"
    path.write_text(
        "language: 1\npack: more\nphase: allocate\nrules:\n"
        '  - {id: old, when: {vllm: "<0.20"}, align: 8, why: a tile}\n'
        "  - {id: lora, when: {lora: true}, align: 4, why: a tile}\n"
        "  - {id: all, align: native}\n"
    )
    stack = load_policy(path, WORDS, environ={}, built_in=False).stack
    state = known(stack.vocabulary, Facts())
    assert [one.key for one in differences(stack, state)] == ["vllm", "lora"]
    assert [one.key for one in differences(stack, state, of=lambda key: key == "lora")] == ["lora"]


def test_a_name_that_is_not_there_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="has no attribute `nothing`"):
        space.nothing  # noqa: B018


def test_sets_are_frozen() -> None:
    with pytest.raises(AttributeError, match="a set of integers is frozen"):
        space.Ints.all().pieces = ()
    with pytest.raises(AttributeError, match="a set of releases is frozen"):
        space.VersionSet.all().intervals = ()


def test_packs_of_other_schemes_bind_nothing() -> None:
    """What no rule looks at any more is no keyword of the bound function."""
    names = load_policy(environ={}).bind(scheme="mxfp4").__code__.co_varnames
    assert "backend" in names
    assert "scheme" not in names


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        ("require: {hidden: 256}", "hidden 128 is not a multiple of 256: a layout"),
        ("align: {hidden: {snap: [64]}}", "hidden 128 is above 64, the largest of 64"),
        ("refine: {blocks: [group], floor: 8}\n    else: {reject: no group fits}", "no group fits"),
    ],
)
def test_bound_sizes_know_what_is_refused_after_allocation(outcome: str, reason: str, tmp_path: Path) -> None:
    head = "language: 1\npack: {0}\nphase: {1}\nrules:\n  - id: all\n    why: a layout\n    {2}\n"
    (tmp_path / "a.yaml").write_text(head.format("a", "allocate", "align: {hidden: 128}"))
    (tmp_path / "b.yaml").write_text(head.format("b", "repack", outcome))
    policy = load_policy(tmp_path, WORDS, environ={}, built_in=False)
    bound = policy.bind(engine="vllm", group=64)
    for _ in range(2):
        with pytest.raises(PolicyError, match=f"rejected: {reason}"):
            bound(hidden=100, intermediate_per_partition=4)


def test_bound_sizes_know_what_model_code_sets(tmp_path: Path) -> None:
    head = "language: 1\npack: {0}\nphase: {1}\nrules:\n  - {{id: all, why: a size, {2}}}\n"
    (tmp_path / "a.yaml").write_text(head.format("a", "model", "set: {hidden: 200}"))
    (tmp_path / "b.yaml").write_text(head.format("b", "allocate", "align: 64"))
    bound = load_policy(tmp_path, WORDS, environ={}, built_in=False).bind(engine="vllm")
    assert bound(hidden=100, intermediate_per_partition=4) == (256, 64)
    assert bound(hidden=200, intermediate_per_partition=64) == (256, 64)
    with pytest.raises(PolicyError, match="hidden is set to 200, below 201: a size"):
        bound(hidden=201, intermediate_per_partition=4)
