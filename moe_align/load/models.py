"""`models.yaml` → the known models, with the strictness of rule files."""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import PolicyError, Problem
from ..layers import built_in_rules
from ..models import Model, known_model
from .reader import Document, parse, read_bytes

#: The file of a rules folder that lists models.
MODELS_FILE = "models.yaml"

_SHAPE = "write `language: 1` and a list `models:`"


def load_models(path: str | os.PathLike[str] | None = None) -> tuple[Model, ...]:
    """The known models of a file, or those that come with the package, in its order.

    Raises:
        PolicyError: a file that cannot be read, and every entry that is not as it should be.
    """
    file = Path(built_in_rules()) / MODELS_FILE if path is None else Path(path)
    shown = f"rules/{MODELS_FILE}" if path is None else os.fspath(path)
    document = parse(read_bytes(file, shown), shown)
    models = tuple(_models(document))
    if document.problems:
        raise PolicyError(document.problems)
    return models


def _models(document: Document) -> list[Model]:
    root = document.root
    entries = root.get("models") if isinstance(root, dict) else None
    if not isinstance(entries, list) or root.get("language") != 1 or len(root) != 2:
        document.problems.append(Problem("M009", "is no list of known models", _SHAPE, document.locate(())))
        return []
    models: list[Model] = []
    first: dict[str, int] = {}
    for index, entry in enumerate(entries):
        model = _model(document, index, entry)
        if model is None:
            continue
        if model.name in first:
            line = document.locate(("models", first[model.name])).line
            place = document.locate(("models", index, "id"))
            fix = f"it stands in line {line}: keep one"
            document.problems.append(Problem("M009", f"known model `{model.name}` again", fix, place))
        first.setdefault(model.name, index)
        models.append(model)
    return models


def _model(document: Document, index: int, entry: object) -> Model | None:
    place = document.locate(("models", index))
    if not isinstance(entry, dict):
        document.problems.append(Problem("M009", "a known model is a mapping", "begin with `id: …`", place))
        return None
    try:
        return known_model(entry)
    except PolicyError as fault:
        document.problems.extend(problem._replace(location=place) for problem in fault.problems)
        return None
