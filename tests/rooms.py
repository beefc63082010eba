"""The figure of the rooms in CONTRIBUTING.md, made from MAY_SEE of tests/test_architecture.py.

`python -m tests.rooms` writes it into the document anew; tests/test_docs.py compares.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.test_architecture import MAY_SEE

ROOT = Path(__file__).parent.parent
DOCUMENT = ROOT / "CONTRIBUTING.md"
BEGIN, END = "<!-- rooms: python -m tests.rooms -->\n", "<!-- end of rooms -->"
EVERYTHING = "everything below"


def heights() -> dict[str, int]:
    """Return for each room on which floor it stands: one above the highest room that it sees."""
    found: dict[str, int] = {}

    def height(room: str) -> int:
        if room not in found:
            seen = [other for other in MAY_SEE[room] if room not in MAY_SEE[other]]
            found[room] = 1 + max(map(height, seen), default=-1)
        return found[room]

    for room in MAY_SEE:
        height(room)
    return found


def purpose(room: str) -> str:
    """Return the first sentence of a room's docstring."""
    path = ROOT / "qpidha" / room.replace(".", "/")
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    text = " ".join((ast.get_docstring(ast.parse(file.read_text())) or "").split())
    text = re.split(r"[.;](?: |$)", text)[0].replace("|", "/")
    head, colon, rest = text.partition(": ")
    text = rest if colon and len(head.split()) <= 2 else text
    return text[:1].lower() + text[1:]


def floors() -> str:
    """Draw the floors, the highest first."""
    found = heights()
    lines = []
    for floor in range(max(found.values()), -1, -1):
        rooms = sorted(room for room in found if found[room] == floor)
        lines.append(f"{floor:3}  " + "   ".join(room.replace(".", "/") for room in rooms))
    return "\n".join(lines)


def table() -> str:
    """Write what each room is for and what it may import."""
    found = heights()
    rows = ["| room | what it is for | may import |", "|---|---|---|"]
    for room in sorted(MAY_SEE, key=lambda each: (found[each], each)):
        seen = sorted(MAY_SEE[room])
        below = {other for other in MAY_SEE if found[other] < found[room]}
        told = EVERYTHING if len(below) > 5 and set(seen) >= below else ", ".join(seen)
        name = f"{room.replace('.', '/')}/" if room != "node" else "node.py"
        rows.append(f"| `{name}` | {purpose(room)} | {told.replace('.', '/') or 'nothing'} |")
    return "\n".join(rows)


def figure() -> str:
    """Return the figure and the table, as they stand in the document."""
    return f"{BEGIN}\n```figure\n{floors()}\n```\n\n{table()}\n\n{END}"


def written(text: str) -> str:
    """Return what a document has of it."""
    return text[text.index(BEGIN) : text.index(END) + len(END)]


if __name__ == "__main__":
    document = DOCUMENT.read_text()
    DOCUMENT.write_text(document.replace(written(document), figure()))
