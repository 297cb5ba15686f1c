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
    from typing import Any

    from .facts import Facts
    from .packs import Accepts
    from .parallel import MoeParallel

    Concrete = str | int | tuple[int, ...]

_NO_TEXTS: Mapping[str, str] = {}

#: Facts that scopes of aliases look at: they are read before every other name.
_FIRST = ("engine", "scheme", "method", "platform", "arch")


class Known:
    """What is known of one layer while rules look at it.

    `values` holds the facts with one value, `domains` the facts that are open within fewer values
    than there are; a key in neither is wholly open. `origin` says for each fact that is not given what
    settled or narrowed it, and `texts` how the given releases were written. A `Known` is never changed
    once it is made: `within` makes another.
    """

    __slots__ = ("domains", "given", "origin", "refusal", "texts", "values", "vocabulary")

    def __init__(
        self,
        vocabulary: Vocabulary,
        given: Mapping[str, Concrete],
        values: dict[str, Concrete],
        domains: dict[str, Accepts],
        origin: dict[str, str],
        refusal: str | None = None,
        texts: Mapping[str, str] = _NO_TEXTS,
    ) -> None:
        self.vocabulary = vocabulary
        self.given = given
        self.values = values
        self.domains = domains
        self.origin = origin
        self.refusal = refusal
        self.texts = texts

    def text(self, key: str) -> str | int:
        """The value of a fact that is known, as it was written."""
        value = self.values[key]
        return (
            self.texts.get(key, self.vocabulary.defaults.get(key, "")) if isinstance(value, tuple) else value
        )

    def having(self, values: dict[str, Concrete]) -> Known:
        """The same with other values."""
        return Known(self.vocabulary, self.given, values, self.domains, self.origin, self.refusal, self.texts)

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
            self.texts,
        )
        try:
            _narrow(other, key, accepts)
            _spread(other, [key])
        except _Contradiction:
            return None
        return other

    def opened(self, key: str) -> Known:
        """What is known of the given facts alone when `key` is not assumed."""
        return _completed(Known(self.vocabulary, self.given, dict(self.given), {}, {}, None, self.texts), key)


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
    texts = {key: str(value) for key, value in facts.items() if key in keys.VERSIONS}
    return _completed(Known(vocabulary, given, dict(given), {}, {}, None, texts))


def _completed(state: Known, unless: str | None = None) -> Known:
    """`state`, which holds the given facts alone, with all that follows; `unless` is not assumed.

    Raises:
        PolicyError: facts that contradict each other.
    """
    try:
        _spread(state, list(state.given))
    except _Contradiction as fault:
        raise PolicyError([_contradiction(state, fault)]) from None
    _assume(state, unless)
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
    """Keep only `accepts` of an open fact; one value left is a value, but for sizes, whose rules are kept.

    Raises:
        _Contradiction: nothing is left.
    """
    value = state.values.get(key)
    if value is not None:
        if value not in accepts:
            raise _Contradiction(key, key)
        return
    left = state.domain(key) & accepts  # type: ignore[operator]  # both are sets of one key's sort
    only = _only(left) if key not in keys.SIZES else None
    if only is not None:
        state.values[key] = only
        state.domains.pop(key, None)
    elif is_empty(left):
        raise _Contradiction(key, key)
    else:
        state.domains[key] = left


def _only(accepts: Accepts) -> Concrete | None:
    """The one value of a set, or `None`; a release is never alone, for its builds are in its set too."""
    if isinstance(accepts, frozenset):
        return next(iter(accepts)) if len(accepts) == 1 else None
    pieces: tuple[Any, ...] = getattr(accepts, "pieces", ())
    return pieces[0].low if len(pieces) == 1 and pieces[0].low == pieces[0].high else None


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


def _contradiction(state: Known, fault: _Contradiction) -> Problem:
    """The two given facts that exclude each other, in the words of the caller."""
    given = state.given
    for key, value in given.items():
        for other, accepts in state.vocabulary.implied(key, str(value)):
            if other in given and given[other] not in accepts:
                wanted = " or ".join(sorted(accepts))
                said = f"{key} `{value}` is only for {other} {wanted}, and {other} is `{given[other]}`"
                return Problem("F020", said, f"leave out one of `{key}` and `{other}`")
    one, two = _given_behind(state, fault.by), _given_behind(state, fault.key)
    if not one or not two:
        said = f"no {fault.key} goes with {one or two} `{given[one or two]}`"
        return Problem("F023", said, "correct the facts, or declare one for it in a pack")
    said = f"{one} `{given[one]}` and {two} `{given[two]}` exclude each other"
    if fault.key not in given:
        said = f"{said}: no {fault.key} fits both"
    return Problem("F020", said, f"leave out one of `{one}` and `{two}`")


def _given_behind(state: Known, key: str) -> str:
    """The given fact from which that of `key` follows; empty where nothing has narrowed it yet."""
    while key and key not in state.given:
        key = state.origin.get(key, "")
    return key


def _assume(state: Known, unless: str | None) -> None:
    """Take the declared default of every fact on which nothing is known, where it can hold.

    A default that would take values away from a fact which stays open is not taken: the answer would
    leave out those values without a word.
    """
    values, vocabulary = state.values, state.vocabulary
    derived = "moe_tp" in state.given or "moe_ep" in state.given
    waiting = []
    for key, value in vocabulary.assumptions.items():
        if key in values or key == unless:
            continue
        if key in vocabulary.linked:
            waiting.append((key, value))
        elif not (derived and key in _LAUNCH_SIZES):
            values[key] = value
            state.origin[key] = "assumed"
    taken = True
    while taken:
        # One that has been taken may settle the facts from which another would have taken values.
        left = [(key, value) for key, value in waiting if not _taken(state, key, value)]
        taken, waiting = len(left) < len(waiting), left


#: What must not be assumed where that which the engine derives from it is given.
_LAUNCH_SIZES = frozenset({"tp", "dp", "pcp", "ep", "sp"})


def _taken(state: Known, key: str, value: Concrete) -> bool:
    """Whether a default of a fact that others imply is settled: taken, or out of the question."""
    domain = state.domains.get(key)
    if key in state.values or (domain is not None and value not in domain):
        return True
    tried = state.within(key, frozenset({str(value)}))
    if tried is None:
        return True
    if _narrows(state, tried):
        return False
    state.values, state.domains, state.origin = tried.values, tried.domains, tried.origin
    state.values[key] = value
    state.domains.pop(key, None)
    state.origin[key] = "assumed"
    return True


def _narrows(state: Known, tried: Known) -> bool:
    return any(left != state.domain(key) for key, left in tried.domains.items())


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
            quotient = f"{whole} / {ranks} = {whole / ranks:.2f}"
            state.refusal = f"{quotient} is no whole number: the ranks cannot share an expert"
        else:
            _settle(state, "intermediate_per_partition", whole // ranks, f"{whole} / {ranks}")
    shard = values.get("intermediate_per_partition")
    if whole is None and isinstance(shard, int) and isinstance(ranks, int):
        _settle(state, "intermediate", shard * ranks, f"{shard} × {ranks}")
    for first, size in keys.FIRST_SIZES.items():
        if size in values:
            _settle(state, first, values[size], size)


def _settle(state: Known, key: str, value: Concrete, by: str) -> None:
    known_value = state.values.get(key)
    if known_value is None:
        state.values[key] = value
        state.origin[key] = by
    elif known_value != value:
        said = f"`{key}` is {known_value}, but {value} follows from {by}"
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
