"""The plugin's edges: what loading it costs, how often it wraps, which vLLM it knows, what it prints."""

import ast
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from moe_align.adapters.vllm import SUPPORTED, seam
from moe_align.adapters.vllm.methods import METHODS, Lookup
from moe_align.adapters.vllm.records import Heading, Record, table
from moe_align.adapters.vllm.session import Session

VLLM = Path(str(getattr(importlib.util.find_spec("vllm"), "origin", ""))).parent


def in_a_fresh_process(code: str, **environment: str) -> str:
    """What `code` prints."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("MOE_ALIGN_")}
    done = subprocess.run(
        [sys.executable, "-c", code], env=inherited | environment, capture_output=True, text=True, check=True
    )
    return done.stdout


REGISTER_TWICE = """
import json, sys, types
import vllm.version
sys.modules["vllm"].__version__ = vllm.version.__version__
before = set(sys.modules)
from moe_align.adapters.vllm import register
register(); register()
loaded = sorted(name for name in set(sys.modules) - before if not name.startswith("moe_align"))
print(json.dumps([loaded, sorted({name.partition(".")[0] for name in loaded})]))
"""


def test_registering_loads_nothing_of_vllm_and_no_yaml() -> None:
    modules, packages = json.loads(in_a_fresh_process(REGISTER_TWICE))
    assert not {"torch", "yaml", "pydantic", "typer"} & set(packages)
    assert not [name for name in modules if name.startswith("vllm.")]


WRAPS = """
from moe_align.adapters.vllm import register
register()
from vllm.model_executor.layers.fused_moe.routed_experts import RoutedExperts
from vllm.engine.arg_utils import AsyncEngineArgs, EngineArgs
from vllm.model_executor.model_loader import base_loader, utils
once = RoutedExperts.__init__
register()
assert RoutedExperts.__init__ is once
assert once.__wrapped__.__module__ == RoutedExperts.__module__
assert EngineArgs.create_engine_config is AsyncEngineArgs.create_engine_config
for wrapped in (EngineArgs.create_engine_config, utils.initialize_model):
    assert not hasattr(wrapped.__wrapped__, "_moe_align_wrapped")
assert base_loader.initialize_model is utils.initialize_model
assert not [finder for finder in __import__("sys").meta_path if type(finder).__name__ == "_AfterImport"]
print("wrapped once")
"""


@pytest.mark.parametrize(
    "first", ["", "import vllm.model_executor.model_loader.base_loader, vllm.engine.arg_utils"]
)
def test_each_place_is_wrapped_once_before_or_after_it_is_imported(first: str) -> None:
    assert in_a_fresh_process(first + WRAPS).splitlines()[-1] == "wrapped once"


@pytest.mark.parametrize(
    ("version", "mode"),
    [
        ("0.24.0", "apply"),
        ("0.32.0", "apply"),
        ("0.33.1rc1.dev50+g1234567", "apply"),
        ("0.34.0", "observe"),
        ("0.23.0", "observe"),
    ],
)
def test_a_vllm_that_is_not_known_is_only_observed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, version: str, mode: str
) -> None:
    import vllm

    installed: list[Callable[[], Session]] = []
    monkeypatch.setattr(vllm, "__version__", version)
    monkeypatch.setattr(seam, "install", installed.append)
    monkeypatch.setenv("MOE_ALIGN_MODE", "apply")
    from moe_align.adapters.vllm import register

    register()
    assert [session().mode for session in installed] == [mode]
    assert (f"moe-align knows vLLM {SUPPORTED}, not {version}" in caplog.text) is (mode == "observe")


def classes() -> dict[str, ast.ClassDef]:
    """Every class in vLLM's sources, by name."""
    return {
        node.name: node
        for file in VLLM.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ClassDef)
    }


@pytest.fixture(scope="module")
def sources() -> dict[str, ast.ClassDef]:
    return classes()


def lineage(name: str, sources: dict[str, ast.ClassDef]) -> list[str]:
    """The class and those it is made from, by name, as far as vLLM defines them."""
    found = [name]
    for each in found:
        bases = sources[each].bases if each in sources else []
        found += {ast.unparse(base).rpartition(".")[2] for base in bases} - set(found)
    return found


#: Classes that are never a layer's method when its sizes are chosen.
NOT_METHODS = {
    "FusedMoEMethodBase": "the base itself",
    "FusedMoEModularMethod": "takes the place of another method after loading",
    "OnlineMoEMethodBase": "a base",
    "_Fp8OnlineMoEBase": "a base",
    "CompressedTensorsMoEMethod": "a base",
    "QuarkMoEMethod": "a base",
}


def test_every_quant_method_of_this_vllm_is_in_the_table(sources: dict[str, ast.ClassDef]) -> None:
    methods = {name for name in sources if "FusedMoEMethodBase" in lineage(name, sources)}
    missing = {
        name for name in methods - NOT_METHODS.keys() if not set(lineage(name, sources)) & METHODS.keys()
    }
    assert missing == set()


@pytest.mark.parametrize("name", METHODS)
def test_what_the_table_reads_exists(sources: dict[str, ast.ClassDef], name: str) -> None:
    if name not in sources:
        pytest.skip("of another release")
    text = "".join(ast.unparse(sources[each]) for each in lineage(name, sources) if each in sources)
    entry = METHODS[name]
    scheme = entry.scheme.attribute if isinstance(entry.scheme, Lookup) else None
    for path in filter(None, (entry.backend, entry.block, entry.group, scheme)):
        assert f"self.{path.partition('.')[0]}" in text, path


HEADING = Heading("observe", "0.33.0", "0.1.20+46", "gfx950", "8a1e" * 16, "DeepseekV4ForCausalLM")


def of_layer(number: int, **changed: object) -> Record:
    """A record of one of 61 equal layers."""
    rule = "vllm-mxfp4/aiter-bf16-silu-situ"
    record = Record(
        f"model.layers.{number}.mlp.experts", "aiter_bf16", (7168, 384), (7168, 384), (7168, 384), rule
    )
    record.expected, record.mirror, record.created_bytes = (7168, 384), rule, 1684537344
    for name, value in changed.items():
        setattr(record, name, value)
    return record


def test_the_table_groups_layers_that_are_alike() -> None:
    assert (
        table(HEADING, [of_layer(number) for number in range(61)])
        == """\
moe-align observe · vLLM 0.33.0 · AITER 0.1.20+46 · gfx950 · policy 8a1e8a1e8a1e · DeepseekV4ForCausalLM
layers   backend      hidden   intermediate   GiB     rule
0–60     aiter_bf16   7168     384            95.70   vllm-mxfp4/aiter-bf16-silu-situ
engine = policy in 61 of 61 layers · warnings 0 · layers not seen 0"""
    )


def test_the_table_names_what_differs() -> None:
    wide = {"engine": (7168, 512), "allocated": (7168, 512), "created_bytes": 0}
    records = [
        of_layer(0),
        of_layer(1, **wide),
        of_layer(3, **wide),
        of_layer(4, remarks=("mine/rule would …",)),
    ]
    assert table(HEADING, records, ["MegaMoE (first at model.layers.5)"]).splitlines()[2:] == [
        "0        aiter_bf16   7168     384            1.57   vllm-mxfp4/aiter-bf16-silu-situ",
        "1, 3     aiter_bf16   7168     384 → 512      0      vllm-mxfp4/aiter-bf16-silu-situ",
        "4        aiter_bf16   7168     384            1.57   vllm-mxfp4/aiter-bf16-silu-situ",
        "warning: layers 1, 3: vLLM allocates 7168 × 512, vllm-mxfp4/aiter-bf16-silu-situ says 7168 × 384",
        "layers 4: mine/rule would …",
        "not seen: MegaMoE (first at model.layers.5)",
        "engine = policy in 2 of 4 layers · warnings 1 · layers not seen 1",
    ]
