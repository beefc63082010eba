"""A valid run over two hosts: the clock of the clients' host is a little behind that of the
brokers'.
"""

from __future__ import annotations

import json
from pathlib import Path
from zlib import crc32

from qpidha.pipeline.events import Event
from tests.pipeline.builders import Story

MS = 1_000_000
BEHIND = 2 * MS


def two_hosts(behind: int = BEHIND) -> list[Event]:
    """Return what a broker and its clients wrote: everything is safe, in order and exclusive, by a
    clock that nobody has.
    """
    story = Story()
    at = 1000 * MS
    story.add("b", "role", at, r="active", e=1)
    story.add("b", "epoch", e=1)
    story.add("b", "insync", e=1, set="b c")
    for number in range(1, 21):
        at += 10 * MS
        name = f"m{number}"
        o = story.op("enqueue", "invoke", at=at - behind, w=1, u=number, i=name)
        story.add("b", "enq", at + MS // 10, q="q", e=1, p=number, i=name)
        story.add("b", "rep", at + MS // 2, x="c", e=1, p=number, dt=1000)
        story.add("b", "conf", at + MS // 2 + 1000, e=1, p=number, q="q")
        story.op("enqueue", "ok", o=o, at=at + MS - behind, w=1, u=number, i=name)
        story.op("dequeue", "ok", c=2_000_000, at=at + 2 * MS - behind, w=1, u=number, d=0)
    story.op("drain", "ok", at=at + 1000 * MS - behind)
    return story.events


def written(events: list[Event], folder: Path, heads: dict[str, tuple[str, int]]) -> Path:
    """Write events as closed segments, one a writer; `heads` are its clock and clock_error_us."""
    folder.mkdir(parents=True)
    for node in {event["n"]: None for event in events}:
        clock, error = heads[node]
        head = {
            "k": "segment",
            "v": 1,
            "n": node,
            "b": "0",
            "run": "r",
            "clock": clock,
            "clock_error_us": error,
        }
        rows = [event for event in events if event["n"] == node]
        data = b"".join(json.dumps(row).encode() + b"\n" for row in [head, *rows])
        end = {
            "k": "segment",
            "end": True,
            "n": node,
            "b": "0",
            "lines": len(rows),
            "crc32": crc32(data),
            "final": True,
        }
        (folder / f"journal-{node}-0-00000001.jsonl").write_bytes(
            data + json.dumps(end).encode() + b"\n"
        )
    return folder


KNOWN = {"b": ("here", 1000), "client": ("there", 1100)}
"""Together they may be 2.1 ms apart."""
UNKNOWN = {"b": ("here", 1000), "client": ("there", 0)}
ONE = {"b": ("here", 0), "client": ("here", 0)}
