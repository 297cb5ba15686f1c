"""Where the bytes of a snapshot go: by kind, and on one rank of a deployment; headers alone are read."""

from __future__ import annotations

from ..record import NamedTuple
from ..sizes import ceil_div
from .folder import whole_shards
from .names import KINDS, read_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from .folder import Folder


class Kind(NamedTuple):
    """The bytes of one kind of tensors; `mtp` are those of layers that predict further tokens."""

    name: str
    bytes: int
    mtp: int
    tensors: int


class Account(NamedTuple):
    """All bytes of a snapshot, by kind, and the layers that have routed experts, those of MTP apart.

    `largest_rank` are the bytes of the rank that holds most, in a snapshot that an engine saved.
    """

    files: int
    sharded: bool
    kinds: tuple[Kind, ...]
    moe_layers: int
    mtp_layers: int
    largest_rank: int

    @property
    def routed(self) -> Kind:
        return next(kind for kind in self.kinds if kind.name == "routed")

    @property
    def rest(self) -> Kind:
        """Everything that is no routed expert."""
        others = [kind for kind in self.kinds if kind.name != "routed"]
        return Kind(
            "rest",
            sum(kind.bytes for kind in others),
            sum(kind.mtp for kind in others),
            sum(kind.tensors for kind in others),
        )

    @property
    def tensors(self) -> int:
        return sum(kind.tensors for kind in self.kinds)

    @property
    def bytes(self) -> int:
        return sum(kind.bytes for kind in self.kinds)


class Share(NamedTuple):
    """Bytes of one kind on the rank that holds most: exactly, or between `least` and `most`."""

    name: str
    least: int
    most: int


class PerRank(NamedTuple):
    """What one rank of a deployment holds, with the layers that predict further tokens and without."""

    tp: int
    expert_ranks: int
    shares: tuple[Share, ...]
    without_mtp: tuple[Share, ...]

    @property
    def least(self) -> int:
        """Bytes that the rank holds at least."""
        return sum(share.least for share in self.shares)

    @property
    def most(self) -> int:
        """Bytes that it holds at most; the same where nothing is open."""
        return sum(share.most for share in self.shares)


def account(folder: Folder, main_layers: int | None = None) -> Account:
    """The bytes of all tensors by kind; layers from `main_layers` on predict further tokens.

    Raises:
        PolicyError: a file that is missing or wrong.
    """
    totals = {kind: [0, 0, 0] for kind in KINDS}
    layers: tuple[set[int | None], set[int | None]] = (set(), set())
    ranks: dict[tuple[int, int], int] = {}
    for shard, header in whole_shards(folder):
        rank = (shard.pp, shard.tp)
        ranks[rank] = ranks.get(rank, 0) + sum(tensor.bytes for tensor in header.tensors)
        for tensor in header.tensors:
            name = read_name(tensor.name, main_layers)
            total = totals[name.kind]
            total[0] += tensor.bytes
            total[1] += tensor.bytes if name.is_mtp else 0
            total[2] += 1
            if name.kind == "routed":
                layers[name.is_mtp].add(name.layer)
    kinds = tuple(Kind(name, *total) for name, total in totals.items())
    return Account(
        len(folder.shards), folder.sharded, kinds, len(layers[0]), len(layers[1]), max(ranks.values())
    )


def per_rank(found: Account, values: Mapping[str, object]) -> PerRank:
    """One rank's share of a checkpoint, for the ranks that facts give.

    Routed experts are cut or dealt out over all ranks that take part. What else there is lies whole on each
    rank where `tp` is 1; where it is not, norms and routers do, and of the rest a rank holds at least an
    even part (what an engine copies to all ranks in an attention layer, no header says).
    """
    tp, ranks = _whole(values.get("tp")), _whole(values.get("moe_tp")) * _whole(values.get("moe_ep"))
    return PerRank(
        tp,
        ranks,
        tuple(_share(kind.name, kind.bytes, tp, ranks) for kind in found.kinds),
        tuple(_share(kind.name, kind.bytes - kind.mtp, tp, ranks) for kind in found.kinds),
    )


_ON_EVERY_RANK = frozenset({"router", "norms"})


def _share(name: str, size: int, tp: int, ranks: int) -> Share:
    if name == "routed":
        part = ceil_div(size, ranks)
        return Share(name, part, part)
    return Share(name, size if name in _ON_EVERY_RANK else ceil_div(size, tp), size)


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 1
