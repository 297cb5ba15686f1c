"""Lines of text: labelled rows that wrap, and tables that drop columns before they run over."""

from __future__ import annotations

from ..record import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    Paint = Callable[[str, str], str]

#: Labels stand in a column of this width.
LABEL = 10

#: What stands between two things that belong to one label.
DOT = " · "


def unpainted(text: str, role: str) -> str:
    """The text as it is, for pipes and files."""
    return text


class Style(NamedTuple):
    """How text is laid out: `width` columns (`None`: as long as it gets), and how a role is painted.

    Roles are `label`, `head`, `strong`, `good`, `warn`, `bad` and `faint`.
    """

    width: int | None = None
    paint: Paint = unpainted


class Row(NamedTuple):
    """Items behind one label; lines break between items before they break inside one."""

    label: str
    items: Sequence[str]
    role: str = "label"


def rows(style: Style, listed: Iterable[Row], label_width: int = LABEL) -> list[str]:
    """Labelled rows, each on as many lines as it needs."""
    lines: list[str] = []
    for row in listed:
        room = None if style.width is None else max(style.width - label_width, 24)
        wrapped = _wrapped(row.items, room)
        label = style.paint(f"{row.label:<{label_width}}", row.role)
        lines += [label + wrapped[0], *(" " * label_width + line for line in wrapped[1:])]
    return lines


def _wrapped(items: Sequence[str], room: int | None) -> list[str]:
    if room is None:
        return [DOT.join(items)]
    lines: list[str] = []
    for item in items:
        joined = f"{lines[-1]}{DOT}{item}" if lines else item
        if lines and len(joined) <= room:
            lines[-1] = joined
            continue
        lines += folded(item, room)
    return lines or [""]


def folded(text: str, room: int | None) -> list[str]:
    """Text on lines of at most `room` columns; a word that is longer stays whole."""
    if room is None or len(text) <= room:
        return [text]
    lines = [""]
    for word in text.split(" "):
        if lines[-1] and len(lines[-1]) + 1 + len(word) > room:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}" if lines[-1] else word
    return lines


def table(style: Style, head: Sequence[str], body: Sequence[Sequence[str]]) -> list[str]:
    """A table with its head; numbers stand to the right. Last columns go where the width is too small."""
    columns, gap = len(head), GAP
    while style.width is not None and _width(head, body, columns, gap) > style.width:
        if gap > NARROW:
            gap = NARROW
        elif columns == 2:
            break
        else:
            columns -= 1
    widths = _widths(head, body, columns)
    right = [bool(body) and all(_is_number(row[column]) for row in body) for column in range(columns)]
    lines = [style.paint(_line(head, widths, right, gap), "head")]
    lines += [_line(row, widths, right, gap) for row in body]
    if columns < len(head):
        said = f"(not shown for want of room: {', '.join(head[columns:])})"
        lines += [style.paint(line, "faint") for line in folded(said, style.width)]
    return lines


#: Columns stand so far apart, or so where room is scarce.
GAP, NARROW = 3, 2


def _widths(head: Sequence[str], body: Sequence[Sequence[str]], columns: int) -> list[int]:
    return [max(len(row[column]) for row in (head, *body)) for column in range(columns)]


def _width(head: Sequence[str], body: Sequence[Sequence[str]], columns: int, gap: int) -> int:
    return sum(_widths(head, body, columns)) + gap * (columns - 1)


def _is_number(cell: str) -> bool:
    return cell.replace(".", "").replace("→", "").replace(" ", "").isdigit() or cell == "–"


def _line(row: Sequence[str], widths: Sequence[int], right: Sequence[bool], gap: int = GAP) -> str:
    cells = (
        f"{cell:>{width}}" if to_right else f"{cell:<{width}}"
        for cell, width, to_right in zip(row, widths, right, strict=False)
    )
    return (" " * gap).join(cells).rstrip()


def prose_table(style: Style, head: Sequence[str], body: Sequence[Sequence[str]]) -> list[str]:
    """A table whose last column is prose: it goes on in the lines below where it is too wide."""
    columns = len(head)
    widths = _widths(head, body, columns)
    before = sum(widths[:-1]) + GAP * (columns - 1)
    room = None if style.width is None else max(style.width - before, 24)
    left = [False] * columns
    lines = [style.paint(_line(head, widths, left), "head")] if any(head) else []
    for row in body:
        first, *more = folded(row[-1], room)
        lines.append(_line([*row[:-1], first], widths, left))
        lines += [" " * before + line for line in more]
    return lines
