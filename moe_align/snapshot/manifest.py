"""`moe-align.json` beside a snapshot: what its parameters were saved as, so that nobody has to infer it."""

from __future__ import annotations

import os

from ..errors import PolicyError, Problem
from ..record import NamedTuple
from .layout import LAYOUTS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

FILE = "moe-align.json"
VERSION = 1

_MOST_BYTES = 2**20
_PARALLEL = ("tp", "pp", "dp", "moe_tp", "moe_ep")


class Sizes(NamedTuple):
    """Hidden and intermediate size of an expert on one rank, in elements."""

    hidden: int
    intermediate: int

    def __str__(self) -> str:
        return f"{self.hidden} × {self.intermediate}"


class Manifest(NamedTuple):
    """What a snapshot holds. `layout` is `created` or `processed`, `parallel` the ranks that saved it.

    `digest` is that of the policy under which it was saved, `engine_version` the engine's, both `None`
    where nobody knows.
    """

    digest: str | None
    engine: str
    engine_version: str | None
    backend: str | None
    scheme: str
    parallel: Mapping[str, int]
    experts: int
    native: Sizes
    allocated: Sizes
    layout: str
    interleaved: bool = False


def manifest_plain(manifest: Manifest) -> dict[str, object]:
    """The manifest as its file has it."""
    return {
        "version": VERSION,
        "policy": manifest.digest,
        "engine": {"name": manifest.engine, "version": manifest.engine_version},
        "backend": manifest.backend,
        "scheme": manifest.scheme,
        "parallel": dict(manifest.parallel),
        "experts": manifest.experts,
        "native": manifest.native._asdict(),
        "allocated": manifest.allocated._asdict(),
        "layout": manifest.layout,
        "interleaved": manifest.interleaved,
    }


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of a folder, or `None` if it has none.

    Raises:
        PolicyError: there is one that cannot be used.
    """
    import json

    path = folder / FILE
    try:
        with open(path, "rb") as file:
            text = file.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as fault:
        raise _fault(path, f"cannot be read: {fault.strerror}") from None
    if len(text) > _MOST_BYTES:
        raise _fault(path, f"is larger than {_MOST_BYTES} bytes")
    try:
        return _manifest(json.loads(text))
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as fault:
        raise _fault(path, f"is no manifest: {type(fault).__name__ if not str(fault) else fault}") from None


def _manifest(plain: Mapping[str, object]) -> Manifest:
    if plain["version"] != VERSION:
        raise ValueError(f"version {plain['version']!a:.40} is not known, {VERSION} is")
    if plain["layout"] not in LAYOUTS:
        raise ValueError(f"layout {plain['layout']!a:.40} is none of {', '.join(LAYOUTS)}")
    engine, parallel = _part(plain, "engine"), _part(plain, "parallel")
    return Manifest(
        _text(plain["policy"]) if plain["policy"] is not None else None,
        _text(engine["name"]),
        _text(engine["version"]) if engine["version"] is not None else None,
        _text(plain["backend"]) if plain["backend"] is not None else None,
        _text(plain["scheme"]),
        {key: _count(parallel[key]) for key in _PARALLEL},
        _count(plain["experts"]),
        _sizes(_part(plain, "native")),
        _sizes(_part(plain, "allocated")),
        _text(plain["layout"]),
        plain["interleaved"] is True,
    )


def _part(plain: Mapping[str, object], key: str) -> Mapping[str, object]:
    value = plain[key]
    if not isinstance(value, dict):
        raise ValueError(f"`{key}` is no object")
    return value


def _sizes(plain: Mapping[str, object]) -> Sizes:
    return Sizes(_count(plain["hidden"]), _count(plain["intermediate"]))


def _count(value: object) -> int:
    if type(value) is not int or not 1 <= value < 2**40:
        raise ValueError(f"{value!a:.40} is no whole number of at least 1")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str) or len(value) > 200 or not value.isprintable():
        raise ValueError(f"{value!a:.40} is no name")
    return value


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Put the manifest into a folder, whole or not at all.

    Raises:
        PolicyError: it cannot be written.
    """
    import json

    text = json.dumps(manifest_plain(manifest), indent=2) + "\n"
    path = folder / FILE
    try:
        write_whole(path, text.encode())
    except OSError as fault:
        raise _fault(path, f"cannot be written: {fault.strerror}") from None


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that its name stands for all of it at every moment, also after the power went."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        beside.unlink(missing_ok=True)
        with open(beside, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Have the names of a folder survive a loss of power."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def disagreements(saved: Manifest, now: Manifest) -> Iterator[str]:
    """Why parameters that were saved as `saved` says cannot be loaded as `now` says, one sentence each."""
    for key in ("moe_tp", "moe_ep", "tp", "pp"):
        if saved.parallel[key] != now.parallel[key]:
            yield f"it was saved by {key} {saved.parallel[key]}, and {now.parallel[key]} load it"
    for key in ("scheme", "experts", "native", "allocated"):
        was, is_now = getattr(saved, key), getattr(now, key)
        if was != is_now:
            yield f"its {key if key != 'allocated' else 'allocated size'} {_is(key)} {was}, now {is_now}"
    if saved.layout == "processed" and saved.backend != now.backend:
        yield f"it was repacked for {saved.backend}, and {now.backend} loads it"
    if saved.interleaved != now.interleaved:
        yield "gate and up rows take turns in one of the two, and follow each other in the other"


def _is(key: str) -> str:
    return "are" if key == "experts" else "is"


def _fault(path: Path, said: str) -> PolicyError:
    return PolicyError(
        [Problem("N009", f"`{path}` {said}", "write it anew with `moe-align snapshot manifest`")]
    )
