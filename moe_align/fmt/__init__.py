"""One layout for the files that people write: rules, contracts, words, models, cases, claims, known findings.

What stands where, what is in quotes, how far things are indented. Comments stay with what they are about,
and what was in brackets, or on lines of its own, stays so, unless brackets on several lines become too long.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

from ..errors import Location, PolicyError, Problem
from ..load.reader import Document, parse
from .nodes import Block, Entry, Node, Scalar, Text, read

#: Brackets that stand on several lines are closed up where that fits, and opened into lines where not.
WIDTH = 110

_RULE = (
    *("id", "when", "unless", "align", "add", "require", "refine", "use", "set", "reject", "declare", "else"),
    *("stride", "experts", "error", "rows", "columns", "breaks", "why", "source", "evidence"),
)
_PACK = ("language", "pack", "phase", "for", "covers", "before", "vocabulary", "defaults", "models", "rules",
         "contracts")  # fmt: skip
_CASE = ("facts", "status", "hidden", "intermediate", "rule", "steps", "launch", "breaks", "reason", "misses",
         "note", "link")  # fmt: skip
_CLAIM = ("id", "when", "never", "always", "why")
_KNOWN = ("code", "rules", "packs", "claims", "why")

#: What each sort of file is told by: a key of its root, or of the entries of its list; and orders of keys.
_LISTS = {"facts": ("cases", _CASE), "never": ("claims", _CLAIM), "always": ("claims", _CLAIM),
          "code": ("reviewed", _KNOWN)}  # fmt: skip
_Path = tuple[str | None, ...]

_RELEASES = re.compile(r"[<>=!~]")

#: Ends of lines for YAML that no editor shows as such.
_HIDDEN = re.compile("[\x85\u2028\u2029]|\r(?!\n)")


def sort_of(document: Document) -> str | None:
    """What a file is: `pack`, `models`, `cases`, `claims`, `reviewed`, or `None` for none of ours."""
    root = document.root
    if isinstance(root, dict):
        return "models" if "models" in root else "pack" if "pack" in root else None
    entries = [entry for entry in root if isinstance(entry, dict)] if isinstance(root, list) else []
    return next((sort for key, (sort, _) in _LISTS.items() if any(key in entry for entry in entries)), None)


def formatted(data: bytes, shown: str) -> str:
    """The same file in the one layout.

    Raises:
        PolicyError: what the reader of rules refuses, a file that is none of ours, or a comment in a place
            from which it would get lost.
    """
    document = parse(data, shown)
    if document.problems:
        raise PolicyError(document.problems)
    hidden = _HIDDEN.search(document.text)
    if hidden:
        place = Location(shown, document.text.count("\n", 0, hidden.start()) + 1, 1)
        said, fix = "an end of line that editors do not show", "write `\\n` in double quotes, or a new line"
        raise PolicyError([Problem("U053", said, fix, place)])
    sort = sort_of(document)
    if sort is None:
        fix = "a pack has `pack:`, a case `facts:`, a claim `never:` or `always:`"
        raise PolicyError([Problem("U050", "is no file of rules or cases", fix, Location(shown, 1, 1))])
    tree = read(document.text)
    lines = list(_Layout(tree, sort).lines())
    made = "\n".join(line.rstrip() for line in lines).strip("\n") + "\n"
    _same(document, tree, made)
    return made


def _same(document: Document, tree: Text, made: str) -> None:
    """Refuse to lose a comment; that what is said stays the same is ours to see to."""
    again = parse(made.encode(), document.file)
    if again.problems or again.root != document.root:
        raise AssertionError(f"the layout of {document.file} would say something else")
    kept = list(read(made).comments.values())
    for number, comment in tree.comments.items():
        if comment in kept:
            kept.remove(comment)
            continue
        place = Location(document.file, number + 1, 1)
        raise PolicyError(
            [Problem("U051", "a comment that would get lost", "put it on a line of its own", place)]
        )


class _Layout:
    """Writes a tree; a line never knows what comes behind it, so that entries can be put in order."""

    def __init__(self, text: Text, sort: str) -> None:
        self._lines = text.lines
        self._root = text.root
        self._sort = sort

    def lines(self) -> Iterator[str]:
        root = self._root
        if isinstance(root, Block) and not root.is_flow:
            yield from self._block(root, 0, ())
        else:
            yield from self._value(root, 0, 0)

    def _block(self, block: Block, indent: int, path: _Path) -> Iterator[str]:
        """The lines of a block; `path` are the keys that lead to it, `None` for an entry of a list."""
        order = self._order(path) if block.is_mapping else ()
        for place, entry in enumerate(_ordered(block.entries, order)):
            yield from _noted(entry.before, indent, is_first=place == 0 and path != ())
            yield from self._entry(entry, indent, path)
        yield from _noted(block.after, indent)

    def _order(self, path: _Path) -> tuple[str, ...]:
        if path == ():
            return _PACK
        if path in (("rules", None), ("contracts", None)):
            return _RULE
        if path == (None,):
            return next(order for sort, order in _LISTS.values() if sort == self._sort)
        return ()

    def _entry(self, entry: Entry, indent: int, path: _Path) -> Iterator[str]:
        margin = " " * indent
        beside = f"  {entry.beside}" if entry.beside else ""
        node = entry.node
        if entry.key is None:
            yield from self._item(entry, indent, path, beside)
            return
        name = _scalar(entry.key, "key")
        if isinstance(node, Block) and not self._is_closed(node, indent + len(name) + 2):
            yield f"{margin}{name}:{beside}"
            yield from self._block(node, indent + 2, (*path, entry.key.value))
            return
        first, *more = self._value(node, indent, entry.start[1])
        yield f"{margin}{name}: {first}".rstrip() + ("" if more else beside)
        yield from _ended(more, beside)

    def _item(self, entry: Entry, indent: int, path: _Path, beside: str) -> Iterator[str]:
        margin, node = " " * indent, entry.node
        if isinstance(node, Block) and not self._is_closed(node, indent + 2):
            inner = list(self._block(node, indent + 2, (*path, None)))
            # A comment above what comes first stands above the dash.
            head = next(number for number, line in enumerate(inner) if not line.lstrip().startswith("#"))
            yield from (margin + line.lstrip() for line in inner[:head])
            yield f"{margin}- {inner[head].lstrip()}"
            yield from inner[head + 1 :]
            return
        first, *more = self._value(node, indent, entry.start[1])
        yield f"{margin}- {first}".rstrip() + ("" if more else beside)
        yield from _ended(more, beside)

    def _is_closed(self, node: Block, column: int) -> bool:
        """Whether a block is written in brackets."""
        if not node.is_flow:
            return False
        if not node.entries or node.has_comment or node.start[0] == node.end[0] or _has_lines(node):
            return True
        return column + len(_flow(node)) <= WIDTH

    def _value(self, node: Node, indent: int, was: int) -> Iterator[str]:
        """The lines of what stands behind a key or a dash; `was` is the column where its entry began."""
        if isinstance(node, Scalar):
            if node.style in ("|", ">") or (node.start[0] < node.end[0] and not _is_short(node, indent)):
                yield from self._kept(node, indent - was)
            else:
                yield _scalar(node, "block")
        elif node.has_comment or _has_lines(node):
            yield from self._kept(node, indent - was)
        else:
            yield _flow(node)

    def _kept(self, node: Node, shift: int) -> Iterator[str]:
        """The lines of a node as they are, further in or out."""
        (first, column), (last, end) = node.start, node.end
        if end == 0 and last > first:
            last, end = last - 1, len(self._lines[last - 1])
        for number in range(first, last + 1):
            line = self._lines[number]
            line = line[:end] if number == last else line
            if number == first:
                yield line[column:]
            else:
                bare = line.lstrip(" ")
                yield " " * max(0, len(line) - len(bare) + shift) + bare if bare else ""


def _ordered(entries: list[Entry], order: tuple[str, ...]) -> list[Entry]:
    """Entries with known keys in their order, others where they stood, behind what they stood behind."""
    if not order:
        return entries
    known = sorted(
        (entry for entry in entries if entry.key and entry.key.value in order),
        key=lambda entry: order.index(entry.key.value if entry.key else ""),
    )
    return [*known, *(entry for entry in entries if entry not in known)]


def _noted(comments: Iterable[str], indent: int, is_first: bool = False) -> Iterator[str]:
    """Comments and blank lines, of which two in a row are one, and the first of a block none."""
    was_blank = is_first
    for comment in comments:
        if comment or not was_blank:
            yield " " * indent + comment if comment else ""
        was_blank = not comment


def _ended(lines: list[str], beside: str) -> Iterator[str]:
    yield from lines[:-1]
    yield from (f"{line}{beside}" for line in lines[-1:])


def _has_lines(node: Node) -> bool:
    """Whether some text in brackets can only be written on several lines."""
    if isinstance(node, Scalar):
        return "\n" in node.value
    return any(_has_lines(entry.node) for entry in node.entries)


def _is_short(node: Scalar, indent: int) -> bool:
    return "\n" not in node.value and indent + len(node.value) + 12 <= WIDTH


def _flow(node: Node) -> str:
    if isinstance(node, Scalar):
        return _scalar(node, "flow") or "null"
    parts = [
        f"{_scalar(entry.key, 'key')}: {_flow(entry.node)}" if entry.key else _flow(entry.node)
        for entry in node.entries
    ]
    return f"{{{', '.join(parts)}}}" if node.is_mapping else f"[{', '.join(parts)}]"


def _scalar(node: Scalar, where: str) -> str:
    """A scalar on one line: in double quotes where that must be and where it is about releases, else bare."""
    value = node.value
    if not node.style and not _RELEASES.match(value):
        return value
    if not _RELEASES.match(value) and _is_bare(value, where):
        return value
    if '"' in value or "\\" in value or not value.isprintable():
        return _escaped(value) if not value.isprintable() else "'" + value.replace("'", "''") + "'"
    return f'"{value}"'


def _escaped(value: str) -> str:
    signs = {"\n": "\\n", "\t": "\\t", '"': '\\"', "\\": "\\\\"}
    return (
        '"'
        + "".join(
            signs.get(sign) or (sign if sign.isprintable() else f"\\U{ord(sign):08x}") for sign in value
        )
        + '"'
    )


#: How a text is tried without quotes, and what must come out.
_TRIALS = {"key": "{%s: 0}", "flow": "[%s, 0]", "block": "key: %s"}


@lru_cache(maxsize=4096)
def _is_bare(value: str, where: str) -> bool:
    """Whether a text means itself without quotes."""
    if not value.isprintable() or not value or value.startswith("#"):
        return False
    try:
        document = parse((_TRIALS[where] % value).encode(), "")
    except PolicyError:
        return False
    wanted: object = {"key": {value: 0}, "flow": [value, 0], "block": {"key": value}}[where]
    return not document.problems and document.root == wanted
