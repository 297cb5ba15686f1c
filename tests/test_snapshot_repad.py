"""Shards rewritten to other sizes: equal to fresh ones, whatever stops a run; refused where unsafe."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from saved import FORMATS, Tiny, other_tensors, read, write, write_ranks

from moe_align import PolicyError
from moe_align.snapshot.folder import find_folder
from moe_align.snapshot.fresh import compare
from moe_align.snapshot.manifest import Sizes, read_manifest
from moe_align.snapshot.repad import JOURNAL, repad

ROOT = Path(__file__).parent.parent


def equal(one: Path, other: Path) -> bool:
    """Whether two folders hold the same shards."""
    names = sorted(path.name for path in one.glob("*.safetensors"))
    assert names == sorted(path.name for path in other.glob("*.safetensors"))
    return all(read(one / name) == read(other / name) for name in names)


SIZES = [
    # From and to: hidden × intermediate of a rank.
    (Sizes(64, 96), Sizes(64, 128)),
    (Sizes(64, 128), Sizes(64, 96)),
    (Sizes(64, 128), Sizes(96, 160)),
    (Sizes(128, 192), Sizes(64, 96)),
    (Sizes(64, 96), Sizes(64, 96)),
]


@pytest.mark.parametrize("scheme", FORMATS)
@pytest.mark.parametrize(("before", "after"), SIZES)
@pytest.mark.parametrize(("tp", "ep"), [(2, 1), (1, 2)])
def test_a_repadded_shard_is_a_fresh_one(
    tmp_path: Path, scheme: str, before: Sizes, after: Sizes, tp: int, ep: int
) -> None:
    tiny = Tiny(scheme, width=192 if tp == 2 else 96)
    source = write_ranks(tmp_path / "source", tiny, before, tp, ep, parts=2)
    wanted = tiny.wanted(after, tp, ep)
    done = repad(find_folder(source), tmp_path / "target", wanted, "d")
    assert (done.saved, done.written, done.kept) == (before, 4, 0)
    assert equal(tmp_path / "target", write_ranks(tmp_path / "fresh", tiny, after, tp, ep, parts=2))
    for path in (tmp_path / "target").glob("*.safetensors"):
        with safe_open(str(path), framework="np") as file:
            assert file.metadata() == {"format": "pt"}


@pytest.mark.parametrize("scheme", ["unquantized", "mxfp4"])
def test_rows_that_take_turns(tmp_path: Path, scheme: str) -> None:
    tiny = Tiny(scheme, bias=True)
    source = write_ranks(tmp_path / "source", tiny, Sizes(64, 96), 2, interleaved=True)
    wanted = tiny.wanted(Sizes(96, 128), 2, interleaved=True)
    repad(find_folder(source), tmp_path / "target", wanted, "d")
    assert equal(
        tmp_path / "target", write_ranks(tmp_path / "fresh", tiny, Sizes(96, 128), 2, interleaved=True)
    )
    write(tmp_path / "checkpoint" / "model.safetensors", tiny.checkpoint())
    found = list(compare(find_folder(tmp_path / "target"), find_folder(tmp_path / "checkpoint"), wanted))
    assert found
    assert all(fault is None for _, fault in found)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(sorted(FORMATS)),
    st.integers(0, 3),
    st.integers(0, 3),
    st.integers(0, 3),
    st.integers(0, 3),
)
def test_there_and_back_is_where_it_was(scheme: str, a: int, b: int, c: int, d: int) -> None:
    import tempfile

    tiny = Tiny(scheme, hidden=32, width=32, experts=2, layers=1)
    first, second = Sizes(32 + 32 * a, 32 + 32 * b), Sizes(32 + 32 * c, 32 + 32 * d)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_ranks(folder / "a", tiny, first)
        repad(find_folder(folder / "a"), folder / "b", tiny.wanted(second), "d")
        repad(find_folder(folder / "b"), folder / "c", tiny.wanted(first), "d")
        assert equal(folder / "a", folder / "c")


def test_what_stands_beside_is_copied_and_a_manifest_written(tmp_path: Path) -> None:
    tiny = Tiny()
    source = write_ranks(tmp_path / "source", tiny, Sizes(64, 192))
    (source / "config.json").write_text("{}")
    (source / ".hidden").write_text("")
    (source / "folder").mkdir()
    (source / "tokenizer.json").symlink_to(source / "config.json")
    repad(find_folder(source), tmp_path / "target", tiny.wanted(Sizes(64, 256)), "d")
    assert sorted(os.listdir(tmp_path / "target")) == [
        "config.json",
        "model-rank-0-part-0.safetensors",
        "moe-align.json",
        "tokenizer.json",
    ]
    manifest = read_manifest(tmp_path / "target")
    assert manifest is not None
    assert (manifest.native, manifest.allocated, manifest.layout) == (
        Sizes(64, 192),
        Sizes(64, 256),
        "created",
    )


def test_a_fresh_shard_is_compared_with_and_a_wrong_cell_found(tmp_path: Path) -> None:
    for scheme in FORMATS:
        tiny = Tiny(scheme)
        source = write_ranks(tmp_path / scheme / "source", tiny, Sizes(64, 96), 2)
        write(tmp_path / scheme / "checkpoint" / "model.safetensors", tiny.checkpoint())
        wanted = tiny.wanted(Sizes(96, 160), 2)
        repad(find_folder(source), tmp_path / scheme / "target", wanted, "d")
        target = find_folder(tmp_path / scheme / "target")
        checkpoint = find_folder(tmp_path / scheme / "checkpoint")
        assert {fault for _, fault in compare(target, checkpoint, wanted)} == {None}
        path = tmp_path / scheme / "target" / "model-rank-1-part-0.safetensors"
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
        faults = [fault for _, fault in compare(target, checkpoint, wanted) if fault]
        assert faults == ["expert 3 differs from the checkpoint's expert 3"]


def test_another_checkpoint_is_told(tmp_path: Path) -> None:
    tiny = Tiny()
    folder = find_folder(write_ranks(tmp_path / "source", tiny, Sizes(64, 192)))

    def faults(saved: Any) -> set[str | None]:
        write(tmp_path / "checkpoint" / "model.safetensors", saved)
        found = compare(folder, find_folder(tmp_path / "checkpoint"), tiny.wanted(Sizes(64, 192)))
        return {fault for _, fault in found}

    assert faults(Tiny(seed=1).checkpoint()) == {"expert 0 differs from the checkpoint's expert 0"}
    assert "the checkpoint has no gate of expert 2" in faults(Tiny(experts=2).checkpoint())
    shallow = {name: one for name, one in tiny.checkpoint().items() if ".1." not in name.partition("mlp")[0]}
    assert "the checkpoint has no down of expert 0" in faults(shallow)
    retyped = {name: ("F16" if dtype == "BF16" else dtype, *rest) for name, (dtype, *rest) in shallow.items()}
    assert "BF16 is saved, the checkpoint has F16" in faults(retyped)
    with pytest.raises(PolicyError, match="has no tensor for each expert"):
        faults(other_tensors())


def refused(tmp_path: Path, tiny: Tiny, source: Path, to: Sizes, **more: Any) -> str:
    with pytest.raises(PolicyError) as caught:
        repad(find_folder(source), tmp_path / "target", tiny.wanted(to, **more), "d")
    assert not (tmp_path / "target").exists()
    assert "[N010]" in str(caught.value)
    return str(caught.value)


def test_what_is_not_safe_is_refused(tmp_path: Path) -> None:
    tiny = Tiny()
    source = write_ranks(tmp_path / "source", tiny, Sizes(64, 192))
    to = Sizes(64, 256)
    assert "repacked after loading" in refused(
        tmp_path, tiny, source, to, layout="processed", backend="aiter"
    )
    assert "a backend that is not known" in refused(tmp_path, tiny, source, to, layout=None, backend=None)
    assert "intermediate 160 is below the native 192" in refused(tmp_path, tiny, source, Sizes(64, 160))
    assert "is not known for int4_wna16" in refused(tmp_path, tiny, source, to, scheme="int4_wna16")
    write(tmp_path / "checkpoint" / "model.safetensors", tiny.checkpoint())
    assert "is a checkpoint" in refused(tmp_path, tiny, tmp_path / "checkpoint", to)
    write(tmp_path / "none" / "model-rank-0-part-0.safetensors", other_tensors())
    assert "no expert weights" in refused(tmp_path, tiny, tmp_path / "none", to)


def test_sizes_that_do_not_end_on_blocks_are_refused(tmp_path: Path) -> None:
    tiny = Tiny("mxfp4")
    source = write_ranks(tmp_path / "source", tiny, Sizes(64, 192))
    assert "does not end on its blocks of 32" in refused(tmp_path, tiny, source, Sizes(64, 200))
    assert "does not end on its blocks of 2" in refused(tmp_path, tiny, source, Sizes(65, 192))


def test_several_sizes_and_odd_tensors_are_refused(tmp_path: Path) -> None:
    tiny = Tiny()
    source = write_ranks(tmp_path / "source", tiny, Sizes(64, 96), 2)
    write(source / "model-rank-1-part-0.safetensors", tiny.shard(1, 2, Sizes(64, 128)))
    said = refused(tmp_path, tiny, source, Sizes(64, 128), tp=2, moe_tp=2, native=Sizes(64, 96))
    assert "experts of several sizes" in said
    at = "model.layers.0.mlp.experts.routed_experts"
    odd = {
        f"{at}.w13_g_idx": ("I32", (4, 2), b"x" * 32),
        f"{at}.w13_bias": ("BF16", (4, 2), b"x" * 16),
    }
    for name, tensor in odd.items():
        source = write_ranks(tmp_path / name, tiny, Sizes(64, 192))
        path = source / "model-rank-0-part-0.safetensors"
        write(path, read(path) | {name: tensor})
        assert f"`{name}`" in refused(tmp_path, tiny, source, Sizes(64, 256))


def test_a_manifest_of_another_model_is_refused(tmp_path: Path) -> None:
    tiny = Tiny()
    source = write_ranks(tmp_path / "source", tiny, Sizes(64, 192))
    repad(find_folder(source), tmp_path / "one", tiny.wanted(Sizes(64, 256)), "d")
    said = refused(tmp_path, tiny, tmp_path / "one", Sizes(64, 256), native=Sizes(64, 160))
    assert "the manifest has native sizes 64 × 192, the model 64 × 160" in said


def test_targets_that_are_not_ones_own(tmp_path: Path) -> None:
    tiny = Tiny()
    source = write_ranks(tmp_path / "source", tiny, Sizes(64, 192))

    def said(target: Path, to: Sizes = Sizes(64, 256)) -> str:  # noqa: B008
        with pytest.raises(PolicyError) as caught:
            repad(find_folder(source), target, tiny.wanted(to), "d")
        return str(caught.value)

    assert "is in the source [N011]" in said(source)
    assert "is in the source [N011]" in said(source / "inner")
    (tmp_path / "link").symlink_to(source)
    assert "is in the source [N011]" in said(tmp_path / "link")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    assert "is not empty [N011]" in said(tmp_path / "full")
    assert "cannot be written" in said(tmp_path / "full" / "x")
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / JOURNAL).write_text("{}")
    assert "begun from other files or for other sizes [N011]" in said(tmp_path / "begun")
    assert sorted(os.listdir(source)) == ["model-rank-0-part-0.safetensors"]


RUN = """
import os, signal, sys
sys.path[:0] = sys.argv[3:5]
from pathlib import Path
from saved import Tiny
from moe_align.snapshot.folder import find_folder
from moe_align.snapshot.manifest import Sizes
from moe_align.snapshot.repad import repad
stop = float(sys.argv[5])
def progress(done, of):
    if done >= stop * of and stop < 1:
        os.kill(os.getpid(), signal.SIGKILL)
tiny = Tiny(**{"hidden": 256, "width": 512})
wanted = tiny.wanted(Sizes(256, 384), 2)
done = repad(find_folder(Path(sys.argv[1])), Path(sys.argv[2]), wanted, "d", progress)
print(done.written, done.kept)
"""


def run(source: Path, target: Path, stop: float, **more: Any) -> subprocess.CompletedProcess[str]:
    """The rewriting in a process of its own, which kills itself when it has done so much."""
    command = [sys.executable, "-c", RUN, str(source), str(target), str(ROOT), str(ROOT / "tests"), str(stop)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **more)


def test_a_killed_run_leaves_the_source_whole_and_goes_on_later(tmp_path: Path) -> None:
    tiny = Tiny(hidden=256, width=512)
    source = write_ranks(tmp_path / "source", tiny, Sizes(256, 256), 2, parts=2)
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in source.iterdir()}
    fresh = write_ranks(tmp_path / "fresh", tiny, Sizes(256, 384), 2, parts=2)
    target = tmp_path / "target"
    kept = []
    for stop in (0.1, 0.4, 0.6, 0.9):
        killed = run(source, target, stop)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        done = sorted(path.name for path in target.glob("*.safetensors"))
        kept.append(len(done))
        for name in done:
            assert read(target / name) == read(fresh / name), "a final name stands for a whole file"
        assert (target / JOURNAL).exists()
        assert not (target / "moe-align.json").exists()
    assert kept == [0, 1, 2, 3]
    (target / ".model-rank-0-part-0.safetensors.part").symlink_to(tmp_path / "elsewhere")
    ended = run(source, target, 1)
    assert ended.stdout == "1 3\n", ended.stderr
    assert equal(target, fresh)
    assert not (tmp_path / "elsewhere").exists()
    assert {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in source.iterdir()} == before


def test_a_run_for_other_sizes_does_not_go_on(tmp_path: Path) -> None:
    tiny = Tiny(hidden=256, width=512)
    source = write_ranks(tmp_path / "source", tiny, Sizes(256, 256), 2, parts=2)
    assert run(source, tmp_path / "target", 0.6).returncode == -signal.SIGKILL
    with pytest.raises(PolicyError, match="N011"):
        repad(find_folder(source), tmp_path / "target", tiny.wanted(Sizes(256, 512), 2), "d")
    os.utime(source / "model-rank-0-part-0.safetensors", (1, 1))
    with pytest.raises(PolicyError, match="N011"):
        repad(find_folder(source), tmp_path / "target", tiny.wanted(Sizes(256, 384), 2), "d")


def _no_room() -> None:
    """A limit on the size of files, with the error in place of the signal: what a full disk answers."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))


def test_no_room_is_an_error_that_leaves_no_half_file(tmp_path: Path) -> None:
    tiny = Tiny(hidden=256, width=512)
    source = write_ranks(tmp_path / "source", tiny, Sizes(256, 256), 2, parts=2)
    full = run(source, tmp_path / "target", 1, preexec_fn=_no_room)
    assert "cannot be written: File too large [N012]" in full.stderr
    assert os.listdir(tmp_path / "target") == [JOURNAL]
    ended = run(source, tmp_path / "target", 1)
    assert ended.stdout == "4 0\n"


@pytest.mark.skipif(os.getuid() != 0, reason="only root mounts")
def test_a_full_disk(tmp_path: Path) -> None:
    tiny = Tiny(hidden=256, width=512)
    source = write_ranks(tmp_path / "source", tiny, Sizes(256, 256), 2, parts=2)
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=5m", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("no file system can be mounted here")
    try:
        full = run(source, disk / "target", 1)
        assert "cannot be written: No space left on device [N012]" in full.stderr
        whole = [path for path in (disk / "target").glob("*.safetensors") if read(path)]
        assert len(whole) == len(os.listdir(disk / "target")) - 1
    finally:
        subprocess.run(["umount", str(disk)], check=False)


def test_memory_is_bounded_by_an_expert(tmp_path: Path) -> None:
    """A sparse tensor of 256 MiB is rewritten in the memory that Python and numpy take, and a little more."""
    from sparse import write_sparse

    at = "model.layers.0.mlp.experts.routed_experts"
    tensors = [
        (f"{at}.w13_weight", "F8_E4M3", (128, 1024, 2048)),
        (f"{at}.w2_weight", "F8_E4M3", (128, 2048, 512)),
        (f"{at}.w13_weight_scale_inv", "F32", (128, 8, 16)),
        (f"{at}.w2_weight_scale_inv", "F32", (128, 16, 4)),
    ]
    (tmp_path / "source").mkdir()
    write_sparse(tmp_path / "source" / "model-rank-0-part-0.safetensors", tensors)
    code = (
        "import sys; sys.path[:0] = sys.argv[2:4]\n"
        "from pathlib import Path\n"
        "from saved import Tiny\n"
        "from moe_align.snapshot.folder import find_folder\n"
        "from moe_align.snapshot.manifest import Sizes\n"
        "from moe_align.snapshot.repad import repad\n"
        "tiny = Tiny('fp8_block', 32, 32, 2, 1)\n"
        "wanted = tiny.wanted(Sizes(2048, 640), experts=128, native=Sizes(2048, 512), block=(128, 128))\n"
        "source = Path(sys.argv[1])\n"
        "repad(find_folder(source / 'source'), source / 'target', wanted, 'd')\n"
        "print(open('/proc/self/status').read().split('VmHWM:')[1].split()[0])\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path), str(ROOT), str(ROOT / "tests")]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(ran.stdout) < 120_000
    (tmp_path / "target" / "model-rank-0-part-0.safetensors").unlink()


def test_without_numpy_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = Tiny()
    source = write_ranks(tmp_path / "source", tiny, Sizes(64, 192))
    monkeypatch.setitem(sys.modules, "numpy", None)
    with pytest.raises(PolicyError, match=r"moe-align\[snapshot\]"):
        repad(find_folder(source), tmp_path / "target", tiny.wanted(Sizes(64, 256)), "d")


@pytest.mark.parametrize("size", [2000, 60_000])
def test_a_source_that_shrinks_is_told(tmp_path: Path, size: int) -> None:
    tiny = Tiny()
    source = write_ranks(tmp_path / "source", tiny, Sizes(64, 192))
    path = source / "model-rank-0-part-0.safetensors"

    def progress(done: int, of: int) -> None:
        os.truncate(path, size)

    with pytest.raises(PolicyError, match="became shorter while it was read"):
        repad(find_folder(source), tmp_path / "target", tiny.wanted(Sizes(64, 256)), "d", progress)
    assert os.listdir(tmp_path / "target") == [JOURNAL]
    assert json.loads((tmp_path / "target" / JOURNAL).read_text())["version"] == 1


class Stop(Exception):
    """The end of a run from inside."""


def test_a_file_of_the_wrong_size_is_written_again(tmp_path: Path) -> None:
    tiny = Tiny()
    source = write_ranks(tmp_path / "source", tiny, Sizes(64, 192), parts=3)
    wanted, target = tiny.wanted(Sizes(64, 256)), tmp_path / "target"

    def progress(done: int, of: int) -> None:
        if done > 0.8 * of:
            raise Stop

    with pytest.raises(Stop):
        repad(find_folder(source), target, wanted, "d", progress)
    os.truncate(target / "model-rank-0-part-0.safetensors", 10)
    done = repad(find_folder(source), target, wanted, "d")
    assert (done.written, done.kept) == (2, 1)
    assert equal(target, write_ranks(tmp_path / "fresh", tiny, Sizes(64, 256), parts=3))


@pytest.mark.parametrize("name", ["model-rank-0-part-0.safetensors", "config.json"])
def test_a_place_that_cannot_be_written_is_told(tmp_path: Path, name: str) -> None:
    tiny = Tiny()
    source = write_ranks(tmp_path / "source", tiny, Sizes(64, 192))
    (source / "config.json").write_text("{}")
    target = tmp_path / "target"

    def progress(done: int, of: int) -> None:
        if name == "config.json":
            (target / ".config.json.part").mkdir(exist_ok=True)

    if name != "config.json":
        with pytest.raises(Stop):
            repad(find_folder(source), target, tiny.wanted(Sizes(64, 256)), "d", stopped)
        (target / f".{name}.part").unlink()
        (target / f".{name}.part").mkdir()
    with pytest.raises(PolicyError, match="N012"):
        repad(find_folder(source), target, tiny.wanted(Sizes(64, 256)), "d", progress)


def stopped(done: int, of: int) -> None:
    raise Stop


def test_numbers_for_an_expert_are_copied(tmp_path: Path) -> None:
    tiny = Tiny("fp8_channel")
    source = write_ranks(tmp_path / "source", tiny, Sizes(64, 192))
    path = source / "model-rank-0-part-0.safetensors"
    at = "model.layers.0.mlp.experts.routed_experts"
    numbers = {f"{at}.w13_weight_scale": ("F32", (4, 2), bytes(range(32)))}
    weights = {name: tensor for name, tensor in read(path).items() if "scale" not in name}
    write(path, weights | numbers)
    wanted = tiny.wanted(Sizes(64, 256), scheme="fp8_tensor")
    repad(find_folder(source), tmp_path / "target", wanted, "d")
    assert (
        read(tmp_path / "target" / path.name)[f"{at}.w13_weight_scale"] == numbers[f"{at}.w13_weight_scale"]
    )
    write(tmp_path / "checkpoint" / "model.safetensors", tiny.checkpoint())
    found = list(compare(find_folder(tmp_path / "target"), find_folder(tmp_path / "checkpoint"), wanted))
    assert [fault for _, fault in found] == [None] * 4


def test_sizes_and_scales_that_cannot_be_are_refused(tmp_path: Path) -> None:
    tiny = Tiny(width=192)
    source = write_ranks(tmp_path / "source", tiny, Sizes(64, 96), 2)
    wanted = {"tp": 2, "moe_tp": 2}
    said = refused(tmp_path, tiny, source, Sizes(64, 256), native=Sizes(64, 128), **wanted)
    assert "intermediate 128 has cells that 96 has not" in said
    scaled = Tiny("fp8_block")
    source = write_ranks(tmp_path / "scaled", scaled, Sizes(64, 192))
    path = source / "model-rank-0-part-0.safetensors"
    retyped = {
        name: ("I32" if dtype == "F32" else dtype, shape, data)
        for name, (dtype, shape, data) in read(path).items()
    }
    write(path, retyped)
    assert "nothing is known to be a scale of 1 in I32" in refused(tmp_path, scaled, source, Sizes(64, 256))


def test_files_that_change_while_they_are_compared(tmp_path: Path) -> None:
    tiny = Tiny()
    source = write_ranks(tmp_path / "source", tiny, Sizes(64, 192))
    write(tmp_path / "checkpoint" / "model.safetensors", tiny.checkpoint())
    checkpoint = find_folder(tmp_path / "checkpoint")
    other = compare(find_folder(source), checkpoint, tiny.wanted(Sizes(64, 256)))
    assert {fault for _, fault in other} == {
        "[4, 384, 64] is no shape of 64 × 256",
        "[4, 64, 192] is no shape of 64 × 256",
    }
    found = compare(find_folder(source), checkpoint, tiny.wanted(Sizes(64, 192)))
    assert next(found)[1] is None
    os.truncate(source / "model-rank-0-part-0.safetensors", 5000)
    with pytest.raises(PolicyError, match="became shorter while it was read"):
        list(found)
