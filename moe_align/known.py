"""Facts that a caller gives → what is known of the layer: given, implied, derived, assumed or open.

Derived facts are arithmetic of the engine (`moe_tp`, the intermediate size per partition), implied
ones come from the vocabulary, assumed ones are its declared defaults. The rest is open.
"""

from __future__ import annotations

from . import facts as keys
from .errors import PolicyError, Problem
from .vocabulary import Vocabulary, concrete, name_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from .facts import Facts
    from .packs import Accepts
    from .parallel import MoeParallel

    Concrete = str | int | tuple[int, ...]

#: Facts that scopes of aliases look at: they are read before every other name.
_FIRST = ("engine", "scheme", "method", "platform", "arch")


class Known:
    """What is known of one layer while rules look at it.

    `values` holds the facts with one value, `domains` the facts that are open within fewer values
    than there are; a key in neither is wholly open. `why` says for each fact that is not given what
    settled or narrowed it. A `Known` is never changed once it is made: `within` makes another.
    """

    __slots__ = ("domains", "given", "origin", "refusal", "values", "vocabulary")

    def __init__(
        self,
        vocabulary: Vocabulary,
        given: Mapping[str, str | int],
        values: dict[str, Concrete],
        domains: dict[str, Accepts],
        origin: dict[str, str],
        refusal: str | None = None,
    ) -> None:
        self.vocabulary = vocabulary
        self.given = given
        self.values = values
        self.domains = domains
        self.origin = origin
        self.refusal = refusal

    def domain(self, key: str) -> Accepts:
        """The values that an open fact may still take."""
        narrowed = self.domains.get(key)
        return full_domain(self.vocabulary, key) if narrowed is None else narrowed

    def within(self, key: str, accepts: Accepts) -> Known | None:
        """The same with an open fact narrowed to `accepts`, or `None` where that cannot be."""
        other = Known(
            self.vocabulary,
            self.given,
            dict(self.values),
            dict(self.domains),
            dict(self.origin),
            self.refusal,
        )
        try:
            _narrow(other, key, accepts)
            _spread(other, [key])
        except _Contradiction:
            return None
        return other

    def opened(self, key: str) -> Known:
        """The same with an assumed fact made open again."""
        values = {name: value for name, value in self.values.items() if name != key}
        return Known(self.vocabulary, self.given, values, dict(self.domains), self.origin, self.refusal)


class _Contradiction(Exception):
    """Two facts exclude each other: the fact that implies, and the one that does not agree."""

    def __init__(self, by: str, key: str) -> None:
        self.by = by
        self.key = key


def full_domain(vocabulary: Vocabulary, key: str) -> Accepts:
    """Every value that a fact may take."""
    sort = keys.kind(key)
    if sort == "discrete":
        return vocabulary.domain(key)
    from .space import Ints, VersionSet

    return Ints.all() if sort == "integer" else VersionSet.all()


def is_empty(accepts: Accepts) -> bool:
    return not accepts if isinstance(accepts, frozenset) else accepts.is_empty


def known(vocabulary: Vocabulary, facts: Facts) -> Known:
    """What is known of a layer of which `facts` are given.

    Raises:
        PolicyError: unknown names, facts that contradict each other.
    """
    given = _names(vocabulary, facts)
    state = Known(vocabulary, given, dict(given), {}, {})
    try:
        _spread(state, list(given))
    except _Contradiction as fault:
        raise PolicyError([_contradiction(vocabulary, given, fault)]) from None
    _assume(state)
    _derive(state)
    return state


def _names(vocabulary: Vocabulary, facts: Facts) -> dict[str, Concrete]:
    """The given facts as conditions compare them: aliases resolved, releases as keys that order."""
    given: dict[str, Concrete] = {}
    problems: list[Problem] = []
    context: dict[str, Concrete] = {
        key: concrete(key, value)
        for key, value in vocabulary.defaults.items()
        if (key == "engine" or key in keys.VERSIONS) and key not in facts
    }
    items = dict(facts.items())
    for key in sorted(items, key=_reading_order):
        value = items[key]
        try:
            given[key] = concrete(key, value)
            if keys.kind(key) == "discrete":
                given[key] = name_of(vocabulary, key, str(value), context)
            context[key] = given[key]
        except PolicyError as fault:
            problems.extend(fault.problems)
    if problems:
        raise PolicyError(problems)
    return given


def _reading_order(key: str) -> int:
    if key in keys.VERSIONS or key in keys.INTEGERS:
        return 0
    return _FIRST.index(key) + 1 if key in _FIRST else len(_FIRST) + 1


def consistent(state: Known) -> bool:
    """Whether the open facts can take values that agree with each other, as the vocabulary links them."""
    linked = [
        key for key in state.vocabulary.linked if key not in state.values and state.vocabulary.domain(key)
    ]
    if len(linked) < 2:
        return True
    key = min(linked, key=lambda name: len(state.domain(name)))  # type: ignore[arg-type]
    fixed = (state.within(key, frozenset({member})) for member in sorted(state.domain(key)))  # type: ignore[arg-type]
    return any(one is not None and consistent(one) for one in fixed)


def _narrow(state: Known, key: str, accepts: Accepts) -> None:
    """Keep only `accepts` of an open fact; one value left is a value.

    Raises:
        _Contradiction: nothing is left.
    """
    value = state.values.get(key)
    if value is not None:
        if value not in accepts:
            raise _Contradiction(key, key)
        return
    left = state.domain(key) & accepts  # type: ignore[operator]  # both are sets of one key's sort
    if isinstance(left, frozenset) and len(left) == 1:
        state.values[key] = next(iter(left))
        state.domains.pop(key, None)
    elif is_empty(left):
        raise _Contradiction(key, key)
    else:
        state.domains[key] = left


def _spread(state: Known, changed: list[str]) -> None:
    """Let every fact in `changed` imply what it implies, and so on until nothing changes.

    Raises:
        _Contradiction: a fact is left without a value.
    """
    while changed:
        by = changed.pop()
        for key, accepts in _implied_by(state, by):
            value = state.values.get(key)
            if value is not None:
                if value not in accepts:
                    raise _Contradiction(by, key)
                continue
            before = state.domain(key)
            if before <= accepts:  # type: ignore[operator]
                continue
            if before.isdisjoint(accepts):  # type: ignore[arg-type]
                raise _Contradiction(by, key)
            _narrow(state, key, accepts)
            state.origin.setdefault(key, by)
            changed.append(key)
        changed.extend(_narrowed_backwards(state, by))


def _implied_by(state: Known, key: str) -> Iterable[tuple[str, frozenset[str]]]:
    """What a fact implies: of one value, its own; of several, what all of them imply together."""
    value = state.values.get(key)
    if value is not None:
        return state.vocabulary.implied(key, value) if isinstance(value, str) else ()
    domain = state.domains.get(key)
    if not isinstance(domain, frozenset):
        return ()
    each = [dict(state.vocabulary.implied(key, member)) for member in domain]
    shared = set(each[0]).intersection(*each[1:]) if each else set()
    return [(other, frozenset().union(*(implied[other] for implied in each))) for other in sorted(shared)]


def _narrowed_backwards(state: Known, key: str) -> list[str]:
    """Open facts that lose the values which imply something else of `key`; gives those that changed."""
    changed = []
    for other in state.vocabulary.implying(key):
        if other in state.values:
            continue
        domain = state.domain(other)
        kept = frozenset(member for member in domain if _agrees(state, other, member, key))  # type: ignore[union-attr]
        if kept == domain:
            continue
        if not kept:
            raise _Contradiction(key, other)
        _narrow(state, other, kept)
        state.origin.setdefault(other, key)
        changed.append(other)
    return changed


def _agrees(state: Known, other: str, member: str, key: str) -> bool:
    for implied, accepts in state.vocabulary.implied(other, member):
        if implied == key:
            value = state.values.get(key)
            return value in accepts if value is not None else not accepts.isdisjoint(state.domain(key))  # type: ignore[arg-type]
    return True


def _contradiction(vocabulary: Vocabulary, given: Mapping[str, Concrete], fault: _Contradiction) -> Problem:
    """The two given facts that exclude each other, in the words of the caller."""
    for key, value in given.items():
        for other, accepts in vocabulary.implied(key, str(value)):
            if other in given and given[other] not in accepts:
                wanted = " or ".join(sorted(accepts))
                said = f"{key} `{value}` is only for {other} {wanted}, and {other} is `{given[other]}`"
                return Problem("F020", said, f"leave out one of `{key}` and `{other}`")
    said = f"`{fault.by}` and `{fault.key}` exclude each other here"
    return Problem("F020", said, "leave out one of the facts that imply them")


def _assume(state: Known) -> None:
    """Take the declared default of every fact on which nothing is known, where it can hold."""
    for key, value in state.vocabulary.assumptions.items():
        if key in state.values or key in keys.SIZES or _settled_otherwise(state, key):
            continue
        domain = state.domains.get(key)
        if domain is not None and value not in domain:
            continue
        if key in state.vocabulary.linked:
            tried = state.within(key, frozenset({str(value)}))
            if tried is None:
                continue
            state.values.update(tried.values)
            state.domains.clear()
            state.domains.update(
                {name: left for name, left in tried.domains.items() if name not in state.values}
            )
        state.values[key] = value
        state.domains.pop(key, None)
        state.origin[key] = "assumed"


def _settled_otherwise(state: Known, key: str) -> bool:
    """Whether a launch size must not be assumed, since what the engine derives from it is given."""
    return key in ("tp", "dp", "pcp", "ep", "sp") and ("moe_tp" in state.given or "moe_ep" in state.given)


def _derive(state: Known) -> None:
    """Facts that the engine computes from others.

    Raises:
        PolicyError: a given fact differs from what the others give.
    """
    values = state.values
    for first, size in keys.FIRST_SIZES.items():
        if first in values:
            _settle(state, size, values[first], first)
    split = _split(state)
    if split is not None:
        _settle(state, "moe_tp", split.moe_tp, "parallel sizes")
        _settle(state, "moe_ep", split.moe_ep, "parallel sizes")
    whole, ranks = values.get("intermediate"), values.get("moe_tp")
    if isinstance(whole, int) and isinstance(ranks, int):
        if whole % ranks:
            state.refusal = f"{whole} / {ranks} = {whole / ranks:.2f} is no whole number: the ranks cannot share an expert"
        else:
            _settle(state, "intermediate_per_partition", whole // ranks, f"{whole} / {ranks}")
    for first, size in keys.FIRST_SIZES.items():
        if size in values:
            _settle(state, first, values[size], size)


def _settle(state: Known, key: str, value: Concrete, by: str) -> None:
    known_value = state.values.get(key)
    if known_value is None:
        state.values[key] = value
        state.origin[key] = by
    elif known_value != value:
        said = f"`{key}` is {known_value}, but {by} give {value}"
        raise PolicyError([Problem("F021", said, f"leave out `{key}`, or correct it")])


def _split(state: Known) -> MoeParallel | None:
    sizes = {key: state.values.get(key) for key in ("tp", "dp", "pcp", "ep")}
    engine = state.values.get("engine")
    if engine not in _SPLITS or not all(isinstance(size, int) for size in sizes.values()):
        return None
    try:
        return _SPLITS[str(engine)]({key: int(size) for key, size in sizes.items()})  # type: ignore[arg-type]
    except ValueError as fault:
        raise PolicyError([Problem("F022", str(fault), "correct the parallel sizes")]) from None


def _vllm(sizes: Mapping[str, int]) -> MoeParallel:
    from .parallel import vllm_parallel

    ep = sizes["ep"]
    split = vllm_parallel(tp=sizes["tp"], dp=sizes["dp"], pcp=sizes["pcp"], ep=ep > 1)
    if ep not in (1, split.moe_ep):
        raise ValueError(
            f"ep {ep} is not dp × pcp × tp = {split.moe_ep}, the ranks over which vLLM spreads experts"
        )
    return split


def _sglang(sizes: Mapping[str, int]) -> MoeParallel:
    from .parallel import sglang_parallel

    return sglang_parallel(tp=sizes["tp"], ep=sizes["ep"])


def _atom(sizes: Mapping[str, int]) -> MoeParallel:
    from .parallel import atom_parallel

    return atom_parallel(tp=sizes["tp"], dp=sizes["dp"], pcp=sizes["pcp"], ep=sizes["ep"] > 1)


_SPLITS: dict[str, Callable[[Mapping[str, int]], MoeParallel]] = {
    "vllm": _vllm,
    "sglang": _sglang,
    "atom": _atom,
}
