"""Memory: keeps what a broker has in memory below its limit.

With more than 80 % of the limit in use the bodies of the largest queues are let go, down to 70 %:
they are on disk, and are read back when they are sent. With more than the limit, because nothing is
on disk or the disk is too slow, senders get no credit until there is no more than 70 %; consuming
goes on. What each message costs beside its body counts too, though as of some seconds ago; and so
does what waits for peers.

A message is let go when it can be read back: from the segment with its batch if it came after the
last checkpoint, else from that. While a checkpoint is written nothing is: what is pointed to a file
when the checkpoint has gone by would be lost with the file (the checkpointer lets go of what comes
then). Knows nothing of clusters: backups do the same. Source: Qpid `PagedQueue.cpp`; RabbitMQ's
`vm_memory_high_watermark`.
"""

from __future__ import annotations

from heapq import nlargest
from operator import itemgetter
from typing import TYPE_CHECKING

from qpidha.broker.credit import MEMORY_LIMIT
from qpidha.broker.queues.packing import Packing
from qpidha.model.duration import SECOND
from qpidha.model.effects import Announce
from qpidha.model.event_codes import MEMORY_FREE, MEMORY_HIGH
from qpidha.model.event_log import Withholding
from qpidha.store.weighing import PIECE, Weighing

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from qpidha.broker.broker import Broker
    from qpidha.broker.queues.queue import Queue
    from qpidha.store.log import Log
    from qpidha.store.write_ahead_log import PayloadRef, WriteAheadLog

HIGH, LOW = 80, 70
"""Percent of the limit: with more bodies are let go, or nothing comes; until no more is in use."""
LOG_SHARE = 8
"""One part in so many of the limit may be recent log that is also on disk."""
KEPT = 8
"""A queue keeps the first part in so many of its bodies: its consumers are next to get them."""
WORTH = 100
"""A queue that has no more than one part in so many of the limit is not gone through again."""
AT_ONCE = 2000
"""Messages that are looked at in one turn."""
LARGEST = 1000
"""Queues whose bodies are let go, one after the other, before all are looked at again."""
INTERVAL = 1 * SECOND
"""How long nothing is tried after there was nothing more to let go of."""
RESTING = 20 * SECOND
"""How long recent log is in memory at least, if there is room; it is on disk, too."""
SILENCE = 60 * SECOND
"""How often at most it is told that senders have to wait."""


class Memory:
    """What one broker has in memory, against its limit; 0 is no limit."""

    def __init__(
        self,
        limit: int,
        broker: Broker,
        log: Log,
        wal: WriteAheadLog | None,
        weighing: Weighing | None,
    ) -> None:
        self.limit = limit
        self._broker = broker
        self._use = broker.use
        self._log = log
        self._wal = wal
        self._weighing = weighing or Weighing(broker)
        self._is_weighed = weighing is not None
        """Whether somebody else takes the steps."""
        self._high, self._low = limit * HIGH // 100, limit * LOW // 100
        self._letting_go: Iterator[None] | None = None
        self._reached: dict[Queue, tuple[int, int]] = {}
        """How far queues were gone through, and bytes that are still to be kept of each."""
        self._next = 1
        self._came = log.last
        """The end of the log at the last look for what rests."""
        self._look_at = 0
        self._packing = Packing(broker.queues)
        self._wait_until = 0
        self._silent_until = 0
        self._is_told = False
        if limit:
            broker.credit.spare = max(limit - self._high, 1)
            broker.use.share_out(limit)

    @property
    def next_deadline(self) -> int:
        """When to tick; 0 for never."""
        return self._next if self.limit or self._wal is not None else 0

    @property
    def is_busy(self) -> bool:
        """Whether there is more to let go of, or to pack, in the next turn."""
        return self._letting_go is not None or self._packing.is_busy

    @property
    def used(self) -> int:
        """Bytes that are in use."""
        use = self._use
        return (
            use.bodies
            + use.transactions
            + use.unfinished
            + use.output
            + use.answers
            + self._log.memory
            + self._weighing.memory
        )

    def report(self) -> dict[str, int]:
        """Tell what is in use, and by what."""
        use = self._use
        return {
            "limit": self.limit,
            "used": self.used,
            "bodies": use.bodies,
            "messages": self._weighing.memory,
            "log": self._log.memory,
            "transactions": use.transactions,
            "unfinished": use.unfinished,
            "output": use.output + use.answers,
        }

    def tick(self, now: int) -> None:
        """Look at the queues, a piece each second, and now and then at the log: what came before
        the last look goes.
        """
        if now < self._next:
            return
        self._next = now + INTERVAL
        self._packing.tick(now)
        if self.limit and not self._is_weighed:
            self._weighing.step()
        if now >= self._look_at:
            self._look_at = now + RESTING
            self._log.rest(self._came)
            self._came = self._log.last
            if self._wal is not None:
                self._wal.rest()

    def turn(self, now: int) -> list[Announce]:
        """End of a turn: pack messages; let go of bodies, or withhold credit, where too much is in
        use. Give what the operator should know.
        """
        self._packing.turn()
        if not self.limit:
            return []
        used = self.used
        if used > self._least:
            # It trims itself when something comes, and now nothing may: senders wait.
            self._log.trim()
            used = self.used
        if used > self._least and self._letting_go is None and now >= self._wait_until:
            self._letting_go = self._let_go(now)
        if self._letting_go is not None:
            next(self._letting_go, None)
            used = self.used
        credit = self._broker.credit
        if MEMORY_LIMIT in credit.withheld:
            if used <= self._low:
                credit.withhold(MEMORY_LIMIT, "")
                return self._tell_end()
        elif used > self.limit:
            credit.withhold(MEMORY_LIMIT, self._reason(used))
            return self._tell(now)
        return []

    def _reason(self, used: int) -> str:
        by = sorted(self.report().items(), key=itemgetter(1), reverse=True)
        parts = [f"{name} {size / 1e6:.1f}" for name, size in by if name not in ("limit", "used")]
        return (
            f"{used / 1e6:.1f} MB are in use ({', '.join(parts[:3])}), memory-limit is "
            f"{self.limit / 1e6:.1f} MB"
        )

    def _tell(self, now: int) -> list[Announce]:
        if now < self._silent_until:
            return []
        self._silent_until = now + SILENCE
        self._is_told = True
        reason = self._broker.credit.withheld[MEMORY_LIMIT]
        text = f"senders get no credit: {reason}"
        if self._broker.passive:
            text = f"a backup has more than its limit: {reason}; give all brokers the same limit"
        return [
            Announce("warning", "broker", text, {}, Withholding(MEMORY_LIMIT, True), MEMORY_HIGH)
        ]

    def _tell_end(self) -> list[Announce]:
        if not self._is_told:
            return []
        self._is_told = False
        is_passive = self._broker.passive
        text = "a backup keeps to its limit again" if is_passive else "senders get credit again"
        text += f": {self.used / 1e6:.1f} MB are in use"
        return [
            Announce("notice", "broker", text, {}, Withholding(MEMORY_LIMIT, False), MEMORY_FREE)
        ]

    # Letting go.

    @property
    def _may_let_go(self) -> bool:
        """Whether what is on disk stays where it is, and all of the last snapshot is there."""
        wal = self._wal
        return wal is not None and not wal.is_snapshotting and self._log.snapshot_kept

    @property
    def _least(self) -> int:
        """With how many bytes more in use it is worth letting go. Senders that wait do so until it
        has gone as far as it can, however often it was cut short.
        """
        return self._low if MEMORY_LIMIT in self._broker.credit.withheld else self._high

    @property
    def _wanted(self) -> int:
        """How many bytes are still to be let go; 0 or less if none are."""
        return self.used - self._low if self._may_let_go else 0

    def _let_go(self, now: int) -> Iterator[None]:
        """Let go of the bodies of the largest queues, a part with each turn, until little enough is
        in use.
        """
        found = (yield from self._largest()) if self._may_let_go else []
        for size, queue in found:
            if self._wanted <= 0:
                break
            is_any = yield from self._let_go_of(queue, size)
            if not is_any and size > self.limit // WORTH:
                # Nothing new is there to be let go, so it is what was kept before.
                self._reached.pop(queue, None)
                yield from self._let_go_of(queue, size)
        self._letting_go = None
        self._reached = {queue: at for queue, at in self._reached.items() if not queue.deleted}
        if self.used > self._least:
            self._wait_until = now + INTERVAL

    def _let_go_of(self, queue: Queue, size: int) -> Generator[None, None, bool]:
        """Let go of bodies of a queue that has `size` bytes of them in memory; go on where that
        ended the last time. Tell whether there were any.
        """
        before, is_over = queue.paged_out, False
        cursor, keep = self._reached.get(queue, (0, size // KEPT))
        while not is_over and not queue.deleted and (wanted := self._wanted) > 0:
            place = self._place_of(queue)
            cursor, keep, is_over = queue.page_out_some(
                cursor, keep, count=AT_ONCE, size=wanted, place=place
            )
            self._reached[queue] = cursor, keep
            yield
        return queue.paged_out > before

    def _largest(self) -> Generator[None, None, list[tuple[int, Queue]]]:
        """Find the queues with most bytes in memory that can be on disk."""
        found: list[tuple[int, Queue]] = []
        queues = list(self._broker.queues.values())
        for start in range(0, len(queues), PIECE):
            if start:
                yield
            found += [
                (queue.resident, queue)
                for queue in queues[start : start + PIECE]
                if queue.logged and queue.resident
            ]
            found = nlargest(LARGEST, found, key=itemgetter(0))
        return found

    def _place_of(self, queue: Queue) -> Callable[[int], tuple[PayloadRef, int] | None]:
        """Return what tells where the messages of a queue can be read."""
        wal, written = self._wal, self._log.written_to
        assert wal is not None

        def place(sequence: int) -> tuple[PayloadRef, int] | None:
            found = wal.place(queue.uid, sequence) if sequence <= written else None
            return found and (found[0], min(found[1], written))

        return place
