from __future__ import annotations

import copy
import pickle

import pytest

from moe_align.errors import Location, PolicyError, Problem, did_you_mean

PLACE = Location("rules/aiter.yaml", 6, 26)


@pytest.mark.parametrize(
    ("problem", "text"),
    [
        (Problem("E001", "no such key"), "no such key [E001]"),
        (Problem("E001", "no such key", rule="x"), "rule `x`: no such key [E001]"),
        (Problem("E001", "no such key", location=PLACE), "rules/aiter.yaml:6:26: no such key [E001]"),
        (
            Problem("E002", "unknown dimension `hidden_sise`", "write `hidden_size`", PLACE, "straddles"),
            "rules/aiter.yaml:6:26: rule `straddles`: unknown dimension `hidden_sise` [E002]\n"
            "  fix: write `hidden_size`",
        ),
    ],
)
def test_a_problem_reads_as_place_rule_message_code_fix(problem: Problem, text: str) -> None:
    assert str(problem) == text


def test_an_error_says_all_of_its_problems() -> None:
    first, second = Problem("E001", "one", "do this"), Problem("E002", "two", location=PLACE)
    error = PolicyError([first, second])
    assert isinstance(error, ValueError)
    assert error.problems == (first, second)
    assert str(error) == f"{first}\n{second}"


@pytest.mark.parametrize("again", [lambda error: pickle.loads(pickle.dumps(error)), copy.copy])
def test_an_error_survives_the_way_to_another_process(again) -> None:  # type: ignore[no-untyped-def]
    error = PolicyError((Problem("E002", "two", "fix", PLACE, "x"),))
    other = again(error)
    assert other.problems == error.problems
    assert str(other) == str(error)


@pytest.mark.parametrize(
    ("word", "candidates", "meant"),
    [
        ("hidden_sise", ("hidden_size", "intermediate_size"), "hidden_size"),
        ("AITER_BF16", ("aiter_bf16", "triton"), "aiter_bf16"),
        ("rocm", ("ROCm",), "ROCm"),
        ("zzz", ("aiter_bf16", "triton"), None),
        ("x", (), None),
    ],
)
def test_a_close_word_is_offered_and_a_far_one_is_not(
    word: str, candidates: tuple[str, ...], meant: str | None
) -> None:
    assert did_you_mean(word, candidates) == meant
