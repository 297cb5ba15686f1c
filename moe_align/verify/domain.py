"""Everything that a release's sizing functions can be asked: one question for each choice of discrete facts.

Sizes stay open: a question is a function of them. The facts are named as the engine names its enumerations.
"""

from __future__ import annotations

import ast
import enum
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from moe_align.verify import questions as ask
from moe_align.verify.questions import Engine, link
from moe_align.verify.stand_ins import Machine
from moe_align.verify.tables import MORE_MACHINES
from moe_align.verify.terms import Mask, everything
from moe_align.verify.traced import Place

_MOE = "vllm.model_executor.layers.fused_moe"
_QUANT = "vllm.model_executor.layers.quantization"
_ITEMS = {2: "bfloat16", 1: "float8_e4m3fn", 4: "float32"}
_TRANSPORTS = ("deepep_ht", "deepep_ll", "deepep_v2", "nixl_ep")

SIZES = {"hidden": everything(1), "intermediate_per_partition": everything(1)}
#: The OCP MX class refuses odd sizes: its weights hold two values a byte, so no checkpoint has them.
EVEN_SIZES = {"hidden": everything(2, step=2), "intermediate_per_partition": everything(2, step=2)}
PADS = {"hidden_pad": everything(0), "intermediate_pad": everything(0)}


class Asked(NamedTuple):
    """One question: `part` is the part of a policy that must give the same answer.

    `part` is `whole` (all that happens before weights are repacked), or one phase; `sizes` are the open
    integers with all that each may be. `place` is the function that is asked.
    """

    table: str
    part: str
    facts: Mapping[str, str | int]
    sizes: Mapping[str, Mask]
    question: Callable[..., object]
    place: Place


def domain(root: Path, machines: Sequence[Machine] = MORE_MACHINES) -> Iterator[Asked]:
    """Every question to the engine under `root`, table by table."""
    engines = [link(root, machine) for machine in machines]
    rounding = _oracle if ask.has_oracle(engines[0].tree) else _layers
    yield from (asked for engine in engines for asked in rounding(engine))
    yield from (asked for engine in engines for asked in _unquantized(engine))
    yield from _blocks(root, engines[0])
    told = _told_pads(root)
    rocm = [engine for engine in engines if engine.machine.platform == "rocm"]
    yield from (asked for engine in rocm for asked in _pads(engine, told))
    yield from _transports(engines[0])


def _machine(engine: Engine) -> dict[str, str | int]:
    machine = engine.machine
    return {"platform": machine.platform, "arch": machine.arch or "none"}


def _canonical(members: Iterable[tuple[str, enum.Enum]]) -> dict[str, enum.Enum]:
    """The members without aliases: an alias is the same member again."""
    return {name: member for name, member in members if member.name == name}


def _place(function: object) -> Place:
    code = getattr(function, "__code__", None)
    return Place(code.co_filename, code.co_firstlineno) if code else Place("vllm", 1)


def _method_place(engine: Engine, dotted: str, method: str) -> Place:
    return _place(getattr(engine.tree.get(dotted), method))


def _activations(engine: Engine) -> dict[str, enum.Enum]:
    return _canonical(ask.activations(engine.tree))


def _oracle(engine: Engine) -> Iterator[Asked]:
    """Each class that rounds an MXFP4 layer, with each backend and each activation."""
    backends = _canonical(ask.mxfp4_backends(engine.tree))
    for cls, module in ask.METHODS.items():
        dotted = f"{module}.{cls}"
        if not engine.tree.has(dotted):
            continue
        place = _method_place(engine, dotted, "maybe_roundup_sizes")
        for backend, member in backends.items():
            for activation, kind in _activations(engine).items():
                facts = {"scheme": "mxfp4", "method": cls, "backend": backend, "activation": activation}
                question = partial(_by_method, engine, dotted, member, kind)
                yield Asked("mxfp4", "whole", {**facts, **_machine(engine)}, SIZES, question, place)


def _by_method(
    engine: Engine,
    dotted: str,
    backend: enum.Enum,
    activation: enum.Enum,
    hidden: int,
    intermediate_per_partition: int,
) -> object:
    return ask.round_by_method(engine, dotted, backend, activation, hidden, intermediate_per_partition)


def _layers(engine: Engine) -> Iterator[Asked]:
    """The two steps of the releases before the oracle: the layer's hidden size, then weight creation."""
    backends = _canonical(ask.mxfp4_backends(engine.tree))
    layer = _place(engine.tree.get(f"{_MOE}.layer.maybe_roundup_hidden_size"))
    for backend, member in backends.items():
        for facts, config, model_type in _CONFIGS:
            question = partial(_layer_hidden, engine, member, config, model_type)
            more = {"scheme": "mxfp4", "backend": backend, **facts, **_machine(engine)}
            yield Asked("mxfp4-layer", "model", more, {"hidden": everything(1)}, question, layer)
        weights = _method_place(engine, f"{_QUANT}.mxfp4.Mxfp4MoEMethod", "create_weights")
        for method in ("gpt_oss", "default"):
            own = {"scheme": "mxfp4", "method": method, "backend": backend}
            question = partial(_weights, engine, member)
            yield Asked("mxfp4-weights", "allocate", {**own, **_machine(engine)}, SIZES, question, weights)
    quark = _method_place(engine, f"{_QUANT}.quark.quark_moe.QuarkOCP_MX_MoEMethod", "create_weights")
    for model_type in ("gpt_oss", "other"):
        layer_facts = {"scheme": "mxfp4", "method": "quark", "model_type": model_type}
        question = partial(_quark_weights, engine, model_type)
        yield Asked(
            "quark-weights", "allocate", {**layer_facts, **_machine(engine)}, EVEN_SIZES, question, quark
        )


_CONFIGS: tuple[tuple[Mapping[str, str], str, str], ...] = (
    ({"method": "gpt_oss", "model_type": "gpt_oss"}, "mxfp4", "gpt_oss"),
    ({"method": "default", "model_type": "other"}, "mxfp4", "other"),
    ({"method": "quark", "model_type": "gpt_oss"}, "quark", "gpt_oss"),
    ({"method": "quark", "model_type": "other"}, "quark", "other"),
)
"""Facts, the name of the quantization config, and the model type that the layer's constructor saw."""


def _layer_hidden(engine: Engine, backend: enum.Enum, config: str, model_type: str, hidden: int) -> object:
    return (ask.layer_hidden(engine, backend, config, model_type, hidden),)


def _weights(engine: Engine, backend: enum.Enum, hidden: int, intermediate_per_partition: int) -> object:
    return ask.mxfp4_weights(engine, backend, hidden, intermediate_per_partition)


def _quark_weights(engine: Engine, model_type: str, hidden: int, intermediate_per_partition: int) -> object:
    return ask.quark_weights(engine, model_type, hidden, intermediate_per_partition)


def _unquantized(engine: Engine) -> Iterator[Asked]:
    cls = f"{_MOE}.unquantized_fused_moe_method.UnquantizedFusedMoEMethod"
    name = "maybe_roundup_sizes" if ask.has_oracle(engine.tree) else "create_weights"
    place = _method_place(engine, cls, name)
    backends: Mapping[str, enum.Enum | None] = _canonical(ask.unquantized_backends(engine.tree))
    for backend, member in backends.items() or [("", None)]:
        facts = {"scheme": "unquantized", **({"backend": backend} if backend else {}), **_machine(engine)}
        question = partial(_plain, engine, member)
        yield Asked("unquantized", "whole", facts, SIZES, question, place)


def _plain(engine: Engine, backend: enum.Enum | None, hidden: int, intermediate_per_partition: int) -> object:
    return ask.unquantized(engine, backend, hidden, intermediate_per_partition)


def _blocks(root: Path, engine: Engine) -> Iterator[Asked]:
    """The classes of which a layer is whole blocks: online FP8, and ModelOpt's codecs."""
    online, codecs = f"{_QUANT}.online.fp8.Fp8PerBlockOnlineMoEMethod", f"{_QUANT}.modelopt_block_quant"
    if engine.tree.has(online):
        own = {"weight_block_size": _argument(root, online, "weight_block_size")}
        facts: dict[str, str | int] = {"scheme": "fp8_block", "method": "online"}
        yield _of_blocks("online-blocks", engine, online, facts, own)
    cls = f"{codecs}.ModelOptBlockQuantMoEMethod"
    if engine.tree.has(cls):
        for codec, size in ask.block_codecs(engine.tree).items():
            said: dict[str, str | int] = {"scheme": "modelopt_block", "group": size}
            yield _of_blocks("block-codecs", engine, cls, said, {"codec": codec, "block_size": size})


def _of_blocks(
    table: str,
    engine: Engine,
    dotted: str,
    facts: Mapping[str, str | int],
    attributes: Mapping[str, object],
) -> Asked:
    place = _method_place(engine, dotted, "maybe_roundup_sizes")
    question = partial(_to_blocks, engine, dotted, attributes)
    return Asked(table, "allocate", facts, SIZES, question, place)


def _to_blocks(
    engine: Engine,
    dotted: str,
    attributes: Mapping[str, object],
    hidden: int,
    intermediate_per_partition: int,
) -> object:
    return ask.round_to_blocks(engine, dotted, attributes, hidden, intermediate_per_partition)


def _argument(root: Path, dotted: str, name: str) -> object:
    """What a class says, in its own text, for an argument that it passes on."""
    module, _, cls = dotted.rpartition(".")
    text = (root / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8")
    found = (
        ast.literal_eval(node.value)
        for statement in ast.parse(text).body
        if isinstance(statement, ast.ClassDef) and statement.name == cls
        for node in ast.walk(statement)
        if isinstance(node, ast.keyword) and node.arg == name and isinstance(node.value, ast.List)
    )
    return next(found, None)


def _pads(engine: Engine, told: Mapping[str, int]) -> Iterator[Asked]:
    """What AITER's call is told of the padding, for each layer that goes there."""
    place = _place(engine.tree.get(f"{ask.aiter_module(engine.tree)}.rocm_aiter_fused_experts"))
    oracle = ask.has_oracle(engine.tree)
    models: dict[str, int | None] = {**dict.fromkeys(_MODELS), **told}
    for layer, w4a4 in _AITER_LAYERS:
        if layer["scheme"] == "mxfp4" and not w4a4 and not oracle:
            continue
        for activation, kind in _activations(engine).items() or [("silu", None)]:
            for model, override in models.items():
                facts = {**layer, **_machine(engine), "activation": activation, "model_type": model}
                question = partial(_pad, engine, kind, w4a4, override)
                yield Asked("launch", "launch", facts, {**PADS, "moe_tp": everything(1)}, question, place)
    if ask.has_ck_method(engine.tree):
        cls = f"{_QUANT}.mxfp4.Mxfp4MoEMethod"
        for method in ("gpt_oss", "default"):
            facts = {"scheme": "mxfp4", "backend": "CK", "method": method, **_machine(engine)}
            told_by_class = partial(ask.ck_method_pads, engine)
            place = _method_place(engine, cls, "apply_monolithic")
            yield Asked("launch", "launch", facts, PADS, told_by_class, place)


_AITER_LAYERS: tuple[tuple[Mapping[str, str], bool], ...] = (
    ({"scheme": "unquantized", "backend": "aiter"}, False),
    ({"scheme": "mxfp4", "backend": "aiter_bf16"}, False),
    ({"scheme": "mxfp4", "backend": "aiter_mxfp4", "method": "quark"}, True),
)
"""Layers whose experts AITER runs, and whether their activations are MXFP4 as well."""

_MODELS = ("deepseek_v4", "deepseek_v41", "minimax_m3")
"""Models that are asked about; the code of some releases sets a padding for some of them."""


def _pad(
    engine: Engine,
    activation: enum.Enum | None,
    w4a4: bool,
    override: int | None,
    hidden_pad: int,
    intermediate_pad: int,
    moe_tp: int,
) -> object:
    return ask.aiter_pads(engine, activation, w4a4, moe_tp, override, hidden_pad, intermediate_pad)


def _told_pads(root: Path) -> dict[str, int]:
    """Models whose code sets the padding of the layer's configuration to a number, and that number."""
    found = {}
    for file in sorted(root.glob("vllm/models/*/amd/model.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            said = _told_pad(node)
            if isinstance(said, ast.Constant) and isinstance(said.value, int):
                found[file.parent.parent.name] = said.value
    return found


def _told_pad(node: ast.AST) -> ast.expr | None:
    """What is said to be the padding: an argument of the layer, or the class attribute that is passed on."""
    if isinstance(node, ast.keyword) and node.arg == "intermediate_pad":
        return node.value
    if isinstance(node, ast.Assign) and _targets(node.targets) == ["experts_intermediate_pad"]:
        return node.value
    return None


def _targets(targets: list[ast.expr]) -> list[str]:
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _transports(engine: Engine) -> Iterator[Asked]:
    place = _place(engine.tree.get(f"{_MOE}.all2all_utils.maybe_roundup_layer_hidden_size"))
    for transport in ask.transports(engine, _TRANSPORTS):
        for item_bytes, dtype in _ITEMS.items():
            facts: dict[str, str | int] = {"all2all": transport, "act_bytes": item_bytes}
            question = partial(_dispatched, engine, transport, dtype)
            yield Asked("transports", "dispatch", facts, {"hidden": everything(1)}, question, place)


def _dispatched(engine: Engine, transport: str, dtype: str, hidden: int) -> object:
    return (ask.transport_hidden(engine, transport, dtype, hidden),)


_ORACLE = f"{_MOE}.oracle"
_ENUMERATIONS: Mapping[str, tuple[str, ...]] = {
    "mxfp4/backend": (f"{_ORACLE}.mxfp4.Mxfp4MoeBackend", f"{_QUANT}.mxfp4.Mxfp4Backend"),
    "unquantized/backend": (f"{_ORACLE}.unquantized.UnquantizedMoeBackend",),
    "fp8_block,mxfp8/backend": (f"{_ORACLE}.fp8.Fp8MoeBackend",),
    "nvfp4/backend": (f"{_ORACLE}.nvfp4.NvFp4MoeBackend",),
    "int8_w8a8/backend": (f"{_ORACLE}.int8.Int8MoeBackend",),
    "int4_wna16/backend": (f"{_ORACLE}.int_wna16.WNA16MoEBackend",),
    "w4a8_fp8/backend": (f"{_ORACLE}.w4a8.W4A8MoeBackend",),
    "w4a8_int8/backend": (f"{_ORACLE}.w4a8_int8.W4A8Int8MoeBackend",),
    "mxfp4/activation": (f"{_MOE}.activation.MoEActivation",),
}
"""The engine's enumerations by scheme and fact; of several homes the first that there is."""


def names(root: Path) -> Mapping[str, tuple[str, ...]]:
    """Every name in the engine's enumerations, aliases too: by schemes and fact, `mxfp4/backend`."""
    tree = link(root, MORE_MACHINES[0]).tree
    found = {}
    for key, homes in _ENUMERATIONS.items():
        members = next(filter(None, (ask.members(tree, dotted) for dotted in homes)), ())
        found[key] = tuple(name for name, _ in members)
    return found


def member_place(root: Path, key: str, name: str) -> Place | None:
    """Where an enumeration of the engine lists a member."""
    for dotted in _ENUMERATIONS[key]:
        file = root / f"{dotted.rpartition('.')[0].replace('.', '/')}.py"
        lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
        for number, line in enumerate(lines, 1):
            if line.strip().startswith(f"{name} ="):
                return Place(file.relative_to(root).as_posix(), number)
    return None
