"""Headers of safetensors files: true ones as the library reads them, wrong ones refused before it does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import save_file
from sparse import header_of, write_raw, write_sparse

from moe_align import PolicyError
from moe_align.snapshot import folder, headers
from moe_align.snapshot.folder import Shard, find_folder
from moe_align.snapshot.headers import BITS, read_header

ONE: dict[str, Any] = {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}


def refused(path: Path) -> str:
    """The code and message with which a file is refused."""
    with pytest.raises(PolicyError) as caught:
        read_header(path)
    (problem,) = caught.value.problems
    assert str(path) in problem.message
    assert "\x1b" not in problem.message
    return f"{problem.code} {problem.message}"


def written(path: Path, document: object, data: int = 4) -> Path:
    return write_raw(path / "x.safetensors", json.dumps(document).encode(), data)


def test_a_file_of_the_library_is_read_as_the_library_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    arrays: dict[str, Any] = {
        "a": numpy.zeros((3, 5), numpy.float32),
        "b": numpy.ones((2, 2, 2), numpy.int8),
        "c": numpy.array(1),
    }
    save_file(arrays, path, metadata={"format": "np"})
    header = read_header(path)
    assert header.metadata == {"format": "np"}
    with safe_open(str(path), framework="np") as file:
        assert {tensor.name for tensor in header.tensors} == set(file.keys())
        for tensor in header.tensors:
            part = file.get_slice(tensor.name)
            assert (list(tensor.shape), tensor.dtype) == (part.get_shape(), part.get_dtype())
    data = path.read_bytes()[header.data :]
    for tensor in header.tensors:
        assert data[tensor.begin : tensor.end] == arrays[tensor.name].tobytes()


def test_every_type_that_the_library_takes_is_known(tmp_path: Path) -> None:
    for dtype, bits in BITS.items():
        path = write_sparse(tmp_path / f"{dtype}.safetensors", [("a", dtype, (8, 8))])
        assert read_header(path).tensors[0].bytes == 8 * bits


@given(
    st.lists(
        st.tuples(st.sampled_from(["U8", "BF16", "F32"]), st.lists(st.integers(0, 5), max_size=3)), max_size=6
    )
)
def test_what_is_written_is_read(said: list[tuple[str, list[int]]]) -> None:
    import tempfile

    tensors = [(f"t{number}", dtype, tuple(shape)) for number, (dtype, shape) in enumerate(said)]
    with tempfile.TemporaryDirectory() as name:
        header = read_header(write_sparse(Path(name) / "x.safetensors", tensors))
    assert sorted((one.name, one.dtype, one.shape) for one in header.tensors) == sorted(tensors)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "N004"),
        ({"a": 3}, "dtype, shape and data_offsets are meant"),
        ({"a": {"dtype": "U8", "shape": [4]}}, "dtype, shape and data_offsets are meant"),
        ({"a": ONE | {"more": 1}}, "dtype, shape and data_offsets are meant"),
        ({"a": ONE | {"dtype": "U7"}}, "`U7` is no type of the format"),
        ({"a": ONE | {"dtype": ["U8"]}}, "is no type of the format"),
        ({"a": ONE | {"shape": [-4]}}, "its shape is no list of whole numbers"),
        ({"a": ONE | {"shape": [4.0]}}, "its shape is no list of whole numbers"),
        ({"a": ONE | {"shape": [True, 4]}}, "its shape is no list of whole numbers"),
        ({"a": ONE | {"shape": [2**40, 2**40, 2**40]}}, "do not take 4 bytes"),
        ({"a": ONE | {"shape": [2**80]}}, "its shape is no list of whole numbers"),
        ({"a": ONE | {"shape": [1] * 40}}, "its shape is no list of whole numbers"),
        ({"a": ONE | {"data_offsets": [-4, 0]}}, "N005 "),
        ({"a": ONE | {"data_offsets": [0, -4]}}, "N005 "),
        ({"a": ONE | {"data_offsets": [4, 0]}}, "N005 "),
        ({"a": ONE | {"data_offsets": [0, 2**70]}}, "N005 "),
        ({"a": ONE | {"data_offsets": [0]}}, "N005 "),
        ({"a": ONE | {"data_offsets": "0"}}, "N005 "),
        ({"a": ONE | {"data_offsets": [0, 3]}}, "4 of U8 do not take 3 bytes"),
        ({"a": ONE, "b": ONE | {"data_offsets": [2, 6]}}, "begins at 2, inside the tensor before it"),
        ({"a": ONE, "b": ONE}, "begins at 0, inside the tensor before it"),
        ({"a": ONE, "b": ONE | {"data_offsets": [8, 12]}}, "4 bytes before it belong to no tensor"),
        ({"__metadata__": {"a": 1}}, "holds texts only"),
        ({"__metadata__": []}, "holds texts only"),
        ({"\x1b[31m": 3}, "?[31m"),
    ],
)
def test_a_header_that_is_wrong(tmp_path: Path, document: object, message: str) -> None:
    assert message in refused(written(tmp_path, document))


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"\xff\xfe{}",
        b'{"a": NaN}',
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b'{"a": {"dtype": "U8", "shape": [4], "shape": [5], "data_offsets": [0, 4]}}',
        b'{"a": 1, "a": 2}',
        b'{"a": {"dtype": "U8", "shape": [' + b"9" * 10_000 + b'], "data_offsets": [0, 4]}}',
    ],
)
def test_a_header_that_is_no_json(tmp_path: Path, text: bytes) -> None:
    assert refused(write_raw(tmp_path / "x.safetensors", text, 4)).startswith("N004")


def test_files_that_are_cut_short_or_too_long(tmp_path: Path) -> None:
    path = write_sparse(tmp_path / "x.safetensors", [("a", "F32", (100,))])
    whole = path.read_bytes()
    for size in (0, 3, 8, 20, len(whole) - 1):
        path.write_bytes(whole[:size])
        assert refused(path).startswith("N002")
    path.write_bytes(whole[:-1])
    assert "1 of 400 bytes of data are missing" in refused(path)
    path.write_bytes(whole + b"x")
    assert "N005" in refused(path)


@pytest.mark.parametrize("length", [100_000_000, 2**31, 2**63, 2**64 - 1, headers.MOST_HEADER_BYTES + 1])
def test_a_length_beyond_the_limit_is_not_read(tmp_path: Path, length: int) -> None:
    path = write_raw(tmp_path / "x.safetensors", b"{}", 2**33, length)
    began = time.process_time()
    assert f"its header takes {length} bytes" in refused(path)
    assert time.process_time() - began < 0.1


def test_a_million_tensors_are_refused_in_little_memory(tmp_path: Path) -> None:
    entry = b'"%07d":{"dtype":"U8","shape":[],"data_offsets":[]}'
    text = b"{" + b",".join(entry % number for number in range(10**6)) + b"}"
    if len(text) > headers.MOST_HEADER_BYTES:
        text = text[: headers.MOST_HEADER_BYTES]
    path = write_raw(tmp_path / "x.safetensors", text)
    code = (
        "import sys; from pathlib import Path\n"
        "from moe_align.snapshot.headers import read_header\n"
        "try: read_header(Path(sys.argv[1]))\n"
        "except Exception as fault: print(fault)\n"
        "print(open('/proc/self/status').read().split('VmHWM:')[1].split()[0])\n"
    )
    ran = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    said, memory = ran.stdout.strip().rsplit("\n", 1)
    assert "[N003]" in said
    assert "400000 are read" in said
    assert int(memory) < 150_000


def test_more_tensors_than_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headers, "MOST_TENSORS", 2)
    path = write_sparse(tmp_path / "x.safetensors", [(name, "U8", (4,)) for name in "abc"])
    assert "speaks of 3 tensors: at most 2 are read" in refused(path)


def test_what_is_no_file(tmp_path: Path) -> None:
    assert refused(tmp_path / "none.safetensors").startswith("N001")
    pipe = tmp_path / "pipe.safetensors"
    os.mkfifo(pipe)
    assert "is no regular file" in refused(pipe)
    (tmp_path / "folder.safetensors").mkdir()
    assert refused(tmp_path / "folder.safetensors").startswith("N001")
    assert "N001" in refused(Path("/dev/null"))
    assert "cannot be read: Input/output error" in refused(Path("/proc/self/mem"))


def as_nobody() -> None:
    """Give up the rights of root, under which every file can be read."""
    if os.getuid() == 0:
        os.setgid(65534)
        os.setuid(65534)


def test_a_file_that_must_not_be_read(tmp_path: Path) -> None:
    path = write_sparse(tmp_path / "x.safetensors", [("a", "U8", (4,))])
    path.chmod(0)
    tmp_path.chmod(0o755)
    handle = os.open(tmp_path, os.O_RDONLY)
    pid = os.fork()
    if pid == 0:  # pragma: no cover
        # From inside: the folders above are those of somebody else.
        os.fchdir(handle)
        as_nobody()
        try:
            read_header(Path("x.safetensors"))
        except PolicyError as fault:
            os._exit(0 if "cannot be opened: Permission denied" in str(fault) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_link_is_followed_and_a_broken_one_told(tmp_path: Path) -> None:
    blobs = tmp_path / "blobs"
    blobs.mkdir()
    blob = write_sparse(blobs / "abc", [("a", "U8", (4,))])
    (tmp_path / "x.safetensors").symlink_to(blob)
    assert read_header(tmp_path / "x.safetensors").tensors[0].name == "a"
    (tmp_path / "y.safetensors").symlink_to(tmp_path / "y.safetensors")
    assert refused(tmp_path / "y.safetensors").startswith("N001")


def test_where_the_library_refuses_more_it_is_heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_sparse(tmp_path / "x.safetensors", [("a", "U8", (4,))])
    monkeypatch.setitem(BITS, "U9", 8)
    written(tmp_path, {"a": ONE | {"dtype": "U9"}})
    assert "is refused by safetensors" in refused(path)


def test_without_the_library_headers_are_read_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_sparse(tmp_path / "x.safetensors", [("a", "U8", (4,))])
    for missing in ("numpy", "safetensors"):
        monkeypatch.setitem(sys.modules, missing, None)
        assert read_header(path).tensors[0].name == "a"


def shard(where: Path, name: str) -> Path:
    return write_sparse(where / name, [("a", "U8", (4,))])


def test_ranks_and_parts_are_read_off_names(tmp_path: Path) -> None:
    for name in ("model-rank-0-part-0", "model-rank-0-part-1", "model-rank-1-part-0"):
        shard(tmp_path, f"{name}.safetensors")
    shard(tmp_path, "other.safetensors")
    found = find_folder(tmp_path)
    assert (found.sharded, found.ranks, found.faults) == (True, 2, ())
    assert [(one.tp, one.pp, one.part) for one in found.shards] == [(0, 0, 0), (0, 0, 1), (1, 0, 0)]


def test_stages_are_read_off_names(tmp_path: Path) -> None:
    for pp in (0, 1):
        for tp in (0, 1):
            shard(tmp_path, f"model-pp-{pp}-tp-{tp}-part-0.safetensors")
    (tmp_path / "model-pp-1-tp-0-part-0.safetensors").unlink()
    found = find_folder(tmp_path)
    assert found.faults == ("no file of rank 0 of stage 1",)


def test_a_pattern_of_ones_own(tmp_path: Path) -> None:
    shard(tmp_path, "{x}-3_0.safetensors")
    found = find_folder(tmp_path, "{{x}}-{tp_rank}_{part}.safetensors")
    assert found.shards == (Shard(tmp_path / "{x}-3_0.safetensors", 3, 0, 0),)
    assert found.faults == ("no file of rank 0, 1, 2",)


@pytest.mark.parametrize(
    "pattern",
    [
        "../{rank}.safetensors",
        "{rank}",
        "{rank",
        "{rank}{tp_rank}.safetensors",
        "{x}.safetensors",
        "{0}.safetensors",
    ],
)
def test_a_pattern_that_is_none(tmp_path: Path, pattern: str) -> None:
    shard(tmp_path, "x.safetensors")
    with pytest.raises(PolicyError, match="N007"):
        find_folder(tmp_path, pattern)


def test_missing_ranks_and_parts_are_named(tmp_path: Path) -> None:
    for name in ("model-rank-0-part-1", "model-rank-3-part-0", "model-rank-3-part-2"):
        shard(tmp_path, f"{name}.safetensors")
    assert find_folder(tmp_path).faults == (
        "no file of rank 1, 2",
        "no part 0 of rank 0",
        "no part 1 of rank 3",
    )


def test_names_of_a_million_ranks_cost_nothing(tmp_path: Path) -> None:
    shard(tmp_path, "model-pp-999999-tp-999999-part-999999.safetensors")
    began = time.process_time()
    (fault,) = find_folder(tmp_path).faults
    assert fault == "names speak of 1000000 × 1000000 ranks, of which 1 are there"
    assert time.process_time() - began < 1


def test_an_index_names_the_files(tmp_path: Path) -> None:
    shard(tmp_path, "a.safetensors")
    shard(tmp_path, "unused.safetensors")
    weights = {
        "a": "a.safetensors",
        "b": "b.safetensors",
        "c": "../../etc/c.safetensors",
        "d": "/x.safetensors",
    }
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weights}))
    found = find_folder(tmp_path)
    assert [one.path.name for one in found.shards] == ["a.safetensors"]
    assert len(found.faults) == 3
    assert sum("leads out of the folder" in fault for fault in found.faults) == 2
    assert "no file `b.safetensors`, which model.safetensors.index.json names" in found.faults


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"weight_map": []}', "[" * 100_000])
def test_an_index_that_is_none(tmp_path: Path, text: str) -> None:
    shard(tmp_path, "a.safetensors")
    (tmp_path / "model.safetensors.index.json").write_text(text)
    with pytest.raises(PolicyError, match="N004"):
        find_folder(tmp_path)


def test_folders_and_indices_beyond_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = tmp_path / "model.safetensors.index.json"
    index.mkdir()
    shard(tmp_path, "a.safetensors")
    with pytest.raises(PolicyError, match="N001"):
        find_folder(tmp_path)
    index.rmdir()
    index.write_text('{"weight_map": {"a": "a.safetensors"}}')
    monkeypatch.setattr(folder, "_MOST_INDEX_BYTES", 10)
    with pytest.raises(PolicyError, match="N003"):
        find_folder(tmp_path)
    shard(tmp_path, "b.safetensors")
    monkeypatch.setattr(folder, "_MOST_FILES", 1)
    with pytest.raises(PolicyError, match="N003"):
        find_folder(tmp_path)


def test_folders_without_a_snapshot(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="N006"):
        find_folder(tmp_path)
    with pytest.raises(PolicyError, match="N001"):
        find_folder(tmp_path / "none")
    shard(tmp_path, "x.safetensors")
    with pytest.raises(PolicyError, match="N006"):
        find_folder(tmp_path, "y-{rank}.safetensors")


def test_headers_are_true_of_what_they_are_made_from() -> None:
    document, size = header_of([("a", "F4", (3, 4)), ("b", "BF16", ())])
    assert (document["a"]["data_offsets"], document["b"]["data_offsets"], size) == ([0, 6], [6, 8], 8)
