"""Rule files → a policy: the only room that opens them or knows YAML."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from pydantic import ValidationError

from .. import schema, stack
from ..errors import Location, PolicyError, Problem
from ..layers import Layer, layers_of
from ..packs import Pack
from ..policy import Policy
from .convert import Context, pack
from .reader import Document, parse, read_bytes
from .words import vocabulary


def load_policy(
    *rules: str | os.PathLike[str], environ: Mapping[str, str] | None = None, built_in: bool = True
) -> Policy:
    """The policy of `rules` (files or folders, nearest first) over `MOE_ALIGN_RULES` over the built-in packs.

    Raises:
        PolicyError: any fault in any file, all of them at once.
    """
    layers = layers_of(rules, environ=environ, built_in=built_in)
    collecting = gc.isenabled()
    gc.disable()  # all that is made here is kept: to search it for garbage takes as long as to make it
    try:
        return Policy(_stack(layers))
    finally:
        if collecting:
            gc.enable()


def _stack(layers: tuple[Layer, ...]) -> stack.Stack:
    found = [(layer, document) for layer in layers for document in _documents(layer)]
    checked = []
    for layer, document in found:
        said = _checked(document)
        if said is not None:
            checked.append((layer, document, said))
    words = vocabulary([(document, said) for _, document, said in checked])
    packs: list[Pack] = [
        pack(Context(document, words), said, layer.name) for layer, document, said in checked
    ]
    problems = _sorted(problem for _, document in found for problem in document.problems)
    if problems:
        raise PolicyError(problems)
    return stack.assemble(packs, words, layers)


def _documents(layer: Layer) -> Iterable[Document]:
    for file in layer.files:
        shown = layer.shown(file)
        try:
            yield parse(read_bytes(Path(file), shown), shown)
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
