"""Contexts: targets with names, in one small file of the user's, so that nobody types addresses,
users and certificates again and again.

A context has what common options say, and no password: it names the file of one. It counts where a
command line names no broker. Options of the command line come before what it says, and a password
file goes with its own user alone.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from importlib import import_module

from qpidha.client.command.arguments import Options
from qpidha.client.command.exits import Failure
from qpidha.model.exit_codes import CONFIG, IO_ERROR, USAGE

CONTEXT = "QPIDHA_CONTEXT"
"""Variable of the environment."""
FIELDS = (
    "broker",
    "config",
    "user",
    "password_file",
    "sasl_mechanism",
    "sasl_service_name",
    "ssl_trusted",
    "ssl_certificate",
    "ssl_key",
    "ssl_key_password_file",
)
"""Common options that a context may have."""
HINT = "qpid-ha context list"


@dataclass(slots=True)
class Contexts:
    """What is in the file."""

    current: str = ""
    """The one that counts where none is named; empty if none does."""
    known: dict[str, dict[str, str]] = field(default_factory=dict)

    def named(self, name: str) -> dict[str, str]:
        """Return a context. Raises Failure if there is none of that name."""
        if name in self.known:
            return self.known[name]
        # Loaded late: all calls come here, and some have to be quick.
        near = import_module("difflib").get_close_matches(name, self.known, 1)
        hint = f"did you mean {near[0]}? {HINT}" if near else HINT
        raise Failure(USAGE, f"there is no context {name!r}", hint=hint)


def contexts_file() -> str:
    """Return the path of the file."""
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return os.path.join(base, "qpidha", "contexts.json")


def read_contexts() -> Contexts:
    """Read the file; one that is not there has no contexts. Raises Failure."""
    path = contexts_file()
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
        known = {str(name): _context(fields) for name, fields in found["contexts"].items()}
        current = str(found["current"])
    except (FileNotFoundError, NotADirectoryError):
        return Contexts()
    except OSError as error:
        raise Failure(CONFIG, f"cannot read {path}: {error.strerror}", hint="or -b ADDR") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Failure(
            CONFIG,
            f"{path} is damaged",
            reason=str(error),
            hint="move it away, and qpid-ha context set NAME -b ADDR; or -b ADDR",
        ) from error
    return Contexts(current, known)


def _context(fields: dict[str, str]) -> dict[str, str]:
    for name, value in fields.items():
        if name not in FIELDS or not isinstance(value, str):
            raise ValueError(f"{name!r} is no field of a context, or has no text")
    return dict(fields)


def write_contexts(contexts: Contexts) -> None:
    """Write the file, for this user alone. Raises Failure."""
    path = contexts_file()
    text = json.dumps({"current": contexts.current, "contexts": contexts.known}, indent=2)
    new = f"{path}.new"
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(f"{text}\n")
        os.replace(new, path)
    except OSError as error:
        raise Failure(
            IO_ERROR,
            f"cannot write {path}: {error.strerror}",
            hint="XDG_CONFIG_HOME names another directory",
        ) from error


def use_context(options: Options) -> None:
    """Let options say what a context says, where it counts. Raises Failure."""
    if options.broker or options.config:
        if options.context:
            named = "-b" if options.broker else "--config"
            hint = "leave one out: the login of a context is for its own brokers"
            raise Failure(USAGE, f"--context and {named} exclude each other", hint=hint)
        return
    name = options.context or os.environ.get(CONTEXT, "")
    # Programs that manage a cluster, and who names a local cluster, mean no cluster by chance.
    if not name and (options.cluster_manager or os.environ.get("QPIDHA_DIR")):
        return
    contexts = read_contexts()
    name = name or contexts.current
    if not name:
        return
    context = contexts.named(name)
    is_other = bool(options.user) and options.user != context.get("user")
    for each, value in context.items():
        if each == "password_file" and (is_other or options.password):
            continue
        if not getattr(options, each):
            setattr(options, each, value)
