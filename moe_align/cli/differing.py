"""`diff`: what a change of rules changes."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from ..cache import cached_models
from ..diff import Difference, diff
from ..errors import Location, PolicyError, Problem
from ..layers import built_in_rules
from ..load import load_policy
from ..models import Model
from ..policy import Policy
from ..report import json_text
from ..report.diff import diff_findings, diff_plain, diff_text, receipt
from .analysis import Format, annotate
from .flags import Json
from .terminal import say

EXAMPLE = "moe-align diff main rules --models"

_Old = Annotated[str, typer.Argument(metavar="OLD", help="A file or folder of rules, or a git revision.")]
_New = Annotated[str, typer.Argument(metavar="[NEW]", help="The same; without it, the built-in rules.")]
_Models = Annotated[
    bool,
    typer.Option(
        "--models", help="The known models whose sizes change, and by how much.", show_default=False
    ),
]
_Receipt = Annotated[bool, typer.Option("--receipt", help="Markdown for a pull request.", show_default=False)]


def command(
    old: _Old,
    new: _New = "",
    models: _Models = False,
    receipt_text: _Receipt = False,
    form: Format = "text",
    json: Json = False,
) -> None:
    """The facts whose decision differs between two states of the rules, each with a point; exit 1 if any."""
    with tempfile.TemporaryDirectory() as scratch:
        laid_out = (Path(scratch) / "old", old), (Path(scratch) / "new", new)
        with _called_by_revision(laid_out):
            before, after = (_policy(said, folder) for folder, said in laid_out)
            listed = cached_models() if models or receipt_text else ()
            found = diff(before, after, listed)
        found = _located(found, laid_out)
    if json or form == "json":
        say(json_text(diff_plain(found)))
    elif form != "text":
        annotate(diff_findings(found), form)
    else:
        say(_receipt(found, listed) if receipt_text else diff_text(found))
    raise typer.Exit(0 if found.is_empty else 1)


def _receipt(found: Difference, listed: Iterable[Model]) -> str:
    kv_bytes = {model.name: model.kv_bytes_per_token for model in listed if model.kv_bytes_per_token}
    return receipt(found, kv_bytes).rstrip("\n")


def _policy(said: str, folder: Path) -> Policy:
    """The policy of a path or a revision; what declares no engine of its own stands over the built-in rules.

    A file that is called as one of the built-in rules stands in its place.

    Raises:
        PolicyError: neither a path nor a revision, or rules that cannot be used.
    """
    if not said:
        return load_policy(environ={})
    path = Path(said) if os.path.exists(said) else _checked_out(said, folder)
    if path.is_file() and (Path(built_in_rules()) / path.name).exists():
        path = _in_its_place(path, folder)
    return load_policy(path, environ={}, built_in=not _is_whole(path))


def _in_its_place(file: Path, folder: Path) -> Path:
    """The built-in rules in `folder`, with the file instead of the one that is called so."""
    rules = folder / "rules"
    shutil.copytree(built_in_rules(), rules, dirs_exist_ok=True, ignore=lambda *_: [file.name])
    if file.parent != rules:
        shutil.copy(file, rules)
    return rules


def _is_whole(path: Path) -> bool:
    return path.is_dir() and (path / "vocabulary.yaml").exists()


def _checked_out(revision: str, folder: Path) -> Path:
    """The rules of a revision (`REVISION` or `REVISION:folder`), laid out in `folder`."""
    name, _, inside = revision.partition(":")
    inside = os.path.normpath(inside or "rules")
    if name.startswith("-") or not name:
        raise _no_rules(revision, inside, "no revision is named")
    data = _git(revision, inside, "archive", "--format=tar", name, inside)
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        archive.extractall(folder, filter="data")
    return folder / inside


def _git(revision: str, inside: str, *arguments: str) -> bytes:
    try:
        made = subprocess.run(["git", *arguments], capture_output=True, check=False)
    except OSError as fault:
        raise _no_rules(revision, inside, f"git: {fault.strerror}") from None
    if made.returncode:
        lines = made.stderr.decode(errors="replace").strip().splitlines()
        raise _no_rules(revision, inside, lines[-1] if lines else "git says nothing")
    return made.stdout


def _no_rules(revision: str, inside: str, why: str) -> PolicyError:
    said = f"`{revision}` is no file or folder, and no revision with `{inside}` ({why})"
    return PolicyError([Problem("U041", said, "write a path, or `REVISION:folder`")])


#: Folders into which revisions were laid out, and what the command line calls each.
_LaidOut = Sequence[tuple[Path, str]]


@contextmanager
def _called_by_revision(laid_out: _LaidOut) -> Iterator[None]:
    """Problems in files of a revision are told by its name: the files themselves are gone by then."""
    try:
        yield
    except PolicyError as fault:
        renamed = [
            problem._replace(location=_renamed(problem.location, laid_out, by_revision=True))
            for problem in fault.problems
        ]
        raise PolicyError(renamed) from None


def _located(found: Difference, laid_out: _LaidOut) -> Difference:
    """The same, with files of a revision named as they are called in the checkout."""
    changes = (
        replace(change, location=_renamed(change.location, laid_out, by_revision=False))
        for change in found.changes
    )
    return replace(found, changes=tuple(changes))


def _renamed(place: Location | None, laid_out: _LaidOut, *, by_revision: bool) -> Location | None:
    for folder, said in laid_out:
        if place and place.file.startswith(f"{folder}{os.sep}"):
            inside = os.path.relpath(place.file, folder)
            if os.path.isfile(said) and os.path.basename(said) == os.path.basename(inside):
                return place._replace(file=said)
            return place._replace(file=f"{said.partition(':')[0]}:{inside}" if by_revision else inside)
    return place
