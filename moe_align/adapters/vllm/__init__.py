"""The vLLM plugin: expert sizes held against the policy in every process, and set where a user's rule wins.

`MOE_ALIGN_MODE` is `observe` (default: look and report), `apply` (where a rule of a user's layer wins, its
sizes are allocated) or `off`. `MOE_ALIGN_RULES` has the user's layers. `MOE_ALIGN_UNSAFE=1` lets a rule
through that breaks a kernel's contract silently.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .seam import Watcher

#: vLLM configures the logger `vllm` and shows nothing of others.
LOGGER = "vllm.moe_align"

#: The releases whose seam is known; `RoutedExperts` exists since the first of them.
SUPPORTED = ">=0.24,<0.34"

_MODES = ("observe", "apply", "off")


def register() -> None:
    """Watch this process's engine from now on. vLLM calls it in every process, sometimes twice."""
    import os

    mode = os.environ.get("MOE_ALIGN_MODE", "observe").strip().lower()
    if mode not in _MODES:
        raise ValueError(f"MOE_ALIGN_MODE is `{mode}`\n  fix: write one of {', '.join(_MODES)}")
    if mode == "off":
        return
    from functools import cache

    from .seam import install

    mode, unsafe = _supported(mode), os.environ.get("MOE_ALIGN_UNSAFE") == "1"

    @cache
    def session() -> Watcher:
        from .session import Session

        return Session(mode, unsafe=unsafe)

    install(session)


def _supported(mode: str) -> str:
    """The mode, or observe where this vLLM is not one that the adapter knows."""
    import logging

    import vllm

    from ...versions import parse_range, release

    if release(vllm.__version__).key in parse_range(SUPPORTED):
        return mode
    logging.getLogger(LOGGER).warning(
        "moe-align knows vLLM %s, not %s: it observes what it can and changes nothing",
        SUPPORTED,
        vllm.__version__,
    )
    return "observe"
