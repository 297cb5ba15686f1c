"""`fmt`: one layout for the files of rules and cases."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from ..errors import PolicyError, Problem
from ..fmt.files import File, laid_out, write
from ..report import json_text
from .flags import Json
from .terminal import note, say

EXAMPLE = "moe-align fmt rules tests/cases --diff"

#: What is laid out where nothing is said.
HERE = "rules"

_Files = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[FILE]...", help=f"Files or folders of rules or cases; without any, the folder `{HERE}`."
    ),
]
_Check = Annotated[
    bool, typer.Option("--check", help="Write nothing; 1 where a file would change.", show_default=False)
]
_Diff = Annotated[
    bool, typer.Option("--diff", help="Write nothing; print what would change.", show_default=False)
]


def command(files: _Files = None, check: _Check = False, diff: _Diff = False, json: Json = False) -> None:
    """One layout for files of rules and cases; comments stay, and so does the digest of the rules."""
    if not files and not Path(HERE).is_dir():
        fix = "name a file or a folder with rules or cases"
        raise PolicyError([Problem("U052", f"no file is named, and there is no folder `{HERE}` here", fix)])
    laid = laid_out(files or [HERE])
    changed = [file for file in laid if file.is_changed]
    is_written = not (check or diff)
    if is_written:
        for file in changed:
            write(file)
    if json:
        _say_json(laid, is_written)
    else:
        _say(changed, len(laid), check, diff)
    raise typer.Exit(1 if check and changed else 0)


def _say_json(laid: Sequence[File], is_written: bool) -> None:
    listed = [{"file": str(file.path), "changed": file.is_changed} for file in laid]
    say(json_text({"version": 1, "written": is_written, "files": listed}))


def _say(changed: Sequence[File], count: int, check: bool, diff: bool) -> None:
    for file in changed:
        if diff:
            say(_difference(file))
        else:
            say(f"{'would change' if check else 'laid out'} {file.path}")
    verb = "would change" if check or diff else "changed"
    note(f"{len(changed)} of {count} files {verb}")


def _difference(file: File) -> str:
    lines = file.was.splitlines(), file.now.splitlines()
    name = str(file.path)
    return "\n".join(difflib.unified_diff(*lines, f"{name} (as it is)", f"{name} (laid out)", lineterm=""))
