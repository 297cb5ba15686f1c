"""MoE expert sizes as data: ordered YAML rules that give what engines allocate, with reasons.

Importing this loads neither YAML nor pydantic, reads no file and no environment; each name is
loaded when it is first used.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .decision import Decision as Decision
    from .deployment import check as check
    from .deployment import plan as plan
    from .errors import PolicyError as PolicyError
    from .errors import Problem as Problem
    from .facts import Facts as Facts
    from .load import load_policy as load_policy
    from .policy import Policy as Policy
    from .restore import load_compiled as load_compiled

__version__ = "0.1.0"

__all__ = [
    "Decision",
    "Facts",
    "Policy",
    "PolicyError",
    "Problem",
    "check",
    "load_compiled",
    "load_policy",
    "plan",
]

_HOMES = {
    "Decision": "decision",
    "Facts": "facts",
    "Policy": "policy",
    "PolicyError": "errors",
    "Problem": "errors",
    "check": "deployment",
    "load_compiled": "restore",
    "load_policy": "load",
    "plan": "deployment",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module `{__name__}` has no attribute `{name}`")
    module = __import__(home, globals(), None, [name], 1)  # `importlib` would load `warnings` as well
    value = getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
