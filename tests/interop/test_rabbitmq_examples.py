"""What the examples of RabbitMQ's AMQP 1.0 client for Python do with quorum queues: the same calls,
in the same order, at a broker that calls itself RabbitMQ.

Those about streams and OAuth are not here: both are refused. What becomes of the reconnecting one
when a primary is lost is in `tests/interop/test_rabbitmq_python.py`.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from contextlib import suppress

import pytest
from rabbitmq_amqp_python_client import (
    AddressHelper,
    AmqpMessageRejectedException,
    AMQPMessagingHandler,
    AmqpUri,
    AsyncEnvironment,
    Connection,
    ConsumerOptions,
    ConsumerSettleStrategy,
    Converter,
    Environment,
    ExchangeSpecification,
    ExchangeToQueueBindingSpecification,
    Message,
    OutcomeState,
    PosixClientCert,
    PosixSslConfigurationContext,
    QuorumConsumerOptions,
    QuorumQueueSpecification,
)

from tests.patience import STATE
from tests.system.cluster import Cluster, wait_for
from tests.system.credentials import Authority

ACCEPTED = OutcomeState.ACCEPTED


class Stop(Exception):
    """The consumer has all it wants."""


class Handler(AMQPMessagingHandler):
    """Accepts each message; the last of `count` ends its consumer."""

    def __init__(self, count=0):
        super().__init__()
        self.count = count
        self.bodies = []

    def on_amqp_message(self, event):
        self.bodies.append(Converter.bytes_to_string(event.message.body))
        self.answer(event.message)
        if not event.delivery.settled:
            self.delivery_context.accept(event)
        if len(self.bodies) == self.count:
            raise Stop

    def answer(self, message):
        """Nothing more is done."""


def text(content):
    return Message(body=Converter.string_to_bytes(str(content)))


def publish(publisher, count):
    """Publish numbers, and see that each is accepted."""
    for number in range(count):
        assert publisher.publish(text(number)).remote_state == ACCEPTED


def run(consumer):
    """Run a consumer in a thread of its own, which ends with it or with the program."""

    def until_its_end():
        with suppress(Exception):
            consumer.run()

    threading.Thread(target=until_its_end, daemon=True).start()


def numbers(count):
    return [str(number) for number in range(count)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    options = {"announce_product": "rabbitmq"}
    cluster = Cluster(tmp_path_factory.mktemp("rabbitmq"), 1, options=options)
    cluster.start()
    yield cluster[0]
    cluster.close()


@pytest.fixture
def uri(broker):
    return f"amqp://guest:guest@{broker.address}/"


def test_done_4_getting_started_async(uri):
    async def play():
        async with (
            AsyncEnvironment(uri=uri) as environment,
            await environment.connection() as connection,
            await connection.management() as management,
        ):
            await management.declare_exchange(ExchangeSpecification(name="e"))
            await management.declare_queue(QuorumQueueSpecification(name="started"))
            bound = await management.bind(
                ExchangeToQueueBindingSpecification(
                    source_exchange="e", destination_queue="started", binding_key="k"
                )
            )
            async with await connection.publisher(
                AddressHelper.exchange_address("e", "k")
            ) as publisher:
                assert await management.purge_queue("started") == 0
                for number in range(20):
                    status = await publisher.publish(text(number))
                    assert status.remote_state == ACCEPTED
            handler = Handler(20)
            async with await connection.consumer(
                AddressHelper.queue_address("started"), message_handler=handler
            ) as consumer:
                with suppress(Stop):
                    await asyncio.create_task(consumer.run())
            assert handler.bodies == numbers(20)
            await management.unbind(bound)
            await management.delete_queue("started")
            await management.delete_exchange("e")

    asyncio.run(asyncio.wait_for(play(), STATE))


def play(environment):
    """Do what `getting_started` does, and `reconnection` and `tls` as well."""
    connection = environment.connection()
    connection.dial()
    management = connection.management()
    management.declare_exchange(ExchangeSpecification(name="x"))
    management.declare_queue(QuorumQueueSpecification(name="first"))
    bound = management.bind(
        ExchangeToQueueBindingSpecification(
            source_exchange="x", destination_queue="first", binding_key="k"
        )
    )
    publisher = connection.publisher(AddressHelper.exchange_address("x", "k"))
    assert management.purge_queue("first") == 0
    publish(publisher, 20)
    publisher.close()
    handler = Handler(20)
    consumer = connection.consumer(AddressHelper.queue_address("first"), message_handler=handler)
    with suppress(Stop):
        consumer.run()
    assert handler.bodies == numbers(20)
    consumer.close()
    management = connection.management()
    management.unbind(bound)
    management.delete_queue("first")
    management.delete_exchange("x")
    management.close()
    environment.close()


def test_done_4_getting_started(uri):
    play(Environment(uri=uri))


def test_done_4_tls(a_cluster, tmp_path):
    authority = Authority(tmp_path)
    certificate, key = authority.issue("broker", "DNS:localhost,IP:127.0.0.1")
    mine, my_key = authority.issue("client", "DNS:localhost")
    (broker,) = a_cluster(
        1,
        encrypted=True,
        announce_product="rabbitmq",
        ssl_cert=certificate,
        ssl_key=key,
        ssl_trusted=authority.certificate,
    )
    port = broker.member_address.rsplit(":", 1)[1]
    context = PosixSslConfigurationContext(
        ca_cert=str(authority.certificate),
        client_cert=PosixClientCert(client_cert=str(mine), client_key=str(my_key), password=None),
    )
    play(Environment(f"amqps://guest:guest@localhost:{port}/", ssl_context=context))


def test_done_4_direct_reply_to(uri):
    environment = Environment(uri=uri)
    connection = environment.connection()
    connection.dial()
    handler = Handler()  # some come while others are published: it is one engine
    consumer = connection.consumer(
        message_handler=handler,
        consumer_options=ConsumerOptions(settle_strategy=ConsumerSettleStrategy.DirectReplyTo),
    )
    publisher = connection.publisher(consumer.address)
    publish(publisher, 10)
    publisher.close()
    container = consumer._receiver.container
    while len(handler.bodies) < 10:
        container.process()
    assert handler.bodies == numbers(10)
    consumer.close()
    environment.close()


def test_done_4_amqp_uri(broker):
    host, port = broker.address.rsplit(":", 1)
    environment = Environment(amqp_uri=AmqpUri(host=host, port=int(port)))
    connection = environment.connection()
    connection.dial()
    management = connection.management()
    management.declare_queue(QuorumQueueSpecification(name="by-uri"))
    address = AddressHelper.queue_address("by-uri")
    publisher = connection.publisher(address)
    publish(publisher, 10)
    publisher.close()
    handler = Handler(10)
    consumer = connection.consumer(address, message_handler=handler)
    with suppress(Stop):
        consumer.run()
    consumer.close()
    assert handler.bodies == numbers(10)
    management = connection.management()
    management.delete_queue("by-uri")
    management.close()
    environment.close()


@pytest.mark.parametrize("strategy", ["ExplicitSettle", "PreSettled"])
def test_done_4_pre_settled_consumer(uri, strategy):
    environment = Environment(uri=uri)
    connection = environment.connection()
    connection.dial()
    management = connection.management()
    management.declare_queue(QuorumQueueSpecification(name="fifo"))
    address = AddressHelper.queue_address("fifo")
    publisher = connection.publisher(address)
    assert management.purge_queue("fifo") == 0
    publish(publisher, 50)
    publisher.close()
    handler = Handler(50)
    consumer = connection.consumer(
        destination=address,
        message_handler=handler,
        consumer_options=ConsumerOptions(settle_strategy=ConsumerSettleStrategy[strategy]),
    )
    with suppress(Stop):
        consumer.run()
    assert handler.bodies == numbers(50)
    consumer.close()
    management = connection.management()
    management.delete_queue("fifo")
    management.close()
    environment.close()


def test_done_4_rejected_messages(uri):
    environment = Environment(uri=uri)
    connection = environment.connection()
    connection.dial()
    management = connection.management()
    management.declare_queue(
        QuorumQueueSpecification(name="short", max_len=5, overflow_behaviour="reject-publish")
    )
    publisher = connection.publisher(AddressHelper.queue_address("short"))
    publish(publisher, 5)
    for _ in range(5):
        with pytest.raises(AmqpMessageRejectedException) as raised:
            publisher.publish(text("too many"))
        assert "short" in raised.value.msg
    publisher.close()
    assert management.purge_queue("short") == 5
    management.delete_queue("short")
    management.close()
    environment.close()


def test_done_4_quorum_queue_sac(uri):
    environment = Environment(uri=uri)
    setup = environment.connection()
    setup.dial()
    management = setup.management()
    management.declare_queue(QuorumQueueSpecification(name="sac", single_active_consumer=True))
    address = AddressHelper.queue_address("sac")
    told = [deque(), deque()]
    handlers = [Handler(), Handler()]

    for number in range(2):
        connection = Connection(uri=uri)
        connection.dial()
        consumer = connection.consumer(
            address,
            message_handler=handlers[number],
            consumer_options=QuorumConsumerOptions(sac_state_handler=told[number].append),
        )
        run(consumer)
    wait_for(lambda: sorted(map(list, told)), [[False], [True]].__eq__, what="told who is active")
    active = told.index(deque([True]))
    publisher = setup.publisher(address)
    publish(publisher, 20)
    publisher.close()
    wait_for(lambda: list(handlers[active].bodies), numbers(20).__eq__, what="received")
    assert handlers[1 - active].bodies == []
    management.delete_queue("sac")
    management.close()
    setup.close()  # and the consumers end with the program


class Responder(Handler):
    """Answers each request to where it wants the reply."""

    publisher = None

    def answer(self, message):
        body = Converter.bytes_to_string(message.body) + " answered"
        reply = Message(body=Converter.string_to_bytes(body))
        reply.correlation_id = message.correlation_id
        reply.address = message.reply_to
        assert self.publisher.publish(message=reply).remote_state == ACCEPTED


def test_done_4_rpc(uri):
    environment = Environment(uri=uri)
    serving = environment.connection()
    serving.dial()
    serving.management().delete_queue("rpc")
    serving.management().declare_queue(queue_specification=QuorumQueueSpecification("rpc"))
    address = AddressHelper.queue_address("rpc")
    responder = Responder(3)
    responder.publisher = serving.publisher()
    server = serving.consumer(destination=address, message_handler=responder)

    run(server)
    asking, hearing = environment.connection(), environment.connection()
    asking.dial()
    hearing.dial()  # the example has one connection for both, which its engine is not made for
    publisher = asking.publisher(address)
    handler = Handler()
    replies = hearing.consumer(
        consumer_options=ConsumerOptions(settle_strategy=ConsumerSettleStrategy.DirectReplyTo),
        message_handler=handler,
    )
    run(replies)
    for number in range(3):
        request = text(number)
        request.reply_to = replies.address
        request.correlation_id = str(number)
        publisher.publish(message=request)
        wait_for(lambda: len(handler.bodies), (number + 1).__eq__, what="replies")
    assert handler.bodies == ["0 answered", "1 answered", "2 answered"]
