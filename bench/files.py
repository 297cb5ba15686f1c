"""What a large rule file costs to load, against what the parser alone takes to compose it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import table
import yaml
from timing import Measure, in_turn, medians, ratios

from moe_align import load_policy


def measures(folder: Path, rounds: int, count: int) -> Iterator[Measure]:
    """The rows of this group: one pack of `count` rules, and one of twice as many."""
    one, two = (_written(folder, number) for number in (count, 2 * count))
    jobs = {
        "load": lambda: load_policy(one, environ={}, built_in=False),
        "compose": lambda: yaml.compose(one.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader),
        "twice": lambda: load_policy(two, environ={}, built_in=False),
        "compose twice": lambda: yaml.compose(two.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader),
    }
    taken = in_turn(jobs, rounds)
    for what, ours, against, theirs, limit, note in (
        (f"load {count:,} rules", "load", "CSafeLoader composes the file", "compose", 4.0, ""),
        (f"load {2 * count:,} rules", "twice", f"load {count:,} rules", "load", 2.2, "2 is linear"),
        (f"compose {2 * count:,} rules", "compose twice", f"compose {count:,} rules", "compose", None, ""),
    ):
        pair = ratios(taken[ours], taken[theirs])
        yield Measure(what, against, pair, medians(taken[ours], taken[theirs]), limit, note)


def _written(folder: Path, count: int) -> Path:
    rows, backends = table.more_rows(count)
    file = folder / f"pack_{count}.yaml"
    file.write_text(table.as_yaml(rows, backends), encoding="utf-8")
    return file
