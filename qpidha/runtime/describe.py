"""Describe: help and configuration texts, generated from the options so that they are never
behind.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

from qpidha.model.options import Bool
from qpidha.model.settings import DEFAULTS, FIELD_OF, GROUPS, OPTIONS, Settings

USAGE = """\
Usage: qpidhad [--config FILE] [OPTIONS]

The broker daemon. It stays in the foreground and logs to standard error; SIGTERM or SIGINT ends it.
Options come from the command line, else from QPIDHA_<OPTION>, else QPID_<OPTION> in the environment
(dashes as underscores), else from the configuration file (name=value lines; a qpidd.conf will do).
Relative paths begin at the working directory, in a configuration file at the folder of that file.

Commands:
  --config FILE       Read this file, not /etc/qpidha/qpidha.conf and /etc/qpidha/conf.d/*.conf.
  --check             Check the configuration and its files; exit 0 if all is well, else 78.
  --from-qpidd FILE   With --check: say line by line what a qpidd.conf and its acl-file mean here;
                      exit 0 if all is the same, 1 if something differs, 78 if it is refused.
  --print-config      Print every option with its value, its source and its purpose.
  --version           Print the version.
  --help              Print this text.

Exit codes:
  0   It was asked to stop (SIGTERM, SIGINT, qpid-ha), or a command above is done.
  1   It gave up: the log says why.
  65  The write-ahead log or the state file is damaged, or of another broker.
  69  A port, the admin socket or the data directory is in use.
  70  An internal error.
  73  A file or directory cannot be made.
  74  The disk failed: the state or the write-ahead log cannot be kept.
  77  A file, directory or port is not permitted.
  78  The configuration is wrong, or a file that it names cannot be used.
"""
_WIDTH = 110


def help_text() -> str:
    """All options by group, with range and default."""
    lines = [USAGE]
    for group in GROUPS:
        lines.append(f"{group}:")
        for name, described in OPTIONS.items():
            if described.group != group:
                continue
            default = described.default_text(DEFAULTS[FIELD_OF[name]])
            value = "[yes|no]" if isinstance(described.kind, Bool) else "VALUE"
            lines.append(f"  --{name} {value}")
            text = f"{described.help} Takes {described.kind.accepts}. Default: {default or 'none'}."
            lines.extend(
                textwrap.wrap(text, _WIDTH, initial_indent=" " * 22, subsequent_indent=" " * 22)
            )
        lines.append("")
    return "\n".join(lines) + "\n"


def config_text(settings: Settings, origins: Mapping[str, str]) -> str:
    """A configuration file that gives these settings: defaults are commented out, others say where
    they came from.
    """
    lines = [
        (
            "# Configuration of qpidhad: name=value lines; a comment starts with #. Defaults "
            "are commented out."
        )
    ]
    for group in GROUPS:
        lines += ["", f"## {group}"]
        for name, described in OPTIONS.items():
            if described.group != group:
                continue
            value = getattr(settings, FIELD_OF[name])
            shown = described.kind.show(value)
            if described.secret and value:
                shown = "(secret)"
            lines += [
                "",
                *textwrap.wrap(
                    f"{described.help} Takes {described.kind.accepts}.",
                    _WIDTH,
                    initial_indent="# ",
                    subsequent_indent="# ",
                ),
            ]
            if name in origins:
                lines += [f"# From {origins[name]}.", f"{name}={shown}"]
            elif value != DEFAULTS[FIELD_OF[name]]:
                lines += ["# Follows from other options.", f"{name}={shown}"]
            else:
                lines.append(f"#{name}={shown}")
    return "\n".join(lines) + "\n"


def changed_text(settings: Settings) -> str:
    """The options that differ from their defaults, in one line and without secrets."""
    given = []
    for name, described in OPTIONS.items():
        value = getattr(settings, FIELD_OF[name])
        if value != DEFAULTS[FIELD_OF[name]]:
            given.append(f"{name}={'(secret)' if described.secret else described.kind.show(value)}")
    return " ".join(given) or "all defaults"
