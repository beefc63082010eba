"""The house and its rules: floors, borders to the world, owned imports, no cycles, sizes; and that
breaches are seen.

The checker works on a mapping of path to source, so that planted breaches are a line of text each.
A breach reads `path:line: what is wrong`.
"""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import TypeGuard

import pytest

Statement = ast.Import | ast.ImportFrom | ast.Call
Function = ast.FunctionDef | ast.AsyncFunctionDef

ROOT = Path(__file__).parent.parent
BELOW_NODE = {
    "model",
    "broker",
    "broker.queues",
    "ha",
    "store",
    "replicas",
    "amqp.peer",
    "amqp.server",
    "federation",
    "management",
}
COMMANDS = BELOW_NODE | {
    "node",
    "runtime",
    "client",
    "client.command",
    "manager",
    "manager.vip",
    "manager.builtin",
    "manager.pacemaker",
    "manager.rgmanager",
    "console",
    "connector",
    "pipeline",
    "pipeline.oracle",
    "pipeline.spark",
    "pipeline.report",
    "pipeline.generate",
    "pipeline.workload",
    "bench",
    "tools",
    "tools.bundle",
    "tools.journal",
    "cli",
}
# room -> all other rooms that it may import from; what is not here does not exist. A room within a
# room does not see its outer room unless the row says so. `node` is a module, a room of one.
MAY_SEE: dict[str, set[str]] = {
    "model": set(),
    "broker.queues": {"model"},
    "broker": {"model", "broker.queues"},
    "ha": {"model"},
    "store": {"model", "broker", "broker.queues"},
    "replicas": {"model", "broker", "broker.queues", "ha", "store"},
    "amqp.peer": {"model"},
    "amqp.server": {"model", "broker", "broker.queues", "amqp.peer"},
    "federation": {"model", "broker", "broker.queues", "amqp.peer"},
    "management": {"model", "broker", "broker.queues", "ha"},
    "node": BELOW_NODE,
    "runtime": {"model", "node"},
    "client": {"model", "amqp.peer"},
    "client.command": {"model", "client"},
    "manager": {"model", "client"},
    "manager.vip": {"model"},
    "manager.builtin": {"model", "client", "client.command", "manager"},
    "manager.pacemaker": {"model", "client", "manager", "manager.vip"},
    "manager.rgmanager": {"model", "client", "manager", "manager.vip"},
    "console": {"model", "client"},
    "connector": {"model", "client"},
    "pipeline": {"model"},
    "pipeline.oracle": {"model", "pipeline"},
    "pipeline.spark": {"model", "pipeline", "pipeline.oracle"},
    "pipeline.report": {"model", "pipeline"},
    "pipeline.generate": {"model", "pipeline"},
    "pipeline.workload": {
        "model",
        "client",
        "client.command",
        "manager",
        "manager.builtin",
        "pipeline",
    },
    "bench": {
        "model",
        "client",
        "client.command",
        "manager.builtin",
        "pipeline",
        "pipeline.workload",
    },
    "tools": {"model", "broker", "broker.queues", "client", "client.command"},
    "tools.bundle": {"model", "runtime"},
    "tools.journal": {
        "model",
        "broker",
        "broker.queues",
        "store",
        "runtime",
        "client",
        "client.command",
    },
    "cli": COMMANDS - {"cli"},
    "cli.broker": COMMANDS,
    "cli.clusters": COMMANDS,
    "cli.verification": COMMANDS,
}
# A room that holds rooms and no modules of its own.
HALLS = {"amqp"}
# A single module that a room may see beside those: the daemon reads the users file, the acl-file
# and the policy-file, and hands them to the node; the built-in manager writes the users file of a
# secure cluster; brokers and clients write events into files of one kind.
ALSO_SEE = {
    ("runtime", "qpidha.amqp.peer.sasl"),
    ("runtime", "qpidha.amqp.peer.kerberos"),
    ("runtime", "qpidha.management.acl"),
    ("runtime", "qpidha.management.acl_file"),
    ("runtime", "qpidha.management.policy_file"),
    ("manager.builtin", "qpidha.amqp.peer.sasl"),
    ("pipeline", "qpidha.runtime.event_segments"),
    ("pipeline.generate", "qpidha.runtime.event_segments"),
}

TOUCH_THE_WORLD = {
    "runtime",
    "client",
    "manager",
    "console",
    "connector",
    "pipeline",
    "bench",
    "tools",
    "cli",
}
WORLD = {
    "asyncio",
    "concurrent",
    "datetime",
    "logging",
    "multiprocessing",
    "os",
    "random",
    "secrets",
    "select",
    "selectors",
    "shutil",
    "signal",
    "socket",
    "ssl",
    "subprocess",
    "tempfile",
    "threading",
    "time",
    "uuid",
    "weakref",
}
WORLD_CALLS = {"open", "print", "input", "hash", "id"}

# third-party package -> the modules (or rooms, without a dot after the package) that own it
OWNED = {
    "cproton_ffi": ("qpidha.amqp.peer.engine", "qpidha.amqp.peer.links", "qpidha.amqp.peer.values"),
    "proton": (),
    "re2": ("qpidha.broker.pattern",),
    "scramp": ("qpidha.amqp.peer.sasl",),
    "gssapi": ("qpidha.amqp.peer.kerberos",),
    "lark": ("qpidha.broker.queues.selector",),
    "fastapi": ("qpidha.console",),
    "starlette": ("qpidha.console",),
    "uvicorn": ("qpidha.console.main", "qpidha.console.connections"),
    "prometheus_client": ("qpidha.console.metrics",),
    "uvloop": ("qpidha.runtime",),
    "typer": ("qpidha.cli",),
    "rich": ("qpidha.cli",),
    "jinja2": ("qpidha.console.pages", "qpidha.pipeline.report.page"),
    "matplotlib": ("qpidha.pipeline.report",),
    "pyroute2": ("qpidha.manager.vip.addresses",),
    "pyspark": ("qpidha.connector", "qpidha.pipeline.spark"),
    "pyarrow": ("qpidha.connector", "qpidha.pipeline.spark", "qpidha.pipeline.report.tables"),
}
# Only here may a module be imported late: `qpid-ha status` must answer faster than its command
# line library loads, and the watch does without pyroute2 where there are no virtual addresses.
MAY_DEFER = {"cli", "cli.broker", "cli.clusters", "cli.verification", "client.command"}
MAY_DEFER_MODULES = {
    ("qpidha.manager.pacemaker.watch", "qpidha.manager.vip.addresses"),
    # Costs a command more than its question, and a caller of the asyncio client has it already.
    ("qpidha.client.admin", "asyncio"),
    # A third of the daemon's start, half of a client's, and for passwords only.
    ("qpidha.amqp.peer.sasl", "scramp"),
    # An extra: only brokers and clients that log in by Kerberos have it.
    ("qpidha.amqp.peer.kerberos", "gssapi"),
    # Half of a daemon's start, and for selectors only.
    ("qpidha.broker.queues.selector", "lark"),
}
EMPTY_NAMES = {"utils", "util", "helpers", "helper", "common", "base", "misc", "shared"}
FUNCTION_LINES = 60
# A longer function -> why it is not cut in two.
LONG = {
    "qpidha.cli.broker.migrate._migrate": "60 lines of options with their help, then one call",
    "qpidha.cli.verification.verify._run": "50 lines of options with their help, then one call",
    "qpidha.node.__init__": "all rooms are put together here",
    "qpidha.store.log.__init__": "each field of the log with its meaning",
}
COLUMNS = 100
FORMATTER_EXEMPTIONS = 20


def module_of(path: str) -> str:
    """Return the dotted name of the module in a file."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def room_of(module: str) -> str:
    """Return the room of a module, as `broker` or `broker.queues`; empty for the package itself."""
    parts = module.split(".")[1:]
    inner = ".".join(parts[:2])
    if len(parts) > 2 or inner in MAY_SEE:
        return inner
    return parts[0] if parts else ""


def touches_the_world(room: str) -> bool:
    """Whether a room may have I/O, clocks and randomness; so may the rooms within it."""
    return room.split(".")[0] in TOUCH_THE_WORLD


def breaches(sources: dict[str, str]) -> list[str]:
    """Return everything that breaks a rule of the house."""
    modules = {path: Module(path, source) for path, source in sources.items()}
    found: list[str] = []
    for path, module in modules.items():
        found += place(path)
        found += contents(module)
        if path.endswith("__init__.py"):
            continue
        found += sizes(module)
        for statement, deferred in module.imports:
            found += import_breaches(path, statement, deferred)
        found += world_calls(module)
    return [*found, *reexports(modules), *cycles(modules)]


class Module:
    """A source file, parsed and walked once: what all rules look at."""

    def __init__(self, path: str, source: str) -> None:
        self.path = path
        self.name = module_of(path)
        self.lines = source.splitlines()
        self.tree = ast.parse(source, path)
        self.imports: list[tuple[Statement, bool]] = []
        """Each import, and whether it is deferred: hidden in a function or class. Under `if` and
        `try` it is not.
        """
        self.functions: list[Function] = []
        self.calls: list[ast.Call] = []
        """Calls of a plain name."""
        self.made: set[str] = set()
        """Names of functions, classes and variables."""
        pending: list[tuple[ast.AST, bool]] = [(self.tree, False)]
        while pending:
            node, deferred = pending.pop()
            if isinstance(node, ast.Import | ast.ImportFrom) or is_import_module(node):
                self.imports.append((node, deferred))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                self.calls.append(node)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                self.made.add(node.id)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                deferred = True
                self.made.add(node.name)
                if not isinstance(node, ast.ClassDef):
                    self.functions.append(node)
            elif isinstance(node, ast.Lambda):
                deferred = True
            pending += [(child, deferred) for child in ast.iter_child_nodes(node)]


def place(path: str) -> Iterator[str]:
    """Every file has its room; there is no other."""
    parts = path.split("/")
    room, stem = room_of(module_of(path)), parts[-1].removesuffix(".py")
    if len(parts) == 2 and stem not in ("__init__", "node"):
        yield f"{path}:1: a module beside node.py: it belongs into a room"
    elif len(parts) > 4:
        yield f"{path}:1: a room within a room within a room"
    elif len(parts) > 2 and (room not in MAY_SEE or room == "node"):
        if not (room in HALLS and stem == "__init__"):
            yield f"{path}:1: the room {room} has no floor: see MAY_SEE"
    if stem in EMPTY_NAMES:
        yield f"{path}:1: the name {stem} says nothing: name the noun"


def contents(module: Module) -> Iterator[str]:
    """A docstring first, and nothing else in an `__init__`; nothing left unfinished."""
    path, tree = module.path, module.tree
    if not ast.get_docstring(tree):
        yield f"{path}:1: no module docstring"
    if path.endswith("__init__.py") and len(tree.body) > 1:
        yield f"{path}:{tree.body[1].lineno}: more than a docstring in an __init__"
    for number, line in enumerate(module.lines, 1):
        if "TODO" in line or "FIXME" in line or "NotImplementedError" in line:
            yield f"{path}:{number}: unfinished; finish it or open an issue"


def sizes(module: Module) -> Iterator[str]:
    """No line grows out of sight, and no function without a reason."""
    for number, line in enumerate(module.lines, 1):
        if len(line) > COLUMNS:
            yield f"{module.path}:{number}: line of {len(line)} columns, over {COLUMNS}"
    for node in module.functions:
        length = (node.end_lineno or node.lineno) - node.lineno + 1
        if length > FUNCTION_LINES and f"{module.name}.{node.name}" not in LONG:
            yield (
                f"{module.path}:{node.lineno}: {node.name} has {length} lines, over "
                f"{FUNCTION_LINES}: cut it, or give the reason in LONG"
            )


def targets(statement: Statement) -> list[str]:
    """Return the modules that an import names."""
    if isinstance(statement, ast.Import):
        return [alias.name for alias in statement.names]
    if isinstance(statement, ast.Call):
        return [str(statement.args[0].value)]  # type: ignore[attr-defined]
    return [statement.module or ""]


def is_import_module(node: ast.AST) -> TypeGuard[ast.Call]:
    """Whether this is `import_module("qpidha...")`; a name that is put together is not seen."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "import_module"
        and isinstance(node.args[0], ast.Constant)
    )


def import_breaches(path: str, statement: Statement, deferred: bool) -> Iterator[str]:
    """One import: its form, and whether this module may have it."""
    module = module_of(path)
    here = f"{path}:{statement.lineno}:"
    if isinstance(statement, ast.ImportFrom):
        if statement.level:
            yield f"{here} relative import: write it out in full"
            return
        if any(alias.name == "*" for alias in statement.names):
            yield f"{here} star import"
    for target in targets(statement):
        if (
            deferred
            and room_of(module) not in MAY_DEFER
            and (module, target) not in MAY_DEFER_MODULES
        ):
            yield f"{here} deferred import: all imports stand at the top"
        yield from (f"{here} {text}" for text in target_breaches(module, target))


def target_breaches(module: str, target: str) -> Iterator[str]:
    """Floors, borders and owners."""
    room, top = room_of(module), target.split(".")[0]
    if target == "qpidha" and touches_the_world(room):
        return  # the package itself, to find where it is installed
    if top == "qpidha":
        other = room_of(target)
        if target != "qpidha.node" and target.removeprefix("qpidha.") in MAY_SEE.keys() | HALLS:
            yield f"{target} is a room, not a module: import from the module"
        elif (
            other != room
            and other not in MAY_SEE.get(room, set())
            and (room, target) not in ALSO_SEE
        ):
            yield f"{room} must not see {other}"
    elif top in sys.stdlib_module_names:
        if top in WORLD and not touches_the_world(room):
            yield (
                f"{top} reaches into the world: below runtime it must come as an event, an "
                "effect or an argument"
            )
    elif not any(module == owner or module.startswith(owner + ".") for owner in OWNED.get(top, ())):
        yield f"{top} is not {module}'s to import: see OWNED"


def world_calls(module: Module) -> Iterator[str]:
    """Below runtime nobody opens, prints, or asks for what differs from run to run."""
    if touches_the_world(room_of(module.name)):
        return
    for call in module.calls:
        if isinstance(call.func, ast.Name) and call.func.id in WORLD_CALLS:
            yield f"{module.path}:{call.lineno}: {call.func.id}() below runtime"
    for function in module.functions:
        if function.name == "__del__":
            yield f"{module.path}:{function.lineno}: __del__ runs when the collector likes"


def reexports(modules: dict[str, Module]) -> Iterator[str]:
    """A name is imported from where it is made: one path to one thing."""
    by_name = {module.name: module for module in modules.values()}
    for module in modules.values():
        for statement, _ in module.imports:
            if not isinstance(statement, ast.ImportFrom) or statement.module not in by_name:
                continue
            other = by_name[statement.module]
            taken = {
                alias.asname or alias.name
                for one, _ in other.imports
                if not isinstance(one, ast.Call)
                for alias in one.names
            }
            for alias in statement.names:
                if alias.name in taken and alias.name not in other.made:
                    yield (
                        f"{module.path}:{statement.lineno}: {alias.name} is not made in "
                        f"{statement.module}, only imported there"
                    )


def cycles(modules: dict[str, Module]) -> Iterator[str]:
    """No module needs itself, by whatever way; imports for types and deferred ones count."""
    names = {module.name for module in modules.values()}
    graph = {
        module.name: names.intersection(
            one for statement, _ in module.imports for one in targets(statement)
        )
        for module in modules.values()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as cycle:
        yield "import cycle: " + " -> ".join(cycle.args[1])


@functools.cache
def package_files() -> list[Path]:
    """Every file of the package but what tools leave behind."""
    found = [path for path in sorted((ROOT / "qpidha").rglob("*")) if path.is_file()]
    return [
        path
        for path in found
        if not any(
            part.startswith(".") or part == "__pycache__" for part in path.relative_to(ROOT).parts
        )
    ]


def test_the_package_keeps_every_rule_of_the_house() -> None:
    sources = {
        path.relative_to(ROOT).as_posix(): path.read_text()
        for path in package_files()
        if path.suffix == ".py"
    }
    found = breaches(sources)
    assert not found, "\n" + "\n".join(found)


def test_each_reason_for_a_long_function_is_still_needed() -> None:
    lengths: dict[str, int] = {}
    for path in package_files():
        if path.suffix == ".py" and module_of(path.relative_to(ROOT).as_posix()) in {
            name.rpartition(".")[0] for name in LONG
        }:
            module = Module(path.relative_to(ROOT).as_posix(), path.read_text())
            for node in module.functions:
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                name = f"{module.name}.{node.name}"
                lengths[name] = max(length, lengths.get(name, 0))
    assert [name for name in LONG if lengths.get(name, 0) <= FUNCTION_LINES] == []


def test_the_formatter_is_rarely_told_to_keep_out() -> None:
    files = [*(ROOT / "qpidha").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]
    mark = "# fmt: " + "skip"
    exempt = sum(path.read_text().count(mark) for path in files if "node_modules" not in path.parts)
    assert exempt <= FORMATTER_EXEMPTIONS


def test_every_room_exists_and_says_what_it_is() -> None:
    modules = [path for path in package_files() if path.suffix == ".py"]
    folders = {path.parent.relative_to(ROOT / "qpidha") for path in modules} - {Path()}
    rooms = {".".join(folder.parts) for folder in folders}
    assert rooms == (set(MAY_SEE) - {"node"}) | HALLS
    assert all((ROOT / "qpidha" / folder / "__init__.py").exists() for folder in folders)


def test_beside_the_modules_lie_only_decisions_and_pages() -> None:
    others = {
        path.relative_to(ROOT / "qpidha").as_posix()
        for path in package_files()
        if path.suffix != ".py"
    }
    of_console = re.compile(r"console/(templates/\w+\.html|static/\w+\.(css|js|svg))")
    others = {path for path in others if not of_console.fullmatch(path)}
    assert others <= {"DECISIONS.md", "pipeline/report/page.html", "py.typed"}


def test_floors_have_no_way_up() -> None:
    TopologicalSorter(MAY_SEE).prepare()


def test_programs_beside_the_package_do_not_import_it() -> None:
    for folder in ("agents", "ocf", "vagrant"):
        for path in (ROOT / folder).rglob("*"):
            text = path.read_text(errors="replace") if path.is_file() else ""
            assert not re.search(r"^\s*(import|from) qpidha[.\s]", text, re.MULTILINE), path


CLEAN = '"""A module."""\n'
LONG_FUNCTION = CLEAN + "def long() -> None:\n" + "    pass\n" * FUNCTION_LINES


@pytest.mark.parametrize(
    ("path", "source", "says"),
    [
        (
            "qpidha/broker/queues/queue.py",
            "from qpidha.ha.cluster import Role\n",
            "broker.queues must not see ha",
        ),
        (
            "qpidha/model/events.py",
            "from qpidha.broker.queues.queue import Queue\n",
            "model must not see broker.queues",
        ),
        ("qpidha/ha/cluster.py", "from qpidha.store.log import Log\n", "ha must not see store"),
        (
            "qpidha/amqp/peer/link.py",
            "from qpidha.management.port import Target\n",
            "amqp.peer must not see management",
        ),
        ("qpidha/node.py", "from qpidha.runtime.clock import now\n", "node must not see runtime"),
        (
            "qpidha/runtime/daemon.py",
            "from qpidha.broker.queues.queue import Queue\n",
            "runtime must not see broker.queues",
        ),
        (
            "qpidha/manager/builtin/supervisor.py",
            "from qpidha.node import Node\n",
            "manager.builtin must not see node",
        ),
        (
            "qpidha/ha/cluster.py",
            "if TYPE_CHECKING:\n    from qpidha.amqp.peer.link import Link\n",
            "ha must not see amqp.peer",
        ),
        ("qpidha/broker/queues/queue.py", "import time\n", "time reaches into the world"),
        ("qpidha/node.py", "from datetime import datetime\n", "datetime reaches into the world"),
        ("qpidha/store/log.py", "import os.path\n", "os reaches into the world"),
        ("qpidha/store/log.py", "def save() -> None:\n    open('log')\n", "open() below runtime"),
        ("qpidha/ha/cluster.py", "print('hello')\n", "print() below runtime"),
        ("qpidha/ha/cluster.py", "key = hash('hello')\n", "hash() below runtime"),
        (
            "qpidha/amqp/peer/link.py",
            "import cproton_ffi\n",
            "cproton_ffi is not qpidha.amqp.peer.link's",
        ),
        ("qpidha/amqp/peer/connection.py", "from scramp import ScramMechanism\n", "scramp is not"),
        ("qpidha/runtime/daemon.py", "import typer\n", "typer is not"),
        ("qpidha/cli/main.py", "import requests\n", "requests is not"),
        ("qpidha/broker/queues/queue.py", "from . import exchange\n", "relative import"),
        ("qpidha/broker/queues/queue.py", "from qpidha.model.records import *\n", "star import"),
        (
            "qpidha/broker/queues/queue.py",
            "from qpidha.model import records\n",
            "is a room, not a module",
        ),
        (
            "qpidha/broker/queues/queue.py",
            "def late() -> None:\n    import json\n",
            "deferred import",
        ),
        (
            "qpidha/manager/builtin/supervisor.py",
            "class Late:\n    import json\n",
            "deferred import",
        ),
        (
            "qpidha/broker/__init__.py",
            "from qpidha.broker.queues.queue import Queue\n",
            "more than a docstring",
        ),
        ("qpidha/plugins/one.py", "", "the room plugins has no floor"),
        ("qpidha/helpers.py", "", "a module beside node.py"),
        ("qpidha/broker/utils.py", "", "the name utils says nothing"),
        ("qpidha/broker/policies/ring.py", "", "the room broker.policies has no floor"),
        ("qpidha/broker/queues/queue.py", "# TODO: finish\n", "unfinished"),
        (
            "qpidha/broker/queues/queue.py",
            "def stub() -> None:\n    raise NotImplementedError\n",
            "unfinished",
        ),
        ("qpidha/broker/queues/queue.py", "#" * 101 + "\n", "line of 101 columns"),
        ("qpidha/broker/queues/queue.py", LONG_FUNCTION.removeprefix(CLEAN), "long has 61 lines"),
    ],
)
def test_a_planted_breach_is_caught(path: str, source: str, says: str) -> None:
    found = breaches({path: CLEAN + source})
    assert any(says in one for one in found), found


def test_a_missing_docstring_is_caught() -> None:
    assert any(
        "no module docstring" in one
        for one in breaches({"qpidha/broker/queues/queue.py": "x = 1\n"})
    )


def test_a_cycle_within_a_room_is_caught_also_when_it_is_for_types_only() -> None:
    sources = {
        "qpidha/broker/queues/queue.py": CLEAN
        + "if TYPE_CHECKING:\n    from qpidha.broker.exchange import Exchange\n",
        "qpidha/broker/exchange.py": CLEAN + "from qpidha.broker.queues.queue import Queue\n",
    }
    assert any("import cycle" in one for one in breaches(sources))


def test_a_name_imported_from_where_it_is_not_made_is_caught() -> None:
    sources = {
        "qpidha/model/records.py": CLEAN + "class Record:\n    pass\n",
        "qpidha/broker/queues/queue.py": CLEAN + "from qpidha.model.records import Record\n",
        "qpidha/broker/broker.py": CLEAN + "from qpidha.broker.queues.queue import Record\n",
    }
    assert [
        one
        for one in breaches(sources)
        if "only imported there" in one and one.startswith("qpidha/broker/broker.py")
    ]


def test_what_the_rules_allow_is_not_a_breach() -> None:
    sources = {
        "qpidha/model/records.py": CLEAN
        + "import json\nfrom dataclasses import dataclass\nclass Record:\n    pass\n",
        "qpidha/node.py": CLEAN
        + "from qpidha.model.records import Record\nclass Node:\n    pass\n",
        "qpidha/runtime/network.py": CLEAN
        + "try:\n    import uvloop\nexcept ImportError:\n    pass\n",
        "qpidha/runtime/daemon.py": CLEAN
        + "import os\nimport qpidha\nfrom qpidha.node import Node\n",
        "qpidha/cli/main.py": CLEAN + "def main() -> None:\n    import typer\n    print('yes')\n",
        "qpidha/amqp/peer/engine.py": CLEAN + "from cproton_ffi import ffi, lib\n",
    }
    assert breaches(sources) == []
