"""Verdicts before a byte is loaded: `check` for one deployment, `plan` for all that fit on some GPUs.

Each name is loaded when it is first used: the commands that need only the facts of a model load no more.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .checking import Report as Report
    from .checking import check as check
    from .checking import checked as checked
    from .dims import Dim as Dim
    from .layouts import Layout as Layout
    from .layouts import Plan as Plan
    from .layouts import Refused as Refused
    from .layouts import plan as plan
    from .layouts import planned as planned
    from .outcome import Outcome as Outcome
    from .ways import Scenario as Scenario
    from .ways import Way as Way

_HOMES = {
    "Dim": "dims",
    "Layout": "layouts",
    "Outcome": "outcome",
    "Plan": "layouts",
    "Refused": "layouts",
    "Report": "checking",
    "Scenario": "ways",
    "Way": "ways",
    "check": "checking",
    "checked": "checking",
    "plan": "layouts",
    "planned": "layouts",
}

__all__ = [
    "Dim",
    "Layout",
    "Outcome",
    "Plan",
    "Refused",
    "Report",
    "Scenario",
    "Way",
    "check",
    "checked",
    "plan",
    "planned",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module `{__name__}` has no attribute `{name}`")
    from importlib import import_module

    value = getattr(import_module(f".{home}", __name__), name)
    globals()[name] = value
    return value
