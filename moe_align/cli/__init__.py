"""The command `moe-align`: arguments in, report out, exit status.

Exit: 0 yes, 1 the answer is no, 2 wrong usage or files, 3 our bug. Commands are loaded when they are
called; one that raises `PolicyError` ends with its problems and status 2.
"""

from __future__ import annotations

import gc
import os
import sys
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ..errors import PolicyError
from .terminal import MARKUP, fail

#: Each command and the module that holds it, in the order of `--help`.
COMMANDS = {
    "check": "check",
    "plan": "plan",
    "resolve": "resolve",
    "explain": "explain",
    "list": "listing",
    "rule": "rule",
    "group-size": "group_size",
    "snapshot": "snapshot",
    "lint": "linting",
    "fmt": "formatting",
    "prove": "proving",
    "diff": "differing",
    "test": "testing",
    "verify": "verifying",
    "lift": "lifting",
    "compile": "compiling",
    "schema": "schemas",
    "doctor": "doctor",
}

DEBUG = "MOE_ALIGN_DEBUG"


class Commands(TyperGroup):
    """Loads a command when it is asked for, and turns what it raises into a message and a status.

    Types of the parser are `Any`: where they live depends on the release of typer.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in COMMANDS and cmd_name not in self.commands:
            self.commands[cmd_name] = _load(cmd_name)
        return self.commands.get(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in COMMANDS:
            # The suggestion is made from the commands that are loaded.
            for name in COMMANDS:
                self.get_command(ctx, name)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except PolicyError as fault:
            fail(str(fault))
            raise typer.Exit(2) from None
        except (typer.Abort, OSError):
            raise
        except Exception as fault:
            # The ways out of typer itself carry the status that they end with.
            if hasattr(fault, "exit_code"):
                raise
            _bug(fault)
            raise typer.Exit(3) from None


def _load(name: str) -> Any:
    module = import_module(f".{COMMANDS[name]}", __name__)
    if hasattr(module, "group"):
        return module.group()
    one = typer.Typer(add_completion=False, rich_markup_mode=MARKUP)
    settings = {"help_option_names": ["-h", "--help"]}
    one.command(name, epilog=f"Example: {module.EXAMPLE}", context_settings=settings)(module.command)
    return typer.main.get_command(one)


def _bug(fault: Exception) -> None:
    if os.environ.get(DEBUG) == "1":
        import traceback

        traceback.print_exception(fault, file=sys.stderr)
    said = " ".join(str(fault).split())
    fail(
        f"this is a bug of moe-align, not of yours: {type(fault).__name__}: {said}\n"
        f"  fix: report this line and the command, with what {DEBUG}=1 adds to it"
    )


app = typer.Typer(
    cls=Commands,
    rich_markup_mode=MARKUP,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from .. import __version__

        typer.echo(f"moe-align {__version__}")
        raise typer.Exit(0)


@app.callback()
def _app(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Sizes that serving engines allocate for MoE experts: what, why, and what it costs."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main() -> None:
    """Run the command line of this process."""
    # Most of what a command makes lives as long as it does: looking for garbage takes a tenth of its time.
    gc.set_threshold(100_000)
    app(prog_name="moe-align")
