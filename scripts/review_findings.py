#!/usr/bin/env python3
"""Add what `lint` and `prove` newly find about the built-in rules to `rules/reviewed.yaml`, as not looked at.

Entries that stand there are left as they are, with their comments; those of which nothing is found any
more are named, to be taken out by hand. Move what is added to the entry of its cause, or say why.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from moe_align import load_policy  # noqa: E402  # the checkout's own, wherever this is run
from moe_align.lint import lint  # noqa: E402
from moe_align.prove import prove  # noqa: E402
from moe_align.reviewed import UNSEEN, entries, idle, key, reviewed, unreviewed  # noqa: E402

FILE = ROOT / "rules" / "reviewed.yaml"


def main() -> int:
    """Add to the file; 1 where there was something to add, or something in it is found no more."""
    stack = load_policy(environ={}).stack
    found = [finding for finding in (*lint(stack), *prove(stack)) if finding.level != "note"]
    new = unreviewed(found, reviewed(stack.layers))
    groups: dict[tuple[str, str], list[str]] = {}
    for finding in new:
        code, rule, claim = key(finding)
        groups.setdefault((code, claim), []).append(rule)
    added = "".join(entry(*group, sorted(set(rules))) for group, rules in sorted(groups.items()))
    FILE.write_text(FILE.read_text(encoding="utf-8") + added, encoding="utf-8")
    gone = idle(found, entries(str(FILE), "rules/reviewed.yaml"))
    print(f"{len(found)} findings, {len(new)} of them new")
    for said in gone:
        print(f"found no more: {said}")
    return 1 if new or gone else 0


def entry(code: str, claim: str, rules: list[str]) -> str:
    """The text of an entry that nobody has looked at."""
    about = f"  claims: [{claim}]\n" if claim else ""
    return f"- code: {code}\n  rules: [{', '.join(rules)}]\n{about}  why: {UNSEEN}\n"


if __name__ == "__main__":
    sys.exit(main())
