"""Fixtures of the tests that build vLLM's layers in this process."""

from pathlib import Path

import pytest
from layers import Rules, Watch

from moe_align.adapters.vllm import seam
from moe_align.adapters.vllm.session import Session


@pytest.fixture(scope="session")
def one_rank(tmp_path_factory: pytest.TempPathFactory) -> None:
    """vLLM's process groups, of this process alone."""
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.distributed import ensure_model_parallel_initialized, init_distributed_environment

    store = tmp_path_factory.mktemp("store") / "ranks"
    with set_current_vllm_config(VllmConfig()):
        init_distributed_environment(1, 0, f"file://{store}", 0, "gloo")
        ensure_model_parallel_initialized(1, 1)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watch:
    """Gives the session."""
    from vllm.model_executor.layers.fused_moe import routed_experts

    original = routed_experts.RoutedExperts.__init__

    def watch(mode: str = "observe", **options: bool) -> Session:
        monkeypatch.setattr(routed_experts.RoutedExperts, "__init__", original)
        session = Session(mode, **options)
        seam._wrap_layers(routed_experts, lambda: session)
        return session

    return watch


@pytest.fixture
def rules(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Rules:
    """Writes them and sets the environment."""

    def write(*packs: str) -> None:
        for number, text in enumerate(packs):
            (tmp_path / f"{number}.yaml").write_text(text)
        monkeypatch.setenv("MOE_ALIGN_RULES", str(tmp_path))

    return write
