"""A YAML or JSON list of deployments → what is asked of each, with the place of what is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from ..errors import Location, PolicyError, Problem
from .reader import Document, parse, read_bytes

#: Keys of an entry that are no facts.
_OWN = frozenset({"name", "model"})

_SHAPE = "write a list of mappings, each with `model: …` and facts such as `tp: 8`"


class Entry(NamedTuple):
    """One deployment: what it is called, its model, and the facts as they were written.

    `places` has the place of each key. `problems` are those of the file that lie in this entry.
    """

    name: str
    model: str | None
    facts: dict[str, object]
    place: Location
    places: Mapping[str, Location]
    problems: tuple[Problem, ...]


def is_list(path: Path) -> bool:
    """Whether a file holds a list, of deployments: a config of a model is a mapping."""
    if path.suffix.lower() not in (".yaml", ".yml", ".json") or not path.is_file():
        return False
    if path.suffix.lower() != ".json":
        return True
    with path.open("rb") as stream:
        return stream.read(4096).lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"[")


def read_deployments(path: Path) -> tuple[Entry, ...]:
    """The deployments of a file, in its order.

    Raises:
        PolicyError: a file that cannot be read, or that is no list.
    """
    document = parse(read_bytes(path, str(path)), str(path))
    root = document.root
    if not isinstance(root, list) or not root:
        place = document.locate(())
        raise PolicyError(document.problems or [Problem("U030", "is no list of deployments", _SHAPE, place)])
    return tuple(_entries(document, root))


def _entries(document: Document, root: list[object]) -> Iterator[Entry]:
    starts = [document.locate((index,)) for index in range(len(root))]
    for index, said in enumerate(root):
        end = starts[index + 1].line if index + 1 < len(root) else 2**31
        first = starts[index].line if index else 0
        inside = [problem for problem in document.problems if first <= _line(problem) < end]
        yield _entry(document, index, said, starts[index], inside)


def _line(problem: Problem) -> int:
    return problem.location.line if problem.location else 0


def _entry(document: Document, index: int, said: object, place: Location, problems: list[Problem]) -> Entry:
    if not isinstance(said, Mapping):
        found = [*problems, Problem("U030", "is no deployment", _SHAPE, place)]
        return Entry(f"{index + 1}", None, {}, place, {}, tuple(found))
    model, name = said.get("model"), said.get("name")
    for key, value in (("model", model), ("name", name)):
        if value is not None and not isinstance(value, str):
            at = document.locate((index, key))
            written = str(value).lower() if isinstance(value, bool) else value
            problems.append(
                Problem("U031", f"`{key}` is `{written}`", "write a name, in quotes if need be", at)
            )
    facts = {str(key): value for key, value in said.items() if key not in _OWN}
    places = {str(key): document.locate((index, key), at_key=True) for key in said}
    called = name if isinstance(name, str) else model if isinstance(model, str) else f"{index + 1}"
    asked = model if isinstance(model, str) else None
    return Entry(str(called), asked, facts, place, places, tuple(problems))
