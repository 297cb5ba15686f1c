"""What is wrong with a file, where it stands, and how to put it right."""

from __future__ import annotations

from .record import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


class Location(NamedTuple):
    """A place in a file; lines and columns count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class Problem(NamedTuple):
    """One fault in a file: its stable code, what is wrong, and what to write in its place."""

    code: str
    message: str
    fix: str | None = None
    location: Location | None = None
    rule: str | None = None

    def __str__(self) -> str:
        place = f"{self.location}: " if self.location else ""
        rule = f"rule `{self.rule}`: " if self.rule else ""
        fix = f"\n  fix: {self.fix}" if self.fix else ""
        return f"{place}{rule}{self.message} [{self.code}]{fix}"


class PolicyError(ValueError):
    """Files that cannot be used, with every problem that was found in them."""

    problems: tuple[Problem, ...]

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        # The one argument is what pickle hands to the constructor again.
        super().__init__(self.problems)

    def __str__(self) -> str:
        return "\n".join(map(str, self.problems))


def did_you_mean(word: str, candidates: Iterable[str]) -> str | None:
    """The candidate that `word` most likely meant, whatever its case, or None when none is close."""
    from difflib import get_close_matches

    by_lower = {candidate.lower(): candidate for candidate in sorted(candidates)}
    # Of a short word half the letters may be wrong by one slip.
    cutoff = 0.65 if len(word) <= 4 else 0.7
    close = get_close_matches(word.lower(), list(by_lower), n=1, cutoff=cutoff)
    return by_lower[close[0]] if close else None
