"""Hold the built-in rules against every released vLLM, and rewrite `docs/certificates.md`.

    python scripts/certificates.py --wheels DIR [--download] [--out FILE] [RELEASE …]

`--wheels` is where unpacked releases lie, one folder each; `--download` gets those that are missing with pip
(a few GB in all, of which only the `.py` files stay). Exits with 1 if a release is not equal: then nothing
is written.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from multiprocessing import Pool
from pathlib import Path

from engine_answers import unpacked

from moe_align import load_policy
from moe_align.certificate import Certificate, certify
from moe_align.report.verify import certificate_findings
from moe_align.verify.terms import BOUND

PAGE = Path(__file__).parents[1] / "docs" / "certificates.md"

_HEAD = f"""# Certificates

Written by `scripts/certificates.py`, which unpacks a wheel of each release, runs its sizing functions on
sizes that remember what was done to them, and holds what they are against the built-in rules.
`docs/verify.md` says what is asked and why it is exact. A point is one choice of the facts of its column.
On each, engine and rules give the same for all sizes: they are looked at one by one up to {BOUND:,}, and that
proves the rest.

- MXFP4: layer class × backend × activation × platform and architecture. Until 0.18 sizes were rounded in two
  steps, by the layer and by weight creation; their points stand together here.
- unquantized: backend × platform and architecture.
- blocks: the classes of whole blocks, online FP8 and ModelOpt's codecs.
- launch: layer × activation × model × architecture, for any number of ranks; what AITER's call is told.
- transports: transport × bytes of an activation.

| release | MXFP4 | unquantized | blocks | launch | transports | equal |
|---|--:|--:|--:|--:|--:|---|
"""

_COLUMNS = (
    ("mxfp4", "mxfp4-layer", "mxfp4-weights", "quark-weights"),
    ("unquantized",),
    ("online-blocks", "block-codecs"),
    ("launch",),
    ("transports",),
)


def certificate(wheels: Path, release: str) -> Certificate:
    """The certificate of one release."""
    return certify(wheels / release, release, load_policy(environ={}))


def row(found: Certificate) -> str:
    """One line of the table."""
    counted = {table: len(asked) for table, asked in found.asked.items()}
    columns = [sum(counted.get(table, 0) for table in tables) for tables in _COLUMNS]
    shown = " | ".join(f"{number:,}" for number in columns)
    sizes = "all sizes" if found.proven else f"sizes up to {BOUND:,}"
    return f"| {found.release} | {shown} | {found.equal:,} of {found.points:,}, {sizes} |"


def page(found: Sequence[Certificate]) -> str:
    """The whole text."""
    points = sum(one.points for one in found)
    return f"{_HEAD}{chr(10).join(map(row, found))}\n\n{len(found)} releases, {points:,} points, all equal.\n"


def main() -> int:
    given = unpacked(__doc__, PAGE)
    with Pool(2) as pool:
        found = pool.starmap(certificate, [(given.wheels, release) for release in given.releases])
    for one in found:
        print(row(one))
        for finding in certificate_findings(one, one.release):
            print(f"  {finding.message}: {' or '.join(finding.where)}")
    if not all(one.holds for one in found):
        return 1
    given.out.write_text(page(found), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
