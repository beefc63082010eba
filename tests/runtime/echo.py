"""A node for tests of the runtime: it echoes bytes, and a few words make it do other things."""

from __future__ import annotations

from threading import Event as Gate

from qpidha.model.effects import (
    Admitted,
    Announce,
    Compute,
    Connect,
    Disconnect,
    Effect,
    LoginWaits,
    SaveState,
    SendBytes,
    SendParts,
    Stop,
)
from qpidha.model.events import (
    BytesReceived,
    Computed,
    ConnectionLost,
    ConnectionOpened,
    Event,
    StopRequested,
    Tick,
)
from tests.patience import STATE

PARTS: tuple[bytes | memoryview, ...] = tuple(
    part
    for number in range(200)
    for part in (
        b"%04d" % number,
        memoryview(bytes([number]) * 40_000)[number:],
        b"",
        bytes([255 - number]) * 10_000,
    )
)
"""What it answers to `parts`: more than the kernel has room for."""


class EchoNode:
    """Remembers every step; takes words such as `bye`, `flood`, `stop` from any stream."""

    def __init__(self) -> None:
        self.next_deadline = 0
        self.steps: list[list[Event]] = []
        self.opened: list[ConnectionOpened] = []
        self.lost: list[ConnectionLost] = []
        self.ticks: list[int] = []
        self.gate = Gate()
        """What the work that `think` asks for waits for."""

    def start(self, now: int) -> list[Effect]:
        """Begin."""
        return []

    def step(self, events: list[Event], now: int, ahead: int) -> list[Effect]:
        """Answer what happened."""
        self.steps.append(events)
        effects: list[Effect] = []
        for event in events:
            if isinstance(event, BytesReceived):
                effects += self._answer(event)
            elif isinstance(event, ConnectionOpened):
                self.opened.append(event)
            elif isinstance(event, Computed):
                effects.append(SendBytes(event.connection_id, str(event.result).encode()))
            elif isinstance(event, ConnectionLost):
                self.lost.append(event)
            elif isinstance(event, Tick):
                self.ticks.append(now)
                self.next_deadline = 0
            elif isinstance(event, StopRequested):
                effects.append(Stop("asked to"))
        return effects

    def _answer(self, event: BytesReceived) -> list[Effect]:
        word, _, rest = event.data.decode().strip().partition(" ")
        identifier = event.connection_id
        if word == "login":
            return [Admitted(identifier), SendBytes(identifier, event.data)]
        if word == "guess":
            return [LoginWaits(identifier), SendBytes(identifier, event.data)]
        if word == "think":
            return [Compute(identifier, lambda: self.gate.wait(STATE))]
        if word == "bye":
            return [SendBytes(identifier, b"x" * 1_000_000), Disconnect(identifier)]
        if word == "flood":
            return [SendBytes(identifier, b"x" * 200_000) for _ in range(100)]
        if word == "backlog":
            return [SendBytes(identifier, b"x" * 200_000, limited=False) for _ in range(100)]
        if word == "parts":
            return [SendParts(identifier, list(PARTS)), SendBytes(identifier, b"behind")]
        if word == "stop":
            return [SendBytes(identifier, b"stopping"), Stop("a test")]
        if word == "save":
            return [SaveState(rest.encode(), 1), SendBytes(identifier, b"saved")]
        if word == "dial":
            host, port = rest.split()
            return [
                Connect(-1, host, int(port), False),
                Announce("notice", "ha", f"dialling {port}"),
            ]
        if word == "bug":
            raise AssertionError("planted")
        return [SendBytes(identifier, event.data)]
