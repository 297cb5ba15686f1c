"""`explain`: all rules in the order in which they are tried, with the condition that failed."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from ..flow import entering
from ..known import Known, known
from ..report import json_text
from ..report.explain import Tried, explain_plain, explain_text
from ..report.resolve import Answer, is_yes
from ..resolve import DEPENDS, NO, verdict
from .asking import question
from .flags import Json, Said, about_layer
from .resolve import answer_of
from .terminal import say, style

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import NoReturn

    from ..packs import Pack

EXAMPLE = "moe-align explain --backend aiter_bf16 --act silu --tp 8 --vllm 0.26.0"


_Error = Annotated[
    str | None,
    typer.Option(
        "--error",
        metavar="TEXT|-",
        help="An engine's error in place of facts, or `-` for a whole log on standard input.",
    ),
]


@about_layer
def command(said: Said, *, error: _Error = None, json: Json = False) -> None:
    """Every rule, and the condition that failed; or what an error means."""
    text = _log() if error == "-" or (error is None and not any(said)) else error
    if text is not None and (error is not None or text.strip()):
        _explain_error(text, said, json)
    asked = question(said)
    answer = answer_of(asked, models=False)
    stack = asked.policy.stack
    if answer.decision.status == "undecided":
        state = known(stack.vocabulary, asked.facts)
        packs = {
            phase: [(pack, list(_open(pack, state))) for pack in packs]
            for phase, packs in stack.phases.items()
        }
    else:
        packs = {
            phase: [(pack, list(_tried(pack, answer))) for pack in packs]
            for phase, packs in stack.phases.items()
        }
    if json:
        say(json_text(explain_plain(answer, packs, asked.policy.digest)))
    else:
        say(explain_text(answer, packs, style()))
    raise typer.Exit(0 if is_yes(answer.decision) else 1)


def _log() -> str | None:
    """What comes in on standard input, where that is no terminal."""
    return None if sys.stdin.isatty() else sys.stdin.read()


def _explain_error(text: str, said: Said, json: bool) -> NoReturn:
    """Say what the messages in a text mean; with a model and its facts, which of its sizes they are about."""
    from ..cache import cached_policy
    from ..deployment.checking import asked
    from ..deployment.messages import messages_in
    from ..facts import Facts
    from ..report.messages import Explained, messages_plain, messages_text

    report = None
    if said.model is not None:
        report = asked(cached_policy(said.rules), said.model, Facts.of(said.facts))
    explained = Explained(messages_in(text), report)
    say(json_text(messages_plain(explained)) if json else messages_text(explained, style()))
    raise typer.Exit(0 if explained.found else 1)


def _tried(pack: Pack, answer: Answer) -> Iterator[Tried]:
    """The rules of a pack as the decision tried them."""
    won = {step.rule.address for step in answer.decision.steps}
    misses = {miss.rule.address: miss for miss in answer.decision.trace}
    for rule in pack.rules:
        miss = misses.get(rule.address)
        if rule.address in won:
            yield Tried(rule, "wins")
        elif miss is None:
            yield Tried(rule, "skipped")
        elif miss.condition is None:
            yield Tried(rule, "later")
        else:
            of_pack = miss.condition in pack.needs
            yield Tried(rule, "fails", miss.condition, miss.got, miss.excepted, of_pack)


def _open(pack: Pack, state: Known) -> Iterator[Tried]:
    """The rules of a pack, each by itself, where open facts leave more than one answer."""
    flow = entering(state)
    needed, failed, _ = verdict((*pack.needs, *pack.covers), (), state, flow)
    for rule in pack.rules:
        held, condition, excepted = verdict(rule.when, rule.unless, state, flow)
        value = state.values.get(condition.key) if condition else None
        if needed is NO and failed is not None:
            yield Tried(rule, "fails", failed, state.values.get(failed.key), of_pack=True)
        elif held is NO:
            yield Tried(rule, "fails", condition, value, excepted)
        elif needed is DEPENDS:
            yield Tried(rule, "depends", failed)
        else:
            yield Tried(rule, "depends", condition, value, excepted)
