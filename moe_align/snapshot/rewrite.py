"""One parameter with pads of another size, expert by expert: bytes in, bytes out."""

from __future__ import annotations

from ..errors import PolicyError, Problem
from ..record import NamedTuple
from .headers import BITS
from .judge import shown
from .layout import SCALES, is_number, parameter_of
from .manifest import Sizes
from .names import read_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import FileIO

    import numpy

    from .headers import Tensor
    from .layout import Axis, Parameter
    from .wanted import Wanted

    Bytes = numpy.ndarray[tuple[int, int], numpy.dtype[numpy.uint8]]

#: What a cell of a pad holds: a zero byte of a weight adds nothing, a scale of 1 keeps it so.
_ONE = {
    "F32": b"\x00\x00\x80\x3f",
    "BF16": b"\x80\x3f",
    "F16": b"\x00\x3c",
    "F8_E8M0": b"\x7f",
    "U8": b"\x7f",
    "F8_E4M3": b"\x38",
}

_CHUNK = 8 * 2**20


class Run(NamedTuple):
    """One dimension of a parameter: `parts` runs of cells, `saved` long now, `then` later, `live` filled."""

    parts: int
    live: int
    saved: int
    then: int


class Change(NamedTuple):
    """How one tensor changes: `rows` and `columns` of each of `experts`, in cells of `cell` bytes."""

    tensor: Tensor
    experts: int
    rows: Run
    columns: Run
    cell: int
    neutral: bytes
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """Bytes of the tensor later."""
        return self.experts * self.rows.parts * self.rows.then * self.columns.then * self.cell


def change_of(tensor: Tensor, saved: Sizes, wanted: Wanted) -> Change | None:
    """How a tensor changes from the sizes it is saved in to those that are wanted; `None`: it does not.

    Raises:
        PolicyError: an expert tensor whose layout is not known, or not that of these sizes.
    """
    name = read_name(tensor.name, wanted.main_layers)
    if name.kind != "routed" or is_number(wanted.scheme, name.part):
        return None
    experts = tensor.shape[0] if tensor.shape else 0
    layer = wanted.layer(experts, wanted.allocated)
    parameter = parameter_of(layer, name.projection or "", name.part, interleaved=wanted.interleaved)
    if parameter is None or not name.as_engine:
        raise refusal(f"`{tensor.name}`: the layout of {shown(name)} is not known for {wanted.scheme}")
    if tensor.shape != parameter.shape(experts, *saved):
        shapes = f"{list(tensor.shape)} is saved, {list(parameter.shape(experts, *saved))} is that of {saved}"
        raise refusal(f"`{tensor.name}`: {shapes}")
    neutral = neutral_of(tensor, name.part in SCALES)
    return _change(tensor, parameter, saved, wanted, neutral)


def _change(tensor: Tensor, parameter: Parameter, saved: Sizes, wanted: Wanted, neutral: bytes) -> Change:
    runs = [_run(tensor, axis, saved, wanted) for axis in (parameter.rows, parameter.columns) if axis]
    rows, columns = runs if len(runs) == 2 else (runs[0], Run(1, 1, 1, 1))
    experts = tensor.shape[0]
    return Change(
        tensor,
        experts,
        rows,
        columns,
        BITS[tensor.dtype] // 8,
        neutral,
        parameter.shape(experts, *wanted.allocated),
    )


def _run(tensor: Tensor, axis: Axis, saved: Sizes, wanted: Wanted) -> Run:
    native, now, then = (getattr(sizes, axis.size) for sizes in (wanted.native, saved, wanted.allocated))
    if not axis.is_whole(then):
        raise refusal(f"`{tensor.name}`: {axis.size} {then} does not end on its blocks of {axis.elements}")
    run = Run(axis.parts, axis.live(native), axis.cells(now), axis.cells(then))
    if run.live > min(run.saved, run.then):
        raise refusal(f"`{tensor.name}`: {axis.size} {native} has cells that {min(now, then)} has not")
    if not axis.interleaved:
        return run
    return Run(1, *(axis.parts * cells for cells in run[1:]))


def neutral_of(tensor: Tensor, is_scale: bool) -> bytes:
    """The bytes of a cell that adds nothing.

    Raises:
        PolicyError: a scale of a type whose 1 is not known.
    """
    if not is_scale:
        return bytes(BITS[tensor.dtype] // 8)
    if tensor.dtype not in _ONE:
        raise refusal(f"`{tensor.name}`: nothing is known to be a scale of 1 in {tensor.dtype}")
    return _ONE[tensor.dtype]


def changed(source: FileIO, change: Change) -> Iterator[memoryview]:
    """The bytes of a tensor later, one expert at a time; `source` stands at its first byte."""
    import numpy

    rows, columns, cell = change.rows, change.columns, change.cell
    before = (rows.parts * rows.saved, columns.saved * cell)
    pad = numpy.frombuffer(change.neutral, numpy.uint8)
    for _ in range(change.experts):
        old = _read(source, *before)
        new = numpy.empty((rows.parts * rows.then, columns.then, cell), numpy.uint8)
        new[:] = pad
        flat = new.reshape(rows.parts * rows.then, columns.then * cell)
        live = columns.live * cell
        for part in range(rows.parts):
            first, now = part * rows.then, part * rows.saved
            flat[first : first + rows.live, :live] = old[now : now + rows.live, :live]
        yield flat.data


def _read(source: FileIO, rows: int, columns: int) -> Bytes:
    import numpy

    found = numpy.fromfile(source, numpy.uint8, rows * columns)
    if found.size != rows * columns:
        raise PolicyError([Problem("N002", f"`{source.name}` became shorter while it was read")])
    return found.reshape(rows, columns)


def unchanged(source: FileIO, size: int) -> Iterator[bytes]:
    """So many bytes of a file, in pieces."""
    while size:
        piece = source.read(min(size, _CHUNK))
        if not piece:
            raise PolicyError([Problem("N002", f"`{source.name}` became shorter while it was read")])
        size -= len(piece)
        yield piece


def refusal(said: str, fix: str | None = None) -> PolicyError:
    """Why a snapshot is not repadded."""
    return PolicyError([Problem("N010", said, fix)])


def need_numpy() -> None:
    """Nothing where numpy is installed.

    Raises:
        PolicyError: it is not.
    """
    try:
        import numpy  # noqa: F401
    except ImportError:
        fix = "pip install 'moe-align[snapshot]'"
        raise PolicyError([Problem("N013", "this needs numpy, which is not installed", fix)]) from None
