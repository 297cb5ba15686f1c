"""`rule`: the page of a rule, a contract, or a problem code."""

from __future__ import annotations

from typing import Annotated

import typer

from ..cache import cached_models, cached_policy
from ..codes import page, pages
from ..deployment.question import with_model
from ..errors import PolicyError, Problem, did_you_mean
from ..facts import INTEGERS, VERSIONS, Facts
from ..report import json_text
from ..report.page import RulePage, code_plain, code_text, rule_plain, rule_text
from .completing import starting
from .flags import Json, Rules
from .terminal import say, style

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..models import Model
    from ..packs import Accepts, Condition, Contract, Pack, Rule
    from ..policy import Policy
    from ..stack import Stack

EXAMPLE = "moe-align rule vllm-mxfp4/aiter-bf16-silu-situ"


def _complete(incomplete: str) -> list[str]:
    try:
        stack = cached_policy().stack
    except PolicyError:
        return []
    names = [rule.address for _, rule in _all(stack)]
    return starting(incomplete, [*names, *(one.code for one in pages())])


_Id = Annotated[
    str,
    typer.Argument(
        metavar="PACK/ID|CODE",
        help="A rule or contract as answers name it, or the code at the end of a message.",
        autocompletion=_complete,
    ),
]


def command(name: _Id, rules: Rules = None, json: Json = False) -> None:
    """The page of a rule, contract or problem code."""
    code = page(name)
    if code is not None:
        say(json_text(code_plain(code)) if json else code_text(code, style()))
        return
    policy = cached_policy(rules or ())
    pack, found = _find(policy.stack, name)
    one = _page(policy, pack, found)
    say(json_text(rule_plain(one)) if json else rule_text(one, style()))


def _all(stack: Stack) -> Iterator[tuple[Pack, Rule | Contract]]:
    for packs in stack.phases.values():
        yield from ((pack, rule) for pack in packs for rule in pack.rules)
    yield from ((pack, contract) for pack in stack.contracts for contract in pack.contracts)


def _find(stack: Stack, name: str) -> tuple[Pack, Rule | Contract]:
    """The rule or contract of an address, or of an id that only one has.

    Raises:
        PolicyError: none has it, or several.
    """
    listed = list(_all(stack))
    wanted = name.lower()
    found = [(pack, rule) for pack, rule in listed if wanted in (rule.address.lower(), rule.id.lower())]
    if len(found) == 1:
        return found[0]
    if found:
        fix = f"write one of {', '.join(f'`{rule.address}`' for _, rule in found)}"
        raise PolicyError([Problem("U005", f"`{name}` is in several packs", fix)])
    near = did_you_mean(name, [*(rule.address for _, rule in listed), *(one.code for one in pages())])
    fix = f"write `{near}`" if near else "see `moe-align list rules` and `moe-align list codes`"
    raise PolicyError([Problem("U005", f"no rule, contract or code `{name}`", fix)])


def _page(policy: Policy, pack: Pack, rule: Rule | Contract) -> RulePage:
    siblings: tuple[Rule | Contract, ...] = pack.contracts or pack.rules
    position = siblings.index(rule) + 1
    if pack.phase is None:
        return RulePage(pack, rule, position, len(siblings))
    phase = policy.stack.phases[pack.phase]
    before = [other.name for other in phase[: phase.index(pack)] if _may_meet(other, pack)]
    models = [model.name for model in cached_models() if _decides(policy, pack, rule, model)]
    return RulePage(pack, rule, position, len(siblings), before, models)


def _may_meet(one: Pack, other: Pack) -> bool:
    """Whether what the two packs need can hold at once."""
    needs = _accepted(one.needs)
    return all(not accepts.isdisjoint(needs.get(key, accepts)) for key, accepts, _ in other.needs)  # type: ignore[arg-type]


def _decides(policy: Policy, pack: Pack, rule: Rule | Contract, model: Model) -> bool:
    """Whether the rule is behind a size of the model, where all its conditions hold and nothing is split."""
    of_model = model.facts()
    accepted = _accepted((*pack.needs, *pack.covers, *rule.when))
    if "scheme" in accepted and "scheme" not in of_model:
        return False
    facts = {key: _member(key, accepts, of_model.get(key)) for key, accepts in accepted.items()}
    if None in facts.values():
        return False
    try:
        asked = with_model(policy.stack.vocabulary, Facts.of(facts), model)
        return any(step.rule == rule for step in policy.resolve(asked).steps)
    except PolicyError:
        return False


def _accepted(conditions: tuple[Condition, ...]) -> dict[str, Accepts]:
    """What all conditions together accept of each fact."""
    accepted: dict[str, Accepts] = {}
    for key, accepts, _ in conditions:
        before = accepted.get(key)
        accepted[key] = accepts if before is None else before & accepts  # type: ignore[operator]
    return accepted


def _member(key: str, accepts: Accepts, said: object) -> object:
    """A value with which a condition holds, the model's own if it says one; `None` if that is another."""
    if key in VERSIONS:
        from ..versions import key_text

        return key_text(accepts.intervals[-1][0])  # type: ignore[union-attr]
    if said is not None:
        value = said if key in INTEGERS else str(said).lower()
        return value if value in accepts else None
    if key in INTEGERS:
        return accepts.witness()  # type: ignore[union-attr]
    return min(accepts)  # type: ignore[arg-type]
