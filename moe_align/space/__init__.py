"""Exact set algebra over facts: sets of one fact, and regions of many facts together."""

from __future__ import annotations

from moe_align.space.box import Box, Space
from moe_align.space.implications import Implications
from moe_align.space.index import Index
from moe_align.space.ints import Ints
from moe_align.space.region import Region, outside
from moe_align.space.residues import SpaceTooLarge
from moe_align.space.sets import FactSet, Member, Point
from moe_align.space.values import Values
from moe_align.versions import VersionSet

__all__ = [
    "Box",
    "FactSet",
    "Implications",
    "Index",
    "Ints",
    "Member",
    "Point",
    "Region",
    "Space",
    "SpaceTooLarge",
    "Values",
    "VersionSet",
    "outside",
]
