"""One saved tensor against the parameter that it is meant for: what loading it would do, and why."""

from __future__ import annotations

from .layout import DTYPES, SCALES, SHAPED, WEIGHTS, is_number, parameter_of
from .manifest import Sizes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .names import Name
    from .wanted import Wanted

#: From good to bad.
FITS, CANNOT_KNOW, FAILS, SILENT = "fits", "cannot know", "would fail", "would load silently wrong"
VERDICTS = (FITS, CANNOT_KNOW, FAILS, SILENT)

#: The shape that is wanted (`None` where it is not known), the verdict, and the reason for it.
Judged = tuple[tuple[int, ...] | None, str, str | None]


def shown(name: Name) -> str:
    """A tensor's projection and part."""
    written = {"gate_up": "w13", "down": "w2"}.get(name.projection or "", name.projection)
    return f"{written}.{name.part}" if written else "experts"


def engine_tensor(wanted: Wanted, name: Name, shape: tuple[int, ...], dtype: str, share: int) -> Judged:
    """What copying a saved parameter into one that is allocated today does."""
    part = name.part
    if is_number(wanted.scheme, part):
        return _numbers(shape, share)
    layer = wanted.layer(share, wanted.allocated)
    known = parameter_of(layer, name.projection or "", part, interleaved=wanted.interleaved)
    if known is None or not name.as_engine:
        return None, CANNOT_KNOW, f"the shape of {part} is not known for {wanted.scheme}"
    expected = known.shape(share, *wanted.allocated)
    return expected, *_copied(shape, expected, dtype, _types(wanted.scheme, part))


def _numbers(shape: tuple[int, ...], share: int) -> Judged:
    if shape and shape[0] == share:
        return None, FITS, None
    return (share,), FAILS, "it is for another number of experts"


def _types(scheme: str, part: str) -> frozenset[str]:
    weights, scales = DTYPES[scheme]
    return scales if part in SCALES else weights if part in WEIGHTS else frozenset({"BF16", "F16", "F32"})


def _copied(
    shape: tuple[int, ...], expected: tuple[int, ...], dtype: str, types: frozenset[str]
) -> tuple[str, str | None]:
    """vLLM's loader narrows the parameter to a smaller saved tensor and copies, with a warning."""
    if dtype not in types:
        return SILENT, f"{dtype} is converted, number by number, to a type of another meaning"
    if len(shape) != len(expected):
        return FAILS, "it has another number of dimensions"
    if any(saved > now for saved, now in zip(shape, expected, strict=True)):
        return FAILS, "it is larger than the parameter"
    if shape[0] != expected[0]:
        return SILENT, "it holds fewer experts: the last ones stay what memory held"
    if shape != expected:
        return SILENT, "it is smaller: it lands at the front, and the rest stays what memory held"
    return FITS, None


def checkpoint_tensor(wanted: Wanted, name: Name, shape: tuple[int, ...], dtype: str, share: int) -> Judged:
    """What cutting a checkpoint's tensor into ranks does: a loader pads what has native sizes."""
    if wanted.scheme not in SHAPED:
        return None, CANNOT_KNOW, f"each method packs {wanted.scheme} in its own way"
    if is_number(wanted.scheme, name.part):
        return None, FITS, None
    native = Sizes(wanted.native.hidden, wanted.whole)
    parameter = parameter_of(
        wanted.layer(share, native), "down" if name.projection == "down" else "gate_up", name.part
    )
    if parameter is None:
        return None, CANNOT_KNOW, f"the shape of {name.part} is not known for {wanted.scheme}"
    if name.projection in ("gate", "up"):
        parameter = parameter._replace(rows=parameter.rows._replace(parts=1))
    expected = parameter.shape(share, *native)
    if name.expert is not None:
        expected = expected[1:]
    if dtype not in _types(wanted.scheme, name.part):
        return expected, FAILS, f"{dtype} is none of the types of {wanted.scheme}"
    # Some checkpoints hold all experts in one tensor with rows and columns exchanged.
    turned = (*expected[:-2], *reversed(expected[-2:])) if name.expert is None else expected
    if shape in (expected, turned):
        return expected, FITS, None
    return expected, FAILS, "it has not the sizes of the model"
