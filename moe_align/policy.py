"""A policy: the stack of layers with the questions that one asks of it."""

from __future__ import annotations

from .decision import Decision, Difference, decision, differences
from .facts import SIZES, Facts
from .known import known
from .stack import Stack

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar, Unpack

    from .facts import Given
    from .outline import Outline

    K = TypeVar("K")
    V = TypeVar("V")

#: So many decisions, and so many outlines of them, are kept; above that the memo starts anew.
MOST_KEPT = 4096


def _keep(memo: dict[K, V], key: K, value: V) -> None:
    if len(memo) >= MOST_KEPT and key not in memo:
        memo.clear()
    memo[key] = value


class Policy:
    """Ordered rules and contracts of all layers. Frozen, thread-safe, picklable.

    `load_policy` makes one from YAML, `load_compiled` from a compiled file.
    """

    __slots__ = ("_digest", "_memo", "_outlines", "stack")

    stack: Stack
    _digest: str | None
    _memo: dict[Facts, Decision]
    _outlines: dict[frozenset[tuple[str, str | int]], Outline | bool]

    def __init__(self, stack: Stack) -> None:
        object.__setattr__(self, "stack", stack)
        object.__setattr__(self, "_memo", {})
        object.__setattr__(self, "_outlines", {})
        object.__setattr__(self, "_digest", None)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a policy is frozen")

    def __reduce__(self) -> tuple[object, ...]:
        return (Policy, (self.stack,))

    @property
    def digest(self) -> str:
        """SHA-256 over rules, contracts and vocabulary: equal digests decide alike."""
        if self._digest is None:
            from .compile import digest

            object.__setattr__(self, "_digest", digest(self.stack))
        return self._digest  # type: ignore[return-value]  # set just above

    def resolve(self, facts: Facts, *, trace: bool = True) -> Decision:
        """The decision for one expert layer; without `trace` faster, and with none.

        Raises:
            PolicyError: names that no pack declares, facts that contradict each other.
        """
        memo = self._memo
        kept = memo.get(facts)
        if kept is None or (trace and not kept.missed):
            kept = self._outlined(facts, trace) or decision(
                self.stack, known(self.stack.vocabulary, facts), trace=trace
            )
            _keep(memo, facts, kept)
        return kept

    def _outlined(self, facts: Facts, trace: bool) -> Decision | None:
        """The decision by what is decided whatever the sizes are: from the second pair of sizes on."""
        apart = facts.apart_from_sizes()
        if apart is None:
            return None
        rest, hidden, intermediate = apart
        outlines = self._outlines
        kept = outlines.get(rest)
        if kept is None:
            _keep(outlines, rest, True)  # of many layers nobody asks again
            return None
        if kept is True:
            from .outline import outline

            kept = outline(self.stack, facts.without(*SIZES)) or False
            _keep(outlines, rest, kept)
        if kept is False:
            return None
        assert kept is not True
        return kept.decided(hidden, intermediate, trace=trace)

    def differences(self, facts: Facts, of: Callable[[str], bool] | None = None) -> tuple[Difference, ...]:
        """Which assumed facts would change the sizes, and to what; `of` says which are asked about.

        Raises:
            PolicyError: as `resolve`.
        """
        return differences(self.stack, known(self.stack.vocabulary, facts), of)

    def bind(self, **given: Unpack[Given]) -> Callable[..., tuple[int, int]]:
        """The two sizes as a function, for facts that stay the same in a process.

        The function takes the facts that rules still look at, and the two sizes, as keywords.

        Raises:
            PolicyError: as `resolve`.
        """
        from .bind import Sizes

        return Sizes(self, Facts(**given)).sizes

    def without_implications(self) -> Policy:
        """The same rules with a vocabulary in which no value implies another."""
        return Policy(self.stack._replace(vocabulary=self.stack.vocabulary.without_implications()))
