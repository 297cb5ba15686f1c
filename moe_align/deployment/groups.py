"""The reverse question of quantizers: which block and group sizes survive a split."""

from __future__ import annotations

from ..record import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..models import Model

#: Sizes that formats and kernels have, widest first.
SIZES = (256, 128, 64, 32, 16)


class Survivor(NamedTuple):
    """One block or group size: whether it divides the hidden size, and the TP sizes it survives.

    `at` says whether it survives the split that was asked about.
    """

    size: int
    divides_hidden: bool
    tps: tuple[int, ...]
    at: bool


class Groups(NamedTuple):
    """The sizes of one model over `tp` ranks; `shard` is one rank's part, `None` where it is not whole."""

    model: Model
    tp: int
    hidden: int
    intermediate: int
    shard: int | None
    survivors: tuple[Survivor, ...]

    @property
    def best(self) -> int | None:
        """The widest size that survives: fewest scales."""
        return next((one.size for one in self.survivors if one.at), None)


def survivors(model: Model, tp: int, most_tp: int = 64) -> Groups | None:
    """Which sizes cut no block between ranks; `None` where the model's sizes are not known.

    Down projections have the shard as their reduction dimension, up projections the hidden size: a
    block or group must divide both, or two ranks would share its scale.
    """
    hidden, width = model.routed_hidden_size, model.moe_intermediate_size
    if hidden is None or width is None:
        return None
    shard = width // tp if width % tp == 0 else None
    found = tuple(_survivor(size, hidden, width, tp, most_tp) for size in SIZES)
    return Groups(model, tp, hidden, width, shard, found)


def _survivor(size: int, hidden: int, width: int, tp: int, most_tp: int) -> Survivor:
    divides = hidden % size == 0
    tps = tuple(ranks for ranks in range(1, most_tp + 1) if width % (ranks * size) == 0) if divides else ()
    return Survivor(size, divides, tps, divides and width % (tp * size) == 0)
