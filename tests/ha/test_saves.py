"""What follows from a promise, or from a set, is told when the state file has it; how a broker is,
at once.
"""

from __future__ import annotations

import pytest

from qpidha.ha import peers
from qpidha.ha.explanation import explain
from qpidha.ha.peers import ATTEMPTS, WRITING
from qpidha.ha.saves import Saves
from qpidha.ha.wire import Answer, Ask, Confirm, Message, Status, decode
from qpidha.model.broker_states import BrokerStatus
from qpidha.model.errors import QpidHaError
from tests.ha.cluster_world import SECOND, Machine, World


class Wire:
    """Everything that brokers said from some time on, and who said it."""

    def __init__(self, world: World) -> None:
        self.said: list[tuple[int, Message]] = []
        carry = world.carry

        def hear(sender: Machine, connection_id: int, data: bytes) -> None:
            self.said.append((sender.index, decode(data)))
            carry(sender, connection_id, data)

        world.carry = hear  # type: ignore[method-assign]

    def of(self, index: int, kind: type[Message]) -> list[Message]:
        return [said for sender, said in self.said if sender == index and type(said) is kind]

    def asked(self, index: int) -> set[int]:
        """Return the epochs for which a broker asked."""
        return {ask.epoch for ask in self.of(index, Ask) if isinstance(ask, Ask) and ask.epoch}


def started() -> tuple[World, Wire]:
    """Return a cluster with 0 as its primary."""
    world = World(3, safety="strict")
    world.machines[0].promote()
    world.run(0.5)
    return world, Wire(world)


def let_write(world: World, *indexes: int) -> None:
    for index in indexes:
        world.machines[index].state_hangs = False
    world.run(1)


# -- the queue of what waits ----------------------------------------------------------------------


def test_what_waits_is_done_in_its_order_when_the_last_save_before_it_is_over() -> None:
    saves, done = Saves(), list[str]()
    saves.then(lambda: done.append("at once"))
    assert done == ["at once"] and saves.is_idle
    first = saves.begin()
    saves.then(lambda: done.append("first"))
    second = saves.begin()
    saves.then(lambda: done.append("second"))
    saves.over(first)
    assert done == ["at once", "first"] and not saves.is_idle
    saves.then(lambda: done.append("third"))
    saves.over(second)
    assert done == ["at once", "first", "second", "third"] and saves.is_idle


def test_a_save_is_over_with_a_later_one() -> None:
    saves, done = Saves(), list[str]()
    saves.begin()
    saves.then(lambda: done.append("first"))
    saves.over(saves.begin())
    assert done == ["first"] and saves.is_idle


def test_what_is_done_then_may_ask_for_more() -> None:
    saves, done = Saves(), list[str]()

    def go_on() -> None:
        done.append("went on")
        saves.then(lambda: done.append("behind all"))
        later.append(saves.begin())
        saves.then(lambda: done.append("after the next save"))

    later: list[int] = []
    first = saves.begin()
    saves.then(go_on)
    saves.then(lambda: done.append("second"))
    saves.over(first)
    assert done == ["went on", "second", "behind all"]
    saves.over(later[0])
    assert done[3:] == ["after the next save"]


# -- who waits ------------------------------------------------------------------------------------


def test_a_candidate_asks_when_its_own_promise_is_on_disk() -> None:
    world, wire = started()
    world.kill(0)
    candidate = world.machines[1]
    candidate.state_hangs = True
    replies = candidate.promote()
    world.run(5)
    assert wire.asked(1) == set() and candidate.cluster.promises.promised == 2 and not replies
    assert wire.of(1, Ask), "it asks how the others are at once"
    let_write(world, 1)
    assert replies == [None] and candidate.state is BrokerStatus.ACTIVE


def test_a_promise_is_answered_when_it_is_on_disk_and_waited_for_so_long() -> None:
    world, wire = started()
    world.kill(0)
    world.machines[2].state_hangs = True
    replies = world.machines[1].promote()
    world.run(5)
    answers = [answer for answer in wire.of(2, Answer) if isinstance(answer, Answer)]
    assert len(answers) == 1, "how it is, and not that it promises"
    statuses = [status for status in wire.of(2, Status) if isinstance(status, Status)]
    assert statuses[-1].promised == 2 and not replies
    let_write(world, 2)
    assert replies == [None] and world.machines[1].log.epoch == 2


def test_a_refusal_waits_for_no_disk() -> None:
    world, wire = started()
    asked = world.machines[2]
    asked.state_hangs = True
    asked.cluster.promises.promise_self(5)
    (link,) = [link for link, peer in asked.cluster.inbound.items() if peer.system_id == "1-broker"]
    for epoch in (0, 4, 6):
        asked.cluster.on_message(link, Ask(nonce=epoch, epoch=epoch, candidate="1-broker"))
    reason = "epoch 5 is promised already"
    assert wire.of(2, Answer) == [Answer(0, True), Answer(4, False, reason)]
    let_write(world, 2)
    assert wire.of(2, Answer)[2:] == [Answer(6, True)]


def test_a_promotion_is_answered_when_the_set_that_it_begins_with_is_on_disk() -> None:
    world, wire = started()
    world.kill(0)
    candidate = world.machines[1]
    replies = candidate.promote()
    while candidate.cluster.primary is None:
        candidate.state_hangs = bool(wire.asked(1))
        assert world.step_one(lambda able: able[0])
    world.run(1)
    assert candidate.state is BrokerStatus.RECOVERING and replies == []
    assert world.machines[2].cluster.backup is not None
    assert not world.machines[2].cluster.backup.began, "its subscription is not answered"
    let_write(world, 1)
    assert replies == [None]


def test_a_backup_confirms_when_the_set_that_it_heard_of_is_on_disk() -> None:
    world, wire = started()
    world.kill(2)
    world.run(1)
    backup = world.machines[1]
    backup.state_hangs = True
    world.revive(2)
    world.run(1)
    assert backup.unsaved is not None, "2 is in the set again"
    before = len(wire.of(1, Confirm))
    world.machines[0].publish("a")
    world.run(1)
    assert len(wire.of(1, Confirm)) == before and world.machines[0].accepted == []
    let_write(world, 1)
    assert world.machines[0].accepted == ["a"]


def test_a_smaller_set_is_recorded_when_it_is_on_disk() -> None:
    world, _ = started()
    world.machines[1].state_hangs = True
    world.kill(2)
    world.machines[0].publish("a")
    world.run(5)
    assert world.machines[1].unsaved is not None and world.machines[0].accepted == []
    let_write(world, 1)
    assert world.machines[0].accepted == ["a"]
    assert world.machines[0].cluster.promises.in_sync.version < 9, "it is not asked for over again"


def test_a_primary_accepts_when_the_smaller_set_is_on_its_own_disk() -> None:
    world, _ = started()
    world.machines[0].state_hangs = True
    world.kill(2)
    world.machines[0].publish("a")
    world.run(1)
    assert world.machines[0].cluster.promises.in_sync.members == ("0-broker", "1-broker")
    assert world.machines[0].accepted == []
    assert "state-file" in [entry["waits_for"] for entry in explain(world.machines[0].cluster)]
    let_write(world, 0)
    assert world.machines[0].accepted == ["a"] and explain(world.machines[0].cluster) == []


def test_what_was_transacted_in_an_earlier_time_in_office_is_not_told_in_a_later_one() -> None:
    world, _ = started()
    primary = world.machines[0]
    primary.state_hangs = True
    world.kill(2)
    primary.publish("a")
    world.run(1)
    primary.cluster.demote(lambda error: None)
    let_write(world, 0)
    assert primary.accepted == [] and primary.state is not BrokerStatus.ACTIVE


def test_a_hand_over_waits_until_all_that_is_committed_was_told() -> None:
    world, _ = started()
    primary = world.machines[0]
    primary.state_hangs = True
    world.kill(2)
    primary.publish("a")
    world.run(1)
    primary.switchover("host1:5001")
    world.run(1)
    assert primary.cluster.primary is not None and primary.accepted == []
    let_write(world, 0)
    assert primary.accepted == ["a"] and world.machines[1].state is BrokerStatus.ACTIVE


def test_a_hand_over_waits_for_the_disks_of_a_target_that_is_there() -> None:
    world, _ = started()
    world.machines[1].state_hangs = True
    replies = world.machines[0].switchover("host1:5001")
    world.run(7)
    assert replies == []
    let_write(world, 1)
    ((error, found),) = replies
    assert error is None and found is not None and found["epoch"] == 2


# -- patience -------------------------------------------------------------------------------------


def text_of(replies: list[QpidHaError | None]) -> str:
    (reply,) = replies
    assert reply is not None
    return reply.text


def test_an_attempt_that_comes_after_one_without_answers_asks_for_the_same_epoch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(peers, "WRITING", SECOND)
    world, wire = started()
    world.kill(0)
    candidate = world.machines[1]
    world.machines[2].state_hangs = True
    for _ in range(2):
        replies = candidate.promote()
        world.run(8)
        assert text_of(replies).startswith("1 of 3 brokers promised epoch 2")
    replies = candidate.promote()
    let_write(world, 2)
    assert replies == [None] and wire.asked(1) == {2} and candidate.log.epoch == 2


def test_an_epoch_that_was_refused_or_begun_is_not_asked_for_again() -> None:
    world, wire = started()
    world.kill(0)
    candidate = world.machines[1]
    refused = candidate.promote()
    while candidate.cluster.promises.promised < 2:
        assert world.step_one(lambda able: able[0])
    world.machines[2].cluster.promises.promise_self(2)
    world.run(1)
    assert "is promised already" in text_of(refused)
    assert _after(world, candidate) == [None]
    candidate.cluster.demote(lambda error: None)
    world.run(1)
    assert _after(world, candidate) == [None]
    assert wire.asked(1) == {2, 3, 4}


def _after(world: World, machine: Machine) -> list[QpidHaError | None]:
    replies = machine.promote()
    world.run(1)
    return replies


def test_a_peer_whose_connection_is_gone_is_not_waited_for() -> None:
    world, _ = started()
    world.kill(0)
    world.machines[2].state_hangs = True
    replies = world.machines[1].promote()
    world.run(2)
    assert replies == []
    world.kill(2)
    world.run(5)
    assert "1 of 3 brokers promised epoch 2" in text_of(replies)


def test_a_candidate_whose_own_disk_is_slow_asks_again_only_when_its_promise_is_on_it() -> None:
    world, wire = started()
    world.kill(0)
    candidate = world.machines[1]
    candidate.state_hangs = True
    candidate.promote()
    world.run(1)
    candidate.cluster.demote(lambda error: None)
    replies = candidate.promote()
    world.run(ATTEMPTS * WRITING // SECOND + 5)
    assert replies == [] and wire.asked(1) == set()
    let_write(world, 1)
    assert replies == [None] and candidate.log.epoch == 2


def test_disks_are_not_waited_for_where_there_are_too_few_for_a_majority() -> None:
    world = World(5, safety="strict")
    world.machines[0].promote()
    world.run(0.5)
    world.kill(0)
    for index in (2, 3, 4):
        world.machines[index].state_hangs = True
    replies = world.machines[1].promote()
    world.run(1)
    assert replies == []
    world.kill(3)
    world.kill(4)
    world.run(ATTEMPTS)
    assert "1 of 5 brokers promised" in text_of(replies)


def test_a_backup_is_not_given_up_while_nothing_can_leave_for_it() -> None:
    world, _ = started()
    primary = world.machines[0]
    primary.state_hangs = True
    world.kill(2)
    world.run(1)
    assert primary.saving_since
    primary.publish("a")
    world.run(world.settings.ha_backup_timeout / SECOND + 3)
    assert not [said for said in primary.said if "stalled" in said]
    let_write(world, 0)
    assert primary.accepted == ["a"] and not [said for said in primary.said if "stalled" in said]


def test_what_was_read_at_the_start_is_saved_before_anything_follows_from_it() -> None:
    world, _ = started()
    world.kill(2)
    world.slow_state = True
    assert world.revive(2).unsaved is not None
