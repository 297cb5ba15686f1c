"""What the mirrors say of the cases that engines answered, and where the two differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

from engine_tables import Case, Row, table

from moe_align import Decision, Facts, Policy, PolicyError, load_policy
from moe_align.packs import Outcome, Pack, Pad

ITEM_BYTES = {"bf16": 2, "fp8": 1, "fp32": 4}
TRANSPORTS = ("deepep_ht", "deepep_ll", "deepep_v2", "nixl_ep")
_BELOW_A_TRANSPORT = {"scheme": "unquantized", "backend": "triton", "platform": "cuda"}


class Mirrors(NamedTuple):
    """One policy, and what is left of it when only some phases are kept.

    `whole` ends before weights are repacked: the tables are about sizes before loading. `allocate` has that
    phase alone; `model` has the one in which model code changes sizes, and allocates plainly.
    """

    whole: Policy
    allocate: Policy
    model: Policy


def mirrors_of(policy: Policy) -> Mirrors:
    """The mirrors of a policy, without contracts: those are held against sizes and change none."""
    stack = policy.stack._replace(contracts=())
    phases: dict[str, tuple[Pack, ...]] = dict.fromkeys(stack.phases, ())
    allocating = stack.phases["allocate"]
    plainly = tuple(
        pack.having((pack.rules[-1]._replace(when=(), unless=(), outcome=Outcome("align")),))
        for pack in allocating
    )
    return Mirrors(
        Policy(stack._replace(phases={**stack.phases, "repack": ()})),
        Policy(stack._replace(phases={**phases, "allocate": allocating})),
        Policy(stack._replace(phases={**phases, "model": stack.phases["model"], "allocate": plainly})),
    )


@cache
def built_in(implications: bool) -> Mirrors:
    loaded = load_policy(environ={})
    return mirrors_of(loaded if implications else loaded.without_implications())


def contradicts(case: Case) -> bool:
    """Whether the facts of a case exclude each other by what the vocabulary implies."""
    return contradictory(tuple({**case.facts, "vllm": case.release}.items()))


@cache
def contradictory(facts: tuple[tuple[str, str], ...]) -> bool:
    try:
        built_in(True).whole.resolve(Facts.of(dict(facts)))
    except PolicyError as refusal:
        return {problem.code for problem in refusal.problems} == {"F020"}
    return False


def wrong(case: Case, mirrors: Mirrors) -> list[object]:
    """The sizes of a case on which the mirror and the engine differ."""
    mirror: Policy = getattr(mirrors, case.kind)
    facts = Facts.of({**case.facts, "vllm": case.release})
    decision = mirror.resolve(facts)
    return [size for size in case.sizes if _said(mirror, facts, decision, *size[:2]) != size[2:]]


def _said(
    mirror: Policy, facts: Facts, decision: Decision, hidden: int, intermediate: int
) -> tuple[object, ...]:
    """The sizes of the mirror: by the multiples where they say it all, else by another question."""
    multiples = decision.hidden.multiple, decision.intermediate.multiple
    if decision.status == "decided" and None not in multiples:
        pairs = zip((hidden, intermediate), multiples, strict=True)
        return tuple(-(-size // by) * by for size, by in pairs if by)
    sized = mirror.resolve(facts.having(hidden=hidden, intermediate_per_partition=intermediate))
    return sized.hidden.allocated, sized.intermediate.allocated


class Told(NamedTuple):
    """What AITER's call is told for these facts: (pad, pad, said, said), or a refusal's name."""

    facts: Mapping[str, str | int]
    cases: tuple[tuple[Any, ...], ...]


def told(folder: str) -> Iterator[tuple[str, list[Told]]]:
    """Every row of the table of pads as facts, release by release."""
    for release, rows in table(folder, "aiter_pads").items():
        yield release, [one for row in rows for one in _told(release, row)]


def _told(release: str, row: Row) -> Iterator[Told]:
    return (Told(facts, row["cases"]) for facts in asked(release, row))


def asked(release: str, row: Row) -> Iterator[dict[str, str | int]]:
    """The layers that a row of pads is about, as facts."""
    activation = "silu" if row["activation"] == "*" else row["activation"]
    ranks = [1, 2, 4, 8] if row["tp_size"] == "*" else row["tp_size"]
    for layer in _layers(release, row):
        for moe_tp in ranks if isinstance(ranks, list) else [ranks]:
            for model in _models(release, row):
                more = {"vllm": release, "activation": activation, "moe_tp": moe_tp, "model_type": model}
                yield {**layer, **more}


def _layers(release: str, row: Row) -> Iterator[dict[str, str | int]]:
    """The layers that a row of pads is about: unquantised and both MXFP4 kernels go the same way."""
    sizes = {"hidden": 4096, "intermediate_per_partition": 512}
    if row["path"] == "mxfp4_method_ck":
        for method in ("gpt_oss", "default"):
            yield {"scheme": "mxfp4", "backend": "CK", "method": method, **sizes}
        return
    if row["use_w4a4"] in ("*", False):
        yield {"scheme": "unquantized", "backend": "aiter", **sizes}
        if release >= "0.19":
            yield {"scheme": "mxfp4", "backend": "aiter_bf16", **sizes}
    if row["use_w4a4"] in ("*", True):
        yield {"scheme": "mxfp4", "backend": "aiter_mxfp4", "method": "quark", **sizes}


def _models(release: str, row: Row) -> list[str]:
    """Models whose code sets the padding of the layer's configuration, as the row has it."""
    if row.get("intermediate_pad_override") != 0:
        silent = {"minimax_m3": "0.25", "deepseek_v41": "0.33"}
        return ["deepseek_v4", *(model for model, since in silent.items() if release < since)]
    return ["minimax_m3", "deepseek_v41"] if release >= "0.33" else ["minimax_m3"]


def untrue(one: Told, mirrors: Mirrors) -> list[object]:
    """The cases in which the mirror declares something else; it declares nothing where the engine refuses."""
    steps = mirrors.whole.resolve(Facts.of(one.facts)).steps
    pads = next((step.rule.outcome.pads for step in steps if step.phase == "launch"), None)
    return [case for case in one.cases if _declared(pads, case) != _passed(case)]


def _declared(pads: tuple[Pad, Pad] | None, case: tuple[Any, ...]) -> object:
    return pads and tuple(pad.of(actual) for pad, actual in zip(pads, case[:2], strict=True))


def _passed(case: tuple[Any, ...]) -> object:
    return None if isinstance(case[2], str) else case[2:]


class Dispatched(NamedTuple):
    """A question on a transport: the hidden size that it makes; `None` where a release does not have it."""

    facts: Mapping[str, str | int]
    said: int | str | None


def dispatched(folder: str) -> Iterator[tuple[str, list[Dispatched]]]:
    """Every question of the table of transports, release by release."""
    for release, rows in table(folder, "all2all").items():
        found = [one for row in rows for one in _dispatched(release, row)]
        for absent in sorted(set(TRANSPORTS) - {row["backend"] for row in rows}):
            found.append(Dispatched(_to(release, absent, 2, 2880), None))
        yield release, found


def _dispatched(release: str, row: Row) -> Iterator[Dispatched]:
    for item in ITEM_BYTES if row["dtype"] == "*" else [row["dtype"]]:
        for hidden, said in row["cases"]:
            yield Dispatched(_to(release, row["backend"], ITEM_BYTES[item], hidden), said)


def _to(release: str, transport: str, item_bytes: int, hidden: int) -> dict[str, str | int]:
    sizes = {"act_bytes": item_bytes, "hidden": hidden, "intermediate_per_partition": 500}
    return {**_BELOW_A_TRANSPORT, "vllm": release, "all2all": transport, **sizes}


def after_dispatch(one: Dispatched, mirrors: Mirrors) -> object:
    """The hidden size behind the transport, or its refusal as the table writes it."""
    decision = mirrors.whole.resolve(Facts.of(one.facts))
    if decision.status == "rejected":
        return "error: ValueError"
    if decision.intermediate.allocated != one.facts["intermediate_per_partition"]:
        return decision.intermediate
    return next((step.hidden for step in decision.steps if step.phase == "dispatch"), None)
