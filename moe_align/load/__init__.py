"""Rule files → a policy: the only room that opens them or knows YAML."""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from pydantic_core import ValidationError

from .. import schema, stack
from ..errors import Location, PolicyError, Problem
from ..layers import Layer, layers_of
from ..packs import Condition, Pack
from ..policy import Policy
from .conditions import Context
from .convert import pack
from .faults import Fault, faults
from .reader import Document, parse, read_bytes
from .words import vocabulary

Steps = tuple[str | int, ...]


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
    read: dict[tuple[str, ...], Condition] = {}
    packs: list[Pack] = [
        pack(Context(document, words, read), said, layer.name) for layer, document, said in checked
    ]
    problems = _sorted(problem for _, document in found for problem in _told(document))
    if problems:
        raise PolicyError(problems)
    try:
        return stack.assemble(packs, words, layers)
    except PolicyError as fault:
        documents = {document.file: document for _, document in found}
        raise PolicyError(_sorted(_at_before(problem, documents) for problem in fault.problems)) from None


def _at_before(problem: Problem, documents: Mapping[str, Document]) -> Problem:
    """A problem with the order of packs, at the key that says it: a pack knows only where it begins."""
    if problem.code not in ("P402", "P403") or problem.location is None:
        return problem
    place = documents[problem.location.file].locate(("before",), at_key=True)
    return problem._replace(location=place)


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
    empty = list(_empty(document.root)) if document.has_empty else []
    for path in empty:
        _note(document, Fault(path, "S109", *_emptiness(document, path), at_key=True))
    try:
        said = schema.pack_file(document.root)
    except ValidationError as error:
        for fault in faults(error):
            if fault.code != "S109":  # told above, or an alias, of which the reader has told
                _note(document, fault)
        return None
    return None if empty else said


def _note(document: Document, fault: Fault) -> None:
    place = document.locate(fault.path, fault.at_key)
    rule = _rule_id(document, fault.path)
    document.problems.append(Problem(fault.code, fault.message, fault.fix, place, rule))


def _empty(node: object, path: Steps = ()) -> Iterator[Steps]:
    """Where nothing stands behind a key or in a list; only a value of the vocabulary may say nothing."""
    entries: Iterable[tuple[str | int, object]] = ()
    if isinstance(node, dict):
        entries = node.items()
    elif isinstance(node, list):
        entries = enumerate(node)
    for step, inner in entries:
        if inner is not None:
            yield from _empty(inner, (*path, step))
        elif path[:1] != ("vocabulary",) or len(path) != 2:
            yield (*path, step)


def _emptiness(document: Document, path: Steps) -> tuple[str, str]:
    """What is empty, and its fix: a `#` begins a comment wherever a blank stands before it."""
    key = path[-1]
    if isinstance(key, int):
        return f"entry {key + 1} is empty", "write a value, or leave it out"
    place = document.locate(path, at_key=True)
    rest = document.text.splitlines()[place.line - 1][place.column - 1 :]
    comment = re.match(r"[^#:]*:\s+(#\S.*)", rest)
    fix = f'put it in quotes: "{comment[1]}"' if comment else f"write a value, or leave `{key}` out"
    return f"`{key}` is empty", fix


def _rule_id(document: Document, path: Steps) -> str | None:
    if len(path) < 2 or path[0] not in ("rules", "contracts") or not isinstance(path[1], int):
        return None
    entry = document.root[path[0]][path[1]]
    name = entry.get("id") if isinstance(entry, Mapping) else None
    return name if isinstance(name, str) else None


#: With these something of the file is left out, so that nothing can be said to be missing.
_LEFT_OUT = frozenset({"Y011", "Y013", "Y016", "Y017", "Y018"})
_MISSING = frozenset({"S102", "R210", "R212", "R216", "R231", "R233"})


def _told(document: Document) -> list[Problem]:
    """The problems of a file without those that follow from another one."""
    first = {problem.location for problem in document.problems if _is_of_text(problem)}
    left_out = any(problem.code in _LEFT_OUT for problem in document.problems)
    return [
        problem
        for problem in document.problems
        if _is_of_text(problem) or not (problem.location in first or (left_out and problem.code in _MISSING))
    ]


def _is_of_text(problem: Problem) -> bool:
    """Whether a problem is with the text as it was read: whatever else is said of that place follows."""
    return problem.code[0] == "Y" or problem.code == "S109"


def _sorted(problems: Iterable[Problem]) -> list[Problem]:
    """The problems once each, in the order of files, lines and columns."""

    def order(problem: Problem) -> tuple[str, int, int, str]:
        place = problem.location or Location("", 0, 0)
        return place.file, place.line, place.column, problem.code

    return sorted(dict.fromkeys(problems), key=order)
