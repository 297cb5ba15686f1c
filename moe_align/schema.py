"""What a rule file may say, version 1 of the language, as pydantic models.

The JSON Schema for editors (`moe-align schema`) is generated from them. Whether a name is known is
not said here: that is checked against the facts and the vocabulary, by `load`.
"""

from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError
from pydantic_core import ErrorDetails
from typing_extensions import TypeAliasType

from .errors import did_you_mean

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]*$", max_length=80)]
Text = Annotated[str, Field(min_length=1, max_length=2000)]
Size = Annotated[int, Field(ge=0, le=2**31)]
Positive = Annotated[int, Field(ge=1, le=2**31)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)


Scalar = str | int | bool


class Without(_Model):
    """Any value but these."""

    excluded: Scalar | list[Scalar] = Field(alias="not")


class Between(_Model):
    """Bounds and a divisor of an integer fact."""

    min: Size | None = None
    max: Size | None = None
    multiple_of: Annotated[int, Field(ge=1, le=2**20)] | None = None


def _sort_of_condition(value: Any) -> str | None:
    if isinstance(value, (str, bool, int)):
        return "value"
    if isinstance(value, list):
        return "list"
    if isinstance(value, dict):
        return "not" if "not" in value else "bounds"
    return "not" if isinstance(value, Without) else "bounds" if isinstance(value, Between) else None


Condition = TypeAliasType(
    "Condition",
    Annotated[
        Annotated[Scalar, Tag("value")]
        | Annotated[list[Scalar], Field(min_length=1), Tag("list")]
        | Annotated[Without, Tag("not")]
        | Annotated[Between, Tag("bounds")],
        Discriminator(_sort_of_condition),
    ],
)

Item = TypeAliasType(
    "Item",
    Annotated[
        Annotated[Positive, Tag("integer")] | Annotated[Name, Tag("fact")],
        Discriminator(lambda value: "fact" if isinstance(value, str) else "integer"),
    ],
)


class Times(_Model):
    """A multiple, and the smallest size that may come out."""

    multiple: Item = 1
    at_least: Positive | None = None


class Lcm(_Model):
    """The least common multiple of integers and integer facts."""

    lcm: Annotated[list[Item], Field(min_length=1)]
    at_least: Positive | None = None


class Max(_Model):
    """The largest of integers and integer facts."""

    max: Annotated[list[Item], Field(min_length=1)]
    at_least: Positive | None = None


class Snap(_Model):
    """The next of the listed sizes; above the last one, a rejection."""

    snap: Annotated[list[Positive], Field(min_length=1)]


class Bytes(_Model):
    """So many bytes of activations: divided by `act_bytes`."""

    bytes: Positive
    at_least: Positive | None = None


def _sort_of_multiple(value: Any) -> str | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return "integer"
    if isinstance(value, str):
        return "name"
    if isinstance(value, dict):
        named = [key for key in ("lcm", "max", "snap", "bytes") if key in value]
        return named[0] if named else "multiple"
    return None


_AnyMultiple = (
    Annotated[Positive, Tag("integer")]
    | Annotated[Name, Tag("name")]
    | Annotated[Times, Tag("multiple")]
    | Annotated[Lcm, Tag("lcm")]
    | Annotated[Max, Tag("max")]
    | Annotated[Snap, Tag("snap")]
    | Annotated[Bytes, Tag("bytes")]
)
Multiple = TypeAliasType(
    "Multiple",
    Annotated[
        _AnyMultiple,
        Discriminator(_sort_of_multiple),
    ],
)


class Count(_Model):
    """A number of experts: what it is a multiple of, and the fewest."""

    multiple: Item = 1
    at_least: Item | None = None


CountOf = Annotated[
    Annotated[Positive, Tag("integer")] | Annotated[Name, Tag("fact")] | Annotated[Count, Tag("count")],
    Discriminator(
        lambda value: (
            "count" if isinstance(value, (dict, Count)) else "fact" if isinstance(value, str) else "integer"
        )
    ),
]


class PerDimension(_Model):
    """A multiple for each dimension; a missing one is `native`. `experts` counts routed experts."""

    hidden: Multiple | None = None
    intermediate: Multiple | None = None
    experts: CountOf | None = None


def _sort_of_align(value: Any) -> str | None:
    if isinstance(value, dict) and not value.keys() & _MULTIPLE_KEYS:
        return "dimensions"
    return _sort_of_multiple(value)


_MULTIPLE_KEYS = {"multiple", "at_least", "lcm", "max", "snap", "bytes"}


Align = TypeAliasType(
    "Align",
    Annotated[
        _AnyMultiple | Annotated[PerDimension, Tag("dimensions")],
        Discriminator(_sort_of_align),
    ],
)


class InBytes(_Model):
    """An amount in bytes."""

    bytes: Positive


Amount = TypeAliasType(
    "Amount",
    Annotated[
        Annotated[Positive, Tag("elements")] | Annotated[InBytes, Tag("bytes")],
        Discriminator(lambda value: "bytes" if isinstance(value, (dict, InBytes)) else "elements"),
    ],
)


class Add(_Model):
    """Elements or bytes that storage gains, per dimension."""

    hidden: Amount | None = None
    intermediate: Amount | None = None


class Set(_Model):
    """Sizes that model code sets itself."""

    hidden: Multiple | None = None
    intermediate: Multiple | None = None


class Refine(_Model):
    """Quantization blocks become the largest divisor of themselves that fits the size.

    With `fits: both`, and where a block cuts either size, all blocks become one that divides both.
    """

    blocks: Annotated[list[Literal["block_n", "block_k", "group"]], Field(min_length=1)]
    fits: Literal["hidden", "intermediate", "both"] = "intermediate"
    floor: Positive


class FlooredPad(_Model):
    """The real pad, floored to a multiple, then multiplied."""

    floor: Positive = 1
    times: Positive = 1


Pad = TypeAliasType(
    "Pad",
    Annotated[
        Annotated[Literal["exact", "zero", "absent"], Tag("name")] | Annotated[FlooredPad, Tag("floor")],
        Discriminator(lambda value: "floor" if isinstance(value, (dict, FlooredPad)) else "name"),
    ],
)


class Declare(_Model):
    """What a kernel call is told of padding."""

    hidden_pad: Pad
    intermediate_pad: Pad


class Otherwise(_Model):
    """What `refine` does where no block fits."""

    align: Align | None = None
    reject: Text | None = None
    error: Name | Text | None = None


Evidence = Literal["read", "ran", "measured", "reported"]
Tensors = dict[Literal["w13", "w2"], Positive]


class Rule(_Model):
    """One ordered rule: the facts it needs, and exactly one outcome."""

    id: Name
    when: dict[str, Condition] | None = None
    unless: dict[str, Condition] | None = None
    align: Align | None = None
    add: Add | None = None
    require: Align | None = None
    refine: Refine | None = None
    use: str | None = None
    set: Set | None = None
    reject: Text | None = None
    declare: Declare | None = None
    otherwise: Otherwise | None = Field(None, alias="else")
    stride: bool = False
    experts: Annotated[int, Field(ge=0, le=4096)] = 0
    error: Text | None = None
    rows: Tensors | None = None
    columns: Tensors | None = None
    why: Text | None = None
    source: Text | None = None
    evidence: Evidence | None = None


class Demand(_Model):
    """What a kernel demands of one size, or of a declared pad."""

    multiple: Item | None = None
    lcm: list[Item] | None = None
    max_of: list[Item] | None = None
    any_of: list[Item] | None = None
    exactly: Size | list[Size] | Literal["native"] | None = None
    min: Size | None = None
    max: Size | None = None
    floor: Positive | None = None
    at_most: Literal["actual"] | None = None


DemandOf = TypeAliasType(
    "DemandOf",
    Annotated[
        Annotated[Positive, Tag("integer")] | Annotated[Demand, Tag("mapping")],
        Discriminator(lambda value: "mapping" if isinstance(value, (dict, Demand)) else "integer"),
    ],
)


class Demands(_Model):
    """Demands per size, per count and per declared pad, and on the other facts that a kernel looks at."""

    hidden: DemandOf | None = None
    intermediate: DemandOf | None = None
    experts: DemandOf | None = None
    topk: DemandOf | None = None
    hidden_pad: DemandOf | None = None
    intermediate_pad: DemandOf | None = None
    facts: dict[str, Condition] | None = None


class Contract(_Model):
    """What a kernel demands, whoever allocates."""

    id: Name
    when: dict[str, Condition] | None = None
    unless: dict[str, Condition] | None = None
    require: Demands
    breaks: Literal["raises", "silent", "slow"]
    why: Text
    source: Text | None = None
    evidence: Evidence | None = None


class ScopedAlias(_Model):
    """A name that is valid only in some place: at an engine, a scheme, some releases."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True, defer_build=True)
    name: Text


AliasOf = TypeAliasType(
    "AliasOf",
    Annotated[
        Annotated[Text, Tag("name")] | Annotated[ScopedAlias, Tag("scoped")],
        Discriminator(lambda value: "scoped" if isinstance(value, (dict, ScopedAlias)) else "name"),
    ],
)
OneOrMore = TypeAliasType(
    "OneOrMore",
    Annotated[
        Annotated[Scalar, Tag("one")] | Annotated[list[Scalar], Field(min_length=1), Tag("more")],
        Discriminator(lambda value: "more" if isinstance(value, list) else "one"),
    ],
)


class Value(_Model):
    """One value of a discrete fact."""

    aliases: list[AliasOf] = []
    names: dict[str, list[str]] = {}
    implies: dict[str, OneOrMore] = {}
    note: Text | None = None


ValueOf = TypeAliasType(
    "ValueOf",
    Annotated[
        Annotated[Value, Tag("value")] | Annotated[list[Scalar], Tag("group")] | Annotated[None, Tag("bare")],
        Discriminator(
            lambda value: "group" if isinstance(value, list) else "bare" if value is None else "value"
        ),
    ],
)


class PackFile(_Model):
    """One file of rules, of contracts, or of vocabulary."""

    language: Literal[1]
    pack: Name
    phase: Literal["model", "select", "dispatch", "allocate", "repack", "launch"] | None = None
    needs: dict[str, Condition] | None = Field(None, alias="for")
    covers: dict[str, str] | None = None
    before: OneOrMore | None = None
    rules: list[Rule] | None = None
    contracts: list[Contract] | None = None
    vocabulary: dict[str, dict[str, ValueOf]] | None = None
    defaults: dict[str, Scalar] | None = None


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a rule file, for editors."""
    schema = PackFile.model_json_schema(by_alias=True)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "moe-align rule file",
        **schema,
    }


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
        return ("a value or a list", "write a value, or `[value, …]`") if path[-1:] == ("not",) else _VALUE
    if "when" in path or "unless" in path or path[:1] == ("for",):
        if sort == "union_tag_invalid" or sort == "union_tag_not_found":
            return _CONDITION
    elif path[0:1] == ("contracts",) and path[-1:] == ("integer",):
        return "a demand", "write an integer, or a mapping such as `{any_of: [128, 192]}`"
    elif _OF_MULTIPLE & set(path) and sort in ("union_tag_not_found", "string_pattern_mismatch"):
        return "a multiple", _MULTIPLE_FORMS
    if sort == "list_type":
        one = isinstance(value, (str, int))
        return "a list", f"write `[{value}]`" if one else "begin each entry with `- `"
    if sort == "string_type":
        return "text", "write a name or a text" if isinstance(value, (dict, list)) else "put it in quotes"
    return _SORTS.get(sort, ("what can stand here", "see `moe-align schema`"))


_VALUE = ("a value", "write a name, a number, `true` or `false`")
_CONDITION = (
    "a value, a list, `not` or bounds",
    "write `value`, `[value, …]`, `{not: …}` or `{min: …, max: …, multiple_of: …}`",
)
_MULTIPLE_FORMS = "write an integer, `native`, or a mapping with `multiple`, `lcm`, `max`, `snap` or `bytes`"
_SORTS = {
    "int_type": ("a whole number", "write digits only, without quotes"),
    "bool_type": ("`true` or `false`", "write `true` or `false`, without quotes"),
    "dict_type": ("a mapping", "write `key: value` pairs"),
    "model_type": ("a mapping", "write `key: value` pairs"),
}

_MODELS: dict[str, type[_Model]] = {
    "rules": Rule,
    "contracts": Contract,
    "bounds": Between,
    "not": Without,
    "multiple": Times,
    "lcm": Lcm,
    "max": Max,
    "snap": Snap,
    "bytes": Bytes,
    "dimensions": PerDimension,
    "count": Count,
    "add": Add,
    "set": Set,
    "refine": Refine,
    "floor": FlooredPad,
    "declare": Declare,
    "else": Otherwise,
    "require": Demands,
    "mapping": Demand,
    "value": Value,
}


def _legal_keys(path: tuple[Step, ...]) -> str:
    models = _MODELS | {"bytes": InBytes} if "add" in path else _MODELS
    steps = (step for step in reversed(path[:-1]) if isinstance(step, str))
    model = next((models[step] for step in steps if step in models), PackFile)
    legal = [field.alias or name for name, field in model.model_fields.items()]
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
    if value is None:
        return "empty"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value}`"
