"""Mutants: small faults put into the sources one at a time, each of which should make a test fail.

`python -m tests.mutants` takes some places of each file, the same ones for the same `--seed`, and
plays the pure tests of the file's room on a copy of the tree in which one place is changed: those
that name the file first, random ones last, and no more once one has failed. A mutant that no test
notices survives; it is to be killed by a new test, or its line stands in docs/internals/mutants.md
with the reason why no test could tell. Exit code 1 if one is neither, or if that page explains a
place that is gone from the sources; 2 if a test fails in a tree that nothing was changed in.
"""

from __future__ import annotations

import argparse
import ast
import gc
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from multiprocessing import Pipe, Process
from multiprocessing.connection import Connection
from pathlib import Path
from types import CodeType, FunctionType
from typing import NoReturn

import pytest

ROOT = Path(__file__).parent.parent
EXPLAINED = ROOT / "docs" / "internals" / "mutants.md"
ROOMS = {
    "qpidha/amqp/peer/sasl.py": ("tests/amqp",),
    "qpidha/management": ("tests/management",),
    "qpidha/store": ("tests/store",),
    "qpidha/ha": ("tests/ha", "tests/scenarios"),
}
"""File or room -> the tests that look at it."""
PYTEST = ("-q", "-x", "-p", "no:cacheprovider")
SECONDS, MEMORY = 600, 4 << 30
"""A mutant that takes more of the processor, or more bytes of memory, has changed something: it
counts as killed.
"""
PAIRS: tuple[tuple[type[ast.AST], type[ast.AST]], ...] = (
    (ast.Lt, ast.LtE),
    (ast.Gt, ast.GtE),
    (ast.Eq, ast.NotEq),
    (ast.In, ast.NotIn),
    (ast.Is, ast.IsNot),
    (ast.And, ast.Or),
    (ast.Add, ast.Sub),
)
OPPOSITE = dict(PAIRS) | {other: one for one, other in PAIRS}


@dataclass(frozen=True)
class Mutant:
    """One changed place: the file, its new source, and the change as a person reads it."""

    path: str
    original: str
    source: str
    text: str


Work = list[tuple[Mutant, list[str]]]
"""Mutants, each with the files of tests to be played in this order."""


def changed(node: ast.AST) -> ast.AST | None:
    """Return what a place becomes; None if it is left alone."""
    new = deepcopy(node)
    if isinstance(new, ast.Compare) and type(new.ops[0]) in OPPOSITE:
        new.ops[0] = OPPOSITE[type(new.ops[0])]()  # type: ignore[assignment]
    elif isinstance(new, ast.BoolOp | ast.BinOp) and type(new.op) in OPPOSITE:
        new.op = OPPOSITE[type(new.op)]()  # type: ignore[assignment]
    elif isinstance(new, ast.UnaryOp) and isinstance(new.op, ast.Not):
        return new.operand
    elif isinstance(new, ast.Constant) and isinstance(new.value, bool):
        new.value = not new.value
    elif isinstance(new, ast.Expr) and isinstance(new.value, ast.Call):
        return ast.Pass()
    else:
        return None
    return new


def places(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    """Yield each place within functions that can be changed, with the function's name."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for statement in function.body:
                for node in ast.walk(statement):
                    if isinstance(node, ast.expr | ast.Expr) and changed(node) is not None:
                        yield function.name, node


def text_of(name: str, function: str, node: ast.AST) -> str:
    """Return the change of one place as a person reads it."""
    old, new = ast.unparse(node), ast.unparse(changed(node) or node)
    return f"{name} {function}: {old[:60]} -> {new[:60]}"


def gone(page: str) -> list[str]:
    """Return the mutants that a page explains and that cannot be made from the sources any more."""
    found = re.findall(r"^- `((\S+) .+?)`", page, re.MULTILINE)
    texts = {
        text_of(name, function, node)
        for name in {name for _, name in found}
        if (ROOT / name).is_file()
        for function, node in places(ast.parse((ROOT / name).read_text()))
    }
    return [text for text, _ in found if text not in texts]


def mutants_of(path: Path, count: int, seed: int) -> list[Mutant]:
    """Choose some mutants of a file."""
    source, name = path.read_text(), path.relative_to(ROOT).as_posix()
    found = list(places(ast.parse(source)))
    chosen = random.Random(f"{seed} {name}").sample(found, min(count, len(found)))
    made = []
    for function, node in chosen:
        assert isinstance(node, ast.expr | ast.stmt)
        new = ast.unparse(changed(node) or node)
        lines = source.encode().split(b"\n")
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        head, tail = lines[first][: node.col_offset], lines[last][node.end_col_offset :]
        text = f"({new})" if isinstance(node, ast.expr) else new
        lines[first : last + 1] = [head + text.encode() + tail]
        changed_source = b"\n".join(lines).decode()
        made.append(Mutant(name, source, changed_source, text_of(name, function, node)))
    return made


def tests_of(path: str, folders: tuple[str, ...]) -> list[str]:
    """Return the files of tests in the order in which they are likely to notice a change."""
    stem, module = Path(path).stem, re.escape(path.removesuffix(".py").replace("/", "."))
    names = re.compile(rf"(?:from|import) {module}\b")

    def rank(test: Path) -> tuple[bool, bool, bool, str]:
        return (
            test.stem.startswith("test_random"),
            test.stem != f"test_{stem}",
            not names.search(test.read_text()),
            test.as_posix(),
        )

    found = [test for one in folders for test in (ROOT / one).rglob("test_*.py")]
    return [test.relative_to(ROOT).as_posix() for test in sorted(found, key=rank)]


def functions_of(code: CodeType) -> Iterator[CodeType]:
    """Yield all that is defined within some code."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from functions_of(constant)


def key_of(code: CodeType) -> tuple[str, int, bytes]:
    """Tell one definition of a file from the others."""
    return code.co_qualname, code.co_firstlineno, code.co_linetable


def put_in(mutant: Mutant) -> bool:
    """Give every function of the mutant's file, which is imported, the mutant's code; return
    whether that can be done.
    """
    path = str(ROOT / mutant.path)
    old = list(functions_of(compile(mutant.original, path, "exec")))
    new = list(functions_of(compile(mutant.source, path, "exec")))
    if len(old) != len(new):
        return False
    other = {key_of(one): two for one, two in zip(old, new, strict=True)}
    for function in gc.get_objects():
        if isinstance(function, FunctionType) and function.__code__.co_filename == path:
            code = other[key_of(function.__code__)]
            if code.co_freevars != function.__code__.co_freevars:
                return False
            function.__code__ = code
    return True


class Player:
    """A plugin of pytest: when the tests of a room are imported, a child plays them for each
    mutant, which takes a tenth of the time of a process that begins with nothing.
    """

    def __init__(self, work: Work, jobs: int, results: Connection) -> None:
        self.work = work
        self.jobs = jobs
        self.results = results
        self.running: dict[int, int] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Return as a child that has a mutant in it, or when all of them are done."""
        for index, (mutant, tests) in enumerate(self.work):
            while len(self.running) >= self.jobs:
                self.wait()
            child = os.fork()
            if not child:
                resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
                resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
                if not put_in(mutant):
                    os._exit(0)  # It is played in a process of its own, as all that survive.
                rank = {str(ROOT / test): place for place, test in enumerate(tests)}
                session.items.sort(key=lambda item: rank[str(item.path)])
                return
            self.running[child] = index
        while self.running:
            self.wait()
        session.items.clear()

    def wait(self) -> None:
        child, status = os.wait()
        self.results.send((self.running.pop(child), status == 0))


def play(work: Work, jobs: int, results: Connection, other_end: Connection) -> NoReturn:
    """Tell for each mutant by its index whether it survives; to be called in a process that has
    imported nothing of the package. It ends when the other end is closed.
    """
    other_end.close()
    for descriptor in 1, 2:
        os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
    files = sorted({test for _, tests in work for test in tests})
    code = pytest.main([*PYTEST, *files], plugins=[Player(work, jobs, results)])
    os._exit(code)


def passes(tests: list[str], tree: Path) -> bool:
    """Play tests on a copy of the tree."""
    words = [sys.executable, "-m", "pytest", *PYTEST, *tests]
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    done = subprocess.run(words, cwd=tree, env=environment, capture_output=True, check=False)
    return done.returncode == 0


def survives(mutant: Mutant, tests: list[str], tree: Path) -> bool:
    """Play the tests on a copy of the tree with the mutant in it: what is done while a module is
    imported shows only there.
    """
    place = tree / mutant.path
    place.write_text(mutant.source)
    lives = passes(tests, tree)
    place.write_text(mutant.original)
    return lives


def chosen_of(only: list[str], count: int, seed: int) -> list[Work]:
    """Choose the mutants of the files that are asked for, with their tests, a list a room."""
    rooms = []
    for room, folders in ROOMS.items():
        work: Work = []
        files = [ROOT / room] if room.endswith(".py") else sorted((ROOT / room).glob("*.py"))
        for path in files:
            name = path.relative_to(ROOT).as_posix()
            if not only or any(name.startswith(one) for one in only):
                tests = tests_of(name, folders)
                work += [(one, tests) for one in mutants_of(path, count, seed)]
        if work:
            rooms.append(work)
    return rooms


def play_room(work: Work, jobs: int, tree: Path) -> Counter[str]:
    """Play all mutants of a room, and say of each what became of it."""
    explanations = EXPLAINED.read_text()
    found: Counter[str] = Counter()
    results, told = Pipe(duplex=False)
    player = Process(target=play, args=(work, jobs, told, results))
    player.start()
    told.close()
    for _ in work:
        index, lives = results.recv()
        mutant, tests = work[index]
        if lives and f"`{mutant.text}`" in explanations:
            result = "explained"
        else:
            result = "SURVIVES" if lives and survives(mutant, tests, tree) else "killed"
        found[result] += 1
        print(f"{result:9} {mutant.text}", flush=True)
    player.join()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="Change the sources and see whether a test fails.")
    parser.add_argument("--count", type=int, default=8, help="mutants of each file at most")
    parser.add_argument("--seed", type=int, default=1, help="of the choice of places")
    parser.add_argument("--jobs", type=int, default=2, help="mutants that are played at a time")
    parser.add_argument("only", nargs="*", help="files or rooms, such as qpidha/store")
    ask = parser.parse_args()
    found: Counter[str] = Counter()
    stale = gone(EXPLAINED.read_text())
    for text in stale:
        print(f"{'GONE':9} {text}: take it out of {EXPLAINED.relative_to(ROOT)}", flush=True)
    with tempfile.TemporaryDirectory(prefix="qpidha-mutants-") as folder:
        tree = Path(folder)
        for name in ("qpidha", "tests", "docs"):
            shutil.copytree(ROOT / name, tree / name)
        shutil.copy(ROOT / "pyproject.toml", tree)
        for work in chosen_of(ask.only, ask.count, ask.seed):
            if not passes(work[0][1], tree):
                print("a test fails although nothing was changed: mend it first", file=sys.stderr)
                return 2
            found += play_room(work, ask.jobs, tree)
    print(
        f"{found.total()} mutants: {found['killed']} killed, {found['explained']} explained, "
        f"{found['SURVIVES']} survive without an explanation; "
        f"{len(stale)} explanations of places that are gone"
    )
    return bool(found["SURVIVES"] or stale)


if __name__ == "__main__":
    sys.exit(main())
