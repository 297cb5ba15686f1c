"""Snapshots in a real vLLM: silently wrong under another size, refused by the plugin, repaired by `repad`."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from engines import HERE, QUIET, Served
from safetensors.torch import load_file, save_file
from tiny_moe import EXPERTS, HIDDEN, MOE_INTERMEDIATE, write_checkpoint

ROOT = HERE.parent.parent

ALONE = {"VLLM_PLUGINS": "none"}

#: The tokens of the checkpoint, and what was saved before repacking and after it.
Snapshots = tuple[Served, Path, Path]

RULES = """\
language: 1
pack: tiny
phase: allocate
for: {engine: vllm, scheme: unquantized}
rules:
  - {id: padded, when: {backend: cpu}, align: {hidden: native, intermediate: 128}, why: a test}
"""


def serve(model: Path, environment: dict[str, str], **options: Any) -> Served:
    """Serve once, from `model`."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("MOE_ALIGN_")}
    done = subprocess.run(
        [sys.executable, str(HERE / "snapshot_engine.py"), json.dumps({"model": str(model), **options})],
        env={**inherited, **QUIET, "PYTHONPATH": str(HERE), **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    results = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    found = json.loads(results[-1].removeprefix("RESULT ")) if results else {}
    return Served(done.returncode, done.stdout + done.stderr, found)


def load(model: Path, environment: dict[str, str], **options: Any) -> Served:
    """Serve once, from a snapshot."""
    return serve(model, environment, load_format="sharded_state", **options)


def moe_align(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "cli.py"), "snapshot", *words],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def snapshots(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Snapshots:
    """The tokens of the checkpoint, and two snapshots that the plugin was there to see saved."""
    created, processed = (tmp_path_factory.mktemp(name) for name in ("created", "processed"))
    for folder in (created, processed):
        shutil.copy(model / "config.json", folder)
    served = serve(model, {}, save_created=str(created), save_processed=str(processed))
    assert served.status == 0, served.log
    return served, created, processed


@pytest.fixture
def applied(tmp_path: Path) -> dict[str, str]:
    """A process in which a user's rule pads 96 to 128."""
    (tmp_path / "rules.yaml").write_text(RULES)
    return {"MOE_ALIGN_MODE": "apply", "MOE_ALIGN_RULES": str(tmp_path / "rules.yaml")}


def test_the_plugin_writes_a_manifest(snapshots: Snapshots) -> None:
    _, created, processed = snapshots
    for folder, layout in ((created, "created"), (processed, "processed")):
        manifest = json.loads((folder / "moe-align.json").read_text())
        assert (manifest["layout"], manifest["backend"], manifest["scheme"]) == (layout, "cpu", "unquantized")
        sizes = {"hidden": HIDDEN, "intermediate": MOE_INTERMEDIATE}
        assert manifest["native"] == manifest["allocated"] == sizes
        assert manifest["engine"] == {"name": "vllm", "version": "0.32.0"}
        assert (manifest["experts"], manifest["parallel"]["tp"]) == (EXPERTS, 1)
        assert len(manifest["policy"]) == 64


def test_a_snapshot_loads_under_its_own_size(snapshots: Snapshots) -> None:
    served, created, _ = snapshots
    for loaded in (load(created, ALONE), load(created, {})):
        assert loaded.status == 0, loaded.log
        assert loaded.tokens == served.tokens


def test_under_another_size_vllm_loads_it_silently_wrong(snapshots: Snapshots) -> None:
    served, created, _ = snapshots
    loaded = load(created, ALONE, round_up=128)
    assert loaded.status == 0, loaded.log
    assert loaded.said("loading tensor of shape"), "a warning is all there is"
    assert loaded.tokens != served.tokens


def test_the_plugin_refuses_it(snapshots: Snapshots, applied: dict[str, str]) -> None:
    _, created, _ = snapshots
    for refused in (load(created, applied), load(created, {}, round_up=128)):
        assert refused.status != 0
        assert refused.said(f"allocated size is {HIDDEN} × 96, now {HIDDEN} × 128")
    unsafe = load(created, {**applied, "MOE_ALIGN_UNSAFE": "1"})
    assert unsafe.status == 0, unsafe.log
    assert unsafe.said("is loaded all the same")


def test_repad_repairs_it(model: Path, snapshots: Snapshots, applied: dict[str, str], tmp_path: Path) -> None:
    served, created, _ = snapshots
    flags = [
        "--backend",
        "cpu",
        "--platform",
        "cpu",
        "--vllm",
        "0.32.0",
        "--rules",
        applied["MOE_ALIGN_RULES"],
    ]
    assert moe_align("check", str(created), *flags).returncode == 1
    done = moe_align("repad", str(created), str(tmp_path / "new"), *flags, "--against", str(model))
    assert done.returncode == 0, done.stderr
    assert "tensors are those of a fresh shard" in done.stdout
    assert moe_align("check", str(tmp_path / "new"), *flags).returncode == 0
    for loaded in (load(tmp_path / "new", applied), load(tmp_path / "new", ALONE, round_up=128)):
        assert loaded.status == 0, loaded.log
        assert loaded.tokens == served.tokens


def test_repacked_experts_are_wrong_even_under_equal_sizes(snapshots: Snapshots, tmp_path: Path) -> None:
    """vLLM saves what its repacking left, and repacks it once more when it loads it."""
    served, created, processed = snapshots
    mixed = shutil.copytree(created, tmp_path / "mixed")
    (mixed / "moe-align.json").unlink()
    (file,) = created.glob("*.safetensors")
    repacked = load_file(processed / file.name)
    experts = {name: tensor for name, tensor in repacked.items() if "routed_experts.w" in name}
    before = load_file(file)
    assert {name: tensor.shape for name, tensor in experts.items()} == {
        name: before[name].shape for name in experts
    }
    save_file(before | experts, mixed / file.name)
    loaded = load(mixed, ALONE)
    assert loaded.status == 0, loaded.log
    assert loaded.tokens != served.tokens


def test_a_snapshot_that_vllm_saved_is_refused_before_it_fails(snapshots: Snapshots, tmp_path: Path) -> None:
    """Its CPU backend drops what it packs of linear layers, which the loader misses at the very end."""
    _, _, processed = snapshots
    failed = load(processed, ALONE)
    assert failed.status != 0
    assert failed.said("Missing keys")
    refused = load(processed, {})
    assert refused.status != 0
    assert refused.said("repacks it once more")
    flags = ["--backend", "cpu", "--platform", "cpu", "--vllm", "0.32.0"]
    checked = moe_align("check", str(processed), *flags)
    assert checked.returncode == 1
    assert "was tried and gives other tokens" in checked.stdout
    repadded = moe_align("repad", str(processed), str(tmp_path / "new"), *flags, "--to", "intermediate=128")
    assert repadded.returncode == 2
    assert "repacked after loading" in repadded.stderr


def test_two_ranks_write_one_manifest(model: Path, tmp_path: Path) -> None:
    shutil.copy(model / "config.json", tmp_path)
    two = {"VLLM_ENABLE_V1_MULTIPROCESSING": "1"}
    saved = serve(model, two, save_processed=str(tmp_path), tensor_parallel_size=2)
    assert saved.status == 0, saved.log
    manifest = json.loads((tmp_path / "moe-align.json").read_text())
    assert manifest["parallel"] == {"tp": 2, "dp": 1, "moe_tp": 2, "moe_ep": 1, "pp": 1}
    assert manifest["native"] == {"hidden": HIDDEN, "intermediate": MOE_INTERMEDIATE // 2}
    flags = ["--backend", "cpu", "--platform", "cpu", "--vllm", "0.32.0"]
    assert "saved by tp 2, and 1 load it" in moe_align("check", str(tmp_path), *flags).stdout
    (tmp_path / "model-rank-1-part-0.safetensors").unlink()
    assert "no file of rank 1" not in moe_align("check", str(tmp_path), *flags, "--tp", "2").stdout
