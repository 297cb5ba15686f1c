"""SGLang's own code, asked: what does this release allocate for these sizes?

Answers are rows whose facts are ours, so that a test can put the same question to a policy. The functions
that decide on sizes run as they are; what stands for hardware, tensors and runners is here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from moe_align.verify.stand_ins import DTYPES, Logger, Namespace, Tensor, Unknown, Unlinked
from moe_align.verify.tree import Tree

Facts = Mapping[str, str | int]
Sizes = tuple[int, int]
Row = Mapping[str, object]

_LAYERS = "sglang.srt.layers"
_QUANT = f"{_LAYERS}.quantization"
REFUSALS = (ValueError, AssertionError, NotImplementedError, RuntimeError)

PAIRS = (
    (2880, 360),
    (2880, 720),
    (2880, 2880),
    (7168, 384),
    (7168, 3072),
    (4096, 192),
    (4096, 96),
    (6144, 1000),
    (2912, 160),
    (2048, 352),
    (2944, 640),
    (3584, 1856),
    (5120, 576),
    (4096, 288),
    (12288, 1408),
    (1024, 512),
    (2688, 1856),
    (3072, 3072),
)


class _Layer(Namespace):
    """A layer that keeps what weight creation registers, and what it is asked for before."""

    def register_parameter(self, name: str, value: object) -> None:
        setattr(self, name, value)


def _layer(hidden: int, intermediate: int, *, gated: bool = True, moe_tp: int = 1) -> _Layer:
    runner = SimpleNamespace(
        is_gated=gated,
        activation="silu",
        apply_router_weight_on_input=False,
        gemm1_alpha=None,
        gemm1_clamp_limit=None,
    )
    return _Layer(
        hidden_size=hidden,
        intermediate_size_per_partition=intermediate,
        num_local_experts=2,
        num_experts=2,
        moe_tp_size=moe_tp,
        moe_runner_config=runner,
        use_presharded_weights=True,
        with_bias=False,
    )


class _Choice:
    """A runner or a platform of which one name holds: `choice.is_NAME()` and `choice.is_NAME`."""

    def __init__(self, name: str | None) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> object:
        if not attribute.startswith("is_"):
            raise Unlinked(f"the choice has no `{attribute}`")
        return _Answer(attribute == f"is_{self._name}")


class _Answer:
    """True or false, called or not."""

    def __init__(self, value: bool) -> None:
        self._value = value

    def __bool__(self) -> bool:
        return self._value

    def __call__(self) -> bool:
        return self._value


class Weight(Tensor):
    """A tensor on which engine code may hang attributes of its own."""

    @property
    def data(self) -> Weight:
        return self

    def view(self, *_shape: object) -> Weight:
        return self

    def zero_(self) -> Weight:
        return self


def allocate(*shape: object, dtype: object = None, **_where: object) -> Weight:
    sizes = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple) else shape
    return Weight(tuple(s for s in cast(Sequence[object], sizes) if isinstance(s, int)), DTYPES["uint8"])


def kept(data: Tensor | None = None, *_args: object, **_more: object) -> Tensor | None:
    return data


def tensors() -> Namespace:
    nn = Namespace(Parameter=kept, Module=object)
    kinds = {name: dtype for name, dtype in DTYPES.items() if name != "float4_e2m1fn_x2"}
    return Namespace(
        empty=allocate,
        zeros=allocate,
        ones=allocate,
        full=allocate,
        nn=nn,
        get_default_device=lambda: "meta",
        device=lambda name: name,
        float4_e2m1fn_x2=DTYPES["float4_e2m1fn_x2"],
        **kinds,
    )


class _Common:
    """`sglang.srt.utils`, which hands on what its module `common` binds."""

    def __init__(self) -> None:
        self.tree: Tree | None = None

    def __getattr__(self, name: str) -> object:
        if name.startswith("__") or self.tree is None:
            raise AttributeError(name)
        if name == "set_weight_attrs":
            return lambda *_args: None
        dotted = f"sglang.srt.utils.common.{name}"
        return self.tree.get(dotted) if self.tree.has(dotted) else Unknown(name)


def link(root: Path) -> Tree:
    """The engine under `root`, with what surrounds weight creation replaced; no environment switch is set."""
    torch, utils = tensors(), _Common()
    tree = Tree(
        root,
        {
            "os": Namespace(getenv=lambda _name, default=None: default, environ={}),
            "sglang.srt.utils": utils,
            "torch": torch,
            "torch.nn": torch.nn,
            "torch.nn.Module": object,
            "torch.nn.parameter": torch.nn,
            "sglang.srt.utils.common.set_weight_attrs": lambda *_args: None,
            f"{_LAYERS}.parameter.ModelWeightParameter": kept,
            f"{_LAYERS}.parameter.PerTensorScaleParameter": kept,
            f"{_QUANT}.utils.swizzle_blockscale": lambda scale: scale,
            "logging": Namespace(getLogger=lambda _name: Logger()),
        },
    )
    utils.tree = tree
    return tree


def _made(
    method: object, layer: _Layer, hidden: int, intermediate: int, packed: bool, **more: object
) -> Sizes:
    """The sizes that weight creation gave: `w2` is `[experts, hidden, intermediate]`, packed or not."""
    create = cast("Callable[..., object]", method.create_weights)  # type: ignore[attr-defined]
    create(
        layer=layer,
        num_experts=2,
        hidden_size=hidden,
        intermediate_size_per_partition=intermediate,
        params_dtype=DTYPES["bfloat16"],
        weight_loader=None,
        **more,
    )
    shape = cast(Tensor, layer.w2_weight).shape
    return shape[1], shape[2] * (2 if packed else 1)


def bare(tree: Tree, dotted: str, **attributes: object) -> object:
    """An instance that never ran `__init__` and has just these attributes."""
    made = cast("type[object]", tree.get(dotted))
    instance: object = object.__new__(made)
    instance.__dict__.update(attributes)
    return instance


def cases_of(question: Callable[[int, int], Sizes]) -> list[list[object]]:
    cases: list[list[object]] = []
    for hidden, intermediate in PAIRS:
        try:
            cases.append([hidden, intermediate, *question(hidden, intermediate)])
        except REFUSALS as refusal:
            cases.append([hidden, intermediate, f"error: {type(refusal).__name__}", None])
    return cases


def row(facts: Facts, question: Callable[[int, int], Sizes], phase: str = "allocate") -> Row:
    return {"phase": phase, "facts": facts, "cases": cases_of(question)}


def _mxfp4(tree: Tree) -> Iterator[Row]:
    """`Mxfp4MoEMethod`: every branch of its weight creation."""
    module = f"{_QUANT}.mxfp4"
    runs: list[tuple[dict[str, str | int], dict[str, object], dict[str, bool]]] = []
    cuda = {"_use_aiter": False, "_is_xpu": False, "_aiter_k3_opt": False, "has_triton_kernels": True}
    for arch in ("sm90", "sm100", "sm120"):
        here = {"platform": "cuda", "arch": arch}
        runs.append(({**here, "backend": "marlin"}, {"use_marlin": True}, cuda))
        runs.append(({**here, "backend": "deepgemm"}, {"use_deep_gemm": True}, cuda))
        runs.append(({**here, "backend": "triton_kernels"}, {"use_triton_kernels": True}, cuda))
        kernel = "trtllm_sm100" if arch == "sm100" else f"cutlass_{arch}"
        for backend in (
            ("trtllm_bf16", "trtllm_mxfp8") if arch == "sm100" else ("cutlass_bf16", "cutlass_mxfp8")
        ):
            given = {"use_flashinfer": True, "_fi_kernel": kernel}
            runs.append(({**here, "backend": backend}, given, cuda))
    rocm = {"platform": "rocm", "backend": "aiter"}
    for arch in ("gfx942", "gfx950"):
        aiter = {**cuda, "_use_aiter": True, "_is_hip": True}
        runs.append(({**rocm, "arch": arch}, {}, aiter))
        switched = {**aiter, "_aiter_k3_opt": True}
        runs.append(({**rocm, "arch": arch, "env.SGLANG_AITER_K3_OPT": "1"}, {}, switched))
    runs.append(({"platform": "xpu", "backend": "xpu"}, {}, {**cuda, "_is_xpu": True}))
    runs.append(({"platform": "rocm", "arch": "gfx942", "backend": "triton_kernels"}, {}, cuda))
    for facts, given, switches in runs:
        names = ("use_marlin", "use_mega_moe", "use_deep_gemm", "use_flashinfer", "use_triton_kernels")
        attributes = {**dict.fromkeys(names, False), "_fi_kernel": None, **given}
        tree.replace({f"{module}.{name}": value for name, value in {"_is_hip": False, **switches}.items()})
        machine = _Choice(str(facts.get("arch")))
        tree.replace({f"{module}.get_platform": lambda machine=machine: machine})

        def question(h: int, i: int, attributes: dict[str, object] = attributes) -> Sizes:
            method = bare(tree, f"{module}.Mxfp4MoEMethod", **attributes)
            return _made(method, _layer(h, i), h, i, packed=True)

        yield row({"scheme": "mxfp4", "method": "default", **facts}, question)


def _fp4_experts(tree: Tree) -> Iterator[Row]:
    """The classes for MXFP4 experts of FP8 checkpoints that allocate by themselves."""
    module = f"{_QUANT}.mxfp4_marlin_moe"
    for arch in ("sm90", "sm100", "sm120"):
        tree.replace({f"{module}.get_platform": lambda arch=arch: _Choice(arch)})

        def marlin(h: int, i: int) -> Sizes:
            method = bare(tree, f"{module}.Mxfp4MarlinMoEMethod", _fp8=None)
            return _made(method, _layer(h, i), h, i, packed=True)

        facts = {"scheme": "mxfp4", "method": "fp4_experts", "backend": "marlin", "arch": arch}
        yield row(facts, marlin)
    module = f"{_QUANT}.mxfp4_flashinfer_cutlass_moe"

    def cutlass(h: int, i: int) -> Sizes:
        inner = SimpleNamespace(create_weights=lambda *_args, **_more: None)
        method = bare(tree, f"{module}.Mxfp4FlashinferCutlassMoEMethod", _fp8=inner)
        create = cast("Callable[..., object]", method.create_weights)  # type: ignore[attr-defined]
        create(_layer(h, i), 2, h, i, DTYPES["bfloat16"])
        return h, i

    yield row(
        {"scheme": "mxfp4", "method": "fp4_experts", "backend": "cutlass_bf16", "arch": "sm90"}, cutlass
    )


def _quark(tree: Tree) -> Iterator[Row]:
    """Sizes of `get_moe_weight_sizes` as the W4A4 class uses them, and the W4A8 class."""
    sizes = cast(
        "Callable[..., tuple[int, int, bool]]", tree.get(f"{_LAYERS}.moe.utils.get_moe_weight_sizes")
    )
    for aiter in (True, False):

        def w4a4(h: int, i: int, aiter: bool = aiter) -> Sizes:
            return h, sizes(i, is_aiter_moe=aiter, is_concat=True, is_packed=True)[1] * 2

        machine = (
            {"backend": "aiter", "platform": "rocm"}
            if aiter
            else {"backend": "emulation", "platform": "rocm"}
        )
        yield row({"scheme": "mxfp4", "method": "quark", **machine}, w4a4)
    module = f"{_QUANT}.quark.schemes.quark_w4a8_mxfp4_moe"
    for shuffled, arch in ((True, "gfx950"), (False, "gfx1250")):
        tree.replace({f"{module}._use_aiter_shuffle_layout": shuffled, f"{module}._use_aiter": True})

        def w4a8(h: int, i: int) -> Sizes:
            cls = next(
                name for name in ("QuarkW4A8MXFp4MoE", "QuarkW4A8MXFP4MoE") if tree.has(f"{module}.{name}")
            )
            method = bare(tree, f"{module}.{cls}")
            return _made(method, _layer(h, i), h, i, packed=True)

        yield row({"scheme": "mxfp4", "method": "quark_w4a8", "backend": "aiter", "arch": arch}, w4a8)


def _fp8(tree: Tree) -> Iterator[Row]:
    """`Fp8MoEMethod`, by block, by tensor, with AITER and without."""
    module = f"{_QUANT}.fp8"
    create = cast(
        "Callable[..., object]",
        cast(type, tree.get(f"{module}.Fp8MoEMethod")).create_fp8_moe_weight_,  # type: ignore[attr-defined]
    )
    for aiter in (False, True):
        tree.replace(
            {f"{module}._use_aiter": aiter, f"{module}._is_hip": aiter, f"{module}._use_hip_int4": False}
        )
        machine = (
            {"backend": "aiter", "platform": "rocm"} if aiter else {"backend": "triton", "platform": "cuda"}
        )
        for block in ((128, 128), (64, 64), (128, 64), None):
            if aiter and block not in ((128, 128), None):
                continue
            for moe_tp in (1, 2):

                def question(
                    h: int, i: int, block: tuple[int, int] | None = block, moe_tp: int = moe_tp
                ) -> Sizes:
                    layer = _layer(h, i, moe_tp=moe_tp)
                    create(
                        layer=layer,
                        num_experts=2,
                        hidden_size=h,
                        intermediate_size_per_partition=i,
                        block_quant=block is not None,
                        quant_config=SimpleNamespace(
                            weight_block_size=block,
                            activation_scheme="dynamic",
                            is_checkpoint_fp8_serialized=True,
                        ),
                        use_mxfp8=False,
                        is_checkpoint_fp8_serialized=True,
                        is_fp4_expert=False,
                        params_dtype=DTYPES["bfloat16"],
                        weight_loader=None,
                    )
                    shape = cast(Tensor, layer.w2_weight).shape
                    return shape[1], shape[2]

                facts: dict[str, str | int] = {"scheme": "fp8_block" if block else "fp8_tensor", **machine}
                if block:
                    facts.update(block_n=block[0], block_k=block[1])
                yield row({**facts, "moe_tp": moe_tp}, question)


def _nvfp4(tree: Tree) -> Iterator[Row]:
    module = f"{_QUANT}.modelopt_quant"
    config = SimpleNamespace(
        is_checkpoint_nvfp4_serialized=True,
        group_size=16,
        use_per_token_activation=False,
        get_name=lambda: "modelopt_fp4",
    )
    for backend, trtllm in (("trtllm", True), ("cutlass", False)):
        tree.replace({f"{module}.get_moe_runner_backend": lambda: _Choice(None)})
        for gated in (True, False):

            def question(h: int, i: int, gated: bool = gated, trtllm: bool = trtllm) -> Sizes:
                method = bare(
                    tree,
                    f"{module}.ModelOptNvFp4FusedMoEMethod",
                    quant_config=config,
                    enable_flashinfer_trtllm_moe=trtllm,
                    use_flashinfer_trtllm_weight_layout=trtllm,
                    prepare_weight_loader=lambda _layer, loader: loader,
                    has_bias=False,
                )
                return _made(method, _layer(h, i, gated=gated), h, i, packed=True)

            facts = {"scheme": "nvfp4", "backend": backend, "gated": "true" if gated else "false"}
            yield row(facts, question)
    align = cast(
        "Callable[[bool, bool], int]",
        tree.get(f"{_LAYERS}.moe.moe_runner.flashinfer_trtllm.trtllm_nvfp4_hidden_alignment"),
    )
    for kernel, per_token in (("trtllm_per_token", True), ("default", False)):

        def hidden(h: int, i: int, per_token: bool = per_token) -> Sizes:
            return -(-h // align(per_token, False)) * align(per_token, False), -(-i // 128) * 128

        yield row(
            {"scheme": "nvfp4", "backend": "trtllm", "gated": "false", "kernel": kernel}, hidden, "repack"
        )


def _integers(tree: Tree) -> Iterator[Row]:
    """Groups: whether Marlin takes a layer, and what the class for any group makes of the group."""
    takes = cast("Callable[..., bool]", tree.get(f"{_QUANT}.marlin_utils.check_moe_marlin_supports_layer"))
    for group in (32, 64, 128):

        def marlin(h: int, i: int, group: int = group) -> Sizes:
            if not takes(_layer(h, i), group):
                raise ValueError("not taken")
            return h, i

        facts = {"scheme": "int4_wna16", "method": "gptq", "backend": "marlin", "group": group}
        yield row(facts, marlin)
        yield row({**facts, "method": "awq", "backend": "triton"}, _any_group(tree, group))
    module = f"{_QUANT}.blockwise_int8"
    for moe_tp in (1, 2):
        for block in ((128, 128), (128, 64), (64, 128)):

            def question(h: int, i: int, block: tuple[int, int] = block, moe_tp: int = moe_tp) -> Sizes:
                config = SimpleNamespace(
                    weight_block_size=block, is_checkpoint_int8_serialized=True, activation_scheme="dynamic"
                )
                method = bare(tree, f"{module}.BlockInt8MoEMethod", quant_config=config)
                return _made(method, _layer(h, i, moe_tp=moe_tp), h, i, packed=False)

            facts = {"scheme": "int8_w8a8", "method": "blockwise_int8", "backend": "triton"}
            yield row({**facts, "block_n": block[0], "block_k": block[1], "moe_tp": moe_tp}, question)


def _any_group(tree: Tree, group: int) -> Callable[[int, int], Sizes]:
    """Asks `MoeWNA16Method`: the answer is the sizes and, in the place of the refused ones, an error."""
    module = f"{_QUANT}.moe_wna16"

    def question(h: int, i: int) -> Sizes:
        config = SimpleNamespace(
            bit8_pack_factor=2, group_size=group, has_zp=False, linear_quant_method="gptq"
        )
        method = bare(tree, f"{module}.MoeWNA16Method", quant_config=config)
        layer = _layer(h, i)
        create = cast("Callable[..., object]", method.create_weights)  # type: ignore[attr-defined]
        create(layer, 2, h, i, DTYPES["bfloat16"], weight_loader=None)
        return h, i

    return question


def groups(root: Path) -> list[Row]:
    """What the class for any group makes of a group: `[hidden, intermediate, group, refined group]`."""
    tree = link(root)
    rows: list[Row] = []
    for group in (64, 128, 256):
        cases: list[list[object]] = []
        for h, i in PAIRS:
            layer = _layer(h, i)
            config = SimpleNamespace(
                bit8_pack_factor=2, group_size=group, has_zp=False, linear_quant_method="gptq"
            )
            method = bare(tree, f"{_QUANT}.moe_wna16.MoeWNA16Method", quant_config=config)
            create = cast("Callable[..., object]", method.create_weights)  # type: ignore[attr-defined]
            try:
                create(layer, 2, h, i, DTYPES["bfloat16"], weight_loader=None)
                cases.append([h, i, group, layer.group_size])
            except AssertionError as refusal:
                cases.append([h, i, group, f"error: {type(refusal).__name__}"])
        rows.append({"group": group, "cases": cases})
    return rows


def _unquantized(tree: Tree) -> Iterator[Row]:
    """The stride that rows of w13 (over hidden) and w2 (over intermediate) get on XPU, in added elements."""
    added = cast("Callable[[int, int], int]", tree.get(f"{_LAYERS}.moe.utils.xpu_moe_ld_padding_elems"))

    def question(h: int, i: int) -> Sizes:
        return h + added(h, 2), i + added(i, 2)

    yield row({"scheme": "unquantized", "backend": "xpu", "platform": "xpu"}, question, "storage")


def _megamoe(tree: Tree) -> Iterator[Row]:
    check = cast("Callable[[int, int, str], None]", tree.get(f"{_LAYERS}.moe.mega_moe.check_mega_moe_shapes"))
    for scheme, kind in (("mxfp4", "fp8xfp4"), ("nvfp4", "nvfp4xnvfp4"), ("mxfp8", "fp8xfp8")):

        def question(h: int, i: int, kind: str = kind) -> Sizes:
            check(h, i, kind)
            return h, i

        yield row({"scheme": scheme, "backend": "megamoe", "arch": "sm100"}, question)


def answers(root: Path) -> list[Row]:
    """Everything that the SGLang under `root` answers, class by class."""
    tree = link(root)
    asked = (_mxfp4, _fp4_experts, _quark, _fp8, _nvfp4, _integers, _unquantized, _megamoe)
    return [row for ask in asked for row in ask(tree)]
