"""The plugin inside a real vLLM engine that serves a real, tiny model: tokens, sizes, messages."""

from collections.abc import Callable
from pathlib import Path

import pytest
from engines import Served, plugin, serve
from tiny_moe import EXPERTS, HIDDEN, MOE_INTERMEDIATE, write_checkpoint

RULES = """\
language: 1
pack: tiny
phase: allocate
for: {{engine: vllm, scheme: unquantized}}
rules:
  - id: padded
    when: {{backend: cpu}}
    align: {{hidden: {hidden}, intermediate: {intermediate}}}
    why: a test
    source: a test
"""

CONTRACT = """\
language: 1
pack: tiny-kernel
for: {engine: vllm, scheme: unquantized}
contracts:
  - id: quarters
    when: {backend: cpu}
    require: {intermediate: 256}
    breaks: silent
    why: a kernel that reads past what it is given
    source: a test
"""

#: Where rank 1 has another layer of rules than the rest.
OTHER_RULES_ON_RANK_1 = """\
import multiprocessing
import os


def register():
    if multiprocessing.current_process().name.endswith("Worker-1"):
        os.environ["MOE_ALIGN_RULES"] = os.environ["OTHER_RULES"]
"""

#: Writes a user's layer and gives its folder.
Rules = Callable[..., str]

TWO_RANKS = {"VLLM_ENABLE_V1_MULTIPROCESSING": "1"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def absent(model: Path) -> Served:
    """What vLLM does without the plugin."""
    return serve(model, {"VLLM_PLUGINS": "none"})


@pytest.fixture
def rules(tmp_path: Path) -> Rules:
    """Writes under the test's own folder."""

    def write(intermediate: int | str = 128, hidden: int | str = "native", **files: str) -> str:
        folder = tmp_path / f"rules-{hidden}-{intermediate}"
        folder.mkdir()
        (folder / "tiny.yaml").write_text(RULES.format(hidden=hidden, intermediate=intermediate))
        for name, text in files.items():
            (folder / f"{name}.yaml").write_text(text)
        return str(folder)

    return write


def sizes(intermediate: int, hidden: int = HIDDEN) -> tuple[int, ...]:
    """What `Served.sizes` has for a layer of these sizes."""
    return hidden, intermediate, EXPERTS, 2 * intermediate, hidden, EXPERTS, hidden, intermediate


def test_vllm_alone_keeps_the_native_sizes(absent: Served) -> None:
    assert absent.status == 0, absent.log
    assert absent.sizes == {sizes(MOE_INTERMEDIATE)}
    assert absent.said("moe-align ") == []
    assert len(set(absent.tokens[0])) > 6, "tokens that repeat would not tell right experts from wrong ones"


def test_tokens_depend_on_the_experts(absent: Served, tmp_path: Path) -> None:
    other = serve(write_checkpoint(tmp_path / "other", seed=1), {"VLLM_PLUGINS": "none"})
    assert other.tokens != absent.tokens


def test_observe_changes_nothing_and_reports_once(model: Path, absent: Served) -> None:
    observed = serve(model, {})
    assert observed.status == 0, observed.log
    assert (observed.tokens, observed.sizes) == (absent.tokens, absent.sizes)
    assert observed.found["hash"] == absent.found["hash"], "a compile cache is not to be lost by looking"
    assert len(observed.said("moe-align observe · vLLM 0.32.0 · cpu · policy ")) == 1
    assert len(observed.said("vllm-unquantized/otherwise")) == 1
    assert observed.said("engine = policy in 2 of 2 layers · warnings 0 · layers not seen 0")


def test_observe_says_what_a_users_rule_would_do(model: Path, absent: Served, rules: Rules) -> None:
    observed = serve(model, {"MOE_ALIGN_RULES": rules(128)})
    assert (observed.tokens, observed.sizes) == (absent.tokens, absent.sizes)
    assert observed.said("layers 0–1: tiny/padded would allocate 128 × 128")


def test_off_is_absent(model: Path, absent: Served) -> None:
    off = serve(model, {"MOE_ALIGN_MODE": "off"})
    assert (off.tokens, off.said("moe-align ")) == (absent.tokens, [])


def test_apply_pads_and_gives_the_same_tokens(model: Path, absent: Served, rules: Rules) -> None:
    """In memory that is NaN wherever it is not written."""
    applied = serve(model, {"MOE_ALIGN_MODE": "apply", "MOE_ALIGN_RULES": rules(128)}, poison=True)
    assert applied.status == 0, applied.log
    assert applied.sizes == {sizes(128)}
    assert applied.tokens == absent.tokens
    assert applied.said("96 → 128")
    assert applied.said("tiny/padded")
    assert applied.found["config"]["moe_align"]["digest"]
    assert applied.found["hash"] != absent.found["hash"]


def test_without_the_fill_the_same_memory_gives_wrong_tokens(
    model: Path, absent: Served, rules: Rules
) -> None:
    environment = {"MOE_ALIGN_MODE": "apply", "MOE_ALIGN_RULES": rules(128)}
    unfilled = serve(model, environment, poison=True, without_fill=True)
    assert unfilled.sizes == {sizes(128)}
    assert unfilled.tokens != absent.tokens


def test_pads_are_zero_again_after_a_reload(model: Path, rules: Rules) -> None:
    """Seen where vLLM begins to repack: its CPU kernels give wrong tokens after any reload, padded or not."""
    environment = {"MOE_ALIGN_MODE": "apply", "MOE_ALIGN_RULES": rules(128)}
    reloaded = serve(model, environment, poison=True, reload=True)
    assert reloaded.status == 0, reloaded.log
    assert len(reloaded.found["pads"]) == 4, "two layers, loaded twice"
    for pad, live in reloaded.found["pads"]:
        assert pad == 0
        assert live > 0.5


def test_apply_without_a_rule_that_wins_changes_nothing(model: Path, absent: Served) -> None:
    applied = serve(model, {"MOE_ALIGN_MODE": "apply"})
    assert (applied.tokens, applied.sizes) == (absent.tokens, absent.sizes)


@pytest.fixture(scope="module")
def two_ranks(model: Path) -> Served:
    """What vLLM does on two ranks without the plugin."""
    return serve(model, {**TWO_RANKS, "VLLM_PLUGINS": "none"}, tensor_parallel_size=2)


def test_apply_on_two_ranks(model: Path, two_ranks: Served, rules: Rules) -> None:
    environment = {**TWO_RANKS, "MOE_ALIGN_MODE": "apply", "MOE_ALIGN_RULES": rules(64)}
    applied = serve(model, environment, tensor_parallel_size=2)
    assert applied.status == 0, applied.log
    # After loading, vLLM's CPU kernels pad 48 to 64 as well: what is asked for shows in the configuration.
    assert {layer[:2] for layer in two_ranks.sizes} == {(HIDDEN, MOE_INTERMEDIATE // 2)}
    assert {layer[:2] for layer in applied.sizes} == {(HIDDEN, 64)}
    assert len(applied.found["sizes"]) == 2
    assert applied.tokens == two_ranks.tokens
    assert len(applied.said("moe-align apply · ")) == 1, "one table for the engine, not for each rank"


def test_a_rank_with_other_rules_stops_the_start(model: Path, rules: Rules, tmp_path: Path) -> None:
    more = plugin(tmp_path / "plugin", "other_rules_on_rank_1", OTHER_RULES_ON_RANK_1)
    environment = {
        **TWO_RANKS,
        "MOE_ALIGN_MODE": "apply",
        "MOE_ALIGN_RULES": rules(64),
        "OTHER_RULES": rules(96),
    }
    refused = serve(model, environment, path=[more], tensor_parallel_size=2)
    assert refused.status != 0
    assert refused.said("moe-align: rank 1 has policy ")
    assert not refused.said("moe-align: rank 0 has policy ")


def test_a_wrong_rule_file_stops_the_start(model: Path, rules: Rules) -> None:
    folder = rules(128, wrong="language: 1\npack: wrong\nphase: allocate\nrules: [{id: x, algin: 3}]\n")
    refused = serve(model, {"MOE_ALIGN_MODE": "apply", "MOE_ALIGN_RULES": folder})
    assert refused.status != 0
    assert refused.said("moe-align cannot read its rules:")
    assert refused.said("wrong.yaml:4:")


def test_observe_goes_on_with_a_wrong_rule_file(model: Path, absent: Served, rules: Rules) -> None:
    folder = rules(128, wrong="language: 1\npack: wrong\nphase: allocate\nrules: [{id: x, algin: 3}]\n")
    observed = serve(model, {"MOE_ALIGN_RULES": folder})
    assert observed.tokens == absent.tokens
    assert len(observed.said("moe-align cannot read its rules")) == 1
    assert observed.said("wrong.yaml:4:")


def test_an_unsafe_rule_stops_the_start(model: Path, rules: Rules) -> None:
    refused = serve(model, {"MOE_ALIGN_MODE": "apply", "MOE_ALIGN_RULES": rules(128, kernel=CONTRACT)})
    assert refused.status != 0
    assert refused.said("tiny/padded breaks what a kernel demands: tiny-kernel/quarters (silent)")
    assert refused.said("MOE_ALIGN_UNSAFE=1")


def test_an_unsafe_rule_can_be_forced(model: Path, absent: Served, rules: Rules) -> None:
    environment = {"MOE_ALIGN_MODE": "apply", "MOE_ALIGN_UNSAFE": "1"}
    forced = serve(model, {**environment, "MOE_ALIGN_RULES": rules(128, kernel=CONTRACT)})
    assert forced.tokens == absent.tokens
    assert forced.said("warning: layers 0–1: tiny-kernel/quarters (silent)")


def test_a_padded_hidden_size_before_an_inner_router_stops_the_start(model: Path, rules: Rules) -> None:
    refused = serve(model, {"MOE_ALIGN_MODE": "apply", "MOE_ALIGN_RULES": rules("native", 160)})
    assert refused.status != 0
    assert refused.said("would run its router on padded activations")


def test_a_mode_that_is_none_is_refused(model: Path) -> None:
    refused = serve(model, {"MOE_ALIGN_MODE": "aply"})
    assert refused.status != 0
    assert refused.said("MOE_ALIGN_MODE is `aply`")
