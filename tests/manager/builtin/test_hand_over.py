"""The manager and a primary that makes room for another: nobody else is promoted meanwhile, but not
for ever.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from qpidha.client.admin import AdminLink
from qpidha.model.errors import NotAllowed, NotFound
from tests.manager.conftest import Watched, running
from tests.patience import STATE


def promotions(watched: Watched) -> list[str]:
    return [
        entry["broker"] for entry in watched.manager.events.history if entry["event"] == "promote"
    ]


async def hand_over_to_b2(directory: Path) -> None:
    """Have b1 hand over without the manager; b2 does not take over before the file `wait` is
    gone.
    """
    (directory / "wait").touch()
    link = await AdminLink.open(str(directory / "b1" / "admin.sock"))
    await link.call("switchover", {"target": "127.0.0.1:2"}, timeout=STATE)
    link.close()


async def has_taken_over(watched: Watched, name: str, after: int) -> None:
    """Wait until all is well again; the broker is primary, and nobody was promoted but b1 in the
    beginning.
    """
    await watched.event("settled", after=after, backups=2)
    assert watched.primary() == name and promotions(watched) == ["b1"]


def test_a_switchover_makes_the_named_broker_primary_and_promotes_nobody(directory: Path) -> None:
    async def play() -> None:
        async with running(directory) as watched:
            settled = await watched.event("settled")
            (directory / "wait").touch()
            task = asyncio.create_task(watched.manager.switch_over("b3"))
            await watched.event("state", after=settled["time_ns"], broker="b1", state="joining")
            (directory / "wait").unlink()
            await task
            await has_taken_over(watched, "b3", settled["time_ns"])

    asyncio.run(play())


def test_a_hand_over_that_somebody_else_asked_for_is_waited_for(directory: Path) -> None:
    async def play() -> None:
        async with running(directory) as watched:
            settled = await watched.event("settled")
            await hand_over_to_b2(directory)
            watched.look()
            await watched.event("switchover", after=settled["time_ns"], broker="b1", to="b2")
            (directory / "wait").unlink()
            await has_taken_over(watched, "b2", settled["time_ns"])

    asyncio.run(play())


def test_a_successor_that_never_comes_is_waited_for_only_so_long(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qpidha.manager.builtin.supervisor.HAND_OVER_PATIENCE", 0.3)

    async def play() -> None:
        async with running(directory) as watched:
            settled = await watched.event("settled")
            await hand_over_to_b2(directory)
            watched.look()
            handed = await watched.event("switchover", after=settled["time_ns"])
            promoted = await watched.event("promote", after=handed["time_ns"])
            assert promoted["time_ns"] - handed["time_ns"] >= 0.2e9
            (directory / "wait").unlink()
            await watched.event("settled", after=handed["time_ns"], backups=2)

    asyncio.run(play())


def test_a_failover_promotes_the_best_backup_beside_the_primary(directory: Path) -> None:
    async def play() -> None:
        async with running(directory) as watched:
            settled = await watched.event("settled")
            (directory / "b3" / "sequence").write_text("99")
            assert await watched.manager.take_over("") == "b3"
            await has_taken_over(watched, "b3", settled["time_ns"])

    asyncio.run(play())


def test_a_switchover_to_nobody_or_to_the_primary_itself_is_refused(directory: Path) -> None:
    async def play() -> None:
        async with running(directory) as watched:
            await watched.event("settled")
            with pytest.raises(NotFound, match="b9"):
                await watched.manager.switch_over("b9")
            with pytest.raises(NotAllowed, match="b1 is the primary already"):
                await watched.manager.switch_over("b1")
            assert watched.primary() == "b1"

    asyncio.run(play())
