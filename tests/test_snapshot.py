"""Saved weights against today's sizes: what loading would do, what they take, manifests, the commands."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deepseek_v4
import pytest
from click_result import Result, run
from jsonschema import Draft202012Validator
from saved import FORMATS, Saved, Tiny, other_tensors, read, write, write_ranks
from sparse import write_raw, write_sparse

from moe_align import PolicyError, cli
from moe_align.cli import snapshot
from moe_align.cli.schemas import schema_of
from moe_align.snapshot.account import account, per_rank
from moe_align.snapshot.check import Checked, check
from moe_align.snapshot.folder import find_folder
from moe_align.snapshot.manifest import FILE, Sizes, read_manifest, write_manifest
from moe_align.snapshot.names import Name, read_name

ROOT = Path(__file__).parent.parent
DATA = Path(__file__).parent / "data"

#: The layer of `Tiny` as flags, on one rank, in a backend that leaves weights as they were created.
LAYER = (
    "--hidden 64 --intermediate 192 --experts 4 --scheme unquantized"
    " --act silu --backend triton --platform cuda"
)

RULES = """\
language: 1
pack: mine
phase: allocate
for: {engine: vllm}
rules:
  - {id: wide, align: {hidden: native, intermediate: 128}, why: a test}
"""


@pytest.fixture(autouse=True)
def clean(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("MOE_ALIGN_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))


def moe_align(line: str) -> Result:
    return run(cli.app, shlex.split(line))


def answer(line: str) -> dict[str, Any]:
    ran = moe_align(f"{line} --json")
    plain: dict[str, Any] = json.loads(ran.stdout)
    Draft202012Validator(schema_of(f"snapshot-{line.split()[1]}")).validate(plain)
    return plain


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("model.layers.3.mlp.experts.17.gate_proj.weight", Name("routed", 3, False, 17, "gate", "weight")),
        ("layers.3.ffn.experts.17.w2.scale", Name("routed", 3, False, 17, "down", "scale")),
        ("mtp.0.ffn.experts.1.w3.weight", Name("routed", None, True, 1, "up", "weight")),
        (
            "model.layers.5.mlp.experts.1.up_proj.weight_packed",
            Name("routed", 5, True, 1, "up", "weight_packed"),
        ),
        ("model.layers.0.mlp.experts.gate_up_proj", Name("routed", 0, False, None, "gate_up", "weight")),
        ("model.layers.0.mlp.experts.down_proj_blocks", Name("routed", 0, False, None, "down", "blocks")),
        (
            "model.layers.1.mlp.experts.routed_experts.w13_weight",
            Name("routed", 1, False, None, "gate_up", "weight", True),
        ),
        (
            "layers.1.ffn.experts.w2_weight_scale_inv",
            Name("routed", 1, False, None, "down", "weight_scale_inv", True),
        ),
        ("model.layers.1.mlp.shared_experts.gate_proj.weight", Name("shared", 1, False)),
        ("model.layers.1.mlp.shared_expert_gate.weight", Name("shared", 1, False)),
        ("model.layers.1.mlp.gate.weight", Name("router", 1, False)),
        ("model.layers.1.mlp.experts.gate.weight", Name("router", 1, False)),
        ("model.layers.1.mlp.experts.shared_experts.w2.weight", Name("shared", 1, False)),
        ("model.layers.1.mlp.gate_proj.weight", Name("dense", 1, False)),
        ("model.layers.1.self_attn.q_norm.weight", Name("attention", 1, False)),
        ("model.layers.1.input_layernorm.weight", Name("norms", 1, False)),
        ("model.embed_tokens.weight", Name("embeddings", None, False)),
        ("lm_head.weight", Name("embeddings", None, False)),
        ("hc_head_fn", Name("other", None, False)),
        ("model.layers.99999999999999.mlp.experts.99999999999999.w1.weight", Name("routed", None, False)),
        ("", Name("other", None, False)),
        ("../../etc/passwd", Name("other", None, False)),
    ],
)
def test_names(name: str, said: Name) -> None:
    assert read_name(name, 5) == said


def verdicts(found: Checked) -> dict[str, str]:
    return {row.tensor: row.verdict for row in found.rows}


@pytest.mark.parametrize("scheme", FORMATS)
@pytest.mark.parametrize(("tp", "ep"), [(1, 1), (2, 1), (1, 2)])
def test_what_an_engine_allocates_fits(tmp_path: Path, scheme: str, tp: int, ep: int) -> None:
    tiny = Tiny(scheme, bias=True)
    sizes = Sizes(96, 256 // tp)
    folder = find_folder(write_ranks(tmp_path, tiny, sizes, tp, ep, parts=2))
    found = check(folder, tiny.wanted(sizes, tp, ep), None)
    assert (found.verdict, found.faults, found.reasons) == ("fits", (), ())
    assert len(found.rows) == (6 if FORMATS[scheme][1] else 4)
    assert sum(row.tensors for row in found.rows) == len(found.rows) * tiny.layers * tp * ep


def test_the_silent_corruption_is_seen(tmp_path: Path) -> None:
    """96 saved, 128 allocated: vLLM only warns, and up lands in the pad of gate."""
    tiny = Tiny(width=96)
    folder = find_folder(write_ranks(tmp_path, tiny, Sizes(64, 96)))
    found = check(folder, tiny.wanted(Sizes(64, 128)), None)
    assert found.verdict == "would load silently wrong"
    assert {(row.tensor, row.saved, row.wanted) for row in found.rows} == {
        ("w13.weight", (4, 192, 64), (4, 256, 64)),
        ("w2.weight", (4, 64, 96), (4, 64, 128)),
    }
    larger = check(folder, tiny.wanted(Sizes(64, 64), native=Sizes(64, 64), whole=64), None)
    assert larger.verdict == "would fail"


@pytest.mark.parametrize(
    ("saved", "wanted", "verdict"),
    [
        (Sizes(64, 192), Sizes(96, 192), "would load silently wrong"),
        (Sizes(96, 192), Sizes(64, 192), "would fail"),
        (Sizes(96, 192), Sizes(64, 256), "would fail"),
    ],
)
def test_other_sizes(tmp_path: Path, saved: Sizes, wanted: Sizes, verdict: str) -> None:
    tiny = Tiny()
    found = check(find_folder(write_ranks(tmp_path, tiny, saved)), tiny.wanted(wanted), None)
    assert verdict in verdicts(found).values()


@pytest.mark.parametrize(
    ("backend", "verdict", "reason"),
    [
        ("cpu", "would load silently wrong", "was tried and gives other tokens"),
        ("aiter", "cannot know", "headers do not tell what that does"),
        (None, "cannot know", "the backend repacks weights"),
    ],
)
def test_repacked_weights_cannot_be_known(
    tmp_path: Path, backend: str | None, verdict: str, reason: str
) -> None:
    tiny = Tiny()
    folder = find_folder(write_ranks(tmp_path, tiny, Sizes(64, 192)))
    found = check(folder, tiny.wanted(Sizes(64, 192), backend=backend, layout=None), None)
    assert (found.layout, found.verdict) == ("processed", verdict)
    assert reason in found.reasons[0][1]
    created = check(folder, tiny.wanted(Sizes(64, 192), backend=backend, layout="created"), None)
    assert created.verdict == "fits"


def test_hardware_that_converts_fp8_leaves_nothing_alone(tmp_path: Path) -> None:
    folder = find_folder(write_ranks(tmp_path, Tiny("fp8_block"), Sizes(64, 192)))
    wanted = Tiny("fp8_block").wanted(Sizes(64, 192), layout=None)
    assert check(folder, wanted, None).verdict == "fits"
    assert check(folder, wanted._replace(fnuz=True), None).verdict == "cannot know"
    assert check(folder, wanted._replace(fnuz=True, layout="created"), None).verdict == "fits"


def altered(folder: Path, name: str, change: Callable[[Saved], Saved]) -> None:
    path = folder / name
    write(path, change(read(path)))


AT = "model.layers.0.mlp.experts.routed_experts"


@pytest.mark.parametrize(
    ("more", "tensor", "verdict"),
    [
        (
            {f"{AT}.w13_weight": ("U8", (4, 384, 128), 4 * 384 * 128)},
            "w13.weight",
            "would load silently wrong",
        ),
        (
            {f"{AT}.w13_weight": ("BF16", (2, 384, 64), 2 * 384 * 128)},
            "w13.weight",
            "would load silently wrong",
        ),
        ({f"{AT}.w13_weight": ("BF16", (384, 64), 384 * 128)}, "w13.weight", "would fail"),
        ({f"{AT}.w13_g_idx": ("I32", (4, 8), 128)}, "w13.g_idx", "cannot know"),
        ({f"{AT}.w13_input_scale": ("F32", (4,), 16)}, "w13.input_scale", "fits"),
        ({f"{AT}.w13_input_scale": ("F32", (3,), 12)}, "w13.input_scale", "would fail"),
        ({f"{AT}.w13_weight_scale": ("F32", (4, 8), 128)}, "w13.weight_scale", "cannot know"),
        ({"model.layers.0.mlp.experts.odd": ("F32", (4,), 16)}, "experts", "cannot know"),
    ],
)
def test_tensors_that_are_odd(tmp_path: Path, more: dict[str, Any], tensor: str, verdict: str) -> None:
    tiny = Tiny()
    write_ranks(tmp_path, tiny, Sizes(64, 192))
    added = {name: (dtype, shape, bytes(size)) for name, (dtype, shape, size) in more.items()}
    altered(tmp_path, "model-rank-0-part-0.safetensors", lambda tensors: tensors | added)
    found = check(find_folder(tmp_path), tiny.wanted(Sizes(64, 192)), None)
    assert verdict in [row.verdict for row in found.rows if row.tensor == tensor]


def test_scales_whose_blocks_are_not_known(tmp_path: Path) -> None:
    sizes = Sizes(64, 192)
    for scheme, more, verdict in (
        ("fp8_block", {"block": None}, "cannot know"),
        ("fp8_block", {"interleaved": True}, "cannot know"),
        ("fp8_channel", {"scheme": "fp8_tensor"}, "fits"),
    ):
        tiny = Tiny(scheme)
        folder = find_folder(write_ranks(tmp_path / f"{scheme}-{len(more)}-{verdict}", tiny, sizes))
        found = verdicts(check(folder, tiny.wanted(sizes, **more), None))
        assert found["w2.weight_scale" if scheme == "fp8_channel" else "w13.weight_scale_inv"] == verdict


def test_odd_tensors_of_a_checkpoint(tmp_path: Path) -> None:
    at = "model.layers.0.mlp.experts.0.w1"
    tensors = [
        (f"{at}.weight", "BF16", (192, 64)),
        (f"{at}.input_scale", "F32", ()),
        (f"{at}.odd", "F32", (1,)),
    ]
    write_sparse(tmp_path / "x.safetensors", tensors)
    found = check(find_folder(tmp_path), Tiny(experts=1).wanted(Sizes(64, 192)), None)
    assert verdicts(found) == {"gate.weight": "fits", "gate.input_scale": "fits", "gate.odd": "cannot know"}


def test_packed_integers_cannot_be_known(tmp_path: Path) -> None:
    tiny = Tiny()
    write(tmp_path / "x.safetensors", tiny.checkpoint())
    found = check(find_folder(tmp_path), tiny.wanted(Sizes(64, 192), scheme="int4_wna16"), None)
    assert found.verdict == "cannot know"


def faults(folder: Path, tiny: Tiny, tp: int = 2) -> str:
    found = check(find_folder(folder), tiny.wanted(Sizes(64, 96), tp), None)
    assert found.verdict == "would fail"
    return "\n".join([*found.faults, *(reason for _, reason in found.reasons)])


def test_what_is_wrong_with_files_is_all_told(tmp_path: Path) -> None:
    tiny = Tiny()

    def made(name: str) -> Path:
        return write_ranks(tmp_path / name, tiny, Sizes(64, 96), 2, parts=2)

    folder = made("truncated")
    os.truncate(folder / "model-rank-1-part-1.safetensors", 3000)
    assert "is cut short" in faults(folder, tiny)
    assert "rank 1 lacks 2 expert tensors that other ranks have" in faults(folder, tiny)

    folder = made("missing")
    for part in (0, 1):
        (folder / f"model-rank-0-part-{part}.safetensors").unlink()
    assert "no file of rank 0" in faults(folder, tiny)

    folder = made("twice")
    altered(folder, "model-rank-0-part-1.safetensors", lambda own: own | other_tensors())
    assert "`model.embed_tokens.weight` is in two files" in faults(folder, tiny)

    folder = made("mixed")
    write_ranks(tmp_path / "other", tiny, Sizes(64, 128), 2, parts=2)
    (tmp_path / "other" / "model-rank-1-part-0.safetensors").rename(
        folder / "model-rank-1-part-0.safetensors"
    )
    found = check(find_folder(folder), tiny.wanted(Sizes(64, 96), 2), None)
    assert {row.saved for row in found.rows if row.tensor == "w13.weight"} == {(4, 192, 64), (4, 256, 64)}
    assert {row.verdict for row in found.rows if row.tensor == "w13.weight"} == {"fits", "would fail"}

    assert "files of 2 ranks are there, and TP 1 loads them" in faults(made("ranks"), tiny, 1)
    write(tmp_path / "none" / "x.safetensors", other_tensors())
    assert "no tensor of a routed expert is in it" in faults(tmp_path / "none", tiny)


def test_ranks_of_dp_overwrite_each_other(tmp_path: Path) -> None:
    tiny = Tiny()
    folder = find_folder(write_ranks(tmp_path, tiny, Sizes(64, 192)))
    found = check(folder, tiny.wanted(Sizes(64, 192), dp=2), None)
    assert found.verdict == "cannot know"
    assert "names of files have no rank of DP" in found.reasons[0][1]


@pytest.mark.parametrize("scheme", FORMATS)
def test_a_checkpoint_of_the_model_fits_and_another_does_not(tmp_path: Path, scheme: str) -> None:
    tiny = Tiny(scheme, bias=True)
    write(tmp_path / "model.safetensors", tiny.checkpoint())
    folder = find_folder(tmp_path)
    assert check(folder, tiny.wanted(Sizes(64, 128), 2), None).verdict == "fits"
    other = tiny.wanted(Sizes(64, 128), native=Sizes(64, 128), whole=256)
    assert check(folder, other, None).verdict == "would fail"
    assert check(folder, tiny.wanted(Sizes(64, 192), experts=5), None).faults == (
        "4 of 5 experts in layer 0 and 1 more layers",
    )
    retyped = tiny.wanted(Sizes(64, 192), scheme="int8_w8a8", block=None)
    assert check(folder, retyped, None).verdict in ("would fail", "cannot know")


def test_all_experts_in_one_tensor_either_way_round(tmp_path: Path) -> None:
    tiny = Tiny()
    for shape in ((4, 384, 64), (4, 64, 384)):
        name = "model.layers.0.mlp.experts.gate_up_proj"
        write_sparse(tmp_path / "x.safetensors", [(name, "BF16", shape)])
        assert check(find_folder(tmp_path), tiny.wanted(Sizes(64, 192)), None).verdict == "fits"


def test_a_manifest_is_trusted(tmp_path: Path) -> None:
    tiny = Tiny()
    folder = write_ranks(tmp_path, tiny, Sizes(64, 192))
    wanted = tiny.wanted(Sizes(64, 192), backend="cpu")
    for layout, verdict in (("created", "fits"), ("processed", "would load silently wrong")):
        write_manifest(folder, wanted.manifest("d" * 64, layout))
        found = check(find_folder(folder), wanted._replace(layout=None), read_manifest(folder))
        assert (found.layout, found.has_manifest, found.verdict) == (layout, True, verdict)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"allocated": Sizes(64, 256)}, "its allocated size is 64 × 256, now 64 × 192"),
        ({"native": Sizes(64, 160)}, "its native is 64 × 160, now 64 × 192"),
        ({"scheme": "mxfp4"}, "its scheme is mxfp4, now unquantized"),
        ({"experts": 5}, "its experts are 5, now 4"),
        ({"tp": 2}, "it was saved by tp 2, and 1 load it"),
        ({"interleaved": True}, "gate and up rows take turns in one of the two"),
        ({"backend": "aiter"}, "it was repacked for aiter, and triton loads it"),
    ],
)
def test_a_manifest_that_disagrees(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    tiny = Tiny()
    folder = write_ranks(tmp_path, tiny, Sizes(64, 192))
    saved = tiny.wanted(Sizes(64, 192))._replace(**change).manifest("d", "processed")
    write_manifest(folder, saved)
    found = check(find_folder(folder), tiny.wanted(Sizes(64, 192)), read_manifest(folder))
    assert any(reason in said for _, said in found.reasons)
    assert found.verdict == "would fail"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "3",
        "[" * 100_000,
        '{"version": 2}',
        '{"version": 1, "layout": "odd"}',
        '{"version": 1, "layout": "created", "engine": []}',
        "x" * (2**20 + 1),
    ],
)
def test_a_manifest_that_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(PolicyError, match="N009"):
        read_manifest(tmp_path)


@pytest.mark.parametrize(
    ("key", "value"),
    [("experts", 0), ("experts", True), ("experts", "4"), ("native", {"hidden": -1, "intermediate": 1}),
     ("scheme", 3), ("scheme", "\x1b[31m"), ("backend", []), ("parallel", {"tp": 1})],
)  # fmt: skip
def test_values_of_a_manifest_that_are_none(tmp_path: Path, key: str, value: object) -> None:
    write_manifest(tmp_path, Tiny().wanted(Sizes(64, 192)).manifest("d", "created"))
    plain = json.loads((tmp_path / FILE).read_text())
    (tmp_path / FILE).write_text(json.dumps(plain | {key: value}))
    with pytest.raises(PolicyError, match="N009") as caught:
        read_manifest(tmp_path)
    assert "\x1b" not in str(caught.value)


def test_manifests_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    assert read_manifest(tmp_path) is None
    (tmp_path / FILE).mkdir()
    with pytest.raises(PolicyError, match="cannot be read"):
        read_manifest(tmp_path)
    with pytest.raises(PolicyError, match="cannot be written"):
        write_manifest(tmp_path, Tiny().wanted(Sizes(64, 192)).manifest(None, "created"))  # type: ignore[arg-type]
    assert os.listdir(tmp_path) == [FILE]


@pytest.fixture(scope="module")
def v4(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """DeepSeek-V4-Pro's checkpoint: 64 sparse files of 805 GiB in all, with its config."""
    folder = deepseek_v4.write(tmp_path_factory.mktemp("v4"))
    config = (DATA / "configs" / "deepseek-v4-pro.json").read_text()
    (folder / "config.json").write_text(config)
    return folder


def gib(size: int) -> float:
    return round(size / 2**30, 3)


def test_the_sum_of_vllm_51473_comes_out_of_headers(v4: Path) -> None:
    """778.148 / 8 + 27.171 = 124.439, from nothing but the model's shapes."""
    assert sum(path.stat().st_size for path in v4.glob("*.safetensors")) > 805 * 2**30
    found = answer(f"snapshot account {v4} --dp 8 --backend aiter_bf16")
    assert found["files"] == 64
    routed = found["kinds"]["routed"]["bytes"]
    assert (gib(routed), gib(found["bytes"] - routed)) == (778.148, 27.171)
    assert gib(found["per_rank"]["least"]) == gib(found["per_rank"]["most"]) == 124.439
    assert gib(found["per_rank"]["without_mtp"]["most"]) == 122.423
    assert found["layers"] == {"moe": 61, "mtp": 1}
    without = found["allocated"]["without_mtp"]
    assert (round(without["created"] / 2**30, 2), round(without["resident"] / 2**30, 2)) == (95.70, 96.33)
    assert gib(found["allocated"]["with_mtp"]["created"]) == gib(routed // 8)


def test_the_sum_as_a_person_reads_it(v4: Path) -> None:
    text = moe_align(f"snapshot account {v4} --dp 8 --backend aiter_bf16").stdout
    assert "with MTP      778.148 / 8 + 27.171 = 124.439 GiB\n" in text
    assert "without MTP   765.598 / 8 + 26.723 = 122.423 GiB\n" in text
    padded = moe_align(f"snapshot account {v4} --tp 8 --vllm 0.26.0 --backend aiter_bf16").stdout
    assert "intermediate 384 → 512" in padded
    assert "95.700 native → 127.600 created" in padded
    assert "100.960 to 124.439 GiB, by what attention layers copy" in padded


def test_headers_of_805_gib_take_seconds_and_little_memory(v4: Path) -> None:
    """Processor seconds: other work on the machine is none of this."""
    code = (
        "import resource, sys; sys.path.insert(0, sys.argv[1])\n"
        "from moe_align.cli import app\n"
        "app(['snapshot', 'account', sys.argv[2], '--dp', '8'], standalone_mode=False)\n"
        "used = resource.getrusage(resource.RUSAGE_SELF)\n"
        "print(used.ru_utime + used.ru_stime)\n"
        "print(open('/proc/self/status').read().split('VmHWM:')[1].split()[0])\n"
    )
    command = [sys.executable, "-c", code, str(ROOT), str(v4)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds, kib = map(float, ran.stdout.split("\n")[-3:-1])
    assert seconds < 5
    assert kib < 200_000


def test_the_checkpoint_of_805_gib_fits(v4: Path) -> None:
    found = answer(f"snapshot check {v4} --tp 8 --backend aiter_bf16")
    assert found["verdict"] == "fits"
    assert sum(row["count"] for row in found["tensors"]) == 62 * 384 * 6


def test_shards_are_counted_as_they_are_saved(tmp_path: Path) -> None:
    tiny = Tiny()
    folder = find_folder(write_ranks(tmp_path, tiny, Sizes(64, 96), 2))
    found = account(folder)
    assert found.routed.bytes == 2 * 4 * 3 * 64 * 192 * 2
    assert found.bytes == 2 * found.largest_rank
    assert (found.moe_layers, found.mtp_layers, found.rest.tensors) == (2, 0, 4)
    text = moe_align(f"snapshot account {tmp_path} {LAYER}").stdout
    assert "the largest rank holds" in text
    assert "on one rank" not in text
    assert "as allocated" in text
    bare = moe_align(f"snapshot account {tmp_path}").stdout
    assert "as allocated" not in bare
    unsized = moe_align(f"snapshot account {tmp_path} {LAYER.replace('--hidden 64', '')}").stdout
    assert "as allocated" not in unsized


def test_account_refuses_what_is_wrong(tmp_path: Path) -> None:
    write_raw(tmp_path / "x.safetensors", b"{}", 0, 100_000_000)
    assert moe_align(f"snapshot account {tmp_path}").exit_code == 2
    write_ranks(tmp_path / "ranks", Tiny(), Sizes(64, 96), 2)
    (tmp_path / "ranks" / "model-rank-0-part-0.safetensors").unlink()
    ran = moe_align(f"snapshot account {tmp_path / 'ranks'}")
    assert "no file of rank 0 [N008]" in ran.stderr


def test_a_rank_of_a_checkpoint_without_mtp(tmp_path: Path) -> None:
    write(tmp_path / "x.safetensors", Tiny().checkpoint())
    share = per_rank(account(find_folder(tmp_path)), {"tp": 2, "moe_tp": 2, "moe_ep": 1})
    assert share.least < share.most
    assert "with MTP" not in moe_align(f"snapshot account {tmp_path} {LAYER}").stdout


def test_check_says_yes_and_no(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(RULES)
    folder = write_ranks(tmp_path / "saved", Tiny(), Sizes(64, 192))
    fits = moe_align(f"snapshot check {folder} {LAYER}")
    assert (fits.exit_code, fits.stdout.split("\n")[0]) == (0, "Fits     saved by ranks · layout created")
    padded = moe_align(f"snapshot check {folder} {LAYER} --rules {tmp_path / 'rules.yaml'}")
    assert padded.exit_code == 1
    assert padded.stdout.startswith("Would load silently wrong     saved by ranks")
    assert re.search(
        r"w13\.weight +4 × 384 × 64 BF16 +4 × 512 × 64 +2 +would load silently wrong: ", padded.stdout
    )
    assert answer(f"snapshot check {folder} {LAYER}")["verdict"] == "fits"


def test_check_where_sizes_are_not_known(tmp_path: Path) -> None:
    folder = write_ranks(tmp_path / "saved", Tiny(), Sizes(64, 192))
    unsized = [LAYER.replace(size, "") for size in ("--experts 4", "--hidden 64", "--intermediate 192")]
    for flags in ("", "--scheme unquantized", *unsized):
        ran = moe_align(f"snapshot check {folder} {flags}")
        assert ran.exit_code == 1
        assert ran.stdout.startswith("Cannot be known")
        assert moe_align(f"snapshot repad {folder} {tmp_path / 'x'} {flags}").exit_code == 2


def test_a_rejected_deployment_fails(tmp_path: Path) -> None:
    rules = RULES.replace("align: {hidden: native, intermediate: 128}", "reject: a kernel is missing")
    (tmp_path / "rules.yaml").write_text(rules)
    folder = write_ranks(tmp_path / "saved", Tiny(), Sizes(64, 192))
    found = answer(f"snapshot check {folder} {LAYER} --rules {tmp_path / 'rules.yaml'}")
    assert found["verdict"] == "would fail"
    assert "a kernel is missing" in found["reasons"][0]["reason"]


def test_repad_to_what_a_policy_decides(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(RULES)
    tiny = Tiny()
    folder = write_ranks(tmp_path / "saved", tiny, Sizes(64, 192))
    write(tmp_path / "checkpoint" / "model.safetensors", tiny.checkpoint())
    flags = f"{LAYER} --rules {tmp_path / 'rules.yaml'}"
    found = answer(f"snapshot repad {folder} {tmp_path / 'new'} {flags} --against {tmp_path / 'checkpoint'}")
    assert found["saved"] == {"hidden": 64, "intermediate": 192}
    assert found["allocated"] == {"hidden": 64, "intermediate": 256}
    assert found["compared"] == 4
    text = moe_align(
        f"snapshot repad {folder} {tmp_path / 'newer'} {flags} --against {tmp_path / 'checkpoint'}"
    ).stdout
    assert text.endswith("4 tensors are those of a fresh shard of the checkpoint\n")
    checked = moe_align(f"snapshot check {tmp_path / 'new'} {flags}")
    assert checked.stdout.startswith("Fits     saved by ranks · layout created, by its manifest")


def test_repad_to_sizes(tmp_path: Path) -> None:
    tiny = Tiny()
    folder = write_ranks(tmp_path / "saved", tiny, Sizes(64, 192))
    ran = moe_align(f"snapshot repad {folder} {tmp_path / 'new'} {LAYER} --to hidden=96,intermediate=256")
    assert ran.stdout == f"{tmp_path / 'new'}: 64 × 192 → 96 × 256, 4 expert tensors in 1 files\n"
    for wrong in ("wide=3", "hidden", "hidden=-1", "hidden=x", "hidden=0"):
        ran = moe_align(f"snapshot repad {folder} {tmp_path / 'other'} {LAYER} --to {wrong}")
        assert (ran.exit_code, "[N014]" in ran.stderr) == (2, True)
    write(tmp_path / "checkpoint" / "model.safetensors", Tiny(seed=1).checkpoint())
    line = f"snapshot repad {folder} {tmp_path / 'other'} {LAYER} --to intermediate=256"
    ran = moe_align(f"{line} --against {tmp_path / 'checkpoint'}")
    assert "[N015]" in ran.stderr


def test_a_manifest_is_written_where_it_is_true(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(RULES)
    folder = write_ranks(tmp_path / "saved", Tiny(), Sizes(64, 192))
    line = f"snapshot manifest {folder} {LAYER}"
    assert "give --layout" in moe_align(line).stderr
    assert "[N014]" in moe_align(f"{line} --layout odd").stderr
    wrong = moe_align(f"{line} --layout created --rules {tmp_path / 'rules.yaml'}")
    assert "would load silently wrong" in wrong.stderr
    assert not (folder / FILE).exists()
    assert (
        "64 × 192 native, 64 × 192 allocated, created for triton"
        in moe_align(f"{line} --layout created").stdout
    )
    assert answer(f"{line} --layout processed")["layout"] == "processed"
    manifest = read_manifest(folder)
    assert manifest is not None
    assert (manifest.layout, manifest.engine_version) == ("processed", None)
    moe_align(f"{line} --layout created --vllm 0.32.0")
    moe_align(f"snapshot repad {folder} {tmp_path / 'new'} {LAYER}")
    repadded = read_manifest(tmp_path / "new")
    assert repadded is not None
    assert repadded.engine_version == "0.32.0"
    os.truncate(folder / "model-rank-0-part-0.safetensors", 3000)
    assert "is cut short" in moe_align(f"{line} --layout created").stderr
    write(tmp_path / "checkpoint" / "model.safetensors", Tiny().checkpoint())
    ran = moe_align(f"snapshot manifest {tmp_path / 'checkpoint'} {LAYER} --layout created")
    assert "is a checkpoint" in ran.stderr
    undecided = moe_align(f"snapshot manifest {folder} --layout created")
    assert "[N010]" in undecided.stderr


def test_a_config_of_the_folder_is_used_where_it_can_be(tmp_path: Path) -> None:
    folder = write_ranks(tmp_path / "saved", Tiny(), Sizes(64, 192))
    (folder / "config.json").write_text('{"architectures": ["LlamaForCausalLM"], "hidden_size": 64}')
    ran = moe_align(f"snapshot check {folder} {LAYER}")
    assert ran.exit_code == 0
    assert ran.stderr.startswith("note: ")
    (folder / "config.json").write_text("{")
    assert "[M002]" in moe_align(f"snapshot check {folder} {LAYER}").stderr


def test_a_terminal_shows_progress(tmp_path: Path) -> None:
    import pty

    folder = write_ranks(tmp_path / "saved", Tiny(), Sizes(64, 192))
    leader, follower = pty.openpty()
    line = f"snapshot repad {folder} {tmp_path / 'new'} {LAYER} --to intermediate=256"
    command = [sys.executable, str(ROOT / "cli.py"), *shlex.split(line)]
    ran = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=follower, env={**os.environ, "TERM": "xterm"}
    )
    os.close(follower)
    shown = b""
    try:
        while part := os.read(leader, 65536):
            shown += part
    except OSError:
        pass
    os.close(leader)
    assert b"4 expert tensors" in ran.communicate()[0]
    assert ran.returncode == 0
    assert "━".encode() in shown


def test_a_bar_is_drawn_where_somebody_looks(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with snapshot._progress() as progress:
        progress(5, 10)
    assert capsys.readouterr().err


def test_many_faults_are_counted(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / f"{number}.safetensors").write_bytes(b"")
    text = moe_align(f"snapshot check {tmp_path} {LAYER}").stdout
    assert text.count("is cut short") == 12
    assert "and 9 more" in text


@pytest.mark.parametrize("name", ["check", "account", "repad", "manifest"])
def test_each_command_has_help_with_an_example(name: str) -> None:
    text = moe_align(f"snapshot {name} --help").stdout
    assert f"Example: moe-align snapshot {name} " in " ".join(text.split())
