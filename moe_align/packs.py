"""What a rule file says, as frozen values: conditions, outcomes, rules, contracts, packs.

`load` makes these from YAML and `compile` from JSON; everything after them knows neither.
"""

from __future__ import annotations

from .errors import Location
from .record import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .space import Ints
    from .versions import VersionSet

    Accepts = frozenset[str] | Ints | VersionSet

#: The version of the rule language, and of the shape of a compiled file; another shape is refused.
LANGUAGE = 1
FORMAT = 3

#: Facts and sizes that leave one phase enter the next.
PHASES = ("model", "select", "dispatch", "allocate", "repack", "launch")

#: The two dimensions of an expert, as files name them, and the fact that holds each.
DIMENSIONS = {"hidden": "hidden", "intermediate": "intermediate_per_partition"}

#: What may be done about a broken contract, worst first.
BREAKS = ("silent", "raises", "slow")


class Condition(NamedTuple):
    """One entry of `when`: the fact `key` must lie in `accepts`; `text` is how a person reads it."""

    key: str
    accepts: Accepts
    text: str


class Multiple(NamedTuple):
    """A multiple of the language; `items` are integers or the names of integer facts.

    `op` is `times` (the one item), `lcm`, `max`, `snap` (the next listed size) or `bytes` (of
    activations, divided by `act_bytes`). `at_least` is the smallest size that may come out.
    """

    op: str
    items: tuple[int | str, ...]
    at_least: int | None = None

    @property
    def is_native(self) -> bool:
        return self == NATIVE

    def __str__(self) -> str:
        head = "native" if self.is_native else _MULTIPLE_TEXT[self.op].format(", ".join(map(str, self.items)))
        if self.at_least is None:
            return head
        return f"at least {self.at_least}" if self.items == (1,) else f"{head}, at least {self.at_least}"


_MULTIPLE_TEXT = {
    "times": "{}",
    "lcm": "lcm({})",
    "max": "max({})",
    "snap": "next of {}",
    "bytes": "{} bytes of activations",
}

NATIVE = Multiple("times", (1,))


class Pad(NamedTuple):
    """What a kernel call is told about padding: `exact`, `zero`, `absent`, or floored and multiplied."""

    form: str
    floor: int = 1
    times: int = 1

    def of(self, actual: int) -> int | None:
        """The declared pad for `actual` padded elements; `None` where the argument is not passed."""
        if self.form == "absent":
            return None
        return 0 if self.form == "zero" else actual // self.floor * self.floor * self.times

    def __str__(self) -> str:
        if self.form != "floor":
            return self.form
        return f"floor({self.floor}) × {self.times}" if self.times != 1 else f"floor({self.floor})"


class Amount(NamedTuple):
    """A fixed number of elements, or of bytes, that storage gains."""

    number: int
    unit: str = "elements"


class Refine(NamedTuple):
    """Quantization blocks become the largest divisor of themselves that divides the size.

    `blocks` are the facts that change (`block_n`, `block_k`, `group`), `fits` the dimension they must
    divide, `floor` the smallest block that the kernels take. Where `fits` is `both`, all blocks become
    the one that divides them and both sizes, unless every block fits already.
    """

    blocks: tuple[str, ...]
    fits: str
    floor: int


class Count(NamedTuple):
    """A number of experts: what it is a multiple of, and the fewest; integers or names of integer facts."""

    multiple: int | str = 1
    at_least: int | str | None = None

    def __str__(self) -> str:
        least = f"at least {self.at_least}" if self.at_least is not None else ""
        return least if self.multiple == 1 else ", ".join(filter(None, (str(self.multiple), least)))


class Outcome(NamedTuple):
    """What a rule does; `form` names the one key it was written with.

    `hidden` and `intermediate` belong to `align`, `require` and `set`, `counted` (experts) to the
    first two; `add` to `add`; `target` is
    the backend of `use` or the reason of `reject`; `pads` belong to `declare`. The last four are
    modifiers: experts added, the engine's exception, and multiples for the rows and columns of
    block scales alone, per tensor.
    """

    form: str
    hidden: Multiple | None = None
    intermediate: Multiple | None = None
    add: tuple[tuple[str, Amount], ...] = ()
    stride: bool = False
    target: str | None = None
    pads: tuple[Pad, Pad] | None = None
    refine: Refine | None = None
    otherwise: Outcome | None = None
    experts: int = 0
    error: str | None = None
    rows: tuple[tuple[str, int], ...] = ()
    columns: tuple[tuple[str, int], ...] = ()
    counted: Count | None = None


class Rule(NamedTuple):
    """One ordered rule of a pack; its address is `pack/id`."""

    pack: str
    id: str
    phase: str
    when: tuple[Condition, ...]
    unless: tuple[Condition, ...]
    outcome: Outcome
    why: str | None
    source: str | None
    evidence: str | None
    location: Location

    @property
    def address(self) -> str:
        return f"{self.pack}/{self.id}"


class Demand(NamedTuple):
    """What a contract demands of one size or declared pad.

    `multiples` is a choice: one of them must divide. `exactly`, `lowest` and `highest` bound the
    value; `native` says that the size may not be padded. For a declared pad, `floor` is how the kernel
    reads it and `at_most_actual` says that the pad as read may not exceed the padding that is there.
    """

    of: str
    multiples: tuple[Multiple, ...] = ()
    exactly: tuple[int, ...] = ()
    lowest: int | None = None
    highest: int | None = None
    floor: int = 1
    at_most_actual: bool = False
    native: bool = False

    @property
    def wanted(self) -> str:
        """What the value must be, in words; how a pad is read and held against the real one is not in it."""
        parts = []
        if self.multiples:
            parts.append("a multiple of " + " or ".join(map(str, self.multiples)))
        if self.exactly:
            parts.append(" or ".join(map(str, self.exactly)))
        if self.native:
            parts.append("native")
        if self.lowest is not None:
            parts.append(f"at least {self.lowest}")
        if self.highest is not None:
            parts.append(f"at most {self.highest}")
        return ", ".join(parts)


class Contract(NamedTuple):
    """What a kernel demands, whoever allocates; its address is `pack/id`.

    `facts` are demands on anything but a size: the activations, architectures, … that the kernel takes.
    """

    pack: str
    id: str
    when: tuple[Condition, ...]
    unless: tuple[Condition, ...]
    demands: tuple[Demand, ...]
    breaks: str
    why: str | None
    source: str | None
    evidence: str | None
    location: Location
    facts: tuple[Condition, ...] = ()

    @property
    def address(self) -> str:
        return f"{self.pack}/{self.id}"


class Pack:
    """One file of rules (with a `phase`) or of contracts (`phase` is `None`).

    `needs` are the facts of `for`, which every rule needs as well; `covers` the releases outside of
    which the pack answers nothing; `layer` the name of the layer that brought it. Frozen. `rules` and
    `contracts` may come as functions that are called when they are first looked at: most questions
    need few packs of a compiled policy.
    """

    __slots__ = ("_contracts", "_rules", "before", "covers", "layer", "location", "name", "needs", "phase")

    name: str
    phase: str | None
    needs: tuple[Condition, ...]
    covers: tuple[Condition, ...]
    before: tuple[str, ...]
    layer: str
    location: Location
    _rules: tuple[Rule, ...] | Callable[[], tuple[Rule, ...]]
    _contracts: tuple[Contract, ...] | Callable[[], tuple[Contract, ...]]

    def __init__(
        self,
        name: str,
        phase: str | None,
        needs: tuple[Condition, ...],
        covers: tuple[Condition, ...],
        before: tuple[str, ...],
        rules: tuple[Rule, ...] | Callable[[], tuple[Rule, ...]],
        contracts: tuple[Contract, ...] | Callable[[], tuple[Contract, ...]],
        layer: str,
        location: Location,
    ) -> None:
        values = (name, phase, needs, covers, before, rules, contracts, layer, location)
        for slot, value in zip(_PACK_SLOTS, values, strict=True):
            object.__setattr__(self, slot, value)

    @property
    def rules(self) -> tuple[Rule, ...]:
        made = self._rules
        if not isinstance(made, tuple):
            made = made()
            object.__setattr__(self, "_rules", made)
        return made

    @property
    def contracts(self) -> tuple[Contract, ...]:
        made = self._contracts
        if not isinstance(made, tuple):
            made = made()
            object.__setattr__(self, "_contracts", made)
        return made

    def having(self, rules: tuple[Rule, ...]) -> Pack:
        """The same pack with other rules."""
        head = self.name, self.phase, self.needs, self.covers, self.before
        return Pack(*head, rules, self.contracts, self.layer, self.location)

    def _parts(self) -> tuple[Any, ...]:
        head = (self.name, self.phase, self.needs, self.covers, self.before)
        return (*head, self.rules, self.contracts, self.layer, self.location)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a pack is frozen")

    def __reduce__(self) -> tuple[object, ...]:
        return Pack, self._parts()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pack) and self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash((self.name, self.layer))


_PACK_SLOTS = ("name", "phase", "needs", "covers", "before", "_rules", "_contracts", "layer", "location")
