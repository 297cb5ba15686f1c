"""An unpacked engine, linked on demand: a name is compiled when something asks for it, and nothing else runs.

A module of the engine is never imported. Its source is parsed, the one definition that is asked for is
compiled, and what that definition names is looked up in the same way, or is a stand-in. Of the standard
library only the modules in `_STDLIB` can be reached; the builtins leave out what opens, evaluates or reads.
"""

from __future__ import annotations
import __future__

import ast
import builtins
import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from moe_align.verify.stand_ins import Unknown, Unlinked

_STDLIB = frozenset(
    (
        "abc",
        "collections",
        "contextlib",
        "copy",
        "dataclasses",
        "enum",
        "functools",
        "inspect",
        "itertools",
        "math",
        "operator",
        "re",
        "types",
        "typing",
        "typing_extensions",
        "warnings",
    )
)
_HIDDEN = frozenset(
    ("open", "exec", "eval", "compile", "input", "breakpoint", "exit", "quit", "help", "__import__")
)
_KEPT_DECORATORS = frozenset(("staticmethod", "classmethod", "property", "dataclass"))
_NO_NAME = object()


@dataclass(frozen=True, slots=True)
class _Source:
    """A parsed module.

    `bindings` has the statement that binds each top-level name, `completions` those that set its attributes.
    """

    file: str
    package: bool
    bindings: Mapping[str, ast.stmt]
    completions: Mapping[str, list[ast.stmt]]


def _bound_names(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield statement.name
    elif isinstance(statement, ast.Import | ast.ImportFrom):
        yield from (alias.asname or alias.name.split(".")[0] for alias in statement.names)
    elif isinstance(statement, ast.Assign):
        for target in statement.targets:
            parts = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
            yield from (part.id for part in parts if isinstance(part, ast.Name))
    elif isinstance(statement, ast.AnnAssign) and statement.value and isinstance(statement.target, ast.Name):
        yield statement.target.id


def _bindings(statements: list[ast.stmt]) -> dict[str, ast.stmt]:
    """Return the statement that binds each name: the last plain one, else the first inside `if` or `try`."""
    found: dict[str, ast.stmt] = {}
    nested: dict[str, ast.stmt] = {}
    for statement in statements:
        found.update((name, statement) for name in _bound_names(statement))
        for branch in _branches(statement):
            for name, node in _bindings(branch).items():
                nested.setdefault(name, node)
    return nested | found


def _branches(statement: ast.stmt) -> list[list[ast.stmt]]:
    if isinstance(statement, ast.If):
        return [statement.body, statement.orelse]
    if isinstance(statement, ast.Try):
        return [statement.body, *(handler.body for handler in statement.handlers), statement.orelse]
    return []


def _completions(statements: list[ast.stmt]) -> dict[str, list[ast.stmt]]:
    found: dict[str, list[ast.stmt]] = {}
    for statement in statements:
        target = statement.targets[0] if isinstance(statement, ast.Assign) else None
        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
            found.setdefault(target.value.id, []).append(statement)
    return found


@lru_cache(maxsize=2048)
def _parse(root: Path, module: str) -> _Source | None:
    stem = Path(*module.split("."))
    for relative, package in ((stem / "__init__.py", True), (stem.with_suffix(".py"), False)):
        path = root / relative
        if path.is_file():
            body = ast.parse(path.read_text(encoding="utf-8"), str(relative)).body
            return _Source(relative.as_posix(), package, _bindings(body), _completions(body))
    return _Source(stem.as_posix(), True, {}, {}) if (root / stem).is_dir() else None


def _keep(decorator: ast.expr) -> bool:
    target = decorator.func if isinstance(decorator, ast.Call) else decorator
    name = target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "")
    return name in _KEPT_DECORATORS or name == "setter"


def _named_in_class(node: ast.AST) -> Iterator[str]:
    """Yield the names that a class body may look up while it runs: those outside the bodies of its functions.

    A class body finds globals without `__missing__`, so they have to be there before it runs.
    """
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Name):
            yield child.id
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            for part in (*child.decorator_list, *child.args.defaults, *filter(None, child.args.kw_defaults)):
                yield from _named_in_class(ast.Expr(part))
        elif isinstance(child, ast.AnnAssign):
            yield from _named_in_class(ast.Expr(child.value)) if child.value else ()
        elif not isinstance(child, ast.Lambda):
            yield from _named_in_class(child)


def _undecorated(statement: ast.stmt) -> ast.stmt:
    """Return the statement without decorators that register, cache or guard: only the definition counts."""
    for node in ast.walk(statement):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            node.decorator_list = [d for d in node.decorator_list if _keep(d)]
    return statement


class _Globals(dict[str, object]):
    """The namespace of one module, filled as names are asked for."""

    def __init__(self, module: _Module, standard: dict[str, object]) -> None:
        super().__init__(__name__=__name__, __builtins__=standard)
        self._module = module

    def __missing__(self, name: str) -> object:
        value = self._module.find(name)
        if value is _NO_NAME:
            raise KeyError(name)
        return value


class _Module:
    """A module of the engine; an attribute is linked when it is first asked for."""

    def __init__(self, tree: Tree, name: str, source: _Source) -> None:
        self._tree, self._name, self._source = tree, name, source
        self._globals = _Globals(self, tree.standard_for(self._package()))
        self._being_bound: set[str] = set()

    def _package(self) -> str:
        return self._name if self._source.package else self._name.rpartition(".")[0]

    def find(self, name: str) -> object:
        """Return what the module binds to `name`, or `_NO_NAME`."""
        if name in self._globals:
            return self._globals[name]
        replaced = self._tree.stand_in(f"{self._name}.{name}")
        if replaced is not _NO_NAME:
            self._globals[name] = replaced
            return replaced
        statement = self._source.bindings.get(name)
        if statement is None or name in self._being_bound:
            return _NO_NAME  # a package that imports its own module asks for it by the name it is binding
        self._being_bound.add(name)
        later = self._source.completions.get(name, [])
        code = compile(
            ast.Module([_undecorated(statement), *later], []),
            self._source.file,
            "exec",
            flags=__future__.annotations.compiler_flag,
            dont_inherit=True,
        )
        if isinstance(statement, ast.ClassDef):
            for needed in _named_in_class(statement):
                self.find(needed)
        exec(code, self._globals)
        return self._globals[name]

    def bind(self, name: str, value: object) -> None:
        self._globals[name] = value

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            value = self.find(name)
        except AttributeError as missing:
            # `from module import name` would take it for a missing name and hide what is really absent
            raise Unlinked(f"`{self._name}.{name}`: {missing}") from missing
        if value is not _NO_NAME:
            return value
        child = self._tree.module(f"{self._name}.{name}")
        if child is None:
            raise Unlinked(f"`{self._name}` has no `{name}`")
        return child


class Tree:
    """An unpacked wheel under `root`; `stand_ins`, by dotted name, are what surrounds the engine.

    With `package` nothing but that package is linked, whatever else lies under `root`.
    """

    def __init__(self, root: Path, stand_ins: Mapping[str, object], package: str | None = None) -> None:
        self._root, self._package = root, package
        self._stand_ins = dict(stand_ins)
        self._modules: dict[str, _Module] = {}
        self._standard = {k: v for k, v in vars(builtins).items() if k not in _HIDDEN}

    def replace(self, stand_ins: Mapping[str, object]) -> None:
        """Put values in place of the engine's own, also where a module has bound them already."""
        self._stand_ins.update(stand_ins)
        for dotted, value in stand_ins.items():
            module, _, name = dotted.rpartition(".")
            if module in self._modules:
                self._modules[module].bind(name, value)

    def stand_in(self, dotted: str) -> object:
        return self._stand_ins.get(dotted, _NO_NAME)

    def standard_for(self, package: str) -> dict[str, object]:
        """Return the builtins of a module in `package`: `import` gives stand-ins and linked modules."""

        def import_(
            name: str, _globals: object = None, _locals: object = None, fromlist: object = (), level: int = 0
        ) -> object:
            if level:
                parts = package.split(".")
                name = ".".join([*parts[: len(parts) - level + 1], *([name] if name else [])])
            return self._import(name if fromlist else name.partition(".")[0])

        return {**self._standard, "__import__": import_}

    def _import(self, name: str) -> object:
        replaced = self.stand_in(name)
        if replaced is not _NO_NAME:
            return replaced
        top = name.partition(".")[0]
        if top in _STDLIB:
            return importlib.import_module(name)
        found = self.module(name)
        return Unknown(name) if found is None else found

    def module(self, name: str) -> _Module | None:
        """Return the engine's module called `name`, or `None` if the tree has none."""
        if self._package not in (None, name.partition(".")[0]):
            return None
        if name not in self._modules:
            source = _parse(self._root, name)
            if source is None:
                return None
            self._modules[name] = _Module(self, name, source)
        return self._modules[name]

    def has(self, dotted: str) -> bool:
        """Whether the module before the last dot binds the name after it."""
        module, _, name = dotted.rpartition(".")
        source = _parse(self._root, module)
        return source is not None and name in source.bindings

    def get(self, dotted: str) -> object:
        """Return the value that a module binds, linked: `get("vllm.utils.math_utils.round_up")`."""
        module, _, name = dotted.rpartition(".")
        found = self.module(module)
        value = _NO_NAME if found is None else found.find(name)
        if value is _NO_NAME:
            raise Unlinked(f"there is no `{dotted}` in this tree")
        return value
