"""A sender that keeps to its credit is not rejected: it gets as much as its queue has room for."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qpidha.amqp.peer.sasl import AMQP_HEADER
from qpidha.amqp.peer.terminus import ACCEPTED, REJECTED, target
from qpidha.amqp.server.incoming import BEYOND
from qpidha.broker.credit import DISK_FREE_LIMIT, MOST_ON_ITS_WAY, SLOW_DISK
from qpidha.broker.queues.defaults import QueueDefaults
from qpidha.broker.queues.spec import compile_spec
from qpidha.model.encoding import UInt
from qpidha.model.errors import LimitExceeded
from qpidha.model.message_view import build
from qpidha.model.records import QueueDeclared
from qpidha.store.log import Log
from qpidha.store.memory import Memory
from tests.amqp.builders import AHost, CountingLogWriter, Pair
from tests.amqp.controller import Controller
from tests.amqp.wire import BEGIN, OPEN, Frame, Talk, attach, frame, perform
from tests.broker.parts import a_taker

HEARTBEAT = frame(b"")
FLOW, DISPOSITION, DETACH = 0x13, 0x15, 0x16


class ASender:
    """One sender on a connection of its own, which does what its credit allows."""

    def __init__(self, host: AHost, queue: str = "q") -> None:
        self.host = host
        self.queue = host.broker.queues[queue]
        self.sent = 0
        self.limit = 0
        """Deliveries that it may have sent, by the last flow."""
        self.rejected = 0
        self.talk = Talk(host, AMQP_HEADER, OPEN, BEGIN)
        # Another name for each, for a link of the same name takes that one's place.
        self.hear(self.talk.say(attach(f"s{len(self.queue.senders)}", 0)))

    @property
    def credit(self) -> int:
        self.hear(self.talk.say(HEARTBEAT))
        return self.limit - self.sent

    def hear(self, answers: list[Frame]) -> None:
        for answer in answers:
            assert answer.code < 0x16, answer
            if answer.code == FLOW and answer.fields[4:5] == [0]:
                self.limit = int(answer.fields[5]) + int(answer.fields[6])
                assert self.limit >= self.sent, "credit below zero"
            elif answer.code == DISPOSITION:
                last = answer.fields[2]
                count = 1 if last is None else int(last) - int(answer.fields[1]) + 1
                self.rejected += count * (int(answer.fields[4].descriptor) != 0x24)

    def send(self, size: int = 1, *, settled: bool = False) -> None:
        number = self.sent
        self.sent += 1
        transfer = perform(0x14, UInt(0), UInt(number), number.to_bytes(4, "big"), UInt(0), settled)
        self.hear(self.talk.say(frame(transfer + build(bytes(size)))))

    def send_all(self, size: int = 1, *, most: int = 1 << 30, settled: bool = False) -> int:
        """Send while there is credit."""
        before = self.sent
        while self.sent - before < most and self.credit > 0:
            self.send(size, settled=settled)
        return self.sent - before


def a_host(*, settings: dict[str, Any] | None = None, **arguments: object) -> AHost:
    host = AHost(**(settings or {}))
    named = {"qpid." + name: value for name, value in arguments.items()}
    host.broker.declare_queue("q", arguments=named)
    return host


def leave(host: AHost, count: int) -> None:
    queue = host.broker.queues["q"]
    for message in list(queue.messages.values())[:count]:
        queue.dequeue(message)


@pytest.mark.parametrize("settled", [False, True])
def test_performance_7_a_sender_that_keeps_to_its_credit_is_not_rejected(settled: bool) -> None:
    host = a_host(max_count=10)
    sender = ASender(host)
    assert sender.credit == 2  # what has room above 80 %
    assert 9 <= sender.send_all(settled=settled) <= 10
    assert sender.credit == 0 and sender.rejected == 0
    leave(host, 1)
    assert host.broker.queues["q"].is_stopped and sender.credit == 0
    leave(host, len(host.broker.queues["q"].messages) - 7)
    assert sender.credit > 0


@pytest.mark.parametrize("size", [100, 1000, 10_000, 40_000])
def test_performance_7_a_sender_goes_at_the_pace_of_a_slower_consumer_whatever_it_sends(
    size: int,
) -> None:
    """As one sender and one slower consumer do in performance.md, at a tenth of a percent of it."""
    host = a_host(max_size=400_000, settings={"link_credit": 50})
    queue = host.broker.queues["q"]
    sender = ASender(host)
    consumed = 0
    deepest = 0
    for _ in range(200):
        sender.send_all(size, most=3)
        deepest = max(deepest, queue.bytes)
        leave(host, 2)
        consumed = queue.dequeued
    assert sender.rejected == 0
    assert deepest <= 400_000
    assert consumed >= 200


def test_before_the_first_message_a_sender_gets_credit_for_large_ones() -> None:
    host = a_host()
    sender = ASender(host)
    assert sender.credit == 64
    sender.send_all(most=64)
    assert sender.credit > 900
    sender = ASender(a_host(max_size=10 << 20))
    assert sender.credit == 8  # of 1 MiB each, up to flow-stop


def test_a_sender_that_has_to_wait_long_is_still_known_for_large_messages() -> None:
    host = a_host(max_size=1000)
    queue = host.broker.queues["q"]
    sender = ASender(host)
    sender.send(330)
    sender.send(330)
    assert queue.is_stopped  # One more would not fit, though it is below flow-stop.
    for _ in range(5):
        queue.enqueue(b"m")
    for message in list(queue.messages.values())[2:]:
        queue.dequeue(message)
        assert sender.credit == 0
    leave(host, 1)
    assert sender.credit == 1


def test_credit_shrinks_when_messages_become_large_and_grows_again() -> None:
    host = a_host(settings={"link_credit": 100, "link_credit_bytes": 100_000})
    sender = ASender(host)
    sender.send_all(100, most=60)
    assert sender.credit > 40
    sender.send_all(20_000, most=150)
    assert sender.credit <= 5
    sender.send_all(100, most=3)
    assert sender.credit <= 5  # They may be large again.
    sender.send_all(100, most=20)
    assert sender.credit > 40


def test_the_settings_of_credit_hold_for_any_link() -> None:
    host = a_host(settings={"link_credit": 10})
    sender = ASender(host)
    assert sender.credit == 10
    sender.send_all(most=100)
    assert 5 <= sender.credit <= 10


def test_senders_share_what_has_room() -> None:
    host = a_host(max_count=40)
    first = ASender(host)
    assert first.credit == 8
    second = ASender(host)
    assert second.credit == 4
    for _ in range(40):
        first.send_all(most=1)
        second.send_all(most=1)
    assert first.rejected == second.rejected == 0
    assert first.credit == second.credit == 0
    assert 33 <= len(host.broker.queues["q"].messages) <= 40
    leave(host, 20)
    assert first.credit and second.credit


def test_a_sender_to_a_queue_that_is_stopped_gets_no_credit_until_it_goes_on() -> None:
    host = a_host(max_count=10)
    ASender(host).send_all()
    late = ASender(host)
    assert late.credit == 0
    leave(host, 5)
    assert late.credit == 1


def test_a_queue_that_stops_nobody_rejects_as_before() -> None:
    host = a_host(max_count=4, flow_stop_count=0, flow_stop_size=0)
    sender = ASender(host)
    sender.send_all(most=10)
    assert (len(host.broker.queues["q"].messages), sender.rejected) == (4, 6)


def test_a_message_that_never_fits_is_rejected_with_the_reason() -> None:
    host = a_host(max_size=1000)
    sender = ASender(host)
    sender.send(2000)
    assert sender.rejected == 1
    assert sender.credit == 1
    sender.send(100)
    assert len(host.broker.queues["q"].messages) == 1


def test_the_credit_of_one_who_sends_too_much_is_not_given_twice() -> None:
    host = a_host(max_count=20)
    sender = ASender(host)
    for _ in range(25):
        sender.send()
    assert sender.rejected == 5
    leave(host, 20)
    # What it sent beyond its credit is forgiven: it has what others have.
    assert sender.credit == 4


def test_messages_of_a_transaction_wait_for_room_too() -> None:
    client = Controller(AHost())
    broker = client.host.broker
    queue, _ = broker.declare_queue("q", arguments={"qpid.max_count": 10})
    control = client.control()
    sender = client.sender("q")
    for number in range(9):
        queue.enqueue(build(number))
    transaction = client.declare(control)
    first = [client.send(sender, build("m"), transaction) for _ in range(5)]
    client.turn()
    # What was on its way when the queue stopped; the rest waits in the client.
    assert sum(sent.state != 0 for sent in first) <= 2
    for message in list(queue.messages.values())[:5]:
        queue.dequeue(message)
    for _ in range(5):
        client.turn()
    assert all(sent.state != 0 for sent in first)
    client.commit(control, transaction)
    assert len(queue.messages) == 9


@pytest.mark.parametrize("address", ["amq.fanout", None])
def test_a_sender_to_an_exchange_or_to_any_address_is_not_held_back(address: str | None) -> None:
    pair = Pair(AHost())
    broker = pair.host.broker
    broker.declare_queue("q", arguments={"qpid.max_count": 3})
    broker.bind("amq.fanout", "q")
    link, heard = pair.sender("", terminus=target(address), name="s")
    for _ in range(5):
        link.send(build("m", properties={"to": "q"}))
    pair.turn()
    states = sorted(outcome.state for _, outcome in heard.outcomes)
    assert states == sorted([ACCEPTED] * 3 + [REJECTED] * 2)


def test_a_deleted_queue_leaves_no_sender_waiting() -> None:
    host = a_host(max_count=10)
    sender = ASender(host)
    sender.send_all()
    host.broker.delete_queue("q")
    assert sender.credit > 0
    with pytest.raises(AssertionError):  # the link ends
        sender.send()


def test_a_sender_to_a_queue_that_was_made_anew_has_the_credit_of_the_new_one() -> None:
    host = a_host(max_count=10)
    sender = ASender(host)
    sender.send_all()
    host.broker.delete_queue("q")
    queue, _ = host.broker.declare_queue("q", arguments={"qpid.max_count": 10})
    assert 9 <= sender.send_all() <= 10 + 1
    assert queue.is_stopped and sender.rejected == 0


def test_room_that_comes_after_the_link_is_gone_touches_nothing() -> None:
    host = a_host(max_count=10)
    gone, lost, detached = ASender(host), ASender(host), ASender(host)
    gone.send_all()
    gone.talk.connection.lost("gone")
    lost.talk.say(frame(perform(0x17)))
    detached.talk.say(frame(perform(0x16, UInt(0), True)))
    assert host.broker.queues["q"].waiting == {}
    leave(host, 10)
    assert all(answer.code != FLOW for answer in detached.talk.say(HEARTBEAT))


def test_a_sender_that_detaches_while_a_message_is_not_committed_gets_no_credit() -> None:
    host = AHost(ha_replicate="all")
    host.broker.log_writer = CountingLogWriter()
    queue, _ = host.broker.declare_queue("q", arguments={"qpid.max_count": 10})
    for number in range(8):
        queue.enqueue(build(number))
    host.delaying = True
    sender = ASender(host)
    assert sender.send_all() == 2
    waiter, item = host.pending.pop(0)
    waiter.on_committed(item)
    assert queue.waiting
    sender.talk.say(frame(perform(0x16, UInt(0), True)))
    for message in list(queue.messages.values()):
        queue.dequeue(message)
    host.delaying = False
    assert all(answer.code != FLOW for answer in sender.talk.say(HEARTBEAT))
    host.release_all()
    assert [answer.code for answer in sender.talk.say(HEARTBEAT) if answer.code == 0x16]


def test_what_waits_to_be_committed_counts_against_link_credit() -> None:
    host = AHost(ha_replicate="all", link_credit=10)
    host.broker.log_writer = CountingLogWriter()
    host.broker.declare_queue("q")
    host.delaying = True
    sender = ASender(host)
    assert sender.send_all(most=50) == 10
    for waiter, item in [host.pending.pop() for _ in range(5)]:
        waiter.on_committed(item)
    assert sender.send_all(most=50) == 5
    host.release_all()
    assert sender.send_all(most=50) == 10


def test_a_consumer_s_acceptance_gives_credit_to_another_connection() -> None:
    host = a_host(max_count=10)
    sender = ASender(host)
    sender.send_all()
    queue = host.broker.queues["q"]
    taker = a_taker(queue, 10)
    host.broker.dispatch(host.now)
    host.woken.clear()
    for message in taker.got:
        queue.dequeue(message)
    assert sender.talk.connection in host.woken
    assert sender.credit > 0


def above(memory: Memory, *senders: ASender, size: int) -> int:
    """Have senders send all that they may; return what is in use then."""
    while any(sender.credit for sender in senders):
        for sender in senders:
            sender.send_all(size, most=1)
        memory.turn(1)
    return memory.used


@pytest.mark.parametrize("count", [1, 5])
def test_code_d6_above_the_memory_limit_no_sender_gets_credit_until_much_less_is_in_use(
    count: int,
) -> None:
    host = AHost(default_queue_limit=0)
    host.broker.declare_queue("q")
    memory = Memory(100_000, host.broker, Log(0), None, None)
    senders = [ASender(host) for _ in range(count)]
    assert 100_000 < above(memory, *senders, size=500) < 121_000
    late = ASender(host)
    assert late.credit == 0 and not any(sender.rejected for sender in senders)
    leave(host, 10)
    memory.turn(2)
    assert late.credit == 0
    leave(host, 100)
    memory.turn(3)
    assert late.credit and all(sender.credit for sender in senders)


def test_while_the_disk_is_slow_those_wait_whose_messages_may_be_recorded() -> None:
    host = AHost(ha_replicate="all")
    broker, credit = host.broker, host.broker.credit
    broker.log_writer = CountingLogWriter()
    broker.declare_queue("q")
    broker.declare_queue("local", arguments={"qpid.replicate": "none"})
    credit.withhold(SLOW_DISK, "the disk is too slow")
    sender = ASender(host)
    assert sender.credit == 0
    (link,) = credit.senders
    assert not credit.allows(link, None) and credit.allows(link, broker.queues["local"])
    credit.withhold(SLOW_DISK, "")
    assert sender.credit and not credit.waiting


@pytest.mark.parametrize("settled", [True, False])
def test_a_sender_that_goes_on_without_credit_loses_its_link(settled: bool) -> None:
    host = a_host()
    sender = ASender(host)
    before = sender.credit
    host.broker.credit.withhold("memory-limit", "there is none")
    sender.send_all(settled=settled)
    assert sender.credit == 0 and sender.sent >= before
    answers: list[Frame] = []
    for number in range(sender.sent, sender.sent + 2 * BEYOND):
        transfer = perform(0x14, UInt(0), UInt(number), b"%d" % number, UInt(0), settled)
        answers = sender.talk.say(frame(transfer + build(b"")))
        if any(answer.code == DETACH for answer in answers):
            break
    (detach,) = [answer for answer in answers if answer.code == DETACH]
    assert detach.fields[2].value[0] == "amqp:link:transfer-limit-exceeded"
    assert len(host.broker.queues["q"].messages) <= sender.sent + BEYOND
    assert ASender(host).credit == 0


def test_a_sender_to_a_recorded_queue_has_no_more_on_its_way_than_the_disk_has_room_for() -> None:
    host = AHost(ha_replicate="all", default_queue_limit=0)
    broker, credit = host.broker, host.broker.credit
    broker.log_writer = CountingLogWriter()
    broker.declare_queue("q")
    left, size = 4 << 20, 40_000
    credit.spare_disk = lambda: left
    sender = ASender(host)
    assert sender.credit == 1  # of 1 MiB, and with it half of the room is gone
    while left > 1_000_000:
        assert sender.credit > 0
        sender.send(size)
        left -= size + 300
    credit.withhold(DISK_FREE_LIMIT, "the disk is nearly full")
    assert 0 < sender.credit * size <= left
    assert credit.share(None) == MOST_ON_ITS_WAY


def test_a_sender_that_waited_and_left_is_told_nothing() -> None:
    host = a_host()
    host.broker.credit.withhold("memory-limit", "there is none")
    sender, other = ASender(host), ASender(host)
    assert len(host.broker.credit.waiting) == 2
    sender.talk.say(frame(perform(0x16, UInt(0), True)))
    assert len(host.broker.credit.waiting) == len(host.broker.credit.senders) == 1
    host.broker.credit.withhold("memory-limit", "")
    assert other.credit and not host.broker.credit.waiting


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["send", "send", "leave", "purge", "anew", "limit", "fill"]),
        st.integers(0, 1),
        st.integers(1, 20),
    ),
    max_size=30,
)


@given(st.integers(1, 30), st.booleans(), STEPS)
def test_whatever_happens_a_sender_has_credit_unless_its_queue_is_stopped(
    most: int, vary: bool, steps: list[tuple[str, int, int]]
) -> None:
    host = a_host(max_count=most, settings={"link_credit": 8, "default_queue_limit": 5000})
    broker = host.broker
    senders = [ASender(host), ASender(host)]
    for what, which, count in steps:
        queue = broker.queues["q"]
        if what == "send":
            senders[which].send_all(60 * count if vary else 10, most=count)
        elif what == "leave":
            leave(host, count)
        elif what == "purge":
            broker.purge("q")
        elif what == "anew":
            broker.delete_queue("q")
            broker.declare_queue("q", arguments={"qpid.max_count": count})
            for sender in senders:  # They hear of it when they send.
                sender.send()
        elif what == "limit":
            options = QueueDeclared("q", "", arguments={"qpid.max_count": count})
            queue.reconfigure(compile_spec(options, QueueDefaults(5000)))
        else:
            for _ in range(min(count, most - len(queue.messages))):
                with suppress(LimitExceeded):
                    queue.enqueue(b"m")
        queue = broker.queues["q"]
        for sender in senders:
            assert 0 <= sender.credit <= 8
            # One that has less than half of what it may have is given more; none has nothing.
            assert sender.credit or queue.is_stopped
        assert len(queue.messages) <= max(most, 30) and queue.bytes <= 5000
    leave(host, 1000)
    assert not broker.queues["q"].is_stopped
    assert all(sender.credit for sender in senders)


@given(st.integers(1, 30), st.integers(1, 500), st.lists(st.integers(0, 9), max_size=30))
def test_one_sender_of_messages_of_one_size_is_never_rejected(
    most: int, size: int, leaving: list[int]
) -> None:
    host = a_host(max_count=most, max_size=1000, settings={"link_credit": 8})
    sender = ASender(host)
    for count in leaving:
        sender.send_all(size)
        assert sender.rejected == 0
        assert len(host.broker.queues["q"].messages) >= 1
        leave(host, count)
