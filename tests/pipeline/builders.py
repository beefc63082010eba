"""Histories in a few words: each call adds an event, a microsecond after the one before unless `at`
says when.
"""

from __future__ import annotations

from typing import Any

from qpidha.pipeline.checks import Settings
from qpidha.pipeline.events import Event, examine
from qpidha.pipeline.generate.histories import BY_BROKERS, EFFECTS, Plan
from qpidha.pipeline.oracle.engine import check
from qpidha.pipeline.verdict import Verdict

EVERYTHING = Plan(
    messages=2700,
    seed=7,
    plant={name: 2 if name in BY_BROKERS else 3 for name in EFFECTS},
    brokers=True,
    locks=3,
    holds=20,
    overlaps=5,
    lost_leases=2,
)
"""A history in which everything is wrong that can be."""


class Story:
    """Events of one run."""

    def __init__(self, run: str = "r") -> None:
        self.run = run
        self.events: list[Event] = []
        self.at = 1_000_000
        self._numbers: dict[str, int] = {}
        self._op = 0

    def next_op(self) -> int:
        self._op += 1
        return self._op

    def add(self, node: str, kind: str, at: int | None = None, **fields: Any) -> Event:
        self.at = self.at + 1000 if at is None else at
        number = self._numbers[node] = self._numbers.get(node, -1) + 1
        event = {
            "n": node,
            "b": "0",
            "s": number,
            "t": self.at // 1000,
            "m": self.at,
            "k": kind,
            **fields,
        }
        assert examine(event) == ("", ()), examine(event)
        self.events.append(event)
        return event

    def op(
        self,
        f: str,
        y: str,
        q: str = "q",
        o: int = 0,
        c: int = 1,
        at: int | None = None,
        **fields: Any,
    ) -> int:
        """Add one step; return the number of the operation."""
        o = o or self.next_op()
        self.add("client", "op", at, run=self.run, o=o, c=c, y=y, f=f, q=q, **fields)
        return o

    def send(self, u: int, y: str = "ok", q: str = "q", w: int = 1, **fields: Any) -> None:
        """Send a value; `y` may be `invoke`: nothing came of it."""
        o = self.op("enqueue", "invoke", q, w=w, u=u, **fields)
        if y != "invoke":
            self.op("enqueue", y, q, o, w=w, u=u, **fields)

    def take(
        self, u: int, q: str = "q", w: int = 1, c: int = 2_000_000, d: int = 0, **fields: Any
    ) -> None:
        o = self.op("dequeue", "invoke", q, c=c)
        self.op("dequeue", "ok", q, o, c=c, w=w, u=u, d=d, **fields)

    def ack(self, u: int, q: str = "q", w: int = 1) -> None:
        o = self.op("ack", "invoke", q, w=w, u=u)
        self.op("ack", "ok", q, o, w=w, u=u)

    def drain(self, q: str = "q") -> None:
        self.op("drain", "ok", q, self.op("drain", "invoke", q))

    def fault(self, start: int, stop: int | None, f: str = "kill", x: str = "b0") -> int:
        o = self.next_op()
        self.add("nemesis", "fault", start, run=self.run, o=o, y="start", f=f, x=x)
        if stop is not None:
            self.add("nemesis", "fault", stop, run=self.run, o=o, y="stop", f=f, x=x)
        return o

    def judged(self, **settings: Any) -> Verdict:
        return check(self.events, Settings(**settings))
