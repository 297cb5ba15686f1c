"""What is wrong with a document, in words: the errors of its validation, each once."""

from __future__ import annotations

from typing import Any, NamedTuple

from pydantic_core import ErrorDetails, ValidationError

from .. import schema
from ..errors import did_you_mean

Step = str | int


class Fault(NamedTuple):
    """One thing that is wrong with a document: where (keys and indices, outermost first) and what."""

    path: tuple[Step, ...]
    code: str
    message: str
    fix: str | None
    #: Whether the place is the key that stands last in the path, not its value.
    at_key: bool = False


def faults(error: ValidationError) -> list[Fault]:
    """Everything that is wrong with a document, each place told once, in the order of the document's keys."""
    found = list(dict.fromkeys(_fault(detail) for detail in error.errors(include_url=False)))
    meant = {(fault.path[:-1], fault.fix) for fault in found if fault.code == "S101"}
    return [fault for fault in found if not _is_misspelt(fault, meant)]


def _is_misspelt(fault: Fault, meant: set[tuple[tuple[Step, ...], str | None]]) -> bool:
    """Whether a missing key is there, under a name for which its own is advised."""
    return fault.code == "S102" and (fault.path, f"write {fault.message.split()[0]}") in meant


def _fault(detail: ErrorDetails) -> Fault:
    path, sort, value = detail["loc"], detail["type"], detail["input"]
    context = detail.get("ctx", {})
    if path and path[-1] == "[key]":
        legal = context["expected"].replace("'", "`")
        return Fault(path[:-1], "S101", f"unknown key `{path[-2]}`", f"write {legal}", at_key=True)
    if sort == "extra_forbidden":
        return Fault(path, "S101", f"unknown key `{path[-1]}`", _legal_keys(path), at_key=True)
    if sort == "missing":
        fix = _ADDED.get(path[-1], f"add `{path[-1]}: …`")
        return Fault(path[:-1], "S102", f"`{path[-1]}` is missing", fix)
    if _is_of_union(path[-1:]):
        path, sort = path[:-1], "scalar"
    name = _shown(path)
    if value is None:
        return Fault(path, "S109", f"{name} is empty", "write a value, or leave it out", at_key=True)
    if sort == "literal_error":
        fix = _legal_values(context["expected"], value)
        return Fault(path, "S103", f"{name} cannot be {_said(value)}", fix)
    if sort in ("greater_than_equal", "less_than_equal"):
        bound = f"below {context['ge']}" if "ge" in context else f"above {context['le']}"
        limit = f"at least {context['ge']}" if "ge" in context else f"at most {context['le']}"
        return Fault(path, "S104", f"{name} is {value}, {bound}", f"give an integer of {limit}")
    if sort == "string_pattern_mismatch" and not _OF_MULTIPLE & set(path):
        plain = "use lower-case letters, digits, `-`, `_` and `.`"
        return Fault(path, "S105", f"{name} is {_said(value)}, which is no plain name", plain)
    if sort in ("too_short", "string_too_short"):
        return Fault(path, "S106", f"{name} is empty", "write something or leave the key out")
    if sort in ("too_long", "string_too_long"):
        most = context["max_length"]
        return Fault(path, "S107", f"{name} is longer than {most} characters", "shorten it")
    wanted, fix = _wanted(path, sort, value)
    return Fault(path, "S108", f"{name} is {_said(value)}, not {wanted}", fix)


#: What to add for a missing key, where it is more than the key.
_ADDED: dict[Step, str] = {
    "language": "add `language: 1`",
    "pack": "add `pack:` with a name",
    "breaks": "add `breaks:` with `raises`, `silent` or `slow`",
}


def _is_of_union(last: tuple[Step, ...]) -> bool:
    """Whether the last step of a path is one member of a union of plain values, which all failed."""
    return bool(last) and (last[0] in ("str", "int", "bool") or str(last[0]).startswith("list["))


def _legal_values(expected: str, value: object) -> str:
    listed = expected.replace("'", "").replace(" or ", ", ").split(", ")
    if expected == "1":
        return "write `1`, without quotes" if value == "1" else "write `1`, or use a newer moe-align"
    near = did_you_mean(str(value), listed)
    return f"write `{near}`" if near else f"write {expected.replace(chr(39), chr(96))}"


#: Keys under which a multiple stands.
_OF_MULTIPLE = frozenset({"align", "require", "set"})


def _wanted(path: tuple[Step, ...], sort: str, value: object) -> tuple[str, str]:
    """What should have stood at a place, and how it is written."""
    if sort == "scalar":
        return ("a value or a list", "write a value, or `[value, …]`") if path[-1:] == ("not",) else _A_VALUE
    if path[0:1] == ("contracts",) and path[-1:] == ("integer",):
        return "a demand", "write an integer, or a mapping such as `{any_of: [128, 192]}`"
    if _OF_MULTIPLE & set(path) and sort in ("union_tag_not_found", "string_pattern_mismatch"):
        return "a multiple", _MULTIPLE_FORMS
    if sort == "list_type":
        one = isinstance(value, (str, int))
        return "a list", f"write `[{value}]`" if one else "begin each entry with `- `"
    if sort == "string_type":
        return "text", "write a name or a text" if isinstance(value, (dict, list)) else "put it in quotes"
    return _SORTS.get(sort, ("what can stand here", "see `moe-align schema`"))


_A_VALUE = ("a value", "write a name, a number, `true` or `false`")
_MULTIPLE_FORMS = "write an integer, `native`, or a mapping with `multiple`, `lcm`, `max`, `snap` or `bytes`"
_SORTS = {
    "int_type": ("a whole number", "write digits only, without quotes"),
    "bool_type": ("`true` or `false`", "write `true` or `false`, without quotes"),
    "dict_type": ("a mapping", "write `key: value` pairs"),
}

#: What stands behind a step of a path.
_FORMS: dict[str, Any] = {
    "rules": schema.Rule,
    "contracts": schema.Contract,
    "bounds": schema.Between,
    "not": schema.Without,
    "multiple": schema.Times,
    "lcm": schema.Lcm,
    "max": schema.Max,
    "snap": schema.Snap,
    "bytes": schema.Bytes,
    "dimensions": schema.PerDimension,
    "count": schema.Count,
    "add": schema.Add,
    "set": schema.Set,
    "refine": schema.Refine,
    "floor": schema.FlooredPad,
    "declare": schema.Declare,
    "else": schema.Otherwise,
    "require": schema.Demands,
    "mapping": schema.Demand,
    "value": schema.Value,
}


def _legal_keys(path: tuple[Step, ...]) -> str:
    forms = _FORMS | {"bytes": schema.InBytes} if "add" in path else _FORMS
    steps = (step for step in reversed(path[:-1]) if isinstance(step, str))
    form = next((forms[step] for step in steps if step in forms), schema.PackFile)
    legal = list(form.__annotations__)
    near = did_you_mean(str(path[-1]), legal)
    return f"write `{near}`" if near else f"legal are {', '.join(legal)}"


def _shown(path: tuple[Step, ...]) -> str:
    """The last keys of a path as a person names the place; inner tags are left out."""
    steps = [step for step in path if step not in _TAGS]
    keys = [step for step in steps if isinstance(step, str)]
    inside = [step for step in keys if step not in ("rules", "contracts")]
    unique = [step for step, before in zip(inside, [None, *inside], strict=False) if step != before]
    if steps and isinstance(steps[-1], int):
        return f"entry {steps[-1] + 1} of `{'.'.join(unique) or keys[-1]}`"
    return f"`{'.'.join(unique) or keys[-1]}`" if steps else "the file"


#: Steps of a path that name the member of a union, not a key of the file.
_TAGS = frozenset(
    {"integer", "name", "dimensions", "value", "list", "bounds", "elements", "mapping", "one", "more"}
    | {"scoped", "group", "bare", "fact", "count"}
)


def _said(value: object) -> str:
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value}`"
