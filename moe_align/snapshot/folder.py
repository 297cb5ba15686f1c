"""The files of a snapshot: which there are, which ranks and parts they are for, and which are missing."""

from __future__ import annotations

import os
import re
import string
from pathlib import Path

from ..errors import PolicyError, Problem
from ..record import NamedTuple
from .headers import Header, read_header

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

#: How an engine names the files of `sharded_state`.
PATTERNS = (
    "model-rank-{rank}-part-{part}.safetensors",
    "model-pp-{pp_rank}-tp-{tp_rank}-part-{part}.safetensors",
)

INDEX = "model.safetensors.index.json"

_FIELDS = {"rank": "tp", "tp_rank": "tp", "pp_rank": "pp", "part": "part"}
_MOST_FILES = 100_000
_MOST_INDEX_BYTES = 64 * 2**20


class Shard(NamedTuple):
    """One file; ranks and part are those of its name, 0 for a checkpoint that belongs to all ranks."""

    path: Path
    tp: int = 0
    pp: int = 0
    part: int = 0


class Folder(NamedTuple):
    """A snapshot. `sharded`: an engine saved each rank's own tensors; else it is a checkpoint for all.

    `faults` say what is wrong with the files as a set.
    """

    path: Path
    sharded: bool
    shards: tuple[Shard, ...]
    faults: tuple[str, ...] = ()

    @property
    def ranks(self) -> int:
        """How many tensor-parallel ranks the names of files speak of."""
        return 1 + max((shard.tp for shard in self.shards), default=0)


def find_folder(path: Path, pattern: str | None = None) -> Folder:
    """The snapshot in a folder; `pattern` names its files where an engine was given one of its own.

    Raises:
        PolicyError: no such folder, no safetensors file in it, a pattern that cannot be used.
    """
    names = _names(path)
    for one in (pattern,) if pattern else PATTERNS:
        shards = tuple(_matching(path, names, one))
        if shards:
            return Folder(path, True, shards, tuple(_gaps(shards)))
    if pattern:
        raise _problem("N006", f"no file in `{path}` is named like `{pattern}`", "check the pattern")
    return _checkpoint(path, names)


def _names(path: Path) -> list[str]:
    try:
        names = sorted(entry.name for entry in os.scandir(path) if entry.name.endswith(".safetensors"))
    except OSError as fault:
        raise _problem("N001", f"`{path}` cannot be read: {fault.strerror}", "name the folder") from None
    if not names:
        raise _problem("N006", f"no safetensors file in `{path}`", "name the folder that holds them")
    if len(names) > _MOST_FILES:
        raise _problem("N003", f"`{path}` holds {len(names)} files: at most {_MOST_FILES} are read")
    return names


def _matching(path: Path, names: list[str], pattern: str) -> Iterator[Shard]:
    wanted = _expression(pattern)
    for name in names:
        found = wanted.fullmatch(name)
        if found:
            given = {_FIELDS[key]: int(value) for key, value in found.groupdict().items()}
            yield Shard(path / name, **given)


def _expression(pattern: str) -> re.Pattern[str]:
    """The expression of a pattern as Python's `format` writes it.

    Raises:
        PolicyError: a pattern that leads to another folder, or with other fields.
    """
    if "/" in pattern or os.sep in pattern or not pattern.endswith(".safetensors"):
        raise _problem(
            "N007", f"`{pattern}` is no name of a safetensors file", "write a name without a folder"
        )
    written, seen = "", set()
    try:
        for text, field, _, _ in string.Formatter().parse(pattern):
            written += re.escape(text)
            if field is None:
                continue
            if field not in _FIELDS or _FIELDS[field] in seen:
                raise ValueError(f"the field `{field}`")
            seen.add(_FIELDS[field])
            written += rf"(?P<{field}>\d{{1,6}})"
    except ValueError as fault:
        fix = "fields are {rank} or {tp_rank}, {pp_rank} and {part}, each once"
        raise _problem("N007", f"`{pattern}` is no pattern: {fault}", fix) from None
    return re.compile(written)


def _gaps(shards: tuple[Shard, ...]) -> Iterator[str]:
    """What is missing below the highest rank, stage and part."""
    ranks: dict[tuple[int, int], set[int]] = {}
    for shard in shards:
        ranks.setdefault((shard.pp, shard.tp), set()).add(shard.part)
    stages = 1 + max(shard.pp for shard in shards)
    width = 1 + max(shard.tp for shard in shards)
    if stages * width > _MOST_FILES:
        yield f"names speak of {stages} × {width} ranks, of which {len(ranks)} are there"
        return
    for pp in range(stages):
        missing = [tp for tp in range(width) if (pp, tp) not in ranks]
        if missing:
            where = f" of stage {pp}" if stages > 1 else ""
            yield f"no file of rank {_listed(missing)}{where}"
    for (pp, tp), parts in sorted(ranks.items()):
        lost = [part for part in range(min(1 + max(parts), _MOST_FILES)) if part not in parts]
        if lost:
            where = f"rank {tp}" + (f" of stage {pp}" if stages > 1 else "")
            yield f"no part {_listed(lost)} of {where}"


def _listed(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:8]))
    return f"{shown} and {len(numbers) - 8} more" if len(numbers) > 8 else shown


def _checkpoint(path: Path, names: list[str]) -> Folder:
    index = path / INDEX
    if not index.exists():
        return Folder(path, False, tuple(Shard(path / name) for name in names))
    wanted, faults = _indexed(index)
    missing = sorted(wanted - set(names))
    faults += [f"no file `{name}`, which {INDEX} names" for name in missing]
    return Folder(path, False, tuple(Shard(path / name) for name in names if name in wanted), tuple(faults))


def _indexed(index: Path) -> tuple[set[str], list[str]]:
    """The files that an index names, and faults of it; a name that leads out of the folder is one."""
    import json

    try:
        with open(index, "rb") as file:
            text = file.read(_MOST_INDEX_BYTES + 1)
    except OSError as fault:
        raise _problem("N001", f"`{index}` cannot be read: {fault.strerror}") from None
    if len(text) > _MOST_INDEX_BYTES:
        raise _problem("N003", f"`{index}` is larger than {_MOST_INDEX_BYTES} bytes")
    try:
        named = {name for name in json.loads(text)["weight_map"].values() if isinstance(name, str)}
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        raise _problem("N004", f"`{index}` is no index: a `weight_map` is meant") from None
    outside = {name for name in named if name != os.path.basename(name) or name in ("", ".", "..")}
    return named - outside, [
        f"{INDEX} names `{name[:80]}`, which leads out of the folder" for name in sorted(outside)
    ]


def read_shards(folder: Folder) -> Iterator[tuple[Shard, Header | None, str | None]]:
    """Each file with its header, or with what is wrong with it; one header is held at a time."""
    for shard in folder.shards:
        try:
            yield shard, read_header(shard.path), None
        except PolicyError as fault:
            yield shard, None, "; ".join(problem.message for problem in fault.problems)


def whole_shards(folder: Folder) -> Iterator[tuple[Shard, Header]]:
    """Each file with its header.

    Raises:
        PolicyError: a file that is missing, or wrong.
    """
    if folder.faults:
        raise PolicyError([Problem("N008", f"`{folder.path}`: {fault}") for fault in folder.faults])
    for shard in folder.shards:
        yield shard, read_header(shard.path)


def _problem(code: str, said: str, fix: str | None = None) -> PolicyError:
    return PolicyError([Problem(code, said, fix)])
