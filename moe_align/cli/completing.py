"""What a shell may complete: the values of facts, rules, models."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..errors import PolicyError


def values_of(key: str) -> Callable[[str], list[str]]:
    """Completes the values of one fact, as the rules of the environment name them."""

    def complete(incomplete: str) -> list[str]:
        from ..cache import cached_policy

        # Rules that cannot be read are the command's to report, not the completion's.
        try:
            return starting(incomplete, cached_policy().stack.vocabulary.domain(key))
        except PolicyError:
            return []

    return complete


def starting(incomplete: str, names: Iterable[str]) -> list[str]:
    """The names that begin as what was typed, whatever its case."""
    return sorted(name for name in names if name.lower().startswith(incomplete.lower()))
