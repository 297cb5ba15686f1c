"""Paired ratios: what is compared runs in turn, and each round gives one ratio.

Seconds are those of the processor: on a machine that does other things as well they say more than the
clock on the wall, and on an idle one they are the same.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from statistics import median
from time import process_time
from typing import NamedTuple

#: How long one job should take at least, so that the clock and a switch of tasks do not matter.
LEAST_SECONDS = 0.02


class Measure(NamedTuple):
    """One row of the results: the ratios of all rounds, and both medians as text.

    `limit` is the target: at most so much, or at least where it is negative; `None` is a row to know
    about, without a target.
    """

    what: str
    against: str
    ratios: tuple[float, ...]
    times: tuple[str, str]
    limit: float | None = None
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the median keeps the target."""
        if self.limit is None:
            return None
        return median(self.ratios) <= self.limit if self.limit > 0 else median(self.ratios) >= -self.limit


def in_turn(jobs: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each job in each round; every second round goes through the jobs backwards."""
    counts = {name: _count(job) for name, job in jobs.items()}
    taken: dict[str, list[float]] = {name: [] for name in jobs}
    gc.collect()
    gc.freeze()  # what was loaded before is not searched again while a job runs
    for number in range(rounds):
        for name in list(jobs)[:: -1 if number % 2 else 1]:
            taken[name].append(_seconds(jobs[name], counts[name]))
    gc.unfreeze()
    return taken


def _count(job: Callable[[], object]) -> int:
    """How often a job runs in one round; the job is warm afterwards."""
    job()
    return max(1, round(LEAST_SECONDS / max(_seconds(job, 1), 1e-9)))


def _seconds(job: Callable[[], object], count: int) -> float:
    start = process_time()
    for _ in range(count):
        job()
    return (process_time() - start) / count


def ratios(ours: list[float], theirs: list[float]) -> tuple[float, ...]:
    return tuple(one / other for one, other in zip(ours, theirs, strict=True))


def shown(seconds: float) -> str:
    """A duration for people."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def medians(ours: list[float], theirs: list[float], each: int = 1) -> tuple[str, str]:
    return shown(median(ours) / each), shown(median(theirs) / each)
