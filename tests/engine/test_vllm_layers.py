"""The adapter on vLLM's own layers and quant methods: what it reads, decides, pads and refuses."""

import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from layers import DEEPSEEK_V4_PRO, Rules, Shape, Watch, build, configured, pretend
from vllm.model_executor.layers.fused_moe import unquantized_fused_moe_method as unquantized
from vllm.model_executor.layers.fused_moe.oracle.fp8 import Fp8MoeBackend
from vllm.model_executor.layers.fused_moe.oracle.mxfp4 import Mxfp4MoeBackend
from vllm.model_executor.layers.fused_moe.oracle.unquantized import UnquantizedMoeBackend
from vllm.model_executor.layers.quantization import fp8, mxfp4
from vllm.model_executor.layers.quantization.online import mxfp4 as online_mxfp4
from vllm.model_executor.layers.quantization.quark import quark_moe
from vllm.model_executor.layers.quantization.utils.quant_utils import kMxfp4Static
from vllm.model_executor.models.dbrx import DbrxExperts

from moe_align.adapters.torch import unpad
from moe_align.adapters.vllm.methods import METHODS, QuantMethod
from moe_align.adapters.vllm.pads import Sizes, neutral, paddings_of
from moe_align.adapters.vllm.session import StartRefused

pytest_plugins = "watching"

Make = Callable[[Any], Any]


def chosen(monkeypatch: Any, backend: Any) -> dict[str, Make]:
    """The method classes whose rounding looks at an MXFP4 backend, with `backend` for the one selected."""
    for module, name in [
        (mxfp4, "select_mxfp4_moe_backend"),
        (mxfp4, "select_deepseek_v4_mxfp4_moe_backend"),
        (online_mxfp4, "select_mxfp4_moe_backend"),
        (quark_moe, "select_mxfp4_moe_backend"),
    ]:
        monkeypatch.setattr(module, name, lambda *args, **kwargs: (backend, None))
    monkeypatch.setattr(quark_moe, "backend_to_kernel_cls", lambda backend: [None])
    return {
        "default": lambda layer: mxfp4.Mxfp4MoEMethod(layer.moe_config),
        "gpt_oss": lambda layer: mxfp4.GptOssMxfp4MoEMethod(layer.moe_config),
        "online": lambda layer: online_mxfp4.Mxfp4OnlineMoEMethod(moe=layer.moe_config),
        "quark": lambda layer: quark_moe.QuarkOCP_MX_MoEMethod(layer.moe_config, kMxfp4Static, None),
    }


def test_deepseek_v4_pro_is_seen_as_it_is(monkeypatch: pytest.MonkeyPatch, watched: Watch) -> None:
    pretend(monkeypatch, "rocm")
    session = watched()
    with configured():
        layer = build(DEEPSEEK_V4_PRO, chosen(monkeypatch, Mxfp4MoeBackend.AITER_MXFP4_BF16)["default"])
    record = session.records[layer]
    assert (record.entering, record.engine, record.allocated) == ((7168, 384),) * 3
    assert record.rule == "vllm-mxfp4/aiter-bf16-silu-situ"
    assert layer.moe_config.intermediate_size_per_partition == 384
    assert round(61 * record.created_bytes / 2**30, 2) == 95.70


def test_a_pad_that_vllm_doubles_at_one_rank_is_found(
    monkeypatch: pytest.MonkeyPatch, watched: Watch
) -> None:
    """gpt-oss on one rank: 2880 is padded to 3072, and AITER, which doubles by itself, is told 384 of 192."""
    pretend(monkeypatch, "rocm")
    session = watched()
    methods = chosen(monkeypatch, Mxfp4MoeBackend.AITER_MXFP4_BF16)
    with configured():
        layer = build(Shape(2880, 2880, activation="swigluoai"), methods["gpt_oss"])
        other = build(Shape(2880, 5760, tp=2, activation="swigluoai"), methods["gpt_oss"])
    assert session.records[layer].allocated == session.records[other].allocated == (3072, 3072)
    assert [text for text in session.records[layer].warnings if "(silent)" in text]
    assert not [text for text in session.records[other].warnings if "(silent)" in text]


HARDWARE = [
    ("rocm", "gfx942"),
    ("rocm", "gfx950"),
    ("rocm", "gfx1250"),
    ("cuda", ""),
    ("xpu", ""),
    ("cpu", ""),
]


@pytest.mark.parametrize("method", ["default", "gpt_oss", "online", "quark"])
@pytest.mark.parametrize(("platform", "arch"), HARDWARE)
def test_the_mirror_says_what_every_mxfp4_method_does(
    monkeypatch: pytest.MonkeyPatch, watched: Watch, method: Any, platform: str, arch: str
) -> None:
    """For every backend, sensible or not; where the vocabulary excludes the pair, nothing is said."""
    pretend(monkeypatch, platform, arch)
    session = watched()
    said = 0
    with configured("other"):
        for backend, activation in itertools.product(Mxfp4MoeBackend, ("silu", "swigluoai", "situ")):
            # Whole blocks of 32, which online quantisation wants, and nothing larger.
            shape = Shape(2880, 5824, tp=2, activation=activation)
            record = session.records[build(shape, chosen(monkeypatch, backend)[method])]
            if record.expected is not None:
                assert record.expected == record.engine, (backend, activation)
                said += 1
    assert said >= 3 * 8


LAYER = """\
language: 1
pack: wider
phase: {phase}
for: {{engine: vllm, scheme: {scheme}}}
rules:
  - id: wider
    {outcome}
    why: a test
    source: a test
"""


def layer_of_rules(scheme: str, outcome: str, phase: str = "allocate") -> str:
    """One pack with one rule that always holds."""
    return LAYER.format(scheme=scheme, outcome=outcome, phase=phase)


def fp8_blocks(block: int | None) -> Make:
    """Makes the method of an FP8 checkpoint with square blocks, or with one scale for each tensor."""
    config = fp8.Fp8Config(
        is_checkpoint_fp8_serialized=True,
        activation_scheme="dynamic",
        weight_block_size=None if block is None else [block, block],
    )
    return lambda layer: fp8.Fp8MoEMethod(config, layer)


def bf16(layer: Any) -> Any:
    """The method of an unquantised checkpoint."""
    return unquantized.UnquantizedFusedMoEMethod(layer.moe_config)


PADDED = [
    pytest.param("unquantized", lambda of_mxfp4: bf16, id="bf16"),
    pytest.param("mxfp4", lambda of_mxfp4: of_mxfp4["default"], id="mxfp4"),
    pytest.param("mxfp4", lambda of_mxfp4: of_mxfp4["quark"], id="mxfp4-quark"),
    pytest.param("fp8_block", lambda of_mxfp4: fp8_blocks(32), id="fp8-block"),
    pytest.param("fp8_tensor", lambda of_mxfp4: fp8_blocks(None), id="fp8-tensor"),
]


def load(layer: Any, seed: int) -> None:
    """Load random whole-model tensors into every parameter by vLLM's own loader, from memory full of 0xFF."""
    generator = torch.Generator().manual_seed(seed)
    shape = layer.moe_config
    for name, parameter in sorted(layer.named_parameters(recurse=False)):
        side = name.split("_")[0]
        parameter.data.view(torch.uint8).fill_(0xFF)
        if parameter.ndim < 3:
            parameter.data.fill_(1)
            continue
        halves = 2 if side == "w13" else 1
        sizes = Sizes(
            (shape.hidden_dim_unpadded, shape.intermediate_size_per_partition_unpadded),
            (shape.hidden_dim, shape.intermediate_size_per_partition),
            gated=True,
        )
        rows, columns = paddings_of(name, parameter, sizes)
        # Cells of the whole tensor: of the split dimension as many as all ranks hold together.
        cells = [rows.native, columns.native]
        cells[0 if side == "w13" else 1] *= shape.tp_size
        for expert in range(layer.local_num_experts):
            for shard in ("w1", "w3")[:halves] if side == "w13" else ("w2",):
                values = torch.randint(0, 120, cells, dtype=torch.uint8, generator=generator)
                loaded = values.float() if parameter.dtype == torch.float32 else values.view(torch.uint8)
                loaded = (
                    loaded.view(parameter.dtype) if parameter.itemsize == 1 else loaded.to(parameter.dtype)
                )
                assert parameter.weight_loader(parameter, loaded, name, shard, expert, return_success=True)


def cells_that_hold(value: float, tensor: torch.Tensor) -> int:
    """How many cells of `tensor` hold exactly `value`, to the bit."""
    wanted = torch.tensor([value], dtype=torch.float32).to(tensor.dtype).view(torch.uint8)
    bits = tensor.contiguous().view(torch.uint8).unflatten(-1, (-1, wanted.numel()))
    return int((bits == wanted).all(-1).sum())


@pytest.mark.parametrize(("scheme", "make"), PADDED)
@pytest.mark.parametrize("tp_rank", [0, 1])
def test_padded_layers_hold_the_checkpoint_and_neutral_pads(
    monkeypatch: pytest.MonkeyPatch,
    watched: Watch,
    rules: Rules,
    one_rank: None,
    scheme: str,
    make: Any,
    tp_rank: int,
) -> None:
    """The same tensors through vLLM's own loader into a layer as vLLM makes it and into a padded one."""
    monkeypatch.setattr(
        unquantized, "select_unquantized_moe_backend", lambda moe_config: (UnquantizedMoeBackend.TRITON, None)
    )
    monkeypatch.setattr(fp8, "select_fp8_moe_backend", lambda **kwargs: (Fp8MoeBackend.TRITON, None))
    method = make(chosen(monkeypatch, Mxfp4MoeBackend.TRITON))
    shape = Shape(128, 192, experts=3, tp=2, tp_rank=tp_rank)
    rules(layer_of_rules(scheme, "align: {hidden: 192, intermediate: 160}"))
    with configured("other") as config:
        plain = build(shape, method, device="cpu")
        session = watched("apply")
        session.config_made(config)
        padded = build(shape, method, device="cpu")
    assert session.records[padded].applied
    assert (padded.moe_config.hidden_dim, padded.moe_config.intermediate_size_per_partition) == (192, 160)
    for layer in (plain, padded):
        load(layer, seed=5)
    with session.weights_loaded(padded, padded.quant_method):
        pass
    native = (128, 96)
    by_vllm = Sizes(native, (128, plain.moe_config.intermediate_size_per_partition), gated=True)
    by_rule = Sizes(native, (192, 160), gated=True)
    for name, parameter in padded.named_parameters(recurse=False):
        live = unpad(parameter.data, paddings_of(name, parameter, by_rule))
        alone = plain.get_parameter(name)
        assert torch.equal(
            live.view(torch.uint8), unpad(alone.data, paddings_of(name, alone, by_vllm)).view(torch.uint8)
        ), name
        pad_value = neutral(name, parameter)
        in_pads = cells_that_hold(pad_value, parameter.data) - cells_that_hold(pad_value, live)
        assert in_pads == parameter.numel() - live.numel(), name


REFUSED = [
    pytest.param(
        "align: {intermediate: 200}", "intermediate 200 is not a whole number of blocks of 32", id="block"
    ),
    pytest.param("set: {intermediate: 64}", "intermediate is set to 64, below 96", id="below-native"),
    pytest.param("reject: no kernel", "the decision is rejected: no kernel", id="rejected"),
    pytest.param(
        "when: {gate_layout: interleaved}\n    align: 256",
        "the decision is undecided: depends on gate_layout",
        id="undecided",
    ),
]


@pytest.mark.parametrize(("outcome", "message"), REFUSED)
def test_a_users_decision_that_cannot_be_carried_out_stops_the_start(
    monkeypatch: pytest.MonkeyPatch, watched: Watch, rules: Rules, one_rank: None, outcome: str, message: str
) -> None:
    rules(layer_of_rules("mxfp4", outcome, phase="model" if "set" in outcome else "allocate"))
    make = chosen(monkeypatch, Mxfp4MoeBackend.NONE)["default"]
    with configured("other") as config:
        session = watched("apply")
        session.config_made(config)
        with pytest.raises(
            StartRefused, match=r"layer model\.layers\.3\.mlp\.experts: wider/wider: "
        ) as refused:
            build(Shape(128, 96), make)
    assert message in str(refused.value)


def test_blocks_of_the_checkpoint_must_not_lie_on_two_ranks(
    monkeypatch: pytest.MonkeyPatch, watched: Watch, rules: Rules, one_rank: None
) -> None:
    rules(layer_of_rules("mxfp4", "align: {intermediate: 256}"))
    make = chosen(monkeypatch, Mxfp4MoeBackend.NONE)["default"]
    with configured("other") as config:
        session = watched("apply")
        session.config_made(config)
        with pytest.raises(
            StartRefused, match="a rank's 48 columns do not end on the checkpoint's blocks of 32"
        ):
            build(Shape(128, 96, tp=2), make)


def test_elastic_expert_parallelism_is_refused(
    monkeypatch: pytest.MonkeyPatch, watched: Watch, rules: Rules, one_rank: None
) -> None:
    rules(layer_of_rules("mxfp4", "align: {intermediate: 256}"))
    make = chosen(monkeypatch, Mxfp4MoeBackend.NONE)["default"]
    with configured("other", enable_elastic_ep=True) as config:
        session = watched("apply")
        session.config_made(config)
        with pytest.raises(StartRefused, match="elastic expert parallelism sets the sizes back"):
            build(Shape(128, 96), make)


def dbrx(*args: Any, **kwargs: Any) -> Any:
    """A layer of DBRX's own class."""
    config = SimpleNamespace(d_model=128, ffn_config=SimpleNamespace(ffn_hidden_size=96))
    return DbrxExperts(*args, config=config, **kwargs)


LEFT_ALONE = [
    pytest.param("gpt_oss", "other", None, "cuts ranks by the allocated width", id="gpt-oss-method"),
    pytest.param("default", "other", dbrx, "puts the up half at the native offset", id="dbrx-layer"),
    pytest.param("default", "flint", None, "refuse padded experts", id="flint-model"),
]


@pytest.mark.parametrize(("method", "model_type", "layer_class", "reason"), LEFT_ALONE)
@pytest.mark.parametrize("mode", ["observe", "apply"])
def test_layers_that_copy_strictly_keep_their_sizes(
    monkeypatch: pytest.MonkeyPatch,
    watched: Watch,
    rules: Rules,
    one_rank: None,
    method: Any,
    model_type: str,
    layer_class: Any,
    reason: str,
    mode: str,
) -> None:
    rules(layer_of_rules("mxfp4", "align: {intermediate: 256}"))
    make = chosen(monkeypatch, Mxfp4MoeBackend.NONE)[method]
    options = {} if layer_class is None else {"layer_class": layer_class}
    with configured(model_type) as config:
        session = watched(mode)
        session.config_made(config)
        layer = build(Shape(128, 128), make, **options)
    record = session.records[layer]
    assert record.allocated == record.engine == (128, 128)
    said = record.notes if mode == "apply" else record.remarks
    assert any("wider/wider" in text and reason in text for text in said)


def test_refined_blocks_are_left_alone(
    monkeypatch: pytest.MonkeyPatch, watched: Watch, rules: Rules, one_rank: None
) -> None:
    monkeypatch.setattr(fp8, "select_fp8_moe_backend", lambda **kwargs: (Fp8MoeBackend.TRITON, None))
    monkeypatch.setattr(
        "vllm.model_executor.layers.fused_moe.oracle.fp8.get_tensor_model_parallel_world_size",
        lambda: 2,
        raising=False,
    )
    rules(layer_of_rules("fp8_block", "align: {intermediate: 256}"))
    with configured("other") as config:
        session = watched("apply")
        session.config_made(config)
        layer = build(Shape(256, 384, tp=2), fp8_blocks(128))
    record = session.records[layer]
    assert layer.quant_method.weight_scale_refine is not None
    assert record.allocated == record.engine == (256, 192)
    assert "vLLM has refined the weight blocks" in record.notes[-1]


class Homemade(mxfp4.FusedMoEMethodBase):  # type: ignore[misc]  # typed in the engine environment
    """A quant method of somebody's own."""

    def create_weights(self, layer: Any, num_experts: int, hidden_size: int, **sizes: Any) -> None:
        self.created = (hidden_size, sizes["intermediate_size_per_partition"])

    def get_fused_moe_quant_config(self, layer: Any) -> None:
        return None


class Listed(Homemade):
    """One whose name the table gets, with a scheme that no pack has."""


@pytest.mark.parametrize(
    ("method", "said"),
    [
        (Homemade, "– (quant method Homemade is not known)"),
        (Listed, "– (unknown scheme `homemade`)"),
    ],
)
@pytest.mark.parametrize("mode", ["observe", "apply"])
def test_what_no_pack_knows_is_said_and_left_alone(
    monkeypatch: pytest.MonkeyPatch,
    watched: Watch,
    rules: Rules,
    one_rank: None,
    method: Any,
    said: str,
    mode: str,
) -> None:
    monkeypatch.setitem(METHODS, "Listed", QuantMethod("homemade"))
    rules(layer_of_rules("mxfp4", "align: {intermediate: 256}"))
    with configured("other") as config:
        session = watched(mode)
        session.config_made(config)
        layer = build(Shape(128, 96), lambda layer: method(layer.moe_config))
    record = session.records[layer]
    assert (record.rule, record.warnings) == (said, ())
    assert record.allocated == layer.quant_method.created == (128, 96)


def test_a_difference_between_engine_and_pack_is_a_warning_that_names_both(
    monkeypatch: pytest.MonkeyPatch, watched: Watch, one_rank: None
) -> None:
    """As it would be if a release changed what it does: here the method rounds to 1024."""
    make = chosen(monkeypatch, Mxfp4MoeBackend.NONE)["default"]
    monkeypatch.setattr(
        mxfp4.Mxfp4MoEMethod, "maybe_roundup_sizes", lambda self, *sizes, **more: (1024, 1024)
    )
    session = watched()
    with configured("other"):
        layer = build(Shape(128, 96), make)
    assert session.records[layer].warnings == (
        "vLLM allocates 1024 × 1024, vllm-mxfp4/otherwise says 128 × 128",
    )


def test_a_fault_of_the_adapter_in_observe_mode_is_logged_and_the_engine_goes_on(
    monkeypatch: pytest.MonkeyPatch, watched: Watch, caplog: pytest.LogCaptureFixture
) -> None:
    make = chosen(monkeypatch, Mxfp4MoeBackend.NONE)["default"]
    monkeypatch.setattr("moe_align.adapters.vllm.session.read_layer", lambda *args: 1 / 0)
    session = watched()
    with configured("other"):
        layers = [build(Shape(128, 96), make) for _ in range(2)]
    assert [layer.moe_config.intermediate_size_per_partition for layer in layers] == [128, 128]
    assert [record.getMessage() for record in caplog.records if record.name == "vllm.moe_align"] == [
        "moe-align observes nothing more: division by zero"
    ]
    assert len(session.records) == 0
