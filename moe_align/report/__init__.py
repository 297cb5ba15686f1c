"""Values → text or JSON strings, for people and for programs. Nothing is read or printed here."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

#: The version of every shape that `--json` prints.
SHAPE = 1


def json_text(plain: Mapping[str, object]) -> str:
    """A shape as JSON, indented for people."""
    import json

    return json.dumps(plain, indent=2, ensure_ascii=False)
