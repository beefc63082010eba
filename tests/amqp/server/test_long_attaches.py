"""Attaches that say much: what is kept of a link is bounded."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from qpidha.amqp.peer import frames
from qpidha.model.encoding import Described, Symbol, UInt, ULong
from tests.amqp.server.test_rare_frames import DETACHED, ENDED, HEADER, OPEN, detach
from tests.amqp.wire import SOURCE, TARGET, Talk, a_host, frame, perform, told

TOO_MUCH = "amqp:resource-limit-exceeded"
BEGIN = frame(perform(0x11, None, UInt(0), UInt(9), UInt(9)))


def of_size(size: int) -> dict[Any, Any]:
    """A map of many small values."""
    return {Symbol(f"{number:04}"): [[]] for number in range(size // 10)}


def attach(
    handle: int,
    *,
    name: str = "s",
    source: dict[Any, Any] | None = None,
    target: dict[Any, Any] | None = None,
    properties: dict[Any, Any] | None = None,
) -> bytes:
    """A sender's, with node properties of its termini and properties of the link."""
    found = [
        Described(code, [address, *[None] * 4, given]) if given is not None else usual
        for code, address, given, usual in (
            (ULong(0x28), "s", source, SOURCE),
            (ULong(0x29), "q", target, TARGET),
        )
    ]
    fields = [f"{name}{handle}", UInt(handle), False, None, None, *found, None, None, UInt(0)]
    return frame(perform(0x12, *fields, None, None, None, properties))


@pytest.fixture
def talk() -> Talk:
    return Talk(None, HEADER, OPEN, BEGIN)


@pytest.mark.parametrize("given", ["source", "target", "properties"])
def test_an_attach_says_a_little_and_no_more(talk: Talk, given: str) -> None:
    talk.say(attach(0, **{given: of_size(30_000)}))  # type: ignore[arg-type]
    assert [one.code for one in talk.answers].count(ENDED) == 0
    assert told(talk.say(attach(1, **{given: of_size(40_000)}))) == [  # type: ignore[arg-type]
        (ENDED, TOO_MUCH)
    ]
    assert not talk.connection.closed


def test_the_name_of_a_link_is_no_book(talk: Talk) -> None:
    assert told(talk.say(attach(0, name="x" * 1023))) == []
    assert told(talk.say(attach(1, name="x" * 1024))) == [(ENDED, "amqp:invalid-field")]


def test_as_many_links_as_there_may_be_have_a_kibibyte_each() -> None:
    """A subscriber of JMS may have a selector on each of thousands of links."""
    long = {Symbol("selector"): "x" * 22_000}
    talk = Talk(a_host(max_links=5000), HEADER, OPEN, BEGIN)
    for number in range(200):
        talk.say(attach(number, properties=long))
    assert told(talk.answers) == []
    more = [attach(200 + number, properties=long) for number in range(40)]
    assert told(talk.say(*more)) == [(ENDED, TOO_MUCH)]


def test_what_all_links_say_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "LEAST_DESCRIBED", 50_000)
    monkeypatch.setattr(frames, "USUAL_DESCRIPTION", 5)
    talk = Talk(a_host(), HEADER, OPEN, BEGIN)
    for number in range(9):
        talk.say(attach(number, properties=of_size(20_000)), detach(number))
    assert {one.code for one in talk.answers} & {ENDED, DETACHED} == {DETACHED}
    talk.answers.clear()
    long = [attach(number, properties=of_size(20_000)) for number in range(3)]
    assert told(talk.say(*long)) == [(ENDED, TOO_MUCH)]
    talk.say(frame(perform(0x17)), BEGIN)
    assert told(talk.say(*long[:2])) == []


def test_of_what_an_attach_says_little_is_kept(talk: Talk) -> None:
    many = of_size(10_000)
    said = [attach(number, source=many, target=many, properties=many) for number in range(6)]
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for one in said:
        talk.say(one)
    talk.answers.clear()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(said[0]) > 30_000 and not talk.connection.closed
    assert after - before < 300_000
