"""Events: what happens to brokers, for clients that follow, come back, or are slow."""

from __future__ import annotations

import asyncio
import json
import signal
import tempfile
from typing import Any
from urllib.parse import quote

import pytest

from qpidha.client.admin import AdminSocket, LinkBroken
from qpidha.console import events
from qpidha.console import stream as streams
from qpidha.console.events import BATCH, GAP, KINDS, LOG, MOST, STATE, Events, Follower, Wanted
from qpidha.console.events import PAGE as EVENTS
from qpidha.console.looks import Watched
from qpidha.management.recent_events import NAMES, SHOWN
from qpidha.model.errors import RefusedRequest
from qpidha.pipeline.events import KIND
from tests.console.conftest import HEARTBEAT, Pair
from tests.console.consoles import PAGE, Console, status_of
from tests.console.streams import Stream, taken
from tests.patience import STATE as PATIENCE
from tests.runtime.daemons import Running
from tests.system.cluster import wait_for


class Link:
    """A broker that says what a test says."""

    def __init__(self) -> None:
        self.status: dict[str, Any] | None = status_of("ready", epoch=1)
        self.events: list[dict[str, Any]] = []
        self.refuses = False
        self.asked: list[dict[str, Any]] = []

    async def ask(self, method: str, params: dict[str, Any]) -> Any:
        if self.status is None:
            raise LinkBroken("nobody listens")
        if method == "status":
            return self.status
        self.asked.append(params)
        if self.refuses:
            raise RefusedRequest("this broker keeps no events")
        behind = [event for event in self.events if event["at_ns"] > params["after"]]
        return {"name": "b1", "events": behind[: params["limit"] or len(behind)]}

    def happens(self, count: int = 1, kind: str = "link", **fields: Any) -> None:
        for _ in range(count):
            number = len(self.events) + 1
            self.events.append({"at_ns": number, "kind": kind, "text": f"{number}", **fields})

    def close(self) -> None:
        """Nothing is open."""


class Play:
    """A broker, what follows it, and the events of both."""

    def __init__(self) -> None:
        self.link = Link()
        self.events = Events()
        self.broker = Watched("place", self.link)
        self.follower = Follower(self.broker, self.events)

    async def look(self) -> None:
        """Look when the answers of the look before are old."""
        self.broker._asked.clear()
        await self.follower.look()

    def told(self, after: int = 0) -> list[tuple[str, dict[str, Any]]]:
        """Return the events that there are."""
        found = self.events.recent.after(after, MOST * 9)
        return [(event.name, json.loads(event.data)) for _, event in found]


def test_a_state_is_told_when_it_is_another_one() -> None:
    async def play() -> None:
        world = Play()
        await world.look()
        await world.look()
        world.link.status = status_of("active", epoch=2, primary={"address": "h1:5672"})
        await world.look()
        world.link.status = None
        await world.look()
        await world.look()
        told = world.told()
        assert {name for name, _ in told} == {STATE}
        assert [(each["was"], each["state"]) for _, each in told] == [
            (None, "ready"),
            ("ready", "active"),
            ("active", "unreachable"),
        ]
        first, second, third = (each for _, each in told)
        assert first["text"] == "is ready" and first["place"] == "place"
        assert (second["epoch"], second["primary"]) == (2, "h1:5672")
        assert third["reason"] == "nobody listens" and third["text"].endswith("nobody listens")

    asyncio.run(play())


def test_an_answer_that_is_not_understood_does_not_end_what_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(events, "INTERVAL", 0.0)

    async def play() -> None:
        world = Play()
        world.link.status = {"name": "b1", "state": "ready"}
        task = asyncio.create_task(world.follower.follow())
        while world.broker.looks < 3:
            assert not task.done(), "it ended with the first answer"
            world.broker._asked.clear()
            await asyncio.sleep(0)
        world.link.status = status_of("active", epoch=2)
        while not world.told():
            await asyncio.sleep(0.001)
        assert world.told()[0][1]["state"] == "active"
        task.cancel()

    asyncio.run(asyncio.wait_for(play(), PATIENCE))
    log = capsys.readouterr().err
    assert log.count("error: an answer of b1 is not understood: KeyError('members')") == 1
    assert "Traceback" in log


def test_a_state_that_somebody_else_saw_is_told() -> None:
    async def play() -> None:
        world = Play()
        await world.look()
        for status in (None, status_of("ready", epoch=1)):
            world.link.status = status
            world.broker._asked.clear()
            await world.broker.look()
        assert [each["state"] for _, each in world.told()] == ["ready", "unreachable", "ready"]

    asyncio.run(play())


def test_the_event_log_is_read_to_its_end_and_on_after_a_restart() -> None:
    async def play() -> None:
        world = Play()
        world.link.happens(1200, "conn")
        await world.look()
        world.link.happens(1201)
        await world.look()
        await world.look()
        world.link.status = None
        await world.look()
        world.link.status = status_of("joining", epoch=1)
        world.link.happens()
        await world.look()
        told = [each["at_ns"] for name, each in world.told() if name == LOG]
        assert told == list(range(1, 2403))
        assert [given["limit"] for given in world.link.asked[:2]] == [0, EVENTS]

    asyncio.run(play())


def test_a_broker_that_does_not_tell_is_asked_again_when_it_is_back() -> None:
    async def play() -> None:
        world = Play()
        world.link.refuses = True
        for _ in range(3):
            await world.look()
        assert len(world.link.asked) == 1
        world.link.status = None
        await world.look()
        world.link.status, world.link.refuses = status_of("ready", epoch=1), False
        world.link.happens()
        await world.look()
        assert LOG in [name for name, _ in world.told()]

    asyncio.run(play())


def test_a_client_is_told_the_states_and_then_what_happens() -> None:
    async def play() -> None:
        world = Play()
        await world.look()
        client = world.events.stream("", Wanted(), heartbeat=PATIENCE)
        (state,) = await taken(client, 1)
        assert (state.id, state.event, state.data["state"]) == ("", STATE, "ready")
        world.link.happens(2)
        await world.look()
        one, two = await taken(client, 2)
        assert (one.event, one.data["at_ns"], two.data["at_ns"]) == (LOG, 1, 2)
        back = world.events.stream(one.id, Wanted())
        assert await taken(back, 1) == [two]

    asyncio.run(play())


def test_a_client_that_hears_nothing_gets_comments_with_the_newest_id() -> None:
    async def play() -> None:
        world = Play()
        await world.look()
        client = world.events.stream(world.events.id_of(1), Wanted(["role"]), heartbeat=0.01)
        world.link.happens(5)
        await world.look()
        (comment,) = await taken(client, 1)
        assert (comment.comment, comment.event, comment.data) == ("still here", "", {})
        assert comment.id == world.events.last == world.events.id_of(6)

    asyncio.run(play())


@pytest.mark.parametrize("identity", ["0a1b2c3d-5", "x", "-", "RUN-99", "RUN--1", "RUN-١", "RUN-"])
def test_an_id_that_is_not_known_is_a_gap(identity: str) -> None:
    async def play() -> None:
        world = Play()
        await world.look()
        after = identity.replace("RUN", world.events.run)
        gap, state = await taken(world.events.stream(after, Wanted()), 2)
        assert gap.event == GAP and "not known" in gap.data["text"] and state.event == STATE

    asyncio.run(play())


def test_a_client_that_is_overtaken_is_told_so_once() -> None:
    async def play() -> None:
        world = Play()
        await world.look()
        client = world.events.stream(world.events.id_of(1), Wanted())
        await anext(client)
        world.link.happens(1, "role")
        world.link.happens(MOST + 5, "conn")
        await world.look()
        found = await taken(client, MOST + 2)
        assert [each.event for each in found] == [GAP, LOG, *[LOG] * MOST]
        assert [each.data.get("kind") for each in found[:3]] == [GAP, "role", "conn"]
        assert found[-1].id == world.events.last

    asyncio.run(play())


def test_a_client_may_want_some_kinds_and_one_broker() -> None:
    async def play() -> None:
        world = Play()
        other = Watched("elsewhere", Link())
        await world.look()
        await Follower(other, world.events).look()
        world.link.happens(BATCH * 2, "conn")
        world.link.happens(1, "role")
        await world.look()
        begin = world.events.id_of(0)
        role = Wanted(["role", STATE], "place")
        assert [each.data["kind"] for each in await taken(world.events.stream(begin, role), 2)] == [
            STATE,
            "role",
        ]
        states = await taken(world.events.stream("", Wanted([STATE])), 2)
        assert [each.data["place"] for each in states] == ["place", "elsewhere"]
        world.events.close()
        rest = [text async for text in world.events.stream("", Wanted(["conn"]))]
        assert rest == ["retry: 1000\n\n"]

    asyncio.run(play())


def test_text_of_all_kinds_is_one_line() -> None:
    async def play() -> None:
        world = Play()
        world.link.happens(1, "error", reason="a\nb\r\n\u2028id: 9\n\ndata: {}")
        await world.look()
        state, error = await taken(world.events.stream(world.events.id_of(0), Wanted()), 2)
        assert error.data["reason"] == "a\nb\r\n\u2028id: 9\n\ndata: {}" and state.event == STATE

    asyncio.run(play())


def test_kinds_are_those_of_the_brokers_and_stand_on_the_page() -> None:
    assert set(KINDS) == {STATE, *SHOWN}
    text = PAGE.read_text().partition("\n| kind | fields |")[2].partition("\n\n")[0]
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| `")]
    told = {row[0].strip("|` "): set(row[1].replace("`", "").split(", ")) for row in rows}
    for kind in SHOWN:
        shape = KIND[kind]
        keys = {NAMES[key] for key in (*shape.needs, *shape.may) if key in NAMES}
        assert told[kind] == keys, kind
    assert told.keys() == set(KINDS)

    async def play() -> None:
        world = Play()
        await world.look()
        ((_, state),) = world.told()
        assert state.keys() == told[STATE] | {"time", "broker", "place", "kind", "text"}

    asyncio.run(play())


# Real brokers and consoles.


def test_a_stream_goes_on_when_the_broker_dies_and_comes_back() -> None:
    with (
        tempfile.TemporaryDirectory(prefix="qpidha-") as name,
        Console("--data-dir", name) as console,
        Stream(console.port) as stream,
    ):
        assert stream.answer.status == 200
        assert stream.answer.getheader("content-type", "").startswith("text/event-stream")
        assert "no broker answers" in stream.until(state="unreachable").data["reason"]
        with Running("--data-dir", name, *HEARTBEAT) as daemon:
            stream.until(name=None, kind="state", state="standalone", was="unreachable")
            stream.until(kind="role", state="standalone")
            admin = AdminSocket(f"{name}/admin.sock", PATIENCE)
            admin.call("declare_queue", {"name": "a queue"})
            made = stream.until(kind="queue", queue="a queue", what="created")
            daemon.process.send_signal(signal.SIGSTOP)
            stream.until(kind="state", state="unreachable")
            daemon.process.send_signal(signal.SIGCONT)
            stream.until(kind="state", state="standalone")
            admin.call("delete_queue", {"name": "a queue"})
            stream.until(kind="queue", queue="a queue", what="deleted")
            daemon.process.kill()
            stream.until(kind="state", state="unreachable")
        with Running("--data-dir", name, *HEARTBEAT):
            stream.until(kind="role", state="standalone")
        with Stream(console.port, "?kind=queue", **{"Last-Event-ID": made.id}) as late:
            assert late.until(kind="queue").data["what"] == "deleted"
        with Stream(console.port, f"?kind=queue&after={made.id}") as late:
            assert late.until(kind="queue").data["what"] == "deleted"
        found = json.loads(console.ask("/api/v1/history?kind=queue&limit=1").text)
        assert [each["what"] for each in found["items"]] == ["created"]
        rest = json.loads(console.ask(found["next"]).text)
        assert [each["what"] for each in rest["items"]] == ["deleted"]
        assert rest["next"] is None and not rest["missed"] and rest["last"]
        everything = json.loads(console.ask("/api/v1/history?since=1h&limit=1000").text)["items"]
        assert {each["event"] for each in everything} == {STATE, LOG}
        assert [each["time"] for each in everything if each["event"] == STATE] == sorted(
            each["time"] for each in everything if each["event"] == STATE
        )


def test_a_console_ends_at_once_though_clients_follow() -> None:
    with tempfile.TemporaryDirectory(prefix="qpidha-") as name:
        console = Console("--data-dir", name)
        with Stream(console.port) as stream:
            stream.until(state="unreachable")
            console.process.terminate()
            assert [each for each in stream if each.event == LOG] == []
            errors = console.process.communicate(timeout=PATIENCE)[1]
        assert console.process.returncode in (0, -signal.SIGTERM)
        assert "graceful" not in errors and "Traceback" not in errors


@pytest.mark.parametrize(
    ("path", "status", "why"),
    [
        ("history?kind=rolle", 400, "no kind rolle"),
        ("events?kind=role,rolle", 400, "no kind rolle"),
        ("events?broker=b9", 404, "no broker b9"),
        ("history?after=0a1b2c3d-5", 410, "not known here"),
        ("history?since=soon", 400, "since=soon"),
        ("history?limit=0", 400, "limit"),
        (f"history?after={quote('x' * 65)}", 400, "after"),
    ],
)
def test_what_is_wrong_is_refused(pair: Pair, path: str, status: int, why: str) -> None:
    answer = pair.console.ask(f"/api/v1/{path}")
    assert answer.status == status and why in answer.text, answer


def test_a_head_of_the_stream_ends(pair: Pair) -> None:
    answer = pair.console.ask("/api/v1/events", "HEAD")
    assert (answer.status, answer.text) == (200, "")


def test_there_are_only_so_many_streams(pair: Pair) -> None:
    followers = [Stream(pair.console.port) for _ in range(streams.MOST_STREAMS)]
    assert {each.answer.status for each in followers} == {200}
    with Stream(pair.console.port) as refused:
        assert refused.answer.status == 503 and refused.answer.getheader("retry-after")
    assert pair.console.status("/healthz") == 200
    for each in followers:
        each.close()

    def again() -> int:
        with Stream(pair.console.port) as stream:
            return stream.answer.status

    wait_for(again, (200).__eq__)
