"""What was found of saved weights, as text and as plain values for JSON."""

from __future__ import annotations

from ..record import NamedTuple
from . import SHAPE
from .lines import Row, Style, prose_table, rows, table
from .words import GIB, listed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ..cost import Cost
    from ..snapshot.account import Account, PerRank, Share
    from ..snapshot.check import Checked
    from ..snapshot.check import Row as Checks
    from ..snapshot.manifest import Manifest
    from ..snapshot.repad import Repadded

    Plain = dict[str, object]


class Allocated(NamedTuple):
    """What a decision makes of routed experts: a layer's bytes on a rank, and its sizes before and after."""

    rule: str | None
    native: int
    allocated: int
    cost: Cost


_SAID = {
    "fits": ("Fits", "good"),
    "cannot know": ("Cannot be known", "warn"),
    "would fail": ("Would fail to load", "bad"),
    "would load silently wrong": ("Would load silently wrong", "bad"),
}

_NAMES = {"routed": "routed experts", "shared": "shared experts", "dense": "dense MLPs", "router": "routers"}


def check_plain(found: Checked, digest: str) -> Plain:
    """The answer of `snapshot check` as `--json` gives it."""
    return {
        "version": SHAPE,
        "verdict": found.verdict,
        "sharded": found.sharded,
        "layout": found.layout,
        "manifest": found.has_manifest,
        "tensors": [_row_plain(row) for row in found.rows],
        "faults": list(found.faults),
        "reasons": [{"verdict": verdict, "reason": reason} for verdict, reason in found.reasons],
        "policy": digest,
    }


def _row_plain(row: Checks) -> Plain:
    return {
        "tensor": row.tensor,
        "first": row.first,
        "count": row.tensors,
        "dtype": row.dtype,
        "saved": list(row.saved),
        "wanted": list(row.wanted) if row.wanted is not None else None,
        "verdict": row.verdict,
        "reason": row.reason,
    }


#: So many faults of files are shown.
_MOST = 12


def check_text(found: Checked, style: Style) -> str:
    """The answer of `snapshot check` as a person reads it."""
    said, role = _SAID[found.verdict]
    about = ["saved by ranks" if found.sharded else "a checkpoint"]
    if found.layout:
        about.append(f"layout {found.layout}" + (", by its manifest" if found.has_manifest else ""))
    lines = [style.paint(said, role) + "     " + " · ".join(about)]
    body = [_row_cells(row) for row in found.rows]
    if body:
        lines += prose_table(style, ("tensor", "saved", "wanted", "tensors", "outcome"), body)
    notes = [Row("file", [fault], "bad") for fault in found.faults[:_MOST]]
    if len(found.faults) > _MOST:
        notes.append(Row("", [f"and {len(found.faults) - _MOST} more"]))
    notes += [Row("reason", [reason], _SAID[verdict][1]) for verdict, reason in found.reasons]
    return "\n".join([*lines, *rows(style, notes)])


def _row_cells(row: Checks) -> tuple[str, ...]:
    outcome = f"{row.verdict}: {row.reason}" if row.reason else row.verdict
    wanted = _times(row.wanted) if row.wanted else "–"
    return row.tensor, f"{_times(row.saved)} {row.dtype}", wanted, str(row.tensors), outcome


def _times(shape: Sequence[int]) -> str:
    return " × ".join(map(str, shape)) or "1"


def account_plain(found: Account, share: PerRank | None, allocated: Allocated | None) -> Plain:
    """The answer of `snapshot account` as `--json` gives it; sizes in bytes."""
    return {
        "version": SHAPE,
        "files": found.files,
        "tensors": found.tensors,
        "sharded": found.sharded,
        "bytes": found.bytes,
        "kinds": {
            kind.name: {"bytes": kind.bytes, "mtp": kind.mtp, "tensors": kind.tensors} for kind in found.kinds
        },
        "layers": {"moe": found.moe_layers, "mtp": found.mtp_layers},
        "largest_rank": found.largest_rank if found.sharded else None,
        "per_rank": _share_plain(share) if share else None,
        "allocated": _allocated_plain(found, allocated) if allocated else None,
    }


def _share_plain(share: PerRank) -> Plain:
    def sums(shares: Sequence[Share]) -> Plain:
        return {"least": sum(one.least for one in shares), "most": sum(one.most for one in shares)}

    return {
        "tp": share.tp,
        "expert_ranks": share.expert_ranks,
        "kinds": {one.name: {"least": one.least, "most": one.most} for one in share.shares},
        **sums(share.shares),
        "without_mtp": sums(share.without_mtp),
    }


def _allocated_plain(found: Account, allocated: Allocated) -> Plain:
    cost = allocated.cost
    layers = {"with_mtp": found.moe_layers + found.mtp_layers, "without_mtp": found.moe_layers}
    sizes = {"native": cost.native, "created": cost.created, "resident": cost.resident}
    return {
        "rule": allocated.rule,
        "intermediate": {"native": allocated.native, "allocated": allocated.allocated},
        **{
            name: {key: size * count if size is not None else None for key, size in sizes.items()}
            for name, count in layers.items()
        },
    }


def account_text(
    found: Account, share: PerRank | None, allocated: Allocated | None, ranks: str, style: Style
) -> str:
    """The answer of `snapshot account`; `ranks` says in words how the model is deployed."""
    head = f"{found.files} files · {found.tensors} tensors · {_gib(found.bytes)} GiB, from headers alone"
    body = [
        (_NAMES.get(kind.name, kind.name), _gib(kind.bytes), _gib(kind.mtp), str(kind.tensors))
        for kind in found.kinds
        if kind.tensors
    ]
    lines = [head, *table(style, ("kind", "GiB", "of it MTP", "tensors"), body)]
    if found.sharded:
        lines.append(f"the largest rank holds {_gib(found.largest_rank)} GiB, as saved")
    if share:
        lines += rows(style, _share_rows(found, share, ranks), _LABEL)
    if allocated:
        lines += rows(style, _allocated_rows(found, allocated), _LABEL)
    return "\n".join(lines)


_LABEL = 14


def _share_rows(found: Account, share: PerRank, ranks: str) -> Iterator[Row]:
    yield Row("on one rank", [ranks])
    with_mtp = _sum(found.routed.bytes, share.expert_ranks, share.shares)
    if not found.mtp_layers:
        yield Row("", [with_mtp])
        return
    yield Row("with MTP", [with_mtp])
    routed = found.routed
    yield Row("without MTP", [_sum(routed.bytes - routed.mtp, share.expert_ranks, share.without_mtp)])


def _sum(routed: int, ranks: int, shares: Sequence[Share]) -> str:
    """The sum for one rank: routed experts over ranks, and everything else."""
    least, most = sum(one.least for one in shares), sum(one.most for one in shares)
    own = next(one.least for one in shares if one.name == "routed")
    if least == most:
        return f"{_gib(routed)} / {ranks} + {_gib(most - own)} = {_gib(most)} GiB"
    return (
        f"{_gib(routed)} / {ranks} + {_gib(least - own)} to {_gib(most - own)}"
        f" = {_gib(least)} to {_gib(most)} GiB, by what attention layers copy"
    )


def _allocated_rows(found: Account, allocated: Allocated) -> Iterator[Row]:
    sizes = f"intermediate {allocated.native} → {allocated.allocated}"
    yield Row("as allocated", [sizes, *([allocated.rule] if allocated.rule else [])])
    counts = [("with MTP", found.moe_layers + found.mtp_layers)] if found.mtp_layers else []
    for label, count in [*counts, ("without MTP" if found.mtp_layers else "", found.moe_layers)]:
        yield Row(label, [f"routed experts {_three(allocated.cost, count)} GiB"])


def _three(cost: Cost, layers: int) -> str:
    sizes = (("native", cost.native), ("created", cost.created), ("resident", cost.resident))
    return " → ".join(f"{_gib(size * layers)} {name}" for name, size in sizes if size is not None)


def _gib(size: int) -> str:
    return f"{size / GIB:.3f}"


def repad_plain(done: Repadded, target: str, sizes: Mapping[str, int], compared: int | None) -> Plain:
    """The answer of `snapshot repad` as `--json` gives it."""
    return {
        "version": SHAPE,
        "target": target,
        "saved": done.saved._asdict(),
        "allocated": dict(sizes),
        "files": {"written": done.written, "kept": done.kept},
        "tensors": done.tensors,
        "bytes": done.bytes,
        "compared": compared,
    }


def repad_text(done: Repadded, target: str, sizes: str, compared: int | None) -> str:
    """The answer of `snapshot repad` as a person reads it."""
    kept = f", {done.kept} were there" if done.kept else ""
    said = f"{target}: {done.saved} → {sizes}, {done.tensors} expert tensors in {done.written} files{kept}"
    if compared is None:
        return said
    return f"{said}\n{compared} tensors are those of a fresh shard of the checkpoint"


def manifest_text(manifest: Manifest, file: str) -> str:
    """What was written beside a snapshot."""
    ranks = listed(f"{key} {count}" for key, count in manifest.parallel.items())
    return (
        f"{file}: {manifest.native} native, {manifest.allocated} allocated, {manifest.layout}"
        f" for {manifest.backend or 'a backend that is not known'}, {ranks}"
    )
