"""The allocated sizes as a function, for facts that stay the same in a process: the table behind `bind`."""

from __future__ import annotations

from types import MethodType

from . import facts as keys
from .errors import PolicyError, Problem
from .facts import keys as every_key
from .flow import entering, facts_of
from .known import known
from .packs import DIMENSIONS, PHASES
from .resolve import NO, leaves, verdict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .facts import Facts
    from .flow import Dimension
    from .known import Known
    from .packs import Pack, Rule
    from .policy import Policy
    from .stack import Stack

#: So many combinations of facts are kept by one bound function; above that it starts anew.
MOST_BOUND = 4096


class Sizes:
    """What `bind` keeps: `sizes` is the function, with a signature of just the keywords that matter.

    `sizes(backend=…, activation=…, hidden=7168, intermediate_per_partition=384)` gives the allocated
    hidden size and intermediate size per partition. Where a layer has no sizes it raises `PolicyError`
    with the reason. Picklable; safe in threads: its table only ever gains equal entries.
    """

    __slots__ = ("given", "keywords", "policy", "sizes")

    policy: Policy
    given: Facts
    keywords: tuple[str, ...]
    sizes: Callable[..., tuple[int, int]]

    def __init__(self, policy: Policy, given: Facts) -> None:
        keywords = _keywords(policy.stack, known(policy.stack.vocabulary, given))
        object.__setattr__(self, "policy", policy)
        object.__setattr__(self, "given", given)
        object.__setattr__(self, "keywords", keywords)
        # A bound method costs what a function does, an instance that is called twice as much; and
        # pickle takes it apart into this object and the name `sizes`.
        object.__setattr__(self, "sizes", MethodType(_function(policy, given, keywords), self))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("bound sizes are frozen")

    def __reduce__(self) -> tuple[object, ...]:
        return (Sizes, (self.policy, self.given))


def _keywords(stack: Stack, state: Known) -> tuple[str, ...]:
    """The facts that rules may still look at, and those that imply them, in the order of the key tables."""
    looked_at: set[str] = set()
    flow = entering(state)
    for phase in PHASES[:-1]:
        for pack in stack.phases[phase]:
            if verdict(pack.needs, (), state, flow)[0] is NO:
                continue
            for rule in pack.rules:
                if verdict(rule.when, rule.unless, state, flow)[0] is not NO:
                    looked_at |= _looked_at(pack, rule)
    looked_at |= {other for key in looked_at for other in stack.vocabulary.implying(key)}
    settled = set(state.given) | set(DIMENSIONS.values()) | set(keys.FIRST_SIZES)
    return tuple(key for key in every_key() if key in looked_at and key not in settled)


def _looked_at(pack: Pack, rule: Rule) -> set[str]:
    outcomes = [outcome for outcome in (rule.outcome, rule.outcome.otherwise) if outcome]
    conditions = (*pack.needs, *pack.covers, *rule.when, *rule.unless)
    multiples = [multiple for outcome in outcomes for multiple in (outcome.hidden, outcome.intermediate)]
    return (
        {condition.key for condition in conditions}
        | {key for multiple in multiples if multiple for key in facts_of(multiple)}
        | {block for outcome in outcomes if outcome.refine for block in outcome.refine.blocks}
        | {key for outcome in outcomes if outcome.counted for key in outcome.counted if isinstance(key, str)}
    )


def _function(policy: Policy, given: Facts, keywords: tuple[str, ...]) -> Callable[..., tuple[int, int]]:
    """A function whose signature has just the keywords that matter: a general one costs twice as much.

    Its text holds nothing but names of the closed set of facts.
    """
    arguments = "".join(f", {key}=None" for key in keywords)
    values = "".join(f"{key}, " for key in keywords)
    text = (
        "def make(get, miss):\n"
        f"    def sizes(self, *, hidden, intermediate_per_partition{arguments}):\n"
        f"        plan = get(({values}))\n"
        "        if plan is None:\n"
        f"            return miss(({values}), hidden, intermediate_per_partition)\n"
        "        h, i = plan\n"
        "        return -(-hidden // h) * h, -(-intermediate_per_partition // i) * i\n"
        "    return sizes\n"
    )
    names: dict[str, Any] = {}
    exec(text, names)
    table: dict[tuple[object, ...], tuple[int, int]] = {}

    def miss(values: tuple[object, ...], hidden: int, intermediate_per_partition: int) -> tuple[int, int]:
        facts = given.having(**dict(zip(keywords, values, strict=True)))  # type: ignore[arg-type]
        plan = _plan(policy, facts)
        if plan is not None:
            if len(table) >= MOST_BOUND:
                table.clear()
            table[values] = plan
        return _resolved(
            policy, facts.having(hidden=hidden, intermediate_per_partition=intermediate_per_partition)
        )

    function: Callable[..., tuple[int, int]] = names["make"](table.get, miss)
    return function


def _plan(policy: Policy, facts: Facts) -> tuple[int, int] | None:
    """The two multiples, if rounding up to them is all that happens whatever the sizes."""
    found = leaves(policy.stack, known(policy.stack.vocabulary, facts))
    if len(found) != 1 or found[0].status != "decided":
        return None
    flow = found[0].flow
    if _may_refuse(flow.hidden) or _may_refuse(flow.intermediate):
        return None
    hidden, intermediate = (_only_rounded(size.created or size) for size in (flow.hidden, flow.intermediate))
    return None if hidden is None or intermediate is None else (hidden, intermediate)


def _may_refuse(dimension: Dimension) -> bool:
    """Whether a phase takes only some sizes, if one after allocation."""
    snapped = any(step == "snap" for step, _ in dimension.steps)
    return dimension.required or bool(dimension.needs) or snapped


def _only_rounded(dimension: Dimension) -> int | None:
    """The multiple to which an open size is rounded up, if nothing else is done to it."""
    if dimension.native is not None:
        return None
    if not dimension.steps:
        return 1
    (step, by), *more = dimension.steps
    return None if more or step != "round_up" else int(by)


def _resolved(policy: Policy, facts: Facts) -> tuple[int, int]:
    decision = policy.resolve(facts)
    hidden, intermediate = decision.hidden.allocated, decision.intermediate.allocated
    if decision.status == "rejected" or hidden is None or intermediate is None:
        raise PolicyError(
            [Problem("D601", f"{decision.status}: {decision.reason}", "see `moe-align explain`")]
        )
    return hidden, intermediate
