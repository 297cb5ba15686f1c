"""Integers that remember what was done to them: an engine's function run on one says what it does to all.

A `Traced` stands for every value of one size at once. What the engine computes from it becomes a term, what
the engine asks of it a test. Anything else, such as a division by another size or a look-up by it, ends the
run with `Unlinked`: then nothing is known, and nothing is claimed.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping
from itertools import product
from typing import NamedTuple, Never

from moe_align.verify.stand_ins import Unlinked
from moe_align.verify.terms import (
    ARITHMETIC,
    BOUND,
    COMPARISONS,
    Mask,
    Term,
    holds,
    least,
    pace,
    size_of,
    split,
    steady_from,
)


class Test(NamedTuple):
    """A question that the engine asked of a size, and what it was told."""

    sign: str
    left: Term
    right: Term
    held: bool


class Place(NamedTuple):
    """A line of the engine."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class Run(NamedTuple):
    """What one run came to, which questions it asked on the way, and the line that made the sizes."""

    answer: tuple[Term | None, ...] | str
    tests: tuple[Test, ...]
    place: Place | None


class Trace:
    """What is written down during one run."""

    def __init__(self) -> None:
        self.tests: list[Test] = []
        self.place: Place | None = None


class Traced:
    """One size on its way through the engine's code."""

    __slots__ = ("number", "term", "trace")

    def __init__(self, number: int, term: Term, trace: Trace) -> None:
        self.number, self.term, self.trace = number, term, trace

    def _with(self, sign: str, other: object, swapped: bool = False) -> Traced:
        number, term = _operand(other)
        if sign in ("//", "%") and (swapped or not isinstance(term, int) or term < 1):
            raise Unlinked(f"a size is divided in a way that cannot be followed: `{sign} {term}`")
        if sign == "*" and not isinstance(term, int):
            raise Unlinked("two sizes are multiplied")
        left, right = (number, self.number) if swapped else (self.number, number)
        made = (sign, term, self.term) if swapped else (sign, self.term, term)
        self.trace.place = _place() or self.trace.place
        return Traced(ARITHMETIC[sign](left, right), made, self.trace)

    def _asked(self, sign: str, other: object) -> bool:
        if other is None or isinstance(other, str):
            return sign == "!="
        number, term = _operand(other)
        held = COMPARISONS[sign](self.number, number)
        self.trace.tests.append(Test(sign, self.term, term, held))
        return held

    def __add__(self, other: object) -> Traced:
        return self._with("+", other)

    def __radd__(self, other: object) -> Traced:
        return self._with("+", other)

    def __sub__(self, other: object) -> Traced:
        return self._with("-", other)

    def __rsub__(self, other: object) -> Traced:
        return self._with("-", other, swapped=True)

    def __mul__(self, other: object) -> Traced:
        return self._with("*", other)

    __rmul__ = __mul__

    def __floordiv__(self, other: object) -> Traced:
        return self._with("//", other)

    def __mod__(self, other: object) -> Traced:
        return self._with("%", other)

    def __rfloordiv__(self, other: object) -> Traced:
        return self._with("//", other, swapped=True)

    def __rmod__(self, other: object) -> Traced:
        return self._with("%", other, swapped=True)

    def __neg__(self) -> Traced:
        return self._with("-", 0, swapped=True)

    def __lt__(self, other: object) -> bool:
        return self._asked("<", other)

    def __le__(self, other: object) -> bool:
        return self._asked("<=", other)

    def __gt__(self, other: object) -> bool:
        return self._asked(">", other)

    def __ge__(self, other: object) -> bool:
        return self._asked(">=", other)

    def __eq__(self, other: object) -> bool:
        return self._asked("==", other)

    def __ne__(self, other: object) -> bool:
        return self._asked("!=", other)

    def __bool__(self) -> bool:
        return self._asked("!=", 0)

    def _lost(self, *_others: object) -> Never:
        raise Unlinked("a size is used in a way that cannot be followed")

    __hash__ = _lost  # a table of sizes would hide which ones are in it
    __index__ = __int__ = __float__ = __truediv__ = __rtruediv__ = __pow__ = _lost
    __and__ = __or__ = __xor__ = __lshift__ = __rshift__ = _lost


def _operand(other: object) -> tuple[int, Term]:
    if isinstance(other, Traced):
        return other.number, other.term
    if isinstance(other, int):
        return int(other), int(other)
    raise Unlinked(f"a size meets a value that is no integer: {type(other).__name__}")


def _place() -> Place | None:
    """The line of the engine, outside its arithmetic, that is being run."""
    frame = sys._getframe(3)
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith("vllm/") and not file.endswith("math_utils.py"):
            return Place(file, frame.f_lineno)
        if file.startswith("/"):
            return None
        frame = frame.f_back  # type: ignore[assignment]
    return None


def run(
    question: Callable[..., object], numbers: Mapping[str, int], refusals: tuple[type[Exception], ...]
) -> Run:
    """Ask once with traced sizes of the given numbers.

    Raises:
        Unlinked: the engine did something with a size that cannot be followed.
    """
    trace = Trace()
    sizes = {name: Traced(number, name, trace) for name, number in numbers.items()}
    try:
        said = question(**sizes)
    except refusals as refusal:
        return Run(f"error: {type(refusal).__name__}", tuple(trace.tests), trace.place)
    parts = said if isinstance(said, tuple) else (said,)
    answer = tuple(None if part is None else _operand(part)[1] for part in parts)
    return Run(answer, tuple(trace.tests), trace.place)


class Cell(NamedTuple):
    """Sizes that go one way through a function: which they are, name by name, and what they come to."""

    where: tuple[tuple[str, Mask], ...]
    answer: tuple[Term | None, ...] | str
    place: Place | None = None


class Explored(NamedTuple):
    """All ways through a function, and the pairs of terms that it compares on them."""

    cells: tuple[Cell, ...]
    compared: frozenset[tuple[Term, Term]]


def explore(
    question: Callable[..., object], sizes: Mapping[str, Mask], refusals: tuple[type[Exception], ...]
) -> Explored:
    """Every way through the function that `question` asks, with the sizes that go it.

    Each question that a run asks of a size cuts that size's values in two; a value of each part is run in
    turn, until no run asks anything new. Then all values of a part give the same answers to all questions,
    and so the same term.

    Raises:
        Unlinked: the engine did something with a size that cannot be followed.
    """
    asked: dict[str, dict[tuple[str, Term, Term], None]] = {name: {} for name in sizes}
    runs: dict[tuple[int, ...], Run] = {}
    while True:
        parts = {name: _parts(whole, asked[name]) for name, whole in sizes.items()}
        before = sum(map(len, asked.values()))
        cells = []
        for masks in product(*parts.values()):
            numbers = tuple(map(least, masks))
            if numbers not in runs:
                runs[numbers] = run(question, dict(zip(sizes, numbers, strict=True)), refusals)
                _note(runs[numbers], asked)
            found = runs[numbers]
            cells.append(Cell(tuple(zip(sizes, masks, strict=True)), found.answer, found.place))
        if sum(map(len, asked.values())) == before:
            compared = frozenset((left, right) for tests in asked.values() for _, left, right in tests)
            return Explored(tuple(cells), compared)


def _parts(whole: Mask, asked: Mapping[tuple[str, Term, Term], None]) -> list[Mask]:
    parts = [whole]
    for sign, left, right in asked:
        parts = split(parts, holds(sign, left, right))
    return parts


def _note(found: Run, asked: dict[str, dict[tuple[str, Term, Term], None]]) -> None:
    for sign, left, right, _ in found.tests:
        name = size_of(("-", left, right))
        if name is not None:
            asked[name][sign, left, right] = None


def is_proven(explored: Explored, multiples: Iterable[int] = (), bounds: Iterable[int] = ()) -> bool:
    """Whether looking at sizes up to `BOUND` says everything of all sizes.

    Every comparison repeats from some size on, and every term is as much more after each period. So two
    functions that agree up to two common periods behind the last such size agree everywhere. The other
    function, that of the rules, has its own `multiples`, and is regular behind its `bounds`.
    """
    starts, periods = [0, *bounds], [1, *multiples]
    for left, right in explored.compared:
        start, period = steady_from(left, right)
        starts.append(start)
        periods.append(period)
    for cell in explored.cells:
        if not isinstance(cell.answer, str):
            periods += [pace(term).period for term in cell.answer if term is not None]
    return max(starts) + 2 * math.lcm(*periods) <= BOUND
