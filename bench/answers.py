"""What one answer costs: bound sizes and whole decisions against a chain and against rule engines."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import table
from chain import chain
from rivals import MODULES, Function, installed, rivals
from table import Query
from timing import Measure, in_turn, medians, ratios

from moe_align import Decision, Facts, Policy, load_policy
from moe_align.bind import MOST_BOUND
from moe_align.policy import MOST_KEPT

BOUND = {"engine": "vllm", "vllm": table.RELEASE, "scheme": "mxfp4"}

#: More questions than any memo keeps, no two alike.
MANY = 10_000


def measures(folder: Path, rounds: int, quick: bool) -> Iterator[Measure]:
    """The rows of this group; files that are needed are written into `folder`.

    Raises:
        AssertionError: an answer of ours differs from one of a rival, or a memo is not bounded.
    """
    for path, form in table.KEPT.items():
        assert path.read_text(encoding="utf-8") == form(), f"{path.name} is old: run `python bench/table.py`"
    asked = table.queries(200 if quick else 1000)
    many = table.different_queries(MANY)
    assert 2 * max(MOST_KEPT, MOST_BOUND) < MANY, "more questions are needed to overflow the memos"
    policy = load_policy(table.HERE / "table.yaml", environ={}, built_in=False)
    sizes = policy.bind(**BOUND)
    functions = {"chain": chain, "sizes": sizes, **dict(rivals(installed() if quick else MODULES))}
    _compare(functions, asked)
    _compare({"chain": chain, "sizes": sizes}, many)
    _compare({"chain": chain, "sizes": sizes}, table.other_sizes(MANY))
    _compare({"chain": chain, "resolve": _resolving(policy)}, [*asked, *many, *table.other_sizes(MANY)])
    yield from _one_table(policy, functions, asked, rounds)
    for what, questions, limit in (("new sizes", table.other_sizes(MANY), 40.0), ("new facts", many, None)):
        yield from _never_kept(what, limit, policy, sizes, questions, 1 if quick else max(3, rounds // 3))
    yield from _many_rules(policy, sizes, asked, rounds, _large(folder, 1000 if quick else 10_000))
    yield _bounded(policy, sizes)


def _compare(functions: dict[str, Function], asked: Sequence[Query]) -> None:
    for query in asked:
        said = {name: function(**query._asdict()) for name, function in functions.items()}
        assert len(set(said.values())) == 1, f"the answers to {query} differ: {said}"


def _resolving(policy: Policy) -> Function:
    """`policy.resolve`, its facts made anew, as a function like `chain`."""
    resolve = policy.resolve

    def sizes(**given: object) -> tuple[int, int]:
        decision = resolve(Facts(**BOUND, **given))
        assert decision.hidden.allocated is not None
        assert decision.intermediate.allocated is not None
        return decision.hidden.allocated, decision.intermediate.allocated

    return sizes


def _asking(function: Function, asked: Sequence[Query]) -> Callable[[], None]:
    """All questions once, each with the six keywords."""

    def job() -> None:
        for backend, activation, platform, fused, hidden, intermediate in asked:
            function(
                backend=backend,
                activation=activation,
                platform=platform,
                fused_shared_experts=fused,
                hidden=hidden,
                intermediate_per_partition=intermediate,
            )

    return job


def _deciding(policy: Policy, asked: Sequence[Query]) -> Callable[[], None]:
    """All questions once, as facts made anew and a whole decision."""
    resolve = policy.resolve

    def job() -> None:
        for backend, activation, platform, fused, hidden, intermediate in asked:
            resolve(
                Facts(
                    engine="vllm",
                    vllm=table.RELEASE,
                    scheme="mxfp4",
                    backend=backend,
                    activation=activation,
                    platform=platform,
                    fused_shared_experts=fused,
                    hidden=hidden,
                    intermediate_per_partition=intermediate,
                )
            )

    return job


def _looping(asked: Sequence[Query]) -> Callable[[], None]:
    """The loop of the other jobs alone: its time is taken off theirs."""

    def job() -> None:
        for _backend, _activation, _platform, _fused, _hidden, _intermediate in asked:
            pass

    return job


def _timed(
    jobs: dict[str, Callable[[], None]], asked: Sequence[Query], rounds: int
) -> dict[str, list[float]]:
    """Seconds of each job and round for one question, without the loop around the questions."""
    taken = in_turn({"": _looping(asked), **jobs}, rounds)
    loop = taken.pop("")
    return {
        name: [(one - off) / len(asked) for one, off in zip(times, loop, strict=True)]
        for name, times in taken.items()
    }


def _one_table(
    policy: Policy, functions: dict[str, Function], asked: Sequence[Query], rounds: int
) -> Iterator[Measure]:
    jobs = {name: _asking(function, asked) for name, function in functions.items()}
    taken = _timed({**jobs, "resolve": _deciding(policy, asked)}, asked, rounds)
    ours, theirs = taken["sizes"], taken["chain"]
    yield Measure("sizes(…), warm", "if/elif chain", ratios(ours, theirs), medians(ours, theirs), 1.0)
    for name in functions:
        if name not in ("sizes", "chain"):
            limit = -20.0 if name.startswith("cel") else -10.0
            pair = ratios(taken[name], ours)
            yield Measure(name, "sizes(…), warm", pair, medians(taken[name], ours), limit)
    whole = taken["resolve"]
    what = "policy.resolve(Facts(…)), kept"
    yield Measure(what, "if/elif chain", ratios(whole, theirs), medians(whole, theirs), 40.0)


def _never_kept(
    what: str, limit: float | None, policy: Policy, sizes: Function, asked: Sequence[Query], rounds: int
) -> Iterator[Measure]:
    jobs = {"chain": chain, "sizes": sizes}
    asking = {name: _asking(function, asked) for name, function in jobs.items()}
    taken = _timed({**asking, "resolve": _deciding(policy, asked)}, asked, rounds)
    theirs = taken["chain"]
    for name, shown, most in (("resolve", "policy.resolve(Facts(…))", limit), ("sizes", "sizes(…)", None)):
        pair = ratios(taken[name], theirs)
        yield Measure(f"{shown}, {what}", "if/elif chain", pair, medians(taken[name], theirs), most)


def _large(folder: Path, count: int) -> Policy:
    rows, backends = table.more_rows(count)
    file = folder / f"rules_{count}.yaml"
    file.write_text(table.as_yaml(rows, backends), encoding="utf-8")
    return load_policy(file, environ={}, built_in=False)


def _many_rules(
    small: Policy, sizes: Function, asked: Sequence[Query], rounds: int, large: Policy
) -> Iterator[Measure]:
    count = sum(1 for _ in large.stack.rules())
    bound = large.bind(**BOUND)
    _compare({"30 rules": sizes, f"{count} rules": bound, "resolve": _resolving(large)}, asked)
    jobs = {
        "sizes": _asking(sizes, asked),
        "large sizes": _asking(bound, asked),
        "resolve": _deciding(small, asked),
        "large resolve": _deciding(large, asked),
    }
    taken = _timed(jobs, asked, rounds)
    for name, what in (("sizes", "sizes(…), warm"), ("resolve", "policy.resolve(Facts(…)), kept")):
        ours, theirs = taken[f"large {name}"], taken[name]
        pair = ratios(ours, theirs)
        yield Measure(f"{what}, {count:,} rules", "30 rules", pair, medians(ours, theirs), 1.3)
    few = table.different_queries(30, seed=3)
    first = _timed({"small": _first(small, few), "large": _first(large, few)}, few, max(3, rounds // 3))
    pair = ratios(first["large"], first["small"])
    note = "linear: the trace names every rule"
    what = f"policy.resolve, first time, {count:,} rules"
    yield Measure(what, "30 rules", pair, medians(first["large"], first["small"]), None, note)


def _first(policy: Policy, asked: Sequence[Query]) -> Callable[[], None]:
    """All questions once, of a policy that has kept nothing."""
    stack = policy.stack

    def job() -> None:
        _deciding(Policy(stack), asked)()

    return job


def _bounded(policy: Policy, sizes: Function) -> Measure:
    """The memory of both memos while three times as many questions come as they can keep."""
    asked = table.different_queries(3 * MANY, seed=4)
    parts = [asked[:MANY], asked[MANY:]]
    peaks = [_peak(_asking(sizes, part)) for part in parts]
    for part in parts:
        _deciding(policy, part)()
    kept = sum(1 for value in gc.get_objects() if isinstance(value, Decision))
    assert kept <= 2 * MOST_KEPT, f"{kept} decisions are alive"
    assert peaks[1] < 1.5 * peaks[0], f"the memo of bound sizes grew from {peaks[0]} to {peaks[1]} bytes"
    note = f"and at most {MOST_KEPT} decisions are kept"
    times = tuple(f"{peak / 2**20:.2g} MiB" for peak in reversed(peaks))
    pair = (peaks[1] / peaks[0],)
    return Measure("memory of sizes(…), 20,000 more questions", "10,000", pair, times, 1.5, note)


def _peak(job: Callable[[], None]) -> int:
    tracemalloc.start()
    job()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak
