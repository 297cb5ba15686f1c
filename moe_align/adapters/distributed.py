"""Whether all ranks of a torch process group hold one policy and came to one decision.

For serving code that wants to ask. It is a collective: every rank of the group must call it, which is why the
vLLM adapter does not (a pipeline stage without expert layers would never come).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


class DisagreementError(RuntimeError):
    """Ranks of one group hold different policies or decisions; `by_value` gives each value's ranks."""

    def __init__(self, name: str, by_value: Mapping[str, tuple[int, ...]]) -> None:
        self.name = name
        self.by_value = dict(by_value)
        held = "; ".join(f"{_ranks(ranks)}: {value}" for value, ranks in self.by_value.items())
        super().__init__(f"the ranks do not agree on the {name}: {held}")

    def __reduce__(self) -> tuple[type[DisagreementError], tuple[str, dict[str, tuple[int, ...]]]]:
        """Both parts, so that the error reaches a parent process as it is."""
        return type(self), (self.name, self.by_value)


def agree(values: Mapping[str, str], group: ProcessGroup | None = None) -> None:
    """Return once every rank of `group` (default: all) has been seen to hold equal `values`, by name.

    Pass what has to be equal, as text: `{"policy digest": policy.digest, "sizes of layer 3": "7168 × 384"}`.
    Each rank raises the same error, about the first name that differs in sorted order: none is left waiting.

    Raises:
        DisagreementError: with the ranks behind each value; a rank without the name holds `nothing`.
    """
    import torch.distributed as dist

    everyone: list[dict[str, str]] = [{} for _ in range(dist.get_world_size(group))]
    dist.all_gather_object(everyone, dict(values), group=group)
    for name in sorted({name for held in everyone for name in held}):
        by_value: dict[str, list[int]] = {}
        for rank, held in enumerate(everyone):
            by_value.setdefault(held.get(name, "nothing"), []).append(rank)
        if len(by_value) > 1:
            raise DisagreementError(name, {value: tuple(ranks) for value, ranks in by_value.items()})


def _ranks(ranks: tuple[int, ...]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"
