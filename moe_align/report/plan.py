"""The answer of `plan`: a table, a chart, CSV, and plain values for JSON."""

from __future__ import annotations

from . import SHAPE
from .lines import Style, folded, table
from .words import PRODUCTS, gib, listed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..deployment.layouts import Layout, Plan, Refused
    from ..deployment.outcome import Outcome

    Plain = dict[str, object]

#: So many columns the bars of the chart take at most.
_BAR = 40

#: So many backends are named in one row.
_MOST_BACKENDS = 2

#: So many reasons for layouts that are out are told.
_MOST_REASONS = 4


def plan_plain(plan: Plan, digest: str) -> Plain:
    """The answer as `--json` gives it; `digest` is that of the policy."""
    return {
        "version": SHAPE,
        "model": plan.model.name,
        "engine": {"name": plan.engine, "release": plan.release},
        "gpus": plan.gpus,
        "layers": plan.model.moe_layers,
        "memory": plan.memory,
        "kv_bytes_per_token": plan.kv_bytes,
        "layouts": [_layout(plan, one) for one in plan.layouts],
        "refused": [_refused(one) for one in plan.refused],
        "notes": list(plan.notes),
        "policy": {"digest": digest},
    }


def _layout(plan: Plan, one: Layout) -> Plain:
    found = one.outcome
    size = found.decision.intermediate
    return {
        "moe_tp": one.moe_tp,
        "moe_ep": one.moe_ep,
        "splits": [{"tp": tp, "dp": dp} for tp, dp in one.splits],
        "requested": list(one.asked),
        "default": one.default,
        "backend": found.decision.backend,
        "experts": found.cost.experts if found.cost else None,
        "hidden": found.decision.hidden.allocated,
        "intermediate": {"native": size.native, "allocated": size.allocated},
        "verdict": found.verdict,
        "rule": found.decision.rule,
        "bytes_per_rank": {
            "native": found.native_bytes,
            "allocated": found.created_bytes,
            "resident": found.resident_bytes,
        },
        "fits": None if plan.memory is None or one.fits is None else one.fits <= plan.memory,
        "notes": list(one.notes),
    }


def _refused(one: Refused) -> Plain:
    return {
        "moe_tp": one.moe_tp,
        "moe_ep": one.moe_ep,
        "splits": [{"tp": tp, "dp": dp} for tp, dp in one.splits],
        "requested": list(one.asked),
        "fused_shared_experts": one.fused,
        "reason": one.reason,
    }


_COLUMNS = ("moe_tp", "moe_ep", "tp_dp", "requested", "backend", "experts", "hidden", "intermediate")


def plan_csv(plan: Plan) -> str:
    """The layouts as CSV, with a line of names."""
    lines = [",".join((*_COLUMNS, "verdict", "bytes_per_rank", "default"))]
    lines += [",".join(map(str, _cells(one))) for one in plan.layouts]
    return "\n".join(lines)


def _cells(one: Layout) -> Iterator[object]:
    found = one.outcome
    yield from (one.moe_tp, one.moe_ep)
    yield " ".join(f"{tp}x{dp}" for tp, dp in one.splits)
    yield " ".join(one.asked) or "auto"
    yield found.decision.backend or ""
    yield found.cost.experts if found.cost else ""
    yield found.decision.hidden.allocated or ""
    yield found.decision.intermediate.allocated or ""
    yield found.verdict
    yield "" if one.fits is None else one.fits
    yield "yes" if one.default else "no"


def plan_text(plan: Plan, style: Style) -> str:
    """The answer as a person reads it; lines end without a newline at the very end."""
    lines = [style.paint(", ".join(_head(plan)), "strong")]
    if plan.layouts:
        head = ["layout", "backend", "experts × width", "GiB per rank", "note"]
        lines += table(style, head, [_row(plan, alike) for alike in _alike(plan.layouts)])
    for text in (*_saving(plan), *_out(plan), *(f"note: {note}" for note in plan.notes)):
        lines += folded(text, style.width)
    return "\n".join(lines)


def _head(plan: Plan) -> Iterator[str]:
    yield "routed experts" if plan.layouts else "routed experts: no layout loads"
    layers = plan.model.moe_layers
    yield f"{layers} layers" if layers else "one layer"
    yield f"{PRODUCTS.get(plan.engine, plan.engine)} {plan.release}".rstrip()
    yield f"{plan.gpus} GPUs"


def _alike(layouts: Sequence[Layout]) -> list[list[Layout]]:
    """Layouts that differ in the backend alone, together; a default start stays by itself."""
    groups: dict[object, list[Layout]] = {}
    for one in layouts:
        decision = one.outcome.decision
        sizes = decision.hidden.allocated, decision.intermediate.allocated, decision.blocks
        key = one.moe_tp, one.moe_ep, sizes, one.fits, one.splits, one.notes, one.default
        groups.setdefault(key, []).append(one)
    return list(groups.values())


def _row(plan: Plan, alike: list[Layout]) -> list[str]:
    one = alike[0]
    found = one.outcome
    count = found.cost.experts if found.cost else "–"
    size = found.decision.intermediate.allocated
    asked = [name for other in alike for name in other.asked]
    backends = [other.outcome.decision.backend or "engine's choice" for other in alike]
    return [
        _name(plan, one),
        listed(backends, _MOST_BACKENDS),
        f"{count:>4} × {size if size is not None else '–'}",
        gib(one.fits),
        " · ".join(_remarks(plan, one, asked)),
    ]


def _name(plan: Plan, one: Layout) -> str:
    parts = []
    if one.moe_tp > 1 or one.moe_ep == 1:
        parts.append(f"MoE-TP {one.moe_tp}")
    if one.moe_ep > 1:
        parts.append(f"EP {one.moe_ep}")
    name = " × ".join(parts)
    everywhere = len(one.splits) == _splits(plan)
    only = "" if everywhere else f" (TP {', '.join(str(tp) for tp, _ in one.splits)})"
    return f"{name}{only}"


def _splits(plan: Plan) -> int:
    """In how many ways TP and DP make up the GPUs."""
    if plan.engine == "sglang":
        return 1
    return sum(plan.gpus % tp == 0 for tp in range(1, plan.gpus + 1))


def _remarks(plan: Plan, one: Layout, asked: Sequence[str]) -> Iterator[str]:
    if one.default:
        yield "what a default start gives"
    elif asked and plan.engine == "vllm":
        yield f"--moe-backend {listed(asked, _MOST_BACKENDS)}"
    if one.outcome.verdict == "refine":
        yield "finer blocks: a slower kernel"
    if plan.memory is not None and one.fits is not None and one.fits > plan.memory:
        yield "does not fit"
    yield from one.notes


def _saving(plan: Plan) -> Iterator[str]:
    """What the best layout of the same split saves, as tokens of KV cache."""
    saving = plan.saving
    if saving is None:
        return
    _, best, saved = saving
    flags = _flag(best)
    said = f"+ {gib(saved)} GiB with {flags}"
    if plan.kv_bytes:
        said += f": {_millions(saved // plan.kv_bytes)} KV tokens at {plan.kv_bytes:,} bytes"
    yield f"{said} (the total that the engine reserves does not fall)"


def _flag(best: Layout) -> str:
    switches = [
        f"{key[4:]}={value}"
        for key, value in best.outcome.values.items()
        if key.startswith("env.") and value != "unset"
    ]
    switches += [f"{key[4:]}={value}" for key, value in _demanded(best) if key not in best.outcome.values]
    return " ".join((*switches, f"--moe-backend {best.asked[0]}")) if best.asked else "a default start"


def _demanded(best: Layout) -> Iterator[tuple[str, str]]:
    """Switches of one value that a contract asks for, where nothing is said of them."""
    for check in best.outcome.decision.contracts:
        for wanted in check.contract.facts if check.holds is None else ():
            values = wanted.accepts if isinstance(wanted.accepts, frozenset) else frozenset()
            if wanted.key.startswith("env.") and len(values) == 1:
                yield wanted.key, str(next(iter(values)))


def _millions(tokens: int) -> str:
    return f"{tokens / 1e6:.2f} M" if tokens >= 10**6 else f"{tokens:,}"


def _out(plan: Plan) -> Iterator[str]:
    """Why layouts are out: those that fail without a request first, then requests for other machines."""
    plain = [one for one in plan.refused if not one.asked]
    for one in plain[:_MOST_REASONS]:
        where = ", ".join(f"TP {tp} × DP {dp}" for tp, dp in one.splits[:3])
        fused = " with fused shared experts" if one.fused else ""
        yield f"out: {_split_name(one)}{fused} ({where}): {one.reason}"
    asked = dict.fromkeys(name for one in plan.refused for name in one.asked)
    here = {name for one in plan.layouts for name in one.asked}
    never = [name for name in asked if name not in here]
    if never and plan.layouts:
        yield f"out: backends {listed(never, 8)}: none takes this model on this machine (--json has why)"


def _split_name(one: Refused) -> str:
    return f"EP {one.moe_ep}" if one.moe_ep > 1 else f"MoE-TP {one.moe_tp}"


def chart_text(points: Sequence[tuple[int, Outcome | None]], style: Style) -> str:
    """Bars of GiB per rank over tensor-parallel sizes; padding is the lighter part."""
    sized = [(f"TP {tp}", found) for tp, found in points]
    most = max((found.created_bytes or 0 for _, found in sized if found), default=0)
    names = max((len(label) for label, _ in sized), default=0)
    room = _BAR if style.width is None else max(10, min(_BAR, style.width - names - 14))
    lines = [_bar(f"{label:<{names}}", found, most, room) for label, found in sized]
    return "\n".join(["", style.paint("GiB per rank as created; light: padding", "head"), *lines])


def _bar(label: str, found: Outcome | None, most: int, room: int) -> str:
    if found is None or found.created_bytes is None:
        return f"{label}  –" if found else f"{label}  does not load"
    length = max(1, round(room * found.created_bytes / most))
    live = found.created_bytes if found.native_bytes is None else found.native_bytes
    solid = min(length, max(1, round(room * live / most)))
    return f"{label}  {'█' * solid}{'░' * (length - solid)} {gib(found.created_bytes)}"
