"""Ten planted defects, and which of them rule engines find by their own checks when they get the same rules.

The rules of the pack with the defect are written for zen-engine as a decision table (first hit), for Cedar as
one `permit` a rule, under a schema with a closed set of values for every fact: as they are, and with the
negation of all rules before, which is how order is said in Cedar. A defect counts as found where a check says
something of the rules with it that it does not say of the rules without it.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import yaml

ROOT = Path(__file__).resolve().parent.parent
PLANTED = ROOT / "tests" / "defects" / "planted.yaml"


class Outcome(NamedTuple):
    """What each of the three says of one defect."""

    name: str
    ours: str
    zen: str
    cedar: str


def outcomes(folder: Path) -> Iterator[Outcome]:
    """Every defect, planted, and what is found."""
    clean = ROOT / "rules"
    for defect in yaml.safe_load(PLANTED.read_text(encoding="utf-8")):
        rules = planted(defect, folder / defect["name"].replace(" ", "-"))
        said = _ours(defect, rules) - _ours(defect, clean)
        code = f"{defect['code']} {defect.get('rule') or defect.get('where')}"
        files = [defect["file"], *([defect["add"]["file"]] if "add" in defect else [])]
        if defect["found_by"] == "prove":  # it takes a contract to be wrong
            rivals = ("cannot be said", "cannot be said")
        else:
            rivals = tuple(
                _words(check(_packs(rules, files)) - check(_packs(clean, files)))
                if find_spec(module)
                else "not installed"
                for module, check in (("zen", zen_says), ("cedarpy", cedar_says))
            )
        yield Outcome(defect["name"], code if defect["code"] in said else "–", *rivals)


def _words(said: set[str]) -> str:
    return "; ".join(sorted(one[:70] for one in said)) or "–"


def planted(defect: dict[str, Any], rules: Path) -> Path:
    """A copy of the shipped rules with the defect in it."""
    shutil.copytree(ROOT / "rules", rules)
    file = rules / defect["file"]
    text = file.read_text(encoding="utf-8")
    if "add" in defect:
        (rules / defect["add"]["file"]).write_text(defect["add"]["text"], encoding="utf-8")
        return rules
    if "move" in defect:
        block = re.search(rf"  - id: {re.escape(defect['move'])}\n(?:(?!  - id: ).*\n)*", text)
        assert block
        before = f"  - id: {defect['before']}\n"
        text = text.replace(block[0], "").replace(before, f"{block[0]}{before}")
    else:
        assert text.count(defect["replace"]) == 1, defect["name"]
        text = text.replace(defect["replace"], defect["by"])
    file.write_text(text, encoding="utf-8")
    return rules


def _ours(defect: dict[str, Any], rules: Path) -> set[str]:
    """The codes of what the analysis named in the defect finds, about its rule."""
    from moe_align import PolicyError, load_policy
    from moe_align.lint import lint
    from moe_align.prove import contract_findings
    from moe_align.regions import Regions

    try:
        stack = load_policy(rules, environ={}, built_in=False).stack
    except PolicyError as fault:
        return {problem.code for problem in fault.problems}
    found = lint(stack) if defect["found_by"] == "lint" else contract_findings(Regions(stack), ("silent",))
    return {
        one.code
        for one in found
        if one.rule == defect.get("rule", one.rule)
        and set(defect.get("rules", ())) <= set(one.rules)
        and defect.get("where", "") in " ".join(one.where)
    }


def _packs(rules: Path, files: list[str]) -> list[dict[str, Any]]:
    """The packs of files, as YAML has them; a file that is not there has none."""
    found = [rules / name for name in files if (rules / name).exists()]
    return [yaml.safe_load(file.read_text(encoding="utf-8")) for file in found]


def _conditions(pack: dict[str, Any], rule: dict[str, Any]) -> list[tuple[str, Any]]:
    return [*pack.get("for", {}).items(), *pack.get("covers", {}).items(), *rule.get("when", {}).items()]


def _minor(release: str) -> int:
    """A release as a number: thousands are minor versions."""
    major, minor, patch = (*map(int, release.split(".")), 0, 0)[:3]
    return major * 1_000_000 + minor * 1_000 + patch


def _clauses(key: str, value: str) -> list[tuple[str, int]] | None:
    """The clauses of a range of releases, or nothing where the value is something else."""
    if key not in ("vllm", "aiter", "sglang"):
        return None
    found = re.findall(r"(>=|<|==)\s*([0-9.]+)", value)
    return [(sign, _minor(release)) for sign, release in found]


def zen_says(packs: list[dict[str, Any]]) -> set[str]:
    """What the engine's own checks say: of the decision as a whole, and of each cell."""
    import zen

    said = set()
    for pack in packs:
        rules = pack["rules"]
        columns = sorted({key for rule in rules for key, _ in _conditions(pack, rule)})
        cells = []
        for number, rule in enumerate(rules):
            cell = dict.fromkeys(columns, "")
            for key, value in _conditions(pack, rule):
                cell[key] = " and ".join(filter(None, [cell[key], _zen(key, value)]))
            said |= {
                f"{rule['id']}: {fault}"
                for text in cell.values()
                if text and (fault := zen.validate_unary_expression(text))
            }
            cells.append({"_id": str(number), **cell, "rule": json.dumps(rule["id"])})
        table = {
            "hitPolicy": "first",
            "inputs": [{"id": key, "name": key, "field": key} for key in columns],
            "outputs": [{"id": "rule", "name": "rule", "field": "rule"}],
            "rules": cells,
        }
        decision = {
            "nodes": [
                {"id": "in", "type": "inputNode", "name": "in"},
                {"id": "table", "type": "decisionTableNode", "name": "table", "content": table},
                {"id": "out", "type": "outputNode", "name": "out"},
            ],
            "edges": [
                {"id": "1", "sourceId": "in", "targetId": "table", "type": "edge"},
                {"id": "2", "sourceId": "table", "targetId": "out", "type": "edge"},
            ],
        }
        try:
            zen.ZenEngine().create_decision(json.dumps(decision)).validate()
        except Exception as fault:
            said.add(f"{pack['pack']}: {fault}")
    return said


def _zen(key: str, value: Any) -> str:
    clauses = _clauses(key, value) if isinstance(value, str) else None
    if clauses:
        return " and ".join(f"$ {sign} {number}" for sign, number in clauses)
    if isinstance(value, dict):
        if "not" in value:
            return f"$ not in {json.dumps(_listed(value['not']))}"
        signs = {"min": "$ >= {}", "max": "$ <= {}", "multiple_of": "$ % {} == 0"}
        return " and ".join(signs[name].format(number) for name, number in value.items())
    return f"$ in {json.dumps(_listed(value))}"


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def cedar_says(packs: list[dict[str, Any]]) -> set[str]:
    """What its validator says of both ways to write the rules, under one schema."""
    import cedarpy

    schema = _cedar_schema(packs)
    said = set()
    for is_ordered in (False, True):
        for pack in packs:
            text = "\n".join(_cedar_policies(pack, is_ordered))
            result = cedarpy.validate_policies(text, schema)
            said |= {_without_places(str(error)) for error in result.errors}
    return said


def _without_places(said: str) -> str:
    return re.sub(r"^.*?for policy `\w*`(?:: )?|policy\d+|:\d+", "", said)


def _cedar_schema(packs: list[dict[str, Any]]) -> str:
    """Every fact that rules name: a closed set of the values of the vocabulary, or a number."""
    from moe_align import load_policy

    vocabulary = load_policy(environ={}).stack.vocabulary
    keys = sorted({key for pack in packs for rule in pack["rules"] for key, _ in _conditions(pack, rule)})
    lines, context = ["entity User;", "entity Layer;"], []
    for key in keys:
        values = sorted(vocabulary.domain(key)) if key in vocabulary.terms else []
        name = _entity(key)
        context.append(f'"{key}": {name}' if values else f'"{key}": Long')
        lines += [f"entity {name} enum [{', '.join(map(json.dumps, values))}];"] if values else []
    lines.append(
        "action resolve appliesTo {principal: User, resource: Layer, context: {" + ", ".join(context) + "}};"
    )
    return "\n".join(lines)


def _entity(key: str) -> str:
    return "F_" + re.sub(r"\W", "_", key)


def _cedar_policies(pack: dict[str, Any], is_ordered: bool) -> Iterator[str]:
    earlier: list[str] = []
    for rule in pack["rules"]:
        when = " && ".join(_cedar(key, value) for key, value in _conditions(pack, rule)) or "true"
        if rule.get("unless"):
            when += " && !(" + " && ".join(_cedar(key, value) for key, value in rule["unless"].items()) + ")"
        whole = " && ".join([f"({when})", *(f"!({other})" for other in earlier)]) if is_ordered else when
        head = f'@id("{rule["id"]}") permit(principal, action == Action::"resolve", resource)'
        yield f"{head} when {{ {whole} }};"
        earlier.append(when)


def _cedar(key: str, value: Any) -> str:
    fact = f'context["{key}"]'
    clauses = _clauses(key, value) if isinstance(value, str) else None
    if clauses:
        return "(" + " && ".join(f"{fact} {sign} {number}" for sign, number in clauses) + ")"
    if isinstance(value, dict) and "not" not in value:
        # A multiple cannot be said in Cedar: it is left out.
        signs = {"min": ">=", "max": "<="}
        said = [f"{fact} {signs[name]} {number}" for name, number in value.items() if name in signs]
        return "(" + (" && ".join(said) or "true") + ")"
    negated = isinstance(value, dict)
    listed = _listed(value["not"] if negated else value)
    names = [str(one).lower() if isinstance(one, bool) else one for one in listed]
    tests = " || ".join(
        f"{fact} == {one}" if isinstance(one, int) else f'{fact} == {_entity(key)}::"{one}"' for one in names
    )
    return f"!({tests})" if negated else f"({tests})"
