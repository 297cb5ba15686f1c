from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moe_align.sizes import Shard, ceil_div, cut, lcm, round_up, snap

sizes = st.integers(0, 10**6)
multiples = st.integers(1, 4096)
ranks = st.integers(1, 64)


@given(sizes, multiples)
def test_rounded_up_is_the_least_multiple_not_below(size: int, multiple: int) -> None:
    padded = round_up(size, multiple)
    assert padded % multiple == 0
    assert padded - multiple < size <= padded
    assert padded == ceil_div(size, multiple) * multiple


@given(sizes, multiples)
def test_rounding_up_twice_changes_nothing(size: int, multiple: int) -> None:
    once = round_up(size, multiple)
    assert round_up(once, multiple) == once


@given(sizes, sizes, multiples)
def test_rounding_up_keeps_order(one: int, other: int, multiple: int) -> None:
    low, high = sorted((one, other))
    assert round_up(low, multiple) <= round_up(high, multiple)


@given(st.lists(st.integers(1, 60), max_size=4))
def test_lcm_is_the_least_number_that_all_divide(numbers: list[int]) -> None:
    common = lcm(*numbers)
    assert all(common % number == 0 for number in numbers)
    step = max(numbers, default=1)
    assert not any(
        all(less % number == 0 for number in numbers) for less in range(step, min(common, 5000), step)
    )


@given(sizes, st.lists(sizes, max_size=6))
def test_snap_takes_the_least_choice_not_below(size: int, choices: list[int]) -> None:
    found = snap(size, choices)
    at_least = [choice for choice in choices if choice >= size]
    assert found == (min(at_least) if at_least else None)


@given(sizes, ranks, multiples)
def test_shards_are_disjoint_complete_and_block_aligned(size: int, ranks: int, multiple: int) -> None:
    shards = cut(size, ranks, multiple)
    assert len(shards) == ranks
    assert shards[0].start == 0
    assert shards[-1].stop == size
    assert all(left.stop == right.start for left, right in pairwise(shards))
    assert len({shard.size for shard in shards}) == 1
    assert shards[0].size == round_up(ceil_div(size, ranks), multiple)
    assert sum(shard.real for shard in shards) == size
    assert all(shard.pad >= 0 and shard.real + shard.pad == shard.size for shard in shards)
    assert all(shard.start % multiple == 0 or shard.real == 0 for shard in shards)


def test_1536_over_8_ranks_by_128_leaves_two_ranks_empty() -> None:
    shards = cut(1536, 8, 128)
    assert shards[0] == Shard(0, 256, 256)
    assert [shard.real for shard in shards] == [256] * 6 + [0] * 2
    assert {shard.size for shard in shards} == {256}


def test_nothing_cut_is_nothing_everywhere() -> None:
    assert cut(0, 2, 128) == (Shard(0, 0, 0), Shard(0, 0, 0))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ceil_div(-1, 2), "a size is at least 0, not -1"),
        (lambda: ceil_div(1, 0), "`divisor` is at least 1, not 0"),
        (lambda: round_up(-1, 2), "a size is at least 0, not -1"),
        (lambda: round_up(1, 0), "`multiple` is at least 1, not 0"),
        (lambda: lcm(4, 0), "`multiple` is at least 1, not 0"),
        (lambda: snap(-1, ()), "a size is at least 0, not -1"),
        (lambda: cut(-1, 1, 1), "a size is at least 0, not -1"),
        (lambda: cut(1, 0, 1), "`ranks` is at least 1, not 0"),
        (lambda: cut(1, 1, 0), "`multiple` is at least 1, not 0"),
    ],
)
def test_sizes_that_cannot_be_are_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
