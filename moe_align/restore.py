"""The JSON file that `compile` wrote → a policy; needs neither YAML nor pydantic."""

from __future__ import annotations

import os

from .errors import Location, PolicyError, Problem
from .layers import BUILT_IN, Layer, built_in_rules, fingerprint, layers_of
from .packs import (
    DIMENSIONS,
    FORMAT,
    LANGUAGE,
    PHASES,
    Amount,
    Condition,
    Contract,
    Count,
    Demand,
    Multiple,
    Outcome,
    Pack,
    Pad,
    Refine,
    Rule,
)
from .policy import Policy
from .stack import Stack
from .versions import VersionSet
from .vocabulary import Alias, Term, Vocabulary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    from .packs import Accepts

    Plain = dict[str, Any]
    T = TypeVar("T")

_AGAIN = "write it again with `moe-align compile`"

#: What taking apart a file raises that is not as `compile` wrote it.
_DAMAGE = (TypeError, KeyError, ValueError, AttributeError, RecursionError)


def load_compiled(path: str | os.PathLike[str]) -> Policy:
    """The policy of a compiled file; needs neither YAML nor pydantic.

    Raises:
        PolicyError: missing, truncated, of another language version, or older than the rule files.
    """
    shown = os.fspath(path)
    start = Location(shown, 1, 1)
    try:
        with open(path, encoding="utf-8") as stream:
            content = _parsed(stream.read())
    except FileNotFoundError:
        raise PolicyError(
            [Problem("C501", "no such file", "write it with `moe-align compile`", start)]
        ) from None
    except OSError as fault:
        raise PolicyError(
            [Problem("C501", f"cannot be read: {fault.strerror}", "check its rights", start)]
        ) from None
    except (ValueError, RecursionError) as fault:
        place = Location(shown, getattr(fault, "lineno", 1), getattr(fault, "colno", 1))
        raise PolicyError([Problem("C502", "is truncated or no compiled policy", _AGAIN, place)]) from None
    return Policy(_stack_of(content, start))


class _Strict:
    """How the scanner of `json` reads: as `json.loads` does, with nothing but what JSON has."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float
    memo: dict[str, str] = {}  # noqa: RUF012  # the scanner's own, cleared by it


def _parsed(text: str) -> Any:
    """`json.loads`, by its scanner alone where there is one: the rest of `json` loads `re` and `enum`.

    That is half of what a process takes from its start to the first answer of a compiled policy.
    """
    try:
        from _json import make_scanner

        value, end = make_scanner(_Strict)(text, 0)  # type: ignore[arg-type]  # it reads attributes
        if not text[end:].strip():
            return value
    except (ImportError, StopIteration, ValueError):
        # No such scanner, or no such text: `json` says what is wrong with it.
        pass
    import json

    return json.loads(text)


def _stack_of(content: Any, start: Location) -> Stack:
    try:
        head = content["moe_align"]
        said = head["format"], head["language"]
    except (TypeError, KeyError):
        raise PolicyError([Problem("C502", "is no compiled policy", _AGAIN, start)]) from None
    if said != (FORMAT, LANGUAGE):
        message = f"has format {said[0]} of language {said[1]}, not {FORMAT} of {LANGUAGE}"
        raise PolicyError([Problem("C503", message, _AGAIN, start)])
    try:
        layers = tuple(Layer(name, tuple(file for file, _, _ in files)) for name, files in content["layers"])
        _check_fresh(content["layers"], start)
        listed = _Listed(content["conditions"])
        packs = [_pack_from(plain, listed, start) for plain in content["packs"]]
        vocabulary = _vocabulary_from(content["vocabulary"], listed)
        if any(pack.phase not in (None, *PHASES) for pack in packs):
            raise ValueError("no such phase")
    except _DAMAGE as fault:
        if isinstance(fault, PolicyError):
            raise
        raise PolicyError([Problem("C502", "is damaged", _AGAIN, start)]) from None
    phases = {phase: tuple(pack for pack in packs if pack.phase == phase) for phase in PHASES}
    return Stack(vocabulary, phases, tuple(pack for pack in packs if pack.phase is None), layers)


def _check_fresh(layers: list[Any], start: Location) -> None:
    """Refuse a compiled file beside rule files that have changed since; absent ones cannot disagree.

    Raises:
        PolicyError: naming the file that changed.
    """
    built_in = built_in_rules()
    for name, files in layers:
        folder = built_in if name == BUILT_IN else None
        recorded = {_local(folder, file): (length, crc) for file, length, crc in files}
        here = (
            set(layers_of((), environ={})[-1].files)
            if name == BUILT_IN
            else set(filter(os.path.exists, recorded))
        )
        missing = set(recorded) - here if name == BUILT_IN else set()
        changed = sorted(missing | {file for file in here if recorded.get(file) != _fingerprint(file)})
        if changed:
            message = f"is stale: `{os.path.basename(changed[0])}` has changed since"
            raise PolicyError([Problem("C504", message, _AGAIN, start)])


def _fingerprint(file: str) -> tuple[int, int] | None:
    """The fingerprint of a file; `None`, which is that of no file, where it cannot be read."""
    try:
        return fingerprint(file)
    except OSError:
        return None


def _local(folder: str | None, file: str) -> str:
    """Where a file lies here: those of the built-in layer in the `folder` of this installation."""
    return os.path.join(folder, os.path.basename(file)) if folder else file


class _Listed:
    """The conditions of a file, each made once, when something first says its number."""

    __slots__ = ("_made", "_plain")

    def __init__(self, plain: list[Any]) -> None:
        self._plain = plain
        self._made: list[Condition | None] = [None] * len(plain)

    def of(self, numbers: list[int]) -> tuple[Condition, ...]:
        return tuple([self._made[number] or self._make(number) for number in numbers])

    def _make(self, number: int) -> Condition:
        key, text, sort, data = self._plain[number]
        made = self._made[number] = Condition(key, _accepts_from(sort, data), text)
        return made


def _pack_from(plain: Plain, listed: _Listed, start: Location) -> Pack:
    name, phase = plain["name"], plain["phase"]
    rules, contracts = plain["rules"], plain["contracts"]
    return Pack(
        name,
        phase,
        listed.of(plain["needs"]),
        listed.of(plain["covers"]),
        tuple(plain["before"]),
        lambda: _later(rules, lambda one: _rule_from(name, phase, one, listed), start),
        lambda: _later(contracts, lambda one: _contract_from(name, one, listed), start),
        plain["layer"],
        Location(*plain["at"]),
    )


def _later(text: str, made: Callable[[list[Any]], T], start: Location) -> tuple[T, ...]:
    """What a pack holds, once it is asked for.

    Raises:
        PolicyError: the text is damaged.
    """
    try:
        return tuple(map(made, _parsed(text)))
    except _DAMAGE:
        raise PolicyError([Problem("C502", "is damaged", _AGAIN, start)]) from None


def _rule_from(name: str, phase: str, plain: list[Any], listed: _Listed) -> Rule:
    rule, when, unless, outcome, why, source, evidence, at = plain
    conditions = listed.of(when), listed.of(unless)
    return Rule(name, rule, phase, *conditions, _outcome_from(outcome), why, source, evidence, Location(*at))


def _contract_from(name: str, plain: list[Any], listed: _Listed) -> Contract:
    contract, when, unless, facts, demands, breaks, why, source, evidence, at = plain
    return Contract(
        name,
        contract,
        listed.of(when),
        listed.of(unless),
        tuple(map(_demand_from, demands)),
        breaks,
        why,
        source,
        evidence,
        Location(*at),
        listed.of(facts),
    )


def _multiple_from(plain: list[Any] | None) -> Multiple | None:
    return None if plain is None else Multiple(plain[0], tuple(plain[1]), plain[2])


def _outcome_from(plain: Plain) -> Outcome:
    fields = dict(plain)
    for name in DIMENSIONS:
        if name in fields:
            fields[name] = _multiple_from(fields[name])
    if "add" in fields:
        fields["add"] = tuple((name, Amount(*amount)) for name, amount in fields["add"])
    if "pads" in fields:
        hidden, intermediate = fields["pads"]
        fields["pads"] = (Pad(*hidden), Pad(*intermediate))
    if "refine" in fields:
        blocks, fits, floor = fields["refine"]
        fields["refine"] = Refine(tuple(blocks), fits, floor)
    if "otherwise" in fields:
        fields["otherwise"] = _outcome_from(fields["otherwise"])
    if "counted" in fields:
        fields["counted"] = Count(*fields["counted"])
    for name in ("rows", "columns"):
        if name in fields:
            fields[name] = tuple(map(tuple, fields[name]))
    return Outcome(**fields)


def _demand_from(plain: list[Any]) -> Demand:
    of, multiples, exactly, *rest = plain
    return Demand(
        of, tuple(Multiple(op, tuple(items), least) for op, items, least in multiples), tuple(exactly), *rest
    )


def _vocabulary_from(plain: Plain, listed: _Listed) -> Vocabulary:
    terms = {
        key: {value: _term_from(term, listed) for value, term in values.items()}
        for key, values in plain["terms"].items()
    }
    groups = {
        key: {name: tuple(members) for name, members in named.items()}
        for key, named in plain["groups"].items()
    }
    return Vocabulary(terms, groups, plain["defaults"])


def _term_from(plain: list[Any], listed: _Listed) -> Term:
    aliases, implies, note = plain
    return Term(
        tuple(Alias(name, value, listed.of(scope)) for name, value, scope in aliases),
        tuple((key, frozenset(accepts)) for key, accepts in implies),
        note,
    )


def _accepts_from(sort: str, data: list[Any]) -> Accepts:
    if sort == "values":
        return frozenset(data)
    if sort == "integers":
        from .space import Ints
        from .space.pieces import Piece

        return Ints(tuple(Piece(low, high, modulus, int(mask, 16)) for low, high, modulus, mask in data))
    return VersionSet(tuple((tuple(low), None if high is None else tuple(high)) for low, high in data))
