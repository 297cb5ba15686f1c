"""Every known model × TP 1 … 64 × scheme × backend of one engine, on one core: `python bench/sweep.py`.

Prints how many decisions were made in a second, how that changes from the first half to the second, and
how much memory the process came to hold. A decision is the two allocated sizes, or that there are none.
`--quick` takes one scheme.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from moe_align import Facts, Policy, PolicyError
from moe_align.cache import cached_models, cached_policy
from moe_align.deployment.question import with_model
from moe_align.models import Model

#: Decisions a second, at the least.
TARGET = 20_000

MOST_TP = 64

#: So many sizes of one backend are kept: models share them.
MOST_KEPT = 20_000

Sizes = Callable[..., tuple[int, int]]


class Choice(NamedTuple):
    """One scheme with one backend: the function that gives its sizes, and the facts that it looks at."""

    scheme: str
    backend: str
    sizes: Sizes
    keywords: tuple[str, ...]


class Layer(NamedTuple):
    """The experts of one model: what a rank count does not change."""

    facts: dict[str, object]
    hidden: int
    intermediate: int


def choices(policy: Policy, engine: str, schemes: list[str]) -> Iterator[Choice]:
    """Every scheme with every backend that may go with it."""
    for scheme in schemes:
        for backend in sorted(policy.stack.vocabulary.domain("backend")):
            try:
                bound = policy.bind(engine=engine, scheme=scheme, backend=backend)
            except PolicyError:
                continue
            yield Choice(scheme, backend, bound, bound.__self__.keywords)  # type: ignore[attr-defined]


def layers(policy: Policy, models: tuple[Model, ...]) -> list[Layer]:
    """The models whose sizes are known."""
    found = []
    for model in models:
        hidden, width = model.routed_hidden_size, model.moe_intermediate_size
        if hidden and width:
            facts = dict(with_model(policy.stack.vocabulary, Facts(), model).items())
            found.append(Layer(facts, hidden, width))
    return found


def sweep(choice: Choice, models: list[Layer]) -> tuple[int, int]:
    """Decisions made for one scheme and backend, and how many of them are sizes."""
    made = sized = 0
    kept: dict[object, tuple[int, int] | None] = {}
    for layer in models:
        own = {key: layer.facts.get(key) for key in choice.keywords}
        for tp in range(1, MOST_TP + 1):
            made += 1
            if layer.intermediate % tp:
                continue
            sized += _decide(choice, layer, own, tp, kept) is not None
    return made, sized


def _decide(
    choice: Choice,
    layer: Layer,
    own: dict[str, object],
    tp: int,
    kept: dict[object, tuple[int, int] | None],
) -> tuple[int, int] | None:
    more = {key: tp for key in ("tp", "moe_tp") if key in own}
    values = {**own, **more}
    shard = layer.intermediate // tp
    key = (*values.values(), layer.hidden, shard)
    if key not in kept:
        if len(kept) >= MOST_KEPT:
            kept.clear()
        try:
            kept[key] = choice.sizes(hidden=layer.hidden, intermediate_per_partition=shard, **values)
        except PolicyError:
            kept[key] = None
    return kept[key]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine", default="vllm")
    parser.add_argument("--quick", action="store_true", help="one scheme alone")
    said = parser.parse_args()
    policy, models = cached_policy(), cached_models()
    schemes = ["mxfp4"] if said.quick else sorted(policy.stack.vocabulary.domain("scheme"))
    listed, known = list(choices(policy, said.engine, schemes)), layers(policy, models)
    half, rates, total, sized = len(listed) // 2, [], 0, 0
    for part in (listed[:half], listed[half:]):
        start, before = time.process_time(), total
        for choice in part:
            made, with_sizes = sweep(choice, known)
            total, sized = total + made, sized + with_sizes
        rates.append((total - before) / max(time.process_time() - start, 1e-9))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    rate = 2 / (1 / rates[0] + 1 / rates[1])
    of = f"{len(known)} models × TP 1–{MOST_TP} × {len(listed)} choices"
    print(f"{total:,} decisions ({sized:,} with sizes): {of}")
    print(f"{rate:,.0f} a second; first half {rates[0]:,.0f}, second {rates[1]:,.0f}; {memory} MiB at most")
    return 0 if rate >= TARGET else 1


if __name__ == "__main__":
    raise SystemExit(main())
