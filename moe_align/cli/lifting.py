"""`lift vllm`: from an engine's own functions to rules."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import PolicyError, Problem, did_you_mean
from ..lift import PHASES, pack_text, rules_of, tables
from ..verify.sources import found
from .analysis import OnlyRules
from .completing import starting
from .flags import Rules
from .terminal import MARKUP, note, say
from .verifying import Release, Tree, Wheel, followed, named_release

EXAMPLE = "moe-align lift vllm --help"
_VLLM_EXAMPLE = "moe-align lift vllm --tree unpacked/ --table mxfp4"

_Table = Annotated[
    list[str] | None,
    typer.Option(
        "--table",
        metavar="|".join(PHASES),
        help="What to lift; again for more. Without it, everything that the release has.",
        autocompletion=lambda incomplete: starting(incomplete, PHASES),
    ),
]
_Out = Annotated[
    str | None,
    typer.Option(
        "--out", metavar="PATH", help="A new file for one table, or a folder, which gets a file each."
    ),
]


def vllm(
    wheel: Wheel = None,
    tree: Tree = None,
    release: Release = None,
    table: _Table = None,
    out: _Out = None,
    rules: Rules = None,
    alone: OnlyRules = False,
) -> None:
    """The shortest ordered lists of rules found for vLLM's own sizing functions, as packs to review."""
    from ..load import load_policy

    policy = load_policy(*rules or (), built_in=not alone)
    with found("vllm", wheel, tree) as engine:
        said = named_release(engine, release)
        with followed(said):
            there = {one.name: one for one in tables(engine.root, said, policy, table or ())}
    texts = {}
    for name in table or there:
        if name not in there:
            raise PolicyError([_no_table(name, said, tuple(there))])
        lifted = rules_of(there[name])
        if lifted:
            texts[name] = pack_text(there[name], lifted, said)
        rules_text = "1 rule" if len(lifted) == 1 else f"{len(lifted)} rules"
        note(f"{name}: {len(there[name].facts):,} points, {rules_text}")
    _write(texts, out)


def _no_table(name: str, release: str, there: Sequence[str]) -> Problem:
    near = did_you_mean(name, there)
    fix = f"write `{near}`" if near else f"it has {', '.join(there)}"
    return Problem("E920", f"vLLM {release} has no table `{name}`", fix)


def _write(texts: dict[str, str], out: str | None) -> None:
    if out is None:
        if len(texts) > 1:
            listed = " ".join(f"--table {name}" for name in texts)
            problem = Problem(
                "E920",
                f"{len(texts)} packs, and standard output takes one",
                f"give one of {listed}, or a folder with `--out DIR/`",
            )
            raise PolicyError([problem])
        for text in texts.values():
            say(text.rstrip("\n"))
        return
    path = Path(out)
    in_folder = out.endswith("/") or path.is_dir() or len(texts) > 1
    files = {name: path / f"lifted_{name.replace('-', '_')}.yaml" if in_folder else path for name in texts}
    there = [file for file in files.values() if file.exists()]
    if there:
        said = f"`{there[0]}` is there already"
        raise PolicyError([Problem("E921", said, "name a new file or folder: nothing is written over")])
    for name, text in texts.items():
        files[name].parent.mkdir(parents=True, exist_ok=True)
        files[name].write_text(text, encoding="utf-8")
        note(f"wrote {files[name]}")


def group() -> Any:
    """The command `lift` with those under it."""
    app = typer.Typer(
        name="lift",
        add_completion=False,
        rich_markup_mode=MARKUP,
        no_args_is_help=True,
        help="Rules from an engine's own code.",
        epilog=f"Example: {EXAMPLE}",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.command("vllm", epilog=f"Example: {_VLLM_EXAMPLE}")(vllm)
    # A group of one command would be that command.
    app.callback()(lambda: None)
    return typer.main.get_command(app)
