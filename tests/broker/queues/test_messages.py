"""Messages that are packed are there as others are."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from qpidha.broker.queues import backlog, messages, packing
from qpidha.broker.queues.expiry import Expiry
from qpidha.broker.queues.messages import Messages, Segment
from qpidha.broker.queues.packing import INTERVAL, Packing
from qpidha.broker.queues.times import GRAIN
from qpidha.model.message import Message
from tests.broker.parts import Reels, Tape, a_broker, a_taker, contents, copy_of, picture, send


@contextmanager
def small() -> Iterator[None]:
    """Have segments of three messages, and pack where two are in a row."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(messages, "FEWEST", 2)
        patched.setattr(backlog, "LONG", 4)
        patched.setattr(packing, "LONG", 4)
        patched.setattr(backlog, "AHEAD", 2)
        patched.setattr(backlog, "AT_ONCE", 3)
        yield


SEQUENCES = st.integers(1, 40)


class Place:
    """Another place from which bodies can be read."""

    def __init__(self, machine: MessagesAgainstOracle) -> None:
        self.read, self.read_all = machine.read, machine.read_all


class MessagesAgainstOracle(RuleBasedStateMachine):
    """Whatever is packed, what is here is what a dictionary of bodies says, and who holds a message
    holds the one that is here.
    """

    def __init__(self) -> None:
        super().__init__()
        self.messages = Messages()
        self.bodies: dict[int, tuple[bytes, int, int]] = {}
        """Sequence -> body, expiry, deliveries."""
        self.held: dict[int, Message] = {}
        self.known: dict[int, bytes] = {}
        self.number = 0

    def read(self, sequence: int) -> bytes:
        return self.known[sequence]

    def read_all(self, sequences: Sequence[int]) -> bytes:
        return b"".join(map(self.read, sequences))

    def new(self, sequence: int) -> tuple[bytes, int]:
        self.number += 1
        body, expires = b"x" * (self.number % 5) + b"%d" % self.number, self.number % 3
        self.bodies[sequence] = body, expires, 0
        self.known[sequence] = body
        return body, expires

    def check(self, sequence: int, message: Message) -> None:
        found = message.body(), message.expires, message.delivery_count
        assert found == self.bodies[sequence]
        assert (message.sequence, message.size) == (sequence, len(found[0]))
        assert self.held.get(sequence, message) is message

    def gone(self, sequence: int) -> None:
        del self.bodies[sequence]
        self.held.pop(sequence, None)

    @rule(sequence=SEQUENCES)
    def add(self, sequence: int) -> None:
        if sequence not in self.bodies:
            self.messages[sequence] = Message(sequence, *self.new(sequence))

    @rule(count=st.integers(1, 6), gap=st.integers(1, 2))
    def add_run(self, count: int, gap: int) -> None:
        first = max(self.bodies, default=0) + 1
        run = list(range(first, first + count * gap, gap))
        columns = [self.new(sequence) for sequence in run]
        payloads, expiries = [body for body, _ in columns], [expires for _, expires in columns]
        with small():
            is_packed = self.messages.add_segment(run, payloads, expiries)
        assert is_packed == (count > 1)
        if not is_packed:
            self.messages[first] = Message(first, *columns[0])

    @rule(first=SEQUENCES, last=SEQUENCES)
    def pack(self, first: int, last: int) -> None:
        with small():
            self.messages.pack(range(first, last + 1))

    @rule(sequence=SEQUENCES, holds=st.booleans(), fails=st.booleans())
    def get(self, sequence: int, holds: bool, fails: bool) -> None:
        message = self.messages.get(sequence)
        assert (message is not None) == (sequence in self.bodies)
        if message is None:
            with pytest.raises(KeyError):
                self.messages[sequence]
            return
        self.check(sequence, message)
        assert self.messages[sequence] is message
        if holds:
            self.held[sequence] = message
        if fails:
            body, expires, count = self.bodies[sequence]
            message.delivery_count += 1
            self.bodies[sequence] = body, expires, count + 1

    @rule()
    def let_go(self) -> None:
        self.held.clear()

    @rule(sequence=SEQUENCES, deletes=st.booleans())
    def pop(self, sequence: int, deletes: bool) -> None:
        if sequence not in self.bodies:
            assert self.messages.pop(sequence, None) is None
        elif deletes:
            del self.messages[sequence]
            self.gone(sequence)
        else:
            self.check(sequence, self.messages.pop(sequence))
            self.gone(sequence)

    @rule(first=SEQUENCES, count=st.integers(1, 9), is_shuffled=st.booleans())
    def leave(self, first: int, count: int, is_shuffled: bool) -> None:
        run = list(range(first, first + count))
        if is_shuffled:
            random.Random(first).shuffle(run)
        expected = [self.bodies[sequence][0] for sequence in run if sequence in self.bodies]
        was_here = len(self.messages)
        others, size, _ = self.messages.drop_run(run)
        number = was_here - len(self.messages)
        found = self.messages.pop_run(others)
        for message in found:
            self.check(message.sequence, message)
        assert number + len(found) == len(expected)
        assert size + sum(message.size for message in found) == sum(map(len, expected))
        for sequence in run:
            if sequence in self.bodies:
                self.gone(sequence)

    @rule(first=SEQUENCES, count=st.integers(1, 9), data=st.data())
    def page_out(self, first: int, count: int, data: st.DataObject) -> None:
        run = range(first, first + count)
        payloads = {one: self.known.get(one, b"") for one in run}
        moved = 0
        if data.draw(st.booleans()):
            moved = self.messages.page_out(run[0], run[-1], self)
        else:
            other = data.draw(st.sampled_from(run))
            payloads[other] += b"."
            moved = self.messages.page_out_same(run, payloads, self)
        for sequence in run:
            message = self.messages.at_hand(sequence)
            if message is not None and isinstance(message.payload, bytes):
                message.payload = Place(self) if data.draw(st.booleans()) else self
        assert 0 <= moved <= sum(len(self.bodies[one][0]) for one in run if one in self.bodies)

    @rule(first=SEQUENCES, count=st.integers(1, 30), now=st.integers(0, 2))
    def ask(self, first: int, count: int, now: int) -> None:
        run = list(range(first, first + count))
        assert self.messages.here(run) == [one for one in run if one in self.bodies]
        assert self.messages.here(run[::-1]) == self.messages.here(run)
        packed = [one for one in run if one in self.bodies and not self.messages.at_hand(one)]
        expected = [one for one in packed if 0 < self.bodies[one][1] <= now]
        assert self.messages.over(run[::-1], now) == expected
        loose = [one.sequence for one in self.messages.unpacked_of(run)]
        assert sorted(loose + packed) == self.messages.here(run)
        order = list(range(45))
        lowest = min(self.bodies, default=45)
        assert self.messages.gone(order, min(first, lowest)) == lowest

    @rule(cursor=SEQUENCES, data=st.data())
    def find_segment(self, cursor: int, data: st.DataObject) -> None:
        segment = self.messages.segment_after(cursor)
        if segment is None:
            assert not self.messages._firsts or self.messages._firsts[-1] <= cursor
            return
        assert segment.sequences[0] > cursor
        between = range(cursor + 1, segment.sequences[0])
        assert not any(one in self.messages and not self.messages.at_hand(one) for one in between)
        bodies = [self.bodies[one] for one in segment.sequences]
        assert segment.body() == b"".join(body for body, _, _ in bodies)
        now, ttl = data.draw(st.integers(0, 2)), data.draw(st.integers(0, 2))
        for one, (body, expires, count) in zip(segment.sequences, bodies, strict=True):
            if ttl and not 0 < expires <= now + ttl:
                self.bodies[one] = body, now + ttl, count
        expected = [one for one in segment.sequences if 0 < self.bodies[one][1] <= now]
        assert segment.over(now, ttl=ttl) == expected

    @rule(how=st.sampled_from(["values", "items", "popitem", "shrink", "unpacked"]))
    def walk(self, how: str) -> None:
        if how == "popitem" and self.bodies:
            sequence, message = self.messages.popitem()
            self.check(sequence, message)
            self.gone(sequence)
        elif how == "values":
            for message in list(self.messages.values()):
                self.check(message.sequence, message)
        elif how == "items":
            found = dict(self.messages.items())
            assert found.keys() == self.bodies.keys()
        elif how == "shrink":
            self.messages.shrink()
        elif how == "unpacked":
            found_now = {message.sequence for message in self.messages.unpacked()}
            assert found_now >= self.held.keys()

    @invariant()
    def all_are_here(self) -> None:
        here = self.messages
        assert len(here) == here.loose + here.packed == len(self.bodies)
        assert sorted(here) == sorted(here.keys()) == sorted(self.bodies)
        assert all((one in here) == (one in self.bodies) for one in range(45))
        assert bool(here) == bool(self.bodies)
        ranges = [one for segment in here._segments for one in segment.sequences]
        assert ranges == sorted(ranges) and len(ranges) == here.packed


TestMessagesAgainstOracle = MessagesAgainstOracle.TestCase


def test_what_somebody_holds_or_has_had_is_not_packed() -> None:
    found = Messages()
    for sequence in range(1, 7):
        found[sequence] = Message(sequence, b"a")
    held = found[2]
    found[4].acquired = True
    found[5].released = 1
    with small():
        found.pack(range(1, 7))
    assert (found.packed, found.loose) == (3, 3)
    assert found[2] is held and found[4].acquired and found[5].released
    del held
    with small():
        found.pack(range(1, 7))
    assert 2 in found and len(found) == 6  # Between those of a segment nothing is packed.


def a_long_queue(bodies: str = "abcdefghij") -> tuple[Tape, object, object]:
    tape = Tape()
    broker = a_broker(tape)
    queue, _ = broker.declare_queue("q")
    send(broker, "q", *bodies)
    return tape, broker, queue


def test_what_waits_long_is_packed_but_for_the_next_ones_and_delivered_as_it_came() -> None:
    tape, broker, queue = a_long_queue()
    packer = Packing(broker.queues)
    with small():
        packer.tick(1)
        assert not packer.is_busy
        packer.tick(1 + INTERVAL // 2)
        assert not packer.is_busy
        send(broker, "q", "k", "l")
        packer.tick(1 + INTERVAL)
        while packer.is_busy:
            packer.turn()
        assert (queue.messages.packed, queue.messages.loose) == (8, 4)
        assert contents(broker, "q") == list("abcdefghijkl")
        assert picture(copy_of(tape)) == picture(broker)
        taker = a_taker(queue, 99)
        broker.dispatch(1)
        assert taker.bodies == list("abcdefghijkl")


def test_a_message_without_bytes_is_not_let_go_of_to_where_it_is_not() -> None:
    segment = Segment([1, 2, 3], [1, 0, 1], [0, 0, 0], b"ab")
    assert segment.is_same({1: b"a", 2: b"", 3: b"b"})
    assert not segment.is_same({1: b"a", 3: b"b"})


def test_what_was_unpacked_is_packed_again() -> None:
    _, broker, queue = a_long_queue()
    packer = Packing(broker.queues)
    with small():
        for step in range(1, 4):
            packer.tick(step * INTERVAL)
            while packer.is_busy:
                packer.turn()
        assert queue.messages.packed == 8
        assert len(queue.available()) == 10
        assert not queue.messages.packed
        for step in range(4, 7):
            packer.tick(step * INTERVAL)
            while packer.is_busy:
                packer.turn()
        assert queue.messages.packed == 8


def test_a_backup_packs_what_comes_and_pages_it_out_and_lets_it_leave_as_it_is() -> None:
    tape = Tape()
    broker = a_broker(tape)
    queue, _ = broker.declare_queue("q")
    send(broker, "q", *"abcdefghijkl")
    sequences = queue.ordered()
    payloads = [queue.messages[sequence].body() for sequence in sequences]
    other, _ = a_broker(Tape()).declare_queue("q")
    other.is_replica = True
    with small():
        other.insert_run(sequences[:5], payloads[:5], [])
        other.insert_run(sequences[5:8], payloads[5:8], [])
        other.insert_run(sequences[8:], payloads[8:], [])
    assert (other.messages.packed, other.bytes) == (7, 12)
    moved = other.page_out(sequences[5], sequences[7], Reels(tape))
    assert moved == other.paged_out == 3 and other.messages.packed == 7
    other.remove(sequences[:7])
    assert (len(other.messages), other.messages.packed) == (5, 5)
    assert (other.bytes, other.paged_out, other.dequeued) == (5, 1, 7)
    found = [message.body() for message in other.messages_after(0, 1 << 20)]
    assert found == payloads[7:]
    other.remove(sequences)
    assert (len(other.messages), other.bytes, other.paged_out, other.dequeued) == (0, 0, 0, 12)


@pytest.fixture
def never_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    def unpack(_: Segment) -> dict[int, Message]:
        raise AssertionError("a segment was unpacked")

    monkeypatch.setattr(Segment, "unpack", unpack)


@pytest.mark.usefixtures("never_unpacked")
def test_a_purge_and_a_deletion_find_all_and_unpack_none() -> None:
    tape, broker, queue = a_long_queue()
    with small():
        sequences = queue.ordered()
        queue.messages.pack(sequences[:3])
        queue.messages.pack(sequences[5:])
    assert queue.messages.packed == 8
    other = copy_of(tape)
    with small():
        other.queues["q"].messages.pack(other.queues["q"].ordered())
    purge = broker.purge("q")
    assert purge.is_over and purge.count == 10
    assert not queue.messages and queue.bytes == 0 and queue.departures["purged"] == 10
    for sequence, record in tape.records[11:]:
        other.apply(sequence, record)
    assert not other.queues["q"].messages
    send(broker, "q", *"abc")
    with small():
        queue.messages.pack(queue.ordered())
    assert queue.messages.packed == 3
    broker.delete_queue("q")
    broker.remains.free()
    assert not broker.remains


@pytest.mark.usefixtures("never_unpacked")
def test_a_time_to_live_ends_what_is_packed_and_unpacks_none() -> None:
    _, broker, queue = a_long_queue()
    with small():
        queue.messages.pack(queue.ordered()[1:])
    broker.now = GRAIN
    queue.reconfigure(replace(queue.spec, ttl=GRAIN))
    while broker.walks:
        broker.go_on_walking(1 << 60)
    assert len(queue.messages) == 10 and queue.times is not None and len(queue.times) == 10
    assert queue.look(2 * GRAIN - 1, 100) == 0
    assert queue.look(3 * GRAIN, 100) == 10
    assert not queue.messages and queue.expired == 10 and queue.bytes == 0


def test_what_is_packed_expires_as_each_message_says() -> None:
    _, broker, queue = a_long_queue("")
    for number in range(12):
        queue.enqueue(b"x", expires=(number % 3) * 5 * GRAIN)
    with small():
        queue.messages.pack(queue.ordered()[2:])
    assert queue.messages.packed == 10
    Expiry(queue, 5 * GRAIN).step(100)
    assert [message.expires for message in queue.messages_after(0, 99)] == 4 * [0, 10 * GRAIN]
    with small():
        queue.messages.pack(queue.ordered())
    assert queue.look(10 * GRAIN, 100) and len(queue.messages) == 4


class Walked:
    """A backup's queue that is walked through for a checkpoint while it is packed and unpacked."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        tape = Tape()
        broker = a_broker(tape)
        source, _ = broker.declare_queue("q")
        send(broker, "q", *[f"{n:x}" * self.rng.randint(1, 4) for n in range(60)])
        self.bodies = {one: source.messages[one].body() for one in source.ordered()}
        self.place = Reels(tape)
        self.queue, _ = a_broker(Tape()).declare_queue("q")
        self.queue.is_replica = True
        sequences = list(self.bodies)
        while sequences:
            count = self.rng.randint(1, 9)
            run, sequences = sequences[:count], sequences[count:]
            self.queue.insert_run(run, [self.bodies[one] for one in run], [])
        self.held: list[object] = []

    def stir(self) -> None:
        rng, queue = self.rng, self.queue
        sequence = rng.choice(list(self.bodies))
        roll = rng.random()
        if roll < 0.2:
            self.held.append(queue.messages.get(sequence))
        elif roll < 0.3:
            queue.messages.get(sequence)
        elif roll < 0.4:
            self.held.clear()
        elif roll < 0.6:
            queue.page_out(sequence, sequence + rng.randint(0, 9), self.place)
        elif roll < 0.75:
            first = min(queue.messages, default=0)
            queue.remove(range(first, first + rng.randint(1, 4)))
        elif roll < 0.8:
            queue.restate(sequence, 1, b"")
        else:
            queue.pack_some(rng.choice([0, sequence]), 1 << 62)

    def walk(self, last: int) -> Iterator[tuple[int, bytes]]:
        cursor = 0
        while part := self.queue.part_after(cursor, last, self.rng.choice([1, 10, 1000])):
            if isinstance(part, Segment):
                body = part.body()
                for sequence, size in zip(part.sequences, part.sizes, strict=True):
                    yield sequence, body[:size]
                    body = body[size:]
                assert not body
                cursor = part.sequences[-1]
            else:
                yield from [(message.sequence, message.body()) for message in part]
                cursor = part[-1].sequence
            if self.rng.random() < 0.5:
                self.stir()


@pytest.mark.parametrize("seed", range(150))
def test_a_walk_in_parts_finds_what_stays_once_and_in_order(seed: int) -> None:
    with small():
        walked = Walked(seed)
        for _ in range(4):
            for _ in range(5):
                walked.stir()
            last = walked.rng.choice(list(walked.bodies))
            before = set(walked.queue.messages)
            found = list(walked.walk(last))
            sequences = [sequence for sequence, _ in found]
            assert sequences == sorted(set(sequences))
            stayed = before & set(walked.queue.messages)
            assert {one for one in stayed if one <= last} <= set(sequences) <= before
            assert max(sequences, default=0) <= last
            assert all(body == walked.bodies[sequence] for sequence, body in found)
