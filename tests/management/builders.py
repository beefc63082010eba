"""Builders: a node around a real broker model, links that remember what was sent, and request
messages.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from qpidha.amqp.peer.connection import Counters
from qpidha.broker.broker import Broker
from qpidha.management.access import Access
from qpidha.management.admin_session import ADMIN_SOCKET_ROLES
from qpidha.management.event_log import EventLog
from qpidha.management.lines import Lines
from qpidha.management.measures import CommitTimes, Measures
from qpidha.management.port import Reply
from qpidha.model import message_view
from qpidha.model.errors import NotFound, QpidHaError
from qpidha.model.events import ConnectionKind
from qpidha.model.features import FEATURES
from qpidha.model.principal import Principal, Role
from qpidha.model.records import Record
from qpidha.model.settings import Settings
from qpidha.store.log import Log

LOCAL = Principal("root", address="process 1", roles=ADMIN_SOCKET_ROLES)
"""Whoever uses the admin socket."""


class FakeLog:
    """A log writer that only counts and remembers."""

    def __init__(self) -> None:
        self.sequence = 0
        self.committed = 0
        self.must_sync = False
        self.records: list[Record] = []

    def append(self, record: Record) -> int:
        self.records.append(record)
        return self._next()

    def enqueue(self, queue_uid: int, payload: bytes, expires: int) -> int:
        return self._next()

    def enqueue_shared(self, queue_uids: tuple[int, ...], payload: bytes, expires: int) -> int:
        return self._next()

    def dequeue(self, queue_uid: int, sequence: int, cause: int = 0) -> int:
        return self._next()

    def dequeue_many(self, queue_uid: int, sequences: tuple[int, ...], cause: int = 0) -> int:
        return self._next()

    def _next(self) -> int:
        self.sequence += 1
        return self.sequence


class FakeConnection:
    """What management reads of a connection."""

    kind = ConnectionKind.CLIENT

    def __init__(self, connection_id: int, *, is_admin: bool = False) -> None:
        self.connection_id = connection_id
        self.principal = Principal(
            "guest@QPID",
            "PLAIN",
            f"127.0.0.1:{40000 + connection_id}",
            roles=frozenset((Role.ADMINISTRATOR,)) if is_admin else frozenset(),
        )
        self.remote_container = f"client-{connection_id}"
        self.remote_properties: dict[Any, Any] = {"qpid.client_process": "test"}
        self.since_ns = self.heard_ns = 5
        self.counters = Counters()
        self.open_sessions: list[Any] = []

    def sessions(self) -> list[Any]:
        return self.open_sessions


class FakeNode:
    """A primary whose records are committed when the test says so."""

    def __init__(self, *, recorded: bool = True) -> None:
        self.recorded: list[tuple[Any, str]] = []
        self.settings = Settings(name="b1", ha_replicate="all" if recorded else "none")
        self.access = Access(self.settings)
        self.lines = Lines()
        self.measures = Measures()
        self.now = 1_000_000_000
        self.serving = True
        self.log = FakeLog()
        self.uuids = 0
        self.broker = Broker(
            self.settings, self.log if recorded else None, lambda *_: None, self.make_uuid
        )
        self.broker.features = dict.fromkeys(FEATURES, 1)
        self.committed = 0
        self.pending: list[tuple[int, Any, object]] = []
        self.open_connections: list[FakeConnection] = []
        self.closed: list[tuple[FakeConnection, QpidHaError]] = []
        self.event_log = EventLog(
            replace(self.settings, journal_events_dir="/nowhere"),
            log := Log(1 << 20),
            log,
            self.broker,
            "b1",
            CommitTimes(),
        )
        self.log_level = ("notice+", "")
        self.promoted = self.demoted = self.stopped = 0
        self.accepted_loss = False
        self.switched_to: str | None = None
        self.waits: list[dict[str, Any]] = []
        self.backups: dict[str, int | None] = {}

    def make_uuid(self) -> str:
        self.uuids += 1
        return f"00000000-0000-0000-0000-{self.uuids:012}"

    federation_tag = ""

    def link_report(self, name: str) -> dict[str, object]:
        return {"state": "passive"}

    def route_report(self, name: str) -> dict[str, object]:
        return {"state": "passive"}

    def confirmed(self) -> dict[str, int | None]:
        return self.backups

    def status(self) -> dict[str, Any]:
        member = {
            "system_id": "s1",
            "address": "h1:5672",
            "state": "active",
            "epoch": 1,
            "sequence": self.log.sequence,
            "connected": True,
        }
        return {
            "schema_version": 1,
            "name": "b1",
            "address": "h1:5672",
            "system_id": "s1",
            "state": "active" if self.serving else "ready",
            "epoch": 1,
            "sequence": self.log.sequence,
            "safe": self.committed,
            "committed": self.committed,
            "primary": {"system_id": "s1", "address": "h1:5672"}
            if self.serving
            else {"system_id": "s2", "address": "h2:5672"},
            "members": [member],
            "brokers_url": "amqp:tcp:h1:5672,tcp:h2:5672",
            "public_url": "",
            "replicate": "all",
            "held": len(self.pending),
        }

    def query(self) -> dict[str, Any]:
        return {
            "status": "active",
            "system_id": "s1",
            "brokers_url": "amqp:tcp:h1:5672",
            "public_url": "",
            "replicate": "all",
        }

    def access_list(self) -> dict[str, Any]:
        return {"file": ""}

    def connections(self) -> list[FakeConnection]:
        return self.open_connections

    def close_connection(self, connection: Any, error: QpidHaError) -> None:
        self.closed.append((connection, error))

    def promote(self, reply: Any, accept_loss: bool = False, forget: str = "") -> None:
        self.promoted += 1
        self.forgotten = forget
        self.accepted_loss = accept_loss
        reply(Reply({"state": "active"}))

    def compare(self, reply: Any, forget: str = "") -> None:
        self.forgotten = forget
        reply(Reply({"recommended": "s2"}))

    def switchover(self, target: str, reply: Any) -> None:
        if target == "s9":
            raise NotFound("there is no broker s9")
        self.switched_to = target
        reply(Reply({"state": "joining"}))

    def unwell(self) -> list[dict[str, Any]]:
        return []

    def explain(self) -> list[dict[str, Any]]:
        return self.waits

    def record(self, kept: Any, trouble: str, reply: Any) -> None:
        self.recorded.append((kept, trouble))
        reply(Reply({"wanted": False}))

    def reload(self, reply: Any) -> None:
        reply(Reply({"warnings": []}))

    def set_public_url(self, url: Any) -> None:
        self.public_url = url

    def set_log_level(self, enabled: str, disabled: str) -> None:
        self.log_level = (enabled, disabled)

    def demote(self, reply: Any) -> None:
        self.demoted += 1
        reply(Reply({"state": "joining"}))

    def shutdown(self) -> None:
        self.stopped += 1

    def when_committed(self, sequence: int, waiter: Any, item: object) -> None:
        if sequence <= self.committed:
            waiter.on_committed(item)
        else:
            self.pending.append((sequence, waiter, item))

    def end_turn(self) -> None:
        """Do what waits in lines."""
        while self.lines:
            self.lines.go_on(lambda *_: False, lambda _: False)
            self.lines.renew()

    def commit_all(self) -> None:
        """End the turn, and let everything appended so far be committed."""
        self.lines.renew()
        self.end_turn()
        self.broker.dispatch(self.broker.now)
        self.committed = self.log.committed = self.log.sequence
        pending, self.pending = self.pending, []
        for sequence, waiter, item in pending:
            assert sequence <= self.committed
            waiter.on_committed(item)


class FakeTerminus:
    """A peer's end of a link."""

    def __init__(self, address: str | None) -> None:
        self.address = address


class FakeLink:
    """A service link that keeps what is sent by it."""

    def __init__(
        self,
        connection: FakeConnection,
        name: str,
        address: str,
        *,
        sends: bool = False,
        peer_address: str = "",
    ) -> None:
        self.connection = connection
        self.name = name
        self.address = address
        self.sends = sends
        self.remote_target = FakeTerminus(peer_address)
        self.sent: list[bytes] = []
        self.owed = 0

    def owe(self, size: int) -> None:
        self.owed += size

    def send(self, payload: bytes) -> None:
        self.sent.append(payload)


def a_request(
    body: Any = None, *, application: dict[str, Any] | None = None, **properties: Any
) -> bytes:
    """Write a request message."""
    return message_view.build(body, properties=properties, application_properties=application)


def open_answer(payload: bytes) -> tuple[dict[str, Any], dict[str, Any], Any]:
    """Read an answer: properties, application-properties and body."""
    return (
        message_view.properties(payload),
        message_view.application_properties(payload),
        message_view.body(payload),
    )
