"""An engine's answers as rows: what it made of each size, folded where machines or activations agree.

Units are elements, `intermediate` is per partition, `*` says that all values agree, a refusal stands as
`error: TypeName` in the place of the first output.
"""

from __future__ import annotations

import enum
import inspect
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import FrameType

from moe_align.verify import questions as ask
from moe_align.verify.questions import Engine, link
from moe_align.verify.stand_ins import Machine

Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]
Row = Mapping[str, Json]
Case = tuple[Json, ...]
Cases = tuple[Case, ...]

MACHINES = (
    Machine("cuda", "sm90"),
    Machine("cuda", "sm100"),
    Machine("rocm", "gfx942"),
    Machine("rocm", "gfx950"),
    Machine("rocm", "gfx1250"),
    Machine("xpu"),
    Machine("cpu"),
)
MORE_MACHINES = (
    *(Machine("cuda", arch) for arch in ("sm80", "sm89", "sm90", "sm100", "sm103", "sm110", "sm120")),
    *(Machine("rocm", arch) for arch in ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201", "gfx1250")),
    Machine("xpu"),
    Machine("cpu"),
)
PAIRS = (
    (2880, 360),
    (2880, 720),
    (2880, 2880),
    (7168, 384),
    (7168, 3072),
    (4096, 192),
    (4096, 96),
    (6144, 1000),
    (100, 100),
    (2912, 160),
)
PADS = tuple((h, i) for h in (0, 64, 128, 192, 256) for i in (0, 24, 64, 96, 128, 152, 192))
HIDDENS = (2048, 2560, 2880, 3072, 4096, 5120, 6144, 7168, 8192, 1000, 9216)
ROCM = tuple(machine for machine in MACHINES if machine.platform == "rocm")
_TRANSPORTS = ("deepep_ht", "deepep_ll", "deepep_v2", "nixl_ep")
_ITEMS = {"bf16": "bfloat16", "fp8": "float8_e4m3fn", "fp32": "float32"}
_MOE_TP = (1, 2, 4, 8)

Solve = Callable[[Engine, enum.Enum | None, int, int], ask.Sizes]
Grid = dict[tuple[str | None, Machine], Cases]


def _case(asked: Sequence[int], answer: tuple[Json, ...] | str) -> tuple[Json, ...]:
    return (*asked, answer, None) if isinstance(answer, str) else (*asked, *answer)


def _cases(question: Callable[[int, int], tuple[Json, ...]], asked: Iterable[tuple[int, int]]) -> Cases:
    return tuple(_case(one, ask.ask(partial(question, *one))) for one in asked)


def _folded(
    mine: Mapping[Machine, Cases], everything: Collection[Machine]
) -> list[tuple[str, str | None, Cases]]:
    """Return platform, architecture and cases; `*` where all that there are agree."""
    if len(mine) == len(everything) and len(set(mine.values())) == 1:
        return [("*", "*", next(iter(mine.values())))]
    rows: list[tuple[str, str | None, Cases]] = []
    for platform in dict.fromkeys(machine.platform for machine in mine):
        here = {machine: cases for machine, cases in mine.items() if machine.platform == platform}
        complete = len(here) == sum(machine.platform == platform for machine in everything)
        if complete and len(set(here.values())) == 1:
            machine, cases = next(iter(here.items()))
            rows.append((platform, machine.arch and "*", cases))
        else:
            rows.extend((platform, machine.arch, cases) for machine, cases in here.items())
    return rows


def _agreeing(grid: Grid) -> dict[str, dict[Machine, Cases]]:
    """Return, under `*` or an activation's name, the machines that need a row of their own there."""
    names = dict.fromkeys(name for name, _ in grid)
    machines = dict.fromkeys(machine for _, machine in grid)
    one_answer = {m: len({grid[name, m] for name in names}) == 1 for m in machines}
    first = next(iter(names))
    found: dict[str, dict[Machine, Cases]] = {}
    for machine in machines:
        if one_answer[machine]:
            found.setdefault("*", {})[machine] = grid[first, machine]
    for name in names:
        for machine in machines:
            if not one_answer[machine]:
                found.setdefault(name or "", {})[machine] = grid[name, machine]
    return found


def _size_rows(scheme: str, backend: str, grid: Grid) -> list[Row]:
    if len({name for name, _ in grid}) == 1:
        parts: Mapping[str, Mapping[Machine, Cases]] = {"": {m: cases for (_, m), cases in grid.items()}}
    else:
        parts = _agreeing(grid)
    everything = {machine for _, machine in grid}
    return [
        _size_row(scheme, backend, activation or None, *row)
        for activation, machines in parts.items()
        for row in _folded(machines, everything)
    ]


def _size_row(
    scheme: str, backend: str, activation: str | None, platform: str, arch: str | None, cases: Cases
) -> Row:
    return {
        "scheme": scheme,
        "backend": backend,
        "activation": activation,
        "platform": platform,
        "arch": arch,
        "cases": cases,
    }


def size_rows(root: Path, machines: Sequence[Machine], sizes: Sequence[tuple[int, int]]) -> list[Row]:
    """Return the sizes of MXFP4, OCP MX and unquantised layers, before and after the engine's rounding."""
    return _size_answers([link(root, machine) for machine in machines], sizes)


def _size_answers(engines: Sequence[Engine], sizes: Sequence[tuple[int, int]]) -> list[Row]:
    first = engines[0]
    if ask.has_oracle(first.tree):
        return [*_oracle_rows(engines, sizes), *_unquantized_rows(engines, sizes)]
    return [*_layer_rows(engines, sizes), *_quark_rows(engines, sizes), *_unquantized_rows(engines, sizes)]


def _run(
    engines: Sequence[Engine],
    names: Sequence[str | None],
    sizes: Sequence[tuple[int, int]],
    question: Callable[[Engine, str | None, int, int], ask.Sizes],
) -> Grid:
    return {
        (name, engine.machine): _cases(partial(question, engine, name), sizes)
        for name in names
        for engine in engines
    }


def _backend(engine: Engine, name: str) -> enum.Enum:
    return dict(ask.mxfp4_backends(engine.tree))[name]


def _activation(engine: Engine, name: str | None) -> enum.Enum | None:
    return None if name is None else dict(ask.activations(engine.tree))[name]


def _layer_rows(engines: Sequence[Engine], sizes: Sequence[tuple[int, int]]) -> list[Row]:
    """Rows of the releases in which the layer rounded the hidden size and weight creation the rest."""
    rows: list[Row] = []
    for name, _ in ask.mxfp4_backends(engines[0].tree):

        def hidden(engine: Engine, _none: str | None, h: int, i: int, name: str = name) -> ask.Sizes:
            return ask.layer_hidden(engine, _backend(engine, name), "mxfp4", "gpt_oss", h), i

        def weights(engine: Engine, _none: str | None, h: int, i: int, name: str = name) -> ask.Sizes:
            return ask.mxfp4_weights(engine, _backend(engine, name), h, i)

        def both(engine: Engine, none: str | None, h: int, i: int) -> ask.Sizes:
            return weights(engine, none, *hidden(engine, none, h, i))

        for scheme, question in (("mxfp4.layer_hidden", hidden), ("mxfp4.weights", weights), ("mxfp4", both)):
            rows += _size_rows(scheme, name, _run(engines, [None], sizes, question))
    return [*rows, *_other_layer_rows(engines, sizes)]


def _other_layer_rows(engines: Sequence[Engine], sizes: Sequence[tuple[int, int]]) -> list[Row]:
    """What the layer did for another config or model type: rows of `mxfp4.layer_hidden.CONFIG.MODEL_TYPE`."""
    rows: list[Row] = []
    for config, model_type in (("mxfp4", "other"), ("quark", "gpt_oss"), ("quark", "other")):
        for name, _ in ask.mxfp4_backends(engines[0].tree):

            def hidden(
                engine: Engine,
                _none: str | None,
                h: int,
                i: int,
                name: str = name,
                asked: tuple[str, str] = (config, model_type),
            ) -> ask.Sizes:
                return ask.layer_hidden(engine, _backend(engine, name), *asked, h), i

            scheme = f"mxfp4.layer_hidden.{config}.{model_type}"
            rows += _size_rows(scheme, name, _run(engines, [None], sizes, hidden))
    return rows


def _quark_rows(engines: Sequence[Engine], sizes: Sequence[tuple[int, int]]) -> list[Row]:
    rows: list[Row] = []
    for model_type in ("gpt_oss", "other"):

        def weights(
            engine: Engine, _none: str | None, h: int, i: int, model_type: str = model_type
        ) -> ask.Sizes:
            return ask.quark_weights(engine, model_type, h, i)

        rows += _size_rows(
            "quark_ocp_mx.weights", f"model_type={model_type}", _run(engines, [None], sizes, weights)
        )
    return rows


def _oracle_rows(engines: Sequence[Engine], sizes: Sequence[tuple[int, int]]) -> list[Row]:
    """Rows of the rounding function, and of each layer class where it differs from that function."""
    tree = engines[0].tree
    every = [None, *(name for name, _ in ask.activations(tree))]
    names = every if ask.takes_activation(engines[0]) else [None]
    rows: list[Row] = []
    plain: dict[str, Grid] = {}
    for backend, _ in ask.mxfp4_backends(tree):

        def rounded(engine: Engine, name: str | None, h: int, i: int, backend: str = backend) -> ask.Sizes:
            return ask.round_mxfp4(engine, _backend(engine, backend), _activation(engine, name), h, i)

        plain[backend] = _run(engines, names, sizes, rounded)
        rows += _size_rows("mxfp4", backend, plain[backend])
    for cls, module in ask.METHODS.items():
        if tree.has(f"{module}.{cls}"):
            for backend, grid in plain.items():
                rows += _method_rows(engines, f"{module}.{cls}", backend, grid, every[1:], sizes)
    return rows


def _method_rows(
    engines: Sequence[Engine],
    dotted: str,
    backend: str,
    plain: Grid,
    names: Sequence[str | None],
    sizes: Sequence[tuple[int, int]],
) -> list[Row]:
    def rounded(engine: Engine, name: str | None, h: int, i: int) -> ask.Sizes:
        return ask.round_by_method(engine, dotted, _backend(engine, backend), _activation(engine, name), h, i)

    grid = _run(engines, names, sizes, rounded)
    without = {machine: cases for (name, machine), cases in plain.items() if name is None}
    differing = {
        machine
        for (name, machine), cases in grid.items()
        if cases != plain.get((name, machine), without[machine])
    }
    if not differing:
        return []
    scheme = f"mxfp4.method.{dotted.rpartition('.')[2]}"
    rows: list[Row] = []
    for activation, machines in _agreeing(grid).items():
        mine = {machine: cases for machine, cases in machines.items() if machine in differing}
        every = [engine.machine for engine in engines]
        rows += [_size_row(scheme, backend, activation, *row) for row in _folded(mine, every)]
    return rows


def _unquantized_rows(engines: Sequence[Engine], sizes: Sequence[tuple[int, int]]) -> list[Row]:
    rows: list[Row] = []
    for backend in [name for name, _ in ask.unquantized_backends(engines[0].tree)] or ["*"]:

        def solve(engine: Engine, _none: str | None, h: int, i: int, backend: str = backend) -> ask.Sizes:
            member = dict(ask.unquantized_backends(engine.tree)).get(backend)
            return ask.unquantized(engine, member, h, i)

        rows += _size_rows("unquantized", backend, _run(engines, [None], sizes, solve))
    return rows


def answers(
    root: Path, machines: Sequence[Machine] = MACHINES, sizes: Sequence[tuple[int, int]] = PAIRS
) -> dict[str, list[Row]]:
    """Return everything that the engine under `root` answers.

    `sizes`, `aiter_pads` and `all2all` are tables of results, `members` the names in the engine's
    enumerations, `sources` the position of every function that ran.
    """
    engine = link(root, ROCM[0])
    found: dict[str, list[Row]] = {
        "sizes": size_rows(root, machines, sizes),
        "aiter_pads": pad_rows(root),
        "all2all": transport_rows(root),
        "members": _member_rows(engine),
    }
    found["sources"] = _source_rows(engine)
    return found


def _member_rows(engine: Engine) -> list[Row]:
    enumerations = {
        "backend.mxfp4": ask.mxfp4_backends(engine.tree),
        "backend.unquantized": ask.unquantized_backends(engine.tree),
        "activation": ask.activations(engine.tree),
    }
    return [
        {"enumeration": kind, "member": name, "value": str(member.value), "canonical": member.name}
        for kind, found in enumerations.items()
        for name, member in found
    ]


def _source_rows(engine: Engine) -> list[Row]:
    """Ask each question once, and return where the engine's functions stand that ran for it."""
    ran: set[tuple[str, int, str]] = set()

    def note(frame: FrameType, event: str, _value: object) -> None:  # pragma: no cover - no tracer sees it
        code = frame.f_code
        if event == "call" and code.co_filename.startswith("vllm/") and code.co_flags & inspect.CO_OPTIMIZED:
            ran.add((code.co_filename, code.co_firstlineno, code.co_qualname))

    sys.setprofile(note)
    try:
        _size_answers([engine], PAIRS[:1])
        _pad_rows(engine, PADS[:1])
        _transport_rows(engine, HIDDENS[:1])
    finally:
        sys.setprofile(None)
    return [{"name": name, "file": file, "line": line} for file, line, name in sorted(ran) if "<" not in name]


def pad_rows(
    root: Path, machines: Sequence[Machine] = ROCM, pads: Sequence[tuple[int, int]] = PADS
) -> list[Row]:
    """Return the padding arguments that reach AITER; all machines have to agree.

    Raises:
        ValueError: if they do not.
    """
    found = [_pad_rows(link(root, machine), pads) for machine in machines]
    if any(rows != found[0] for rows in found):
        raise ValueError("the machines pass different paddings")
    return found[0]


def _pad_rows(engine: Engine, pads: Sequence[tuple[int, int]]) -> list[Row]:
    overrides = (None, 0) if ask.has_pad_override(engine.tree) else (None,)
    names: list[str | None] = [name for name, _ in ask.activations(engine.tree)]
    rows: list[Row] = []
    for override in overrides:
        for name in names or [None]:
            grid = {
                (w4a4, moe_tp): _cases(
                    partial(ask.aiter_pads, engine, _activation(engine, name), w4a4, moe_tp, override), pads
                )
                for w4a4 in (False, True)
                for moe_tp in _MOE_TP
            }
            more: Row = {} if override is None else {"intermediate_pad_override": override}
            rows += [_pad_row("fused_experts", name or "*", *row) | dict(more) for row in _folded_pads(grid)]
    if ask.has_ck_method(engine.tree):
        cases = _cases(partial(ask.ck_method_pads, engine), pads)
        rows.append(_pad_row("mxfp4_method_ck", "*", "*", "*", cases))
    return rows


def _pad_row(path: str, activation: str, w4a4: Json, moe_tp: Json, cases: Cases) -> dict[str, Json]:
    return {"path": path, "activation": activation, "use_w4a4": w4a4, "tp_size": moe_tp, "cases": cases}


def _folded_pads(grid: Mapping[tuple[bool, int], Cases]) -> list[tuple[Json, Json, Cases]]:
    """Return `use_w4a4`, the sizes of MoE TP that agree, and their cases."""
    kinds = dict.fromkeys(w4a4 for w4a4, _ in grid)
    same = all(grid[False, tp] == grid[True, tp] for _, tp in grid)
    rows: list[tuple[Json, Json, Cases]] = []
    for w4a4 in [False] if same else kinds:
        groups: dict[Cases, list[int]] = {}
        for tp in _MOE_TP:
            groups.setdefault(grid[w4a4, tp], []).append(tp)
        for cases, sizes in groups.items():
            named: Json = "*" if len(sizes) == len(_MOE_TP) else sizes[0] if len(sizes) == 1 else sizes
            rows.append(("*" if same else w4a4, named, cases))
    return rows


def transport_rows(
    root: Path, machines: Sequence[Machine] = MACHINES, hiddens: Sequence[int] = HIDDENS
) -> list[Row]:
    """Return the hidden sizes that the expert-parallel transports ask for; all machines have to agree.

    Raises:
        ValueError: if they do not.
    """
    found = [_transport_rows(link(root, machine), hiddens) for machine in machines]
    if any(rows != found[0] for rows in found):
        raise ValueError("the machines ask for different hidden sizes")
    return found[0]


def _transport_rows(engine: Engine, hiddens: Sequence[int]) -> list[Row]:
    rows: list[Row] = []
    for transport in ask.transports(engine, _TRANSPORTS):
        by_dtype = {
            item: tuple(
                (h, ask.ask(partial(ask.transport_hidden, engine, transport, dtype, h))) for h in hiddens
            )
            for item, dtype in _ITEMS.items()
        }
        if len(set(by_dtype.values())) == 1:
            by_dtype = {"*": next(iter(by_dtype.values()))}
        rows += [{"backend": transport, "dtype": item, "cases": cases} for item, cases in by_dtype.items()]
    return rows
