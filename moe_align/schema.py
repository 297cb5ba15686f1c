"""What a rule file may say, version 1 of the language: types, and the schemas that hold files against them.

The schemas are those of pydantic's core, written out: models of pydantic take as long to make as all rule
files to read, at every start. The JSON Schema for editors (`moe-align schema`) is generated from them.
Whether a name is known is not said here: that is checked against the facts and the vocabulary, by `load`.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, Required, TypedDict

from pydantic_core import ErrorDetails, SchemaValidator, ValidationError
from pydantic_core import core_schema as core

from .errors import did_you_mean

Schema = core.CoreSchema
Scalar = str | int | bool

#: Text is never taken for a number, nor a number for a truth value.
_STRICT = core.CoreConfig(strict=True)

#: Schemas that have a name, by which others refer to them.
_named: list[Schema] = []


def _refer(schema: Schema, name: str) -> Schema:
    """A reference to a schema, which gets its name."""
    _named.append({**schema, "ref": name})
    return core.definition_reference_schema(name)


def _form(of: Any, fields: Mapping[str, Schema], *, extra: Literal["allow", "forbid"] = "forbid") -> Schema:
    """The schema of a mapping with the keys of `of`, a `TypedDict`."""
    items = {
        key: core.typed_dict_field(schema, required=key in of.__required_keys__)
        for key, schema in fields.items()
    }
    # A mapping does not take over the configuration of what it stands in.
    return _refer(core.typed_dict_schema(items, cls=of, extra_behavior=extra, config=_STRICT), of.__name__)


def _union(name: str, sort: Callable[[Any], str | None], /, **choices: Schema) -> Schema:
    """The schema of one of several forms, of which `sort` says which one stands there."""
    return _refer(core.tagged_union_schema(choices, discriminator=sort), name)


def _list(of: Schema, least: int = 1) -> Schema:
    return core.list_schema(of, min_length=least)


def _mapping(of: Schema) -> Schema:
    return core.dict_schema(core.str_schema(), of)


NAME = core.str_schema(pattern=r"^[a-z0-9][a-z0-9._-]*$", max_length=80)
TEXT = core.str_schema(min_length=1, max_length=2000)
SIZE = core.int_schema(ge=0, le=2**31)
POSITIVE = core.int_schema(ge=1, le=2**31)
SCALAR = core.union_schema([core.str_schema(), core.int_schema(), core.bool_schema()])

Without = TypedDict("Without", {"not": Scalar | list[Scalar]})
Without.__doc__ = "Any value but these."
_WITHOUT = _form(Without, {"not": core.union_schema([*SCALAR["choices"], core.list_schema(SCALAR)])})


class Between(TypedDict, total=False):
    """Bounds and a divisor of an integer fact."""

    min: int
    max: int
    multiple_of: int


_BETWEEN = _form(Between, {"min": SIZE, "max": SIZE, "multiple_of": core.int_schema(ge=1, le=2**20)})


def _sort_of_condition(value: Any) -> str | None:
    if isinstance(value, (str, bool, int)):
        return "value"
    if isinstance(value, list):
        return "list"
    if isinstance(value, dict):
        return "not" if "not" in value else "bounds"
    return None


Condition = Scalar | list[Scalar] | Without | Between
Conditions = dict[str, Condition]
_CONDITION = _union(
    "Condition",
    _sort_of_condition,
    **{"value": SCALAR, "list": _list(SCALAR), "not": _WITHOUT, "bounds": _BETWEEN},
)
_CONDITIONS = _mapping(_CONDITION)

Item = int | str
_ITEM = _union(
    "Item", lambda value: "fact" if isinstance(value, str) else "integer", integer=POSITIVE, fact=NAME
)


class Times(TypedDict, total=False):
    """A multiple, and the smallest size that may come out."""

    multiple: Item
    at_least: int


class Lcm(TypedDict, total=False):
    """The least common multiple of integers and integer facts."""

    lcm: Required[list[Item]]
    at_least: int


class Max(TypedDict, total=False):
    """The largest of integers and integer facts."""

    max: Required[list[Item]]
    at_least: int


class Snap(TypedDict):
    """The next of the listed sizes; above the last one, a rejection."""

    snap: list[int]


class Bytes(TypedDict, total=False):
    """So many bytes of activations: divided by `act_bytes`."""

    bytes: Required[int]
    at_least: int


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


Multiple = int | str | Times | Lcm | Max | Snap | Bytes
_MULTIPLES = {
    "integer": POSITIVE,
    "name": NAME,
    "multiple": _form(Times, {"multiple": _ITEM, "at_least": POSITIVE}),
    "lcm": _form(Lcm, {"lcm": _list(_ITEM), "at_least": POSITIVE}),
    "max": _form(Max, {"max": _list(_ITEM), "at_least": POSITIVE}),
    "snap": _form(Snap, {"snap": _list(POSITIVE)}),
    "bytes": _form(Bytes, {"bytes": POSITIVE, "at_least": POSITIVE}),
}
_MULTIPLE = _union("Multiple", _sort_of_multiple, **_MULTIPLES)


class Count(TypedDict, total=False):
    """A number of experts: what it is a multiple of, and the fewest."""

    multiple: Item
    at_least: Item


def _sort_of_count(value: Any) -> str:
    return "count" if isinstance(value, dict) else "fact" if isinstance(value, str) else "integer"


CountOf = int | str | Count


class PerDimension(TypedDict, total=False):
    """A multiple for each dimension; a missing one is `native`. `experts` counts routed experts."""

    hidden: Multiple
    intermediate: Multiple
    experts: CountOf


def _sort_of_align(value: Any) -> str | None:
    if isinstance(value, dict) and not value.keys() & KEYS_OF_MULTIPLE:
        return "dimensions"
    return _sort_of_multiple(value)


#: Keys that make a mapping a multiple; one without them names dimensions.
KEYS_OF_MULTIPLE = frozenset({"multiple", "at_least", "lcm", "max", "snap", "bytes"})

Align = Multiple | PerDimension
_ALIGN = _union(
    "Align",
    _sort_of_align,
    **_MULTIPLES,
    dimensions=_form(
        PerDimension,
        {
            "hidden": _MULTIPLE,
            "intermediate": _MULTIPLE,
            "experts": _union(
                "CountOf",
                _sort_of_count,
                integer=POSITIVE,
                fact=NAME,
                count=_form(Count, {"multiple": _ITEM, "at_least": _ITEM}),
            ),
        },
    ),
)


class InBytes(TypedDict):
    """An amount in bytes."""

    bytes: int


Amount = int | InBytes
_AMOUNT = _union(
    "Amount",
    lambda value: "bytes" if isinstance(value, dict) else "elements",
    elements=POSITIVE,
    bytes=_form(InBytes, {"bytes": POSITIVE}),
)


class Add(TypedDict, total=False):
    """Elements or bytes that storage gains, per dimension."""

    hidden: Amount
    intermediate: Amount


class Set(TypedDict, total=False):
    """Sizes that model code sets itself."""

    hidden: Multiple
    intermediate: Multiple


class Refine(TypedDict, total=False):
    """Quantization blocks become the largest divisor of themselves that fits the size.

    With `fits: both`, and where a block cuts either size, all blocks become one that divides both.
    """

    blocks: Required[list[Literal["block_n", "block_k", "group"]]]
    fits: Literal["hidden", "intermediate", "both"]
    floor: Required[int]


class FlooredPad(TypedDict, total=False):
    """The real pad, floored to a multiple, then multiplied."""

    floor: int
    times: int


Pad = str | FlooredPad
_PAD = _union(
    "Pad",
    lambda value: "floor" if isinstance(value, dict) else "name",
    name=core.literal_schema(["exact", "zero", "absent"]),
    floor=_form(FlooredPad, {"floor": POSITIVE, "times": POSITIVE}),
)


class Declare(TypedDict):
    """What a kernel call is told of padding."""

    hidden_pad: Pad
    intermediate_pad: Pad


class Otherwise(TypedDict, total=False):
    """What `refine` does where no block fits."""

    align: Align
    reject: str
    error: str


Rule = TypedDict(
    "Rule",
    {
        "id": Required[str],
        "when": Conditions,
        "unless": Conditions,
        "align": Align,
        "add": Add,
        "require": Align,
        "refine": Refine,
        "use": str,
        "set": Set,
        "reject": str,
        "declare": Declare,
        "else": Otherwise,
        "stride": bool,
        "experts": int,
        "error": str,
        "rows": dict[str, int],
        "columns": dict[str, int],
        "why": str,
        "source": str,
        "evidence": str,
    },
    total=False,
)
Rule.__doc__ = "One ordered rule: the facts it needs, and exactly one outcome."
_BLOCKS = _list(core.literal_schema(["block_n", "block_k", "group"]))
_TENSORS = core.dict_schema(core.literal_schema(["w13", "w2"]), POSITIVE)
_EVIDENCE = core.literal_schema(["read", "ran", "measured", "reported"])
_RULE = _form(
    Rule,
    {
        "id": NAME,
        "when": _CONDITIONS,
        "unless": _CONDITIONS,
        "align": _ALIGN,
        "add": _form(Add, {"hidden": _AMOUNT, "intermediate": _AMOUNT}),
        "require": _ALIGN,
        "refine": _form(
            Refine,
            {
                "blocks": _BLOCKS,
                "fits": core.literal_schema(["hidden", "intermediate", "both"]),
                "floor": POSITIVE,
            },
        ),
        "use": core.str_schema(),
        "set": _form(Set, {"hidden": _MULTIPLE, "intermediate": _MULTIPLE}),
        "reject": TEXT,
        "declare": _form(Declare, {"hidden_pad": _PAD, "intermediate_pad": _PAD}),
        "else": _form(Otherwise, {"align": _ALIGN, "reject": TEXT, "error": TEXT}),
        "stride": core.bool_schema(),
        "experts": core.int_schema(ge=0, le=4096),
        "error": TEXT,
        "rows": _TENSORS,
        "columns": _TENSORS,
        "why": TEXT,
        "source": TEXT,
        "evidence": _EVIDENCE,
    },
)


class Demand(TypedDict, total=False):
    """What a kernel demands of one size, or of a declared pad."""

    multiple: Item
    lcm: list[Item]
    max_of: list[Item]
    any_of: list[Item]
    exactly: int | list[int] | Literal["native"]
    min: int
    max: int
    floor: int
    at_most: Literal["actual"]


DemandOf = int | Demand
_ITEMS = _list(_ITEM, least=0)
_DEMAND = _union(
    "DemandOf",
    lambda value: "mapping" if isinstance(value, dict) else "integer",
    integer=POSITIVE,
    mapping=_form(
        Demand,
        {
            "multiple": _ITEM,
            "lcm": _ITEMS,
            "max_of": _ITEMS,
            "any_of": _ITEMS,
            "exactly": core.union_schema([SIZE, core.list_schema(SIZE), core.literal_schema(["native"])]),
            "min": SIZE,
            "max": SIZE,
            "floor": POSITIVE,
            "at_most": core.literal_schema(["actual"]),
        },
    ),
)


class Demands(TypedDict, total=False):
    """Demands per size, per count and per declared pad, and on the other facts that a kernel looks at."""

    hidden: DemandOf
    intermediate: DemandOf
    experts: DemandOf
    topk: DemandOf
    hidden_pad: DemandOf
    intermediate_pad: DemandOf
    facts: Conditions


#: What a contract can demand something of.
DEMANDED = ("hidden", "intermediate", "experts", "topk", "hidden_pad", "intermediate_pad")


class Contract(TypedDict, total=False):
    """What a kernel demands, whoever allocates."""

    id: Required[str]
    when: Conditions
    unless: Conditions
    require: Required[Demands]
    breaks: Required[str]
    why: Required[str]
    source: str
    evidence: str


_CONTRACT = _form(
    Contract,
    {
        "id": NAME,
        "when": _CONDITIONS,
        "unless": _CONDITIONS,
        "require": _form(Demands, {**dict.fromkeys(DEMANDED, _DEMAND), "facts": _CONDITIONS}),
        "breaks": core.literal_schema(["raises", "silent", "slow"]),
        "why": TEXT,
        "source": TEXT,
        "evidence": _EVIDENCE,
    },
)


class ScopedAlias(TypedDict):
    """A name that is valid only in some place: at an engine, a scheme, some releases."""

    name: str


AliasOf = str | ScopedAlias
OneOrMore = Scalar | list[Scalar]
_ONE_OR_MORE = _union(
    "OneOrMore",
    lambda value: "more" if isinstance(value, list) else "one",
    one=SCALAR,
    more=_list(SCALAR),
)


class Value(TypedDict, total=False):
    """One value of a discrete fact."""

    aliases: list[AliasOf]
    names: dict[str, list[str]]
    implies: dict[str, OneOrMore]
    note: str


ValueOf = Value | list[Scalar] | None
_ALIAS = _union(
    "AliasOf",
    lambda value: "scoped" if isinstance(value, dict) else "name",
    name=TEXT,
    scoped=_form(ScopedAlias, {"name": TEXT}, extra="allow"),
)
_VALUE = _union(
    "ValueOf",
    lambda value: "group" if isinstance(value, list) else "bare" if value is None else "value",
    value=_form(
        Value,
        {
            "aliases": core.list_schema(_ALIAS),
            "names": _mapping(core.list_schema(core.str_schema())),
            "implies": _mapping(_ONE_OR_MORE),
            "note": TEXT,
        },
    ),
    group=core.list_schema(SCALAR),
    bare=core.none_schema(),
)

PackFile = TypedDict(
    "PackFile",
    {
        "language": Required[Literal[1]],
        "pack": Required[str],
        "phase": str,
        "for": Conditions,
        "covers": dict[str, str],
        "before": OneOrMore,
        "rules": list[Rule],
        "contracts": list[Contract],
        "vocabulary": dict[str, dict[str, ValueOf]],
        "defaults": dict[str, Scalar],
    },
    total=False,
)
PackFile.__doc__ = "One file of rules, of contracts, or of vocabulary."
_PACK_FILE = _form(
    PackFile,
    {
        "language": core.literal_schema([1]),
        "pack": NAME,
        "phase": core.literal_schema(["model", "select", "dispatch", "allocate", "repack", "launch"]),
        "for": _CONDITIONS,
        "covers": _mapping(core.str_schema()),
        "before": _ONE_OR_MORE,
        "rules": core.list_schema(_RULE),
        "contracts": core.list_schema(_CONTRACT),
        "vocabulary": _mapping(_mapping(_VALUE)),
        "defaults": _mapping(SCALAR),
    },
)


def _validator(schema: Schema) -> SchemaValidator:
    return SchemaValidator(core.definitions_schema(schema, _named), _STRICT)


_PACK_FILES = _validator(_PACK_FILE)


def pack_file(document: object) -> PackFile:
    """A document as a file of rules.

    Raises:
        ValidationError: it is none; `faults` says what is wrong.
    """
    said: PackFile = _PACK_FILES.validate_python(document)
    return said


def conditions(document: object) -> Conditions:
    """A mapping of conditions, as under `when`.

    Raises:
        ValidationError: it is none; `faults` says what is wrong.
    """
    said: Conditions = _validator(_CONDITIONS).validate_python(document)
    return said


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a rule file, for editors."""
    from pydantic.json_schema import GenerateJsonSchema

    schema = GenerateJsonSchema().generate(core.definitions_schema(_PACK_FILE, _named))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "moe-align rule file",
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
    forms = _FORMS | {"bytes": InBytes} if "add" in path else _FORMS
    steps = (step for step in reversed(path[:-1]) if isinstance(step, str))
    form = next((forms[step] for step in steps if step in forms), PackFile)
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
