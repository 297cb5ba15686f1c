"""The answer of `resolve`, as text and as plain values for JSON."""

from __future__ import annotations

from ..record import NamedTuple
from . import SHAPE
from .lines import Row, Style, folded, rows, table
from .words import (
    accepts_text,
    assumed_text,
    gib,
    implied_text,
    listed,
    name_text,
    values_text,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ..contracts import Check
    from ..cost import Cost
    from ..decision import Decision, Difference, Size
    from ..versions import VersionSet

    Plain = dict[str, object]

#: So many alternatives and models are worth reading; `--json` and `list` have the rest.
MOST = 12

#: So many answers of an undecided question, so many assumptions that would change an answer.
MOST_ANSWERS = 6
MOST_DIFFERENCES = 4


class ModelCost(NamedTuple):
    """What a decision does to one model: its name, MoE layers, and the cost of one layer.

    `ranks` share one expert of `intermediate` elements. `others` are the bytes of a layer as
    created under each alternative of the answer.
    """

    name: str
    layers: int | None
    intermediate: int | None
    ranks: int
    decision: Decision
    cost: Cost | None
    others: tuple[int | None, ...] = ()


class Answer(NamedTuple):
    """All that is said about one question.

    `values` are the facts as known, `covered` the releases that the rules speak of, `models` the known
    models that fit, with one more column for each of `alternatives`; `asked` is the model (or the given
    sizes) of the question itself. `then_bytes` has what a layer takes under each difference.
    """

    decision: Decision
    differences: Sequence[Difference]
    values: Mapping[str, object]
    covered: Mapping[str, VersionSet]
    layers: Sequence[str]
    notes: Sequence[str] = ()
    asked: ModelCost | None = None
    then_bytes: Sequence[int | None] = ()
    alternatives: Sequence[str] = ()
    models: Sequence[ModelCost] = ()


def is_yes(decision: Decision) -> bool:
    """Whether the answer is yes: there are sizes, and no kernel raises or misreads them."""
    broken = {check.contract.breaks for check in decision.contracts if check.holds is False}
    return decision.status == "decided" and broken <= {"slow"}


def resolve_plain(answer: Answer, digest: str) -> Plain:
    """The answer as `--json` gives it; `digest` is that of the policy."""
    decision = answer.decision
    launch = decision.launch
    return {
        "version": SHAPE,
        "status": decision.status,
        "hidden": decision.hidden._asdict(),
        "intermediate": decision.intermediate._asdict(),
        "rule": decision.rule,
        "steps": [
            {
                "phase": step.phase,
                "rule": step.rule.address,
                "hidden": step.hidden,
                "intermediate": step.intermediate,
            }
            for step in decision.steps
        ],
        "launch": None if launch is None else launch._asdict(),
        "contracts": [contract_plain(check) for check in decision.contracts],
        "assumed": dict(decision.assumed),
        "implied": dict(decision.implied),
        "open": _open(decision),
        "differs": [
            {
                "if": {other.key: values_text(other.key, other.accepts, answer.covered.get(other.key))},
                "then": other.then,
            }
            for other in answer.differences
        ],
        "reason": decision.reason,
        "policy": {"digest": digest, "layers": list(answer.layers)},
    }


def contract_plain(check: Check) -> Plain:
    return {"id": check.contract.address, "holds": check.holds, "breaks": check.contract.breaks}


def _open(decision: Decision) -> Plain:
    """Each open fact with what each of its values would give; other open facts may leave several answers."""
    found: dict[str, dict[str, list[str]]] = {key: {} for key in decision.open}
    for alternative in decision.alternatives:
        for key, accepts in alternative.accepts.items():
            for value in sorted(accepts) if isinstance(accepts, frozenset) else [str(accepts)]:
                answers = found.setdefault(key, {}).setdefault(value, [])
                if alternative.then not in answers:
                    answers.append(alternative.then)
    return {
        key: {value: "; or ".join(then) for value, then in values.items()} for key, values in found.items()
    }


def resolve_text(answer: Answer, style: Style) -> str:
    """The answer as a person reads it; lines end without a newline at the very end."""
    lines = [*heading(answer, style), *rows(style, _details(answer))]
    if answer.models:
        lines += ["", *_models(answer, style)]
    return "\n".join(lines)


def heading(answer: Answer, style: Style) -> list[str]:
    """The answer in a line: sizes or multiples and the rule, or what stands against one."""
    decision = answer.decision
    if decision.status != "decided":
        role = "warn" if decision.status == "undecided" else "bad"
        said = folded(f"{decision.status}: {decision.reason or 'no reason is known'}", style.width)
        return [style.paint(line, role) for line in said]
    sizes = " · ".join(
        (
            _dimension("hidden", decision.hidden, answer, ""),
            _dimension("intermediate", decision.intermediate, answer, _sum(answer)),
        )
    )
    if decision.rule is None:
        return [style.paint(sizes, "strong")]
    rule = decision.rule
    if style.width is not None and max(len(sizes) + 2, 43) + len(rule) > style.width:
        return [style.paint(sizes, "strong"), style.paint(f"  {rule}", "faint")]
    return [style.paint(f"{sizes:<41}", "strong") + style.paint(f"  {rule}", "faint")]


def _sum(answer: Answer) -> str:
    """How the intermediate size of one rank comes from the model's."""
    whole, ranks = answer.values.get("intermediate"), answer.values.get("moe_tp")
    return f"{whole} / {ranks} = " if isinstance(whole, int) and ranks not in (None, 1) else ""


def _dimension(name: str, size: Size, answer: Answer, computed: str) -> str:
    if size.native is not None and size.allocated is not None:
        stays = f" ({size.resident} once loaded)" if size.resident not in (None, size.allocated) else ""
        return f"{name} {computed}{size.native} → {size.allocated}{stays}"
    winner = answer.decision.winner
    verb = "must be " if winner is not None and winner.outcome.form == "require" else ""
    if size.multiple is not None:
        return f"{name} native" if size.multiple == 1 else f"{name} {verb}× {size.multiple}"
    multiple = getattr(winner.outcome, name) if winner else None
    return f"{name} {verb}× {multiple}" if multiple else f"{name} open"


def _details(answer: Answer) -> Iterable[Row]:
    decision = answer.decision
    winner = decision.winner
    if decision.status == "rejected" and decision.error:
        yield Row("raises", [decision.error])
    if decision.status == "rejected" and decision.rule:
        yield Row("rule", [decision.rule])
    if winner is not None and winner.why:
        said = "" if winner.why in (decision.reason or "") else winner.why
        source = f"({winner.source})" if winner.source else ""
        if said or source:
            yield Row("why", [f"{said} {source}".strip()])
    yield from _selected(decision)
    yield from _asked(answer)
    engine = str(answer.values.get("engine"))
    decisive = {other.key for other in answer.differences}
    for label, items in (
        ("implied", implied_text(decision.implied)),
        (
            "assumed",
            assumed_text(decision.assumed, engine, decisive=decisive, released=engine in answer.values),
        ),
        ("differs", _differs(answer)),
    ):
        if items:
            yield Row(label, items)
    yield from _alternatives(decision)
    yield from _launch(decision)
    yield from filter(None, map(_warning, decision.contracts))
    for note in answer.notes:
        yield Row("note", [note], "warn")
    if answer.layers[:1] not in ([], ["built-in"]):
        yield Row("rules", [" over ".join(answer.layers)])
    if decision.status == "undecided":
        flags = [f"--{key.replace('_', '-')}" for key in decision.open if "." not in key]
        yield Row("say", [f"more: {', '.join(flags)}"] if flags else ["more"])
    if decision.status in ("undecided", "unknown"):
        yield Row("see", ["moe-align explain, with the same facts, for every rule and what it needs"])


def _selected(decision: Decision) -> Iterable[Row]:
    """The backend that the engine picks by itself, and why."""
    for step in decision.steps:
        if step.phase == "select" and step.rule.outcome.form == "use":
            yield Row("backend", [f"{step.rule.outcome.target} ({step.rule.address})"])


def _asked(answer: Answer) -> Iterable[Row]:
    asked = answer.asked
    experts = answer.values.get("experts")
    fused = answer.values.get("fused_shared_experts") or 0
    total = answer.decision.experts
    if fused:
        said = (
            f"{experts} + {fused} fused shared = {total}" if experts and total else f"+ {fused} fused shared"
        )
        yield Row("experts", [said])
    if asked is None:
        return
    if asked.cost is None:
        yield Row("model", [_model_text(asked)])
        return
    layers = asked.layers
    each = asked.cost
    known = " and ".join(
        text
        for text in (f"{layers} layers" if layers else "", f"{each.experts} experts on each rank")
        if text
    )
    yield Row("model", [f"{asked.name}: {known}"])
    of, factor = ("per rank", layers) if layers else ("per rank and layer", 1)
    stays = "" if each.resident is None else f" → {gib(each.resident * factor)} resident"
    more = "" if each.native in (None, each.created) else f", unpadded {gib((each.native or 0) * factor)}"
    yield Row("GiB", [f"{gib(each.created * factor)} created{stays}{more}, {of}"])


def _model_text(asked: ModelCost) -> str:
    return f"{asked.name}: {asked.layers} layers" if asked.layers else asked.name


def _differs(answer: Answer) -> list[str]:
    """The assumptions that would change the answer; first those that always do, to sizes, for any model."""
    layers = (answer.asked.layers if answer.asked else None) or 1
    costs = [*answer.then_bytes, *[None] * len(answer.differences)]
    pairs = sorted(zip(answer.differences, costs, strict=False), key=_plainness)
    items = []
    for other, size in pairs[:MOST_DIFFERENCES]:
        cost = f", {gib(size * layers)} GiB" if size is not None else ""
        when = accepts_text(other.key, other.accepts, answer.covered.get(other.key))
        items.append(f"{when} → {_then(answer.decision, other.then)}{cost}")
    more = len(pairs) - MOST_DIFFERENCES
    return [*items, f"{more} more with --json"] if more > 0 else items


def _plainness(pair: tuple[Difference, int | None]) -> tuple[bool, bool, bool]:
    key, then = pair[0].key, pair[0].then
    return " where " in then, then.startswith("rejected"), key == "model_type"


def _then(decision: Decision, then: str) -> str:
    """An outcome without the dimension that stays as it is."""
    hidden, intermediate = (
        str(size.resident)
        if size.resident is not None
        else f"× {size.multiple}"
        if size.multiple != 1
        else "native"
        for size in (decision.hidden, decision.intermediate)
    )
    return then.removeprefix(f"hidden {hidden}, ").removesuffix(f", intermediate {intermediate}")


def _alternatives(decision: Decision) -> Iterable[Row]:
    """What holds in which part of the open facts: the answers, or the rules behind the one answer."""
    by_answer: dict[str, list[str]] = {}
    for alternative in decision.alternatives:
        where = ", ".join(f"{name_text(key)} {_any_of(text)}" for key, text in alternative.where.items())
        then = alternative.then if decision.status == "undecided" else f"by {alternative.rule}"
        by_answer.setdefault(then, []).append(where)
    for then, places in list(by_answer.items())[:MOST_ANSWERS]:
        more = f"; or {len(places) - 2} other ways" if len(places) > 2 else ""
        shown = "; or ".join(places[:2]) + more
        yield Row("if", [f"{shown} → {then}" if shown else then])
    if len(by_answer) > MOST_ANSWERS:
        yield Row("if", [f"{len(by_answer) - MOST_ANSWERS} more answers: see --json"])


def _any_of(values: str) -> str:
    return listed(values.split(", "), 8, "/")


def _launch(decision: Decision) -> Iterable[Row]:
    launch = decision.launch
    if launch is None:
        return
    told = [
        f"{name} {pad}"
        for name, pad in zip(("hidden_pad", "intermediate_pad"), launch, strict=True)
        if pad is not None
    ]
    if told:
        yield Row("launch", told)


_BROKEN = {"silent": "unsafe", "raises": "raises", "slow": "slower"}


def _warning(check: Check) -> Row | None:
    """What a contract has against the decision; what may yet be open is worth a line if sizes settle it."""
    contract = check.contract
    if check.holds is True:
        return None
    if check.holds is None:
        if any(demand.of not in ("hidden", "intermediate") for demand in contract.demands) or contract.facts:
            return None
        return Row("warning", [f"{contract.why or check.said} ({contract.address})"], "warn")
    why = f": {contract.why}" if contract.why else ""
    role = "warn" if contract.breaks == "slow" else "bad"
    return Row(_BROKEN[contract.breaks], [f"{check.said}{why} ({contract.address})"], role)


def _models(answer: Answer, style: Style) -> list[str]:
    """The known models: what one rank holds of each, largest first."""
    shown = answer.models[:MOST]
    padded = any(
        model.decision.hidden.allocated != model.decision.hidden.native
        for model in shown
        if model.decision.status == "decided"
    )
    head = ["model", *(["hidden"] if padded else []), "per rank: intermediate", "GiB created → resident"]
    head += [f"at {other}" for other in answer.alternatives]
    names = max(len(model.name) for model in shown)
    body = [_model_row(model, names, padded, len(answer.alternatives)) for model in shown]
    lines = table(style, head, body)
    if len(answer.models) > MOST:
        lines.append(f"and {len(answer.models) - MOST} smaller ones: `moe-align list models`")
    return lines


def _refusal(decision: Decision) -> str:
    """Why a model is refused, without the reason's reason."""
    return f"{decision.status}: {(decision.reason or '').partition(': ')[0]}"


def _model_row(model: ModelCost, names: int, padded: bool, others: int) -> list[str]:
    decision, layers, cost = model.decision, model.layers, model.cost
    row = [f"{model.name:<{names}} {layers or '–':>2} L"]
    if decision.status != "decided":
        return [*row, *(["–"] if padded else []), _refusal(decision), "–", *["–"] * others]
    split = f"{model.intermediate} / {model.ranks} = " if model.intermediate and model.ranks != 1 else ""
    if padded:
        row.append(f"{decision.hidden.native} → {decision.hidden.allocated}")
    row.append(f"{split}{decision.intermediate.native} → {decision.intermediate.allocated}")
    if cost is None or layers is None:
        return [*row, "–", *["–"] * others]
    stays = f" → {gib(cost.resident * layers)}" if cost.resident is not None else ""
    more = (gib(None if size is None else size * layers) for size in model.others)
    return [*row, f"{gib(cost.created * layers)}{stays}", *more]
