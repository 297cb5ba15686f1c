"""`config.json` → `Model`: which section, which family, which keys."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import PolicyError, Problem, did_you_mean
from ..facts import LARGEST
from . import Model
from .families import ACTIVATIONS, FAMILY_OF, SECTIONS, Contradiction, Family
from .jsontext import Document, JsonPath, parse, read_text
from .schemes import Malformed, Storage, read_storage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def read(path: Path, name: str | None) -> Model:
    folder = path if _is_folder(path) else path.parent
    file = folder / "config.json" if folder is path else path
    document = parse(read_text(file), str(file))
    beside = folder / "hf_quant_config.json"
    quantizer = parse(read_text(beside), str(beside)) if beside.exists() else None
    return model_of(document, name or folder.resolve().name or str(file), quantizer)


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:
        return False


def model_of(document: Document, name: str, quantizer: Document | None = None) -> Model:
    """The model of a config; `quantizer` is ModelOpt's own file beside it.

    Raises:
        PolicyError: as `read_model`.
    """
    section = _section(document)
    family = _family(section)
    try:
        return _model(section, family, name, quantizer)
    except Contradiction as error:
        message = f"`{error.key}`: {error}"
        raise document.problem(
            "M008", section.path_of(error.key), message, "correct one of the two"
        ) from None


@dataclass(frozen=True, slots=True)
class Section:
    """The part of a config that describes the text model, and the way to it."""

    document: Document
    path: JsonPath
    values: Mapping[str, object]

    def path_of(self, key: str) -> JsonPath:
        return (*self.path, *key.split("."))

    def value(self, key: str) -> object:
        """What stands under a key; dots lead into nested objects. `None` if nothing does."""
        value: object = self.values
        for part in key.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        return value

    def number(self, key: str, least: int = 0) -> int | None:
        """The whole number under a key; one that all items of a list share counts as such.

        Raises:
            PolicyError: if something else stands there.
        """
        value = self.value(key)
        if isinstance(value, list) and value and all(item == value[0] for item in value):
            value = value[0]
        if value is None or isinstance(value, list):
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= LARGEST:
            fix = f"a whole number from {least} to {LARGEST} is meant"
            raise self.document.problem("M007", self.path_of(key), f"`{key}` is `{str(value)[:40]}`", fix)
        return value

    def text(self, key: str) -> str | None:
        value = self.value(key)
        return value if isinstance(value, str) else None


def _section(document: Document) -> Section:
    values = document.root
    path: JsonPath = ()
    while True:
        inner = next((key for key in SECTIONS if isinstance(values.get(key), dict)), None)
        if inner is None:
            return Section(document, path, values)
        nested = values[inner]
        assert isinstance(nested, dict)
        values, path = nested, (*path, inner)


def _names(values: Mapping[str, object]) -> list[str]:
    architectures = values.get("architectures")
    listed = architectures if isinstance(architectures, list) else []
    return [name for name in (*listed, values.get("model_type")) if isinstance(name, str)]


def _family(section: Section) -> Family:
    """The family of a config's text model.

    Raises:
        PolicyError: if there is no known one, or if the config has no experts.
    """
    document, outer = section.document, _names(section.document.root)
    # A config with an architecture is of that architecture: a `model_type` that a new one has
    # borrowed says nothing of its keys. In a wrapper the text model's own names come first.
    names = [*_names(section.values), *outer] if section.path else outer[:1]
    family = next((FAMILY_OF[name] for name in names if name in FAMILY_OF), None)
    if not _speaks_of_experts(section, family):
        fix = "give the config of a model with experts"
        raise PolicyError(
            [Problem("M006", f"no experts in this config of `{_shown(outer)}`", fix, document.where(()))]
        )
    if family is None:
        path: JsonPath = ("architectures",) if "architectures" in document.root else ("model_type",)
        near = did_you_mean(names[0], FAMILY_OF) if names else None
        hint = f"is it like `{near}`? " if near else ""
        fix = f"{hint}give the sizes with `--hidden --intermediate --experts`"
        raise document.problem("M005", path, f"unknown architecture `{_shown(outer)}`", fix)
    return family


def _shown(names: list[str]) -> str:
    return names[0] if names else "no architecture"


def _speaks_of_experts(section: Section, family: Family | None) -> bool:
    """Whether any key about experts holds anything; a count of 0 is a mistake worth its place."""
    for key in family.keys["num_experts"] if family else ():
        value = section.value(key)
        if value == 0 and not isinstance(value, bool):
            message, fix = f"`{key}` is 0: no experts", "a dense model has no such key"
            raise section.document.problem("M006", section.path_of(key), message, fix)
        if value is not None:
            return True
    keys = (key for key, value in section.values.items() if value not in (None, False, 0, [], {}))
    return any(re.search(r"(?<!router_)experts?|moe", key.lower()) and "aux" not in key for key in keys)


#: What an engine rewrites before it looks at the quantizer: by model type, method and scheme.
#: Source: vllm v0.33.0:vllm/model_executor/models/config.py, KimiK3ForConditionalGenerationConfig.
_REWRITTEN: Mapping[tuple[str | None, str, str | None], str] = {
    ("kimi_k3", "compressed_tensors", "mxfp4"): "default",
}

#: Fields that may be 0; the others are sizes of at least 1.
_COUNTS = frozenset(
    {"num_shared_experts", "shared_expert_intermediate_size", "dense_intermediate_size", "mtp_layers"}
)


def _model(section: Section, family: Family, name: str, quantizer: Document | None) -> Model:
    found = {
        field: _agreed(section, field, keys) for field, keys in family.keys.items() if field != "activation"
    }
    layers = found.get("layers") or _length(section, family.blocks)
    moe_layers = family.moe_layers(section.number, section.value, layers) if layers else None
    experts, topk = found.get("num_experts"), found.get("experts_per_token")
    if experts and topk and topk > experts:
        raise Contradiction(
            family.keys["experts_per_token"][0], f"{topk} of {experts} experts for each token"
        )
    shared, shared_width = _shared(family, found)
    activation = _activation(section, family)
    storage = _storage(section, quantizer)
    outer = _names(section.document.root)
    return Model(
        name=name,
        architecture=outer[0] if outer else None,
        model_type=_root(section).text("model_type") or section.text("model_type"),
        hidden_size=found.get("hidden_size"),
        expert_hidden_size=found.get("expert_hidden_size"),
        moe_intermediate_size=found.get("moe_intermediate_size"),
        num_experts=experts,
        experts_per_token=topk,
        num_shared_experts=shared,
        shared_expert_intermediate_size=shared_width,
        dense_intermediate_size=found.get("dense_intermediate_size") or None,
        moe_layers=moe_layers,
        dense_layers=layers - moe_layers if layers and moe_layers is not None and not family.blocks else None,
        mtp_layers=found.get("mtp_layers"),
        activation=activation,
        gated=bool(family.fixed.get("gated", True)),
        bias=bool(family.fixed.get("bias", False)),
        scheme=storage.scheme,
        method=storage.method,
        block=storage.block,
        group=storage.group,
        act_scale=storage.act_scale,
        activations=storage.activations,
        zero_points=storage.zero_points,
        source=section.document.file,
        confidence="high",
        notes=tuple(_notes(section, family, found, activation, storage)),
    )


def _length(section: Section, key: str | None) -> int | None:
    listed = section.value(key) if key else None
    return len(listed) if isinstance(listed, list) else None


def _agreed(section: Section, field: str, keys: tuple[str, ...]) -> int | None:
    """The number that all spellings of a field that are written have in common."""
    numbers = [(key, section.number(key, 0 if field in _COUNTS else 1)) for key in keys]
    written = [(key, number) for key, number in numbers if number is not None]
    if not written:
        # `null` says that there are none; a missing key says nothing.
        return 0 if field == "num_shared_experts" and any(key in section.values for key in keys) else None
    for key, number in written[1:]:
        if number != written[0][1]:
            raise Contradiction(key, f"{number}, but `{written[0][0]}` is {written[0][1]}")
    return written[0][1]


def _shared(family: Family, found: Mapping[str, int | None]) -> tuple[int | None, int | None]:
    """How many shared experts there are, and how wide they are together."""
    width = found.get("shared_expert_intermediate_size")
    if family.one_shared:
        return (None, None) if width is None else (min(width, 1), width)
    count = family.fixed.get("num_shared_experts", found.get("num_shared_experts"))
    if not isinstance(count, int):
        return None, None
    each = found.get("moe_intermediate_size") if family.shared == "routed" else width
    if count == 0:
        return 0, 0
    if each is None:
        return count, None
    return count, each if family.shared == "key" else count * each


def _activation(section: Section, family: Family) -> str | None:
    fixed = family.fixed.get("activation")
    if isinstance(fixed, str):
        return fixed
    written = _written_activation(section, family)
    return ACTIVATIONS.get(written.lower()) if written else None


def _written_activation(section: Section, family: Family) -> str | None:
    texts = (section.text(key) for key in family.keys.get("activation", ()))
    return next((text for text in texts if text), None)


def _storage(section: Section, quantizer: Document | None) -> Storage:
    """How the experts are stored, from the first file and place that says so.

    Raises:
        PolicyError: if what it says cannot be, or two places say different things.
    """
    root = _root(section)
    places = [root, section] if section.path else [root]
    said = [(place, "quantization_config") for place in places if place.value("quantization_config")]
    if not said and quantizer is not None:
        said = [(Section(quantizer, (), quantizer.root), "quantization")]
    storages = [_read_storage(place, key, section) for place, key in said]
    if len(set(storages)) > 1:
        message = "`quantization_config` stands in two places and says two things"
        raise section.document.problem(
            "M008", section.path_of("quantization_config"), message, "keep one of the two"
        )
    return storages[0] if storages else _read_storage(section, "quantization_config", section)


def _read_storage(place: Section, key: str, section: Section) -> Storage:
    written = place.value(key)
    if written is not None and not isinstance(written, dict):
        raise place.document.problem(
            "M004", place.path_of(key), f"`{key}` is no object", "an object is meant"
        )
    model_type = _root(section).text("model_type")
    if any(
        name.startswith("DeepseekV4") for name in (*_names(section.values), *_names(section.document.root))
    ):
        model_type = "deepseek_v4"
    # V4.1 says it inside of the quantizer's part.
    expert_dtype = section.text("expert_dtype") or place.text(f"{key}.expert_dtype")
    try:
        storage = read_storage(written, model_type, expert_dtype)
    except Malformed as error:
        path = (*place.path_of(key), *error.path)
        raise place.document.problem("M008", path, str(error), error.fix) from None
    method = _REWRITTEN.get((model_type, storage.method, storage.scheme))
    return replace(storage, method=method) if method else storage


def _notes(
    section: Section,
    family: Family,
    found: Mapping[str, int | None],
    activation: str | None,
    storage: Storage,
) -> Iterator[str]:
    """What a reader should know of what could not be read."""
    if storage.note:
        yield storage.note
    if activation is None:
        written = _written_activation(section, family)
        yield f"activation `{written}` is not known" if written else "the config names no activation"
    for field, number in found.items():
        listed = [key for key in family.keys[field] if isinstance(section.value(key), list)]
        if number is None and listed:
            yield f"`{listed[0]}` differs between layers"


def _root(section: Section) -> Section:
    return Section(section.document, (), section.document.root)
