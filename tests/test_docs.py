"""What documents name exists: tests, files, links, commands, options and targets of make. Each hole
and trap has a test, each play its row, each block a tag.
"""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest
from typer.main import get_command

from qpidha.cli.app import COMMANDS
from qpidha.cli.app import _app as tree
from qpidha.client.command.arguments import FLAGS, VALUED
from qpidha.model.records import Record
from qpidha.model.settings import Settings
from qpidha.model.sources import WORDS
from tests import mutants, rooms
from tests.cli import commands_page
from tests.documents import PAGES, READ, ROOT, RUN, blocks
from tests.runtime import options_page

HOLES = ROOT / "docs" / "holes.md"
WISHES = ROOT / "docs" / "internals" / "wishes.md"
PACEMAKER = ROOT / "docs" / "pacemaker.md"
SCENARIOS = "tests/lab/test_scenarios.py"
PLAYS = ROOT / "tests" / "scenarios"
NAMED = re.compile(r"`(tests/[\w/.-]+?)(?:::(\w+))?`")


def named(text: str) -> list[tuple[str, str]]:
    return NAMED.findall(text)


def missing(text: str) -> list[str]:
    """Return what a text names and the tree does not have."""
    absent = []
    for path, name in named(text):
        file = ROOT / path
        there = file.is_dir() if path.endswith("/") else file.is_file()
        if not there or (
            name and not re.search(rf"^(?:    )?def {name}\b", file.read_text(), re.MULTILINE)
        ):
            absent.append(f"{path}::{name}" if name else path)
    return absent


def test_every_test_that_a_document_names_exists() -> None:
    assert {path.name: absent for path in PAGES if (absent := missing(path.read_text()))} == {}


def test_every_mutant_that_is_explained_can_still_be_made() -> None:
    page = mutants.EXPLAINED.read_text()
    assert mutants.gone(page) == []
    old = "head > COMPACT_AFTER"
    assert old in page and len(mutants.gone(page.replace(old, "head > GONE"))) == 1
    assert len(mutants.gone("- `qpidha/ha/gone.py release: a -> b`: why")) == 1


def numbered(text: str) -> list[tuple[str, str]]:
    """Return the numbered rows of a document: number, and what the last column says."""
    return re.findall(r"^\| (\d+) \|.*\|(.*)\|$", text, re.MULTILINE)


def test_every_trap_of_pacemaker_has_a_scenario_of_the_lab() -> None:
    rows = numbered(PACEMAKER.read_text())
    assert [number for number, _ in rows] == ["1", "2", "3", "4"]
    assert [
        number
        for number, tests in rows
        if SCENARIOS not in [path for path, name in named(tests) if name]
    ] == []


def test_every_wish_from_1_to_32_and_every_promise_from_1_to_10_has_a_test() -> None:
    rows = numbered(WISHES.read_text())
    assert [int(number) for number, _ in rows] == [*range(1, 33), *range(1, 11)]
    assert [number for number, tests in rows if not named(tests)] == []


def test_every_hole_from_1_to_28_has_a_test() -> None:
    rows = numbered(HOLES.read_text())
    assert [int(number) for number, _ in rows] == list(range(1, 29))
    assert [number for number, tests in rows if not named(tests)] == []


def holes_of(play: str) -> list[str]:
    """Return the numbers of the holes that the story of a play names: its comments before the first
    command.
    """
    story = " ".join(line.removeprefix("#") for line in play.split("\n\n", 1)[0].splitlines())
    return re.findall(r"\(hole\s+(\d+)", story)


def unlisted(plays: dict[str, str], text: str) -> list[str]:
    """Return the plays that say that they show a hole closed, and are not in its row."""
    rows = dict(numbered(text))
    return [
        f"{name}: hole {hole}"
        for name, play in plays.items()
        for hole in holes_of(play)
        if f"scenarios/{name}`" not in rows.get(hole, "")
    ]


def test_every_play_that_names_a_hole_is_in_its_row() -> None:
    plays = {path.name: path.read_text() for path in sorted(PLAYS.glob("*.txt"))}
    assert sum(len(holes_of(play)) for play in plays.values()) >= 10
    assert unlisted(plays, HOLES.read_text()) == []


def test_a_play_that_is_not_in_the_row_of_its_hole_is_found() -> None:
    plays = {
        "x.txt": "# Something is lost\n# (hole 2) here.\n\nbrokers a\n",
        "y.txt": "# Of no hole.\n\nbrokers a\n",
    }
    assert unlisted(
        plays, "| 1 | one | `tests/scenarios/x.txt` |\n| 2 | two | `tests/a.py` |\n"
    ) == ["x.txt: hole 2"]
    assert unlisted(plays, "| 2 | two | `tests/a.py`, `tests/scenarios/x.txt` |\n") == []


def test_a_name_that_does_not_exist_is_found() -> None:
    text = (
        "`tests/test_docs.py::test_that_nobody_wrote`, `tests/nowhere.py`, "
        "`tests/test_docs.py`, `tests/lab/`, `tests/den/`"
    )
    assert missing(text) == [
        "tests/test_docs.py::test_that_nobody_wrote",
        "tests/nowhere.py",
        "tests/den/",
    ]


# -- what documents name exists --------------------------------------------------------------------

SETTINGS = {name.replace("_", "-") for name in Settings.__dataclass_fields__}
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
DAEMON = {"no-data-dir", *WORDS}
SPAN = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
SOURCE = re.compile(r"`((?:qpidha|tests|agents|ocf|examples|vagrant|docs)/[\w/.-]*)`")


def anchor(heading: str) -> str:
    """Return the anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w -]", "", heading.lower().replace("`", "")).strip().replace(" ", "-")


def broken_links(page: Path, text: str) -> list[str]:
    """Return the links of a page that lead nowhere in this tree."""
    broken = []
    for link in LINK.findall(re.sub(r"```.*?```", "", text, flags=re.DOTALL)):
        if ":" in link:
            continue
        name, _, place = link.partition("#")
        file = (page.parent / name).resolve() if name else page
        if not file.exists():
            broken.append(link)
        elif place:
            headings = re.findall(r"^#+ (.+)$", file.read_text(), re.MULTILINE)
            if place not in map(anchor, headings):
                broken.append(link)
    return broken


def calls(text: str) -> list[str]:
    """Return the command lines in a text: in spans and in blocks, one a line."""
    joined = text.replace("\\\n", " ")
    return [*SPAN.findall(joined), *re.findall(r"^(?:\$ )?(.+)$", joined, re.MULTILINE)]


@cache
def command_of(names: tuple[str, ...]) -> Any:
    """Return a command of the tree, None if there is none."""
    if not names or names[0] not in COMMANDS:
        return None
    found = get_command(tree([COMMANDS[names[0]][0]]))
    for name in names:
        found = getattr(found, "commands", {}).get(name)
    return found


def wrong_call(line: str) -> str:
    """Say what a call of ours names that does not exist; empty if nothing."""
    match = re.search(r"(?:^|[/;(|&$] ?)qpid-ha ((?:[^;|&>`#])+)", line)
    if match is not None:
        words = match[1].split()
        names = [word for word in words if re.fullmatch(r"[a-z][a-z-]*", word)][:2]
        if not names or names[0] == "help":
            return ""
        command = command_of(tuple(names[:1]))
        if command is None:
            return f"there is no command {names[0]}"
        if getattr(command, "commands", None) is not None and len(names) == 2:
            if names[1] not in command.commands:
                return f"there is no command {names[0]} {names[1]}"
            command = command.commands[names[1]]
        known = {each for option in command.params for each in option.opts} | {*VALUED, *FLAGS}
        if getattr(command, "commands", None) is None:
            for word in words:
                if word == "--":
                    break
                option = word.partition("=")[0].rstrip(",.:")
                if re.fullmatch(r"--[a-z][a-z-]*", option) and option not in known | {"--help"}:
                    return f"{' '.join(names)} has no option {option}"
    match = re.search(r"(?:^|[\s/])qpidhad ((?:[^;|&>`#])+)", line)
    if match is not None:
        for option in re.findall(r"--([a-z][a-z-]*)", match[1]):
            if option not in SETTINGS | DAEMON:
                return f"qpidhad has no option --{option}"
    for target in re.findall(r"^make ([a-z][a-z-]*)", line):
        if target not in TARGETS:
            return f"there is no make {target}"
    return ""


def test_every_link_leads_somewhere() -> None:
    broken = {page.name: found for page in PAGES if (found := broken_links(page, page.read_text()))}
    assert broken == {}


def test_a_link_that_leads_nowhere_is_found() -> None:
    text = "# A title, of `mine`\n[a](docs) [b](nowhere.md) [c](#a-title-of-mine) [d](#not-here)\n"
    page = ROOT / "README.md"
    assert broken_links(page, text)[:1] == ["nowhere.md"]
    assert anchor("A title, of `mine`") == "a-title-of-mine"


def test_every_file_that_a_document_names_exists() -> None:
    absent = {
        str(page.relative_to(ROOT)): gone
        for page in PAGES
        if page.name != "CHANGELOG.md"
        and (gone := [name for name in SOURCE.findall(page.read_text()) if not there(name)])
    }
    assert absent == {}


def there(name: str) -> bool:
    return (ROOT / name).exists()


def test_every_command_option_and_target_that_a_document_names_exists() -> None:
    wrong = {
        f"{page.relative_to(ROOT)}: {line.strip()[:80]}": why
        for page in PAGES
        if page.name != "CHANGELOG.md"
        for line in calls(page.read_text())
        if (why := wrong_call(line))
    }
    assert wrong == {}


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("qpid-ha nothing", "there is no command nothing"),
        ("$ qpid-ha queue ad orders", "there is no command queue ad"),
        ("qpid-ha queue add orders --durabel -b x", "queue add has no option --durabel"),
        ("qpidhad --ha-clutser yes", "qpidhad has no option --ha-clutser"),
        ("make tset", "there is no make tset"),
        ("qpid-ha list; qpid-ha status --all -b x", ""),
        ("make test PYTEST_ARGS=-x", ""),
    ],
)
def test_a_command_that_does_not_exist_is_found(line: str, why: str) -> None:
    assert wrong_call(line) == why


def test_every_block_says_what_it_is_and_is_run_if_it_can_be() -> None:
    found = [each for page in PAGES for each in blocks(page)]
    assert [each.place for each in found if each.tag not in (*RUN, *READ)] == []
    assert [
        f"{each.place}: {each.played_by}"
        for each in found
        if each.played_by and not (ROOT / each.played_by.partition("::")[0]).is_file()
    ] == []
    assert [each.place for each in found if each.played_by and each.tag not in RUN] == []


def test_every_option_in_a_file_that_a_document_shows_exists() -> None:
    wrong = [
        f"{each.place}: {line}"
        for page in PAGES
        for each in blocks(page)
        if each.tag == "ini"
        for line in each.text.splitlines()
        if line and not line.startswith("#") and line.partition("=")[0] not in SETTINGS
    ]
    assert wrong == []
    for page in PAGES:
        for each in blocks(page):
            if each.tag == "toml":
                tomllib.loads(each.text)


def test_the_table_of_records_has_every_kind() -> None:
    page = (ROOT / "docs" / "internals" / "write-ahead-log.md").read_text()
    table = page.partition("\n## Records\n")[2].partition("\n## ")[0]
    kinds = [kind.__name__ for kind in get_args(Record)]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == kinds != []


def test_the_page_of_commands_is_that_of_their_help() -> None:
    shown = commands_page.PAGE.read_text()
    assert shown == commands_page.page(), "python -m tests.cli.commands_page writes it anew"


def test_the_page_of_options_is_that_of_the_settings() -> None:
    shown = options_page.PAGE.read_text()
    assert shown == options_page.page(), "python -m tests.runtime.options_page writes it anew"


# -- the rooms ------------------------------------------------------------------------------------


def test_the_figure_of_the_rooms_is_that_of_the_architecture_test() -> None:
    shown = rooms.written(rooms.DOCUMENT.read_text())
    assert shown == rooms.figure(), "python -m tests.rooms writes it anew"


def test_every_room_stands_above_what_it_may_see() -> None:
    found = rooms.heights()
    assert found.keys() == rooms.MAY_SEE.keys()
    assert all(
        found[room] > found[other] or room in rooms.MAY_SEE[other]
        for room, seen in rooms.MAY_SEE.items()
        for other in seen
    )


def test_what_make_lint_runs_is_what_a_commit_runs() -> None:
    hooks = re.findall(r"entry: \.venv/bin/(.+)", (ROOT / ".pre-commit-config.yaml").read_text())
    recipe = (ROOT / "Makefile").read_text().partition("\nlint:")[2].partition("\n\n")[0]
    assert hooks == re.findall(r"\$\(BIN\)/(.+)", recipe) != []


# -- help -----------------------------------------------------------------------------------------


def every_command() -> dict[str, Any]:
    """Return every command that can be called, by its words."""
    found = {}
    for name in COMMANDS:
        command = command_of((name,))
        if name == "help" or command is None:
            continue
        inner = getattr(command, "commands", {"": command})
        found |= {f"{name} {each}".strip(): one for each, one in inner.items()}
    return found


def test_the_help_of_every_command_ends_with_an_example_that_is_right() -> None:
    wrong = {}
    for name, command in every_command().items():
        example = " ".join((command.help or "").partition("Example: ")[2].split())
        if not example.startswith(f"qpid-ha {name}") or wrong_call(example):
            wrong[name] = example or "no example"
    assert wrong == {}


# -- what the code cites --------------------------------------------------------------------------

CITED = re.compile(r"\b((?:[\w-]+/)*[\w-]+\.md)\b")


def uncited(text: str) -> list[str]:
    """Return the documents that a source names and this tree does not have."""
    return [name for name in CITED.findall(text) if not there(name)]


def test_every_document_that_the_code_cites_is_in_the_tree() -> None:
    gone = {
        str(path.relative_to(ROOT)): found
        for path in sorted((ROOT / "qpidha").rglob("*.py"))
        if (found := uncited(path.read_text()))
    }
    assert gone == {}
    assert uncited("docs/glossary.md, and notes.md section 3") == ["notes.md"]


MODULE = re.compile(r"(?<![\w/.-])((?:\w+/)*\w+\.py)\b")


def docstrings(source: str) -> list[str]:
    """Return the strings of a source that stand alone: of modules, classes, functions, fields."""
    return [
        node.value.value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ]


def absent_modules(source: str, modules: set[str]) -> list[str]:
    """Return the modules that docstrings name, by name or by the end of a path, and that are not
    there.
    """
    named = [name for text in docstrings(source) for name in MODULE.findall(text)]
    return [name for name in named if not any(f"/{path}".endswith(f"/{name}") for path in modules)]


def test_every_module_that_a_docstring_of_the_package_names_is_in_it() -> None:
    sources = {str(path.relative_to(ROOT)): path for path in (ROOT / "qpidha").rglob("*.py")}
    gone = {
        name: found
        for name, path in sorted(sources.items())
        if (found := absent_modules(path.read_text(), set(sources)))
    }
    assert gone == {}
    example = '''"""See `store/log.py`, links.py and opening.py."""\nx = "other.py"\n'''
    assert absent_modules(example, {"q/store/log.py", "q/links.py"}) == ["opening.py"]


def test_every_rule_that_the_code_cites_is_on_the_page_of_the_rules() -> None:
    page = (ROOT / "docs" / "internals" / "safety.md").read_text()
    rules = set(re.findall(r"^### (S\d)\.", page, re.MULTILINE))
    sources = [path.read_text() for path in (ROOT / "qpidha").rglob("*.py")]
    cited = {rule for text in sources for rule in re.findall(r"\b(S\d)\b", text)}
    assert cited <= rules == {f"S{number}" for number in range(1, 10)}


NAME = re.compile(r"`([A-Z]\w*[a-z]\w*(?:\.\w+)*)(?:\([^`]*\))?`")


def unknown_names(text: str, words: set[str]) -> list[str]:
    """Return the classes and methods that a page names and no source has."""
    spans = NAME.findall(re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    return [name for name in spans if not words.issuperset(name.split("."))]


def test_every_class_and_method_that_a_page_on_the_inside_names_exists() -> None:
    sources = [*(ROOT / "qpidha").rglob("*.py"), *(ROOT / "tests" / "sim").glob("*.py")]
    words = {word for path in sources for word in re.findall(r"\w+", path.read_text())}
    pages = [*(ROOT / "docs" / "internals").glob("*.md"), ROOT / "CONTRIBUTING.md"]
    unknown = {
        page.name: found for page in pages if (found := unknown_names(page.read_text(), words))
    }
    assert unknown == {}
    assert unknown_names("`Queue.fly()` `Queue.enqueue`", words) == ["Queue.fly"]


# -- texts of messages -----------------------------------------------------------------------------

TROUBLE = ROOT / "docs" / "troubleshooting.md"


@cache
def texts_of_the_source() -> str:
    """Return every text in the source, and the scripts of the packages."""
    found = [path.read_text() for path in (ROOT / "packages" / "debian").iterdir()]
    for path in (ROOT / "qpidha").rglob("*.py"):
        tree = ast.parse(path.read_text())
        docs = {
            id(node.body[0].value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and node.body
            and isinstance(node.body[0], ast.Expr)
        }
        found += [
            node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in docs
        ]
    return "\n".join(found)


def unknown_texts(page: str) -> list[str]:
    """Return the messages in the first column of tables that are not in the source as a whole."""
    cells = re.findall(r"^\| (`.*?`.*?) \|", page, re.MULTILINE)
    messages = [message for cell in cells for message in SPAN.findall(cell)]
    assert messages
    return [
        message
        for message in messages
        if not all(part.strip() in texts_of_the_source() for part in message.split("..."))
    ]


def test_every_message_of_the_page_on_trouble_is_one_of_the_program() -> None:
    assert unknown_texts(TROUBLE.read_text()) == []
    assert unknown_texts("| `no broker serves within ... s` | why | what |") != []
