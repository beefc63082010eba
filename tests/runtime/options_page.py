"""Writes docs/options.md from the settings of a broker: `python -m tests.runtime.options_page`."""

from __future__ import annotations

import re
from pathlib import Path

from qpidha.model.settings import DEFAULTS, FIELD_OF, GROUPS, OPTIONS
from qpidha.runtime.describe import USAGE

PAGE = Path(__file__).parents[2] / "docs" / "options.md"
HEAD = """# Options of `qpidhad`

`qpidhad --help` prints what is on this page, `qpidhad --print-config` the same as a \
configuration file with the values in effect and where each comes from.
[operations.md](operations.md#options-to-decide) says which ones to decide.

<!-- written by `python -m tests.runtime.options_page` from qpidha/model/settings.py -->

```output
{usage}
```
"""


def escaped(text: str) -> str:
    """Return a text of an option as it stands in a table."""
    return re.sub(r"([\\`*_<>\[\]|~])", r"\\\1", text)


def page() -> str:
    """Return the page as the settings have it."""
    parts = [HEAD.format(usage=USAGE.strip()).rstrip()]
    for group in GROUPS:
        rows = ["| option | | takes | default |", "|---|---|---|---|"]
        for name, each in OPTIONS.items():
            if each.group == group:
                default = each.default_text(DEFAULTS[FIELD_OF[name]])
                shown = escaped(default) if each.usual else f"`{default}`" if default else ""
                takes, text = escaped(each.kind.accepts), escaped(each.help)
                rows.append(f"| `{name}` | {text} | {takes} | {shown} |")
        parts += [f"## {group}", "\n".join(rows)]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
