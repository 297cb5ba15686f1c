"""What a change of rules changes, in words: for people, for pull requests, for services, for programs."""

from __future__ import annotations

from ..findings import Finding, facts_text
from ..packs import DIMENSIONS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..diff import Change, Difference, ModelChange

_NOTHING = "no change"

#: A change of a decision; of words, defaults and contracts; of a known model's sizes.
CODES = ("D701", "D702", "D703")


def diff_text(found: Difference) -> str:
    """For people: a block a change, then models."""
    if found.is_empty:
        return _NOTHING
    blocks = [_block(change) for change in found.changes]
    return "\n".join([*blocks, *found.other, *map(model_text, found.models)])


def _block(change: Change) -> str:
    lines = [f"{change.sort}  {change.phase}: {change.said}"]
    lines += [f"  {change.old or 'nobody'} → {change.new or 'nobody'}"]
    lines += [f"  where: {line}" for line in change.where]
    return "\n".join([*lines, f"  try: moe-align resolve {facts_text(change.facts)}".rstrip()])


def model_text(change: ModelChange) -> str:
    """One model: sizes, and GiB per rank created and resident."""
    named = " ".join(str(change.facts[key]) for key in ("backend", "activation") if key in change.facts)
    sizes = [
        f"{old} → {new}" if name == "intermediate" else f"{name} {old} → {new}"
        for name, old, new in zip(DIMENSIONS, change.old, change.new, strict=True)
        if old != new
    ]
    snapshots = "saved snapshots still fit" if change.fits else "saved snapshots no longer fit"
    costs = [f"{_gib(change.created)} created", f"{_gib(change.resident)} resident per rank", snapshots]
    about = f" ({named})" if named else ""
    return f"{change.model} {_launch(change)}{about}: {', '.join(sizes)}, {', '.join(costs)}"


def _launch(change: ModelChange) -> str:
    return f"TP {change.tp}" if change.ep == 1 else f"EP {change.ep}"


def _gib(size: int | None) -> str:
    return "? GiB" if size is None else f"{size / 2**30:+.2f} GiB".replace("-", "−")


def receipt(found: Difference, kv_bytes: Mapping[str, int] | None = None) -> str:
    """The same as Markdown: bytes, KV tokens, snapshots, decisions, what is not affected.

    `kv_bytes` has what one token takes in the KV cache, by known model.
    """
    if found.is_empty:
        return "No change: every decision is as it was.\n"
    parts = {
        "Bytes per rank": _byte_lines(found),
        "KV tokens": _kv_lines(found, kv_bytes or {}),
        "Snapshots": _snapshot_lines(found),
        "Decisions": _decision_lines(found),
        "Not affected": _untouched_lines(found),
    }
    lines = ["## What this changes"]
    for head, body in parts.items():
        lines += ["", f"### {head}", "", *body]
    return "\n".join(lines) + "\n"


def _byte_lines(found: Difference) -> list[str]:
    if not found.models:
        return ["No known model has other sizes."]
    head = ["| model | ranks | backend | sizes | GiB created | GiB resident |", "|---|---|---|---|---|---|"]
    return [*head, *map(_row, found.models)]


def _row(change: ModelChange) -> str:
    sizes = " × ".join(
        f"{new}" if old == new else f"{old} → {new}" for old, new in zip(change.old, change.new, strict=True)
    )
    backend = change.facts.get("backend", "any")
    costs = f"{_gib(change.created)} | {_gib(change.resident)}"
    return f"| {change.model} | {_launch(change)} | {backend} | {sizes} | {costs} |"


def _kv_lines(found: Difference, kv_bytes: Mapping[str, int]) -> list[str]:
    lines = []
    for change in found.models:
        if change.resident:
            said = f"- {change.model}, {_launch(change)}: {_gib(-change.resident)} for KV cache"
            each = kv_bytes.get(change.model)
            if each:
                said += f", {_millions(-change.resident / each)} tokens at {each:,} bytes"
            lines.append(said)
    if not lines:
        return ["As it was: no resident weight changes."]
    return [*lines, "", "The total that the engine reserves stays."]


def _millions(tokens: float) -> str:
    return f"{tokens / 1e6:+.2f} M".replace("-", "−")


def _snapshot_lines(found: Difference) -> list[str]:
    broken = [f"{change.model} {_launch(change)}" for change in found.models if not change.fits]
    if not broken:
        return ["Every snapshot of a known model that was saved before still fits."]
    return [f"Saved before and no longer fitting: {', '.join(dict.fromkeys(broken))}."]


def _decision_lines(found: Difference) -> list[str]:
    lines = []
    for change in found.changes:
        more = len(change.boxes) - 1
        lines.append(f"- **{change.sort}**, {change.phase}: {change.said}  ")
        lines.append(f"  {change.where[0]}" + (f", and {more} more" if more else ""))
    return lines + [f"- {line}" for line in found.other]


def _untouched_lines(found: Difference) -> list[str]:
    lines = [
        f"- {key.capitalize()}s other than {', '.join(values)}." for key, values in found.affected.items()
    ]
    if not any(change.ep > 1 for change in found.models):
        lines.append("- EP layouts of the known models: whole experts keep their sizes.")
    return lines


def diff_findings(found: Difference) -> tuple[Finding, ...]:
    """The difference as findings, for services that show such beside the lines of a pull request."""
    decision, other, model = CODES
    changes = [
        Finding(
            decision,
            f"{change.sort}, {change.phase}: {change.said}",
            change.location,
            change.new or change.old,
            level="warning",
            where=change.where,
            facts=change.facts,
            rules=(change.old,) if change.old and change.old != change.new else (),
        )
        for change in found.changes
    ]
    others = [Finding(other, said, level="warning") for said in found.other]
    models = [Finding(model, model_text(change), level="note") for change in found.models]
    return (*changes, *others, *models)


def diff_plain(found: Difference) -> dict[str, object]:
    """The difference as JSON has it."""
    return {
        "version": 1,
        "changed": not found.is_empty,
        "changes": [
            {
                "phase": change.phase,
                "class": change.sort,
                "old": change.old,
                "new": change.new,
                "said": change.said,
                "where": list(change.where),
                "facts": dict(change.facts),
            }
            for change in found.changes
        ],
        "other": list(found.other),
        "affected": {key: list(values) for key, values in found.affected.items()},
        "models": [
            {
                "model": change.model,
                "tp": change.tp,
                "ep": change.ep,
                "facts": dict(change.facts),
                "old": dict(zip(DIMENSIONS, change.old, strict=True)),
                "new": dict(zip(DIMENSIONS, change.new, strict=True)),
                "bytes_created": change.created,
                "bytes_resident": change.resident,
                "snapshots_fit": change.fits,
            }
            for change in found.models
        ],
    }
