"""What the terminal can do: colours, width, encoding; and the two ways to print."""

from __future__ import annotations

import os
import sys
import time
from contextlib import contextmanager

from typer import echo

from ..report.lines import Style

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any, Literal, TextIO, TypeVar

    T = TypeVar("T")
    Watch = Callable[[int, int], None]


def _on_terminal(stream: TextIO) -> bool:
    return stream.isatty() and os.environ.get("TERM") != "dumb"


#: Boxes and colours in typer's own help and errors only where a person looks at them.
MARKUP: Literal["rich"] | None = "rich" if _on_terminal(sys.stdout) and _on_terminal(sys.stderr) else None

_CODES = {
    "label": "2",
    "head": "2",
    "faint": "2",
    "strong": "1",
    "good": "32",
    "warn": "33",
    "bad": "31",
}

#: What is written where the encoding of the stream lacks a sign.
_PLAIN_SIGNS = {"→": "->", "×": "x", "·": "-", "≥": ">=", "≤": "<=", "–": "-", "…": "...", "█": "#", "░": "."}


def _painted(text: str, role: str) -> str:
    return f"\x1b[{_CODES[role]}m{text}\x1b[0m"


def style() -> Style:
    """How text is laid out on standard output: fitted and coloured on a terminal, neither in a pipe."""
    if not _on_terminal(sys.stdout):
        return Style()
    import shutil

    width = shutil.get_terminal_size().columns
    return Style(width) if os.environ.get("NO_COLOR") else Style(width, _painted)


def say(text: str) -> None:
    """Print to standard output."""
    echo(_encodable(text, sys.stdout))


def note(text: str) -> None:
    """Print to standard error."""
    echo(_encodable(text, sys.stderr), err=True)


def fail(text: str) -> None:
    """Print an error to standard error; what it is about stands first, as with compilers."""
    note(text)


def _encodable(text: str, stream: TextIO) -> str:
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        for sign, plain in _PLAIN_SIGNS.items():
            text = text.replace(sign, plain)
        return text.encode(encoding, "replace").decode(encoding)
    return text


#: So long work goes on without a word.
PATIENCE_SECONDS = 1.0


@contextmanager
def progress(said: str) -> Iterator[Watch | None]:
    """What to tell of each step: a bar on standard error where a person waits for more than a second."""
    if not _on_terminal(sys.stderr):
        yield None
        return
    started = time.monotonic()
    shown: list[Any] = []

    def watch(done: int, total: int) -> None:
        if not shown and time.monotonic() - started > PATIENCE_SECONDS and done < total:
            shown.append(_bar())
            shown[0].start()
            shown[0].add_task(said, total=total)
        if shown:
            shown[0].update(shown[0].task_ids[0], completed=done)

    try:
        yield watch
    finally:
        for bar in shown:
            bar.stop()


def _bar() -> Any:
    from rich.console import Console
    from rich.progress import Progress

    return Progress(console=Console(stderr=True), transient=True)


def watched(items: Sequence[T], said: str) -> Iterator[T]:
    """The items, with a bar while they are worked on for more than a second."""
    with progress(said) as watch:
        for index, item in enumerate(items):
            yield item
            if watch is not None:
                watch(index + 1, len(items))
