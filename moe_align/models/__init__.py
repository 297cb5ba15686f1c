"""A model's experts: from its `config.json`, or from the list of known models.

Sizes are those of the whole model, in elements, before any split. What a config does not say is
`None`: unknown, never a default.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import PolicyError, Problem, did_you_mean

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

#: What goes wrong with models, by code, for `moe-align rule CODE`.
CODES: Mapping[str, str] = {
    "M001": "A model's config cannot be read: it is not there, is no file, is too large, or may not be read.",
    "M002": "The file is not JSON in UTF-8. The place is where reading stopped.",
    "M003": "A key stands twice in one JSON object, with different values.",
    "M004": "A part of the config has the wrong shape: an object, a list or a whole number is meant.",
    "M005": "The architecture is not known, so nothing says which keys hold the sizes of its experts.",
    "M006": "The model has no experts: it is dense, or its number of experts is 0.",
    "M007": "A size is not a whole number from 1 to 2147483648.",
    "M008": "The config contradicts itself.",
    "M009": "An entry of the list of known models is not as it should be.",
    "M010": "No known model has this name.",
    "M011": "The hub gave no config for this id: it has no such model, or cannot be reached.",
    "M012": "There is no model and no size: nothing says how wide the experts are.",
}


@dataclass(frozen=True, slots=True)
class Model:
    """The expert layers of one model.

    `name` is the id of a known model or the name that a config was read under; `hf_id` its
    repository. `expert_hidden_size` is the width that routed experts see where it is not
    `hidden_size` (latent MoE). `moe_intermediate_size` is the width of one routed expert,
    `shared_expert_intermediate_size` that of all shared experts together. `moe_layers` and
    `dense_layers` leave out the `mtp_layers`. `gated` experts have a gate and an up projection.
    `scheme`, `method`, `block` (rows × columns of one scale) and `group` (columns of one scale) say
    how the checkpoint stores the experts, `act_scale` whether it has scales of activations,
    `activations` which format it wants of them. `kv_bytes_per_token` is what one token takes in the KV
    cache, of all layers. `source` and `confidence` say where it is known from.
    """

    name: str
    hf_id: str | None = None
    architecture: str | None = None
    model_type: str | None = None
    hidden_size: int | None = None
    expert_hidden_size: int | None = None
    moe_intermediate_size: int | None = None
    num_experts: int | None = None
    experts_per_token: int | None = None
    num_shared_experts: int | None = None
    shared_expert_intermediate_size: int | None = None
    dense_intermediate_size: int | None = None
    moe_layers: int | None = None
    dense_layers: int | None = None
    mtp_layers: int | None = None
    activation: str | None = None
    gated: bool | None = None
    bias: bool | None = None
    scheme: str | None = None
    method: str | None = None
    block: tuple[int, int] | None = None
    group: int | None = None
    zero_points: bool = False
    act_scale: str | None = None
    activations: str | None = None
    source: str | None = None
    confidence: str | None = None
    kv_bytes_per_token: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def routed_hidden_size(self) -> int | None:
        """The hidden size that routed experts see."""
        return self.expert_hidden_size or self.hidden_size

    def facts(self) -> dict[str, str | int | bool]:
        """What is known of the model, under the names of facts; sizes are those before any split.

        An activation without a gate to multiply with has a name of its own, as engines have it.
        """
        block_n, block_k = self.block or (None, None)
        activation = self.activation
        if activation and self.gated is False:
            activation = f"{activation}_no_mul"
        known = {
            "scheme": self.scheme,
            "method": self.method,
            "model_type": self.model_type,
            "activation": activation,
            "gated": self.gated,
            "bias": self.bias,
            "experts": self.num_experts,
            "topk": self.experts_per_token,
            "hidden": self.routed_hidden_size,
            "intermediate": self.moe_intermediate_size,
            "block_n": block_n,
            "block_k": block_k,
            # One scale over a whole row cuts no shard: to rules it is a group of 1.
            "group": 1 if self.group == -1 else self.group,
            "act_scale": self.act_scale,
            "activations": self.activations,
        }
        return {key: value for key, value in known.items() if value is not None}


def read_model(path: Path, name: str | None = None) -> Model:
    """The model whose `config.json` (or folder with one) `path` leads to; `name` is shown for it.

    A ModelOpt `hf_quant_config.json` beside it counts where the config has no `quantization_config`.

    Raises:
        PolicyError: if it cannot be read, is broken or contradicts itself, or if its architecture is
            not known or has no experts. The codes are those of `CODES`.
    """
    from .config import read

    return read(path, name)


def parse_config(text: str, file: str = "config.json", name: str | None = None) -> Model:
    """The model of a `config.json` that has been read; `file` is its name in messages.

    Raises:
        PolicyError: as `read_model`.
    """
    from .config import model_of
    from .jsontext import parse

    return model_of(parse(text, file), name or file)


def known_model(document: Mapping[str, object]) -> Model:
    """The model of one entry of `rules/models.yaml`.

    Raises:
        PolicyError: if the entry has unknown keys, or values that no model has; all of them at once.
    """
    name = document.get("id")
    shown = name if isinstance(name, str) else "without an id"
    problems = list(_entry_problems(document))
    if problems:
        raise PolicyError(Problem("M009", f"known model `{shown}`: {text}", fix) for text, fix in problems)
    fields = {key: value for key, value in document.items() if key != "id"}
    block, notes = fields.pop("block", None), fields.pop("notes", None)
    return Model(
        name=str(name),
        block=(block[0], block[1]) if isinstance(block, list) else None,
        notes=(str(notes),) if notes else (),
        **fields,  # type: ignore[arg-type]  # each was checked against its type above
    )


def find_model(models: Iterable[Model], name: str) -> Model:
    """The known model that has this id or Hugging Face id, whatever its case.

    Raises:
        PolicyError: if none has it; with the name that was most likely meant.
    """
    listed = list(models)
    names = {
        alias.lower(): model for model in listed for alias in (model.name, model.hf_id, _last(model)) if alias
    }
    found = names.get(name.lower())
    if found is not None:
        return found
    near = did_you_mean(name, (model.name for model in listed)) or did_you_mean(name, names)
    fix = f"write `{near}`" if near else "give a `config.json`, or `--hidden --intermediate --experts`"
    raise PolicyError([Problem("M010", f"no known model `{name}`", fix)])


def _last(model: Model) -> str | None:
    """The repository's name without its owner."""
    return model.hf_id.rpartition("/")[2] if model.hf_id else None


_TEXT = frozenset(
    {"id", "hf_id", "architecture", "model_type", "activation", "scheme", "method", "source", "notes"}
)
_COUNTS = frozenset(
    {"num_shared_experts", "shared_expert_intermediate_size", "moe_layers", "dense_layers", "mtp_layers"}
)
_SIZES = frozenset(
    {"hidden_size", "expert_hidden_size", "moe_intermediate_size", "num_experts", "experts_per_token"}
    | {"dense_intermediate_size", "group", "kv_bytes_per_token"}
)
_FLAGS = frozenset({"gated", "bias", "zero_points"})
_ENTRY = _TEXT | _COUNTS | _SIZES | _FLAGS | {"block", "confidence"}
_CONFIDENCE = ("high", "medium", "low")


def _entry_problems(document: Mapping[str, object]) -> Iterable[tuple[str, str | None]]:
    name = document.get("id")
    if not isinstance(name, str) or name != name.lower():
        yield f"its id is `{name}`", "an id is a lower-case name"
    for key, value in document.items():
        fault = _fault(key, value)
        if fault:
            yield fault


def _fault(key: str, value: object) -> tuple[str, str | None] | None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if key not in _ENTRY:
        near = did_you_mean(key, _ENTRY)
        return f"unknown key `{key}`", f"write `{near}`" if near else None
    if key in _TEXT and not isinstance(value, str):
        return f"`{key}` is `{value}`", "a text is meant"
    if key in _FLAGS and not isinstance(value, bool):
        return f"`{key}` is `{value}`", "write `true` or `false`"
    if key == "confidence" and value not in _CONFIDENCE:
        return f"`confidence` is `{value}`", "write `high`, `medium` or `low`"
    least = 0 if key in _COUNTS else 1
    if key in _COUNTS | _SIZES and not (whole and isinstance(value, int) and value >= least):
        return f"`{key}` is `{value}`", f"a whole number of at least {least} is meant"
    if key == "block" and not (isinstance(value, list) and len(value) == 2 and all(map(_is_side, value))):
        return f"`block` is `{value}`", "two whole numbers of at least 1 are meant"
    return None


def _is_side(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
