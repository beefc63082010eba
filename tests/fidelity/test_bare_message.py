"""What a sender wrote is what a receiver reads, whichever broker it comes from: bare messages byte
for byte.
"""

from __future__ import annotations

import hashlib
import struct
from collections import Counter
from random import Random

import pytest
from proton import symbol

from tests.fidelity.raw_client import RawReceiver, receive_raw, send_raw
from tests.fidelity.raw_types import (
    ARRAY_ELEMENTS,
    BODIES,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    MESSAGE_IDS,
    TYPES,
    annotations,
    bare,
    make_message,
    sections,
    skip,
    walk,
)

COUNT = 1000
SEED = 20260101


def the_messages(count=COUNT, seed=SEED):
    """Return the generated set."""
    random = Random(seed)
    return [make_message(random, number) for number in range(count)]


def digest(content):
    return hashlib.sha256(content).hexdigest()


def header_fields(message):
    """Return the header's fields with their defaults (AMQP 1.0 section 3.2.1)."""
    fields = {
        "durable": False,
        "priority": 4,
        "ttl": None,
        "first_acquirer": False,
        "delivery_count": 0,
    }
    for code, content in sections(message):
        if code != HEADER:
            continue
        start = skip(content, 1)
        if content[start] == 0x45:
            break
        wide = content[start] == 0xD0
        count = struct.unpack_from(">I", content, start + 5)[0] if wide else content[start + 2]
        offset = start + (9 if wide else 3)
        for name in list(fields)[:count]:
            end = skip(content, offset)
            if content[offset] != 0x40:
                fields[name] = number_of(content[offset:end])
            offset = end
    return fields


def number_of(encoded):
    if encoded[0] in (0x41, 0x42):
        return encoded[0] == 0x41
    return int.from_bytes(encoded[1:], "big")


MARK = b"\xa3\x11x-opt-ha-failover\x41"


def annotation_entries(message):
    """Return the number of keys and values in the message annotations, and their bytes."""
    section = annotations(message)
    if not section:
        return 0, b""
    start = skip(section, 1)
    width = {0xC1: 1, 0xD1: 4}[section[start]]
    first = start + 1 + 2 * width
    return int.from_bytes(section[first - width : first]), section[first:]


def assert_same(sent, received, first=0, *, marked=False):
    """Compare two runs of messages: hash of the bare message, annotations, and what the header
    means. After a failover each is `marked`, and nothing else is new in its annotations.
    """
    assert len(received) == len(sent)
    for number, (before, after) in enumerate(zip(sent, received, strict=True), first):
        assert digest(bare(after)) == digest(bare(before)), (
            f"message {number}: {before[:200].hex()} became {after[:200].hex()}"
        )
        if marked:
            count, entries = annotation_entries(before)
            wanted = (count + 2, entries + MARK)
            assert annotation_entries(after) == wanted, f"annotations of message {number}"
        else:
            assert annotations(after) == annotations(before), f"annotations of message {number}"
        wanted, found = header_fields(before), header_fields(after)
        for name in ("durable", "priority", "delivery_count"):
            assert found[name] == wanted[name], f"{name} of message {number}"
        # A broker may take off the time a message was with it.
        assert (found["ttl"] is None) == (wanted["ttl"] is None), (
            f"time to live of message {number}"
        )
        assert found["ttl"] is None or wanted["ttl"] - 180_000 <= found["ttl"] <= wanted["ttl"], (
            f"time to live of message {number}"
        )


def test_the_generated_messages_are_legal_and_have_every_type():
    """Every size and count fits; each type, body kind and size that the claim is about occurs.

    proton's Python codec is not asked: it fails on legal maps that hold arrays of described or
    empty elements.
    """
    messages = the_messages()
    for message in messages:
        offset = 0
        while offset < len(message):
            offset = walk(message, offset)
        assert offset == len(message)
    assert len({digest(message) for message in messages}) > 0.9 * COUNT
    assert (
        COUNT // len(TYPES) >= 10 and COUNT // len(BODIES) >= 10 and COUNT // len(MESSAGE_IDS) >= 10
    )
    assert sum(len(message) > 65536 for message in messages) >= 20
    codes = Counter(code for message in messages for code, _ in sections(message))
    assert set(codes) == set(range(HEADER, FOOTER + 1))
    assert all(count >= 50 for count in codes.values())
    assert len(ARRAY_ELEMENTS) == 39


@pytest.mark.parametrize("frame_size", [4096, 65536])
def test_the_bare_message_survives_replication_byte_for_byte(a_cluster, frame_size):
    """1,000 messages: half is received from the first primary, a quarter from the second, the rest
    from the third.

    Frames of 4096 bytes make even small messages take several transfers, in both directions.
    """
    cluster = a_cluster(3, ha_backup_timeout="0.5")
    cluster[0].declare_queue("q")
    messages = the_messages()
    send_raw(cluster[0].address, "q", messages, max_frame_size=frame_size)
    assert_same(
        messages[:500], receive_raw(cluster[0].address, "q", 500, max_frame_size=frame_size)
    )
    cluster.kill(0, promote=1)
    cluster[2].wait_state("ready")
    assert_same(
        messages[500:750],
        receive_raw(cluster[1].address, "q", 250, max_frame_size=frame_size),
        500,
        marked=True,
    )
    cluster.kill(1, promote=2)
    assert_same(
        messages[750:],
        receive_raw(cluster[2].address, "q", 250, max_frame_size=frame_size),
        750,
        marked=True,
    )
    assert (
        next(queue for queue in cluster[2].call("list_queues") if queue["name"] == "q")["messages"]
        == 0
    )


def test_the_bare_message_survives_a_snapshot(a_cluster):
    """A broker that joins later gets the same bytes."""
    cluster = a_cluster(2, started=1, ha_backup_timeout="0.5")
    cluster[0].declare_queue("q")
    messages = the_messages(250, SEED + 1)
    send_raw(cluster[0].address, "q", messages)
    cluster[1].start()
    cluster[1].wait_up()
    cluster.wait_settled(0)
    cluster.kill(0, promote=1)
    assert_same(messages, receive_raw(cluster[1].address, "q", 250), marked=True)


def test_a_message_given_back_keeps_its_bare_message(a_cluster):
    """Only header and annotations change when a receiver gives messages back, and these changes are
    replicated.
    """
    cluster = a_cluster(2)
    cluster[0].declare_queue("q")
    messages = the_messages(100, SEED + 2)
    send_raw(cluster[0].address, "q", messages)

    def failed(local):
        local.failed = True
        local.annotations = {symbol("x-opt-tried-by"): "the first receiver"}

    first = RawReceiver(cluster[0].address, "q", 100, "modified")
    first.prepare = failed
    first.run()
    assert_same(messages, first.messages)
    cluster.kill(0, promote=1)
    again = receive_raw(cluster[1].address, "q", 100)
    for number, (before, after) in enumerate(zip(messages, again, strict=True)):
        assert digest(bare(after)) == digest(bare(before)), f"message {number}"
        found = header_fields(after)
        wanted = header_fields(before)
        assert (found["delivery_count"], found["first_acquirer"]) == (1, False), f"message {number}"
        assert (found["durable"], found["priority"]) == (wanted["durable"], wanted["priority"]), (
            f"message {number}"
        )
        assert b"x-opt-tried-by" in annotations(after) and b"the first receiver" in annotations(
            after
        ), f"message {number}"
        # The annotations of the sender are still there; which bytes write their types may have
        # changed.
        assert symbols_of(before) <= symbols_of(after), f"message {number}"


def symbols_of(message):
    """Return the keys of the message annotations."""
    found = set()
    for code, content in sections(message):
        if code != MESSAGE_ANNOTATIONS:
            continue
        start = skip(content, 1)
        wide = content[start] == 0xD1
        offset, end = start + (9 if wide else 3), len(content)
        while offset < end:
            key_end = skip(content, offset)
            key = content[offset:key_end]
            found.add(key[5:] if key[0] == 0xB3 else key[2:])
            offset = skip(content, key_end)
    return found
