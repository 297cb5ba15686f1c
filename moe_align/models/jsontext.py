"""A JSON file as text and as values: bounded reading, and the place where each value stands."""

from __future__ import annotations

import json
import re
import stat
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from ..errors import Location, PolicyError, Problem

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: A config of a model has some kilobytes; quantized ones that list every module, a few megabytes.
LARGEST_BYTES = 10_000_000

#: A way into nested JSON: keys of objects, indices of arrays.
JsonPath = tuple[str | int, ...]

_TOKEN = re.compile(r'[{}\[\],]|"(?:[^"\\]|\\.)*"(\s*:)?|[^\s{}\[\],":]+')


@dataclass(frozen=True, slots=True)
class Document:
    """A JSON object, the text that it came from, and the file's name for messages."""

    file: str
    text: str
    root: Mapping[str, object]

    def where(self, path: JsonPath) -> Location:
        """The place of the key (or item) that `path` leads to, or of the file's start."""
        offset = next((offset for found, offset in _places(self.text) if found == path), 0)
        return _location(self.file, self.text, offset)

    def problem(self, code: str, path: JsonPath, message: str, fix: str | None = None) -> PolicyError:
        return PolicyError([Problem(code, message, fix, self.where(path))])


def read_text(path: Path) -> str:
    """The text of a file that is no larger than `LARGEST_BYTES`.

    Raises:
        PolicyError: if there is no such file, it may not be read, or it is not a text of that size.
    """
    content = _content(path)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start].decode("utf-8-sig")
        place = _location(str(path), before, len(before))
        raise PolicyError(
            [Problem("M002", "not UTF-8 text", "give a model's `config.json`", place)]
        ) from None


def parse(text: str, file: str) -> Document:
    """The JSON object in `text`.

    Raises:
        PolicyError: if it is not JSON, not an object, nested too deeply, or if a key stands twice in
            one object with different values.
    """
    twice: list[str] = []

    def collect(pairs: list[tuple[str, object]]) -> dict[str, object]:
        values: dict[str, object] = {}
        for key, value in pairs:
            if key in values and values[key] != value:
                twice.append(key)
            values[key] = value
        return values

    try:
        root = json.loads(text, object_pairs_hook=collect)
    except json.JSONDecodeError as error:
        place = Location(file, error.lineno, error.colno)
        message = error.msg[:1].lower() + error.msg[1:]
        raise PolicyError(
            [Problem("M002", f"not JSON: {message}", "repair or download it again", place)]
        ) from None
    except (RecursionError, ValueError):
        raise PolicyError(
            [Problem("M002", "nested too deeply, or a number too long", None, Location(file, 1, 1))]
        ) from None
    if not isinstance(root, dict):
        raise PolicyError([Problem("M004", "a model's config is a JSON object", None, Location(file, 1, 1))])
    if twice:
        place = _location(file, text, _second(text, twice[0]))
        fix = "keep one of the two"
        raise PolicyError([Problem("M003", f"`{twice[0]}` stands twice, with different values", fix, place)])
    return Document(file, text, root)


def _content(path: Path) -> bytes:
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise _unreadable(path, "not a file", "give a model's `config.json`")
        if status.st_size > LARGEST_BYTES:
            size = f"{status.st_size / 1e6:.0f} MB, more than the {LARGEST_BYTES / 1e6:.0f} MB of any config"
            raise _unreadable(path, size, "give a model's `config.json`")
        return path.read_bytes()
    except FileNotFoundError:
        fix = "give a model's `config.json`, its folder, or a known model"
        raise _unreadable(path, "no such file", fix) from None
    except PermissionError:
        raise _unreadable(path, "no permission to read", "make it readable") from None
    except OSError as error:  # a symlink that leads back to itself, a name that is too long
        raise _unreadable(path, (error.strerror or "cannot be read").lower(), None) from None


def _unreadable(path: Path, why: str, fix: str | None) -> PolicyError:
    return PolicyError([Problem("M001", f"{why}: `{path}`", fix)])


def _location(file: str, text: str, offset: int) -> Location:
    before = text[:offset]
    return Location(file, before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1)


def _second(text: str, key: str) -> int:
    """Where `key` stands in an object once more."""
    places = list(_places(text))
    often = Counter(path for path, _ in places)
    return max(offset for path, offset in places if path[-1] == key and often[path] > 1)


def _places(text: str) -> Iterator[tuple[JsonPath, int]]:
    """Every path of valid JSON with the offset of its key, or of the item in an array."""
    path: list[str | int] = []
    for token in _TOKEN.finditer(text):
        symbol = token[0]
        if token[1]:
            path[-1] = json.loads(symbol[: symbol.rindex(":")])
            yield tuple(path), token.start()
            continue
        if symbol in "}]":
            path.pop()
        elif symbol == ",":
            path[-1] = path[-1] + 1 if isinstance(path[-1], int) else ""
        else:
            if path and isinstance(path[-1], int):
                yield tuple(path), token.start()
            if symbol in "{[":
                path.append("" if symbol == "{" else 0)
