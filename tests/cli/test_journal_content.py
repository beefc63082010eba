"""What a write-ahead log has of queues whose replicate level changed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from qpidha.model.records import LevelChanged, QueueDeclared
from qpidha.store.codec import encode_enqueues, encode_record
from qpidha.store.frames import BATCH
from qpidha.tools.journal.content import Content


class Frames:
    """A folder with one frame for each batch."""

    def __init__(self, *batches: bytes) -> None:
        self.batches = batches
        self.files: list[Any] = []

    def content(self) -> list[Any]:
        return [
            SimpleNamespace(kind=BATCH, epoch=1, last=number, committed=number, number=number)
            for number in range(len(self.batches))
        ]

    def frame(self, place: Any) -> Any:
        return SimpleNamespace(data=self.batches[place.number])


def test_queues_may_have_messages_with_the_same_numbers() -> None:
    declared = b"".join(
        encode_record(uid, QueueDeclared(name, name, replicate="configuration"))
        for uid, name in ((1, "a"), (2, "b"))
    )
    into = b"".join(
        encode_record(0, LevelChanged(uid, "all", logged=True, own_numbers=9)) for uid in (1, 2)
    )
    messages = encode_enqueues(1, [1, 2], [b"a1", b"a2"], []) + encode_enqueues(2, [1], [b"b1"], [])
    folder: Any = Frames(declared, into + messages)
    content = Content(folder)
    a, b = content.queues[1], content.queues[2]
    assert [content.payload(place, 1, number) for number, place in a.messages.items()] == [
        b"a1",
        b"a2",
    ]
    assert [content.payload(place, 2, number) for number, place in b.messages.items()] == [b"b1"]
    assert (content.size(a), content.size(b)) == (4, 2)
    assert a.declared is not None and a.declared.replicate == "all"


def test_what_left_the_log_is_there_no_more() -> None:
    declared = encode_record(1, QueueDeclared("a", "a", replicate="all"))
    out = encode_record(0, LevelChanged(1, "configuration", logged=False))
    folder: Any = Frames(declared + encode_enqueues(1, [2], [b"x"], []), out)
    assert not Content(folder).queues[1].messages
