"""What is installed of all that the package can use, and what is missing for which extra: for an
installation that went wrong by half.
"""

from __future__ import annotations

import platform
import re
from importlib import import_module
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Any

from qpidha.client.command.arguments import Options
from qpidha.client.command.output import print_json, print_table, talk
from qpidha.model.exit_codes import NO, OK

PACKAGE = "qpidha"
DEVELOPMENT = ("dev", "docs")
"""Extras for those who change the package."""
REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?\s*([^;]*)(?:;\s*(.*))?")
EXTRA = re.compile(r"extra == ['\"]([^'\"]+)['\"]")


def doctor(options: Options) -> int:
    """Print what is there and what is not; the exit code is 1 if the package lacks what it needs
    always.
    """
    rows: list[dict[str, Any]] = [
        {"name": "python", "for": "everything", "wanted": "", "version": platform.python_version()},
        {"name": "openssl", "for": "TLS", "wanted": "", "version": _openssl()},
        *_requirements(),
    ]
    if options.as_json:
        print_json({"schema_version": 1, "parts": rows})
    else:
        heads = ("NAME", "FOR", "WANTED", "VERSION")
        print_table(
            heads, [[row["name"], row["for"], row["wanted"], row["version"]] for row in rows]
        )
    missing = [row for row in rows if row["version"] is None]
    for extra in dict.fromkeys(str(row["for"]) for row in missing):
        names = ", ".join(str(row["name"]) for row in missing if row["for"] == extra)
        what = PACKAGE if extra == "everything" else f"'{PACKAGE}[{extra}]'"
        talk(options, f"missing for {extra}: {names}. Try: pip install {what}")
    return NO if any(row["for"] == "everything" for row in missing) else OK


def _openssl() -> str | None:
    try:
        found = import_module("ssl").OPENSSL_VERSION
    except ImportError:
        return None
    return str(found).removeprefix("OpenSSL ")


def _requirements() -> list[dict[str, Any]]:
    """List what the package says that it needs, with what is installed of it."""
    rows = []
    for text in _said():
        match = REQUIREMENT.match(text)
        assert match is not None
        name, wanted, marker = match[1], match[2].strip(), match[3] or ""
        extra = EXTRA.search(marker)
        reason = extra[1] if extra else "everything"
        if reason not in DEVELOPMENT:
            rows.append({"name": name, "for": reason, "wanted": wanted, "version": _version(name)})
    return rows


def _said() -> list[str]:
    try:
        return requires(PACKAGE) or []
    except PackageNotFoundError:
        return []


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
