"""Compaction of a stopped broker's write-ahead log: a checkpoint is made at once, and the segments
that it replaces go.

It is the broker's own way to make one, without the broker around it. What is not committed yet is
written again behind it. If this is ended half way, a broker starts from what was there before.
"""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from uuid import uuid4

from qpidha.broker.broker import Broker
from qpidha.client.command.exits import Failure
from qpidha.model.events import Event, LogFailed, LogWritten
from qpidha.model.exit_codes import NO, SOFTWARE
from qpidha.model.settings import Settings
from qpidha.runtime.log_disk import LogDisk
from qpidha.store.checkpointer import Checkpointer
from qpidha.store.frames import BATCH
from qpidha.store.log import Log
from qpidha.store.write_ahead_log import WriteAheadLog
from qpidha.tools.journal.files import StoppedBroker

CLOSE_PATIENCE = 300.0
"""Seconds for the last sync."""


def compact(stopped: StoppedBroker) -> tuple[int, list[str]]:
    """Make a checkpoint; return up to which record, and what a start would have said."""
    _check_which(stopped)
    folder = stopped.journal()
    # A broker that was alone never began an epoch; for it all that is on disk holds, as when it
    # starts.
    alone = all(
        place.epoch == 0 for found in folder.files for place in found.frames if place.kind == BATCH
    )
    settings = Settings()
    events: SimpleQueue[Event] = SimpleQueue()
    disk = LogDisk(str(stopped.journal_path), events.put)
    try:
        wal = WriteAheadLog(
            disk, stopped.system_id, segment_size=settings.journal_segment_size, keep=0
        )
        log = Log(settings.log_memory, wal)
        broker = Broker(settings, None, lambda effect: None, lambda: str(uuid4()))
        broker.passive = not alone
        # What was read from a log belongs in it, whatever its level: a member of a cluster never
        # wrote what is to be nowhere else.
        broker.records_durable_only = True
        checkpointer = Checkpointer(
            broker,
            log,
            wal,
            system_id=stopped.system_id,
            segment_size=settings.journal_segment_size,
        )
        notes = checkpointer.recover(alone=alone)
        if log.last:
            tail = list(log.batches(log.committed + 1)) if log.committed < log.last else []
            log.last = log.committed  # so that what follows the checkpoint begins there
            checkpointer.checkpoint(log.committed)
            for batch in tail:
                # Not called synced: should the checkpoint never be whole, this copy is nothing to
                # be missed.
                wal.append(batch, committed=log.committed, synced=0)
            wal.note_copies()
            _finish(checkpointer, log, lambda: wal.is_snapshotting, events)
            if checkpointer.has_given_up:
                raise Failure(
                    NO,
                    f"there is no space for a checkpoint in {stopped.journal_path}; all "
                    "is as it was",
                    hint="make space there",
                )
    finally:
        written = disk.close(CLOSE_PATIENCE)
    if not written:
        raise Failure(
            SOFTWARE,
            f"{stopped.journal_path} could not be written: "
            f"{disk.failure or 'the disk did not answer'}",
            hint="look at the disk",
        )
    return log.committed, [note.text for note in notes]


def _check_which(stopped: StoppedBroker) -> None:
    if stopped.is_local:
        raise Failure(
            NO,
            f"{stopped.journal_path} is made smaller by its broker only",
            hint="start the broker: it does so when that is worth its while",
        )


def _finish(
    checkpointer: Checkpointer, log: Log, unfinished: Callable[[], bool], events: SimpleQueue[Event]
) -> None:
    while unfinished():
        checkpointer.turn(log.committed)
        while unfinished() and not checkpointer.is_busy:
            event = events.get()
            if isinstance(event, LogWritten):
                log.answer(event.mark)
            elif isinstance(event, LogFailed):
                raise Failure(
                    SOFTWARE,
                    f"the write-ahead log could not be written: {event.reason}",
                    hint="look at the disk",
                )
