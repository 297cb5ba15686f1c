"""The README's own blocks: its Python runs, its commands print what stands below them, its rules load."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from moe_align import Facts, load_policy

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)
PYTHON = [text for language, text in BLOCKS if language == "python"]
COMMANDS = [
    (command, output)
    for language, text in BLOCKS
    if language == "console"
    for command, output in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, flags=re.MULTILINE)
]
PRINTED = [(command, output) for command, output in COMMANDS if command.startswith("moe-align ")]


def test_there_is_something_to_run() -> None:
    assert PYTHON
    assert PRINTED


@pytest.mark.parametrize("text", PYTHON)
def test_python_runs(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MOE_ALIGN_RULES", raising=False)
    exec(compile(text, "README.md", "exec"), {})


@pytest.mark.parametrize(("command", "output"), PRINTED)
def test_commands_print_what_stands_below_them(command: str, output: str) -> None:
    arguments = shlex.split(command)[1:]
    ran = subprocess.run(
        [sys.executable, str(ROOT / "cli.py"), *arguments], capture_output=True, encoding="utf-8", check=False
    )
    assert ran.stderr == ""
    assert ran.stdout == output


def test_the_rule_of_the_plugin_loads_and_wins(tmp_path: Path) -> None:
    shown = next(output for command, output in COMMANDS if command.startswith("cat "))
    (tmp_path / "qwen.yaml").write_text(shown, encoding="utf-8")
    policy = load_policy(tmp_path, environ={})
    asked = Facts(scheme="unquantized", backend="cpu", hidden=128, intermediate_per_partition=96)
    decision = policy.resolve(asked)
    assert decision.rule == "qwen-at-128/wide"
    assert decision.intermediate.allocated == 128


def test_the_first_rule_is_the_shipped_one() -> None:
    shown = next(text for language, text in BLOCKS if language == "yaml")
    shipped = (ROOT / "rules" / "vllm_mxfp4.yaml").read_text(encoding="utf-8")
    for line in ("when:", "align:"):
        wanted = next(part.strip() for part in shown.splitlines() if line in part)
        assert wanted in shipped


def test_the_two_commands_of_the_set_up_are_there() -> None:
    commands = [command for command, _ in COMMANDS]
    assert any("pip install ." in command and "moe-align resolve" in command for command in commands)
    assert "scripts/check" in commands
