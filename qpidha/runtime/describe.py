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

The broker daemon. It stays in the foreground, unless --daemon is given, and logs to standard error;
SIGTERM or SIGINT ends it. Options come from the command line, else from QPIDHA_<OPTION>, else
QPID_<OPTION> in the environment (dashes as underscores), else from the configuration file
(name=value lines; a qpidd.conf will do). Relative paths begin at the working directory, in a
configuration file at the folder of that file.

Commands:
  --config FILE       Read this file, not /etc/qpidha/qpidha.conf, or where there is none
                      /etc/qpid/qpidd.conf, and /etc/qpidha/conf.d/*.conf.
  -d, --daemon        Serve in the background; return when clients are served, or print why not.
                      What would go to standard error goes to syslog.
  -w, --wait SECONDS  How long a start with --daemon, or an end, may take (600).
  -c                  Print the process id of the broker of this configuration; exit 0 if one runs,
                      else 1.
  -q, --quit          End that broker in good order and wait until it is gone; exit 1 if none runs.
  -k, --kill          End it at once, by SIGKILL.
  --check             Check the configuration and its files, and tell whether a broker of it runs;
                      exit 0 if the configuration is good, else 78. Where this program is called by
                      the name qpidd, --check is -c.
  --from-qpidd FILE   With --check: say line by line what a qpidd.conf and its acl-file mean here;
                      exit 0 if all is the same, 1 if something differs, 78 if it is refused.
  --print-config      Print every option with its value, its source and its purpose.
  -v, --version       Print the version.
  -h, --help          Print this text.
  Further short options are -p (--port), -i (--interface), -t (--trace: log everything) and -m
  (--mgmt-enable, which changes nothing).

Exit codes:
  0   It was asked to stop (SIGTERM, SIGINT, qpid-ha), or a command above is done.
  1   It gave up: the log says why. Of -c, -q and -k: no broker runs.
  65  The write-ahead log or the state file is damaged, or of another broker.
  69  A port, the admin socket, the data directory or the pid file is in use.
  70  An internal error.
  73  A file or directory cannot be made.
  74  The disk failed: the state or the write-ahead log cannot be kept.
  75  A start with --daemon, or an end, took longer than --wait.
  77  A file, directory, port or process is not permitted.
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
