"""ATOM's own code, asked: what does it allocate for these sizes? Rows are those of `verify.sglang`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from moe_align.verify.sglang import PAIRS, Row, Sizes, bare, kept, row, tensors
from moe_align.verify.stand_ins import DTYPES, Logger, Namespace, Tensor
from moe_align.verify.tree import Tree

_MOE = "atom.model_ops.moe"
_KINDS = ("per_1x128", "per_1x32", "per_Token", "per_Tensor", "No")

__all__ = ["PAIRS", "answers", "link"]


def link(root: Path) -> Tree:
    """The ATOM under `root`, with what surrounds weight creation replaced."""
    torch = tensors()
    return Tree(
        root,
        {
            "torch": torch,
            "torch.nn": torch.nn,
            "logging": Namespace(getLogger=lambda _name: Logger()),
            "aiter": Namespace(QuantType=SimpleNamespace(**{kind: kind for kind in _KINDS})),
            f"{_MOE}.QuantType": SimpleNamespace(**{kind: kind for kind in _KINDS}),
            f"{_MOE}.FusedMoEMethodBase": object,
            f"{_MOE}.atom_parameter": kept,
            f"{_MOE}.set_weight_attrs": lambda *_args: None,
        },
    )


class _Layer(SimpleNamespace):
    def register_parameter(self, name: str, value: object) -> None:
        setattr(self, name, value)


def _made(tree: Tree, method: object, hidden: int, intermediate: int, *, tp: int, streaming: bool) -> Sizes:
    tree.replace({f"{_MOE}.get_tp_group": lambda: SimpleNamespace(world_size=tp)})
    layer = _Layer(
        hidden_size=hidden,
        intermediate_size_per_partition=intermediate,
        has_bias=False,
        _stream_online_quant=streaming,
    )
    create = cast("Callable[..., object]", method.create_weights)  # type: ignore[attr-defined]
    create(
        layer=layer,
        num_experts=2,
        hidden_size=hidden,
        intermediate_size_per_partition=intermediate,
        params_dtype=DTYPES["uint8"],
    )
    w13, w2 = cast(Tensor, layer.w13_weight), cast(Tensor, layer.w2_weight)
    return w2.shape[1], w13.shape[1] // 2


def _mxfp4(tree: Tree) -> Iterator[Row]:
    for model_type, align in (("other", 256), ("deepseek_v4", 128), ("kimi_k3", 128)):

        def question(h: int, i: int, align: int = align) -> Sizes:
            method = bare(
                tree,
                f"{_MOE}.Mxfp4MoEMethod",
                pad_align=align,
                moe=SimpleNamespace(),
                static_input_scales=False,
            )
            return _made(tree, method, h, i, tp=1, streaming=False)

        yield row({"scheme": "mxfp4", "model_type": model_type, "backend": "aiter"}, question)


def _others(tree: Tree) -> Iterator[Row]:
    for scheme, kind in (("fp8_block", "per_1x128"), ("mxfp8", "per_1x32"), ("fp8_channel", "per_Token")):
        for tp in (1, 2):
            for streaming in (False, True) if scheme == "mxfp8" else (False,):

                def question(
                    h: int, i: int, kind: str = kind, tp: int = tp, streaming: bool = streaming
                ) -> Sizes:
                    method = bare(
                        tree,
                        f"{_MOE}.Fp8MoEMethod",
                        quant_type=kind,
                        block_quant=kind.startswith("per_1x"),
                        channel_quant=kind == "per_Token",
                        static_input_scales=False,
                        quant_config=SimpleNamespace(is_dynamic=True),
                    )
                    return _made(tree, method, h, i, tp=tp, streaming=streaming)

                facts: dict[str, str | int] = {"scheme": scheme, "backend": "aiter", "tp": tp}
                yield row({**facts, "method": "streaming"} if streaming else facts, question)

    def unquantized(h: int, i: int) -> Sizes:
        method = bare(tree, f"{_MOE}.UnquantizedFusedMoEMethod")
        return _made(tree, method, h, i, tp=1, streaming=False)

    yield row({"scheme": "unquantized", "backend": "aiter"}, unquantized)


def answers(root: Path) -> list[Row]:
    """Everything that the ATOM under `root` answers, class by class."""
    tree = link(root)
    return [*_mxfp4(tree), *_others(tree)]
