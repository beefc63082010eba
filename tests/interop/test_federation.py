"""Links between a cluster and brokers of others: a real RabbitMQ, through failovers of the cluster,
and one on proton's engine.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import proton
import pytest
from proton.handlers import MessagingHandler
from proton.reactor import Container

from qpidha.client.aio import Client
from qpidha.client.message import Message
from tests.interop.rabbitmq import IS_INSTALLED, RabbitMQ, running
from tests.interop.test_migrate import GUEST
from tests.patience import LONG_TEST, STATE
from tests.system.cluster import Cluster, Port, wait_for

MESSAGES, PARTS, CREDIT = 6000, 3, 500
DEFINITIONS: dict[str, Any] = {
    "vhosts": [{"name": "/"}],
    "queues": [
        {"name": name, "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}
        for name in ("out", "back")
    ],
}
needs_rabbitmq = pytest.mark.skipif(not IS_INSTALLED, reason="no RabbitMQ is installed")


@pytest.fixture
def rabbitmq(tmp_path: Path) -> Iterator[RabbitMQ]:
    folder = tmp_path / "rabbitmq"
    folder.mkdir()
    with running(folder, DEFINITIONS, "rabbitmq_amqp1_0") as node:
        yield node


def fill(rabbitmq: RabbitMQ, first: int, count: int) -> None:
    """Send numbered messages to the queue `out`."""

    async def send() -> None:
        async with Client(rabbitmq.address, timeout=STATE, **GUEST) as client:
            sender = await client.sender("/amq/queue/out")
            for number in range(first, first + count):
                message = Message(b"x" * 100, durable=True, message_id=f"id-{number}")
                await sender.send_nowait(message)
            await sender.flush()

    asyncio.run(send())


def take(rabbitmq: RabbitMQ) -> list[int]:
    """Take everything off the queue `back`; return the numbers."""

    async def receive() -> list[int]:
        found: list[int] = []
        count = rabbitmq.depths()["back"]
        async with Client(rabbitmq.address, timeout=STATE, **GUEST) as client:
            receiver = await client.receiver("/amq/queue/back", credit=1000)
            while len(found) < count:
                message = await receiver.receive(STATE)
                found.append(int(str(message.properties.message_id).removeprefix("id-")))
                message.accept()
        return found

    return asyncio.run(receive())


def primary_of(cluster: Cluster) -> int:
    return next(
        i
        for i, broker in enumerate(cluster)
        if broker.is_running and broker.status().get("state") == "active"
    )


def bounce_primary(cluster: Cluster) -> None:
    """Kill the primary, promote another broker, and start the first again."""
    old = primary_of(cluster)
    cluster.kill(old)
    cluster[old].start()
    cluster.wait_managed()


def declare(cluster: Cluster, rabbitmq: RabbitMQ) -> None:
    primary = cluster[primary_of(cluster)]
    primary.wait_enabled("federation")
    arguments = {"qpidha.dedup": "message-id"}
    primary.call("declare_queue", name="q", durable=True, arguments=arguments)
    login = {"username": "guest", "password": "guest", "mechanism": "PLAIN"}
    primary.call(
        "declare_link", name="rabbit", addresses=f"amqp://{rabbitmq.address}", **login, durable=True
    )
    route = {"link": "rabbit", "credit": CREDIT, "durable": True}
    primary.call("declare_route", name="in", source="/amq/queue/out", destination="q", **route)
    primary.call(
        "declare_route",
        name="back",
        source="q",
        destination="/amq/queue/back",
        direction="push",
        **route,
    )


@needs_rabbitmq
@pytest.mark.timeout(LONG_TEST * 2)
def test_line_3_of_issue_18_rabbitmq_to_the_cluster_and_back_through_failovers(
    rabbitmq: RabbitMQ, a_cluster: Callable[..., Cluster]
) -> None:
    cluster = a_cluster(3)
    declare(cluster, rabbitmq)
    for part in range(PARTS):
        fill(rabbitmq, part * MESSAGES // PARTS, MESSAGES // PARTS)
        wait_for(
            lambda: rabbitmq.depths()["back"],
            lambda found: found > part * MESSAGES // PARTS,  # noqa: B023
            what="the messages that are back",
        )
        bounce_primary(cluster)
    wait_for(lambda: rabbitmq.depths()["out"], (0).__eq__, what="what is to come")
    wait_for(
        lambda: cluster[primary_of(cluster)].call("list_queues", name="q")[0]["messages"],
        (0).__eq__,
        what="what is to go",
    )
    numbers = take(rabbitmq)
    twice = len(numbers) - MESSAGES
    print(f"\n{MESSAGES} messages, {twice} of them twice, over {PARTS} failovers")
    assert set(numbers) == set(range(MESSAGES))
    assert 0 <= twice <= PARTS * CREDIT, "only what was on its way may come twice"


@needs_rabbitmq
def test_the_lag_of_a_route_from_rabbitmq_is_what_that_says(
    rabbitmq: RabbitMQ, a_cluster: Callable[..., Cluster]
) -> None:
    cluster = a_cluster(1)
    declare(cluster, rabbitmq)
    broker = cluster[0]
    broker.call("delete_route", name="in")
    limit = {"qpid.max_count": 10, "qpid.policy_type": "reject"}
    broker.call("declare_queue", name="small", arguments=limit)
    fill(rabbitmq, 0, 100)
    ends = {"source": "/amq/queue/out", "destination": "small"}
    broker.call("declare_route", name="slow", link="rabbit", credit=20, **ends)

    def lag() -> object:
        return broker.call("list_routes", name="slow")[0]["lag"]

    wait_for(lag, lambda found: found in range(70, 101), what="the lag of a route that is stuck")
    broker.call("declare_queue", name="large")
    broker.call("delete_route", name="slow")
    ends["destination"] = "large"
    broker.call("declare_route", name="slow", link="rabbit", credit=20, **ends)
    wait_for(lag, (0).__eq__, what="the lag of a route that has all")
    # It is told what waits there; what is on its way, or not settled there yet, is not in that.
    wait_for(lambda: rabbitmq.depths()["out"], (0).__eq__, what="what is settled at the source")


@needs_rabbitmq
@pytest.mark.timeout(LONG_TEST * 2)
def test_what_is_on_its_way_when_a_route_is_deleted_is_its_sources_again(
    rabbitmq: RabbitMQ, a_cluster: Callable[..., Cluster]
) -> None:
    """RabbitMQ 3 keeps what a link that ended has not settled until its session ends."""
    cluster = a_cluster(1)
    declare(cluster, rabbitmq)
    sending = threading.Thread(target=fill, args=(rabbitmq, 0, 2 * MESSAGES))
    sending.start()
    wait_for(
        lambda: cluster[0].call("list_routes", name="in")[0]["messages"], bool, what="the first"
    )
    cluster[0].call("delete_route", name="in")
    sending.join()
    assert rabbitmq.depths()["out"]
    names = ("list_queues", "--quiet", "--no-table-headers", "messages_unacknowledged")
    wait_for(
        lambda: {int(count) for count in rabbitmq.control(*names).split()},
        {0}.__eq__,
        what="what nobody has settled at the source",
    )


class ProtonBroker(MessagingHandler):
    """A broker of a few lines: queues that are made when somebody asks for them."""

    def __init__(self) -> None:
        super().__init__(auto_accept=True)
        self.queues: dict[str, list[object]] = {}
        self.senders: dict[str, list[proton.Sender]] = {}
        self.held = Port()
        self.port = self.held.number
        self.is_up = threading.Event()
        self.container = Container(self)

    def on_start(self, event: proton.Event) -> None:
        self.acceptor = event.container.listen(f"127.0.0.1:{self.port}")
        self.is_up.set()

    def on_link_opening(self, event: proton.Event) -> None:
        link = event.link
        if link.is_sender:
            link.source.address = link.remote_source.address
            self.senders.setdefault(link.remote_source.address, []).append(link)
        else:
            link.target.address = link.remote_target.address

    def on_sendable(self, event: proton.Event) -> None:
        self.hand_out(event.link.source.address)

    def on_message(self, event: proton.Event) -> None:
        address = event.link.target.address
        self.queues.setdefault(address, []).append(event.message)
        self.hand_out(address)

    def hand_out(self, address: str) -> None:
        for sender in self.senders.get(address, []):
            while sender.credit > 0 and self.queues.get(address):
                sender.send(self.queues[address].pop(0))


@pytest.mark.timeout(LONG_TEST)
def test_a_broker_on_proton_s_engine_is_pulled_from_and_pushed_to(
    a_cluster: Callable[..., Cluster],
) -> None:
    broker = ProtonBroker()
    broker.queues["out"] = [
        proton.Message(f"m{number}", id=f"m{number}", durable=True) for number in range(50)
    ]
    thread = threading.Thread(target=broker.container.run, daemon=True)
    thread.start()
    assert broker.is_up.wait(STATE)
    try:
        primary = a_cluster(1)[0]
        primary.wait_enabled("federation")
        primary.declare_queue("q")
        primary.call("declare_link", name="l", addresses=f"127.0.0.1:{broker.port}")
        route = {"link": "l", "destination": "q", "source": "out"}
        primary.call("declare_route", name="in", **route)
        wait_for(
            lambda: primary.call("list_queues", name="q")[0]["messages"],
            (50).__eq__,
            what="the messages that came",
        )
        assert primary.call("list_links")[0]["last_error"] == ""
        route = {"link": "l", "source": "q", "destination": "back", "direction": "push"}
        primary.call("declare_route", name="back", **route)
        wait_for(
            lambda: [str(one.body) for one in broker.queues.get("back", [])],
            [f"m{number}" for number in range(50)].__eq__,
            what="the messages that went back",
        )
    finally:
        broker.container.stop()
        thread.join(STATE)
