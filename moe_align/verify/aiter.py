"""What the contracts of AITER's kernels rest on, looked up in AITER's own sources.

Files are parsed, never run. A probe names the contract that would be wrong if what it looks for were other.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from moe_align.verify.traced import Place

HOLDS, CHANGED, NOT_FOUND = "holds", "changed", "not found"


class Probe(NamedTuple):
    """One look: in the first of `files` that is there, `look` says what it found, and if it is as meant."""

    contract: str
    meant: str
    files: tuple[str, ...]
    look: Callable[[ast.Module], Seen | None]


class Seen(NamedTuple):
    """What a probe came upon: in words, as meant or not, and on which line."""

    said: str
    as_meant: bool
    line: int


class Result(NamedTuple):
    """One probe's outcome; `verdict` is `holds`, `changed` or `not found`."""

    contract: str
    meant: str
    verdict: str
    said: str
    place: Place | None


def probe(root: Path) -> tuple[Result, ...]:
    """Every probe, run on the AITER under `root`: an installed package, an unpacked wheel, or a checkout."""
    parsed: dict[str, ast.Module | None] = {}
    return tuple(_probed(root, one, parsed) for one in PROBES)


def _probed(root: Path, one: Probe, parsed: dict[str, ast.Module | None]) -> Result:
    for file in one.files:
        if file not in parsed:
            path = root / file
            parsed[file] = ast.parse(path.read_text(encoding="utf-8")) if path.is_file() else None
        module = parsed[file]
        seen = one.look(module) if module else None
        if seen:
            verdict = HOLDS if seen.as_meant else CHANGED
            return Result(one.contract, one.meant, verdict, seen.said, Place(file, seen.line))
    return Result(one.contract, one.meant, NOT_FOUND, f"not in {' or '.join(one.files)}", None)


_OPERATORS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}


def _value(node: ast.expr, names: Mapping[str, int]) -> int | None:
    """What an expression comes to, for gated experts; `None` if it is made of anything else."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, int) else None
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.IfExp):
        return _value(node.body, names)
    if not isinstance(node, ast.BinOp) or type(node.op) not in _OPERATORS:
        return None
    left, right = _value(node.left, names), _value(node.right, names)
    if left is None or right is None or (isinstance(node.op, ast.FloorDiv) and right == 0):
        return None
    return _OPERATORS[type(node.op)](left, right)


def _pad(module: ast.Module, told: str, pad: str, floor: int, times: int) -> Seen | None:
    """The arguments called `told` that are computed from `pad`: each must floor and multiply as meant."""
    found: list[tuple[bool, ast.expr]] = []
    for node in ast.walk(module):
        if isinstance(node, ast.keyword) and node.arg == told and pad in _names(node.value):
            made = [_value(node.value, {pad: one, "use_g1u1": 1}) for one in range(1025)]
            found.append((made == [one // floor * floor * times for one in range(1025)], node.value))
    if not found:
        return None
    as_meant, node = min(found, key=lambda one: one[0])
    return Seen(f"{told} = {ast.unparse(node)}", as_meant, node.lineno)


def _names(node: ast.expr) -> set[str]:
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}


def _steps(module: ast.Module, lists: Sequence[str], column: int, least: int, most: int) -> Seen | None:
    """One column of tables of kernels: least and greatest number as meant, all multiples of the least."""
    found: dict[int, int] = {}
    for name, node in _assigned(module):
        if name in lists:
            for call in ast.walk(node):
                if isinstance(call, ast.Call) and len(call.args) > column:
                    argument = call.args[column]
                    if isinstance(argument, ast.Constant) and isinstance(argument.value, int):
                        found.setdefault(argument.value, call.lineno)
    if not found:
        return None
    steps = sorted(found)
    as_meant = (steps[0], steps[-1]) == (least, most) and all(step % least == 0 for step in steps)
    return Seen(f"steps of {', '.join(map(str, steps))}", as_meant, found[steps[-1]])


def _assigned(module: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Names and what is assigned to them, wherever in a module."""
    for node in ast.walk(module):
        if isinstance(node, ast.Assign):
            yield from ((target.id, node.value) for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            yield node.target.id, node.value


def _local(module: ast.Module, function: str, given: Mapping[str, int], name: str, meant: int) -> Seen | None:
    """What a name of a function comes to, from its constants and the given arguments."""
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef) and node.name == function:
            known = dict(given)
            for target, made in _assigned(node):
                value = _value(made, known)
                if value is not None and target not in given:
                    known[target] = value
            line = next((made.lineno for target, made in _assigned(node) if target == name), node.lineno)
            if name in known:
                return Seen(f"{name} is {known[name]} in {function}", known[name] == meant, line)
    return None


def _constant(module: ast.Module, name: str, meant: int) -> Seen | None:
    """A number that a module names, or reads from a switch of that name with the number as its default."""
    for target, node in _assigned(module):
        if target == name or name in {c.value for c in ast.walk(node) if isinstance(c, ast.Constant)}:
            numbers = [_number(c) for c in ast.walk(node) if isinstance(c, ast.Constant)]
            found = [number for number in numbers if number is not None]
            if found:
                return Seen(f"{name} is {found[-1]}", found[-1] == meant, node.lineno)
    return None


def _number(node: ast.Constant) -> int | None:
    if isinstance(node.value, int):
        return node.value
    return int(node.value) if isinstance(node.value, str) and node.value.isdecimal() else None


def _numbers(module: ast.Module, meant: Sequence[int]) -> Seen | None:
    """Whether a module still speaks of these numbers: the weakest of the probes."""
    there = {
        node.value: node.lineno
        for node in ast.walk(module)
        if isinstance(node, ast.Constant) and isinstance(node.value, int)
    }
    missing = [number for number in meant if number not in there]
    if missing:
        return Seen(f"no longer says {', '.join(map(str, missing))}", False, 1)
    return Seen(f"says {', '.join(map(str, meant))}", True, there[meant[0]])


def _outputs(module: ast.Module) -> Seen | None:
    """The assertion on the type that the fused call writes."""
    for node in ast.walk(module):
        if isinstance(node, ast.Assert) and isinstance(node.test, ast.Compare):
            left, right = node.test.left, node.test.comparators[0]
            if isinstance(left, ast.Name) and left.id == "dtype" and isinstance(right, ast.List):
                types = {one.attr for one in right.elts if isinstance(one, ast.Attribute)}
                return Seen(f"dtype in {', '.join(sorted(types))}", types == {"bf16", "fp16"}, node.lineno)
    return None


_FUSED = ("aiter/fused_moe.py",)
_SHUFFLE = ("aiter/ops/shuffle.py",)
_CK = "csrc/ck_gemm_moe_2stages_codegen/gemm_moe_ck2stages_common.py"
_CK_FILES = (f"aiter_meta/{_CK}", _CK)
_CK_TILE = "csrc/ck_tile_gemm_moe_2stages/moe_cktile2stages_common.py"
_CK_TILE_FILES = (f"aiter_meta/{_CK_TILE}", _CK_TILE)
_A16W4 = [f"a16w4_gemm{stage}_kernels_list{arch}" for stage in (1, 2) for arch in ("", "_gfx950")]
_K_OF_CK, _K_OF_CK_TILE = 3, 4


def _csrc(file: str) -> tuple[str, ...]:
    return f"aiter_meta/{file}", file


def _table(contract: str, meant: str, lists: Sequence[str], least: int, most: int) -> Probe:
    look = partial(_steps, lists=lists, column=_K_OF_CK, least=least, most=most)
    return Probe(f"aiter-contracts/{contract}", meant, _CK_FILES, look)


def _told(contract: str, told: str, pad: str, floor: int, times: int = 1) -> Probe:
    doubled = ", then doubled" if times == 2 else ""
    look = partial(_pad, told=told, pad=pad, floor=floor, times=times)
    return Probe(f"aiter-contracts/{contract}", f"{pad} floored to {floor}{doubled}", _FUSED, look)


def _says(contract: str, meant: str, file: str, *numbers: int) -> Probe:
    files = _csrc(file) if file.startswith("csrc/") else (file,)
    return Probe(f"aiter-contracts/{contract}", meant, files, partial(_numbers, meant=numbers))


def _shuffles(
    contract: str, meant: str, function: str, given: Mapping[str, int], name: str, by: int
) -> Probe:
    look = partial(_local, function=function, given=given, name=name, meant=by)
    return Probe(f"aiter-contracts/{contract}", meant, _SHUFFLE, look)


PROBES: tuple[Probe, ...] = (
    _told("ck-tile-stage1-pads", "n_pad_zeros", "intermediate_pad", 64, times=2),
    _told("ck-tile-stage1-pads", "k_pad_zeros", "hidden_pad", 128),
    _told("ck-tile-stage2-pads", "n_pad_zeros", "hidden_pad", 64),
    _told("ck-tile-stage2-pads", "k_pad_zeros", "intermediate_pad", 128),
    Probe(
        "aiter-contracts/ck-tile-sizes",
        "both stages step by 256",
        _CK_TILE_FILES,
        partial(_steps, lists=_A16W4, column=_K_OF_CK_TILE, least=256, most=256),
    ),
    _table("ck-bf16", "stage 1 steps by 64", ["a16w16_gemm1_kernels_list"], 64, 128),
    _table("ck-bf16-gfx950", "stage 2 has steps of 128", ["a16w16_gemm2_kernels_list_gfx950"], 64, 128),
    _table("ck-8bit-hidden", "stage 1 steps by 128", ["a8w8_gemm1_kernels_list"], 128, 256),
    _table("ck-8bit-wide", "stage 2 steps by 128", ["a8w8_gemm2_kernels_list"], 128, 256),
    _table(
        "ck-8bit-gfx950-few-tokens",
        "stage 2 has steps of 256 at few tokens",
        ["a8w8_gemm2_kernels_list_gfx950"],
        128,
        256,
    ),
    _table(
        "fp8-block",
        "tiles are whole blocks of 128",
        ["a8w8_gemm1_blockscale_kernels_list", "a8w8_gemm2_blockscale_kernels_list"],
        128,
        256,
    ),
    _shuffles("shuffle-8bit", "pieces of 16 rows", "shuffle_weight", {"IN": 16, "IK": 16}, "BN", 16),
    _shuffles("shuffle-8bit", "pieces of 32 values", "shuffle_weight", {"IN": 16, "IK": 16}, "BK", 32),
    _shuffles("shuffle-mxfp4", "pieces of 32 bytes", "shuffle_weight", {"IN": 16, "IK": 16}, "BK", 32),
    _shuffles("shuffle-a16w4", "pieces of 16 bytes", "shuffle_weight_a16w4", {"NLane": 16}, "KPack", 16),
    _shuffles("shuffle-a16w4", "4 of them side by side", "shuffle_weight_a16w4", {"NLane": 16}, "KLane", 4),
    _shuffles("shuffle-scales", "2 times 16 rows", "shuffle_scale_a16w4", {}, "N_Pack", 2),
    _shuffles("shuffle-scales", "2 times 16 rows", "shuffle_scale_a16w4", {}, "N_Lane", 16),
    Probe("aiter-contracts/output-type", "writes BF16 or FP16", _FUSED, _outputs),
    Probe(
        "aiter-contracts/flydsl-swiglu-many-tokens",
        "stacked SwiGLU changes kernels at 256 tokens",
        _FUSED,
        partial(_constant, name="GPTOSS_SWIGLU_MXFP4_BF16_BOUND", meant=256),
    ),
    _says("flydsl-hidden", "steps of 256", "aiter/ops/flydsl/kernels/mixed_moe_gemm_2stage_common.py", 256),
    _says(
        "flydsl-intermediate", "tiles of 256 are lowered to 128", "aiter/ops/flydsl/moe_kernels.py", 256, 128
    ),
    _says("a4w4-gemm1", "steps of 256", "aiter/ops/flydsl/mxfp4_gemm1_kernels.py", 256),
    _says("a4w4-gemm2", "steps of 256", "aiter/ops/flydsl/mxfp4_gemm2_kernels.py", 256),
    _says(
        "a4w4-experts",
        "hidden sizes of a list",
        "csrc/kernels/mxfp4_moe/moe_aux/codegen/gen_instances.py",
        *(3072, 4096, 6144, 7168),
    ),
    _says("v2-gemm2", "sizes up to 8192", "aiter/ops/flydsl/kernels/mxmoe_dispatcher.py", 8192),
    _says("opus-stage1", "two steps of 128", "csrc/opus_moe/opus_moe_common.py", 128),
    _says("fhmoe-i384", "one shape, DeepSeek-V4-Pro on 8 ranks", "aiter/fhmoe.py", 7168, 384, 6),
    _says("fhmoe-i384-tokens", "off above 2048 tokens", "aiter/fhmoe.py", 2048),
)
"""The package's wheel has the sources of its kernels under `aiter_meta`, a checkout has them under `csrc`."""


def is_other_library(root: Path) -> bool:
    """Whether the package `aiter` there is the asynchronous iterator tools of that name on PyPI."""
    return (root / "aiter").is_dir() and not (root / "aiter" / "fused_moe.py").is_file()
