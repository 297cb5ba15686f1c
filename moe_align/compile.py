"""A policy → one JSON file that a serving process reads without YAML, and the digest of what it decides."""

from __future__ import annotations

import json

from .errors import Location, PolicyError, Problem
from .layers import fingerprint
from .packs import FORMAT, LANGUAGE, PHASES, Outcome
from .versions import VersionSet

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from .packs import Accepts, Condition, Contract, Multiple, Pack, Rule
    from .policy import Policy
    from .stack import Stack
    from .vocabulary import Term, Vocabulary

    Plain = dict[str, Any]


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
    """The policy as the text of one JSON file.

    Raises:
        PolicyError: a rule file of the policy is gone, so that nobody could see when it changes.
    """
    stack = policy.stack
    listed = _Listed()
    content = {
        "moe_align": {"format": FORMAT, "language": LANGUAGE},
        "digest": policy.digest,
        "layers": [
            [layer.name, [[file, *_fingerprint(file)] for file in layer.files]] for layer in stack.layers
        ],
        "packs": [_plain_pack(pack, listed) for pack in _all_packs(stack)],
        "vocabulary": {
            "terms": {
                key: {value: _plain_term(term, listed) for value, term in values.items()}
                for key, values in stack.vocabulary.terms.items()
            },
            "groups": stack.vocabulary.groups,
            "defaults": stack.vocabulary.defaults,
        },
        "conditions": listed.plain,
    }
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False) + "\n"


def _fingerprint(file: str) -> tuple[int, int]:
    try:
        return fingerprint(file)
    except OSError as fault:
        said = f"a rule file cannot be read: {fault.strerror}"
        problem = Problem("C505", said, "compile where the rule files are", Location(file, 1, 1))
        raise PolicyError([problem]) from None


def _all_packs(stack: Stack) -> list[Pack]:
    return [*(pack for phase in stack.phases.values() for pack in phase), *stack.contracts]


class _Listed:
    """The conditions of a policy, each once: packs, rules and names say the number of it."""

    __slots__ = ("_numbers", "plain")

    def __init__(self) -> None:
        self.plain: list[list[Any]] = []
        self._numbers: dict[str, int] = {}

    def numbers(self, conditions: Iterable[Condition]) -> list[int]:
        return [self._number([key, text, *_accepts(accepts)]) for key, accepts, text in conditions]

    def _number(self, plain: list[Any]) -> int:
        number = self._numbers.setdefault(_text(plain), len(self.plain))
        if number == len(self.plain):
            self.plain.append(plain)
        return number


def _plain_pack(pack: Pack, listed: _Listed) -> Plain:
    return {
        "name": pack.name,
        "phase": pack.phase,
        "layer": pack.layer,
        "at": list(_place(pack.location)),
        "needs": listed.numbers(pack.needs),
        "covers": listed.numbers(pack.covers),
        "before": pack.before,
        # As text, so that a process takes apart only the packs that its questions need.
        "rules": _text([_plain_rule(rule, listed) for rule in pack.rules]),
        "contracts": _text([_plain_contract(contract, listed) for contract in pack.contracts]),
    }


def _text(plain: list[Any]) -> str:
    return json.dumps(plain, separators=(",", ":"), ensure_ascii=False)


def _plain_rule(rule: Rule, listed: _Listed) -> list[Any]:
    conditions = listed.numbers(rule.when), listed.numbers(rule.unless)
    return [rule.id, *conditions, _outcome(rule.outcome), *_prose(rule)]


def _plain_contract(contract: Contract, listed: _Listed) -> list[Any]:
    conditions = map(listed.numbers, (contract.when, contract.unless, contract.facts))
    return [contract.id, *conditions, contract.demands, contract.breaks, *_prose(contract)]


def _prose(rule: Rule | Contract) -> list[Any]:
    return [rule.why, rule.source, rule.evidence, list(_place(rule.location))]


def _place(location: Location) -> tuple[str, int, int]:
    return location.file, location.line, location.column


def _plain_term(term: Term, listed: _Listed) -> list[Any]:
    return [
        [[alias.name, alias.value, listed.numbers(alias.scope)] for alias in term.aliases],
        [[key, sorted(accepts)] for key, accepts in term.implies],
        term.note,
    ]
