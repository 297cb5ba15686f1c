"""The answer of `group-size`, as text and as plain values for JSON."""

from __future__ import annotations

from . import SHAPE
from .lines import Style, table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..deployment.groups import Groups, Survivor

    Plain = dict[str, object]


def groups_plain(groups: Groups) -> Plain:
    """The answer as `--json` gives it."""
    return {
        "version": SHAPE,
        "model": groups.model.name,
        "tp": groups.tp,
        "hidden": groups.hidden,
        "intermediate": {"whole": groups.intermediate, "per_rank": groups.shard},
        "sizes": [
            {"size": one.size, "survives": one.at, "divides_hidden": one.divides_hidden, "tp": list(one.tps)}
            for one in groups.survivors
        ],
        "best": groups.best,
    }


def groups_text(groups: Groups, style: Style) -> str:
    """The answer as a person reads it."""
    shard = groups.shard
    said = f"{groups.intermediate} / {groups.tp} = {shard if shard is not None else 'no whole number'}"
    if groups.best is not None:
        head = style.paint(f"group or block of {groups.best} or less survives TP {groups.tp}", "good")
    else:
        head = style.paint(f"no group or block survives TP {groups.tp}", "bad")
    rows = [_row(one, groups) for one in groups.survivors]
    columns = ["size", f"at TP {groups.tp}", "blocks per rank", "survives TP"]
    about = f"{groups.model.name}   hidden {groups.hidden} · intermediate {said}"
    return "\n".join([head, style.paint(about, "faint"), "", *table(style, columns, rows)])


def _row(one: Survivor, groups: Groups) -> list[str]:
    if not one.divides_hidden:
        return [str(one.size), "no", "–", f"none: {groups.hidden} is no multiple of it"]
    blocks = "–" if groups.shard is None else f"{groups.shard / one.size:.2f}".rstrip("0").rstrip(".")
    tps = ", ".join(map(str, one.tps)) or "none"
    return [str(one.size), "yes" if one.at else "no", blocks, tps]
