"""Exact set algebra over facts: sets of one fact, and regions of many facts together.

Each name is loaded when it is first used: a serving process needs the sets of one fact alone.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from moe_align.space.box import Box as Box
    from moe_align.space.box import Space as Space
    from moe_align.space.implications import Implications as Implications
    from moe_align.space.index import FEW as FEW
    from moe_align.space.index import Index as Index
    from moe_align.space.ints import Ints as Ints
    from moe_align.space.region import Region as Region
    from moe_align.space.region import outside as outside
    from moe_align.space.residues import SpaceTooLarge as SpaceTooLarge
    from moe_align.space.sets import FactSet as FactSet
    from moe_align.space.sets import Member as Member
    from moe_align.space.sets import Point as Point
    from moe_align.space.values import Values as Values
    from moe_align.versions import VersionSet as VersionSet

_HOMES = {
    "Box": "space.box",
    "FactSet": "space.sets",
    "Implications": "space.implications",
    "FEW": "space.index",
    "Index": "space.index",
    "Ints": "space.ints",
    "Member": "space.sets",
    "Point": "space.sets",
    "Region": "space.region",
    "Space": "space.box",
    "SpaceTooLarge": "space.residues",
    "Values": "space.values",
    "VersionSet": "versions",
    "outside": "space.region",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module `{__name__}` has no attribute `{name}`")
    # `importlib` would load `warnings` as well.
    value = getattr(__import__(f"moe_align.{_HOMES[name]}", fromlist=[name]), name)
    globals()[name] = value
    return value
