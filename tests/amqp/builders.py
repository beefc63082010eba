"""Builders for tests of connections: a host around a real broker, and two connections back to
back.
"""

from __future__ import annotations

from typing import Any

from qpidha.amqp.peer.connection import Connection
from qpidha.amqp.peer.links import Scratch
from qpidha.amqp.peer.sasl import Users
from qpidha.amqp.peer.service_link import ServiceLink
from qpidha.amqp.server.registry import LinkRegistry
from qpidha.amqp.server.served_connection import ServedConnection
from qpidha.broker.broker import Broker
from qpidha.model.errors import NotServing, QpidHaError, Unauthorized
from qpidha.model.event_log import EventSink
from qpidha.model.events import ConnectionKind
from qpidha.model.message_view import body
from qpidha.model.principal import Action, ObjectType, Principal
from qpidha.model.settings import Settings
from qpidha.node import Node

SECOND = 1_000_000_000


class AnAccess:
    """Access control that denies what a test says and remembers what it was asked."""

    each_message = False

    def __init__(self) -> None:
        self.asked: list[tuple[str, Action, ObjectType, str]] = []
        self.properties: dict[tuple[Action, ObjectType, str], dict[str, Any]] = {}
        """What it was told with the last question of each kind."""
        self.denied: set[tuple[Action, ObjectType, str]] = set()
        self.told: list[str] = []
        """What was done, by whom."""
        self.error: Unauthorized | None = None

    def check(
        self,
        principal: Principal,
        action: Action,
        object_type: ObjectType,
        name: str = "",
        properties: Any = None,
    ) -> None:
        self.asked.append((str(principal), action, object_type, name))
        self.properties[action, object_type, name] = dict(properties or {})
        if (action, object_type, name) in self.denied:
            raise self.error or Unauthorized(f"{principal} may not {action} {object_type} {name}")

    def done(
        self,
        principal: Principal,
        action: Action,
        object_type: ObjectType,
        name: str,
        properties: Any = None,
    ) -> None:
        given = properties or {}
        key = "/" + given["routingkey"] if "routingkey" in given else ""
        self.told.append(f"{principal} {action} {object_type} {name}{key}")

    def user_ids(self, principal: Principal, *, is_link: bool = False) -> frozenset[bytes] | None:
        return None

    def forged(self, principal: Principal, user_id: object) -> Unauthorized:
        return Unauthorized(f"{principal} is not {user_id!r}")


class AHost:
    """A host with a broker of its own; commits are delayed while `delaying` is true."""

    def __init__(self, container_id: str = "broker", **settings: Any) -> None:
        self.scratch = Scratch()
        self.settings = Settings(**{"auth": False, **settings})
        self.now = 1_700_000_000 * SECOND
        self.container_id = container_id
        self._numbers = 0
        self.announced: list[Any] = []
        self.broker = Broker(self.settings, None, self.announced.append, self.make_uuid)
        self.users = Users()
        self.event_log = EventSink()
        self.access = AnAccess()
        self.links = LinkRegistry()
        self.serving = True
        self.services: dict[str, Any] = {}
        self.woken: dict[Any, None] = {}
        self.admission_error: QpidHaError | None = None
        self.admitted: list[Connection] = []
        self.gone: list[Connection] = []
        self.delaying = False
        self.epoch, self.tokens = 1, 0
        self.pending: list[tuple[Any, Any]] = []

    def refusal(self) -> QpidHaError:
        return NotServing("this broker is a backup")

    def make_uuid(self) -> str:
        self._numbers += 1
        return f"00000000-0000-4000-8000-{self._numbers:012d}"

    def compute(self, connection: Any, work: Any, *, blocks: bool) -> Any:
        return work()

    def login_decided(self, connection: Any, *, refused: bool) -> int:
        return 0

    def admit(self, connection: Any) -> None:
        self.admitted.append(connection)
        if self.admission_error is not None:
            raise self.admission_error

    def open_properties(self, connection: Any) -> dict[str, object]:
        return {"product": "qpidha", "version": "1"}

    def service(self, address: str) -> Any:
        return self.services.get(address)

    def fencing_token(self) -> tuple[int, int]:
        self.tokens += 1
        return self.epoch, self.tokens

    def when_committed(self, sequence: int, waiter: Any, item: object) -> None:
        if sequence and self.delaying:
            self.pending.append((waiter, item))
        else:
            waiter.on_committed(item)

    def release_all(self) -> None:
        pending, self.pending = self.pending, []
        for waiter, item in pending:
            waiter.on_committed(item)

    def wake(self, connection: Any) -> None:
        self.woken[connection] = None

    def connection_closed(self, connection: Any) -> None:
        self.gone.append(connection)


class CountingLogWriter:
    """A log writer that gives sequences and keeps nothing."""

    def __init__(self) -> None:
        self.sequence = 0
        self.records: list[Any] = []

    @property
    def end(self) -> int:
        return self.sequence

    def append(self, record: Any) -> int:
        self.records.append(record)
        self.sequence += 1
        return self.sequence

    def enqueue(self, queue_uid: int, payload: bytes, expires: int) -> int:
        self.sequence += 1
        return self.sequence

    def enqueue_shared(self, queue_uids: tuple[int, ...], payload: bytes, expires: int) -> int:
        self.sequence += 1
        return self.sequence

    def dequeue(self, queue_uid: int, sequence: int, cause: int = 0) -> int:
        self.sequence += 1
        return self.sequence

    def dequeue_many(self, queue_uid: int, sequences: Any, cause: int = 0) -> int:
        self.sequence += 1
        return self.sequence


class Recording:
    """A service that writes down what happens to its links."""

    def __init__(self) -> None:
        self.attached_links: list[ServiceLink] = []
        self.payloads: list[bytes] = []
        self.credited_links: list[ServiceLink] = []
        self.detached_links: list[ServiceLink] = []
        self.outcomes: list[tuple[int, Any]] = []
        self.refusal: QpidHaError | None = None

    def attached(self, link: ServiceLink) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.attached_links.append(link)

    def received(self, link: ServiceLink, payload: bytes) -> None:
        self.payloads.append(payload)

    def credited(self, link: ServiceLink) -> None:
        self.credited_links.append(link)

    def detached(self, link: ServiceLink) -> None:
        self.detached_links.append(link)

    def outcome(self, link: ServiceLink, delivery: int, outcome: Any) -> None:
        self.outcomes.append((delivery, outcome))


class Pair:
    """A client connection and a server connection, joined by nothing but their bytes."""

    def __init__(
        self,
        host: AHost | None = None,
        *,
        identity: str = "",
        encrypted: bool = False,
        **options: Any,
    ) -> None:
        self.host = host or AHost()
        self.client_host = AHost("client", link_heartbeat_interval=0)
        number = len(self.host.admitted) + 1
        self.server = ServedConnection(
            number,
            self.host,
            kind=ConnectionKind.CLIENT,
            peer="client",
            identity=identity,
            encrypted=encrypted,
        ).connection
        self.client = Connection(
            1, self.client_host, kind=ConnectionKind.OUTGOING, peer="broker", encrypted=encrypted
        )
        container_id = options.pop("container_id", "client")
        self.client.open(container_id, options.pop("properties", {}), **options)
        self.turn()

    def turn(self) -> None:
        """Carry bytes both ways until both are silent."""
        while True:
            self.host.broker.dispatch(self.host.now)
            to_client = self.server.output()
            to_server = self.client.output()
            if to_server:
                self.server.receive(to_server)
            if to_client:
                self.client.receive(to_client)
            if not to_client and not to_server and not self.host.broker.runnable:
                return

    def attach(
        self, address: str, *, sender: bool, name: str = "", **options: Any
    ) -> tuple[ServiceLink, Recording]:
        service = Recording()
        link = self.client.attach(
            address, sender=sender, service=service, name=name or f"{address}-{sender}", **options
        )
        self.turn()
        return link, service

    def sender(self, address: str, **options: Any) -> tuple[ServiceLink, Recording]:
        return self.attach(address, sender=True, **{"settled": False, **options})

    def receiver(self, address: str, **options: Any) -> tuple[ServiceLink, Recording]:
        return self.attach(address, sender=False, **options)


def a_node(users: str = "", address: str = "h:1", **settings: Any) -> Node:
    """Return a whole broker that has not started yet, without a disk, with these lines of users."""
    return Node(
        Settings(**{"auth": False, **settings}),
        system_id="x",
        users=Users.parse(users),
        state=b"",
        address=address,
        make_uuid=lambda: "00000000-0000-4000-8000-000000000000",
    )


def a_pair(**settings: Any) -> Pair:
    pair = Pair(AHost(**settings))
    pair.host.broker.declare_queue("q")
    return pair


def a_logged_pair() -> Pair:
    host = AHost(ha_replicate="all")
    host.broker.log_writer = CountingLogWriter()
    pair = Pair(host)
    host.broker.declare_queue("q")
    return pair


def bodies(payloads: list[bytes]) -> list[Any]:
    return [body(payload) for payload in payloads]
