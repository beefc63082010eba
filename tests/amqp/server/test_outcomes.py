"""Whatever becomes of links, sessions and queues: no delivery of a sender is settled without an
outcome, which some clients take for accepted, none has two, and none is accepted before it is
committed.
"""

from __future__ import annotations

import random

import pytest

from qpidha.amqp.peer.terminus import ACCEPTED, RELEASED
from qpidha.model.message_view import build
from tests.amqp.server.test_rare_frames import (
    CLOSED,
    DETACHED,
    ENDED,
    HEADER,
    OPEN,
    PLAIN_BEGIN,
    a_delaying_host,
    a_sender,
    detach,
    states,
    transfer,
)
from tests.amqp.wire import Talk, attach, frame, perform, told

HANDLES, STEPS, SEEDS = 3, 60, 150


class Sender:
    """A client that attaches, sends, and ends what it has at random."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.host = a_delaying_host()
        self.talk = Talk(self.host, HEADER, OPEN, PLAIN_BEGIN)
        self.attached: set[int] = set()
        self.sent = 0
        self.has_ended = False
        self.outcomes: dict[int, int] = {}

    def say(self, data: bytes = b"") -> None:
        if self.has_ended:
            return
        for answer in self.talk.say(data or frame(b"")):
            for number, state in states([answer]):
                assert state and number not in self.outcomes
                self.outcomes[number] = state
            self.has_ended |= answer.code in (ENDED, CLOSED)

    def send(self, payload: bytes, *, settled: bool = False) -> None:
        handle = self.random.choice([*self.attached, None])
        if handle is not None and not self.has_ended:
            self.sent += 1
            self.say(transfer(self.sent - 1, payload, handle=handle, settled=settled))

    def commit(self, count: int) -> None:
        waiting, self.host.pending = self.host.pending[:count], self.host.pending[count:]
        for waiter, item in waiting:
            waiter.on_committed(item)
        self.say()

    def step(self) -> None:
        chosen, handle = self.random.random(), self.random.randrange(HANDLES)
        if chosen < 0.6:
            self.send(build("m"))
        elif chosen < 0.63:
            self.send(b"none", settled=True)
        elif chosen < 0.75 and handle in self.attached:
            self.attached.remove(handle)
            self.say(detach(handle))
        elif chosen < 0.9 and handle not in self.attached:
            self.attached.add(handle)
            self.say(attach(f"s{self.random.choice((0, handle))}", handle))
        elif chosen < 0.98:
            self.commit(self.random.randrange(len(self.host.pending) + 1))
        elif chosen < 0.99:
            if self.host.broker.queues.get("q") is None:
                self.host.broker.declare_queue("q")
            else:
                self.host.broker.delete_queue("q")
        else:
            self.say(frame(perform(0x17)))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_delivery_is_settled_without_an_outcome(seed: int) -> None:
    sender = Sender(seed)
    for _ in range(STEPS):
        before = {number for number, state in sender.outcomes.items() if state == ACCEPTED}
        waiting = len(sender.host.pending)
        sender.step()
        after = {number for number, state in sender.outcomes.items() if state == ACCEPTED}
        assert len(after) - len(before) <= waiting
    for handle in sender.attached:
        sender.say(detach(handle))
    sender.commit(len(sender.host.pending))
    assert sender.has_ended or sender.talk.connection._engine.link_count() == 0


def test_a_message_for_a_queue_that_was_deleted_is_released_before_its_link_ends() -> None:
    host = a_delaying_host()
    talk = a_sender(host)
    host.broker.delete_queue("q")
    answers = talk.say(transfer(0, build("m")))
    assert states(answers[:1]) == [(0, RELEASED)]
    assert told(answers) == [(DETACHED, "amqp:resource-deleted")]
