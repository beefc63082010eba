"""Both faces of the client against a broker that is slow, broken or gone."""

from __future__ import annotations

import asyncio
import queue
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from qpidha.client import aio, blocking
from qpidha.client.blocking import Client
from qpidha.client.endpoint import Endpoint, Tls
from qpidha.client.errors import ClientError, ConnectError, LinkError, TimedOut, TransactionFailed
from qpidha.client.links import Delivery
from qpidha.model.errors import NotFound
from qpidha.model.message_view import build
from tests.client.served import Served
from tests.patience import STATE
from tests.system.credentials import Authority

COUNT = 60
BODY = bytes(100_000)
"""Together more than the buffers of two sockets hold."""


def let_read_when_closing(broker: Served, client: Client | aio.Client) -> threading.Thread:
    """Have the broker read again when the client is being closed."""

    def watch() -> None:
        while client._core.failure is None:
            broker.ended.wait(0.01)
        broker.reads.set()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


def test_a_close_waits_until_a_slow_broker_has_everything() -> None:
    with Served("q") as broker:
        client = Client(broker.address)
        sender = client.sender("q", settled=True)
        broker.pause()
        let_read_when_closing(broker, client)
        for _ in range(COUNT):
            sender.send_nowait(BODY)
        client.close()
        assert broker.ended.wait(STATE)
        assert len(broker.host.broker.queue("q").messages) == COUNT


def test_a_close_waits_until_a_slow_broker_has_everything_with_asyncio() -> None:
    async def main(broker: Served) -> None:
        client = aio.Client(broker.address)
        sender = await client.sender("q", settled=True)
        broker.pause()
        let_read_when_closing(broker, client)
        for _ in range(COUNT):
            await sender.send_nowait(BODY)
        await client.close()

    with Served("q") as broker:
        asyncio.run(main(broker))
        assert broker.ended.wait(STATE)
        assert len(broker.host.broker.queue("q").messages) == COUNT


@pytest.fixture(params=["amqp", "amqps"])
def serving(
    request: pytest.FixtureRequest, tmp_path: Path
) -> tuple[Callable[..., Served], dict[str, Tls]]:
    """How a broker is served, and what its clients have to say: plain, and with TLS."""
    if request.param == "amqp":
        return Served, {}
    authority = Authority(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("broker"))
    return partial(Served, encryption=context), {"tls": Tls(trusted=str(authority.certificate))}


TAIL = 40
"""Messages that a broker sends before it hangs up."""


def send_and_hang_up(broker: Served) -> None:
    """Have a broker send settled messages, and hang up right behind them."""

    def act(server: Any) -> None:
        for number in range(TAIL):
            broker.host.broker.queue("q").enqueue(build(f"{number}" + "." * 500))
        broker.hang_up()

    broker.do(act)
    assert broker.hung_up.wait(STATE)


def test_what_a_broker_sent_before_it_hung_up_arrives_though_nothing_can_be_written(
    serving: tuple[Callable[..., Served], dict[str, Tls]], monkeypatch: pytest.MonkeyPatch
) -> None:
    serve, options = serving
    with serve("q", "out") as broker, Client(broker.address, **options) as client:
        receiver = client.receiver("q", settled=True, credit=TAIL)
        sender = client.sender("out", settled=True)
        sender.send("attached")
        with client._lock:  # Nothing is read meanwhile.
            send_and_hang_up(broker)
            monkeypatch.setattr(blocking, "READ", 1000)
            for _ in range(3):
                sender.send_nowait(bytes(blocking.BATCH))
        bodies = [receiver.receive(STATE).body for _ in range(TAIL)]
        assert [int(text.rstrip(".")) for text in bodies] == list(range(TAIL))


def test_what_a_broker_sent_before_it_hung_up_arrives_with_asyncio(
    serving: tuple[Callable[..., Served], dict[str, Tls]],
) -> None:
    serve, options = serving

    async def main(broker: Served) -> None:
        async with aio.Client(broker.address, **options) as client:
            receiver = await client.receiver("q", settled=True, credit=TAIL)
            sender = await client.sender("out", settled=True)
            await sender.send("attached")
            send_and_hang_up(broker)  # The loop stands still meanwhile.
            for _ in range(3):
                await sender.send_nowait("nobody is there")
                client._after()
            bodies = [(await receiver.receive(STATE)).body for _ in range(TAIL)]
            assert [int(text.rstrip(".")) for text in bodies] == list(range(TAIL))

    with serve("q", "out") as broker:
        asyncio.run(main(broker))


LONG = "x" * 64
"""No label of a host's name may be as long."""


@pytest.mark.parametrize("scheme", ["amqp", "amqps"])
def test_a_host_that_cannot_exist_is_an_address_that_does_not_serve(scheme: str) -> None:
    with pytest.raises(ConnectError, match="no name of a host"):
        Client(f"{scheme}://{LONG}.example", fail_fast=True).open()
    with Served("q") as broker, Client([f"{LONG}.example", broker.address]) as client:
        client.sender("q").send("here")


@pytest.mark.parametrize("scheme", ["amqp", "amqps"])
def test_a_host_that_cannot_exist_does_not_serve_with_asyncio(scheme: str) -> None:
    async def main(broker: Served) -> None:
        with pytest.raises(ConnectError, match="no name of a host"):
            await aio.Client(f"{scheme}://{LONG}.example", fail_fast=True).open(timeout=STATE)
        async with aio.Client([f"{LONG}.example", broker.address], timeout=STATE) as client:
            await (await client.sender("q")).send("here")

    with Served("q") as broker:
        asyncio.run(main(broker))


NOWHERE = "127.0.0.1:1"
"""Nobody listens there."""


def broken(event: str, endpoint: Endpoint, error: ClientError | None) -> None:
    """Be an `on_event` that raises when something happens to the connection."""
    if event in ("lost", "failed"):
        raise KeyError(f"a callback's own: {event}")


def test_an_error_of_a_callback_wakes_whoever_waits_with_asyncio() -> None:
    async def main() -> None:
        client = aio.Client(NOWHERE, on_event=broken, timeout=STATE)
        for _ in range(2):
            with pytest.raises(ClientError, match="a callback's own: failed") as failed:
                await client.open()
            assert isinstance(failed.value.__cause__, KeyError)
        await client.close()

    asyncio.run(main())


def test_an_error_of_a_callback_fails_deliveries_with_asyncio() -> None:
    async def main(broker: Served) -> None:
        client = aio.Client(broker.address, on_event=broken, timeout=STATE)
        sender = await client.sender("q")
        broker.pause()
        sending = [asyncio.create_task(sender.send("never")) for _ in range(2)]
        await sender.send_nowait("never either")
        await asyncio.to_thread(broker.hang_up)
        for task in sending:
            with pytest.raises(ClientError, match="a callback's own: lost"):
                await task
        with pytest.raises(ClientError, match="a callback's own: lost"):
            await client.sender("q")
        await client.close()

    with Served("q") as broker:
        asyncio.run(main(broker))


def test_an_error_of_a_callback_in_the_thread_of_the_client_ends_calls() -> None:
    with Served("q") as broker:
        client = Client(broker.address, on_event=broken)
        sender = client.sender("q")
        receiver = client.receiver("q")
        broker.hang_up()
        while client._core.failure is None:
            broker.ended.wait(0.01)
        for call in (lambda: sender.send("never"), receiver.receive, sender.flush, client.open):
            with pytest.raises(ClientError, match="a callback's own: lost"):
                call()
        client.close()


@pytest.mark.parametrize("call", ["open", "sender", "receiver", "transaction", "request"])
def test_an_error_of_a_callback_in_the_thread_of_a_call_ends_the_client(call: str) -> None:
    arguments = {"sender": ["q"], "receiver": ["q"], "request": ["q", "text"]}.get(call, [])
    client = Client(NOWHERE, on_event=broken)
    for _ in range(2):
        with pytest.raises(ClientError, match="a callback's own: failed") as failed:
            getattr(client, call)(*arguments)
        assert isinstance(failed.value.__cause__, KeyError)
    client.close()


def test_an_error_of_a_callback_in_a_call_ends_the_deliveries_of_a_client() -> None:
    def outcome(delivery: Delivery) -> None:
        raise KeyError("a callback's own: an outcome")

    with Served("q") as broker:
        client = Client(broker.address, timeout=STATE)
        sender = client.sender("q", on_outcome=outcome)
        other = client.sender("q")
        for call in (lambda: sender.send("one"), lambda: other.send("two"), other.flush):
            with pytest.raises(ClientError, match="a callback's own: an outcome"):
                call()
        client.close()


@pytest.fixture
def slow_names(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Have a name service that does not answer before the event."""
    answers = threading.Event()
    look_up = socket.getaddrinfo

    def wait(*arguments: Any, **options: Any) -> Any:
        answers.wait()
        return look_up(*arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", wait)
    yield answers
    answers.set()


def test_a_call_returns_in_its_time_while_the_client_dials(slow_names: threading.Event) -> None:
    with Served("q") as broker:
        client = Client(broker.address)
        for call in (client.open, partial(client.receiver, "q"), client.transaction):
            with pytest.raises(TimedOut, match=r"longer than 0\.05 s: .* has not answered yet"):
                call(timeout=0.05)
        assert not client.wait(lambda: False, timeout=0.05)
        slow_names.set()
        client.open()
        client.sender("q").send("here")
        client.close()


def test_a_lookahead_does_not_wait_for_a_dial(slow_names: threading.Event) -> None:
    with Served("q") as broker:
        slow_names.set()
        client = Client(broker.address)
        sender, receiver = client.sender("q"), client.receiver("q")
        slow_names.clear()
        broker.hang_up()
        while client._dial is None:
            client.wait(lambda: False, timeout=0.01)
        assert receiver.receive_nowait() is None
        slow_names.set()
        sender.send("here")
        assert receiver.receive().body == "here"
        client.close()


def test_a_client_that_is_closed_gives_up_its_dial(slow_names: threading.Event) -> None:
    with Served("q") as broker:
        client = Client(broker.address)
        with pytest.raises(TimedOut):
            client.open(timeout=0.05)
        dial = client._dial
        assert dial is not None
        client.close()
        assert client._dial is None
        slow_names.set()
        assert dial._done.wait(STATE)
        assert dial._stream is None


def test_a_dial_that_takes_too_long_leads_to_the_next_address(slow_names: threading.Event) -> None:
    heard: list[str] = []

    def hear(event: str, endpoint: Endpoint, error: ClientError | None) -> None:
        heard.append(f"{event} {error.reason if error else endpoint.host}")
        slow_names.set()

    with Served("q") as broker:
        # Two heartbeats, 0.1 s at the least, are what an address has.
        with Client(["localhost:1", broker.address], heartbeat=0.05, on_event=hear) as client:
            assert client.connects
        assert heard[0] == "failed within 0.1 s"


def test_a_rollback_does_not_wait_for_credit() -> None:
    with Served("q") as broker, Client(broker.address) as client:
        sender = client.sender("q")
        with pytest.raises(KeyError), client.transaction() as transaction:
            sender._link._credit = 0
            delivery = sender.send_nowait("never", transaction=transaction)
            raise KeyError
        assert transaction.state == "rolled back"
        assert isinstance(delivery.error, TransactionFailed)


def test_a_rollback_does_not_wait_for_credit_with_asyncio() -> None:
    async def main(broker: Served) -> None:
        async with aio.Client(broker.address) as client:
            sender = await client.sender("q")
            with pytest.raises(KeyError):
                async with await client.transaction() as transaction:
                    sender._link._credit = 0
                    delivery = await sender.send_nowait("never", transaction=transaction)
                    raise KeyError
            assert transaction.state == "rolled back"
            assert isinstance(delivery.error, TransactionFailed)

    with Served("q") as broker:
        asyncio.run(main(broker))


def test_a_session_of_its_own_and_an_end_with_the_connection() -> None:
    with Served("q") as broker:
        client = Client(broker.address, reconnect=False)
        client.sender("q").send("here")
        receiver = client.receiver("q", own_session=True)
        assert len(sessions(broker)) == 2
        assert receiver.receive().body == "here"
        assert receiver.error is None
        broker.hang_up()
        with pytest.raises(ConnectError, match="was lost"):
            receiver.receive()
        assert isinstance(receiver.error, ConnectError)
        client.close()


def test_a_session_of_its_own_and_an_end_with_the_connection_with_asyncio() -> None:
    async def main(broker: Served) -> None:
        client = aio.Client(broker.address, reconnect=False)
        sender = await client.sender("q")
        await sender.send("here")
        receiver = await client.receiver("q", own_session=True)
        assert len(await asyncio.to_thread(sessions, broker)) == 2
        assert (await receiver.receive()).body == "here"
        assert sender.error is None
        await asyncio.to_thread(broker.hang_up)
        with pytest.raises(ConnectError, match="was lost"):
            await receiver.receive()
        assert isinstance(sender.error, ConnectError)
        await client.close()

    with Served("q") as broker:
        asyncio.run(main(broker))


def sessions(broker: Served) -> list[Any]:
    """Return the sessions of the connection of the moment."""
    found: queue.SimpleQueue[list[Any]] = queue.SimpleQueue()
    broker.do(lambda server: found.put(list(server._engine._sessions)))
    return found.get(timeout=STATE)


def delete_replies(broker: Served, after: int) -> None:
    """Delete the queue for replies once the queue q has some requests."""

    def delete(server: Any) -> None:
        if len(broker.host.broker.queue("q").messages) < after:
            broker.do(delete)
            return
        (name,) = (name for name in broker.host.broker.queues if name != "q")
        broker.host.broker.delete_queue(name)

    broker.do(delete)


def end_incoming(server: Any) -> None:
    """End the link on which the client sends."""
    for end in list(server._engine._links.values()):
        if not end.is_sender:
            end.end(NotFound("no requests any more"))


def test_a_request_ends_with_its_links_and_the_next_one_has_new_ones() -> None:
    with Served("q") as broker, Client(broker.address) as client:
        delete_replies(broker, after=1)
        with pytest.raises(LinkError, match="ended the link"):
            client.request("q", "one")
        delete_replies(broker, after=2)
        with pytest.raises(LinkError, match="ended the link"):
            client.request("q", "two")
        broker.do(end_incoming)
        requester = client._requester
        assert requester is not None
        client.wait(lambda: requester._link.error is not None)
        with pytest.raises(TimedOut, match="the reply"):
            client.request("q", "three", timeout=0.5)
        assert len(broker.host.broker.queue("q").messages) == 3


def test_a_request_ends_with_its_links_with_asyncio() -> None:
    async def main(broker: Served) -> None:
        async with aio.Client(broker.address) as client:
            delete_replies(broker, after=1)
            with pytest.raises(LinkError, match="ended the link"):
                await client.request("q", "one")
            with pytest.raises(TimedOut, match="the reply"):
                await client.request("q", "two", timeout=0.5)
            broker.do(end_incoming)
            requester = client._requester
            assert requester is not None
            await client._wait(lambda: requester._link.error is not None, 10.0, "the end")
            with pytest.raises(TimedOut, match="the reply"):
                await client.request("q", "three", timeout=0.5)
            assert len(broker.host.broker.queue("q").messages) == 3

    with Served("q") as broker:
        asyncio.run(main(broker))
