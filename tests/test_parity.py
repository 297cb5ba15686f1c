"""The mirrors against what released engines answered: every row of every table, as facts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml
from engine_tables import DATA, MACHINES, Case, members, size_cases
from mirrors import (
    Dispatched,
    Told,
    after_dispatch,
    built_in,
    contradictory,
    contradicts,
    dispatched,
    told,
    untrue,
    wrong,
)

from moe_align import Facts

FOLDERS = ("parity", "engine")


def _sizes(folder: str) -> Iterator[tuple[str, list[Case]]]:
    by_release: dict[str, list[Case]] = {}
    for case in size_cases(folder):
        by_release.setdefault(case.release, []).append(case)
    yield from by_release.items()


def by_release(questions: Callable[[str], Iterator[tuple[str, list[Any]]]]) -> list[Any]:
    return [
        pytest.param(found, id=f"{folder}-{release}")
        for folder in FOLDERS
        for release, found in questions(folder)
    ]


SIZES = by_release(_sizes)


@pytest.mark.parametrize("found", SIZES)
def test_sizes_agree_whatever_is_implied(found: list[Case]) -> None:
    assert [(case, sizes) for case in found if (sizes := wrong(case, built_in(False)))] == []


@pytest.mark.parametrize("found", SIZES)
def test_sizes_agree_where_facts_can_be(found: list[Case]) -> None:
    possible = [case for case in found if not contradicts(case)]
    assert [(case, sizes) for case in possible if (sizes := wrong(case, built_in(True)))] == []


@pytest.mark.parametrize("found", by_release(told))
def test_pads_agree(found: list[Told]) -> None:
    assert [(one.facts, cases) for one in found if (cases := untrue(one, built_in(False)))] == []


@pytest.mark.parametrize("found", by_release(dispatched))
def test_transports_agree(found: list[Dispatched]) -> None:
    assert [(one, said) for one in found if (said := after_dispatch(one, built_in(True))) != one.said] == []


def reviewed() -> Any:
    return yaml.safe_load((DATA / "parity" / "impossible.yaml").read_text(encoding="utf-8"))


def test_the_vocabulary_forbids_the_reviewed_pairs() -> None:
    """Of these backends on all machines exactly the reviewed pairs contradict themselves."""
    forbidden = set()
    for pair in reviewed()["pairs"]:
        for backend in pair["backend"]:
            for platform, archs in pair["machines"].items():
                everywhere = [arch for other, arch in MACHINES["engine"] if other == platform]
                forbidden |= {(backend, platform, arch) for arch in (everywhere if archs == "all" else archs)}
    asked = {
        row["member"] for rows in members().values() for row in rows if row["enumeration"] == "backend.mxfp4"
    }
    values = {
        built_in(False).whole.stack.vocabulary.names["backend"][name.lower()][0].value for name in asked
    }
    found = set()
    for backend in values | {backend for backend, _, _ in forbidden}:
        for platform, arch in MACHINES["engine"]:
            machine = {"platform": platform} if arch is None else {"platform": platform, "arch": arch}
            if contradictory(tuple({"backend": backend, **machine}.items())):
                found.add((backend, platform, arch))
    assert found == forbidden


def test_impossible_cases_are_counted() -> None:
    """So many of the published cases are left out where implications are on."""
    impossible = sum(len(case.sizes) for case in size_cases("parity") if contradicts(case))
    every = sum(len(case.sizes) for case in size_cases("parity"))
    assert {"impossible": impossible, "of": every} == reviewed()["cases"]


def test_pads_reach_the_answer() -> None:
    """A layer that the rounding pads by 64 and 152: the answer declares what the call is told."""
    facts = Facts(backend="aiter_bf16", method="gpt_oss", activation="swigluoai", hidden=4032, vllm="0.33.0")
    whole = built_in(True).whole.resolve(facts.having(tp=1, intermediate_per_partition=360))
    assert whole.launch == (0, 256)
    split = built_in(True).whole.resolve(facts.having(tp=2, intermediate=720))
    assert split.launch == (0, 128)


def test_every_member_of_the_engine_has_a_name() -> None:
    """Each backend and activation of each release is in the vocabulary, under the engine's own name there.

    Two members have one value only where the engine has one for them as well.
    """
    for release, rows in members().items():
        values: dict[str, set[str]] = {}
        for row in rows:
            scheme = {"backend.unquantized": "unquantized"}.get(row["enumeration"], "mxfp4")
            key = row["enumeration"].partition(".")[0]
            sizes = {"hidden": 4096, "intermediate_per_partition": 512, "platform": "rocm", "arch": "gfx950"}
            asked = {"vllm": release, "scheme": scheme, "activation": "silu", key: row["member"], **sizes}
            decision = built_in(False).whole.resolve(Facts.of(asked))
            if key == "backend":
                assert decision.backend is not None
                values.setdefault(f"{scheme}/{row['canonical']}", set()).add(f"{scheme}/{decision.backend}")
        assert all(len(names) == 1 for names in values.values()), release
        assert len(set().union(*values.values())) == len(values), release


@pytest.mark.parametrize("release", ["0.34.0", "1.0"])
@pytest.mark.parametrize("scheme", ["mxfp4", "unquantized"])
def test_nothing_is_said_of_later_releases(release: str, scheme: str) -> None:
    facts = Facts(scheme=scheme, backend="triton", platform="cuda", vllm=release)
    assert built_in(True).whole.resolve(facts).status == "unknown"


@pytest.mark.parametrize(
    ("more", "width"),
    [
        ({}, 384),
        ({"vllm": "0.28.0"}, 384),
        ({"vllm": "0.26.0"}, 512),
        ({"activation": "swigluoai"}, 512),
        ({"method": "gpt_oss"}, 512),
    ],
)
def test_the_cards_own_example(more: dict[str, str], width: int) -> None:
    facts = {
        "backend": "aiter_bf16",
        "activation": "silu",
        "hidden": 7168,
        "intermediate": 3072,
        "tp": 8,
        **more,
    }
    decision = built_in(True).whole.resolve(Facts.of(facts))
    assert (decision.hidden.allocated, decision.intermediate.allocated) == (7168, width)
    wins = "aiter-bf16-silu-situ" if width == 384 else "rocm-generic"
    assert decision.rule == f"vllm-mxfp4/{wins}"


@pytest.mark.parametrize(
    ("more", "rule"),
    [
        ({}, "fused-shared-expert"),
        ({"fused_shared_experts": 0}, "aiter-bf16-silu-situ"),
        ({"vllm": "0.29.0"}, "aiter-bf16-silu-situ"),
        ({"experts": 256}, "aiter-bf16-silu-situ"),
    ],
)
def test_a_fused_shared_expert_changes_no_width(more: dict[str, str | int], rule: str) -> None:
    facts = {"backend": "aiter_bf16", "activation": "silu", "hidden": 7168, "intermediate": 3072, "tp": 8}
    model = {"model_type": "deepseek_v4", "experts": 384, "topk": 6, "fused_shared_experts": 1}
    decision = built_in(True).whole.resolve(Facts.of({**facts, **model, **more}))
    assert (decision.rule, decision.intermediate.allocated) == (f"vllm-mxfp4/{rule}", 384)
