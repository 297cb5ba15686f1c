"""What `doctor` found, as text and as plain values for JSON."""

from __future__ import annotations

from ..record import NamedTuple
from . import SHAPE
from .lines import Row, Style, rows

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    Plain = dict[str, object]


class Program(NamedTuple):
    """An installed program, or one that is not (`version` is `None`), and what to know of it."""

    name: str
    version: str | None
    note: str | None = None


class Health(NamedTuple):
    """All that `doctor` looked at; `problems` has what stands in the way of an answer."""

    programs: Sequence[Program]
    layers: Sequence[tuple[str, int]]
    rules: int | None
    contracts: int | None
    digest: str | None
    environment: Mapping[str, str]
    cache: str | None
    cache_writable: bool
    problems: Sequence[str]


#: Names of distributions are longer than other labels.
_LABEL = 19


def doctor_plain(health: Health) -> Plain:
    return {
        "version": SHAPE,
        "well": not health.problems,
        "programs": [program._asdict() for program in health.programs],
        "rules": {
            "layers": [{"name": name, "files": files} for name, files in health.layers],
            "rules": health.rules,
            "contracts": health.contracts,
            "digest": health.digest,
        },
        "environment": dict(health.environment),
        "cache": {"folder": health.cache, "writable": health.cache_writable},
        "problems": list(health.problems),
    }


def doctor_text(health: Health, style: Style) -> str:
    lines = rows(style, _rows(health), _LABEL)
    for problem in health.problems:
        first, *more = problem.split("\n")
        lines += [
            style.paint(f"{'problem':<{_LABEL}}", "bad") + first,
            *(" " * _LABEL + line for line in more),
        ]
    lines.append(
        style.paint(
            "all is well" if not health.problems else "not well", "bad" if health.problems else "good"
        )
    )
    return "\n".join(lines)


def _rows(health: Health) -> Iterator[Row]:
    for program in health.programs:
        said = program.version or "not installed"
        yield Row(program.name, [said, *([program.note] if program.note else [])])
    for name, files in health.layers:
        yield Row("layer", [name, f"{files} {'file' if files == 1 else 'files'}"])
    if health.digest is not None:
        yield Row(
            "rules",
            [f"{health.rules} rules", f"{health.contracts} contracts", f"digest {health.digest[:16]}"],
        )
    for variable, value in health.environment.items():
        yield Row("variable", [f"{variable}={value}"])
    if health.cache is None:
        yield Row("cache", ["off"])
    else:
        yield Row(
            "cache",
            [health.cache, *([] if health.cache_writable else ["cannot be written: nothing is kept"])],
        )
