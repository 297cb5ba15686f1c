"""Every contract of the built-in packs: a case in which it holds, and one in which it breaks."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from moe_align import Facts, Policy, PolicyError, load_compiled, load_policy
from moe_align.compile import compiled
from moe_align.contracts import checks
from moe_align.known import known
from moe_align.packs import Contract, Outcome, Pack, Rule
from moe_align.resolve import leaves
from moe_align.stack import Stack

ROOT = Path(__file__).parents[1]


@cache
def cases(kind: str) -> list[dict[str, Any]]:
    found = yaml.safe_load((Path(__file__).parent / "data" / "contracts.yaml").read_text(encoding="utf-8"))
    return list(found[kind])


def given(text: str) -> dict[str, Any]:
    pairs = (part.split("=", 1) for part in text.split())
    return {
        key: int(value) if value.isdigit() and not key.startswith("env.") else value for key, value in pairs
    }


@cache
def contracts() -> Stack:
    """The built-in contracts over one rule that pads nothing, so that a case says what a kernel is given."""
    stack = load_policy(environ={}).stack
    place = stack.contracts[0].location
    rule = Rule("test", "as-given", "allocate", (), (), Outcome("align"), None, None, None, place)
    pack = Pack("test", "allocate", (), (), (), (rule,), (), "test", place)
    return stack._replace(phases={phase: (pack,) if phase == "allocate" else () for phase in stack.phases})


def holds(
    contract: str,
    facts: dict[str, Any],
    pads: tuple[int, int] = (0, 0),
    padding: tuple[int, int] = (0, 0),
) -> bool | None:
    """Whether a contract holds where `padding` of the sizes is no live element and a call declares `pads`."""
    # of vLLM the name `aiter` would mean its A16W4 backend
    sizes = {"engine": "sglang", "hidden": 7168, "intermediate_per_partition": 384}
    stack = contracts()
    (leaf,) = leaves(stack, known(stack.vocabulary, Facts.of({**sizes, **facts})))
    assert leaf.status == "decided", leaf.reason
    hidden, intermediate = leaf.flow.hidden, leaf.flow.intermediate
    assert hidden.size is not None
    assert intermediate.size is not None
    flow = leaf.flow._replace(
        hidden=hidden._replace(native=hidden.size - padding[0]),
        intermediate=intermediate._replace(native=intermediate.size - padding[1]),
        pads=pads,
    )
    found = [
        check.holds for check in checks(stack, leaf._replace(flow=flow)) if check.contract.address == contract
    ]
    assert found, f"{contract} is not about {facts}"
    return found[0]


def size(text: str) -> dict[str, int]:
    hidden, intermediate = text.split("x")
    return {"hidden": int(hidden), "intermediate_per_partition": int(intermediate)}


@pytest.mark.parametrize("case", cases("sizes"), ids=lambda case: case["contract"])
def test_sizes(case: dict[str, Any]) -> None:
    facts = given(case["facts"])
    assert holds(case["contract"], {**facts, **size(case["holds"])}) is True
    assert holds(case["contract"], {**facts, **size(case["breaks"])}) is False


@pytest.mark.parametrize("case", cases("facts"), ids=lambda case: case["contract"])
def test_facts(case: dict[str, Any]) -> None:
    facts = given(case["facts"])
    assert holds(case["contract"], facts) is True
    assert holds(case["contract"], {**facts, **given(case["breaks"])}) is False


@pytest.mark.parametrize("case", cases("pads"), ids=lambda case: case["contract"])
def test_pads(case: dict[str, Any]) -> None:
    facts, padding = given(case["facts"]), (case["padding"][0], case["padding"][1])
    assert holds(case["contract"], facts, tuple(case["holds"]), padding) is True
    assert holds(case["contract"], facts, tuple(case["breaks"]), padding) is False


def mine() -> list[Contract]:
    found = load_policy(environ={}).stack.all_contracts()
    return [contract for contract in found if contract.pack in ("aiter-contracts", "kernel-contracts")]


def test_every_contract_has_a_case() -> None:
    tried = {case["contract"] for kind in ("sizes", "facts", "pads") for case in cases(kind)}
    assert tried == {contract.address for contract in mine()}


def test_every_contract_says_why_and_from_where() -> None:
    for contract in mine():
        assert contract.why, contract.address
        assert contract.source, contract.address
        assert contract.evidence, contract.address


def test_demands_on_facts_survive_compilation(tmp_path: Path) -> None:
    policy = load_policy(environ={})
    file = tmp_path / "policy.json"
    file.write_text(compiled(policy), encoding="utf-8")
    loaded = load_compiled(file)
    before = {contract.address: contract.facts for contract in policy.stack.all_contracts()}
    after = {contract.address: contract.facts for contract in loaded.stack.all_contracts()}
    assert before == after
    assert any(before.values())
    assert loaded.digest == policy.digest


@pytest.mark.parametrize(
    ("demand", "code", "place"),
    [
        ("{facts: {colour: red}}", "R201", "5:23"),
        ("{facts: {has.wings: true}}", "R202", "5:23"),
        ("{facts: {arch: gfx000}}", "R203", "5:29"),
        ("{facts: {}}", "R219", "5:14"),
        ("{facts: 3}", "S108", "5:22"),
    ],
)
def test_wrong_demands_on_facts_are_refused(tmp_path: Path, demand: str, code: str, place: str) -> None:
    file = tmp_path / "wrong.yaml"
    lines = ["language: 1", "pack: wrong", "contracts:", "  - id: it", f"    require: {demand}"]
    file.write_text("\n".join([*lines, "    breaks: raises", "    why: it does", ""]), encoding="utf-8")
    with pytest.raises(PolicyError) as refused:
        load_policy(file, environ={})
    (problem,) = refused.value.problems
    assert problem.code == code
    assert problem.location is not None
    assert f"{problem.location.line}:{problem.location.column}" == place


def test_a_demanded_fact_that_is_open_leaves_the_contract_open() -> None:
    situ = {"backend": "aiter", "scheme": "mxfp4", "activation": "situ"}
    assert holds("aiter-contracts/situ-facts", situ) is None
    assert holds("aiter-contracts/situ-facts", {**situ, "arch": "gfx942"}) is True
    assert holds("aiter-contracts/situ-facts", {**situ, "arch": "gfx942", "tp": 8, "ep": 8}) is False


@cache
def built_in() -> Policy:
    return load_policy(environ={})


def broken(**facts: Any) -> set[str]:
    """The contracts of AITER that a decision of the mirrors breaks without an error."""
    return {
        check.contract.id
        for check in built_in().resolve(Facts.of(facts)).contracts
        if check.holds is False and check.contract.breaks == "silent"
    }


def test_the_doubled_pad_of_vllm_is_found() -> None:
    """vLLM 0.33 doubles the pad where one rank holds the whole expert, and AITER doubles it again."""
    whole = {"backend": "aiter_bf16", "activation": "silu", "hidden": 4096, "intermediate": 1344, "tp": 1}
    assert broken(**whole) == {"flydsl-stage1-pads", "flydsl-stage2-pads"}
    assert broken(**{**whole, "tp": 2}) == set()
    assert broken(**{**whole, "intermediate": 1408}) == set()
    gpt_oss = {"backend": "aiter_bf16", "method": "gpt_oss", "activation": "swigluoai", "hidden": 2880}
    assert broken(**gpt_oss, intermediate=2880, tp=1) == {"ck-tile-stage1-pads", "ck-tile-stage2-pads"}
    assert broken(**gpt_oss, intermediate=2880, tp=8) == set()


def test_columns_that_a8w4_steps_over() -> None:
    layer = {"backend": "aiter_bf16", "activation": "silu", "intermediate_per_partition": 384}
    assert broken(**layer, hidden=2944) == {"flydsl-hidden"}
    assert broken(**layer, hidden=7168) == set()
    assert broken(**layer, hidden=4096) == set()
    assert broken(**{**layer, "activation": "situ"}, hidden=2944) == set()


def test_the_scales_that_ck_tile_misreads() -> None:
    """vLLM allocates 384 for A4W4 (vllm#55104), which CK-Tile reads wrongly at few tokens (aiter#5233)."""
    layer = {"backend": "aiter_mxfp4", "activation": "swigluoai", "method": "quark", "hidden": 6144}
    assert broken(**layer, intermediate=3072, tp=8) == {"ck-tile-sizes", "ck-tile-scales"}
    assert broken(**layer, intermediate=3072, tp=4) == set()


def test_the_cards_command_warns_of_hidden_alone() -> None:
    """No sizes are given: what 128 in both dimensions settles is settled, the step of 256 is not."""
    decision = built_in().resolve(Facts(backend="aiter_bf16", activation="silu", tp=8))
    unsure = {check.contract.id for check in decision.contracts if check.holds is None}
    assert unsure == {"flydsl-hidden", "flydsl-stage1-pads", "flydsl-stage2-pads"}
    assert all(check.holds is not False for check in decision.contracts)
    why = next(check.contract.why for check in decision.contracts if check.contract.id == "flydsl-hidden")
    assert why == (
        "on gfx950 the a8w4 kernels step hidden by 256 and say nothing: 7168 and 4096 are fine, 2944 is not"
    )


def test_wider_was_faster_once() -> None:
    layer = {"scheme": "mxfp4", "backend": "triton_unfused", "arch": "gfx942", "activation": "silu"}
    decision = built_in().resolve(Facts.of({**layer, "hidden": 2880, "intermediate_per_partition": 360}))
    slow = [check.contract.id for check in decision.contracts if check.holds is False]
    assert slow == ["triton-mxfp4-mi300x"]


def endangered(engine: str, backend: str) -> dict[str, list[int]]:
    """The known MXFP4 models, with the TP sizes, of which a decision breaks a contract without an error."""
    models = yaml.safe_load((ROOT / "rules" / "models.yaml").read_text(encoding="utf-8"))["models"]
    found: dict[str, list[int]] = {}
    for model in models:
        if model.get("scheme") != "mxfp4":
            continue
        types = {"gpt_oss", "deepseek_v4", "kimi_k3", "minimax_m3"}
        facts = {
            "engine": engine,
            "scheme": "mxfp4",
            "backend": backend,
            "arch": "gfx950",
            "activation": model["activation"],
            "hidden": model.get("expert_hidden_size", model["hidden_size"]),
            "intermediate": model["moe_intermediate_size"],
            "bias": model["bias"],
            "model_type": model["model_type"] if model.get("model_type") in types else "other",
        }
        for tp in (1, 2, 4, 8):
            if broken(**facts, tp=tp):
                found.setdefault(model["id"], []).append(tp)
    return found


@pytest.mark.parametrize(
    ("engine", "backend", "models"),
    [
        ("vllm", "aiter_bf16", {"gpt-oss-20b": [1], "gpt-oss-120b": [1]}),
        ("vllm", "aiter_mxfp4", {"gpt-oss-20b": [1, 8], "gpt-oss-120b": [1, 8]}),
        ("sglang", "aiter", {}),
        ("atom", "aiter", {}),
    ],
)
def test_known_models_that_a_mirror_endangers(
    engine: str, backend: str, models: dict[str, list[int]]
) -> None:
    """The reviewed list: vLLM's doubled pad at TP 1, and A4W4 at widths that CK-Tile misreads."""
    assert endangered(engine, backend) == models
