"""Every rule with the condition that failed, as text and as plain values for JSON."""

from __future__ import annotations

from ..record import NamedTuple
from . import SHAPE
from .lines import Style
from .outcomes import outcome_text
from .resolve import Answer, contract_plain, heading
from .words import value_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..packs import Condition, Pack, Rule

    Plain = dict[str, object]


class Tried(NamedTuple):
    """What became of one rule.

    `result` is `wins`, `fails` (`condition` does not hold), `later` (an earlier rule has won), `depends`
    (`condition` is on an open fact) or `skipped` (its phase was not reached). `value` is what the
    condition met; `excepted` says that it stands under `unless`, `of_pack` that the whole pack needs it.
    """

    rule: Rule
    result: str
    condition: Condition | None = None
    value: object = None
    excepted: bool = False
    of_pack: bool = False


if TYPE_CHECKING:
    Phases = Mapping[str, Sequence[tuple[Pack, Sequence[Tried]]]]


def explain_plain(answer: Answer, phases: Phases, digest: str) -> Plain:
    """The explanation as `--json` gives it; `digest` is that of the policy."""
    return {
        "version": SHAPE,
        "status": answer.decision.status,
        "rule": answer.decision.rule,
        "reason": answer.decision.reason,
        "phases": [
            {
                "phase": phase,
                "packs": [
                    {"pack": pack.name, "layer": pack.layer, "rules": [_plain(tried) for tried in listed]}
                    for pack, listed in packs
                ],
            }
            for phase, packs in phases.items()
        ],
        "contracts": [
            {**contract_plain(check), "said": check.said, "why": check.contract.why}
            for check in answer.decision.contracts
        ],
        "policy": {"digest": digest, "layers": list(answer.layers)},
    }


def _plain(tried: Tried) -> Plain:
    condition = tried.condition
    failed = condition and {
        "fact": condition.key,
        "needs": condition.text,
        "is": None if tried.value is None else value_text(condition.key, tried.value),
        "unless": tried.excepted,
    }
    return {
        "rule": tried.rule.address,
        "result": tried.result,
        "condition": failed,
        "outcome": outcome_text(tried.rule.outcome),
    }


def explain_text(answer: Answer, phases: Phases, style: Style) -> str:
    """The explanation as a person reads it: phases in order, packs as they are tried, the winner marked."""
    lines = heading(answer, style)
    for phase, packs in phases.items():
        if packs:
            lines += ["", style.paint(phase, "strong")]
        for pack, listed in packs:
            lines += _pack(pack, listed, style)
    if answer.decision.contracts:
        lines += ["", style.paint("contracts", "strong")]
        for check in answer.decision.contracts:
            held = {True: "holds", False: "broken", None: "open"}[check.holds]
            role = {True: "faint", False: "bad", None: "warn"}[check.holds]
            lines.append(style.paint(f"  {held:<8}", role) + f"{check.contract.address}: {check.said}")
    return "\n".join(lines)


def _pack(pack: Pack, listed: Sequence[Tried], style: Style) -> list[str]:
    if not listed:
        return []
    first = listed[0]
    if first.of_pack and all(tried.condition is first.condition for tried in listed):
        return [style.paint(f"  {pack.name}, {_number(len(listed))}: {_failed(first)}", "faint")]
    place = style.paint(f"  {pack.name}", "head") + style.paint(f"  {pack.location.file}", "faint")
    names = max(len(tried.rule.id) for tried in listed)
    return [place, *(_tried(tried, names, style) for tried in listed)]


def _number(rules: int) -> str:
    return "its rule" if rules == 1 else f"all {rules} rules"


_SHOWN = {"wins": "wins", "fails": "no", "later": "later", "depends": "depends", "skipped": "–"}
_ROLES = {"wins": "good", "fails": "faint", "later": "faint", "depends": "warn", "skipped": "faint"}


def _tried(tried: Tried, names: int, style: Style) -> str:
    said = {
        "wins": outcome_text(tried.rule.outcome),
        "later": "an earlier rule has won",
        "skipped": "not tried",
    }.get(tried.result) or _failed(tried)
    why = f" – {tried.rule.why}" if tried.result == "wins" and tried.rule.why else ""
    line = f"    {_SHOWN[tried.result]:<8} {tried.rule.id:<{names}}  {said}{why}"
    return style.paint(line, _ROLES[tried.result])


def _failed(tried: Tried) -> str:
    condition = tried.condition
    if condition is None:
        return "matches where no rule before it does"
    value = value_text(condition.key, tried.value)
    if tried.excepted:
        return f"{condition.key} is {value}, which `unless` excepts: {condition.text}"
    return f"{condition.key} is {value}, must be {condition.text}"
