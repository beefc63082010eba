"""The public interface is typed: a program that uses it passes `mypy --strict`; misuse is found."""

from __future__ import annotations

from pathlib import Path

import pytest
from mypy import api

GOOD = """
import asyncio

from qpidha.client import aio
from qpidha.client.blocking import Client, Receiver, Sender
from qpidha.client.endpoint import Endpoint, Tls
from qpidha.client.errors import ClientError, NotAccepted, TransactionLost
from qpidha.client.links import Delivery, Received
from qpidha.client.message import Message, Outcome


def on_event(event: str, endpoint: Endpoint, error: ClientError | None) -> None:
    print(event, endpoint, error.reason if error else "")


def on_outcome(delivery: Delivery) -> None:
    print(delivery.number, delivery.outcome)


def main() -> int:
    second = Endpoint("two", tls=True, user="ann", password="secret")
    brokers: list[str | Endpoint] = ["amqps://one", second]
    with Client(brokers, tls=Tls("ca.pem"), timeout=None, on_event=on_event) as client:
        sender: Sender = client.sender("orders", window=10, on_outcome=on_outcome)
        try:
            sender.send(Message(b"body", durable=True, subject="s"), timeout=5)
        except NotAccepted as error:
            outcome: Outcome = error.outcome
            print(outcome.state, error.condition, error.hint)
        delivery: Delivery = sender.send_nowait("text")
        print(sender.wait(delivery).accepted)
        sender.flush()
        receiver: Receiver = client.receiver("orders", credit=10, selector="colour = 'red'")
        message: Received = receiver.receive(timeout=1.5)
        print(message.body, message.properties.subject, message.header.delivery_count)
        try:
            with client.transaction() as transaction:
                sender.send(message, transaction=transaction)
                message.accept(transaction)
        except TransactionLost as lost:
            print(lost.in_doubt)
        for each in receiver:
            each.modify(failed=True, annotations={"x-opt-why": "later"})
        reply: Received = client.request("service", b"question")
        return len(reply.application_properties)


async def with_asyncio() -> None:
    async with aio.Client("amqp://one") as client:
        sender = await client.sender("orders")
        await sender.send(b"body")
        receiver = await client.receiver("orders")
        async for message in receiver:
            message.accept()
        async with await client.transaction() as transaction:
            await sender.send("x", transaction=transaction)


if __name__ == "__main__":
    asyncio.run(with_asyncio())
    sys_exit_code: int = main()
"""
BAD = """
from qpidha.client.blocking import Client

client = Client("amqp://one", timeout="soon")
client.sender("q").send(5)
client.receiver("q").receive().acept()
"""


def check(program: Path) -> tuple[str, int]:
    output, errors, code = api.run(
        ["--strict", "--cache-dir", str(program.parent / "cache"), "--config-file=", str(program)]
    )
    return output + errors, code


def test_a_program_that_uses_the_client_passes_the_strict_type_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MYPYPATH", str(Path(__file__).parents[2]))
    good, bad = tmp_path / "good.py", tmp_path / "bad.py"
    good.write_text(GOOD)
    bad.write_text(BAD)
    output, code = check(good)
    assert code == 0, output
    output, code = check(bad)
    assert code == 1
    assert output.count("error:") == 3, output
