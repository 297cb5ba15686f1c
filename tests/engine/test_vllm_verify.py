"""The rules against the vLLM that is installed here: its files are read, and nothing of it is imported."""

import shutil
import sys
from pathlib import Path

from moe_align import load_policy
from moe_align.certificate import certify
from moe_align.lift import pack_text, rules_of, tables
from moe_align.report.verify import certificate_findings
from moe_align.verify.sources import found

RULES = Path(__file__).parents[2] / "rules"
RELEASE = "0.32.0"
POINTS = 17374


def test_the_installed_vllm_is_equal() -> None:
    before = {name for name in sys.modules if name.startswith(("torch", "vllm"))}
    with found("vllm", None, None) as engine:
        assert engine.release == RELEASE
        certificate = certify(engine.root, RELEASE, load_policy(environ={}))
    assert (certificate.apart, certificate.lacking, certificate.proven) == ((), (), True)
    assert certificate.equal == certificate.points == POINTS
    assert {name for name in sys.modules if name.startswith(("torch", "vllm"))} == before


def test_a_wrong_multiple_in_one_arch_is_one_box(tmp_path: Path) -> None:
    rules = shutil.copytree(RULES, tmp_path / "rules")
    file = rules / "vllm_mxfp4.yaml"
    text = file.read_text(encoding="utf-8")
    planted = (
        "  - id: planted\n    when: {backend: aiter_mxfp4, arch: gfx942, vllm: '>=0.32,<0.33'}\n"
        "    align: {hidden: 256, intermediate: 192}\n"
        "    why: planted\n    source: vllm#1\n    evidence: ran\n"
    )
    file.write_text(
        text.replace("  - id: aiter-mxfp4\n", f"{planted}  - id: aiter-mxfp4\n"), encoding="utf-8"
    )
    with found("vllm", None, None) as engine:
        certificate = certify(engine.root, RELEASE, load_policy(rules, built_in=False, environ={}))
    (finding,) = certificate_findings(certificate, RELEASE)
    assert finding.rule == "vllm-mxfp4/planted"
    assert finding.where == ("arch: gfx942 · backend: aiter_mxfp4",)
    assert "vllm/model_executor/layers/fused_moe/oracle/mxfp4.py:" in finding.message


def test_what_is_lifted_is_equal_without_other_rules(tmp_path: Path) -> None:
    for words in RULES.glob("vocabulary*.yaml"):
        shutil.copy(words, tmp_path)
    with found("vllm", None, None) as engine:
        for table in tables(engine.root, RELEASE, load_policy(environ={})):
            rules = rules_of(table)
            assert len(rules) <= 12
            text = pack_text(table, rules, RELEASE)
            (tmp_path / f"{table.name}.yaml").write_text(text, encoding="utf-8")
        certificate = certify(engine.root, RELEASE, load_policy(tmp_path, built_in=False, environ={}))
    assert (certificate.holds, certificate.equal) == (True, POINTS)
