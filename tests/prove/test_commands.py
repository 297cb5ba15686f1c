"""`lint`, `prove`, `diff`, `test` from the outside: forms of output, wrong usage, watching, and the hooks."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from click_result import Result, run
from jsonschema import Draft202012Validator

from moe_align import cli
from moe_align.cases import read_cases
from moe_align.cases import run as run_cases
from moe_align.cli.schemas import schema_of
from moe_align.codes import page
from moe_align.coverage import missing, missing_text, missing_values
from moe_align.layers import built_in_rules
from moe_align.load import load_policy

ROOT = Path(__file__).parents[2]

PACK = """language: 1
pack: mine
phase: allocate
for: {engine: vllm, scheme: ours}
vocabulary:
  scheme: {ours: {note: our own}}
rules:
  - id: tiles
    when: {platform: [cuda, rocm]}
    align: 128
    why: the tile
    source: us#1
  - id: otherwise
    align: 64
    why: half a tile
    source: us#1
"""
SHADOWED = "  - {id: late, when: {platform: cuda}, align: 32, why: so, source: us#2}\n"
HOLDS = """- facts: {scheme: ours, platform: cuda, hidden: 100, intermediate_per_partition: 100}
  hidden: 128
  rule: mine/tiles
- facts: {scheme: ours, platform: cpu, hidden: 100, intermediate_per_partition: 100}
  hidden: 128
  rule: mine/otherwise
  misses: mine/tiles
"""
FAILS = HOLDS.replace("  hidden: 128\n  rule: mine/tiles", "  hidden: 64\n  rule: mine/tiles")
CLAIM = "- {id: a, when: {scheme: ours, engine: vllm}, never: {status: decided}, why: ours}\n"


def moe_align(line: str) -> Result:
    return run(cli.app, shlex.split(line))


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with rules and cases, of which the first revision is the last but one."""
    for name in [name for name in os.environ if name.startswith(("MOE_ALIGN_", "GIT_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    folder = tmp_path / "project"
    (folder / "rules").mkdir(parents=True)
    (folder / "cases").mkdir()
    (folder / "empty").mkdir()
    (folder / "rules" / "mine.yaml").write_text(PACK, encoding="utf-8")
    (folder / "cases" / "mine.yaml").write_text(HOLDS, encoding="utf-8")
    (folder / "claims.yaml").write_text(CLAIM, encoding="utf-8")
    monkeypatch.chdir(folder)
    return folder


def committed(folder: Path) -> None:
    who = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    for arguments in (["init", "-q"], ["add", "."], [*who, "commit", "-q", "-m", "rules"]):
        subprocess.run(["git", *arguments], cwd=folder, check=True)


def broken(folder: Path) -> None:
    """Something for each command to find."""
    committed(folder)
    (folder / "rules" / "mine.yaml").write_text(
        PACK.replace("align: 128", "align: 256") + SHADOWED, encoding="utf-8"
    )


LINES = {
    "lint": ("lint rules", "L701", "is never reached"),
    "prove": ("prove rules --claims claims.yaml", "K810", ""),
    "diff": ("diff HEAD rules", "D701", "looser"),
    "test": ("test cases --rules rules", "T920", "the case fails"),
    "coverage": ("test cases --rules rules --coverage", "T921", "lacks a case"),
}
EVERY = [pytest.param(*line, id=name) for name, line in LINES.items()]

_TEXT = {"type": "object", "required": ["text"], "properties": {"text": {"type": "string", "minLength": 1}}}
_REGION = {
    "type": "object",
    "required": ["startLine", "startColumn"],
    "additionalProperties": False,
    "properties": {name: {"type": "integer", "minimum": 1} for name in ("startLine", "startColumn")},
}
_LOCATION = {
    "type": "object",
    "required": ["physicalLocation"],
    "properties": {
        "physicalLocation": {
            "type": "object",
            "required": ["artifactLocation", "region"],
            "properties": {
                "artifactLocation": {
                    "type": "object",
                    "required": ["uri"],
                    "properties": {"uri": {"type": "string", "pattern": r"^[^ \\]+$"}},
                },
                "region": _REGION,
            },
        }
    },
}
_RESULT = {
    "type": "object",
    "required": ["ruleId", "ruleIndex", "level", "message"],
    "additionalProperties": False,
    "properties": {
        "ruleId": {"type": "string"},
        "ruleIndex": {"type": "integer", "minimum": 0},
        "level": {"enum": ["none", "note", "warning", "error"]},
        "message": _TEXT,
        "locations": {"type": "array", "items": _LOCATION},
    },
}
_RULE = {
    "type": "object",
    "required": ["id", "shortDescription"],
    "additionalProperties": False,
    "properties": {"id": {"type": "string"}, "shortDescription": _TEXT, "help": _TEXT},
}
_DRIVER = {
    "type": "object",
    "required": ["name", "version", "rules"],
    "properties": {
        "name": {"const": "moe-align"},
        "rules": {"type": "array", "items": _RULE, "uniqueItems": True},
    },
}
#: What of SARIF 2.1.0 we write, as its specification asks for it; the whole schema is not ours to copy.
SARIF = {
    "type": "object",
    "required": ["version", "runs"],
    "additionalProperties": False,
    "properties": {
        "$schema": {"type": "string", "format": "uri"},
        "version": {"const": "2.1.0"},
        "runs": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["tool", "results"],
                "additionalProperties": False,
                "properties": {
                    "tool": {"type": "object", "required": ["driver"], "properties": {"driver": _DRIVER}},
                    "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
                    "results": {"type": "array", "items": _RESULT},
                },
            },
        },
    },
}


def with_something_to_find(folder: Path, line: str) -> None:
    broken(folder)
    if line.startswith("test") and "--coverage" not in line:
        (folder / "cases" / "mine.yaml").write_text(FAILS, encoding="utf-8")
    elif line.startswith("test"):
        (folder / "rules" / "mine.yaml").write_text(PACK, encoding="utf-8")


@pytest.mark.parametrize(("line", "code", "words"), EVERY)
def test_for_people(project: Path, line: str, code: str, words: str) -> None:
    with_something_to_find(project, line)
    found = moe_align(line)
    assert found.exit_code == 1
    assert words in found.stdout or code == "T921"
    assert "mine/" in found.stdout or code == "T920"


@pytest.mark.parametrize(("line", "code", "words"), EVERY)
def test_for_github(project: Path, line: str, code: str, words: str) -> None:
    with_something_to_find(project, line)
    found = moe_align(f"{line} --format github")
    assert found.exit_code == 1
    lines = found.stdout.splitlines()
    assert all(one.startswith(("::error ", "::warning ", "::notice ")) for one in lines)
    assert any(f"title={code}::" in one and words in one for one in lines)


@pytest.mark.parametrize(("line", "code", "words"), EVERY)
def test_as_sarif(project: Path, line: str, code: str, words: str) -> None:
    with_something_to_find(project, line)
    found = moe_align(f"{line} --format sarif")
    assert found.exit_code == 1
    log = json.loads(found.stdout)
    Draft202012Validator(SARIF).validate(log)
    (one_run,) = log["runs"]
    rules = one_run["tool"]["driver"]["rules"]
    assert all(rules[result["ruleIndex"]]["id"] == result["ruleId"] for result in one_run["results"])
    assert any(
        result["ruleId"] == code and words in result["message"]["text"] for result in one_run["results"]
    )
    placed = [result["locations"][0] for result in one_run["results"] if result["ruleId"] == code]
    uri = placed[0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uri == {"T920": "cases/mine.yaml", "K810": "claims.yaml"}.get(code, "rules/mine.yaml")


@pytest.mark.parametrize("flag", ["--json", "--format json"])
@pytest.mark.parametrize(("line", "code", "words"), EVERY)
def test_as_json(project: Path, line: str, code: str, words: str, flag: str) -> None:
    with_something_to_find(project, line)
    found = moe_align(f"{line} {flag}")
    assert found.exit_code == 1
    Draft202012Validator(schema_of(line.split()[0])).validate(json.loads(found.stdout))


@pytest.mark.parametrize("code", [code for _, code, _ in LINES.values()])
def test_every_finding_has_a_page(code: str) -> None:
    assert page(code) is not None


@pytest.mark.parametrize("form", ["sarif", "github", "json", "text"])
@pytest.mark.parametrize("line", ["lint rules", "prove rules", "test cases --rules rules"])
def test_nothing_found_is_status_0(line: str, form: str) -> None:
    found = moe_align(f"{line} --format {form}")
    assert found.exit_code == 0
    if form == "sarif":
        assert all(result["level"] == "note" for result in json.loads(found.stdout)["runs"][0]["results"])
    assert form != "github" or "::error" not in found.stdout


def test_a_place_for_github_is_escaped(project: Path) -> None:
    (project / "a,b:c.yaml").write_text(PACK + SHADOWED, encoding="utf-8")
    assert "::error file=a%2Cb%3Ac.yaml,line=" in moe_align("lint a,b:c.yaml --format github").stdout
    log = json.loads(moe_align(f"lint '{project}/a,b:c.yaml' --format sarif").stdout)
    (result,) = [one for one in log["runs"][0]["results"] if one["ruleId"] == "L701"]
    uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uri.startswith("file:///")


LONG = "a" * 300
WRONG = [
    *((f"{command} {path}", code)
      for command in ("lint", "prove")
      for path, code in (("nowhere", "[Y001]"), ("empty", "[Y008]"))),
    ("lint rules --format xml", "[U040]"),
    ("lint rules --format sariff", "fix: write `sarif`"),
    ("prove rules --format xml", "[U040]"),
    ("prove rules --claims nowhere.yaml", "[Y001]"),
    ("prove rules --claims empty", "is a folder, not a file [Y001]"),
    ("test", "Missing argument"),
    ("test nowhere", "nowhere:1:1: no such file or folder [T901]"),
    ("test empty", "no case found [T902]"),
    (f"test {LONG}", "cannot be read: File name too long [T901]"),
    ("test cases/no-list.txt", "[T903]"),
    ("test cases --rules nowhere", "[Y001]"),
    ("test cases --rules rules --format xml", "[U040]"),
    ("test cases", "[T910]"),
    ("test cases/unknown.txt --rules rules", "unknown rule `mine/tile` [T910]\n  fix: write `mine/tiles`"),
    ("test cases/binary.txt", "[Y0"),
    ("test cases/none.txt", "[T902]"),
    ("test /dev/null", "is empty [Y005]"),
    ("diff", "Missing argument"),
    ("diff nowhere", "no revision with `rules`"),
    (f"diff {LONG}", "[U041]"),
    ("diff HEAD:nowhere", "no revision with `nowhere`"),
    ("diff HEAD:../../..", "[U041]"),
    ("diff HEAD:/etc", "[U041]"),
    ("diff :rules", "(no revision is named) [U041]"),
    ("diff -- --output=x", "(no revision is named) [U041]"),
    ("diff empty", "[Y008]"),
    ("diff rules nowhere", "[U041]"),
    ("diff rules rules --format xml", "[U040]"),
    ("diff broken.txt", "broken.txt:2:1: "),
]  # fmt: skip


@pytest.mark.parametrize("is_repository", [True, False], ids=["repository", "folder"])
@pytest.mark.parametrize(("line", "said"), WRONG, ids=[line[:40] for line, _ in WRONG])
def test_wrong_usage_is_one_message_and_status_2(
    project: Path, line: str, said: str, is_repository: bool
) -> None:
    (project / "cases" / "no-list.txt").write_text("facts: {}\n", encoding="utf-8")
    (project / "cases" / "none.txt").write_text("[]\n", encoding="utf-8")
    (project / "cases" / "unknown.txt").write_text("- {facts: {scheme: ours}, rule: mine/tile}\n", "utf-8")
    (project / "cases" / "binary.txt").write_bytes(b"\x00\xff\xfe")
    (project / "broken.txt").write_text("pack: [1\n", encoding="utf-8")
    if is_repository:
        committed(project)
    found = moe_align(line)
    assert (found.exit_code, found.stdout) == (2, "")
    assert said in found.stderr
    assert "Traceback" not in found.stderr


def test_without_a_repository_git_says_why(project: Path) -> None:
    assert "not a git repository" in moe_align("diff HEAD").stderr


def test_without_git_that_is_said(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(project))
    assert "(git: No such file or directory) [U041]" in moe_align("diff HEAD").stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("line", ["lint rules", "prove rules", "test rules", "diff rules"])
def test_what_cannot_be_read_is_said(project: Path, line: str) -> None:
    (project / "rules").chmod(0)
    found = moe_align(line)
    (project / "rules").chmod(0o700)
    assert found.exit_code == 2
    assert "cannot be read" in found.stderr


@pytest.mark.parametrize("line", ["lint rules", "prove rules"])
def test_files_that_cannot_be_put_together_are_findings(project: Path, line: str) -> None:
    (project / "rules" / "mine.yaml").write_text(PACK.replace("[cuda, rocm]", "[cuda, rockm]"), "utf-8")
    found = moe_align(line)
    assert found.exit_code == 1
    assert "rules/mine.yaml:9:28: rule `tiles`: " in found.stdout or "[R203]" in found.stdout
    assert json.loads(moe_align(f"{line} --json").stdout)["findings"][0]["code"] == "R203"


def test_revisions_folders_and_files(project: Path) -> None:
    broken(project)
    (project / "rules" / "mine.yaml").write_text(PACK.replace("align: 128", "align: 256"), "utf-8")
    texts = {moe_align(line).stdout for line in (
        "diff HEAD rules", "diff HEAD:rules rules/mine.yaml", "diff HEAD:rules/mine.yaml rules")}  # fmt: skip
    (text,) = texts
    assert text.startswith("looser  allocate: 128 → 256\n  mine/tiles → mine/tiles\n  where: ")
    assert "\n  try: moe-align resolve --scheme ours" in text
    same = moe_align("diff rules rules")
    assert (same.exit_code, same.stdout) == (0, "no change\n")
    assert moe_align("diff rules rules --receipt").stdout == "No change: every decision is as it was.\n"
    back = moe_align("diff rules HEAD --format github").stdout
    assert back.startswith("::warning file=rules/mine.yaml,line=8,col=5,title=D701::")
    assert "contract" not in text


def test_a_file_of_the_built_in_rules_stands_in_its_place(project: Path) -> None:
    """One pack alone, copied and edited, is held against the file that it was copied from."""
    shipped = Path(built_in_rules()) / "vllm_mxfp4.yaml"
    copy = project / shipped.name
    text = shipped.read_text(encoding="utf-8")
    copy.write_text(text, encoding="utf-8")
    assert moe_align(f"diff {shipped} {copy.name}").stdout == "no change\n"
    copy.write_text(text.replace("align: 128", "align: 256", 1), encoding="utf-8")
    changed = moe_align(f"diff {shipped} {copy.name}")
    assert changed.exit_code == 1
    assert "looser  allocate: 128 → 256" in changed.stdout
    copy.write_text(text.replace("align: 128", "aligm: 128", 1), encoding="utf-8")
    wrong = moe_align(f"diff {shipped} {copy.name}")
    assert wrong.exit_code == 2
    assert wrong.stderr.startswith(f"{copy.name}:")


def test_a_broken_revision_is_called_by_its_name(project: Path) -> None:
    (project / "rules" / "mine.yaml").write_text("pack: [1\n", encoding="utf-8")
    committed(project)
    (project / "rules" / "mine.yaml").write_text(PACK, encoding="utf-8")
    found = moe_align("diff HEAD rules")
    assert found.exit_code == 2
    assert found.stderr.startswith("HEAD:rules/mine.yaml:2:1: ")


def test_all_kinds_of_answers_are_cases(project: Path) -> None:
    (project / "rules" / "more.yaml").write_text(
        "language: 1\npack: more\nphase: allocate\n"
        'for: {engine: vllm, scheme: theirs}\ncovers: {vllm: ">=0.30,<0.34"}\n'
        "vocabulary: {scheme: {theirs: {note: another}}}\n"
        "rules:\n"
        "  - {id: refused, when: {lora: true}, reject: no LoRA here, why: no kernel has it, source: us#1}\n"
        "  - {id: some, when: {platform: rocm}, align: 64, why: the tile, source: us#1}\n"
        "  - {id: rest, align: 32, why: half a tile, source: us#1}\n",
        encoding="utf-8",
    )
    (project / "cases" / "kinds.yaml").write_text(
        "- {facts: {scheme: theirs, lora: true}, status: rejected, rule: more/refused, reason: no LoRA}\n"
        "- {facts: {scheme: theirs, vllm: 0.29.0, platform: rocm}, status: unknown}\n"
        "- {facts: {scheme: theirs}, status: undecided}\n"
        "- {facts: {scheme: theirs, platform: rocm}, hidden: {multiple: 64}}\n",
        encoding="utf-8",
    )
    found = moe_align("test cases --rules rules")
    assert (found.exit_code, found.stderr) == (0, "6 of 6 cases hold\n")


def test_what_is_printed_can_be_pasted(project: Path) -> None:
    """Rules first, then values: what is still printed in the end names what no facts were found for."""
    (project / "cases" / "mine.yaml").write_text(
        "- {facts: {scheme: ours, platform: cuda}, hidden: {multiple: 128}}\n", encoding="utf-8"
    )
    lacking = json.loads(moe_align("test cases --rules rules --regions --json").stdout)["uncovered"]
    assert [(one["rule"], one["where"]) for one in lacking] == [
        ("mine/tiles", None),
        ("mine/otherwise", None),
    ]
    (project / "cases" / "pasted.yaml").write_text("\n".join(one["paste"] for one in lacking), "utf-8")
    found = moe_align("test cases --rules rules")
    assert found.exit_code == 0
    lacking = json.loads(moe_align("test cases --rules rules --regions --json").stdout)["uncovered"]
    assert all(one["where"] for one in lacking)
    (project / "cases" / "values.yaml").write_text("\n".join(one["paste"] for one in lacking), "utf-8")
    found = moe_align("test cases --rules rules --regions")
    assert (found.exit_code, found.stdout) == (0, "")


def test_a_value_that_no_case_has_is_printed(project: Path) -> None:
    policy = load_policy("rules", environ={})
    lacking = missing_values(policy, read_cases([project / "cases" / "mine.yaml"]), {"rules"})
    assert [(one.rule.address, one.where) for one in lacking] == [("mine/tiles", "platform: rocm")]
    file = project / "pasted.yaml"
    file.write_text(missing_text(policy, lacking), encoding="utf-8")
    assert [result.differences for result in run_cases(policy, read_cases([file]))] == [()]


PACKS = ["vllm-mxfp4", "sglang-mxfp4", "vllm-aiter-launch"]


@pytest.mark.parametrize("pack", PACKS)
def test_cases_for_shipped_packs_can_be_pasted(pack: str, tmp_path: Path) -> None:
    policy = load_policy(environ={})
    others = [rule.address for rule in policy.stack.rules() if rule.pack != pack]
    spoken_for = tmp_path / "others.yaml"
    spoken_for.write_text(
        "".join(f"- {{facts: {{}}, rule: {rule}}}\n- {{facts: {{}}, misses: {rule}}}\n" for rule in others),
        encoding="utf-8",
    )
    lacking = missing(policy, read_cases([spoken_for]))
    assert {one.rule.pack for one in lacking} == {pack}
    file = tmp_path / "pasted.yaml"
    file.write_text(missing_text(policy, lacking), encoding="utf-8")
    assert [result for result in run_cases(policy, read_cases([file])) if result.differences] == []


@contextmanager
def watching(line: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, str(ROOT / "cli.py"), *shlex.split(line)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def test_watching_runs_again_on_every_change(project: Path) -> None:
    """Cases, then rules, then a file that is broken for a while."""
    cases, rules = project / "cases" / "mine.yaml", project / "rules" / "mine.yaml"
    with watching("test cases --rules rules --watch") as process:
        assert process.stdout
        said = iter(process.stdout.readline, "")
        assert next(said) == "2 of 2 cases hold\n"
        changed(cases, FAILS)
        assert "cases/mine.yaml:1:3: the case fails" in next(said)
        assert "hidden allocated is 128, not 64" in next(said)
        assert next(said) == "1 of 2 cases hold\n"
        changed(rules, "pack: [1\n")
        assert next(said).startswith("rules/mine.yaml:")
        assert next(said).startswith("  fix: ")
        changed(rules, PACK.replace("align: 128", "align: 64"))
        assert "the case fails" in next(said)


def changed(file: Path, text: str) -> None:
    """Written anew at once, with another time."""
    time.sleep(0.05)
    beside = file.with_suffix(".new")
    beside.write_text(text, encoding="utf-8")
    beside.replace(file)


HOOKS: list[dict[str, Any]] = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))


def test_there_is_a_hook_for_each_check() -> None:
    assert [hook["entry"] for hook in HOOKS] == ["moe-align lint", "moe-align fmt", "moe-align test"]
    assert all({"id", "name", "entry", "language"} <= hook.keys() for hook in HOOKS)
    assert all(hook["language"] == "python" for hook in HOOKS)


@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook["id"])
def test_a_hook_runs_in_a_project_as_it_stands(hook: dict[str, Any], project: Path) -> None:
    (project / "cases").rename(project / "tests-cases")
    (project / "tests").mkdir()
    (project / "tests-cases").rename(project / "tests" / "cases")
    files = [] if hook.get("pass_filenames") is False else ["rules/mine.yaml", "tests/cases/mine.yaml"]
    program, *line = shlex.split(hook["entry"])
    assert program == "moe-align"
    found = run(cli.app, [*line, *hook.get("args", []), *files])
    assert found.exit_code == 0, found.stderr


def test_the_program_of_the_hooks_is_installed_with_the_package() -> None:
    import tomllib

    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "moe-align" in settings["project"]["scripts"]
