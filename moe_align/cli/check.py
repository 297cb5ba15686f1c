"""`check`: will this deployment load, what does it cost, and what else could be done."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from ..cache import cached_policy
from ..deployment.checking import Report, asked
from ..deployment.question import spread
from ..errors import Location, PolicyError, Problem
from ..facts import Facts
from ..policy import Policy
from ..report import json_text
from ..report.check import Answered, check_plain, check_text, several_plain, several_text
from .asking import check_capabilities
from .flags import Json, Said, about_deployment, given
from .terminal import fail, say, style, watched

EXAMPLE = "moe-align check Qwen3-30B-A3B-FP8 --tp 4"

_Parallel = Annotated[
    bool,
    typer.Option(
        "--enable-expert-parallel",
        help="Spread experts over all ranks, as vLLM's flag does.",
        show_default=False,
    ),
]

_ON, _OFF = frozenset({"on", "true", "yes"}), frozenset({"off", "false", "no"})


@about_deployment
def command(
    said: Said,
    *,
    engines: Iterable[dict[str, object]] = (),
    enable_expert_parallel: _Parallel = False,
    json: Json = False,
) -> None:
    """Will it load, and what does it cost."""
    policy = cached_policy(said.rules)
    each = [said.facts, *engines]
    if enable_expert_parallel:
        each = [{**facts, "ep": True} for facts in each]
    if said.model is not None and _is_list(said.model):
        _check_list(policy, said.model, each, json)
    elif len(each) == 1:
        _check_one(policy, said.model, each[0], json)
    else:
        _check_engines(policy, said.model, each, json)


def _is_list(name: str) -> bool:
    if not name.lower().endswith((".yaml", ".yml", ".json")):
        return False
    from ..load.deployments import is_list

    return is_list(Path(name))


def _check_one(policy: Policy, model: str | None, facts: dict[str, object], json: bool) -> None:
    report = _asked(policy, model, facts)
    say(json_text(check_plain(report, policy.digest)) if json else check_text(report, style()))
    raise typer.Exit(0 if report.loads else 1)


def _check_engines(policy: Policy, model: str | None, each: list[dict[str, object]], json: bool) -> None:
    reports = [_asked(policy, model, facts) for facts in each]
    if json:
        answers = [Answered(str(one.outcome.values["engine"]), one) for one in reports]
        say(json_text(several_plain(answers, policy.digest)))
    else:
        say("\n\n".join(check_text(one, style()) for one in reports))
    raise typer.Exit(0 if all(one.loads for one in reports) else 1)


def _asked(policy: Policy, model: str | None, said: dict[str, object]) -> Report:
    """The answer to one deployment.

    Raises:
        PolicyError: no such model, unknown names, contradictions.
    """
    facts = Facts.of(spread({**said, **_switch(said.get("ep"))}))
    check_capabilities(policy.stack.vocabulary, facts)
    return asked(policy, model, facts)


def _switch(ep: object) -> dict[str, object]:
    """Expert parallelism as it may be said: on, off, or a number of ranks."""
    word = str(ep).lower()
    return {"ep": True} if word in _ON else {"ep": False} if word in _OFF else {}


def _check_list(policy: Policy, path: str, each: list[dict[str, object]], json: bool) -> None:
    from ..load.deployments import read_deployments

    entries = read_deployments(Path(path))
    answers: list[Answered] = []
    problems: list[Problem] = []
    for entry in watched(entries, "checking"):
        for facts in each:
            try:
                answers += _entry(policy, entry, facts)
            except PolicyError as fault:
                found = list(_placed(fault, entry.place, entry.places))
                problems += found
                answers.append(Answered(entry.name, None, str(found[0])))
    say(json_text(several_plain(answers, policy.digest)) if json else several_text(answers, style()))
    if problems:
        fail("\n".join(map(str, problems)))
        raise typer.Exit(2)
    raise typer.Exit(0 if all(one.report and one.report.loads for one in answers) else 1)


def _entry(policy: Policy, entry: Any, facts: dict[str, object]) -> Iterator[Answered]:
    """The answers to one entry of a list, one for each engine that it names.

    Raises:
        PolicyError: what is wrong with it.
    """
    if entry.problems:
        raise PolicyError(entry.problems)
    own = dict(entry.facts)
    engines = own.pop("engine", None)
    for engine in engines if isinstance(engines, list) else [engines]:
        asks = {**facts, **own, **({"engine": str(engine)} if engine is not None else {})}
        name = f"{entry.name} on {engine}" if isinstance(engines, list) else entry.name
        yield Answered(name, _asked(policy, entry.model, _written(asks)))


def _written(facts: dict[str, object]) -> dict[str, object]:
    """Facts of a file as flags give them: an engine with its release is taken apart."""
    if "==" not in str(facts.get("engine", "")):
        return facts
    return {**facts, **given({"engine": facts["engine"]})}


def _placed(fault: PolicyError, place: Location, places: Mapping[str, Location]) -> Iterator[Problem]:
    """Problems with the place in the file: that of the key which a message names, or of the entry."""
    for problem in fault.problems:
        if problem.location is not None:
            yield problem
            continue
        named = (
            at for key, at in places.items() if f"`{key}`" in problem.message or f"{key} " in problem.message
        )
        yield problem._replace(location=next(named, place))
