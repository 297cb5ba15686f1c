"""The order of releases and of the builds made from them, and sets of releases.

A key is what orders a release, as PEP 440 orders releases: its numbers without trailing zeros
(`0.33.0` → `(0, 33)`); a post-release adds `-1` and its number (`0.9.2.post1` → `(0, 9, 2, -1, 1)`),
which stands after `0.9.2` and before `0.9.2.1`; an epoch is added to the first number, times `EPOCH`.
"""

from __future__ import annotations

from .record import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Key = tuple[int, ...]
Interval = tuple[Key, Key | None]  # from a key up to, not with, another; None: without end

# Above every first number in use: calendar versions such as 20250101 have eight digits.
EPOCH = 10**12
_POST = -1
_LOWEST: Key = (0,)

# What `git describe` prints: the nearest tag, the commits since, the commit. Texts, not compiled: a
# serving process that asks of plain releases alone should not load `re`.
_DESCRIBED = r"(?P<tag>.+)-(?P<commits>\d+)-(?P<commit>g[0-9a-f]+)(?:-dirty)?"
_COMMIT = r"(?:^|[._-])g[0-9a-f]{6,}"
_CLAUSE = r"(?P<operator>[<>=!~]+)\s*(?P<bound>.*)"


class Release(NamedTuple):
    """The release that a version text is treated as."""

    key: Key
    """Orders releases; see the module."""
    text: str
    """The version as it was given."""
    note: str | None = None
    """Says so when `text` is a pre-release or a build, not the release itself."""
    local: str | None = None
    """What stands behind the `+`, or the commits since the tag (`46.gabc`)."""

    def __str__(self) -> str:
        return self.text


def release(text: str) -> Release:
    """The release that `text` is treated as: a pre-release, development or source build of X is X.

    `0.33.1rc1.dev50+gabc` is 0.33.1; `0.1.20-46-gabc`, as `git describe` says it, is 0.1.20.

    Raises:
        ValueError: if `text` is not a version.
    """
    text = text.strip()
    if all(part.isascii() and part.isdecimal() for part in text.split(".")):
        # What nearly every question says; the library takes as long to load as a compiled policy.
        return Release(normal(tuple(map(int, text.split(".")))), text)
    import re

    from packaging.version import InvalidVersion, Version

    described = re.fullmatch(_DESCRIBED, text)
    try:
        version = Version(described["tag"] if described else text)
    except InvalidVersion:
        raise ValueError(f"`{text}` is not a version") from None
    key = normal((version.epoch * EPOCH + version.release[0], *version.release[1:]))
    if version.post is not None:
        key = (*key, _POST, version.post)
    local = f"{described['commits']}.{described['commit']}" if described else version.local
    if version.is_prerelease:
        kind = "pre-release" if version.pre else "development build"
    elif described or re.search(_COMMIT, version.local or ""):
        kind = "source build"
    else:
        return Release(key, text, local=local)
    return Release(key, text, f"{kind} treated as {_release_text(version.base_version, version.post)}", local)


def _release_text(base: str, post: int | None) -> str:
    return base if post is None else f"{base}.post{post}"


def normal(key: Key) -> Key:
    """`key` without the trailing zeros of its release numbers, which order nothing."""
    post = key.index(_POST) if _POST in key else len(key)
    end = post
    while end > 1 and key[end - 1] == 0:
        end -= 1
    return key[:end] + key[post:] if end else _LOWEST


def key_text(key: Key) -> str:
    """The version that `key` stands for, as one writes it."""
    post = key.index(_POST) if _POST in key else len(key)
    epoch, first = divmod(key[0], EPOCH)
    numbers = ".".join(map(str, (first, *key[1:post])))
    return (f"{epoch}!" if epoch else "") + _release_text(numbers, key[post + 1] if key[post:] else None)


def _next(key: Key) -> Key:
    """The key right after `key`: no release stands between the two."""
    return (*key[:-1], key[-1] + 1) if _POST in key else (*key, _POST, 0)


class VersionSet:
    """A set of releases, by key. Equal sets are equal values: intervals in order, none touching the next."""

    __slots__ = ("intervals",)

    intervals: tuple[Interval, ...]

    def __init__(self, intervals: tuple[Interval, ...]) -> None:
        object.__setattr__(self, "intervals", intervals)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a set of releases is frozen")

    def __reduce__(self) -> tuple[object, ...]:
        return VersionSet, (self.intervals,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VersionSet) and self.intervals == other.intervals

    def __hash__(self) -> int:
        return hash(self.intervals)

    def __repr__(self) -> str:
        return f"VersionSet({self})"

    @classmethod
    def all(cls) -> VersionSet:
        """Every release."""
        return cls(((_LOWEST, None),))

    @classmethod
    def empty(cls) -> VersionSet:
        """No release."""
        return cls(())

    @classmethod
    def at_least(cls, key: Key) -> VersionSet:
        """The release and all above it."""
        return cls(((normal(key), None),))

    @classmethod
    def below(cls, key: Key) -> VersionSet:
        """All under the release."""
        return cls(((_LOWEST, normal(key)),)) if normal(key) > _LOWEST else cls.empty()

    @classmethod
    def exactly(cls, key: Key) -> VersionSet:
        """The release alone."""
        key = normal(key)
        return cls(((key, _next(key)),))

    def __and__(self, other: VersionSet) -> VersionSet:
        if len(self.intervals) == len(other.intervals) == 1:
            return _overlap(self.intervals[0], other.intervals[0])
        return self._combine(other, lambda one, two: one and two)

    def __or__(self, other: VersionSet) -> VersionSet:
        return self._combine(other, lambda one, two: one or two)

    def __sub__(self, other: VersionSet) -> VersionSet:
        return self._combine(other, lambda one, two: one and not two)

    def __le__(self, other: VersionSet) -> bool:
        return self & other == self

    def __contains__(self, key: object) -> bool:
        if not isinstance(key, tuple):
            return False
        if key[-1] == 0 or _POST in key:
            key = normal(key)
        # A loop, not `any`: rules ask this for every release condition.
        for low, high in self.intervals:  # noqa: SIM110
            if low <= key and (high is None or key < high):
                return True
        return False

    def isdisjoint(self, other: VersionSet) -> bool:
        """Whether no release is in both."""
        return (self & other).is_empty

    @property
    def is_empty(self) -> bool:
        """Whether no release is in it."""
        return not self.intervals

    @property
    def is_singleton(self) -> bool:
        """Whether exactly one release is in it."""
        return len(self.intervals) == 1 and self.intervals[0][1] == _next(self.intervals[0][0])

    def witness(self) -> Key:
        """The least member.

        Raises:
            ValueError: if there is none.
        """
        if self.is_empty:
            raise ValueError("an empty set has no member")
        return self.intervals[0][0]

    def __str__(self) -> str:
        return " or ".join(map(_interval_text, self.intervals)) or "none"

    def _combine(self, other: VersionSet, keep: Callable[[bool, bool], bool]) -> VersionSet:
        cuts = sorted({cut for cut in self._cuts() + other._cuts() if cut is not None})
        kept = [keep(cut in self, cut in other) for cut in cuts]
        return VersionSet(tuple(_runs(zip(cuts, kept, strict=True))))

    def _cuts(self) -> tuple[Key | None, ...]:
        return tuple(end for interval in self.intervals for end in interval)


def _overlap(one: Interval, two: Interval) -> VersionSet:
    low = max(one[0], two[0])
    high = min((high for high in (one[1], two[1]) if high is not None), default=None)
    return VersionSet(((low, high),)) if high is None or low < high else VersionSet.empty()


def _runs(cuts: Iterable[tuple[Key, bool]]) -> Iterator[Interval]:
    """The intervals over which membership, known from each cut on, holds."""
    start: Key | None = None
    for cut, inside in cuts:
        if inside and start is None:
            start = cut
        elif start is not None and not inside:
            yield start, cut
            start = None
    if start is not None:
        yield start, None


def _interval_text(interval: Interval) -> str:
    low, high = interval
    if high == _next(low):
        return f"=={key_text(low)}"
    bounds = []
    if low > _LOWEST:
        bounds.append(f">{key_text(low[:-2])}" if _is_first_post(low) else f">={key_text(low)}")
    if high is not None:
        bounds.append(f"<={key_text(high[:-2])}" if _is_first_post(high) else f"<{key_text(high)}")
    return ",".join(bounds) or "any"


def _is_first_post(key: Key) -> bool:
    """Whether `key` is the one right after a release, so that it is better said by that release."""
    return key[-2:] == (_POST, 0)


_OPERATORS: dict[str, Callable[[Key], VersionSet]] = {
    ">=": VersionSet.at_least,
    "<": VersionSet.below,
    "==": VersionSet.exactly,
}


def parse_range(text: str) -> VersionSet:
    """The releases for which every clause of `text` holds: `>=`, `<` and `==`, joined by commas.

    A range that no release can meet (`>=0.3,<0.2`) gives the empty set.

    Raises:
        ValueError: if `text` is anything else.
    """
    releases = VersionSet.all()
    for clause in text.split(","):
        releases &= _parse_clause(clause.strip(), text)
    return releases


def _parse_clause(clause: str, text: str) -> VersionSet:
    if not clause:
        raise ValueError(f"empty clause in version range `{text}`")
    import re

    parts = re.fullmatch(_CLAUSE, clause)
    if parts is None:
        raise ValueError(f"version `{clause}` has no operator: write `=={clause}` or `>={clause}`")
    operator, bound = parts["operator"], parts["bound"]
    if operator not in _OPERATORS:
        raise ValueError(f"unknown operator `{operator}` in `{clause}`: only `>=`, `<` and `==` are known")
    if bound.endswith(".*"):
        raise ValueError(f"wildcard in `{clause}`: write the range as `>=…,<…`")
    limit = release(bound)
    if limit.note or limit.local:
        # A build is treated as its release, so a bound inside a release would never hold as written.
        raise ValueError(f"`{bound}` in `{clause}` is a build, not a release: write `{key_text(limit.key)}`")
    return _OPERATORS[operator](limit.key)
