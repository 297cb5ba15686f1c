"""The `vocabulary:` and `defaults:` blocks of all files → one `Vocabulary`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from .. import facts, schema
from ..errors import Problem, did_you_mean
from ..packs import Condition
from ..versions import release
from ..vocabulary import Alias, Term, Vocabulary
from .conditions import Context, conditions
from .reader import Document

Source = tuple[Document, schema.PackFile]


def vocabulary(sources: Iterable[Source]) -> Vocabulary:
    """Every value that the files declare, nearest file first; faults go to the documents' problems."""
    sources = list(sources)
    bare = _names_only(sources)
    terms: dict[str, dict[str, Term]] = {}
    declared: dict[tuple[str, str], Document] = {}
    read: dict[tuple[str, ...], Condition] = {}
    for document, said in sources:
        for key, values in (said.get("vocabulary") or {}).items():
            if not _is_discrete(document, key):
                continue
            terms.setdefault(key, {})
            for value, spec in values.items():
                if isinstance(spec, list):
                    continue
                term = _term(Context(document, bare, read), key, value, spec or {})
                _declare(document, terms[key], declared, (key, value), term)
    for key in [key for key in terms if key.startswith("env.")]:
        terms[key].setdefault("unset", Term())
    _check_names(sources, terms, bare.groups)
    return Vocabulary(terms, bare.groups, _defaults(sources, bare))


def _names_only(sources: list[Source]) -> Vocabulary:
    """Values, aliases and groups without scopes or implications: enough to look names up."""
    terms: dict[str, dict[str, Term]] = {}
    listed: list[tuple[Document, str, str, list[schema.Scalar]]] = []
    for document, said in sources:
        for key, values in (said.get("vocabulary") or {}).items():
            for value, spec in values.items():
                if isinstance(spec, list):
                    listed.append((document, key, value, spec))
                else:
                    names = _alias_names(spec or {})
                    before = terms.setdefault(key, {}).get(value, Term())
                    more = tuple(Alias(name, value) for name in names)
                    terms[key][value] = Term((*before.aliases, *more))
            terms.setdefault(key, {})
    for key in [key for key in terms if key.startswith("env.")]:
        terms[key].setdefault("unset", Term())
    groups: dict[str, dict[str, tuple[str, ...]]] = {}
    for document, key, name, members in listed:
        group = _group(document, key, name, members, terms[key])
        groups.setdefault(key, {}).setdefault(name.lower(), group)
    return Vocabulary(terms, groups, {})


def _alias_names(spec: schema.Value) -> list[str]:
    own = [alias if isinstance(alias, str) else alias["name"] for alias in spec.get("aliases") or ()]
    return own + [name for names in (spec.get("names") or {}).values() for name in names]


def _group(
    document: Document, key: str, name: str, members: list[schema.Scalar], values: Mapping[str, object]
) -> tuple[str, ...]:
    for index, member in enumerate(map(str, members)):
        if member in values:
            continue
        near = did_you_mean(member, values)
        place = document.locate(("vocabulary", key, name, index))
        fix = f"write `{near}`" if near else f"declare `{member}` as a value"
        document.problems.append(
            Problem("V302", f"group `{name}` names the unknown {key} `{member}`", fix, place)
        )
    return tuple(str(member) for member in members)


def _is_discrete(document: Document, key: str) -> bool:
    if facts.kind(key) == "discrete":
        return True
    near = did_you_mean(key, facts.DISCRETE)
    fix = f"write `{near}`" if near else "see `moe-align list facts`"
    place = document.locate(("vocabulary", key), at_key=True)
    document.problems.append(Problem("V301", f"`{key}` is no fact with named values", fix, place))
    return False


def _term(context: Context, key: str, value: str, spec: schema.Value) -> Term:
    path = ("vocabulary", key, value)
    aliases = [
        _alias(context, value, alias, (*path, "aliases", index))
        for index, alias in enumerate(spec.get("aliases") or ())
    ]
    for engine, names in (spec.get("names") or {}).items():
        scope = conditions(context, {"engine": engine}, (*path, "names", engine), None)
        aliases += [Alias(name, value, scope) for name in names]
    implies = []
    for other, said in (spec.get("implies") or {}).items():
        accepts = conditions(context, {other: said}, (*path, "implies"), None)
        if accepts and not isinstance(accepts[0].accepts, frozenset):
            fix = "imply only facts with named values, such as `platform`"
            context.problem(
                "V303", f"`{other}` cannot be implied", fix, (*path, "implies", other), at_key=True
            )
        implies += [(other, one.accepts) for one in accepts if isinstance(one.accepts, frozenset)]
    return Term(tuple(aliases), tuple(implies), spec.get("note"))


def _alias(
    context: Context, value: str, said: str | schema.ScopedAlias, path: tuple[str | int, ...]
) -> Alias:
    if isinstance(said, str):
        return Alias(said, value)
    scope = {key: accepts for key, accepts in said.items() if key != "name"}
    return Alias(said["name"], value, conditions(context, scope, path, None))


def _declare(
    document: Document,
    terms: dict[str, Term],
    declared: dict[tuple[str, str], Document],
    address: tuple[str, str],
    term: Term,
) -> None:
    key, value = address
    before = terms.get(value)
    if before is None:
        terms[value] = term
        declared[address] = document
        return
    if before.implies and term.implies and set(before.implies) != set(term.implies):
        # The nearer file is the one to change: what lies under it was there before.
        nearer = declared[address]
        place = nearer.locate(("vocabulary", key, value), at_key=True)
        fix = "leave `implies` out here, or choose another name"
        said = f"{key} `{value}` implies something else in {document.file}"
        nearer.problems.append(Problem("V304", said, fix, place))
    aliases = tuple(dict.fromkeys((*before.aliases, *term.aliases)))
    terms[value] = Term(aliases, before.implies or term.implies, before.note or term.note)


def _check_names(
    sources: list[Source],
    terms: Mapping[str, Mapping[str, Term]],
    groups: Mapping[str, Mapping[str, tuple[str, ...]]],
) -> None:
    """Tell names that could never be understood, in the nearest file: names are read whatever their case."""
    told: set[tuple[str, str]] = set()
    for document, said in sources:
        for key, values in (said.get("vocabulary") or {}).items():
            own = {value.lower(): value for value in terms.get(key, ())}
            for value, spec in values.items():
                clash = _clash(key, value, isinstance(spec, list), own, groups.get(key, {}))
                if clash is None:
                    if isinstance(spec, dict) and key in terms:
                        _check_aliases(document, terms[key], (key, value), spec)
                elif (key, value.lower()) not in told:
                    told.add((key, value.lower()))
                    place = document.locate(("vocabulary", key, value), at_key=True)
                    document.problems.append(Problem("V306", *clash, place))


def _clash(
    key: str, value: str, is_group: bool, own: Mapping[str, str], groups: Mapping[str, object]
) -> tuple[str, str] | None:
    """What is wrong with the name of a value or group, and the fix."""
    name = value.lower()
    if key in facts.BOOLEANS or key.startswith("has."):
        return None if value in ("true", "false") else (f"`{key}` is `true` or `false`", "leave it out")
    if name in own and name in groups:
        return f"`{value}` is a group and a value", "choose another name"
    if not is_group and own.get(name, value) != value:
        return f"`{value}` and `{own[name]}` differ in case alone", "keep one of them"
    return None


def _check_aliases(
    document: Document, terms: Mapping[str, Term], address: tuple[str, str], spec: schema.Value
) -> None:
    key, value = address
    for index, alias in enumerate(spec.get("aliases") or ()):
        if not isinstance(alias, str):
            continue
        others = [other for other, term in terms.items() if other != value and _is_named(other, term, alias)]
        if others:
            place = document.locate(("vocabulary", key, value, "aliases", index))
            fix = "leave one out, or say where it is valid: `{name: …, engine: …}`"
            message = f"alias `{alias}` of `{value}` is a name of `{others[0]}` too"
            document.problems.append(Problem("V307", message, fix, place))


def _is_named(value: str, term: Term, name: str) -> bool:
    """Whether a value is called by a name wherever it is asked for."""
    always = [alias.name.lower() for alias in term.aliases if not alias.scope]
    return name.lower() == value.lower() or name.lower() in always


_NEVER_ASSUMED = frozenset({*facts.SIZES, *facts.FIRST_SIZES, "intermediate"})


class _Default(NamedTuple):
    """The value of a default, or what it should have been."""

    value: str | int | None
    wanted: str = ""
    fix: str | None = None


def _defaults(sources: list[Source], words: Vocabulary) -> dict[str, str | int]:
    defaults: dict[str, str | int] = {}
    for document, said in sources:
        for key, value in (said.get("defaults") or {}).items():
            default = _default(words, key, value)
            if default.value is None:
                place = document.locate(("defaults", key))
                message = f"default `{key}: {_text(value)}` is no {default.wanted}"
                document.problems.append(Problem("V305", message, default.fix, place))
            else:
                defaults.setdefault(key, default.value)
    return defaults


def _default(words: Vocabulary, key: str, value: schema.Scalar) -> _Default:
    sort = facts.kind(key)
    if key in _NEVER_ASSUMED:
        return _Default(None, "fact that can be assumed", "leave it out: sizes are given, or open")
    if sort == "integer":
        number = value if isinstance(value, int) and not isinstance(value, bool) else None
        lowest = facts.lowest(key)
        fits = number is not None and number >= lowest
        return _Default(number if fits else None, "whole number", f"write an integer ≥ {lowest}")
    if sort == "version":
        try:
            return _Default(release(str(value)).text)
        except ValueError:
            return _Default(None, "release", "write it like `0.33.0`, in quotes")
    if sort == "discrete":
        members = words.members(key, _text(value))
        if members is None:
            return _Default(None, f"value of `{key}`", words.suggestion(key, _text(value)))
        if len(members) > 1:
            return _Default(None, f"one value of `{key}`", f"write one of {', '.join(sorted(members))}")
        return _Default(next(iter(members)))
    near = did_you_mean(key, facts.keys())
    return _Default(None, "fact", f"write `{near}`" if near else "see `moe-align list facts`")


def _text(value: schema.Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
