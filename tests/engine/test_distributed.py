"""adapters/distributed over real gloo groups: four processes, each with its own values."""

import pickle
from pathlib import Path

import pytest
import torch.distributed as dist
import torch.multiprocessing as mp

from moe_align.adapters.distributed import DisagreementError, agree

WORLD = 4


def _ask(rank: int, store: str, values: list[dict[str, str]], answers: mp.SimpleQueue) -> None:
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=WORLD)
    try:
        agree(values[rank])
        answers.put((rank, None))
    except DisagreementError as error:
        answers.put((rank, error))
    finally:
        dist.destroy_process_group()


def _run(tmp_path: Path, values: list[dict[str, str]]) -> dict[int, DisagreementError | None]:
    context = mp.get_context("spawn")
    answers = context.SimpleQueue()
    mp.start_processes(
        _ask, args=(str(tmp_path / "store"), values, answers), nprocs=WORLD, start_method="spawn"
    )
    return dict(answers.get() for _ in range(WORLD))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        pytest.param([{"policy digest": "8a1e", "sizes": "7168 × 384"}] * WORLD, None, id="all-agree"),
        pytest.param(
            [{"policy digest": digest} for digest in ("8a1e", "8a1e", "77f0", "8a1e")],
            "the ranks do not agree on the policy digest: ranks 0, 1, 3: 8a1e; rank 2: 77f0",
            id="one-digest-differs",
        ),
        pytest.param(
            [{"policy digest": "8a1e", "sizes": sizes} for sizes in ("7168 × 384", "7168 × 512") * 2],
            "the ranks do not agree on the sizes: ranks 0, 2: 7168 × 384; ranks 1, 3: 7168 × 512",
            id="equal-policies-other-sizes",
        ),
        pytest.param(
            [{"policy digest": "8a1e"}] * 3 + [{}],
            "the ranks do not agree on the policy digest: ranks 0, 1, 2: 8a1e; rank 3: nothing",
            id="a-rank-without-a-policy",
        ),
    ],
)
def test_every_rank_gets_the_same_answer(tmp_path: Path, values: list[dict[str, str]], message: str) -> None:
    answers = _run(tmp_path, values)
    assert {rank: error and str(error) for rank, error in answers.items()} == dict.fromkeys(
        range(WORLD), message
    )


def test_the_error_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(DisagreementError("policy digest", {"a": (0, 1), "b": (2,)})))
    assert str(error) == "the ranks do not agree on the policy digest: ranks 0, 1: a; rank 2: b"
    assert error.by_value == {"a": (0, 1), "b": (2,)}
