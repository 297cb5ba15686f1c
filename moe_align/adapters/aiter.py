"""AMD's AITER: which one is installed, and what its `fused_moe` is told for a decision.

AITER counts a declared pad in elements at the tail, `intermediate_pad` of one gate or up half: it doubles by
itself where gate and up lie in one matrix. Each kernel then floors the pad to its own tile before it skips
anything, so a pad that is exact never hides a live element, and one that was doubled by the caller does.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.machinery
import importlib.metadata
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..sizes import round_up
from .torch import E8M0_ONE, ExpertTensor

if TYPE_CHECKING:
    import torch

    from ..decision import Decision

#: AITER's distribution on PyPI. `aiter` there is a library of asynchronous iterators.
DISTRIBUTION = "amd-aiter"

#: Source builds install under this name, and so does the unrelated library.
_SOURCE_DISTRIBUTION = "aiter"

#: The plain scale shuffle lays scales out in tiles of so many rows and columns.
_TILE_ROWS, _TILE_COLUMNS = 256, 8


@dataclass(frozen=True, slots=True)
class Installed:
    """The AITER that `import aiter` would load; `source_build` if it did not come from PyPI's wheel."""

    version: str | None
    source_build: bool
    folder: Path


class WrongPackageError(RuntimeError):
    """`import aiter` would load a package that is not AMD's AITER."""

    def __init__(self, place: str) -> None:
        self.place = place
        super().__init__(
            f"the package `aiter` at {place} is not AMD's AITER\n"
            f"  fix: `pip uninstall aiter`, then `pip install {DISTRIBUTION}` or build AITER from source"
        )

    def __reduce__(self) -> tuple[type[WrongPackageError], tuple[str]]:
        return type(self), (self.place,)


def installed(path: Sequence[str] | None = None) -> Installed | None:
    """The AITER on `path` (default: `sys.path`), or None where there is no package `aiter`; imports nothing.

    Raises:
        WrongPackageError: for a package `aiter` that has no `fused_moe`.
    """
    folder = _package_folder(sys.path if path is None else path)
    if folder is None:
        return None
    if not (folder / "fused_moe.py").is_file():
        raise WrongPackageError(str(folder))
    for name in (DISTRIBUTION, _SOURCE_DISTRIBUTION):
        for found in importlib.metadata.distributions(name=name, path=[str(folder.parent)]):
            return Installed(found.version, name != DISTRIBUTION or _is_build(found.version), folder)
    return Installed(_version_in(folder), True, folder)


def _package_folder(path: Sequence[str]) -> Path | None:
    spec = importlib.machinery.PathFinder.find_spec("aiter", list(path))
    if spec is None:
        return None
    if spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations)))
    # One module of that name: not AITER, and nothing that could hold its files.
    raise WrongPackageError(str(spec.origin))


def _is_build(version: str) -> bool:
    """Whether a version is of a build that follows a release: `0.1.20+46.gabc`, `0.1.20-46-gabc`."""
    return "+" in version or re.search(r"-\d+-g[0-9a-f]+", version) is not None


def _version_in(folder: Path) -> str | None:
    """The version that a source tree without metadata wrote into itself."""
    file = folder / "_version.py"
    found = (
        re.search(r"^(?:__)?version(?:__)?\s*=\s*['\"]([^'\"]+)", file.read_text(), re.M)
        if file.is_file()
        else None
    )
    return found[1] if found else None


@dataclass(frozen=True, slots=True)
class Reading:
    """How one kernel reads a declared pad: floored to `floor` elements; the rest of the pad it computes."""

    kernel: str
    pad: str
    floor: int
    source: str


#: Every kernel that skips what is declared. The others compute the whole width, where zeros decide.
READINGS: tuple[Reading, ...] = (
    Reading("CK-Tile stage 1, K", "hidden_pad", 128, "aiter e4048607:aiter/fused_moe.py:2625"),
    Reading(
        "CK-Tile stage 1, N of each half", "intermediate_pad", 64, "aiter e4048607:aiter/fused_moe.py:2625"
    ),
    Reading("CK-Tile stage 2, N", "hidden_pad", 64, "aiter e4048607:aiter/fused_moe.py:2633"),
    Reading("CK-Tile stage 2, K", "intermediate_pad", 128, "aiter e4048607:aiter/fused_moe.py:2633"),
    Reading(
        "FlyDSL mixed stage 1, N", "intermediate_pad", 1, "aiter e4048607: mixed_moe_gemm_2stage_common.py"
    ),
    Reading("FlyDSL v2 stage 2, N", "hidden_pad", 16, "aiter e4048607: mxmoe_gemm_v2.py"),
    Reading("Opus a8w4 stages 1 and 2", "intermediate_pad", 1, "aiter e4048607: moe_stage2_a8w4.py"),
)


class LiveElementsMaskedError(ValueError):
    """A declared pad, as a kernel reads it, would hide live elements: wrong tokens and no error."""


def pad_arguments(decision: Decision) -> dict[str, int]:
    """`hidden_pad` and `intermediate_pad` for AITER's `fused_moe`; one that is not declared is left out.

    What the policy's launch phase declares, else the exact pads.

    Raises:
        LiveElementsMaskedError: if a kernel would read a declared pad as more than the padding that is there.
        ValueError: if the decision has no sizes.
    """
    sizes = {"hidden_pad": decision.hidden, "intermediate_pad": decision.intermediate}
    actual = {}
    for name, size in sizes.items():
        if size.native is None or size.allocated is None:
            raise ValueError(f"the decision is {decision.status} and has no sizes: {decision.reason}")
        actual[name] = size.allocated - size.native
    declared: Mapping[str, int | None] = decision.launch._asdict() if decision.launch else actual
    told = {name: pad for name, pad in declared.items() if pad is not None}
    for reading in READINGS:
        _check(reading, told.get(reading.pad, 0), actual[reading.pad])
    return told


def _check(reading: Reading, declared: int, actual: int) -> None:
    read = declared // reading.floor * reading.floor
    if read > actual:
        raise LiveElementsMaskedError(
            f"{reading.pad} {declared} is read as {read} by {reading.kernel}, where {actual} elements are "
            f"padding: {read - actual} live ones would be skipped"
        )


def tensor_arguments(tensors: Sequence[ExpertTensor]) -> dict[str, tuple[int, ...]]:
    """The shape of every weight argument of `fused_moe`, by AITER's names (`w1`, `w2_scale`, `bias1`, …)."""
    shapes = {tensor.name: tensor.shape for tensor in tensors}
    return {argument: shapes[name] for name, argument in _ARGUMENTS.items() if name in shapes}


_ARGUMENTS: Mapping[str, str] = {
    "w13_weight": "w1",
    "w2_weight": "w2",
    "w13_weight_scale": "w1_scale",
    "w2_weight_scale": "w2_scale",
    "w13_bias": "bias1",
    "w2_bias": "bias2",
}


@contextlib.contextmanager
def neutral_scale_shuffles() -> Iterator[None]:
    """While it lasts, AITER's plain scale shuffle puts scales of 1 into the cells that its tiles add.

    By itself it leaves them as memory was, so one may be 0xFF, a NaN, and a NaN times a zero weight is a NaN.
    Nothing happens where AITER cannot be imported.
    """
    undo: list[tuple[Any, str, Callable[..., Any]]] = []
    for module_name, name in (
        ("aiter.utility.fp4_utils", "e8m0_shuffle"),
        ("aiter.ops.shuffle", "shuffle_scale"),
    ):
        try:
            module: Any = importlib.import_module(module_name)
            shuffle = getattr(module, name)
        except (ImportError, AttributeError):
            continue
        undo.append((module, name, shuffle))
        setattr(module, name, _filling(shuffle))
    try:
        yield
    finally:
        for module, name, shuffle in undo:
            setattr(module, name, shuffle)


def _filling(shuffle: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(shuffle)
    def filled(scale: Any, *args: Any, **kwargs: Any) -> Any:
        # With further arguments it is the interleaved layout, which fills its cells itself.
        if args or kwargs or scale is None or scale.ndim != 2 or scale.itemsize != 1:
            return shuffle(scale, *args, **kwargs)
        return shuffle(fill_tiles(scale))

    return filled


def fill_tiles(scale: torch.Tensor) -> torch.Tensor:
    """E8M0 scales `[rows, columns]`, filled up with scales of 1 to whole tiles of the plain shuffle."""
    import torch

    rows, columns = scale.shape
    full = (round_up(rows, _TILE_ROWS), round_up(columns, _TILE_COLUMNS))
    if full == (rows, columns):
        return scale
    tiles = torch.full(full, E8M0_ONE, dtype=torch.uint8, device=scale.device)
    tiles[:rows, :columns] = scale.view(torch.uint8)
    return tiles.view(scale.dtype)
