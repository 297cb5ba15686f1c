"""The table of rooms and arrows, and what `import moe_align` may load and read."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import moe_align
from moe_align import load_policy
from moe_align.compile import compiled

PACKAGE = Path(moe_align.__file__).parent

_RULES = {"errors", "facts", "packs", "record", "space", "stack", "versions", "vocabulary"}
_ANSWERS = {"contracts", "decision", "flow", "known", "layers", "policy", "resolve"}
_PEOPLE = {"cost", "layout", "models", "parallel", "sizes"}
_FINDERS = {"diff", "findings", "lint", "prove"}

#: What each room may import while the program runs; `adapters` and `cli` stand for every room in them.
#: Rooms stand in the order of the arrows: each imports only what stands above it. A new arrow is a decision.
TABLE: dict[str, set[str]] = {
    "record": set(),
    "codes": {"record"},
    "errors": {"record"},
    "sizes": {"record"},
    "versions": {"record"},
    "space": {"record", "sizes", "versions"},
    "parallel": {"record", "sizes"},
    "facts": {"errors"},
    "layers": {"errors", "record"},
    "schema": {"errors"},
    "packs": {"errors", "record", "space", "versions"},
    "vocabulary": {"errors", "facts", "packs", "record", "versions"},
    "known": {"errors", "facts", "packs", "parallel", "space", "vocabulary"},
    "flow": {"known", "packs", "record", "space"},
    "stack": {"errors", "known", "layers", "packs", "record", "vocabulary"},
    "resolve": {"facts", "flow", "known", "packs", "record", "space", "stack"},
    "contracts": {"flow", "known", "packs", "record", "resolve", "stack"},
    "decision": _RULES | {"contracts", "flow", "known", "resolve"},
    "bind": _RULES | {"flow", "known", "resolve"},
    "compile": _RULES | {"layers"},
    "outline": _RULES | {"contracts", "decision", "flow", "known", "resolve"},
    "policy": _RULES | {"bind", "compile", "decision", "known", "outline"},
    "restore": _RULES | {"layers", "policy"},
    "layout": {"sizes", "facts"},
    "models": {"errors", "facts"},
    "cost": {"decision", "layout", "record", "sizes"},
    "load": _RULES | {"layers", "models", "policy", "schema"},
    "cache": {"compile", "errors", "layers", "load", "models", "policy", "restore", "moe_align"},
    "findings": {"codes", "errors", "facts", "record", "space"},
    "regions": _RULES,
    "entering": _RULES | {"flow", "known"},
    "route": _RULES | {"entering", "flow", "known"},
    "routes": _RULES | {"flow", "regions", "route"},
    "lint": _RULES | {"findings", "layers", "regions"},
    "diff": _RULES
    | {"cost", "decision", "findings", "flow", "known", "models", "policy", "regions", "entering", "route"},
    "points": _RULES | {"known", "regions", "resolve"},
    "demands": _RULES | {"entering", "flow", "known", "route"},
    "broken": _RULES
    | {"contracts", "demands", "findings", "flow", "layers", "points", "regions", "resolve"}
    | {"route", "routes"},
    "prove": _RULES
    | {"broken", "demands", "findings", "flow", "points", "regions", "resolve", "route"},
    "claims": _RULES | {"entering", "findings", "load", "points", "regions", "resolve", "route", "routes"},
    "reviewed": {"errors", "findings", "layers", "load", "record"},
    "cases": _RULES | {"decision", "load", "policy"},
    "fmt": {"cases", "errors", "load", "policy"},
    "coverage": _RULES | {"cases", "decision", "known", "policy", "regions", "routes"},
    "deployment": _RULES | _ANSWERS | _PEOPLE | {"cache"},
    "snapshot": _RULES | _ANSWERS | _PEOPLE | {"cache", "deployment", "moe_align"},
    "verify": {"errors"},
    "shortest": set(),
    "boxes": {"space"},
    "certificate": _RULES | {"boxes", "flow", "known", "policy", "resolve", "verify"},
    "lift": _RULES | {"certificate", "policy", "shortest", "verify"},
    "report": _RULES
    | _ANSWERS
    | _PEOPLE
    | _FINDERS
    | {"boxes", "cases", "certificate", "codes", "deployment", "snapshot", "verify"},
}  # fmt: skip

#: On top of the table: these may import any of it.
ON_TOP = ("adapters", "cli", "moe_align")

#: Packages that are not ours, and the only rooms that may import them.
OTHERS = {
    "packaging": {"versions"},
    "pydantic": {"schema"},
    "pydantic_core": {"schema", "load"},
    "yaml": {"load", "cases", "fmt"},
    "typer": {"cli"},
    "click": {"cli"},
    "rich": {"cli"},
    "huggingface_hub": {"deployment"},
    "safetensors": {"deployment", "snapshot"},
    "torch": {"adapters"},
    "vllm": {"adapters"},
    "numpy": {"snapshot"},
}


def room_of(module: str) -> str:
    """The room of a module name inside the package; the package itself is a room too."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in ROOMS else "moe_align"


ROOMS = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
ROOMS -= {"__init__", "__main__", "__pycache__"}


def imports(path: Path) -> Iterator[str]:
    """The modules that a file imports while the program runs: what types alone need is left out."""
    parts = ["moe_align", *path.relative_to(PACKAGE).with_suffix("").parts]
    package = parts[:-1]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    skipped = {id(inner) for node in ast.walk(tree) if _is_for_types(node) for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{module}.{alias.name}" for alias in node.names)


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def arrows() -> Iterator[tuple[str, str, Path]]:
    """From room, to room or package that is not ours, and the file."""
    for path in sorted(PACKAGE.rglob("*.py")):
        relative = path.relative_to(PACKAGE)
        room = relative.parts[0].removesuffix(".py") if relative.name != "__main__.py" else "cli"
        room = "moe_align" if room == "__init__" else room
        for module in imports(path):
            target = room_of(module) if module.split(".")[0] == "moe_align" else module.split(".")[0]
            if target != room:
                yield room, target, relative


def test_no_arrow_is_new() -> None:
    allowed = {**TABLE, **{room: {*TABLE, *ON_TOP} for room in ON_TOP}}
    new = [
        f"{path}: {room} -> {target}"
        for room, target, path in arrows()
        if (target in ROOMS or target == "moe_align") and target not in allowed.get(room, set())
    ]
    assert new == []


def test_arrows_run_one_way() -> None:
    order = list(TABLE)
    back = [
        f"{room} -> {target}"
        for room, targets in TABLE.items()
        for target in targets - set(ON_TOP)
        if order.index(target) >= order.index(room)
    ]
    assert back == []


def test_every_room_stands_in_the_table() -> None:
    assert {*TABLE, *ON_TOP} >= ROOMS


def test_other_packages_are_imported_where_they_belong() -> None:
    foreign = [
        f"{path}: {target}"
        for room, target, path in arrows()
        if target not in ROOMS
        and target not in sys.stdlib_module_names
        and target != "moe_align"
        and room not in OTHERS.get(target, set())
    ]
    assert foreign == []


HEAVY = (
    "torch",
    "vllm",
    "typer",
    "click",
    "rich",
    "pydantic",
    "pydantic_core",
    "yaml",
    "packaging",
    "dataclasses",
    "functools",
    "importlib",
    "re",
)

FRESH = """
import sys
opened, asked = [], []
def watch(event, arguments):
    if event == "open" and ".py" not in str(arguments[0]):
        opened.append(str(arguments[0]))
import os
class Asked(type(os.environ)):
    def __getitem__(self, key):
        asked.append(key)
        return super().__getitem__(key)
was = os.environ
os.environ = Asked(was._data, was.encodekey, was.decodekey, was.encodevalue, was.decodevalue)
before = set(sys.modules)
sys.addaudithook(watch)
{body}
loaded = {{name.partition(".")[0] for name in set(sys.modules) - before}}
print(sorted(loaded & set({heavy!r})), opened, asked)
"""


def fresh(body: str) -> str:
    """What a new interpreter prints: heavy packages that were loaded, files opened, variables asked for."""
    text = FRESH.format(body=body, heavy=HEAVY)
    ran = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = {[str(PACKAGE.parent)]!r}\n{text}"],
        capture_output=True,
        text=True,
        check=True,
    )
    return ran.stdout.strip()


def test_importing_loads_and_reads_nothing() -> None:
    assert fresh("import moe_align") == "[] [] []"


@pytest.mark.parametrize("name", ["Facts", "Policy", "Decision", "PolicyError", "Problem", "load_compiled"])
def test_a_name_of_a_serving_process_loads_nothing_heavy(name: str) -> None:
    assert fresh(f"from moe_align import {name}") == "[] [] []"


def test_every_public_name_is_there() -> None:
    assert all(hasattr(moe_align, name) for name in moe_align.__all__)
    assert set(moe_align.__all__) <= set(dir(moe_align))
    with pytest.raises(AttributeError, match="module `moe_align` has no attribute `nothing`"):
        moe_align.nothing  # noqa: B018


def test_the_first_answer_of_a_compiled_policy_loads_nothing_heavy(tmp_path: Path) -> None:
    """It opens the policy alone, and the rule files beside it, to see whether they have changed."""
    file = tmp_path / "policy.json"
    file.write_text(compiled(load_policy(environ={})), encoding="utf-8")
    asked = 'Facts(backend="aiter_bf16", activation="silu", hidden=7168, intermediate_per_partition=384)'
    body = f"import moe_align\nmoe_align.load_compiled({str(file)!r}).resolve(moe_align.{asked})"
    said = re.fullmatch(r"(\[.*?\]) (\[.*\]) (\[.*?\])", fresh(body))
    assert said is not None
    assert (said[1], said[3]) == ("[]", "[]")
    assert str(file) in said[2]
