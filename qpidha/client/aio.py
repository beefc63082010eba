"""The asyncio client: connections, senders, receivers and transactions for programs with an event
loop.

    async with Client("amqps://one:5671,amqps://two:5671", user="ann", password="...") as client:
        sender = await client.sender("orders")
        await sender.send(Message(b"..."))

It has the names and meaning of `qpidha.client.blocking`, on the same core; what waits there is
awaited here. A task of the client's keeps the connection and its heartbeats, dials after a failover
and sends again what has no outcome. A client belongs to the event loop in which it was opened, and
any number of tasks of it may wait at a time. All times are seconds. Source: AMQP 1.0 parts 2 to 4.
"""

from __future__ import annotations

import asyncio
import select
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, Self

from qpidha.client.core import ENDED, SECOND
from qpidha.client.dialling import DEFAULT, Timeout, dial_error
from qpidha.client.endpoint import Endpoint
from qpidha.client.errors import ClientError, Closed
from qpidha.client.face import (
    GOODBYE,
    ClientFace,
    ReceiverFace,
    SenderFace,
    TransactionFace,
    address_request,
    check_outcomes,
    is_accepted,
    reply_error,
)
from qpidha.client.links import Delivery, Link, Received
from qpidha.client.links import Receiver as ReceiverLink
from qpidha.client.links import Sender as SenderLink
from qpidha.client.links import Transaction as TransactionState
from qpidha.client.message import Message, Outcome, payload_of

HUNG_UP = getattr(select, "POLLRDHUP", 0)
"""That the other end sends nothing more; 0 where the system does not say it."""
TURN = 100
"""Messages that a receiver hands out before other tasks get their turn."""


class _Stream(asyncio.Protocol):
    """Carries bytes between a transport and the core."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.paused = False
        self._poll: select.poll | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Find out how to tell whether the broker has hung up."""
        if HUNG_UP:
            self._poll = select.poll()
            self._poll.register(transport.get_extra_info("socket").fileno(), HUNG_UP)

    def has_peer(self) -> bool:
        """Whether the broker has not hung up, as far as the kernel knows. What it sent before may
        not be read yet: a write that fails would end the transport, and that would be lost.
        """
        return self._poll is None or not self._poll.poll(0)

    def data_received(self, data: bytes) -> None:
        """Take bytes of the broker."""
        client = self.client
        if client._stream is self:
            try:
                client._core.received(data, time.monotonic_ns())
                client._after()
            except Exception as fault:  # noqa: BLE001  # A callback's; every later call raises it.
                client._broke(fault)

    def connection_lost(self, error: Exception | None) -> None:
        """Hear that the stream has ended."""
        client = self.client
        if client._stream is self:
            client._transport = client._stream = None
            reason = str(error) if error is not None else "the broker ended the connection"
            try:
                client._core.hung_up(reason, time.monotonic_ns())
                client._after()
            except Exception as fault:  # noqa: BLE001  # A callback's; every later call raises it.
                client._broke(fault)

    def pause_writing(self) -> None:
        """Leave output in the engine: the broker does not read."""
        self.paused = True

    def resume_writing(self) -> None:
        """Go on writing."""
        self.paused = False
        self.client._after()


class Client(ClientFace[Coroutine[Any, Any, "Sender"], Coroutine[Any, Any, "Receiver"]]):
    """A client of a broker or a cluster of them; `sender` and `receiver` are awaited."""

    def _set_up(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._stream: _Stream | None = None
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._nudge = asyncio.Event()
        self._waiters: dict[asyncio.Future[None], Callable[[], bool]] = {}
        self._is_flush_due = False
        self._requester: Sender | None = None
        self._replies: Receiver | None = None
        self._request_lock = asyncio.Lock()

    # Opening and closing.

    async def open(self, timeout: Timeout = DEFAULT) -> Self:
        """Connect. Raises ConnectError, LoginError, TlsError or TimedOut."""
        self._start()
        await self._wait(lambda: self._core.is_open, timeout, "the opening of a connection")
        return self

    async def close(self, timeout: Timeout = DEFAULT) -> None:
        """Wait until everything that was sent has an outcome, then say goodbye.

        Raises TimedOut if that takes too long, NotAccepted if the broker did not accept a message
        that nobody asked about; the client is closed in any case.
        """
        deadline = self._deadline(timeout)
        try:
            if self._core.failure is None:
                for link in list(self._core.links):
                    if isinstance(link, SenderLink) and link.error is None:
                        await self._flush_link(link, self._left(deadline))
        finally:
            await self._end()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            await self.close()
        else:
            await self._end()

    # Links.

    async def _attach_sender(self, link: SenderLink, timeout: Timeout) -> Sender:
        await self._attach(link, timeout)
        return Sender(self, link)

    async def _attach_receiver(self, link: ReceiverLink, timeout: Timeout) -> Receiver:
        receiver = Receiver(self, link)
        await self._attach(link, timeout)
        return receiver

    async def transaction(self, timeout: Timeout = DEFAULT) -> Transaction:
        """Begin a transaction (AMQP 1.0 part 4): `async with await client.transaction() as
        transaction` commits at the end of the block, and rolls back if the block raises.
        """
        deadline = self._deadline(timeout)
        self._start()
        await self._wait(lambda: self._core.is_open, timeout, "a connection")
        state = self._core.coordinator.declare()
        self._soon()
        await self._wait(
            lambda: state.state != "declaring",
            self._left(deadline),
            "the beginning of a transaction",
        )
        state.check()
        return Transaction(self, state)

    async def request(
        self, address: str, message: Message | bytes | str, *, timeout: Timeout = DEFAULT
    ) -> Received:
        """Send a request and return its reply, which comes to a dynamic queue of this client; any
        number of tasks may ask at a time.

        `reply_to` and `correlation_id` of the message are set. Raises NotAccepted, TimedOut, or
        ReplyLost if the connection was lost before the reply came: the request may have been done.
        """
        deadline = self._deadline(timeout)
        sender, replies = await self._request_links(deadline)
        link = replies._link
        await self._wait(
            lambda: link.is_open or link.error is not None,
            self._left(deadline),
            "a queue for the reply",
        )
        if (ended := link.error) is not None:
            raise ended
        generation = link.generation
        request, correlation = address_request(message, address, replies.address)
        found: list[Received] = []
        replies._answers[correlation] = found
        try:
            delivery = await sender.send_nowait(request, timeout=self._left(deadline))
            await self._wait(
                lambda: (
                    bool(found)
                    or link.generation != generation
                    or link.error is not None
                    or (delivery.is_done and not is_accepted(delivery))
                ),
                self._left(deadline),
                f"the reply from {address!r}",
            )
        finally:
            del replies._answers[correlation]
        if found:
            return found[0]
        sender._check(delivery)
        raise reply_error(link, address)

    async def _request_links(self, deadline: float | None) -> tuple[Sender, Receiver]:
        """Return the links for requests and their replies, a new one where the broker ended it."""
        async with self._request_lock:
            self._requester = self._unless_ended(self._requester)
            if self._requester is None:
                self._requester = await self.sender(None, timeout=self._left(deadline))
            self._replies = self._unless_ended(self._replies)
            if self._replies is None:
                self._replies = await self.receiver(dynamic=True, timeout=self._left(deadline))
                self._replies._link.on_message = self._replies._sort
            return self._requester, self._replies

    # Waiting.

    async def _attach(self, link: Link, timeout: Timeout) -> None:
        self._start()
        self._core.add(link)
        self._soon()
        try:
            await self._wait(
                lambda: link.is_open or link.error is not None,
                timeout,
                f"the attach of a link to {link.address or 'any address'!r}",
            )
        except BaseException:
            self._core.remove(link)
            self._soon()
            raise
        if link.error is not None:
            self._core.remove(link)
            raise link.error

    def _start(self) -> None:
        """Begin to keep a connection, once."""
        self._check()
        if self._task is None:
            self._loop = asyncio.get_running_loop()
            self._task = self._loop.create_task(self._keep(), name="qpidha-client")
            self._task.add_done_callback(self._kept)

    async def _wait(self, until: Callable[[], bool], timeout: Timeout, what: str) -> None:
        """Wait until a condition holds. Raises TimedOut, or why the client has ended."""
        if until():
            return
        self._check()
        assert self._loop is not None
        seconds = self._seconds(timeout)
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiters[future] = until
        try:
            async with asyncio.timeout(seconds):
                await future
        except TimeoutError:
            raise self._timed_out(what, seconds or 0.0) from None
        finally:
            self._waiters.pop(future, None)
        if not until():
            self._check()

    def _after(self) -> None:
        """Write what there is to write, and wake whoever waits for what has happened."""
        self._is_flush_due = False
        core = self._core
        if self._transport is not None and self._stream is not None and not self._stream.paused:
            data = core.output()
            if data and self._stream.has_peer():
                self._transport.write(data)
        self._settle_stream()
        for future, until in list(self._waiters.items()):
            if not future.done() and (core.failure is not None or until()):
                future.set_result(None)
        if self._transport is None or not core.tick_at:
            self._nudge.set()

    def _settle_stream(self) -> None:
        """Drop the stream if the core has no more use for it; at the end of the client it is kept
        until the broker hangs up, which has read everything then.
        """
        transport = self._transport
        if transport is None or not self._core.closed:
            return
        if not self._is_ending:
            self._transport = self._stream = None
            transport.abort()
        elif transport.can_write_eof():
            transport.write_eof()

    def _soon(self) -> None:
        """Write when the present task has said all that it has to say."""
        if not self._is_flush_due and self._loop is not None:
            self._is_flush_due = True
            self._loop.call_soon(self._after)

    async def _keep(self) -> None:
        """Keep a connection and its heartbeats until the client ends."""
        core = self._core
        while core.state != ENDED:
            now = time.monotonic_ns()
            self._nudge.clear()
            if self._transport is None:
                endpoint = core.next_dial(now)
                if endpoint is not None:
                    await self._dial(endpoint, now)
                    self._after()
                    continue
                due = core.retry_at
            else:
                core.tick(now)
                self._after()
                due = core.tick_at
            try:
                async with asyncio.timeout(max((due - now) / SECOND, 0.001)):
                    await self._nudge.wait()
            except TimeoutError:
                pass
        self._after()

    def _kept(self, task: asyncio.Task[None]) -> None:
        """Look how the task that keeps the connection has ended."""
        if not task.cancelled() and isinstance(fault := task.exception(), Exception):
            self._broke(fault)

    def _broke(self, fault: Exception) -> None:
        """End the client, whose calls raise the error of a callback from now on."""
        self._core.broke(fault)
        transport, self._transport, self._stream = self._transport, None, None
        if transport is not None:
            transport.abort()
        self._after()

    async def _dial(self, endpoint: Endpoint, now: int) -> None:
        """Connect to an address, with TLS if it is to be."""
        core, loop = self._core, self._loop
        assert loop is not None
        limit = core.time_for_dial(now) / SECOND
        stream, tickets = _Stream(self), core.tickets()
        try:
            async with asyncio.timeout(limit):
                if tickets is not None:
                    await _in_thread(loop, tickets.begin)
                transport, _ = await loop.create_connection(
                    lambda: stream,
                    endpoint.host,
                    endpoint.port,
                    ssl=self._make_context() if endpoint.tls else None,
                    server_hostname=self._server_name(endpoint) if endpoint.tls else None,
                )
        except (OSError, ValueError, ClientError) as error:  # ValueError: no name of a host.
            core.dial_failed(time.monotonic_ns(), dial_error(endpoint, error, limit))
            return
        if core.state == ENDED:
            transport.abort()
            return
        self._transport, self._stream = transport, stream
        core.dialled(time.monotonic_ns(), encrypted=endpoint.tls, tickets=tickets)

    async def _flush_link(self, link: SenderLink, timeout: Timeout) -> None:
        """Wait until everything that was sent on a link has an outcome."""
        self._soon()
        await self._wait(
            lambda: not link.unsettled or link.error is not None,
            timeout,
            f"the outcome of {link.unsettled} messages to {link.address!r}",
        )
        check_outcomes(link)

    async def _end(self) -> None:
        """Say goodbye, and do not wait long for the answer."""
        core = self._core
        self._is_ending = True
        core.close(time.monotonic_ns())
        self._after()
        if self._transport is not None:
            try:
                async with asyncio.timeout(GOODBYE):
                    while self._transport is not None:
                        self._nudge.clear()
                        await self._nudge.wait()
            except TimeoutError:
                pass
        if self._transport is not None:
            self._transport.abort()
            self._transport = self._stream = None
        core.hung_up("closed", time.monotonic_ns())
        core.state = ENDED
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])  # `_kept` looks how it has ended.


class Sender(SenderFace):
    """Sends messages to one address; made by `Client.sender`."""

    def __init__(self, client: Client, link: SenderLink) -> None:
        super().__init__(link)
        self._client = client

    async def send(
        self,
        message: Message | bytes | str,
        *,
        timeout: Timeout = DEFAULT,
        transaction: Transaction | None = None,
    ) -> None:
        """Send a message and wait until the broker accepted it, through failovers.

        bytes or str are the body of one. Raises NotAccepted with the outcome if the broker did
        not accept it, TimedOut (then it is still sent, and may be accepted), or why the link or
        client has ended.
        """
        deadline = self._client._deadline(timeout)
        delivery = await self.send_nowait(message, transaction=transaction, timeout=timeout)
        await self._done(delivery, self._client._left(deadline))
        self._check(delivery)

    async def send_nowait(
        self,
        message: Message | bytes | str,
        *,
        transaction: Transaction | None = None,
        timeout: Timeout = DEFAULT,
    ) -> Delivery:
        """Send a message without waiting for its outcome; it waits only while the window is used
        up. The outcome comes to the delivery that is returned.
        """
        payload = payload_of(message)
        link, client = self._link, self._client
        while link.is_full and link.error is None:
            client._soon()
            await client._wait(
                lambda: not link.is_full or link.error is not None,
                timeout,
                f"room in the window of {link.window} messages to {self.address!r}",
            )
        delivery = link.send(payload, None if transaction is None else transaction._state)
        client._soon()
        return delivery

    async def wait(self, delivery: Delivery, timeout: Timeout = DEFAULT) -> Outcome:
        """Wait for the outcome of a delivery, whatever it is."""
        await self._done(delivery, timeout)
        if delivery.error is not None:
            raise delivery.error
        assert delivery.outcome is not None
        return delivery.outcome

    async def flush(self, timeout: Timeout = DEFAULT) -> None:
        """Wait until every message that was sent has an outcome. Raises NotAccepted for the first
        that was not accepted since the last call, unless `on_outcome` hears of them.
        """
        await self._client._flush_link(self._link, timeout)

    async def close(self, timeout: Timeout = DEFAULT) -> None:
        """Wait for the outcomes, then detach."""
        try:
            if self._link.error is None:
                await self._client._flush_link(self._link, timeout)
        finally:
            self._client._core.remove(self._link)
            self._client._soon()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            await self.close()

    async def _done(self, delivery: Delivery, timeout: Timeout) -> None:
        """Wait for one delivery: many tasks may wait for one each, and only its own is woken."""
        if delivery.is_done:
            return
        client = self._client
        assert client._loop is not None
        future: asyncio.Future[None] = client._loop.create_future()
        delivery.on_done = partial(_resolve, future)
        seconds = client._seconds(timeout)
        try:
            async with asyncio.timeout(seconds):
                await future
        except TimeoutError:
            raise client._timed_out(
                f"the outcome of a message to {self.address!r}", seconds or 0.0
            ) from None
        finally:
            delivery.on_done = None


class Receiver(ReceiverFace):
    """Receives messages from one address; made by `Client.receiver`. `async for` waits for messages
    for ever.
    """

    def __init__(self, client: Client, link: ReceiverLink) -> None:
        super().__init__(link)
        self._client = client
        self._taken = 0
        self._answers: dict[str, list[Received]] = {}

    async def receive(self, timeout: Timeout = DEFAULT) -> Received:
        """Wait for a message and take it. Raises TimedOut, or why the link or client has ended."""
        link, client = self._link, self._client
        self._taken += 1
        if self._taken % TURN == 0:
            await asyncio.sleep(0)
        while not link.buffer:
            if link.error is not None:
                raise link.error
            client._start()
            await client._wait(
                lambda: bool(link.buffer) or link.error is not None,
                timeout,
                f"a message from {self.address!r}",
            )
        client._soon()
        return link.take()

    def receive_nowait(self) -> Received | None:
        """Take a message that is here already; None if there is none."""
        if not self._link.buffer:
            return None
        self._client._soon()
        return self._link.take()

    async def __aiter__(self) -> AsyncIterator[Received]:
        while True:
            try:
                message = await self.receive(None)
            except Closed:
                return
            yield message

    async def until_empty(self, timeout: Timeout = DEFAULT) -> AsyncIterator[Received]:
        """Take messages until the broker says that there are no more now (it drains the credit).
        `timeout` is for each answer of the broker.
        """
        link = self._link
        while True:
            if not link.buffer:
                await self.drain(timeout)
                if not link.buffer:
                    link.check_empty()
                    return
            yield await self.receive(timeout)

    def add_credit(self, messages: int) -> None:
        """Let the broker send this many messages more, on a link with `credit=0`."""
        self._link.flow(messages)
        self._client._soon()

    @property
    def kept_back(self) -> int:
        """Messages that the broker had at the last `drain` and sends when others are settled."""
        return self._link.kept_back

    async def drain(self, timeout: Timeout = DEFAULT) -> int:
        """Have the broker use its credit or give it back; return how many messages are here
        then (AMQP 1.0 section 2.6.7).
        """
        link, client = self._link, self._client
        client._start()
        if client._is_flush_due:
            await asyncio.sleep(0)  # Outcomes first: they make room.
        deadline = client._deadline(timeout)
        while True:
            await client._wait(
                lambda: link.is_open or link.error is not None,
                client._left(deadline),
                f"the link to {self.address!r}",
            )
            if link.error is not None:
                raise link.error
            if link.credit <= 0:
                break
            link.drain()
            client._soon()
            ended = partial(link.drain_ended, link.generation)
            await client._wait(ended, client._left(deadline), f"the drain of {self.address!r}")
            if link.is_drained:
                link.refill()
                client._soon()
                break
        return len(link.buffer)

    def settle(self, message: Received, outcome: Outcome, transaction: Any) -> None:
        """Give a message its outcome: `Received.accept` and its like call this."""
        self._link.settle(message, outcome, None if transaction is None else transaction._state)
        self._client._soon()

    async def wait_confirmed(self, timeout: Timeout = DEFAULT) -> None:
        """Wait until the broker has confirmed the outcome of every message. One whose connection
        was lost meanwhile is never confirmed, and is delivered again.
        """
        await self._client._wait(
            lambda: not self._link.unconfirmed,
            timeout,
            f"the confirmation of {self._link.unconfirmed} messages of {self.address!r}",
        )

    async def close(self) -> None:
        """Detach; the broker gives messages without an outcome to others."""
        self._client._core.remove(self._link)
        self._client._soon()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _sort(self) -> None:
        """Give a reply to the request that it answers; nobody waits for others any more."""
        reply = self._link.take()
        reply.accept()
        try:
            correlation = str(reply.properties.correlation_id)
        except ValueError:
            return  # It is no message, so nobody's reply.
        found = self._answers.get(correlation)
        if found is not None:
            found.append(reply)


class Transaction(TransactionFace):
    """Messages and outcomes that hold together or not at all; made by `Client.transaction`.

    Give it to `Sender.send` and to `Received.accept`. It ends with its connection: then every call
    raises TransactionLost, and nothing of it is sent again by itself.
    """

    def __init__(self, client: Client, state: TransactionState) -> None:
        super().__init__(state)
        self._client = client

    async def commit(self, timeout: Timeout = DEFAULT) -> None:
        """Make everything hold. Raises TransactionFailed if the broker rolled it back,
        TransactionLost if the connection was lost.
        """
        await self._discharge(False, timeout)

    async def roll_back(self, timeout: Timeout = DEFAULT) -> None:
        """Undo everything: messages sent are dropped, messages received are given back."""
        await self._discharge(True, timeout)

    async def _discharge(self, failed: bool, timeout: Timeout) -> None:
        state, client = self._state, self._client
        deadline = client._deadline(timeout)
        if failed:
            state.give_up_unsent()
        await client._wait(
            lambda: not state.waiting or state.is_over,
            timeout,
            f"the confirmation of {state.waiting} messages of a transaction",
        )
        client._core.coordinator.discharge(state, failed=failed)
        client._soon()
        await client._wait(
            lambda: state.is_over, client._left(deadline), "the end of a transaction"
        )
        if state.error is not None and not failed:
            raise state.error

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._state.is_over and self._state.error is None:
            return
        if kind is None:
            await self.commit()
            return
        try:
            await self.roll_back()
        except ClientError:
            pass  # It is rolled back in any case; the error of the block is what matters.


async def _in_thread(loop: asyncio.AbstractEventLoop, work: Callable[[], None]) -> None:
    """Wait for what asks the network. A thread that hangs is not waited for at the end of the
    program, as those of the loop's executor are.
    """
    done: asyncio.Future[None] = loop.create_future()

    def run() -> None:
        work()
        with suppress(RuntimeError):  # The loop is closed.
            loop.call_soon_threadsafe(_resolve, done)

    threading.Thread(target=run, daemon=True, name="qpidha-client-tickets").start()
    await done


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
