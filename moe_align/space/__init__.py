"""Exact set algebra over facts: sets of one fact, and regions of many facts together."""

from __future__ import annotations

from moe_align.space.ints import Ints
from moe_align.space.residues import SpaceTooLarge
from moe_align.space.values import Values
from moe_align.versions import VersionSet

__all__ = ["Ints", "SpaceTooLarge", "Values", "VersionSet"]
