"""The cache of the command: the same answers, faster; never an error, never stale."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from moe_align import Facts, load_policy
from moe_align.cache import MOST_FILES, cache_folder, cached_models, cached_policy
from moe_align.compile import compiled
from moe_align.errors import PolicyError
from moe_align.load.models import load_models

LAB = Path(__file__).parent / "data" / "rules"
ROOT = Path(__file__).parent.parent


@pytest.fixture
def environ(tmp_path: Path) -> Mapping[str, str]:
    return {"XDG_CACHE_HOME": str(tmp_path / "cache")}


def kept(environ: Mapping[str, str], name: str = "policy") -> list[Path]:
    return sorted(Path(environ["XDG_CACHE_HOME"]).glob(f"moe-align/{name}-*.json"))


def rules(tmp_path: Path) -> Path:
    return Path(shutil.copytree(LAB, tmp_path / "rules"))


def multiple(folder: Path, environ: Mapping[str, str]) -> int | None:
    return cached_policy([str(folder)], environ).resolve(Facts(backend="tile", arch="gfx950")).hidden.multiple


def test_what_is_kept_is_what_was_loaded(environ: Mapping[str, str]) -> None:
    first = cached_policy([str(LAB)], environ)
    second = cached_policy([str(LAB)], environ)
    assert len(kept(environ)) == 1
    assert second.stack is not first.stack
    assert compiled(second) == compiled(first) == compiled(load_policy(str(LAB), environ={}))
    assert cached_models(environ) == cached_models(environ) == load_models()
    assert len(kept(environ, "models")) == 1


def test_a_second_process_loads_neither_yaml_nor_our_models_of_files(environ: Mapping[str, str]) -> None:
    cached_policy([], environ)
    cached_models(environ)
    code = (
        "import sys; from moe_align.cache import cached_models, cached_policy\n"
        "cached_policy(); cached_models()\n"
        "print([name for name in ('yaml', 'pydantic', 'moe_align.load') if name in sys.modules])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **environ, "PYTHONPATH": str(ROOT), "MOE_ALIGN_RULES": "", "MOE_ALIGN_CACHE": ""},
    )
    assert ran.stdout.strip() == "[]"


def test_an_edited_file_is_read_again(tmp_path: Path, environ: Mapping[str, str]) -> None:
    folder = rules(tmp_path)
    assert multiple(folder, environ) == 128
    pack = folder / "pack.yaml"
    pack.write_text(pack.read_text().replace("align: 128", "align: 384"))
    assert multiple(folder, environ) == 384
    assert multiple(folder, environ) == 384


def test_a_new_file_is_another_policy(tmp_path: Path, environ: Mapping[str, str]) -> None:
    folder = rules(tmp_path)
    assert multiple(folder, environ) == 128
    more = "language: 1\npack: more\nphase: allocate\nbefore: lab\nrules:\n  - {id: all, align: 32, why: x}\n"
    (folder / "more.yaml").write_text(more)
    assert multiple(folder, environ) == 32
    (folder / "more.yaml").unlink()
    assert multiple(folder, environ) == 128


def test_one_relative_path_in_two_folders_is_two_policies(
    tmp_path: Path, environ: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in (("one", "align: 128"), ("two", "align: 384")):
        folder = Path(shutil.copytree(LAB, tmp_path / name / "rules"))
        pack = folder / "pack.yaml"
        pack.write_text(pack.read_text().replace("align: 128", text))
    for name, wanted in (("one", 128), ("two", 384), ("one", 128)):
        monkeypatch.chdir(tmp_path / name)
        assert multiple(Path("rules"), environ) == wanted


@pytest.mark.parametrize(
    "damage", ["", "{", "[]", "{}", '"x"', "\x00", '{"moe_align": {"format": 1, "language": 1}}']
)
def test_what_is_damaged_is_made_again(damage: str, environ: Mapping[str, str]) -> None:
    whole = compiled(cached_policy([str(LAB)], environ))
    cached_models(environ)
    for file in (*kept(environ), *kept(environ, "models")):
        file.write_text(damage)
    assert compiled(cached_policy([str(LAB)], environ)) == whole
    assert cached_models(environ) == load_models()
    assert kept(environ)[0].read_text() == whole


def test_a_cache_that_cannot_be_written_is_none(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    environ = {"XDG_CACHE_HOME": str(blocked)}
    assert multiple(LAB, environ) == 128
    assert multiple(LAB, environ) == 128
    assert cached_models(environ)


@pytest.mark.parametrize("word", ["off", "OFF", "0", "false", "no"])
def test_it_can_be_turned_off(word: str, environ: Mapping[str, str]) -> None:
    off = {**environ, "MOE_ALIGN_CACHE": word}
    assert multiple(LAB, off) == 128
    assert cached_models(off)
    assert cache_folder(off) is None
    assert not Path(environ["XDG_CACHE_HOME"]).exists()


def test_it_stands_where_caches_stand(tmp_path: Path) -> None:
    assert cache_folder({"XDG_CACHE_HOME": "/x"}) == "/x/moe-align"
    assert cache_folder({"HOME": "/home/me"}) == "/home/me/.cache/moe-align"
    assert cache_folder({"XDG_CACHE_HOME": "relative"}) is None


def test_files_that_are_wrong_are_never_kept(tmp_path: Path, environ: Mapping[str, str]) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("language: 2\n")
    for _ in range(2):
        with pytest.raises(PolicyError):
            cached_policy([str(wrong)], environ)
    assert not kept(environ)


def test_the_oldest_files_go_first(environ: Mapping[str, str]) -> None:
    folder = Path(environ["XDG_CACHE_HOME"]) / "moe-align"
    folder.mkdir(parents=True)
    for age in range(MOST_FILES + 5):
        old = folder / f"policy-{age:04}.json"
        old.write_text("")
        os.utime(old, (1000 + age, 1000 + age))
    cached_policy([str(LAB)], environ)
    left = sorted(path.name for path in folder.iterdir())
    assert len(left) == MOST_FILES
    assert "policy-0005.json" not in left
    assert f"policy-{MOST_FILES + 4:04}.json" in left


def models(tmp_path: Path, text: str) -> str:
    file = tmp_path / "models.yaml"
    file.write_text(text)
    with pytest.raises(PolicyError) as error:
        load_models(file)
    return str(error.value).replace(str(file), "models.yaml")


def test_the_models_that_come_with_the_package_are_the_default() -> None:
    known = load_models()
    assert {"deepseek-v4-pro", "gpt-oss-120b"} <= {model.name for model in known}
    assert known == load_models(ROOT / "rules" / "models.yaml")


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "language: 1",
        "language: 2\nmodels: []",
        "language: 1\nmodels: {}",
        "language: 1\nmodels: []\nmore: 1",
    ],
)
def test_what_is_no_list_of_models_is_refused(tmp_path: Path, text: str) -> None:
    assert models(tmp_path, text) == (
        "models.yaml:1:1: is no list of known models [M009]\n  fix: write `language: 1` and a list `models:`"
    )


def test_every_entry_that_is_wrong_has_its_place(tmp_path: Path) -> None:
    text = "language: 1\nmodels:\n  - {id: a}\n  - just text\n  - {id: b, hiden_size: 1}\n  - {id: a}\n"
    assert models(tmp_path, text).split("\n") == [
        "models.yaml:4:5: a known model is a mapping [M009]",
        "  fix: begin with `id: …`",
        "models.yaml:5:5: known model `b`: unknown key `hiden_size` [M009]",
        "  fix: write `hidden_size`",
        "models.yaml:6:10: known model `a` again [M009]",
        "  fix: it stands in line 3: keep one",
    ]
