"""The closed set of facts that a rule may look at, and the facts that a caller gives.

A fact is one thing known about an expert layer. Adding a key is a change here; adding a value is
data (`rules/vocabulary.yaml`). Sizes are counted in elements, per rank unless the text says otherwise.
"""

from __future__ import annotations

from .errors import PolicyError, Problem, did_you_mean

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import TypedDict, Unpack

    class Given(TypedDict, total=False):
        """The keywords of `Facts`, one for each key below; see `DISCRETE`, `INTEGERS`, `VERSIONS`."""

        engine: str
        scheme: str
        method: str
        model_type: str
        backend: str
        requested: str
        kernel: str
        activation: str
        gated: bool
        act_dtype: str
        act_scale: str
        activations: str
        gate_layout: str
        platform: str
        arch: str
        all2all: str
        bias: bool
        lora: bool
        lora_sharded: bool
        presharded: bool
        eplb: bool
        placement: str
        routing: str
        tp: int
        dp: int
        pcp: int
        ep: int
        sp: int
        moe_tp: int
        moe_ep: int
        fused_shared_experts: int
        redundant_experts: int
        experts: int
        expert_groups: int
        topk: int
        block_n: int
        block_k: int
        group: int
        act_bytes: int
        max_tokens: int
        hidden: int
        intermediate_per_partition: int
        native_hidden: int
        native_intermediate: int
        intermediate: int
        vllm: str
        sglang: str
        atom: str
        aiter: str
        flashinfer: str
        env: Mapping[str, str]
        has: Mapping[str, bool]


DISCRETE: dict[str, str] = {
    "engine": "the serving engine that allocates the weights",
    "scheme": "the format of the expert weights",
    "method": "the quant-method class of the engine that owns the layer",
    "model_type": "`model_type` of the checkpoint's config, where engine code looks at it",
    "backend": "the fused-MoE kernel backend that the engine selected",
    "requested": "the backend that was asked for, or `auto`",
    "kernel": "one kernel of a backend, where a contract is about that kernel alone",
    "activation": "the activation between the two expert GEMMs",
    "gated": "whether w13 holds a gate and an up half (`true`) or one up projection",
    "act_dtype": "the type in which activations reach the kernel",
    "act_scale": "whether the scale of FP8 activations is the checkpoint's (`static`) or found as they come",
    "activations": "the format that the checkpoint wants of activations; `none` leaves them as they are",
    "gate_layout": "how gate and up rows lie in w13: stacked or interleaved",
    "platform": "the hardware platform, as the engine names it",
    "arch": "the GPU architecture; `none` where the platform has none",
    "all2all": "the expert-parallel transport; `none` without one",
    "bias": "whether the experts have biases",
    "lora": "whether LoRA is enabled for the layer",
    "lora_sharded": "whether both matrices of an adapter are sharded over the tensor-parallel ranks",
    "presharded": "whether the checkpoint's tensors are cut for the ranks already",
    "eplb": "whether experts are rebalanced over the ranks while serving",
    "placement": "how experts are dealt out to the ranks: in runs (`linear`) or in turn (`round_robin`)",
    "routing": "the routing method, where a kernel looks at it",
}

INTEGERS: dict[str, str] = {
    "tp": "tensor-parallel size as launched",
    "dp": "data-parallel size as launched",
    "pcp": "prefill-context-parallel size as launched",
    "ep": "expert-parallel size as launched; 1 is off",
    "sp": "sequence-parallel size as launched; 1 is off",
    "moe_tp": "ranks that share one expert, as the engine derives it",
    "moe_ep": "ranks over which the experts are spread, as the engine derives it",
    "fused_shared_experts": "shared experts that are fused into the routed ones; 0 is none",
    "redundant_experts": "copies of routed experts that rebalancing adds, over all ranks; 0 is none",
    "experts": "routed experts of the whole model",
    "expert_groups": "groups of experts among which the router chooses first; 1 is none",
    "topk": "experts per token",
    "block_n": "rows of one quantization block of a weight",
    "block_k": "columns of one quantization block of a weight",
    "group": "elements that share one scale along the reduction dimension; 1 stands for a whole row",
    "act_bytes": "bytes of one activation element",
    "max_tokens": "tokens of the largest batch",
    "hidden": "expert hidden size as it enters the phase",
    "intermediate_per_partition": "one gate or up half of one expert on one rank, as it enters the phase",
    "native_hidden": "expert hidden size before any padding",
    "native_intermediate": "intermediate size per partition before any padding",
    "intermediate": "intermediate size of one expert of the model, before the split",
}

VERSIONS: dict[str, str] = {
    "vllm": "release of vLLM",
    "sglang": "release of SGLang",
    "atom": "release of ATOM",
    "aiter": "release of amd-aiter",
    "flashinfer": "release of FlashInfer",
}

NAMESPACES: dict[str, str] = {
    "env": "an environment switch of an engine; `unset` where it is not set",
    "has": "a capability that was found by probing the installed library",
}

BOOLEANS = frozenset({"gated", "bias", "lora", "lora_sharded", "presharded", "eplb"})

#: The sizes that rules change, in the order in which answers give them.
SIZES = ("hidden", "intermediate_per_partition")

#: A condition on the size as it first entered sees the fact of the second name.
FIRST_SIZES = {"native_hidden": "hidden", "native_intermediate": "intermediate_per_partition"}

#: Other facts that say a size.
_OF_SIZES = frozenset({*FIRST_SIZES, "intermediate"})

#: Integer facts that may be zero.
_ZERO_ALLOWED = frozenset({"fused_shared_experts", "redundant_experts"})

#: Above this a size is a mistake, not a model: 2^31 elements of one dimension.
LARGEST = 2**31


def kind(key: str) -> str | None:
    """`discrete`, `integer` or `version` for a key of the closed set or of a namespace, else `None`."""
    if key in DISCRETE:
        return "discrete"
    if key in INTEGERS:
        return "integer"
    if key in VERSIONS:
        return "version"
    namespace, dot, name = key.partition(".")
    return "discrete" if dot and name and namespace in NAMESPACES else None


def lowest(key: str) -> int:
    """The least value that an integer fact may take."""
    return 0 if key in _ZERO_ALLOWED else 1


def keys() -> tuple[str, ...]:
    """Every key that stands for itself (namespaced keys are declared by the vocabulary)."""
    return (*DISCRETE, *INTEGERS, *VERSIONS)


def meaning(key: str) -> str:
    """One sentence on what the key says; the units are those of the module."""
    namespace = key.partition(".")[0]
    for table in (DISCRETE, INTEGERS, VERSIONS):
        if key in table:
            return table[key]
    return NAMESPACES[namespace]


class Facts:
    """What a caller knows about one expert layer: keywords of the closed set, each given or left out.

    Sizes are in elements: `hidden`, `intermediate_per_partition` (one gate or up half on one MoE-TP
    rank) or `intermediate` (the model's, before the split). `env` and `has` are mappings of switches
    and capabilities. Frozen, hashable, picklable.

    Raises:
        PolicyError: an unknown keyword, a size that is no whole number or out of range.
    """

    __slots__ = ("_given", "_hash")

    _given: dict[str, str | int]
    _hash: int | None

    def __init__(self, **given: Unpack[Given]) -> None:
        object.__setattr__(self, "_given", _normalised(given))
        object.__setattr__(self, "_hash", None)

    @classmethod
    def of(cls, given: Mapping[str, object]) -> Facts:
        """The same from a mapping, where namespaced keys are written `env.NAME` and `has.NAME`."""
        facts = object.__new__(cls)
        object.__setattr__(facts, "_given", _normalised(given))
        object.__setattr__(facts, "_hash", None)
        return facts

    def having(self, **more: Unpack[Given]) -> Facts:
        """These facts with others added or replaced."""
        facts = object.__new__(Facts)
        object.__setattr__(facts, "_given", {**self._given, **_normalised(more)})
        object.__setattr__(facts, "_hash", None)
        return facts

    def without(self, *names: str) -> Facts:
        """These facts without some keys."""
        return Facts.of({key: value for key, value in self._given.items() if key not in names})

    def apart_from_sizes(self) -> tuple[frozenset[tuple[str, str | int]], int, int] | None:
        """What is given beside the two sizes, and these; `None` where one is lacking, or others are given."""
        rest = dict(self._given)
        hidden = rest.pop("hidden", None)
        intermediate = rest.pop("intermediate_per_partition", None)
        if type(hidden) is not int or type(intermediate) is not int or not _OF_SIZES.isdisjoint(rest):
            return None
        return frozenset(rest.items()), hidden, intermediate

    def get(self, key: str) -> str | int | None:
        return self._given.get(key)

    def items(self) -> tuple[tuple[str, str | int], ...]:
        return tuple(self._given.items())

    def __contains__(self, key: object) -> bool:
        return key in self._given

    def __iter__(self) -> Iterator[str]:
        return iter(self._given)

    def __len__(self) -> int:
        return len(self._given)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"facts are frozen: use `.having({name}=…)`")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Facts) and self._given == other._given

    def __hash__(self) -> int:
        if self._hash is None:
            object.__setattr__(self, "_hash", hash(frozenset(self._given.items())))
        return self._hash  # type: ignore[return-value]  # set just above

    def __repr__(self) -> str:
        return f"Facts({', '.join(f'{key}={value!r}' for key, value in self._given.items())})"

    def __reduce__(self) -> tuple[object, ...]:
        return (Facts.of, (dict(self._given),))


def _normalised(given: Mapping[str, object]) -> dict[str, str | int]:
    flat: dict[str, str | int] = {}
    problems: list[Problem] = []
    for key, value in given.items():
        if value is None:
            continue
        if key in NAMESPACES and hasattr(value, "items"):
            for name, inner in value.items():
                _put(flat, f"{key}.{name}", inner, problems)
        else:
            _put(flat, key, value, problems)
    if problems:
        raise PolicyError(problems)
    return flat


def _put(flat: dict[str, str | int], key: str, value: object, problems: list[Problem]) -> None:
    sort = kind(key)
    if sort is None:
        near = did_you_mean(key, keys())
        problems.append(
            Problem(
                "F001", f"unknown fact `{key}`", f"write `{near}`" if near else "see `moe-align list facts`"
            )
        )
    elif sort == "integer":
        checked = _integer(key, value, problems)
        if checked is not None:
            flat[key] = checked
    elif isinstance(value, bool):
        flat[key] = "true" if value else "false"
    elif isinstance(value, str) and value.strip():
        flat[key] = value.strip()
    elif sort == "discrete" and isinstance(value, int):
        flat[key] = str(value)
    else:
        if sort == "version":
            said, fix = "not the text of a release", "write it like `0.33.0`, in quotes"
        else:
            said, fix = "not a name", f"see `moe-align list {key}`"
        problems.append(Problem("F002", f"`{key}` is {value!r}, {said}", fix))


def _integer(key: str, value: object, problems: list[Problem]) -> int | None:
    least = lowest(key)
    if not isinstance(value, int) or isinstance(value, bool):
        problems.append(
            Problem("F003", f"`{key}` is {value!r}, not a whole number", f"give an integer ≥ {least}")
        )
        return None
    if value < least:
        problems.append(Problem("F004", f"`{key}` is {value}, below {least}", f"give an integer ≥ {least}"))
        return None
    if value > LARGEST:
        problems.append(
            Problem("F005", f"`{key}` is {value}, above {LARGEST}", "no expert dimension is that large")
        )
        return None
    return value
