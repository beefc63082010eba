"""Hostile peers: whatever they send ends their own connection at most, and costs a bounded amount
of memory.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import Counter

import pytest

from qpidha.client.message import Message
from tests.fidelity.raw_types import NULL, list_of, map_of, string, symbol, uint
from tests.hostile import frames
from tests.hostile.corpus import KINDS, QUEUE, after_login, corpus, nested
from tests.hostile.frames import (
    AMQP_HEADER,
    SASL_HEADER,
    Peer,
    attach_frame,
    begin_frame,
    condition_in,
    disposition_frame,
    flow_frame,
    frame,
    handshake,
    message,
    open_frame,
    performative,
    sasl_init,
    transfer_frame,
)
from tests.patience import STATE
from tests.system.clients import Refusal, connect, send
from tests.system.cluster import Cluster, wait_for

SEED = 20260102
COUNT = 1000
MIB = 1 << 20
OPTIONS = {
    "link_heartbeat_interval": "20",
    "max_message_size": str(MIB),
    "max_output_buffer": str(MIB),
    "max_connections": "60",
    "max_links": "64",
    "channel_max": "31",
    "link_credit": "200",
    "log_enable": "info+",
}


@pytest.fixture
def a_target(a_cluster):
    """A primary and its backup with small limits, and a queue that forgets its oldest messages."""
    cluster = a_cluster(2, **OPTIONS)
    cluster[0].declare_queue(QUEUE, max_count=50, policy_type="ring")
    cluster[0].declare_queue("canary")
    cluster[0].declare_queue("visitors")
    yield cluster
    for broker in cluster:
        text = broker.log.read_text(errors="replace")
        assert (
            "Traceback" not in text and " critical " not in text and "internal error" not in text
        ), text[-3000:]
        assert broker.is_running
    cluster[0].wait_state("active")
    cluster[1].wait_state("ready")


def memory(broker):
    """Return the bytes of memory that are resident."""
    with open(f"/proc/{broker.process.pid}/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS:"))


def processor_seconds(broker):
    """Return what a broker has used of the processor: a measure that other load does not change."""
    with open(f"/proc/{broker.process.pid}/stat") as file:
        user, system = file.read().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


class Canary:
    """A connection that lives through everything and sends and receives all the time."""

    def __init__(self, broker, queue="canary"):
        self.client = connect(broker)
        self.sender = self.client.sender(queue)
        self.receiver = self.client.receiver(queue, credit=10)
        self.count = 0

    def sing(self):
        """One message there and back; fails if the connection was touched or the broker does not
        serve it.
        """
        self.count += 1
        self.sender.send(Message(self.count))
        message = self.receiver.receive()
        assert message.body == self.count
        message.accept()

    def close(self):
        self.client.close()


def visit(broker):
    """Do what a normal client does: connect, send, receive, leave."""
    visitor = Canary(broker, "visitors")
    visitor.sing()
    visitor.close()


def call_by(broker):
    """Do the same in well-behaved frames of our own, which is ten times as fast."""
    with Peer(broker.address) as peer:
        peer.send(handshake())
        peer.wait_for(frames.BEGIN)
        peer.send(
            attach_frame("out", 0, string("visitors"))
            + attach_frame("in", 1, string("visitors"), receiver=True)
        )
        peer.wait_for(frames.FLOW)
        peer.send(transfer_frame(0, 0, message("hello")))
        assert b"\x00\x53\x24" in peer.wait_for(frames.DISPOSITION)
        peer.send(flow_frame(1, 1))
        assert peer.wait_for(frames.TRANSFER).endswith(message("hello"))
        peer.send(disposition_frame(0, 0) + performative(frames.CLOSE))
        assert condition_in(peer.wait_for(frames.CLOSE)) == ""


def attack(broker, one, lingering):
    """Carry out one attack; a connection that lingers is left open, at most ten of them."""
    peer = Peer(broker.address)
    for piece in one.pieces:
        if not peer.send(piece):
            break
        peer.read(0.002)
    if one.leaving == "half-close":
        peer.half_close()
        peer.read(0.002)
    if one.leaving == "linger":
        lingering.append(peer)
        if len(lingering) > 10:
            lingering.pop(0).close()
    elif one.leaving == "reset":
        peer.reset()
    else:
        peer.close()
    return peer


def test_a_thousand_hostile_connections_touch_nothing_else(a_target, record_property):
    """After each of them a normal client works; a connection that was there before them all never
    notices; memory stays bounded.

    Every tenth goes to the backup, whose own service is to redirect and to keep up with its
    primary.
    """
    primary, backup = a_target
    canary = Canary(primary)
    lingering = []
    made, ended = Counter(), 0
    before = {}
    begun = time.monotonic()
    for number, one in enumerate(corpus(SEED, COUNT)):
        target = backup if number % 10 == 9 else primary
        try:
            ended += attack(target, one, lingering).ended
            canary.sing()
            call_by(primary)
            if number % 20 == 0:
                visit(primary)
            if target is backup:
                assert Refusal(backup).condition == "amqp:connection:redirect"
        except Exception as error:
            raise AssertionError(
                f"attack {number} of seed {SEED} on {target.name}: {one}"
            ) from error
        made[one.name] += 1
        if number == 300:
            # Caches and arenas are filled by then.
            before = {broker.name: memory(broker) for broker in a_target}
    for peer in lingering:
        peer.close()
    growth = {broker.name: (memory(broker) - before[broker.name]) / MIB for broker in a_target}
    for name, value in (
        ("seconds", time.monotonic() - begun),
        ("growth in MiB", growth),
        ("before", before),
    ):
        record_property(name, value)
    canary.close()
    assert sum(made.values()) == COUNT
    assert set(made) == {maker.__name__ for _, maker in KINDS}
    assert ended > COUNT // 4, "most of the corpus should be worth ending a connection for"
    assert max(growth.values()) < 16, growth


START = SASL_HEADER + sasl_init() + AMQP_HEADER
SENDER = handshake() + attach_frame("a", 0, string(QUEUE))
ONE_LINK = START + open_frame() + begin_frame(handle_max=0) + attach_frame("a", 0, string(QUEUE))
"""The same in a session that has room for no other link."""
FRAMING, DECODE, INVALID = (
    "amqp:connection:framing-error",
    "amqp:decode-error",
    "amqp:invalid-field",
)
NOT_ALLOWED, ILLEGAL = "amqp:not-allowed", "amqp:illegal-state"
FAULTS = {
    "frame smaller than its header": (handshake(), frame(b"", size=3), {FRAMING}),
    "frame over max-frame-size": (handshake(), frame(b"x", size=2**31), {FRAMING}),
    "data offset outside the frame": (handshake(), frame(b"", doff=200), {FRAMING}),
    "unknown performative": (
        handshake(),
        performative(0x7A, string("x")),
        {FRAMING, DECODE, NOT_ALLOWED},
    ),
    "open that is no list": (START, frame(b"\x00\x53\x10\x40"), {DECODE}),
    "begin before open": (START, begin_frame(), {ILLEGAL}),
    "begin on a channel in use": (handshake(), begin_frame(), {ILLEGAL}),
    "garbage for a performative": (handshake(), frame(b"\xde\xad\xbe\xef"), {FRAMING, DECODE}),
    "second open": (START + open_frame(), open_frame(), {ILLEGAL, FRAMING, NOT_ALLOWED}),
    "more sessions than channel-max": (
        handshake(),
        b"".join(begin_frame(channel) for channel in range(1, 300)),
        {FRAMING, NOT_ALLOWED},
    ),
    "more sessions than the peer's own channel-max": (
        START + open_frame(channel_max=0) + begin_frame(),
        begin_frame(1) + attach_frame("a", 0, string(QUEUE), channel=1),
        {FRAMING, NOT_ALLOWED},
    ),
    "channel over channel-max": (handshake(), begin_frame(200), {FRAMING, NOT_ALLOWED}),
    "attach on a channel without a session": (
        handshake(),
        attach_frame("a", 0, string(QUEUE), channel=9),
        {ILLEGAL},
    ),
}


@pytest.fixture(scope="module")
def faults_broker(tmp_path_factory):
    """One broker for all the faults."""
    with a_broker(tmp_path_factory.mktemp("faults"), OPTIONS) as broker:
        yield broker


@pytest.fixture(scope="module")
def hasty_broker(tmp_path_factory):
    """One that soon gives up those who do not open their connection."""
    options = {**OPTIONS, "max_negotiate_time": "3s"}
    with a_broker(tmp_path_factory.mktemp("hasty"), options) as broker:
        yield broker


@contextlib.contextmanager
def a_broker(folder, options):
    """A broker with queues for hostile and for normal clients; nothing of it may fail."""
    cluster = Cluster(folder, 1, options=options)
    try:
        cluster.start()
        cluster[0].declare_queue(QUEUE, max_count=50, policy_type="ring")
        cluster[0].declare_queue("visitors")
        yield cluster[0]
        text = cluster[0].log.read_text(errors="replace")
        assert "Traceback" not in text and "internal error" not in text, text[-3000:]
    finally:
        cluster.close()


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_closes_its_connection_with_an_error(faults_broker, fault):
    """The peer is told what was wrong, in a close (AMQP 1.0 section 2.8.16), and then
    disconnected.
    """
    before, data, conditions = FAULTS[fault]
    with Peer(faults_broker.address) as peer:
        peer.send(before)
        peer.read(0.03)
        peer.send(data)
        peer.wait_ended(STATE)
        assert peer.error() in conditions, peer.performatives()
    visit(faults_broker)


@pytest.mark.parametrize(
    ("bad", "condition"),
    [
        (frame(b"\x00\x53\x12\x40"), DECODE),
        (performative(frames.FLOW), DECODE),
        (performative(frames.DISPOSITION, NULL, uint(0)), DECODE),
        (transfer_frame(5, 0, message()), "amqp:session:unattached-handle"),
        (transfer_frame(0, 0, message()) + transfer_frame(0, 5, message()), INVALID),
        (attach_frame("b", 1, string(QUEUE)), "amqp:resource-limit-exceeded"),
    ],
    ids=[
        "no list",
        "no fields",
        "no role",
        "unattached handle",
        "delivery out of sequence",
        "more links than the peer's own handle-max",
    ],
)
def test_a_fault_of_a_session_ends_it_and_not_its_connection(faults_broker, bad, condition):
    with Peer(faults_broker.address) as peer:
        peer.send(ONE_LINK)
        peer.wait_for(frames.FLOW)
        peer.send(bad + transfer_frame(0, 0, message()))
        peer.wait_for(frames.END)
        assert ends_of_links(peer) == [condition]
        peer.send(begin_frame(1) + attach_frame("b", 0, string(QUEUE), channel=1))
        peer.wait_for(frames.ATTACH)
    visit(faults_broker)


def test_an_attach_with_the_name_of_an_active_link_ends_that_one(faults_broker):
    with Peer(faults_broker.address) as peer:
        peer.send(SENDER)
        peer.wait_for(frames.FLOW)
        peer.send(attach_frame("a", 1, string(QUEUE)))
        assert condition_in(peer.wait_for(frames.DETACH)) == "amqp:link:stolen"
        # What still comes for the old one is thrown away, and does not pile up.
        before = memory(faults_broker)
        parts = transfer_frame(0, 0, b"x" * 60_000, more=True)
        for _ in range(400):
            peer.send(parts)
        peer.send(transfer_frame(0, 0, b"x") + transfer_frame(1, 1, message()))
        peer.wait_for(frames.DISPOSITION)
        assert (memory(faults_broker) - before) / MIB < 10
    visit(faults_broker)


def ends_of_links(peer):
    """Return the conditions of the detaches and closes that came."""
    return [
        condition_in(body)
        for code, body in peer.performatives()
        if code in (frames.DETACH, frames.END, frames.CLOSE)
    ]


@pytest.mark.parametrize(
    "parts",
    [
        [
            transfer_frame(0, 0, b"x" * 60_000, more=True),
            *[transfer_frame(0, 0, b"x" * 60_000, more=True, first=False)] * 19,
        ],
        [*[transfer_frame(0, 0, b"x" * 60_000, more=True)] * 20],
    ],
    ids=["without repeating its id", "repeating its id"],
)
def test_a_message_that_never_ends_is_cut_off_at_max_message_size(faults_broker, parts):
    """The link is detached with the spec's condition as soon as the limit is passed."""
    with Peer(faults_broker.address) as peer:
        peer.send(SENDER)
        peer.wait_for(frames.FLOW)
        peer.send(b"".join(parts))
        assert condition_in(peer.wait_for(frames.DETACH)) == "amqp:link:message-size-exceeded"
        # What still comes is thrown away.
        peer.send(b"".join(parts[:10]))
    visit(faults_broker)


def test_deep_nesting_is_refused_or_carried_but_never_followed(faults_broker):
    """A value nested 6,000 deep, as open properties, as an address and as a body."""
    deep = nested(6000, wide=True)
    for data in (
        START + open_frame(properties=map_of([symbol("deep"), deep])) + begin_frame(),
        handshake() + attach_frame("a", 0, deep),
        SENDER + transfer_frame(0, 0, b"\x00\x53\x77" + deep),
        SENDER + transfer_frame(0, 0, b"\x00\x53\x74" + deep + message()),
        SENDER + transfer_frame(0, 0, b"\x00\x53\x73" + list_of([deep]) + message()),
    ):
        with Peer(faults_broker.address) as peer:
            for piece in after_login(data):
                peer.send(piece)
                peer.read(0.03)
        visit(faults_broker)


def test_sessions_and_links_are_limited(faults_broker):
    """channel-max and max-links: the connection that asks for more is told, and gets nothing
    more.
    """
    with Peer(faults_broker.address) as peer:
        peer.send(
            handshake()
            + b"".join(attach_frame(f"l{i}", i, string(QUEUE)) for i in range(200))
            + performative(frames.CLOSE)
        )
        peer.wait_ended(STATE)
        attaches = [body for code, body in peer.performatives() if code == frames.ATTACH]
        refusals = [condition for condition in ends_of_links(peer) if condition]
        assert len(attaches) - len(refusals) == 64 or peer.error(), (len(attaches), refusals[:3])
        assert set(refusals) == {"amqp:resource-limit-exceeded"}
    visit(faults_broker)


@pytest.mark.parametrize(
    "what", ["begins", "begins and ends", "opens", "attaches and detaches", "flows", "empty frames"]
)
def test_a_flood_of_frames_leaves_nothing_behind(faults_broker, what):
    """Twenty thousand of them on one connection, three times: it is ended or served, and memory
    does not grow with each.
    """
    some = {
        "begins": begin_frame() * 500,
        "begins and ends": (begin_frame(1) + performative(frames.END, channel=1)) * 500,
        "opens": open_frame() * 500,
        "attaches and detaches": (attach_frame("l", 0, string(QUEUE)) + frames.detach_frame(0))
        * 500,
        "flows": performative(frames.FLOW, uint(0), uint(9), uint(0), uint(9)) * 500,
        "empty frames": frame(b"") * 500,
    }[what]
    after = []
    for _ in range(3):
        with Peer(faults_broker.address) as peer:
            peer.send(handshake())
            peer.wait_for(frames.BEGIN)
            for _ in range(40):
                if not peer.send(some):
                    break
                peer.read(0.001)
            call_by(faults_broker)
        visit(faults_broker)
        after.append(memory(faults_broker))
    assert (after[-1] - after[0]) / MIB < 10, after


def test_a_flood_of_attaches_does_not_keep_others_waiting(faults_broker):
    """Three MiB of the costliest frames in one go: somebody else is served before three
    quarters of them are answered.
    """
    count = 40_000
    flood = (attach_frame("l", 0, string(QUEUE)) + frames.detach_frame(0)) * count
    with Peer(faults_broker.address, timeout=STATE) as peer:

        def answered():
            return sum(code == frames.DETACH for code, _ in peer.performatives())

        peer.send(handshake())
        peer.wait_for(frames.BEGIN)
        threads = [
            threading.Thread(target=peer.read, args=(STATE,)),
            threading.Thread(target=peer.send, args=(flood + performative(frames.CLOSE),)),
        ]
        for thread in threads:
            thread.start()
        before = wait_for(answered, what="answers to the flood")
        call_by(faults_broker)
        meanwhile = answered() - before
        for thread in threads:
            thread.join()
        assert answered() == count
        assert meanwhile < count * 3 / 4


def test_a_handshake_that_stops_halfway_ends_after_max_negotiate_time(hasty_broker):
    """Wherever it stops, and also if it creeps on a byte at a time; meanwhile and afterwards others
    are served.
    """
    whole = START + open_frame()
    cuts = (
        0,
        4,
        8,
        12,
        30,
        len(SASL_HEADER + sasl_init()),
        len(START) - 3,
        len(START),
        len(START) + 10,
        len(whole) - 1,
    )
    peers = [Peer(hasty_broker.address) for _ in cuts]
    for peer, cut in zip(peers, cuts, strict=True):
        peer.send(whole[:cut])
    creeping = Peer(hasty_broker.address)
    sent = 0
    while not creeping.ended:
        creeping.send(whole[:-1][sent : sent + 1])
        sent += 1
        visit(hasty_broker)
        creeping.read(0.001)
    peers.append(creeping)
    for peer in peers:
        peer.wait_ended(STATE)
        peer.close()
    # Who has not logged in is told nothing.
    told = [cut >= len(SASL_HEADER + sasl_init()) for cut in (*cuts, len(whole))]
    assert [b"max-negotiate-time 3000 ms" in peer.received for peer in peers] == told
    visit(hasty_broker)


def test_a_tcp_connection_that_says_nothing_does_not_take_the_places_of_others(hasty_broker):
    """max-connections is reached by silent ones; they are thrown out, and everybody is served
    again.
    """
    silent = []
    with contextlib.suppress(OSError):
        for _ in range(100):
            silent.append(Peer(hasty_broker.address, timeout=1))

    def served():
        try:
            visit(hasty_broker)
        except Exception as refused:
            return repr(refused)
        return ""

    wait_for(served, lambda error: not error, what="why a client is not served")
    for peer in silent:
        peer.close()


def test_clients_500_silent_connections_keep_nobody_out(faults_broker):
    """There is no need to wait until they are thrown out."""
    silent = []
    with contextlib.suppress(OSError):
        for _ in range(500):
            silent.append(Peer(faults_broker.address))
    visit(faults_broker)
    assert faults_broker.status()["connections"] <= 110
    for peer in silent:
        peer.close()


def test_a_half_closed_connection_gets_its_answers(faults_broker):
    """A peer that has sent everything, close included, and shut its side still reads what the
    broker says, up to the close.
    """
    with Peer(faults_broker.address) as peer:
        peer.send(SENDER)
        peer.wait_for(frames.FLOW)
        peer.send(transfer_frame(0, 0, message()) + performative(frames.CLOSE))
        peer.half_close()
        peer.wait_for(frames.CLOSE)
        peer.wait_ended(STATE)
    with Peer(faults_broker.address) as peer:
        peer.send(SENDER)
        peer.half_close()
        peer.wait_ended(STATE)
    visit(faults_broker)


def test_a_disposition_of_four_thousand_million_deliveries_is_answered_at_once(faults_broker):
    """The range is not walked through: it costs no more than some normal clients do."""
    receiver = attach_frame("b", 1, string(QUEUE), receiver=True) + flow_frame(1, 5)
    with Peer(faults_broker.address) as peer:
        peer.send(SENDER)
        peer.wait_for(frames.FLOW)
        peer.send(transfer_frame(0, 0, message(), settled=True) + receiver)
        peer.wait_for(frames.TRANSFER)
        peer.send(
            disposition_frame(0, 2**32 - 1)
            + disposition_frame(3, 1)
            + disposition_frame(2**31, 2**31 + 5)
        )
        begun = processor_seconds(faults_broker)
        visit(faults_broker)
        ranges = processor_seconds(faults_broker) - begun
        for _ in range(20):
            visit(faults_broker)
        visits = processor_seconds(faults_broker) - begun - ranges
        assert ranges < 5 * visits


def test_receivers_that_never_read_are_bounded(a_target, record_property):
    """Twenty of them ask for 30 MiB each; the broker keeps at most max-output-buffer for any, and
    others go on.
    """
    primary, _ = a_target
    primary.declare_queue("large")
    canary = Canary(primary)
    send(primary, "large", [b"x" * (MIB - 1000)] * 30)
    before = memory(primary)
    peers = []
    for number in range(20):
        peer = Peer(primary.address, receive_buffer=4096)
        peer.send(
            handshake()
            + attach_frame(f"r{number}", 0, string("large"), receiver=True, copy=True)
            + flow_frame(0, 2**31 - 1)
        )
        peers.append(peer)
        canary.sing()
    peak = 0
    for _ in range(200):
        canary.sing()
        peak = max(peak, memory(primary))
    record_property("growth in MiB", (peak - before) / MIB)
    # For each: what may wait in the stream (1 MiB), and a message that was begun.
    assert (peak - before) / MIB < 20 * 3.5, "MiB of growth"
    for peer in peers:
        peer.close()
    canary.sing()
    canary.close()
    visit(primary)


def test_messages_that_never_end_are_bounded(a_target, record_property):
    """Thirty connections stop just below max-message-size and wait; then each passes it."""
    primary, _ = a_target
    canary = Canary(primary)
    before = memory(primary)
    peers = []
    part = b"x" * 60_000
    for _ in range(30):
        peer = Peer(primary.address)
        peer.send(SENDER)
        peer.wait_for(frames.FLOW)
        peer.send(
            transfer_frame(0, 0, part, more=True)
            + transfer_frame(0, 0, part, more=True, first=False) * 16
        )
        peers.append(peer)
        canary.sing()
    peak = memory(primary)
    for peer in peers:
        peer.send(transfer_frame(0, 0, part, more=True, first=False) * 100)
        canary.sing()
        peak = max(peak, memory(primary))
    record_property("growth in MiB", (peak - before) / MIB)
    assert (peak - before) / MIB < 30 * 2.5, "MiB of growth"
    for peer in peers:
        peer.close()
    canary.sing()
    canary.close()
    wait_for(
        lambda: (memory(primary) - before) / MIB,
        lambda growth: growth < 40,
        what="growth in MiB after they left",
    )


def test_a_flood_beyond_its_credit_is_bounded(a_target):
    """A sender that ignores credit: settled or not, it is cut off or served, and its messages stay
    within the queue's limit.
    """
    primary, _ = a_target
    canary = Canary(primary)
    before = memory(primary)
    for settled in (True, False):
        with Peer(primary.address) as peer:
            peer.send(SENDER)
            peer.wait_for(frames.FLOW)
            for start in range(0, 20_000, 500):
                if not peer.send(
                    b"".join(
                        transfer_frame(0, i, message("y" * 200), settled=settled)
                        for i in range(start, start + 500)
                    )
                ):
                    break
                canary.sing()
            peer.read(0.05)
    sink = next(queue for queue in primary.call("list_queues") if queue["name"] == QUEUE)
    assert sink["messages"] <= 50
    assert (memory(primary) - before) / MIB < 30, "MiB of growth"
    canary.close()
    visit(primary)


def test_null_and_wrong_fields_of_flow_are_survived(faults_broker):
    """Link flows of a link that is not there, with fields missing, or for the other role."""
    for fields in (
        [NULL] * 11,
        [uint(0)] * 4,
        [NULL, uint(0), uint(0), uint(0), uint(0)],
        [uint(9), uint(0), uint(0), uint(0), uint(77), uint(1), uint(5)],
    ):
        with Peer(faults_broker.address) as peer:
            peer.send(SENDER)
            peer.wait_for(frames.FLOW)
            peer.send(performative(frames.FLOW, *fields) + transfer_frame(0, 0, message()))
            peer.read(0.02)
        visit(faults_broker)
