"""Compaction of a stopped broker's journal: a checkpoint is made at once, and the segments that it replaces go.

It is the broker's own way to make one, without the broker around it. What is not safe yet is written again behind it. If
this is ended half way, a broker starts from what was there before.
"""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from uuid import uuid4

from qpidha.broker.broker import Broker
from qpidha.cli.exits import BUG, NO, Failure
from qpidha.cli.journal_files import StoppedBroker
from qpidha.runtime.journal_disk import JournalDisk
from qpidha.store.frames import BATCH
from qpidha.store.journal import Journal
from qpidha.store.keeper import Keeper
from qpidha.store.log import Log
from qpidha.words.events import Event, JournalFailed, JournalWritten
from qpidha.words.settings import Settings

CLOSE_PATIENCE = 300.0
"""Seconds for the last sync."""


def compact(stopped: StoppedBroker) -> tuple[int, list[str]]:
    """Make a checkpoint; return up to which record, and what a start would have said."""
    folder = stopped.journal()
    # A broker that was alone never began an epoch; for it all that is on disk holds, as when it starts.
    alone = all(place.epoch == 0 for found in folder.files for place in found.frames if place.kind == BATCH)
    settings = Settings()
    events: SimpleQueue[Event] = SimpleQueue()
    disk = JournalDisk(str(stopped.journal_path), events.put)
    try:
        journal = Journal(disk, stopped.system_id, segment_size=settings.journal_segment_size, keep=0)
        log = Log(settings.log_memory, journal)
        broker = Broker(settings, None, lambda effect: None, lambda: str(uuid4()))
        broker.passive = not alone
        # What was read from a log belongs in it, whatever its level: a member of a cluster never wrote what is to be nowhere else.
        broker.records_durable_only = True
        keeper = Keeper(broker, log, journal, system_id=stopped.system_id, segment_size=settings.journal_segment_size)
        notes = keeper.recover(alone=alone)
        if log.last:
            tail = list(log.batches(log.safe + 1)) if log.safe < log.last else []
            log.last = log.safe  # so that what follows the checkpoint begins there
            keeper.checkpoint(log.safe)
            for batch in tail:
                # Not called synced: should the checkpoint never be whole, this copy is nothing to be missed.
                journal.append(batch, safe=log.safe, synced=0)
            _finish(keeper, log, lambda: journal.is_snapshotting, events)
            if keeper.has_given_up:
                raise Failure(
                    NO, f"there is no space for a checkpoint in {stopped.journal_path}; all is as it was", hint="make space there"
                )
    finally:
        written = disk.close(CLOSE_PATIENCE)
    if not written:
        raise Failure(
            BUG, f"{stopped.journal_path} could not be written: {disk.failure or 'the disk did not answer'}", hint="look at the disk"
        )
    return log.safe, [note.text for note in notes]


def _finish(keeper: Keeper, log: Log, unfinished: Callable[[], bool], events: SimpleQueue[Event]) -> None:
    while unfinished():
        keeper.turn(log.safe)
        while unfinished() and not keeper.is_busy:
            event = events.get()
            if isinstance(event, JournalWritten):
                log.answer(event.mark)
            elif isinstance(event, JournalFailed):
                raise Failure(BUG, f"the journal could not be written: {event.reason}", hint="look at the disk")
