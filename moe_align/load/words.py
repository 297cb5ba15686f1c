"""The `vocabulary:` and `defaults:` blocks of all files → one `Vocabulary`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from .. import facts, schema
from ..errors import Problem, did_you_mean
from ..versions import release
from ..vocabulary import Alias, Term, Vocabulary
from .convert import Context, conditions
from .reader import Document

Source = tuple[Document, schema.PackFile]


def vocabulary(sources: Iterable[Source]) -> Vocabulary:
    """Every value that the files declare, nearest file first; faults go to the documents' problems."""
    sources = list(sources)
    bare = _names_only(sources)
    terms: dict[str, dict[str, Term]] = {}
    declared: dict[tuple[str, str], Document] = {}
    for document, said in sources:
        for key, values in (said.vocabulary or {}).items():
            if not _is_discrete(document, key):
                continue
            terms.setdefault(key, {})
            for value, spec in values.items():
                if isinstance(spec, list):
                    continue
                term = _term(Context(document, bare), key, value, spec or schema.Value())
                _declare(document, terms[key], declared, (key, value), term)
    for key in [key for key in terms if key.startswith("env.")]:
        terms[key].setdefault("unset", Term())
    return Vocabulary(terms, bare.groups, _defaults(sources, bare))


def _names_only(sources: list[Source]) -> Vocabulary:
    """Values, aliases and groups without scopes or implications: enough to look names up."""
    terms: dict[str, dict[str, Term]] = {}
    groups: dict[str, dict[str, tuple[str, ...]]] = {}
    for document, said in sources:
        for key, values in (said.vocabulary or {}).items():
            for value, spec in values.items():
                if isinstance(spec, list):
                    groups.setdefault(key, {})[value.lower()] = _group(document, key, value, spec, values)
                else:
                    names = _alias_names(spec or schema.Value())
                    before = terms.setdefault(key, {}).get(value, Term())
                    more = tuple(Alias(name, value) for name in names)
                    terms[key][value] = Term((*before.aliases, *more))
            terms.setdefault(key, {})
    for key in [key for key in terms if key.startswith("env.")]:
        terms[key].setdefault("unset", Term())
    return Vocabulary(terms, groups, {})


def _alias_names(spec: schema.Value) -> list[str]:
    own = [alias if isinstance(alias, str) else alias.name for alias in spec.aliases]
    return own + [name for names in spec.names.values() for name in names]


def _group(
    document: Document, key: str, name: str, members: list[schema.Scalar], values: Mapping[str, object]
) -> tuple[str, ...]:
    unknown = [str(member) for member in members if str(member) not in values]
    for member in unknown:
        near = did_you_mean(member, values)
        place = document.locate(("vocabulary", key, name))
        fix = f"write `{near}`" if near else f"declare `{member}` beside it"
        document.problems.append(
            Problem("V302", f"group `{name}` names the unknown {key} `{member}`", fix, place)
        )
    return tuple(str(member) for member in members)


def _is_discrete(document: Document, key: str) -> bool:
    if facts.kind(key) == "discrete":
        return True
    near = did_you_mean(key, facts.DISCRETE)
    fix = f"write `{near}`" if near else f"legal are {', '.join(facts.DISCRETE)}, env.NAME and has.NAME"
    place = document.locate(("vocabulary", key), at_key=True)
    document.problems.append(Problem("V301", f"`{key}` is no fact with named values", fix, place))
    return False


def _term(context: Context, key: str, value: str, spec: schema.Value) -> Term:
    path = ("vocabulary", key, value)
    aliases = [
        _alias(context, value, alias, (*path, "aliases", index)) for index, alias in enumerate(spec.aliases)
    ]
    for engine, names in spec.names.items():
        scope = conditions(context, {"engine": engine}, (*path, "names", engine), None)
        aliases += [Alias(name, value, scope) for name in names]
    implies = []
    for other, said in spec.implies.items():
        accepts = conditions(context, {other: said}, (*path, "implies"), None)
        if accepts and not isinstance(accepts[0].accepts, frozenset):
            fix = f"legal are {', '.join(facts.DISCRETE)}"
            context.problem(
                "V303", f"`{other}` cannot be implied", fix, (*path, "implies", other), at_key=True
            )
        implies += [(other, one.accepts) for one in accepts if isinstance(one.accepts, frozenset)]
    return Term(tuple(aliases), tuple(implies), spec.note)


def _alias(
    context: Context, value: str, said: str | schema.ScopedAlias, path: tuple[str | int, ...]
) -> Alias:
    if isinstance(said, str):
        return Alias(said, value)
    return Alias(said.name, value, conditions(context, said.model_extra, path, None))


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
    elif term.implies and term.implies != before.implies:
        place = document.locate(("vocabulary", key, value), at_key=True)
        fix = "leave `implies` out here, or choose another name"
        said = f"{key} `{value}` implies something else in {declared[address].file}"
        document.problems.append(Problem("V304", said, fix, place))
    else:
        terms[value] = before._replace(aliases=(*before.aliases, *term.aliases))


class _Default(NamedTuple):
    value: str | int | None
    wanted: str


def _defaults(sources: list[Source], words: Vocabulary) -> dict[str, str | int]:
    defaults: dict[str, str | int] = {}
    for document, said in sources:
        for key, value in (said.defaults or {}).items():
            default = _default(words, key, value)
            if default.value is None:
                place = document.locate(("defaults", key))
                shown = str(value).lower() if isinstance(value, bool) else value
                document.problems.append(
                    Problem("V305", f"default `{key}: {shown}` is no {default.wanted}", None, place)
                )
            else:
                defaults.setdefault(key, default.value)
    return defaults


def _default(words: Vocabulary, key: str, value: schema.Scalar) -> _Default:
    sort = facts.kind(key)
    if sort == "integer":
        return _Default(
            value if isinstance(value, int) and not isinstance(value, bool) else None, "whole number"
        )
    if sort == "version":
        try:
            return _Default(release(str(value)).text, "release")
        except ValueError:
            return _Default(None, "release")
    if sort == "discrete":
        members = words.members(key, str(value).lower() if isinstance(value, bool) else str(value))
        return _Default(next(iter(members)) if members and len(members) == 1 else None, f"value of `{key}`")
    return _Default(None, "fact")
