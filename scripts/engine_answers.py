"""Ask every released vLLM for its answers and rewrite `tests/data/engine`.

    python scripts/engine_answers.py --wheels DIR [--download] [RELEASE …]

`--wheels` is where unpacked releases lie, one folder each; `--download` gets those that are missing with pip
(a few GB in all, of which only the `.py` files stay). Without releases, all of them are asked.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from multiprocessing import Pool
from pathlib import Path

from moe_align.verify import MORE_MACHINES, PAIRS, Row, answers, releases, unpack

DATA = Path(__file__).parents[1] / "tests" / "data" / "engine"
MORE_PAIRS = (
    *PAIRS,
    (2, 2),
    (32, 32),
    (64, 64),
    (96, 194),
    (128, 128),
    (130, 190),
    (514, 258),
    (640, 1152),
    (1024, 512),
    (2048, 352),
    (2050, 254),
    (2944, 640),
    (3584, 1856),
    (5120, 576),
    (12288, 1408),
)


def download(requirement: str, into: Path) -> None:
    """Fetch one wheel with pip and keep its Python sources."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["download", "-q", "--no-deps", "--only-binary", ":all:", "--no-cache-dir", "-d", folder]
        subprocess.run([sys.executable, "-m", "pip", *command, requirement], check=True)
        (wheel,) = Path(folder).glob("*.whl")
        print(f"{requirement}: {unpack(wheel, into)} files")


def unpacked(description: str | None, out: Path) -> argparse.Namespace:
    """What the command line says, with the releases that it names unpacked; `out` is where answers go."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--wheels", type=Path, required=True)
    parser.add_argument("--download", action="store_true")
    parser.add_argument("--out", type=Path, default=out)
    parser.add_argument("releases", nargs="*", default=list(releases()))
    given = parser.parse_args()
    for release in given.releases:
        if given.download and not (given.wheels / release).is_dir():
            download(releases()[release], given.wheels / release)
    return given


def ask(root: Path) -> dict[str, list[Row]]:
    return answers(root, MORE_MACHINES, MORE_PAIRS)


class Numbered:
    """Distinct lists of outcomes, each with its number: a row then holds a number in place of the list."""

    def __init__(self) -> None:
        self.lists: list[object] = []
        self._numbers: dict[str, int] = {}

    def number(self, cases: Sequence[Sequence[object]], inputs: int) -> int:
        """Return the number of what the cases give; their first `inputs` values are the same in all rows."""
        outcomes = [case[inputs] if len(case) == inputs + 1 else list(case[inputs:]) for case in cases]
        key = json.dumps(outcomes)
        if key not in self._numbers:
            self._numbers[key] = len(self.lists)
            self.lists.append(outcomes)
        return self._numbers[key]


def table(found: Mapping[str, Sequence[Row]], inputs: int) -> str:
    """Return the JSON text of one table: the inputs, the distinct outcomes, and the rows of each release.

    A release whose rows are those of the one before is `{"same_as": …}`.
    """
    numbered = Numbered()
    first = next(rows for rows in found.values() if rows)[0]["cases"]
    assert isinstance(first, Sequence)
    asked = [case[0] if inputs == 1 else list(case[:inputs]) for case in first]  # type: ignore[index, arg-type]
    body: dict[str, list[str]] = {}
    for release, rows in found.items():
        body[release] = [
            json.dumps({**row, "cases": numbered.number(row["cases"], inputs)})  # type: ignore[arg-type]
            for row in rows
        ]
    lines = [f'"inputs": {json.dumps(asked)}', _list("outcomes", [json.dumps(o) for o in numbered.lists])]
    return "{\n" + ",\n".join([*lines, '"releases": {\n' + _releases(body) + "\n}"]) + "\n}\n"


def names(found: Mapping[str, Sequence[Row]]) -> str:
    """Return the JSON text of rows that have no cases, release by release."""
    return "{\n" + _releases({r: [json.dumps(row) for row in rows] for r, rows in found.items()}) + "\n}\n"


def _list(name: str, lines: Sequence[str]) -> str:
    return f'"{name}": [\n' + ",\n".join(lines) + "\n]"


def _releases(body: Mapping[str, Sequence[str]]) -> str:
    written: list[str] = []
    kept: dict[tuple[str, ...], str] = {}
    for release, lines in body.items():
        key = tuple(lines)
        if key in kept:
            written.append(f'"{release}": {{"same_as": "{kept[key]}"}}')
        else:
            kept[key] = release
            written.append(_list(release, lines))
    return ",\n".join(written)


def main() -> None:
    given = unpacked(__doc__, DATA)
    with Pool(2) as pool:
        asked = pool.imap(ask, [given.wheels / release for release in given.releases])
        found = dict(zip(given.releases, asked, strict=True))
    for name, key, inputs in (
        ("sizes", "sizes", 2),
        ("aiter_pads", "aiter_pads", 2),
        ("all2all", "all2all", 1),
    ):
        text = table({release: rows[key] for release, rows in found.items()}, inputs)
        (given.out / f"vllm_{name}.json").write_text(text, encoding="utf-8")
    for key in ("members", "sources"):
        text = names({release: rows[key] for release, rows in found.items()})
        (given.out / f"vllm_{key}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
