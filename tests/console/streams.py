"""A client of server-sent events, and what one stream of a test says."""

from __future__ import annotations

import http.client
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any, NamedTuple

from tests.patience import STATE


class Sent(NamedTuple):
    """One block of a stream."""

    id: str
    event: str
    data: dict[str, Any]
    comment: str = ""


def blocks(text: str) -> Iterator[Sent]:
    """Read blocks that are whole."""
    for block in text.split("\n\n"):
        fields: dict[str, str] = {}
        for line in block.splitlines():
            name, _, value = line.partition(":")
            fields[name or "comment"] = value.removeprefix(" ")
        if fields and "retry" not in fields:
            yield Sent(
                fields.get("id", ""),
                fields.get("event", ""),
                json.loads(fields.get("data", "{}")),
                fields.get("comment", ""),
            )


class Stream:
    """A stream of a console, as a client reads it."""

    def __init__(self, port: int, query: str = "", **headers: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=STATE)
        self._connection.request("GET", f"/api/v1/events{query}", headers=headers)
        self.answer = self._connection.getresponse()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *ignored: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        self.answer.close()
        self._connection.close()

    def __iter__(self) -> Iterator[Sent]:
        """Read events for as long as they come."""
        block = ""
        while line := self.answer.readline().decode():
            block += line
            if line == "\n":
                yield from blocks(block)
                block = ""

    def until(self, **wanted: Any) -> Sent:
        """Read up to the first event with these fields."""
        for sent in self:
            if all(sent.data.get(name) == value for name, value in wanted.items()):
                return sent
        raise AssertionError(f"the stream ended before {wanted}")


async def taken(stream: AsyncIterator[str], count: int) -> list[Sent]:
    """Read so many blocks of a stream that has no server."""
    found: list[Sent] = []
    while len(found) < count:
        found += blocks(await anext(stream))
    return found
