"""`plan`: every way to spread a model over some GPUs, by what a rank holds."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated

import typer

from ..cache import cached_policy
from ..deployment.layouts import curve, plan
from ..errors import PolicyError, Problem
from ..facts import Facts
from ..report import json_text
from ..report.plan import chart_text, plan_csv, plan_plain, plan_text
from .asking import check_capabilities
from .flags import Json, Said, about_deployment
from .terminal import progress, say, style

EXAMPLE = "moe-align plan deepseek-v4-pro --gpus 8 --arch gfx950"

_PANEL = "The machine"

_Gpus = Annotated[int, typer.Option("--gpus", metavar="N", help="So many GPUs.", rich_help_panel=_PANEL)]
_Memory = Annotated[
    str | None,
    typer.Option("--memory", metavar="SIZE", help="Memory of one GPU, as 288GiB.", rich_help_panel=_PANEL),
]
_Kv = Annotated[
    str | None,
    typer.Option(
        "--kv-bytes-per-token",
        metavar="N",
        help="What one token takes in the KV cache, to tell padding in tokens.",
        rich_help_panel=_PANEL,
    ),
]
_Csv = Annotated[bool, typer.Option("--csv", help="Print CSV.", show_default=False)]
_Chart = Annotated[
    bool, typer.Option("--chart", help="Draw GiB per rank over TP as well.", show_default=False)
]

_UNITS = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_UNITS |= {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40, "g": 2**30, "": 1}

_SIZE = re.compile(r"([0-9]{1,20})(?:\.([0-9]{1,6}))? ?([a-z]*)")


@about_deployment
def command(
    said: Said,
    *,
    gpus: _Gpus,
    memory: _Memory = None,
    kv_bytes_per_token: _Kv = None,
    engines: Iterable[dict[str, object]] = (),
    csv: _Csv = False,
    chart: _Chart = False,
    json: Json = False,
) -> None:
    """All layouts for N GPUs, and what they cost."""
    policy = cached_policy(said.rules)
    room, kv = memory_bytes(memory), _tokens(kv_bytes_per_token)
    found = []
    for facts in (said.facts, *engines):
        check_capabilities(policy.stack.vocabulary, Facts.of(facts))
        with progress("planning") as watch:
            found.append(
                plan(
                    said.model,
                    gpus=gpus,
                    policy=policy,
                    memory=room,
                    kv_bytes=kv,
                    watch=watch,
                    **facts,  # type: ignore[arg-type]  # `Facts` checks each
                )
            )
    if json:
        plains = [plan_plain(one, policy.digest) for one in found]
        say(json_text(plains[0] if len(plains) == 1 else {"version": 1, "plans": plains}))
    elif csv:
        say("\n".join(map(plan_csv, found)))
    else:
        say("\n\n".join(plan_text(one, style()) for one in found))
        if chart:
            say(chart_text(curve(policy, found[0]), style()))
    raise typer.Exit(0 if all(one.layouts for one in found) else 1)


def memory_bytes(text: str | None) -> int | None:
    """A size as people write it, in bytes.

    Raises:
        PolicyError: it is none.
    """
    if text is None:
        return None
    match = _SIZE.fullmatch(text.strip().lower())
    unit = _UNITS.get(match.group(3)) if match else None
    if match is None or not unit:
        fix = "write a number and a unit, as `288GiB` or `80GB`"
        raise PolicyError([Problem("U022", f"`--memory {text}` is no size", fix)])
    whole, part = match.group(1), match.group(2) or ""
    size: int = int(whole + part) * unit // 10 ** len(part)
    if size < 1:
        raise PolicyError([Problem("U022", f"`--memory {text}` is nothing", "give at least one byte")])
    return size


def _tokens(text: str | None) -> int | None:
    if text is None:
        return None
    plain = text.replace(",", "")
    if not plain.isdecimal() or not int(plain):
        fix = "give a whole number of bytes"
        raise PolicyError([Problem("U023", f"`--kv-bytes-per-token {text}` is none", fix)])
    return int(plain)
