"""adapters/torch: padded experts compute what native ones do, to the bit."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from reference import dequantise_fp8, dequantise_mxfp4, expert, is_gated

from moe_align.adapters.torch import (
    STORAGE,
    Padding,
    allocate,
    expert_tensors,
    fill_pads,
    load_shard,
    pad,
    padding_of,
    unpad,
)
from moe_align.layout import SCHEMES, Experts, expert_bytes

TOKENS = 3
CASES = [
    pytest.param("silu", False, False, id="silu"),
    pytest.param("swigluoai", True, True, id="swigluoai-interleaved-bias"),
    pytest.param("swigluoai", False, True, id="swigluoai-stacked-bias"),
    pytest.param("situ", False, False, id="situ"),
    pytest.param("relu2_no_mul", False, False, id="relu2"),
]


def same_bits(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether two float32 tensors agree to the bit, signs of zeros included."""
    return bool(torch.equal(left.contiguous().view(torch.int32), right.contiguous().view(torch.int32)))


def rows_of_w13(native: int, allocated: int, activation: str, interleaved: bool) -> Padding:
    """How w13's rows hold a padded intermediate size."""
    if not is_gated(activation):
        return Padding(0, native, allocated)
    return Padding(0, 2 * native, 2 * allocated) if interleaved else Padding(0, native, allocated, parts=2)


sizes = st.tuples(st.integers(1, 9), st.integers(0, 7)).map(lambda pair: (pair[0], sum(pair)))


@pytest.mark.parametrize(("activation", "interleaved", "biased"), CASES)
@given(hidden=sizes, intermediate=sizes, seed=st.integers(0, 2**31))
def test_padded_expert_gives_equal_bits(
    activation: str,
    interleaved: bool,
    biased: bool,
    hidden: tuple[int, int],
    intermediate: tuple[int, int],
    seed: int,
) -> None:
    generator = torch.Generator().manual_seed(seed)
    native_rows = intermediate[0] * (2 if is_gated(activation) else 1)
    x = torch.randn(TOKENS, hidden[0], generator=generator)
    w13 = torch.randn(native_rows, hidden[0], generator=generator)
    w2 = torch.randn(hidden[0], intermediate[0], generator=generator)
    bias13 = torch.randn(native_rows, generator=generator) if biased else None
    bias2 = torch.randn(hidden[0], generator=generator) if biased else None
    rows = rows_of_w13(*intermediate, activation, interleaved)
    padded = expert(
        pad(x, [Padding(1, *hidden)]),
        pad(w13, [rows, Padding(1, *hidden)]),
        pad(w2, [Padding(0, *hidden), Padding(1, *intermediate)]),
        activation,
        interleaved=interleaved,
        w13_bias=None if bias13 is None else pad(bias13, [rows]),
        w2_bias=None if bias2 is None else pad(bias2, [Padding(0, *hidden)]),
    )
    native = expert(x, w13, w2, activation, interleaved=interleaved, w13_bias=bias13, w2_bias=bias2)
    assert same_bits(padded[:, : hidden[0]], native)
    assert not padded[:, hidden[0] :].any()


@pytest.mark.parametrize(("activation", "interleaved", "biased"), CASES)
@pytest.mark.parametrize(("hidden", "intermediate"), [((64, 128), (96, 128)), ((96, 96), (32, 64))])
def test_padded_mxfp4_expert_gives_equal_bits(
    activation: str, interleaved: bool, biased: bool, hidden: tuple[int, int], intermediate: tuple[int, int]
) -> None:
    generator = torch.Generator().manual_seed(7)
    native_rows = intermediate[0] * (2 if is_gated(activation) else 1)
    padded_rows = intermediate[1] * (2 if is_gated(activation) else 1)
    x = torch.randn(TOKENS, hidden[0], generator=generator)

    def random_bytes(rows: int, columns: int, low: int, high: int) -> torch.Tensor:
        return torch.randint(low, high, (rows, columns), dtype=torch.uint8, generator=generator)

    w13, w13_scale = (
        random_bytes(native_rows, hidden[0] // 2, 0, 256),
        random_bytes(native_rows, hidden[0] // 32, 122, 130),
    )
    w2, w2_scale = (
        random_bytes(hidden[0], intermediate[0] // 2, 0, 256),
        random_bytes(hidden[0], intermediate[0] // 32, 122, 130),
    )
    bias = torch.randn(native_rows, generator=generator) if biased else None
    rows = rows_of_w13(*intermediate, activation, interleaved)
    assert rows == padding_of(
        0, padded_rows, *(intermediate if rows.parts == 2 else (native_rows, padded_rows)), rows.parts
    )
    along_hidden = {cells: padding_of(1, hidden[1] // cells, *hidden) for cells in (2, 32)}
    along_intermediate = {cells: padding_of(1, intermediate[1] // cells, *intermediate) for cells in (2, 32)}
    padded = expert(
        pad(x, [Padding(1, *hidden)]),
        dequantise_mxfp4(pad(w13, [rows, along_hidden[2]]), pad(w13_scale, [rows, along_hidden[32]], 127)),
        dequantise_mxfp4(
            pad(w2, [Padding(0, *hidden), along_intermediate[2]]),
            pad(w2_scale, [Padding(0, *hidden), along_intermediate[32]], 127),
        ),
        activation,
        interleaved=interleaved,
        w13_bias=None if bias is None else pad(bias, [rows]),
    )
    native = expert(
        x,
        dequantise_mxfp4(w13, w13_scale),
        dequantise_mxfp4(w2, w2_scale),
        activation,
        interleaved=interleaved,
        w13_bias=bias,
    )
    assert same_bits(padded[:, : hidden[0]], native)


@pytest.mark.parametrize("activation", ["silu", "relu2_no_mul"])
def test_padded_fp8_block_expert_gives_equal_bits(activation: str) -> None:
    generator = torch.Generator().manual_seed(11)
    block, hidden, intermediate = 16, (32, 48), (32, 64)
    halves = 2 if is_gated(activation) else 1

    def random(rows: int, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
        weight = torch.randn(rows, columns, generator=generator).to(torch.float8_e4m3fn)
        return weight, torch.rand(rows // block, columns // block, generator=generator) + 0.5

    x = torch.randn(TOKENS, hidden[0], generator=generator)
    w13, w13_scale = random(halves * intermediate[0], hidden[0])
    w2, w2_scale = random(hidden[0], intermediate[0])

    def grid(dim: int, size: tuple[int, int], parts: int = 1) -> tuple[Padding, Padding]:
        """The paddings of a weight's dimension and of its scale's."""
        return (
            padding_of(dim, parts * size[1], *size, parts),
            padding_of(dim, parts * size[1] // block, *size, parts),
        )

    def dequantised(
        weight: torch.Tensor, scale: torch.Tensor, *grids: tuple[Padding, Padding]
    ) -> torch.Tensor:
        paddings, scale_paddings = zip(*grids, strict=True)
        return dequantise_fp8(pad(weight, paddings), pad(scale, scale_paddings, 1), block)

    padded = expert(
        pad(x, [Padding(1, *hidden)]),
        dequantised(w13, w13_scale, grid(0, intermediate, halves), grid(1, hidden)),
        dequantised(w2, w2_scale, grid(0, hidden), grid(1, intermediate)),
        activation,
    )
    native = expert(x, dequantise_fp8(w13, w13_scale, block), dequantise_fp8(w2, w2_scale, block), activation)
    assert same_bits(padded[:, : hidden[0]], native)


paddings = st.lists(
    st.builds(
        lambda native, extra, parts: (native, native + extra, parts),
        st.integers(1, 4),
        st.integers(0, 3),
        st.integers(1, 2),
    ),
    min_size=1,
    max_size=3,
).map(lambda dims: [Padding(dim, *each) for dim, each in enumerate(dims)])


@given(paddings)
def test_unpad_undoes_pad(dims: list[Padding]) -> None:
    native = torch.randn([each.parts * each.native for each in dims])
    padded = pad(native, dims, 5)
    assert list(padded.shape) == [each.parts * each.allocated for each in dims]
    assert torch.equal(unpad(padded, dims), native)
    assert int((padded == 5).sum()) == padded.numel() - native.numel()


@given(paddings)
def test_fill_writes_every_pad_and_no_live_cell(dims: list[Padding]) -> None:
    padded = pad(torch.randn([each.parts * each.native for each in dims]), dims, float("nan"))
    live = unpad(padded, dims)
    fill_pads(padded, dims, 0)
    assert not padded.isnan().any()
    assert torch.equal(unpad(padded, dims), live)


@pytest.mark.parametrize(
    ("dtype", "value", "byte"),
    [
        (torch.float8_e4m3fn, 0, 0),
        (torch.float8_e4m3fn, 1, 0x38),
        (torch.float8_e8m0fnu, 1, 127),
        (torch.uint8, 127, 127),
    ],
)
def test_one_byte_formats_are_filled_with_the_byte_that_means_the_value(
    dtype: torch.dtype, value: float, byte: int
) -> None:
    tensor = torch.full((2, 4), 0xFF, dtype=torch.uint8).view(dtype)
    fill_pads(tensor, [Padding(1, 3, 4)], value)
    assert tensor.view(torch.uint8).tolist() == [[0xFF, 0xFF, 0xFF, byte]] * 2


@given(st.integers(1, 4), st.integers(1, 3), st.integers(0, 2), st.integers(1, 2))
def test_each_rank_gets_its_rows_of_both_halves(tp_size: int, native: int, extra: int, parts: int) -> None:
    whole = torch.arange(parts * tp_size * native * 2).reshape(parts * tp_size * native, 2)
    dims = [Padding(0, native, native + extra, parts)]
    shards = []
    for rank in range(tp_size):
        buffer = torch.full((parts * (native + extra), 2), -1)
        load_shard(buffer, whole, dims, 0, rank, tp_size, value=-2)
        assert int((buffer == -2).sum()) == parts * extra * 2
        shards.append(unpad(buffer, dims).unflatten(0, (parts, native)))
    assert torch.equal(torch.cat(shards, dim=1).flatten(0, 1), whole)


def test_a_dimension_that_is_not_split_is_the_same_on_every_rank() -> None:
    buffer = torch.full((4, 3), 9)
    load_shard(buffer, torch.ones(3, 3, dtype=torch.long), [Padding(0, 3, 4)], None, 1, 2)
    assert buffer.tolist() == [[1] * 3] * 3 + [[0] * 3]


def test_a_checkpoint_tensor_of_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match=r"2 shards of \(3, 2\) make \(6, 2\)"):
        load_shard(torch.empty(4, 2), torch.empty(8, 2), [Padding(0, 3, 4)], 0, 0, 2)


def test_a_tensor_of_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match="holds 5 cells, not 1 × 3"):
        pad(torch.empty(5), [Padding(0, 3, 4)])


def test_meta_tensors_keep_their_shape_and_hold_nothing() -> None:
    padded = pad(torch.empty(6, 4, device="meta"), [Padding(0, 3, 4, parts=2)])
    assert padded.is_meta
    assert padded.shape == (8, 4)
    fill_pads(padded, [Padding(0, 3, 4, parts=2)], 1)
    assert unpad(padded, [Padding(0, 3, 4, parts=2)]).shape == (6, 4)
    load_shard(padded, torch.empty(12, 4, device="meta"), [Padding(0, 3, 4, parts=2)], 0, 1, 2)


@pytest.mark.parametrize(
    ("cells", "native", "allocated", "parts", "live"),
    [
        pytest.param(256, 384, 512, 1, 192, id="two-nibbles-a-byte"),
        pytest.param(4, 384, 512, 1, 3, id="block-of-128"),
        pytest.param(4, 300, 512, 1, 3, id="a-block-with-one-live-element-is-live"),
        pytest.param(2, 384, 512, 2, 1, id="one-scale-a-half"),
        pytest.param(384, 384, 512, 1, 288, id="six-bits-an-element"),
    ],
)
def test_padding_counts_cells_of_the_tensor(
    cells: int, native: int, allocated: int, parts: int, live: int
) -> None:
    assert padding_of(0, cells, native, allocated, parts) == Padding(0, live, cells // parts, parts)


def test_parts_must_end_on_cells() -> None:
    with pytest.raises(ValueError, match="3 cells do not split into 2 parts"):
        padding_of(0, 3, 2, 3, 2)


def test_padding_below_native_is_no_padding() -> None:
    with pytest.raises(ValueError, match="no padding of 4 cells to 3"):
        Padding(0, 4, 3)


def layers() -> Iterator[Any]:
    """One layer of every scheme and method that `layout` knows, gated, and up alone with biases."""
    for key in SCHEMES:
        scheme, _, method = key.partition("/")
        for gated in (True, False):
            experts = Experts(
                scheme,
                3,
                256,
                128,
                gated=gated,
                bias=not gated,
                block=(32, 64),
                group=32,
                zero_points="wna16" in scheme,
                method=method or "default",
            )
            yield pytest.param(experts, id=f"{key}-{'gated' if gated else 'up-bias'}")


LAYERS = list(layers())


@pytest.mark.parametrize("experts", LAYERS)
def test_tensors_are_as_large_as_layout_says(experts: Experts) -> None:
    tensors = expert_tensors(experts)
    made = allocate(tensors, "meta")
    for tensor in tensors:
        assert made[tensor.name].shape == tensor.shape
    assert sum(tensor.nbytes for tensor in made.values()) == expert_bytes(experts).total


def test_every_scheme_with_bytes_has_torch_types() -> None:
    assert STORAGE.keys() == {key.partition("/")[0] for key in SCHEMES}


@pytest.mark.parametrize("experts", LAYERS)
@pytest.mark.parametrize("interleaved", [False, True])
def test_allocated_pads_are_neutral(experts: Experts, interleaved: bool) -> None:
    tensors = expert_tensors(experts, native_hidden=192, native_intermediate=64, interleaved=interleaved)
    made = allocate(tensors)
    for described in tensors:
        tensor = made[described.name]
        tensor.view(torch.uint8).fill_(0xFF)
        fill_pads(tensor, described.paddings, described.neutral)
        live = unpad(tensor, described.paddings)
        assert bool((live.view(torch.uint8) == 0xFF).all())
        neutral = torch.tensor([described.neutral], dtype=torch.float32).to(tensor.dtype).view(torch.uint8)
        cells = tensor.view(torch.uint8).unflatten(-1, (-1, neutral.numel()))
        assert int((cells == neutral).all(-1).sum()) == tensor.numel() - live.numel()


def test_mxfp4_pads_lie_behind_each_half_unless_rows_take_turns() -> None:
    experts = Experts("mxfp4", 2, 256, 128)
    stacked, interleaved = (
        expert_tensors(experts, native_hidden=192, native_intermediate=96, interleaved=turns)[0]
        for turns in (False, True)
    )
    assert stacked.shape == interleaved.shape == (2, 256, 128)
    assert stacked.paddings == (Padding(1, 96, 128, 2), Padding(2, 96, 128))
    assert interleaved.paddings == (Padding(1, 192, 256), Padding(2, 96, 128))


@pytest.mark.parametrize(("scheme", "missing"), [("fp8_block", "block"), ("int4_wna16", "group")])
def test_a_block_that_the_checkpoint_gives_must_be_given(scheme: str, missing: str) -> None:
    with pytest.raises(ValueError, match=f"`{scheme}` leaves its {missing} to the checkpoint"):
        expert_tensors(Experts(scheme, 1, 64, 64))
