"""Ask a released SGLang and a checkout of ATOM, and rewrite `tests/data/engine/{sglang,atom}_sizes.json`.

    python scripts/other_engines.py [--wheels DIR [--download]] [--atom DIR --atom-version X]

`--wheels` is where unpacked releases of SGLang lie, one folder each; `--download` gets those that are missing
with pip. ATOM is on no package index: `--atom` is a checkout of github.com/ROCm/ATOM at the version named.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from moe_align.verify import atom, sglang, unpack
from moe_align.verify.sglang import Row

DATA = Path(__file__).parents[1] / "tests" / "data" / "engine"
RELEASES = ("0.5.23",)


def download(release: str, into: Path) -> None:
    """Fetch one wheel with pip and keep its Python sources."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["download", "-q", "--no-deps", "--only-binary", ":all:", "--no-cache-dir", "-d", folder]
        subprocess.run([sys.executable, "-m", "pip", *command, f"sglang=={release}"], check=True)
        (wheel,) = Path(folder).glob("*.whl")
        print(f"sglang {release}: {unpack(wheel, into)} files")


def text(found: Mapping[str, Mapping[str, list[Row]]]) -> str:
    """The JSON text, one row a line."""
    releases = []
    for release, kinds in found.items():
        rows = {kind: ",\n".join(map(json.dumps, rows)) for kind, rows in kinds.items()}
        body = ",\n".join(f'"{kind}": [\n{lines}\n]' for kind, lines in rows.items())
        releases.append(f'"{release}": {{\n{body}\n}}')
    return "{\n" + ",\n".join(releases) + "\n}\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--wheels", type=Path)
    parser.add_argument("--download", action="store_true")
    parser.add_argument("--atom", type=Path)
    parser.add_argument("--atom-version", default="0.1.6")
    parser.add_argument("--out", type=Path, default=DATA)
    given = parser.parse_args()
    if given.wheels:
        found = {}
        for release in RELEASES:
            root = given.wheels / release
            if given.download and not root.is_dir():
                download(release, root)
            found[release] = {"sizes": sglang.answers(root), "groups": sglang.groups(root)}
        (given.out / "sglang_sizes.json").write_text(text(found), encoding="utf-8")
    if given.atom:
        found = {given.atom_version: {"sizes": atom.answers(given.atom)}}
        (given.out / "atom_sizes.json").write_text(text(found), encoding="utf-8")


if __name__ == "__main__":
    main()
