"""The compiled policy and the known models, kept between runs of the command.

Neither YAML nor pydantic is needed while what is kept is as new as the files. A cache that cannot be
written or read is no error: the files are read instead.
"""

from __future__ import annotations

import json
import os
import zlib

from .layers import built_in_rules, layers_of
from .restore import load_compiled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .models import Model
    from .policy import Policy

#: The environment variable that turns the cache off.
SWITCH = "MOE_ALIGN_CACHE"

#: So many files are kept; the oldest go first.
MOST_FILES = 32

#: Folders of the package whose code decides what files mean.
_LOADING_CODE = ("", "load", "models", "space")


def cached_policy(rules: Iterable[str] = (), environ: Mapping[str, str] | None = None) -> Policy:
    """What `load_policy` gives for the same arguments, from the cache where it is still true.

    Raises:
        PolicyError: as `load_policy`.
    """
    environment = os.environ if environ is None else environ
    listed = tuple(rules)
    layers = layers_of(listed, environ=environment)
    files = [file for layer in layers for file in layer.files]
    kept = _kept(environment, "policy", [*(layer.name for layer in layers), *map(os.path.abspath, files)])
    if kept is not None:
        # Whatever is wrong with a kept file, the rule files say what it should be.
        try:
            return load_compiled(kept)
        except Exception:
            pass
    from .load import load_policy

    before = _stamps(files)
    policy = load_policy(*listed, environ=environment)
    if kept is not None:
        from .compile import compiled

        text = compiled(policy)
        # A file that was saved in the middle of this must not be taken for the one that was read.
        if _stamps(files) == before:
            _write(kept, text)
    return policy


def cached_models(environ: Mapping[str, str] | None = None) -> tuple[Model, ...]:
    """What `load_models()` gives, from the cache where it is still true.

    Raises:
        PolicyError: as `load_models`.
    """
    environment = os.environ if environ is None else environ
    file = os.path.join(built_in_rules(), "models.yaml")
    before = _stamps([file])
    kept = _kept(environment, "models", [file, repr(before)])
    if kept is not None:
        try:
            return _read_models(kept)
        except Exception:
            pass
    from .load.models import load_models

    models = load_models()
    if kept is not None and _stamps([file]) == before:
        _write(kept, json.dumps({"models": [_plain(model) for model in models]}))
    return models


def cache_folder(environ: Mapping[str, str]) -> str | None:
    """The folder of the cache, or `None` where it is turned off or there is no home."""
    if environ.get(SWITCH, "").strip().lower() in ("off", "0", "false", "no"):
        return None
    base = environ.get("XDG_CACHE_HOME") or os.path.join(
        environ.get("HOME") or os.path.expanduser("~"), ".cache"
    )
    return os.path.join(base, "moe-align") if os.path.isabs(base) else None


def _kept(environ: Mapping[str, str], name: str, parts: list[str]) -> str | None:
    """Where a result is kept that depends on `parts` and on the code that makes it."""
    folder = cache_folder(environ)
    if folder is None:
        return None
    from . import __version__

    key = "\0".join([__version__, *_code(), *parts]).encode(errors="surrogateescape")
    # Two sums tell files apart well enough, and loading a cryptographic one takes longer than all else here.
    return os.path.join(folder, f"{name}-{zlib.crc32(key):08x}{zlib.adler32(key):08x}.json")


def _code() -> list[str]:
    """Size and time of the code that reads and compiles: other code may give another policy."""
    package = os.path.dirname(os.path.abspath(__file__))
    found = []
    for folder in _LOADING_CODE:
        with os.scandir(os.path.join(package, folder)) as entries:
            for entry in entries:
                if entry.name.endswith(".py"):
                    stat = entry.stat()
                    found.append(f"{folder}/{entry.name} {stat.st_size} {stat.st_mtime_ns}")
    return sorted(found)


def _stamps(files: Iterable[str]) -> list[tuple[int, int] | None]:
    stamps: list[tuple[int, int] | None] = []
    for file in files:
        try:
            stat = os.stat(file)
        except OSError:
            stamps.append(None)
        else:
            stamps.append((stat.st_size, stat.st_mtime_ns))
    return stamps


def _write(file: str, text: str) -> None:
    """Put `text` in place at once; where that cannot be, leave things as they are."""
    folder = os.path.dirname(file)
    beside = f"{file}.{os.getpid()}.new"
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        with open(beside, "w", encoding="utf-8") as stream:
            stream.write(text)
        os.replace(beside, file)
        _prune(folder)
    except OSError:
        _remove(beside)


def _prune(folder: str) -> None:
    with os.scandir(folder) as entries:
        files = sorted((entry.stat().st_mtime_ns, entry.path) for entry in entries if entry.is_file())
    for _, file in files[:-MOST_FILES]:
        _remove(file)


def _remove(file: str) -> None:
    try:
        os.remove(file)
    except OSError:
        return


def _plain(model: Model) -> dict[str, object]:
    return {name: getattr(model, name) for name in model.__slots__}


def _read_models(file: str) -> tuple[Model, ...]:
    from .models import Model

    with open(file, encoding="utf-8") as stream:
        entries = json.load(stream)["models"]
    return tuple(Model(**{**entry, **_tuples(entry)}) for entry in entries)


def _tuples(entry: Mapping[str, object]) -> dict[str, object]:
    """The fields that JSON keeps as lists."""
    return {key: tuple(value) for key, value in entry.items() if isinstance(value, list)}
