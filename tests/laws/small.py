"""Small random policies and facts, and a plain reading of rules to hold the resolver against."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from moe_align import Facts, Policy, PolicyError, load_policy

Plain = dict[str, Any]

#: Words of which some imply others, once over two steps (kernel → arch → platform).
WORDS: Plain = {
    "language": 1,
    "pack": "words",
    "vocabulary": {
        "engine": {"vllm": {}},
        "platform": {"cuda": {}, "rocm": {}, "cpu": {}},
        "arch": {
            "gfx942": {"implies": {"platform": "rocm"}},
            "gfx950": {"implies": {"platform": "rocm"}},
            "sm90": {"implies": {"platform": "cuda"}},
            "none": {"implies": {"platform": "cpu"}},
        },
        "kernel": {"small": {"implies": {"arch": ["gfx950", "sm90"]}}, "large": {}},
        "activation": {"silu": {}, "gelu": {}, "relu2": {}},
        "method": {"default": {}, "quark": {}},
    },
    "defaults": {"engine": "vllm", "vllm": "0.30.0", "method": "default", "fused_shared_experts": 0},
}

DISCRETE: dict[str, tuple[str, ...]] = {
    key: tuple(WORDS["vocabulary"][key]) for key in ("platform", "arch", "kernel", "activation", "method")
}
RELEASES = ("0.10.0", "0.19.0", "0.20.0", "0.20.1", "0.30.0", "0.40.0")
NUMBERS = (1, 2, 3, 4, 5, 7, 8)
SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 16, 17, 23, 24, 25, 31, 32, 33, 48, 49, 64, 96, 100)
#: The facts that a case may leave open, with the values that are tried in their place.
OPEN: dict[str, tuple[object, ...]] = {
    **DISCRETE,
    "experts": NUMBERS,
    "vllm": RELEASES,
    "fused_shared_experts": (0, 1, 2, 3),
}
DIMENSIONS = {"hidden": "hidden", "intermediate": "intermediate_per_partition"}


def _some(values: Sequence[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(st.sampled_from(values), min_size=1, max_size=2, unique=True)
    # What is left by `not` must be something.
    fewer = st.lists(st.sampled_from(values), min_size=1, max_size=min(2, len(values) - 1), unique=True)
    return st.one_of(st.sampled_from(values), several, fewer.map(lambda taken: {"not": taken}))


@st.composite
def bounds(draw: st.DrawFn, values: Sequence[int]) -> Plain:
    low, high = sorted(draw(st.lists(st.sampled_from(values), min_size=2, max_size=2)))
    each = st.sampled_from(
        [{"min": low}, {"max": high}, {"min": low, "max": high}, {"multiple_of": max(low, 1)}]
    )
    return draw(each)


@st.composite
def releases(draw: st.DrawFn) -> str:
    low, high = sorted(draw(st.lists(st.sampled_from(RELEASES[1:]), min_size=2, max_size=2, unique=True)))
    return draw(st.sampled_from([f">={low}", f"<{high}", f">={low},<{high}", f"=={low}"]))


def _condition(key: str, sizes: bool) -> st.SearchStrategy[Any]:
    if key in DISCRETE:
        return _some(DISCRETE[key])
    if key == "vllm":
        return releases()
    values = SIZES if sizes else tuple(value for value in OPEN[key] if isinstance(value, int))
    return st.one_of(_some(values), bounds(values))


SIZE_FACTS = (*DIMENSIONS.values(), "native_hidden", "native_intermediate")


@st.composite
def conditions(draw: st.DrawFn, sizes: bool = True) -> Plain:
    keys = [*OPEN, *(SIZE_FACTS if sizes else ())]
    chosen = draw(st.lists(st.sampled_from(keys), max_size=3, unique=True))
    return {key: draw(_condition(key, key in SIZE_FACTS)) for key in chosen}


MULTIPLE = st.sampled_from((1, 2, 3, 4, 6, 8, 16))
MULTIPLES = st.one_of(
    MULTIPLE,
    st.just("native"),
    st.builds(
        lambda multiple, least: {"multiple": multiple, "at_least": least}, MULTIPLE, st.integers(1, 40)
    ),
    st.builds(lambda one, two: {"lcm": [one, two]}, MULTIPLE, MULTIPLE),
    st.builds(lambda one, two: {"max": [one, two]}, MULTIPLE, MULTIPLE),
    st.just({"snap": [8, 16, 32, 128]}),
)
ALIGN = st.one_of(
    MULTIPLES, st.builds(lambda one, two: {"hidden": one, "intermediate": two}, MULTIPLES, MULTIPLES)
)
ADD = st.builds(lambda number: {"hidden": number}, st.integers(1, 9))
OUTCOMES = st.one_of(
    st.builds(lambda align: {"align": align}, ALIGN),
    st.builds(lambda align: {"align": align}, ALIGN),
    st.builds(lambda add: {"add": add}, ADD),
    st.builds(lambda multiple: {"require": {"hidden": multiple}}, MULTIPLE),
    st.sampled_from([{"reject": "no kernel"}, {"reject": "no memory"}]),
)


@st.composite
def packs(draw: st.DrawFn, name: str, phase: str, sizes: bool = True, most: int = 4) -> Plain:
    rules = []
    for number in range(draw(st.integers(1, most))):
        rule = {"id": f"r{number}", "when": draw(conditions(sizes)), **draw(OUTCOMES), "why": "a tile"}
        unless = draw(conditions(sizes)) if draw(st.integers(0, 3)) == 0 else {}
        if unless:
            rule["unless"] = unless
        rules.append(rule)
    return {"language": 1, "pack": name, "phase": phase, "for": {"engine": "vllm"}, "rules": rules}


@st.composite
def files(draw: st.DrawFn, sizes: bool = True) -> list[list[Plain]]:
    """The files of two layers, nearest first; the second has a pack in several phases."""
    near = [draw(packs("near", "allocate", sizes, 2))] if draw(st.booleans()) else []
    early = [
        draw(packs(phase, phase, sizes, 2))
        for phase in ("model", "dispatch", "repack")
        if draw(st.booleans())
    ]
    last = draw(packs("allocate", "allocate", sizes))
    if draw(st.booleans()):
        last["rules"].append({"id": "otherwise", "align": "native"})
    return [near, [*early, last]] if near else [[*early, last]]


@st.composite
def contracts(draw: st.DrawFn) -> Plain:
    listed = []
    for number in range(draw(st.integers(1, 4))):
        demand = draw(st.one_of(MULTIPLE, st.builds(lambda most: {"max": most}, st.sampled_from(SIZES))))
        listed.append(
            {
                "id": f"c{number}",
                "when": draw(conditions(sizes=False)),
                "require": {draw(st.sampled_from(sorted(DIMENSIONS))): demand},
                "breaks": "silent",
                "why": "a tile",
            }
        )
    return {"language": 1, "pack": "contracts", "contracts": listed}


def policy_of(layers: Sequence[Sequence[Plain]], words: Plain = WORDS) -> Policy:
    """The policy of files that are given as values: JSON is YAML."""
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for number, layer in enumerate([*layers, [words]]):
            path = Path(folder) / f"layer{number}"
            path.mkdir()
            for file in layer:
                (path / f"{file['pack']}.yaml").write_text(json.dumps(file), encoding="utf-8")
            paths.append(str(path))
        return load_policy(*paths, environ={}, built_in=False)


@st.composite
def full_facts(draw: st.DrawFn) -> Plain:
    """Facts that leave nothing open, and do not contradict each other."""
    arch, platform = draw(
        st.sampled_from([("gfx942", "rocm"), ("gfx950", "rocm"), ("sm90", "cuda"), ("none", "cpu")])
    )
    kernels = ("small", "large") if arch in ("gfx950", "sm90") else ("large",)
    facts: Plain = {"arch": arch, "platform": platform, "kernel": draw(st.sampled_from(kernels))}
    for key, values in OPEN.items():
        if key not in facts:
            facts[key] = draw(st.sampled_from(values))
    for key in DIMENSIONS.values():
        facts[key] = draw(st.sampled_from(SIZES))
    return facts


def fillings(facts: Mapping[str, Any], open_keys: Sequence[str]) -> Iterator[Plain]:
    """Every way to give the open facts one of their values; some of them contradict each other."""
    values = [OPEN.get(key, SIZES) for key in open_keys]
    for chosen in product(*values):
        yield {**facts, **dict(zip(open_keys, chosen, strict=True))}


def is_possible(facts: Mapping[str, Any]) -> bool:
    """Whether the vocabulary allows the facts together, read plainly."""
    for key, values in WORDS["vocabulary"].items():
        for other, said in values.get(facts.get(key), {}).get("implies", {}).items():
            if other in facts and facts[other] not in (said if isinstance(said, list) else [said]):
                return False
    return True


Answer = tuple[str, str | None, tuple[int, int] | None, tuple[int, int] | None]


def read_plainly(layers: Sequence[Sequence[Plain]], facts: Mapping[str, Any]) -> Answer:
    """Status, deciding rule, created and resident sizes of facts that are all known."""
    values = {**WORDS["defaults"], **facts}
    values["native_hidden"], values["native_intermediate"] = (
        values["hidden"],
        values["intermediate_per_partition"],
    )
    created: tuple[int, int] | None = None
    decided: str | None = None
    for phase in ("model", "dispatch", "allocate", "repack"):
        rules = [
            (file["pack"], rule)
            for layer in layers
            for file in layer
            if file.get("phase") == phase
            for rule in file["rules"]
        ]
        found = next(((pack, rule) for pack, rule in rules if _matches(rule, values)), None)
        if found is None:
            if phase == "allocate":
                return "unknown", None, None, None
            continue
        pack, rule = found
        address = f"{pack}/{rule['id']}"
        if not _apply(rule, values):
            return "rejected", address, None, None
        if phase == "allocate":
            decided, created = address, (values["hidden"], values["intermediate_per_partition"])
    return "decided", decided, created, (values["hidden"], values["intermediate_per_partition"])


def _matches(rule: Plain, values: Mapping[str, Any]) -> bool:
    holds = all(_holds(said, values[key], key) for key, said in rule.get("when", {}).items())
    unless = rule.get("unless")
    return holds and not (unless and all(_holds(said, values[key], key) for key, said in unless.items()))


def _holds(said: Any, value: Any, key: str) -> bool:
    if key == "vllm":
        return all(_release_holds(clause, value) for clause in said.split(","))
    if isinstance(said, dict) and "not" in said:
        return not _holds(said["not"], value, key)
    if isinstance(said, dict):
        low, high, divisor = said.get("min", 0), said.get("max", math.inf), said.get("multiple_of", 1)
        return bool(low <= value <= high and value % divisor == 0)
    return value in said if isinstance(said, list) else bool(value == said)


def _release_holds(clause: str, value: str) -> bool:
    numbers = tuple(map(int, value.split(".")))
    bound = tuple(map(int, clause.lstrip(">=<").split(".")))
    if clause.startswith(">="):
        return numbers >= bound
    return numbers == bound if clause.startswith("==") else numbers < bound


def _apply(rule: Plain, values: Plain) -> bool:
    """Change the sizes as a rule says; gives whether it does not refuse."""
    if "reject" in rule:
        return False
    if "add" in rule:
        values["hidden"] += rule["add"]["hidden"]
        return True
    if "require" in rule:
        return bool(values["hidden"] % rule["require"]["hidden"] == 0)
    align = rule["align"]
    for name, key in DIMENSIONS.items():
        each = align.get(name) if isinstance(align, dict) and align.keys() & DIMENSIONS.keys() else align
        size = _least(each, values[key])
        if size is None:
            return False
        values[key] = size
    return True


def _least(multiple: Any, size: int) -> int | None:
    """The least size that a multiple allows, found by trying one after the other."""
    if multiple == "native":
        return size
    if isinstance(multiple, dict) and "snap" in multiple:
        return min((choice for choice in multiple["snap"] if choice >= size), default=None)
    least = 1
    if isinstance(multiple, dict):
        least = multiple.get("at_least", 1)
        if "lcm" in multiple:
            multiple = math.lcm(*multiple["lcm"])
        else:
            multiple = max(multiple["max"]) if "max" in multiple else multiple["multiple"]
    tried = max(size, least)
    while tried % multiple:
        tried += 1
    return tried


def resolved(policy: Policy, facts: Mapping[str, Any]) -> Any:
    """The decision, or the codes of the refusal."""
    try:
        return policy.resolve(Facts.of(facts))
    except PolicyError as refusal:
        return {problem.code for problem in refusal.problems}
