"""Where rule files lie: the layers of a policy and the files of each, nearest first. Reads no file."""

from __future__ import annotations

import os
import zlib

from .errors import Location, PolicyError, Problem
from .record import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

BUILT_IN = "built-in"

#: The environment variable with folders or files of rules, nearest first.
VARIABLE = "MOE_ALIGN_RULES"

#: Files of a rules folder that hold no rules.
_OTHER_FILES = frozenset({"models.yaml", "reviewed.yaml"})


class Layer(NamedTuple):
    """One layer: the name by which answers call it, and the paths of its files in order."""

    name: str
    files: tuple[str, ...]

    def shown(self, file: str) -> str:
        """A file as messages and answers name it."""
        return f"rules/{os.path.basename(file)}" if self.name == BUILT_IN else file


def built_in_rules() -> str:
    """The folder of the rules that come with the package, installed or in a checkout."""
    package = os.path.dirname(os.path.abspath(__file__))
    installed = os.path.join(package, "rules")
    return installed if os.path.isdir(installed) else os.path.join(os.path.dirname(package), "rules")


def layers_of(
    rules: Iterable[str | os.PathLike[str]],
    *,
    environ: Mapping[str, str] | None = None,
    built_in: bool = True,
) -> tuple[Layer, ...]:
    """The layers: `rules`, over `MOE_ALIGN_RULES`, over the built-in one; each path where it is nearest.

    The folder of the built-in rules is the built-in layer, whoever names it.

    Raises:
        PolicyError: files or folders that do not exist or hold no rules, all of them at once.
    """
    environment = os.environ if environ is None else environ
    said = [part for part in environment.get(VARIABLE, "").split(os.pathsep) if part]
    layers: list[Layer] = []
    problems: list[Problem] = []
    seen = {os.path.realpath(built_in_rules())} if built_in else set()
    for path in [*(os.fspath(rule) for rule in rules), *said]:
        real = os.path.realpath(path)
        if real in seen:
            continue
        seen.add(real)
        try:
            layers.append(_layer(path))
        except PolicyError as fault:
            problems.extend(fault.problems)
    if problems:
        raise PolicyError(problems)
    if built_in:
        layers.append(_layer(built_in_rules())._replace(name=BUILT_IN))
    return tuple(layers)


def _layer(path: str) -> Layer:
    start = Location(path, 1, 1)
    if not os.path.isdir(path):
        if not os.path.exists(path):
            raise PolicyError([Problem("Y001", "no such file or folder", "check the path", start)])
        return Layer(path, (path,))
    try:
        names = sorted(os.listdir(path))
    except OSError as fault:
        raise PolicyError(
            [Problem("Y002", f"cannot be read: {fault.strerror}", "check its rights", start)]
        ) from None
    files = [name for name in names if name.endswith((".yaml", ".yml")) and name not in _OTHER_FILES]
    if not files:
        raise PolicyError([Problem("Y008", "holds no rule files", "put a `*.yaml` file into it", start)])
    return Layer(path, tuple(os.path.join(path, name) for name in files))


def fingerprint(file: str) -> tuple[int, int]:
    """Length and CRC-32 of a file: enough to see that it was edited."""
    with open(file, "rb") as stream:
        data = stream.read()
    return len(data), zlib.crc32(data)
