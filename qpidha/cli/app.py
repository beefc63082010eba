"""The command tree: which module has which command, and how its words are parsed.

A call imports the module of its own command and nothing of the others. Wrong words are answered with the nearest right ones.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import typer
from typer.main import get_command

from qpidha.cli.arguments import FLAGS, VALUED, Options
from qpidha.cli.exits import INTERRUPTED, OK, USAGE, Failure

COMMANDS: dict[str, tuple[str, str]] = {
    "ping": ("observe", "succeed if a broker answers"),
    "status": ("observe", "print the state of a broker, or with --all of all brokers"),
    "query": ("observe", "print the HA configuration"),
    "list": ("observe", "show the members of the cluster"),
    "wait": ("observe", "wait for a condition, such as --for state=ready"),
    "switchover": ("operate", "hand the part of the primary over to a backup, losing nothing"),
    "failover": ("operate", "have the best backup take over now, because the primary is ill"),
    "recover": ("operate", "compare what the brokers have after a total failure"),
    "demote": ("operate", "make a primary step down"),
    "promote": ("operate", "make a broker the primary (with --cluster-manager)"),
    "journal": ("journal", "the journal of a stopped broker: verify, dump, list, salvage, compact"),
    "local": ("local", "a cluster on this machine: up, status, kill, restart, logs, down"),
    "pacemaker": ("pacemaker", "a cluster under Pacemaker: plan, setup, status, verify, maintenance, install-agents"),
    "demo": ("demo", "break a cluster under load and count what was lost"),
    "verify": ("verify", "run: clients that write everything down, under faults"),
    "bench": ("bench", "measure throughput and latency"),
    "send": ("messages", "send messages"),
    "receive": ("messages", "receive messages"),
    "queue": ("objects", "queues: add, del, list, purge"),
    "exchange": ("objects", "exchanges: add, del, list"),
    "bind": ("objects", "bind a queue to an exchange"),
    "unbind": ("objects", "remove a binding"),
    "user": ("users", "users of a users file: add, del, list"),
    "pipeline": (
        "pipeline",
        "verdicts, tables and reports from histories and journals: check, report, ingest, watch, submit, generate, doctor",
    ),
    "vip": ("vip", "a virtual address of this machine: add, remove, show"),
    "rgmanager": ("rgmanager", "a cluster under rgmanager: plan, install-scripts"),
    "completion": ("misc", "print a completion script for a shell"),
    "version": ("misc", "print the version"),
    "help": ("misc", "this list"),
}
"""Command -> (module, what it does)."""
GROUPS = ("local", "pacemaker", "journal", "queue", "exchange", "user", "vip", "rgmanager", "pipeline", "verify")
"""Commands that have commands of their own."""
USAGES = {"pipeline": 3}
"""Command -> exit code for wrong words, where 2 is a verdict."""
MANAGER_COMMANDS = ("promote",)
"""Commands that only a cluster resource manager should use; historic: shown and allowed with --cluster-manager."""
OPTIONS_HELP = """Options of every command, before or after it:
  -b, --broker ADDR        host:port, amqp://user:password@host:port, an admin socket's path, or b1, b2, ... of the local cluster
  --config FILE            take port, credentials and admin socket from a qpidd.conf
  --timeout SECONDS        how long to wait for an answer (10; 0 is for ever)
  --user, --password, --sasl-mechanism, --ssl-certificate, --ssl-key, --ssl-trusted
  -o, --output text|json   form of the data on standard output
  -q, --quiet    -v, --verbose    --cluster-manager
Exit codes: 0 done or true, 1 false or refused, 2 usage, 65 bad data, 66 no input, 69 not reachable, 70 our mistake,
75 timed out, 77 not permitted, 78 bad configuration, 107 unsafe, 130 interrupted."""


def run(options: Options, words: list[str]) -> int:
    """Run the command that the words name."""
    if not words:
        print(overview(options), file=sys.stderr)
        return USAGE
    if words[0] in ("help", "--help", "-h", "-help") and len(words) == 1:
        print(overview(options))
        return OK
    if words[0] in ("help-all", "--help-all"):
        return _help_all(options)
    if words[0] == "help":
        words = [*words[1:], "--help"]
    if words == ["--version"]:
        words = ["version"]
    name = words[0]
    if name not in COMMANDS:
        raise _unknown(name)
    if words in ([group] for group in GROUPS):
        with redirect_stdout(sys.stderr):
            _invoke(_app([COMMANDS[name][0]]), options, [name, "--help"])
        return USAGES.get(name, USAGE)
    return _invoke(_app([COMMANDS[name][0]]), options, words)


def overview(options: Options) -> str:
    """List the commands."""
    shown = {name: what for name, (_, what) in COMMANDS.items() if options.cluster_manager or name not in MANAGER_COMMANDS}
    lines = [f"  {name:<11} {what}" for name, what in shown.items()]
    return "\n".join(["usage: qpid-ha [options] COMMAND [arguments]", "", "Commands:", *lines, "", OPTIONS_HELP])


def _app(modules: Sequence[str]) -> typer.Typer:
    names = {"help_option_names": ["-h", "--help"]}
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None, context_settings=names)
    app.callback()(_group)
    for module in modules:
        import_module(f"qpidha.cli.command_{module}").add(app)
    return app


def _group() -> None:
    """Active-passive, hot-standby AMQP 1.0 broker cluster."""


def _invoke(app: typer.Typer, options: Options, words: list[str]) -> int:
    try:
        code = get_command(app).main(args=words, prog_name="qpid-ha", standalone_mode=False, obj=options)
    except typer.Abort:
        return INTERRUPTED
    except Exception as error:
        # The parser's own exceptions say what was wrong with the words; all others go on.
        message = getattr(error, "format_message", None)
        if message is None:
            raise
        raise Failure(USAGES.get(words[0], USAGE), _plain(str(message())), hint=_advice(error, words)) from error
    return code if isinstance(code, int) else OK


def _help_all(options: Options) -> int:
    print(overview(options))
    for name in COMMANDS:
        if name != "help" and (options.cluster_manager or name not in MANAGER_COMMANDS):
            print()
            _invoke(_app([COMMANDS[name][0]]), options, [name, "--help"])
    return OK


def _unknown(name: str) -> Failure:
    if name.startswith("-"):
        known = [*(word for word in (*VALUED, *FLAGS) if word.startswith("--")), "--help"]
        what = "option"
    else:
        known, what = list(COMMANDS), "command"
    near = get_close_matches(name, known, 1, 0.5)
    hint = f"did you mean {near[0]}?" if near else "qpid-ha help"
    return Failure(USAGE, f"there is no {what} {name!r}", hint=hint)


def _advice(error: Exception, words: list[str]) -> str:
    group = getattr(getattr(error, "ctx", None), "command", None)
    if words[0] in GROUPS and getattr(group, "name", "") == words[0]:
        return f"qpid-ha {words[0]} with one of {', '.join(getattr(group, 'commands', {}))}"
    return f"qpid-ha {_command_words(words)}--help"


def _command_words(words: list[str]) -> str:
    """The command and subcommand, for a hint."""
    kept: list[str] = []
    for word in words[:2]:
        if word.startswith("-") or (kept and kept[0] not in GROUPS):
            break
        kept.append(word)
    return " ".join(kept) + " " if kept else ""


def _plain(message: str) -> str:
    text = " ".join(message.split()).rstrip(".")
    return text[:1].lower() + text[1:]


def settings_of(context: Any) -> Options:
    """The global options of a call."""
    options: Options = context.obj
    return options
