"""Saved parameters against the sizes that a policy decides today: what loading them would do."""

from __future__ import annotations

from ..record import NamedTuple
from .folder import read_shards
from .judge import CANNOT_KNOW, FAILS, SILENT, VERDICTS, checkpoint_tensor, engine_tensor, shown
from .layout import CREATED, PROCESSED, WRONG_TWICE
from .manifest import disagreements
from .names import Name, read_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from .folder import Folder, Shard
    from .headers import Header, Tensor
    from .manifest import Manifest
    from .wanted import Wanted


class Row(NamedTuple):
    """Tensors that are alike: what they are saved as, what is wanted, and what loading them would do."""

    tensor: str
    saved: tuple[int, ...]
    dtype: str
    wanted: tuple[int, ...] | None
    verdict: str
    reason: str | None
    tensors: int
    first: str


class Checked(NamedTuple):
    """The answer for a snapshot. `faults` are about its files, `reasons` about all of it."""

    sharded: bool
    layout: str | None
    has_manifest: bool
    rows: tuple[Row, ...]
    faults: tuple[str, ...]
    reasons: tuple[tuple[str, str], ...]

    @property
    def verdict(self) -> str:
        """The worst of everything that was found."""
        found = [row.verdict for row in self.rows] + [verdict for verdict, _ in self.reasons]
        found += [FAILS] if self.faults else []
        return max(found, key=VERDICTS.index, default=CANNOT_KNOW)


def check(folder: Folder, wanted: Wanted, manifest: Manifest | None) -> Checked:
    """What would happen if this snapshot were loaded as `wanted` says.

    A manifest is trusted where there is one; shapes in headers are looked at all the same.
    """
    seen = _Seen(folder, wanted)
    for shard, header, fault in read_shards(folder):
        if header is None:
            seen.faults.append(fault or "")
        else:
            seen.file(shard, header)
    if not seen.counts:
        seen.faults.append("no tensor of a routed expert is in it")
    faults = (*folder.faults, *seen.faults, *seen.gaps())
    layout = _layout(folder, wanted, manifest)
    reasons = tuple(_reasons(folder, wanted, manifest, layout)) if folder.sharded else ()
    return Checked(folder.sharded, layout, manifest is not None, tuple(seen.rows()), faults, reasons)


def _layout(folder: Folder, wanted: Wanted, manifest: Manifest | None) -> str | None:
    """What saved parameters are; an engine that saves by itself does so after repacking."""
    if not folder.sharded:
        return None
    if manifest is not None:
        return manifest.layout
    return wanted.layout or (CREATED if wanted.is_left_alone else PROCESSED)


def _reasons(
    folder: Folder, wanted: Wanted, manifest: Manifest | None, layout: str | None
) -> Iterator[tuple[str, str]]:
    """What holds for the whole snapshot, with its verdict."""
    if manifest is not None:
        pp = 1 + max(shard.pp for shard in folder.shards)
        for said in disagreements(manifest, wanted.manifest("", manifest.layout, pp)):
            yield FAILS, f"the manifest: {said}"
    if folder.ranks != wanted.tp:
        yield FAILS, f"files of {folder.ranks} ranks are there, and TP {wanted.tp} loads them"
    if wanted.dp > 1:
        yield CANNOT_KNOW, "names of files have no rank of DP, so ranks of DP overwrite each other's files"
    if layout == PROCESSED and not wanted.is_left_alone:
        yield _repacked_twice(wanted)


def _repacked_twice(wanted: Wanted) -> tuple[str, str]:
    what = f"{wanted.backend or 'the backend'} repacks weights after loading, and was saved after it"
    if wanted.backend in WRONG_TWICE.get(wanted.scheme, ()):
        return SILENT, f"{what}: loading repacks them once more, which was tried and gives other tokens"
    return CANNOT_KNOW, f"{what}: loading repacks them once more, and headers do not tell what that does"


class Group(NamedTuple):
    """Expert tensors that are judged as one: `name` without layer and expert, `experts` those of the rank."""

    name: Name
    dtype: str
    shape: tuple[int, ...]
    experts: int


class _Seen:
    """What was seen of the files so far."""

    def __init__(self, folder: Folder, wanted: Wanted) -> None:
        self.sharded = folder.sharded
        self.wanted = wanted
        self.faults: list[str] = []
        self.first: dict[Group, str] = {}
        self.counts: dict[Group, int] = {}
        self._keys: dict[tuple[int, int], set[int]] = {}
        self._layers: dict[tuple[int, int], set[object]] = {}
        self._experts: dict[int | None, set[int]] = {}

    def file(self, shard: Shard, header: Header) -> None:
        rank = (shard.pp, shard.tp)
        keys = self._keys.setdefault(rank, set())
        for tensor in header.tensors:
            # Hashes in place of names: a million of them fit where the names would not.
            key = hash(tensor.name)
            if key in keys:
                self.faults.append(f"`{tensor.name[:120]}` is in two files: `{shard.path.name}` has it again")
            keys.add(key)
            name = read_name(tensor.name, self.wanted.main_layers)
            if name.kind == "routed":
                self._expert(shard, tensor, name)

    def _expert(self, shard: Shard, tensor: Tensor, name: Name) -> None:
        if self.sharded:
            self._layers.setdefault((shard.pp, shard.tp), set()).add((name.layer, name.projection, name.part))
        elif name.expert is not None:
            self._experts.setdefault(name.layer, set()).add(name.expert)
        rank = shard.tp if self.sharded else 0
        share = self.wanted.local_experts(rank) if self.sharded else self.wanted.experts
        like = name._replace(layer=None, is_mtp=False, expert=0 if name.expert is not None else None)
        group = Group(like, tensor.dtype, tensor.shape, share)
        self.first.setdefault(group, tensor.name)
        self.counts[group] = self.counts.get(group, 0) + 1

    def gaps(self) -> Iterator[str]:
        """Layers and experts that some rank, or some layer, lacks."""
        for (pp, tp), found in sorted(self._layers.items()):
            others = [layers for (stage, _), layers in self._layers.items() if stage == pp]
            missing = len(set().union(*others) - found)
            if missing:
                yield f"rank {tp} lacks {missing} expert tensors that other ranks have"
        lacking = [
            layer for layer, experts in self._experts.items() if len(experts) not in (0, self.wanted.experts)
        ]
        if lacking:
            count = len(self._experts[lacking[0]])
            yield f"{count} of {self.wanted.experts} experts in layer {lacking[0]}" + (
                f" and {len(lacking) - 1} more layers" if len(lacking) > 1 else ""
            )

    def rows(self) -> Iterator[Row]:
        judge = engine_tensor if self.sharded else checkpoint_tensor
        for group, count in self.counts.items():
            judged = judge(self.wanted, group.name, group.shape, group.dtype, group.experts)
            yield Row(shown(group.name), group.shape, group.dtype, *judged, count, self.first[group])
