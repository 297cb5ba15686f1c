"""A command run inside of this process: its status, and what it printed where."""

from __future__ import annotations

from typing import NamedTuple

import typer
from typer.testing import CliRunner


class Result(NamedTuple):
    exit_code: int
    stdout: str
    stderr: str


def run(app: typer.Typer, arguments: list[str]) -> Result:
    """The result of one command line; what it raises beside its status is raised here."""
    ran = CliRunner().invoke(app, arguments, prog_name="moe-align")
    if ran.exception is not None and not isinstance(ran.exception, SystemExit):
        raise ran.exception
    return Result(ran.exit_code, ran.stdout, ran.stderr)
