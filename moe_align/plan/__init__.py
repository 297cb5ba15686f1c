"""Verdicts before a byte is loaded: `check` for one deployment, `plan` for all that fit on some GPUs."""

from __future__ import annotations

from .check import Dim, Report, Scenario, Way, check
from .outcome import LOADS, VERDICTS, Outcome, outcome

__all__ = ["LOADS", "VERDICTS", "Dim", "Outcome", "Report", "Scenario", "Way", "check", "outcome"]
