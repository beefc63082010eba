"""The built-in manager over pretended brokers: starts, restarts, fences and promotes real
processes.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from qpidha.client.admin import AdminLink, LinkBroken
from qpidha.manager.builtin import supervisor
from qpidha.manager.builtin.cluster import ClusterOptions, read_state
from qpidha.manager.builtin.process import start_time
from qpidha.model.errors import InvalidArgument
from tests.manager.conftest import BRISK, Watched, running
from tests.patience import STATE


def kill(watched: Watched, name: str, number: int = signal.SIGKILL) -> int:
    process = watched.manager.brokers[name].process
    assert process is not None
    os.kill(process.pid, number)
    return process.pid


def test_a_first_start_makes_one_primary_and_all_others_ready(directory: Path) -> None:
    async def play() -> None:
        async with running(directory) as watched:
            await watched.event("settled", backups=2)
            assert watched.primary() == "b1"
            promotions = [
                entry for entry in watched.manager.events.history if entry["event"] == "promoted"
            ]
            assert len(promotions) == 1

    asyncio.run(play())


def test_a_killed_primary_is_replaced_by_the_furthest_backup_and_comes_back_as_a_backup(
    directory: Path,
) -> None:
    async def play() -> None:
        async with running(directory) as watched:
            first = await watched.event("settled")
            (directory / "b3" / "sequence").write_text("99")
            kill(watched, "b1")
            gone = await watched.event("exited", broker="b1")
            promoted = await watched.event("promoted", after=gone["time_ns"])
            assert promoted["broker"] == "b3"
            await watched.event("settled", after=gone["time_ns"], backups=2)
            assert watched.primary() == "b3" and first["broker"] == "b1"
            assert watched.manager.brokers["b1"].restarts == 1

    asyncio.run(play())


class LastWord:
    """A link over which the last answer of a broker is read when its process has ended already."""

    closed = False

    def __init__(self, watched: Watched, name: str) -> None:
        self.watched, self.name = watched, name
        self.link = watched.manager.brokers[name].link

    async def call(self, method: str, *, timeout: float) -> dict[str, Any]:
        assert self.link is not None
        answer = await self.link.call(method, timeout=timeout)
        process = self.watched.manager.brokers[self.name].process
        assert process is not None
        kill(self.watched, self.name)
        await process.ended()
        return answer


def test_the_last_answer_of_a_killed_primary_does_not_make_it_primary_again(
    directory: Path,
) -> None:
    async def play() -> None:
        async with running(directory) as watched:
            settled = await watched.event("settled")
            last_word = LastWord(watched, "b1")
            watched.manager.brokers["b1"].link = cast("AdminLink", last_word)
            await watched.manager.refresh()
            assert watched.primary() != "b1"
            await watched.event("settled", after=settled["time_ns"], backups=2)

    asyncio.run(play())


def test_a_hung_primary_is_dead_before_another_is_promoted(directory: Path) -> None:
    async def play() -> None:
        async with running(directory, heartbeat=BRISK) as watched:
            await watched.event("settled")
            pid = kill(watched, "b1", signal.SIGSTOP)
            hung = await watched.event("hung", broker="b1")
            assert hung["was"] == "active"
            promote = await watched.event("promote", after=hung["time_ns"])
            fenced, exited = (
                watched.find("fenced", broker="b1"),
                watched.find("exited", broker="b1", pid=pid),
            )
            assert fenced is not None and exited is not None
            assert exited["time_ns"] <= fenced["time_ns"] <= promote["time_ns"]
            await watched.event("settled", after=promote["time_ns"])

    asyncio.run(play())


def test_without_fencing_a_hung_primary_is_left_alone_and_rejoins_when_it_wakes(
    directory: Path,
) -> None:
    async def play() -> None:
        async with running(directory, fence=False, heartbeat=BRISK) as watched:
            await watched.event("settled")
            pid = kill(watched, "b1", signal.SIGSTOP)
            promoted = await watched.event(
                "promoted", after=(await watched.event("hung", broker="b1"))["time_ns"]
            )
            assert promoted["broker"] != "b1" and start_time(pid)
            kill(watched, "b1", signal.SIGCONT)
            await watched.event("settled", after=promoted["time_ns"], backups=2)
            assert watched.manager.brokers["b1"].restarts == 0
            assert watched.primary() == promoted["broker"]

    asyncio.run(play())


def test_a_killed_backup_is_restarted_and_nobody_is_promoted(directory: Path) -> None:
    async def play() -> None:
        async with running(directory) as watched:
            settled = await watched.event("settled")
            kill(watched, "b2")
            died = await watched.event("exited", broker="b2")
            await watched.event("settled", after=died["time_ns"])
            assert watched.find("promote", after=settled["time_ns"]) is None
            assert watched.manager.brokers["b2"].restarts == 1 and watched.primary() == "b1"

    asyncio.run(play())


def test_a_refused_promotion_is_tried_with_the_next_candidate(directory: Path) -> None:
    async def play() -> None:
        async with running(directory) as watched:
            settled = await watched.event("settled")
            (directory / "b2" / "sequence").write_text("99")
            (directory / "b2" / "refuse").touch()
            kill(watched, "b1")
            refused = await watched.event("refused", broker="b2", after=settled["time_ns"])
            assert refused["reason"] == "not now"
            assert (await watched.event("promoted", after=refused["time_ns"]))["broker"] == "b3"

    asyncio.run(play())


def test_all_brokers_gone_are_restarted_and_one_is_promoted_again(directory: Path) -> None:
    async def play() -> None:
        async with running(directory) as watched:
            settled = await watched.event("settled")
            (directory / "primary.json").unlink()
            for name in ("b2", "b3", "b1"):
                kill(watched, name)
            await watched.event("settled", after=settled["time_ns"], backups=2)

    asyncio.run(play())


def test_the_state_file_names_every_process_and_none_after_the_end(directory: Path) -> None:
    async def play() -> None:
        async with running(directory) as watched:
            await watched.event("settled")
            state = read_state(directory)
            assert state is not None
            pids = [broker["pid"] for broker in state["brokers"]]
            assert all(start_time(pid) for pid in pids) and state["manager_pid"] == os.getpid()

    asyncio.run(play())
    state = read_state(directory)
    assert (
        state is not None
        and state["manager_pid"] is None
        and not any(broker["pid"] for broker in state["brokers"])
    )


def test_a_new_manager_takes_over_brokers_that_are_still_running(directory: Path) -> None:
    async def play() -> None:
        async with running(directory) as first:
            await first.event("settled")
            kept = (directory / "cluster.json").read_text()
            pids = {
                name: broker.process.pid
                for name, broker in first.manager.brokers.items()
                if broker.process is not None
            }
            for task in first.manager._tasks:
                task.cancel()  # The first manager is gone, and its brokers are not.
            (directory / "cluster.json").write_text(kept)
            async with running(directory) as second:
                await second.event("settled")
                assert {
                    name: broker.process.pid
                    for name, broker in second.manager.brokers.items()
                    if broker.process is not None
                } == pids
                assert second.find("promote") is None and second.primary() == "b1"
                assert [broker.restarts for broker in second.manager.brokers.values()] == [0, 0, 0]

    asyncio.run(play())


def test_a_broker_that_freezes_while_it_is_promoted_is_dead_before_another_is_promoted(
    directory: Path,
) -> None:
    async def play() -> None:
        async with running(directory, heartbeat=BRISK) as watched:
            settled = await watched.event("settled")
            for name in ("b2", "b3"):
                (directory / name / "freeze").touch()
            kill(watched, "b1")
            first = (await watched.event("promote", after=settled["time_ns"]))["broker"]
            second = "b2" if first == "b3" else "b3"
            (directory / second / "freeze").unlink()
            exited = await watched.event("exited", after=settled["time_ns"], broker=first)
            promote = await watched.event("promote", after=exited["time_ns"])
            promoted = await watched.event("promoted", after=exited["time_ns"])
            assert promote["broker"] == promoted["broker"] != first
            early = watched.find("promote", after=settled["time_ns"], broker=second)
            assert early is None or early["time_ns"] >= exited["time_ns"]

    asyncio.run(play())


class SlowLink:
    """A link over which a promotion is not answered before somebody says so."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self.timeouts: list[float] = []

    async def call(self, method: str, params: dict[str, Any], *, timeout: float) -> dict[str, Any]:
        self.timeouts.append(timeout)
        return await self.answer


@pytest.mark.parametrize("healthy", [True, False])
def test_a_promotion_is_waited_for_as_long_as_the_broker_answers(
    directory: Path, healthy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "SILENCE", 0.0)

    async def play() -> None:
        manager = supervisor.LocalManager(
            ClusterOptions(directory=directory, ports=(1, 2, 3), heartbeat=0.05)
        )
        broker, link = manager.brokers["b2"], SlowLink()
        broker.link, broker.member.healthy = cast("AdminLink", link), True
        asked = asyncio.create_task(manager.promote("b2"))
        await wait_until(lambda: bool(link.timeouts))
        assert link.timeouts == [supervisor.PROMOTION_PATIENCE]
        broker.member.healthy = healthy
        if healthy:
            link.answer.set_result({})
            await asked
        else:
            with pytest.raises(LinkBroken, match="does not answer"):
                await asked

    asyncio.run(play())


async def wait_until(condition: Any) -> None:
    while not condition():
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("heartbeat", "backup_timeout"), [(0.0, 10.0), (0.04, 10.0), (float("nan"), 10.0), (0.5, 0.0)]
)
def test_times_in_which_no_broker_could_answer_are_refused(
    directory: Path, heartbeat: float, backup_timeout: float
) -> None:
    options = ClusterOptions(
        directory=directory, ports=(1,), heartbeat=heartbeat, backup_timeout=backup_timeout
    )
    with pytest.raises(InvalidArgument):
        options.check()


def test_a_full_disk_keeps_the_manager_from_writing_and_not_from_working(directory: Path) -> None:
    async def play() -> None:
        async with running(directory) as watched:
            settled = await watched.event("settled")
            assert (directory / "cluster.json").stat().st_mode & 0o77 == 0
            assert (directory / "b1" / "qpidhad.log").stat().st_mode & 0o27 == 0
            (directory / "cluster.new").mkdir()  # in the way of cluster.json
            config = directory / "b1" / "qpidd.conf"
            assert config.stat().st_mode & 0o77 == 0
            config.unlink()
            config.mkdir()
            kill(watched, "b1")
            promoted = await watched.event("promoted", after=settled["time_ns"])
            await watched.event("not started", broker="b1")
            config.rmdir()
            await watched.event("settled", after=promoted["time_ns"], backups=2)
            (directory / "cluster.new").rmdir()

    asyncio.run(play())


def test_a_broker_that_is_killed_again_and_again_is_started_with_growing_pauses(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qpidha.manager.builtin.supervisor.SHORT_LIFE", STATE)

    async def play() -> None:
        async with running(directory) as watched:
            settled = await watched.event("settled")
            (directory / "b2" / "crash").touch()
            watched.look()
            await watched.until(
                lambda: watched.manager.brokers["b2"].backoff >= 1.0, "pause of a second"
            )
            exits = [
                entry
                for entry in watched.manager.events.history
                if entry["event"] == "exited" and entry["broker"] == "b2"
            ]
            starts = [
                entry
                for entry in watched.manager.events.history
                if entry["event"] == "started" and entry["broker"] == "b2"
            ]
            assert all(entry["code"] == -signal.SIGKILL and not entry["gave_up"] for entry in exits)
            assert (
                starts[-1]["time_ns"] - exits[-2]["time_ns"] >= 0.5e9
            )  # the pause before the last start
            assert (
                watched.primary() == "b1"
                and watched.find("promote", after=settled["time_ns"]) is None
            )

    asyncio.run(play())


def test_one_early_end_is_followed_by_a_start_at_once(directory: Path) -> None:
    async def play() -> None:
        async with running(directory) as watched:
            await watched.event("settled")
            kill(watched, "b2")
            await watched.event("exited", broker="b2")
            assert watched.manager.brokers["b2"].backoff == 0.0

    asyncio.run(play())


def test_a_broker_that_ends_before_it_served_gave_up_however_slow_its_start_was(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(
        "QPIDHA_DAEMON", shlex.join([sys.executable, "-S", "-c", "raise SystemExit(78)"])
    )
    monkeypatch.setattr(supervisor, "SHORT_LIFE", 0.0)  # each start takes longer

    async def play() -> None:
        async with running(directory) as watched:
            exited = await watched.event("exited", broker="b1")
            assert exited["code"] == 78 and exited["gave_up"] and exited["was"] == "starting"
            assert watched.manager.brokers["b1"].backoff > 0.0

    asyncio.run(play())
