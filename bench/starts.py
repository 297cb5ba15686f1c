"""What a start costs: each in fresh processes, against what the libraries take that everyone has."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

from table import HERE
from timing import Measure, medians, ratios

from moe_align import load_policy
from moe_align.compile import compiled
from moe_align.layers import layers_of

ROOT = HERE.parent

#: One answer, as each start must give it before the clock stops.
ANSWER = (
    'policy.resolve(moe_align.Facts(backend="aiter_bf16", activation="silu", hidden=7168, '
    "intermediate_per_partition=384)).hidden.allocated"
)

HELLO = """import typer

app = typer.Typer()


@app.command()
def main(name: str = "world") -> None:
    print(f"hello {name}")


app()
"""

COMMAND = ("resolve", "--backend", "aiter_bf16", "--act", "silu", "--tp", "8")


def measures(folder: Path, rounds: int) -> Iterator[Measure]:
    """The rows of this group; `folder` holds what the processes read."""
    policy = folder / "policy.json"
    policy.write_text(compiled(load_policy(environ={})), encoding="utf-8")
    files = [file for layer in layers_of((), environ={}) for file in layer.files]
    yield _compared(
        "import moe_align + compiled policy + first answer",
        _timed(f"import moe_align; policy = moe_align.load_compiled({str(policy)!r}); print({ANSWER})"),
        "import pydantic",
        _timed("import pydantic"),
        (folder, rounds, 0.5),
    )
    yield _compared(
        "import moe_align + built-in rules from YAML + first answer",
        _timed(f"import moe_align; policy = moe_align.load_policy(environ={{}}); print({ANSWER})"),
        "import pydantic, yaml + the same files by CSafeLoader",
        _timed(
            f"import pydantic, yaml\nfor file in {files!r}:\n yaml.load(open(file), Loader=yaml.CSafeLoader)"
        ),
        (folder, rounds, 2.0),
    )
    if (ROOT / "moe_align" / "cli" / "__init__.py").exists():
        yield from _commands(folder, rounds)


def _timed(code: str) -> list[str]:
    """A process that runs `code` and prints how many seconds that took, last."""
    lines = ["from time import process_time", "start = process_time()", code, "print(process_time() - start)"]
    return [sys.executable, "-c", "\n".join(lines)]


def _commands(folder: Path, rounds: int) -> Iterator[Measure]:
    """The command as a whole process: as it is used, and reading the rules anew each time."""
    hello = folder / "hello.py"
    hello.write_text(HELLO, encoding="utf-8")
    ours = [sys.executable, "-c", "import sys; from moe_align.cli import main; sys.exit(main())", *COMMAND]
    for what, switches, limit in (
        ("moe-align resolve, whole process", {}, 1.6),
        ("moe-align resolve, whole process, cache off", {"MOE_ALIGN_CACHE": "0"}, None),
    ):
        environ = {**_environ(folder), **switches}
        taken = _rounds([(ours, environ), ([sys.executable, str(hello)], environ)], rounds, whole=True)
        yield Measure(what, "typer hello world, whole process", ratios(*taken), medians(*taken), limit)


def _compared(
    what: str, ours: list[str], against: str, theirs: list[str], how: tuple[Path, int, float]
) -> Measure:
    folder, rounds, limit = how
    environ = _environ(folder)
    taken = _rounds([(ours, environ), (theirs, environ)], rounds, whole=False)
    return Measure(what, against, ratios(*taken), medians(*taken), limit)


def _rounds(
    commands: list[tuple[list[str], dict[str, str]]], rounds: int, *, whole: bool
) -> tuple[list[float], list[float]]:
    """Seconds of both commands, in turn, after a run of each that is not counted."""
    both: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds + 1):
        for index in (0, 1) if number % 2 else (1, 0):
            seconds = _seconds(*commands[index], whole=whole)
            if number:
                both[index].append(seconds)
    return both


def _seconds(command: list[str], environ: dict[str, str], *, whole: bool) -> float:
    start = _processor_seconds()
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    taken = _processor_seconds() - start
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stderr}"
    return taken if whole else float(done.stdout.split()[-1])


def _processor_seconds() -> float:
    """What all processes that have ended took."""
    usage = getrusage(RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _environ(folder: Path) -> dict[str, str]:
    """The environment of the processes: this checkout, and a cache of their own.

    Byte code lies where it does for everyone: the run that is not counted writes it.
    """
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "MOE_ALIGN"))}
    return {
        **kept,
        "PYTHONSAFEPATH": "1",  # no other checkout may stand first in the path
        "PYTHONPATH": str(ROOT),
        "XDG_CACHE_HOME": str(folder / "cache"),
    }
