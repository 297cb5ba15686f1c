"""Measure moe-align against what one would use in its place: `python bench/run.py`.

Prints a table and writes `bench/RESULTS.md`. Every answer of every rival is compared with ours first:
where one differs, this ends with an error. Needs `pip install -e .[bench]`. With `--quick` it tries little of
everything, in a minute, leaves out rivals that are not installed, and writes nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
from collections.abc import Iterator
from datetime import date
from importlib.metadata import version
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import answers
import files
import starts
from rivals import MODULES, installed
from timing import Measure

RESULTS = Path(__file__).parent / "RESULTS.md"
GPU = Path(__file__).parent / "gpu"
LIBRARIES = ("pydantic", "pydantic-core", "PyYAML", "typer", "zen-engine", "cel-expr-python")

MEANING = """\
Each row is a ratio. Both sides run in turn, A B B A A B …, in one process, or in fresh processes where a
start is measured; each round gives one ratio, and the row shows the median, the least and the greatest of
them. The target is about the median. The two times are medians as well, in seconds of the processor.

- **sizes(…)** is what `policy.bind(engine="vllm", vllm="0.33.0", scheme="mxfp4")` gives: both sizes, from six
  keywords. The **chain** (`bench/chain.py`) makes the same 30 decisions with the same keywords, as the source
  of an engine would, with the rounding written out. Both are asked the same 1,000 random questions, every
  value as likely as another. The loop over the questions is measured too, and taken off.
- **zen-engine** and **cel-expr-python** get the same 30 rules, in the fastest form that each has; a small
  function builds their context and rounds, as the chain does. Every answer of every rival is compared first.
- **policy.resolve** gives the whole decision: the sizes, the rule behind each phase, the trace with the first
  condition that failed of every other rule, what was assumed. Its `Facts` are made anew for every question.
  *Kept* means that the policy was asked the same 1,000 questions before; *new sizes* are 10,000 questions in
  turn, more than are ever kept, of which no two share both sizes, about layers that were asked about before;
  *new facts* are 10,000 of which no two share the other facts: every rule is tried anew for each. No layer of
  a model needs that twice, and there is no target.
- **10,000 rules** are the 30 rules under 9,970 others about 416 other backends; the questions are the same.
- **Starts** are measured inside fresh processes, from before the first import to after the last step, and
  whole processes from outside. Byte code is compiled before.
- **Load** is `load_policy` of one file, checked, converted and assembled, against `yaml.compose` with the C
  parser.
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a smoke run that writes nothing")
    parser.add_argument("--rounds", type=int, default=15, help="counted rounds of each comparison")
    chosen = parser.parse_args()
    rounds = 3 if chosen.quick else chosen.rounds
    if chosen.quick and set(installed()) != set(MODULES):
        print(f"compared with {', '.join(installed()) or 'no rule engine'}: the others are not installed")
    with tempfile.TemporaryDirectory() as folder:
        measured = []
        for measure in _all(Path(folder), rounds, chosen.quick):
            measured.append(measure)
            print(_line(measure), flush=True)
    if not chosen.quick:
        RESULTS.write_text(_page(measured), encoding="utf-8")
    return 0


def _all(folder: Path, rounds: int, quick: bool) -> Iterator[Measure]:
    yield from answers.measures(folder, rounds, quick)
    yield from starts.measures(folder, rounds)
    yield from files.measures(folder, max(3, rounds // 3), 1000 if quick else 10_000)


def _line(measure: Measure) -> str:
    ours, theirs = measure.times
    low, middle, high = _spread(measure)
    spread, target = f"({low} – {high})", _target(measure)
    return f"{middle:>7} {spread:<18} {target:<12} {measure.what} {ours} / {measure.against} {theirs}"


def _spread(measure: Measure) -> tuple[str, str, str]:
    low, middle, high = min(measure.ratios), median(measure.ratios), max(measure.ratios)
    return f"{low:.3g}", f"{middle:.3g}", f"{high:.3g}"


def _target(measure: Measure) -> str:
    if measure.limit is None:
        return "–"
    sign = "≤" if measure.limit > 0 else "≥"
    return f"{sign} {abs(measure.limit):g} {'met' if measure.met else 'MISSED'}"


def _page(measured: list[Measure]) -> str:
    lines = ["# Measured", "", "Written by `python bench/run.py`.", "", _machine(), ""]
    lines += [
        "| what | against | median | min – max | target | times |",
        "| --- | --- | --: | --: | --- | --- |",
    ]
    for measure in measured:
        low, middle, high = _spread(measure)
        target = f"{_target(measure)}{'; ' if measure.note else ''}{measure.note}"
        cells = (measure.what, measure.against, middle, f"{low} – {high}", target, " / ".join(measure.times))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", "## What the rows mean", "", MEANING, *_gpu()])


def _gpu() -> list[str]:
    """What `bench/gpu/experts.py` measured on a GPU, which this machine need not have."""
    sys.path.insert(0, str(GPU))
    from tables import report

    found = json.loads((GPU / "h200.json").read_text(encoding="utf-8"))
    head = [
        "",
        "## One rank of DeepSeek-V4-Pro on a GPU",
        "",
        "Written by `python bench/gpu/experts.py`.",
        "",
    ]
    return [*head, report(found), ""]


def _machine() -> str:
    libraries = ", ".join(f"{name} {version(name)}" for name in LIBRARIES)
    return (
        f"{date.today().isoformat()}, {os.cpu_count()} cores of {platform.machine()}, {platform.system()}, "
        f"{platform.python_implementation()} {platform.python_version()}; {libraries}."
    )


if __name__ == "__main__":
    sys.exit(main())
