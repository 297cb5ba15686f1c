"""Rule files → a policy: the only room that opens them or knows YAML."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from .. import schema, stack
from ..errors import Location, PolicyError, Problem
from ..packs import Pack
from ..policy import Policy
from .convert import Context, pack
from .reader import Document, parse, read_bytes
from .words import vocabulary

BUILT_IN = "built-in"

#: The environment variable with folders or files of rules, nearest first.
VARIABLE = "MOE_ALIGN_RULES"

#: Files of a rules folder that hold no rules.
_OTHER_FILES = frozenset({"models.yaml"})


class Layer(NamedTuple):
    """One layer: the name by which answers call it, and its files in order."""

    name: str
    files: tuple[Path, ...]
    root: Path


def built_in_rules() -> Path:
    """The folder of the rules that come with the package, installed or in a checkout."""
    package = Path(__file__).resolve().parent.parent
    installed = package / "rules"
    return installed if installed.is_dir() else package.parent / "rules"


def load_policy(
    *rules: str | Path, environ: Mapping[str, str] | None = None, built_in: bool = True
) -> Policy:
    """The policy of `rules` (files or folders, nearest first) over `MOE_ALIGN_RULES` over the built-in packs.

    Raises:
        PolicyError: any fault in any file, all of them at once.
    """
    layers = layers_of(rules, environ=environ, built_in=built_in)
    return Policy(_stack(layers))


def layers_of(
    rules: Iterable[str | Path], *, environ: Mapping[str, str] | None = None, built_in: bool = True
) -> tuple[Layer, ...]:
    """The layers, nearest first, with their files; nothing is read yet.

    Raises:
        PolicyError: a file or folder that does not exist or holds no rules.
    """
    environment = os.environ if environ is None else environ
    said = [part for part in environment.get(VARIABLE, "").split(os.pathsep) if part]
    layers, problems = [], []
    for path in [*rules, *said]:
        try:
            layers.append(_layer(Path(path)))
        except PolicyError as fault:
            problems.extend(fault.problems)
    if problems:
        raise PolicyError(problems)
    if built_in:
        layers.append(_layer(built_in_rules())._replace(name=BUILT_IN))
    return tuple(layers)


def _layer(path: Path) -> Layer:
    start = Location(str(path), 1, 1)
    if path.is_dir():
        try:
            files = sorted(file for file in path.iterdir() if file.suffix in (".yaml", ".yml"))
        except OSError as fault:
            raise PolicyError([Problem("Y002", f"cannot be read: {fault.strerror}", "check its rights", start)]) from None
        files = [file for file in files if file.name not in _OTHER_FILES]
        if not files:
            raise PolicyError([Problem("Y008", "holds no rule files", "put a `*.yaml` file into it", start)])
        return Layer(str(path), tuple(files), path)
    if not path.exists():
        raise PolicyError([Problem("Y001", "no such file or folder", "check the path", start)])
    return Layer(str(path), (path,), path.parent)


def _stack(layers: tuple[Layer, ...]) -> stack.Stack:
    found = [(layer, document) for layer in layers for document in _documents(layer)]
    problems = [problem for _, document in found for problem in document.problems]
    checked = []
    for layer, document in found:
        said = _checked(document)
        if said is not None:
            checked.append((layer, document, said))
    words = vocabulary([(document, said) for _, document, said in checked])
    packs: list[Pack] = [pack(Context(document, words), said, layer.name) for layer, document, said in checked]
    problems = _sorted(problem for _, document in found for problem in document.problems)
    if problems:
        raise PolicyError(problems)
    return stack.assemble(packs, words, tuple(layer.name for layer in layers))


def _documents(layer: Layer) -> Iterable[Document]:
    for file in layer.files:
        shown = f"rules/{file.name}" if layer.name == BUILT_IN else str(file)
        try:
            yield parse(read_bytes(file, shown), shown)
        except PolicyError as fault:
            yield Document(shown, None, list(fault.problems))


def _checked(document: Document) -> schema.PackFile | None:
    if document.root is None:
        if not document.problems:
            place = Location(document.file, 1, 1)
            document.problems.append(Problem("Y005", "is empty", "begin with `language: 1`", place))
        return None
    try:
        return schema.PackFile.model_validate(document.root)
    except ValidationError as error:
        for fault in schema.faults(error):
            place = document.locate(fault.path, fault.at_key)
            rule = _rule_id(document, fault.path)
            document.problems.append(Problem(fault.code, fault.message, fault.fix, place, rule))
        return None


def _rule_id(document: Document, path: tuple[str | int, ...]) -> str | None:
    if len(path) < 2 or path[0] not in ("rules", "contracts") or not isinstance(path[1], int):
        return None
    entry = document.root[path[0]][path[1]]
    name = entry.get("id") if isinstance(entry, Mapping) else None
    return name if isinstance(name, str) else None


def _sorted(problems: Iterable[Problem]) -> list[Problem]:
    """The problems once each, in the order of files, lines and columns."""
    def order(problem: Problem) -> tuple[str, int, int, str]:
        place = problem.location or Location("", 0, 0)
        return place.file, place.line, place.column, problem.code

    return sorted(dict.fromkeys(problems), key=order)
