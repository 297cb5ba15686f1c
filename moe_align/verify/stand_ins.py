"""What an engine's code meets in place of hardware, the tensor library and AITER.

These values stand for what surrounds the functions under test, never for the functions themselves. A stand-in
that knows no answer raises `Unlinked`, so a gap ends the run and can never turn into a wrong row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Never, cast


class Unlinked(Exception):
    """The engine's code asked a stand-in for something that it cannot know."""


class Unknown:
    """A name from outside: it may be named, called, subclassed and used in types, but not decided on."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Unknown:
        if name.startswith("__"):
            raise AttributeError(name)
        return Unknown(f"{self._name}.{name}")

    def __call__(self, *_args: object, **_kwargs: object) -> Unknown:
        return Unknown(f"{self._name}()")

    def __mro_entries__(self, _bases: tuple[object, ...]) -> tuple[type, ...]:
        return ()

    def __getitem__(self, _item: object) -> Unknown:
        return self

    def __or__(self, _other: object) -> Unknown:
        return self

    __ror__ = __or__

    def _refuse(self, *_args: object) -> Never:
        raise Unlinked(f"the answer depends on `{self._name}`")

    __bool__ = __len__ = __iter__ = __int__ = __index__ = _refuse
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __hash__ = __add__ = __radd__ = __sub__ = __rsub__ = _refuse
    __mul__ = __rmul__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = _refuse


@dataclass(frozen=True, slots=True)
class Machine:
    """A platform and the architecture of its accelerator; `arch` is `None` where a platform has none."""

    platform: str
    arch: str | None = None


@dataclass(frozen=True, slots=True)
class Dtype:
    """An element type: `itemsize` in bytes."""

    name: str
    itemsize: int


@dataclass(slots=True)
class Tensor:
    """The shape that an allocation asked for; holds no elements."""

    shape: tuple[int, ...]
    dtype: Dtype
    device: str = "meta"

    def to(self, dtype: Dtype) -> Tensor:
        return Tensor(self.shape, dtype)

    def dim(self) -> int:
        return len(self.shape)


DTYPES = {
    name: Dtype(name, size)
    for name, size in {
        "uint8": 1,
        "int8": 1,
        "int32": 4,
        "int64": 8,
        "bfloat16": 2,
        "float16": 2,
        "float32": 4,
        "float8_e4m3fn": 1,
        "float8_e4m3fnuz": 1,
        "float8_e8m0fnu": 1,
        "float4_e2m1fn_x2": 1,
    }.items()
}


def _allocate(*shape: int | tuple[int, ...], dtype: Dtype | None = None, **_where: object) -> Tensor:
    sizes = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple) else shape
    return Tensor(cast("tuple[int, ...]", sizes), dtype or DTYPES["float32"])


def _parameter(data: Tensor, requires_grad: bool = True) -> Tensor:
    return data


class Namespace(SimpleNamespace):
    """A library of which only the given names are known; the rest is `Unknown`."""

    def __getattr__(self, name: str) -> Unknown:
        if name.startswith("__"):
            raise AttributeError(name)
        return Unknown(name)


def torch(operators: Callable[[str], object]) -> Namespace:
    """Return the tensor library; `operators` resolves what the engine registered under `torch.ops.vllm`."""

    class Operators:
        def __getattr__(self, name: str) -> object:
            return operators(name)

    return Namespace(
        empty=_allocate,
        zeros=_allocate,
        ones=_allocate,
        nn=Namespace(Parameter=_parameter, Module=object),
        ops=Namespace(vllm=Operators()),
        **DTYPES,
    )


@dataclass(slots=True)
class Platform:
    """The engine's `current_platform` on one machine."""

    machine: Machine

    def is_cuda(self) -> bool:
        return self.machine.platform == "cuda"

    def is_rocm(self) -> bool:
        return self.machine.platform == "rocm"

    def is_xpu(self) -> bool:
        return self.machine.platform == "xpu"

    def is_cpu(self) -> bool:
        return self.machine.platform == "cpu"

    def is_cuda_alike(self) -> bool:
        return self.machine.platform in ("cuda", "rocm")

    def __getattr__(self, name: str) -> Unknown:
        if name.startswith("__"):
            raise AttributeError(name)
        return Unknown(f"current_platform.{name}")


class Logger:
    """Says nothing, whatever it is told."""

    def __getattr__(self, _name: str) -> Callable[..., None]:
        return lambda *_args, **_kwargs: None


@dataclass(slots=True)
class Aiter:
    """AITER's fused MoE entry point: keeps the arguments of the last call by name."""

    call: dict[str, object] = field(default_factory=dict)

    def fused_moe(self, *_args: object, **named: object) -> None:
        self.call.clear()
        self.call.update(named)


class AiterEnum:
    """One of AITER's enumerations: any member exists, and a member's number gives the member."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, member: str) -> str:
        if member.startswith("__"):
            raise AttributeError(member)
        return f"{self._name}.{member}"

    def __call__(self, number: object) -> object:
        return number
