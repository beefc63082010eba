"""Replicate levels that change while a queue is in use: what the log says at each moment, what
others have of it, and that clients go on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qpidha.broker.broker import Broker
from qpidha.broker.policy import explained, policy_asked_for
from qpidha.broker.queues import level as walks
from qpidha.broker.queues import recall
from qpidha.broker.queues.level import OutOfLog
from qpidha.broker.queues.queue import Queue
from qpidha.model.errors import InvalidArgument
from qpidha.model.message import Message
from qpidha.model.message_view import build
from qpidha.model.records import Batch, EpochStarted
from qpidha.store.log import Log
from qpidha.store.recovery import fold, snapshot_messages, snapshot_objects
from tests.broker.parts import Reels, Tape, a_broker, a_taker, contents, picture, remembered, send

LEVELS = ("none", "configuration", "all")
RECORDED_A_TURN, SPARE = 20, 50


@pytest.fixture(autouse=True, scope="module")
def small_steps() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(walks, "RECORDED_A_TURN", RECORDED_A_TURN)
        patch.setattr(walks, "SPARE", SPARE)
        yield


class Cluster:
    """A primary with its log, and brokers that follow it."""

    def __init__(
        self, ha_replicate: str = "none", *, batches: list[Batch] | None = None, **settings: Any
    ) -> None:
        self.log = Log(1 << 40)
        self.broker = a_broker(None, ha_replicate=ha_replicate, **settings)
        self.batches: list[Batch] = []
        for batch in batches or []:
            self.log.receive(batch)
            self.batches.append(batch)
            fold(self.broker, batch.data)
        self.broker.passive = bool(batches)
        self.log.start_epoch(self.log.epoch + 1)
        self.log.append(EpochStarted("x", ("x",)))
        self.broker.log_writer = self.log
        self.broker.promoted(1)
        self.now = 1
        self.snapshots: list[tuple[list[bytes], int]] = []

    def turn(self, *, commits: bool = True) -> None:
        """One turn; what it appended is committed before the next one, or not yet."""
        self.now += 2_000_000_000
        self.broker.tick(self.now)
        self.broker.dispatch(self.now)
        self.broker.committed = self.log.committed
        self.broker.go_on_walking(self.log.committed)
        last = self.log.last
        self.log.seal()
        self.batches += self.log.batches(last + 1)
        if commits:
            self.log.committed = self.log.last

    def settle(self) -> None:
        """Turns until nothing is left to do."""
        for _ in range(200):
            if not (self.broker.to_follow or self.broker.levels.changing):
                self.turn()
                return
            self.turn()
        raise AssertionError("it does not come to an end")

    def level(self, level: str, name: str = "q") -> None:
        """Set a policy that says a level, or clear it."""
        if level:
            wanted = policy_asked_for("p", f"^{name}$", {"replicate": level})
            self.broker.set_policy(wanted)
        else:
            self.broker.clear_policy("p")

    def follower(self) -> Broker:
        """A broker that followed from the beginning."""
        other = a_broker(None)
        other.passive = True
        for batch in self.batches:
            fold(other, batch.data)
        return other

    def newcomer(self) -> Broker:
        """A broker that gets a snapshot now, and nothing after it."""
        other = a_broker(None)
        other.passive = True
        for part in (
            *snapshot_objects(self.broker),
            *snapshot_messages(self.broker, self.log.last),
        ):
            fold(other, part, is_snapshot=True)
        return other

    def successor(self, **settings: Any) -> Cluster:
        """The next primary, which has all that is committed."""
        batches = [batch for batch in self.batches if batch.last <= self.log.committed]
        return Cluster(batches=batches, **settings)

    def check(self) -> None:
        """Every broker has what the log says."""
        others = self.follower(), self.newcomer()
        for other in others:
            assert picture(other) == picture(self.broker)
            for name, queue in other.queues.items():
                here = self.broker.queues[name]
                assert queue.logged == here.logged or not here.messages
                assert queue.spec == here.spec
                if here.logged:
                    assert remembered(queue.window) == remembered(here.window)
        assert {q.name for q in others[0].queues.values()} == {
            q.name for q in self.broker.queues.values() if q.uid > 0
        }


def fill(cluster: Cluster, count: int, name: str = "q") -> list[str]:
    bodies = [f"{number}" for number in range(count)]
    send(cluster.broker, name, *bodies)
    return bodies


@pytest.mark.parametrize("durable", [False, True])
def test_row_8_a_queue_becomes_all_with_its_messages(durable: bool) -> None:
    cluster = Cluster()
    cluster.broker.declare_queue("q", durable=durable)
    cluster.broker.bind("amq.topic", "q", "a.*")
    bodies = fill(cluster, 10)
    cluster.level("all")
    cluster.settle()
    cluster.check()
    queue = cluster.follower().queues["q"]
    assert (queue.options.replicate, contents(cluster.follower(), "q")) == ("all", bodies)
    assert ("q", "a.*") in [
        (bound.name, key) for bound, key, _ in cluster.follower().exchanges["amq.topic"].bindings()
    ]
    assert send(cluster.broker, "q", "more")[0] > 0, "it is recorded"


def test_row_8_no_broker_counts_as_having_it_before_all_its_messages_are_there() -> None:
    cluster = Cluster()
    cluster.broker.declare_queue("q")
    bodies = fill(cluster, 2 * RECORDED_A_TURN + 10)
    cluster.level("all")
    seen = []
    while cluster.broker.to_follow or cluster.broker.levels.changing:
        cluster.turn()
        cluster.check()
        other = cluster.follower()
        if "q" in other.queues:
            queue = other.queues["q"]
            seen.append((queue.options.replicate, len(queue.messages)))
            if queue.options.replicate == "all":
                assert contents(other, "q") == bodies
    counts = [count for level, count in seen if level == "configuration"]
    assert {0, RECORDED_A_TURN, 2 * RECORDED_A_TURN} <= set(counts)


def test_row_8_clients_go_on_while_it_changes() -> None:
    cluster = Cluster()
    broker = cluster.broker
    queue = broker.declare_queue("q")[0]
    bodies = fill(cluster, 3 * RECORDED_A_TURN)
    taker = a_taker(queue, credit=1 << 30)
    broker.dispatch(1)
    held: list[Message] = list(taker.got)
    cluster.level("all")
    number = 0
    while broker.to_follow or broker.levels.changing:
        send(broker, "q", f"new {number}")
        queue.dequeue(held.pop(0))  # The oldest, which are in the log.
        queue.dequeue(held.pop())  # The last, which may not be.
        queue.requeue(held[-1], failed=True)
        number += 1
        cluster.turn()
        cluster.check()
    expected = [f"{body}" for body in bodies]
    assert contents(broker, "q") == [
        message.body().decode()
        for message in sorted(queue.messages.values(), key=lambda message: message.sequence)
    ]
    assert contents(broker, "q")[-number:] == [f"new {each}" for each in range(number)]
    assert contents(broker, "q")[0] == expected[number]
    other = cluster.follower().queues["q"]
    assert [m.delivery_count for m in other.messages_after(0, 1 << 60)] == [
        m.delivery_count for m in queue.messages_after(0, 1 << 60)
    ]
    assert any(m.delivery_count for m in other.messages.values())


def test_numbers_of_a_queue_are_never_taken_for_places_in_the_log() -> None:
    cluster = Cluster()
    broker = cluster.broker
    queue = broker.declare_queue("q")[0]
    broker.declare_queue("other", arguments={"qpid.replicate": "all"})
    fill(cluster, 50)
    waiting = [sequence for sequence in send(broker, "other", "a", "b", "c") if sequence]
    taker = a_taker(queue, credit=50)
    cluster.level("all")
    cluster.turn(commits=False)
    cluster.turn(commits=False)
    assert not queue.logged, "it waits until the numbers are committed"
    for message in taker.got:
        queue.dequeue(message)
    assert not set(waiting) & set(cluster.log.consumed)
    cluster.log.committed = cluster.log.last
    cluster.settle()
    assert cluster.log.last > SPARE
    assert contents(cluster.follower(), "other") == ["a", "b", "c"]
    cluster.check()


def test_more_than_the_numbers_that_were_left_out() -> None:
    cluster = Cluster()
    cluster.broker.declare_queue("q")
    cluster.level("all")
    cluster.turn(commits=False)
    bodies = fill(cluster, SPARE + 5)
    cluster.settle()
    assert contents(cluster.follower(), "q") == bodies
    cluster.check()


@pytest.mark.parametrize("level", ["none", "configuration"])
def test_row_7_what_is_no_longer_replicated_stays_on_the_primary(level: str) -> None:
    cluster = Cluster()
    cluster.broker.declare_queue("q")
    cluster.broker.bind("amq.fanout", "q")
    cluster.level("all")
    cluster.settle()
    bodies = fill(cluster, 5)
    cluster.turn()
    cluster.level(level)
    cluster.settle()
    cluster.check()
    queue = cluster.broker.queues["q"]
    assert (queue.options.replicate, contents(cluster.broker, "q")) == (level, bodies)
    other = cluster.follower().queues.get("q")
    assert (other is None) == (level == "none")
    assert other is None or not other.messages
    assert send(cluster.broker, "q", "more") == [0], "nothing of it is recorded"
    assert cluster.broker.publish("amq.fanout", "", b"bound", headers=dict).queues == 1
    assert contents(cluster.broker, "q") == [*bodies, "more", "bound"]


def test_nothing_is_settled_before_others_are_known_to_forget() -> None:
    cluster = Cluster()
    broker = cluster.broker
    queue = broker.declare_queue("q")[0]
    cluster.level("all")
    cluster.settle()
    send(broker, "q", "a", "b", "c")
    cluster.turn()
    cluster.level("none")
    cluster.turn(commits=False)
    cluster.turn(commits=False)
    assert queue.options.replicate == "none"
    last = cluster.log.last
    taker = a_taker(queue, credit=3)
    broker.dispatch(1)
    assert queue.dequeue(taker.got[0]) == last
    assert queue.reject(taker.got[1]) == last
    assert broker.purge("q").sequence in (0, last)
    assert send(broker, "q", "d") == [last]
    broker.bind("amq.fanout", "q")
    broker.declare_queue("other")
    broker.bind("amq.fanout", "other")
    assert broker.publish("amq.fanout", "", b"e", headers=dict).sequence == last
    assert cluster.successor().broker.queues["q"].options.replicate == "all"
    cluster.log.committed = last
    cluster.settle()
    assert send(broker, "q", "f") == [0]


def test_a_number_is_never_given_twice_on_one_queue() -> None:
    cluster = Cluster()
    queue = cluster.broker.declare_queue("q")[0]
    numbers: list[int] = []
    for level in ("none", "all", "none", "all", "configuration", "all", "none"):
        cluster.level(level)
        cluster.settle()
        send(cluster.broker, "q", "a")
        numbers.append(queue.ordering.last)
        cluster.broker.purge("q")
        cluster.turn()
    assert sorted(set(numbers)) == numbers


def test_row_7_a_policy_that_is_cleared_leaves_the_level_of_the_declaration() -> None:
    cluster = Cluster(ha_replicate="configuration")
    queue = cluster.broker.declare_queue("q")[0]
    cluster.level("all")
    cluster.settle()
    assert queue.options.replicate == "all"
    cluster.level("")
    cluster.settle()
    assert queue.options.replicate == "configuration"
    cluster.check()


def test_what_a_declaration_asks_for_no_policy_changes() -> None:
    cluster = Cluster()
    queue = cluster.broker.declare_queue("q", arguments={"qpid.replicate": "configuration"})[0]
    mine = cluster.broker.declare_queue("q2", owner=object(), exclusive=True, auto_delete=True)[0]
    cluster.level("all", name="q2?")
    cluster.settle()
    assert (queue.options.replicate, mine.options.replicate) == ("configuration", "none")
    told = explained(cluster.broker.policies, queue.options, cluster.broker.followed[queue])
    assert [(row["value"], row["from"]) for row in told["settings"]] == [
        ("configuration", "argument")
    ]


def test_a_policy_says_no_level_of_queues_of_a_level() -> None:
    with pytest.raises(InvalidArgument, match="says another thing"):
        policy_asked_for("p", ".*", {"replicate": "none"}, apply_to="replicated_queues")


def test_policies_for_replicated_queues_follow_the_level() -> None:
    cluster = Cluster()
    queue = cluster.broker.declare_queue("q")[0]
    wanted = policy_asked_for(
        "l", ".*", {"max-length": 7}, apply_to="replicated_queues", priority=1
    )
    layer = policy_asked_for("p", ".*", {"replicate": "all"}, is_layer=True)
    cluster.broker.set_policy(wanted)
    cluster.broker.set_policy(layer)
    cluster.settle()
    assert queue.max_count == 7
    cluster.check()
    cluster.broker.clear_policy("p")
    cluster.settle()
    assert queue.max_count > 7


def test_keys_are_remembered_by_all_when_a_queue_becomes_all() -> None:
    cluster = Cluster()
    queue = cluster.broker.declare_queue("q", arguments={"qpidha.dedup": "message-id"})[0]
    fill(cluster, 3)
    a_taker(queue, credit=1, settles=True)
    cluster.turn()
    cluster.level("all")
    cluster.settle()
    cluster.check()


def test_what_does_not_expire_and_is_not_due_yet_stays_so() -> None:
    cluster = Cluster()
    broker = cluster.broker
    queue = broker.declare_queue("q")[0]
    end = 1 << 62
    broker.publish("", "q", b"a", headers=dict, expires=end)
    broker.publish("", "q", b"b", headers=dict, due=end)
    cluster.level("all")
    cluster.settle()
    cluster.check()
    other = cluster.follower().queues["q"]
    assert list(other.delayed.values()) == list(queue.delayed.values()) == [end]
    assert [message.expires for message in other.messages.values()] == [end, 0]


@pytest.mark.parametrize("turns", range(2, 9))
def test_a_failover_in_the_middle_leaves_what_was_recorded_and_goes_on(turns: int) -> None:
    cluster = Cluster()
    cluster.broker.declare_queue("q", arguments={"qpid.max_size": 0})
    bodies = fill(cluster, 3 * RECORDED_A_TURN)
    cluster.level("configuration")
    cluster.settle()
    cluster.level("all")
    for _ in range(turns):
        cluster.turn()
    new = [str(number) for number in range(5)] if cluster.broker.queues["q"].logged else []
    assert all(send(cluster.broker, "q", *new)) or not new
    cluster.turn()
    before = contents(cluster.follower(), "q")
    former = cluster.broker
    former.log_writer, former.passive = None, True
    former.abandon_walks()
    assert picture(former) == picture(cluster.follower()), "both are what the log says"
    after = cluster.successor()
    after.settle()
    for _ in range(5):
        after.turn()
    after.settle()
    queue = after.broker.queues["q"]
    assert (queue.options.replicate, contents(after.broker, "q")) == ("all", before)
    assert before == [*bodies[: len(before) - len(new)], *new]
    after.check()


def filled() -> tuple[Cluster, Queue, list[str]]:
    """Return a cluster with a queue that is replicated, and the bodies of its messages."""
    cluster = Cluster()
    queue = cluster.broker.declare_queue("q")[0]
    cluster.level("all")
    cluster.settle()
    bodies = fill(cluster, 20)
    cluster.turn()
    return cluster, queue, bodies


def test_what_is_on_disk_comes_back_before_the_log_forgets_it() -> None:
    cluster, queue, bodies = filled()

    class Disk:
        def read(self, sequence: int) -> bytes:
            return bodies[list(queue.messages).index(sequence)].encode()

    numbers = queue.ordered()
    queue.page_out(numbers[0], numbers[9], Disk())
    assert queue.paged_out
    cluster.level("none")
    cluster.settle()
    assert not queue.paged_out
    assert contents(cluster.broker, "q") == bodies
    use = cluster.broker.use.bodies
    assert use == queue.bytes


@pytest.mark.parametrize("together", [True, False])
def test_a_queue_learns_its_keys_on_its_way_into_the_log_and_out_of_it(
    monkeypatch: pytest.MonkeyPatch, together: bool
) -> None:
    monkeypatch.setattr(recall, "READ_A_TURN", 7)
    cluster = Cluster()
    broker = cluster.broker
    queue = broker.declare_queue("q")[0]
    if not together:
        cluster.level("all")
        cluster.settle()
    keys = [f"{number}" for number in range(3 * RECORDED_A_TURN)]
    for key in keys:
        queue.enqueue(build("", properties={"message_id": key}))
    cluster.turn()

    def come_to_end() -> None:
        while broker.to_follow or broker.walks:
            cluster.turn()
        cluster.turn()
        assert [key for key, _ in remembered(queue.window)] == [f"s:{key}" for key in keys]
        cluster.check()

    broker.set_policy(policy_asked_for("p", "q", {"replicate": "all", "dedup": "message-id"}))
    come_to_end()
    assert len(queue.window or ()) == len(cluster.follower().queues["q"].window or ())
    broker.set_policy(policy_asked_for("p", "q", {"replicate": "none", "dedup": "message-id"}))
    come_to_end()


def test_what_came_back_from_the_disk_stays_until_the_log_forgets_it() -> None:
    cluster, queue, bodies = filled()
    walk = OutOfLog(queue, lambda: 0)
    disk = Reels(Tape())
    numbers = queue.ordered()
    queue.reconfigure(replace(queue.spec, limits=replace(queue.spec.limits, memory=1)))
    assert queue.page_out(numbers[0], numbers[-1], disk) == 0
    assert queue.page_out_some(
        0, 0, count=99, size=1 << 20, place=lambda sequence: (disk, numbers[-1])
    ) == (0, 0, True)
    assert not queue.paged_out and contents(cluster.broker, "q") == bodies
    walk.abandon()
    assert queue.page_out(numbers[0], numbers[-1], disk) > 0
    queue.stay_in_memory(True, 1)
    queue.retire()
    queue.revive()
    assert not queue.stays


def test_what_had_its_number_before_is_not_looked_for_in_the_log() -> None:
    cluster = Cluster()
    queue = cluster.broker.declare_queue("q")[0]
    fill(cluster, 20)
    cluster.level("all")
    cluster.settle()
    send(cluster.broker, "q", "new")

    class Nothing:
        def read(self, sequence: int) -> bytes:
            raise AssertionError

    assert queue.page_out(1, cluster.log.end, Nothing()) == len("new")
    assert queue.page_out_some(0, 0, count=100, size=100, place=lambda sequence: None) == (
        queue.ordering.last,
        0,
        True,
    )
    for other in (cluster.follower(), cluster.newcomer()):
        assert other.queues["q"].own_numbers == queue.own_numbers > 20


def test_more_on_disk_than_may_come_back_waits_and_says_so() -> None:
    cluster = Cluster(queue_memory=10)
    queue = cluster.broker.declare_queue("q")[0]
    cluster.level("all")
    cluster.settle()
    send(cluster.broker, "q", "x" * 20)

    class Disk:
        def read(self, sequence: int) -> bytes:
            return b"x" * 20

    queue.page_out(0, cluster.log.end, Disk())
    cluster.level("none")
    cluster.settle()
    assert queue.options.replicate == "all"
    assert "20 bytes" in cluster.broker.levels.waiting[queue]
    cluster.broker.purge("q")
    cluster.turn()
    cluster.settle()
    assert (queue.options.replicate, cluster.broker.levels.waiting) == ("none", {})


def test_what_is_half_way_into_the_log_comes_to_its_end_however_much_is_on_disk() -> None:
    cluster = Cluster(queue_memory=10)
    cluster.broker.declare_queue("q", arguments={"qpid.max_size": 0})
    fill(cluster, 3 * RECORDED_A_TURN)
    cluster.level("configuration")
    cluster.settle()
    cluster.level("all")
    while not cluster.broker.queues["q"].logged:
        cluster.turn()
    send(cluster.broker, "q", "x" * 20)
    cluster.level("configuration")
    cluster.turn()
    after = cluster.successor(queue_memory=10)
    queue = after.broker.queues["q"]

    class Disk:
        def read(self, sequence: int) -> bytes:
            return b"x" * 20

    queue.page_out(0, after.log.end, Disk())
    assert queue.paged_out > 10
    after.turn()
    after.settle()
    assert queue.options.replicate == "all"
    assert f"{queue.paged_out} bytes" in after.broker.levels.waiting[queue]


def test_a_full_disk_is_waited_for() -> None:
    cluster = Cluster()
    broker = cluster.broker
    queue = broker.declare_queue("q")[0]
    bodies = fill(cluster, 3 * RECORDED_A_TURN)
    cluster.level("all")
    for _ in range(3):
        cluster.turn()
    broker.refuse_publishing = "the disk is full"
    for _ in range(3):
        cluster.turn()
    assert queue.options.replicate == "configuration"
    assert not broker.may_walk(1 << 60), "nobody turns in vain"
    broker.refuse_publishing = ""
    cluster.settle()
    assert contents(cluster.follower(), "q") == bodies
    cluster.check()


def test_a_queue_that_is_deleted_in_the_middle_is_gone() -> None:
    cluster = Cluster()
    cluster.broker.declare_queue("q")
    fill(cluster, RECORDED_A_TURN + 5)
    cluster.level("all")
    for _ in range(3):
        cluster.turn()
    cluster.broker.delete_queue("q")
    cluster.settle()
    cluster.check()
    assert not cluster.broker.queues


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("level"), st.sampled_from(["", *LEVELS])),
        st.tuples(st.just("send"), st.integers(1, 5)),
        st.tuples(st.just("take"), st.integers(1, 4)),
        st.tuples(st.just("fail"), st.integers(1, 2)),
        st.tuples(st.just("turn"), st.booleans()),
        st.tuples(st.just("fail over"), st.none()),
    ),
    max_size=25,
)


@given(steps=STEPS, arguments=st.sampled_from([{}, {"x-max-priority": 5}, {"x-max-length": 6}]))
def test_row_9_whatever_happens_every_broker_has_the_same(
    steps: list[tuple[str, Any]], arguments: dict[str, Any]
) -> None:
    cluster = Cluster()
    cluster.broker.declare_queue("q", arguments=arguments)
    number, last = 0, ""
    for what, value in steps:
        queue = cluster.broker.queues.get("q")
        if what == "turn":
            cluster.turn(commits=value)
        elif what == "fail over":
            cluster.log.committed = cluster.log.last
            cluster = cluster.successor()
            cluster.turn()
        elif what == "level":
            if value or cluster.broker.policies.get("p") is not None:
                cluster.level(value)
                last = value
        elif queue is None:
            continue
        elif what == "send":
            send(cluster.broker, "q", *(f"{number + each}" for each in range(value)))
            number += value
        else:
            for message in queue.available()[:value]:
                queue.acquire(message)
                if what == "take":
                    queue.dequeue(message)
                else:
                    queue.requeue(message, failed=True)
        if what != "turn":
            cluster.turn()
        cluster.check()
    cluster.log.committed = cluster.log.last
    cluster.turn()
    cluster.settle()
    cluster.turn()
    cluster.settle()
    cluster.check()
    queue = cluster.broker.queues.get("q")
    assert queue is None or queue.options.replicate == (last or queue.options.fallback)
