"""A page for every code that messages end with: what is wrong, and what to write."""

from __future__ import annotations

import os

from .record import NamedTuple

#: A page begins with this line: the code, then its title.
_HEAD = "## "


class Page(NamedTuple):
    """What there is to know of one problem; `text` is Markdown without the title."""

    code: str
    title: str
    text: str


def pages() -> tuple[Page, ...]:
    """Every page, in the order of codes."""
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "pages")
    found: list[Page] = []
    for name in sorted(os.listdir(folder)):
        if name.endswith(".md"):
            with open(os.path.join(folder, name), encoding="utf-8") as stream:
                found += _pages(stream.read())
    return tuple(sorted(found))


def _pages(text: str) -> list[Page]:
    found = []
    for part in f"\n{text}".split(f"\n{_HEAD}")[1:]:
        head, _, body = part.partition("\n")
        code, _, title = head.partition(" ")
        found.append(Page(code, title, body.strip()))
    return found


def page(code: str) -> Page | None:
    """The page of a code, whatever its case, or `None`."""
    wanted = code.upper()
    return next((one for one in pages() if one.code == wanted), None)
