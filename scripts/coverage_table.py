"""Writes docs/coverage.md: what the built-in packs say of engines, schemes and releases, and how it is known.

python scripts/coverage_table.py            # writes the page; tests hold it against the packs
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from moe_align import load_policy  # noqa: E402  # the checkout's own, wherever this is run
from moe_align.decision import accepts_text  # noqa: E402
from moe_align.packs import PHASES, Pack  # noqa: E402

PAGE = ROOT / "docs" / "coverage.md"
EVIDENCE = ("ran", "measured", "reported", "read")

HEAD = """# What is covered, and how it is known

Made by `scripts/coverage_table.py` from the built-in packs. `ran`: the engine's own code was run and said
so; `measured`: timed or counted on hardware; `reported`: a public report says so; `read`: read in the code of
that release. A scheme, method or release that is in no row is not covered: the answer is `unknown`.
"""


def page() -> str:
    """The page, from the packs of this checkout."""
    stack = load_policy(environ={}).stack
    packs = [pack for phase in PHASES for pack in stack.phases[phase]]
    rules = [_row(pack, pack.phase or "", Counter(rule.evidence for rule in pack.rules)) for pack in packs]
    contracts = [_row(pack, "", Counter(one.evidence for one in pack.contracts)) for pack in stack.contracts]
    return "\n".join(
        [
            HEAD,
            "## Rules",
            "",
            *_table(["engine", "scheme", "phase", "pack", "releases", *EVIDENCE], sorted(rules)),
            "",
            "## Contracts",
            "",
            *_table(
                ["engine", "scheme", "pack", *EVIDENCE],
                sorted([*row[:2], row[3], *row[5:]] for row in contracts),
            ),
            "",
        ]
    )


def _row(pack: Pack, phase: str, evidence: Counter[str | None]) -> list[str]:
    needs = {condition.key: accepts_text(condition.accepts) for condition in pack.needs}
    covers = ", ".join(f"{condition.key} {condition.text}" for condition in pack.covers)
    counts = [str(evidence[name] or "") for name in EVIDENCE]
    return [needs.get("engine", "any"), needs.get("scheme", "any"), phase, pack.name, covers, *counts]


def _table(head: list[str], rows: list[list[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"| {' | '.join('--:' if name in EVIDENCE else '---' for name in head)} |"
    for row in rows:
        yield f"| {' | '.join(row)} |"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
