"""What an engine would load a snapshot into: the sizes of a decision, with all that shapes depend on."""

from __future__ import annotations

from ..facts import Facts
from ..known import known
from ..layout import Experts
from ..parallel import vllm_experts
from ..record import NamedTuple
from .layout import is_left_alone
from .manifest import Manifest, Sizes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..decision import Decision
    from ..models import Model
    from ..policy import Policy


class Wanted(NamedTuple):
    """What an engine would load the snapshot into, on each rank, and what the checkpoint has.

    `experts` are those of the model, `native` and `allocated` the sizes of one rank, `whole` the
    intermediate size before any split. `layout` says what saved parameters are where no manifest does.
    """

    experts: int
    native: Sizes
    allocated: Sizes
    whole: int
    scheme: str
    gated: bool
    bias: bool
    block: tuple[int, int] | None
    backend: str | None
    tp: int
    dp: int
    moe_tp: int
    moe_ep: int
    interleaved: bool = False
    engine_version: str | None = None
    layout: str | None = None
    main_layers: int | None = None
    fnuz: bool = False

    def layer(self, experts: int, sizes: Sizes) -> Experts:
        return Experts(
            self.scheme,
            experts,
            sizes.hidden,
            sizes.intermediate,
            gated=self.gated,
            bias=self.bias,
            block=self.block,
        )

    def local_experts(self, rank: int) -> int:
        """The experts of one rank, dealt out as vLLM does."""
        return vllm_experts(self.experts, self.moe_ep, rank % self.moe_ep).routed

    @property
    def is_left_alone(self) -> bool:
        """Whether repacking leaves parameters as they were created."""
        return is_left_alone(self.scheme, self.backend, fnuz=self.fnuz)

    def manifest(self, digest: str, layout: str, pp: int = 1) -> Manifest:
        parallel = {"tp": self.tp, "pp": pp, "dp": self.dp, "moe_tp": self.moe_tp, "moe_ep": self.moe_ep}
        return Manifest(
            digest,
            "vllm",
            self.engine_version,
            self.backend,
            self.scheme,
            parallel,
            self.experts,
            self.native,
            self.allocated,
            layout,
            self.interleaved,
        )


def wanted_of(
    policy: Policy, facts: Facts, model: Model | None = None, layout: str | None = None
) -> Wanted | str:
    """What a deployment loads into, or why that is not known.

    Raises:
        PolicyError: names that no pack declares, facts that contradict each other.
    """
    decision = policy.resolve(facts)
    values = known(policy.stack.vocabulary, facts).values
    if decision.status != "decided":
        return f"the decision is {decision.status}: {decision.reason or 'nothing says more'}"
    needed = ("scheme", "experts", "gated", "moe_tp", "moe_ep")
    lacking = [name for name in needed if values.get(name) is None]
    sizes = _sizes(decision)
    if lacking or sizes is None:
        return f"{', '.join(lacking) or 'the sizes'} of the layer must be known: give --model"
    release = facts.get("vllm")
    made = _wanted(values, sizes, decision, model, layout)
    # A release that was assumed is nothing to put on record.
    return made._replace(engine_version=str(release) if release is not None else None)


def _sizes(decision: Decision) -> tuple[Sizes, Sizes] | None:
    hidden, intermediate = decision.hidden, decision.intermediate
    sizes = (hidden.native, intermediate.native, hidden.allocated, intermediate.allocated)
    given = [size for size in sizes if size is not None]
    return (Sizes(*given[:2]), Sizes(*given[2:])) if len(given) == len(sizes) else None


def _wanted(
    values: Mapping[str, object],
    sizes: tuple[Sizes, Sizes],
    decision: Decision,
    model: Model | None,
    layout: str | None,
) -> Wanted:
    native, allocated = sizes
    blocks = {**values, **dict(decision.blocks)}
    rows, columns = blocks.get("block_n"), blocks.get("block_k")
    whole = values.get("intermediate")
    layers = (model.moe_layers, model.dense_layers) if model else (None, None)
    return Wanted(
        experts=_count(values.get("experts")),
        native=native,
        allocated=allocated,
        whole=whole if isinstance(whole, int) else native.intermediate * _count(values.get("moe_tp")),
        scheme=str(values["scheme"]),
        gated=values["gated"] == "true",
        bias=values.get("bias") == "true",
        block=(rows, columns) if isinstance(rows, int) and isinstance(columns, int) else None,
        backend=decision.backend,
        tp=_count(values.get("tp")),
        dp=_count(values.get("dp")),
        moe_tp=_count(values.get("moe_tp")),
        moe_ep=_count(values.get("moe_ep")),
        # An arch of ROCm that is not known may be the one that converts.
        fnuz=values.get("platform") == "rocm" and values.get("arch") != "gfx950",
        interleaved=values.get("gate_layout") == "interleaved",
        layout=layout,
        main_layers=sum(layers) if None not in layers else None,  # type: ignore[arg-type]
    )


def _count(value: object) -> int:
    return value if isinstance(value, int) else 1
