"""The site of the documents and the man pages: built without a warning, whole, and with nothing of
other hosts.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from functools import cache
from html import unescape
from pathlib import Path
from urllib.parse import unquote

import pytest

from qpidha.cli.app import COMMANDS
from qpidha.model.settings import OPTIONS
from tests.chromium import AS_ROOT, CHROMIUM, MISSING
from tests.documents import PAGES, ROOT
from tests.patience import STATE
from tests.tools.qpid_tools_page import TOOLS

LOADED = re.compile(
    r"""<(?:script|img|iframe|source|video|audio|embed|object)\b[^>]*?\b(?:src|data)="([^"]*)"
    |<link\b[^>]*?\bhref="([^"]*)" | @import\s+["']([^"']+) | url\(\s*["']?([^)"']+)""",
    re.VERBOSE,
)
"""What a browser fetches by itself for a page or a style sheet."""

pytestmark = [pytest.mark.timeout(4 * STATE), pytest.mark.xdist_group("site")]


def build(sources: Path, out: Path, builder: str = "html") -> str:
    """Build a site, or man pages, as `make docs` does; return its warnings and errors."""
    line = [sys.executable, "-m", "sphinx", "-q", "-W", "-j", "2", "--no-color", "-b", builder]
    line += ["-c", "docs", "-d", str(out.parent / "read"), ".", str(out)]
    done = subprocess.run(line, cwd=sources, capture_output=True, text=True, timeout=4 * STATE)
    assert (done.returncode == 0) == (done.stderr == ""), done.stderr
    return done.stderr


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the site."""
    out = tmp_path_factory.mktemp("site") / "site"
    assert build(ROOT, out) == ""
    return out


@cache
def places(page: Path) -> set[str]:
    """Return the places of a page of the site that a link can name."""
    return set(re.findall(r'\bid="([^"]+)"', page.read_text()))


def dead_links(site: Path) -> list[str]:
    """Return the links of a site that lead nowhere in it."""
    dead = []
    for page in site.rglob("*.html"):
        for link in map(unescape, re.findall(r'<a\b[^>]*?\bhref="([^"]*)"', page.read_text())):
            name, _, place = link.partition("#")
            if re.match(r"[a-z]+:", name):
                continue
            to = (page.parent / unquote(name)).resolve() if name else page
            if not to.is_file() or (place and to.suffix == ".html" and place not in places(to)):
                dead.append(f"{page.relative_to(site)}: {link}")
    return dead


def loaded(text: str) -> list[str]:
    """Return what a page or a style sheet loads."""
    return ["".join(found) for found in LOADED.findall(text)]


def is_foreign(address: str) -> bool:
    return bool(re.match(r"(?:[a-z]+:)?//", address))


def test_every_page_is_in_the_site_which_is_built_without_a_warning(site: Path) -> None:
    pages = [*PAGES, ROOT / "qpidha" / "DECISIONS.md"]
    absent = [
        str(page.relative_to(ROOT))
        for page in pages
        if not (site / page.relative_to(ROOT)).with_suffix(".html").is_file()
    ]
    assert absent == []
    assert "url=docs/index.html" in (site / "index.html").read_text()


def test_every_link_of_the_site_leads_somewhere(site: Path) -> None:
    assert dead_links(site) == []


def test_nothing_of_the_site_is_loaded_from_another_host(site: Path) -> None:
    files = [*site.rglob("*.html"), *site.rglob("*.css")]
    found = {path: loaded(path.read_text()) for path in files}
    assert sum(map(len, found.values())) > len(PAGES)
    assert [each for every in found.values() for each in every if is_foreign(each)] == []


@pytest.mark.parametrize(
    "text",
    [
        '<script defer src="https://cdn.example/x.js"></script>',
        '<link rel="stylesheet" href="//fonts.example/x.css">',
        '@import "https://fonts.example/x.css"',
        "src: url(https://fonts.example/x.woff)",
    ],
)
def test_what_is_loaded_from_another_host_is_found(text: str) -> None:
    assert [is_foreign(each) for each in loaded(text)] == [True]


@pytest.mark.skipif(CHROMIUM is None, reason=MISSING)
@pytest.mark.parametrize(
    ("words", "page"), [("QHA1203", "docs/messages.html"), ("ha-min-in-sync", "docs/options.html")]
)
def test_the_search_finds_in_a_folder_without_a_server(
    site: Path, tmp_path: Path, words: str, page: str
) -> None:
    assert CHROMIUM is not None
    line = [CHROMIUM, "--headless", "--disable-gpu", "--disable-background-networking", *AS_ROOT]
    line += ["--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={tmp_path / 'profile'}"]
    line += ["--virtual-time-budget=10000", "--dump-dom", f"file://{site}/search.html?q={words}"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=STATE, check=True)
    results = done.stdout.partition('<ul role="list" class="search">')[2].partition("</ul>")[0]
    assert f'<a href="{page}' in results


@pytest.mark.skipif(shutil.which("man") is None, reason="no man: apt-get install man-db")
def test_the_man_pages_have_every_command_and_option_and_no_mistake(site: Path) -> None:
    out = site.parent / "man"
    assert build(ROOT, out, "man") == ""
    shown = {}
    for page in ("qpid-ha.1", "qpidhad.8", *(f"{name}.1" for name in TOOLS)):
        line = ["man", "--warnings=all", "-E", "UTF-8", "-l", str(out / page)]
        width = os.environ | {"MANWIDTH": "120", "LC_ALL": "C.UTF-8", "MAN_KEEP_FORMATTING": ""}
        done = subprocess.run(line, env=width, capture_output=True, text=True, timeout=STATE)
        assert (done.returncode, done.stderr) == (0, "")
        shown[page] = done.stdout
    lines = {text.strip() for text in shown["qpidhad.8"].splitlines()}
    assert [name for name in OPTIONS if name not in {line.split("  ")[0] for line in lines}] == []
    heads = set(re.findall(r"^(?:   )?(\S.*)$", shown["qpid-ha.1"], re.MULTILINE))
    assert [name for name in COMMANDS if name != "help" and name.upper() not in heads] == []
    assert "qpid-ha - " in shown["qpid-ha.1"] and ".md <" not in shown["qpidhad.8"]


def test_a_link_to_nowhere_and_a_page_that_is_in_no_menu_are_found(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "qpidha").mkdir()
    shutil.copy(ROOT / "docs" / "conf.py", tmp_path / "docs")
    shutil.copy(ROOT / "qpidha" / "node.py", tmp_path / "qpidha")
    index = tmp_path / "docs" / "index.md"
    index.write_text("# A\n\n## B\n\n- [C](c.md): see [here](c.md#here), [there](c.md#there)\n")
    (tmp_path / "docs" / "c.md").write_text("# C\n\n## Here\n")
    (tmp_path / "docs" / "d.md").write_text("# D\n")
    found = build(tmp_path, tmp_path / "site" / "site")
    assert "index.md:5: WARNING: local id not found in doc 'docs/c': 'there'" in found
    assert "d.md: WARNING: document isn't included in any toctree" in found
    assert len(found.splitlines()) == 2
