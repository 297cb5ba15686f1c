"""Fixtures of the tests that build vLLM's layers in this process."""

import importlib.util

import pytest
from hypothesis import settings

# Engines run beside these tests: how long an example takes says nothing.
settings.register_profile("engine", deadline=None)
settings.load_profile("engine")

if importlib.util.find_spec("vllm") is None:
    raise RuntimeError("these tests run in the engine environment: scripts/engine_env.sh prints its python")


@pytest.fixture(scope="session")
def one_rank(tmp_path_factory):
    """vLLM's process groups, of this process alone."""
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.distributed import ensure_model_parallel_initialized, init_distributed_environment

    store = tmp_path_factory.mktemp("store") / "ranks"
    with set_current_vllm_config(VllmConfig()):
        init_distributed_environment(1, 0, f"file://{store}", 0, "gloo")
        ensure_model_parallel_initialized(1, 1)


@pytest.fixture
def watched(monkeypatch):
    """Wraps vLLM's layers for one test, with a session of a mode, and gives the session."""
    from vllm.model_executor.layers.fused_moe import routed_experts

    from moe_align.adapters.vllm import seam
    from moe_align.adapters.vllm.session import Session

    original = routed_experts.RoutedExperts.__init__

    def watch(mode: str = "observe", **options: bool) -> Session:
        monkeypatch.setattr(routed_experts.RoutedExperts, "__init__", original)
        session = Session(mode, **options)
        seam._wrap_layers(routed_experts, lambda: session)
        return session

    return watch


@pytest.fixture
def rules(monkeypatch, tmp_path):
    """Makes texts the packs of the user's layer."""

    def write(*packs: str) -> None:
        for number, text in enumerate(packs):
            (tmp_path / f"{number}.yaml").write_text(text)
        monkeypatch.setenv("MOE_ALIGN_RULES", str(tmp_path))

    return write
