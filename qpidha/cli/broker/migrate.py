"""`qpid-ha migrate`: queues and their messages from another broker to a cluster, over AMQP 1.0.

How messages go is in tools/migration.py. Here is who is asked for what: the queues and counts of
both sides, the logins of both sides, and what an operator is told.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from getpass import getpass
from http.client import HTTPException
from typing import Annotated, Any, TypeVar, cast
from urllib.parse import quote, urlsplit

import typer

from qpidha.cli.app import settings_of
from qpidha.cli.broker.definitions import primary_link
from qpidha.cli.broker.messages import amqp_targets
from qpidha.client.aio import Client
from qpidha.client.command.arguments import Options
from qpidha.client.command.ask import BrokerLink, ask_primary
from qpidha.client.command.clients import endpoints_of, tls_of
from qpidha.client.command.exits import Failure, failure_of, failures
from qpidha.client.command.output import EPILOG, print_json, print_table, talk
from qpidha.client.command.passwords import read_password
from qpidha.client.endpoint import Endpoint, Tls, parse_endpoints
from qpidha.client.errors import ClientError, LinkError, LoginError, TlsError
from qpidha.client.management import AmqpManagement
from qpidha.model.errors import RefusedRequest
from qpidha.model.exit_codes import DATA_ERROR, NO, NO_INPUT, NO_PERMISSION, OK, UNAVAILABLE, USAGE
from qpidha.tools.definitions import (
    Definition,
    Kind,
    Outcome,
    Present,
    carry_out,
    exported,
    planned,
)
from qpidha.tools.migration import NOTE_ARGUMENTS, NOTES, CannotMove, Count, Mover, note_queue
from qpidha.tools.rabbitmq_definitions import read as read_rabbitmq

T = TypeVar("T")
HEARTBEAT = 10.0
PATIENCE = 60.0
"""Seconds that one side may be away."""
TOLD_EVERY = 2.0
"""Seconds between two words on how far it came."""
HTTP_TIMEOUT = 20.0
MOST_REASONS = 10
"""Refused messages whose reason is shown."""
AT_A_TIME = 8
"""Queues that are moved at a time, each over connections of its own: for each it has to wait until
the source is silent.
"""
DELAYED = 10.0
"""Seconds by which the counts of RabbitMQ's management may be late."""
HEADS = ("QUEUE", "AT SOURCE", "MOVED", "KNOWN", "PERHAPS TWICE", "REFUSED", "LEFT", "HERE", "NOW")


def add(app: typer.Typer) -> None:
    """Put the command into the tree."""
    app.command("migrate", epilog=EPILOG)(_migrate)


@dataclass(slots=True)
class Row:
    """A queue: how many messages were where, and what was done."""

    queue: str
    source_before: int | None = None
    source_after: int | None = None
    target_before: int | None = None
    target_after: int | None = None
    exists: bool = False
    """Whether the target has such a queue."""
    count: Count = field(default_factory=Count)

    is_silent: bool = False
    """Whether the source sends no more, and has more."""

    def fields(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        count = self.count
        return {
            "queue": self.queue,
            "source_before": self.source_before,
            "moved": count.moved_now,
            "moved_in_all": count.moved,
            "known": count.known,
            "perhaps_twice": count.perhaps_twice,
            "refused": len(count.refused),
            "source_after": self.source_after,
            "target_before": self.target_before,
            "target_after": self.target_after,
            "done": count.is_done,
        }

    def cells(self) -> list[object]:
        """Return it as the table has it."""
        fields = self.fields()
        names = ("source_before", "moved", "known", "perhaps_twice", "refused", "source_after")
        return [self.queue, *(fields[name] for name in (*names, "target_before", "target_after"))]


class Source:
    """The broker that messages come from, as far as its management can be asked."""

    def __init__(self, options: Options, endpoints: list[Endpoint], tls: Tls, http: str) -> None:
        self._options = options
        self._endpoints = endpoints
        self._tls = tls
        self._http = http
        self.is_ours = False
        """Whether it has the management of this product."""
        self.form = "QUEUE"
        """The address of a queue there."""
        self.drains = True
        """Whether it says when it has no more."""
        self.name = f"{endpoints[0].host}:{endpoints[0].port}"
        """What the notes of a migration know it by."""

    def meet(self, properties: dict[Any, Any], form: str) -> None:
        """Learn what broker it is."""
        product, version = str(properties.get("product")), str(properties.get("version"))
        self.is_ours = "qpidha.system-id" in properties
        self.name = str(properties.get("cluster_name") or self.name)
        # Its session fails when a classic queue is drained.
        self.drains = product != "RabbitMQ" or not version.startswith("3.")
        if form:
            self.form = form
        elif self.is_ours or (product == "RabbitMQ" and not version.startswith("3.")):
            self.form = "/queues/QUEUE"
        elif product == "RabbitMQ":
            self.form = "/amq/queue/QUEUE"

    @property
    def is_known(self) -> bool:
        """Whether it can say which queues it has."""
        return self.is_ours or bool(self._http)

    def address(self, queue: str) -> str:
        """Return the address of a queue there. Raises CannotMove if it can have none."""
        name = queue
        if self.form.startswith("/queues/"):
            name = quote(queue, safe="")
        elif self.form.startswith("/amq/"):
            if not queue.isascii():
                raise CannotMove(
                    f"RabbitMQ 3 finds no queue {queue} by its address in AMQP 1.0",
                    hint="first move its messages there to a queue whose name is ASCII",
                )
            name = queue.replace("/", "%2F")  # It knows no other escape.
        return self.form.replace("QUEUE", name)

    def depths(self, vhost: str) -> dict[str, int]:
        """Count the messages of every queue; empty if nobody can be asked."""
        if self.is_ours:
            rows = self._ask("list_queues")
        elif self._http:
            place = f"/api/queues/{quote(vhost, safe='')}?columns=name,messages"
            rows = self._get(place, vhost=vhost)
        else:
            return {}
        return {str(row["name"]): int(row.get("messages") or 0) for row in rows}

    def passing(self, vhost: str) -> set[str]:
        """Name the queues that were made for one connection, link or route."""
        if self.is_ours:
            lasting = {one.name for one in self.definitions(vhost)}
            return self.depths(vhost).keys() - lasting
        place = f"/api/queues/{quote(vhost, safe='')}?columns=name,exclusive"
        rows = self._get(place, vhost=vhost)
        # The server names queues of subscribers, which AMQP 1.0 does not make exclusive.
        return {
            row["name"] for row in rows if row.get("exclusive") or row["name"].startswith("amq.")
        }

    def definitions(self, vhost: str) -> list[Definition]:
        """Return the queues that it has; empty if nobody can be asked."""
        if self.is_ours:
            found, _ = self._exported()
        elif self._http:
            try:
                found = read_rabbitmq(json.dumps(self._get("/api/definitions")), vhost).definitions
            except RefusedRequest as error:
                raise Failure(
                    DATA_ERROR,
                    f"the definitions of {self._management_shown}: {error.text}",
                    reason=error.reason,
                    hint=error.hint,
                ) from None
        else:
            found = []
        return [one for one in found if one.kind is Kind.QUEUE]

    def _exported(self) -> tuple[list[Definition], list[str]]:
        with self._management() as call:
            return exported(call)

    def _ask(self, method: str) -> Any:
        with self._management() as call:
            return call(method)

    def _management(self) -> _Asking:
        return _Asking(self._endpoints[0], self._tls, self._options.patience())

    @property
    def _management_shown(self) -> str:
        """The management as it is told of: without the password that may be in it."""
        return self._http.rpartition("@")[2]

    def _get(self, path: str, *, vhost: str = "") -> Any:
        """Ask RabbitMQ's management over HTTP, for what is of a virtual host if one is named.
        Raises Failure.
        """
        shown, user = f"the management at {self._management_shown}", ""
        first = self._endpoints[0]
        try:
            parts = urlsplit(self._http)
            where = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"
            request = urllib.request.Request(f"{where}{path}")
            user, password = parts.username or first.user, parts.password or first.password
            if user:
                secret = base64.b64encode(f"{user}:{password}".encode()).decode()
                request.add_header("Authorization", f"Basic {secret}")
            with urllib.request.urlopen(request, timeout=HTTP_TIMEOUT) as answer:
                return json.load(answer)
        except (OSError, ValueError, HTTPException) as error:
            status = error.code if isinstance(error, urllib.error.HTTPError) else 0
            if status in (401, 403):
                raise Failure(
                    NO_PERMISSION,
                    f"{shown} does not let {user or 'anybody'} in",
                    hint="--from-password-file; the user needs the tag monitoring or management",
                ) from error
            if status == 404 and vhost:
                raise Failure(
                    NO, f"{shown} has no virtual host {vhost}", hint="--vhost NAME"
                ) from error
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            raise Failure(
                UNAVAILABLE,
                f"{shown} does not answer",
                reason=f"{status or ''} {getattr(reason, 'strerror', None) or reason}".strip(),
                hint="is it --from-management http://user@host:15672, and is the plugin "
                "rabbitmq_management enabled?",
            ) from error


class _Asking:
    """A conversation with the source's management, for a block."""

    def __init__(self, endpoint: Endpoint, tls: Tls, timeout: float | None) -> None:
        self._given = (endpoint, tls, timeout)
        self._link: AmqpManagement | None = None

    def __enter__(self) -> Any:
        endpoint, tls, timeout = self._given
        with failures():
            self._link = AmqpManagement(endpoint, tls=tls, timeout=timeout, follow=True)
        return self._call

    def _call(self, method: str, params: dict[str, Any] | None = None) -> Any:
        assert self._link is not None
        with failures():
            return self._link.call(method, params)

    def __exit__(self, *_: object) -> None:
        if self._link is not None:
            with suppress(ClientError):
                self._link.close()


def _migrate(
    context: typer.Context,
    source: Annotated[
        str, typer.Argument(metavar="FROM", help="the source: host:port or amqp[s]://user@host")
    ],
    queue: Annotated[
        list[str] | None,
        typer.Argument(help="queues to move; default: all, if the source can list them"),
    ] = None,
    user: Annotated[str, typer.Option("--from-user", help="user of the login at FROM")] = "",
    password_file: Annotated[
        str,
        typer.Option(
            "--from-password-file",
            help="file whose first line is the password of --from-user; else it is asked for",
        ),
    ] = "",
    mechanism: Annotated[
        str,
        typer.Option(
            "--from-sasl-mechanism",
            help="SASL mechanism of the login at FROM; without TLS, PLAIN has to be named",
        ),
    ] = "",
    trusted: Annotated[
        str, typer.Option("--from-ssl-trusted", help="PEM file of the authorities trusted for FROM")
    ] = "",
    certificate: Annotated[
        str,
        typer.Option("--from-ssl-certificate", help="PEM file of a client certificate for FROM"),
    ] = "",
    key: Annotated[
        str, typer.Option("--from-ssl-key", help="PEM file of the key of that certificate")
    ] = "",
    http: Annotated[
        str,
        typer.Option(
            "--from-management",
            help="RabbitMQ's management, http://host:15672: lists and counts its queues",
        ),
    ] = "",
    vhost: Annotated[str, typer.Option(help="RabbitMQ's virtual host")] = "/",
    form: Annotated[
        str,
        typer.Option(
            "--from-address", help="how FROM addresses a queue of the name QUEUE: /queue/QUEUE"
        ),
    ] = "",
    declare: Annotated[
        bool,
        typer.Option("--declare", help="create missing queues at the target, as durable queues"),
    ] = False,
    argument: Annotated[
        list[str] | None, typer.Option(help="with --declare: NAME=VALUE, an argument of each queue")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="show which queues would be moved, and move nothing")
    ] = False,
) -> None:
    """Move queues with their messages from another AMQP 1.0 broker to the cluster of -b.

    A message leaves the source only when the cluster has it. If the command is interrupted, run it
    again: it continues, loses no message, and duplicates none that has a message-id. The order of
    each queue is kept, and messages are not changed. Both sides may fail over.

    Missing queues are created as they are at the source, if that is qpidha, or RabbitMQ with
    --from-management; else with --declare. Stop the senders first: the command ends when the source
    is empty.

    Exit code: 0 all messages were moved; 1 some were not, and are left at the source: it says which
    and why.

    Example: qpid-ha migrate amqp://shop@rabbit1 orders --from-password-file pw --declare -b node1
    """
    options = settings_of(context)
    if bool(key) and not certificate:
        raise Failure(USAGE, "--from-ssl-key needs --from-ssl-certificate", hint="give both")
    if argument and not declare:
        raise Failure(USAGE, "--argument is for --declare", hint="add --declare")
    if form and "QUEUE" not in form:
        raise Failure(USAGE, f"--from-address {form} has no QUEUE", hint="/queue/QUEUE")
    endpoints = _source_endpoints(source, user, password_file, mechanism)
    tls = Tls(trusted, certificate, key)
    found = Source(options, endpoints, tls, http)
    migration = _Migration(options, found, endpoints, tls, vhost=vhost, form=form)
    wanted = {"declare": declare, "arguments": dict(map(_argument, argument or []))}
    with failures():
        code = asyncio.run(migration.run(queue or [], wanted, dry_run=dry_run))
    raise typer.Exit(code)


async def _aside(work: Callable[[], T]) -> T:
    """Do what waits for an answer in a thread. An interrupt does not wait for its end, nor does the
    end of the program, as they would for one of `asyncio.to_thread`.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def tell(found: T | None, error: Exception | None) -> None:
        if done.cancelled():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(cast(T, found))

    def run() -> None:
        found, error = None, None
        try:
            found = work()
        except Exception as trouble:  # noqa: BLE001  # It is raised where this is awaited.
            error = trouble
        with suppress(RuntimeError):  # The loop has ended: nobody waits.
            loop.call_soon_threadsafe(tell, found, error)

    threading.Thread(target=run, daemon=True).start()
    return await done


def _of_source(error: ClientError) -> Failure:
    """Say why the source does not let us in, in the words of its options."""
    failure = failure_of(error)
    if isinstance(error, LoginError):
        failure.hint = (
            "--from-user NAME --from-password-file FILE, or --from-sasl-mechanism, such as PLAIN "
            "without TLS"
        )
    elif isinstance(error, TlsError):
        failure.hint = "--from-ssl-trusted FILE, the authority that signed the source's certificate"
    elif error.hint.startswith("amqp"):  # The same address, with TLS or without it.
        failure.hint = error.hint
    else:
        failure.hint = "does the source speak AMQP 1.0 there? RabbitMQ 3 needs rabbitmq_amqp1_0"
    return failure


def _argument(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise Failure(USAGE, f"{text!r} is not NAME=VALUE", hint="qpid.max_count=1000")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _source_endpoints(text: str, user: str, password_file: str, mechanism: str) -> list[Endpoint]:
    """Return the addresses of the source with its login, which is not that of -b."""
    password = read_password(password_file) if password_file else ""
    try:
        found = parse_endpoints(text, user=user, password=password)
    except ClientError as error:
        raise failure_of(error) from error
    name = found[0].user
    is_open = bool(name) and not (password or found[0].password) and mechanism != "EXTERNAL"
    if is_open and sys.stdin.isatty():
        password = getpass(f"Password of {name} at {found[0]}: ")
    elif is_open:
        raise Failure(
            NO_INPUT,
            f"there is no password of {name} at {found[0]}",
            hint="--from-password-file FILE, whose first line it is",
        )
    return [
        Endpoint(each.host, each.port, each.tls, each.user, each.password or password, mechanism)
        for each in found
    ]


class _Migration:
    """One call of the command."""

    def __init__(
        self,
        options: Options,
        source: Source,
        endpoints: list[Endpoint],
        tls: Tls,
        *,
        vhost: str,
        form: str,
    ) -> None:
        self._options = options
        self._source = source
        self._endpoints = endpoints
        self._tls = tls
        self._vhost = vhost
        self._form = form
        self._rows: list[Row] = []
        self._told_at = 0.0

    async def run(self, queues: Sequence[str], wanted: dict[str, Any], *, dry_run: bool) -> int:
        """Do all of it; return the exit code."""
        here, there = self._client_here(), self._client_there()
        try:
            await there.open(self._options.patience())
        except ClientError as error:
            raise _of_source(error) from error
        async with there:
            self._source.meet(there.broker_properties, self._form)
            async with here:
                self._check_ends(there, here)
                self._rows = await _aside(partial(self._plan, list(queues)))
                await self._look_for(there)
                if dry_run:
                    self._report(dry_run=True)
                    return OK if all(row.exists for row in self._rows) else NO
                await _aside(partial(self._declare, wanted))
                try:
                    await self._move(there, here)
                except ClientError as error:
                    failure = failure_of(error)
                    failure.hint = "run it again when the broker is there: it goes on"
                    raise failure from error
                finally:
                    await _aside(self._count_again)
                    self._report(dry_run=False)
        is_done = all(row.count.is_done and not row.count.refused for row in self._rows)
        return OK if is_done else NO

    def _client_here(self) -> Client:
        options = self._options
        where = endpoints_of(amqp_targets(options), options)
        return Client(where, tls=tls_of(options), **self._manners("the target"))

    def _client_there(self) -> Client:
        return Client(self._endpoints, tls=self._tls, **self._manners("the source"))

    def _manners(self, side: str) -> dict[str, Any]:
        def told(event: str, endpoint: Endpoint, error: ClientError | None) -> None:
            if event == "lost" and error is not None:
                talk(self._options, f"{side}: {error.explanation}; trying the next address")

        patience = self._options.patience(PATIENCE)
        return {
            "timeout": patience,
            "reconnect_timeout": patience,
            "fail_fast": True,
            "heartbeat": HEARTBEAT,
            "properties": {
                "product": "qpid-ha",
                "qpid.client_process": "qpid-ha migrate",
                "qpid.client_pid": os.getpid(),
            },
            "on_event": told,
        }

    def _check_ends(self, there: Client, here: Client) -> None:
        """Refuse to move a queue to where it is, and to anything but this product."""
        ids = [each.broker_properties.get("qpidha.system-id") for each in (there, here)]
        if ids[1] is None:
            raise Failure(
                NO,
                f"{here.endpoint} is not qpidha: messages are moved to qpidha only",
                hint="-b with the address of the new cluster; FROM is the old broker",
            )
        if ids[0] == ids[1]:
            raise Failure(
                NO, "FROM and -b are the same broker", hint="name the new cluster with -b"
            )

    # What is where.

    def _plan(self, queues: list[str]) -> list[Row]:
        """Find out which queues there are, and count."""
        depths = self._source.depths(self._vhost)
        if not queues:
            if not self._source.is_known:
                raise Failure(
                    USAGE,
                    "the source cannot be asked which queues it has",
                    hint="name them, or --from-management http://host:15672",
                )
            passing = self._source.passing(self._vhost)
            for name in sorted(passing)[:MOST_REASONS]:
                talk(
                    self._options,
                    f"{name}: not moved, as it was made for one connection, link or route; "
                    "name it to move its messages",
                )
            queues = sorted(name for name in depths.keys() - passing if not name.startswith(NOTES))
        if self._source.is_known and (missing := [name for name in queues if name not in depths]):
            raise Failure(
                NO,
                f"the source has no queue {missing[0]}",
                hint="without names, all queues of the source are moved; --dry-run lists them",
            )
        present = self._present()
        return [
            Row(
                name,
                source_before=depths.get(name),
                target_before=present.get(name),
                exists=name in present,
            )
            for name in dict.fromkeys(queues)
        ]

    async def _look_for(self, there: Client) -> None:
        """Attach to the queues of a source that does not list them, before any is created here.
        Raises Failure for one that it does not give.
        """
        for row in self._rows:
            if row.exists or self._source.is_known:
                continue
            try:
                receiver = await there.receiver(self._source.address(row.queue), credit=0)
                await receiver.close()
            except CannotMove as error:
                raise Failure(NO, error.text, hint=error.hint) from error
            except LinkError as error:
                failure = failure_of(error)
                failure.hint = "does the source have this queue, and may its user read from it?"
                raise failure from error

    def _present(self) -> dict[str, int]:
        link = primary_link(self._options)
        try:
            return {row["name"]: int(row["messages"]) for row in self._listed(link)}
        finally:
            link.close()

    def _listed(self, link: BrokerLink) -> list[dict[str, Any]]:
        """List the queues of the target."""
        rows: list[dict[str, Any]] = link.call("list_queues", {"fields": "name messages durable"})
        return rows

    def _declare(self, wanted: dict[str, Any]) -> None:
        """Have every queue at the target, and one for the notes of each. Raises Failure."""
        link = primary_link(self._options)
        try:
            absent = [row for row in self._rows if not row.exists]
            if absent:
                self._declare_as_there({row.queue for row in absent}, link)
            for row in absent:
                if row.exists:
                    continue
                if not wanted["declare"]:
                    raise Failure(
                        NO,
                        f"the target has no queue {row.queue}",
                        hint="--declare creates it; or first qpid-ha definitions import --from "
                        "rabbitmq or qpid",
                    )
                params = {"name": row.queue, "durable": True, "arguments": wanted["arguments"]}
                link.call("declare_queue", params)
                row.exists, row.target_before = True, 0
            durable = {row["name"] for row in self._listed(link) if row["durable"]}
            for row in self._rows:
                # What is known of a queue lives as long as what is on it.
                name, lasts = self._notes(row), row.queue in durable
                params = {"name": name, "durable": lasts, "arguments": NOTE_ARGUMENTS}
                link.call("declare_queue", params)
        finally:
            link.close()

    def _declare_as_there(self, names: set[str], link: BrokerLink) -> None:
        """Create queues as the source has them, where it tells."""
        definitions = [one for one in self._source.definitions(self._vhost) if one.name in names]
        if not definitions:
            return
        steps = planned(definitions, Present.ask(link.call))
        carry_out(steps, link.call)
        for step in steps:
            if step.outcome not in (Outcome.CREATED, Outcome.UNCHANGED):
                raise Failure(
                    NO,
                    f"queue {step.definition.name} cannot be created as the source has it",
                    reason=step.reason,
                    hint=step.hint or "create it with qpid-ha queue add, and run it again",
                )
            for row in self._rows:
                if row.queue == step.definition.name:
                    row.exists, row.target_before = True, 0

    def _notes(self, row: Row) -> str:
        return note_queue(self._source.name, f"{self._vhost}\0{row.queue}", row.queue)

    def _count_again(self) -> None:
        """Count at both ends; what cannot be counted is left out."""
        try:
            present = self._present()
        except Failure:
            present = {}
        end = time.monotonic() + DELAYED
        while True:
            depths: dict[str, int] = {}
            with suppress(Failure):
                depths = self._source.depths(self._vhost)
            for row in self._rows:
                row.target_after = present.get(row.queue)
                row.source_after = depths.get(row.queue)
                if row.source_after is None and row.count.is_done:
                    row.source_after = len(row.count.refused)
            late = [
                row
                for row in self._rows
                if row.count.is_done and row.source_after != len(row.count.refused)
            ]
            if self._source.is_ours or not late or time.monotonic() > end:
                for row in late:
                    row.count.is_done, row.is_silent = False, True
                return
            time.sleep(0.5)

    # Moving.

    async def _move(self, there: Client, here: Client) -> None:
        """Move several queues at a time. One that cannot go on holds up no other; why is raised at
        the end.
        """
        waiting = deque(self._rows)
        troubles: list[Failure] = []

        async def work(there: Client, here: Client) -> None:
            while waiting:
                try:
                    await self._move_queue(waiting.popleft(), there, here)
                except CannotMove as error:
                    troubles.append(Failure(NO, error.text, hint=error.hint))
                except LinkError as error:
                    troubles.append(failure_of(error))

        async def work_beside() -> None:
            async with self._client_there() as there, self._client_here() as here:
                await work(there, here)

        beside = range(min(AT_A_TIME, len(waiting)) - 1)
        tasks = [
            asyncio.create_task(each)
            for each in (work(there, here), *(work_beside() for _ in beside))
        ]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
        for trouble in troubles[1:MOST_REASONS]:
            talk(self._options, f"error: {trouble.explanation}")
        if troubles:
            raise troubles[0]

    async def _move_queue(self, row: Row, there: Client, here: Client) -> None:
        mover = Mover(
            there,
            here,
            address=self._source.address(row.queue),
            queue=row.queue,
            notes=self._notes(row),
            drains=self._source.drains,
            told=partial(self._tell, row),
        )
        row.count = mover.count
        await mover.run()
        await _aside(partial(self._forget_notes, row))

    def _forget_notes(self, row: Row) -> None:
        with suppress(Failure):
            ask_primary(self._options, "delete_queue", {"name": self._notes(row)})

    def _tell(self, row: Row, count: Count) -> None:
        now = time.monotonic()
        if now - self._told_at >= TOLD_EVERY:
            self._told_at = now
            whole = f" of {row.source_before:,}" if row.source_before is not None else ""
            talk(self._options, f"{row.queue}: {count.moved_now:,}{whole} moved")

    def _report(self, *, dry_run: bool) -> None:
        options = self._options
        if options.as_json:
            print_json(
                {
                    "schema_version": 1,
                    "dry_run": dry_run,
                    "queues": [row.fields() | {"exists": row.exists} for row in self._rows],
                }
            )
        elif self._rows:
            print_table(HEADS, [row.cells() for row in self._rows])
        for row in self._rows:
            for why in _first(row.count.refused.values()):
                talk(options, f"{row.queue}: left at the source: {why}")
            if row.is_silent:
                talk(
                    options,
                    f"{row.queue}: the source has messages that it did not send: others hold them, "
                    "or it is a stream",
                )
            if dry_run and not row.exists:
                talk(options, f"{row.queue}: the target has no such queue yet")
        if dry_run:
            talk(options, "nothing was moved")


def _first(reasons: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(reasons))[:MOST_REASONS]
