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


_VERDICT = _one_of("native", "refine", "pad", "fallback", "unknown", "unsafe", "reject")
_BYTES = _object(native=_SIZE, allocated=_SIZE, resident=_SIZE)
_ENGINE = _object(name=_TEXT, release=_TEXT_OR_NULL)
_DIGEST = _object(digest={"type": "string", "pattern": "^[0-9a-f]{64}$"})
_SPLITS = _list(_object(tp=_COUNT, dp=_COUNT))


def _one_check() -> Schema:
    dim = _object(
        name=_TEXT,
        whole=_SIZE,
        ranks=_COUNT,
        native=_SIZE,
        allocated=_SIZE,
        resident=_SIZE,
        verdict=_VERDICT,
        rule=_TEXT_OR_NULL,
        reason=_TEXT_OR_NULL,
    )
    scenario = _object(
        **{"if": _map(_list(_TEXT))},
        verdict=_VERDICT,
        reason=_TEXT_OR_NULL,
        intermediate=_SIZE,
        bytes_per_rank=_BYTES,
    )
    return _object(
        version=_VERSION,
        verdict=_VERDICT,
        model=_TEXT,
        engine=_ENGINE,
        parallel=_map(_SIZE),
        reasons=_list(_TEXT),
        dims=_list(dim),
        bytes_per_rank=_BYTES,
        backend=_TEXT_OR_NULL,
        scenarios=_list(scenario),
        suggestions=_list(_object(change=_TEXT, verdict=_VERDICT, intermediate=_SIZE, bytes_per_rank=_BYTES)),
        other_engines=_list(
            _object(engine=_TEXT, release=_TEXT_OR_NULL, verdict=_VERDICT, reason=_TEXT_OR_NULL)
        ),
        assumed=_VALUES,
        notes=_list(_TEXT),
        policy=_DIGEST,
    )


def _check() -> Schema:
    one = _one_check()
    deployment = _object(name=_TEXT, answer=_or_null(one), problem=_TEXT_OR_NULL)
    return {"oneOf": [one, _object(version=_VERSION, deployments=_list(deployment))]}


def _one_plan() -> Schema:
    layout = _object(
        moe_tp=_COUNT,
        moe_ep=_COUNT,
        splits=_SPLITS,
        requested=_list(_TEXT),
        default=_FLAG,
        backend=_TEXT_OR_NULL,
        experts=_SIZE,
        hidden=_SIZE,
        intermediate=_object(native=_SIZE, allocated=_SIZE),
        verdict=_VERDICT,
        rule=_TEXT_OR_NULL,
        bytes_per_rank=_BYTES,
        fits=_HOLDS,
        notes=_list(_TEXT),
    )
    refused = _object(
        moe_tp=_COUNT,
        moe_ep=_COUNT,
        splits=_SPLITS,
        requested=_list(_TEXT),
        fused_shared_experts=_FLAG,
        reason=_TEXT,
    )
    return _object(
        version=_VERSION,
        model=_TEXT,
        engine=_ENGINE,
        gpus=_COUNT,
        layers=_SIZE,
        memory=_SIZE,
        kv_bytes_per_token=_SIZE,
        layouts=_list(layout),
        refused=_list(refused),
        notes=_list(_TEXT),
        policy=_DIGEST,
    )


def _plan() -> Schema:
    one = _one_plan()
    return {"oneOf": [one, _object(version=_VERSION, plans=_list(one))]}


def _groups() -> Schema:
    size = _object(size=_COUNT, survives=_FLAG, divides_hidden=_FLAG, tp=_list(_COUNT))
    return _object(
        version=_VERSION,
        model=_TEXT,
        tp=_COUNT,
        hidden=_COUNT,
        intermediate=_object(whole=_COUNT, per_rank=_SIZE),
        sizes=_list(size),
        best=_SIZE,
    )


def _messages() -> Schema:
    message = _object(
        id=_TEXT,
        line=_COUNT,
        text=_TEXT,
        dim=_TEXT,
        size=_SIZE,
        multiple=_SIZE,
        numbers=_map(_COUNT),
        means=_TEXT,
        do=_TEXT,
        rules=_list(_TEXT),
    )
    return _object(version=_VERSION, messages=_list(message), verdict=_or_null(_VERDICT))


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


def _finding() -> Schema:
    return _object(
        code={"type": "string", "pattern": "^[A-Z][0-9]{3}$"},
        level=_one_of("error", "warning", "note"),
        message=_TEXT,
        rule=_TEXT_OR_NULL,
        file=_TEXT_OR_NULL,
        line=_SIZE,
        column=_SIZE,
        where=_list(_TEXT),
        facts=_VALUES,
        rules=_list(_TEXT),
        fix=_TEXT_OR_NULL,
    )


def _findings() -> Schema:
    """What `lint` and `prove` found."""
    return _object(version=_VERSION, fails=_FLAG, findings=_list(_finding()))


def _verify_vllm() -> Schema:
    return _object(
        version=_VERSION,
        fails=_FLAG,
        release=_TEXT,
        against=_TEXT,
        policy=_TEXT,
        points=_map(_COUNT),
        equal=_COUNT,
        of=_COUNT,
        left_out=_COUNT,
        holds=_FLAG,
        sizes=_object(bound=_COUNT, proven=_FLAG),
        findings=_list(_finding()),
    )


def _verify_aiter() -> Schema:
    probe = _object(
        contract=_TEXT,
        meant=_TEXT,
        verdict=_one_of("holds", "changed", "not found"),
        said=_TEXT,
        place=_TEXT_OR_NULL,
    )
    return _object(version=_VERSION, fails=_FLAG, release=_TEXT_OR_NULL, probes=_list(probe))


def _diff() -> Schema:
    sizes = _object(hidden=_SIZE, intermediate=_SIZE)
    change = _object(
        phase=_TEXT,
        **{"class": _one_of("tighter", "looser", "incomparable")},
        old=_TEXT_OR_NULL,
        new=_TEXT_OR_NULL,
        said=_TEXT,
        where=_list(_TEXT),
        facts=_VALUES,
    )
    model = _object(
        model=_TEXT,
        tp=_COUNT,
        ep=_COUNT,
        facts=_VALUES,
        old=sizes,
        new=sizes,
        bytes_created=_or_null({"type": "integer"}),
        bytes_resident=_or_null({"type": "integer"}),
        snapshots_fit=_FLAG,
    )
    return _object(
        version=_VERSION,
        changed=_FLAG,
        changes=_list(change),
        other=_list(_TEXT),
        affected=_map(_list(_TEXT)),
        models=_list(model),
    )


def _test() -> Schema:
    result = _object(file=_TEXT, line=_COUNT, holds=_FLAG, differences=_list(_TEXT))
    lacking = _object(rule=_TEXT, where=_TEXT_OR_NULL, paste=_TEXT)
    return _object(
        version=_VERSION, cases=_COUNT, failed=_COUNT, results=_list(result), uncovered=_list(lacking)
    )


def _fmt() -> Schema:
    return _object(version=_VERSION, written=_FLAG, files=_list(_object(file=_TEXT, changed=_FLAG)))


_SHAPES: Mapping[str, Callable[[], Schema]] = {
    "check": _check,
    "plan": _plan,
    "group-size": _groups,
    "explain-error": _messages,
    "resolve": _resolve,
    "explain": _explain,
    "list": _listing,
    "rule": _rule,
    "compile": _compile,
    "doctor": _doctor,
    "lint": _findings,
    "prove": _findings,
    "diff": _diff,
    "test": _test,
    "fmt": _fmt,
    "verify-vllm": _verify_vllm,
    "verify-aiter": _verify_aiter,
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
