"""The command tree: which module has which command, and how its words are parsed.

A call imports the module of its own command and nothing of the others. Wrong words are answered
with the nearest right ones.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any

import typer
from typer.main import get_command

from qpidha.cli.words import (
    COMPLETIONS,
    PROGRAM,
    Named,
    dress,
    nearest,
    same,
    words_of,
    words_of_daemon,
)
from qpidha.client.command.arguments import FLAGS, VALUED, WATCH, Options
from qpidha.client.command.exits import Failure
from qpidha.client.command.output import EPILOG, print_json
from qpidha.model.exit_codes import INTERRUPTED, OK, USAGE

COMMANDS: dict[str, tuple[str, str]] = {
    "ping": ("broker.observe", "succeed if a broker answers"),
    "status": ("broker.observe", "print the state of a broker, or with --all of all brokers"),
    "query": ("broker.observe", "print the HA configuration"),
    "list": ("broker.observe", "show the members of the cluster"),
    "top": ("broker.top", "show what a cluster does, live"),
    "events": (
        "broker.events",
        "show what happened on all brokers, and with --follow what happens",
    ),
    "history": ("broker.events", "show which broker was primary in which epoch, and why"),
    "wait": ("broker.observe", "wait for a condition, such as --for state=ready"),
    "check": (
        "broker.check",
        "answer one question for monitors, such as synced, lag or disk; also as a Nagios plug-in",
    ),
    "lag": ("broker.check", "show how far backups are behind"),
    "methods": ("broker.observe", "list the management methods of a broker, or explain one"),
    "switchover": ("broker.operate", "move the primary role to a backup without losing messages"),
    "failover": (
        "broker.operate",
        "promote the best backup now, because the primary does not work",
    ),
    "recover": (
        "broker.operate",
        "compare the brokers after a total failure, and promote the best",
    ),
    "demote": ("broker.operate", "make the primary step down"),
    "set": (
        "broker.operate",
        "have brokers tell clients another public address (--public-url), until they stop",
    ),
    "reload": (
        "broker.operate",
        "have a broker read its users, acl-file, certificates and log options again",
    ),
    "promote": ("broker.operate", "promote a broker (with --cluster-manager)"),
    "journal": (
        "broker.journal",
        "inspect the log files of a stopped broker: verify, dump, list, salvage, compact",
    ),
    "local": (
        "clusters.local",
        "run a cluster on this machine: up, status, kill, restart, logs, down",
    ),
    "pacemaker": (
        "clusters.pacemaker",
        "run a cluster under Pacemaker: plan, setup, status, verify, maintenance, install-agents",
    ),
    "demo": ("verification.demo", "break a cluster under load and count what was lost"),
    "verify": ("verification.verify", "run clients under faults, and write everything down: run"),
    "bench": ("verification.bench", "measure throughput and latency"),
    "send": ("broker.messages", "send messages"),
    "receive": ("broker.messages", "receive messages"),
    "queue": ("broker.objects", "manage queues: add, del, list, show, peek, move, requeue, purge"),
    "exchange": ("broker.objects", "manage exchanges: add, del, list, show"),
    "connection": ("broker.connections", "manage the connections of a broker: list, close"),
    "session": ("broker.connections", "look at the sessions of connections: list"),
    "subscription": ("broker.connections", "look at who consumes from which queue: list"),
    "bind": ("broker.objects", "bind a queue to an exchange"),
    "unbind": ("broker.objects", "remove a binding"),
    "user": ("broker.users", "manage the users of a users file: add, del, list, import"),
    "context": (
        "broker.contexts",
        "give brokers, user and TLS files a name to be used without -b: set, list, use, delete",
    ),
    "policy": (
        "broker.policies",
        "settings for queues and exchanges by their names: set, list, clear, explain, patch, "
        "drop-keys, override",
    ),
    "operator-policy": (
        "broker.policies",
        "settings that come before what queues, exchanges and policies ask for: set, list, clear",
    ),
    "link": ("broker.links", "manage links to other brokers and clusters: add, list, del"),
    "route": ("broker.links", "manage routes, which move messages over links: add, list, del"),
    "definitions": (
        "broker.definitions",
        "queues, exchanges, bindings and policies in a file, and from a file: export, import",
    ),
    "migrate": (
        "broker.migrate",
        "move queues and their messages from RabbitMQ, Qpid or another broker to a cluster",
    ),
    "replicate": (
        "broker.replicas",
        "keep a replica of a queue of another broker, without a cluster",
    ),
    "replica": (
        "broker.replicas",
        "look at replicas of queues elsewhere, and end them: list, stop",
    ),
    "acl": ("broker.acl", "look at the rules of who may do what: check, show, reload"),
    "pipeline": (
        "verification.pipeline",
        "judge and report what clients and brokers wrote: check, report, "
        "ingest, watch, submit, generate, doctor",
    ),
    "vip": ("clusters.vip", "manage virtual addresses of this machine: add, remove, show"),
    "rgmanager": ("clusters.rgmanager", "run a cluster under rgmanager: plan, install-scripts"),
    "report": (
        "broker.report",
        "gather what somebody needs who helps: configuration, status, logs; no secrets",
    ),
    "completion": ("app", "print a completion script for a shell"),
    "version": ("app", "print the version"),
    "help": ("app", "print this list"),
}
"""Command -> (module, what it does)."""
GROUPS = (
    "local",
    "pacemaker",
    "journal",
    "queue",
    "exchange",
    "connection",
    "session",
    "subscription",
    "user",
    "context",
    "policy",
    "operator-policy",
    "link",
    "route",
    "replica",
    "definitions",
    "acl",
    "vip",
    "rgmanager",
    "pipeline",
    "verify",
)
"""Commands that have commands of their own."""
LISTS = (
    "list",
    "events",
    "history",
    "methods",
    "queue list",
    "exchange list",
    "connection list",
    "session list",
    "subscription list",
    "policy list",
    "operator-policy list",
    "link list",
    "route list",
    "replica list",
    "user list",
    "context list",
)
"""Commands that print rows, in all forms that rows have."""
WATCHED = ("status", "query", "lag", "check", "queue show", "exchange show", "local status")
"""Other commands that can be repeated."""
SHOWN_AGAIN = ("top",)
"""Commands that repeat themselves, as often as --watch says."""
USAGES = {"pipeline": 3}
"""Command -> exit code for wrong words, where 2 is a verdict."""
GONE = {
    "ready": "qpid-ha status --expect ready tests it, qpid-ha wait --for state=ready waits for it"
}
"""Commands of Qpid and RabbitMQ that are not offered, and what to do instead."""
MANAGER_COMMANDS = ("promote",)
"""Commands that only a cluster resource manager should use; historic: shown and allowed with
--cluster-manager.
"""
NOT_FOUND = "amqp:not-found"
"""Condition of the failure to find what a command line names."""
QPID_TOOLS = (
    "qpid-config",
    "qpid-printevents",
    "qpid-receive",
    "qpid-route",
    "qpid-send",
    "qpid-stat",
)
"""Programs of Qpid that are in qpidha/tools, for completion."""
COMMON = [word for word in (*VALUED, *FLAGS, *WATCH) if word.startswith("--")]
"""Options of every command."""
WIDEST = 120
"""Columns that help takes on a wide terminal."""
OPTIONS_HELP = """Options of every command, before or after it:
  -b, --broker ADDR        host:port, amqp://user:password@host:port, an admin socket's path,
                           or b1, b2, ... of the local cluster; several with commas: the
                           primary among them is asked, else the first that answers
  --config FILE            take port, login, TLS files, brokers and admin socket from a qpidd.conf
  --context NAME           a target of qpid-ha context set, in place of the one of context use
  --timeout SECONDS        how long to wait for an answer (10; 0 is for ever)
  --user NAME, --password-file FILE
                           or QPIDHA_USER and QPIDHA_PASSWORD in the environment; a password that
                           is given nowhere is asked for; --password can be seen by others
  --sasl-mechanism MECHANISM, --sasl-service-name NAME
                           GSSAPI shows a ticket of Kerberos; the service is amqp, at the host of -b
  --ssl-trusted, --ssl-certificate, --ssl-key, --ssl-key-password-file
  -o, --output text|json   form of the data on standard output; of lists also wide, jsonl, csv,
                           name
  --sort COLUMN            of lists: sort by a column, or by a field that -o json has; with -
                           before it from the end
  --no-headers             of lists: rows alone
  -w, --watch[=SECONDS]    of what only reads: show it again every 2 seconds
  -q, --quiet    -v, --verbose    --cluster-manager
Exit codes: 0 done or true, 1 false or refused, 2 usage, 65 bad data, 66 no input,
69 not reachable, or in use, 70 internal error, 73 cannot be made, 74 output not written,
75 timed out, 77 not permitted, 78 bad configuration, 107 messages may be lost, 130 interrupted."""


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
    if words[0] in ("help", "--help", "-h", "-help"):
        words = [*words[1:], "--help"]
    if words == ["--version"]:
        words = ["version"]
    name = words[0]
    if name not in COMMANDS:
        raise _unknown(name)
    if not {"-h", "--help"} & {*words}:
        _check_forms(options, words)
    if words in ([group] for group in GROUPS):
        with redirect_stdout(sys.stderr):
            _invoke(_app([COMMANDS[name][0]]), options, [name, "--help"])
        return USAGES.get(name, USAGE)
    app = _app([COMMANDS[name][0]])
    if options.watch is None or name in SHOWN_AGAIN:
        return _invoke(app, options, words)
    watch = import_module("qpidha.cli.screen").watch
    title = f"qpid-ha {' '.join(words)}"
    code: int = watch(options, title, lambda: _invoke(app, options, words), seconds=options.watch)
    return code


def _check_forms(options: Options, words: list[str]) -> None:
    """Refuse what a command cannot do with its output. Raises Failure."""
    command = _of_list(words)
    if options.for_lists and command not in LISTS:
        raise Failure(
            USAGE,
            f"{options.for_lists} is for lists",
            hint=f"-o json, or one of {', '.join(LISTS)}",
        )
    if options.watch is not None and command not in (*LISTS, *WATCHED, *SHOWN_AGAIN):
        hint = f"one of {', '.join((*SHOWN_AGAIN, *WATCHED, *LISTS))}"
        raise Failure(USAGE, f"--watch is for what only reads: not for {command}", hint=hint)


def _of_list(words: list[str]) -> str:
    """The command, and the subcommand if it has some."""
    return " ".join(words[: 2 if words[0] in GROUPS else 1])


def overview(options: Options) -> str:
    """List the commands."""
    shown = {
        name: what
        for name, (_, what) in COMMANDS.items()
        if options.cluster_manager or name not in MANAGER_COMMANDS
    }
    width = max(map(len, shown))
    lines = [f"  {name:<{width}}  {what}" for name, what in shown.items()]
    return "\n".join(
        ["usage: qpid-ha [options] COMMAND [arguments]", "", "Commands:", *lines, "", OPTIONS_HELP]
    )


def _app(modules: Sequence[str]) -> typer.Typer:
    names = {"help_option_names": ["-h", "--help"], "max_content_width": WIDEST}
    app = typer.Typer(
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings=names,
    )
    app.callback()(_group)
    for module in modules:
        import_module(f"qpidha.cli.{module}").add(app)
    return app


def _group() -> None:
    """Active-passive, hot-standby AMQP 1.0 broker cluster."""


def _invoke(app: typer.Typer, options: Options, words: list[str]) -> int:
    command = get_command(app)
    dress(command)
    try:
        code = command.main(args=words, prog_name="qpid-ha", standalone_mode=False, obj=options)
    except typer.Abort:
        return INTERRUPTED
    except Failure as failure:
        if failure.condition == NOT_FOUND:
            near = import_module("qpidha.cli.names").meant(options, words, _command_named)
            failure.hint = f"did you mean {near}? {failure.hint}" if near else failure.hint
        raise
    except SystemExit as end:
        # What the parser makes of a reader that has enough: `main` makes it no error.
        raise BrokenPipeError from end
    except Exception as error:
        # The parser's own exceptions say what was wrong with the words; all others go on.
        message = getattr(error, "format_message", None)
        if message is None:
            raise
        text, _, near = _plain(str(message())).partition(" Did you mean ")
        word = text.rpartition(" ")[2]
        if not near and word.startswith("--"):
            # The parser knows the options of the command alone.
            common = nearest(word, COMMON)
            near = f"{common}?" if common else ""
        meant = same(word.strip("'."), getattr(_command_of(error), "commands", {}))
        near = f"'{meant}'?" if meant else near
        hint = f"did you mean {near} " if near else ""
        raise Failure(
            USAGES.get(words[0], USAGE), text.rstrip("."), hint=hint + _advice(error, words)
        ) from error
    return code if isinstance(code, int) else OK


def _help_all(options: Options) -> int:
    """Print the help of every command, and of the commands of groups."""
    print(overview(options))
    for name in COMMANDS:
        if name != "help" and (options.cluster_manager or name not in MANAGER_COMMANDS):
            app = _app([COMMANDS[name][0]])
            group: Any = get_command(app)
            of_group = getattr(group.commands[name], "commands", {})
            for words in ([name], *([name, one] for one in of_group)):
                print()
                _invoke(app, options, [*words, "--help"])
    return OK


def _unknown(name: str) -> Failure:
    if name.startswith("-"):
        known, what = [*COMMON, "--help"], "option"
    elif name in GONE:
        return Failure(USAGE, f"there is no command {name!r}", hint=GONE[name])
    else:
        known, what = list(COMMANDS), "command"
    near = nearest(name, known)
    hint = f"did you mean {near}?" if near else "qpid-ha help"
    return Failure(USAGE, f"there is no {what} {name!r}", hint=hint)


def _advice(error: Exception, words: list[str]) -> str:
    group = _command_of(error)
    if words[0] in GROUPS and getattr(group, "name", "") == words[0]:
        return f"qpid-ha {words[0]} with one of {', '.join(getattr(group, 'commands', {}))}"
    return f"qpid-ha {_command_words(words)}--help"


def _command_of(error: Exception) -> Any:
    """The command, or group, of which the parser speaks."""
    return getattr(getattr(error, "ctx", None), "command", None)


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


def add_group(
    app: typer.Typer, name: str, text: str, commands: Mapping[str, Callable[..., Any]]
) -> None:
    """Put a word into the tree that has commands of its own, with what its help says."""
    group = typer.Typer(help=text, epilog=EPILOG, no_args_is_help=True)
    for word, command in commands.items():
        group.command(word, epilog=EPILOG)(command)
    app.add_typer(group, name=name)


def add(app: typer.Typer) -> None:
    """Put the commands into the tree."""
    app.command("version", epilog=EPILOG)(_version)
    app.command("completion", epilog=EPILOG)(_completion)


def _version(
    context: typer.Context,
    doctor: Annotated[
        bool, typer.Option("--doctor", help="look for what is missing or wrong, instead")
    ] = False,
) -> None:
    """Print the version of qpidha.

    With --doctor it shows what is installed, and what is missing for which extra; then it looks at
    this machine, for each broker of the contacted cluster that runs here, or for the one of
    --config: limits of open files and memory, swap, the disk of data-dir and the time of its syncs,
    the clock and how far those of the members are apart, ports and who has them, how proton was
    built. Each line is ok, warning or error, with what to do. The exit code is 1 if there is an
    error, or if something is missing that is always needed.

    Example: qpid-ha version --doctor
    """
    if doctor:
        raise typer.Exit(import_module("qpidha.cli.doctor").doctor(settings_of(context)))
    try:
        found = version("qpidha")
    except PackageNotFoundError:
        found = "unknown"
    if settings_of(context).as_json:
        print_json({"schema_version": 1, "version": found})
    else:
        print(f"qpid-ha (qpidha) {found}")


def _completion(
    context: typer.Context,
    shell: Annotated[str, typer.Argument(help="bash, zsh or fish; names: what the scripts ask")],
    line: Annotated[str, typer.Argument(help="for names: the command line up to the cursor")] = "",
) -> None:
    """Print a completion script for bash, zsh or fish, for qpid-ha, qpidhad and Qpid's tools.

    For qpid-ha the scripts ask a broker for the names of queues, exchanges and brokers. It has a
    second to answer; without an answer only commands and options are completed.

    Example: qpid-ha completion bash > /etc/bash_completion.d/qpid-ha
    """
    names = import_module("qpidha.cli.names")
    if shell == "names":
        found = names.names_at(line, _command_named)
        print("".join(f"{name}\n" for name in found), end="")
        return
    if shell not in COMPLETIONS:
        hint = f"one of {', '.join(COMPLETIONS)}"
        raise Failure(USAGE, f"no completion for {shell!r}", hint=hint)
    shown = [
        name
        for name in COMMANDS
        if settings_of(context).cluster_manager or name not in MANAGER_COMMANDS
    ]
    tree = {PROGRAM: [*shown, *COMMON]}
    for name in shown:
        command = _command_named(name)
        if command is not None:
            tree |= words_of(command, f"{PROGRAM} {name}", COMMON)
    tree["qpidhad"] = words_of_daemon()
    for program in QPID_TOOLS:
        tree |= _words_of_tool(program)
    named = [f"{PROGRAM} {command}" for command in names.ARGUMENTS]
    print(COMPLETIONS[shell](tree, Named(named, [*names.VALUES])))


def _words_of_tool(program: str) -> dict[str, list[str]]:
    """What may follow one of Qpid's tools, and each command of it."""
    tool = import_module(f"qpidha.tools.{program.replace('-', '_')}")
    groups = tool.make_parser().option_groups
    options = [each.get_opt_string() for group in groups for each in group.option_list]
    options.append("--help")
    found = {program: options}
    for path, words in getattr(tool, "FOLLOWING", {}).items():
        at = f"{program} {path}".strip()
        found |= {f"{at} {word}": options for word in words}
        found[at] = [*words, *options]
    return found


def _command_named(name: str) -> Any:
    """Return a command of the tree, or None."""
    if name not in COMMANDS:
        return None
    command: Any = get_command(_app([COMMANDS[name][0]]))
    return command.commands.get(name)
