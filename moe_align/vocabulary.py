"""The values that discrete facts may take: names, aliases, groups, what they imply, what is assumed.

All of it is data, from `vocabulary:` and `defaults:` of the packs; this room only looks things up.
"""

from __future__ import annotations

from . import facts
from .errors import PolicyError, Problem, did_you_mean
from .record import NamedTuple
from .versions import release

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from .packs import Condition


class Alias(NamedTuple):
    """Another name of a value, valid where all of `scope` holds."""

    name: str
    value: str
    scope: tuple[Condition, ...] = ()


class Term(NamedTuple):
    """One value of a discrete fact: its aliases, and what it implies of other facts."""

    aliases: tuple[Alias, ...] = ()
    implies: tuple[tuple[str, frozenset[str]], ...] = ()
    note: str | None = None


class Vocabulary:
    """Every value of every discrete fact, and the facts that are assumed when nothing is said.

    `terms` maps fact → value → `Term`, `groups` fact → group → the values it stands for, `names`
    fact → lower-case name → everything that it may mean, `defaults` fact → value as it was written.
    `assumptions` are the defaults as conditions compare them, with every switch unset and every
    capability absent; `linked` are the facts that imply others or are implied. Frozen.
    """

    __slots__ = ("_implying", "assumptions", "defaults", "groups", "linked", "names", "terms")

    def __init__(
        self,
        terms: Mapping[str, Mapping[str, Term]],
        groups: Mapping[str, Mapping[str, tuple[str, ...]]],
        defaults: Mapping[str, str | int],
    ) -> None:
        self.terms = terms
        self.groups = groups
        self.defaults = defaults
        self.names = lookup_table(terms)
        self._implying = _implying(terms)
        self.linked = frozenset(self._implying) | frozenset(
            key for implying in self._implying.values() for key in implying
        )
        self.assumptions = _assumptions(terms, defaults)

    def __reduce__(self) -> tuple[object, ...]:
        return (Vocabulary, (self.terms, self.groups, self.defaults))

    def implying(self, key: str) -> tuple[str, ...]:
        """The facts of which some value implies something of `key`."""
        return self._implying.get(key, ())

    def domain(self, key: str) -> frozenset[str]:
        """Every value that the fact may take; empty for a fact without declared values."""
        if key in facts.BOOLEANS or key.startswith("has."):
            return _BOOLEAN
        return frozenset(self.terms.get(key, ()))

    def implied(self, key: str, value: str) -> tuple[tuple[str, frozenset[str]], ...]:
        term = self.terms.get(key, _NOTHING).get(value)
        return term.implies if term else ()

    def members(self, key: str, name: str) -> frozenset[str] | None:
        """The values that a name in a rule file stands for (a value or a group), or `None`.

        A value's own name stands for itself, an alias for all the values that it has meant anywhere.
        """
        if key in facts.BOOLEANS or key.startswith("has."):
            return frozenset({name}) if name in _BOOLEAN else None
        group = self.groups.get(key, _NOTHING).get(name.lower())
        if group is not None:
            return frozenset(group)
        found = self.names.get(key, _NOTHING).get(name.lower(), ())
        own = [alias.value for alias in found if alias.value.lower() == name.lower()]
        return frozenset(own or [alias.value for alias in found]) or None

    def suggestion(self, key: str, name: str) -> str:
        """The fix for an unknown value: the nearest one, or the legal ones."""
        legal = self.domain(key) | frozenset(self.groups.get(key, ()))
        near = did_you_mean(name, legal | frozenset(self.names.get(key, ())))
        if near:
            return f"write `{near}`"
        if not legal:
            return f"declare it: `vocabulary: {{{key}: {{{name}: {{}}}}}}` in a pack"
        shown = sorted(legal)
        more = f" (and {len(shown) - 12} more: `moe-align list {key}`)" if len(shown) > 12 else ""
        return f"legal are {', '.join(shown[:12])}{more}"

    def without_implications(self) -> Vocabulary:
        """The same names, with no value implying another."""
        terms = {
            key: {value: term._replace(implies=()) for value, term in values.items()}
            for key, values in self.terms.items()
        }
        return Vocabulary(terms, self.groups, self.defaults)


_BOOLEAN = frozenset({"true", "false"})
_NOTHING: Mapping[str, Any] = {}


def name_of(vocabulary: Vocabulary, key: str, name: str, known: Mapping[str, object]) -> str:
    """The value that a caller means by `name`, given what else is known of the layer.

    Raises:
        PolicyError: no such value, a name out of its scope, a group, or a name that still may mean
            several values.
    """
    if key in facts.BOOLEANS or key.startswith("has."):
        return _boolean(key, name)
    candidates = vocabulary.names.get(key, _NOTHING).get(name.lower(), ())
    if not candidates:
        raise PolicyError([_unknown(vocabulary, key, name)])
    fitting = {alias.value for alias in candidates if _may_hold(alias.scope, known)}
    surely = {alias.value for alias in candidates if alias.scope and _holds(alias.scope, known)}
    own = fitting & {value for value in fitting if value.lower() == name.lower()}
    for chosen in (surely, own, fitting):
        if len(chosen) == 1:
            return chosen.pop()
    if not fitting:
        scopes = " or ".join(sorted({_scope_text(alias.scope) for alias in candidates}))
        raise PolicyError(
            [Problem("F012", f"`{name}` is a `{key}` only where {scopes}", "correct one of the two facts")]
        )
    values = ", ".join(f"`{value}`" for value in sorted(fitting))
    raise PolicyError(
        [
            Problem(
                "F013",
                f"`{name}` may mean {values} here",
                f"write one of {values}, or say which release and scheme",
            )
        ]
    )


def _boolean(key: str, name: str) -> str:
    if name.lower() in _BOOLEAN:
        return name.lower()
    raise PolicyError([Problem("F010", f"`{key}` is `{name}`", "write `true` or `false`")])


def _unknown(vocabulary: Vocabulary, key: str, name: str) -> Problem:
    group = vocabulary.groups.get(key, _NOTHING).get(name.lower())
    if group is not None:
        return Problem(
            "F011", f"`{name}` is a group of `{key}`, not one value", f"write one of {', '.join(group)}"
        )
    if key.startswith("env.") and not vocabulary.domain(key):
        declared = [fact for fact in vocabulary.terms if fact.startswith("env.")]
        near = did_you_mean(key, declared)
        return Problem(
            "F014", f"no pack knows the switch `{key[4:]}`", f"write `{near[4:]}`" if near else None
        )
    return Problem("F010", f"unknown {key} `{name}`", vocabulary.suggestion(key, name))


def _may_hold(scope: tuple[Condition, ...], known: Mapping[str, object]) -> bool:
    return all(condition.key not in known or known[condition.key] in condition.accepts for condition in scope)


def _holds(scope: tuple[Condition, ...], known: Mapping[str, object]) -> bool:
    return all(condition.key in known and known[condition.key] in condition.accepts for condition in scope)


def _scope_text(scope: tuple[Condition, ...]) -> str:
    return " and ".join(f"{condition.key} is {condition.text}" for condition in scope) or "anything holds"


def concrete(key: str, value: str | int) -> str | int | tuple[int, ...]:
    """A given value as conditions compare it: releases become keys that order, the rest stays.

    Raises:
        PolicyError: a version that is none.
    """
    if key not in facts.VERSIONS:
        return value
    try:
        return release(str(value)).key
    except ValueError as fault:
        raise PolicyError(
            [Problem("F015", f"`{key}` is `{value}`: {fault}", "write it like `0.33.0`")]
        ) from None


def _implying(terms: Mapping[str, Mapping[str, Term]]) -> dict[str, tuple[str, ...]]:
    found: dict[str, set[str]] = {}
    for key, values in terms.items():
        for term in values.values():
            for other, _ in term.implies:
                found.setdefault(other, set()).add(key)
    return {key: tuple(sorted(implying)) for key, implying in found.items()}


def _assumptions(
    terms: Mapping[str, Mapping[str, Term]], defaults: Mapping[str, str | int]
) -> dict[str, str | int | tuple[int, ...]]:
    assumed = {key: concrete(key, value) for key, value in defaults.items()}
    for key in terms:
        if key.startswith("env."):
            assumed.setdefault(key, "unset")
        elif key.startswith("has."):
            assumed.setdefault(key, "false")
    return assumed


def lookup_table(terms: Mapping[str, Mapping[str, Term]]) -> dict[str, dict[str, tuple[Alias, ...]]]:
    """Fact → lower-case name → everything that it may mean, values' own names among them."""
    table: dict[str, dict[str, tuple[Alias, ...]]] = {}
    for key, values in terms.items():
        names = table.setdefault(key, {})
        for value, term in values.items():
            for alias in (Alias(value, value), *term.aliases):
                names[alias.name.lower()] = (*names.get(alias.name.lower(), ()), alias)
    return table
