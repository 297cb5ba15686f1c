"""The packs of SGLang and ATOM against what their own code answered, and the rules that were read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from moe_align import Decision, Facts, Policy, load_policy

ENGINE = Path(__file__).parent / "data" / "engine"
VERSIONS = {"sglang": "0.5.23", "atom": "0.1.6"}


@cache
def policy(*without: str) -> Policy:
    """The built-in policy, without some phases."""
    stack = load_policy(environ={}).stack
    return Policy(stack._replace(phases={**stack.phases, **dict.fromkeys(without, ())}))


def table(engine: str, kind: str) -> list[dict[str, Any]]:
    found = json.loads((ENGINE / f"{engine}_sizes.json").read_text(encoding="utf-8"))
    rows: list[dict[str, Any]] = found[VERSIONS[engine]][kind]
    return rows


def rows() -> Iterator[Any]:
    for engine in VERSIONS:
        for row in table(engine, "sizes"):
            said = " ".join(str(value) for value in row["facts"].values())
            yield pytest.param(engine, row, id=f"{engine} {said}")


def answer(engine: str, row: dict[str, Any], hidden: int, intermediate: int) -> tuple[object, object]:
    """What the policy says in the place where the engine's function speaks."""
    phases = ("model",) if row["phase"] == "repack" else ("model", "repack")
    facts = {**row["facts"], "engine": engine, "hidden": hidden, "intermediate_per_partition": intermediate}
    decision = policy(*phases).resolve(Facts.of(facts))
    if decision.status != "decided":
        return f"{decision.status}: {decision.error}", None
    if row["phase"] == "storage":
        added = {name: amount.number // 2 for name, amount, stride in decision.storage if stride}
        return hidden + added.get("hidden", 0), intermediate + added.get("intermediate", 0)
    return decision.hidden.resident, decision.intermediate.resident


def agrees(said: tuple[object, object], got: tuple[object, object]) -> bool:
    if not isinstance(said[0], str):
        return said == got
    return got == (said[0].replace("error", "rejected"), None) or got == ("rejected: None", None)


@pytest.mark.parametrize(("engine", "row"), list(rows()))
def test_sizes_are_those_of_the_engine(engine: str, row: dict[str, Any]) -> None:
    wrong = []
    for hidden, intermediate, *said in row["cases"]:
        got = answer(engine, row, hidden, intermediate)
        if not agrees((said[0], said[1]), got):
            wrong.append(((hidden, intermediate), said, got))
    assert wrong == []


@pytest.mark.parametrize("row", table("sglang", "groups"), ids=lambda row: f"group {row['group']}")
def test_groups_are_halved_as_the_engine_does(row: dict[str, Any]) -> None:
    for hidden, intermediate, group, said in row["cases"]:
        facts = Facts(
            engine="sglang",
            scheme="int4_wna16",
            method="awq",
            backend="triton",
            group=group,
            hidden=hidden,
            intermediate_per_partition=intermediate,
        )
        decision = policy().resolve(facts)
        if isinstance(said, str):
            assert decision.error == said.removeprefix("error: ")
        else:
            assert dict(decision.blocks).get("group", group) == said


def ask(**facts: Any) -> Decision:
    return policy().resolve(Facts.of({"engine": "sglang", **facts}))


def sizes(decision: Decision) -> object:
    if decision.status != "decided":
        return decision.error or decision.status
    return (
        decision.hidden.allocated,
        decision.intermediate.allocated,
        decision.hidden.resident,
        decision.intermediate.resident,
    )


#: Rules that were read: facts, hidden and intermediate size, and allocated and resident sizes or the refusal.
READ = [
    ("scheme=mxfp4 backend=trtllm_mxfp8 arch=sm100", (2880, 2880), (3072, 2944, 3072, 2944)),
    ("scheme=mxfp4 backend=cutlass_bf16 arch=sm90", (2880, 360), (3072, 360, 3072, 384)),
    ("scheme=mxfp4 backend=marlin arch=sm90", (2880, 384), (3072, 384, 3072, 384)),
    ("scheme=mxfp4 backend=marlin arch=sm90", (2880, 360), "RuntimeError"),
    ("scheme=mxfp4 method=fp4_experts backend=marlin arch=sm90", (7168, 288), (7168, 288, 7168, 320)),
    ("scheme=mxfp4 method=fp4_experts backend=marlin arch=sm100", (7168, 288), (7168, 384, 7168, 384)),
    ("scheme=mxfp4 method=fp4_experts backend=trtllm_bf16 arch=sm100", (7168, 288), (7168, 288, 7168, 384)),
    ("scheme=mxfp4 method=fp4_experts backend=aiter arch=gfx950", (7168, 320), (7168, 320, 7168, 384)),
    ("scheme=mxfp4 method=fp4_experts backend=aiter arch=gfx950", (7168, 384), (7168, 384, 7168, 384)),
    ("scheme=mxfp4 backend=megamoe arch=sm100", (2880, 384), "ValueError"),
    ("scheme=mxfp4 method=quark backend=aiter arch=gfx950", (7168, 384), (7168, 512, 7168, 512)),
    (
        "scheme=mxfp4 method=quark backend=aiter arch=gfx950 env.SGLANG_AITER_K3_OPT=1",
        (7168, 384),
        (7168, 384, 7168, 384),
    ),
    ("scheme=nvfp4 backend=trtllm gated=false", (2688, 1856), (2688, 1920, 2688, 1920)),
    (
        "scheme=nvfp4 backend=trtllm gated=false kernel=trtllm_per_token",
        (2688, 1856),
        (2688, 1920, 3072, 1920),
    ),
    ("scheme=nvfp4 backend=cutlass gated=true", (4096, 192), (4096, 192, 4096, 192)),
    ("scheme=nvfp4 backend=cutlass gated=true", (4096, 96), "AssertionError"),
    ("scheme=nvfp4 backend=cutlass gated=false", (4096, 96), (4096, 96, 4096, 128)),
    ("scheme=nvfp4 backend=cutedsl gated=true", (4096, 96), "AssertionError"),
    ("scheme=nvfp4 backend=cutedsl gated=true", (4096, 128), (4096, 128, 4096, 128)),
    ("scheme=nvfp4 backend=aiter gated=true", (4096, 384), (4096, 384, 4096, 512)),
    ("scheme=nvfp4 backend=marlin gated=false", (4096, 96), (4096, 96, 4096, 128)),
    ("scheme=nvfp4 backend=marlin method=compressed_tensors gated=true", (4096, 96), "ValueError"),
    ("scheme=nvfp4 backend=marlin method=compressed_tensors gated=true", (4096, 192), (4096, 192, 4096, 192)),
    ("scheme=nvfp4 backend=flashinfer_megamoe", (4096, 192), "ValueError"),
    ("scheme=nvfp4 backend=flashinfer_megamoe", (4096, 256), (4096, 256, 4096, 256)),
    ("scheme=nvfp4 backend=megamoe", (4096, 384), "ValueError"),
    ("scheme=mxfp8 backend=cutlass", (4096, 96), (4096, 96, 4096, 96)),
    ("scheme=mxfp8 backend=cutlass", (4096, 100), "AssertionError"),
    ("scheme=mxfp8 backend=flashinfer_megamoe", (4096, 192), "ValueError"),
    ("scheme=mxfp8 backend=flashinfer_megamoe", (4096, 256), (4096, 256, 4096, 256)),
    ("scheme=mxfp8 backend=megamoe", (4096, 384), "ValueError"),
    ("scheme=mxfp8 backend=trtllm gated=true", (4096, 192), (4096, 256, 4096, 256)),
    ("scheme=mxfp8 backend=trtllm gated=false", (4096, 192), (4096, 256, 4096, 256)),
    ("scheme=fp8_block backend=triton block_n=128 block_k=128 tp=4", (2048, 192), "ValueError"),
    ("scheme=fp8_block backend=aiter block_n=128 block_k=128 tp=4", (2048, 192), (2048, 256, 2048, 256)),
    (
        "scheme=fp8_block backend=aiter method=compressed_tensors block_n=128 block_k=128",
        (2048, 192),
        "ValueError",
    ),
    ("scheme=fp8_block backend=hpc block_n=128 block_k=128", (2048, 192), "ValueError"),
    ("scheme=fp8_block backend=hpc block_n=128 block_k=128", (2048, 256), (2048, 256, 2048, 256)),
    ("scheme=fp8_tensor backend=cutlass method=modelopt", (2048, 200), (2048, 200, 2048, 208)),
    ("scheme=fp8_tensor backend=trtllm gated=true", (2048, 200), (2048, 256, 2048, 256)),
    ("scheme=fp8_channel backend=aiter", (2048, 200), (2048, 256, 2048, 256)),
    ("scheme=unquantized backend=trtllm", (2048, 200), (2048, 256, 2048, 256)),
    ("scheme=unquantized backend=xpu", (2048, 3072), (2048, 3072, 2048, 3072)),
    ("scheme=mxfp4 method=quark backend=marlin", (2880, 96), (2880, 96, 2880, 128)),
    ("scheme=mxfp4 method=quark backend=marlin", (2912, 96), "ValueError"),
    ("scheme=unquantized backend=triton", (2048, 200), (2048, 200, 2048, 200)),
    (
        "scheme=int4_wna16 method=compressed_tensors backend=trtllm_mxint4 group=32",
        (2880, 200),
        (2880, 256, 2880, 256),
    ),
    ("scheme=w4a8_fp8 backend=humming", (2880, 200), (2880, 200, 3072, 256)),
    ("scheme=w4a8_fp8 backend=cutlass", (2880, 200), (2880, 200, 2880, 200)),
    (
        "scheme=int4_wna16 method=compressed_tensors backend=marlin group=32",
        (2880, 200),
        (2880, 200, 2880, 200),
    ),
    ("scheme=int4_wna16 method=gptq backend=marlin group=128", (2880, 384), "rejected"),
    ("scheme=int4_wna16 method=gptq backend=marlin group=128", (2944, 384), (2944, 384, 2944, 384)),
    ("scheme=int8_w8a8 method=default backend=triton", (2880, 200), (2880, 200, 2880, 200)),
]


def given(text: str) -> dict[str, str | int]:
    pairs = (part.split("=", 1) for part in text.split())
    return {
        key: int(value) if value.isdigit() and not key.startswith("env.") else value for key, value in pairs
    }


@pytest.mark.parametrize(("facts", "size", "said"), READ)
def test_rules_that_were_read(facts: str, size: tuple[int, int], said: object) -> None:
    decision = ask(**given(facts), hidden=size[0], intermediate_per_partition=size[1])
    assert sizes(decision) == said


def test_every_rule_of_the_packs_decides_some_case() -> None:
    """No rule of SGLang or ATOM is there that no case of this file reaches."""
    reached: set[str] = set()
    for facts, size, _ in READ:
        reached |= addresses(ask(**given(facts), hidden=size[0], intermediate_per_partition=size[1]))
    for engine in VERSIONS:
        for row in table(engine, "sizes"):
            for hidden, intermediate, *_ in row["cases"]:
                facts_of = {
                    **row["facts"],
                    "engine": engine,
                    "hidden": hidden,
                    "intermediate_per_partition": intermediate,
                }
                reached |= addresses(policy().resolve(Facts.of(facts_of)))
    reached |= {address for chosen, *_ in SELECTED for address in addresses(ask(**chosen))}
    reached |= {address for told, _ in LAUNCHED for address in addresses(policy().resolve(Facts.of(told)))}
    reached |= addresses(policy().resolve(Facts.of(SHARED)))
    reached |= addresses(policy().resolve(Facts.of(STRIDED)))
    reached |= addresses(policy().resolve(Facts.of(HOPPER)))
    mine = {
        rule.address
        for rule in policy().stack.rules()
        if rule.pack.startswith(("sglang-", "atom-")) and rule.pack not in ELSEWHERE
    }
    assert mine - reached == set()


#: Packs whose cases stand in `tests/cases/older_releases.yaml`.
ELSEWHERE = {
    "sglang-fp8-block-before-0-5-23",
    "sglang-fp8-select",
    "sglang-fp8-select-before-0-5-23",
    "sglang-linear",
    "sglang-mxfp4-before-0-5-23",
    "sglang-others-before-0-5-23",
    "sglang-repack-before-0-5-23",
}


def addresses(decision: Decision) -> set[str]:
    return {step.rule.address for step in decision.steps}


INT4: dict[str, str | int] = {
    "scheme": "int4_wna16",
    "method": "gptq",
    "platform": "cuda",
    "requested": "auto",
}
BF16: dict[str, str | int] = {
    "scheme": "unquantized",
    "platform": "rocm",
    "env.SGLANG_USE_AITER": "1",
    "activation": "silu",
}
SELECTED: list[tuple[dict[str, str | int], str, int, int]] = [
    ({**INT4, "group": 128, "hidden": 4096, "intermediate_per_partition": 384}, "marlin", 4096, 384),
    ({**INT4, "group": 32, "hidden": 4096, "intermediate_per_partition": 192}, "marlin", 4096, 192),
    ({**INT4, "group": 128, "hidden": 4096, "intermediate_per_partition": 192}, "triton", 4096, 192),
    ({**INT4, "group": 64, "hidden": 2880, "intermediate_per_partition": 192}, "triton", 2880, 192),
    ({**BF16, "arch": "gfx942", "hidden": 2048, "intermediate_per_partition": 384}, "aiter", 2048, 384),
    ({**BF16, "arch": "gfx942", "hidden": 2048, "intermediate_per_partition": 192}, "triton", 2048, 192),
    (
        {
            **BF16,
            "arch": "gfx950",
            "activation": "swigluoai",
            "hidden": 2048,
            "intermediate_per_partition": 384,
        },
        "triton",
        2048,
        384,
    ),
]


@pytest.mark.parametrize(("facts", "backend", "hidden", "intermediate"), SELECTED)
def test_backends_that_sglang_takes(
    facts: dict[str, Any], backend: str, hidden: int, intermediate: int
) -> None:
    decision = ask(**facts)
    assert (decision.backend, decision.hidden.allocated, decision.intermediate.allocated) == (
        backend,
        hidden,
        intermediate,
    )


def test_a_group_that_marlin_does_not_take_is_halved() -> None:
    decision = ask(**{**INT4, "group": 128, "hidden": 4096, "intermediate_per_partition": 192})
    assert decision.blocks == (("group", 64),)


AITER: dict[str, str | int] = {"scheme": "mxfp4", "backend": "aiter", "arch": "gfx950", "activation": "silu"}
LAUNCHED: list[tuple[dict[str, str | int], tuple[int | None, int | None]]] = [
    ({"engine": "sglang", **AITER, "hidden": 2880, "intermediate_per_partition": 360}, (192, 152)),
    (
        {"engine": "sglang", **AITER, "method": "quark", "hidden": 2880, "intermediate_per_partition": 360},
        (0, 152),
    ),
    (
        {
            "engine": "sglang",
            **AITER,
            "method": "fp4_experts",
            "hidden": 7168,
            "intermediate_per_partition": 320,
        },
        (0, 64),
    ),
    ({"engine": "atom", **AITER, "hidden": 2880, "intermediate_per_partition": 360}, (192, 152)),
    (
        {
            "engine": "atom",
            **AITER,
            "model_type": "kimi_k3",
            "hidden": 3584,
            "intermediate_per_partition": 360,
        },
        (0, 24),
    ),
    (
        {
            "engine": "atom",
            **AITER,
            "model_type": "minimax_m3",
            "hidden": 6144,
            "intermediate_per_partition": 384,
        },
        (0, 0),
    ),
    (
        {"engine": "atom", **AITER, "scheme": "mxfp8", "hidden": 6144, "intermediate_per_partition": 384},
        (None, None),
    ),
]


@pytest.mark.parametrize(("facts", "pads"), LAUNCHED)
def test_what_aiter_is_told(facts: dict[str, Any], pads: tuple[int | None, int | None]) -> None:
    decision = policy().resolve(Facts.of(facts))
    assert decision.launch == pads
    broken = [
        check.contract.id
        for check in decision.contracts
        if check.holds is False and "pads" in check.contract.id
    ]
    assert broken == []


SHARED: dict[str, Any] = {
    "engine": "atom",
    "scheme": "fp8_block",
    "backend": "aiter",
    "fused_shared_experts": 1,
    "all2all": "mori",
    "hidden": 7168,
    "intermediate_per_partition": 256,
}


def test_atom_refuses_shared_experts_over_an_all_to_all() -> None:
    refused = policy().resolve(Facts.of(SHARED))
    assert (refused.status, refused.error) == ("rejected", "NotImplementedError")
    assert policy().resolve(Facts.of({**SHARED, "all2all": "none"})).status == "decided"


STRIDED: dict[str, Any] = {
    "engine": "sglang",
    "scheme": "fp8_tensor",
    "platform": "rocm",
    "backend": "triton",
    "env.SGLANG_MOE_PADDING": "1",
    "hidden": 4096,
    "intermediate_per_partition": 512,
}


def test_rocm_rows_get_longer_and_sizes_stay() -> None:
    decision = policy().resolve(Facts.of(STRIDED))
    assert sizes(decision) == (4096, 512, 4096, 512)
    assert {(name, amount.number, stride) for name, amount, stride in decision.storage} == {
        ("hidden", 128, True),
        ("intermediate", 128, True),
    }
    without = {key: value for key, value in STRIDED.items() if not key.startswith("env.")}
    assert policy().resolve(Facts.of(without)).storage == ()


HOPPER: dict[str, Any] = {
    "engine": "sglang",
    "scheme": "mxfp4",
    "backend": "triton_kernels",
    "arch": "sm90",
    "hidden": 2880,
    "intermediate_per_partition": 2880,
}


def test_hopper_scales_are_padded_alone() -> None:
    decision = policy().resolve(Facts.of(HOPPER))
    assert sizes(decision) == (2880, 2880, 2880, 2880)
    assert dict(decision.columns) == {"w13": 4, "w2": 4}


@pytest.mark.parametrize("engine", sorted(VERSIONS))
def test_nothing_is_said_of_other_releases(engine: str) -> None:
    facts = {"engine": engine, "scheme": "mxfp4", "backend": "aiter", "arch": "gfx950"}
    assert policy().resolve(Facts.of({**facts, engine: "9.0"})).status == "unknown"
    assert policy().resolve(Facts.of(facts)).status == "decided"
