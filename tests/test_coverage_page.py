"""docs/coverage.md says what the packs say."""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_page_is_that_of_the_packs() -> None:
    made = runpy.run_path(str(ROOT / "scripts" / "coverage_table.py"))["page"]()
    assert (ROOT / "docs" / "coverage.md").read_text(encoding="utf-8") == made, (
        "run scripts/coverage_table.py"
    )
