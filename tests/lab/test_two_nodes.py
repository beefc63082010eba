"""Two hosts under real Pacemaker with ha-safety=strict and ha-recorder=manager: Pacemaker's store
and fencing take the place of a third.
"""

from __future__ import annotations

import signal

from tests.lab import faults
from tests.lab.hosts import NAMES
from tests.lab.play import Play, Stage
from tests.system.cluster import wait_for

HOSTS = NAMES[:2]


def members(play: Play) -> list[str]:
    """Return the hosts whose brokers are in the record of Pacemaker's store, as the watch of a host
    that is on read it last.
    """
    ids = {found.get("system_id"): name for name, found in play.cluster.statuses().items()}
    host = next(name for name in play.lab.names if play.lab.is_on(name))
    said = play.lab.run(
        host,
        "crm_attribute",
        "--type",
        "crm_config",
        "--name",
        "qpidha-in-sync",
        "--query",
        "--quiet",
        check=False,
    ).stdout
    return sorted(
        str(ids.get(member, member)) for member in said.strip().rpartition(":")[2].split(",")
    )


def test_the_host_of_the_primary_loses_power(stage: Stage) -> None:
    with stage.play("two-power") as play:
        faults.power(play)
        assert play.wait_promoted() in play.backups
        wait_for(lambda: members(play), play.backups.__eq__, what="the record")


def test_the_host_of_the_backup_loses_power_and_the_primary_goes_on(stage: Stage) -> None:
    with stage.play("two-power-backup") as play:
        play.now()
        play.lab.off(play.backups[0])
        wait_for(lambda: members(play), [play.primary].__eq__, what="the record")
        play.wait_accepted()
        assert play.watch.promotions(play.at) == []


def test_the_primary_is_killed(stage: Stage) -> None:
    with stage.play("two-kill") as play:
        faults.kill(play)
        assert play.wait_promoted() in play.backups


def test_the_backup_is_killed_and_nobody_is_promoted(stage: Stage) -> None:
    with stage.play("two-kill-backup") as play:
        for name in play.lab.names:
            play.lab.run(name, "qpid-ha", "pacemaker", "verify")
        wait_for(lambda: members(play), list(HOSTS).__eq__, what="the record")
        play.now()
        play.lab.kill(play.backups[0], signal.SIGKILL)
        play.wait_accepted()
        play.cluster.wait_settled()
        assert play.watch.promotions(play.began) == []


def test_the_hosts_are_cut_off_from_each_other_and_that_of_the_backup_is_fenced(
    stage: Stage,
) -> None:
    """Each would fence the other one, but the backup's waits before it does."""
    with stage.play("two-partition") as play:
        before = {name: play.lab.pid(name) for name in play.lab.names}
        faults.partition(play)
        (backup,) = play.backups
        wait_for(
            lambda: play.lab.pid(backup),
            lambda pid: pid != before[backup],
            what="whether it was fenced",
        )
        play.lab.heal()
        play.wait_accepted()
        assert play.lab.pid(play.primary) == before[play.primary]
        assert play.watch.promotions(play.at) == []


def test_both_hosts_lose_power_at_once(stage: Stage) -> None:
    with stage.play("two-power-of-all") as play:
        for name in play.lab.names:
            play.lab.off(name)
        play.now()
        for name in play.lab.names:
            play.lab.on(name)
        play.wait_accepted()
