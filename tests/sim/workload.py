"""Workload: one run. A seed draws the cluster, its knobs, its clients and its faults; the run heals
it and judges.

`Run` is what all parts of a world report to. First the cluster is made and serves; then clients
work while faults happen; then every fault ends, a manager who knows his trade gets everything ready
again, the senders finish, and the receivers take what is left. Checkers look at every turn, every
promotion and the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from qpidha.ha.in_sync import InSyncSet, SavedState
from qpidha.ha.wire import Chunk, Logged
from qpidha.model.effects import Announce
from qpidha.store import recovery
from tests.sim import checkers, faults
from tests.sim.activating import WANT, activate, check_fenced, single_actives
from tests.sim.clients import ModelTransport, Mover, Receiver, Sender
from tests.sim.clocks import promoted_unheard, set_clocks
from tests.sim.crossing import crossing, draw_crossing
from tests.sim.declaring import declaring
from tests.sim.dying import die, died_whole
from tests.sim.gathering import gathering
from tests.sim.grouping import MOODS, group, group_of, groups
from tests.sim.hashing import bucket_of, draw_hashing, hashed_once, hashing, way
from tests.sim.history import ACCEPTED, DOUBT, REFUSED, Facts, Violation, key_of, name_of
from tests.sim.keeping import Keeping, draw_keeping, keeping
from tests.sim.levels import draw_levels, drift, levels
from tests.sim.limits import deletions, limit
from tests.sim.linking import declare_links
from tests.sim.machine import Cluster, Machine
from tests.sim.manager import Manager, TrustedManager
from tests.sim.moves import moves, shift
from tests.sim.network import Network
from tests.sim.plan import ALTERNATE, HASHED, KEPT, MOVED, ONWARD, QUEUES, REJECTED, SHIFTED, draw
from tests.sim.policies import set_policies
from tests.sim.purges import purges
from tests.sim.ranking import check_ranks, is_known, level_of, rank
from tests.sim.remembering import Memory, remember, remembering, repeat
from tests.sim.selecting import GIVING_BACK, Half, check_selected, select
from tests.sim.subscribing import subscribe
from tests.sim.timing import check_due, take_note, time_senders
from tests.sim.valuing import Browser, check_browsers, check_values, is_replaced, value, value_of
from tests.sim.wire_client import WireTransport
from tests.sim.world import MILLISECOND, SECOND, World
from tests.sim.writing import write

PATIENCE = 40 * SECOND
"""How long a healed cluster may take until everybody is ready."""


class Run(Network):
    """One history."""

    def __init__(self, seed: int, *, depth: str, tracing: bool = False) -> None:
        super().__init__()
        self.seed = seed
        self.world = world = World(f"{depth} {seed}", tracing=tracing)
        self.plan = plan = draw(world, depth)
        limit(plan, seed)
        select(plan, seed)
        time_senders(plan, seed)
        group(plan, seed)
        die(plan, seed)
        rank(plan, seed)
        draw_levels(plan, seed)
        value(plan, seed)
        activate(plan, seed)
        shift(plan, seed)
        draw_hashing(plan, seed)
        subscribe(plan, seed)
        set_clocks(plan, seed)
        remember(plan, seed)
        draw_keeping(plan, seed)
        draw_crossing(plan, seed)
        self.facts = Facts(levels=bool(plan.levels), valued=plan.valued, first=QUEUES[0])
        self.memory = Memory(self) if plan.remembers else None
        self.crossed: dict[str, dict[tuple[str, int], int]] = {}
        self.keeping: Keeping | None = None
        self.injected: dict[str, int] = {}
        self.promotions = 0
        self.last_states: dict[tuple[str, int], str] = {}
        self.primaries: dict[int, tuple[str, int]] = {}
        self.elected: dict[int, tuple[str, int]] = {}
        """By epoch who said that he is primary, were it for less than a turn."""
        self.tokens: dict[tuple[str, tuple[int, int]], str] = {}
        """By queue and fencing token who got it."""
        self.kept: dict[tuple[str, str, int, int], bool] = {}
        """By queue, primary, its life and epoch whether that queue was one that is kept."""
        self.sets: list[InSyncSet] = []
        self.lost_disks_after = 0
        """The last epoch before disks were lost."""
        self.is_spared = False
        """Whether nothing goes wrong any more."""
        self.healing = False
        self.impatience = 0
        """How many brokers the manager promotes when they have just begun to catch up."""
        self.upon_acceptance: list[str] = []
        """Faults that happen when something is accepted next."""
        self.upon_commit: list[str] = []
        """Faults that happen while the next transaction is on its way."""
        slow = min(20 * MILLISECOND, plan.settings.link_heartbeat_interval // 20)
        world.latency = world.rng.choice([world.latency, world.latency, (slow // 10, slow)])
        if depth == "model":
            world.silence = 2 * plan.settings.link_heartbeat_interval
        else:
            world.carries_bytes = True
            world.split_chunks = world.chance(0.3)
        self.cluster = Cluster(
            world,
            list("abcdefgh"[: plan.brokers]),
            plan.settings,
            depth=depth,
            watcher=self,
            disks=plan.disks,
        )
        self.cluster.is_mixed = plan.mixed
        if plan.clocks:
            for machine, ahead in zip(self.cluster, plan.clocks, strict=True):
                machine.ahead = ahead
        if plan.mixed:
            for machine in self.cluster:
                machine.features = world.rng.choice(faults.VERSIONS)
        self.enabled: dict[str, set[int]] = {}
        """Feature -> sequences of the records that enable it."""
        self.manager = (
            TrustedManager(world, self.cluster, self)
            if plan.trusting
            else Manager(world, self.cluster, self)
        )
        self.make_transport = ModelTransport if depth == "model" else WireTransport
        world.note("world", f"{plan}")

    # -- the course of a run ----------------------------------------------------------------------

    def administer(self, deed: str, queue: str) -> None:
        """Ask a primary to purge or delete a queue; whatever it answers will do."""
        for machine in self.cluster.primaries()[-1:]:
            if not self.healing:
                self.world.note("admin", f"{deed}s {queue} on {machine.host}")
                self.injected[deed] = self.injected.get(deed, 0) + 1
                machine.request(f"{deed}_queue", {"name": queue}, lambda reply: None)

    def play(self) -> None:
        """Live through it all; raises Violation."""
        former, recovery.CHUNK = recovery.CHUNK, self.plan.chunk
        try:
            with groups(self.plan), single_actives(self.plan):
                self.begin()
                faults.plan(self)
                set_policies(self)
                declare_links(self)
                with (
                    purges(self),
                    deletions(self),
                    moves(self),
                    hashing(self),
                    levels(self),
                    remembering(self),
                    keeping(self),
                    crossing(self),
                    declaring(self),
                    gathering(self),
                ):
                    self.world.run_for(self.plan.length)
                    self.heal()
                    self.finish()
        finally:
            recovery.CHUNK = former

    def begin(self) -> None:
        """Make the cluster and its clients."""
        world = self.world
        self.cluster.start()
        world.at(20 * MILLISECOND, self.manager.promote, self.cluster.machines[0])
        self.manager.start()
        self._wait(lambda: checkers.all_ready(self.cluster.machines), "the cluster does not begin")
        plan = self.plan
        if plan.ranks or plan.valued or plan.single or plan.hashes or plan.not_own:
            self._wait(lambda: is_known(self.cluster), "queues of all kinds are not known to all")
        self._make_clients()
        for client in self.clients:
            world.at(world.between(0, 50 * MILLISECOND), client.connect)
        world.run_for(100 * MILLISECOND)

    def _make_clients(self) -> None:
        plan, world = self.plan, self.world
        if plan.alternate:
            self.facts.alternates = dict.fromkeys(QUEUES, REJECTED)
            self.facts.dies = bool(plan.dies)
        if plan.moves:
            self.facts.moves[QUEUES[0]] = MOVED
        if plan.shifts:
            self.facts.moves[QUEUES[-1]] = SHIFTED
        for number in range(plan.senders):
            spread = plan.fan_out and (number == 0 or (bool(plan.not_own) and number == 1))
            hashed = plan.hashes and number == 0
            is_apart = spread or hashed
            transactional = plan.transactions and number == plan.senders - 1 and not is_apart
            queue = world.rng.choice(QUEUES)
            address, queues = (
                ("amq.fanout", QUEUES) if spread else (queue, QUEUES if transactional else (queue,))
            )
            if hashed:
                address, queues = HASHED, QUEUES[:1]
            elif spread and plan.not_own == f"s{number}":
                queues = QUEUES[:-1]
            sender = Sender(
                world,
                self.cluster,
                self,
                f"s{number}",
                address,
                plan.options(address),
                window=plan.window,
                pause=plan.pause,
                durable=world.chance(plan.durable),
                queues=queues,
            )
            sender.is_transactional = transactional
            if not transactional and any(plan.times.get(number, ())):
                (sender.ttl, sender.delay), sender.write = plan.times[number], write
            sender.padding = b"." * plan.padding
            sender.has_ids = not hashed and all(queue in plan.dedup for queue in queues)
            sender.level_of = level_of if plan.ranks else None
            if hashed:
                sender.hashed_to, sender.value_of, sender.write = QUEUES, bucket_of, write
            if plan.valued:
                sender.value_of, sender.write = value_of, write
            if plan.remembers and not hashed:
                repeat(self, sender)
            self.clients.append(sender)
            self._produce(sender, plan.messages)
        for number in range(plan.receivers):
            queue = QUEUES[number % 2]
            self.clients.append(self._receiver(f"r{number}", queue, plan.moods))
        for number, queue in enumerate(QUEUES if plan.selects else ()):
            half = self._receiver(f"h{number}", queue, plan.moods)
            half.options["selects"] = Half(number)
            self.clients += [half, self._receiver(f"p{number}", queue, GIVING_BACK)]
        for number, queue in enumerate(plan.grouped):
            self.clients += [
                self._receiver(f"g{number}{place}", queue, moods)
                for place, moods in enumerate((plan.moods, *MOODS))
            ]
        for number, queue in enumerate(plan.single if plan.depth == "model" else ()):
            for place, (priority, moods) in enumerate(WANT):
                wants = self._receiver(f"a{number}{place}", queue, moods)
                wants.options["priority"] = priority
                self.clients.append(wants)
        for number, queue in enumerate(plan.valued if plan.depth == "model" else ()):
            self.clients.append(self._receiver(f"b{number}", queue, plan.moods, Browser))
        if plan.moves:
            self.clients.append(
                self._receiver("m0", QUEUES[0], (0.05, 0, 0), Mover, target_queue=MOVED)
            )

    def _produce(self, sender: Sender, left: int) -> None:
        """Have a sender work all the time while faults happen, in bursts."""
        if left > 0:
            burst = min(left, self.world.rng.randint(1, 5))
            sender.produce(burst)
            pause = 2 * self.plan.length * burst // self.plan.messages
            self.world.at(self.world.between(0, pause), self._produce, sender, left - burst)

    def _receiver(
        self,
        name: str,
        queue: str,
        moods: tuple[float, float, float],
        kind: type[Receiver] = Receiver,
        **more: Any,
    ) -> Receiver:
        plan = self.plan
        options = plan.options(queue)
        return kind(
            self.world,
            self.cluster,
            self,
            name,
            queue,
            options,
            credit=plan.credit,
            think=plan.pause,
            moods=moods,
            **more,
        )

    def prepare(self, machine: Machine, then: Callable[[bool], None]) -> None:
        """Make exchanges and bindings on a broker, one after the other; queues are made on
        demand.
        """
        durable = self.plan.durable > 0
        requests: list[tuple[str, dict[str, Any]]] = []
        if self.plan.alternate:
            requests.append(
                ("declare_exchange", {"name": ALTERNATE, "type": "fanout", "durable": durable})
            )
            requests.append(("declare_queue", {"name": REJECTED, **self.plan.options(REJECTED)}))
            requests.append(("bind", {"exchange": ALTERNATE, "queue": REJECTED}))
        if self.plan.moves:
            requests.append(("declare_queue", {"name": MOVED, "durable": durable}))
        if self.plan.shifts:
            requests.append(("declare_queue", {"name": SHIFTED, "durable": durable}))
        if self.plan.hashes:
            for queue in QUEUES:
                requests.append(("declare_queue", {"name": queue, **self.plan.options(queue)}))
            requests += way(durable)
        if self.plan.fan_out or self.plan.transactions:
            # One queue gets its messages by another exchange, where all brokers know of such.
            ways = dict.fromkeys(QUEUES, "amq.fanout")
            if not self.plan.mixed:
                ways[QUEUES[-1]] = ONWARD
                asked = {"name": ONWARD, "type": "fanout", "durable": durable}
                requests.append(("declare_exchange", asked))
                onward = {"exchange": "amq.fanout", "destination_exchange": ONWARD}
                requests.append(("bind", onward))
            for queue, exchange in ways.items():
                requests.append(("declare_queue", {"name": queue, **self.plan.options(queue)}))
                requests.append(("bind", {"exchange": exchange, "queue": queue}))

        def proceed(reply: dict[str, Any]) -> None:
            if "error" in reply:
                then(False)
            elif requests:
                machine.request(*requests.pop(0), proceed)
            else:
                then(True)

        proceed({})

    def heal(self) -> None:
        """End all faults, and get everybody ready."""
        world = self.world
        world.note("world", "heals")
        self.healing = True
        faults.end_all(self)
        for machine in self.cluster:
            machine.resume()
            machine.restart()
        deadline = world.now + PATIENCE
        self.manager.heal()
        while not checkers.all_ready(self.cluster.machines):
            if world.now > deadline:
                raise Violation(
                    f"not ready: {PATIENCE // SECOND} s after the last fault the brokers "
                    f"are {self.states()}"
                )
            world.run_for(100 * MILLISECOND)
            for machine in self.cluster:
                machine.restart()

    def finish(self) -> None:
        """Let the senders finish and the receivers take everything; then look whether anything is
        missing.
        """
        world, facts = self.world, self.facts
        senders = [client for client in self.clients if isinstance(client, Sender)]
        if self.plan.limits:
            self._make_room()
        self._wait(
            lambda: all(sender.is_done for sender in senders),
            "the senders have not finished",
            lambda: sum(sender.accepted for sender in senders),
        )
        for client in self.clients:
            client.stop()
        world.run_for(100 * MILLISECOND)
        self._judge_at_rest()
        check_browsers(self)
        queues = [
            *QUEUES,
            *([REJECTED] if self.plan.alternate else []),
            *([MOVED] if self.plan.moves else []),
            *([SHIFTED] if self.plan.shifts else []),
        ]
        last = [
            self._receiver(f"z{number}", queue, (0, 0, 0)) for number, queue in enumerate(queues)
        ]
        for receiver in last:
            receiver.connect()
        self.clients += last
        self._wait(self._is_empty, "the receivers do not get everything")
        world.run_for(200 * MILLISECOND)
        left = [
            duty.key
            for (queue, _), duty in facts.duties.items()
            if checkers.owed(duty) and not is_replaced(facts, queue, duty, {})
        ]
        if left:
            raise Violation(f"lost: nobody received {', '.join(left[:5])}")
        for receiver in last:
            receiver.stop()
        world.run_for(100 * MILLISECOND)
        self._judge_at_rest()

    def _make_room(self) -> None:
        """Have somebody take what is on small queues, for whose room senders wait: those who were
        to take it may not be there, or hold it and never answer.
        """
        for client in self.clients:
            if isinstance(client, Receiver):
                client.stop()
        for number, queue in enumerate(self.plan.limits):
            helper = self._receiver(f"y{number}", queue, (0, 0, 0))
            helper.connect()
            self.clients.append(helper)

    def _judge_at_rest(self) -> None:
        self._wait(
            lambda: checkers.is_quiet(self.cluster.machines), "the brokers do not come to rest"
        )
        if not checkers.all_ready(self.cluster.machines):
            raise Violation(f"not ready: without any fault the brokers came to be {self.states()}")
        self._wait(
            lambda: not any(machine.requests for machine in self.cluster),
            "somebody waits for an answer",
        )
        self._wait(
            lambda: checkers.is_quiet(self.cluster.machines), "the brokers do not come to rest"
        )
        primary = self.cluster.primaries()[0]
        self._judge(primary, checkers.contents(primary, shared=self._shared()), "at rest")
        checkers.backups_equal(self.cluster.machines)
        if self.plan.ranks:
            check_ranks(primary)
        if self.memory is not None:
            self.memory.check(primary)
        for machine in self.cluster.machines:
            checkers.causes_hold(self.facts, machine)

    def _judge(self, primary: Machine, present: checkers.Contents, when: str) -> None:
        checkers.no_loss(self.facts, present, f"{primary.host}, {when}")
        checkers.all_or_nothing(self.facts, present, primary.host)
        if not self.plan.levels:  # Else the two queues are in two logs at times: see crossing.py.
            checkers.moved_whole(self.facts, present, primary.host)
        died_whole(self.facts, present, primary.host)
        hashed_once(self.facts, present, primary.host)
        checkers.nothing_unexpected(self.facts, present, primary.host)
        checkers.order_kept(self.facts, present, primary.host)

    def _is_empty(self) -> bool:
        primaries = self.cluster.primaries()
        return bool(primaries) and not any(
            queue.messages
            for queue in primaries[0].node.broker.queues.values()
            if not queue.name.startswith(KEPT)
        )

    def _wait(
        self, condition: Callable[[], bool], otherwise: str, progress: Callable[[], int] = int
    ) -> None:
        """Have it come true, in PATIENCE since anything was done towards it."""
        done, deadline = 0, self.world.now + PATIENCE
        while not condition():
            if progress() > done:
                done, deadline = progress(), self.world.now + PATIENCE
            if self.world.now > deadline:
                raise Violation(f"stuck: {otherwise}: {self.states()}")
            self.world.run_for(50 * MILLISECOND)

    def states(self) -> str:
        """Write down how the brokers are."""
        return ", ".join(
            f"{machine.host} {machine.state.value if machine.is_up else 'down'}"
            for machine in self.cluster
        )

    # -- what machines tell -----------------------------------------------------------------------

    def announced(self, machine: Machine, effect: Announce) -> None:
        """A broker said what happened."""
        self.world.note(machine.host, f"{effect.level}: {effect.text}")
        if self.keeping is not None:
            self.keeping.told(machine, effect)
        if effect.text.startswith("Promoted to primary"):
            self.elected[int(str(effect.fields["epoch"]))] = (machine.host, machine.life)
        if "before" in effect.fields and "after" in effect.fields:
            who = (machine.host, machine.life)
            before, after = str(effect.fields["before"]), str(effect.fields["after"])
            if before != self.last_states.get(who, "standalone"):
                raise Violation(
                    f"illegal change of {machine.host}: it was "
                    f"{self.last_states.get(who)}, not {before}"
                )
            checkers.legal_change(before, after, machine.host)
            self.last_states[who] = after
            if after == "catchup" and self.impatience and not self.healing:
                self.impatience -= 1
                self.world.at(
                    self.world.between(0, 4 * self.world.latency[1]), self.manager.promote, machine
                )

    def handed_over(self, machine: Machine, result: dict[str, Any]) -> None:
        """A broker says that another has taken over from it."""
        checkers.handed_over(self.elected, self.cluster, result, machine.host)

    def saved(self, machine: Machine) -> None:
        """A broker saved its state."""
        set_ = SavedState.decode(machine.saved).in_sync
        if not self.sets or set_ > self.sets[-1]:
            self.sets.append(set_)
        elif set_ < self.sets[-1] and set_ not in self.sets:
            self.sets = sorted([*self.sets, set_])

    def moved(self, machine: Machine) -> None:
        """Something is committed that was not, perhaps."""
        committed = machine.node.log.committed
        if committed > machine.committed:
            machine.committed = committed
            cluster = machine.node.cluster
            if cluster is not None and cluster.primary is not None:
                checkers.committed_is_everywhere(machine, cluster, committed)

    def replicated(self, machine: Machine, message: Logged | Chunk) -> None:
        """A broker was sent a part of the log, or of a snapshot, which is committed."""
        checkers.only_known(
            self.enabled,
            machine.features,
            message.batch.data if isinstance(message, Logged) else message.data,
            message.committed if isinstance(message, Logged) else 1 << 62,
            machine.host,
        )

    def look(self, machine: Machine) -> None:
        """A broker has made a turn."""
        self.moved(machine)
        if self.memory is not None:
            self.memory.look(machine)
        primary = machine.node.cluster.primary if machine.node.cluster is not None else None
        if primary is not None:
            checkers.counted_was_said(machine, machine.node.cluster)
            checkers.limits_hold(self.plan.limits, self.crossed, machine)
            check_values(self.plan.valued, machine)
            epoch = primary.in_sync.epoch
            if self.plan.levels:
                drift(self, machine, epoch)
            who = (machine.host, machine.life)
            if self.primaries.get(epoch) != who:
                checkers.one_primary_each_epoch(self.primaries, epoch, who)
                self._promoted(machine, epoch)
            if self.memory is not None and epoch == max(self.primaries):
                self.memory.follow(machine, epoch)
        machine.was_complete = machine.is_complete

    def _promoted(self, machine: Machine, epoch: int) -> None:
        """Judge a new primary."""
        self.promotions += 1
        self.world.note(machine.host, f"is primary of epoch {epoch}")
        if epoch < max(self.primaries) and not self.plan.trusting:
            # it heard late that it was elected; with a higher epoch promised by a majority it will
            # never acknowledge anything
            return
        present = checkers.contents(machine, shared=self._shared())
        others = [other for other in self.cluster if other is not machine and other.is_complete]
        members = max(
            (set_ for set_ in self.sets if set_.epoch < epoch), default=InSyncSet()
        ).members
        if not machine.was_complete and not any(other.system_id in members for other in others):
            # A member of the newest set may be promoted over brokers that were dropped from it,
            # also where it has lost its memory since, and they have not.
            if not self.plan.trusting and machine.system_id not in members:
                checkers.nothing_taken(self.facts, present, others, machine.host)
            self.facts.total_failure(present, durable_too=not self.plan.disks)
            if self.memory is not None:
                self.memory.forget()
        promoted_unheard(self, machine)
        self._judge(machine, present, f"promoted to epoch {epoch}")
        if self.plan.ranks:
            check_ranks(machine)

    def _shared(self) -> str:
        return (
            REJECTED
            if (self.plan.fan_out or self.plan.transactions or self.plan.deletions)
            and self.plan.alternate
            else ""
        )

    def started(self, machine: Machine) -> None:
        """A broker has read what it had on its disk."""
        if self.keeping is not None:
            self.keeping.began(machine)

    def stopped(self, machine: Machine) -> None:
        """A broker is down."""

    def broken(self, machine: Machine, reason: str) -> None:
        """A broker found itself to be wrong."""
        raise Violation(f"broken: {machine.host} stopped: {reason}")

    # -- what clients tell ------------------------------------------------------------------------

    def sent(self, sender: Sender, message: int, number: int) -> bytes:
        """A sender sends."""
        if sender.is_transactional:
            self._commits()
        payload = self.facts.sent(sender, message, number, self.world.now)
        take_note(self, sender, name_of(sender, message, number))
        return payload

    def _commits(self) -> None:
        """A transaction is under way; faults may meet it there, or its batch on the way to the
        backups.
        """
        while self.upon_commit:
            self.world.at(
                self.world.between(0, 4 * self.world.latency[1]),
                faults.happen,
                self,
                self.upon_commit.pop(),
            )

    def accepted(self, sender: Sender, message: int, number: int) -> None:
        """A sender was told that its message is accepted."""
        transmission = self.facts.outcome(sender, message, number, ACCEPTED, self.world.now)
        key = name_of(sender, message, number)
        if self.world.tracing:
            self.world.note(sender.host, f"{key} is accepted")
        while self.upon_acceptance:
            self.world.at(
                self.world.between(0, MILLISECOND // 2),
                faults.happen,
                self,
                self.upon_acceptance.pop(),
            )
        # What was known again, or is gone already, may be accepted by anybody: there is nothing
        # that could be lost with him.
        duties = [self.facts.duties[queue, key] for queue in sender.queues]
        if len(transmission.numbers) == 1 and not all(
            duty.consumed or duty.adrift or duty.known_again for duty in duties
        ):
            self.facts.first_acceptance.setdefault(sender.epoch, self.world.now)
            checkers.one_acknowledging(
                self.facts,
                sender.epoch,
                transmission.when,
                key,
                str(sender.target and sender.target.host),
            )

    def refused(self, sender: Sender, message: int, number: int) -> None:
        """A sender was told that its message was not taken."""
        self.facts.outcome(sender, message, number, REFUSED)

    def in_doubt(self, sender: Sender, message: int, number: int) -> None:
        """A sender will never know."""
        self.facts.outcome(sender, message, number, DOUBT)

    def delivered(self, receiver: Receiver, payload: bytes, count: int) -> str:
        """A receiver got a message."""
        key = key_of(payload)
        where = str(receiver.target and receiver.target.host)
        if self.world.tracing:
            self.world.note(receiver.host, f"gets {key} from {receiver.address} of {where}")
        checkers.expected_delivery(self.facts, receiver.address, key, where)
        check_selected(receiver, key, where)
        check_due(self, key, where)
        if receiver.address != self._shared():
            checkers.settled_stays_settled(self.facts, receiver, key, where)
        if (
            receiver.address in QUEUES
            and count == 0
            and (receiver.address, key) not in self.facts.seen
            and not self.facts.is_displaced(receiver.address, key)
        ):
            checkers.in_order(
                self.facts,
                receiver.last_numbers[
                    group_of(key) if receiver.address in self.plan.grouped else ""
                ],
                receiver.address,
                key,
                f"{where}, as {receiver.host} sees it",
                lane=f" {level_of(key)}" if self.plan.ranks else "",
            )
        self.facts.seen.add((receiver.address, key))
        self.facts.delivered += 1
        return key

    def fenced(self, receiver: Receiver, token: tuple[int, int]) -> None:
        """A receiver got a message with a fencing token."""
        check_fenced(self, receiver, token)

    def browsed(self, browser: Browser, payload: bytes, count: int) -> str:
        """A browser was shown a message."""
        key = key_of(payload)
        where = str(browser.target and browser.target.host)
        if self.world.tracing:
            self.world.note(browser.host, f"is shown {key} on {browser.address} of {where}")
        checkers.expected_delivery(self.facts, browser.address, key, where)
        check_due(self, key, where)
        is_new = count == 0 and (browser.address, key) not in self.facts.seen
        if is_new and not self.facts.is_displaced(browser.address, key):
            checkers.in_order(
                self.facts,
                browser.last_numbers[""],
                browser.address,
                key,
                f"{where}, as {browser.host} sees it",
            )
        return key

    def consumed(self, receiver: Receiver, key: str) -> None:
        """A receiver is done with a message, and says so."""
        self.facts.consumed(receiver.address, key)

    def moving(self, mover: Mover, key: str) -> None:
        """A mover commits."""
        self.facts.moving(mover.address, key)
        self._commits()

    def brought(self, mover: Mover, key: str) -> None:
        """A mover was told that its commit is committed."""
        self.facts.settle(mover, key, self.world.now)
        self.facts.moved(mover.address, key)

    def rejected(self, receiver: Receiver, key: str) -> None:
        """A receiver will not have a message."""
        self.facts.rejected(receiver.address, key)

    def settled(self, receiver: Receiver, key: str) -> None:
        """A receiver was told that its acceptance is committed."""
        self.facts.settle(receiver, key, self.world.now)
