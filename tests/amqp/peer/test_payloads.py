"""Payloads that go past the engine: proton's own classes are the peer, and what comes is what was
sent, in its order, whatever the sizes of frames, windows and reads.
"""

from __future__ import annotations

from random import Random
from typing import Any

import proton
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qpidha.amqp.peer.connection import BROKER_FRAME
from qpidha.amqp.peer.engine import Engine
from qpidha.amqp.peer.links import LinkEnd, Scratch, is_settled, settle
from qpidha.amqp.peer.payload import APART, HEAD
from qpidha.amqp.peer.terminus import PeerError, source, target
from qpidha.model.encoding import UInt, decode, encode
from qpidha.model.errors import MessageTooLarge, ProtocolViolation, QpidHaError
from tests.amqp.builders import Pair

FRAMES = [512, APART + 100, 65536, 1 << 24]
SIZES = sorted(
    {0, 1, 100, APART - HEAD, APART - 1, APART, APART + 1, 2 * APART, 200_000}
    | {size + more for size in FRAMES[1:3] for more in (-HEAD - 1, -HEAD, -40, -1, 0, 1)}
    | {2 * 65536 + more for more in (-100, 0, 1)}
)


def content(number: int, size: int) -> bytes:
    """Bytes of which each part says to what message, and where in it, it belongs."""
    return b"".join((number << 32 | place).to_bytes(8, "big") for place in range(0, size + 7, 8))[
        :size
    ]


class Owner:
    """Takes what comes on a link of ours."""

    def __init__(self, end: LinkEnd) -> None:
        self.end = end
        self.taken: list[tuple[bytes, bool]] = []
        self.error: QpidHaError | None = None
        self.is_lost = False
        end.owner = self

    def delivery_changed(self, delivery: Any) -> None:
        if self.end.is_sender:
            if is_settled(delivery):
                settle(delivery)
            return
        try:
            payload = self.end.take(delivery)
        except MessageTooLarge as error:
            self.error = error
            self.end.end(error)
            return
        if payload is not None:
            self.taken.append((payload, is_settled(delivery)))
            settle(delivery)

    def answered(self) -> None: ...
    def flowed(self) -> None: ...
    def broken(self, error: QpidHaError) -> None: ...
    def declined(self, delivery: Any, error: QpidHaError) -> None: ...

    def detached(self, closed: bool, error: PeerError | None) -> None:
        self.end.end(closed=closed)

    def lost(self) -> None:
        self.is_lost = True


class Ours:
    """An engine of ours with proton as its peer, whose bytes come in reads of any size."""

    def __init__(self, links: int, *, our_frames: int, its_frames: int, window: int = 0) -> None:
        self.random = Random(links * our_frames)
        self.most = 1 << 20
        self.engine = Engine(
            self, is_server=True, max_frame_size=our_frames, channel_max=10, scratch=Scratch()
        )
        self.owners: dict[str, Owner] = {}
        self._begun: dict[str, bytes] = {}
        self.connection, self.transport = proton.Connection(), proton.Transport()
        self.transport.max_frame_size = its_frames
        self.transport.bind(self.connection)
        self.connection.container = "proton"
        self.connection.open()
        self.senders: list[Any] = []
        self.receivers: list[Any] = []
        self.sessions: list[Any] = []
        for number in range(links):
            if number % 2 == 0:
                session = self.connection.session()
                session.incoming_capacity = window * its_frames
                session.open()
                self.sessions.append(session)
            session = self.sessions[-1]
            for links_of, link in (
                (self.senders, session.sender(f"to-{number}")),
                (self.receivers, session.receiver(f"from-{number}")),
            ):
                link.open()
                links_of.append(link)
        self.turn()
        for receiver in self.receivers:
            receiver.flow(1000)
        for owner in self.owners.values():
            if not owner.end.is_sender:
                owner.end.flow(1000)
        self.turn()

    def peer_opened(self) -> None:
        self.engine.open("ours", {})

    def peer_closed(self, error: PeerError | None) -> None:
        raise AssertionError(error)

    def peer_retires(self, retiring: Any) -> None: ...

    def peer_attached(self, end: LinkEnd) -> None:
        self.owners[end.name] = Owner(end)
        end.open(source("q"), target("q"))

    def hear(self) -> bool:
        """Have our engine read what proton has to say; tell whether that was something."""
        data = b""
        while (pending := self.transport.pending()) > 0:
            data += (piece := self.transport.peek(pending))
            self.transport.pop(len(piece))
        place = 0
        while place < len(data):
            size = self.random.randint(1, self.most)
            self.engine.push(data[place : place + size])
            place += size
        return bool(data)

    def say(self) -> bool:
        """Have proton read what our engine has to say; tell whether that was something."""
        data = b"".join(self.engine.pull())
        left = data
        while left and (room := self.transport.capacity()) > 0:
            self.transport.push(left[:room])
            left = left[room:]
        assert not left and self.transport.condition is None
        return bool(data)

    def turn(self) -> None:
        while self.hear() | self.say():
            pass

    def received(self, link: Any) -> list[tuple[bytes, bool]]:
        """Take what proton has, and give the messages that are whole, and whether they are
        settled. Where its window is small, it wants more only when that was read.
        """
        found = []
        while (delivery := link.current) is not None:
            begun = self._begun.pop(link.name, b"") + (link.recv(delivery.pending) or b"")
            if delivery.partial:
                self._begun[link.name] = begun
                break
            found.append((begun, delivery.settled))
            link.advance()
            delivery.settle()
        return found

    def free(self) -> None:
        assert not self.engine.unfinished
        self.engine.free()


ANY_SIZE = st.sampled_from(SIZES)
FEW = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@FEW
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.lists(ANY_SIZE, min_size=1, max_size=3), st.booleans()),
        max_size=12,
    ),
    st.sampled_from(FRAMES),
    st.sampled_from([100, 5000, 65536, 1 << 24]),
    st.randoms(use_true_random=False),
)
def test_what_proton_sends_is_taken(
    messages: list[tuple[int, list[int], bool]], frames: int, most: int, random: Any
) -> None:
    """In parts that come between those of other links; some are aborted, and some settled."""
    ours = Ours(3, our_frames=frames, its_frames=65536)
    ours.most = most
    expected: list[list[tuple[bytes, bool]]] = [[], [], []]
    waiting: list[list[tuple[int, list[int], bool]]] = [[], [], []]
    for number, (link, sizes, settled) in enumerate(messages):
        waiting[link].append((number, sizes, settled))
    under_way: dict[int, tuple[Any, bytes, bytes, list[int], bool]] = {}
    while any(waiting) or under_way:
        link = random.choice([each for each in range(3) if waiting[each] or each in under_way])
        sender = ours.senders[link]
        if link not in under_way:
            number, sizes, settled = waiting[link].pop(0)
            whole = content(number, sum(sizes))
            under_way[link] = (sender.delivery(f"{number}"), whole, whole, list(sizes), settled)
        delivery, whole, rest, sizes, settled = under_way.pop(link)
        if len(sizes) > 1 and random.random() < 0.2:
            delivery.abort()
        else:
            size = sizes[0]
            sender.stream(rest[:size])
            if len(sizes) > 1:
                under_way[link] = delivery, whole, rest[size:], sizes[1:], settled
            else:
                sender.advance()
                expected[link].append((whole, settled))
                if settled:
                    delivery.settle()
        if random.random() < 0.7:
            ours.turn()
    ours.turn()
    assert [ours.owners[f"to-{link}"].taken for link in range(3)] == expected
    ours.free()


@FEW
@given(
    st.lists(st.tuples(st.integers(0, 2), ANY_SIZE, st.booleans(), st.booleans()), max_size=15),
    st.sampled_from(FRAMES),
    st.sampled_from([0, 1, 2, 5]),
    st.randoms(use_true_random=False),
)
def test_what_is_sent_is_what_proton_has(
    messages: list[tuple[int, int, bool, bool]], frames: int, window: int, random: Any
) -> None:
    """Through windows of few frames, and while nothing is read of some links."""
    ours = Ours(3, our_frames=65536, its_frames=frames, window=window)
    expected: list[list[tuple[bytes, bool]]] = [[], [], []]
    found: list[list[tuple[bytes, bool]]] = [[], [], []]
    for number, (link, size, settled, is_in_parts) in enumerate(messages):
        payload = content(number, size)
        parts: Any = payload
        if is_in_parts:
            place = random.randint(0, size)
            parts = (payload[:place], memoryview(payload)[place:], b"")
        ours.owners[f"from-{link}"].end.send(parts, settled=settled)
        expected[link].append((payload, settled))
        if random.random() < 0.5:
            ours.say()
        if random.random() < 0.3:
            ours.turn()
            each = random.randrange(3)
            found[each] += ours.received(ours.receivers[each])
    for _ in range(2 * sum(size for _, size, _, _ in messages) // frames + 50):
        ours.turn()
        if found == expected:
            break
        for each, link in enumerate(ours.receivers):
            found[each] += ours.received(link)
    assert [[len(one) for one, _ in each] for each in found] == [
        [len(one) for one, _ in each] for each in expected
    ]
    assert found == expected
    assert not ours.engine._owed and not any(each.owed for each in ours.engine.sessions())
    assert not ours.engine.backlog()
    ours.free()


@pytest.mark.parametrize("way", ["link", "session", "peer"])
@pytest.mark.parametrize("sizes", [[APART, 70_000, APART, 1], [1, 200_000, APART]])
def test_what_waits_for_a_window_goes_with_its_link(way: str, sizes: list[int]) -> None:
    """What comes is whole, in its order, and nothing of it comes in place of what comes later."""
    for passed in range(len(sizes) + 1):
        ours = Ours(3, our_frames=65536, its_frames=APART + 100, window=1)
        first, second = ours.owners["from-0"].end, ours.owners["from-2"].end
        sent = [content(number, size) for number, size in enumerate(sizes)]
        others = [content(number, APART) for number in (7, 8, 9)]
        for payload in sent:
            first.send(payload)
        for payload in others[:2]:
            second.send(payload)
        for _ in range(passed):
            ours.turn()
        session = first.session
        assert 0 < session.backlog() == ours.engine.backlog() - second.session.backlog()
        if way == "link":
            first.end()
        elif way == "session":
            ours.engine.end_session(session, ProtocolViolation("enough"))
        else:
            ours.receivers[0].close()
        second.send(others[2])
        found: list[tuple[bytes, bool]] = []
        beside: list[tuple[bytes, bool]] = []
        for _ in range(100):
            ours.turn()
            found += ours.received(ours.receivers[0])
            beside += ours.received(ours.receivers[2])
            if ours.receivers[0].state & proton.Endpoint.REMOTE_CLOSED and way == "link":
                ours.receivers[0].close()
        assert [payload for payload, _ in found] == sent[: len(found)]
        assert [payload for payload, _ in beside] == others
        assert not ours.engine._owed and not session.owed
        ours.free()


@pytest.mark.parametrize("size", [APART, 65536, 150_000])
@pytest.mark.parametrize("most", [1000, 1 << 20])
def test_a_large_message_over_the_limit_ends_its_link(size: int, most: int) -> None:
    ours = Ours(2, our_frames=65536, its_frames=65536)
    ours.most = most
    owner = ours.owners["to-0"]
    for limit, number in ((size, 0), (size - 1, 1)):
        owner.end.set_limit(limit)
        ours.senders[0].delivery(str(number))
        ours.senders[0].stream(content(number, size))
        ours.senders[0].advance()
        ours.turn()
    assert [len(payload) for payload, _ in owner.taken] == [size]
    assert isinstance(owner.error, MessageTooLarge)
    ours.senders[1].delivery("after")
    ours.senders[1].stream(content(2, size))
    ours.senders[1].advance()
    ours.turn()
    assert ours.owners["to-1"].taken == [(content(2, size), False)]
    ours.free()


def test_a_delivery_that_is_declined_takes_no_bytes_of_the_next() -> None:
    data = Ours(1, our_frames=65536, its_frames=65536)
    owner, refused = data.owners["to-0"], []
    owner.declined = lambda delivery, error: (refused.append(error), settle(delivery))  # type: ignore[method-assign]
    sender = data.senders[0]
    for number in range(4):
        sender.delivery(str(number))
        sender.stream(content(number, 60_000))
        sender.advance()
    said = b""
    while (pending := data.transport.pending()) > 0:
        said += (piece := data.transport.peek(pending))
        data.transport.pop(len(piece))
    odd = b"\x00\x53\x14\xc0"
    whole, place, count = b"", 0, 0
    while place < len(said):
        size = int.from_bytes(said[place : place + 4], "big")
        one = said[place : place + size]
        if one[8:11] == odd[:3]:
            # The message-format of the second delivery is one that is not known.
            fields, end = decode(one, 8)
            if fields.value[1] == 1:
                fields.value[3] = UInt(7)
                body = encode(fields) + one[end:]
                one = (len(body) + 8).to_bytes(4, "big") + one[4:8] + body
            count += 1
        whole += one
        place += size
    for start in range(0, len(whole), 30_000):
        data.engine.push(whole[start : start + 30_000])
    assert count == 4 and len(refused) == 1
    assert [payload for payload, _ in owner.taken] == [content(n, 60_000) for n in (0, 2, 3)]
    data.free()


def test_a_peer_that_stops_in_the_middle_leaves_nothing() -> None:
    ours = Ours(1, our_frames=65536, its_frames=65536)
    ours.owners["to-0"].end.set_limit(1 << 20)
    ours.senders[0].delivery("1")
    ours.senders[0].stream(content(1, 150_000))
    said = b""
    while (pending := ours.transport.pending()) > 0:
        said += (piece := ours.transport.peek(pending))
        ours.transport.pop(len(piece))
    ours.engine.push(said[:100_000])
    assert ours.engine.unfinished > 0 and ours.engine.scratch.unfinished > 0
    scratch = ours.engine.scratch
    ours.engine.free()
    assert scratch.unfinished == 0


def test_brokers_and_those_who_dial_take_large_frames_and_clients_are_sent_small_ones() -> None:
    """An older member says 64 KiB, and is heard."""
    pair = Pair()
    assert pair.server.remote_max_frame_size() == BROKER_FRAME
    assert pair.client.remote_max_frame_size() == 65536


@pytest.mark.parametrize("closes", [False, True])
def test_what_is_written_when_a_link_goes_has_its_payload(closes: bool) -> None:
    ours = Ours(1, our_frames=65536, its_frames=65536)
    ours.owners["from-0"].end.send(content(1, APART))
    (ours.receivers[0].close if closes else ours.receivers[0].detach)()
    ours.hear()
    assert not ours.engine._owed
    ours.say()
    assert ours.received(ours.receivers[0]) in ([], [(content(1, APART), False)])
    ours.free()
