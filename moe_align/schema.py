"""What a rule file may say, version 1 of the language: types, and the schemas that hold files against them.

The schemas are those of pydantic's core, written out: models of pydantic take as long to make as all rule
files to read, at every start. The JSON Schema for editors (`moe-align schema`) is generated from them.
Whether a name is known is not said here: that is checked against the facts and the vocabulary, by `load`.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Literal, Required, TypedDict

from pydantic_core import SchemaValidator
from pydantic_core import core_schema as core

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


@cache
def _conditions() -> SchemaValidator:
    return _validator(_CONDITIONS)


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
    said: Conditions = _conditions().validate_python(document)
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
