"""vLLM's packs beside MXFP4 and unquantized allocation: engine answers, selection, and what issues ask."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import pytest
from engine_tables import DATA, Row, table

from moe_align import Decision, Facts, Policy, PolicyError, load_policy


@cache
def policy() -> Policy:
    return load_policy(environ={})


#: What a row's scheme means as facts; `resident` rows are about the sizes after repacking.
SCHEMES: dict[str, Mapping[str, str | int]] = {
    "fp8_online_block": {
        "scheme": "fp8_block",
        "method": "online",
        "block_n": 128,
        "block_k": 128,
        "backend": "triton",
    },
    "marlin_nvfp4_moe": {"scheme": "nvfp4", "backend": "marlin"},
    "modelopt_block.block32": {"scheme": "modelopt_block", "group": 32, "backend": "b12x"},
    "modelopt_block.block256": {"scheme": "modelopt_block", "group": 256, "backend": "b12x"},
    "unquantized.weights.gated": {"scheme": "unquantized", "backend": "trtllm", "gated": "true"},
    "unquantized.weights.non_gated": {"scheme": "unquantized", "backend": "trtllm", "gated": "false"},
    **{
        # one scale for a whole row counts as groups of 1
        f"marlin_moe.group{group}": {
            "scheme": "int4_wna16",
            "method": "gptq",
            "backend": "marlin",
            "group": max(group, 1),
        }
        for group in (-1, 16, 32, 64, 128)
    },
    **{
        f"fp8_ckpt_block128.tp{ranks}": {
            "scheme": "fp8_block",
            "block_n": 128,
            "block_k": 128,
            "tp": ranks,
            "backend": "deepgemm",
        }
        for ranks in (1, 2, 4, 8)
    },
}
CPU = {
    "CPUUnquantizedExperts": "default",
    "X86CPUUnquantizedExperts": "default",
    "ArmCPUUnquantizedExperts": "default",
}


def facts_of(row: Row) -> dict[str, str | int]:
    if row["scheme"] != "cpu_experts":
        return dict(SCHEMES[row["scheme"]])
    kernel = CPU.get(row["backend"], "cpu_power")
    activation = row["activation"].lower()
    return {
        "scheme": "unquantized",
        "backend": "cpu",
        "kernel": kernel,
        "platform": "cpu",
        "activation": activation,
    }


def rows() -> Iterator[Any]:
    for release, found in table("parity", "roundup").items():
        for row in found:
            if row["scheme"] in SCHEMES or row["scheme"] == "cpu_experts":
                name = row["backend"] if row["scheme"] == "cpu_experts" else row["scheme"]
                yield pytest.param(release, row, id=f"{release}-{name}-{row['activation'] or 'any'}")


@pytest.mark.parametrize(("release", "row"), list(rows()))
def test_other_schemes_agree(release: str, row: Row) -> None:
    for hidden, intermediate, *said in row["cases"]:
        facts = {
            **facts_of(row),
            "vllm": release,
            "hidden": hidden,
            "intermediate_per_partition": intermediate,
        }
        decision = policy().resolve(Facts.of(facts))
        if isinstance(said[0], str):
            assert f"error: {decision.error}" == said[0], (facts, decision.reason)
        elif _refused_elsewhere(row, intermediate):
            assert decision.status == "rejected", facts
        else:
            assert [decision.hidden.resident, decision.intermediate.resident] == said, (
                facts,
                decision.reason,
            )


def _refused_elsewhere(row: Row, intermediate: int) -> bool:
    """Whether the function behind the row leaves a size alone that the layer is refused for at another place.

    With one rank the FP8 shard is not padded, and weight creation refuses what is no whole block.
    Interleaved gate and up rows are not padded on the CPU, and the selector refuses what cannot be tiled.
    """
    if row["scheme"] == "fp8_ckpt_block128.tp1":
        return intermediate % 128 != 0
    if row["scheme"] == "cpu_experts" and row["activation"] == "SWIGLUOAI":
        return intermediate % (32 if row["backend"] in CPU else 16) != 0
    return False


def test_every_scheme_of_the_table_is_asked_somewhere() -> None:
    elsewhere = ("mxfp4", "quark_ocp_mx", "unquantized")
    for found in table("parity", "roundup").values():
        for row in found:
            asked = row["scheme"] in SCHEMES or row["scheme"] == "cpu_experts"
            assert asked or row["scheme"].split(".")[0] in elsewhere, row["scheme"]


TRANSPORTS = {
    "deepep_high_throughput": "deepep_ht",
    "deepep_low_latency": "deepep_ll",
    "flashinfer_nvlink_one_sided": "flashinfer_one_sided",
    "flashinfer_nvlink_two_sided": "flashinfer_two_sided",
    "mori_high_throughput": "mori",
}
#: The layer's fields that a row leaves out, as the script that asked has them.
USUAL = {
    "requested": "auto",
    "activation": "SILU",
    "hidden": 4096,
    "intermediate": 512,
    "tp": 1,
    "dp": 1,
    "ep": False,
    "all2all": "allgather_reducescatter",
    "lora": False,
    "bias": False,
    "experts": 128,
    "topk": 8,
    "routing": "Renormalize",
    "gated": True,
}
#: The selector of a class, as facts: GPT-OSS has another one than the MXFP4 class itself.
CLASSES: dict[str, Mapping[str, str | int]] = {
    "fp8_block": {"scheme": "fp8_block", "block_n": 128, "block_k": 128},
    "fp8_tensor_static": {"scheme": "fp8_tensor", "act_scale": "static"},
    "fp8_tensor_dynamic": {"scheme": "fp8_tensor", "act_scale": "dynamic"},
    "fp8_tensor_cutlass": {"scheme": "fp8_tensor", "method": "compressed_tensors", "act_scale": "static"},
    "fp8_tensor_groups": {"scheme": "fp8_tensor", "method": "compressed_tensors", "act_scale": "dynamic"},
    "fp8_channel": {"scheme": "fp8_channel", "method": "quark"},
    "fp8_channel_cutlass": {"scheme": "fp8_channel", "method": "compressed_tensors"},
    "mxfp8": {"scheme": "mxfp8", "method": "modelopt"},
    "nvfp4": {"scheme": "nvfp4", "method": "modelopt"},
    "unquantized": {"scheme": "unquantized"},
    "mxfp4": {"scheme": "mxfp4", "method": "gpt_oss"},
    "mxfp4_deepseek": {"scheme": "mxfp4"},
    "mxfp4_activations": {"scheme": "mxfp4", "method": "online", "has.cutlass_mxfp4": "true"},
    "mxfp4_fp8_activations": {"scheme": "mxfp4", "method": "quark", "activations": "fp8"},
    "mxfp4_plain": {"scheme": "mxfp4", "method": "compressed_tensors", "has.cutlass_mxfp4": "true"},
}


def selections() -> Iterator[Any]:
    held = json.loads((DATA / "engine" / "vllm_selection.json").read_text(encoding="utf-8"))
    for release, schemes in held.items():
        for scheme, found in schemes.items():
            yield pytest.param(release, scheme, found, id=f"{release}-{scheme}")


def selecting(release: str, scheme: str, row: Row) -> dict[str, Any]:
    layer = {**USUAL, **row["layer"]}
    ranks = layer["tp"] * layer["dp"]
    spread = layer["ep"] and layer["dp"] > 1
    # To the packs nobody asks for AITER and leaves its switch alone; to the engine it is off then.
    off = {"env.VLLM_ROCM_USE_AITER": "0"} if layer["requested"] == "aiter" else {}
    return {
        **CLASSES[scheme],
        "vllm": release,
        "arch": row["arch"],
        "act_bytes": 2,
        "activation": layer["activation"].lower(),
        "intermediate_per_partition": layer["intermediate"],
        "ep": ranks if layer["ep"] else 1,
        "all2all": TRANSPORTS.get(layer["all2all"], layer["all2all"]) if spread else "none",
        **{
            key: layer[key]
            for key in ("requested", "hidden", "tp", "dp", "lora", "bias", "experts", "topk", "routing")
        },
        **off,
        **{f"env.{name}": value for name, value in row.get("env", {}).items()},
    }


def known_difference(scheme: str, row: Row, facts: Mapping[str, Any]) -> bool:
    """Layers of which the packs say that they speak otherwise.

    On RDNA 4, where no kernel heeds AITER's switch, a cut block is refused as it is elsewhere.
    """
    cut = scheme == "fp8_block" and facts["intermediate_per_partition"] % 128 != 0
    return cut and facts["arch"] in ("gfx1200", "gfx1201") and facts.get("env.VLLM_ROCM_USE_AITER") == "1"


def chosen(scheme: str, decision: Decision) -> list[str]:
    """The answer in the form of the table: backend, then block and width for FP8 blocks; or the refusal."""
    if decision.status == "rejected" and decision.backend is None:
        return [f"error: {decision.error}"]
    if scheme != "fp8_block" or decision.status == "rejected":
        return [str(decision.backend)]
    block = dict(decision.blocks).get("block_n") or 128
    return [str(decision.backend), str(block), str(decision.intermediate.allocated)]


def startup_contract(decision: Decision) -> bool:
    """Whether a contract says that the engine refuses this when it starts."""
    found = (
        check for check in decision.contracts if check.holds is False and check.contract.breaks == "raises"
    )
    return any(
        check.contract.pack in ("vllm-requested", "vllm-limits", "kernel-contracts") for check in found
    )


@cache
def own_name(release: str, scheme: str, engine_name: str) -> str:
    """Our name for the engine's."""
    facts = Facts.of({**CLASSES[scheme], "vllm": release, "backend": engine_name})
    return str(policy().resolve(facts).backend)


@pytest.mark.parametrize(("release", "scheme", "found"), list(selections()))
def test_selection_agrees(release: str, scheme: str, found: list[Row]) -> None:
    asked = 0
    for row in found:
        facts = selecting(release, scheme, row)
        if known_difference(scheme, row, facts):
            continue
        asked += 1
        decision = policy().resolve(Facts.of(facts))
        name, *more = row["answer"]
        if name.startswith("error"):
            refused = decision.status == "rejected" or startup_contract(decision)
            assert refused, (facts, decision.rule)
        else:
            # What refuses after the selector (a transport, repacking) leaves the backend as it was chosen.
            wanted = [own_name(release, scheme, name), *more][: len(chosen(scheme, decision))]
            assert chosen(scheme, decision) == wanted, (facts, decision.reason)
    assert asked > len(found) * 0.8


QWEN: dict[str, Any] = {
    "scheme": "fp8_block",
    "hidden": 2048,
    "intermediate": 768,
    "tp": 4,
    "block_n": 128,
    "block_k": 128,
}


@pytest.mark.parametrize(
    "machine",
    [{}, {"platform": "cuda"}, {"arch": "sm90"}, {"arch": "sm100"}, {"platform": "rocm", "arch": "gfx942"}],
)
def test_qwen3_fp8_over_four_ranks_is_refined(machine: dict[str, str]) -> None:
    decision = policy().resolve(Facts.of({**QWEN, **machine}))
    assert decision.status == "decided"
    assert (decision.intermediate.allocated, dict(decision.blocks)) == (192, {"block_n": 64, "block_k": 64})
    assert decision.backend == "triton"


@pytest.mark.parametrize(
    ("requested", "arch"), [("aiter", "gfx942"), ("deep_gemm", "sm90"), ("aiter", None), ("deep_gemm", None)]
)
def test_qwen3_fp8_is_padded_for_a_backend_asked_for_by_name(requested: str, arch: str | None) -> None:
    facts: dict[str, Any] = {**QWEN, "requested": requested} | ({"arch": arch} if arch else {})
    decision = policy().resolve(Facts.of(facts))
    assert (decision.status, decision.intermediate.allocated, decision.blocks) == ("decided", 256, ())


@pytest.mark.parametrize("switch", ["VLLM_ROCM_USE_AITER", "VLLM_USE_DEEP_GEMM"])
def test_qwen3_fp8_is_refused_for_a_backend_that_a_switch_demands(switch: str) -> None:
    decision = policy().resolve(Facts.of({**QWEN, f"env.{switch}": "1"}))
    assert (decision.status, decision.error) == ("rejected", "ValueError")


def test_no_architecture_is_for_platforms_that_have_none() -> None:
    facts: dict[str, Any] = {"scheme": "nvfp4", "arch": "none", "activation": "silu", "hidden": 4096}
    sizes = {"intermediate_per_partition": 512}
    decision = policy().resolve(Facts.of({**facts, **sizes}))
    platforms = " ".join(one.where.get("platform", "") for one in decision.alternatives)
    assert "cpu" in platforms
    assert "cuda" not in platforms
    with pytest.raises(PolicyError, match="arch `none` is only for platform cpu or xpu"):
        policy().resolve(Facts.of({**facts, **sizes, "platform": "cuda"}))


def test_deepseek_v4_without_aiter_lands_on_unfused_triton() -> None:
    facts: dict[str, Any] = {
        "scheme": "mxfp4",
        "model_type": "deepseek_v4",
        "activation": "silu",
        "arch": "gfx950",
    }
    sizes = {"activation": "silu", "hidden": 7168, "intermediate": 3072, "tp": 8}
    decision = policy().resolve(Facts.of({**facts, **sizes}))
    assert (decision.backend, decision.intermediate.allocated) == ("triton_unfused", 512)
    on = policy().resolve(Facts.of({**facts, **sizes, "env.VLLM_ROCM_USE_AITER": "1"}))
    assert (on.backend, on.intermediate.allocated) == ("aiter_bf16", 384)


CASES = json.loads((DATA / "packs_vllm.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["says"])
def test_cases(case: Mapping[str, Any]) -> None:
    """`sizes` are hidden and intermediate as allocated, `resident` as repacked; `broken` names contracts."""
    decision = policy().resolve(Facts.of(case["facts"]))
    found: dict[str, Any] = {
        "status": decision.status,
        "sizes": [decision.hidden.allocated, decision.intermediate.allocated],
        "resident": [decision.hidden.resident, decision.intermediate.resident],
        "error": decision.error,
        "experts": decision.experts,
        "blocks": dict(decision.blocks),
        "columns": dict(decision.columns),
        "strides": [[name, amount.number] for name, amount, stride in decision.storage if stride],
    }
    assert {key: found[key] for key in found.keys() & case.keys()} == {
        key: case[key] for key in found.keys() & case.keys()
    }, decision.reason
    assert set(case.get("rules", ())) <= {step.rule.address for step in decision.steps}
    broken = {check.contract.address for check in decision.contracts if check.holds is False}
    assert set(case.get("broken", ())) <= broken


def test_every_site_is_said_by_rules_that_there_are_or_listed_as_unsaid() -> None:
    """`arithmetic` is the split over ranks, which no rule has to say."""
    sites = json.loads((DATA / "sites_vllm.json").read_text(encoding="utf-8"))
    stack = policy().stack
    said = {rule.address for rule in stack.rules()} | {found.address for found in stack.all_contracts()}
    assert {address for site in sites for address in site["said_by"]} - said == {"arithmetic"}
    unsaid = [site for site in sites if not site["said_by"]]
    listed = (DATA.parents[1] / "docs" / "unexpressed_vllm.md").read_text(encoding="utf-8")
    assert all(f":{site['where'].rpartition(':')[2]}`" in listed for site in unsaid)
    assert (len(sites), len(unsaid)) == (189, 17)
