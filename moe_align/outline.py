"""What a policy decides of a layer whatever its sizes are: new sizes then cost arithmetic, not rules.

Most rules ask about a backend or a platform, and round sizes up. Where the decision for open sizes is one
and takes every size, it holds for any: sizes, pads and contracts alone are worked out for those given.
"""

from __future__ import annotations

from .contracts import about, checked
from .decision import Decision, Launch, Size, decision_of
from .facts import FIRST_SIZES, SIZES
from .flow import Dimension, apply, declared, entering, walked
from .known import known
from .record import NamedTuple
from .resolve import Passed, Step, leaves

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .contracts import Candidate
    from .facts import Facts
    from .flow import Flow
    from .packs import Condition, Outcome, Rule
    from .resolve import Leaf, Missed
    from .stack import Stack

    Taken = tuple[tuple[str, Any], ...]

#: Facts that follow from sizes.
_SIZED = frozenset({*SIZES, *FIRST_SIZES, "intermediate"})


class _After(NamedTuple):
    """A step of the decision: what has been done to each size when it is over."""

    phase: str
    rule: Rule
    hidden: Taken
    intermediate: Taken


class Outline(NamedTuple):
    """The decision for open sizes, the one leaf behind it, and what is left to do for given ones.

    `allocates` is the place of the step, among those of `after`, with whose sizes weights are created.
    """

    decision: Decision
    leaf: Leaf
    after: tuple[_After, ...]
    allocates: int
    declares: Outcome | None
    contracts: tuple[Candidate, ...]

    def decided(self, hidden: int, intermediate: int, *, trace: bool = True) -> Decision:
        """The decision for a hidden size and an intermediate size per partition, in elements."""
        of = self.decision
        steps = tuple(
            [
                Step(phase, rule, walked(hidden, one), walked(intermediate, two))
                for phase, rule, one, two in self.after
            ]
        )
        created, last = steps[self.allocates], steps[-1]
        derived = self._derived(hidden, intermediate)
        launch: Launch | None = None
        checks = of.contracts
        if self.declares is not None or self.contracts:
            flow = self.leaf.flow._replace(
                hidden=_sized(self.leaf.flow.hidden, hidden),
                intermediate=_sized(self.leaf.flow.intermediate, intermediate),
            )
            flow = flow if self.declares is None else declared(self.declares, flow)
            launch = Launch(*flow.pads) if flow.pads is not None else None
            checks = checked(self.contracts, self._leaf(flow, derived))
        return Decision(
            of.status,
            Size(hidden, created.hidden, last.hidden, of.hidden.multiple),
            Size(intermediate, created.intermediate, last.intermediate, of.intermediate.multiple),
            of.rule,
            steps,
            launch,
            checks,
            of.backend,
            of.experts,
            of.blocks,
            of.storage,
            of.rows,
            of.columns,
            of.assumed,
            {**of.implied, **derived},
            of.open,
            of.alternatives,
            of.reason,
            of.error,
            of.missed if trace else (),
            of.pads_text,
            of.notes,
        )

    def _derived(self, hidden: int, intermediate: int) -> dict[str, int]:
        """The facts that follow from the sizes."""
        derived = {"native_hidden": hidden, "native_intermediate": intermediate}
        ranks = self.leaf.state.values.get("moe_tp")
        if isinstance(ranks, int):
            derived["intermediate"] = intermediate * ranks
        return derived

    def _leaf(self, flow: Flow, derived: dict[str, int]) -> Leaf:
        state = self.leaf.state
        sizes = {"hidden": flow.hidden.size, "intermediate_per_partition": flow.intermediate.size}
        values: dict[str, Any] = {**state.values, **derived, **sizes}
        return self.leaf._replace(state=state.having(values), flow=flow)


def outline(stack: Stack, facts: Facts) -> Outline | None:
    """What is decided of `facts`, which name no size, or `None` where it depends on the sizes."""
    state = known(stack.vocabulary, facts)
    found = leaves(stack, state)
    if len(found) != 1 or found[0].status != "decided" or _asks_for_sizes(found[0]):
        return None
    after: list[_After] = []
    declares, flow, now = None, entering(state), state
    for phase, rule, _, _ in found[0].steps:
        flow, _, _ = apply(rule, now, flow)
        if not (_takes_all(flow.hidden) and _takes_all(flow.intermediate)):
            return None
        after.append(_After(phase, rule, flow.hidden.steps, flow.intermediate.steps))
        declares = rule.outcome if rule.outcome.form == "declare" else declares
    decision = decision_of(stack, state, found)
    allocates = [step.phase for step in after].index("allocate")
    return Outline(decision, found[0], tuple(after), allocates, declares, about(stack, found[0]))


def _sized(dimension: Dimension, size: int) -> Dimension:
    """An open dimension with the size that enters."""
    created = dimension.created and _sized(dimension.created, size)
    return Dimension(size, walked(size, dimension.steps), created, dimension.multiple)


def _asks_for_sizes(leaf: Leaf) -> bool:
    """Whether the first condition that fails of some other rule may be one on a size."""
    return any(condition.key in _SIZED for miss in leaf.misses for condition in _tried(miss))


def _tried(miss: Missed) -> tuple[Condition, ...]:
    """The conditions that may be the first to fail: none that stands behind one which does."""
    conditions = miss.pack.needs if isinstance(miss, Passed) else miss.rule.when + miss.rule.unless
    failed = [number for number, condition in enumerate(conditions) if condition is miss.condition]
    return conditions[: failed[0] + 1] if failed else conditions


def _takes_all(dimension: Dimension) -> bool:
    """Whether any size may be what is open here."""
    return dimension.size is None and not (
        dimension.needs or dimension.required or dimension.pending or dimension.native
    )
