"""The site of these documents and the man pages: `make docs` builds build/site and build/man.

Its sources are the Markdown pages as they are, from the folder above this one, so that a link
between them is the same here and on a Git host. What is in the menu, and in which order, is in the
lists of links of index.md and of internals/README.md.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from docutils import nodes
from pygments.lexers.special import TextLexer

ROOT = Path(__file__).parent.parent
NODE = (ROOT / "qpidha" / "node.py").read_text()
VERSION = re.findall(r'^VERSION = "(.+)"', NODE, re.MULTILINE)[0]

project = "qpidha"
version = release = VERSION
root_doc = "docs/index"
source_suffix = {".md": "markdown"}
PLACES = ("docs", "qpidha")
"""The folders with pages, beside the one above."""
exclude_patterns = [
    *(each.name for each in ROOT.iterdir() if each.is_dir() and each.name not in PLACES),
    *(f"qpidha/{each.name}" for each in (ROOT / "qpidha").iterdir() if each.is_dir()),
]
extensions = ["myst_parser"]
nitpicky = True
smartquotes = False
myst_heading_anchors = 4

html_theme = "furo"
html_title = f"qpidha {VERSION}"
html_copy_source = False
html_show_copyright = False

man_pages = [
    ("docs/commands", "qpid-ha", "manage a cluster of brokers", "", 1),
    ("docs/options", "qpidhad", "AMQP 1.0 broker of an active-passive cluster", "", 8),
    ("docs/qpid-tools", "qpid-config", "show and change queues, exchanges, bindings", "", 1),
    ("docs/qpid-tools", "qpid-printevents", "print what happens at brokers", "", 1),
    ("docs/qpid-tools", "qpid-receive", "receive messages and print them", "", 1),
    ("docs/qpid-tools", "qpid-route", "links to other brokers and routes over them", "", 1),
    ("docs/qpid-tools", "qpid-send", "send messages", "", 1),
    ("docs/qpid-tools", "qpid-stat", "show a broker in figures", "", 1),
]

MENUS = {
    "docs/index": re.compile(r"^- \[(?P<title>[^]]+)\]\((?P<page>[^#)]+)\.md\)", re.MULTILINE),
    "docs/internals/README": re.compile(
        r"^(?:\| |\d\. )\[(?P<title>)(?P<page>[\w-]+)\.md\]\((?P=page)\.md\)", re.MULTILINE
    ),
}
"""Page -> the links in it that are entries of the menu; a title that is empty is the page's own."""

MOVED = '<!doctype html><title>qpidha</title><meta http-equiv="refresh" content="0;url={to}">'


def add_menu(app: Any, name: str, source: list[str]) -> None:
    """Make a menu of the links in each section of a page that has one."""
    if name not in MENUS:
        return
    sections = re.split(r"(?m)^(?=## )", source[0])
    for number, section in enumerate(sections):
        entries = [
            f"{title} <{page}>" if title else page for title, page in MENUS[name].findall(section)
        ]
        if entries:
            caption = section.partition("\n")[0].removeprefix("## ")
            head = ["```{toctree}", ":hidden:", *([f":caption: {caption}"] if number else []), ""]
            sections[number] = "\n".join([section, *head, *entries, "```", "", ""])
    source[0] = "".join(sections)


def begin_at_the_index(app: Any, error: Exception | None) -> None:
    """Lead who opens the folder of the site to its first page."""
    if error is None and app.builder.format == "html":
        to = app.builder.get_target_uri(root_doc)
        (Path(app.outdir) / "index.html").write_text(MOVED.format(to=to))


def as_manual(app: Any, tree: nodes.document, name: str) -> None:
    """Give a page the shape of a man page: rows are terms with what is said of them, no link leads
    out of it, and its beginning is no part of the name.
    """
    if app.builder.name != "man":
        return
    top = next(tree.findall(nodes.section))
    first = [each for each in top if not isinstance(each, nodes.title | nodes.section)]
    for each in first:
        top.remove(each)
    top.insert(1, nodes.section("", nodes.title("", "Description"), *first, ids=["description"]))
    for link in list(tree.findall(nodes.reference)):
        link.replace_self(link.children)
    for table in list(tree.findall(nodes.table)):
        head, *rows = table.findall(nodes.row)
        columns = [entry.astext() for entry in head]
        table.replace_self(nodes.definition_list("", *(item_of(row, columns) for row in rows)))


def item_of(row: nodes.row, columns: list[str]) -> nodes.definition_list_item:
    """Return a row as a term and what is said of it; a cell under a heading begins with that."""
    term, *cells = row
    said = nodes.definition()
    for column, cell in zip(columns[1:], cells, strict=True):
        for paragraph in cell:
            if not paragraph.children:
                continue
            if column:
                paragraph.insert(0, nodes.Text(f"{column.capitalize()}: "))
            said += paragraph
    names = term[0].children if term.children else []
    return nodes.definition_list_item("", nodes.term("", "", *names), said)


def setup(app: Any) -> dict[str, bool]:
    """Hand Sphinx what is ours."""
    app.add_lexer("figure", TextLexer)
    app.connect("source-read", add_menu)
    app.connect("doctree-resolved", as_manual)
    app.connect("build-finished", begin_at_the_index)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
