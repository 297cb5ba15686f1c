"""YAML text → a tree that keeps what a reader of the file sees: comments, blank lines, quotes, lines.

`load.reader` says what a file means and what is wrong with it; this is about how it is written, and takes
only what that reader takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from yaml.events import (
    DocumentEndEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
    StreamStartEvent,
)

from ..load.reader import LOADER, Place

_AROUND = (StreamStartEvent, StreamEndEvent, DocumentStartEvent, DocumentEndEvent)
_ENDS = (MappingEndEvent, SequenceEndEvent)


@dataclass(slots=True)
class Scalar:
    """A text, number or word: what it says, and its style (`"`, `'`, `|`, `>`, or none)."""

    start: Place
    end: Place
    value: str
    style: str | None


@dataclass(slots=True)
class Entry:
    """An entry of a mapping (with a key) or a list; comments and blank lines before it, the one beside it."""

    start: Place
    key: Scalar | None
    node: Node
    before: list[str] = field(default_factory=list)
    beside: str | None = None


@dataclass(slots=True)
class Block:
    """A mapping or a list, in brackets or on lines of its own; `after` are comments behind its last entry."""

    start: Place
    end: Place
    is_flow: bool
    is_mapping: bool
    entries: list[Entry] = field(default_factory=list)
    after: list[str] = field(default_factory=list)
    has_comment: bool = False


Node = Scalar | Block


@dataclass(frozen=True, slots=True)
class Text:
    """A file as a tree: its lines, its root, and every comment by its line, from 0."""

    lines: tuple[str, ...]
    root: Node
    comments: Mapping[int, str]


def read(text: str) -> Text:
    """The tree of a file that the reader of rules takes; ends of lines are those of Unix."""
    lines = tuple(line.rstrip() for line in text.replace("\r\n", "\n").split("\n"))
    events = [event for event in _events("\n".join(lines)) if not isinstance(event, _AROUND)]
    root = _node(iter(events), lines)
    spans = [_span(event) for event in events if isinstance(event, ScalarEvent)]
    found = {
        number: at for number, line in enumerate(lines) if (at := _begins(line, number, spans)) is not None
    }
    _comment(lines, root, spans, found)
    return Text(lines, root, {number: lines[number][at:] for number, at in found.items()})


def _events(text: str) -> Iterator[Any]:
    return iter(LOADER(text).get_event, None)


def _span(event: Any) -> tuple[Place, Place]:
    start, end = event.start_mark, event.end_mark
    return (start.line, start.column), (end.line, end.column)


def _node(events: Iterator[Any], lines: Sequence[str]) -> Node:
    return _built(next(events), events, lines)


def _built(event: Any, events: Iterator[Any], lines: Sequence[str]) -> Node:
    start, end = _span(event)
    if isinstance(event, ScalarEvent):
        return Scalar(start, end, event.value, event.style)
    block = Block(start, end, bool(event.flow_style), isinstance(event, MappingStartEvent))
    assert isinstance(event, MappingStartEvent | SequenceStartEvent)
    while not isinstance(inner := next(events), _ENDS):
        node = _built(inner, events, lines)
        if block.is_mapping:
            assert isinstance(node, Scalar)
            block.entries.append(Entry(node.start, node, _node(events, lines)))
        else:
            block.entries.append(Entry(node.start, None, node))
    block.end = _span(inner)[1]
    if not block.is_flow and not block.is_mapping:
        for entry in block.entries:
            entry.start = _dash(lines, entry.start[0], block.start[1])
    return block


def _dash(lines: Sequence[str], line: int, column: int) -> Place:
    """Where the dash of a list's entry stands: it may be alone on a line above."""
    while lines[line][column : column + 1] != "-" or lines[line][:column].strip(" -?:"):
        line -= 1
    return line, column


def _comment(
    lines: Sequence[str], root: Node, spans: list[tuple[Place, Place]], found: dict[int, int]
) -> None:
    """Give every comment and blank line to the entry or the block that it belongs to."""
    entries = list(_entries(root, ()))
    inside = [span for block in _flows(root) for span in [(block.start[0], block.end[0])]]
    for block in _flows(root):
        block.has_comment = any(block.start[0] <= number < block.end[0] for number in found)
    own = _beside(lines, found, entries)
    own = {number: at for number, at in own.items() if not any(low <= number < high for low, high in inside)}
    texts = [(start[0], end[0]) for start, end in spans if end[0] > start[0]]
    blank = {
        number
        for number, line in enumerate(lines)
        if not line.strip() and not any(low <= number <= high for low, high in texts)
    }
    _above(lines, own, blank, entries, root)


def _begins(line: str, number: int, spans: list[tuple[Place, Place]]) -> int | None:
    """The column in which a comment begins: a `#` behind a blank that stands in no text."""
    at = line.find("#")
    while at >= 0:
        if (at == 0 or line[at - 1] in " \t") and not any(
            start <= (number, at) < end for start, end in spans
        ):
            return at
        at = line.find("#", at + 1)
    return None


#: An entry, and the blocks that it stands in, outermost first.
_Placed = tuple[Entry, tuple[Block, ...]]


def _entries(node: Node, around: tuple[Block, ...]) -> Iterator[_Placed]:
    """The entries that stand on lines of their own, in order."""
    if isinstance(node, Block) and not node.is_flow:
        for entry in node.entries:
            yield entry, (*around, node)
            yield from _entries(entry.node, (*around, node))


def _flows(node: Node) -> Iterator[Block]:
    """The outermost bracketed blocks."""
    if isinstance(node, Block):
        if node.is_flow:
            yield node
        else:
            for entry in node.entries:
                yield from _flows(entry.node)


def _beside(lines: Sequence[str], found: dict[int, int], entries: list[_Placed]) -> dict[int, int]:
    """Give comments behind something to the entry that ends there; what is left over comes back."""
    ends: dict[int, Entry] = {}
    for entry, _ in entries:
        head = entry.key.end if entry.key else entry.start
        is_head = isinstance(entry.node, Block) and not entry.node.is_flow
        if is_head and entry.key is None:
            continue  # a dash: what stands behind it belongs to the first entry of the block
        ends[head[0] if is_head or _is_literal(entry.node) else entry.node.end[0]] = entry
    left = {}
    for number, at in found.items():
        owner = ends.get(number)
        if lines[number][:at].strip() and owner is not None:
            owner.beside = lines[number][at:]
        else:
            left[number] = at
    return left


def _is_literal(node: Node) -> bool:
    return isinstance(node, Scalar) and node.style in ("|", ">")


def _above(
    lines: Sequence[str], own: dict[int, int], blank: set[int], entries: list[_Placed], root: Node
) -> None:
    """Give comments on lines of their own, and blank lines, to what follows or to the block that ends."""
    starts = [-1, *(entry.start[0] for entry, _ in entries), len(lines)]
    placed: list[_Placed | None] = [None, *entries, None]
    for index, (low, high) in enumerate(pairwise(starts)):
        ended, following = placed[index], placed[index + 1]
        target: list[str] | None = None
        for number in range(high, low, -1):
            if number not in own and number not in blank:
                continue
            if number in own:
                target = _owner(own[number], ended, following, root)
            elif target is None:
                target = following[0].before if following else None
            if target is not None:
                target.insert(0, lines[number][own[number] :] if number in own else "")


def _owner(column: int, ended: _Placed | None, following: _Placed | None, root: Node) -> list[str] | None:
    """Where a comment in a column belongs, between the entry that ended and the one that follows."""
    least = following[0].start[1] if following else -1
    open_blocks = [block for block in ended[1] if least < block.start[1] <= column] if ended else []
    if open_blocks:
        return open_blocks[-1].after
    if following:
        return following[0].before
    return root.after if isinstance(root, Block) else None
