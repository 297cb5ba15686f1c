"""Measure the analyses, and what else could make them: `python bench/prove.py`.

Prints tables and writes `bench/PROVE.md`. z3's answers are compared with ours first. Needs
`pip install -e .[bench]`. With `--quick` it tries a little of everything and writes nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import date
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import defects
import smt
import table
from timing import in_turn, medians, ratios, shown

from moe_align import load_policy

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "bench" / "PROVE.md"
#: The rivals: what is imported, and what is installed.
RIVALS = {"z3": "z3-solver", "zen": "zen-engine", "cedarpy": "cedarpy"}
SIZES = (125, 250, 500, 1000, 2000)

MEANING = """\
- **The shipped policy**: a fresh process on one core loads it, then runs one analysis after the other.
  Seconds are those of the processor; loading, which every command does first, is not counted.
- **Synthetic packs** are the 30 rules of `bench/table.py` under so many others, 24 for one backend, with
  a contract for each backend. The last column is what one rule takes: it would rise if the growth were
  not linear.
- **z3** (`bench/smt.py`) gets the same loaded rules: every discrete fact as an enumeration, numbers and
  releases as integers, what values imply as assertions. One incremental solver is asked for each rule
  whether some facts reach it, and for each pack whether some are left open. Both begin with the loaded
  stack and build their own form of it. Rounds run in turn, A B B A …; a row shows the median of the
  ratios of the rounds. z3 answers yes or no with a point; ours are the regions themselves.
- **Planted defects** (`bench/defects.py`): *ours* is the code, and the rule or place that it names. The
  rules of the pack are written for **zen-engine** as a decision table, of which `validate()` sees the
  whole and `validate_unary_expression()` every cell, and for **Cedar** as policies that its validator
  (`cedarpy`) holds against a schema with closed sets of values. Neither claims to look for such defects:
  zen-engine checks syntax, Cedar types. Cedar's symbolic analysis, which compares policies, is not in
  its Python package and was not run. Contracts and multiples can be said in neither.
"""

#: What a fresh process runs: processor seconds of loading, and of each analysis.
_FRESH = """
import json, resource, sys
sys.path.insert(0, {root!r})
def spent():
    return sum(one.ru_utime + one.ru_stime for one in map(resource.getrusage, (0, -1)))
from moe_align import load_policy
from moe_align.lint import lint
from moe_align.prove import prove
from moe_align.diff import diff
from moe_align.cache import cached_models
marks = [spent()]
policy = load_policy(*{rules!r}, environ={{}}, built_in=not {rules!r}); marks.append(spent())
found = len(lint(policy.stack)); marks.append(spent())
held = len(prove(policy.stack)); marks.append(spent())
if {other!r}:
    other = load_policy({other!r}, environ={{}}, built_in=False); again = spent()
    changes = len(diff(other, policy, cached_models()).changes); marks.append(marks[-1] + spent() - again)
print(json.dumps([[b - a for a, b in zip(marks, marks[1:])], found, held]))
"""


def fresh(rules: tuple[str, ...] = (), other: str = "") -> list[float]:
    """Seconds of loading, lint, prove and, against `other`, diff, in a process of its own on one core."""
    text = _FRESH.format(root=str(ROOT), rules=rules, other=other)
    ran = subprocess.run(
        [sys.executable, "-c", text],
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}),
    )
    seconds: list[float] = json.loads(ran.stdout)[0]
    return seconds


def whole_runs(folder: Path, rounds: int) -> Iterator[str]:
    """The shipped policy, against the targets."""
    old = defects.planted(
        {"file": "vllm_mxfp4.yaml", "replace": "align: 128", "by": "align: 128"} | _without_rule(),
        folder / "old",
    )
    runs = [fresh(other=str(old)) for _ in range(rounds)]
    load, lint, prove, diff = (median(one[index] for one in runs) for index in range(4))
    policy = load_policy(environ={})
    rules, contracts = len(list(policy.stack.rules())), len(list(policy.stack.all_contracts()))
    yield f"{rules} rules, {contracts} contracts. Loading takes {shown(load)}.\n"
    yield "| what | seconds | target |"
    yield "| --- | --: | --- |"
    yield f"| lint | {lint:.2f} | |"
    yield f"| prove | {prove:.2f} | |"
    yield f"| lint + prove | {lint + prove:.2f} | ≤ 3 {'met' if lint + prove <= 3 else 'MISSED'} |"
    met = "met" if diff <= 2 else "MISSED"
    yield f"| diff against the rules without the one of vllm#51473, with models | {diff:.2f} | ≤ 2 {met} |"


def _without_rule() -> dict[str, str]:
    """The change that takes the pull request's rule back."""
    text = (ROOT / "rules" / "vllm_mxfp4.yaml").read_text(encoding="utf-8")
    start = text.index("  - id: aiter-bf16-silu-situ\n")
    return {
        "name": "old",
        "file": "vllm_mxfp4.yaml",
        "replace": text[start : text.index("  - id: ", start + 1)],
        "by": "",
    }


def curve(folder: Path, rounds: int, sizes: tuple[int, ...]) -> Iterator[str]:
    """Packs of growing size."""
    yield "| rules | lint | prove | lint + prove | a rule |"
    yield "| --: | --: | --: | --: | --: |"
    for size in sizes:
        runs = [fresh(tuple(synthetic(folder, size))) for _ in range(rounds)]
        lint, prove = (median(one[index] for one in runs) for index in (1, 2))
        both = lint + prove
        yield f"| {size} | {lint:.2f} s | {prove:.2f} s | {both:.2f} s | {both / size * 1e3:.2f} ms |"


def synthetic(folder: Path, size: int) -> Iterator[str]:
    """The files of one policy of so many rules and a contract for each backend."""
    rows, backends = table.more_rows(size)
    rules = folder / f"rules-{size}.yaml"
    rules.write_text(table.as_yaml(rows, backends), encoding="utf-8")
    lines = ["language: 1", "pack: demands", "contracts:"]
    for backend in backends:
        lines += [f"  - id: {backend.replace('_', '-')}", f"    when: {{backend: {backend}}}"]
        lines += [
            "    require: {intermediate: 64}",
            "    breaks: silent",
            "    why: its tile",
            "    source: us#1",
        ]
    contracts = folder / f"contracts-{size}.yaml"
    contracts.write_text("\n".join(lines) + "\n", encoding="utf-8")
    yield from (str(rules), str(contracts))


def against_z3(rounds: int) -> Iterator[str]:
    """Reachability and gaps, of a small and of a shipped table."""
    small = load_policy(Path(__file__).parent / "table.yaml", environ={}, built_in=False).stack
    shipped = load_policy(environ={}).stack
    yield "| rules | z3 / ours | min – max | ours | z3 | said by both |"
    yield "| --- | --: | --- | --: | --: | --- |"
    for name, stack in (
        ("30 rules of `bench/table.py`", smt.only(small)),
        ("`vllm-mxfp4`, as shipped", smt.only(shipped, "vllm-mxfp4")),
        ("every pack that allocates, as shipped", smt.only(shipped)),
    ):
        said = smt.ours(stack)
        if smt.theirs(stack) != said:
            raise SystemExit(f"z3 says something else of {name}: {smt.theirs(stack)}, not {said}")
        taken = in_turn({"ours": partial(smt.ours, stack), "z3": partial(smt.theirs, stack)}, rounds)
        found = ratios(taken["z3"], taken["ours"])
        ours, theirs = medians(taken["ours"], taken["z3"])
        total = len(list(stack.rules()))
        words = f"{len(said.reached)} of {total} rules reached, {'a gap' if said.open else 'no gap'}"
        spread = f"{min(found):.3g} – {max(found):.3g}"
        yield f"| {name} | {median(found):.3g} | {spread} | {ours} | {theirs} | {words} |"


def planted(folder: Path) -> Iterator[str]:
    """Each defect, and who finds it."""
    found = list(defects.outcomes(folder))
    yield "| defect | ours | zen-engine | Cedar |"
    yield "| --- | --- | --- | --- |"
    yield from (f"| {one.name} | {one.ours} | {one.zen} | {one.cedar} |" for one in found)
    none = ("–", "cannot be said", "not installed")
    counts = [sum(one[index] not in none for one in found) for index in (1, 2, 3)]
    yield f"| **found** | **{counts[0]} of {len(found)}** | **{counts[1]}** | **{counts[2]}** |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a smoke run that writes nothing")
    parser.add_argument("--rounds", type=int, default=9, help="counted rounds of each comparison")
    chosen = parser.parse_args()
    lacking = [name for module, name in RIVALS.items() if find_spec(module) is None]
    if lacking and not chosen.quick:
        parser.error(f"install {', '.join(lacking)} first: pip install -e .[bench]")
    if lacking:
        print(f"without {', '.join(lacking)}: not installed")
    rounds = 1 if chosen.quick else chosen.rounds
    few = max(1, rounds // 3)
    page = ["# The analyses, measured", "", "Written by `python bench/prove.py`."]
    page += [] if lacking else ["", _machine()]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        parts = {
            "The shipped policy": whole_runs(folder, few),
            "Synthetic packs": curve(folder, few, SIZES[:2] if chosen.quick else SIZES),
            **({"Against z3": against_z3(rounds)} if "z3-solver" not in lacking else {}),
            "Ten planted defects": planted(folder / "defects"),
        }
        for head, lines in parts.items():
            page += ["", f"## {head}", ""]
            print(f"\n{head}", flush=True)
            for line in lines:
                print(line, flush=True)
                page.append(line)
    page += ["", "## What the tables mean", "", MEANING]
    if not chosen.quick:
        PAGE.write_text("\n".join(page), encoding="utf-8")
    return 0


def _machine() -> str:
    libraries = ", ".join(f"{name} {version(name)}" for name in RIVALS.values())
    return (
        f"{date.today().isoformat()}, one of {os.cpu_count()} cores of {platform.machine()}, "
        f"{platform.system()}, {platform.python_implementation()} {platform.python_version()}; {libraries}."
    )


if __name__ == "__main__":
    sys.exit(main())
