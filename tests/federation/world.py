"""A world of brokers without processes: nodes that reach each other by their names, in one loop,
with a clock that the test turns.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from qpidha.amqp.peer.sasl import Users
from qpidha.management.admin_session import ADMIN_SOCKET_ROLES
from qpidha.model.duration import SECOND
from qpidha.model.effects import (
    Announce,
    Compute,
    Connect,
    Disconnect,
    Effect,
    SaveState,
    SendBytes,
    SendParts,
)
from qpidha.model.events import (
    BytesReceived,
    Computed,
    ConnectionKind,
    ConnectionLost,
    ConnectionOpened,
    Event,
    StateSaved,
    Tick,
)
from qpidha.model.message_view import body, build
from qpidha.model.principal import Principal
from qpidha.model.settings import Settings
from qpidha.model.url import parse_url
from qpidha.node import Node

STEP = SECOND // 10
ADMINISTRATOR = Principal("test", roles=ADMIN_SOCKET_ROLES)


class World:
    """Brokers by name; each listens at `NAME:5672`."""

    def __init__(self) -> None:
        self.now = 1_700_000_000 * SECOND
        self.nodes: dict[str, Node] = {}
        self.lines: dict[str, list[Announce]] = {}
        self.queue: list[tuple[str, Event]] = []
        self.peers: dict[tuple[str, int], tuple[str, int]] = {}
        """An end of a stream -> the other end."""
        self._ids = itertools.count(1)
        self.cut: Callable[[str, str], bool] = lambda one, other: False
        """Whether what one broker sends to another gets lost with its stream."""
        self.options_of: dict[str, dict[str, Any]] = {}
        """What each broker was started with."""

    def add(self, name: str, *, users: Users | None = None, **settings: Any) -> Node:
        """Start a broker."""
        options = {
            "link_maintenance_interval": SECOND,
            "durable_without_store": "accept",
            **settings,
        }
        self.options_of[name] = settings
        uuids = (f"{name}-{number}" for number in itertools.count())
        node = Node(
            Settings(**options),
            system_id=f"id-{name}-{next(self._ids)}",
            users=users or Users({}),
            state=b"",
            address=f"{name}:5672",
            make_uuid=lambda: next(uuids),
        )
        self.nodes[name] = node
        self.lines.setdefault(name, [])
        self._obey(name, node.start(self.now))
        return node

    def cluster(self, *names: str, **settings: Any) -> None:
        """Start brokers of one cluster, and promote the first."""
        url = parse_url(",".join(f"{name}:5672" for name in names))
        settings = {"ha_replicate": "all", **settings}
        for name in names:
            self.add(name, ha_cluster=True, ha_brokers_url=url, **settings)
        self.run()
        self.promote(names[0])
        self.run(2)

    def promote(self, name: str) -> None:
        """Make a broker primary."""
        answers: list[Any] = []
        self.nodes[name].promote(answers.append)
        self.step(name)
        self.run(1)
        assert answers and answers[0].error is None, answers

    def kill(self, name: str) -> None:
        """End a broker without a word."""
        del self.nodes[name]
        for end, other in list(self.peers.items()):
            if end[0] == name and other in self.peers:
                del self.peers[other]
                del self.peers[end]
                self.queue.append((other[0], ConnectionLost(other[1], "closed by the peer")))

    def reset(self, one: str, other: str) -> None:
        """Break the streams between two brokers."""
        for end, far in list(self.peers.items()):
            if {end[0], far[0]} == {one, other}:
                del self.peers[end]
                self.queue.append((end[0], ConnectionLost(end[1], "reset by peer")))
        self.settle()

    def step(self, name: str, *events: Event) -> None:
        """Let a broker take a turn."""
        node = self.nodes[name]
        self._obey(name, node.step(events, self.now))

    def settle(self, most: int = 2000) -> None:
        """Carry everything that is on its way."""
        for _ in range(most):
            for name, node in list(self.nodes.items()):
                if 0 < node.next_deadline <= self.now:
                    self.step(name, Tick())
            if not self.queue:
                return
            queue, self.queue = self.queue, []
            for name, event in queue:
                if name in self.nodes:
                    self.step(name, event)
        raise AssertionError("the world does not come to rest")

    def run(self, seconds: float = 1) -> None:
        """Let time pass."""
        self.settle()
        end = self.now + int(seconds * SECOND)
        while self.now < end:
            self.now += STEP
            for name in list(self.nodes):
                self.step(name, Tick())
            self.settle()

    def _obey(self, name: str, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Connect):
                self._connect(name, effect)
            elif isinstance(effect, SendBytes | SendParts):
                other = self.peers.get((name, effect.connection_id))
                if other is not None and not self.cut(name, other[0]):
                    self.queue.append((other[0], BytesReceived(other[1], effect.data)))
            elif isinstance(effect, Disconnect):
                self._disconnect(name, effect.connection_id)
            elif isinstance(effect, Announce):
                self.lines[name].append(effect)
            elif isinstance(effect, SaveState):
                self.queue.append((name, StateSaved(effect.mark)))
            elif isinstance(effect, Compute):
                self.queue.append((name, Computed(effect.connection_id, effect.work(), None)))

    def _connect(self, name: str, effect: Connect) -> None:
        here = (name, effect.connection_id)
        if effect.host not in self.nodes or effect.port != 5672:
            self.queue.append((name, ConnectionLost(effect.connection_id, "cannot connect")))
            return
        there = (effect.host, next(self._ids))
        self.peers[here], self.peers[there] = there, here
        members = [each.host for each in self.nodes[effect.host].settings.ha_brokers_url]
        opened = ConnectionOpened(
            there[1], f"{name}:1", ConnectionKind.CLIENT, "", False, "", name in members
        )
        self.queue.append((there[0], opened))
        address = f"{effect.host}:{effect.port}"
        opened = ConnectionOpened(here[1], address, ConnectionKind.OUTGOING, "", False)
        self.queue.append((name, opened))

    def _disconnect(self, name: str, connection_id: int) -> None:
        other = self.peers.pop((name, connection_id), None)
        self.queue.append((name, ConnectionLost(connection_id, "closed by us")))
        if other is not None and self.peers.pop(other, None) is not None:
            self.queue.append((other[0], ConnectionLost(other[1], "closed by the peer")))

    def call(self, broker: str, method: str, **params: Any) -> Any:
        """Ask a broker for something, and let all settle."""
        answers: list[Any] = []
        self.nodes[broker].requests.call(method, params, answers.append, principal=ADMINISTRATOR)
        self.step(broker)
        self.settle()
        assert answers, f"{method} was not answered"
        if answers[0].error is not None:
            raise answers[0].error
        return answers[0].result

    def send(self, name: str, queue: str, *bodies: Any, **more: Any) -> None:
        """Put messages on a queue of a broker."""
        for each in bodies:
            self.nodes[name].broker.queue(queue).enqueue(build(each, **more))
        self.step(name)
        self.settle()

    def publish(self, name: str, exchange: str, key: str, *bodies: Any, **more: Any) -> None:
        """Send messages to an exchange of a broker."""
        for each in bodies:
            payload = build(each, properties={"subject": key}, **more)
            self.nodes[name].broker.publish(exchange, key, payload, headers=dict)
        self.step(name)
        self.settle()

    def bodies(self, name: str, queue: str) -> list[Any]:
        """Return what is on a queue, in order."""
        found = self.nodes[name].broker.queues[queue]
        return [body(message.body()) for message in found.messages.values()]

    def payloads(self, name: str, queue: str) -> list[bytes]:
        """Return the messages of a queue as they are kept."""
        found = self.nodes[name].broker.queues[queue]
        return [message.body() for message in found.messages.values()]

    def link(self, name: str, link: str) -> dict[str, Any]:
        """Return how a link is."""
        return self.nodes[name].link_report(link)

    def route(self, name: str, route: str) -> dict[str, Any]:
        """Return how a route is."""
        return self.nodes[name].route_report(route)
