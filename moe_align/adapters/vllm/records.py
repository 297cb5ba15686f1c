"""What was seen of each layer, and the table that is logged of it: values in, text out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

Pair = tuple[int, int]  # hidden, intermediate per partition


@dataclass(slots=True)
class Record:
    """One layer from the moment its sizes are chosen until its model is built."""

    layer: str
    backend: str
    entering: Pair  # as the engine's rounding gets them
    engine: Pair  # what the engine's own rounding makes of them
    allocated: Pair  # what is allocated: the engine's sizes but where a user's rule was applied
    rule: str  # the rule behind `allocated`, or what is said in place of one
    expected: Pair | None = None  # what the mirror of this engine says; None: nothing
    mirror: str | None = None  # the mirror's rule
    applied: bool = False
    notes: tuple[str, ...] = ()  # what a reader must know, one sentence each
    remarks: tuple[str, ...] = ()  # what a reader may like to know
    created_bytes: int = 0
    is_first_rank: bool = True
    is_processed: bool = False  # repacked after loading
    given: Mapping[str, str | int | bool] | None = None  # the facts of the layer; None: it is not known

    @property
    def differs(self) -> bool:
        """Whether the engine did otherwise than its mirror says."""
        return self.expected is not None and self.expected != self.engine

    @property
    def warnings(self) -> tuple[str, ...]:
        """The notes, after the difference between engine and pack."""
        if not self.differs or self.expected is None:
            return self.notes
        said = f"vLLM allocates {_times(self.engine)}, {self.mirror} says {_times(self.expected)}"
        return (said, *self.notes)


@dataclass(frozen=True, slots=True)
class Heading:
    """What stands above the table."""

    mode: str
    vllm: str
    aiter: str | None
    hardware: str  # the architecture, or the platform where it has none
    digest: str | None
    model: str


def table(heading: Heading, records: Sequence[Record], unseen: Sequence[str] = ()) -> str:
    """The report of one model: layers that are alike in one line, then warnings, then the sum."""
    groups = _grouped(records)
    rows = [("layers", "backend", "hidden", "intermediate", "GiB", "rule"), *map(_row, groups)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [_title(heading)]
    lines += [
        "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    warnings = [(layers_text(group), text) for group in groups for text in group[0].warnings]
    lines += [f"warning: layers {layers}: {text}" for layers, text in warnings]
    lines += [f"layers {layers_text(group)}: {text}" for group in groups for text in group[0].remarks]
    lines += [f"not seen: {name}" for name in unseen]
    alike = sum(record.engine == record.expected for record in records)
    known = f"engine = policy in {alike} of {len(records)} layers"
    lines.append(f"{known} · warnings {len(warnings)} · layers not seen {len(unseen)}")
    return "\n".join(lines)


def layers_text(records: Sequence[Record]) -> str:
    """The layers' numbers as ranges: `0–60`, `1–3, 7`; names where a layer has no number."""
    numbers = [_number(record.layer) for record in records]
    if None in numbers:
        return ", ".join(record.layer for record in records)
    ranges: list[list[int]] = []
    for number in sorted({number for number in numbers if number is not None}):
        if ranges and ranges[-1][-1] == number - 1:
            ranges[-1][1:] = [number]
        else:
            ranges.append([number])
    return ", ".join("–".join(map(str, each)) for each in ranges)


def _grouped(records: Iterable[Record]) -> list[list[Record]]:
    groups: dict[object, list[Record]] = {}
    for record in records:
        alike = (
            record.backend,
            record.entering,
            record.engine,
            record.allocated,
            record.rule,
            record.warnings,
            record.remarks,
        )
        groups.setdefault(alike, []).append(record)
    return list(groups.values())


def _row(group: Sequence[Record]) -> tuple[str, ...]:
    first = group[0]
    hidden, intermediate = (
        str(native) if native == allocated else f"{native} → {allocated}"
        for native, allocated in zip(first.entering, first.allocated, strict=True)
    )
    gib = sum(record.created_bytes for record in group) / 2**30
    # Of a tiny model two digits would be zeros.
    return (
        layers_text(group),
        first.backend,
        hidden,
        intermediate,
        f"{gib:.2f}" if gib >= 0.01 else f"{gib:.2g}",
        first.rule,
    )


def _title(heading: Heading) -> str:
    parts = [f"moe-align {heading.mode}", f"vLLM {heading.vllm}"]
    parts += [f"AITER {heading.aiter}"] if heading.aiter else []
    parts += [
        heading.hardware,
        f"policy {heading.digest[:12] if heading.digest else 'not loaded'}",
        heading.model,
    ]
    return " · ".join(parts)


def _number(layer: str) -> int | None:
    found = re.search(r"\.(\d+)\.", f".{layer}.")
    return int(found[1]) if found else None


def _times(pair: Pair) -> str:
    return f"{pair[0]} × {pair[1]}"
