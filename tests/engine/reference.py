"""A float32 MoE expert whose sums run in one fixed order, so that a zero tail cannot change a bit of them."""

from collections.abc import Callable

import torch

#: The sixteen values of an E2M1 nibble, by code.
E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0])


def _silu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return gate * torch.sigmoid(gate) * up


def _swigluoai(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    gate, up = gate.clamp(max=7.0), up.clamp(-7.0, 7.0)
    return gate * torch.sigmoid(1.702 * gate) * (up + 1)


def _situ(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return 2.0 * torch.tanh(gate / 2.0) * torch.sigmoid(gate) * (3.0 * torch.tanh(up / 3.0))


def _relu2(up: torch.Tensor) -> torch.Tensor:
    return torch.relu(up) ** 2


ACTIVATIONS: dict[str, Callable[..., torch.Tensor]] = {
    "silu": _silu,
    "swigluoai": _swigluoai,
    "situ": _situ,
    "relu2_no_mul": _relu2,
}


def is_gated(activation: str) -> bool:
    """Whether the activation takes a gate beside the up projection."""
    return not activation.endswith("_no_mul")


def ordered_matmul(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """`x @ weight.T + bias`, `[tokens, out]`, summed column after column from +0.0.

    A sum that starts at +0.0 is never -0.0, so adding a pad's ±0.0 leaves every bit of it as it is. A library
    matmul gives no such promise: it splits the columns by their number.
    """
    total = torch.zeros(x.shape[0], weight.shape[0])
    for column in range(weight.shape[1]):
        total = total + x[:, column, None] * weight[None, :, column]
    return total if bias is None else total + bias


def expert(
    x: torch.Tensor,
    w13: torch.Tensor,
    w2: torch.Tensor,
    activation: str,
    *,
    interleaved: bool = False,
    w13_bias: torch.Tensor | None = None,
    w2_bias: torch.Tensor | None = None,
) -> torch.Tensor:
    """One expert's output, as large as `x` `[tokens, hidden]`; w13 `[2·I or I, hidden]`, w2 `[hidden, I]`."""
    rows = ordered_matmul(x, w13, w13_bias)
    operands = [rows]
    if is_gated(activation):
        operands = [rows[:, 0::2], rows[:, 1::2]] if interleaved else list(rows.chunk(2, dim=1))
    # One column at a time: vectorised exp and tanh may round the last, partial vector differently.
    columns = zip(*(operand.unbind(1) for operand in operands), strict=True)
    hidden = [ACTIVATIONS[activation](*(column.contiguous() for column in each)) for each in columns]
    return ordered_matmul(torch.stack(hidden, dim=1), w2, w2_bias)


def dequantise_mxfp4(packed: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """`[rows, columns]` floats of nibbles `[rows, columns / 2]` and E8M0 scales `[rows, columns / 32]`."""
    nibbles = torch.stack([packed & 15, packed >> 4], dim=-1).flatten(-2)
    factors = torch.exp2(scale.float() - 127).repeat_interleave(32, dim=-1)
    return E2M1[nibbles.long()] * factors


def dequantise_fp8(weight: torch.Tensor, scale: torch.Tensor, block: int) -> torch.Tensor:
    """Floats of an FP8 weight with one FP32 scale for each `block × block`."""
    factors = scale.repeat_interleave(block, dim=-2).repeat_interleave(block, dim=-1)
    return weight.float() * factors[: weight.shape[-2], : weight.shape[-1]]
