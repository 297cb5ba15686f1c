"""The flags that commands share: one for every fact, made from the tables of facts; model, rules, JSON."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import typer

from .. import facts as keys
from ..errors import PolicyError, Problem, did_you_mean

#: Short forms of flags.
_SHORT = {"activation": ("--act",)}

#: Where flags stand in `--help` on a terminal.
_LAYER, _NUMBERS, _VERSIONS, _SOURCES = "The layer", "Sizes and numbers", "Releases", "Sources and output"

_WHOLE = re.compile(r"[+-]?[0-9]{1,40}")

_INTEGER_META, _VERSION_META = "N", "VERSION"


class Said(NamedTuple):
    """What the command line says of a layer: facts as they were written, the model, the layers of rules."""

    facts: dict[str, object]
    model: str | None
    rules: tuple[str, ...]


Rules = Annotated[
    list[str] | None,
    typer.Option(
        "--rules",
        metavar="PATH",
        help="A file or folder of rules that stands over the built-in ones; again for more, nearest first.",
        rich_help_panel=_SOURCES,
    ),
]

Json = Annotated[
    bool,
    typer.Option("--json", help="Print JSON for programs.", rich_help_panel=_SOURCES, show_default=False),
]

_Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="NAME|PATH",
        help="A known model, a config.json, or a folder with one; flags win over what it says.",
        rich_help_panel=_SOURCES,
    ),
]


_ModelArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[MODEL]",
        help="A known model, a hub id, a config.json, or its folder; for `check` also a list of deployments.",
        show_default=False,
    ),
]


def about_layer(function: Callable[..., None]) -> Callable[..., None]:
    """A command that takes a flag for every fact; `function` gets them as one `Said`, its first argument.

    The other arguments of `function` stay arguments of the command.
    """
    return _command(function, [*_fact_flags(), _flag("model", _Model), _flag("rules", Rules)])


def about_deployment(function: Callable[..., None]) -> Callable[..., None]:
    """The same where the model is the command's argument, with an engine or several."""
    facts = [_engines(one) if one.name == "engine" else one for one in _fact_flags()]
    model = inspect.Parameter(
        "model", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation=_ModelArgument
    )
    return _command(function, [model, *facts, _flag("rules", Rules)])


def _command(function: Callable[..., None], shared: list[inspect.Parameter]) -> Callable[..., None]:
    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
    own = [one for one in own if one.name != "engines"]
    first = [one for one in shared if one.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    listed = [
        *first,
        *(one for one in own if one.name != "json"),
        *(one for one in shared if one not in first),
        *(one for one in own if one.name == "json"),
    ]

    def command(**values: Any) -> None:
        rest = {one.name: values.pop(one.name) for one in own}
        model, rules = values.pop("model"), values.pop("rules") or ()
        engines = values["engine"] if isinstance(values["engine"], list) else None
        if engines is not None:
            values["engine"] = engines[0] if engines else None
        said = Said(given(values), model, tuple(rules))
        if engines is not None:
            rest["engines"] = [given({**values, "engine": engine}) for engine in engines[1:]]
        function(said, **rest)

    command.__doc__ = function.__doc__
    command.__annotations__ = {one.name: one.annotation for one in listed}
    command.__signature__ = inspect.Signature(listed)  # type: ignore[attr-defined]
    return command


def _engines(one: inspect.Parameter) -> inspect.Parameter:
    option = typer.Option(
        "--engine",
        metavar="NAME[==VERSION]",
        help=f"{_sentence(keys.DISCRETE['engine'])} Again for more.",
        rich_help_panel=_LAYER,
    )
    return one.replace(annotation=Annotated[list[str] | None, option])


def _flag(name: str, annotation: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _fact_flags() -> list[inspect.Parameter]:
    flags = [_discrete(key, text) for key, text in keys.DISCRETE.items()]
    flags += [_text_flag(key, text, _INTEGER_META, _NUMBERS) for key, text in keys.INTEGERS.items()]
    flags += [_text_flag(key, text, _VERSION_META, _VERSIONS) for key, text in keys.VERSIONS.items()]
    flags += [_many(key, text) for key, text in keys.NAMESPACES.items()]
    return flags


def flag_name(key: str) -> str:
    """The flag of a fact: dashes for underscores."""
    return f"--{key.replace('_', '-')}"


def _discrete(key: str, text: str) -> inspect.Parameter:
    if key in keys.BOOLEANS:
        name = flag_name(key)
        option = typer.Option(f"{name}/--no-{name[2:]}", help=_sentence(text), rich_help_panel=_LAYER)
        return _flag(key, Annotated[bool | None, option])
    from .completing import values_of

    option = typer.Option(
        *_SHORT.get(key, ()),
        flag_name(key),
        metavar="NAME[==VERSION]" if key == "engine" else "NAME",
        help=_sentence(text),
        rich_help_panel=_LAYER,
        autocompletion=values_of(key),
    )
    return _flag(key, Annotated[str | None, option])


def _text_flag(key: str, text: str, metavar: str, panel: str) -> inspect.Parameter:
    option = typer.Option(flag_name(key), metavar=metavar, help=_sentence(text), rich_help_panel=panel)
    return _flag(key, Annotated[str | None, option])


_MANY_META = {"env": "NAME=VALUE", "has": "NAME"}


def _many(key: str, text: str) -> inspect.Parameter:
    option = typer.Option(
        flag_name(key),
        metavar=_MANY_META[key],
        help=f"{_sentence(text)} Again for more.",
        rich_help_panel=_LAYER,
    )
    return _flag(key, Annotated[list[str] | None, option])


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def given(values: dict[str, Any]) -> dict[str, object]:
    """The facts of the flags: whole numbers as such, `engine==release` and `env` taken apart.

    Raises:
        PolicyError: what is neither, and a release that is given twice.
    """
    facts: dict[str, object] = {}
    for key, value in values.items():
        if value is None or value == []:
            continue
        if key == "engine":
            _put_engine(facts, value, values)
        elif key in keys.NAMESPACES:
            facts.update(_pair(key, text) for text in value)
        elif key in keys.INTEGERS:
            facts[key] = int(value) if _WHOLE.fullmatch(value) else value
        else:
            facts[key] = value
    return facts


def _put_engine(facts: dict[str, object], said: str, values: dict[str, Any]) -> None:
    engine, pinned, release = said.partition("==")
    facts["engine"] = engine
    if not pinned:
        return
    key = engine.lower()
    if key not in keys.VERSIONS:
        near = did_you_mean(key, keys.VERSIONS)
        fix = (
            f"write `{near}=={release}`" if near else f"engines with releases are {', '.join(keys.VERSIONS)}"
        )
        raise PolicyError([Problem("U002", f"`--engine {said}` names no engine that has releases", fix)])
    if values.get(key) not in (None, release):
        fix = f"keep one of `--engine {said}` and `--{key} {values[key]}`"
        raise PolicyError([Problem("U003", f"two releases of {engine}: {release} and {values[key]}", fix)])
    facts[key] = release


def _pair(key: str, text: str) -> tuple[str, object]:
    name, equals, value = text.partition("=")
    if key == "has":
        return f"has.{name}", value if equals else True
    if not equals or not name:
        raise PolicyError(
            [Problem("U001", f"`--env {text}` has no value", f"write `--env {name or 'NAME'}=1`")]
        )
    return f"env.{name}", value
