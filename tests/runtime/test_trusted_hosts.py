"""From which addresses brokers and administrators are believed where nobody logs in."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from qpidha.model.settings import Settings
from qpidha.model.url import parse_url
from qpidha.runtime import trusted_hosts
from qpidha.runtime.trusted_hosts import TrustedHosts
from tests.patience import STATE

OURS, STRANGER = "192.0.2.1", "192.0.2.9"


def hosts(url: str, **settings: Any) -> TrustedHosts:
    return TrustedHosts(Settings(ha_brokers_url=parse_url(url), **{"auth": False, **settings}))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(STATE):
        while not condition():
            await asyncio.sleep(0.001)


def play(found: TrustedHosts, scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a scene while names are looked up."""

    async def run() -> None:
        await found.start()
        try:
            await scene()
        finally:
            found.stop()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("peer", "trusted"),
    [
        ("127.0.0.1", True),
        ("127.9.8.7", True),
        ("::1", True),
        (OURS, True),
        ("192.0.2.2", True),
        ("2001:db8::2", True),
        (STRANGER, False),
        ("127.evil.example", False),
        ("", False),
    ],
)
def test_they_are_this_machine_and_those_of_the_brokers(peer: str, trusted: bool) -> None:
    found = hosts("192.0.2.2,[2001:db8::2]:5671")
    assert found.has(peer, OURS) is trusted


def test_an_address_of_ours_that_is_not_known_is_nobodys() -> None:
    assert not hosts("192.0.2.2").has("", "")


def test_where_users_log_in_the_addresses_of_brokers_mean_nothing() -> None:
    assert not hosts("192.0.2.2", auth=True, users_file="u").has("192.0.2.2", OURS)


def test_names_are_looked_up_again_and_keep_their_last_addresses_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = {"b2.example": "192.0.2.2"}
    asked = []

    def look_up(host: str, *ignored: object, **more: object) -> list[Any]:
        asked.append(host)
        if host not in answers:
            raise socket.gaierror(socket.EAI_AGAIN, "no answer")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (answers[host], 0))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(trusted_hosts, "INTERVAL", 0.001)
    found = hosts("b2.example,b3.example")

    async def scene() -> None:
        assert found.has("192.0.2.2", OURS)
        answers.clear()
        times = len(asked)
        await until(lambda: len(asked) > times + 4)
        assert found.has("192.0.2.2", OURS)
        answers["b2.example"] = "192.0.2.7"
        await until(lambda: found.has("192.0.2.7", OURS))
        assert not found.has("192.0.2.2", OURS)

    play(found, scene)


def test_the_start_does_not_wait_for_names_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    has_answer = threading.Event()

    def look_up(*ignored: object, **more: object) -> list[Any]:
        has_answer.wait()
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.2", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(trusted_hosts, "PATIENCE", 0.01)
    found = hosts("b2.example")

    async def scene() -> None:
        assert not found.has("192.0.2.2", OURS)
        has_answer.set()
        await until(lambda: found.has("192.0.2.2", OURS))

    try:
        play(found, scene)
    finally:
        has_answer.set()
