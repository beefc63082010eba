"""Faults: what can go wrong, by the names the field has for it. Each takes a run, breaks something,
and plans its end.

Whatever has not ended by itself is ended by `end_all`. The manager's errors are faults too: with
`ha-safety=strict` it may promote two brokers at once, late, or the wrong one; one that brokers
trust makes none.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from qpidha.model.features import FEATURES
from tests.sim.machine import CRASH_WAYS
from tests.sim.world import MILLISECOND

VERSIONS: tuple[tuple[str, ...], ...] = ((), tuple(FEATURES))
"""What each version knows: the base, and this one."""


def plan(run: Any) -> None:
    """Draw the faults of a run, and when each begins."""
    rng, world = run.world.rng, run.world
    without = [
        *(() if run.plan.disks else NEED_DISKS),
        *(() if run.plan.depth == "wire" else NEED_BYTES),
        *(ERRORS if run.plan.trusting else ()),
        *APART,
        *(() if run.plan.mixed else ("change_version", "roll_versions")),
        *(() if run.plan.transactions or run.plan.moves else ("crash_committing",)),
    ]
    names = [name for name in FAULTS if name not in without]
    weights = [WEIGHTS.get(name, 2.0) for name in names]
    if run.plan.mixed:
        run.world.at(rng.randrange(run.plan.length), inject, run, "roll_versions")
    if run.plan.disks:
        weights[names.index("crash_all")] *= 5
    for _ in range(run.plan.faults):
        name = rng.choices(names, weights)[0]
        world.at(rng.randrange(run.plan.length), inject, run, name)
    for name in APART:
        apart = draw_apart(run, name)
        if apart is not None:
            world.at(apart.randrange(run.plan.length), happen, run, name)


def draw_apart(run: Any, name: str) -> random.Random | None:
    """Return the chance of a run that has one of `APART`, as its seed has it."""
    chance = random.Random(f"{name} {run.seed}")
    may_be = run.plan.disks and not run.plan.trusting
    return chance if may_be and chance.random() < OUTAGES else None


def inject(run: Any, name: str) -> None:
    """Let one fault happen: now, or when it hurts: when a sender is told next that a message is
    accepted, or a transaction is under way.
    """
    if name in HURTING and run.world.chance(0.5):
        commits = (run.plan.transactions or run.plan.moves) and run.world.chance(0.5)
        (run.upon_commit if commits else run.upon_acceptance).append(name)
    else:
        happen(run, name)


def happen(run: Any, name: str) -> None:
    """Let one fault happen."""
    if not _is_quiet(run):
        run.world.note("fault", name)
        run.injected[name] = run.injected.get(name, 0) + 1
        FAULTS[name](run)


def end_all(run: Any) -> None:
    """End whatever still goes on."""
    for pair in list(run.cuts):
        _join(run, *pair)
    for machine in run.cluster:
        machine.forget_crashes()
        for connection_id in machine.streams:
            machine.congest(connection_id, False)
        if machine.disk is not None:
            machine.disk.slowness = 1
            machine.disk.capacity = -1
        _install(machine, VERSIONS[-1])  # one that went back may be refused for ever
    _find_disks(run)


# -- brokers --------------------------------------------------------------------------------------


def crash(run: Any) -> None:
    """A process ends, perhaps between two effects of its next turn."""
    machine = _anyone(run)
    if run.world.chance(0.3):
        machine.crash_after = run.world.rng.randrange(6)
    else:
        machine.crash()
    _restart_later(run, machine)


def crash_committing(run: Any) -> None:
    """The primary ends as soon as it has committed a transaction, of which each backup has got all,
    a part or nothing.
    """
    for machine in run.cluster.primaries():
        machine.crash_committing = True
        run.world.at(2 * _a_while(run), machine.restart)


def crash_saving(run: Any) -> None:
    """A broker ends while it writes its state file, in the middle of a promotion that is asked for
    now.
    """
    machine = _anyone(run)
    machine.crash_saving = True
    run.world.at(2 * _a_while(run), machine.restart)
    if not run.plan.trusting:
        for other in run.world.rng.sample(run.cluster.machines, 2):
            run.world.at(run.world.between(0, 2 * run.cluster.state_delay[1]), _promote, run, other)


def forget_record(run: Any) -> None:
    """A backup is cut off, and the others end while they write down the set without it. They come
    back, the primary ends, and the manager promotes the first.
    """
    primaries, rng = run.cluster.primaries(), run.world.rng
    backups = [machine for machine in run.cluster if machine not in primaries]
    if len(primaries) != 1 or len(backups) < 2 or run.plan.trusting:
        return
    alone = rng.choice(backups)
    for machine in backups:
        machine.crash_saving = machine is not alone
    pairs = _sever(run, alone)
    lives = {machine: machine.life for machine in backups if machine is not alone}
    _forget_record(run, primaries[0], alone, lives, pairs, run.world.now + run.plan.length)


def _forget_record(
    run: Any, primary: Any, alone: Any, lives: dict[Any, int], pairs: list[Any], until: int
) -> None:
    """Go on as soon as so many of them have ended that the others are no majority."""
    world = run.world
    if _is_quiet(run):
        return
    ended = [machine for machine, life in lives.items() if machine.life != life]
    if len(ended) < run.plan.brokers // 2 and world.now < until:
        world.at(MILLISECOND, _forget_record, run, primary, alone, lives, pairs, until)
        return
    # It has time to accept something by that, and mostly is back too late to tell the others.
    world.at(world.between(0, 4 * world.latency[1]), lambda: _is_quiet(run) or primary.crash())
    for machine in ended:
        world.at(world.between(MILLISECOND, 30 * MILLISECOND), machine.restart)
    world.at(world.between(MILLISECOND, CUT_OFF), primary.restart)
    for pair in pairs:
        _join(run, *pair)
    world.at(world.between(30 * MILLISECOND, 200 * MILLISECOND), _promote, run, alone)


def power_failure(run: Any) -> None:
    """A machine loses power: nobody hears of it, and what its disk has not synced is gone."""
    machine = _anyone(run)
    machine.crash(power=True, disk=run.world.rng.choice(CRASH_WAYS[1:]))
    _restart_later(run, machine)


def crash_all(run: Any) -> None:
    """Every machine loses power at once, or nearly so."""
    spread = run.world.rng.choice([0, MILLISECOND, 20 * MILLISECOND])
    way = run.world.rng.choice(["drop", "drop", *CRASH_WAYS[1:]])
    for machine in run.cluster:
        run.world.at(run.world.between(0, spread), _power_off, run, machine, way)
        _restart_later(run, machine)


def lose_disk(run: Any) -> None:
    """Every machine loses power at once, and the disk of one is lost, or those of all members of
    the newest in-sync set, from which a backup was dropped before. If nobody can be promoted by
    that, the disks are found in the end.
    """
    backups = [machine for machine in run.cluster if machine not in run.cluster.primaries()]
    if run.world.rng.random() < 0.5:
        _lose_disks(run, [run.world.rng.choice(run.cluster.machines)])
        return
    if len(run.sets[-1].members) == run.plan.brokers:
        for pair in _sever(run, run.world.rng.choice(backups or run.cluster.machines)):
            run.world.at(2 * CUT_OFF, _join, run, *pair)
    _lose_members(run, run.world.now + CUT_OFF)


def _lose_members(run: Any, until: int, accepted: int = -1) -> None:
    """Go on when the newest in-sync set has not everybody, and has accepted something since."""
    members = run.sets[-1].members
    losers = [machine for machine in run.cluster if machine.system_id in members]
    if _is_quiet(run):
        return
    is_smaller = len(losers) < run.plan.brokers
    if is_smaller and accepted < 0:
        accepted = run.facts.accepted
    if run.world.now < until and not (is_smaller and run.facts.accepted > accepted):
        run.world.at(20 * MILLISECOND, _lose_members, run, until, accepted)
    else:
        _lose_disks(run, losers if is_smaller else [run.world.rng.choice(losers)])


def _lose_disks(run: Any, losers: list[Any]) -> None:
    rng = run.world.rng
    run.lost_disks_after = max(run.primaries, default=0)
    way = rng.choice(CRASH_WAYS[1:])
    # A majority of new brokers that hear nobody else begin a cluster of their own, and nobody could
    # know better. So they come last, and nothing else goes wrong.
    run.is_spared = 2 * len(losers) > run.plan.brokers
    if run.is_spared:
        for pair in list(run.cuts):
            _join(run, *pair)
        for machine in run.cluster:
            machine.forget_crashes()
    for machine in run.cluster:
        machine.crash(power=True, disk=way)
    for machine in run.cluster:
        if machine in losers:
            machine.lose_disk()
        if not run.is_spared:
            _restart_later(run, machine)
        else:
            run.world.at(SPARED if machine in losers else MILLISECOND, machine.restart)


def spare_one(run: Any) -> None:
    """All but a complete backup lose power, and that one is cut off for a while: it alone has what
    was transient, and its silence does not mean that it is gone.
    """
    primaries, rng = run.cluster.primaries(), run.world.rng
    backups = [each for each in run.cluster if each.is_complete and each not in primaries]
    if not backups:
        return
    spared = rng.choice(backups)
    for pair in _sever(run, spared):
        run.world.at(CUT_OFF, _join, run, *pair)
    for machine in run.cluster:
        if machine is not spared:
            machine.crash(power=True, disk="drop")
            run.world.at(run.world.between(MILLISECOND, 30 * MILLISECOND), machine.restart)


def lose_voters(run: Any) -> None:
    """The primary is cut off, and the others promote one of them. Then so many of these lose their
    disks that the new brokers in their places are a majority with the former primary, which reaches
    them, while nobody reaches those who remember. They are found again later.
    """
    primaries = run.cluster.primaries()
    others = [machine for machine in run.cluster if machine not in primaries]
    is_whole = all(machine.is_up and machine.former is None for machine in run.cluster)
    if len(primaries) != 1 or len(others) < 2 or not is_whole:
        return
    run.is_spared = True
    for machine in run.cluster:
        machine.forget_crashes()
    heal(run)
    _cut_off(run, primaries)
    others = run.world.rng.sample(others, len(others))
    _replace_voters(run, others, run.world.now + run.plan.length)


def _replace_voters(run: Any, others: list[Any], until: int) -> None:
    """Go on when one of the others is primary and has accepted something."""
    world = run.world
    primary = next((each for each in others if each.is_up and each.state.is_primary), None)
    has_accepted = primary is not None and primary.node.log.epoch in run.facts.first_acceptance
    if run.healing or (not has_accepted and world.now > until):
        return
    if not has_accepted:
        if primary is None:
            _promote(run, others[0])
        world.at(SPARED, _replace_voters, run, others, until)
        return
    voters = [each for each in others if each is not primary][: run.plan.brokers // 2]
    heal(run)
    _cut_off(run, [each for each in others if each not in voters])
    run.lost_disks_after = -1  # they stay lost
    for machine in voters:
        machine.crash(power=True, disk="drop")
        machine.lose_disk()
        machine.features = VERSIONS[-1]  # one of before votes at once
        world.at(MILLISECOND, machine.restart)
    world.at(CUT_OFF, heal, run)


def _find_disks(run: Any) -> None:
    """Put lost disks back, unless a broker was promoted without them."""
    lost = [machine for machine in run.cluster if machine.former is not None]
    if not lost or max(run.primaries, default=0) > run.lost_disks_after:
        return
    # All at once: nobody may go on with what a new broker, which was never there, has promised.
    for machine in run.cluster:
        machine.crash(power=True, disk="drop")
    for machine in lost:
        machine.find_disk()
    for machine in run.cluster:
        machine.restart()


def torn_write(run: Any) -> None:
    """The last write before a power failure is cut anywhere."""
    _crash_disk(run, "tear")


def lost_tail(run: Any) -> None:
    """Later pages were written before a power failure, and earlier ones not."""
    _crash_disk(run, "scramble" if run.world.chance(0.5) else "lose")


def restart(run: Any) -> None:
    """A process ends and is started again at once, before its links are missed."""
    machine = _anyone(run)
    machine.crash()
    machine.restart()


def change_version(run: Any) -> None:
    """A broker is stopped, and goes on as another version: upgraded, or back to where it came from.
    One that does not start, or is refused, is upgraded later.
    """
    rng, machine = run.world.rng, _anyone(run)
    _install(machine, rng.choice(VERSIONS))
    if rng.random() < 0.5:
        run.world.at(_a_while(run), _install, machine, VERSIONS[-1])


def roll_versions(run: Any) -> None:
    """All brokers are upgraded, one after the other, in any order and as fast as somebody likes."""
    machines = list(run.cluster)
    run.world.rng.shuffle(machines)
    pause, due = _a_while(run), 0
    for machine in machines:
        run.world.at(due, _install, machine, VERSIONS[-1])
        due += pause


def pause(run: Any) -> None:
    """A process is stopped, and goes on later as if nothing had been."""
    machine = _anyone(run)
    machine.pause()
    run.world.at(_a_while(run), machine.resume)


# -- the network ----------------------------------------------------------------------------------


def cut(run: Any) -> None:
    """The way between two hosts is cut, and healed later."""
    hosts = run.hosts()
    one, other = _anyone(run).host, run.world.rng.choice(hosts)
    _part_for_a_while(run, [(one, other), (other, one)])


def partition(run: Any) -> None:
    """The hosts fall into two groups."""
    rng = run.world.rng
    side = {host: rng.random() < 0.5 for host in run.hosts()}
    pairs = [(one, other) for one in side for other in side if side[one] != side[other]]
    _part_for_a_while(run, pairs)


def isolate(run: Any) -> None:
    """A broker, often the primary, is cut off from the others, not from clients; the manager
    promotes one of those, and perhaps it too, for so long that it gives up asking them.
    """
    rng, alone = run.world.rng, _anyone(run)
    others = [machine for machine in run.cluster if machine is not alone]
    pairs = [
        pair for other in others for pair in ((alone.host, other.host), (other.host, alone.host))
    ]
    heartbeat = run.plan.settings.link_heartbeat_interval
    _part_for_a_while(run, pairs, least=4 * heartbeat)
    if not run.plan.trusting:
        backups = [machine for machine in others if not machine.state.is_primary]
        for machine in (rng.choice(backups or others), alone)[: rng.choice([1, 2])]:
            run.world.at(run.world.between(0, 2 * heartbeat), _promote, run, machine)


def congestion(run: Any) -> None:
    """The other end of a connection reads slower than it is written to."""
    machine = _anyone(run)
    if machine.streams:
        connection_id = run.world.rng.choice(list(machine.streams))
        machine.congest(connection_id, True)
        run.world.at(_a_while(run), machine.congest, connection_id, False)


def clog(run: Any) -> None:
    """Nothing passes in one direction."""
    _part_for_a_while(run, [(_anyone(run).host, run.world.rng.choice(run.hosts()))])


def swizzle_clog(run: Any) -> None:
    """Ways are clogged one after the other, and freed in another order."""
    machine = _anyone(run)
    for host in run.hosts():
        if host != machine.host:
            run.world.at(
                run.world.between(0, 200 * MILLISECOND),
                _part_for_a_while,
                run,
                [(host, machine.host), (machine.host, host)],
            )


def reset(run: Any) -> None:
    """A connection breaks, with what was on its way."""
    streams = list(run.world.streams.values())
    if streams:
        run.world.reset(run.world.rng.choice(streams), "connection reset")


def heal(run: Any) -> None:
    """Every way is free again."""
    for pair in list(run.cuts):
        _join(run, *pair)


# -- disks ----------------------------------------------------------------------------------------


def slow_sync(run: Any) -> None:
    """A disk takes its time, or all of them do."""
    machines = list(run.cluster) if run.world.chance(0.4) else [_anyone(run)]
    slowness = run.world.rng.choice([10, 100, 1000])
    for machine in machines:
        if machine.disk is not None:
            machine.disk.slowness = slowness
            run.world.at(_a_while(run), _quicken, machine.disk)


def disk_full(run: Any) -> None:
    """A disk is full, after a few bytes more; there is space again when the broker is started
    again.
    """
    machine = _anyone(run)
    if machine.disk is not None:
        machine.disk.capacity = run.world.rng.randrange(2000)
        run.world.at(_a_while(run), machine.restart)


def disk_low(run: Any) -> None:
    """There is little space left, for a while."""
    machine = _anyone(run)
    if machine.disk is not None:
        disk = machine.disk
        disk.set_space(low=True, free=1)
        run.world.at(_a_while(run), lambda: disk.set_space(low=False, free=1 << 40))


# -- the manager ----------------------------------------------------------------------------------


def double_promote(run: Any) -> None:
    """The manager promotes two brokers at once."""
    for machine in run.world.rng.sample(run.cluster.machines, 2):
        run.manager.promote(machine)


def late_promote(run: Any) -> None:
    """A promotion arrives long after it was decided."""
    machine = _anyone(run)
    run.world.at(_a_while(run), _promote, run, machine)


def wrong_promote(run: Any) -> None:
    """The manager promotes somebody, whoever that is."""
    run.manager.promote(_anyone(run))


def early_promote(run: Any) -> None:
    """The manager promotes the next broker that begins to catch up, before it has."""
    run.impatience += 1


def demote(run: Any) -> None:
    """The manager demotes somebody."""
    run.manager.demote(_anyone(run))


def switchover(run: Any) -> None:
    """The operator has the primary hand over, to somebody or to whom he should not; the giver or
    the target may not live to see it.
    """
    rng, world = run.world.rng, run.world
    giver = rng.choice(run.cluster.primaries() or run.cluster.machines)
    able = [machine for machine in run.cluster if machine.is_complete and machine is not giver]
    target = rng.choice(able if able and world.chance(0.7) else run.cluster.machines)
    run.manager.switch_over(
        giver, rng.choice([f"{target.host}:5672"] * 4 + ["", target.system_id, "nobody"])
    )
    if world.chance(0.4):
        worse = rng.choice(
            [
                target.crash,
                giver.crash,
                target.pause,
                giver.pause,
                lambda: run.manager.demote(giver),
            ]
        )
        world.at(world.between(0, 10 * world.latency[1]), lambda: _is_quiet(run) or worse())
        for machine in (giver, target):
            world.at(_a_while(run), machine.resume)
            _restart_later(run, machine)


def disconnect(run: Any) -> None:
    """A client leaves without a word."""
    run.world.rng.choice(run.clients).disconnect()


# -- what they share ------------------------------------------------------------------------------


def _anyone(run: Any) -> Any:
    """Choose a machine, often the primary: that is where it hurts."""
    primaries = run.cluster.primaries()
    if primaries and run.world.chance(0.4):
        return run.world.rng.choice(primaries)
    return run.world.rng.choice(run.cluster.machines)


def _a_while(run: Any) -> int:
    return int(
        run.world.rng.choice([5, 50, 200, 500, 1500]) * MILLISECOND * (0.5 + run.world.rng.random())
    )


def _restart_later(run: Any, machine: Any) -> None:
    run.world.at(_a_while(run), machine.restart)


def _promote(run: Any, machine: Any) -> None:
    if not run.healing:
        run.manager.promote(machine)


def _is_quiet(run: Any) -> bool:
    """Whether nothing more may go wrong, not even what was begun."""
    return run.healing or run.is_spared


def _power_off(run: Any, machine: Any, way: str) -> None:
    if not _is_quiet(run):
        machine.crash(power=True, disk=way)


def _crash_disk(run: Any, how: str) -> None:
    machine = _anyone(run)
    machine.crash(power=run.world.chance(0.5), disk=how)
    _restart_later(run, machine)


def _part_for_a_while(run: Any, pairs: list[tuple[str, str]], least: int = 0) -> None:
    if _is_quiet(run):
        return
    duration = max(_a_while(run), least)
    for pair in pairs:
        if pair[0] != pair[1] and pair not in run.cuts:
            run.cuts[pair] = None
            run.world.block(*pair)
            run.world.at(duration, _join, run, *pair)


def _sever(run: Any, machine: Any) -> list[tuple[str, str]]:
    """Cut a broker off from the others, which notice at once; return the ways that are cut."""
    pairs = [
        pair
        for other in run.cluster
        for pair in ((machine.host, other.host), (other.host, machine.host))
        if other is not machine and pair not in run.cuts
    ]
    for pair in pairs:
        run.cuts[pair] = None
        run.world.block(*pair)
        run.world.give_up(*pair)
    return pairs


def _cut_off(run: Any, machines: list[Any]) -> None:
    """Cut machines off from everybody but each other."""
    inside = [machine.host for machine in machines]
    for host in run.hosts():
        for one in inside:
            for pair in ((one, host), (host, one)):
                if host not in inside and pair not in run.cuts:
                    run.cuts[pair] = None
                    run.world.block(*pair)


def _join(run: Any, one: str, other: str) -> None:
    if run.cuts.pop((one, other), 0) is None and not run.is_cut(one, other):
        run.world.unblock(one, other)


def _install(machine: Any, features: tuple[str, ...]) -> None:
    if machine.features != features:
        machine.crash()
        machine.features = features
        machine.restart()


def _quicken(disk: Any) -> None:
    disk.slowness = 1


OUTAGES = 0.3
"""In which part of the runs with disks each of these happens; drawn apart from all other faults, so
that it moves no other history.
"""
CUT_OFF = 1500 * MILLISECOND
"""For how long nobody hears the one that is spared."""
SPARED = 200 * MILLISECOND
"""How much later than the others a majority of new brokers is started."""
APART = ("lose_disk", "spare_one", "lose_voters")
ERRORS = ("double_promote", "late_promote", "wrong_promote", "early_promote")
NEED_BYTES = ("congestion",)
NEED_DISKS = ("torn_write", "lost_tail", "slow_sync", "disk_full", "disk_low")
HURTING = (
    "crash",
    "power_failure",
    "crash_all",
    "torn_write",
    "lost_tail",
    "pause",
    "partition",
    "reset",
    "restart",
    "isolate",
    "forget_record",
)
WEIGHTS = {
    "crash": 3.0,
    "cut": 4.0,
    "partition": 4.0,
    "clog": 3.0,
    "pause": 3.0,
    "wrong_promote": 8.0,
    "double_promote": 4.0,
    "late_promote": 3.0,
    "crash_all": 0.4,
    "heal": 1.0,
    "demote": 1.0,
    "swizzle_clog": 1.0,
    "disk_low": 1.0,
    "disk_full": 1.0,
    "isolate": 4.0,
    "crash_committing": 8.0,
    "crash_saving": 3.0,
    "forget_record": 3.0,
    "switchover": 4.0,
}
FAULTS: dict[str, Callable[[Any], None]] = {
    action.__name__: action
    for action in (
        crash,
        crash_committing,
        crash_saving,
        forget_record,
        power_failure,
        crash_all,
        lose_disk,
        spare_one,
        lose_voters,
        torn_write,
        lost_tail,
        restart,
        change_version,
        roll_versions,
        pause,
        cut,
        partition,
        isolate,
        clog,
        swizzle_clog,
        congestion,
        reset,
        heal,
        slow_sync,
        disk_full,
        disk_low,
        double_promote,
        late_promote,
        wrong_promote,
        early_promote,
        switchover,
        demote,
        disconnect,
    )
}
