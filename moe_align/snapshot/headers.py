"""The header of a safetensors file: names, types, shapes and places of its tensors, no weight read.

A file begins with eight bytes, the length of a JSON object; the object; then the data.
"""

from __future__ import annotations

import os
import stat

from ..errors import PolicyError, Problem
from ..record import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from io import FileIO
    from pathlib import Path

#: A header may be so long, and speak of so many tensors. The longest that are known, of 143 000 tensors in
#: one file, take 20 MB; without a bound eight bytes could make us read 100 MB, and JSON ten times as much.
MOST_HEADER_BYTES = 48 * 2**20
MOST_TENSORS = 400_000

#: Bits of one element of each type that the format has.
BITS: Mapping[str, int] = {
    "BOOL": 8,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "U8": 8,
    "I8": 8,
    "F8_E5M2": 8,
    "F8_E4M3": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
    "F8_E8M0": 8,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "C64": 64,
    "F64": 64,
    "I64": 64,
    "U64": 64,
}

_LENGTH = 8
_METADATA = "__metadata__"
_KEYS = {"dtype", "shape", "data_offsets"}


class Tensor(NamedTuple):
    """One tensor of a file; `begin` and `end` count bytes from where the data starts."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int

    @property
    def bytes(self) -> int:
        return self.end - self.begin


class Header(NamedTuple):
    """What a file says of itself: its tensors by place, its own metadata, and where the data starts."""

    tensors: tuple[Tensor, ...]
    metadata: Mapping[str, str]
    data: int


def read_header(path: Path) -> Header:
    """The header of a file, with every tensor where it says it is.

    Raises:
        PolicyError: the file cannot be read, is no safetensors file, is cut short, or passes a limit.
    """
    # The length is held against limits before safetensors is asked: it maps the file and reads up to
    # 100 MB of JSON, and its errors do not say which tensor is wrong. It does not tell offsets either,
    # which `repad` needs. Whoever opens the file later is the library, so it has the last word.
    text, size = _text(path)
    header = _parsed(path, text, size)
    _ask_the_library(path)
    return header


def _text(path: Path) -> tuple[bytes, int]:
    """The header as it stands in the file, and the size of the whole file."""
    try:
        # Without O_NONBLOCK, opening a pipe would wait for somebody to write to it.
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except (OSError, ValueError) as fault:
        raise _fault("N001", path, f"cannot be opened: {_reason(fault)}") from None
    about = os.fstat(handle)
    if not stat.S_ISREG(about.st_mode):
        os.close(handle)
        raise _fault("N001", path, "is no regular file")
    with open(handle, "rb", buffering=0) as file:
        try:
            return _bounded(path, file, about.st_size), about.st_size
        except OSError as fault:
            raise _fault("N001", path, f"cannot be read: {_reason(fault)}") from None


def _bounded(path: Path, file: FileIO, size: int) -> bytes:
    first = file.read(_LENGTH)
    if len(first) < _LENGTH:
        raise _fault("N002", path, f"is cut short: {size} bytes, and the length of the header alone takes 8")
    length = int.from_bytes(first, "little")
    if length > MOST_HEADER_BYTES:
        said = f"says that its header takes {length} bytes: at most {MOST_HEADER_BYTES} are read"
        raise _fault("N003", path, said, "this is no safetensors file, or one that should be split")
    if _LENGTH + length > size:
        raise _fault("N002", path, f"is cut short: the header ends at {_LENGTH + length}, the file at {size}")
    text = file.read(length)
    tensors = text.count(b'"data_offsets"')
    if tensors > MOST_TENSORS:
        said = f"speaks of {tensors} tensors: at most {MOST_TENSORS} are read"
        raise _fault("N003", path, said, "split the file")
    return text


def _parsed(path: Path, text: bytes, size: int) -> Header:
    import json

    try:
        document = json.loads(text.decode("utf-8"), object_pairs_hook=_object)
    except (ValueError, RecursionError) as fault:
        raise _fault("N004", path, f"has a broken header: {_short(str(fault))}") from None
    if not isinstance(document, dict):
        raise _fault("N004", path, "has a broken header: an object is meant")
    metadata = document.pop(_METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise _fault("N004", path, f"has a broken header: `{_METADATA}` holds texts only")
    tensors = sorted((_tensor(path, name, said) for name, said in document.items()), key=_place)
    start = _LENGTH + len(text)
    _check_places(path, tensors, size - start)
    return Header(tuple(tensors), metadata, start)


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    made = dict(pairs)
    if len(made) != len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise ValueError(f"`{twice}` stands twice")
    return made


def _place(tensor: Tensor) -> tuple[int, int]:
    return tensor.begin, tensor.end


def _tensor(path: Path, name: str, said: object) -> Tensor:
    if not isinstance(said, dict) or said.keys() != _KEYS:
        raise _about(path, name, "dtype, shape and data_offsets are meant")
    dtype, shape, places = said["dtype"], said["shape"], said["data_offsets"]
    if not isinstance(dtype, str) or dtype not in BITS:
        raise _about(path, name, f"`{_short(str(dtype))}` is no type of the format")
    if not _are_counts(shape):
        raise _about(path, name, "its shape is no list of whole numbers of at least 0")
    if not _are_counts(places) or len(places) != 2 or places[0] > places[1]:
        raise _about(path, name, f"its place {_short(str(places))} is no place in a file", "N005")
    tensor = Tensor(name, dtype, tuple(shape), places[0], places[1])
    bits = BITS[dtype]
    for size in tensor.shape:
        bits *= size
    if bits != 8 * tensor.bytes:
        shown = _short(" × ".join(map(str, tensor.shape)) or "one")
        raise _about(path, name, f"{shown} of {dtype} do not take {tensor.bytes} bytes", "N005")
    return tensor


#: No file is larger; a product of shapes of such numbers stays a number that can be computed with.
_LARGEST = 2**63


def _are_counts(value: object) -> bool:
    if not isinstance(value, list) or len(value) > 32:
        return False
    return all(type(item) is int and 0 <= item < _LARGEST for item in value)


def _check_places(path: Path, tensors: list[Tensor], room: int) -> None:
    """Tensors must follow each other without a gap, and end where the file does."""
    end = 0
    for tensor in tensors:
        if tensor.begin < end:
            raise _about(
                path, tensor.name, f"it begins at {tensor.begin}, inside the tensor before it", "N005"
            )
        if tensor.begin > end:
            raise _about(
                path, tensor.name, f"{tensor.begin - end} bytes before it belong to no tensor", "N005"
            )
        end = tensor.end
    if end > room:
        raise _fault("N002", path, f"is cut short: {end - room} of {end} bytes of data are missing")
    if end < room:
        raise _fault("N005", path, f"has {room - end} bytes after its last tensor")


def _ask_the_library(path: Path) -> None:
    """Whether safetensors, where it is installed, opens the file."""
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError:
        return
    try:
        with safe_open(str(path), framework="np"):
            pass
    except ImportError:
        return
    except (SafetensorError, OSError) as fault:
        raise _fault("N004", path, f"is refused by safetensors: {_short(str(fault))}") from None


def _about(path: Path, name: str, said: str, code: str = "N004") -> PolicyError:
    return _fault(code, path, f"is wrong about tensor `{_short(name)}`: {said}")


def _fault(code: str, path: Path, said: str, fix: str | None = None) -> PolicyError:
    return PolicyError([Problem(code, f"`{path}` {said}", fix)])


def _reason(fault: OSError | ValueError) -> str:
    return getattr(fault, "strerror", None) or str(fault)


def _short(text: str, most: int = 120) -> str:
    """A text of the file on one line, without what a terminal would act on."""
    plain = "".join(sign if sign.isprintable() else "?" for sign in text)
    return plain if len(plain) <= most else f"{plain[: most - 1]}…"
