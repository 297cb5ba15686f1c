"""Every scheme and every backend that the vocabulary names, at vLLM 0.33: an answer, never a guess."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import pytest
import yaml
from engine_tables import DATA

from moe_align import Decision, Facts, Policy, PolicyError, load_policy

RELEASE = "0.33.0"
REVIEWED: Mapping[str, Mapping[str, Any]] = yaml.load(
    (DATA / "backends_vllm.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader
)
MEMBERS = json.loads((DATA / "engine" / "vllm_backends.json").read_text(encoding="utf-8"))[RELEASE]
#: What a checkpoint of the scheme says beside its name.
SAID: Mapping[str, Mapping[str, str | int]] = {
    "fp8_block": {"block_n": 128, "block_k": 128},
    "int4_wna16": {"group": 128},
    "int8_wna16": {"group": 128},
    "w4a8_fp8": {"group": 128},
    "w4a8_int8": {"group": 32},
    "modelopt_block": {"group": 32},
}


@cache
def policy() -> Policy:
    return load_policy(environ={})


def facts(scheme: str, **more: str | int) -> dict[str, str | int]:
    sizes: dict[str, str | int] = {"hidden": 4096, "intermediate_per_partition": 512}
    sizes |= {"activation": "silu", "gated": "true"}
    return {"engine": "vllm", "vllm": RELEASE, "scheme": scheme, **SAID.get(scheme, {}), **sizes, **more}


def own_name(scheme: str, member: str) -> str:
    """Our name for a member of the engine's enumeration."""
    named = REVIEWED[scheme].get("names", {}).get(member, member)
    return str(policy().resolve(Facts.of(facts(scheme, backend=named))).backend)


@cache
def formed(scheme: str) -> set[str]:
    entry = REVIEWED[scheme]
    members = MEMBERS[entry["enumeration"]] if entry["enumeration"] else ()
    known = {own_name(scheme, member) for member in members}
    without = set(entry.get("without", {}))
    assert without <= known
    return (known - without) | set(entry.get("beside", {}))


def pairs() -> Iterator[tuple[str, str]]:
    vocabulary = policy().stack.vocabulary
    for scheme in sorted(vocabulary.domain("scheme")):
        for backend in sorted(vocabulary.domain("backend")):
            allowed = [values for key, values in vocabulary.implied("backend", backend) if key == "scheme"]
            if all(scheme in values for values in allowed):
                yield scheme, backend


def unformed(decision: Decision) -> bool:
    """Whether a contract says that the engine has no such backend for the scheme."""
    return any(one.contract.pack == "vllm-backends" and one.holds is False for one in decision.contracts)


def test_every_scheme_is_reviewed() -> None:
    assert set(REVIEWED) == policy().stack.vocabulary.domain("scheme")
    assert all(entry["enumeration"] in {None, *MEMBERS} for entry in REVIEWED.values())
    reasons = [
        reason
        for entry in REVIEWED.values()
        for key in ("without", "beside")
        for reason in entry.get(key, {}).values()
    ]
    assert all(isinstance(reason, str) and reason for reason in reasons)


@pytest.mark.parametrize(("scheme", "backend"), list(pairs()))
def test_every_pair_has_an_answer(scheme: str, backend: str) -> None:
    """Decided, rejected, or undecided with what each value would mean; and whether the backend exists."""
    decision = policy().resolve(Facts.of(facts(scheme, backend=backend)))
    assert decision.status != "unknown", decision.reason
    if decision.status == "decided":
        assert decision.intermediate.allocated is not None
        assert unformed(decision) == (decision.backend not in formed(scheme))
    elif decision.status == "undecided":
        assert any(one.status == "decided" and one.then.startswith("hidden") for one in decision.alternatives)


@pytest.mark.parametrize("scheme", sorted(REVIEWED))
def test_every_backend_of_the_engine_is_one_of_the_vocabulary(scheme: str) -> None:
    assert formed(scheme) <= policy().stack.vocabulary.domain("backend")


def test_a_backend_of_one_scheme_is_refused_for_another() -> None:
    with pytest.raises(PolicyError, match="only for scheme mxfp4"):
        policy().resolve(Facts.of(facts("nvfp4", backend="aiter_bf16")))
