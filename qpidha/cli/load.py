"""Load: a sender and a receiver for the demo, each a process of its own on python-qpid-proton, the client that users have.

The sender knows all addresses, reconnects to the next one when a connection ends or hangs, and sends again
whatever had no outcome; it records the id of each accepted message. The receiver accepts what it gets and records it.
Reports go to standard output as JSON lines; `stop` on standard input ends the load; records go to a file as pairs of
64-bit integers (id, time in ns). The only module of the commands that uses proton.
"""

from __future__ import annotations

import argparse
import json
import select
import sys
import time
from array import array
from collections import deque
from typing import Any

from proton import Delivery, Handler, Message
from proton.reactor import Container

TICK = 0.01
"""Seconds between two looks at the clock."""
REPORT = 0.1
"""Seconds between two reports."""
RETRY = 0.02
"""Seconds before the next address is tried."""
SILENCE = 2.0
"""Seconds for which a silent address is not tried, even if a backup that does not know better redirects there."""
CREDIT = 200
"""Messages a receiver has asked for at any time."""


class Client(Handler):  # type: ignore[misc]  # proton has no types
    """What sender and receiver share: one connection at a time to whichever address serves."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        super().__init__()
        self.arguments = arguments
        self.addresses: list[str] = arguments.addresses.split(",")
        self.record: array[int] = array("q")
        self.stopping = False
        self.serving = ""
        self.link: Any = None
        self._next = 0
        self._container: Any = None
        self._connection: Any = None
        self._address = ""
        self._tried_at = 0.0
        self._reported_at = 0.0
        self._retry_at = 0.0
        self._silent: dict[str, float] = {}
        """Address -> when it was found to be dead, or to accept connections and not to answer."""

    def on_reactor_init(self, event: Any) -> None:
        """Begin."""
        self._container = event.reactor
        self._connect(self.addresses[self._next])
        event.reactor.schedule(TICK, self)

    def on_timer_task(self, event: Any) -> None:
        """Look at the clock and at standard input."""
        now = time.monotonic()
        if not self.stopping and select.select([sys.stdin], [], [], 0)[0]:
            if not sys.stdin.readline():
                sys.exit(1)  # Whoever conducts us is gone.
            self.stopping = True
        if self._connection is None and now >= self._retry_at:
            self._connect(self._choose(now))
        elif self._connection is not None and not self.serving and now - self._tried_at > self.arguments.idle:
            self._silent[self._address] = now  # Its kernel accepted, and nothing follows.
            self._lost()
        self.work()
        if now - self._reported_at >= REPORT:
            self._reported_at = now
            self.say(self.report())
        if self.stopping and self.finished():
            self._finish()
        else:
            event.reactor.schedule(TICK, self)

    def on_link_remote_open(self, event: Any) -> None:
        """A link that the broker answered with a terminus is ready for use."""
        if event.connection == self._connection and (event.link.remote_target.address or event.link.remote_source.address):
            self.serving = self._address
            self.say({"time_ns": time.time_ns(), "connected": self._address})
            self.opened()

    def on_connection_remote_close(self, event: Any) -> None:
        """Go where a redirect says, else to the next address."""
        if event.connection != self._connection:
            return
        condition = event.connection.remote_condition
        event.connection.close()
        self._lost()
        info = (condition.info if condition is not None else None) or {}
        address = f"{info.get('network-host')}:{info.get('port')}"
        if condition is not None and condition.name == "amqp:connection:redirect" and address in self.addresses:
            # The next address after the retry delay is the one named; a redirect to a dead primary costs one attempt.
            self._next = self.addresses.index(address) - 1

    def on_link_remote_close(self, event: Any) -> None:
        """Start again."""
        if event.connection == self._connection:
            event.connection.close()
            self._lost()

    def on_transport_error(self, event: Any) -> None:
        """Do not wait for a hung peer to close its side too."""
        self.on_transport_closed(event)

    def on_transport_closed(self, event: Any) -> None:
        """Start again, elsewhere: a broker that ended without a word is dead or hung."""
        if event.connection == self._connection:
            self._silent[self._address] = time.monotonic()
            self._lost()

    def _choose(self, now: float) -> str:
        """Take the next address, but not one that was just silent while there are others."""
        for _ in self.addresses:
            self._next = (self._next + 1) % len(self.addresses)
            address = self.addresses[self._next]
            if now - self._silent.get(address, -SILENCE) >= SILENCE:
                break
        return self.addresses[self._next]

    def say(self, report: dict[str, Any]) -> None:
        """Write one report."""
        print(json.dumps(report), flush=True)

    def _connect(self, address: str) -> None:
        self._address = address
        self._tried_at = time.monotonic()
        self.serving = ""
        self._connection = self._container.connect(
            f"amqp://{address}", reconnect=False, heartbeat=self.arguments.idle, sasl_enabled=True, allowed_mechs="ANONYMOUS"
        )
        self.link = self.attach(self._container, self._connection)

    def _lost(self) -> None:
        if self.serving:
            self.say({"time_ns": time.time_ns(), "disconnected": self._address})
        self.serving = ""
        self._connection = None
        self.link = None
        self._retry_at = time.monotonic() + RETRY
        self.dropped()

    def _finish(self) -> None:
        with open(self.arguments.record, "wb") as file:
            self.record.tofile(file)
        self.say({**self.report(), "done": True})
        if self._connection is not None:
            self._connection.close()
        self._container.stop()

    def loop_failed(self) -> None:
        """Take a loop that ended by itself for a lost connection."""
        if self._connection is not None:
            self._lost()

    # What a sender and a receiver do differently.

    def attach(self, container: Any, connection: Any) -> Any:
        """Open the link."""
        raise AssertionError("a client is a sender or a receiver")

    def opened(self) -> None:
        """The link may be used."""

    def dropped(self) -> None:
        """The link is gone."""

    def work(self) -> None:
        """Do what the time asks for."""

    def finished(self) -> bool:
        """Whether a client that was told to stop may go."""
        return True

    def report(self) -> dict[str, Any]:
        """Say how far it is."""
        return {"time_ns": time.time_ns()}


class Sender(Client):
    """Sends numbered messages at a rate and keeps at most a window of them unsettled."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        super().__init__(arguments)
        self.sent = 0
        self.sent_again = 0
        self.refused = 0
        self.unsettled: dict[str, int] = {}
        self.again: deque[int] = deque()
        self._filler = b"x" * max(0, arguments.size)
        self._began = 0.0
        self._tag = 0

    def attach(self, container: Any, connection: Any) -> Any:
        return container.create_sender(connection, self.arguments.queue, name="demo-sender")

    def dropped(self) -> None:
        self.again.extendleft(reversed(self.unsettled.values()))
        self.unsettled.clear()

    def work(self) -> None:
        if not self.serving:
            return
        self._began = self._began or time.monotonic()
        due = int((time.monotonic() - self._began) * self.arguments.rate) - self.sent
        # After an outage the backlog of the clock is not made up for in one burst.
        if due > self.arguments.rate:
            self._began += (due - self.arguments.rate) / self.arguments.rate
            due = int(self.arguments.rate)
        while self.link.credit > 0 and len(self.unsettled) < self.arguments.window:
            if self.again:
                self.sent_again += 1
                self._send(self.again.popleft())
            elif due > 0 and not self.stopping:
                due -= 1
                self.sent += 1
                self._send(self.sent)
            else:
                return

    def on_delivery(self, event: Any) -> None:
        """Take an outcome."""
        delivery = event.delivery
        if not delivery.link.is_sender or not delivery.updated or event.connection != self._connection:
            return
        number = self.unsettled.pop(delivery.tag, 0)
        if number and delivery.remote_state == Delivery.ACCEPTED:
            self.record.append(number)
            self.record.append(time.time_ns())
        elif number:
            self.refused += 1
            self.again.append(number)
        delivery.settle()

    def finished(self) -> bool:
        return not self.unsettled and not self.again

    def report(self) -> dict[str, Any]:
        return {
            "time_ns": time.time_ns(),
            "sent": self.sent,
            "accepted": len(self.record) // 2,
            "unsettled": len(self.unsettled) + len(self.again),
            "sent_again": self.sent_again,
            "refused": self.refused,
        }

    def _send(self, number: int) -> None:
        self._tag += 1
        delivery = self.link.send(Message(id=number, body=self._filler, durable=self.arguments.durable), tag=str(self._tag))
        self.unsettled[delivery.tag] = number


class Receiver(Client):
    """Receives and accepts."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        super().__init__(arguments)
        self.seen: set[int] = set()

    def attach(self, container: Any, connection: Any) -> Any:
        return container.create_receiver(connection, self.arguments.queue, name="demo-receiver")

    def opened(self) -> None:
        self.link.flow(CREDIT)

    def on_delivery(self, event: Any) -> None:
        """Take a message."""
        delivery = event.delivery
        if not delivery.link.is_receiver or not delivery.readable or delivery.partial or event.connection != self._connection:
            return
        message = Message()
        message.decode(delivery.link.recv(delivery.pending))
        delivery.link.advance()
        delivery.update(Delivery.ACCEPTED)
        delivery.settle()
        self.record.append(message.id)
        self.record.append(time.time_ns())
        self.seen.add(message.id)
        if delivery.link.credit < CREDIT // 2:
            delivery.link.flow(CREDIT - delivery.link.credit)

    def report(self) -> dict[str, Any]:
        return {"time_ns": time.time_ns(), "deliveries": len(self.record) // 2, "received": len(self.seen)}


def main(arguments: list[str] | None = None) -> int:
    """Run a sender or a receiver until it is told to stop."""
    parser = argparse.ArgumentParser(prog="python -m qpidha.cli.load")
    parser.add_argument("role", choices=("sender", "receiver"))
    parser.add_argument("--addresses", required=True)
    parser.add_argument("--queue", required=True)
    parser.add_argument("--record", required=True)
    parser.add_argument("--idle", type=float, default=1.0)
    parser.add_argument("--rate", type=float, default=1000.0)
    parser.add_argument("--window", type=int, default=500)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--durable", action="store_true")
    parsed = parser.parse_args(arguments)
    client = Sender(parsed) if parsed.role == "sender" else Receiver(parsed)
    while True:
        try:
            Container(client).run()
            return 0
        except AttributeError as fault:
            # proton 0.40's loop ends so when a socket fails in the very turn in which its heartbeat is due
            # (proton/_handlers.py, on_selectable_expired). It is a lost connection, and a new loop goes on.
            if "NoneType" not in str(fault):
                raise
            client.loop_failed()


if __name__ == "__main__":
    sys.exit(main())
