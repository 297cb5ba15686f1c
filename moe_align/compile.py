"""The compiled forms: one JSON file that needs no YAML, the digest, and the table behind `bind`."""

from __future__ import annotations

import json
import os
import zlib
from types import MethodType

from . import facts as keys
from .errors import Location, PolicyError, Problem
from .facts import keys as every_key
from .flow import entering, facts_of
from .known import known
from .layers import BUILT_IN, Layer, built_in_rules, layers_of
from .packs import (
    DIMENSIONS,
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
from .resolve import NO, leaves, verdict
from .stack import Stack
from .versions import VersionSet
from .vocabulary import Alias, Term, Vocabulary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, TypeVar

    from .facts import Facts
    from .flow import Dimension
    from .known import Known
    from .packs import Accepts

    Plain = dict[str, Any]
    T = TypeVar("T")

#: The shape of the compiled file; another shape is refused.
FORMAT = 2
LANGUAGE = 1

_AGAIN = "write it again with `moe-align compile`"

#: So many combinations of facts are kept by one bound function; above that it starts anew.
MOST_BOUND = 4096


def digest(stack: Stack) -> str:
    """SHA-256 over ordered, normalised rules, contracts and vocabulary, without ids, prose and places."""
    from hashlib import sha256

    content = {
        "phases": {phase: [_meaning(pack) for pack in stack.phases[phase]] for phase in PHASES},
        "contracts": sorted(
            json.dumps([_conditions(pack.needs), _contract_meaning(contract)], sort_keys=True)
            for pack in stack.contracts
            for contract in pack.contracts
        ),
        "vocabulary": _vocabulary_meaning(stack.vocabulary),
    }
    return sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _meaning(pack: Pack) -> Plain:
    return {
        "needs": _conditions(pack.needs),
        "covers": _conditions(pack.covers),
        "rules": [
            [
                _conditions(rule.when),
                _conditions(rule.unless),
                _outcome(_without_prose(rule.outcome)),
            ]
            for rule in pack.rules
        ],
    }


def _without_prose(outcome: Outcome) -> Outcome:
    """The outcome as far as it decides: a backend does, the reason of a rejection does not."""
    otherwise = outcome.otherwise and _without_prose(outcome.otherwise)
    target = outcome.target if outcome.form == "use" else None
    return outcome._replace(target=target, otherwise=otherwise)


def _contract_meaning(contract: Contract) -> list[Any]:
    demands = [[*demand._replace(multiples=()), _multiples(demand.multiples)] for demand in contract.demands]
    named = _conditions(contract.when), _conditions(contract.unless), _conditions(contract.facts)
    return [*named, demands, contract.breaks]


def _multiples(multiples: Iterable[Multiple]) -> list[Any]:
    return [[multiple.op, list(multiple.items), multiple.at_least] for multiple in multiples]


def _vocabulary_meaning(vocabulary: Vocabulary) -> Plain:
    return {
        "terms": {
            key: {
                value: sorted([other, sorted(accepts)] for other, accepts in term.implies)
                for value, term in values.items()
            }
            for key, values in vocabulary.terms.items()
        },
        "names": {
            key: {
                name: sorted(json.dumps([alias.value, _conditions(alias.scope)]) for alias in aliases)
                for name, aliases in names.items()
            }
            for key, names in vocabulary.names.items()
        },
        "assumptions": {key: str(value) for key, value in vocabulary.assumptions.items()},
    }


def _conditions(conditions: Iterable[Condition]) -> list[Any]:
    """Conditions in an order that does not depend on how they were written."""
    return sorted(([key, *_accepts(accepts)] for key, accepts, _ in conditions), key=json.dumps)


def _accepts(accepts: Accepts) -> list[Any]:
    if isinstance(accepts, frozenset):
        return ["values", sorted(accepts)]
    if isinstance(accepts, VersionSet):
        ends = [[list(low), None if high is None else list(high)] for low, high in accepts.intervals]
        return ["versions", ends]
    return ["integers", [[low, high, modulus, hex(mask)] for low, high, modulus, mask in accepts.pieces]]


def _accepts_from(sort: str, data: list[Any]) -> Accepts:
    if sort == "values":
        return frozenset(data)
    if sort == "integers":
        from .space import Ints
        from .space.pieces import Piece

        return Ints(tuple(Piece(low, high, modulus, int(mask, 16)) for low, high, modulus, mask in data))
    return VersionSet(tuple((tuple(low), None if high is None else tuple(high)) for low, high in data))


def _outcome(outcome: Outcome) -> Plain:
    """The fields that differ from what an outcome has without them."""
    plain: Plain = {
        name: value
        for name, value in zip(Outcome._fields, outcome, strict=True)
        if value != Outcome._field_defaults.get(name)
    }
    if outcome.otherwise is not None:
        plain["otherwise"] = _outcome(outcome.otherwise)
    return plain


def compiled(policy: Policy) -> str:
    """The policy as the text of one JSON file."""
    stack = policy.stack
    content = {
        "moe_align": {"format": FORMAT, "language": LANGUAGE},
        "digest": policy.digest,
        "layers": [[layer.name, [[file, *_print(file)] for file in layer.files]] for layer in stack.layers],
        "packs": [_plain_pack(pack) for pack in _all_packs(stack)],
        "vocabulary": {
            "terms": {
                key: {value: _plain_term(term) for value, term in values.items()}
                for key, values in stack.vocabulary.terms.items()
            },
            "groups": stack.vocabulary.groups,
            "defaults": stack.vocabulary.defaults,
        },
    }
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False) + "\n"


def _all_packs(stack: Stack) -> list[Pack]:
    return [*(pack for phase in stack.phases.values() for pack in phase), *stack.contracts]


def _print(file: str) -> tuple[int, int]:
    """Length and CRC-32 of a file: enough to see that it was edited."""
    with open(file, "rb") as stream:
        data = stream.read()
    return len(data), zlib.crc32(data)


def _plain_pack(pack: Pack) -> Plain:
    return {
        "name": pack.name,
        "phase": pack.phase,
        "layer": pack.layer,
        "at": list(_place(pack.location)),
        "needs": _plain_conditions(pack.needs),
        "covers": _plain_conditions(pack.covers),
        "before": pack.before,
        # As text, so that a process takes apart only the packs that its questions need.
        "rules": _text([_plain_rule(rule) for rule in pack.rules]),
        "contracts": _text([_plain_contract(contract) for contract in pack.contracts]),
    }


def _text(plain: list[Any]) -> str:
    return json.dumps(plain, separators=(",", ":"), ensure_ascii=False)


def _plain_rule(rule: Rule) -> list[Any]:
    conditions = _plain_conditions(rule.when), _plain_conditions(rule.unless)
    return [rule.id, *conditions, _outcome(rule.outcome), *_prose(rule)]


def _plain_contract(contract: Contract) -> list[Any]:
    conditions = map(_plain_conditions, (contract.when, contract.unless, contract.facts))
    return [contract.id, *conditions, contract.demands, contract.breaks, *_prose(contract)]


def _prose(rule: Rule | Contract) -> list[Any]:
    return [rule.why, rule.source, rule.evidence, list(_place(rule.location))]


def _place(location: Location) -> tuple[str, int, int]:
    return location.file, location.line, location.column


def _plain_conditions(conditions: Iterable[Condition]) -> list[Any]:
    return [[key, text, *_accepts(accepts)] for key, accepts, text in conditions]


def _plain_term(term: Term) -> list[Any]:
    return [
        [[alias.name, alias.value, _plain_conditions(alias.scope)] for alias in term.aliases],
        [[key, sorted(accepts)] for key, accepts in term.implies],
        term.note,
    ]


def load_compiled(path: str | os.PathLike[str]) -> Policy:
    """The policy of a compiled file; needs neither YAML nor pydantic.

    Raises:
        PolicyError: missing, truncated, of another language version, or older than the rule files.
    """
    shown = os.fspath(path)
    start = Location(shown, 1, 1)
    try:
        with open(path, encoding="utf-8") as stream:
            content = json.load(stream)
    except FileNotFoundError:
        raise PolicyError(
            [Problem("C501", "no such file", "write it with `moe-align compile`", start)]
        ) from None
    except OSError as fault:
        raise PolicyError(
            [Problem("C501", f"cannot be read: {fault.strerror}", "check its rights", start)]
        ) from None
    except ValueError as fault:
        place = Location(shown, getattr(fault, "lineno", 1), getattr(fault, "colno", 1))
        raise PolicyError([Problem("C502", "is truncated or no compiled policy", _AGAIN, place)]) from None
    return Policy(_stack_of(content, start))


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
        packs = [_pack_from(plain, start) for plain in content["packs"]]
        vocabulary = _vocabulary_from(content["vocabulary"])
    except (TypeError, KeyError, ValueError, AttributeError) as fault:
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
    for name, files in layers:
        recorded = {_local(name, file): (length, crc) for file, length, crc in files}
        here = (
            set(layers_of((), environ={})[-1].files)
            if name == BUILT_IN
            else set(filter(os.path.exists, recorded))
        )
        missing = set(recorded) - here if name == BUILT_IN else set()
        changed = sorted(missing | {file for file in here if recorded.get(file) != _print(file)})
        if changed:
            message = f"is stale: `{os.path.basename(changed[0])}` has changed since"
            raise PolicyError([Problem("C504", message, _AGAIN, start)])


def _local(layer: str, file: str) -> str:
    """Where a file of the layer lies here: the built-in ones are those of this installation."""
    return os.path.join(built_in_rules(), os.path.basename(file)) if layer == BUILT_IN else file


def _pack_from(plain: Plain, start: Location) -> Pack:
    name, phase = plain["name"], plain["phase"]
    rules, contracts = plain["rules"], plain["contracts"]
    return Pack(
        name,
        phase,
        _conditions_from(plain["needs"]),
        _conditions_from(plain["covers"]),
        tuple(plain["before"]),
        lambda: _later(rules, lambda one: _rule_from(name, phase, one), start),
        lambda: _later(contracts, lambda one: _contract_from(name, one), start),
        plain["layer"],
        Location(*plain["at"]),
    )


def _later(text: str, made: Callable[[list[Any]], T], start: Location) -> tuple[T, ...]:
    """What a pack holds, once it is asked for.

    Raises:
        PolicyError: the text is damaged.
    """
    try:
        return tuple(map(made, json.loads(text)))
    except (TypeError, KeyError, ValueError, AttributeError):
        raise PolicyError([Problem("C502", "is damaged", _AGAIN, start)]) from None


def _rule_from(name: str, phase: str, plain: list[Any]) -> Rule:
    rule, when, unless, outcome, why, source, evidence, at = plain
    conditions = _conditions_from(when), _conditions_from(unless)
    return Rule(name, rule, phase, *conditions, _outcome_from(outcome), why, source, evidence, Location(*at))


def _contract_from(name: str, plain: list[Any]) -> Contract:
    contract, when, unless, facts, demands, breaks, why, source, evidence, at = plain
    return Contract(
        name,
        contract,
        _conditions_from(when),
        _conditions_from(unless),
        tuple(map(_demand_from, demands)),
        breaks,
        why,
        source,
        evidence,
        Location(*at),
        _conditions_from(facts),
    )


def _conditions_from(plain: list[Any]) -> tuple[Condition, ...]:
    return tuple(Condition(key, _accepts_from(sort, data), text) for key, text, sort, data in plain)


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
    if "count" in fields:
        fields["count"] = Count(*fields["count"])
    for name in ("rows", "columns"):
        if name in fields:
            fields[name] = tuple(map(tuple, fields[name]))
    return Outcome(**fields)


def _demand_from(plain: list[Any]) -> Demand:
    of, multiples, exactly, *rest = plain
    return Demand(
        of, tuple(Multiple(op, tuple(items), least) for op, items, least in multiples), tuple(exactly), *rest
    )


def _vocabulary_from(plain: Plain) -> Vocabulary:
    terms = {
        key: {value: _term_from(term) for value, term in values.items()}
        for key, values in plain["terms"].items()
    }
    groups = {
        key: {name: tuple(members) for name, members in named.items()}
        for key, named in plain["groups"].items()
    }
    return Vocabulary(terms, groups, plain["defaults"])


def _term_from(plain: list[Any]) -> Term:
    aliases, implies, note = plain
    return Term(
        tuple(Alias(name, value, _conditions_from(scope)) for name, value, scope in aliases),
        tuple((key, frozenset(accepts)) for key, accepts in implies),
        note,
    )


class Sizes:
    """What `bind` keeps: `sizes` is the function, with a signature of just the keywords that matter.

    `sizes(backend=…, activation=…, hidden=7168, intermediate_per_partition=384)` gives the allocated
    hidden size and intermediate size per partition. Where a layer has no sizes it raises `PolicyError`
    with the reason. Picklable; safe in threads: its table only ever gains equal entries.
    """

    __slots__ = ("given", "keywords", "policy", "sizes")

    policy: Policy
    given: Facts
    keywords: tuple[str, ...]
    sizes: Callable[..., tuple[int, int]]

    def __init__(self, policy: Policy, given: Facts) -> None:
        keywords = _keywords(policy.stack, known(policy.stack.vocabulary, given))
        object.__setattr__(self, "policy", policy)
        object.__setattr__(self, "given", given)
        object.__setattr__(self, "keywords", keywords)
        # A bound method costs what a function does, an instance that is called twice as much; and
        # pickle takes it apart into this object and the name `sizes`.
        object.__setattr__(self, "sizes", MethodType(_function(policy, given, keywords), self))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("bound sizes are frozen")

    def __reduce__(self) -> tuple[object, ...]:
        return (Sizes, (self.policy, self.given))


def _keywords(stack: Stack, state: Known) -> tuple[str, ...]:
    """The facts that rules may still look at, and those that imply them, in the order of the key tables."""
    looked_at: set[str] = set()
    flow = entering(state)
    for phase in PHASES[:-1]:
        for pack in stack.phases[phase]:
            if verdict(pack.needs, (), state, flow)[0] is NO:
                continue
            for rule in pack.rules:
                if verdict(rule.when, rule.unless, state, flow)[0] is not NO:
                    looked_at |= _looked_at(pack, rule)
    looked_at |= {other for key in looked_at for other in stack.vocabulary.implying(key)}
    settled = set(state.given) | set(DIMENSIONS.values()) | set(keys.FIRST_SIZES)
    return tuple(key for key in every_key() if key in looked_at and key not in settled)


def _looked_at(pack: Pack, rule: Rule) -> set[str]:
    outcomes = [outcome for outcome in (rule.outcome, rule.outcome.otherwise) if outcome]
    conditions = (*pack.needs, *pack.covers, *rule.when, *rule.unless)
    multiples = [multiple for outcome in outcomes for multiple in (outcome.hidden, outcome.intermediate)]
    return (
        {condition.key for condition in conditions}
        | {key for multiple in multiples if multiple for key in facts_of(multiple)}
        | {block for outcome in outcomes if outcome.refine for block in outcome.refine.blocks}
        | {key for outcome in outcomes if outcome.count for key in outcome.count if isinstance(key, str)}
    )


def _function(policy: Policy, given: Facts, keywords: tuple[str, ...]) -> Callable[..., tuple[int, int]]:
    """A function whose signature has just the keywords that matter: a general one costs twice as much.

    Its text holds nothing but names of the closed set of facts.
    """
    arguments = "".join(f", {key}=None" for key in keywords)
    values = "".join(f"{key}, " for key in keywords)
    text = (
        "def make(get, miss):\n"
        f"    def sizes(self, *, hidden, intermediate_per_partition{arguments}):\n"
        f"        plan = get(({values}))\n"
        "        if plan is None:\n"
        f"            return miss(({values}), hidden, intermediate_per_partition)\n"
        "        h, i = plan\n"
        "        return -(-hidden // h) * h, -(-intermediate_per_partition // i) * i\n"
        "    return sizes\n"
    )
    names: dict[str, Any] = {}
    exec(text, names)
    table: dict[tuple[object, ...], tuple[int, int]] = {}

    def miss(values: tuple[object, ...], hidden: int, intermediate_per_partition: int) -> tuple[int, int]:
        facts = given.having(**dict(zip(keywords, values, strict=True)))  # type: ignore[arg-type]
        plan = _plan(policy, facts)
        if plan is not None:
            if len(table) >= MOST_BOUND:
                table.clear()
            table[values] = plan
        return _resolved(
            policy, facts.having(hidden=hidden, intermediate_per_partition=intermediate_per_partition)
        )

    function: Callable[..., tuple[int, int]] = names["make"](table.get, miss)
    return function


def _plan(policy: Policy, facts: Facts) -> tuple[int, int] | None:
    """The two multiples, if rounding up to them is all that happens whatever the sizes."""
    found = leaves(policy.stack, known(policy.stack.vocabulary, facts))
    if len(found) != 1 or found[0].status != "decided":
        return None
    flow = found[0].flow
    hidden, intermediate = _only_rounded(flow.hidden.created), _only_rounded(flow.intermediate.created)
    return None if hidden is None or intermediate is None else (hidden, intermediate)


def _only_rounded(dimension: Dimension | None) -> int | None:
    """The multiple to which an open size is rounded up, if nothing else is done to it."""
    if dimension is None or dimension.required or dimension.needs or dimension.native is not None:
        return None
    if not dimension.steps:
        return 1
    (step, by), *more = dimension.steps
    return None if more or step != "round_up" else int(by)


def _resolved(policy: Policy, facts: Facts) -> tuple[int, int]:
    decision = policy.resolve(facts)
    hidden, intermediate = decision.hidden.allocated, decision.intermediate.allocated
    if hidden is None or intermediate is None:
        raise PolicyError(
            [Problem("D601", f"{decision.status}: {decision.reason}", "see `moe-align explain`")]
        )
    return hidden, intermediate
