"""`diff`: what a change of rules changes."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from ..cache import cached_models
from ..diff import diff, plain, receipt, text
from ..errors import PolicyError, Problem
from ..load import load_policy
from ..policy import Policy
from ..report import json_text
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
    old: _Old, new: _New = "", models: _Models = False, receipt_text: _Receipt = False, json: Json = False
) -> None:
    """The facts whose decision differs between two states of the rules, each with a point; exit 1 if any."""
    with tempfile.TemporaryDirectory() as folder:
        before, after = _policy(old, Path(folder) / "old"), _policy(new, Path(folder) / "new")
        found = diff(before, after, cached_models() if models or receipt_text else ())
    if json:
        say(json_text({"version": 1, **plain(found)}))
    else:
        say(receipt(found).rstrip("\n") if receipt_text else text(found))
    raise typer.Exit(0 if found.is_empty else 1)


def _policy(said: str, folder: Path) -> Policy:
    """The policy of a path or a revision; what declares no engine of its own stands over the built-in rules.

    Raises:
        PolicyError: neither a path nor a revision, or rules that cannot be used.
    """
    if not said:
        return load_policy(environ={})
    path = Path(said) if os.path.exists(said) else _checked_out(said, folder)
    return load_policy(path, environ={}, built_in=not _is_whole(path))


def _is_whole(path: Path) -> bool:
    return path.is_dir() and (path / "vocabulary.yaml").exists()


def _checked_out(revision: str, folder: Path) -> Path:
    """The rules of a revision (`REVISION` or `REVISION:folder`), laid out in `folder`."""
    name, _, inside = revision.partition(":")
    inside = inside or "rules"
    asked = ["git", "archive", "--format=tar", name, inside]
    try:
        made = subprocess.run(asked, capture_output=True, check=False)
    except OSError:
        made = None
    if made is None or made.returncode:
        said = f"`{revision}` is no file or folder, and no revision with `{inside}`"
        raise PolicyError([Problem("U041", said, "write a path, or `REVISION:folder`")])
    with tarfile.open(fileobj=io.BytesIO(made.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder / inside
