"""Tables of engine answers as cases: facts, and the sizes or pads that the engine gave for them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

DATA = Path(__file__).parent / "data"
Row = Mapping[str, Any]

MACHINES: dict[str, tuple[tuple[str, str | None], ...]] = {
    "parity": (
        ("cuda", "sm90"),
        ("cuda", "sm100"),
        ("rocm", "gfx942"),
        ("rocm", "gfx950"),
        ("rocm", "gfx1250"),
        ("xpu", None),
        ("cpu", None),
    ),
    "engine": (
        *(("cuda", arch) for arch in ("sm80", "sm89", "sm90", "sm100", "sm103", "sm110", "sm120")),
        *(("rocm", arch) for arch in ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201", "gfx1250")),
        ("xpu", None),
        ("cpu", None),
    ),
}
METHODS = {
    "default": "Mxfp4MoEMethod",
    "gpt_oss": "GptOssMxfp4MoEMethod",
    "quark": "QuarkOCP_MX_MoEMethod",
    "online": "Mxfp4OnlineMoEMethod",
}


class Case(NamedTuple):
    """One row on one machine: `kind` says which phases it is about, `sizes` are (h, i, h2, i2)."""

    release: str
    kind: str
    facts: Mapping[str, str]
    sizes: tuple[tuple[Any, ...], ...]


@cache
def table(folder: str, name: str) -> dict[str, list[dict[str, Any]]]:
    """The rows of each release, with `cases` written out: inputs and outcomes in one list each."""
    held = json.loads((DATA / folder / f"vllm_{name}.json").read_text(encoding="utf-8"))
    found: dict[str, list[dict[str, Any]]] = {}
    for release, rows in held["releases"].items():
        if isinstance(rows, dict):
            found[release] = found[rows["same_as"]]
        else:
            found[release] = [{**row, "cases": _written_out(held, row["cases"])} for row in rows]
    return found


@cache
def members() -> dict[str, list[dict[str, str]]]:
    """The members of the engine's enumerations, release by release."""
    found: dict[str, list[dict[str, str]]] = {}
    for release, rows in json.loads(
        (DATA / "engine" / "vllm_members.json").read_text(encoding="utf-8")
    ).items():
        found[release] = found[rows["same_as"]] if isinstance(rows, dict) else rows
    return found


def _written_out(held: Mapping[str, Any], number: int) -> tuple[tuple[Any, ...], ...]:
    pairs = zip(held["inputs"], held["outcomes"][number], strict=True)
    return tuple((*_listed(asked), *_listed(said)) for asked, said in pairs)


def _listed(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else [value]


def size_cases(folder: str) -> Iterator[Case]:
    """Every row of the table of sizes that the mirrors answer, on every machine and for every method."""
    name = "roundup" if folder == "parity" else "sizes"
    for release, rows in table(folder, name).items():
        yield from _unquantized(folder, release, rows)
        yield from _oracle(folder, release, rows) if _has_oracle(rows) else _layers(folder, release, rows)


def _has_oracle(rows: Sequence[Row]) -> bool:
    return not any(row["scheme"] == "mxfp4.weights" for row in rows)


Machine = tuple[str, str | None]


def _covered(folder: str, row: Row) -> frozenset[Machine]:
    """The machines that a row speaks of."""
    return frozenset(
        (platform, arch)
        for platform, arch in MACHINES[folder]
        if row["platform"] in ("*", platform) and row["arch"] in ("*", arch)
    )


def _machines(folder: str, row: Row, without: frozenset[Machine] = frozenset()) -> Iterator[dict[str, str]]:
    """The machines of a row as facts. In our own tables `*` stays open: a claim about all it stands for."""
    covered = _covered(folder, row)
    if folder == "engine" and "*" in (row["platform"], row["arch"]) and not covered & without:
        yield {} if row["platform"] == "*" else {"platform": row["platform"]}
        return
    for platform, arch in MACHINES[folder]:
        if (platform, arch) in covered - without:
            yield {"platform": platform} if arch is None else {"platform": platform, "arch": arch}


def _unquantized(folder: str, release: str, rows: Sequence[Row]) -> Iterator[Case]:
    for row in rows:
        if row["scheme"] == "unquantized":
            backend = {} if row["backend"] == "*" else {"backend": row["backend"]}
            for machine in _machines(folder, row):
                yield Case(release, "whole", {"scheme": "unquantized", **backend, **machine}, row["cases"])


def _layers(folder: str, release: str, rows: Sequence[Row]) -> Iterator[Case]:
    """The two steps of the releases before the oracle, and both together."""
    for row in rows:
        for kind, asked in _steps(row["scheme"], row["backend"]):
            for machine in _machines(folder, row):
                yield Case(release, kind, {"scheme": "mxfp4", **asked, **machine}, row["cases"])


def _steps(scheme: str, backend: str) -> Iterator[tuple[str, dict[str, str]]]:
    """The kinds of case that a row gives, each with the facts that it is about."""
    gpt_oss = {"method": "gpt_oss", "backend": backend}
    if scheme == "mxfp4":
        yield "whole", gpt_oss
    elif scheme == "mxfp4.weights":
        yield "allocate", gpt_oss
        yield "allocate", {"method": "default", "backend": backend}
    elif scheme == "quark_ocp_mx.weights":
        yield "allocate", {"method": "quark", "model_type": backend.removeprefix("model_type=")}
    elif scheme == "mxfp4.layer_hidden":
        yield "model", gpt_oss
    elif scheme.startswith("mxfp4.layer_hidden."):
        _, _, config, model_type = scheme.split(".")
        method = "default" if config == "mxfp4" else config
        yield "model", {"method": method, "model_type": model_type, "backend": backend}


def _oracle(folder: str, release: str, rows: Sequence[Row]) -> Iterator[Case]:
    """Every backend, machine, method and activation of a release in which the oracle rounds.

    A class that rounds differently has rows of its own; without one it does what the function says, which
    only the default class asks with the activation (from 0.28 on). The OCP MX class looks at no model type:
    it is asked about GPT-OSS.
    """
    plain = [row for row in rows if row["scheme"] == "mxfp4"]
    asked = {row["activation"] for row in plain}
    own = {
        method: [row for row in rows if row["scheme"] == f"mxfp4.method.{cls}"]
        for method, cls in METHODS.items()
    }
    for row in plain:
        facts = {"scheme": "mxfp4", "backend": row["backend"]}
        untouched = tuple((h, i, h, i) for h, i, *_ in row["cases"])
        for machine in _machines(folder, row):
            asked_of_model = {**facts, **machine, "method": "gpt_oss", "model_type": "gpt_oss"}
            yield Case(release, "model", asked_of_model, untouched)
        for method in METHODS if "*" in asked else [method for method in METHODS if method != "online"]:
            for activation in _asked_by(folder, method, row["activation"], asked):
                elsewhere = _own_machines(folder, own[method], row["backend"], activation)
                more = {} if activation is None else {"activation": activation}
                more |= {"model_type": "gpt_oss"} if method == "quark" else {}
                for machine in _machines(folder, row, elsewhere):
                    yield Case(release, "whole", {**facts, **machine, "method": method, **more}, row["cases"])
    for method, its in own.items():
        for row in its:
            for machine in _machines(folder, row):
                facts = {"scheme": "mxfp4", "method": method, "backend": row["backend"], **machine}
                more = {} if row["activation"] == "*" else {"activation": row["activation"]}
                yield Case(release, "whole", {**facts, **more}, row["cases"])


def _own_machines(
    folder: str, own: Sequence[Row], backend: str, activation: str | None
) -> frozenset[Machine]:
    """The machines on which a class has rows of its own for a backend and an activation."""
    return frozenset().union(
        *(
            _covered(folder, row)
            for row in own
            if row["backend"] == backend and (activation is None or row["activation"] in ("*", activation))
        )
    )


def _asked_by(
    folder: str, method: str, activation: str | None, asked: set[str | None]
) -> Iterator[str | None]:
    """The activations that a row speaks of for one method; `None` leaves the activation open."""
    if "*" not in asked or (folder == "engine" and activation == "*"):
        yield None
    elif method != "default":
        if activation in ("*", None):
            yield None
    elif activation == "*":
        yield from sorted(name for name in asked if name not in ("*", None))
    elif activation is not None:
        yield activation
