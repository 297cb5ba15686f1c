"""`NamedTuple` for the rooms that a serving process loads: the same classes, built in a tenth of the time.

`typing.NamedTuple` compiles a constructor for every class while its module is imported, which for
all rooms took longer than reading a compiled policy. Here a class gets its constructor when the
first value of it is made. Type checkers see `typing.NamedTuple`.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple

    __all__ = ["NamedTuple"]
else:
    from _collections import _tuplegetter

    class _Record(type):
        def __new__(meta, name, bases, namespace):
            fields = tuple(namespace.get("__annotations__", ()))
            defaults = {field: namespace.pop(field) for field in fields if field in namespace}
            getters = {field: _tuplegetter(index, None) for index, field in enumerate(fields)}
            shared = {
                "__slots__": (),
                "_fields": fields,
                "_field_defaults": defaults,
                "__match_args__": fields,
            }
            return type.__new__(meta, name, bases or (tuple,), {**_METHODS, **namespace, **getters, **shared})

    def _new(cls, *values, **named):
        cls.__new__ = _constructor(cls)
        return cls.__new__(cls, *values, **named)

    def _constructor(cls):
        arguments = "".join(f", {field}" for field in cls._fields)
        name = f"lambda _cls{arguments}: _tuple_new(_cls, ({arguments[2:]},))"
        made = eval(name, {"_tuple_new": tuple.__new__})
        made.__defaults__ = tuple(cls._field_defaults.values())
        return made

    def _make(cls, values):
        return cls(*values)

    def _replace(self, /, **changed):
        made = self._make(map(changed.pop, self._fields, self))
        if changed:
            raise ValueError(f"no field named {', '.join(changed)}")
        return made

    def _asdict(self):
        return dict(zip(self._fields, self, strict=True))

    def _repr(self):
        shown = ", ".join(f"{name}={value!r}" for name, value in zip(self._fields, self, strict=True))
        return f"{type(self).__name__}({shown})"

    def _new_arguments(self):
        return tuple(self)

    _METHODS = {
        "__new__": _new,
        "_make": classmethod(_make),
        "_replace": _replace,
        "_asdict": _asdict,
        "__repr__": _repr,
        "__getnewargs__": _new_arguments,
    }

    NamedTuple = _Record("NamedTuple", (tuple,), {})
