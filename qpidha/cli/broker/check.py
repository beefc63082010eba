"""`qpid-ha check` and `qpid-ha lag`: one look at a broker or a cluster, as monitors want it.

Each check is a question with one answer of four: ok, warning, critical, or unknown where nobody
could be asked. Which questions mean what is in docs/checks.md; where the console has an endpoint of
the same name, it means the same. Source: the Nagios plug-in guidelines.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from importlib import import_module
from typing import Annotated, Any

import typer

from qpidha.cli.app import NOT_FOUND, settings_of
from qpidha.client.command.arguments import Options
from qpidha.client.command.ask import Brokers, ask, chosen
from qpidha.client.command.exits import Failure, failures
from qpidha.client.command.output import EPILOG, print_json, print_table, talk
from qpidha.client.command.target import Target
from qpidha.model.broker_states import ACTIVE, PRIMARY_STATES, READY, STANDALONE
from qpidha.model.exit_codes import NO, OK, UNAVAILABLE, USAGE

DAY = 86_400
EXPIRED = 10
"""OpenSSL's number of a certificate whose time is over (X509_V_ERR_CERT_HAS_EXPIRED)."""
LAG_WARN, LAG_CRIT = 10_000, 100_000
"""Records that a backup may be behind."""
CERT_WARN, CERT_CRIT = 30, 7
"""Days that a certificate is good for."""
FORMATS = ("text", "nagios", "json")


class Level(IntEnum):
    """An answer; the numbers are Nagios' exit codes."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3

    @property
    def word(self) -> str:
        """In small letters."""
        return self.name.lower()


WORST = (Level.OK, Level.UNKNOWN, Level.WARNING, Level.CRITICAL)
"""From good to bad: what is known to be wrong says more than what is not known."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of one check."""

    check: str
    level: Level
    text: str
    figures: Mapping[str, str] = field(default_factory=dict)
    """Names and numbers for graphs, in Nagios' form: value, or value;warn;crit."""


class Asked:
    """What checks are asked of: one broker, and the cluster that it is of. Each question is asked
    once.
    """

    def __init__(self, options: Options, name: str, warn: int | None, crit: int | None) -> None:
        self.options = options
        self.name = name
        self.warn = warn
        self.crit = crit
        self.target = chosen(options)
        self._status: dict[str, Any] | None = None
        self._primary: tuple[Target, dict[str, Any]] | None = None

    @property
    def status(self) -> dict[str, Any]:
        """Its status report. Raises Failure."""
        if self._status is None:
            self._status = ask(self.options, "status", target=self.target)
        return self._status

    @property
    def who(self) -> str:
        """What the broker is called."""
        return str(self.status.get("name") or self.status.get("address") or self.target)

    @property
    def is_alone(self) -> bool:
        """Whether it is in no cluster."""
        return bool(self.status["state"] == STANDALONE)

    def primary(self) -> tuple[Target, dict[str, Any]] | None:
        """Return the primary and its status; None if the broker knows none. Raises Failure."""
        if self._primary is None and self.status["state"] in (*PRIMARY_STATES, STANDALONE):
            self._primary = self.target, self.status
        if self._primary is None:
            place = (self.status.get("primary") or {}).get("address", "")
            if not place:
                return None
            target = Brokers(self.options, self.target, self.status).target(place)
            self._primary = target, ask(self.options, "status", target=target)
        return self._primary

    def limits(self, warn: int, crit: int) -> tuple[int, int]:
        """The thresholds that were given; one that was not is this, or the other one."""
        rises = warn <= crit
        found_warn = warn if self.warn is None else self.warn
        found_crit = crit if self.crit is None else self.crit
        if found_warn != found_crit and (found_warn < found_crit) != rises:
            if self.warn is None:
                found_warn = found_crit
            elif self.crit is None:
                found_crit = found_warn
            else:
                raise Failure(
                    USAGE,
                    f"--warn {found_warn} --crit {found_crit} are the wrong way round",
                    hint="what is critical comes after what is a warning",
                )
        return found_warn, found_crit


def add(app: typer.Typer) -> None:
    """Put the commands into the tree."""
    app.command("check", epilog=EPILOG)(_check)
    app.command("lag", epilog=EPILOG)(_lag)


# -- checks ---------------------------------------------------------------------------------------


def _alive(asked: Asked) -> Answer:
    return Answer("alive", Level.OK, f"{asked.who} answers")


def _is_primary(asked: Asked) -> Answer:
    state = asked.status["state"]
    level = Level.OK if state in PRIMARY_STATES else Level.CRITICAL
    return Answer("primary", level, f"{asked.who} is {state}", _epoch(asked))


def _ready(asked: Asked) -> Answer:
    state = asked.status["state"]
    level = Level.OK if state in (ACTIVE, READY, STANDALONE) else Level.WARNING
    return Answer("ready", level, f"{asked.who} is {state}", _epoch(asked))


def _epoch(asked: Asked) -> dict[str, str]:
    return {"epoch": str(asked.status.get("epoch", 0))}


def _no_primary(check: str, asked: Asked) -> Answer:
    return Answer(check, Level.CRITICAL, f"{asked.who} is {asked.status['state']}: no primary")


def _alone(check: str, asked: Asked) -> Answer:
    return Answer(check, Level.OK, f"{asked.who} is in no cluster")


def _synced(asked: Asked) -> Answer:
    found = asked.primary()
    if found is None:
        return _no_primary("synced", asked)
    if asked.is_alone:
        return _alone("synced", asked)
    target, status = found
    others = _others(status)
    ready = [member for member in others if _is_ready(member)]
    safety = ask(asked.options, "statistics", target=target)
    unsafe, waiting = int(safety["unsafe_queues"]), int(safety["unreplicated_messages"])
    missing = "".join(
        f"; {member['name'] or member['address']} is {member['state']}"
        + ("" if member["in_sync"] else ", not in sync")
        for member in others
        if not _is_ready(member)
    )
    level = Level.CRITICAL if not ready else Level.WARNING if missing else Level.OK
    return Answer(
        "synced",
        level,
        f"{status.get('name') or status['address']} {status['state']}, {len(ready)}/{len(others)} "
        f"backups ready, {unsafe:,} unsafe queues{missing}",
        {"ready": str(len(ready)), "unsafe": str(unsafe), "unreplicated": str(waiting)},
    )


def _others(status: dict[str, Any]) -> list[dict[str, Any]]:
    return [each for each in status["members"] if each["system_id"] != status["system_id"]]


def _is_ready(member: dict[str, Any]) -> bool:
    return bool(member["connected"] and member["in_sync"] and member["state"] == READY)


def _quorum(asked: Asked) -> Answer:
    if asked.is_alone:
        return _alone("quorum", asked)
    answers = Brokers(asked.options, asked.target, asked.status).statuses()
    there = sum(not isinstance(answer, Failure) for _, answer in answers)
    needed = len(answers) // 2 + 1
    level = (
        Level.OK if there == len(answers) else Level.WARNING if there >= needed else Level.CRITICAL
    )
    return Answer(
        "quorum",
        level,
        f"{there} of {len(answers)} brokers answer, a majority is {needed}",
        {"answering": str(there), "brokers": str(len(answers))},
    )


def _behind(asked: Asked) -> Answer:
    found = asked.primary()
    if found is None:
        return _no_primary("lag", asked)
    if asked.is_alone:
        return _alone("lag", asked)
    warn, crit = asked.limits(LAG_WARN, LAG_CRIT)
    _, status = found
    rows = _lags(status)
    away = [row for row in rows if row["behind"] is None]
    worst = max((row["behind"] for row in rows if row["behind"] is not None), default=0)
    level = Level.CRITICAL if worst >= crit else Level.WARNING if worst >= warn else Level.OK
    if away:
        level = Level.CRITICAL
    told = "; ".join(
        f"{row['name']} is not connected"
        if row["behind"] is None
        else f"{row['name']} {row['behind']:,} records behind"
        for row in rows
    )
    return Answer("lag", level, told or "no backups", {"lag": f"{worst};{warn};{crit}"})


def _lags(status: dict[str, Any]) -> list[dict[str, Any]]:
    """How many records each backup is behind the primary's log; None if it is not connected."""
    return [
        {
            "name": member["name"] or member["address"],
            "address": member["address"],
            "state": member["state"],
            "in_sync": bool(member["in_sync"]),
            "behind": max(0, status["sequence"] - member["sequence"])
            if member["connected"]
            else None,
        }
        for member in _others(status)
    ]


def _queue(asked: Asked) -> Answer:
    found = asked.primary()
    if found is None:
        return _no_primary("queue", asked)
    target, _ = found
    wanted = {"name": asked.name, "fields": "name messages consumers unreplicated"}
    rows = ask(asked.options, "list_queues", wanted, target=target)
    if not rows:
        return Answer("queue", Level.CRITICAL, f"there is no queue {asked.name}")
    row = rows[0]
    messages, unlimited = int(row["messages"]), 1 << 62
    warn, crit = asked.limits(unlimited, unlimited)
    level = Level.CRITICAL if messages >= crit else Level.WARNING if messages >= warn else Level.OK
    shown = "".join(f";{'' if limit == unlimited else limit}" for limit in (warn, crit))
    return Answer(
        "queue",
        level,
        f"queue {asked.name} has {messages:,} messages and {row['consumers']:,} consumers",
        {"messages": f"{messages}{shown}", "consumers": str(row["consumers"])},
    )


def _disk(asked: Asked) -> Answer:
    found = ask(asked.options, "statistics", target=asked.target)
    if found["refuses"]:
        text = f"{asked.who} takes no messages that are recorded: {found['refuses']}"
        return Answer("disk", Level.CRITICAL, text)
    if found["withholds"]:
        text = f"{asked.who} gives senders no credit: {found['withholds']}"
        return Answer("disk", Level.WARNING, text)
    return Answer("disk", Level.OK, f"{asked.who} has room")


def _cert(asked: Asked) -> Answer:
    target = asked.target
    if not target.encrypted:
        return Answer(
            "cert", Level.UNKNOWN, f"{target} has no TLS: name the port that has, -b amqps://..."
        )
    warn, crit = asked.limits(CERT_WARN, CERT_CRIT)
    with failures():
        clients = import_module("qpidha.client.command.clients")
        context = clients.tls_of(asked.options).context()
    try:
        patience = asked.options.patience()
        with (
            socket.create_connection((target.host, target.port), timeout=patience) as stream,
            context.wrap_socket(stream, server_hostname=target.host) as secure,
        ):
            ends = ssl.cert_time_to_seconds(str((secure.getpeercert() or {})["notAfter"]))
    except ssl.SSLCertVerificationError as error:
        expired = error.verify_code == EXPIRED
        level = Level.CRITICAL if expired else Level.UNKNOWN
        hint = "" if expired else "; --ssl-trusted FILE names who signed it"
        return Answer("cert", level, f"the certificate of {target}: {error.verify_message}{hint}")
    except OSError as error:
        raise Failure(
            UNAVAILABLE, f"{target}: {error.strerror or error}", hint="is a broker there?"
        ) from error
    days = int((ends - time.time()) // DAY)
    level = Level.CRITICAL if days < crit else Level.WARNING if days < warn else Level.OK
    text = f"the certificate of {target} is good for {days:,} days"
    return Answer("cert", level, text, {"days": f"{days};{warn}:;{crit}:"})


CHECKS: dict[str, Callable[[Asked], Answer]] = {
    "alive": _alive,
    "primary": _is_primary,
    "ready": _ready,
    "synced": _synced,
    "quorum": _quorum,
    "lag": _behind,
    "queue": _queue,
    "cert": _cert,
    "disk": _disk,
}
ALL = ("alive", "ready", "synced", "quorum", "lag", "disk")
"""What `all` asks: not which role one broker has, nor of one queue; `cert` where there is TLS."""
WITH_LIMITS = ("lag", "queue", "cert")


def _check(
    context: typer.Context,
    what: Annotated[str, typer.Argument(help=f"{', '.join(CHECKS)} or all")],
    name: Annotated[str, typer.Argument(help="with queue: name of the queue")] = "",
    warn: Annotated[
        int | None, typer.Option(help="a warning from here on: records, messages or days", min=0)
    ] = None,
    crit: Annotated[
        int | None, typer.Option(help="critical from here on: records, messages or days", min=0)
    ] = None,
    format: Annotated[str, typer.Option(help="text, nagios or json")] = "",
) -> None:
    """Answer one question about a broker, or its cluster, for monitors.

    Exit code: 0 ok, 1 not; with --format nagios 0 ok, 1 warning, 2 critical, 3 unknown.

    Example: qpid-ha check all --format nagios
    """
    options = settings_of(context)
    shape = format or options.output
    if shape not in FORMATS:
        raise Failure(
            USAGE, f"--format {shape!r} is not known", hint=f"one of {', '.join(FORMATS)}"
        )
    try:
        answers = _answers(options, what, name, warn, crit)
    except Failure as failure:
        if shape != "nagios":
            raise
        hangs = what in ("alive", "all") and failure.code != USAGE
        level = Level.CRITICAL if hangs else Level.UNKNOWN
        answers = [Answer(what, level, failure.explanation)]
    worst = max((answer.level for answer in answers), key=WORST.index)
    if shape == "nagios":
        print(_nagios(worst, answers))
        raise typer.Exit(int(worst))
    _print_answers(worst, answers, as_json=shape == "json")
    raise typer.Exit(OK if worst is Level.OK else NO)


def _print_answers(worst: Level, answers: list[Answer], *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "schema_version": 1,
                "level": worst.word,
                "checks": [
                    {
                        "check": answer.check,
                        "level": answer.level.word,
                        "text": answer.text,
                        "figures": {
                            key: int(value.partition(";")[0])
                            for key, value in answer.figures.items()
                        },
                    }
                    for answer in answers
                ],
            }
        )
    else:
        print_table(
            ("CHECK", "LEVEL", "TEXT"),
            [[answer.check, answer.level.word, answer.text] for answer in answers],
        )


def _answers(
    options: Options, what: str, name: str, warn: int | None, crit: int | None
) -> list[Answer]:
    if what not in (*CHECKS, "all"):
        raise Failure(
            USAGE, f"there is no check {what!r}", hint=f"one of {', '.join((*CHECKS, 'all'))}"
        )
    if bool(name) != (what == "queue"):
        hint = "check queue NAME" if what == "queue" else f"check {what}"
        raise Failure(USAGE, f"check {what} {'needs' if not name else 'has no'} name", hint=hint)
    if (warn, crit) != (None, None) and what not in WITH_LIMITS:
        raise Failure(
            USAGE, f"check {what} has no --warn and --crit", hint=f"{', '.join(WITH_LIMITS)} have"
        )
    asked = Asked(options, name, warn, crit)
    if what != "all":
        return [CHECKS[what](asked)]
    assert asked.status  # Who does not answer is not asked all the rest.
    names = (*ALL, *(("cert",) if asked.target.encrypted else ()))
    answers = []
    for each in names:
        try:
            answers.append(CHECKS[each](asked))
        except Failure as failure:
            answers.append(Answer(each, Level.UNKNOWN, failure.explanation))
    return answers


def _nagios(worst: Level, answers: list[Answer]) -> str:
    """Write one line: what is wrong comes first, and figures stand behind a bar."""
    ranked = sorted(answers, key=lambda answer: -WORST.index(answer.level))
    told = [answer for answer in ranked if answer.level is not Level.OK] or ranked
    text = "; ".join(f"{answer.check}: {answer.text}" for answer in told).replace("|", "/")
    figures = {key: value for answer in answers for key, value in answer.figures.items()}
    shown = " ".join(f"{key}={value}" for key, value in figures.items())
    line = f"QPIDHA {worst.name} - {' '.join(text.split())}"
    return f"{line} | {shown}" if shown else line


# -- lag ------------------------------------------------------------------------------------------


def _lag(
    context: typer.Context,
    queue: Annotated[
        str, typer.Argument(help="only this queue; default: all that are behind")
    ] = "",
) -> None:
    """Show how far each backup is behind the primary, and which queues have messages that not every
    in-sync broker has yet.

    BEHIND counts records of the log, of which a message that is sent and settled has two.

    Example: qpid-ha lag
    """
    options = settings_of(context)
    asked = Asked(options, "", None, None)
    found = asked.primary()
    if found is None:
        raise Failure(
            NO, f"{asked.who} is {asked.status['state']}, and knows no primary", hint="qpid-ha list"
        )
    target, status = found
    wanted = {"fields": "name messages unreplicated"} | ({"name": queue} if queue else {})
    rows = ask(options, "list_queues", wanted, target=target)
    if queue and not rows:
        raise Failure(
            NO, f"there is no queue {queue}", hint="qpid-ha queue list", condition=NOT_FOUND
        )
    queues = [row for row in rows if queue or row["unreplicated"]]
    backups = [] if asked.is_alone else _lags(status)
    if options.as_json:
        print_json({"schema_version": 1, "backups": backups, "queues": queues})
        return
    if asked.is_alone:
        talk(options, f"{asked.who} is in no cluster")
    heads = ("name", "address", "state", "in_sync", "behind")
    print_table(
        [head.upper().replace("_", " ") for head in heads],
        [[row[head] for head in heads] for row in backups],
    )
    columns = ("name", "messages", "unreplicated")
    if queues:
        print_table(
            ["QUEUE", "MESSAGES", "UNREPLICATED"],
            [[row[column] for column in columns] for row in queues],
        )
