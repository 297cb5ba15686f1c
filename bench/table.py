"""One table of 30 rules, and the same decisions as a rule file, as Python, as JDM and as expressions.

Every rival is written from this one list, so that none can decide anything else. The release is bound:
`vllm` is 0.33 in every question, as it is one in a process.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent

BACKENDS = (
    "aiter_bf16", "aiter_mxfp4", "triton", "triton_unfused", "marlin", "batched_marlin", "deepgemm",
    "humming", "trtllm_bf16", "trtllm_mxfp8", "cutlass_bf16", "cutlass_mxfp8", "cutlass_mxfp4", "b12x_bf16",
    "emulation", "native",
)  # fmt: skip
ACTIVATIONS = ("silu", "situ", "swiglu_oai", "gelu", "relu2", "swiglu_step")
PLATFORMS = ("cuda", "rocm", "xpu", "cpu")
FUSED = (0, 0, 0, 1, 2)
VALUES = {"backend": BACKENDS, "activation": ACTIVATIONS, "platform": PLATFORMS}
HIDDEN = (2048, 2560, 2880, 3072, 4096, 5120, 6144, 7168)
INTERMEDIATE = (96, 160, 192, 256, 352, 360, 384, 512, 704, 720, 768, 1408, 1536, 2048)

#: The release that is bound, and its minor number, as rivals without releases get it.
RELEASE, MINOR = "0.33.0", 33


class Row(NamedTuple):
    """One rule: the values it needs, bounds of the fused count and of the release, both multiples."""

    id: str
    hidden: int
    intermediate: int
    backend: tuple[str, ...] = ()
    activation: tuple[str, ...] = ()
    platform: tuple[str, ...] = ()
    fused_least: int = 0
    since: int = 0
    before: int = 0


class Query(NamedTuple):
    """One question, its fields in the order of the keywords."""

    backend: str
    activation: str
    platform: str
    fused_shared_experts: int
    hidden: int
    intermediate_per_partition: int


ROWS = (
    Row("emulation-old", 1, 1, ("emulation",), before=26),
    Row("emulation", 32, 32, ("emulation",)),
    Row("b12x", 1, 1, ("b12x_bf16",), platform=("cuda",)),
    Row("deepgemm-fused", 128, 256, ("deepgemm",), fused_least=1, since=30),
    Row("deepgemm", 128, 128, ("deepgemm",)),
    Row("marlin-xpu", 128, 128, ("marlin", "batched_marlin"), platform=("xpu",)),
    Row("marlin-relu2", 256, 64, ("marlin", "batched_marlin"), ("relu2",), since=29),
    Row("marlin", 256, 128, ("marlin", "batched_marlin")),
    Row("trtllm-gelu", 512, 128, ("trtllm_bf16", "trtllm_mxfp8"), ("gelu", "relu2"), since=31),
    Row("trtllm", 256, 128, ("trtllm_bf16", "trtllm_mxfp8"), since=27),
    Row("trtllm-old", 256, 256, ("trtllm_bf16", "trtllm_mxfp8")),
    Row("cutlass-mxfp4", 128, 64, ("cutlass_mxfp4",), ("silu", "swiglu_oai"), since=32),
    Row("cutlass", 128, 128, ("cutlass_bf16", "cutlass_mxfp8", "cutlass_mxfp4")),
    Row("aiter-fused", 128, 512, ("aiter_bf16",), ("silu",), ("rocm",), fused_least=1),
    Row("aiter-silu-situ", 128, 128, ("aiter_bf16",), ("silu", "situ"), ("rocm",), since=28),
    Row("aiter-situ-old", 1, 1, ("aiter_bf16",), ("situ",), ("rocm",), before=28),
    Row("aiter-mxfp4", 256, 128, ("aiter_mxfp4",), platform=("rocm",), since=32),
    Row("aiter-mxfp4-old", 256, 256, ("aiter_mxfp4",), platform=("rocm",), before=32),
    Row("triton-unfused", 128, 128, ("triton_unfused",), ("silu", "situ"), ("rocm",), since=31),
    Row("triton-step", 64, 128, ("triton", "triton_unfused"), ("swiglu_step",), fused_least=2),
    Row("triton-xpu", 32, 64, ("triton", "triton_unfused"), platform=("xpu",)),
    Row("rocm-old", 128, 128, platform=("rocm",), before=19),
    Row("rocm", 256, 256, platform=("rocm",)),
    Row("humming", 64, 192, ("humming",), ("silu", "gelu"), ("cuda",)),
    Row("humming-fused", 64, 384, ("humming",), fused_least=2),
    Row("cpu-gelu", 16, 64, activation=("gelu",), platform=("cpu",)),
    Row("cpu", 32, 32, platform=("cpu",)),
    Row("xpu-fused", 64, 128, platform=("xpu",), fused_least=1),
    Row("cuda-step", 1, 96, activation=("swiglu_step",), platform=("cuda",)),
    Row("otherwise", 1, 64),
)  # fmt: skip


def queries(count: int, seed: int = 1) -> list[Query]:
    """Random questions, every value as likely as another."""
    draw = random.Random(seed)
    return [
        Query(
            draw.choice(BACKENDS),
            draw.choice(ACTIVATIONS),
            draw.choice(PLATFORMS),
            draw.choice(FUSED),
            draw.choice(HIDDEN),
            draw.choice(INTERMEDIATE),
        )
        for _ in range(count)
    ]


def other_sizes(count: int, seed: int = 5) -> list[Query]:
    """Random questions of which no two share their sizes, about the same few facts."""
    pairs = random.Random(seed).sample(range(256 * 512), count)
    sizes = ((32 * (pair % 512 + 1), 32 * (pair // 512 + 1)) for pair in pairs)
    return [
        query._replace(hidden=hidden, intermediate_per_partition=intermediate)
        for query, (intermediate, hidden) in zip(queries(count, seed), sizes, strict=True)
    ]


def different_queries(count: int, seed: int = 2) -> list[Query]:
    """Random questions of which no two share their facts, so that no memo of fewer entries ever helps."""
    return [query._replace(fused_shared_experts=number) for number, query in enumerate(queries(count, seed))]


def as_yaml(rows: tuple[Row, ...] = ROWS, more_backends: tuple[str, ...] = ()) -> str:
    """The table as one rule file with its vocabulary."""
    lines = ["# Written by `python bench/table.py`.", "language: 1", "pack: bench", "phase: allocate"]
    lines += ["vocabulary:", "  engine: {vllm: {}}", "  scheme: {mxfp4: {}}"]
    for key, values in VALUES.items():
        lines.append(f"  {key}:")
        lines += [f"    {value}: {{}}" for value in values]
        lines += [f"    {value}: {{}}" for value in (more_backends if key == "backend" else ())]
    lines += ["for: {engine: vllm, scheme: mxfp4}", "rules:"]
    for row in rows:
        lines += _yaml_rule(row)
    return "\n".join(lines) + "\n"


def _yaml_rule(row: Row) -> list[str]:
    when = [f"{key}: {_yaml_list(getattr(row, key))}" for key in VALUES if getattr(row, key)]
    if row.fused_least:
        when.append(f"fused_shared_experts: {{min: {row.fused_least}}}")
    if row.since or row.before:
        bounds = [f">=0.{row.since}"] * bool(row.since) + [f"<0.{row.before}"] * bool(row.before)
        when.append(f'vllm: "{",".join(bounds)}"')
    sizes = [
        f"{name}: {size if size > 1 else 'native'}"
        for name, size in (("hidden", row.hidden), ("intermediate", row.intermediate))
    ]
    lines = [f"  - id: {row.id}"] + [f"    when: {{{', '.join(when)}}}"] * bool(when)
    lines.append(f"    align: {{{', '.join(sizes)}}}")
    return [*lines, "    why: the tile of this kernel, measured in elements"]


def _yaml_list(values: tuple[str, ...]) -> str:
    return values[0] if len(values) == 1 else f"[{', '.join(values)}]"


def as_chain() -> str:
    """The table as the chain that an engine has, the rounding written out: no call is faster."""
    lines = [
        '"""Written by `python bench/table.py`: the 30 rules of the table as an engine writes them."""',
        "# ruff: noqa: E501, RET505, SIM114",
        "# fmt: off",
        "",
        f"VLLM = (0, {MINOR})",
        "",
        "",
        "def chain(",
        "    *,",
        *(f"    {name}: {'str' if name in VALUES else 'int'}," for name in Query._fields),
        ") -> tuple[int, int]:",
    ]
    for number, row in enumerate(ROWS):
        test = " and ".join(_python_tests(row))
        lines.append(f"    {'if' if number == 0 else 'elif'} {test}:" if test else "    else:")
        sizes = _rounded("hidden", row.hidden), _rounded("intermediate_per_partition", row.intermediate)
        lines.append(f"        return {', '.join(sizes)}")
    return "\n".join(lines) + "\n"


def _python_tests(row: Row) -> list[str]:
    tests = []
    for key in VALUES:
        values = getattr(row, key)
        if values:
            listed = ", ".join(f'"{value}"' for value in values)
            tests.append(f"{key} in ({listed})" if len(values) > 1 else f"{key} == {listed}")
    tests += [f"fused_shared_experts >= {row.fused_least}"] * bool(row.fused_least)
    tests += [f"VLLM >= (0, {row.since})"] * bool(row.since)
    return tests + [f"VLLM < (0, {row.before})"] * bool(row.before)


def _rounded(name: str, multiple: int) -> str:
    return name if multiple == 1 else f"-(-{name} // {multiple}) * {multiple}"


def as_expression(conjunction: str) -> str:
    """The table as one expression that gives the number of the row: nested `? :`, in CEL or in zen."""
    text = str(len(ROWS) - 1)
    for number in range(len(ROWS) - 2, -1, -1):
        tests = f" {conjunction} ".join(_expression_tests(ROWS[number]))
        text = f"{tests} ? {number} : {text}"
    return text


def _expression_tests(row: Row) -> list[str]:
    tests = []
    for key in VALUES:
        values = getattr(row, key)
        if values:
            listed = ", ".join(f'"{value}"' for value in values)
            tests.append(f"{key} in [{listed}]" if len(values) > 1 else f"{key} == {listed}")
    tests += [f"fused_shared_experts >= {row.fused_least}"] * bool(row.fused_least)
    tests += [f"vllm >= {row.since}"] * bool(row.since)
    return tests + [f"vllm < {row.before}"] * bool(row.before)


def as_decision_table() -> dict[str, Any]:
    """The table as a zen decision (JDM) with one table, first hit, that gives the number of the row."""
    columns = (*VALUES, "fused_shared_experts", "vllm")
    cells = []
    for number, row in enumerate(ROWS):
        cell = {key: ", ".join(f'"{value}"' for value in getattr(row, key)) for key in VALUES}
        cell["fused_shared_experts"] = f">= {row.fused_least}" if row.fused_least else ""
        cell["vllm"] = f">= {row.since}" if row.since else f"< {row.before}" if row.before else ""
        cells.append({"_id": f"row{number}", **cell, "number": str(number)})
    table = {
        "hitPolicy": "first",
        "inputs": [{"id": key, "name": key, "field": key} for key in columns],
        "outputs": [{"id": "number", "name": "number", "field": "number"}],
        "rules": cells,
    }
    return {
        "nodes": [
            {"id": "in", "type": "inputNode", "name": "in"},
            {"id": "table", "type": "decisionTableNode", "name": "table", "content": table},
            {"id": "out", "type": "outputNode", "name": "out"},
        ],
        "edges": [
            {"id": "e1", "sourceId": "in", "targetId": "table", "type": "edge"},
            {"id": "e2", "sourceId": "table", "targetId": "out", "type": "edge"},
        ],
    }


def more_rows(count: int) -> tuple[tuple[Row, ...], tuple[str, ...]]:
    """The table under so many other rules, `count` in all, and the backends that these speak of."""
    backends = tuple(f"kernel_{number:04}" for number in range(count // 24 + 1))
    above = tuple(
        Row(
            f"{backends[number // 24]}-{number % 24}",
            32 << number % 4,
            32 << number % 5,
            (backends[number // 24],),
            (ACTIVATIONS[number % 6],),
            (PLATFORMS[number // 6 % 4],),
            fused_least=number % 3,
            since=number % 7 + 20 if number % 2 else 0,
        )
        for number in range(count - len(ROWS))
    )
    return above + ROWS, backends


#: The forms that are kept in the repository.
KEPT = {HERE / "table.yaml": as_yaml, HERE / "chain.py": as_chain}


def main() -> None:
    """Write the kept forms."""
    for path, form in KEPT.items():
        path.write_text(form(), encoding="utf-8")


if __name__ == "__main__":
    main()
