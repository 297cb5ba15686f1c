"""Files of claims: what decisions must never or always be."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from pydantic_core import ValidationError

from .. import schema
from ..errors import Location, PolicyError, Problem
from ..packs import DIMENSIONS, Condition
from ..vocabulary import Vocabulary
from .conditions import Context, conditions
from .faults import faults
from .reader import Document, parse, read_bytes

#: What a decision can come to for facts that are all given.
STATUSES = ("decided", "rejected", "unknown")

_KEYS = {"id", "when", "never", "always", "why"}


@dataclass(frozen=True, slots=True)
class Claim:
    """For the facts of `when`, decisions always (else never) have one of `statuses` and sizes in `sizes`.

    Without statuses any will do; sizes are those allocated, under the names of the facts that hold them.
    """

    id: str
    when: tuple[Condition, ...]
    always: bool
    statuses: tuple[str, ...]
    sizes: tuple[Condition, ...]
    why: str | None
    location: Location


def read_claims(file: str | os.PathLike[str], vocabulary: Vocabulary) -> tuple[Claim, ...]:
    """The claims of a file: a list of `id`, `when` (as in rules), `never` or `always`, and `why`.

    What is claimed is a mapping of `status` (one or a list) and of `hidden` and `intermediate`, as
    conditions on the allocated size.

    Raises:
        PolicyError: every fault of the file.
    """
    document = parse(read_bytes(Path(file), str(file)), str(file))
    if not isinstance(document.root, list):
        place = document.locate(())
        document.problems.append(Problem("K891", "is no list of claims", "begin each with `- id:`", place))
        raise PolicyError(document.problems)
    context = Context(document, vocabulary, {})
    claims = [_claim(context, document, index, entry) for index, entry in enumerate(document.root)]
    if document.problems:
        raise PolicyError(document.problems)
    return tuple(claim for claim in claims if claim is not None)


def _claim(context: Context, document: Document, index: int, entry: object) -> Claim | None:
    said = "a claim has `id`, `when`, `why`, and one of `never` and `always`"
    if not isinstance(entry, dict) or entry.keys() - _KEYS or ("never" in entry) == ("always" in entry):
        document.problems.append(Problem("K891", said, None, document.locate((index,))))
        return None
    sort = "never" if "never" in entry else "always"
    claimed = entry[sort]
    name = entry.get("id")
    if not isinstance(name, str) or not isinstance(claimed, dict) or claimed.keys() - {"status", *DIMENSIONS}:
        document.problems.append(Problem("K891", said, None, document.locate((index, sort))))
        return None
    when = _read(context, document, entry.get("when", {}), (index, "when"), name)
    sizes = {DIMENSIONS[key]: value for key, value in claimed.items() if key in DIMENSIONS}
    wanted = _read(context, document, sizes, (index, sort), name)
    statuses = _statuses(document, claimed.get("status", []), (index, sort, "status"), name)
    return Claim(name, when, sort == "always", statuses, wanted, entry.get("why"), document.locate((index,)))


def _statuses(document: Document, said: object, path: tuple[str | int, ...], name: str) -> tuple[str, ...]:
    listed = said if isinstance(said, list) else [said]
    for status in listed:
        if status not in STATUSES:
            fix = f"write one of {', '.join(STATUSES)}"
            document.problems.append(
                Problem("K891", f"unknown status `{status}`", fix, document.locate(path), name)
            )
    return tuple(map(str, listed))


def _read(
    context: Context, document: Document, said: object, path: tuple[str | int, ...], name: str
) -> tuple[Condition, ...]:
    try:
        checked = schema.conditions(said)
    except ValidationError as fault:
        for problem in faults(fault):
            place = document.locate((*path, *problem.path), problem.at_key)
            document.problems.append(Problem(problem.code, problem.message, problem.fix, place, name))
        return ()
    return conditions(context, checked, path, name)
