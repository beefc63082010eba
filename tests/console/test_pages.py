"""The pages of the dashboard without a browser: what they say, and what they must not contain."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import time
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from qpidha.client.admin import LinkBroken
from qpidha.console import queue_table, words
from qpidha.console.access import Access, Scope, Token
from qpidha.console.api import make_app
from qpidha.console.events import LOG
from qpidha.console.looks import Look, Watched
from qpidha.console.queue_table import COLUMNS, QueueTable
from qpidha.model.duration import SECOND
from qpidha.model.url import parse_consoles
from tests.console.consoles import ask_app, member, status_of
from tests.patience import STATE

BAD = "<script>alert('&')</script>"
WHOLE = {
    "address": "host1:5672",
    "epoch": 3,
    "since_ns": 1,
    "sequence": 120,
    "committed": 120,
    "applied": 120,
    "in_sync": {"epoch": 3, "version": 1, "members": ["1", "2"]},
    "majority": True,
    "strict": True,
    "recorder": "brokers",
    "handing_over": "",
    "pending_acknowledgements": 0,
    "version": "9.9",
    "memory": {"limit": 100, "used": 200, "log": 5},
    "journal": {"bytes": 1, "files": 1, "written": 1, "syncs": 1},
    "local_journal": {"bytes": 2345, "files": 1, "written": 1, "syncs": 1},
    "records_set_aside": 0,
    "connections": 2,
    "heartbeat_ns": 10**9,
    "replicate": "all",
    "brokers_url": "amqp:host1",
    "public_url": "",
    "internal_errors": 0,
}

OF_A_PAGE = (
    *("acquired", "auto_delete", "deduplicated", "delayed", "dlx_pending", "exclusive"),
    *("paged_out", "refused", "released", "waiting_senders"),
)
"""Fields that the page of a queue has beside the columns of the table."""


def queue(name: str, **fields: Any) -> dict[str, Any]:
    """Return a row of `list_queues` with the columns of the table."""
    return (
        dict.fromkeys(COLUMNS, 0)
        | {"name": name, "replicate": "all", "flow_stopped": False, "backups": {}}
        | fields
    )


class Told:
    """A broker that answers what a test says; without a status it does not."""

    def __init__(self, status: dict[str, Any], queues: list[dict[str, Any]] | None = None) -> None:
        self.status = status
        self.queues = queues or []
        self.others: dict[str, Any] = {
            "statistics": {
                "messages": 5,
                "bytes": 2048,
                "unreplicated_messages": 1,
                "unsafe_messages": 0,
                "unsafe_queues": 0,
                "queues": 2,
                "consumers": 0,
                "connections": {"client": 3, "broker": 1, "outgoing": 1},
                "refuses": "",
                "withholds": "",
                "stopped_queues": 0,
                "unplaced": 0,
                "enqueued": 10,
                "departures": {"accepted": 5},
            },
            "explain": {
                "refuses": "",
                "withholds": "",
                "waits": [],
                "stopped_queues": 0,
                "stopped": [],
                "unplaced_queues": 0,
                "unplaced": [],
                "records_set_aside": 0,
            },
            "list_policies": [],
            "list_operator_policies": [],
            "list_connections": [],
        }
        self.asked: list[str] = []

    async def ask(self, method: str, params: dict[str, Any]) -> Any:
        self.asked.append(method)
        if not self.status:
            raise LinkBroken("nobody listens")
        if method == "status":
            return self.status
        if method == "list_queues":
            return self.listed(params)
        return self.others[method]

    def listed(self, params: Mapping[str, Any]) -> list[dict[str, Any]]:
        found = [each for each in self.queues if each["name"] > params.get("after", "")]
        return found[: params.get("limit") or None]

    def close(self) -> None:
        """Nothing is open."""


def told(*rows: dict[str, Any], state: str = "active", **fields: Any) -> Told:
    return Told(status_of(state, members=list(rows)) | WHOLE | fields)


def read(*brokers: Told, path: str = "/", query: str = "", consoles: tuple[str, ...] = ()) -> Any:
    """Return the status and the text of a page."""
    watched = [Watched(f"b{number}", broker) for number, broker in enumerate(brokers, 1)]
    app = make_app(watched, Access(), "c", consoles)
    return asyncio.run(ask_app(app, path, query))


def plain(text: str) -> str:
    """Return what of a page can be read."""
    return " ".join(re.sub(r"<[^>]+>", " ", text.partition("<body")[2]).split())


def test_the_first_line_says_what_matters() -> None:
    def line(*rows: dict[str, Any], **fields: Any) -> tuple[str, str]:
        broker = told(*rows)
        broker.others["statistics"] |= fields
        status, text = read(broker)
        assert status == 200
        found = re.search(r'class="line is-(\w+)".*?class="verdict"[^>]*>(.*?)<', text, re.DOTALL)
        assert found
        return found[1], found[2]

    primary = member("1", "active")
    assert line(primary, member("2"), member("3")) == (
        "good",
        "3 brokers, b1 active, 2 of 2 backups ready, 0 queues unsafe",
    )
    assert line(primary, member("2", "catchup"))[0] == "wary"
    assert line(primary, member("2"), unsafe_queues=1) == (
        "bad",
        "2 brokers, b1 active, 1 of 1 backup ready, 1 queue unsafe",
    )
    assert line(primary, stopped_queues=2)[0] == "wary"
    level, text = line(primary, member("2", "catchup"), refuses="the disk is nearly full")
    assert level == "bad" and text.endswith("messages are refused")
    assert line(member("1"), member("2"))[0] == "bad"


def test_what_needs_attention_is_said_with_its_names() -> None:
    broker = told(member("1", "active"), member("2", "unreachable", in_sync=False))
    broker.others["explain"] |= {
        "refuses": "no space at /var/lib is nearly full",
        "waits": [
            {"text": "the backup b2", "for_ns": 5 * SECOND},
            {"text": "the disk", "for_ns": 1000},
            {"text": "word from b3", "for_ns": 0},
        ],
        "stopped_queues": 3,
        "stopped": [{"name": "a"}, {"name": BAD}],
        "records_set_aside": 7,
    }
    _, text = read(broker)
    words_ = plain(text)
    for expected in (
        "Messages are refused: no space at /var/lib is nearly full",
        "b2 is unreachable, not in sync",
        "b1 waits for the backup b2",
        "b1 waits for word from b3",
        "3 queues stopped their senders: a, &lt;script&gt;",
        "and 1 more",
        "7 records of a former primary",
    ):
        assert expected in words_
    assert BAD not in text and "the disk" not in words_


def test_a_page_has_a_strict_policy_and_nothing_of_its_own_to_run() -> None:
    broker = told(member("1", "active", name=BAD), member("2"))
    broker.queues = [queue(BAD)]
    for path in (
        "/",
        "/queues",
        "/connections",
        "/policies",
        "/events",
        "/members/b2",
        "/members/x",
    ):
        _, text = read(broker, path=path, consoles=("http://b2:8672",))
        assert BAD not in text
        assert re.findall(r"<script(?![^>]*\bsrc=\"/static/)", text) == []
        assert re.findall(r"<style|\sstyle=|\son\w+=|javascript:", text) == []
        loaded = re.findall(r'<(?:link|script|img)[^>]*?(?:href|src)="([^"]*)"', text)
        assert loaded and all(each.startswith("/static/") for each in loaded)


def test_the_headers_of_a_page() -> None:
    app = make_app([Watched("b1", told(member("1")))], Access(), "c", ("http://b2:8672",))

    async def ask(path: str, origin: str) -> dict[str, str]:
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b""}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        about = {"type": "http", "http_version": "1.1", "method": "GET", "path": path}
        headers = [(b"origin", origin.encode())]
        await app({**about, "query_string": b"", "headers": headers}, receive, send)
        return {name.decode(): value.decode() for name, value in sent[0]["headers"]}

    async def ask_all() -> list[dict[str, str]]:
        there = "http://b2:8672"
        asked = (("/", there), ("/healthz", "http://evil"), ("/static/dashboard.js", ""))
        return [await ask(path, origin) for path, origin in asked]

    found, foreign, file = asyncio.run(ask_all())
    policy = dict(part.split(" ", 1) for part in found["content-security-policy"].split("; "))
    assert policy == {
        "default-src": "'none'",
        "script-src": "'self'",
        "style-src": "'self'",
        "img-src": "'self'",
        "connect-src": "'self' http://b2:8672",
        "form-action": "'self'",
        "base-uri": "'none'",
        "frame-ancestors": "'none'",
    }
    assert found["cache-control"] == "no-store"
    # Other consoles may ask whether this one answers, and nobody else.
    assert found["access-control-allow-origin"] == "http://b2:8672"
    assert "access-control-allow-origin" not in foreign
    assert "immutable" in file["cache-control"]


def test_a_broker_that_does_not_answer_is_told_so_and_what_was_seen_last() -> None:
    broker = told(member("1", "active"), member("2"))
    app = make_app([Watched("b1", broker)], Access(), "c")

    async def ask_all() -> list[tuple[int, str]]:
        found = [await ask_app(app, "/")]
        broker.status = {}
        while 'data-gone="yes"' not in (page := await ask_app(app, "/"))[1]:
            await asyncio.sleep(0.01)
        return [*found, page, await ask_app(app, "/queues")]

    before, after, queues = asyncio.run(ask_all())
    assert before[0] == 200 and 'data-gone="no"' in before[1]
    assert after[0] == 200
    read_ = plain(after[1])
    assert "does not answer: nobody listens" in read_ and "what was seen last" in read_
    assert "card is-unreachable is-unheard" in after[1] and "card is-unknown is-unheard" in after[1]
    assert queues[0] == 503 and "nobody listens" in plain(queues[1])


def test_of_several_brokers_the_primary_is_shown_unless_another_is_named() -> None:
    backup = told(member("2"), member("1", "active"), state="ready", name="b2", system_id="2")
    watched = [Watched("p2", backup), Watched("p1", told(member("1", "active"), member("2")))]
    app = make_app(watched, Access(), "c")

    async def ask_all() -> list[str]:
        for each in watched:
            await each.look()
        queries = ("", "broker=b2", "broker=b9")
        return [plain((await ask_app(app, "/", query))[1]) for query in queries]

    primary, named, unknown = asyncio.run(ask_all())
    assert "As seen by b1, active" in primary
    assert "As seen by b2, ready" in named
    assert "No broker b9 is watched here: this is b1." in unknown


def test_the_page_of_a_broker_says_how_much_it_keeps_for_itself() -> None:
    _, text = read(told(member("1", "active")), path="/members/b1")
    assert "of this broker alone 2.3 KiB in 1 file" in plain(text)
    older = told(member("1", "active"))  # A console may ask a broker that does not tell it.
    del older.status["local_journal"]
    assert "of this broker alone" not in read(older, path="/members/b1")[1]


def test_a_broker_without_a_cluster_has_its_pages() -> None:
    broker = told(state="standalone", since_ns=0)
    broker.queues = [queue("q")]
    for path in ("/", "/queues", "/events", "/members/b1"):
        status, text = read(broker, path=path)
        assert status == 200 and "b1 is a broker without a cluster" in plain(text)


@pytest.mark.parametrize("path", ["/queues/nothing", "/members/b9"])
def test_what_is_not_there_is_404_with_a_way_on(path: str) -> None:
    status, text = read(told(member("1", "active")), path=path)
    assert status == 404 and "There is no queue" in text or "has no broker" in text


def test_who_opens_what_is_not_there_gets_a_page_and_a_program_a_problem() -> None:
    app = make_app([Watched("b1", told(member("1", "active")))], Access(), "c")
    browser = "text/html,application/xhtml+xml,*/*;q=0.8"
    status, text = asyncio.run(ask_app(app, "//evil.example/polices", accept=browser))
    assert status == 404 and "There is no page //evil.example/polices" in plain(text)
    assert '<a href="/">Overview</a>' in text and '="//' not in text
    status, text = asyncio.run(ask_app(app, "/polices"))
    assert (status, json.loads(text)["hint"]) == (404, "/openapi.json has all paths")


def test_a_name_with_signs_of_addresses_stays_in_them() -> None:
    name = "a?b#c%20d"
    brokers = [told(member("1", "active")) for _ in range(2)]
    for broker in brokers:
        broker.queues = [
            queue(name) | dict.fromkeys(OF_A_PAGE, 0) | {"departures": {}, "arguments": {}}
        ]
        broker.others |= {"explain_policies": {"settings": [], "waiting": ""}, "list_bindings": []}
    consoles = ("http://ha2:8672",)
    status, text = read(*brokers, path=f"/queues/{name}", consoles=consoles)
    assert status == 200
    for link in ("/queues/a%3Fb%23c%2520d?broker=b1", "http://ha2:8672/queues/a%3Fb%23c%2520d"):
        assert f'href="{link}"' in text, text


def test_a_broker_that_left_the_cluster_is_no_card_any_more() -> None:
    broker = told(member("1", "active"), member("2"), member("3"))
    app = make_app([Watched("b1", broker)], Access(), "c")

    async def ask_all() -> list[str]:
        found = [(await ask_app(app, "/"))[1]]
        broker.status = broker.status | {"members": [member("1", "active"), member("3")]}
        while 'data-key="member-2"' in (page := (await ask_app(app, "/"))[1]):
            await asyncio.sleep(0.01)
        broker.status = {}
        while 'data-gone="yes"' not in (last := (await ask_app(app, "/"))[1]):
            await asyncio.sleep(0.01)
        return [*found, page, last]

    before, after, last = asyncio.run(asyncio.wait_for(ask_all(), STATE))
    assert before.count('data-key="member-') == 3
    assert after.count('data-key="member-') == 2
    assert last.count('data-key="member-') == 2


def test_kinds_of_connections_have_the_words_of_the_commands() -> None:
    broker = told(member("1", "active"))
    row = dict.fromkeys(("peer", "user", "container", "process", "mechanism"), "x")
    rows = [
        {**row, "id": number, "backup": backup, "admin": admin, "encrypted": False, "since_ns": 0}
        for number, backup, admin in ((-1, 0, 0), (2, 1, 0), (4, 0, 1), (6, 0, 0))
    ]
    broker.others["list_connections"] = rows
    _, text = read(broker, path="/connections")
    kinds = re.findall(r'data-label="Kind">([^<]*)<', text)
    assert kinds == ["outgoing", "backup", "admin", "client"]


def test_odd_parameters_are_taken_for_none() -> None:
    broker = told(member("1", "active"))
    broker.queues = [queue(f"q{number}") for number in range(3)]
    query = "sort=x&order=x&size=7&page=99999999999"
    status, text = read(broker, path="/queues", query=query)
    assert status == 200 and "1 to 3 of 3 queues" in plain(text)
    assert read(broker, path="/connections", query="after=x")[0] == 200


def test_events_of_brokers_are_listed_by_what_they_are_about_and_marked() -> None:
    broker = told(member("1", "active"), member("2"))
    watched = Watched("s1", broker)
    app = make_app([watched], Access(), "c")
    events = app.state.events

    async def ask_all() -> list[str]:
        await watched.look()
        for kind, more in (
            ("failover", {"what": "detected", "epoch": 2, "text": "primary b0 is gone"}),
            ("failover", {"what": "accepted", "epoch": 3, "text": f"accepted {BAD}"}),
            ("conn", {"text": "client c came"}),
        ):
            events.add(LOG, kind, watched, more, at=time.time())
        return [(await ask_app(app, "/events", query))[1] for query in ("", "kind=conn", "kind=x")]

    cluster, clients, odd = asyncio.run(ask_all())
    assert "primary b0 is gone" in plain(cluster) and "client c came" not in cluster
    assert cluster.count('class="mark"') == 2 and BAD not in cluster
    table = clients.partition("What brokers wrote")[2]
    assert "client c came" in table and "b0" not in table
    assert "primary b0 is gone" in odd.partition("What brokers wrote")[2]


def table_of(*queues: dict[str, Any]) -> tuple[QueueTable, Told]:
    broker = told(member("1", "active"))
    broker.queues = sorted(queues, key=lambda each: each["name"])
    return QueueTable(Watched("b1", broker)), broker


def names(table: QueueTable, **given: Any) -> list[str]:
    asked = {"match": "", "sort": "risk", "down": True, "page": 1, "size": 50} | given
    return [each["name"] for each in asyncio.run(table.page(**asked)).rows]


def test_queues_at_risk_come_first() -> None:
    table, _ = table_of(
        queue("a", messages=1),
        queue("b", messages=900),
        queue("c", unreplicated=1),
        queue("d", flow_stopped=True),
        queue("e", unsafe=1, unreplicated=1),
        queue("f"),
    )
    assert names(table) == ["e", "c", "d", "b", "a", "f"]
    assert names(table, sort="name", down=False) == list("abcdef")
    assert names(table, sort="messages", down=True)[:2] == ["b", "a"]
    assert names(table, sort="messages", down=False)[-1] == "b"
    assert names(table, match="B") == ["b"]


def test_queues_tell_what_each_backup_has_and_how_old_the_oldest_message_is() -> None:
    broker = told(member("1", "active"), member("2"), member("3"))
    broker.queues = [
        queue("a", backups={"b2": 0, "b3": 1204}, oldest_age_seconds=75.0, messages=1),
        queue("b", backups={"b2": None, "b3": 0}, oldest_age_seconds=5.0, oldest_may_be_older=True),
        queue("c", oldest_age_seconds=None),  # nothing of it is replicated, nothing is on it
    ]
    status, text = read(broker, path="/queues", query="sort=name")
    heads = re.findall(r"<th scope=\"col\"[^>]*>(?:<a[^>]*>)?([^<]*)", text)
    assert status == 200 and {"Oldest", "b2", "b3"} <= set(heads)

    def cells(label: str) -> list[str]:
        return re.findall(rf'data-label="{label}"[^>]*>([^<]*)<', text)

    assert cells("b2") == ["synced", "?", "–"]
    assert cells("b3") == ["-1,204", "synced", "–"]
    assert cells("Oldest") == ["75 s", "≥ 5.0 s", "–"]
    more = dict.fromkeys(OF_A_PAGE, 0) | {"departures": {}, "arguments": {}}
    broker.queues = [broker.queues[0] | more]
    broker.others |= {"explain_policies": {"settings": [], "waiting": ""}, "list_bindings": []}
    assert "b3 -1,204" in plain(read(broker, path="/queues/a")[1])
    table, _ = table_of(queue("x", oldest_age_seconds=1.0), queue("y", oldest_age_seconds=2.0))
    assert names(table, sort="oldest_age_seconds") == ["y", "x"]


def test_the_table_has_pages_and_asks_seldom() -> None:
    table, broker = table_of(*(queue(f"q{number:04}") for number in range(2100)))
    page = asyncio.run(table.page(match="", sort="name", down=False, page=3, size=1000))
    assert (page.first, len(page.rows), page.pages, page.total) == (2001, 100, 3, 2100)
    last = asyncio.run(table.page(match="", sort="name", down=False, page=99, size=1000))
    assert last.page == 3
    assert broker.asked == ["list_queues"] * 3


def test_rates_come_from_two_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr(queue_table, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    queues = [queue("a", enqueued=100, dequeued=50), queue("b", enqueued=9)]

    class Direct:
        async def ask(self, method: str, params: Any, *, deadline: float) -> Any:
            return [dict(each) for each in queues]

    table = QueueTable(Direct())  # type: ignore[arg-type]
    assert [each["arrivals"] for each in asyncio.run(table.queues())] == [None, None]
    clock[0] += 10
    queues[:] = [queue("a", enqueued=200, dequeued=70), queue("b", enqueued=1)]
    first, second = asyncio.run(table.queues())
    assert (first["arrivals"], first["departures"]) == (10, 2)
    assert second["arrivals"] is None, "it is another queue of that name"


def test_numbers_are_written_for_people() -> None:
    assert [words.number(n) for n in (None, 0, 1204)] == ["–", "0", "1,204"]
    assert [words.rate(n) for n in (None, 0, 0.42, 1500.2)] == ["–", "0", "0.4", "1,500"]
    assert [words.size(n) for n in (0, 1023, 2048, 5 << 30)] == [
        "0 B",
        "1023 B",
        "2.0 KiB",
        "5.0 GiB",
    ]
    assert [words.span(n) for n in (0.4, 12, 119, 600, 7200, 200_000)] == [
        "0.4 s",
        "12 s",
        "119 s",
        "10 min",
        "2 h 0 min",
        "2 d",
    ]
    assert words.instant(1.5) == "1970-01-01 00:00:01.500Z"
    assert [words.ago(n) for n in (None, 1, 30)] == ["–", "just now", "30 s ago"]
    assert words.listed(["a", "b", "c"]) == "a, b and c" and words.listed([]) == ""
    assert [words.value(v) for v in (True, "x", 5, {"a": 1})] == ["yes", "x", "5", '{"a": 1}']


def test_who_lacks_how_much_is_said_where_it_is_known() -> None:
    rows = [member("1", "active", sequence=100), member("2", sequence=90), member("3", sequence=0)]
    primary = Look("b1", status_of("active", members=rows) | {"sequence": 100})
    assert [words.lag(row, primary) for row in rows] == [0, 10, 100]
    backup = Look("b2", status_of("ready", members=rows) | {"system_id": "2"}, behind=4)
    assert [words.lag(row, backup) for row in rows] == [0, 4, None]


def test_addresses_of_consoles_are_origins() -> None:
    given = "http://b1:8672, https://B2.example:443/,http://[::1]:80"
    assert parse_consoles(given) == ("http://b1:8672", "https://b2.example", "http://[::1]")
    assert parse_consoles("") == parse_consoles("none") == ()
    for port in (0, 65536):
        with pytest.raises(ValueError, match=f"port {port} of .* is not from 1 to 65535"):
            parse_consoles(f"http://b1:{port}")
    for wrong in ("b1:8672", "http://b1/x", "http://u@b1", "http://b1; script-src *", "ftp://b1"):
        with pytest.raises(ValueError, match="no address of a console"):
            parse_consoles(wrong)


def test_the_api_does_not_describe_pages() -> None:
    _, text = read(told(member("1")), path="/openapi.json")
    assert not {"/", "/queues", "/static/{name}"} & json.loads(text)["paths"].keys()


def test_an_action_whose_outcome_is_not_known_is_said_to_be_open() -> None:
    broker = told(member("1", "active"))
    key = "administrator-0123456789"
    token = Token(Scope.ADMINISTRATOR, hashlib.sha256(key.encode()).digest(), "ann")
    app = make_app([Watched("b1", broker)], Access((token,)), "c")
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"name=q"}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    async def ask(method: str, params: dict[str, Any]) -> Any:
        if method == "purge_queue":
            raise LinkBroken("it was gone before it answered")
        return await Told.ask(broker, method, params)

    broker.ask = ask  # type: ignore[method-assign]
    about = {"type": "http", "http_version": "1.1", "method": "POST", "query_string": b""}
    headers = [(b"authorization", f"Bearer {key}".encode())]
    asyncio.run(app({**about, "path": "/do/purge_queue", "headers": headers}, receive, send))
    text = sent[1]["body"].decode()
    assert sent[0]["status"] == 504 and "It may or may not have been done" in text
    assert 'data-every="0"' in text, "it is not asked for again"
