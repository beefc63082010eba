"""A backup with a write-ahead log: whatever its primary, its disk and the power do, a start gives a
moment of the log, and all it confirmed.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from qpidha.ha.wire import Chunk, Committed, Logged, SnapshotEnd
from tests.store.durable import a_message
from tests.store.follower import Follower, Source, state_of


class Cluster:
    """Primaries that follow each other, and one backup."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.options: dict[str, Any] = {
            "queue_memory": rng.choice([0, 1, 100]),
            "log_memory": rng.choice([0, 3000, 1 << 20]),
            "log_disk": rng.choice([0, 9000, 1 << 20]),
        }
        self.sources = {1: Source([], 1)}
        self.source = self.sources[1]
        self.follower = Follower(seed=seed, **self.options)
        self.follower.follow(self.source)
        self.is_linked = True

    def step(self) -> None:
        rng, follower = self.rng, self.follower
        roll = rng.random()
        if roll < 0.35:
            self.source.work(rng)
        elif roll < 0.7:
            for _ in range(rng.randint(1, 6)):
                if self.is_linked:
                    follower.hear()
        elif roll < 0.78:
            log = self.source.log
            log.committed = max(log.committed, rng.randint(log.committed, log.last))
            if self.is_linked and follower.backup.began and rng.random() < 0.5:
                follower.receive(Committed(log.committed))
        elif roll < 0.84 and not follower.wal.is_snapshotting:
            follower.checkpointer.checkpoint(follower.backup.applied)
        elif roll < 0.88:
            self.relink()
        elif roll < 0.92:
            self.change_epoch()
        elif roll < 0.94:
            self.source.log.limit = rng.choice(
                [0, 1 << 40]
            )  # what it keeps no more must come as a snapshot
        elif roll < 0.98:
            self.crash()
            return
        self.follower.turn(pumps=rng.choice([0, 1, 2, 5, 1000]))
        self.look()

    def relink(self) -> None:
        self.follower.backup.primary = None
        if self.rng.random() < 0.8:
            self.follower.follow(self.source)
            self.is_linked = True
        else:
            self.is_linked = False

    def change_epoch(self) -> None:
        """Another broker is promoted; it has all that is committed, and perhaps some more."""
        ends = [
            batch.last for batch in self.source.batches if batch.last >= self.source.log.committed
        ]
        end = self.rng.choice(ends)
        epoch = max(self.sources) + 1
        committed = self.source.log.committed
        self.source = self.sources[epoch] = Source(
            [batch for batch in self.source.batches if batch.last <= end], epoch
        )
        self.source.log.committed = committed
        self.is_linked = False
        self.follower.backup.primary = None
        self.relink()

    def crash(self) -> None:
        follower = self.follower
        backup, wal = follower.backup, follower.wal
        # What a primary asks for before it counts on what this backup has.
        is_whole = (
            follower.log.snapshot_kept
            and not wal.is_receiving
            and backup.snapshot_through <= follower.log.durable_to
        )
        kept = (follower.log.epoch, follower.log.durable_to) if is_whole else None
        follower.disk.crash(self.rng.choice(["keep", "drop", "lose", "tear", "scramble"]))
        self.follower = follower = Follower(
            follower.files, seed=self.rng.randrange(1 << 30), **self.options
        )
        follower.source = self.source
        self.is_linked = False
        self.look()
        if kept is not None:
            epoch, end = kept
            log = follower.log
            batches = self.sources[epoch].batches if epoch else []
            # What is only delivery counts is confirmed and not synced.
            sequence = max(
                (batch.last for batch in batches if batch.durable and batch.last <= end), default=0
            )
            assert log.last >= sequence, "what was confirmed is missing"
            assert not sequence or log.epoch_of(sequence) == self.sources[epoch].log.epoch_of(
                sequence
            )
            assert follower.backup.has_whole_model, "a model that was whole is not any more"
        if self.rng.random() < 0.8:
            self.relink()

    def look(self) -> None:
        """The model is that of a moment of the log, unless it is known not to be; and what is kept
        is the primary's log.
        """
        follower, backup, log = self.follower, self.follower.backup, self.follower.log
        state = state_of(follower.broker)
        assert backup.applied <= log.last
        if not log.last or not log.epoch:
            return
        source = self.sources[log.epoch]
        if backup.has_whole_model and backup.snapshot_through <= backup.applied:
            assert state == source.state_at(backup.applied)
        mine = [(batch.epoch, batch.first, batch.last, batch.data) for batch in backup.tail]
        theirs = [
            (b.epoch, b.first, b.last, b.data)
            for b in source.batches
            if backup.applied < b.first and b.last <= log.last
        ]
        assert mine == theirs
        if (
            backup.has_whole_model
            and log.start <= log.last
            and self.rng.random() < 0.2
            and not follower.disk._queue
        ):
            on_disk = [(b.epoch, b.first, b.last, b.data) for b in log.batches(log.start)]
            assert on_disk == [
                (b.epoch, b.first, b.last, b.data)
                for b in source.batches
                if log.start <= b.first and b.last <= log.last
            ]


@pytest.mark.parametrize("seed", [*range(250), 695, 1017])
def test_a_backup_has_a_moment_of_its_primarys_log_whatever_happens(seed: int) -> None:
    cluster = Cluster(seed)
    for _ in range(80):
        cluster.step()


def in_a_snapshot(messages: int, **options: object) -> tuple[Follower, Source]:
    """A backup that has the objects of a snapshot, and none of the messages on its durable
    queue q.
    """
    source = Source([], 1)
    source.broker.declare_queue("q", durable=True)
    for number in range(messages):
        source.broker.publish("", "q", a_message(b"%d" % number), headers=dict)
    source.seal()
    source.log.limit = 0
    source.broker.declare_queue("other", durable=True)
    source.seal()
    source.log.committed = source.log.last
    follower = Follower(**options)  # type: ignore[arg-type]
    follower.follow(source)
    while not follower.has_objects:
        follower.hear()
    return follower, source


def test_a_snapshot_leaves_the_memory_though_what_came_beside_it_is_not_committed() -> None:
    follower, source = in_a_snapshot(200, queue_memory=50)
    source.broker.publish("", "q", a_message(b"live"), headers=dict)
    source.seal()
    follower.receive(Logged(source.log.committed, source.batches[-1]))
    follower.batch += 1
    while follower.chunks is not None:
        follower.hear()
        follower.turn()
    follower.turn()
    assert follower.backup.applied < follower.log.last
    assert follower.broker.queue("q").paged_out > 0
    follower.checkpointer.checkpoint(follower.backup.applied)
    while follower.wal.is_snapshotting:
        follower.turn()
    assert state_of(follower.broker) == source.state_at(follower.backup.applied)


def with_a_snapshot_that_shows_more() -> tuple[Follower, Source]:
    """A backup whose snapshot shows effects of records that are not committed: delivery counts,
    which are synced for nobody else.
    """
    follower, source = in_a_snapshot(50)
    queue = source.broker.queue("q")
    for message in queue.available()[:5]:
        queue.acquire(message)
        queue.requeue(message, failed=True)
    source.seal()
    while follower.chunks is not None:
        number, data = next(follower.chunks, (0, b""))
        if not number:
            break
        follower.receive(Chunk(number, data))
    follower.receive(SnapshotEnd(9, source.log.end))
    follower.turn()
    follower.receive(Logged(source.log.committed, source.batches[-1]))
    follower.turn()
    assert follower.backup.applied < follower.backup.snapshot_through == follower.log.durable_to
    return follower, source


def test_a_checkpoint_of_our_own_does_not_forget_what_a_snapshot_showed() -> None:
    follower, _ = with_a_snapshot_that_shows_more()
    shown = follower.backup.snapshot_through
    follower.checkpointer.checkpoint(follower.backup.applied)
    while follower.wal.is_snapshotting:
        follower.turn()
    follower.disk.crash("keep")
    assert Follower(follower.files).backup.snapshot_through == shown


def test_a_backup_that_confirmed_all_that_its_snapshot_shows_is_whole_after_a_power_cut() -> None:
    follower, _ = with_a_snapshot_that_shows_more()
    follower.disk.crash("drop")
    again = Follower(follower.files)
    assert again.backup.has_whole_model
    assert len(again.broker.queue("q").messages) == 50
