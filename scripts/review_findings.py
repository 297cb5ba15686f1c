#!/usr/bin/env python3
"""Write what `lint` and `prove` find about the built-in rules into `rules/reviewed.yaml`.

Reasons that stand there are kept. A new entry says that nobody has looked: put in what was found.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from moe_align import load_policy  # noqa: E402  # the checkout's own, wherever this is run
from moe_align.lint import lint  # noqa: E402
from moe_align.prove import prove  # noqa: E402
from moe_align.reviewed import UNSEEN, key, reviewed  # noqa: E402

FILE = ROOT / "rules" / "reviewed.yaml"
HEAD = """\
# What `lint` and `prove` find about the built-in rules: what is not here fails. `why` says what somebody
# found to be so; "not looked at yet" is a finding that is known and nothing more, and is counted.
# Contracts that break loudly, or are only slow, are not in it: `moe-align prove --loud` shows them.
"""


def main() -> int:
    """Write the file; 1 where it has new findings."""
    stack = load_policy(environ={}).stack
    known = reviewed(stack.layers)
    found = [finding for finding in (*lint(stack), *prove(stack)) if finding.level != "note"]
    groups: dict[tuple[str, str, str], list[str]] = {}
    for finding in found:
        code, rule, claim = key(finding)
        why = known.get((code, rule, claim), UNSEEN)
        groups.setdefault((code, claim, why), []).append(rule)
    entries = [entry(*group, sorted(rules)) for group, rules in sorted(groups.items())]
    FILE.write_text(HEAD + "".join(entries), encoding="utf-8")
    new = sum(key(finding) not in known for finding in found)
    print(f"{len(found)} findings, {new} of them new")
    return 1 if new else 0


def entry(code: str, claim: str, why: str, rules: list[str]) -> str:
    named = f"  claim: {claim}\n" if claim else ""
    return f'- code: {code}\n  rules: [{", ".join(rules)}]\n{named}  why: "{why}"\n'


if __name__ == "__main__":
    sys.exit(main())
