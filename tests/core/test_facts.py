from __future__ import annotations

import pytest

from moe_align import Facts, PolicyError
from moe_align import facts as keys

GIVEN = Facts(backend="aiter_bf16", gated=True, tp=8, vllm="0.33.0", env={"VLLM_X": "1"}, has={"new": False})


def test_facts_are_read_as_a_mapping() -> None:
    assert dict(GIVEN.items()) == {
        "backend": "aiter_bf16",
        "gated": "true",
        "tp": 8,
        "vllm": "0.33.0",
        "env.VLLM_X": "1",
        "has.new": "false",
    }
    assert list(GIVEN) == ["backend", "gated", "tp", "vllm", "env.VLLM_X", "has.new"]
    assert len(GIVEN) == 6
    assert "tp" in GIVEN
    assert "dp" not in GIVEN
    assert GIVEN.get("tp") == 8
    assert GIVEN.get("dp") is None
    assert Facts.of(dict(GIVEN.items())) == GIVEN


def test_facts_are_equal_by_what_they_say() -> None:
    other = Facts(
        tp=8, vllm="0.33.0", backend="aiter_bf16", gated=True, has={"new": False}, env={"VLLM_X": "1"}
    )
    assert other == GIVEN
    assert hash(other) == hash(GIVEN)
    assert hash(other) == hash(other)
    assert Facts(tp=4) != GIVEN
    assert Facts() != "facts"
    assert repr(Facts(tp=4, backend="marlin")) == "Facts(tp=4, backend='marlin')"


def test_facts_are_frozen_and_make_others() -> None:
    with pytest.raises(AttributeError, match=r"facts are frozen: use `.having\(tp=…\)`"):
        GIVEN.tp = 4
    assert GIVEN.having(tp=4, hidden=7168).get("tp") == 4
    assert GIVEN.having(arch=None) == GIVEN  # type: ignore[arg-type]
    assert GIVEN.having(env={"VLLM_Y": "0"}).get("env.VLLM_X") == "1"
    assert "tp" not in GIVEN.without("tp", "vllm")
    assert GIVEN.get("tp") == 8


def test_what_is_none_is_not_given() -> None:
    assert len(Facts(backend=None, tp=None)) == 0  # type: ignore[arg-type]


def test_a_number_may_be_the_name_of_a_value() -> None:
    assert Facts(env={"VLLM_X": 1}).get("env.VLLM_X") == "1"  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"tp": 0}, "F004"),
        ({"tp": 8.0}, "F003"),
        ({"hidden": 2**31 + 1}, "F005"),
        ({"tensor_parallel": 8}, "F001"),
        ({"env": "VLLM_X"}, "F001"),
        ({"env": {"VLLM_X": None}}, "F002"),
        ({"backend": ["marlin"]}, "F002"),
        ({"backend": "  "}, "F002"),
        ({"vllm": 33}, "F002"),
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, object], code: str) -> None:
    with pytest.raises(PolicyError, match=code):
        Facts.of(given)


def test_every_key_has_a_kind_and_a_meaning() -> None:
    every = keys.keys()
    kinds = {keys.kind(key) for key in every}
    assert kinds == {"discrete", "integer", "version"}
    assert all(keys.meaning(key) for key in every)
    assert keys.kind("env.VLLM_X") == keys.kind("has.new") == "discrete"
    assert keys.meaning("env.VLLM_X") == keys.NAMESPACES["env"]
    assert keys.kind("env.") is None
    assert keys.kind("weather") is None
    assert [key for key in every if key in keys.INTEGERS and keys.lowest(key) == 0] != []
