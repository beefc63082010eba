"""The record of the newest in-sync set: it survives, only grows newer, and nobody outside it is
promoted.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from qpidha.manager.builtin.cluster import ClusterOptions, configuration
from qpidha.manager.in_sync_record import InSyncRecord, InSyncStore
from qpidha.model.errors import InvalidArgument
from tests.manager.builtin.test_local import kill
from tests.manager.conftest import running


def test_a_newer_set_is_kept_over_a_restart_and_an_older_one_is_not_taken(tmp_path: Path) -> None:
    store = InSyncStore(tmp_path / "in-sync.json")
    assert store.newest == InSyncRecord() and store.record(InSyncRecord(2, 1, ("s1", "s2")))
    assert not store.record(InSyncRecord(1, 9, ("s3",))) and not store.record(
        InSyncRecord(2, 1, ("s3",))
    )
    assert not store.record(InSyncRecord(9, 9, ()))
    assert store.record(InSyncRecord(2, 2, ("s1",)))
    assert InSyncStore(tmp_path / "in-sync.json").newest == InSyncRecord(2, 2, ("s1",))
    assert [path.name for path in tmp_path.iterdir()] == ["in-sync.json"]


@pytest.mark.parametrize("content", ["", "{}", '{"epoch": 1, "version": 1, "members": 7}'])
def test_a_record_that_cannot_be_read_is_no_empty_record(tmp_path: Path, content: str) -> None:
    (tmp_path / "in-sync.json").write_text(content)
    with pytest.raises(InvalidArgument, match="cannot be read"):
        InSyncStore(tmp_path / "in-sync.json")


def test_a_broker_that_was_dropped_is_not_promoted_though_it_knows_of_no_newer_set(
    directory: Path,
) -> None:
    async def play() -> None:
        async with running(directory) as watched:
            settled = await watched.event("settled")
            (directory / "b1" / "in_sync").write_text(
                json.dumps({"epoch": 1, "version": 2, "members": ["b1", "b3"]})
            )
            watched.look()
            await watched.event("in-sync set", epoch=1, version=2)
            (directory / "b2" / "sequence").write_text("99")
            kill(watched, "b1")
            promoted = await watched.event("promoted", after=settled["time_ns"])
            assert promoted["broker"] == "b3"  # though b2 says that it is ready, and has more
            await watched.event("settled", after=promoted["time_ns"], backups=2)

    asyncio.run(play())
    assert json.loads((directory / "in-sync.json").read_text())["members"] == ["b1", "b3"]


def test_after_a_failure_of_all_the_brokers_own_comparison_decides(directory: Path) -> None:
    comparison = {"recommended": None, "reason": "b3 did not answer"}
    (directory / "comparison.json").write_text(json.dumps(comparison))
    (directory / "in-sync.json").write_text(
        json.dumps({"epoch": 3, "version": 1, "members": ["b1", "b2", "b3"]})
    )

    (directory / "b1" / "data").mkdir(parents=True)
    (directory / "b1" / "data" / "systemId").touch()  # it is not a new cluster

    async def play() -> None:
        async with running(directory) as watched:
            waiting = await watched.event("waiting", reason="b3 did not answer")
            assert watched.find("promote") is None
            temporary = directory / "comparison.new"
            temporary.write_text(
                json.dumps({"recommended": "127.0.0.1:2", "reason": "none has more"})
            )
            temporary.replace(directory / "comparison.json")
            promoted = await watched.event("promoted", after=waiting["time_ns"])
            assert promoted["broker"] == "b2"

    asyncio.run(play())


def test_the_record_of_brokers_that_are_all_gone_does_not_keep_new_ones_from_starting(
    directory: Path,
) -> None:
    (directory / "in-sync.json").write_text(
        json.dumps({"epoch": 3, "version": 1, "members": ["s1", "s2"]})
    )

    async def play() -> None:
        async with running(directory) as watched:
            await watched.event("settled", backups=2)
            assert watched.manager.newest_in_sync() == InSyncRecord()

    asyncio.run(play())


def test_a_record_takes_the_place_of_the_one_that_is_kept_and_of_no_other(tmp_path: Path) -> None:
    store = InSyncStore(tmp_path / "in-sync.json")
    first, second = InSyncRecord(1, 0, ("a", "b")), InSyncRecord(1, 1, ("a",))
    assert store.replace(first, InSyncRecord()) == first
    assert store.replace(InSyncRecord(2, 0, ("b", "a")), InSyncRecord()) == first
    assert store.replace(InSyncRecord(2, 0, ("b", "a")), InSyncRecord(1, 0, ("b", "a"))) == first, (
        "the order of the members counts"
    )
    assert store.replace(second, first) == second
    assert InSyncStore(store.path).newest == second


def test_what_cannot_be_written_is_not_kept(tmp_path: Path) -> None:
    store = InSyncStore(tmp_path / "gone" / "in-sync.json")
    with pytest.raises(OSError):
        store.replace(InSyncRecord(1, 0, ("a",)), InSyncRecord())
    assert store.newest == InSyncRecord()


TRUSTING = {"ha-safety": "trust-manager"}
BY_BROKERS = {"ha-recorder": "brokers"}


@pytest.mark.parametrize(
    ("count", "settings", "recorder"),
    [(2, {}, "manager"), (2, TRUSTING, None), (3, {}, None), (2, BY_BROKERS, "brokers")],
)
def test_two_brokers_record_with_their_manager(
    tmp_path: Path, count: int, settings: dict[str, str], recorder: str | None
) -> None:
    options = ClusterOptions(
        directory=tmp_path, ports=tuple(range(1, count + 1)), settings=settings
    )
    assert configured(options).get("ha-recorder") == recorder


def configured(options: ClusterOptions) -> dict[str, str]:
    """Return the configuration of the first broker."""
    text = configuration(options.brokers()[0], options)
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


@pytest.mark.parametrize(
    ("settings", "auth"),
    [
        ({}, "no"),
        ({"users-file": "u"}, None),
        ({"b1:users-file": "u"}, None),
        ({"ssl-trusted": "t"}, None),
        ({"b2:users-file": "u"}, "no"),
        ({"auth": "yes"}, "yes"),
        ({"interface": "0.0.0.0"}, None),
    ],
)
def test_nobody_logs_in_to_brokers_of_one_machine_unless_they_have_users(
    tmp_path: Path, settings: dict[str, str], auth: str | None
) -> None:
    options = ClusterOptions(directory=tmp_path, ports=(1, 2, 3), settings=settings)
    assert configured(options).get("auth") == auth
