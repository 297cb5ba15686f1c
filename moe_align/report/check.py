"""The answer of `check`, as text and as plain values for JSON."""

from __future__ import annotations

from ..facts import VERSIONS
from ..record import NamedTuple
from ..sizes import ceil_div
from . import SHAPE
from .lines import Style, folded, table
from .words import PRODUCTS, fact_text, gib, listed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ..deployment.checking import Report
    from ..deployment.dims import Dim
    from ..deployment.outcome import Outcome
    from ..deployment.ways import Scenario, Way

    Plain = dict[str, object]


class Answered(NamedTuple):
    """One deployment of a list: its name, and the answer, or what is wrong with it."""

    name: str
    report: Report | None
    problem: str | None = None


_HEADINGS = {
    "native": ("Loads as it is", "good"),
    "refine": ("Loads, on a slower kernel", "warn"),
    "pad": ("Loads, padded", "good"),
    "fallback": ("Loads, on another kernel than asked for", "warn"),
    "unknown": ("Not known", "warn"),
    "unsafe": ("Starts, and computes something else", "bad"),
    "reject": ("Does not load", "bad"),
}

#: So many requested backends are named in one row.
_MOST_NAMES = 3


def check_plain(report: Report, digest: str) -> Plain:
    """The answer as `--json` gives it; `digest` is that of the policy."""
    first = report.outcome
    return {
        "version": SHAPE,
        "verdict": report.verdict,
        "model": report.model.name,
        "engine": {"name": str(first.values.get("engine")), "release": _release(first)},
        "parallel": _parallel(first),
        "reasons": list(report.reasons),
        "dims": [_dim_plain(dim) for dim in report.dims],
        "bytes_per_rank": _bytes(first),
        "backend": first.decision.backend,
        "scenarios": [_scenario_plain(one) for one in report.scenarios],
        "suggestions": [_way_plain(way) for way in report.ways],
        "other_engines": [_other_plain(other) for other in report.others],
        "assumed": {**first.decision.assumed, **(first.machine or {})},
        "notes": [*_notes(report)],
        "policy": {"digest": digest},
    }


def _parallel(first: Outcome) -> Plain:
    keys = ("tp", "dp", "pcp", "ep", "moe_tp", "moe_ep")
    return {key: value if isinstance(value := first.values.get(key), int) else None for key in keys}


def _dim_plain(dim: Dim) -> Plain:
    return {
        "name": dim.name,
        "whole": dim.whole,
        "ranks": dim.ranks,
        "native": dim.native,
        "allocated": dim.allocated,
        "resident": dim.resident,
        "verdict": dim.verdict,
        "rule": dim.rule,
        "reason": dim.reason,
    }


def _bytes(first: Outcome) -> Plain:
    return {
        "native": first.native_bytes,
        "allocated": first.created_bytes,
        "resident": first.resident_bytes,
    }


def _scenario_plain(one: Scenario) -> Plain:
    return {
        "if": {one.key: list(one.values)},
        "verdict": one.outcome.verdict,
        "reason": one.outcome.reason,
        "intermediate": one.outcome.decision.intermediate.allocated,
        "bytes_per_rank": _bytes(one.outcome),
    }


def _way_plain(way: Way) -> Plain:
    return {
        "change": way.change,
        "verdict": way.outcome.verdict,
        "intermediate": way.outcome.decision.intermediate.allocated,
        "bytes_per_rank": _bytes(way.outcome),
    }


def _other_plain(other: Report) -> Plain:
    return {
        "engine": str(other.outcome.values.get("engine")),
        "release": _release(other.outcome),
        "verdict": other.verdict,
        "reason": other.reasons[0] if other.reasons else None,
    }


def several_plain(answers: Sequence[Answered], digest: str) -> Plain:
    """The answers to several deployments as `--json` gives them."""
    return {
        "version": SHAPE,
        "deployments": [
            {
                "name": one.name,
                "answer": check_plain(one.report, digest) if one.report else None,
                "problem": one.problem,
            }
            for one in answers
        ],
    }


def several_text(answers: Sequence[Answered], style: Style) -> str:
    """The answers to several deployments: one line for each."""
    head = ["deployment", "verdict", "per rank", "GiB per rank", "why"]
    return "\n".join(table(style, head, [_line(one) for one in answers]))


def _line(one: Answered) -> list[str]:
    if one.report is None:
        return [one.name, "–", "–", "–", one.problem or ""]
    report = one.report
    size = report.outcome.decision.intermediate
    sizes = _change(size.native, size.allocated)
    why = report.reasons[0] if report.reasons and not report.loads else _outcome_text(report.outcome)
    return [one.name, report.verdict, sizes, gib(report.outcome.created_bytes), why]


def _change(native: int | None, allocated: int | None) -> str:
    if native is None:
        return "–"
    return str(native) if allocated in (None, native) else f"{native} → {allocated}"


def check_text(report: Report, style: Style) -> str:
    """The answer as a person reads it; lines end without a newline at the very end."""
    blocks = [_head(report, style), _dims(report, style), _table(report, style), _ways(report, style)]
    lines = [line for number, block in enumerate(filter(None, blocks)) for line in ("", *block)[number < 2 :]]
    said = _others(report)
    lines += [style.paint(line, "faint") for text in said for line in folded(text, style.width)]
    for note in _notes(report):
        lines += [style.paint(line, "warn") for line in folded(f"note: {note}", style.width)]
    return "\n".join(lines)


def _head(report: Report, style: Style) -> list[str]:
    text, role = _HEADINGS[report.verdict]
    about = " · ".join(_about(report.outcome))
    if style.width is not None and max(len(text) + 2, 30) + len(about) > style.width:
        return [style.paint(text, role), style.paint(f"  {about}", "faint")]
    return [style.paint(f"{text:<28}", role) + style.paint(f"  {about}", "faint")]


def _about(first: Outcome) -> Iterator[str]:
    """What the answer is about, in a few words."""
    engine = str(first.values.get("engine"))
    release = _release(first)
    yield f"{PRODUCTS.get(engine, engine)} {release}" if release else PRODUCTS.get(engine, engine)
    for key in ("platform", "arch"):
        value = first.values.get(key)
        if value is not None:
            assumed = " (assumed)" if key in (first.machine or {}) else ""
            yield f"{value}{assumed}"
    for key in ("tp", "dp"):
        value = first.values.get(key)
        if isinstance(value, int) and (key == "tp" or value > 1):
            yield fact_text(key, value)
    ranks = first.values.get("moe_ep")
    yield f"EP {ranks}" if isinstance(ranks, int) and ranks > 1 else "EP off"
    backend = first.facts.get("backend") or first.values.get("requested")
    if backend is not None:
        yield f"backend {backend}"


def _release(first: Outcome) -> str | None:
    engine = str(first.values.get("engine"))
    given = first.facts.get(engine) if engine in VERSIONS else None
    found = given or first.decision.assumed.get(engine)
    return str(found) if found is not None else None


def _dims(report: Report, style: Style) -> list[str]:
    """The dimensions that say something: the routed intermediate size, and all that are not native."""
    shown = [
        dim
        for dim in report.dims
        if dim.verdict != "native" or dim.name == "routed.intermediate" or _grown(dim)
    ]
    width = max(len(dim.name) for dim in shown)
    lines = []
    for dim in shown:
        role = "bad" if dim.verdict in ("reject", "unsafe") else "strong"
        lines.append(f"{style.paint(f'{dim.name:<{width}}', role)}   {_sum(dim)}")
        if dim.reason and dim.verdict != "native":
            said = f"{dim.reason} ({dim.rule})" if dim.rule else dim.reason
            lines += [" " * (width + 3) + line for line in folded(said, _room(style, width + 3))]
    return lines


def _room(style: Style, before: int) -> int | None:
    return None if style.width is None else max(style.width - before, 24)


def _grown(dim: Dim) -> bool:
    return dim.native is not None and max(dim.allocated or 0, dim.resident or 0) > dim.native


def _sum(dim: Dim) -> str:
    """How a size on one rank comes about, in blocks where it has them, and what becomes of it."""
    if dim.native is None:
        return f"{dim.whole} / {dim.ranks}"
    parts = [f"{dim.whole} / {dim.ranks} = {dim.native}" if dim.ranks > 1 else str(dim.native)]
    if dim.unit and dim.unit > 1:
        parts.append(_blocks(dim.native, dim.unit))
    text = " = ".join(parts)
    if not _grown(dim):
        return text
    if dim.resident in (None, dim.allocated):
        return f"{text} → {dim.allocated}"
    return f"{text} → {dim.allocated} → {dim.resident} once loaded"


def _blocks(size: int, unit: int) -> str:
    number = f"{size / unit:.2f}".rstrip("0").rstrip(".")
    return f"{number} {'block' if number == '1' else 'blocks'} of {unit}"


def _table(report: Report, style: Style) -> list[str]:
    first = report.outcome
    base = first.native_bytes
    rows = [_row(_asked(first), first, base)]
    rows += [_row(_scenario(one, _asked(first)), one.outcome, base) for one in report.scenarios]
    head = ["requested", "outcome", "per rank", "GiB per rank", ""]
    return table(style, head, rows)


def _row(label: str, found: Outcome, base: int | None) -> list[str]:
    size = found.decision.intermediate
    created, resident = found.created_bytes, found.resident_bytes
    stays = f" → {gib(resident)}" if resident != created else ""
    per_rank = "–" if size.allocated is None or found.verdict == "reject" else str(size.allocated)
    if size.resident not in (None, size.allocated) and found.verdict != "reject":
        per_rank = f"{per_rank} → {size.resident}"
    if _is_hidden_grown(found):
        per_rank = f"{found.decision.hidden.allocated} × {per_rank}"
    return [label, _outcome_text(found), per_rank, f"{gib(created)}{stays}", _percent(created, base)]


def _is_hidden_grown(found: Outcome) -> bool:
    hidden = found.decision.hidden
    return hidden.native is not None and hidden.allocated is not None and hidden.allocated > hidden.native


def _percent(created: int | None, base: int | None) -> str:
    if created is None or not base:
        return ""
    percent = round(100 * (created - base) / base)
    return f"+ {percent}%" if percent > 0 else ""


def _asked(first: Outcome) -> str:
    return str(first.facts.get("backend") or first.values.get("requested") or "auto")


def _scenario(one: Scenario, asked: str) -> str:
    if one.key == "requested":
        return listed(one.values, _MOST_NAMES)
    if one.key.startswith("env."):
        return f"{asked}, {one.key[4:]}={one.values[0]}"
    spans = ", ".join(one.values).replace(">=", "≥ ").replace("<", "< ").replace(",", " and ")
    return f"{asked}, {PRODUCTS.get(one.key, one.key)} {spans}"


def _outcome_text(found: Outcome) -> str:
    """A verdict in a few words, with what it changes."""
    decision = found.decision
    if found.verdict == "refine":
        blocks = dict(decision.blocks)
        unit, name = ("blocks", "block_n") if "block_n" in blocks else ("groups", "group")
        only = f", {decision.backend} only" if decision.backend else ""
        return f"refine {unit} {found.values.get(name)} → {blocks.get(name)}{only}"
    if found.verdict == "pad":
        return f"pad{_empty_ranks(found)}"
    if found.verdict in ("reject", "unsafe") and decision.error:
        return f"{found.verdict}: {decision.error} before loading"
    if found.verdict == "reject":
        return "reject"
    backend = f", {decision.backend}" if decision.backend and found.verdict == "native" else ""
    return f"{found.verdict}{backend}"


def _empty_ranks(found: Outcome) -> str:
    """Where ranks take whole blocks in turn, the last ones may hold nothing but padding."""
    winner, size = found.decision.winner, found.decision.intermediate
    multiple = winner.outcome.intermediate if winner else None
    whole, ranks = found.values.get("intermediate"), found.values.get("moe_tp")
    if multiple is None or "block_n" not in multiple.items or not size.allocated:
        return ""
    if not isinstance(whole, int) or not isinstance(ranks, int):
        return ""
    full = ceil_div(whole, size.allocated)
    if full >= ranks:
        return ""
    if full == ranks - 1:
        return f"; rank {full} holds only padding"
    return f"; ranks {full} to {ranks - 1} hold only padding"


def _ways(report: Report, style: Style) -> list[str]:
    if not report.ways:
        return []
    width = max(len(way.change) for way in report.ways)
    sizes = [_way(way) for way in report.ways]
    room = max(len(size) for size in sizes)
    head = (
        "ways out (each checked)" if not report.loads or report.verdict == "refine" else "also (each checked)"
    )
    lines = [style.paint(head, "head")]
    for way, size in zip(report.ways, sizes, strict=True):
        created = gib(way.outcome.created_bytes)
        lines.append(f"  {way.change:<{width}}   {size:<{room}}   {created:>8}".rstrip(" –"))
    return lines


def _way(way: Way) -> str:
    """What a rank holds then."""
    found = way.outcome
    size, values = found.decision.intermediate, found.values
    ranks = values.get("moe_ep")
    if isinstance(ranks, int) and ranks > 1 and found.cost is not None:
        return f"{found.cost.experts} experts × {size.allocated}"
    if size.native is not None and size.allocated != size.native:
        return f"{size.native} → {size.allocated}"
    unit = values.get("block_n") or values.get("group")
    if size.allocated is None or not isinstance(unit, int) or unit < 2:
        return f"{size.allocated}"
    return f"{size.allocated} = {_blocks(size.allocated, unit)}"


def _others(report: Report) -> Iterable[str]:
    if not report.others:
        return []
    said = "; ".join(_other(other) for other in report.others)
    return [f"other engines: {said}"]


_SAID = {
    "native": "loads it as it is",
    "refine": "loads it on a slower kernel",
    "pad": "pads it",
    "fallback": "loads it on another kernel",
    "reject": "rejects it at start",
    "unsafe": "computes something else",
}


def _other(other: Report) -> str:
    found = other.outcome
    engine = str(found.values.get("engine"))
    name = f"{PRODUCTS.get(engine, engine)} {_release(found)}"
    if other.verdict == "unknown":
        return f"{name}: depends on {listed(found.decision.open, 3)}"
    more = f" to {found.decision.intermediate.allocated}" if other.verdict == "pad" else ""
    return f"{name} {_SAID[other.verdict]}{more}"


def _notes(report: Report) -> Iterator[str]:
    yield from report.outcome.decision.notes
    yield from report.notes
    for check in report.outcome.decision.contracts:
        if check.holds is False and check.contract.breaks == "slow":
            yield f"slower: {check.said}: {check.contract.why} ({check.contract.address})"
