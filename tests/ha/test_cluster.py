"""The HA machine: states, promotion, catch-up, safety, on machines without brokers."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from qpidha.ha.explanation import explain
from qpidha.ha.in_sync import SavedState
from qpidha.ha.peers import REDIALS, PeerState
from qpidha.ha.primary import COMMITTED_DELAY
from qpidha.ha.states import LEGAL_CHANGES, StateMachine, check_change
from qpidha.ha.wire import Logged
from qpidha.model.broker_states import BrokerStatus
from qpidha.model.errors import InvariantBroken
from qpidha.model.features import FEATURES
from qpidha.model.records import Batch
from tests.ha.cluster_world import SECOND, Machine, World

ACTIVE, READY, JOINING, RECOVERING, CATCHUP = (
    BrokerStatus.ACTIVE,
    BrokerStatus.READY,
    BrokerStatus.JOINING,
    BrokerStatus.RECOVERING,
    BrokerStatus.CATCHUP,
)


def started(n: int = 3, **options: int) -> World:
    world = World(n, **options)
    assert world.machines[0].promote() in ([], [None])
    world.settle()
    world.run(0.2)
    return world


def states(world: World) -> list[BrokerStatus]:
    return [machine.state for machine in world.machines]


@pytest.mark.parametrize("before", BrokerStatus)
@pytest.mark.parametrize("after", BrokerStatus)
def test_only_changes_in_the_table_are_legal(before: BrokerStatus, after: BrokerStatus) -> None:
    if after in LEGAL_CHANGES[before]:
        check_change(before, after)
    else:
        with pytest.raises(InvariantBroken):
            check_change(before, after)


def test_a_change_of_state_is_said_and_our_own_broker_knows_before_the_others() -> None:
    heard: list[object] = []
    port: Any = SimpleNamespace(
        now=7, announce=lambda level, text, **fields: heard.append(text), state_changed=heard.append
    )
    machine = StateMachine(port, lambda: heard.append("others"))
    machine.change(JOINING)
    assert heard == ["Status change: standalone -> joining", JOINING, "others"]
    assert (machine.current, machine.since) == (JOINING, 7)
    with pytest.raises(InvariantBroken):
        machine.change(ACTIVE)
    assert machine.current is JOINING


def test_first_promotion_makes_one_primary_and_ready_backups() -> None:
    world = started()
    assert states(world) == [ACTIVE, READY, READY]
    assert world.machines[0].cluster.promises.in_sync.members == (
        "0-broker",
        "1-broker",
        "2-broker",
    )
    assert world.machines[2].cluster.promises.in_sync == world.machines[0].cluster.promises.in_sync


def test_a_word_is_accepted_only_when_every_backup_has_it() -> None:
    world = started()
    primary = world.machines[0]
    world.machines[2].paused = True
    primary.publish("a")
    world.settle()
    assert primary.accepted == []
    world.machines[2].paused = False
    world.settle()
    assert primary.accepted == ["a"]


def test_backups_apply_only_what_is_committed() -> None:
    world = started()
    world.machines[2].paused = True
    world.machines[0].publish("a")
    world.run(0.5)
    assert world.machines[1].words == []
    assert world.machines[1].log.last == world.machines[0].log.last
    world.machines[2].paused = False
    world.run(0.5)
    assert [machine.words for machine in world.machines] == [["a"]] * 3


def test_failover_keeps_every_accepted_word_and_the_other_backup_follows_with_a_delta() -> None:
    world = started()
    for word in "abc":
        world.machines[0].publish(word)
    world.settle()
    assert world.machines[0].accepted == list("abc")
    world.kill(0)
    assert world.machines[1].promote() in ([], [None])
    world.settle()
    world.run(0.3)
    assert states(world)[1:] == [ACTIVE, READY]
    assert world.machines[1].words == list("abc")
    assert not any("snapshot" in line for line in world.machines[1].said)
    world.machines[1].publish("d")
    world.settle()
    assert world.machines[1].accepted == ["d"]
    world.restart(0)
    world.run(0.3)
    assert states(world) == [READY, ACTIVE, READY]
    assert [machine.words for machine in world.machines] == [list("abcd")] * 3


def test_a_dead_backup_is_dropped_and_what_waited_for_it_is_accepted() -> None:
    world = started()
    world.machines[2].paused = True
    world.machines[0].publish("a")
    world.settle()
    assert world.machines[0].accepted == []
    world.kill(2)
    world.run(0.3)
    assert world.machines[0].accepted == ["a"]
    assert world.machines[0].cluster.promises.in_sync.members == ("0-broker", "1-broker")


def test_stopped_primary_that_wakes_up_steps_down_and_accepts_nothing() -> None:
    world = started()
    old = world.machines[0]
    old.publish("a")
    world.settle()
    old.paused = True
    world.cut(0)  # the others' heartbeats run out
    world.run(0.5)
    world.machines[1].promote()
    world.run(1.5)
    assert states(world)[1:] == [ACTIVE, READY]
    old.publish("lost")  # what a client had sent before
    old.paused = False
    world.run(1)
    assert old.accepted == ["a"]
    assert states(world) == [READY, ACTIVE, READY]
    assert old.words == ["a"]


def test_a_promise_makes_a_live_primary_step_down() -> None:
    world = started()
    world.machines[1].promote()
    world.run(1)
    assert states(world) == [READY, ACTIVE, READY]


def test_a_restarted_broker_is_not_promoted_over_a_ready_one() -> None:
    world = started(2)
    world.kill(0)
    world.restart(0)
    replies = world.machines[0].promote()
    world.run(1)
    assert replies[0] is not None
    assert "Joining active cluster" in replies[0].text
    world.machines[1].paused = True
    replies = world.machines[0].promote()
    world.run(4)
    assert replies == [None]
    assert world.machines[0].state is RECOVERING  # the member that does not answer is expected


def test_a_backup_in_catchup_refuses_promotion() -> None:
    world = started()
    world.machines[2].cluster._state.current = CATCHUP
    (reply,) = world.machines[2].promote()
    assert reply is not None
    assert "Still catching up" in reply.text


def test_recovering_waits_for_expected_backups_until_the_timeout() -> None:
    world = started(backup_timeout=2_000_000_000)
    world.kill(2)
    world.kill(0)  # before the primary could drop 2
    world.machines[1].promote()
    world.run(0.5)
    machine = world.machines[1]
    if machine.state is RECOVERING:
        machine.publish("a")
        world.run(0.5)
        assert machine.accepted == []
        world.run(2.5)
    assert machine.state is ACTIVE


def test_expected_backups_hold_acknowledgements_until_they_are_back() -> None:
    world = started(4, backup_timeout=120_000_000_000)
    world.machines[0].paused = True  # it notices nothing and drops nobody
    for index in (1, 2):
        world.kill(index)
    world.kill(0)
    world.machines[3].promote()
    world.run(1)
    primary = world.machines[3]
    assert primary.state is RECOVERING
    primary.publish("a")
    world.restart(1)
    world.run(1)
    assert primary.accepted == []
    world.restart(2)
    world.run(1)
    assert primary.accepted == ["a"]
    assert primary.state is ACTIVE
    assert world.machines[1].state is READY
    assert world.machines[1].words == ["a"]


def test_a_backup_too_far_behind_gets_a_snapshot_while_words_flow() -> None:
    world = started(log_limit=2000)
    world.kill(2)
    for number in range(100):
        world.machines[0].publish(f"w{number}")
        world.settle()
    world.restart(2)
    for number in range(100, 120):
        world.machines[0].publish(f"w{number}")
    world.run(0.5)
    assert states(world) == [ACTIVE, READY, READY]
    assert world.machines[2].words == [f"w{number}" for number in range(120)]
    assert any("snapshot" in line for line in world.machines[0].said)


def test_divergent_tail_is_cut() -> None:
    world = started()
    for index in (1, 2):
        world.machines[index].paused = True
    world.machines[0].publish("only on 0")
    world.machines[2].paused = False
    world.settle()  # now 2 has it too, unapplied
    world.machines[1].paused = False
    world.machines[1].inbox.clear()  # 1 never gets it
    world.kill(0)
    world.machines[1].promote()
    world.run(1)
    world.machines[1].publish("new")
    world.run(1)
    assert world.machines[1].words == ["new"]
    assert world.machines[2].words == ["new"]
    assert world.machines[1].accepted == ["new"]


def test_demote_makes_room_for_another() -> None:
    world = started()
    world.machines[0].cluster.demote(lambda error: None)
    assert world.machines[0].state is JOINING
    world.machines[2].promote()
    world.run(1)
    assert states(world) == [READY, READY, ACTIVE]


def test_lone_broker_goes_active_at_once() -> None:
    world = started(1)
    assert states(world) == [ACTIVE]
    world.machines[0].publish("a")
    world.settle()
    assert world.machines[0].accepted == ["a"]


def test_a_primary_that_is_demoted_and_promoted_again_is_followed_again() -> None:
    world = started(backup_timeout=2_000_000_000)
    world.machines[0].cluster.demote(lambda error: None)
    world.run(0.3)
    assert states(world) == [JOINING, READY, READY]
    world.machines[0].promote()
    world.run(3)
    assert states(world) == [ACTIVE, READY, READY]
    assert world.machines[0].cluster.promises.in_sync.members == (
        "0-broker",
        "1-broker",
        "2-broker",
    )
    world.machines[0].publish("a")
    world.settle()
    world.kill(0)
    world.machines[1].promote()
    world.run(3)
    assert world.machines[1].words == ["a"]


def test_a_demotion_ends_a_promotion_that_is_under_way() -> None:
    world = started()
    world.machines[0].paused = True
    replies = world.machines[1].promote()
    world.settle()
    assert replies == []
    world.machines[1].cluster.demote(lambda error: None)
    world.run(4)
    assert [reply.text for reply in replies if reply is not None] == [
        "demoted by the cluster manager meanwhile"
    ]
    assert world.machines[1].state is READY


def behind(world: World) -> Machine:
    """Return a dropped backup that has come back and was just told from where the log goes on."""
    backup = world.machines[2]
    world.cut(2)
    backup.paused = True
    world.run(1)
    for number in range(20):
        world.machines[0].publish(f"w{number}")
        world.settle()
    backup.paused = False
    for _ in range(1000):
        world.step_one(lambda able: able[0])
        if not any(machine.inbox for machine in world.machines):
            world.now += SECOND // 50
            for machine in world.machines:
                machine.cluster.tick(world.now)
        role = backup.cluster.backup
        assert role is not None
        if role.began and backup.system_id not in backup.cluster.promises.in_sync.members:
            return backup
    raise AssertionError("it never came back")


def test_a_dropped_backup_that_comes_back_is_not_ready_before_it_has_what_it_missed() -> None:
    world = started()
    assert behind(world).state is CATCHUP
    world.run(0.5)
    assert states(world) == [ACTIVE, READY, READY]
    assert world.machines[2].words == world.machines[0].words


def test_a_broker_that_knows_itself_to_be_outside_the_in_sync_set_refuses_promotion() -> None:
    world = started()
    world.machines[2].paused = True
    world.cut(2)
    world.run(1)
    world.machines[0].publish("a")
    world.settle()
    saved = world.machines[0].saved
    for index in (0, 1, 2):
        world.kill(index)
    world.machines[2].saved = saved
    world.machines[2].paused = False
    replies = world.restart(2).promote()
    world.run(5)
    assert [
        "not in the newest in-sync set" in reply.text for reply in replies if reply is not None
    ] == [True]


def test_a_member_in_the_middle_of_its_snapshot_is_not_ready_because_another_has_joined() -> None:
    world = started(4, log_limit=1500, backup_timeout=100 * SECOND)
    for number in range(30):
        world.machines[0].publish(f"w{number}")
        world.settle()
    world.run(0.1)
    world.machines[0].paused = True
    world.kill(2)
    world.machines[3].paused = True
    world.machines[3].inbox.clear()
    world.kill(0)
    world.machines[1].promote()
    world.run(3)  # 2 and 3 are expected
    world.dead.discard(2)
    newcomer = world.machines[2] = Machine(world, 2, world.machines[2].saved, life=1)
    newcomer.cluster.start()
    role = newcomer.cluster.backup
    assert role is not None
    while role.chunks < 2:
        if not world.step_one(lambda able: able[0]):
            world.now += SECOND // 50
            for machine in (world.machines[1], newcomer):
                machine.cluster.tick(world.now)
    newcomer.paused = True
    world.machines[3].paused = False
    world.run(1)
    assert world.machines[3].state is READY
    newcomer.paused = False
    while world.step_one(lambda able: able[0]):
        assert newcomer.state is CATCHUP or newcomer.words == world.machines[1].words
    assert newcomer.state is READY


def test_a_cluster_whose_only_member_died_during_the_first_catch_up_starts_again() -> None:
    world = World(2, backup_timeout=2 * SECOND)
    world.machines[0].promote()
    while world.machines[1].state is not CATCHUP:
        assert world.step_one(lambda able: able[0])
    world.kill(0)
    world.restart(0)
    world.machines[0].promote()
    world.run(3)
    assert states(world) == [ACTIVE, READY]


def test_a_demoted_primary_lets_its_old_log_go() -> None:
    world = started(log_limit=2000)
    world.machines[0].publish("a")
    world.settle()
    world.machines[1].promote()
    world.run(1)
    for number in range(100):
        world.machines[1].publish(f"w{number}")
        world.settle()
    assert [machine.log.start > 50 for machine in world.machines] == [True] * 3


def test_a_backup_can_cut_off_more_than_the_log_that_it_would_keep() -> None:
    world = started(log_limit=2000)
    world.machines[1].paused = True
    for number in range(100):
        world.machines[0].publish(f"w{number}")
        world.settle()
    world.machines[1].inbox.clear()
    world.machines[1].paused = False
    world.kill(0)
    world.machines[1].promote()
    world.run(1)
    assert states(world)[1:] == [ACTIVE, READY]
    assert world.machines[2].words == world.machines[1].words == []


def test_what_a_new_primary_has_is_not_committed_before_the_other_members_have_it() -> None:
    world = started(backup_timeout=100 * SECOND)
    world.machines[2].paused = True
    world.machines[0].publish("a")
    world.settle()
    world.machines[2].inbox.clear()
    world.kill(0)
    world.machines[1].promote()
    world.run(4)
    primary = world.machines[1]
    assert primary.words == ["a"]
    assert primary.log.committed < min(primary.model)
    world.machines[2].paused = False
    world.run(1)
    assert primary.log.committed == primary.log.last
    assert world.machines[2].words == ["a"]


def test_an_expected_backup_that_is_connected_has_no_deadline() -> None:
    world = started(backup_timeout=SECOND)
    primary = world.machines[0].cluster.primary
    assert primary is not None
    primary.expected["1-broker"] = world.now - 1
    assert primary.overdue(world.now) == []
    assert primary.next_deadline == 0
    primary.expected["gone"] = world.now + 5
    assert primary.next_deadline == world.now + 5


def test_a_batch_that_does_not_follow_ends_the_link_and_not_the_broker() -> None:
    world = started()
    backup = world.machines[1]
    role = backup.cluster.backup
    assert role is not None
    assert role.primary is not None
    link = role.primary.connection_id
    backup.cluster.on_message(link, Logged(0, Batch(1, 99, 99, False, (b"",))))
    assert link not in world.ends
    world.run(1)
    assert states(world) == [ACTIVE, READY, READY]


def test_a_batch_of_a_lower_epoch_than_the_promised_one_ends_the_link() -> None:
    world = started()
    backup = world.machines[1]
    role = backup.cluster.backup
    assert role is not None and role.primary is not None
    last, link = backup.log.last, role.primary.connection_id
    backup.cluster.promises.promise_self(9)
    backup.cluster.on_message(link, Logged(0, Batch(1, last + 1, last + 1, False, (b"",))))
    assert backup.log.last == last and link not in world.ends


def test_backups_hear_of_a_commit_a_little_later_where_nothing_takes_the_news_along() -> None:
    world = started()
    world.machines[0].publish("a")
    world.settle()
    assert world.machines[0].accepted == ["a"] and world.machines[1].words == []
    world.run(COMMITTED_DELAY / SECOND)
    world.run(0.02)
    assert world.machines[1].words == ["a"]


def test_a_member_that_lost_its_content_leaves_the_set_before_it_may_come_in_again() -> None:
    world = started(log_limit=1500)
    primary, member = world.machines[0], world.machines[2]
    for number in range(30):
        primary.publish(f"w{number}")
        world.settle()
    world.run(0.1)
    role = member.cluster.backup
    assert role is not None and role.primary is not None
    role.start_over()
    role.follow(role.primary)
    world.settle()
    assert any("came back without its content" in line for line in primary.said)
    world.run(1)
    assert states(world) == [ACTIVE, READY, READY]
    assert member.words == primary.words


def test_a_smaller_set_is_saved_before_anything_is_accepted_by_it() -> None:
    world = started()
    primary = world.machines[0]
    done: list[object] = []

    def save(data: bytes) -> None:
        done.append(SavedState.decode(data, 1).in_sync.members)

    def on_committed(committed: int | str) -> None:
        Machine.on_committed(primary, committed)
        if isinstance(committed, str):
            done.append(committed)

    primary.save, primary.on_committed = save, on_committed  # type: ignore[method-assign]
    world.machines[2].paused = True
    primary.publish("a")
    world.settle()
    assert done == []
    world.machines[2].paused = False
    world.kill(2)
    world.run(1)
    assert done == [("0-broker", "1-broker"), "a"]


def test_a_backup_knows_the_set_as_soon_as_the_primary_answers_it() -> None:
    world = started()
    world.kill(2)
    world.run(1)
    late = world.revive(2)
    while late.cluster.backup is None or not late.cluster.backup.began:
        if not world.step_one(lambda able: able[0]):
            world.run(0.02)
    assert late.state is CATCHUP
    assert late.cluster.promises.in_sync.members == ("0-broker", "1-broker")


def test_a_demoted_primary_changes_its_set_no_more_and_follows_whoever_is_primary() -> None:
    world = started()
    old = world.machines[0]
    membership = old.cluster.membership
    assert membership is not None
    old.cluster.demote(lambda error: None)
    assert membership.over and old.cluster.membership is None
    world.machines[1].promote()
    world.run(1)
    assert states(world) == [READY, ACTIVE, READY]


def test_why_there_is_no_connection_is_said_once() -> None:
    world = started()
    world.kill(1)
    world.run(3)
    said = [line for line in world.machines[0].said if "no connection to host1:5001" in line]
    assert [line.partition(": no")[2] for line in said] == [
        " connection to host1:5001: closed; dialling again",
        " connection to host1:5001: refused; dialling again",
    ]


def test_who_is_asked_and_not_connected_is_dialled() -> None:
    world = started()
    world.cut(1)
    peers = world.machines[0].cluster.peers
    (peer,) = [peer for peer in peers.all if peer.name == world.addresses[1]]
    while peer.state is not PeerState.DOWN:
        assert world.step_one(lambda able: able[0])
    answered: list[int] = []
    peers.consult(lambda consultation: answered.append(len(consultation.answered)))
    assert peer.state is PeerState.DIALLING
    world.settle()
    assert answered == [2]


def test_who_is_asked_and_drops_each_connection_is_dialled_a_few_times() -> None:
    world = started()
    machine = world.machines[0]
    peers = machine.cluster.peers
    (peer,) = [peer for peer in peers.all if peer.name == world.addresses[1]]
    peers.consult(lambda consultation: None)
    dialled = 0
    for _ in range(100):
        peers.lost(peer, "closed", reached=True)
        if peer.state is not PeerState.DIALLING:
            break
        dialled += 1
        peers.opened(peer, frozenset())
    assert 1 <= dialled <= REDIALS
    peer.deadline = 0
    world.run(10)  # It lives again, and counts anew.
    assert peer.state is PeerState.UP
    peers.consult(lambda consultation: None)
    peers.lost(peer, "closed", reached=True)
    assert peer.state is PeerState.DIALLING


def test_a_broker_with_our_system_id_at_another_address_is_told_of() -> None:
    world = World()
    twin = world.machines[1]
    twin.system_id = twin.cluster.system_id = "0-broker"
    world.cut(1)
    world.run(0.5)
    assert any("error: host1:5001 has our system id" in line for line in world.machines[0].said)
    assert not any("has our system id" in line for line in world.machines[2].said)


def test_a_broker_promoted_without_content_says_so() -> None:
    world = started(1)
    world.machines[0].publish("a")
    world.settle()
    world.kill(0)
    world.restart(0).promote()
    world.run(1)
    assert world.machines[0].state is ACTIVE
    assert any("promoted with an empty log" in line for line in world.machines[0].said)


def test_a_primary_without_backups_asks_for_a_majority_in_intervals() -> None:
    world = World(safety="strict")
    world.machines[0].promote()
    world.run(1)
    world.kill(1)
    world.kill(2)
    before = world.machines[0].cluster.primary.version
    world.run(10)
    primary = world.machines[0].cluster.primary
    assert primary is not None and primary.leaving
    assert primary.version - before <= 2 + 10 * SECOND // world.machines[0].cluster.peers.patience
    world.restart(1)
    world.run(2)
    assert explain(world.machines[0].cluster) == [] and world.machines[1].state == "ready"


def test_a_primary_that_is_cut_off_hands_nothing_out_while_the_others_may_have_another() -> None:
    world = World(safety="strict")
    world.machines[0].promote()
    world.run(1)
    primary = world.machines[0].cluster
    assert primary.may_deliver
    world.kill(1)
    assert primary.may_deliver
    world.kill(2)
    assert primary.primary is not None and not primary.may_deliver
    world.restart(2)
    world.run(2)
    assert primary.may_deliver


def test_qpid_18_another_ha_replicate_is_told_once() -> None:
    world = World()
    world.kill(1)
    world.settings = replace(world.settings, ha_replicate="all")
    other = world.restart(1).cluster
    for machine in world.machines:
        inbound = machine.cluster.inbound
        for connection_id, caller in inbound.items():
            inbound[connection_id] = replace(caller, features=frozenset(FEATURES))
    for _ in range(2):
        for machine in world.machines:
            machine.cluster.send_status()
        world.settle()
    told = [[line for line in machine.said if "ha-replicate" in line] for machine in world.machines]
    assert [len(lines) for lines in told] == [1, 2, 1]
    assert told[0][0].startswith("warning: host1:5001 has ha-replicate=all, and this broker none: ")
    assert other.status().replicate == "all"
