"""What an engine's error means, as text and as plain values for JSON."""

from __future__ import annotations

from ..record import NamedTuple
from . import SHAPE
from .lines import Row, Style, rows

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..deployment.checking import Report
    from ..deployment.dims import Dim
    from ..deployment.messages import Found

    Plain = dict[str, object]

#: So many times fewer ranks are tried in the advice.
_MOST_FEWER = 64


class Explained(NamedTuple):
    """Messages of a text, and what `check` says of the deployment where one was named."""

    found: Sequence[Found]
    report: Report | None = None


def messages_plain(explained: Explained) -> Plain:
    """The messages as `--json` gives them."""
    return {
        "version": SHAPE,
        "messages": [
            {
                "id": one.message.id,
                "line": one.line,
                "text": one.text,
                "dim": one.message.dim,
                "size": one.size,
                "multiple": one.multiple,
                "numbers": one.numbers,
                "means": one.message.means,
                "do": one.message.do,
                "rules": list(one.message.rules),
            }
            for one in explained.found
        ],
        "verdict": explained.report.verdict if explained.report else None,
    }


def messages_text(explained: Explained, style: Style) -> str:
    """The messages as a person reads them."""
    if not explained.found:
        said = "no known message about sizes of experts is in this text"
        return "\n".join([style.paint(said, "warn"), "  see `moe-align check` for what this deployment does"])
    blocks = ["\n".join(_block(one, explained.report, style)) for one in explained.found]
    return "\n\n".join(blocks)


def _block(one: Found, report: Report | None, style: Style) -> list[str]:
    head = style.paint(_heading(one), "bad") + style.paint(f"   line {one.line}", "faint")
    return [head, *rows(style, _rows(one, report))]


def _heading(one: Found) -> str:
    size, multiple = one.size, one.multiple
    if size is None:
        return f"{one.message.dim}: must be a multiple of {multiple}" if multiple else one.message.dim
    if not multiple:
        return f"{one.message.dim} {size}"
    return f"{one.message.dim} {size} = {_times(size, multiple)} × {multiple}"


def _times(size: int, multiple: int) -> str:
    return f"{size / multiple:.2f}".rstrip("0").rstrip(".")


def _rows(one: Found, report: Report | None) -> Iterator[Row]:
    yield Row("said", [one.text])
    yield Row("means", [one.message.means])
    for dim in _same(one, report):
        yield Row("here", [f"{dim.name} is {dim.whole} / {dim.ranks} = {dim.native}"])
    yield Row("do", [one.message.do])
    fewer = _fewer(one)
    if fewer is not None:
        yield Row("", [fewer])
    if report is not None:
        for way in report.ways:
            yield Row("checked", [f"{way.change}: {way.outcome.verdict}"], "good")
    if one.message.rules:
        yield Row("rule", list(one.message.rules))


def _same(one: Found, report: Report | None) -> list[Dim]:
    """The dimensions that have the size of the message, or half of it: gate and up are one tensor."""
    if report is None or one.size is None:
        return []
    return [dim for dim in report.dims if dim.native and one.size in (dim.native, 2 * dim.native)]


def _fewer(one: Found) -> str | None:
    """How many times fewer ranks would leave a whole number of blocks."""
    size, multiple = one.size, one.multiple
    if size is None or not multiple or one.message.dim in ("experts", "attention heads"):
        return None
    for times in range(2, _MOST_FEWER + 1):
        if size * times % multiple == 0:
            whole = size * times // multiple
            return f"with {times} times fewer ranks it is {size * times} = {whole} × {multiple}"
    return None
