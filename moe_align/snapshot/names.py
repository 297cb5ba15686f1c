"""What a tensor is, by its name: routed expert, shared, dense, attention, …; its layer, expert and part."""

from __future__ import annotations

import re

from ..record import NamedTuple

#: Kinds of tensors, in the order in which they are shown.
KINDS = ("routed", "shared", "dense", "attention", "embeddings", "router", "norms", "other")

#: Projections of an expert, by the names that checkpoints and engines have for them. `gate_up` is both.
_PROJECTIONS = {
    "gate_proj": "gate",
    "w1": "gate",
    "up_proj": "up",
    "w3": "up",
    "down_proj": "down",
    "w2": "down",
    "gate_up_proj": "gate_up",
    "w13": "gate_up",
}

_EXPERT = re.compile(
    r"(?:^|\.)experts\.(?:routed_experts\.)?(?:(?P<expert>\d+)\.)?"
    rf"(?P<projection>{'|'.join(sorted(_PROJECTIONS, key=len, reverse=True))})(?:[._](?P<part>\w+))?$"
)
_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks|layer)\.(\d+)\.")
_MTP = re.compile(r"(?:^|\.)(?:mtp|nextn|mtp_layers)(?:\.|_)")

#: Path elements that say what a tensor is, in the order in which they are asked for.
_ELEMENTS = (
    ("shared", {"shared_expert", "shared_experts", "shared_expert_gate"}),
    (
        "attention",
        {"self_attn", "attn", "attention", "linear_attn", "self_attention", "mixer", "mamba", "cross_attn"},
    ),
    ("embeddings", {"embed", "embed_tokens", "wte", "lm_head", "head", "tok_embeddings", "word_embeddings"}),
    # Engines hold routers and shared experts inside of the module `experts`.
    ("router", {"gate", "router", "e_score_correction_bias", "tid2eid"}),
    ("routed", {"experts"}),
    ("dense", {"mlp", "ffn", "feed_forward", "block_sparse_moe"}),
)


class Name(NamedTuple):
    """What a name says. `expert`, `projection` and `part` are those of routed experts only.

    `part` is `weight` or what else belongs to the projection; `expert` is `None` where one tensor holds
    all of them.
    """

    kind: str
    layer: int | None
    is_mtp: bool
    expert: int | None = None
    projection: str | None = None
    part: str = "weight"
    as_engine: bool = False


def read_name(name: str, main_layers: int | None = None) -> Name:
    """What a name says; layers from `main_layers` on predict further tokens and belong to no main model."""
    found = _LAYER.search(name)
    layer = int(found[1]) if found and len(found[1]) < 10 else None
    beyond = main_layers is not None and layer is not None and layer >= main_layers
    is_mtp = beyond or bool(_MTP.search(name))
    expert = _EXPERT.search(name)
    if expert is None:
        return Name(_kind(name), layer, is_mtp)
    number = expert["expert"]
    if number is not None and len(number) >= 10:
        return Name("routed", layer, is_mtp)
    written = expert["projection"]
    return Name(
        "routed",
        layer,
        is_mtp,
        int(number) if number is not None else None,
        _PROJECTIONS[written],
        expert["part"] or "weight",
        # `w13_weight` and `w2_weight` without an expert's number are an engine's own parameters.
        number is None and written in ("w13", "w2"),
    )


def _kind(name: str) -> str:
    elements = name.split(".")
    for kind, words in _ELEMENTS:
        if not words.isdisjoint(elements):
            return kind
    return "norms" if any("norm" in element for element in elements) else "other"
