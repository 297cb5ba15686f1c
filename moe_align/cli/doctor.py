"""`doctor`: whether the installation, the rules and the environment are in order."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, metadata, version

import typer

from .. import __version__
from ..cache import SWITCH, cache_folder, cached_policy
from ..errors import PolicyError, did_you_mean
from ..layers import VARIABLE, layers_of
from ..report import json_text
from ..report.doctor import Health, Program, doctor_plain, doctor_text
from .flags import Json, Rules
from .terminal import say, style

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLE = "moe-align doctor --rules my-rules.yaml"

_PREFIX = "MOE_ALIGN_"
_MODE, _UNSAFE, _DEBUG = f"{_PREFIX}MODE", f"{_PREFIX}UNSAFE", f"{_PREFIX}DEBUG"
_MODES = ("observe", "apply", "off")

#: Every variable that the package looks at.
_VARIABLES = (VARIABLE, _MODE, _UNSAFE, SWITCH, _DEBUG)

#: Engines and kernel libraries, by the distribution that brings each.
_ENGINES = ("vllm", "sglang", "amd-aiter", "flashinfer-python")


def command(rules: Rules = None, json: Json = False) -> None:
    """Whether installation and rules are in order."""
    health = _health(tuple(rules or ()))
    say(json_text(doctor_plain(health)) if json else doctor_text(health, style()))
    raise typer.Exit(1 if health.problems else 0)


def _health(rules: tuple[str, ...]) -> Health:
    layers: list[tuple[str, int]] = []
    counts: tuple[int | None, int | None, str | None] = (None, None, None)
    problems = list(_wrong_variables())
    try:
        layers = [(layer.name, len(layer.files)) for layer in layers_of(rules)]
        policy = cached_policy(rules)
        stack = policy.stack
        counts = (len(list(stack.rules())), len(list(stack.all_contracts())), policy.digest)
    except PolicyError as fault:
        problems += [str(problem) for problem in fault.problems]
    folder = cache_folder(os.environ)
    environment = {name: value for name, value in sorted(os.environ.items()) if name.startswith(_PREFIX)}
    programs = tuple(_programs())
    return Health(programs, layers, *counts, environment, folder, _writable(folder), problems)


def _programs() -> Iterator[Program]:
    yield Program("python", platform.python_version())
    yield Program("moe-align", __version__, _other_version())
    for name in ("typer", "pydantic", "pyyaml"):
        yield Program(name, _version(name))
    for name in _ENGINES:
        yield Program(name, _version(name))
    unrelated = _version("aiter")
    if unrelated is not None:
        about = " ".join((metadata("aiter")["Summary"] or "").split())
        said = f" ({about})" if about else ""
        yield Program(
            "aiter", unrelated, f"unrelated to AMD's AITER{said}; that is the distribution amd-aiter"
        )


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def _other_version() -> str | None:
    """What is odd where the code that runs is not the one that is installed."""
    installed = _version("moe-align")
    return f"runs from a checkout; {installed} is installed" if installed not in (None, __version__) else None


def _wrong_variables() -> Iterator[str]:
    for name in sorted(os.environ):
        if name.startswith(_PREFIX) and name not in _VARIABLES:
            near = did_you_mean(name, _VARIABLES)
            yield f"unknown variable {name}" + (f"\n  fix: write {near}" if near else "")
    mode = os.environ.get(_MODE, "observe").strip().lower()
    if mode not in _MODES:
        yield f"{_MODE} is `{mode}`\n  fix: write one of {', '.join(_MODES)}"


def _writable(folder: str | None) -> bool:
    """Whether the cache, or the nearest folder above it that is there, can be written."""
    while folder and not os.path.exists(folder):
        folder = os.path.dirname(folder)
    return bool(folder) and os.path.isdir(str(folder)) and os.access(str(folder), os.W_OK)
