"""Files in the one layout, ready to be written: read, laid out, and held against what they meant before."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ..cases import Case, read_cases
from ..errors import Location, PolicyError, Problem
from ..load import load_policy
from ..load.models import load_models
from ..load.reader import parse, read_bytes
from . import formatted, sort_of

_ENDINGS = (".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class File:
    """One file: what it is, what stands in it, and the same in the one layout."""

    path: Path
    sort: str | None
    was: str
    now: str

    @property
    def is_changed(self) -> bool:
        return self.was != self.now


def laid_out(paths: Iterable[str | os.PathLike[str]]) -> tuple[File, ...]:
    """The files of the given files and folders, each in the one layout and found to mean the same in it.

    Raises:
        PolicyError: everything that is wrong with any of them.
    """
    files: list[File] = []
    problems: list[Problem] = []
    for path in _found(paths, problems):
        try:
            data = read_bytes(path, str(path))
            now = formatted(data, str(path))
            files.append(File(path, sort_of(parse(data, str(path))), data.decode("utf-8"), now))
        except PolicyError as fault:
            problems += fault.problems
    if not problems:
        problems += _faults(files)
    if problems:
        raise PolicyError(list(dict.fromkeys(problems)))
    return tuple(files)


def _found(paths: Iterable[str | os.PathLike[str]], problems: list[Problem]) -> Iterator[Path]:
    for path in map(Path, paths):
        start = Location(str(path), 1, 1)
        if not path.is_dir():
            yield path  # reading it says what is wrong with it
            continue
        try:
            inside = sorted(file for file in path.iterdir() if file.suffix in _ENDINGS)
        except OSError as fault:
            problems.append(Problem("Y002", f"cannot be read: {fault.strerror}", "check its rights", start))
            continue
        if not inside:
            problems.append(Problem("Y008", "holds no rule files", "put a `*.yaml` file into it", start))
        yield from inside


def _faults(files: Iterable[File]) -> Iterator[Problem]:
    """What is wrong with files beyond how they are written; those that are well must mean what they meant."""
    packs: dict[Path, list[File]] = {}
    for file in files:
        if file.sort == "pack":
            packs.setdefault(file.path.parent, []).append(file)
            continue
        try:
            before = _meaning(file.path, file.sort)
        except PolicyError as fault:
            yield from fault.problems
            continue
        with tempfile.TemporaryDirectory() as scratch:
            assert before == _meaning(_copy(file, Path(scratch)), file.sort), file.path
    for folder, listed in packs.items():
        yield from _pack_faults(folder, listed)


def _copy(file: File, folder: Path) -> Path:
    copy = folder / file.path.name
    copy.write_text(file.now, encoding="utf-8")
    return copy


def _meaning(path: Path, sort: str | None) -> object:
    """What a file says, without the places where it says it; where the reader's values are all, nothing."""
    if sort == "cases":
        return [_without_place(case) for case in read_cases([path])]
    return load_models(path) if sort == "models" else None


def _without_place(case: Case) -> tuple[object, ...]:
    return tuple(getattr(case, name) for name in Case.__slots__ if name != "location")


def _pack_faults(folder: Path, files: list[File]) -> Iterator[Problem]:
    """Packs in the folder of a whole policy are looked at together, others alone or with their folder."""
    whole = (folder / "vocabulary.yaml").exists()
    for group in [files] if whole else [[file] for file in files]:
        layers = [folder] if whole else [group[0].path, folder]
        for number, layer in enumerate(layers):
            try:
                before = load_policy(layer, built_in=not whole)
            except PolicyError as fault:
                # Alone, a file may lack words that its neighbours add.
                if number == len(layers) - 1 or not _is_of_words(fault):
                    yield from fault.problems
                    break
                continue
            assert before.digest == _digest(layer, group, not whole), layer
            break


def _is_of_words(fault: PolicyError) -> bool:
    return all(problem.code.startswith("R20") or problem.code == "P402" for problem in fault.problems)


def _digest(layer: Path, files: Iterable[File], built_in: bool) -> str:
    """The digest of the policy with the files in their new layout."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / layer.name
        if layer.is_dir():
            copy.mkdir()
            for one in layer.iterdir():
                if one.suffix in _ENDINGS:
                    shutil.copyfile(one, copy / one.name)
        for file in files:
            (copy / file.path.name if layer.is_dir() else copy).write_text(file.now, encoding="utf-8")
        return load_policy(copy, built_in=built_in).digest


def write(file: File) -> None:
    """Put the new layout in place at once, with the rights that the file had.

    Raises:
        PolicyError: it cannot be written.
    """
    path = Path(os.path.realpath(file.path))
    beside = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        beside.write_text(file.now, encoding="utf-8", newline="\n")
        shutil.copymode(path, beside)
        os.replace(beside, path)
    except OSError as fault:
        beside.unlink(missing_ok=True)
        said = f"`{file.path}` cannot be written: {fault.strerror}"
        raise PolicyError([Problem("U008", said, "name a file in a folder that you may write to")]) from None
