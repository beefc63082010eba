"""The house and its rules: floors, borders to the world, owned imports, no cycles, sizes; and that breaches are seen.

The checker works on a mapping of path to source, so that planted breaches are a line of text each. A breach reads
`path:line: what is wrong`.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BELOW_NODE = {"words", "broker", "ha", "store", "amqp", "management"}

# room -> the other rooms it may import from; whatever is not here does not exist. `node` is a module, a room of one.
MAY_SEE: dict[str, set[str]] = {
    "words": set(),
    "broker": {"words"},
    "ha": {"words", "broker"},
    "store": {"words", "broker"},
    "amqp": {"words", "broker"},
    "management": {"words", "broker", "ha"},
    "node": BELOW_NODE,
    "runtime": {"words", "node"},
    "manager": {"words"},
    "cli": BELOW_NODE | {"node", "runtime", "manager", "pipeline", "connector"},
    "pipeline": {"words"},
    "connector": {"words"},
}
# A single module that a room may see beside those: the daemon reads the users file and hands it to the node; brokers and clients
# write events into files of one kind.
ALSO_SEE = {("runtime", "qpidha.amqp.sasl"), ("pipeline", "qpidha.runtime.event_segments")}

TOUCH_THE_WORLD = {"runtime", "manager", "cli", "pipeline", "connector"}
WORLD = {
    "asyncio", "concurrent", "datetime", "logging", "multiprocessing", "os", "random", "secrets", "select", "selectors", "shutil",
    "signal", "socket", "ssl", "subprocess", "tempfile", "threading", "time", "uuid", "weakref",
}  # fmt: skip
WORLD_CALLS = {"open", "print", "input", "hash", "id"}

# third-party package -> the modules (or rooms, without a dot after the package) that own it
OWNED = {
    "cproton_ffi": ("qpidha.amqp.engine", "qpidha.amqp.engine_links", "qpidha.amqp.engine_values"),
    "proton": (
        "qpidha.cli.load",
        "qpidha.cli.verify_client",
        "qpidha.cli.verify_locks",
        "qpidha.cli.verify_process",
        "qpidha.connector",
    ),  # fmt: skip
    "scramp": ("qpidha.amqp.sasl",),
    "uvloop": ("qpidha.runtime",),
    "typer": ("qpidha.cli",),
    "rich": ("qpidha.cli",),
    "jinja2": ("qpidha.pipeline.report_page",),
    "matplotlib": ("qpidha.pipeline.report_charts", "qpidha.pipeline.report_lanes", "qpidha.pipeline.report_sheets"),
    "pyroute2": ("qpidha.manager",),
    "pyspark": ("qpidha.connector", "qpidha.pipeline"),
    "pyarrow": ("qpidha.connector", "qpidha.pipeline"),
}
# Only here may a module be imported late: `qpid-ha status` must answer faster than its command line library loads.
MAY_DEFER = {"cli"}
EMPTY_NAMES = {"utils", "util", "helpers", "helper", "common", "base", "misc", "shared"}
FUNCTION_LINES = 70
FILE_LINES = 500


def module_of(path: str) -> str:
    """Return the dotted name of the module in a file."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def room_of(module: str) -> str:
    """Return the room of a module: the second part of its name, empty for the package itself."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def breaches(sources: dict[str, str]) -> list[str]:
    """Return everything that breaks a rule of the house."""
    trees = {path: ast.parse(source, path) for path, source in sources.items()}
    found: list[str] = []
    for path, tree in trees.items():
        found += place(path)
        found += contents(path, tree, sources[path])
        if path.endswith("__init__.py"):
            continue
        found += sizes(path, tree, sources[path])
        for statement, deferred in imports(tree):
            found += import_breaches(path, statement, deferred)
        found += world_calls(path, tree)
    return [*found, *reexports(trees), *cycles(trees)]


def place(path: str) -> Iterator[str]:
    """Every file has its room; there is no other."""
    parts = path.split("/")
    room, stem = room_of(module_of(path)), parts[-1].removesuffix(".py")
    if len(parts) == 2 and stem not in ("__init__", "node"):
        yield f"{path}:1: a module beside node.py: it belongs into a room"
    elif len(parts) == 3 and (room not in MAY_SEE or room == "node"):
        yield f"{path}:1: the room {room} has no floor: see MAY_SEE"
    elif len(parts) > 3:
        yield f"{path}:1: a room within a room"
    if stem in EMPTY_NAMES:
        yield f"{path}:1: the name {stem} says nothing: name the noun"


def contents(path: str, tree: ast.Module, source: str) -> Iterator[str]:
    """A docstring first, and nothing else in an `__init__`; nothing left unfinished."""
    if not ast.get_docstring(tree):
        yield f"{path}:1: no module docstring"
    if path.endswith("__init__.py") and len(tree.body) > 1:
        yield f"{path}:{tree.body[1].lineno}: more than a docstring in an __init__"
    for number, line in enumerate(source.splitlines(), 1):
        if "TODO" in line or "FIXME" in line or "NotImplementedError" in line:
            yield f"{path}:{number}: unfinished; finish it or open an issue"


def sizes(path: str, tree: ast.Module, source: str) -> Iterator[str]:
    """No function and no file grows out of sight."""
    lines = source.count("\n")
    if lines > FILE_LINES:
        yield f"{path}:{lines}: file of {lines} lines, over {FILE_LINES}: split by noun"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES:
                yield f"{path}:{node.lineno}: {node.name} has {length} lines, over {FUNCTION_LINES}"


def imports(tree: ast.Module) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    """Yield each import and whether it is deferred: hidden in a function or class. Under `if` and `try` it is not."""
    pending: list[tuple[ast.AST, bool]] = [(tree, False)]
    while pending:
        node, deferred = pending.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node, deferred
        deferred = deferred or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda)
        pending += [(child, deferred) for child in ast.iter_child_nodes(node)]


def targets(statement: ast.Import | ast.ImportFrom) -> list[str]:
    """Return the modules that an import names."""
    if isinstance(statement, ast.Import):
        return [alias.name for alias in statement.names]
    return [statement.module or ""]


def import_breaches(path: str, statement: ast.Import | ast.ImportFrom, deferred: bool) -> Iterator[str]:
    """One import: its form, and whether this module may have it."""
    module = module_of(path)
    here = f"{path}:{statement.lineno}:"
    if isinstance(statement, ast.ImportFrom):
        if statement.level:
            yield f"{here} relative import: write it out in full"
            return
        if any(alias.name == "*" for alias in statement.names):
            yield f"{here} star import"
    if deferred and room_of(module) not in MAY_DEFER:
        yield f"{here} deferred import: all imports stand at the top"
    for target in targets(statement):
        yield from (f"{here} {text}" for text in target_breaches(module, target))


def target_breaches(module: str, target: str) -> Iterator[str]:
    """Floors, borders and owners."""
    room, top = room_of(module), target.split(".")[0]
    if target == "qpidha" and room in TOUCH_THE_WORLD:
        return  # the package itself, to find where it is installed
    if top == "qpidha":
        other = room_of(target)
        if target.count(".") < 2 and other != "node":
            yield f"{target} is a room, not a module: import from the module"
        elif other != room and other not in MAY_SEE.get(room, set()) and (room, target) not in ALSO_SEE:
            yield f"{room} must not see {other}"
    elif top in sys.stdlib_module_names:
        if top in WORLD and room not in TOUCH_THE_WORLD:
            yield f"{top} reaches into the world: below runtime it must come as an event, an effect or an argument"
    elif not any(module == owner or module.startswith(owner + ".") for owner in OWNED.get(top, ())):
        yield f"{top} is not {module}'s to import: see OWNED"


def world_calls(path: str, tree: ast.Module) -> Iterator[str]:
    """Below runtime nobody opens, prints, or asks for what differs from run to run."""
    if room_of(module_of(path)) in TOUCH_THE_WORLD:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in WORLD_CALLS:
            yield f"{path}:{node.lineno}: {node.func.id}() below runtime"
        if isinstance(node, ast.FunctionDef) and node.name == "__del__":
            yield f"{path}:{node.lineno}: __del__ runs when the collector likes"


def defined(tree: ast.Module) -> tuple[set[str], set[str]]:
    """Return the names a module imports at its top, and those that it makes itself."""
    taken = {alias.asname or alias.name for statement, _ in imports(tree) for alias in statement.names}
    made: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            made.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            made.add(node.id)
    return taken, made


def reexports(trees: dict[str, ast.Module]) -> Iterator[str]:
    """A name is imported from where it is made: one path to one thing."""
    names = {module_of(path): defined(tree) for path, tree in trees.items()}
    for path, tree in trees.items():
        for statement, _ in imports(tree):
            if not isinstance(statement, ast.ImportFrom) or statement.module not in names:
                continue
            taken, made = names[statement.module]
            for alias in statement.names:
                if alias.name in taken and alias.name not in made:
                    yield f"{path}:{statement.lineno}: {alias.name} is not made in {statement.module}, only imported there"


def cycles(trees: dict[str, ast.Module]) -> Iterator[str]:
    """No module needs itself, by whatever way; imports for types and deferred ones count."""
    modules = {module_of(path) for path in trees}
    graph: dict[str, set[str]] = {}
    for path, tree in trees.items():
        graph[module_of(path)] = modules.intersection(one for statement, _ in imports(tree) for one in targets(statement))
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as cycle:
        yield "import cycle: " + " -> ".join(cycle.args[1])


def package_files() -> list[Path]:
    """Every file of the package but what tools leave behind."""
    found = [path for path in sorted((ROOT / "qpidha").rglob("*")) if path.is_file()]
    return [path for path in found if not any(part.startswith(".") or part == "__pycache__" for part in path.relative_to(ROOT).parts)]


def test_the_package_keeps_every_rule_of_the_house() -> None:
    sources = {path.relative_to(ROOT).as_posix(): path.read_text() for path in package_files() if path.suffix == ".py"}
    found = breaches(sources)
    assert not found, "\n" + "\n".join(found)


def test_every_room_exists_and_says_what_it_is() -> None:
    rooms = {path.parent.name for path in package_files()} - {"qpidha"}
    assert rooms == set(MAY_SEE) - {"node"}
    assert all((ROOT / "qpidha" / room / "__init__.py").exists() for room in rooms)


def test_beside_the_modules_lie_only_decisions_and_the_page_of_reports() -> None:
    others = {path.relative_to(ROOT / "qpidha").as_posix() for path in package_files() if path.suffix != ".py"}
    assert others <= {"DECISIONS.md", "pipeline/report.html", "py.typed"}


def test_floors_have_no_way_up() -> None:
    TopologicalSorter(MAY_SEE).prepare()


def test_programs_beside_the_package_do_not_import_it() -> None:
    for folder in ("agents", "ocf", "vagrant", "examples"):
        for path in (ROOT / folder).rglob("*"):
            text = path.read_text(errors="replace") if path.is_file() else ""
            assert not re.search(r"^\s*(import|from) qpidha[.\s]", text, re.MULTILINE), path


CLEAN = '"""A module."""\n'
LONG_FUNCTION = CLEAN + "def long() -> None:\n" + "    pass\n" * FUNCTION_LINES


@pytest.mark.parametrize(
    ("path", "source", "says"),
    [
        ("qpidha/broker/queue.py", "from qpidha.ha.role import Role\n", "broker must not see ha"),
        ("qpidha/words/events.py", "from qpidha.broker.queue import Queue\n", "words must not see broker"),
        ("qpidha/ha/role.py", "from qpidha.store.log import Log\n", "ha must not see store"),
        ("qpidha/amqp/link.py", "from qpidha.management.target import Target\n", "amqp must not see management"),
        ("qpidha/node.py", "from qpidha.runtime.clock import now\n", "node must not see runtime"),
        ("qpidha/runtime/daemon.py", "from qpidha.broker.queue import Queue\n", "runtime must not see broker"),
        ("qpidha/manager/local.py", "from qpidha.node import Node\n", "manager must not see node"),
        ("qpidha/ha/role.py", "if TYPE_CHECKING:\n    from qpidha.amqp.link import Link\n", "ha must not see amqp"),
        ("qpidha/broker/queue.py", "import time\n", "time reaches into the world"),
        ("qpidha/node.py", "from datetime import datetime\n", "datetime reaches into the world"),
        ("qpidha/store/log.py", "import os.path\n", "os reaches into the world"),
        ("qpidha/store/log.py", "def save() -> None:\n    open('log')\n", "open() below runtime"),
        ("qpidha/ha/role.py", "print('hello')\n", "print() below runtime"),
        ("qpidha/ha/role.py", "key = hash('hello')\n", "hash() below runtime"),
        ("qpidha/amqp/link.py", "import cproton_ffi\n", "cproton_ffi is not qpidha.amqp.link's"),
        ("qpidha/amqp/connection.py", "from scramp import ScramMechanism\n", "scramp is not"),
        ("qpidha/runtime/daemon.py", "import typer\n", "typer is not"),
        ("qpidha/cli/main.py", "import requests\n", "requests is not"),
        ("qpidha/broker/queue.py", "from . import exchange\n", "relative import"),
        ("qpidha/broker/queue.py", "from qpidha.words.records import *\n", "star import"),
        ("qpidha/broker/queue.py", "from qpidha.words import records\n", "is a room, not a module"),
        ("qpidha/broker/queue.py", "def late() -> None:\n    import json\n", "deferred import"),
        ("qpidha/manager/local.py", "class Late:\n    import json\n", "deferred import"),
        ("qpidha/broker/__init__.py", "from qpidha.broker.queue import Queue\n", "more than a docstring"),
        ("qpidha/plugins/one.py", "", "the room plugins has no floor"),
        ("qpidha/helpers.py", "", "a module beside node.py"),
        ("qpidha/broker/utils.py", "", "the name utils says nothing"),
        ("qpidha/broker/policies/ring.py", "", "a room within a room"),
        ("qpidha/broker/queue.py", "# TODO: finish\n", "unfinished"),
        ("qpidha/broker/queue.py", "def stub() -> None:\n    raise NotImplementedError\n", "unfinished"),
        ("qpidha/broker/queue.py", "#\n" * FILE_LINES, "file of 501 lines"),
        ("qpidha/broker/queue.py", LONG_FUNCTION.removeprefix(CLEAN), "long has 71 lines"),
    ],
)
def test_a_planted_breach_is_caught(path: str, source: str, says: str) -> None:
    found = breaches({path: CLEAN + source})
    assert any(says in one for one in found), found


def test_a_missing_docstring_is_caught() -> None:
    assert any("no module docstring" in one for one in breaches({"qpidha/broker/queue.py": "x = 1\n"}))


def test_a_cycle_within_a_room_is_caught_also_when_it_is_for_types_only() -> None:
    sources = {
        "qpidha/broker/queue.py": CLEAN + "if TYPE_CHECKING:\n    from qpidha.broker.exchange import Exchange\n",
        "qpidha/broker/exchange.py": CLEAN + "from qpidha.broker.queue import Queue\n",
    }
    assert any("import cycle" in one for one in breaches(sources))


def test_a_name_imported_from_where_it_is_not_made_is_caught() -> None:
    sources = {
        "qpidha/words/records.py": CLEAN + "class Record:\n    pass\n",
        "qpidha/broker/queue.py": CLEAN + "from qpidha.words.records import Record\n",
        "qpidha/broker/broker.py": CLEAN + "from qpidha.broker.queue import Record\n",
    }
    assert [one for one in breaches(sources) if "only imported there" in one and one.startswith("qpidha/broker/broker.py")]


def test_what_the_rules_allow_is_not_a_breach() -> None:
    sources = {
        "qpidha/words/records.py": CLEAN + "import json\nfrom dataclasses import dataclass\nclass Record:\n    pass\n",
        "qpidha/node.py": CLEAN + "from qpidha.words.records import Record\nclass Node:\n    pass\n",
        "qpidha/runtime/network.py": CLEAN + "try:\n    import uvloop\nexcept ImportError:\n    pass\n",
        "qpidha/runtime/daemon.py": CLEAN + "import os\nimport qpidha\nfrom qpidha.node import Node\n",
        "qpidha/cli/main.py": CLEAN + "def main() -> None:\n    import typer\n    print('yes')\n",
        "qpidha/amqp/engine.py": CLEAN + "from cproton_ffi import ffi, lib\n",
    }
    assert breaches(sources) == []
