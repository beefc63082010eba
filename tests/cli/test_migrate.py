"""`qpid-ha migrate` between two brokers of this product: what is refused, left and gone on with."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from qpidha.cli.broker.migrate import AT_A_TIME, Source
from qpidha.client.aio import Client
from qpidha.client.command.arguments import Options
from qpidha.client.command.exits import Failure
from qpidha.client.endpoint import Tls, parse_endpoints
from qpidha.client.errors import ConnectError
from qpidha.client.message import Message
from qpidha.tools.migration import BATCH, MOST_AHEAD, CannotMove, Count, Mover
from tests.cli.conftest import Said
from tests.cli.test_messages import Run
from tests.patience import STATE
from tests.runtime.daemons import Running
from tests.system.cluster import held_ports, wait_for
from tests.system.credentials import Authority, users_file

Start = Callable[..., str]


@pytest.fixture
def start() -> Iterator[Start]:
    """Return a function that starts a broker with options, and returns its address."""
    running: list[Running] = []

    def begin(*options: str) -> str:
        running.append(Running("--no-data-dir", "yes", *options))
        return f"127.0.0.1:{running[-1].port}"

    yield begin
    for each in running:
        each.__exit__()


def send(address: str, queue: str, messages: list[Message]) -> None:
    async def go() -> None:
        async with Client(address, timeout=STATE) as client:
            sender = await client.sender(queue)
            for message in messages:
                await sender.send_nowait(message)
            await sender.flush()

    asyncio.run(go())


def bodies(address: str, queue: str) -> list[bytes]:
    async def go() -> list[bytes]:
        found = []
        async with Client(address, timeout=STATE) as client:
            receiver = await client.receiver(queue)
            async for message in receiver.until_empty():
                found.append(message.body)
                message.accept()
        return found

    return asyncio.run(go())


def numbered(count: int) -> list[Message]:
    return [Message(b"%d" % number, message_id=f"m{number}") for number in range(count)]


def rows(said: Said) -> dict[str, dict[str, Any]]:
    return {row["queue"]: row for row in json.loads(said.out)["queues"]}


def test_queues_come_as_they_are_there_with_all_their_messages(qpid_ha: Run, start: Start) -> None:
    old, new = start(), start()
    qpid_ha("queue", "add", "orders", "--max-queue-count", "500", "-b", old)
    qpid_ha("queue", "add", "log", "--argument", "qpid.last_value_queue_key=k", "-b", old)
    send(old, "orders", numbered(50))
    send(old, "log", [Message(b"1", application_properties={"k": "a"}, message_id="x")])
    said = qpid_ha("migrate", old, "--dry-run", "-b", new)
    assert said.code == 1 and "nothing was moved" in said.err
    assert "orders: the target has no such queue yet" in said.err
    said = qpid_ha("migrate", old, "-b", new, "-o", "json")
    assert said.code == 0, said.err
    found = rows(said)
    assert {name: row["moved"] for name, row in found.items()} == {"orders": 50, "log": 1}
    assert found["orders"]["source_before"] == found["orders"]["target_after"] == 50
    assert found["orders"]["source_after"] == found["orders"]["target_before"] == 0
    listed = json.loads(qpid_ha("queue", "list", "-b", new, "-o", "json").out)["queues"]
    assert {row["name"]: row["arguments"].get("qpid.max_count") for row in listed} == {
        "orders": 500,
        "log": None,
    }
    assert bodies(new, "orders") == [b"%d" % number for number in range(50)]
    said = qpid_ha("migrate", old, "-b", new)
    assert said.code == 0 and "orders" in said.out


def test_queues_made_for_one_connection_hold_up_no_other(qpid_ha: Run, start: Start) -> None:
    old, new = start(), start()
    qpid_ha("queue", "add", "orders", "-b", old)
    send(old, "orders", numbered(5))

    async def subscribed() -> Said:
        async with Client(old, timeout=STATE) as client:
            await client.receiver("amq.topic")
            return await asyncio.to_thread(qpid_ha, "migrate", old, "-b", new)

    said = asyncio.run(subscribed())
    assert said.code == 0, said.err
    assert ": not moved, as it was made for one connection, link or route" in said.err
    assert bodies(new, "orders") == [b"%d" % number for number in range(5)]


def test_what_the_target_refuses_is_left_with_the_reason(qpid_ha: Run, start: Start) -> None:
    old, new = start(), start("--max-message-size", "2000")
    qpid_ha("queue", "add", "orders", "-b", old)
    given = numbered(20)
    given[7] = Message(b"x" * 5000, message_id="large")
    send(old, "orders", given)
    said = qpid_ha("migrate", old, "orders", "-b", new, "-o", "json")
    row = rows(said)["orders"]
    assert said.code == 1 and (row["moved"], row["refused"], row["source_after"]) == (19, 1, 1)
    assert "orders: left at the source: a message of" in said.err and "too large" in said.err
    assert bodies(new, "orders") == [b"%d" % number for number in range(20) if number != 7]
    assert bodies(old, "orders") == [b"x" * 5000]


def test_a_full_queue_ends_it_and_it_goes_on_later(qpid_ha: Run, start: Start) -> None:
    old, new = start(), start()
    qpid_ha("queue", "add", "orders", "-b", old)
    limits = ["--max-queue-count", "8", "--flow-stop-count", "0"]
    qpid_ha("queue", "add", "orders", *limits, "-b", new)
    send(old, "orders", numbered(20))
    said = qpid_ha("migrate", old, "orders", "-b", new, "--timeout", "3", "-o", "json")
    assert said.code == 1 and "takes no more messages of orders" in said.err
    assert "run it again" in said.err
    assert rows(said)["orders"]["source_after"] == 20 - rows(said)["orders"]["moved"]
    got = bodies(new, "orders")
    qpid_ha("queue", "del", "orders", "--force", "-b", new)
    qpid_ha("queue", "add", "orders", "-b", new)
    said = qpid_ha("migrate", old, "orders", "-b", new)
    assert said.code == 0, said.err
    assert got + bodies(new, "orders") == [b"%d" % number for number in range(20)]


def test_queues_move_several_at_a_time_and_one_that_is_full_holds_up_no_other(
    qpid_ha: Run, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = start(), start()
    names = [f"q{number}" for number in range(10)]
    for name in names:
        qpid_ha("queue", "add", name, "-b", old)
        send(old, name, numbered(3))
    qpid_ha("queue", "add", "q0", "--max-queue-count", "2", "--flow-stop-count", "0", "-b", new)
    at_work, together, run = 0, asyncio.Event(), Mover.run

    async def counted(mover: Mover) -> None:
        nonlocal at_work
        at_work += 1
        if at_work == AT_A_TIME:
            together.set()
        await asyncio.wait_for(together.wait(), STATE)
        await run(mover)

    monkeypatch.setattr(Mover, "run", counted)
    said = qpid_ha("migrate", old, "-b", new, "-o", "json")
    assert said.code == 1 and "takes no more messages of q0" in said.err
    assert {
        name: row["moved"] for name, row in rows(said).items() if name != "q0"
    } == dict.fromkeys(names[1:], 3)


@pytest.mark.parametrize("has_id", [True, False])
def test_a_source_that_forgot_what_it_heard_gives_nothing_twice_without_being_told(
    qpid_ha: Run, start: Start, has_id: bool
) -> None:
    """As RabbitMQ 3 does that was killed, with more than what is on the way at a time."""
    old, new, count = start(), start(), 4000
    assert count > MOST_AHEAD + BATCH
    qpid_ha("queue", "add", "orders", "-b", old)
    qpid_ha("queue", "add", "orders", "-b", new)
    notes = ["--argument", "qpid.max_size=4194304", "--argument", "qpid.policy_type=ring"]
    qpid_ha("queue", "add", "notes", *notes, "-b", new)
    messages = [Message(b"%d" % n, message_id=f"m{n}" if has_id else None) for n in range(count)]

    async def move() -> Count:
        async with Client(old, timeout=STATE) as there, Client(new, timeout=STATE) as here:
            mover = Mover(there, here, address="/queues/orders", queue="orders", notes="notes")
            await mover.run()
        return mover.count

    async def deliver() -> None:
        """Let everything have been delivered before."""
        async with Client(old, timeout=STATE) as client:
            receiver = await client.receiver("orders", credit=count)
            for _ in range(count):
                await receiver.receive()

    send(old, "orders", messages)
    assert asyncio.run(move()).moved == count
    send(old, "orders", messages)
    asyncio.run(deliver())
    again = asyncio.run(move())
    found = bodies(new, "orders")
    if has_id:
        assert (again.known, again.moved_now, len(found)) == (count, 0, count)
    else:
        assert (again.perhaps_twice, again.moved_now, len(found)) == (count, count, 2 * count)


def test_it_waits_for_senders_that_are_stopped_and_says_so(qpid_ha: Run, start: Start) -> None:
    old, new = start(), start()
    qpid_ha("queue", "add", "orders", "-b", old)
    limits = ["--max-queue-count", "10", "--flow-stop-count", "5", "--flow-resume-count", "3"]
    qpid_ha("queue", "add", "orders", *limits, "-b", new)
    send(old, "orders", numbered(30))
    said = qpid_ha("migrate", old, "orders", "-b", new, "--timeout", "2")
    assert said.code == 1 and "orders" in said.err
    assert len(bodies(new, "orders") + bodies(old, "orders")) == 30


def test_two_at_once_are_one_too_many(qpid_ha: Run, start: Start) -> None:
    old, new = start(), start()
    qpid_ha("queue", "add", "orders", "-b", old)
    limits = ["--max-queue-count", "10", "--flow-stop-count", "1", "--flow-resume-count", "0"]
    qpid_ha("queue", "add", "orders", *limits, "-b", new)
    send(new, "orders", numbered(3))
    send(old, "orders", numbered(30))
    first = subprocess.Popen(
        [sys.executable, "-m", "qpidha.cli.main", "migrate", old, "orders", "-b", new],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_for(
            lambda: "migration" in qpid_ha("queue", "list", "-b", new).out, what="the first one"
        )
        wait_for(
            lambda: ".lock" in qpid_ha("queue", "list", "-b", new, "-o", "json").out,
            what="its lock",
        )
        said = qpid_ha("migrate", old, "orders", "-b", new)
        assert said.code == 1 and "another migration of orders is at work" in said.err
        first.send_signal(signal.SIGINT)
        out, err = first.communicate(timeout=STATE)
        assert first.returncode == 130 and "orders" in out, err
    finally:
        first.kill()
        first.communicate()
    assert len(bodies(new, "orders") + bodies(old, "orders")) == 33


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["--from-address", "/queue/x"], 2, "has no QUEUE"),
        (["--argument", "a=1"], 2, "--argument is for --declare"),
        (["--from-ssl-key", "x"], 2, "--from-ssl-key needs --from-ssl-certificate"),
        (["--from-user", "ann"], 66, "there is no password of ann"),
        (["--from-user", "ann", "--from-password-file", "/missing"], 66, "cannot use /missing"),
        (["--declare", "--argument", "odd"], 2, "'odd' is not NAME=VALUE"),
        (["missing"], 1, "the source has no queue missing"),
        (["missing", "--declare"], 1, "the source has no queue missing"),
        (["missing", "--dry-run"], 1, "the source has no queue missing"),
    ],
)
def test_what_is_wrong_is_said(
    qpid_ha: Run, start: Start, words: list[str], code: int, says: str
) -> None:
    new = start()
    said = qpid_ha("migrate", start(), *words, "-b", new)
    assert said.code == code and says in said.err and "Try: " in said.err
    assert "Traceback" not in said.err
    assert qpid_ha("queue", "list", "-b", new, "--no-headers").out == ""


def test_a_broker_is_not_moved_to_itself_and_one_that_is_away_is_named(
    qpid_ha: Run, start: Start, tmp_path: Path
) -> None:
    here = start()
    said = qpid_ha("migrate", here, "q", "-b", here)
    assert said.code == 1 and "FROM and -b are the same broker" in said.err
    said = qpid_ha("migrate", "127.0.0.1:9", "q", "-b", here)
    assert said.code == 69 and "127.0.0.1:9" in said.err
    said = qpid_ha("migrate", here, "q", "-b", "127.0.0.1:9")
    assert said.code == 69 and "127.0.0.1:9" in said.err
    said = qpid_ha("migrate", "http://x", "q", "-b", here)
    assert said.code != 0 and "no broker's address" in said.err
    said = qpid_ha("migrate", here, "--from-management", "http://127.0.0.1:9", "-b", start())
    assert said.code in (0, 69)


@pytest.mark.parametrize(
    ("status", "code", "says"),
    [
        (401, 77, "does not let ann in. Try: --from-password-file"),
        (404, 1, "has no virtual host shop. Try: --vhost NAME"),
        (500, 69, "does not answer: 500 No. Try: is it --from-management"),
    ],
)
def test_what_rabbitmqs_management_refuses_is_said(status: int, code: int, says: str) -> None:
    class Refusing(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status, "No")
            self.end_headers()

    with HTTPServer(("127.0.0.1", 0), Refusing) as server:
        Thread(target=server.handle_request, daemon=True).start()
        where = f"http://127.0.0.1:{server.server_port}"
        found = Source(Options(), parse_endpoints("ann:no@127.0.0.1"), Tls(), where)
        with pytest.raises(Failure) as refused:
            found.depths("shop")
    failure = refused.value
    assert failure.code == code and says in f"{failure.explanation}. Try: {failure.hint}"


@pytest.mark.parametrize(
    ("version", "queue", "address"),
    [
        ("3.10.8", "a b/c%d", "/amq/queue/a b%2Fc%d"),
        ("4.1.0", "a b/c%d", "/queues/a%20b%2Fc%25d"),
        ("4.1.0", "gr\u00fcn", "/queues/gr%C3%BCn"),
    ],
)
def test_a_queue_of_rabbitmq_has_the_address_that_its_version_knows(
    version: str, queue: str, address: str
) -> None:
    source = Source(Options(), parse_endpoints("127.0.0.1"), Tls(), "")
    source.meet({"product": "RabbitMQ", "version": version}, "")
    assert source.address(queue) == address


def test_a_queue_that_rabbitmq_3_does_not_find_is_told() -> None:
    source = Source(Options(), parse_endpoints("127.0.0.1"), Tls(), "")
    source.meet({"product": "RabbitMQ", "version": "3.10.8"}, "")
    with pytest.raises(CannotMove, match="finds no queue gr\u00fcn by its address"):
        source.address("gr\u00fcn")


def test_an_interrupt_waits_for_no_answer(start: Start) -> None:
    program = (
        "import sys; from qpidha.cli.broker import migrate; from qpidha.cli.main import main; "
        # The source is not known as one of this product, which is asked otherwise.
        "migrate.Source.meet = lambda *_: None; migrate.HTTP_TIMEOUT = 1e6; sys.exit(main())"
    )
    with socket.create_server(("127.0.0.1", 0)) as silent:
        http = f"http://127.0.0.1:{silent.getsockname()[1]}"
        words = ["migrate", start(), "--from-management", http, "-b", start()]
        process = subprocess.Popen([sys.executable, "-c", program, *words])
        try:
            asked, _ = silent.accept()
            with asked:
                process.send_signal(signal.SIGINT)
                assert process.wait(STATE) == 130
        finally:
            process.kill()
            process.wait()


def test_each_side_has_its_login_and_its_certificates(
    qpid_ha: Run, start: Start, tmp_path: Path
) -> None:
    sides = {}
    for side, password in (("old", "first"), ("new", "second")):
        folder = tmp_path / side
        folder.mkdir()
        authority = Authority(folder)
        certificate, key = authority.issue("broker", "DNS:localhost,IP:127.0.0.1")
        users = users_file(folder / "users", {"ann": password, "eve": password})
        (folder / "password").write_text(f"{password}\n")
        (folder / "acl").write_text("acl allow ann all all\nacl deny all all\n")
        options = {
            "--users-file": users,
            "--acl-file": folder / "acl",
            "--ssl-cert": certificate,
            "--ssl-key": key,
        }
        with held_ports(1) as (port,):
            words = (str(word) for pair in options.items() for word in pair)
            start(*words, "--ssl-port", str(port))
        login = ["--user", "ann", "--password-file", str(folder / "password")]
        trusted = ["--ssl-trusted", str(authority.certificate)]
        sides[side] = (f"amqps://localhost:{port}", login, trusted)
    (old, login, trusted), (new, new_login, new_trusted) = sides["old"], sides["new"]
    to = ["-b", new, *new_login, *new_trusted]
    assert qpid_ha("queue", "add", "orders", "-b", old, *login, *trusted).code == 0
    assert qpid_ha("send", "orders", "-m", "30", "-b", old, *login, *trusted).code == 0
    source = [old, "--from-password-file", login[-1], "--from-ssl-trusted", trusted[-1]]
    said = qpid_ha("migrate", *source, "--from-user", "ann", *to, "-o", "json")
    assert said.code == 0 and rows(said)["orders"]["target_after"] == 30, said.err
    said = qpid_ha("migrate", *source, "--from-user", "eve", "orders", *to)
    assert said.code == 77 and "Traceback" not in said.err
    wrong = [old, "--from-user", "ann", "--from-password-file", new_login[-1]]
    said = qpid_ha("migrate", *wrong, "--from-ssl-trusted", trusted[-1], "orders", *to)
    assert said.code == 77 and "--from-user" in said.err
    said = qpid_ha("migrate", *wrong[:3], "--from-password-file", login[-1], "orders", *to)
    assert said.code != 0 and "--from-ssl-trusted" in said.err


def test_messages_in_the_name_of_others_are_moved_by_the_user_of_the_brokers(
    qpid_ha: Run, start: Start, tmp_path: Path
) -> None:
    users = users_file(tmp_path / "users", {"ann": "secret", "brokers": "secret"})
    (tmp_path / "password").write_text("secret\n")
    (tmp_path / "acl").write_text("acl allow ann all all\nacl allow brokers all all\n")
    options = {
        "--users-file": users,
        "--acl-file": tmp_path / "acl",
        "--ha-username": "brokers",
        "--ha-password-file": tmp_path / "password",
    }
    old, new = start(), start(*(str(word) for pair in options.items() for word in pair))
    qpid_ha("queue", "add", "orders", "-b", old)
    given = numbered(20)
    for message in given[5:]:
        message.properties.user_id = b"bob"
    send(old, "orders", given)
    to = ["-b", new, "--password-file", str(tmp_path / "password")]
    said = qpid_ha("migrate", old, *to, "--user", "ann", "-o", "json")
    row = rows(said)["orders"]
    assert said.code == 1, said.err
    assert (row["moved"], row["refused"], row["source_after"]) == (5, 15, 15)
    assert "left at the source: ann may not send messages with the user-id 'bob'" in said.err
    assert "the user of ha-username may send any" in said.err
    assert "were not accepted" not in said.err
    said = qpid_ha("migrate", old, *to, "--user", "brokers", "-o", "json")
    assert said.code == 0 and rows(said)["orders"]["target_after"] == 20, said.err


def test_a_side_that_does_not_come_back_ends_it_with_how_to_go_on(
    qpid_ha: Run, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lost(mover: Mover) -> None:
        raise ConnectError("no broker served within 60 s", hint="look")

    monkeypatch.setattr(Mover, "run", lost)
    old, new = start(), start()
    qpid_ha("queue", "add", "orders", "-b", old)
    said = qpid_ha("migrate", old, "-b", new)
    assert said.code == 69 and "no broker served within 60 s" in said.err
    assert "Try: run it again when the broker is there: it goes on" in said.err


@pytest.mark.parametrize(
    "http", ["rabbit1", "http://[rabbit1", "http://rabbit1:port", "http://ann:hush@127.0.0.1:1"]
)
def test_a_management_that_cannot_be_asked_is_told_without_its_password(http: str) -> None:
    source = Source(Options(), parse_endpoints("127.0.0.1"), Tls(), http)
    with pytest.raises(Failure) as caught:
        source.depths("/")
    told = f"{caught.value.text} {caught.value.reason}"
    assert "rabbit1" in told or "127.0.0.1:1" in told
    assert "hush" not in told and "15672" in caught.value.hint
