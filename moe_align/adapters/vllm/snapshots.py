"""Snapshots that vLLM saves and loads: a manifest beside one, and no loading where the manifest disagrees."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ...snapshot.layout import CREATED, PROCESSED, WRONG_TWICE, is_left_alone
from ...snapshot.manifest import Manifest, Sizes, disagreements, read_manifest, write_manifest
from .records import Record

if TYPE_CHECKING:
    from ...policy import Policy


def saved(path: str, records: list[Record], policy: Policy | None, vllm: str) -> str | None:
    """Write the manifest of a snapshot that was just saved; what to log: nothing where all is well.

    The first rank writes it. Layers of several sizes have no manifest.

    Raises:
        PolicyError: it cannot be written.
    """
    if not _is_first_rank():
        return None
    made = manifest_of(records, policy, vllm)
    if isinstance(made, str):
        return f"no manifest is written beside {path}: {made}"
    write_manifest(Path(path), made)
    return None


def manifest_of(records: list[Record], policy: Policy | None, vllm: str) -> Manifest | str:
    """What parameters are now, or why one manifest cannot say it."""
    made = {repr(one): one for one in (_manifest(record, policy, vllm) for record in records)}
    if None in made.values():
        return "a layer's quant method is not known"
    if len(made) > 1:
        return "its layers have several sizes or backends"
    (manifest,) = made.values()
    assert manifest is not None, "the first case"
    return manifest


def _manifest(record: Record, policy: Policy | None, vllm: str) -> Manifest | None:
    given = record.given
    if given is None:
        return None
    parallel = {key: int(given[key]) for key in ("tp", "dp", "moe_tp", "moe_ep")}
    return Manifest(
        policy.digest if policy else None,
        "vllm",
        vllm,
        _backend(record.backend, policy),
        str(given["scheme"]),
        {**parallel, "pp": _stages()},
        int(given["experts"]),
        Sizes(*record.entering),
        Sizes(*record.allocated),
        PROCESSED if record.is_processed else CREATED,
        # Its loader leaves gate and up rows in turns, as the checkpoint has them.
        given.get("method") == "gpt_oss",
    )


def _backend(name: str, policy: Policy | None) -> str:
    """The backend as rules name it."""
    found = policy.stack.vocabulary.members("backend", name) if policy else None
    return next(iter(found)) if found and len(found) == 1 else name


def wrongs(path: str, records: list[Record], policy: Policy | None, vllm: str) -> tuple[list[str], list[str]]:
    """What speaks against loading a snapshot into parameters that exist, and what nobody knows of it.

    Both are empty where there is no manifest.

    Raises:
        PolicyError: a manifest that cannot be used.
    """
    folder = Path(path)
    manifest = read_manifest(folder) if folder.is_dir() else None
    if manifest is None:
        return [], []
    now = manifest_of(records, policy, vllm)
    if isinstance(now, str):
        return [], [f"the manifest cannot be compared: {now}"]
    against = list(disagreements(manifest, now._replace(layout=manifest.layout)))
    if manifest.layout == CREATED or is_left_alone(manifest.scheme, manifest.backend, fnuz=_is_fnuz()):
        return against, []
    twice = f"it was saved after repacking for {manifest.backend}, and loading repacks it once more"
    if manifest.backend in WRONG_TWICE.get(manifest.scheme, ()):
        return [*against, f"{twice}: that was tried and gives other tokens"], []
    return against, [twice]


def _is_first_rank() -> bool:
    from vllm.distributed import get_pp_group, get_tensor_model_parallel_rank

    return bool(get_pp_group().rank_in_group == 0 and get_tensor_model_parallel_rank() == 0)


def _is_fnuz() -> bool:
    from vllm.platforms import current_platform

    return bool(current_platform.is_fp8_fnuz())


def _stages() -> int:
    from vllm.distributed import get_pp_group

    return int(get_pp_group().world_size)
