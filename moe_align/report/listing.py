"""Lists of what there is: rules, contracts, packs, facts, values, models, codes."""

from __future__ import annotations

from .. import facts as keys
from ..record import NamedTuple
from . import SHAPE
from .lines import Style, prose_table, table
from .outcomes import conditions_text, demands_text, outcome_text
from .words import accepts_text, listed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..codes import Page
    from ..models import Model
    from ..packs import Condition, Pack
    from ..policy import Policy
    from ..vocabulary import Term, Vocabulary

    Plain = dict[str, object]


class Listing(NamedTuple):
    """A list: what it is of, its items for programs, and its columns for people, the last one prose.

    With `numbers` the table is one of numbers, which drops columns instead of breaking lines.
    """

    of: str
    items: Sequence[Plain]
    head: Sequence[str]
    body: Sequence[Sequence[str]]
    numbers: bool = False


def listing_plain(listing: Listing) -> Plain:
    return {"version": SHAPE, "list": listing.of, "items": list(listing.items)}


def listing_text(listing: Listing, style: Style) -> str:
    lay = table if listing.numbers else prose_table
    return "\n".join(lay(style, listing.head, listing.body)) or f"no {listing.of}"


def overview(policy: Policy, models: Sequence[Model], codes: Sequence[Page]) -> Listing:
    """How much there is of everything, and the word that lists it."""
    stack = policy.stack
    vocabulary = stack.vocabulary
    counts = {
        "rules": (len(list(stack.rules())), "what engines do, in the order in which rules are tried"),
        "contracts": (len(list(stack.all_contracts())), "what kernels demand"),
        "packs": (len(_all_packs(policy)), "the files of all layers"),
        "facts": (len(keys.keys()) + len(_declared(vocabulary)), "what rules may look at"),
        "values": (
            sum(map(len, vocabulary.terms.values())),
            "the values of facts; `list FACT` has those of one",
        ),
        "models": (len(models), "known models"),
        "codes": (len(codes), "problems that messages name; `moe-align rule CODE` explains one"),
    }
    items: list[Plain] = [{"name": name, "count": count, "of": of} for name, (count, of) in counts.items()]
    body = [[name, str(count), of] for name, (count, of) in counts.items()]
    return Listing("lists", items, ["list", "items", ""], body)


def rules(policy: Policy) -> Listing:
    """Every rule in the order of phases and packs."""
    found = [(pack, rule) for packs in policy.stack.phases.values() for pack in packs for rule in pack.rules]
    items: list[Plain] = [
        {
            "rule": rule.address,
            "phase": rule.phase,
            "layer": pack.layer,
            "outcome": outcome_text(rule.outcome),
            "for": _plain_conditions(pack.needs),
            "when": _plain_conditions(rule.when),
            "unless": _plain_conditions(rule.unless),
            "why": rule.why,
            "source": rule.source,
            "evidence": rule.evidence,
        }
        for pack, rule in found
    ]
    body = [
        [rule.address, rule.phase, f"{outcome_text(rule.outcome)}: {_when(rule.when, rule.unless)}"]
        for _, rule in found
    ]
    return Listing("rules", items, ["rule", "phase", "what it does, and when"], body)


def _plain_conditions(conditions: Iterable[Condition]) -> dict[str, str]:
    return {key: text for key, _, text in conditions}


def _when(when: Iterable[Condition], unless: Iterable[Condition]) -> str:
    held = ", ".join(conditions_text(when)) or "always"
    excepted = ", ".join(conditions_text(unless))
    return f"{held}; unless {excepted}" if excepted else held


def contracts(policy: Policy) -> Listing:
    """Every contract, with what it demands."""
    found = list(policy.stack.all_contracts())
    items: list[Plain] = [
        {
            "contract": contract.address,
            "breaks": contract.breaks,
            "demands": demands_text(contract),
            "when": _plain_conditions(contract.when),
            "unless": _plain_conditions(contract.unless),
            "why": contract.why,
            "source": contract.source,
            "evidence": contract.evidence,
        }
        for contract in found
    ]
    body = [
        [
            contract.address,
            contract.breaks,
            f"{demands_text(contract)}: {_when(contract.when, contract.unless)}",
        ]
        for contract in found
    ]
    return Listing("contracts", items, ["contract", "breaks", "what it demands, and when"], body)


def _all_packs(policy: Policy) -> list[Pack]:
    stack = policy.stack
    return [*(pack for packs in stack.phases.values() for pack in packs), *stack.contracts]


def packs(policy: Policy) -> Listing:
    """Every pack of rules or contracts, in the order in which packs are tried."""
    found = _all_packs(policy)
    items: list[Plain] = [
        {
            "pack": pack.name,
            "layer": pack.layer,
            "file": pack.location.file,
            "phase": pack.phase,
            "rules": len(pack.rules),
            "contracts": len(pack.contracts),
            "for": _plain_conditions(pack.needs),
            "covers": _plain_conditions(pack.covers),
        }
        for pack in found
    ]
    body = [
        [
            pack.name,
            pack.phase or "contracts",
            str(len(pack.rules) or len(pack.contracts)),
            pack.location.file,
            ", ".join(
                [*conditions_text(pack.needs), *(f"covers {one}" for one in conditions_text(pack.covers))]
            ),
        ]
        for pack in found
    ]
    return Listing("packs", items, ["pack", "phase", "rules", "file", "for"], body)


def _declared(vocabulary: Vocabulary) -> list[str]:
    """Namespaced facts that packs declare."""
    undotted = keys.keys()
    return [key for key in vocabulary.terms if keys.kind(key) and key not in undotted]


def facts(policy: Policy) -> Listing:
    """Every fact that a rule may look at, and what is assumed where nothing is said."""
    vocabulary = policy.stack.vocabulary
    names = [*keys.keys(), *_declared(vocabulary)]
    default = {key: str(value) for key, value in vocabulary.defaults.items()}
    items: list[Plain] = [
        {"fact": key, "kind": keys.kind(key), "meaning": keys.meaning(key), "assumed": default.get(key)}
        for key in names
    ]
    body = [
        [
            key,
            str(keys.kind(key)),
            keys.meaning(key) + (f"; assumed {default[key]}" if key in default else ""),
        ]
        for key in names
    ]
    return Listing("facts", items, ["fact", "kind", "meaning"], body)


def values(policy: Policy, fact: str | None = None) -> Listing:
    """The values of one fact, or of all, with other names and what each implies."""
    vocabulary = policy.stack.vocabulary
    found = [
        (key, value, term)
        for key, terms in vocabulary.terms.items()
        if fact in (None, key)
        for value, term in terms.items()
    ]
    groups = [
        (key, name, members)
        for key, named in vocabulary.groups.items()
        if fact in (None, key)
        for name, members in named.items()
    ]
    items: list[Plain] = [
        {
            "fact": key,
            "value": value,
            "aliases": sorted({alias.name for alias in term.aliases}),
            "implies": {other: sorted(accepts) for other, accepts in term.implies},
            "note": term.note,
            "group": None,
        }
        for key, value, term in found
    ]
    items += [
        {"fact": key, "value": name, "aliases": [], "implies": {}, "note": None, "group": list(members)}
        for key, name, members in groups
    ]
    body = [[key, value, _term(term)] for key, value, term in found]
    body += [[key, name, f"any of {', '.join(members)}"] for key, name, members in groups]
    if fact is not None:
        return Listing(fact, items, [fact, "other names, and what it implies"], [row[1:] for row in body])
    return Listing("values", items, ["fact", "value", "other names, and what it implies"], body)


def _term(term: Term) -> str:
    names = sorted({alias.name for alias in term.aliases})
    said = [
        f"also {listed(names)}" if names else "",
        f"implies {', '.join(accepts_text(key, accepts) for key, accepts in term.implies)}"
        if term.implies
        else "",
        term.note or "",
    ]
    return "; ".join(filter(None, said))


def models(known: Sequence[Model]) -> Listing:
    """The known models with the sizes of their routed experts."""
    items: list[Plain] = [
        {
            "model": model.name,
            "hf_id": model.hf_id,
            "moe_layers": model.moe_layers,
            "source": model.source,
            "confidence": model.confidence,
            **model.facts(),
        }
        for model in known
    ]
    body = [
        [
            model.name,
            _number(model.moe_layers),
            _number(model.num_experts),
            _number(model.routed_hidden_size),
            _number(model.moe_intermediate_size),
            model.activation or "–",
            model.scheme or "–",
        ]
        for model in known
    ]
    head = ["model", "layers", "experts", "hidden", "intermediate", "activation", "scheme"]
    return Listing("models", items, head, body, numbers=True)


def _number(value: int | None) -> str:
    return "–" if value is None else str(value)


def codes(pages: Sequence[Page]) -> Listing:
    """Every problem code with its title."""
    items: list[Plain] = [{"code": page.code, "title": page.title} for page in pages]
    return Listing("codes", items, ["code", "problem"], [[page.code, page.title] for page in pages])
