"""Vocabulary and what follows from facts, where no case of the language shows it."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from moe_align import Facts, Policy, PolicyError, load_policy
from moe_align.known import Known, consistent, known
from moe_align.packs import Amount, Count, Multiple, Pad, Refine
from moe_align.space import Ints, VersionSet
from moe_align.vocabulary import Vocabulary

WORDS = Path(__file__).parents[1] / "language" / "with" / "words.yaml"


@pytest.fixture(scope="module")
def policy() -> Policy:
    return load_policy(WORDS, environ={}, built_in=False)


def refusal(policy: Policy, **given: Any) -> str:
    with pytest.raises(PolicyError) as caught:
        policy.resolve(Facts.of(given))
    return str(caught.value)


def policy_of(folder: Path, text: str) -> Policy:
    path = folder / "words.yaml"
    path.write_text(f"language: 1\npack: words\n{text}")
    return load_policy(path, environ={}, built_in=False)


def test_every_value_of_every_fact(policy: Policy) -> None:
    words = policy.stack.vocabulary
    assert words.domain("lora") == {"true", "false"}
    assert words.domain("has.fhmoe_i384") == {"true", "false"}
    assert words.domain("env.VLLM_AITER") == {"1", "unset"}
    assert words.domain("routing") == frozenset()
    state = Known(words, {}, {}, {}, {})
    assert state.domain("tp") == Ints.all()
    assert state.domain("vllm") == VersionSet.all()


def test_a_vocabulary_can_be_pickled(policy: Policy) -> None:
    words = policy.stack.vocabulary
    again: Vocabulary = pickle.loads(pickle.dumps(words))
    assert (again.terms, again.groups, again.defaults) == (words.terms, words.groups, words.defaults)
    assert again.assumptions == words.assumptions


def test_what_is_not_said_of_a_value_is_nothing(policy: Policy) -> None:
    assert policy.stack.vocabulary.implied("backend", "nobody") == ()
    assert policy.stack.vocabulary.implied("weather", "fine") == ()
    assert policy.stack.vocabulary.implying("weather") == ()


def test_long_lists_of_values_are_cut(tmp_path: Path) -> None:
    values = ", ".join(f"a{number}: {{}}" for number in range(20))
    words = policy_of(tmp_path, f"vocabulary: {{arch: {{{values}}}}}\n").stack.vocabulary
    assert words.suggestion("arch", "something") == (
        "legal are a0, a1, a10, a11, a12, a13, a14, a15, a16, a17, a18, a19"
        " (and 8 more: `moe-align list arch`)"
    )


def test_a_fact_without_values_is_to_be_declared(policy: Policy) -> None:
    assert refusal(policy, routing="renormalize") == (
        "unknown routing `renormalize` [F010]\n"
        "  fix: declare it: `vocabulary: {routing: {renormalize: {}}}` in a pack"
    )


def test_no_value_that_fits_is_no_answer(tmp_path: Path) -> None:
    policy = policy_of(
        tmp_path,
        "vocabulary:\n"
        "  platform: {cuda: {}, rocm: {}, tpu: {}}\n"
        "  arch: {gfx950: {implies: {platform: rocm}}, sm90: {implies: {platform: cuda}}}\n",
    )
    assert refusal(policy, platform="tpu") == (
        "no arch goes with platform `tpu` [F023]\n  fix: correct the facts, or declare one for it in a pack"
    )


def test_implications_run_over_several_facts(tmp_path: Path) -> None:
    policy = policy_of(
        tmp_path,
        "vocabulary:\n"
        "  platform: {cuda: {}, rocm: {}}\n"
        "  arch:\n"
        "    gfx942: {implies: {platform: rocm}}\n"
        "    gfx950: {implies: {platform: rocm}}\n"
        "    sm90: {implies: {platform: cuda}}\n"
        "  kernel: {new: {implies: {arch: [gfx950, sm90]}}, old: {implies: {arch: [gfx942]}}}\n"
        "  backend:\n"
        "    one: {implies: {kernel: new, platform: rocm}}\n"
        "    two: {implies: {kernel: old}}\n"
        "    three: {}\n"
        "  activation: {silu: {implies: {arch: [gfx942, sm90]}}, gelu: {}}\n",
    )
    words = policy.stack.vocabulary
    assert known(words, Facts(backend="one")).values == {
        "backend": "one",
        "kernel": "new",
        "platform": "rocm",
        "arch": "gfx950",
        "activation": "gelu",
    }
    assert known(words, Facts(kernel="old")).values["platform"] == "rocm"
    state = known(words, Facts(kernel="new"))
    assert state.domain("arch") == {"gfx950", "sm90"}
    assert state.domain("backend") == {"one", "three"}
    assert refusal(policy, backend="one", activation="silu").startswith(
        "backend `one` and activation `silu` exclude each other: no arch fits both [F020]"
    )
    assert consistent(known(words, Facts()))
    open_state = Known(words, {}, {}, {}, {})
    narrowed = open_state.within("platform", frozenset({"cuda"}))
    assert narrowed is not None
    assert narrowed.within("platform", frozenset({"rocm"})) is None
    assert narrowed.within("backend", frozenset({"two"})) is None
    assert narrowed.within("platform", frozenset({"cuda"})) is not None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"kernel": "first", "routing": "second"},
            "kernel `first` and routing `second` exclude each other: no arch fits both [F020]",
        ),
        (
            {"kernel": "third", "platform": "cuda"},
            "kernel `third` and platform `cuda` exclude each other [F020]",
        ),
    ],
)
def test_facts_that_exclude_each_other_over_others(given: dict[str, str], said: str, tmp_path: Path) -> None:
    policy = policy_of(
        tmp_path,
        "vocabulary:\n"
        "  platform: {cuda: {}, rocm: {}}\n"
        "  arch: {a: {}, b: {}, c: {}, d: {}, e: {implies: {platform: rocm}}}\n"
        "  kernel:\n"
        "    first: {implies: {arch: [a, b]}}\n"
        "    third: {implies: {arch: e}}\n"
        "    other: {}\n"
        "  routing: {second: {implies: {arch: [c, d]}}, other: {}}\n",
    )
    assert set(refusal(policy, **given).splitlines()[0].replace("`", "").split()) == set(
        said.replace("`", "").split()
    )


@pytest.mark.parametrize("default", ["platform: cuda", "kernel: odd"])
def test_a_default_that_cannot_hold_is_not_taken(default: str, tmp_path: Path) -> None:
    policy = policy_of(
        tmp_path,
        "vocabulary:\n"
        "  platform: {cuda: {}, rocm: {}, xpu: {}}\n"
        "  arch: {a: {implies: {platform: [rocm, xpu]}}, b: {implies: {platform: cuda}}}\n"
        "  kernel: {odd: {implies: {arch: a, platform: cuda}}, even: {}}\n"
        f"defaults: {{{default}}}\n",
    )
    state = known(policy.stack.vocabulary, Facts(arch="a") if "platform" in default else Facts())
    assert "assumed" not in state.origin.values()


def test_one_integer_that_is_left_is_a_value_but_for_sizes(policy: Policy) -> None:
    state = Known(policy.stack.vocabulary, {}, {}, {}, {})
    narrowed = state.within("group", Ints.of(32))
    assert narrowed is not None
    assert narrowed.values == {"group": 32}
    sized = state.within("hidden", Ints.of(32))
    assert sized is not None
    assert sized.values == {}
    assert sized.domain("hidden") == Ints.of(32)
    released = state.within("aiter", VersionSet.exactly((0, 1)))
    assert released is not None
    assert released.values == {}
    assert state.within("group", Ints.empty()) is None


def test_an_engine_without_arithmetic_leaves_the_split_open(tmp_path: Path) -> None:
    policy = policy_of(
        tmp_path,
        "vocabulary: {engine: {other: {}}}\ndefaults: {engine: other, tp: 2, dp: 1, pcp: 1, ep: 1}\n",
    )
    state = known(policy.stack.vocabulary, Facts(intermediate=8))
    assert "moe_tp" not in state.values
    assert "intermediate_per_partition" not in state.values


def test_parallel_sizes_that_the_engine_refuses_are_refused(policy: Policy) -> None:
    assert "[F022]" in refusal(policy, engine="sglang", tp=4, ep=3)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Multiple("times", (1,)), "native"),
        (Multiple("times", (1,), 512), "at least 512"),
        (Multiple("times", (64,), 512), "64, at least 512"),
        (Multiple("lcm", (64, "group")), "lcm(64, group)"),
        (Multiple("max", (64, "block_n"), 8), "max(64, block_n), at least 8"),
        (Multiple("snap", (64, 128)), "next of 64, 128"),
        (Multiple("bytes", (512,)), "512 bytes of activations"),
        (Pad("exact"), "exact"),
        (Pad("floor", 64), "floor(64)"),
        (Pad("floor", 64, 2), "floor(64) × 2"),
        (Count(8), "8"),
        (Count(8, "topk"), "8, at least topk"),
        (Count(1, 4), "at least 4"),
    ],
)
def test_parts_of_outcomes_in_words(value: object, text: str) -> None:
    assert str(value) == text


def test_native_is_the_multiple_of_one() -> None:
    assert Multiple("times", (1,)).is_native
    assert not Multiple("times", (1,), 8).is_native


@pytest.mark.parametrize(("pad", "told"), [("absent", None), ("zero", 0), ("exact", 70), ("floor", 128)])
def test_a_declared_pad(pad: str, told: int | None) -> None:
    assert Pad(pad, 64, 2).of(70) == told if pad != "exact" else Pad(pad).of(70) == told


def test_values_are_tuples_with_names() -> None:
    amount = Amount(64)
    assert amount == (64, "elements")
    assert amount._replace(unit="bytes") == Amount(64, "bytes")
    assert amount._asdict() == {"number": 64, "unit": "elements"}
    assert repr(Refine(("group",), "hidden", 8)) == "Refine(blocks=('group',), fits='hidden', floor=8)"
    with pytest.raises(ValueError, match="no field named weight"):
        amount._replace(weight=1)  # type: ignore[call-arg]
    assert Amount._make([1, "bytes"]) == Amount(1, "bytes")
    assert pickle.loads(pickle.dumps(amount)) == amount
