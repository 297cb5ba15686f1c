"""The rules against the vLLM that is installed here: its files are read, and nothing of it is imported."""

import sys

from moe_align import load_policy
from moe_align.certificate import certify
from moe_align.verify.sources import found


def test_the_installed_vllm_is_equal() -> None:
    before = {name for name in sys.modules if name.startswith(("torch", "vllm"))}
    with found("vllm", None, None) as engine:
        assert engine.release == "0.32.0"
        certificate = certify(engine.root, engine.release, load_policy(environ={}))
    assert (certificate.apart, certificate.lacking, certificate.proven) == ((), (), True)
    assert certificate.equal == certificate.points == 17370
    assert {name for name in sys.modules if name.startswith(("torch", "vllm"))} == before
