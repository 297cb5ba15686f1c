"""`snapshot`: saved weights against today's sizes, what they take, and rewriting them to other sizes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ..cost import layer_cost
from ..errors import PolicyError, Problem
from ..known import known
from ..report import json_text
from ..report.snapshot import (
    Allocated,
    account_plain,
    account_text,
    check_plain,
    check_text,
    manifest_text,
    repad_plain,
    repad_text,
)
from ..report.words import fact_text
from ..snapshot.account import account as account_of
from ..snapshot.account import per_rank
from ..snapshot.check import Checked
from ..snapshot.check import check as check_of
from ..snapshot.folder import Folder, find_folder
from ..snapshot.fresh import compare
from ..snapshot.judge import CANNOT_KNOW, FAILS, FITS
from ..snapshot.layout import LAYOUTS
from ..snapshot.manifest import FILE, Sizes, manifest_plain, read_manifest, write_manifest
from ..snapshot.repad import repad as repad_to
from ..snapshot.wanted import Wanted, wanted_of
from .asking import Question, question
from .flags import Json, Said, about_layer
from .terminal import MARKUP, note, say, style

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

EXAMPLE = "moe-align snapshot check --help"

_Folder = Annotated[str, typer.Argument(metavar="DIR", help="The folder that holds the safetensors files.")]
_Pattern = Annotated[
    str | None,
    typer.Option(
        "--pattern", metavar="NAME", help="How the engine named files, if not as it does by itself."
    ),
]
_Layout = Annotated[
    str | None,
    typer.Option(
        "--layout",
        metavar="|".join(LAYOUTS),
        help="What was saved: weights as they were created, or repacked after loading.",
    ),
]


@about_layer
def check(
    said: Said, *, directory: _Folder, pattern: _Pattern = None, layout: _Layout = None, json: Json = False
) -> None:
    """What loading a snapshot today would do."""
    folder = find_folder(Path(directory), pattern)
    asked, wanted = _wanted(said, folder, layout)
    found = _found(folder, wanted)
    if json:
        say(json_text(check_plain(found, asked.policy.digest)))
    else:
        say(check_text(found, style()))
    raise typer.Exit(0 if found.verdict == FITS else 1)


def _found(folder: Folder, wanted: Wanted | str) -> Checked:
    if isinstance(wanted, Wanted):
        return check_of(folder, wanted, read_manifest(folder.path))
    verdict = FAILS if wanted.startswith("the decision is rejected") else CANNOT_KNOW
    return Checked(folder.sharded, None, False, (), folder.faults, ((verdict, wanted),))


@about_layer
def account(said: Said, *, directory: _Folder, pattern: _Pattern = None, json: Json = False) -> None:
    """The bytes of a snapshot by kind, and on one rank."""
    folder = find_folder(Path(directory), pattern)
    asked = _question(said, folder)
    model = asked.model
    layers = (model.moe_layers, model.dense_layers) if model else (None, None)
    main = layers[0] + layers[1] if layers[0] is not None and layers[1] is not None else None
    found = account_of(folder, main)
    values = known(asked.policy.stack.vocabulary, asked.facts).values
    share = per_rank(found, values) if not folder.sharded else None
    allocated = _allocated(asked)
    if json:
        say(json_text(account_plain(found, share, allocated)))
        return
    ranks = " · ".join(fact_text(key, values[key]) for key in ("tp", "dp", "pcp", "ep") if key in values)
    say(account_text(found, share, allocated, ranks, style()))


def _allocated(asked: Question) -> Allocated | None:
    decision = asked.policy.resolve(asked.facts)
    if decision.status != "decided":
        return None
    values = known(asked.policy.stack.vocabulary, asked.facts).values
    cost = layer_cost(decision, values, zero_points=bool(asked.model and asked.model.zero_points))
    native, allocated = decision.intermediate.native, decision.intermediate.allocated
    if cost is None or native is None or allocated is None:
        return None
    return Allocated(decision.rule, native, allocated, cost)


_Target = Annotated[str, typer.Argument(metavar="DST", help="A new folder for the rewritten snapshot.")]
_To = Annotated[
    list[str] | None,
    typer.Option(
        "--to",
        metavar="SIZE=N",
        help="hidden=N or intermediate=N on one rank; without it, the sizes that the policy decides.",
    ),
]
_Against = Annotated[
    str | None,
    typer.Option(
        "--against", metavar="DIR", help="The checkpoint; afterwards every tensor is compared with it."
    ),
]


@about_layer
def repad(
    said: Said,
    *,
    source: Annotated[str, typer.Argument(metavar="SRC", help="The snapshot; it is only read.")],
    target: _Target,
    to: _To = None,
    against: _Against = None,
    pattern: _Pattern = None,
    layout: _Layout = None,
    json: Json = False,
) -> None:
    """A snapshot rewritten to other sizes."""
    folder = find_folder(Path(source), pattern)
    asked, wanted = _wanted(said, folder, layout)
    if isinstance(wanted, str):
        raise PolicyError([Problem("N010", wanted)])
    wanted = wanted._replace(allocated=_sizes(to or [], wanted.allocated))
    with _progress() as progress:
        done = repad_to(folder, Path(target), wanted, asked.policy.digest, progress)
    compared = _compared(find_folder(Path(target), pattern), against, wanted) if against else None
    if json:
        say(json_text(repad_plain(done, target, wanted.allocated._asdict(), compared)))
    else:
        say(repad_text(done, target, str(wanted.allocated), compared))


def _sizes(to: list[str], decided: Sizes) -> Sizes:
    """The sizes of `--to`, over those of the policy.

    Raises:
        PolicyError: something else stands there.
    """
    given = {}
    for one in ",".join(to).split(",") if to else []:
        name, _, size = one.partition("=")
        if name not in Sizes._fields or not size.isdecimal() or not 0 < int(size) < 2**31:
            raise PolicyError(
                [Problem("N014", f"`--to {one}` is no size", "write hidden=N or intermediate=N")]
            )
        given[name] = int(size)
    return decided._replace(**given)


def _compared(folder: Folder, against: str, wanted: Wanted) -> int:
    """How many tensors were found equal.

    Raises:
        PolicyError: one that is not.
    """
    count = 0
    for name, fault in compare(folder, find_folder(Path(against)), wanted):
        if fault:
            raise PolicyError([Problem("N015", f"`{name}`: {fault}", "do not load this snapshot")])
        count += 1
    return count


@about_layer
def manifest(
    said: Said, *, directory: _Folder, pattern: _Pattern = None, layout: _Layout = None, json: Json = False
) -> None:
    """A manifest beside a snapshot, of what was decided."""
    folder = find_folder(Path(directory), pattern)
    asked, wanted = _wanted(said, folder, layout)
    if isinstance(wanted, str):
        raise PolicyError([Problem("N010", wanted)])
    found = check_of(folder, wanted._replace(layout=layout), None)
    wrong = [row for row in found.rows if row.verdict != FITS]
    if not folder.sharded or wrong or found.faults or layout is None:
        raise PolicyError([Problem("N016", *_unwritten(folder, found, layout))])
    made = wanted.manifest(asked.policy.digest, layout, 1 + max(shard.pp for shard in folder.shards))
    write_manifest(folder.path, made)
    say(json_text(manifest_plain(made)) if json else manifest_text(made, str(folder.path / FILE)))


def _unwritten(folder: Folder, found: Checked, layout: str | None) -> tuple[str, str | None]:
    """Why no manifest is written, and what to do."""
    if not folder.sharded:
        return f"`{folder.path}` is a checkpoint, which belongs to no sizes of ranks", None
    if found.faults:
        return f"`{folder.path}`: {found.faults[0]}", None
    wrong = next((row for row in found.rows if row.verdict != FITS), None)
    if wrong is not None:
        return f"`{wrong.first}`: {wrong.verdict}: {wrong.reason}", "say the sizes under which it was saved"
    return "no header says whether weights were repacked before they were saved", "give --layout"


def _question(said: Said, folder: Folder) -> Question:
    """The question; the model is that of the folder's config where none is named."""
    if said.model is not None or not (folder.path / "config.json").is_file():
        return question(said)
    try:
        return question(said._replace(model=str(folder.path)))
    except PolicyError as fault:
        if not all(problem.code in ("M005", "M006") for problem in fault.problems):
            raise
        note(f"note: {fault.problems[0].message}")
        return question(said)


def _wanted(said: Said, folder: Folder, layout: str | None) -> tuple[Question, Wanted | str]:
    if layout is not None and layout not in LAYOUTS:
        fix = f"write one of {', '.join(LAYOUTS)}"
        raise PolicyError([Problem("N014", f"`--layout {layout}` is no layout", fix)])
    asked = _question(said, folder)
    return asked, wanted_of(asked.policy, asked.facts, asked.model, layout)


class _progress:
    """A bar on a terminal, nothing elsewhere."""

    def __enter__(self) -> Callable[[int, int], None]:
        self.bar: Any = None
        if not sys.stderr.isatty():
            return lambda done, of: None
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

        columns = (BarColumn(), DownloadColumn(binary_units=True), TimeRemainingColumn())
        self.bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self.bar.start()
        task = self.bar.add_task("repad", total=None)
        return lambda done, of: self.bar.update(task, completed=done, total=of)

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()


#: Each command of `snapshot` and what it is for.
_COMMANDS = {
    "check": (check, "moe-align snapshot check snapshot/ --backend triton --tp 4"),
    "account": (account, "moe-align snapshot account DeepSeek-V4-Pro/ --dp 8"),
    "repad": (repad, "moe-align snapshot repad old/ new/ --backend triton --to intermediate=256"),
    "manifest": (manifest, "moe-align snapshot manifest snapshot/ --backend triton --layout created"),
}


def group() -> Any:
    """The command `snapshot` with those under it."""
    app = typer.Typer(
        name="snapshot",
        add_completion=False,
        rich_markup_mode=MARKUP,
        no_args_is_help=True,
        help="Saved weights against today's sizes.",
        epilog=f"Example: {EXAMPLE}",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    for name, (function, example) in _COMMANDS.items():
        app.command(name, epilog=f"Example: {example}")(function)
    return typer.main.get_command(app)
