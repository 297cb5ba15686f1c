"""Facts and their values as a person reads them."""

from __future__ import annotations

from ..facts import NAMESPACES, VERSIONS
from ..versions import VersionSet, key_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from ..packs import Accepts
    from ..versions import Interval, Key

PRODUCTS = {
    "vllm": "vLLM",
    "sglang": "SGLang",
    "atom": "ATOM",
    "aiter": "AITER",
    "flashinfer": "FlashInfer",
}

_RANKS = {
    "tp": "TP",
    "dp": "DP",
    "pcp": "PCP",
    "ep": "EP",
    "sp": "SP",
    "moe_tp": "MoE-TP",
    "moe_ep": "MoE-EP",
}

#: Values that say enough without their key.
_PLAIN = frozenset({"scheme", "platform", "arch", "backend", "activation"})

#: Facts that are arithmetic on others, or that another one says already.
_DERIVED = frozenset(
    {"moe_tp", "moe_ep", "gated", "hidden", "intermediate"}
    | {"native_hidden", "native_intermediate", "intermediate_per_partition"}
)

#: Assumptions that are worth a word whatever hangs on them, in this order.
_ALWAYS = ("engine", *VERSIONS, "tp", "ep", "dp", "method")

_ENGINES = frozenset({"vllm", "sglang", "atom"})

GIB = 2**30


def assumed_text(
    assumed: Mapping[str, str | int], engine: str, *, decisive: Collection[str], released: bool
) -> list[str]:
    """What was assumed, in a few words, most important first.

    Of the many things that are off, only those in `decisive` are worth one: another value of them would
    change the answer. The engine needs none where its release is known; other engines need no release.
    """
    silent = {*_ENGINES - {engine}, *(["engine"] if released else [])}
    spoken = [key for key in _ALWAYS if key in assumed and key not in silent]
    spoken += [key for key in assumed if key in decisive and key not in _ALWAYS]
    return [fact_text(key, assumed[key]) for key in spoken]


def implied_text(implied: Mapping[str, str | int]) -> list[str]:
    """What other facts imply."""
    return [fact_text(key, value) for key, value in implied.items() if key not in _DERIVED]


def fact_text(key: str, value: object) -> str:
    """One fact with its value."""
    namespace, _, name = key.partition(".")
    if namespace in NAMESPACES:
        return (
            f"{name}={value}" if namespace == "env" else f"{'has' if value == 'true' else 'without'} {name}"
        )
    if key == "engine":
        return PRODUCTS.get(str(value), str(value))
    if key in VERSIONS:
        return f"{PRODUCTS[key]} {value}"
    if key in _RANKS:
        return f"{_RANKS[key]} off" if key in ("ep", "sp") and value == 1 else f"{_RANKS[key]} {value}"
    if value in ("true", "false"):
        return key if value == "true" else f"no {key}"
    return str(value) if key in _PLAIN else f"{name_text(key)} {value}"


def name_text(key: str) -> str:
    """A fact's name inside a sentence."""
    return PRODUCTS.get(key) or _RANKS.get(key) or key.replace("_", " ")


def value_text(key: str, value: object) -> str:
    """A value as conditions compare it, as one writes it; `None` is open."""
    if value is None:
        return "open"
    return key_text(value) if isinstance(value, tuple) else str(value)


def accepts_text(key: str, accepts: Accepts, covered: VersionSet | None = None) -> str:
    """The values of one fact with its name."""
    if isinstance(accepts, frozenset):
        return f"{name_text(key)} {listed(sorted(accepts), 6)}"
    values = values_text(key, accepts, covered)
    if key in VERSIONS:
        values = values.replace(">=", "≥ ").replace("<", "< ").replace(",", " and ").replace("==", "")
    return f"{name_text(key)} {values}"


def values_text(key: str, accepts: Accepts, covered: VersionSet | None = None) -> str:
    """The values of one fact. Bounds of releases that lie where the rules begin or end are left out."""
    if isinstance(accepts, frozenset):
        return ", ".join(sorted(accepts))
    if key not in VERSIONS or covered is None or covered.is_empty:
        return str(accepts)
    low, high = covered.intervals[0][0], covered.intervals[-1][1]
    return " or ".join(_span(span, low, high) for span in accepts.intervals)  # type: ignore[union-attr]


def _span(span: Interval, low: Key, high: Key | None) -> str:
    """One span of releases, where nothing is known below `low` and from `high` on."""
    first, end = span
    from_start = first <= low
    to_end = end is None or (high is not None and end >= high)
    if from_start and to_end:
        return "any"
    return str(VersionSet((((0,) if from_start else first, None if to_end else end),)))


def gib(size: int | None) -> str:
    """Bytes in GiB with two digits, or a dash where they are not known."""
    return "–" if size is None else f"{size / GIB:.2f}"


def listed(names: Iterable[str], most: int = 12, between: str = ", ") -> str:
    """Names with commas between; of many the first, and how many more there are."""
    shown = list(names)
    more = f" and {len(shown) - most} more" if len(shown) > most else ""
    return between.join(shown[:most]) + more
