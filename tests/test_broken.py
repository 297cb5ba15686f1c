"""Wrong rule files, each with its whole message: `broken/<name>.yaml` or folder, and `<name>.txt`."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import moe_align
from moe_align import PolicyError, load_policy

BROKEN = Path(__file__).parent / "broken"
WORDS = "with/words.yaml"
WRONG = sorted(path for path in BROKEN.iterdir() if path.suffix in (".yaml", "") and path.name != "with")


def message(*rules: str | Path) -> str:
    with pytest.raises(PolicyError) as caught:
        load_policy(*map(str, rules), environ={}, built_in=False)
    return str(caught.value)


@pytest.mark.parametrize("wrong", WRONG, ids=lambda path: path.stem)
def test_a_wrong_file_has_its_message(wrong: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(BROKEN)
    assert message(wrong.name, WORDS) == wrong.with_suffix(".txt").read_text(encoding="utf-8").rstrip("\n")


def test_there_are_wrong_files_and_no_message_is_left_over() -> None:
    assert len(WRONG) >= 60
    assert {path.stem for path in BROKEN.glob("*.txt")} == {path.stem for path in WRONG}


def test_the_words_of_the_wrong_files_are_right() -> None:
    load_policy(str(BROKEN / WORDS), environ={}, built_in=False)


@contextmanager
def without_rights(path: Path) -> Iterator[None]:
    """As somebody who may not read `path`, whoever runs the tests."""
    path.chmod(0)
    somebody = os.geteuid() == 0
    if somebody:
        os.seteuid(65534)
    try:
        yield
    finally:
        if somebody:
            os.seteuid(0)
        path.chmod(0o755)


@pytest.fixture
def folder() -> Iterator[Path]:
    """An empty folder that everybody may enter."""
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o755)
        yield Path(made)


def test_a_missing_file(folder: Path) -> None:
    path = folder / "rules.yaml"
    assert message(path) == f"{path}:1:1: no such file or folder [Y001]\n  fix: check the path"


def test_a_file_that_goes_away_while_it_is_read(folder: Path) -> None:
    (folder / "gone.yaml").symlink_to("nowhere.yaml")
    assert message(folder) == f"{folder}/gone.yaml:1:1: no such file [Y001]\n  fix: check the path"


def test_a_folder_that_is_named_like_a_file(folder: Path) -> None:
    (folder / "rules.yaml").mkdir()
    assert (
        message(folder)
        == f"{folder}/rules.yaml:1:1: is a folder, not a file [Y001]\n  fix: name a file in it"
    )


def test_a_file_without_rights(folder: Path) -> None:
    path = folder / "rules.yaml"
    path.write_text("language: 1\n")
    with without_rights(path):
        assert message(path) == (
            f"{path}:1:1: cannot be read: Permission denied [Y002]\n  fix: check its rights"
        )


def test_a_folder_without_rights(folder: Path) -> None:
    inner = folder / "rules"
    inner.mkdir()
    with without_rights(inner):
        assert message(inner) == (
            f"{inner}:1:1: cannot be read: Permission denied [Y002]\n  fix: check its rights"
        )


def test_a_folder_without_rules(folder: Path) -> None:
    (folder / "models.yaml").write_text("language: 1\n")
    assert message(folder) == f"{folder}:1:1: holds no rule files [Y008]\n  fix: put a `*.yaml` file into it"


def test_every_missing_path_is_told_at_once(folder: Path) -> None:
    assert message(folder / "a.yaml", folder / "b").count("[Y001]") == 2


def nested(levels: int) -> bytes:
    return b"language: 1\npack: x\nrules: " + b"[" * levels + b"]" * levels


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param(b"", "1:1: is empty [Y005]", id="empty"),
        pytest.param(b"  \n\n\t\n", "1:1: is empty [Y005]", id="blank"),
        pytest.param(b"\xef\xbb\xbf", "1:1: is empty [Y005]", id="byte-order-mark-alone"),
        pytest.param(b"\x89PNG\r\n\x1a\n\x00\x00", "1:1: is not UTF-8 [Y004]", id="image"),
        pytest.param("language: 1\npack: Fä".encode("latin-1"), "2:8: is not UTF-8 [Y004]", id="latin-1"),
        pytest.param(
            "language: 1\npack: x # ä".encode() + b"\xff", "2:12: is not UTF-8 [Y004]", id="after-ä"
        ),
        pytest.param("language: 1".encode("utf-16"), "1:1: is not UTF-8 [Y004]", id="utf-16"),
        pytest.param(
            b"language: 1\npack: a\x00b\n",
            "2:8: is not YAML: a character that text cannot have [Y010]",
            id="nul",
        ),
        pytest.param(b"x" * (8 * 2**20 + 1), "1:1: is larger than 8 MiB [Y003]", id="8-MiB-and-one"),
        pytest.param(b"- 1\n" * (10 * 2**18), "1:1: is larger than 8 MiB [Y003]", id="10-MiB"),
        pytest.param(
            b"language: 1\npack: [" + b"1," * 1_000_001 + b"]",
            "2:1999998: has more than 1000000 values [Y006]",
            id="million",
        ),
        pytest.param(nested(30), "3:31: is nested more than 24 levels deep [Y007]", id="deep"),
        pytest.param(nested(100_000), "3:1007: is nested more than 24 levels deep [Y007]", id="very-deep"),
        pytest.param(
            b"language: 1\npack: x\nrules: &a [*a]\n", "3:8: anchor `&a` [Y014]", id="refers-to-itself"
        ),
    ],
)
def test_what_is_no_text_of_rules(content: bytes, said: str, folder: Path) -> None:
    path = folder / "rules.yaml"
    path.write_bytes(content)
    assert message(path).splitlines()[0] == f"{path}:{said}"


def test_a_byte_order_mark_is_no_fault(folder: Path) -> None:
    path = folder / "rules.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + (BROKEN / WORDS).read_bytes())
    load_policy(str(path), environ={}, built_in=False)


def test_aliases_of_aliases_are_refused_at_once(folder: Path) -> None:
    """A file that would be read as 2^40 values if aliases were followed."""
    path = folder / "rules.yaml"
    lines = ["a0: &a0 [x, x]", *(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 40))]
    path.write_text("\n".join(lines))
    assert message(path).count("[Y013]") == 78


def test_the_plain_parser_of_yaml_gives_the_same_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyYAML may have been built without its C parser, whose own words are others."""
    import yaml

    monkeypatch.setattr("moe_align.load.reader.LOADER", yaml.SafeLoader)
    monkeypatch.chdir(BROKEN)
    for wrong in WRONG:
        if wrong.name.startswith("y0"):
            told = message(wrong.name, WORDS)
            expected = wrong.with_suffix(".txt").read_text(encoding="utf-8").rstrip("\n")
            assert [line.partition(" ")[2] for line in told.splitlines()] == [
                line.partition(" ")[2] for line in expected.splitlines()
            ]


ROOMS = [
    "schema.py",
    "stack.py",
    "layers.py",
    *(f"load/{name}.py" for name in ("__init__", "convert", "reader", "words")),
]


def codes(of: Callable[[str], str]) -> set[str]:
    found: set[str] = set()
    for room in ROOMS:
        found |= set(re.findall(r'"([YSRVP][0-9]{3})"', of(room)))
    return found


def test_every_code_has_a_wrong_file_or_a_test() -> None:
    package = Path(moe_align.__file__).parent
    raised = codes(lambda room: (package / room).read_text(encoding="utf-8"))
    shown = [path.read_text(encoding="utf-8") for path in (*BROKEN.glob("*.txt"), Path(__file__))]
    assert raised == raised & set(re.findall(r"\[([A-Z][0-9]{3})\]", "\n".join(shown)))
