"""The same table asked of general rule engines: each as a function with the keywords of the chain.

Each is used in the fastest way that it has. For zen that is one compiled expression (its decision
table is measured beside it), for CEL one compiled expression. Both give the number of the row; what a
caller must do besides, building their context and rounding both sizes, is done here as it is in `chain`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from typing import Any

import table

Function = Callable[..., tuple[int, int]]

#: The modules of the rivals.
MODULES = ("zen", "cel_expr_python")


def rivals(modules: Sequence[str] = MODULES) -> Iterator[tuple[str, Function]]:
    """The name and the function of every rival whose module is among `modules`."""
    if "zen" in modules:
        yield from _zen()
    if "cel_expr_python" in modules:
        yield "cel-expr-python, compiled expression", _function(_cel())


def installed() -> tuple[str, ...]:
    """Those of the rivals' modules that can be imported here."""
    return tuple(module for module in MODULES if find_spec(module) is not None)


def _zen() -> Iterator[tuple[str, Function]]:
    import zen

    expression = zen.compile_expression(table.as_expression("and")).evaluate
    yield "zen-engine, compiled expression", _function(expression)
    decision = zen.ZenEngine().create_decision(json.dumps(table.as_decision_table()))
    yield "zen-engine, decision table", _function(lambda facts: decision.evaluate(facts)["result"]["number"])


def _cel() -> Callable[[dict[str, Any]], int]:
    from cel_expr_python import cel

    texts = dict.fromkeys(table.VALUES, cel.Type.STRING)
    numbers = dict.fromkeys(("fused_shared_experts", "vllm"), cel.Type.INT)
    program = cel.NewEnv(variables={**texts, **numbers}).compile(table.as_expression("&&")).eval
    return lambda facts: program(data=facts).value()


def _function(ask: Callable[[dict[str, Any]], float]) -> Function:
    rows = {number: (row.hidden, row.intermediate) for number, row in enumerate(table.ROWS)}

    def sizes(
        *,
        backend: str,
        activation: str,
        platform: str,
        fused_shared_experts: int,
        hidden: int,
        intermediate_per_partition: int,
    ) -> tuple[int, int]:
        facts = {
            "backend": backend,
            "activation": activation,
            "platform": platform,
            "fused_shared_experts": fused_shared_experts,
            "vllm": table.MINOR,
        }
        h, i = rows[ask(facts)]
        return -(-hidden // h) * h, -(-intermediate_per_partition // i) * i

    return sizes
