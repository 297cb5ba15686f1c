"""A sharded snapshot against the checkpoint that it came from: every live cell, and every pad."""

from __future__ import annotations

from ..errors import PolicyError, Problem
from ..layout import WHOLE
from ..parallel import vllm_experts
from ..record import NamedTuple
from .folder import whole_shards
from .headers import BITS
from .layout import SCALES, WEIGHTS, is_number, parameter_of
from .names import read_name
from .rewrite import need_numpy, neutral_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy

    from .folder import Folder
    from .headers import Tensor
    from .layout import Axis, Parameter
    from .names import Name
    from .wanted import Wanted

    Cells = numpy.ndarray[tuple[int, int, int], numpy.dtype[numpy.uint8]]

#: What a projection of a checkpoint is found by: layer, expert, projection, and part.
Key = tuple[int | None, int | None, str | None, str]


class Place(NamedTuple):
    """Where a tensor's bytes are."""

    path: Path
    begin: int
    tensor: Tensor


def compare(folder: Folder, checkpoint: Folder, wanted: Wanted) -> Iterator[tuple[str, str | None]]:
    """Each expert tensor of a snapshot, with how it differs from a fresh shard of the checkpoint (or `None`).

    Raises:
        PolicyError: a checkpoint without a tensor for each expert, or files that are wrong.
    """
    need_numpy()
    known = _places(checkpoint, wanted)
    for shard, header in whole_shards(folder):
        for tensor in header.tensors:
            name = read_name(tensor.name, wanted.main_layers)
            if name.kind != "routed" or is_number(wanted.scheme, name.part) or not _group(name.part):
                continue
            parameter = parameter_of(
                wanted.layer(tensor.shape[0], wanted.allocated),
                name.projection or "",
                name.part,
                interleaved=wanted.interleaved,
            )
            place = Place(shard.path, header.data + tensor.begin, tensor)
            if parameter is None or tensor.shape != parameter.shape(tensor.shape[0], *wanted.allocated):
                yield tensor.name, f"{list(tensor.shape)} is no shape of {wanted.allocated}"
            else:
                yield tensor.name, _differs(place, name, parameter, known, wanted, shard.tp)


def _places(checkpoint: Folder, wanted: Wanted) -> dict[Key, Place]:
    known: dict[Key, Place] = {}
    for shard, header in whole_shards(checkpoint):
        for tensor in header.tensors:
            name = read_name(tensor.name, wanted.main_layers)
            if name.kind == "routed" and name.expert is not None:
                key = (name.layer, name.expert, name.projection, _group(name.part))
                known[key] = Place(shard.path, header.data + tensor.begin, tensor)
    if not known:
        said = f"`{checkpoint.path}` has no tensor for each expert, with which one could compare"
        raise PolicyError([Problem("N010", said)])
    return known


def _group(part: str) -> str:
    """What a part is called whoever names it; empty where it is none that is compared."""
    return "weight" if part in WEIGHTS else "scale" if part in SCALES else ""


def _differs(
    place: Place, name: Name, parameter: Parameter, known: dict[Key, Place], wanted: Wanted, rank: int
) -> str | None:
    import numpy

    start = vllm_experts(wanted.experts, wanted.moe_ep, rank % wanted.moe_ep).start
    saved, cell = place.tensor, BITS[place.tensor.dtype] // 8
    columns = saved.shape[2] if len(saved.shape) > 2 else 1
    neutral = numpy.frombuffer(neutral_of(saved, _group(name.part) == "scale"), numpy.uint8)
    for expert in range(saved.shape[0]):
        offset = place.begin + expert * saved.shape[1] * columns * cell
        has = _read(place.path, offset, (saved.shape[1], columns, cell))
        fresh = numpy.empty_like(has)
        fresh[:] = neutral
        for part, projection in enumerate(_projections(name, parameter.rows)):
            source = known.get((name.layer, start + expert, projection, _group(name.part)))
            if source is None:
                return f"the checkpoint has no {projection} of expert {start + expert}"
            if source.tensor.dtype != saved.dtype:
                return f"{saved.dtype} is saved, the checkpoint has {source.tensor.dtype}"
            _put(fresh, _cut(source, name, parameter, wanted, rank % wanted.moe_tp), parameter.rows, part)
        if not numpy.array_equal(has, fresh):
            return f"expert {expert} differs from the checkpoint's expert {start + expert}"
    return None


def _projections(name: Name, rows: Axis) -> tuple[str, ...]:
    if name.projection == "down":
        return ("down",)
    return ("gate", "up") if rows.parts == 2 else ("up",)


def _cut(source: Place, name: Name, parameter: Parameter, wanted: Wanted, rank: int) -> Cells:
    """The rank's share of a projection of the checkpoint."""
    rows, columns = source.tensor.shape if len(source.tensor.shape) == 2 else (*source.tensor.shape, 1)
    whole = _read(source.path, source.begin, (rows, columns, BITS[source.tensor.dtype] // 8))
    axis = parameter.columns if name.projection == "down" else parameter.rows
    assert axis is not None
    if axis.elements == WHOLE:
        return whole
    share = axis.live(wanted.native.intermediate)
    cut = slice(rank * share, (rank + 1) * share)
    return whole[:, cut] if name.projection == "down" else whole[cut]


def _put(fresh: Cells, cut: Cells, rows: Axis, part: int) -> None:
    """Lay one projection where the parameter has it."""
    height, width = cut.shape[:2]
    if rows.interleaved:
        fresh[part : part + rows.parts * height : rows.parts, :width] = cut
    else:
        first = part * (fresh.shape[0] // rows.parts)
        fresh[first : first + height, :width] = cut


def _read(path: Path, begin: int, shape: tuple[int, int, int]) -> Cells:
    import numpy

    size = shape[0] * shape[1] * shape[2]
    found = numpy.fromfile(path, numpy.uint8, size, offset=begin)
    if found.size != size:
        raise PolicyError([Problem("N002", f"`{path}` became shorter while it was read")])
    return found.reshape(shape)
