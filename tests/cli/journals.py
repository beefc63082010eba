"""Journals for tests: written as a broker writes them, by its own store on a real directory."""

from __future__ import annotations

import shutil
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from qpidha.broker.broker import Broker
from qpidha.ha.in_sync import SavedState
from qpidha.model import message_view
from qpidha.model.settings import Settings
from qpidha.runtime.data_dir import Disk
from qpidha.runtime.log_disk import LogDisk
from qpidha.store.log import Log
from qpidha.store.write_ahead_log import WriteAheadLog


class Written:
    """A data directory, and a log that is written into its write-ahead log until `close`."""

    def __init__(self, path: Path, *, segment_size: int = 16 << 20, epoch: int = 1) -> None:
        self.path = path
        self.disk = Disk(str(path))
        self.log_disk = LogDisk(str(path / "journal"), SimpleQueue[Any]().put)
        self.wal = WriteAheadLog(
            self.log_disk,
            self.disk.system_id,
            segment_size=segment_size,
            keep=1 << 30,
            nonce="a nonce",
        )
        self.wal.now = 1_700_000_000_000_000_000
        self.log = Log(1 << 20, self.wal)
        if epoch:
            self.disk.save_state(SavedState(promised=epoch).encode())
            self.log.start_epoch(epoch)
        self.count = 0
        self.broker = Broker(
            Settings(ha_replicate="all"), self.log, lambda effect: None, self._make_uuid
        )
        self.broker.promoted(0)

    def _make_uuid(self) -> str:
        self.count += 1
        return f"00000000-0000-0000-0000-{self.count:012}"

    def declare(self, name: str) -> None:
        """Declare a durable queue."""
        self.broker.declare_queue(
            name,
            durable=True,
            exclusive=False,
            auto_delete=False,
            alternate="",
            arguments={},
            owner=None,
        )

    def send(self, queue: str, *contents: str) -> None:
        """Put durable messages on a queue, and seal them as one batch that is committed."""
        for content in contents:
            payload = message_view.build(
                content, header={"durable": True}, properties={"message_id": f"id-{content}"}
            )
            self.broker.publish("", queue, payload, headers=dict)
        self.seal()

    def seal(self) -> None:
        """End a batch; it is committed when the next one says so."""
        self.log.seal()
        self.log.committed = self.log.last

    def close(self) -> None:
        """Let the directory be."""
        assert self.log_disk.close(10.0)
        self.disk.close()

    @property
    def segments(self) -> list[Path]:
        """The segments, oldest first."""
        return sorted((self.path / "journal").glob("*.log"))


def copy_of(path: Path, to: Path) -> Path:
    """Copy a data directory."""
    shutil.copytree(path, to)
    return to
