"""What a GPU measured, as Markdown, for `experts.py` to print there and `bench/run.py` to keep here."""

from __future__ import annotations

from typing import Any


def report(found: dict[str, Any]) -> str:
    """Both tables, of bytes and of times, under a line that names the machine."""
    native, padded = (row["width"] for row in found["memory"])
    lines = [
        f"{found['device']}, torch {found['torch']}; {found['layers']} layers of {found['experts']} experts, "
        f"{found['hidden']} × {native}",
        "",
        "| width | predicted GiB | sum of tensors | memory_allocated | |",
        "| --: | --: | --: | --: | --: |",
    ]
    for row in found["memory"]:
        gib = " | ".join(f"{row[column]:.2f}" for column in ("predicted", "tensors", "allocator"))
        over = row["allocator"] / row["predicted"] - 1 if row["allocator"] else 0
        lines.append(f"| {row['width']} | {gib} | {over:+.3%} |")
    lines += [
        "",
        f"| tokens an expert | ms at {native} | ms at {padded} | ratio | least – greatest |",
        "| --: | --: | --: | --: | --: |",
    ]
    for row in found["speed"]:
        milliseconds = f"{row['native']:.3f} | {row['padded']:.3f}"
        spread = f"{row['ratio']:.2f} × | {row['least']:.2f} – {row['greatest']:.2f}"
        lines.append(f"| {row['tokens']} | {milliseconds} | {spread} |")
    return "\n".join(lines)
