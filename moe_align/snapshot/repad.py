"""A sharded snapshot rewritten to other sizes: file by file, so that a run that is killed can go on later.

The source is only read. A file gets its name in the target when all of it is on the disk; until the last one
has, the target holds a journal of what it will become, by which a second run knows the first one.
"""

from __future__ import annotations

import os
from contextlib import suppress

from ..errors import PolicyError, Problem
from ..record import NamedTuple
from .folder import whole_shards
from .headers import Header, Tensor, read_header
from .layout import CREATED, WEIGHTS, parameter_of
from .manifest import FILE, Manifest, Sizes, read_manifest, sync_folder, write_manifest, write_whole
from .names import read_name
from .rewrite import Change, change_of, changed, need_numpy, refusal, unchanged

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from io import FileIO
    from pathlib import Path
    from typing import BinaryIO

    from .folder import Folder, Shard
    from .wanted import Wanted

    #: Told of bytes that are written, of how many.
    Progress = Callable[[int, int], None]

JOURNAL = ".moe-align-repad.json"


class Plan(NamedTuple):
    """One file of the target: its header, and what becomes of each tensor (`None`: it is copied)."""

    shard: Shard
    header: Header
    head: bytes
    changes: tuple[Change | None, ...]

    @property
    def bytes(self) -> int:
        return len(self.head) + sum(map(_size, zip(self.header.tensors, self.changes, strict=True)))


class Repadded(NamedTuple):
    """What became of a run: the sizes before, files that were written and that an earlier run had written."""

    saved: Sizes
    written: int
    kept: int
    tensors: int
    bytes: int


def _size(one: tuple[Tensor, Change | None]) -> int:
    tensor, change = one
    return tensor.bytes if change is None else change.bytes


def repad(
    folder: Folder, target: Path, wanted: Wanted, digest: str, progress: Progress = lambda done, of: None
) -> Repadded:
    """Rewrite the snapshot in `folder` to the sizes of `wanted`, into the folder `target`.

    Raises:
        PolicyError: a layout that cannot be repadded, files that are wrong, a target that is not its own,
            or no room.
    """
    need_numpy()
    manifest = read_manifest(folder.path)
    _refuse_layouts(folder, wanted, manifest)
    saved = saved_sizes(folder, wanted)
    plans = [_plan(shard, header, saved, wanted) for shard, header in whole_shards(folder)]
    _claim(folder, target, wanted)
    total = sum(plan.bytes for plan in plans)
    done = kept = 0
    for plan in plans:
        if _is_written(plan, target):
            kept += 1
        else:
            _write(plan, target, lambda size, before=done: progress(before + size, total))  # type: ignore[misc]
        done += plan.bytes
        progress(done, total)
    _copy_others(folder, target)
    pp = 1 + max(shard.pp for shard in folder.shards)
    if manifest and not wanted.engine_version:
        wanted = wanted._replace(engine_version=manifest.engine_version)
    write_manifest(target, wanted.manifest(digest, CREATED, pp))
    _without(target / JOURNAL)
    tensors = sum(change is not None for plan in plans for change in plan.changes)
    return Repadded(saved, len(plans) - kept, kept, tensors, total)


def _refuse_layouts(folder: Folder, wanted: Wanted, manifest: Manifest | None) -> None:
    if not folder.sharded:
        raise refusal(f"`{folder.path}` is a checkpoint: it has the model's own sizes, and engines pad it")
    layout = manifest.layout if manifest else wanted.layout
    if layout != CREATED and not wanted.is_left_alone:
        raise refusal(
            f"`{folder.path}` holds what {wanted.backend or 'a backend that is not known'} repacked after"
            " loading: where its pads lie is not known",
            "save it anew under the new sizes; `--layout created` if it was saved before repacking",
        )
    if manifest and manifest.native != wanted.native:
        raise refusal(f"the manifest has native sizes {manifest.native}, the model {wanted.native} on a rank")
    for name, least, size in zip(Sizes._fields, wanted.native, wanted.allocated, strict=True):
        if size < least:
            raise refusal(f"{name} {size} is below the native {least}")


def saved_sizes(folder: Folder, wanted: Wanted) -> Sizes:
    """The sizes that all weights of the snapshot are saved in.

    Raises:
        PolicyError: there are none, or several.
    """
    found: dict[Sizes, str] = {}
    for _, header in whole_shards(folder):
        for tensor in header.tensors:
            name = read_name(tensor.name, wanted.main_layers)
            if name.as_engine and name.part in WEIGHTS and len(tensor.shape) == 3:
                found.setdefault(_sizes(tensor, name.projection or "", wanted), tensor.name)
    if len(found) == 1:
        return next(iter(found))
    said = "; ".join(f"`{name}` {sizes}" for sizes, name in list(found.items())[:4])
    raise refusal(f"`{folder.path}` holds experts of several sizes: {said}" if found else
                  f"`{folder.path}` holds no expert weights as an engine allocates them")  # fmt: skip


def _sizes(tensor: Tensor, projection: str, wanted: Wanted) -> Sizes:
    parameter = parameter_of(wanted.layer(1, wanted.allocated), projection, "weight")
    if parameter is None or parameter.columns is None:
        raise refusal(f"`{tensor.name}`: the layout of weights is not known for {wanted.scheme}")
    sizes = {}
    for axis, cells in zip((parameter.rows, parameter.columns), tensor.shape[1:], strict=True):
        sizes[axis.size] = cells // axis.parts * axis.elements
    return Sizes(**sizes)


def _plan(shard: Shard, header: Header, saved: Sizes, wanted: Wanted) -> Plan:
    changes = tuple(change_of(tensor, saved, wanted) for tensor in header.tensors)
    return Plan(shard, header, _head(header, changes), changes)


def _head(header: Header, changes: tuple[Change | None, ...]) -> bytes:
    """The first bytes of the new file: length and header, as safetensors writes them.

    Its own writer takes all tensors of a file in memory at once.
    """
    import json

    place = 0
    document: dict[str, object] = {"__metadata__": dict(header.metadata)} if header.metadata else {}
    for tensor, change in zip(header.tensors, changes, strict=True):
        end = place + _size((tensor, change))
        shape = tensor.shape if change is None else change.shape
        document[tensor.name] = {"dtype": tensor.dtype, "shape": list(shape), "data_offsets": [place, end]}
        place = end
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _claim(folder: Folder, target: Path, wanted: Wanted) -> None:
    """Make the target this run's own: new, empty, or left by the same run.

    Raises:
        PolicyError: it is neither, or cannot be written.
    """
    import json

    source = os.path.realpath(folder.path)
    if os.path.realpath(target) == source or os.path.realpath(target).startswith(source + os.sep):
        raise _unusable(target, "is in the source", "name another folder")
    files = [[shard.path.name, *_identity(shard.path)] for shard in folder.shards]
    sizes = [list(wanted.native), list(wanted.allocated), wanted.scheme, wanted.interleaved]
    journal = json.dumps({"version": 1, "sizes": sizes, "files": files}, indent=1).encode()
    try:
        os.makedirs(target, exist_ok=True)
        names = os.listdir(target)
        if JOURNAL not in names and names:
            raise _unusable(target, "is not empty", "name a new folder")
        if JOURNAL in names and (target / JOURNAL).read_bytes() != journal:
            raise _unusable(target, "was begun from other files or for other sizes", "name a new folder")
        if JOURNAL not in names:
            write_whole(target / JOURNAL, journal)
    except OSError as fault:
        raise _unwritten(target, fault) from None


def _identity(path: Path) -> tuple[int, int]:
    about = path.stat()
    return about.st_size, about.st_mtime_ns


def _is_written(plan: Plan, target: Path) -> bool:
    """Whether an earlier run has finished the file: its name is given to whole files only."""
    path = target / plan.shard.path.name
    try:
        if path.stat().st_size != plan.bytes:
            return False
        with open(path, "rb") as file:
            return file.read(len(plan.head)) == plan.head
    except OSError:
        return False


def _write(plan: Plan, target: Path, progress: Callable[[int], None]) -> None:
    path = target / plan.shard.path.name
    beside = target / f".{plan.shard.path.name}.part"
    try:
        _without(beside)
        with open(plan.shard.path, "rb", buffering=0) as source, open(beside, "xb") as file:
            for size in _pieces(plan, source, file):
                progress(size)
            file.flush()
            os.fsync(file.fileno())
        read_header(beside)
        os.replace(beside, path)
        sync_folder(target)
    except OSError as fault:
        _without(beside)
        raise _unwritten(path, fault) from None
    except PolicyError:
        _without(beside)
        raise


def _pieces(plan: Plan, source: FileIO, file: BinaryIO) -> Iterator[int]:
    """Write the file piece by piece; how much of it is there after each."""
    done = file.write(plan.head)
    for tensor, change in zip(plan.header.tensors, plan.changes, strict=True):
        source.seek(plan.header.data + tensor.begin)
        pieces = unchanged(source, tensor.bytes) if change is None else changed(source, change)
        for piece in pieces:
            done += file.write(piece)
            yield done


def _copy_others(folder: Folder, target: Path) -> None:
    """Copy what stands beside the tensors: configuration, tokenizer. Folders and hidden files stay behind."""
    shards = {shard.path.name for shard in folder.shards}
    for name in sorted(os.listdir(folder.path)):
        path = folder.path / name
        if name in shards or name == FILE or name.startswith(".") or not path.is_file():
            continue
        try:
            _copy(path, target / f".{name}.part", target / name)
        except OSError as fault:
            _without(target / f".{name}.part")
            raise _unwritten(target / name, fault) from None


def _copy(path: Path, beside: Path, final: Path) -> None:
    _without(beside)
    with open(path, "rb") as source, open(beside, "xb") as file:
        while piece := source.read(2**20):
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, final)


def _without(path: Path) -> None:
    # What cannot be removed is met again, and told, by whoever writes there.
    with suppress(OSError):
        path.unlink()


def _unusable(target: Path, said: str, fix: str) -> PolicyError:
    return PolicyError([Problem("N011", f"`{target}` {said}", fix)])


def _unwritten(path: Path, fault: OSError) -> PolicyError:
    said = f"`{path}` cannot be written: {fault.strerror or fault}"
    return PolicyError([Problem("N012", said, "make room and run it again: files that are done are kept")])
