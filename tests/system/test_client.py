"""The client for applications through failovers: over TLS with a password, the primary is killed,
frozen or hands over, and no accepted message is lost or out of order, with both faces.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from qpidha.client import aio
from qpidha.client.blocking import Client
from qpidha.client.endpoint import Tls
from qpidha.client.errors import ConnectError, DeliveryLost, LoginError, TlsError, TransactionLost
from tests.patience import STATE
from tests.system.cluster import wait_for
from tests.system.credentials import Authority, users_file

pytestmark = pytest.mark.system
ROOT = Path(__file__).parents[2]
COUNT = 3000
STRIKE = 800
"""How many messages are accepted before something happens to the primary."""
HA = {"ha_username": "ha", "ha_password": "secret"}


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


@pytest.fixture
def three(a_cluster, authority, tmp_path):
    """Three brokers with TLS and users, and the queue q."""
    certificate, key = authority.issue("broker")
    cluster = a_cluster(
        3,
        encrypted=True,
        auth="yes",
        users_file=users_file(tmp_path / "users", {"ha": "secret", "ann": "p@ss/word:"}),
        ssl_cert=certificate,
        ssl_key=key,
        ssl_trusted=authority.certificate,
        **HA,
    )
    cluster[0].declare_queue("q")
    return cluster


def addresses(cluster) -> str:
    return ",".join(f"amqps://127.0.0.1:{broker.encrypted_port.number}" for broker in cluster)


def options(authority) -> dict[str, object]:
    return {
        "user": "ann",
        "password": "p@ss/word:",
        "tls": Tls(str(authority.certificate)),
        "heartbeat": 1.0,
        "timeout": STATE,
    }


def strike(cluster, fault: str) -> None:
    """Let something happen to the primary, and have another broker be it."""
    if fault == "switchover":
        cluster[0].call("switchover", target=f"127.0.0.1:{cluster[1].encrypted_port.number}")
        return
    cluster[0].kill() if fault == "SIGKILL" else cluster[0].stop()
    wait_for(lambda: promoted(cluster[1]), what="the promotion of b1")


def promoted(broker) -> bool:
    if broker.state != "active":
        try:
            broker.promote()
        except Exception:
            return False
    return broker.state == "active"


def firsts(bodies: list[str]) -> list[str]:
    """Keep the first of each: what was in doubt may come twice."""
    return list(dict.fromkeys(bodies))


WANTED = [f"message {number}" for number in range(COUNT)]
FAULTS = ["SIGKILL", "SIGSTOP", "switchover"]


@pytest.mark.parametrize("fault", FAULTS)
def test_nothing_is_lost_or_out_of_order(three, authority, fault) -> None:
    accepted = threading.Semaphore(0)
    with Client(addresses(three), **options(authority)) as client:
        sender = client.sender("q", window=200, on_outcome=lambda delivery: accepted.release())
        striker = threading.Thread(target=when, args=(accepted, three, fault))
        striker.start()
        deliveries = [sender.send_nowait(body) for body in WANTED[: COUNT // 2]]
        striker.join(STATE)
        deliveries += [sender.send_nowait(body) for body in WANTED[COUNT // 2 :]]
        sender.flush()
        assert {str(delivery.outcome) for delivery in deliveries} == {"accepted"}
        assert client.connects >= 2
        assert client.endpoint.tls
        got = []
        with client.receiver("q", credit=50) as receiver:
            for message in receiver.until_empty():
                got.append(message.body)
                message.accept()
    assert firsts(got) == WANTED


def when(accepted: threading.Semaphore, cluster, fault: str) -> None:
    for _ in range(STRIKE):
        accepted.acquire()
    strike(cluster, fault)


@pytest.mark.parametrize("fault", FAULTS)
def test_nothing_is_lost_or_out_of_order_with_asyncio(three, authority, fault) -> None:
    got: list[str] = []

    async def main() -> None:
        async with aio.Client(addresses(three), **options(authority)) as client:
            sender = await client.sender("q", window=200)
            for number, body in enumerate(WANTED):
                await sender.send_nowait(body)
                if number == STRIKE:
                    await sender.flush()
                    struck = asyncio.create_task(asyncio.to_thread(strike, three, fault))
            await sender.flush()
            await struck
            await sender.send("the last")  # However fast the others went.
            async with await client.receiver("q", credit=50) as receiver:
                async for message in receiver.until_empty():
                    got.append(message.body)
                    message.accept()
            assert client.connects >= 2
            assert client.endpoint.tls

    asyncio.run(main())
    assert firsts(got) == [*WANTED, "the last"]


@pytest.mark.parametrize("fault", FAULTS)
def test_what_was_confirmed_never_comes_again(three, authority, fault) -> None:
    """A receiver goes on after a failover; what the broker confirmed is gone for good."""
    confirmed: list[str] = []
    got: list[str] = []
    with Client(addresses(three), **options(authority)) as client:
        sender = client.sender("q")
        for body in WANTED:
            sender.send_nowait(body)
        sender.flush()
        receiver = client.receiver(
            "q", confirm=True, on_confirmed=lambda message: confirmed.append(str(message.body))
        )
        striker = None
        while len(confirmed) < COUNT:
            if set(got) == set(WANTED) and not receiver.drain():
                break  # The broker died after it had carried out an outcome and before it said so.
            message = receiver.receive()
            assert str(message.body) not in confirmed
            got.append(str(message.body))
            try:
                message.accept()
            except DeliveryLost:
                continue
            if len(got) == STRIKE:
                striker = threading.Thread(target=strike, args=(three, fault))
                striker.start()
            if not receiver.buffered:
                receiver.wait_confirmed()
        assert striker is not None
        striker.join(STATE)
    assert sorted(set(got)) == sorted(WANTED)


def test_a_transaction_ends_with_its_connection(three, authority) -> None:
    with Client(addresses(three), **options(authority)) as client:
        sender = client.sender("q")
        transaction = client.transaction()
        sender.send("never", transaction=transaction)
        strike(three, "SIGKILL")
        sender.send("after")
        with pytest.raises(TransactionLost) as lost:
            transaction.commit()
        assert not lost.value.in_doubt
        with client.transaction() as second:
            sender.send("second", transaction=second)
        receiver = client.receiver("q")
        assert [message.body for message in receiver.until_empty()] == ["after", "second"]


def test_a_client_that_is_idle_keeps_its_connection(three, authority) -> None:
    """The program is busy elsewhere for longer than brokers wait for a heartbeat; the message that
    it works on stays its own.
    """
    with Client(addresses(three), **{**options(authority), "heartbeat": 0.6}) as client:
        sender = client.sender("q")
        sender.send("slow work")
        receiver = client.receiver("q")
        message = receiver.receive()
        ticks = threading.Event()
        ticks.wait(3.6)  # Three times as long as a silent client is waited for.
        message.accept()
        assert client.connects == 1
        assert list(receiver.until_empty()) == []


def test_what_send_nowait_left_is_sent_without_another_call(three, authority) -> None:
    with Client(addresses(three), **options(authority)) as client:
        sender = client.sender("q")
        delivery = sender.send_nowait("alone")
        wait_for(lambda: delivery.outcome, what="the outcome")


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"password": "wrong"}, LoginError),
        ({"tls": Tls()}, TlsError),
        ({"user": "", "password": ""}, LoginError),
    ],
)
def test_a_client_that_nobody_will_ever_let_in_is_told_at_once(
    three, authority, changes, wanted
) -> None:
    client = Client(addresses(three), **{**options(authority), **changes})
    with pytest.raises(wanted):
        client.open()
    with pytest.raises(wanted):
        client.sender("q")
    client.close()


def test_a_port_that_does_not_speak_tls_is_told(three, authority) -> None:
    encrypted = Client(
        f"amqps://127.0.0.1:{three[0].port.number}", fail_fast=True, **options(authority)
    )
    with pytest.raises(ConnectError, match="does not speak TLS"):
        encrypted.open()


BRISK = """import runpy, sys
from qpidha.client.blocking import Client
Client.__init__.__kwdefaults__["heartbeat"] = 1.0
sys.argv.pop(0)
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Runs a program whose clients notice a silent broker after 2 s, as those of the other tests do,
where the client's own choice is 20 s.
"""


@pytest.mark.parametrize("fault", FAULTS)
def test_the_examples_survive(three, authority, fault) -> None:
    """The programs of the README, over TLS with a password in their addresses."""
    urls = ",".join(
        f"amqps://ann:p%40ss%2Fword%3A@127.0.0.1:{broker.encrypted_port.number}" for broker in three
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    def example(name: str) -> subprocess.Popen[str]:
        arguments = [urls, "q", "20000", str(authority.certificate)]
        return subprocess.Popen(
            [sys.executable, "-c", BRISK, str(ROOT / "examples" / name), *arguments],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )

    receiver = example("receiver.py")
    sender = example("sender.py")
    assert receiver.stdout is not None
    got = [receiver.stdout.readline().strip()]
    strike(three, fault)
    got += [line.strip() for line in receiver.stdout]
    assert sender.wait(STATE) == 0
    assert receiver.wait(STATE) == 0
    rest = firsts(got)
    assert rest == [f"message {number}" for number in range(len(rest))]
