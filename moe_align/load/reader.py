"""YAML text → plain values with the place of everything, refusing what YAML reads as something else.

Only mappings with text keys, lists, text, decimal integers, `true`, `false` and nothing at all can
be written. Anchors, aliases, tags, merge keys, duplicate keys and second documents are refused.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from ..errors import Location, PolicyError, Problem

MOST_BYTES = 8 * 2**20
MOST_DEPTH = 24
MOST_NODES = 1_000_000

Place = tuple[int, int]


class Mapping(dict[str, Any]):
    """A mapping of a file; `places` has the places of each key and of its value, from 0."""

    __slots__ = ("place", "places")
    place: Place
    places: dict[str, tuple[Place, Place]]


class Sequence(list[Any]):
    """A list of a file; `places` has the place of each entry, from 0."""

    __slots__ = ("place", "places")
    place: Place
    places: list[Place]


class Document(NamedTuple):
    """One parsed file: its name as messages give it, its root, the faults found so far, and its text."""

    file: str
    root: Any
    problems: list[Problem]
    text: str = ""
    has_empty: bool = False

    def locate(self, path: tuple[str | int, ...], at_key: bool = False) -> Location:
        """The place of what `path` leads to; steps that the document does not have are passed over."""
        node, place = self.root, getattr(self.root, "place", (0, 0))
        for step in path:
            if isinstance(node, Mapping) and step in node:
                key_place, value_place = node.places[str(step)]
                # What is empty stands nowhere: YAML gives the next line as its place.
                place = key_place if at_key or node[str(step)] is None else value_place
                node = node[str(step)]
            elif isinstance(node, Sequence) and isinstance(step, int) and step < len(node):
                node, place = node[step], node.places[step]
        return location(self.file, place)


def location(file: str, place: Place) -> Location:
    return Location(file, place[0] + 1, place[1] + 1)


def read_bytes(path: Path, shown: str) -> bytes:
    """The content of a rule file.

    Raises:
        PolicyError: missing, unreadable, no file, or larger than `MOST_BYTES`.
    """
    start = Location(shown, 1, 1)
    try:
        with path.open("rb") as stream:
            data = stream.read(MOST_BYTES + 1)
    except IsADirectoryError:
        raise PolicyError([Problem("Y001", "is a folder, not a file", "name a file in it", start)]) from None
    except FileNotFoundError:
        raise PolicyError([Problem("Y001", "no such file", "check the path", start)]) from None
    except OSError as fault:
        raise PolicyError(
            [Problem("Y002", f"cannot be read: {fault.strerror}", "check its rights", start)]
        ) from None
    if len(data) > MOST_BYTES:
        raise PolicyError(
            [
                Problem(
                    "Y003", f"is larger than {MOST_BYTES // 2**20} MiB", "split it into several packs", start
                )
            ]
        )
    return data


def parse(data: bytes, shown: str) -> Document:
    """The document in `data`, with every fault that the reader itself can see.

    Raises:
        PolicyError: what cannot be parsed at all.
    """
    text = _decoded(data, shown)
    reader = _Reader(shown)
    try:
        root = reader.document(iter(LOADER(text).get_event, None))
    except yaml.YAMLError as fault:
        raise PolicyError([*reader.problems, _syntax(fault, text, shown)]) from None
    return Document(shown, root, reader.problems, text, reader.has_empty)


#: The C parser where PyYAML has it: the same events, twenty times faster.
LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_BOM = b"\xef\xbb\xbf"


def _decoded(data: bytes, shown: str) -> str:
    data = data.removeprefix(_BOM)  # the codec `utf-8-sig` would have to be imported first
    try:
        text = data.decode()
    except UnicodeDecodeError as fault:
        where = _place_of(data[: fault.start], shown)
        raise PolicyError([Problem("Y004", "is not UTF-8", "save it as UTF-8", where)]) from None
    if not text.strip():
        raise PolicyError([Problem("Y005", "is empty", "begin with `language: 1`", Location(shown, 1, 1))])
    return text


def _place_of(before: bytes, shown: str) -> Location:
    """The place that stands behind so many bytes of a file."""
    line = before[before.rfind(b"\n") + 1 :]
    return location(shown, (before.count(b"\n"), len(line.decode(errors="replace"))))


def _syntax(fault: yaml.YAMLError, text: str, shown: str) -> Problem:
    """What the YAML parser stumbled over, in words that do not depend on which parser it is."""
    if isinstance(fault, yaml.reader.ReaderError):
        where = _place_of(text.encode()[: fault.position], shown)
        fix = "the file is binary or has control characters: save it as text"
        return Problem("Y010", "is not YAML: a character that text cannot have", fix, where)
    assert isinstance(fault, yaml.MarkedYAMLError)
    mark, start, said = fault.problem_mark, fault.context_mark, fault.problem or ""
    place = (mark.line, mark.column) if mark else (0, 0)
    opens = (start.line, start.column) if start else place
    if "unexpected end of stream" in said:
        return Problem("Y010", "is not YAML: a quote is never closed", "close it", location(shown, opens))
    if "nesting depth" in said:  # the C parser looks ahead, and has a limit of its own
        return _too_deep(location(shown, place))
    character = _character(text, place)
    if "cannot start any token" in said and character == "\t":
        message, fix = "a tab where the line begins", "indent with spaces"
    else:
        known = ((message, fix) for words, message, fix in _SYNTAX if words in said)
        message, fix = next(known, (said, "see the line above it as well"))
    message = message.format("a backtick" if character == "`" else f"`{character}`")
    fix = fix.format(f"{opens[0] + 1}:{opens[1] + 1}")
    return Problem("Y010", f"is not YAML: {message}", fix, location(shown, place))


def _too_deep(place: Location) -> Problem:
    return Problem("Y007", f"is nested more than {MOST_DEPTH} levels deep", "flatten it", place)


def _character(text: str, place: Place) -> str:
    lines = text.splitlines()
    line = lines[place[0]] if place[0] < len(lines) else ""
    return line[place[1] : place[1] + 1]


_BRACKET = ("a bracket is never closed", "close the bracket that opens in {}")
_INDENT = ("the indentation fits nothing above", "indent the line as its neighbours are")

#: What the two YAML parsers say, and what is told: with the character at the place, with an opening place.
_SYNTAX = (
    ("cannot start any token", "{} cannot begin a text", "put the text in quotes"),
    ("mapping values are not allowed", "a second `:`", "put the text in quotes, or begin a new line"),
    ("expected ',' or", *_BRACKET),
    ("expected '-' indicator", *_INDENT),
    ("expected <block end>", *_INDENT),
    ("did not find expected key", *_INDENT),
    ("could not find expected ':'", "a key without `:`", "write `key: value`, or put the text in quotes"),
    ("unknown escape character", "an escape that YAML does not know", "use single quotes, or write `\\\\`"),
)

_INTEGER = re.compile(r"[+-]?(?:0|[1-9][0-9]*)")
_YAML_NUMBER = re.compile(
    r"[-+]?(?:0b[01_]+|0x[0-9a-fA-F_]+|[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?|[0-9][0-9_]*|"
    r"(?:[0-9][0-9_]*)?\.[0-9_]*(?:[eE][-+]?[0-9]+)?|[0-9][0-9_]*[eE][-+]?[0-9]+|\.(?:inf|Inf|INF|nan|NaN|NAN))"
)
_YAML_WORDS = frozenset(
    word for base in ("yes", "no", "on", "off", "y", "n") for word in (base, base.capitalize(), base.upper())
)
_YAML_DATE = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt \t].*)?")
_WORDS: dict[str, bool | None] = {"true": True, "false": False, "null": None, "": None}
_SPELLED = frozenset({"True", "TRUE", "False", "FALSE", "Null", "NULL", "~"})

#: Text that is neither of these nor begins like a number means itself: most text ends here.
_NOT_TEXT = _YAML_WORDS | _SPELLED | _WORDS.keys()
_NUMBER_STARTS = frozenset("+-.0123456789")


class _Reader:
    """Builds values from parser events; keeps what is wrong, and goes on."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.problems: list[Problem] = []
        self.has_empty = False
        self._nodes = 0

    def document(self, events: Any) -> Any:
        root: Any = None
        documents = 0
        for event in events:
            sort = type(event)
            if sort is DocumentStartEvent:
                documents += 1
                if documents > 1:
                    self._problem("Y011", "a second document begins", "keep one document a file", event)
                    return root
                if event.tags or event.version:
                    self._problem("Y012", "has a `%` directive", "leave it out", event)
            elif sort in (ScalarEvent, MappingStartEvent, SequenceStartEvent, AliasEvent):
                root = self._node(event, events, 0)
        return root

    def _problem(self, code: str, message: str, fix: str | None, event: Any) -> None:
        mark = event.start_mark
        self.problems.append(Problem(code, message, fix, location(self.file, (mark.line, mark.column))))

    def _stop(self, code: str, message: str, fix: str, event: Any) -> PolicyError:
        self._problem(code, message, fix, event)
        return PolicyError(self.problems)

    def _node(self, event: Any, events: Any, depth: int) -> Any:
        self._nodes += 1
        if self._nodes > MOST_NODES:
            raise self._stop(
                "Y006", f"has more than {MOST_NODES} values", "split it into several packs", event
            )
        sort = type(event)
        if sort is ScalarEvent and event.anchor is None and event.tag is None:
            return self._scalar(event)
        if sort is AliasEvent:
            self._problem("Y013", f"alias `*{event.anchor}`", "write the value out", event)
            return None
        if event.anchor is not None:
            self._problem("Y014", f"anchor `&{event.anchor}`", "leave it out", event)
        if event.tag is not None:
            self._problem("Y015", f"tag `{_short_tag(event.tag)}`", "leave it out", event)
        if sort is ScalarEvent:
            return self._scalar(event)
        if depth >= MOST_DEPTH:
            mark = event.start_mark
            raise PolicyError([*self.problems, _too_deep(location(self.file, (mark.line, mark.column)))])
        return (self._mapping if sort is MappingStartEvent else self._sequence)(event, events, depth + 1)

    def _mapping(self, start: Any, events: Any, depth: int) -> Mapping:
        mapping = Mapping()
        mapping.place = (start.start_mark.line, start.start_mark.column)
        places = mapping.places = {}
        while type(event := next(events)) is not MappingEndEvent:
            key = self._key(event, events, depth)
            value_event = next(events)
            value = self._node(value_event, events, depth)
            if key is None:
                continue
            if key in mapping:
                first = places[key][0][0] + 1
                self._problem("Y016", f"key `{key}` again", f"it stands in line {first}: keep one", event)
                continue
            mapping[key] = value
            mark, value_mark = event.start_mark, value_event.start_mark
            places[key] = ((mark.line, mark.column), (value_mark.line, value_mark.column))
        return mapping

    def _key(self, event: Any, events: Any, depth: int) -> str | None:
        if type(event) is not ScalarEvent:
            self._node(event, events, depth)
            self._problem("Y017", "a key is no text", "write a name", event)
            return None
        if event.value == "<<" and not event.style:
            self._problem("Y018", "merge key `<<`", "write the entries out", event)
            return None
        key = self._node(event, events, depth)
        if isinstance(key, str):
            return key
        self._problem("Y017", f"key `{event.value}` is no text", "put it in quotes", event)
        return None

    def _sequence(self, start: Any, events: Any, depth: int) -> Sequence:
        sequence = Sequence()
        sequence.place = (start.start_mark.line, start.start_mark.column)
        places = sequence.places = []
        while type(event := next(events)) is not SequenceEndEvent:
            sequence.append(self._node(event, events, depth))
            places.append((event.start_mark.line, event.start_mark.column))
        return sequence

    def _scalar(self, event: Any) -> Any:
        value: str = event.value
        if event.style or (value not in _NOT_TEXT and value[0] not in _NUMBER_STARTS):
            return value
        if _INTEGER.fullmatch(value):
            return self._integer(value, event)
        if value in _WORDS:
            meant = _WORDS[value]
            self.has_empty |= meant is None
            return meant
        quoted = f'put it in quotes: "{value}"'
        if value in ("~", "Null", "NULL"):
            self._problem("Y020", f"`{value}` is read as nothing", f"leave it out, or {quoted}", event)
        elif value in _SPELLED:
            word = value.lower()
            self._problem("Y020", f"`{value}` is read as `{word}`", f"write `{word}`, or {quoted}", event)
        elif value in _YAML_WORDS:
            word = "true" if value.lower() in ("yes", "on", "y") else "false"
            self._problem("Y021", f"`{value}` is read as `{word}`", f"write `{word}`, or {quoted}", event)
        elif _YAML_NUMBER.fullmatch(value):
            fix = f"{_digits(value)}{quoted}"
            self._problem("Y022", f"`{value}` is read as another number", fix, event)
        elif _YAML_DATE.fullmatch(value):
            self._problem("Y023", f"`{value}` is read as a date", quoted, event)
        return value

    def _integer(self, value: str, event: Any) -> int:
        if len(value) > 19:
            self._problem("Y024", f"`{value[:19]}…` is too large", "give an integer below 2^31", event)
            return 1
        return int(value)


def _digits(value: str) -> str:
    """The advice to write a number with nothing but its digits, where there is one that was meant."""
    digits = value.replace("_", "")
    return f"write `{int(digits)}`, or " if digits.isdigit() else ""


def _short_tag(tag: str) -> str:
    return tag.replace("tag:yaml.org,2002:", "!!")
