"""The conditions of a document: facts and values are looked up, sets of them are made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from .. import facts, packs
from ..errors import Location, Problem, did_you_mean
from ..space import Ints
from ..versions import VersionSet, parse_range
from ..vocabulary import Vocabulary
from .reader import Document

Path = tuple[str | int, ...]


class Context(NamedTuple):
    """What the conversion of one document needs: the document and the words of all layers.

    `read` has the conditions that are made of names alone, by what stands in the files: packs repeat them.
    """

    document: Document
    vocabulary: Vocabulary
    read: dict[tuple[str, ...], packs.Condition]

    def problem(
        self,
        code: str,
        message: str,
        fix: str | None,
        path: Path,
        rule: str | None = None,
        at_key: bool = False,
    ) -> None:
        place = self.document.locate(path, at_key)
        self.document.problems.append(Problem(code, message, fix, place, rule))

    def place(self, *path: str | int) -> Location:
        return self.document.locate(path)


def covers(context: Context, said: Mapping[str, str]) -> tuple[packs.Condition, ...]:
    covers = []
    for key, text in said.items():
        if facts.kind(key) != "version":
            legal = ", ".join(facts.VERSIONS)
            context.problem(
                "R234",
                f"`{key}` is no release that a pack can cover",
                f"legal are {legal}",
                ("covers", key),
                at_key=True,
            )
            continue
        releases = _versions(context, key, text, ("covers", key), None)
        if releases is not None:
            covers.append(packs.Condition(key, releases, text))
    return tuple(covers)


def conditions(
    context: Context, said: Mapping[str, object] | None, path: Path, rule: str | None
) -> tuple[packs.Condition, ...]:
    """The conditions of a `when`, `unless` or `for`."""
    if not said:
        return ()
    made = [_condition(context, key, value, (*path, key), rule) for key, value in said.items()]
    return tuple([condition for condition in made if condition is not None])


def _condition(
    context: Context, key: str, said: object, path: Path, rule: str | None
) -> packs.Condition | None:
    names = _names_of(key, said)
    if names in context.read:
        return context.read[names]
    sort = facts.kind(key)
    if sort is None or (key.partition(".")[0] in facts.NAMESPACES and key not in context.vocabulary.terms):
        _unknown_fact(context, key, path, rule)
        return None
    accepts: packs.Accepts | None
    if sort == "version":
        accepts = _versions(context, key, said, path, rule)
    elif sort == "integer":
        accepts = _integers(context, key, said, path, rule)
    else:
        accepts = _values(context, key, said, path, rule)
    if accepts is None:
        return None
    condition = packs.Condition(key, accepts, _text(said))
    if names:
        context.read[names] = condition
    return condition


def _names_of(key: str, said: object) -> tuple[str, ...]:
    """What stands in the file, if it is text or a list of it: only of these are equal ones alike."""
    if type(said) is str:
        return key, said
    return (key, *said) if type(said) is list and all(type(one) is str for one in said) else ()


def _unknown_fact(context: Context, key: str, path: Path, rule: str | None) -> None:
    namespaced = [name for name in context.vocabulary.terms if "." in name]
    if key.partition(".")[0] in facts.NAMESPACES and "." in key:
        near = did_you_mean(key, namespaced)
        values = "{}" if key.startswith("has.") else '{"1": {}}'
        fix = f"write `{near}`" if near else f"declare it: `vocabulary: {{{key}: {values}}}`"
        context.problem("R202", f"undeclared fact `{key}`", fix, path, rule, at_key=True)
        return
    near = did_you_mean(key, [*facts.keys(), *namespaced])
    fix = f"write `{near}`" if near else "see `moe-align list facts`"
    context.problem("R201", f"unknown fact `{key}`", fix, path, rule, at_key=True)


def _given(said: object) -> str:
    """What stands in the file, as messages show it."""
    if isinstance(said, list):
        return "a list"
    if isinstance(said, dict):
        return f"`not {_text(said['not'])}`" if "not" in said else "bounds"
    return f"`{_text(said)}`"


def _text(said: object) -> str:
    if isinstance(said, dict):
        if "not" in said:
            return f"not {_text(said['not'])}"
        return " and ".join(words.format(said[bound]) for bound, words in _BOUNDS.items() if bound in said)
    if isinstance(said, list):
        return ", ".join(map(_text, said))
    return str(said).lower() if isinstance(said, bool) else str(said)


_BOUNDS = {"min": "≥ {}", "max": "≤ {}", "multiple_of": "a multiple of {}"}


def _versions(context: Context, key: str, said: object, path: Path, rule: str | None) -> VersionSet | None:
    if not isinstance(said, str):
        context.problem(
            "R205",
            f"`{key}` is {_given(said)}, not a range of releases",
            _RANGE,
            path,
            rule,
        )
        return None
    try:
        releases = parse_range(said)
    except ValueError as fault:
        message, advised, fix = str(fault).partition(": write ")
        context.problem("R205", message, f"write {fix}" if advised else _RANGE, path, rule)
        return None
    if releases.is_empty:
        fix = "turn the bounds round, or leave one out"
        context.problem("R206", f"no release is in `{said}`", fix, path, rule)
        return None
    return releases


_RANGE = 'write it like ">=0.28,<0.33"'


def _integers(context: Context, key: str, said: object, path: Path, rule: str | None) -> Ints | None:
    if isinstance(said, dict):
        if "not" not in said:
            return _bounds(context, key, said, path, rule)
        excluded = _integers(context, key, said["not"], (*path, "not"), rule)
        return None if excluded is None else Ints.all() - excluded
    numbers = said if isinstance(said, list) else [said]
    right = True
    for index, number in enumerate(numbers):
        fault = _no_number(number)
        if fault is not None:
            right = False
            where = (*path, index) if isinstance(said, list) else path
            context.problem("R207", f"`{key}` is {_given(number)}, {fault[0]}", fault[1], where, rule)
    return Ints.of(*numbers) if right else None


def _no_number(said: object) -> tuple[str, str] | None:
    """What is wrong with an integer of a condition, and its fix."""
    if isinstance(said, int) and not isinstance(said, bool):
        return ("below 0", "give an integer of at least 0") if said < 0 else None
    if isinstance(said, str) and said.isdigit():
        return "which is text", f"write `{said}`, without quotes"
    return "not a whole number", "write an integer, a list of them, or bounds like `{min: 1}`"


def _bounds(context: Context, key: str, said: Mapping[str, int], path: Path, rule: str | None) -> Ints | None:
    if not said:
        context.problem("R208", f"`{key}` has no bound", "give `min`, `max` or `multiple_of`", path, rule)
        return None
    least, most = said.get("min", 0), said.get("max")
    numbers = Ints.between(least, most)
    if "multiple_of" in said:
        numbers &= Ints.multiples(said["multiple_of"])
    if numbers.is_empty:
        crossed = most is not None and least > most
        fix = "turn the bounds round" if crossed else "widen the bounds"
        context.problem("R206", f"no number is {_text(said)}", fix, path, rule)
        return None
    return numbers


def _values(context: Context, key: str, said: object, path: Path, rule: str | None) -> frozenset[str] | None:
    if isinstance(said, dict) and "not" not in said:
        context.problem(
            "R209",
            f"`{key}` has names for values, no bounds",
            "write a value or a list of values",
            path,
            rule,
        )
        return None
    if isinstance(said, dict):
        excluded = _values(context, key, said["not"], (*path, "not"), rule)
        if excluded is None:
            return None
        left = context.vocabulary.domain(key) - excluded
        if not left:
            context.problem("R206", f"no value of `{key}` is left", "take one out of the list", path, rule)
        return left or None
    found: set[str] = set()
    known = True
    for index, name in enumerate(said) if isinstance(said, list) else ((None, said),):
        members = context.vocabulary.members(key, _text(name))
        where = path if index is None else (*path, index)
        if members is None:
            known = False
            context.problem(
                "R203",
                f"unknown {key} `{_text(name)}`",
                context.vocabulary.suggestion(key, _text(name)),
                where,
                rule,
            )
        else:
            found |= members
    return frozenset(found) if known else None
