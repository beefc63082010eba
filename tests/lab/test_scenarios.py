"""What befalls a cluster under real Pacemaker, with clients at work through the virtual address all
the while.

What must hold in each is asserted in play.py; here is what happens, and who has to be the primary
afterwards.
"""

from __future__ import annotations

import signal
from pathlib import Path

from tests.lab import faults
from tests.lab.hosts import SPARE
from tests.lab.play import Stage
from tests.system.cluster import wait_for

HOST_SCRIPT = str(Path(__file__).parent / "provision" / "host.sh")


def test_the_cluster_that_one_command_made_serves_through_the_virtual_address(stage: Stage) -> None:
    with stage.play("made") as play:
        play.traffic.wait_flow(200)
        for name in play.lab.names:
            play.lab.run(name, "qpid-ha", "pacemaker", "verify")  # ends with 1 if it finds anything
        assert play.watch.address.holders(play.began) == [play.primary]
        assert play.watch.promotions(play.began) == []


def test_a_broker_is_killed(stage: Stage) -> None:
    with stage.play("kill") as play:
        faults.kill(play)
        assert play.wait_promoted() in play.backups
        play.cluster.wait_settled(by_itself=True)


def test_a_killed_primary_without_its_disk_is_not_promoted_although_resources_are_sticky(
    stage: Stage,
) -> None:
    """With a stickiness for all resources, as clusters often have: the address has its own, or it
    would pull the promotion back.
    """
    with stage.play("empty") as play:
        play.cluster.insist("resource", "defaults", "update", "resource-stickiness=1000")
        try:
            faults.empty(play)
            assert play.wait_promoted() in play.backups
            play.cluster.wait_settled()
            assert (
                [one.name for one in play.watch.promotions(play.at)]
                == [play.cluster.primary()]
                != [play.primary]
            )
        finally:
            play.cluster.insist("resource", "defaults", "update", "resource-stickiness=")


def test_a_slow_start_of_the_killed_broker_does_not_delay_the_promotion_of_another(
    stage: Stage,
) -> None:
    """It would, if Pacemaker tried to start the failed one again before it promotes another. That
    start takes as long as the test wants.
    """
    with stage.play("slow-start") as play, faults.slow_start(play):
        faults.kill(play)
        assert play.wait_promoted() in play.backups
        begun = play.lab.path(play.primary, faults.BEGUN)
        assert not begun.exists(), "it was started again before another was promoted"

        def has_begun() -> bool:
            play.cluster.forgive()
            return begun.exists()

        wait_for(has_begun, what="whether it is started again")
        play.traffic.wait_flow()
        assert play.lab.broker(play.primary, "status") == {}
        faults.end_slow_start(play)
        play.cluster.wait_settled()


def test_a_backup_is_killed_and_nobody_is_promoted(stage: Stage) -> None:
    with stage.play("kill-backup") as play:
        play.now()
        play.lab.kill(play.backups[0], signal.SIGKILL)
        play.traffic.wait_flow()
        play.cluster.wait_settled(by_itself=True)
        assert play.watch.promotions(play.began) == []


def test_a_broker_hangs(stage: Stage) -> None:
    with stage.play("hang") as play:
        faults.hang(play)
        assert play.wait_promoted() in play.backups


def test_a_host_loses_power(stage: Stage) -> None:
    with stage.play("power") as play:
        faults.power(play)
        assert play.wait_promoted() in play.backups


def test_a_primary_that_is_cut_off_is_fenced_and_comes_back_as_a_backup(stage: Stage) -> None:
    with stage.play("partition") as play:
        before = play.lab.pid(play.primary)
        faults.partition(play)
        assert play.wait_promoted() in play.backups
        play.lab.heal()
        wait_for(
            lambda: play.lab.pid(play.primary),
            lambda pid: pid not in (None, before),
            what="whether it was fenced",
        )


def test_only_the_brokers_links_of_the_primary_are_cut(stage: Stage) -> None:
    with stage.play("broker-links") as play:
        before = play.lab.pid(play.primary)
        faults.broker_links(play)
        assert play.wait_promoted() in play.backups
        assert play.lab.pid(play.primary) == before, "it was fenced"


def test_the_cluster_network_of_the_primary_is_cut_and_corosync_has_another(stage: Stage) -> None:
    with stage.play("cluster-network") as play:
        before = play.lab.pid(play.primary)
        faults.cluster_network(play)
        assert play.wait_promoted() in play.backups
        assert play.lab.pid(play.primary) == before, "it was fenced"


def test_the_clients_network_of_the_primary_is_lost(stage: Stage) -> None:
    with stage.play("clients-network") as play:
        faults.clients_network(play)
        assert play.wait_promoted() in play.backups


def test_standby_and_unstandby(stage: Stage) -> None:
    with stage.play("standby") as play:
        faults.standby(play)
        assert play.wait_promoted() in play.backups


def test_pcs_moves_the_primary_where_it_is_told(stage: Stage) -> None:
    with stage.play("move") as play:
        faults.move(play)
        assert play.wait_promoted() == play.backups[-1]


def test_after_a_total_failure_a_broker_that_missed_something_is_not_promoted(stage: Stage) -> None:
    with stage.play("missed") as play:
        # Pacemaker 2.1.5 waits a minute (cluster-delay) if the host that coordinates dies along
        # with what it was told to do.
        state = play.cluster.state()
        last, missing = sorted(
            play.backups, key=lambda name: state is not None and name == state.controller
        )
        play.cluster.stand_by(missing)
        play.traffic.wait_flow()
        play.now()
        play.lab.off(last)
        play.lab.kill(play.primary, signal.SIGKILL)
        play.cluster.unstandby()
        play.wait_accepted()
        assert play.watch.promotions(play.at)[0].name != missing


def test_everything_is_stopped_and_started(stage: Stage) -> None:
    with stage.play("stop-start") as play:
        play.cluster.pcs("resource", "disable", "broker-clone")
        play.cluster.wait(lambda state: not state.brokers())
        assert not any(play.cluster.statuses().values())
        play.now()
        play.cluster.pcs("resource", "enable", "broker-clone")
        play.wait_accepted()


def test_all_hosts_lose_power_at_once(stage: Stage) -> None:
    with stage.play("power-of-all") as play:
        for name in play.lab.names:
            play.lab.off(name)
        play.now()
        for name in play.lab.names:
            play.lab.on(name)
        play.wait_accepted()


def test_a_host_is_added(stage: Stage) -> None:
    """The last scenario: from now on there are four."""
    with stage.play("add") as play:
        play.now()
        backups, everybody = play.backups, [*play.lab.names, SPARE]
        play.lab.on(SPARE)
        # What we write would be taken for that of a disk which has everything.
        boots = ("corosync-cmapctl", "-g", "totem.version")
        wait_for(
            lambda: play.lab.run(SPARE, *boots, check=False).returncode,
            lambda code: code == 0,
            what=f"the first start of {SPARE}",
        )
        play.lab.names.append(SPARE)
        play.watch.add(SPARE)
        for name in play.lab.names:
            play.lab.run(name, HOST_SCRIPT, *everybody)
        for name in play.lab.names[:-1]:
            play.lab.run(name, "corosync-cfgtool", "-R")
        play.cluster.wait(lambda state: sum(node.online for node in state.nodes) == len(everybody))
        play.cluster.pcs("stonith", "update", "power", f"pcmk_host_list={','.join(everybody)}")
        # Each of the others reads the new ha-brokers-url, the primary last.
        for name in [*backups, play.primary]:
            play.cluster.restart(name)
        play.cluster.wait_settled()
        assert stage.lab.broker(SPARE, "status")["state"] == "ready"
