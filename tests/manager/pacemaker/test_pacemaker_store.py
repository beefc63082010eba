"""The in-sync record in Pacemaker's store, by the real commands on a CIB in a file: only newer, one
of two writers, with quorum.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from pathlib import Path

import pytest

from qpidha.manager.in_sync_record import InSyncRecord
from qpidha.manager.pacemaker import store as pacemaker_store
from qpidha.manager.pacemaker.watch_commands import (
    PROPERTY_SET,
    RECORD_NAME,
    CommandFailed,
    Pacemaker,
)
from qpidha.model.errors import InvalidArgument

FIRST = InSyncRecord(4, 2, ("id-a", "id-b"))
SECOND = InSyncRecord(4, 3, ("id-a",))
OTHERS = InSyncRecord(5, 0, ("id-b",))


class Store:
    """The CIB, and how the watch writes into it."""

    def __init__(self, folder: Path) -> None:
        self.base = folder / "cib.xml"
        self.node = folder / "crm_node"
        empty = subprocess.run(
            ["cibadmin", "--empty"], capture_output=True, text=True, check=True
        ).stdout
        self.base.write_text(empty.replace("<cib ", '<cib have-quorum="1" '))
        self.say_quorum("1")
        self.watch = Pacemaker("broker", "n1", "promotion")

    def say_quorum(self, answer: str) -> None:
        """Have crm_node, which does not read the file, say whether there is quorum."""
        self.node.write_text(f"#!/bin/sh\necho {answer}\n")
        self.node.chmod(0o755)

    def write(self, record: InSyncRecord, kept: InSyncRecord) -> None:
        asyncio.run(self.watch.write_record(record, kept))

    def read(self) -> InSyncRecord:
        return asyncio.run(self.watch.read_record())


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    if shutil.which("crm_attribute") is None or shutil.which("cibadmin") is None:
        pytest.skip("needs crm_attribute and cibadmin (Debian: pacemaker-cli-utils)")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/sbin:/usr/bin:/sbin:/bin")
    monkeypatch.setenv("CIB_file", str(tmp_path / "cib.xml"))
    return Store(tmp_path)


def test_a_set_is_kept_and_replaced_in_a_property_set_of_its_own(store: Store) -> None:
    assert store.read() == InSyncRecord()
    store.write(FIRST, InSyncRecord())
    assert store.read() == FIRST
    store.write(SECOND, FIRST)
    assert store.read() == SECOND == pacemaker_store.newest()
    assert f'<cluster_property_set id="{PROPERTY_SET}">' in store.base.read_text()
    delete = [
        "crm_attribute",
        "--type",
        "crm_config",
        "--set-name",
        PROPERTY_SET,
        "--name",
        RECORD_NAME,
        "--delete",
    ]
    subprocess.run(delete, capture_output=True, check=True)
    store.write(FIRST, InSyncRecord())
    assert store.read() == FIRST, "the property set was there already"


@pytest.mark.parametrize("read", [InSyncRecord(), FIRST])
def test_of_two_writers_the_late_one_fails(store: Store, read: InSyncRecord) -> None:
    """The former primary has read the record, and comes to write when the new primary has
    written.
    """
    if read.members:
        store.write(read, InSyncRecord())
    store.write(OTHERS, read)
    with pytest.raises(CommandFailed, match="another in-sync set was recorded meanwhile"):
        store.write(SECOND, read)
    assert store.read() == OTHERS


def test_without_quorum_nothing_is_written(store: Store) -> None:
    store.say_quorum("0")
    with pytest.raises(CommandFailed, match="not quorate"):
        store.write(FIRST, InSyncRecord())
    assert not pacemaker_store.record(FIRST)
    store.say_quorum("1")
    store.base.write_text(store.base.read_text().replace('have-quorum="1"', 'have-quorum="0"'))
    with pytest.raises(CommandFailed, match="no longer quorate"):
        store.write(FIRST, InSyncRecord())
    assert not pacemaker_store.record(FIRST), "quorum was lost after the question"
    assert store.read() == InSyncRecord()


def test_an_operators_command_records_only_a_newer_set(store: Store) -> None:
    assert pacemaker_store.newest() == InSyncRecord()
    assert pacemaker_store.record(SECOND)
    assert pacemaker_store.record(SECOND), "it is kept already"
    assert not pacemaker_store.record(FIRST)
    assert not pacemaker_store.record(InSyncRecord(9, 9))
    assert pacemaker_store.newest() == SECOND


def test_what_is_in_the_store_and_no_record_is_not_taken_for_none(store: Store) -> None:
    update = [
        "crm_attribute",
        "--type",
        "crm_config",
        "--set-name",
        PROPERTY_SET,
        "--name",
        RECORD_NAME,
        "--update",
        "nonsense",
    ]
    subprocess.run(update, capture_output=True, check=True)
    with pytest.raises(CommandFailed, match="no in-sync record: 'nonsense'"):
        store.read()
    with pytest.raises(InvalidArgument, match="qpidha-in-sync is 'nonsense'"):
        pacemaker_store.newest()
