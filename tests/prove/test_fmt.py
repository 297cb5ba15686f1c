"""One layout: what it makes of files, that it keeps comments and meaning, and how the command behaves."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from pathlib import Path
from textwrap import dedent

import pytest
from click_result import Result, run
from hypothesis import given, settings
from hypothesis import strategies as st

from moe_align import PolicyError, cli, load_policy
from moe_align.fmt import formatted
from moe_align.load.reader import parse

ROOT = Path(__file__).parents[2]


def laid_out(text: str) -> str:
    return formatted(dedent(text).lstrip("\n").encode(), "f.yaml")


LAYOUTS = {
    "keys stand in the order of the shipped packs, with what is said about them": (
        """
        rules:
        - why: so it is
          # about the id
          id: one
          # about when
          when:    # where
            backend:  [ marlin,triton ]   # two of them
          align: { multiple: 64,at_least: 128, }
        pack: 'mine'
        # which phase
        phase: allocate
        language: 1
        """,
        """
        language: 1
        pack: mine
        # which phase
        phase: allocate
        rules:
          # about the id
          - id: one
            # about when
            when:  # where
              backend: [marlin, triton]  # two of them
            align: {multiple: 64, at_least: 128}
            why: so it is
        """,
    ),
    "ranges of releases are in quotes, other text where it must be": (
        """
        pack: x
        covers: {vllm: <0.28}
        defaults: {vllm: '0.28', topk: "3", aiter: "0.1.20", method: "default"}
        rules: [{id: 'a: b', why: "it is \\"so\\"", source: 'x#1', evidence: "a #b"}]
        """,
        """
        pack: x
        covers: {vllm: "<0.28"}
        defaults: {vllm: "0.28", topk: "3", aiter: 0.1.20, method: default}
        rules: [{id: "a: b", why: it is "so", source: x#1, evidence: "a #b"}]
        """,
    ),
    "brackets on several lines are closed up, or opened where too long": (
        """
        pack: x
        for: {
          engine: vllm,
            scheme: [mxfp4,
             mxfp8]}
        vocabulary: {
          backend: {a_long_name_of_a_backend: {note: it is long}, another_long_name_of_a_backend: {note: is}},
          scheme: {a_long_name_of_a_scheme: {}}
        }
        """,
        """
        pack: x
        for: {engine: vllm, scheme: [mxfp4, mxfp8]}
        vocabulary:
          backend: {a_long_name_of_a_backend: {note: it is long}, another_long_name_of_a_backend: {note: is}}
          scheme: {a_long_name_of_a_scheme: {}}
        """,
    ),
    "brackets with a comment inside stay as they are": (
        """
        pack: x
        rules:
        - when: {backend: [a,   # the first
                   b]}  # the rest
          id: z
        """,
        """
        pack: x
        rules:
          - id: z
            when: {backend: [a,   # the first
                     b]}  # the rest
        """,
    ),
    "comments stay with their block": (
        """
        # of the file


        # still of the file
        pack: x

        rules:

          - id: a


          # about b
          - id: b
            why: >
              folded
                # no comment

              text
            # the end of b
          # the end of rules
        # the end
        """,
        """
        # of the file

        # still of the file
        pack: x

        rules:
          - id: a

          # about b
          - id: b
            why: >
              folded
                # no comment

              text
            # the end of b
          # the end of rules
        # the end
        """,
    ),
    "cases": (
        """
        ---
        - rule:   a/b
          facts: {tp: 8}
          note: "two
            lines"


        -
          # what it is about
          facts:
              tp: 8
          reason: 'one that is so long that it stands on two lines, since otherwise nobody could see its
            end, they all say'
        """,
        """
        - facts: {tp: 8}
          rule: a/b
          note: two lines

        # what it is about
        - facts:
            tp: 8
          reason: 'one that is so long that it stands on two lines, since otherwise nobody could see its
            end, they all say'
        """,
    ),
    "odd characters are escaped, and empty text is seen": (
        """
        pack: x
        note: "a\\tb"
        none: ''
        for: {a: , b: "'"}
        """,
        """
        pack: x
        for: {a: null, b: "'"}
        note: "a\\tb"
        none: ""
        """,
    ),
}


@pytest.mark.parametrize(("given_text", "wanted"), LAYOUTS.values(), ids=LAYOUTS)
def test_layout(given_text: str, wanted: str) -> None:
    made = laid_out(given_text)
    assert made == dedent(wanted).lstrip("\n")
    assert laid_out(made) == made


def test_ends_of_lines_and_marks_are_those_of_unix() -> None:
    assert formatted(b"\xef\xbb\xbfpack: x  \r\nphase: a\r\n\r\n", "f") == "pack: x\nphase: a\n"


REFUSED = [
    (b"pack: [1", "Y010"),
    (b"pack: &a b", "Y014"),
    (b"pack: 0x10", "Y022"),
    (b"version: 3", "U050"),
    (b"- 1", "U050"),
    (b"x", "U050"),
    (b"pack: 'x\xe2\x80\xa8y'", "U053"),
    (b"{pack: x}  # lost", "U051"),
]


@pytest.mark.parametrize(("data", "code"), REFUSED, ids=[code for _, code in REFUSED])
def test_what_cannot_be_laid_out(data: bytes, code: str) -> None:
    with pytest.raises(PolicyError) as fault:
        formatted(data, "f.yaml")
    assert code in [problem.code for problem in fault.value.problems]


_NAMES = st.sampled_from(["id", "when", "why", "align", "pack", "facts", "x", "true", "0.30", "a b", "yes"])
_TEXTS = st.text(st.sampled_from("ab01 .:#,[]{}'\"\\<>=-_\n\té—&*!|%@`"), max_size=12)
_SCALARS = st.one_of(_TEXTS, st.integers(-9, 99), st.booleans())
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.one_of(_NAMES, _TEXTS), inner, max_size=3)
    ),
    max_leaves=8,
)


def quoted(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


class Written:
    """Writes a value as YAML in some way or other, with comments that are counted."""

    def __init__(self, data: st.DataObject) -> None:
        self._data = data
        self.comments: list[str] = []

    def draw(self, strategy: st.SearchStrategy[int]) -> int:
        return self._data.draw(strategy)

    def file(self, value: dict[str, object]) -> str:
        return "\n".join(self.block(value, 0)) + "\n"

    def comment(self, margin: str) -> list[str]:
        if self.draw(st.integers(0, 3)):
            return [""] * (self.draw(st.integers(0, 6)) == 0)
        self.comments.append(f"# {len(self.comments)}")
        return [f"{margin}{self.comments[-1]}"]

    def block(self, value: object, indent: int) -> list[str]:
        margin = " " * indent
        lines: list[str] = []
        pairs = value.items() if isinstance(value, dict) else ((None, one) for one in value)  # type: ignore[attr-defined]
        for key, inner in pairs:
            lines += self.comment(margin)
            head = f"{margin}- " if key is None else f"{margin}{self.scalar(key)}: "
            is_block = isinstance(inner, dict | list) and inner and self.draw(st.integers(0, 1))
            if not is_block:
                lines += self.flow(head, inner)
            elif key is None and self.draw(st.integers(0, 1)):
                first, *more = self.block(inner, indent + 2)
                is_first = first.strip() and not first.strip().startswith("#")
                lines += [f"{head}{first.lstrip()}", *more] if is_first else [head.rstrip(), first, *more]
            else:
                shift = self.draw(st.integers(0 if isinstance(inner, list) and key is not None else 1, 4))
                lines += [head.rstrip() + "".join(self.comment("  ")), *self.block(inner, indent + shift)]
        return lines + self.comment(margin)

    def scalar(self, value: object) -> str:
        if isinstance(value, str):
            bare = value.isalpha() and value not in ("true", "yes")
            return value if bare and self.draw(st.integers(0, 1)) else quoted(value)
        return quoted(value)

    def flow(self, head: str, value: object) -> list[str]:
        text = f"{head}{self.inline(value)}"
        return [text + "".join(line and f"  {line.strip()}" for line in self.comment(""))]

    def inline(self, value: object) -> str:
        if isinstance(value, dict):
            return (
                "{" + ", ".join(f"{self.scalar(key)}: {self.inline(one)}" for key, one in value.items()) + "}"
            )
        if isinstance(value, list):
            return "[" + ",  ".join(map(self.inline, value)) + "]"
        return self.scalar(value)


@settings(deadline=None, max_examples=200)
@given(st.data(), st.dictionaries(st.one_of(_NAMES, _TEXTS), _VALUES, max_size=5))
def test_meaning_and_comments_stay_and_twice_is_once(data: st.DataObject, value: dict[str, object]) -> None:
    written = Written(data)
    text = written.file({"pack": "x", **value})
    before = parse(text.encode(), "f")
    assert not before.problems, text
    made = formatted(text.encode(), "f")
    after = parse(made.encode(), "f")
    assert (after.root, after.problems) == (before.root, [])
    assert formatted(made.encode(), "f") == made
    for comment in written.comments:
        assert made.count(comment + "\n") == 1


def moe_align(line: str) -> Result:
    return run(cli.app, shlex.split(line))


PACK = """language: 1
pack: mine
for: {engine: vllm, scheme: ours}
phase: allocate   # when
vocabulary:
  scheme: {ours: {note: our own}}
rules:
- id: all
  why: so it is
  align: 64
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("MOE_ALIGN_RULES", raising=False)
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "rules" / "mine.yaml"
    path.parent.mkdir()
    path.write_text(PACK, encoding="utf-8")
    return path


def test_a_file_is_laid_out_once_with_its_rights_and_its_digest(file: Path) -> None:
    file.chmod(0o640)
    digest = load_policy(file).digest
    assert moe_align("fmt --check").exit_code == 1
    assert moe_align("fmt --check").stdout == "would change rules/mine.yaml\n"
    shown = moe_align("fmt --diff")
    assert shown.exit_code == 0
    assert "-phase: allocate   # when\n" in shown.stdout
    assert "+phase: allocate  # when\n" in shown.stdout
    assert file.read_text(encoding="utf-8") == PACK
    assert moe_align("fmt").stdout == "laid out rules/mine.yaml\n"
    assert load_policy(file).digest == digest
    assert file.stat().st_mode & 0o777 == 0o640
    assert sorted(path.name for path in file.parent.iterdir()) == ["mine.yaml"]
    after = moe_align("fmt --check")
    assert (after.exit_code, after.stdout, after.stderr) == (0, "", "0 of 1 files would change\n")


def test_json_names_every_file(file: Path) -> None:
    said = json.loads(moe_align("fmt --check --json").stdout)
    listed = [{"file": "rules/mine.yaml", "changed": True}]
    assert said == {"version": 1, "written": False, "files": listed}


def test_a_link_stays_a_link(file: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.yaml"
    link.symlink_to(file)
    assert moe_align("fmt link.yaml").exit_code == 0
    assert link.is_symlink()
    assert file.read_text(encoding="utf-8") != PACK


def test_words_of_a_neighbour_are_known(file: Path) -> None:
    words = PACK.index("vocabulary:"), PACK.index("rules:")
    (file.parent / "words.yaml").write_text(
        "language: 1\npack: words\n" + PACK[words[0] : words[1]], encoding="utf-8"
    )
    file.write_text(PACK[: words[0]] + PACK[words[1] :], encoding="utf-8")
    assert moe_align("fmt rules/mine.yaml").exit_code == 0


WRONG = [
    ("fmt rules/no.yaml", "rules/no.yaml:1:1: no such file [Y001]"),
    ("fmt empty", "empty:1:1: holds no rule files [Y008]"),
    ("fmt rules/wrong.yaml", "rules/wrong.yaml:6:12: "),
    ("fmt rules/broken.yaml", "[Y010]"),
    ("fmt rules", "[Y010]"),
    ("fmt rules/case.yaml", "unknown key `fact` [T904]"),
    ("fmt rules/other.yaml", "rules/other.yaml:1:1: is no file of rules or cases [U050]"),
]


@pytest.mark.parametrize(("line", "said"), WRONG)
def test_files_with_problems_are_told_and_not_touched(file: Path, line: str, said: str) -> None:
    rules = file.parent
    (rules.parent / "empty").mkdir()
    (rules / "wrong.yaml").write_text(
        "language: 1\npack: wrong\nphase: allocate\nrules:\n  - id: a\n    align: -1\n", encoding="utf-8"
    )
    (rules / "broken.yaml").write_text("pack: [1\n", encoding="utf-8")
    (rules / "case.yaml").write_text("- {facts: {tp: 1}, fact: {}}\n", encoding="utf-8")
    (rules / "other.yaml").write_text("a:   1\n", encoding="utf-8")
    before = {path: path.read_bytes() for path in rules.iterdir()}
    found = moe_align(line)
    assert (found.exit_code, found.stdout) == (2, "")
    assert said in found.stderr
    assert "Traceback" not in found.stderr
    assert {path: path.read_bytes() for path in rules.iterdir()} == before


def test_a_project_without_rules_is_asked_for_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = moe_align("fmt")
    assert found.exit_code == 2
    assert "[U052]" in found.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_what_cannot_be_written_is_said(file: Path) -> None:
    file.parent.chmod(0o500)
    found = moe_align("fmt rules/mine.yaml")
    file.parent.chmod(0o700)
    assert found.exit_code == 2
    assert "[U008]" in found.stderr


def test_a_whole_policy_keeps_its_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rules = tmp_path / "copy"
    shutil.copytree(ROOT / "rules", rules)
    for path in rules.glob("*.yaml"):
        text = path.read_text(encoding="utf-8")
        path.write_text("# first\n" + text.replace("    align: ", "    align:   "), encoding="utf-8")
    before = load_policy(rules, environ={}, built_in=False).digest
    assert moe_align(f"fmt {rules}").exit_code == 0
    assert load_policy(rules, environ={}, built_in=False).digest == before
    assert moe_align(f"fmt --check {rules}").exit_code == 0


SHIPPED = ["rules", "tests/cases", "examples/fused-shared-experts", "tests/data/rules"]


@pytest.mark.parametrize("folder", SHIPPED)
def test_what_ships_is_laid_out(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    found = moe_align(f"fmt --check {folder}")
    assert (found.exit_code, found.stdout) == (0, "")
