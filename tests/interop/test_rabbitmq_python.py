"""RabbitMQ's AMQP 1.0 client for Python, as its documentation shows it, with nothing changed: the
brokers call themselves RabbitMQ (`announce-product`).
"""

from __future__ import annotations

import threading
from contextlib import suppress

import pytest
from rabbitmq_amqp_python_client import (
    AddressHelper,
    AmqpMessageRejectedException,
    AMQPMessagingHandler,
    Converter,
    Environment,
    ExchangeSpecification,
    ExchangeToExchangeBindingSpecification,
    ExchangeToQueueBindingSpecification,
    ExchangeType,
    Message,
    OutcomeState,
    QuorumQueueSpecification,
    RecoveryConfiguration,
    ValidationCodeException,
)
from rabbitmq_amqp_python_client.qpid.proton import ConnectionException

from tests.interop.faults import kill, restart_all, switch_over, terminate
from tests.interop.programs import Access
from tests.patience import STATE
from tests.system.clients import browse
from tests.system.cluster import wait_for

NO_RECOVERY = RecoveryConfiguration(active_recovery=False)


def text(number):
    return Message(body=Converter.string_to_bytes(str(number)))


def test_it_uses_no_broker_that_calls_itself_otherwise(a_cluster):
    (broker,) = a_cluster(1)
    with (
        Environment(uri=f"amqp://{broker.address}") as environment,
        pytest.raises(ValidationCodeException, match="Expected 'RabbitMQ', got 'qpidha'"),
    ):
        environment.connection().dial()


class Handler(AMQPMessagingHandler):
    """Accepts each message and notes what it is and how it came."""

    def __init__(self, received):
        super().__init__()
        self.received = received

    def on_amqp_message(self, event):
        number = int(Converter.bytes_to_string(event.message.body))
        self.received[number] = dict(event.message.annotations)
        self.delivery_context.accept(event)


def test_d5_what_its_documentation_shows_works(a_cluster):
    """Exchange, queue, binding, publishing with an outcome each, consuming, and all away again."""
    (broker,) = a_cluster(1, announce_product="rabbitmq")
    with Environment(uri=f"amqp://{broker.address}") as environment:
        connection = environment.connection()
        connection.dial()
        management = connection.management()
        management.declare_exchange(
            ExchangeSpecification(name="e", exchange_type=ExchangeType.direct)
        )
        management.declare_queue(QuorumQueueSpecification(name="q", deliver_limit=7))
        assert broker.call("list_queues", name="q")[0]["arguments"]["x-delivery-limit"] == 7
        binding = management.bind(
            ExchangeToQueueBindingSpecification(
                source_exchange="e", destination_queue="q", binding_key="k"
            )
        )
        publisher = connection.publisher(AddressHelper.exchange_address("e", "k"))
        for number in range(10):
            assert publisher.publish(text(number)).remote_state == OutcomeState.ACCEPTED
        publisher.close()
        publisher = connection.publisher(AddressHelper.queue_address("q"))
        publisher.publish(text(10))
        assert management.queue_info("q").message_count == 11
        received = {}
        consumer = connection.consumer(
            AddressHelper.queue_address("q"), message_handler=Handler(received), credit=20
        )
        container = consumer._receiver.container
        while len(received) < 11:
            container.process()
        routes = [{"x-exchange": "e", "x-routing-key": "k"}] * 10
        routes.append({"x-exchange": "", "x-routing-key": "q"})
        assert [received[number] for number in sorted(received)] == routes
        consumer.close()
        management.unbind(binding)
        management.delete_exchange("e")
        management.delete_queue("q")
        connection.close()


class Rejecter(AMQPMessagingHandler):
    """Discards each message, and notes the annotations of those that died before."""

    def __init__(self, seen, *, discards):
        super().__init__()
        self.seen, self.discards = seen, discards

    def on_amqp_message(self, event):
        self.seen.append(dict(event.message.annotations or {}))
        if self.discards:
            self.delivery_context.discard(event)
        else:
            self.delivery_context.accept(event)


def consume(connection, queue, count, *, discards=False):
    """Take messages from a queue; return their annotations."""
    seen = []
    handler = Rejecter(seen, discards=discards)
    consumer = connection.consumer(AddressHelper.queue_address(queue), message_handler=handler)
    container = consumer._receiver.container
    while len(seen) < count:
        container.process()
    consumer.close()
    return seen


def test_what_its_examples_do_with_quorum_queues_works(a_cluster):
    """Bindings between exchanges, dead letters and limits, as its examples `getting_started` and
    `rejected_messages` have or mention them.
    """
    (broker,) = a_cluster(1, announce_product="rabbitmq")
    with Environment(uri=f"amqp://{broker.address}") as environment:
        connection = environment.connection()
        connection.dial()
        management = connection.management()
        for name, kind in (("orders", ExchangeType.topic), ("audit", ExchangeType.fanout)):
            management.declare_exchange(ExchangeSpecification(name=name, exchange_type=kind))
        queue = QuorumQueueSpecification(
            name="shop", dead_letter_exchange="audit", dead_letter_routing_key="dead"
        )
        management.declare_queue(queue)
        management.declare_queue(QuorumQueueSpecification(name="archive"))
        onward = ExchangeToExchangeBindingSpecification(
            source_exchange="orders", destination_exchange="audit", binding_key="order.#"
        )
        bindings = [
            management.bind(
                ExchangeToQueueBindingSpecification(
                    source_exchange="orders", destination_queue="shop", binding_key="order.*"
                )
            ),
            management.bind(
                ExchangeToQueueBindingSpecification(
                    source_exchange="audit", destination_queue="archive", binding_key=""
                )
            ),
            management.bind(onward),
        ]
        publisher = connection.publisher(AddressHelper.exchange_address("orders", "order.new"))
        assert publisher.publish(text(1)).remote_state == OutcomeState.ACCEPTED
        publisher.close()
        assert len(consume(connection, "shop", 1, discards=True)) == 1
        first, dead = consume(connection, "archive", 2)
        assert "x-first-death-queue" not in first
        assert (dead["x-first-death-queue"], dead["x-first-death-reason"]) == ("shop", "rejected")
        management.declare_queue(QuorumQueueSpecification(name="full", max_len=5))
        publisher = connection.publisher(AddressHelper.queue_address("full"))
        for number in range(7):
            assert publisher.publish(text(number)).remote_state == OutcomeState.ACCEPTED
        publisher.close()
        assert management.purge_queue("full") == 5
        rejecting = QuorumQueueSpecification(
            name="rejecting", max_len=5, overflow_behaviour="reject-publish"
        )
        for _ in range(2):
            management.declare_queue(rejecting)
        publisher = connection.publisher(AddressHelper.queue_address("rejecting"))
        for number in range(5):
            assert publisher.publish(text(number)).remote_state == OutcomeState.ACCEPTED
        for number in range(2):
            with pytest.raises(AmqpMessageRejectedException, match="rejecting is full"):
                publisher.publish(text(number))
        publisher.close()
        assert management.purge_queue("rejecting") == 5
        for binding in reversed(bindings):
            management.unbind(binding)
        for name in ("shop", "archive", "full", "rejecting"):
            management.delete_queue(name)
        for name in ("orders", "audit"):
            management.delete_exchange(name)
        connection.close()


class Publisher(threading.Thread):
    """Publishes 0, 1, 2..., and makes another connection when one is lost: the client's own
    recovery is for connections that a broker closes in so many words, and a broker that dies, or
    hands over, says none.
    """

    def __init__(self, addresses):
        super().__init__(daemon=True)
        self.addresses = addresses
        self.accepted = set()
        self.number = 0
        self.stopping = False

    def run(self):
        while not self.stopping:
            environment = Environment(uris=self.addresses, recovery_configuration=NO_RECOVERY)
            with suppress(ConnectionException):
                self.publish(environment)
            with suppress(RuntimeError):  # "Errors closing connections": this one is gone
                environment.close()

    def publish(self, environment):
        connection = environment.connection()
        connection.dial()
        publisher = connection.publisher(AddressHelper.queue_address("q"))
        while not self.stopping:
            self.number += 1
            if publisher.publish(text(self.number)).remote_state == OutcomeState.ACCEPTED:
                self.accepted.add(self.number)


@pytest.mark.parametrize("fault", [kill, terminate, switch_over, restart_all])
def test_an_application_that_connects_again_goes_on_with_the_next_primary(a_cluster, fault):
    """All that was accepted is there, in order. (At a hung broker `publish` raises Timeout after
    60 s: the client asks for no heartbeats.)
    """
    cluster = a_cluster(3, announce_product="rabbitmq", ha_backup_timeout="1")
    cluster[0].declare_queue("q")
    publisher = Publisher(Access.to(cluster, 1).urls)
    publisher.start()
    wait_for(lambda: len(publisher.accepted), lambda seen: seen > 20, what="accepted before")
    fault(cluster)
    before = len(publisher.accepted)
    wait_for(lambda: len(publisher.accepted), lambda seen: seen > before + 20, what="after")
    publisher.stopping = True
    publisher.join(STATE)
    assert not publisher.is_alive()
    there = [int(body) for body in browse(cluster[2], "q")]
    assert publisher.accepted <= set(there)
    assert there == sorted(there)
