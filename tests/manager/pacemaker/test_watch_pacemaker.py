"""What the watch tells Pacemaker: with the real command on a CIB in a file, and with pretended ones
that are slow.
"""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest

from qpidha.manager.in_sync_record import InSyncRecord
from qpidha.manager.pacemaker.watch_commands import (
    CommandFailed,
    Pacemaker,
    parse_record,
    record_text,
)

RECORD = InSyncRecord(4, 2, ("id-a", "id-b"))


def a_tool(folder: Path, name: str, body: str) -> None:
    """Put a pretended command into a folder."""
    (folder / name).write_text(f"#!/bin/sh\n{body}\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that comes first on PATH."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/sbin:/usr/bin:/sbin:/bin")
    return tmp_path


def test_a_record_is_one_word() -> None:
    assert record_text(RECORD) == "4:2:id-a,id-b"
    assert parse_record("4:2:id-a,id-b\n") == RECORD
    assert parse_record("") == InSyncRecord()
    assert parse_record("4:3:") == InSyncRecord(4, 3, ())
    for wrong in ("4", "a:b:c", "4:2"):
        with pytest.raises(ValueError):
            parse_record(wrong)


async def _tell_during_an_update(tools: Path) -> None:
    pacemaker = Pacemaker("broker", "n1", "promotion")
    updating = asyncio.create_task(pacemaker.set_score(1000))
    await asyncio.to_thread(subprocess.run, ["cat", str(tools / "started")], check=True)
    begun = pacemaker.tell_failure()
    assert await pacemaker.set_score(100) is False
    with pytest.raises(CommandFailed):
        await updating
    assert await pacemaker.results_of(begun) == []
    assert sorted((tools / "calls").read_text().splitlines()) == [
        "--fail --resource broker --node n1",
        "--promotion -D -q",
    ]
    assert await pacemaker.set_score(None) is True


def test_a_failure_overtakes_an_update_of_the_score_that_is_under_way(tools: Path) -> None:
    subprocess.run(["mkfifo", str(tools / "started")], check=True)
    update = f'case "$*" in *-v*) echo > {tools}/started; exec sleep 600;; esac'
    a_tool(tools, "crm_attribute", f'{update}\necho "$*" >> {tools}/calls')
    a_tool(tools, "crm_resource", f'echo "$*" >> {tools}/calls')
    asyncio.run(_tell_during_an_update(tools))


def test_missing_commands_are_said_and_break_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("qpidha.manager.pacemaker.watch_commands._SYSTEM_PATH", "")
    monkeypatch.setenv("PATH", str(tmp_path))

    async def tell() -> list[tuple[list[str], str]]:
        pacemaker = Pacemaker("broker", "n1", "promotion")
        with pytest.raises(CommandFailed, match="crm_attribute: No such file"):
            await pacemaker.set_score(1)
        return await pacemaker.results_of(pacemaker.tell_failure())

    assert [why for _, why in asyncio.run(tell())] == [
        f"{name}: No such file or directory" for name in ("crm_attribute", "crm_resource")
    ]
