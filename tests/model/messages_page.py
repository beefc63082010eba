"""Writes docs/messages.md from the table of event codes: `python -m tests.model.messages_page`."""

from __future__ import annotations

from pathlib import Path

from qpidha.model.event_codes import GROUPS, TABLE

PAGE = Path(__file__).parents[2] / "docs" / "messages.md"
HEAD = """# Messages and their codes

What an operator meets has a code: at the end of a line of the log, `... [QHA1203]`, and as \
`event_code` in a line of the log in JSON;
at the end of an error of `qpid-ha`, and as `event_code` in its error with `-o json`; in the \
errors of the [admin socket](admin-socket.md), of
[management](management.md) and of AMQP (`info`). A code keeps its meaning in every version; the \
text around it may change.

<!-- written by `python -m tests.model.messages_page` from qpidha/model/event_codes.py -->
"""


def page() -> str:
    """Return the page as the table has it."""
    parts = [HEAD]
    group = ""
    for row in TABLE.values():
        if row.code[3] != group:
            group = row.code[3]
            parts.append(f"\n## {GROUPS[group]}\n")
        parts.append(
            f"\n### {row.code}\n\n{row.meaning}\n\n* Why: {row.cause}\n* What to do: {row.remedy}\n"
        )
    return "".join(parts).replace("](docs/", "](")


if __name__ == "__main__":
    PAGE.write_text(page())
