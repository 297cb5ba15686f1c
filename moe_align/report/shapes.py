"""JSON Schemas of everything that `--json` prints."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Schema = dict[str, object]

_DIALECT = "https://json-schema.org/draft/2020-12/schema"

_TEXT: Schema = {"type": "string"}
_TEXT_OR_NULL: Schema = {"type": ["string", "null"]}
_SIZE: Schema = {"type": ["integer", "null"], "minimum": 0}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_FLAG: Schema = {"type": "boolean"}
_VERSION: Schema = {"const": 1}


def _object(**members: Schema) -> Schema:
    """An object with exactly these members."""
    return {"type": "object", "properties": members, "required": list(members), "additionalProperties": False}


def _list(of: Schema) -> Schema:
    return {"type": "array", "items": of}


def _map(of: Schema) -> Schema:
    return {"type": "object", "additionalProperties": of}


def _one_of(*values: object) -> Schema:
    return {"enum": list(values)}


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


_STATUS = _one_of("decided", "undecided", "rejected", "unknown")
_BREAKS = _one_of("silent", "raises", "slow")
_HOLDS: Schema = {"type": ["boolean", "null"]}
_CONDITIONS = _map(_TEXT)
_VALUES = _map({"type": ["string", "integer"]})
_DIMENSION = _object(native=_SIZE, allocated=_SIZE, resident=_SIZE, multiple=_SIZE)
_POLICY = _object(digest={"type": "string", "pattern": "^[0-9a-f]{64}$"}, layers=_list(_TEXT))


def _resolve() -> Schema:
    return _object(
        version=_VERSION,
        status=_STATUS,
        hidden=_DIMENSION,
        intermediate=_DIMENSION,
        rule=_TEXT_OR_NULL,
        steps=_list(_object(phase=_TEXT, rule=_TEXT, hidden=_SIZE, intermediate=_SIZE)),
        launch=_or_null(_object(hidden_pad=_SIZE, intermediate_pad=_SIZE)),
        contracts=_list(_object(id=_TEXT, holds=_HOLDS, breaks=_BREAKS)),
        assumed=_VALUES,
        implied=_VALUES,
        open=_map(_map(_TEXT)),
        differs=_list(_object(**{"if": _map(_TEXT), "then": _TEXT})),
        reason=_TEXT_OR_NULL,
        policy=_POLICY,
    )


def _explain() -> Schema:
    failed = _object(fact=_TEXT, needs=_TEXT, unless=_FLAG, **{"is": _TEXT_OR_NULL})
    tried = _object(
        rule=_TEXT,
        result=_one_of("wins", "fails", "later", "depends", "skipped"),
        condition=_or_null(failed),
        outcome=_TEXT,
    )
    pack = _object(pack=_TEXT, layer=_TEXT, rules=_list(tried))
    contract = _object(id=_TEXT, holds=_HOLDS, breaks=_BREAKS, said=_TEXT, why=_TEXT_OR_NULL)
    return _object(
        version=_VERSION,
        status=_STATUS,
        rule=_TEXT_OR_NULL,
        reason=_TEXT_OR_NULL,
        phases=_list(_object(phase=_TEXT, packs=_list(pack))),
        contracts=_list(contract),
        policy=_POLICY,
    )


def _listing() -> Schema:
    return _object(version=_VERSION, list=_TEXT, items=_list({"type": "object"}))


def _rule() -> Schema:
    rule = _object(
        version=_VERSION,
        kind=_one_of("rule", "contract"),
        id=_TEXT,
        phase=_TEXT_OR_NULL,
        layer=_TEXT,
        place=_TEXT,
        position=_COUNT,
        does=_TEXT,
        breaks=_or_null(_BREAKS),
        covers=_CONDITIONS,
        when=_CONDITIONS,
        unless=_CONDITIONS,
        why=_TEXT_OR_NULL,
        source=_TEXT_OR_NULL,
        evidence=_TEXT_OR_NULL,
        models=_list(_TEXT),
        **{"for": _CONDITIONS},
    )
    code = _object(version=_VERSION, kind={"const": "code"}, id=_TEXT, title=_TEXT, text=_TEXT)
    return {"oneOf": [rule, code]}


def _compile() -> Schema:
    return _object(version=_VERSION, file=_TEXT, rules=_COUNT, contracts=_COUNT, policy=_POLICY)


def _doctor() -> Schema:
    program = _object(name=_TEXT, version=_TEXT_OR_NULL, note=_TEXT_OR_NULL)
    return _object(
        version=_VERSION,
        well=_FLAG,
        programs=_list(program),
        rules=_object(
            layers=_list(_object(name=_TEXT, files=_COUNT)),
            rules=_SIZE,
            contracts=_SIZE,
            digest=_TEXT_OR_NULL,
        ),
        environment=_map(_TEXT),
        cache=_object(folder=_TEXT_OR_NULL, writable=_FLAG),
        problems=_list(_TEXT),
    )


_INNER_SIZES = _object(hidden=_COUNT, intermediate=_COUNT)
_OUTCOME = _one_of("fits", "cannot know", "would fail", "would load silently wrong")


def _snapshot_check() -> Schema:
    tensor = _object(
        tensor=_TEXT,
        first=_TEXT,
        count=_COUNT,
        dtype=_TEXT,
        saved=_list(_COUNT),
        wanted=_or_null(_list(_COUNT)),
        verdict=_OUTCOME,
        reason=_TEXT_OR_NULL,
    )
    return _object(
        version=_VERSION,
        verdict=_OUTCOME,
        sharded=_FLAG,
        layout=_or_null(_one_of("created", "processed")),
        manifest=_FLAG,
        tensors=_list(tensor),
        faults=_list(_TEXT),
        reasons=_list(_object(verdict=_OUTCOME, reason=_TEXT)),
        policy=_TEXT,
    )


def _snapshot_account() -> Schema:
    between = _object(least=_COUNT, most=_COUNT)
    layers = _object(native=_SIZE, created=_SIZE, resident=_SIZE)
    per_rank = _object(
        tp=_COUNT, expert_ranks=_COUNT, kinds=_map(between), least=_COUNT, most=_COUNT, without_mtp=between
    )
    allocated = _object(
        rule=_TEXT_OR_NULL,
        intermediate=_object(native=_COUNT, allocated=_COUNT),
        with_mtp=layers,
        without_mtp=layers,
    )
    return _object(
        version=_VERSION,
        files=_COUNT,
        tensors=_COUNT,
        sharded=_FLAG,
        bytes=_COUNT,
        kinds=_map(_object(bytes=_COUNT, mtp=_COUNT, tensors=_COUNT)),
        layers=_object(moe=_COUNT, mtp=_COUNT),
        largest_rank=_SIZE,
        per_rank=_or_null(per_rank),
        allocated=_or_null(allocated),
    )


def _snapshot_repad() -> Schema:
    return _object(
        version=_VERSION,
        target=_TEXT,
        saved=_INNER_SIZES,
        allocated=_INNER_SIZES,
        files=_object(written=_COUNT, kept=_COUNT),
        tensors=_COUNT,
        bytes=_COUNT,
        compared=_SIZE,
    )


def _snapshot_manifest() -> Schema:
    return _object(
        version=_VERSION,
        policy=_TEXT_OR_NULL,
        engine=_object(name=_TEXT, version=_TEXT_OR_NULL),
        backend=_TEXT_OR_NULL,
        scheme=_TEXT,
        parallel=_map(_COUNT),
        experts=_COUNT,
        native=_INNER_SIZES,
        allocated=_INNER_SIZES,
        layout=_one_of("created", "processed"),
        interleaved=_FLAG,
    )


_SHAPES: Mapping[str, Callable[[], Schema]] = {
    "resolve": _resolve,
    "explain": _explain,
    "list": _listing,
    "rule": _rule,
    "compile": _compile,
    "doctor": _doctor,
    "snapshot-check": _snapshot_check,
    "snapshot-account": _snapshot_account,
    "snapshot-repad": _snapshot_repad,
    "snapshot-manifest": _snapshot_manifest,
}

#: The commands whose `--json` has a shape of its own.
NAMES = tuple(_SHAPES)


def shape(name: str) -> Schema:
    """The JSON Schema of what `moe-align NAME --json` prints.

    Raises:
        KeyError: a name that is not in `NAMES`.
    """
    return {"$schema": _DIALECT, "title": f"moe-align {name} --json", **_SHAPES[name]()}
