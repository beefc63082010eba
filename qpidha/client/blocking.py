"""The blocking client: connections, senders, receivers and transactions for programs with threads.

    with Client("amqps://one:5671,amqps://two:5671", user="ann", password="...") as client:
        client.sender("orders").send(Message(b"..."))

A client keeps one connection, to whichever broker serves. When that is lost it connects to the next
one, attaches its links again and sends again what has no outcome: calls wait meanwhile, at most
`reconnect_timeout`. A small thread of its own keeps the heartbeats while the program is busy
elsewhere, and sends what `send_nowait` left. A client may be used from several threads, of which
one at a time is in a call; programs that wait in several threads use a client in each. All times
are seconds. Source: AMQP 1.0 parts 2 to 4.
"""

from __future__ import annotations

import select
import socket
import ssl
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Self

from qpidha.client.core import ENDED, SECOND
from qpidha.client.dial import Dial
from qpidha.client.dialling import DEFAULT, Timeout, dial_error
from qpidha.client.endpoint import Endpoint
from qpidha.client.errors import ClientError, Closed, TimedOut
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
from qpidha.client.links import ALL_IS_WELL, Delivery, Link, Received
from qpidha.client.links import Receiver as ReceiverLink
from qpidha.client.links import Sender as SenderLink
from qpidha.client.links import Transaction as TransactionState
from qpidha.client.message import Message, Outcome, payload_of

READ = 1 << 16
"""Bytes asked of the socket at a time."""
BATCH = 1 << 15
"""Bytes of messages that `send_nowait` gathers before they are written."""
LINGER = 0.002
"""How long what `send_nowait` left may wait for the thread that sends it."""


class Client(ClientFace["Sender", "Receiver"]):
    """A client of a broker or a cluster of them."""

    def _set_up(self) -> None:
        self._lock = threading.RLock()
        self._dial: Dial | None = None
        """The attempt to reach a broker that is under way."""
        self._socket: socket.socket | None = None
        self._poll = select.poll()
        self._unsent: memoryview | bytes = b""
        self._busy = threading.Event()
        self._linger_bytes = 0
        self._keeper: threading.Thread | None = None
        self._requester: Sender | None = None
        self._replies: Receiver | None = None

    # Opening and closing.

    def open(self, timeout: Timeout = DEFAULT) -> Self:
        """Connect now, and not at the first link. Raises ConnectError, LoginError, TlsError or
        TimedOut.
        """
        with self._lock:
            self._start()
            self._wait(self._is_open, timeout, "the opening of a connection")
        return self

    def close(self, timeout: Timeout = DEFAULT) -> None:
        """Wait until everything that was sent has an outcome, then say goodbye.

        Raises TimedOut if that takes too long, NotAccepted if the broker did not accept a message
        that nobody asked about; the client is closed in any case.
        """
        with self._lock:
            deadline = self._deadline(timeout)
            try:
                if self._core.failure is None:
                    for link in list(self._core.links):
                        if isinstance(link, SenderLink) and link.error is None:
                            self._flush_link(link, self._left(deadline))
            finally:
                self._end()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            with self._lock:
                self._end()

    # Links.

    def _attach_sender(self, link: SenderLink, timeout: Timeout) -> Sender:
        self._attach(link, timeout)
        return Sender(self, link)

    def _attach_receiver(self, link: ReceiverLink, timeout: Timeout) -> Receiver:
        receiver = Receiver(self, link)
        self._attach(link, timeout)
        return receiver

    def transaction(self, timeout: Timeout = DEFAULT) -> Transaction:
        """Begin a transaction (AMQP 1.0 part 4). As a context manager it commits at the end of the
        block, and rolls back if the block raises.
        """
        with self._lock:
            deadline = self._deadline(timeout)
            self._start()
            self._wait(self._is_open, timeout, "a connection")
            state = self._core.coordinator.declare()
            self._wait(
                lambda: state.state != "declaring",
                self._left(deadline),
                "the beginning of a transaction",
            )
            state.check()
        return Transaction(self, state)

    def request(
        self, address: str, message: Message | bytes | str, *, timeout: Timeout = DEFAULT
    ) -> Received:
        """Send a request and return its reply, which comes to a dynamic queue of this client.

        `reply_to` and `correlation_id` of the message are set. Raises NotAccepted, TimedOut, or
        ReplyLost if the connection was lost before the reply came: the request may have been done.
        """
        with self._lock:
            deadline = self._deadline(timeout)
            sender, replies = self._request_links(deadline)
            link = replies._link
            self._wait(
                lambda: link.is_open or link.error is not None,
                self._left(deadline),
                "a queue for the reply",
            )
            if (ended := link.error) is not None:
                raise ended
            generation = link.generation
            request, correlation = address_request(message, address, replies.address)
            delivery = sender.send_nowait(request, timeout=self._left(deadline))
            self._flush()

            def answered() -> bool:
                return (
                    bool(link.buffer)
                    or link.generation != generation
                    or link.error is not None
                    or (delivery.is_done and not is_accepted(delivery))
                )

            while True:
                self._wait(answered, self._left(deadline), f"the reply from {address!r}")
                while link.buffer:
                    reply = link.take()
                    reply.accept()
                    if reply.properties.correlation_id == correlation:
                        self._flush()
                        return reply
                sender._check(delivery)
                if link.error is not None or link.generation != generation:
                    raise reply_error(link, address)

    def _request_links(self, deadline: float | None) -> tuple[Sender, Receiver]:
        """Return the links for requests and their replies, a new one where the broker ended it."""
        self._requester = self._unless_ended(self._requester)
        if self._requester is None:
            self._requester = self.sender(None, timeout=self._left(deadline))
        self._replies = self._unless_ended(self._replies)
        if self._replies is None:
            self._replies = self.receiver(dynamic=True, timeout=self._left(deadline))
        return self._requester, self._replies

    # Waiting.

    def wait(self, until: Callable[[], bool], timeout: Timeout = DEFAULT) -> bool:
        """Read and write until a condition holds that the broker's bytes may change; return
        whether it does when the time is over.
        """
        with self._lock:
            self._start()
            try:
                self._wait(until, timeout, "")
            except TimedOut:
                return False
            return True

    def _attach(self, link: Link, timeout: Timeout) -> None:
        with self._lock:
            self._start()
            self._core.add(link)
            try:
                self._wait(
                    lambda: link.is_open or link.error is not None,
                    timeout,
                    f"the attach of a link to {link.address or 'any address'!r}",
                )
            except BaseException:
                self._core.remove(link)
                raise
            if link.error is not None:
                self._core.remove(link)
                raise link.error

    def _start(self) -> None:
        """Begin to keep a connection, once."""
        self._check()
        if self._keeper is None:
            self._keeper = threading.Thread(
                target=_keep,
                args=(weakref.ref(self), self._busy),
                daemon=True,
                name="qpidha-client",
            )
            self._keeper.start()

    def _is_open(self) -> bool:
        return self._core.is_open

    def _wait(self, until: Callable[[], bool], timeout: Timeout, what: str) -> None:
        """Pump until a condition holds; the lock is held. Raises TimedOut, or why the client has
        ended.
        """
        if until():
            return
        deadline = self._deadline(timeout)
        while True:
            self._check()
            left = 60.0 if deadline is None else deadline - time.monotonic()
            self._pump(max(left, 0.0))
            if until():
                return
            if left <= 0:
                raise self._timed_out(what, self._seconds(timeout) or 0.0)

    def _pump(self, seconds: float) -> None:
        """Dial, write what there is to write, and read what comes within some seconds. An error of
        a callback ends the client, as it does where no call waits.
        """
        try:
            if self._socket is None:
                self._reach(seconds)
            else:
                self._exchange(seconds)
        except Exception as error:  # A callback's; every later call raises it.
            raise self._broke(error) from error

    def _flush(self) -> None:
        """Write what there is to write, as far as the socket takes it; errors are as in `_pump`."""
        try:
            self._write()
        except Exception as error:  # A callback's; every later call raises it.
            raise self._broke(error) from error

    def _broke(self, error: Exception) -> ClientError:
        """End the client; return what its calls raise from now on."""
        self._core.broke(error)
        self._drop_socket()
        self._busy.set()
        assert self._core.failure is not None
        return self._core.failure

    def _reach(self, seconds: float) -> None:
        """Go on with the attempt to reach a broker, or begin one when it is time."""
        core = self._core
        now = time.monotonic_ns()
        if self._dial is None:
            endpoint = core.next_dial(now)
            if endpoint is not None:
                self._begin_dial(endpoint, now)
            elif core.failure is None:
                time.sleep(min(seconds, max(0.0, (core.retry_at - now) / SECOND)))
        dial = self._dial
        if dial is None or not dial.wait(seconds):
            return
        self._dial = None
        try:
            stream = dial.take()
        except (OSError, ValueError) as error:  # ValueError: no name of a host.
            core.dial_failed(time.monotonic_ns(), dial_error(dial.endpoint, error, dial.seconds))
            return
        self._socket = stream
        self._poll.register(stream, select.POLLIN)
        core.dialled(time.monotonic_ns(), encrypted=dial.endpoint.tls, tickets=dial.tickets)
        self._write()

    def _begin_dial(self, endpoint: Endpoint, now: int) -> None:
        core = self._core
        try:
            context = self._make_context() if endpoint.tls else None
        except ClientError as error:
            core.dial_failed(now, error)
            return
        self._dial = Dial(
            endpoint,
            core.time_for_dial(now) / SECOND,
            context=context,
            server_name=self._server_name(endpoint),
            tickets=core.tickets(),
            on_done=self._busy.set,
        )

    def _exchange(self, seconds: float) -> None:
        """Write, and read what comes within some seconds."""
        core = self._core
        now = time.monotonic_ns()
        if now >= core.tick_at:
            core.tick(now)
        stream = self._write()
        if stream is None:
            return
        wait = min(seconds, (core.tick_at - now) / SECOND)
        waits_for_tls = isinstance(stream, ssl.SSLSocket) and stream.pending() > 0
        if not waits_for_tls:
            if self._unsent:
                self._poll.modify(stream, select.POLLIN | select.POLLOUT)
                ready = self._poll.poll(max(wait, 0.0) * 1000)
                self._poll.modify(stream, select.POLLIN)
            else:
                ready = self._poll.poll(max(wait, 0.0) * 1000)
            if not ready:
                return
        self._read(stream)
        self._write()

    def _read(self, stream: socket.socket) -> None:
        try:
            data = stream.recv(READ)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        except OSError as error:
            self._hang_up(error.strerror or str(error))
            return
        if not data:
            self._hang_up("the broker ended the connection")
            return
        self._core.received(data, time.monotonic_ns())
        self._settle_socket()

    def _read_rest(self, stream: socket.socket) -> None:
        """Read what has come on a stream that takes nothing more: the broker may have sent it just
        before it hung up, and messages that are settled come only once.
        """
        try:
            while data := stream.recv(READ):
                self._core.received(data, time.monotonic_ns())
        except OSError:
            pass  # That was all.

    def _write(self) -> socket.socket | None:
        """Write what there is to write, as far as the socket takes it; return the socket if there
        is one still.
        """
        stream, core = self._socket, self._core
        self._linger_bytes = 0
        while stream is not None:
            data = self._unsent or core.output()
            if not data:
                break
            try:
                sent = stream.send(data)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                self._unsent = data
                break
            except OSError as error:
                self._read_rest(stream)
                self._hang_up(error.strerror or str(error))
                return None
            self._unsent = memoryview(data)[sent:] if sent < len(data) else b""
        self._settle_socket()
        return self._socket

    def _settle_socket(self) -> None:
        """Drop the stream if the core has no more use for it; `_end` has its own way."""
        if self._core.closed and not self._is_ending:
            self._drop_socket()

    def _hang_up(self, reason: str) -> None:
        self._drop_socket()
        self._core.hung_up(reason, time.monotonic_ns())

    def _drop_socket(self) -> None:
        """Hang up, or stop dialling."""
        dial, self._dial = self._dial, None
        if dial is not None:
            dial.give_up()
        stream, self._socket = self._socket, None
        self._unsent = b""
        if stream is not None:
            self._poll.unregister(stream)
            stream.close()

    # What the thread of the client does.

    def _lingers(self, size: int) -> None:
        """Have what was handed to the engine written soon, or now if it is much."""
        self._linger_bytes += size
        if self._linger_bytes >= BATCH:
            self._pump(0.0)
        elif not self._busy.is_set():
            self._busy.set()

    def _keep_once(self) -> float:
        """Do what is due while the program does not call; return in how many seconds to come
        again.
        """
        if not self._lock.acquire(blocking=False):
            return 0.05  # Somebody is in a call, which reads and writes by itself.
        try:
            if self._core.failure is None:
                self._pump(0.0)
        except ClientError:
            pass  # Every later call raises it.
        finally:
            self._lock.release()
        if (dial := self._dial) is not None:
            return min(max(dial.left, 0.01), 1.0)  # It wakes this thread when it has ended.
        core = self._core
        due = core.retry_at if self._socket is None else core.tick_at
        return min(max((due - time.monotonic_ns()) / SECOND, 0.01), 1.0)

    @property
    def _is_over(self) -> bool:
        return self._core.state == ENDED and self._socket is None

    def _flush_link(self, link: SenderLink, timeout: Timeout) -> None:
        """Wait until everything that was sent on a link has an outcome."""
        self._flush()
        self._wait(
            lambda: not link.unsettled or link.error is not None,
            timeout,
            f"the outcome of {link.unsettled} messages to {link.address!r}",
        )
        check_outcomes(link)

    def _end(self) -> None:
        """Say goodbye, and do not wait long for the answer."""
        core = self._core
        self._is_ending = True
        core.close(time.monotonic_ns())
        deadline = time.monotonic() + GOODBYE
        while self._socket is not None and (self._unsent or not core.closed):
            if time.monotonic() >= deadline:
                break
            self._pump(0.2)
        self._hear_out(deadline)
        self._drop_socket()
        core.hung_up("closed", time.monotonic_ns())
        core.state = ENDED
        self._busy.set()

    def _hear_out(self, deadline: float) -> None:
        """Read until the broker hangs up: a socket that is closed while something is unread resets
        the stream, and what the broker has yet to read is lost with it.
        """
        stream = self._socket
        try:
            if stream is not None and not self._unsent:
                stream.shutdown(socket.SHUT_WR)
                while (left := deadline - time.monotonic()) > 0:
                    stream.settimeout(left)
                    if not stream.recv(READ):
                        return
        except OSError:
            pass  # The broker does not answer, or has hung up already.


class Sender(SenderFace):
    """Sends messages to one address; made by `Client.sender`."""

    def __init__(self, client: Client, link: SenderLink) -> None:
        super().__init__(link)
        self._client = client
        self._lock = client._lock

    def send(
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
        payload = payload_of(message)
        link, client = self._link, self._client
        with self._lock:
            if link.is_full:
                deadline = client._deadline(timeout)
                self._wait_for_room(timeout)
                timeout = client._left(deadline)
            delivery = link.send(payload, None if transaction is None else transaction._state)
            client._wait(
                lambda: delivery.outcome is not None or delivery.error is not None,
                timeout,
                "the outcome of a message",
            )
            if delivery.outcome is not ALL_IS_WELL:
                self._check(delivery)

    def send_nowait(
        self,
        message: Message | bytes | str,
        *,
        transaction: Transaction | None = None,
        timeout: Timeout = DEFAULT,
    ) -> Delivery:
        """Send a message without waiting for its outcome; it waits only while the window is used
        up.

        The outcome comes to the delivery that is returned; `flush` waits for all of them. Messages
        of one sender arrive in the order in which they were sent. Raises TimedOut if the window
        stays used up, TypeError or ValueError for what has no AMQP form.
        """
        payload = payload_of(message)
        link, client = self._link, self._client
        with self._lock:
            if link.is_full:
                self._wait_for_room(timeout)
            delivery = link.send(payload, None if transaction is None else transaction._state)
            client._lingers(len(payload))
            return delivery

    def _wait_for_room(self, timeout: Timeout) -> None:
        link = self._link
        self._client._flush()
        self._client._wait(
            lambda: not link.is_full or link.error is not None,
            timeout,
            f"room in the window of {link.window} messages to {self.address!r}",
        )

    def wait(self, delivery: Delivery, timeout: Timeout = DEFAULT) -> Outcome:
        """Wait for the outcome of a delivery, whatever it is."""
        with self._lock:
            self._client._flush()
            self._client._wait(
                lambda: delivery.is_done, timeout, f"the outcome of a message to {self.address!r}"
            )
            if delivery.error is not None:
                raise delivery.error
            assert delivery.outcome is not None
            return delivery.outcome

    def flush(self, timeout: Timeout = DEFAULT) -> None:
        """Wait until every message that was sent has an outcome. Raises NotAccepted for the first
        that was not accepted since the last call, unless `on_outcome` hears of them.
        """
        with self._lock:
            self._client._flush_link(self._link, timeout)

    def close(self, timeout: Timeout = DEFAULT) -> None:
        """Wait for the outcomes, then detach."""
        with self._lock:
            try:
                if self._link.error is None:
                    self._client._flush_link(self._link, timeout)
            finally:
                self._client._core.remove(self._link)
                self._client._flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()


class Receiver(ReceiverFace):
    """Receives messages from one address; made by `Client.receiver`. Iterating over it waits for
    messages for ever.
    """

    def __init__(self, client: Client, link: ReceiverLink) -> None:
        super().__init__(link)
        self._client = client
        self._lock = client._lock

    def receive(self, timeout: Timeout = DEFAULT) -> Received:
        """Wait for a message and take it. Raises TimedOut, or why the link or client has ended."""
        with self._lock:
            link = self._link
            if not link.buffer:
                client = self._client
                client._start()
                client._wait(
                    lambda: bool(link.buffer) or link.error is not None,
                    timeout,
                    f"a message from {self.address!r}",
                )
                if not link.buffer:
                    raise link.error or Closed("the link is closed")
            return link.take()

    def receive_nowait(self) -> Received | None:
        """Take a message that is here already; None if there is none."""
        with self._lock:
            if not self._link.buffer:
                self._client._start()
                self._client._pump(0.0)
            return self._link.take() if self._link.buffer else None

    def __iter__(self) -> Iterator[Received]:
        while True:
            try:
                message = self.receive(None)
            except Closed:
                return
            yield message

    def until_empty(self, timeout: Timeout = DEFAULT) -> Iterator[Received]:
        """Take messages until the broker says that there are no more now (it drains the credit).
        `timeout` is for each answer of the broker.
        """
        while True:
            with self._lock:
                link = self._link
                if not link.buffer:
                    self._drain(timeout)
                    if not link.buffer:
                        link.check_empty()
                        return
                message = link.take()
            yield message

    def add_credit(self, messages: int) -> None:
        """Let the broker send this many messages more, on a link with `credit=0`."""
        with self._lock:
            self._link.flow(messages)
            self._client._flush()

    @property
    def kept_back(self) -> int:
        """Messages that the broker had at the last `drain` and sends when others are settled."""
        with self._lock:
            return self._link.kept_back

    def drain(self, timeout: Timeout = DEFAULT) -> int:
        """Have the broker use its credit or give it back; return how many messages are here
        then (AMQP 1.0 section 2.6.7).
        """
        with self._lock:
            self._drain(timeout)
            return len(self._link.buffer)

    def _drain(self, timeout: Timeout) -> None:
        link, client = self._link, self._client
        client._start()
        deadline = client._deadline(timeout)
        while True:
            client._wait(
                lambda: link.is_open or link.error is not None,
                client._left(deadline),
                f"the link to {self.address!r}",
            )
            if link.error is not None:
                raise link.error
            if link.credit <= 0:
                return
            client._flush()  # Outcomes first: they make room.
            link.drain()
            ended = partial(link.drain_ended, link.generation)
            client._wait(ended, client._left(deadline), f"the drain of {self.address!r}")
            if link.is_drained:
                link.refill()
                return

    def settle(self, message: Received, outcome: Outcome, transaction: Any) -> None:
        """Give a message its outcome: `Received.accept` and its like call this."""
        with self._lock:
            self._link.settle(message, outcome, None if transaction is None else transaction._state)
            self._client._lingers(64)

    def wait_confirmed(self, timeout: Timeout = DEFAULT) -> None:
        """Wait until the broker has confirmed the outcome of every message. One whose connection
        was lost meanwhile is never confirmed, and is delivered again.
        """
        with self._lock:
            self._client._flush()
            self._client._wait(
                lambda: not self._link.unconfirmed,
                timeout,
                f"the confirmation of {self._link.unconfirmed} messages of {self.address!r}",
            )

    def close(self) -> None:
        """Detach; the broker gives messages without an outcome to others."""
        with self._lock:
            self._client._core.remove(self._link)
            self._client._flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Transaction(TransactionFace):
    """Messages and outcomes that hold together or not at all; made by `Client.transaction`.

    Give it to `Sender.send` and to `Received.accept`. It ends with its connection: then every call
    raises TransactionLost, and nothing of it is sent again by itself.
    """

    def __init__(self, client: Client, state: TransactionState) -> None:
        super().__init__(state)
        self._client = client

    def commit(self, timeout: Timeout = DEFAULT) -> None:
        """Make everything hold. Raises TransactionFailed if the broker rolled it back,
        TransactionLost if the connection was lost.
        """
        self._discharge(False, timeout)

    def roll_back(self, timeout: Timeout = DEFAULT) -> None:
        """Undo everything: messages sent are dropped, messages received are given back."""
        self._discharge(True, timeout)

    def _discharge(self, failed: bool, timeout: Timeout) -> None:
        state, client = self._state, self._client
        with client._lock:
            deadline = client._deadline(timeout)
            if failed:
                state.give_up_unsent()
            client._flush()
            client._wait(
                lambda: not state.waiting or state.is_over,
                timeout,
                f"the confirmation of {state.waiting} messages of a transaction",
            )
            client._core.coordinator.discharge(state, failed=failed)
            client._wait(lambda: state.is_over, client._left(deadline), "the end of a transaction")
            if state.error is not None and not failed:
                raise state.error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._state.is_over and self._state.error is None:
            return
        if kind is None:
            self.commit()
        else:
            try:
                self.roll_back()
            except ClientError:
                pass  # It is rolled back in any case; the error of the block is what matters.


def _keep(reference: weakref.ref[Client], busy: threading.Event) -> None:
    """Keep the heartbeats of a client as long as there is one."""
    pause = 0.05
    while True:
        if busy.wait(pause):
            # More may be sent in a moment: one write is better than two.
            time.sleep(LINGER)
            busy.clear()
        client = reference()
        if client is None or client._is_over:
            return
        pause = client._keep_once()
        del client
