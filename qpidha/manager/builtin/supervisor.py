"""The built-in manager: runs all brokers of a cluster on this machine and keeps one of them
promoted.

One task per broker starts it, asks it for its status twice a heartbeat and restarts it when it
ended; one task decides. An ended process is noticed at once; a broker that does not answer within a
heartbeat is hung, which makes one and a half heartbeats at most. Before another broker is promoted,
one that may still be primary is killed and its death awaited (unless fencing is off: then its lower
epoch has to make it step down). While a healthy primary exists no broker is promoted, nor while one
hands over to another. Every in-sync set of which a broker's status tells is recorded, and no broker
outside the newest is promoted; or, with `ha-recorder=manager`, it records what the brokers want,
when they want it. The manager speaks to brokers over their admin sockets only.
"""

from __future__ import annotations

import asyncio
import math
import os
import signal
import time
from contextlib import suppress
from typing import Any

from qpidha.client.admin import AdminLink, LinkBroken
from qpidha.manager.builtin.cluster import (
    BrokerSpec,
    ClusterOptions,
    read_state,
    write_configuration,
    write_state,
)
from qpidha.manager.builtin.events import ManagerEvents
from qpidha.manager.builtin.process import BrokerProcess, start_time
from qpidha.manager.in_sync_record import InSyncRecord, InSyncStore
from qpidha.manager.membership_store import serve_membership_store
from qpidha.manager.placement import Choice, Member, choose, primary_of
from qpidha.model.broker_states import PRIMARY_STATES
from qpidha.model.errors import NotAllowed, NotFound, RefusedRequest


class LocalBroker:
    """One broker as its manager sees it."""

    __slots__ = (
        "backoff",
        "hung_since",
        "launched",
        "link",
        "may_be_primary",
        "member",
        "poke",
        "process",
        "membership_store",
        "restarts",
        "short_lives",
        "since",
        "spec",
        "stopped",
        "promotion_asked_at",
    )

    def __init__(self, spec: BrokerSpec) -> None:
        self.spec = spec
        self.member = Member(spec.name, spec.address, state="down")
        self.process: BrokerProcess | None = None
        self.link: AdminLink | None = None
        self.may_be_primary = False
        """Whether it could be serving clients although it does not answer."""
        self.promotion_asked_at = 0.0
        """When the last request to become primary was sent to it."""
        self.hung_since = 0.0
        self.since = time.time_ns()
        self.restarts = -1
        self.launched = 0.0
        self.backoff = 0.0
        self.short_lives = 0
        """How many times in a row it ended soon after its start."""
        self.membership_store = ""
        """Its ha-recorder, from its status."""
        self.stopped = False
        """Whether it was sent SIGSTOP through us; only shown."""
        self.poke = asyncio.Event()

    @property
    def running(self) -> bool:
        """Whether its process lives."""
        return self.process is not None and self.process.running


QUICK_LOOK = 0.02
"""Seconds between two looks at brokers that are changing."""
START_PATIENCE = 5.0
"""Seconds for which a new cluster waits for all brokers before a majority will do."""
RESTART_PATIENCE = 2.0
"""Seconds for which a dead broker waits for a new primary, so that its start does not slow down the
promotion.
"""
SHORT_LIFE = 2.0
"""Seconds; a broker that ends by itself sooner, or before it served, or that is killed sooner twice
in a row, is started again with growing pauses.
"""
HAND_OVER_PATIENCE = 10.0
"""Seconds for which no broker is promoted because a primary hands over to another broker."""
COMPARE_PATIENCE = 10.0
"""Seconds for the brokers to compare what they have after a total failure."""
HUNG_BACKUP_BEATS = 4
"""Heartbeats after which a hung backup is killed too, to be started afresh."""
PROMOTION_PATIENCE = 30.0
"""Seconds for a promotion of a broker that goes on answering: it waits for disks, and another
candidate would only undo what it has got so far.
"""
SILENCE = 2.0
"""Seconds, or four heartbeats, for one that does not."""
STOP_PATIENCE = 5.0
"""Seconds for a broker to end in good order."""


class LocalManager:
    """Keeps one of its child processes promoted; commands reach it as `builtin.BuiltinManager`."""

    def __init__(self, options: ClusterOptions) -> None:
        self.options = options
        self.events = ManagerEvents()
        self.brokers = {spec.name: LocalBroker(spec) for spec in options.brokers()}
        self.settled = False
        self.stopping = False
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._started = time.monotonic()
        self._refused: tuple[str, ...] = ()
        self._reason = ""
        self._primary = ""
        self._in_sync = InSyncStore(options.in_sync_file)
        self._hand_over = ("", 0.0)
        """To which broker the primary hands over, and until when others keep still for it."""

    async def start(self) -> None:
        """Start the brokers, or take over those that an earlier manager left running."""
        self.options.check()
        if self.options.is_new:
            self._in_sync.forget()
        before = read_state(self.options.directory)
        for broker in self.brokers.values():
            broker.spec.directory.mkdir(parents=True, exist_ok=True)
            self._adopt(broker, before)
        if any(broker.running for broker in self.brokers.values()):
            self.record()  # that they are ours now
        for broker in self.brokers.values():
            self._tasks.append(asyncio.create_task(self._attend(broker)))
        self._tasks.append(asyncio.create_task(self._direct()))
        self._changed.set()

    async def run(self) -> None:
        """Work until a task of ours fails, which nothing but a bug can make it, or until stop."""
        done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            if not task.cancelled():
                task.result()

    def members(self) -> list[Member]:
        """Say what is known of every broker of the cluster."""
        return [broker.member for broker in self.brokers.values()]

    def broker(self, name: str) -> LocalBroker:
        """Find a broker by its name or address."""
        for broker in self.brokers.values():
            if name in (broker.spec.name, broker.spec.address):
                return broker
        raise NotFound(
            f"no broker {name!r} in this cluster", hint=f"its brokers are {', '.join(self.brokers)}"
        )

    async def fence(self, name: str) -> None:
        """Kill a broker and wait until it is dead."""
        broker = self.broker(name)
        if broker.process is not None and broker.running:
            began = time.monotonic()
            broker.process.signal(signal.SIGKILL)
            await broker.process.ended()
            self.events.add("fenced", broker=name, seconds=round(time.monotonic() - began, 6))

    async def promote(self, name: str) -> None:
        """Ask a broker to become the primary."""
        broker = self.broker(name)
        if broker.link is None:
            raise LinkBroken(f"{name} has no admin socket yet")
        heartbeat = self.options.heartbeat
        until = time.monotonic() + max(SILENCE, 4 * heartbeat)
        asked = asyncio.create_task(broker.link.call("promote", {}, timeout=PROMOTION_PATIENCE))
        try:
            while not asked.done():
                if not broker.member.healthy and time.monotonic() > until:
                    raise LinkBroken(f"{name} does not answer")
                await asyncio.wait((asked,), timeout=heartbeat / 2)
            await asked
        finally:
            asked.cancel()

    def record_in_sync(self, epoch: int, version: int, members: tuple[str, ...]) -> bool:
        """Write down an in-sync set, if it is newer than the newest."""
        return self._in_sync.record(InSyncRecord(epoch, version, members))

    def newest_in_sync(self) -> InSyncRecord:
        """Say which in-sync set is the newest that was written down."""
        return self._in_sync.newest

    async def switch_over(self, name: str) -> None:
        """Let the primary hand over, and promote no other broker while it does."""
        await self.refresh()
        primary = primary_of(self.members())
        target = self.broker(name or self._best_ready())
        link = self.brokers[primary.name].link if primary is not None else None
        if primary is None or link is None:
            raise NotAllowed(
                "there is no primary that could hand over",
                hint="qpid-ha failover promotes the best backup",
            )
        if target.member is primary:
            raise NotAllowed(
                f"{primary.name} is the primary already",
                hint="name one of the others, or none for the best",
            )
        self.events.add("switchover", broker=primary.name, to=target.spec.name)
        self._hand_over = (target.spec.name, time.monotonic() + HAND_OVER_PATIENCE)
        try:
            await link.call(
                "switchover", {"target": target.spec.address}, timeout=HAND_OVER_PATIENCE
            )
            await self.refresh()
        finally:
            self._hand_over = ("", 0.0)
            self._changed.set()

    async def take_over(self, name: str) -> str:
        """Promote a backup (empty: the best) though there is a primary, which is then none any
        more; return its name.
        """
        await self.refresh()
        target = self.broker(name or self._best_ready())
        self.events.add("failover", broker=target.spec.name)
        self._hand_over = (target.spec.name, time.monotonic() + HAND_OVER_PATIENCE)
        try:
            await self.promote(target.spec.name)
            await self.refresh()
        finally:
            self._hand_over = ("", 0.0)
            self._changed.set()
        return target.spec.name

    def _best_ready(self) -> str:
        ready = [member for member in self.members() if member.healthy and member.state == "ready"]
        if not ready:
            raise NotAllowed(
                "no backup is ready", hint="qpid-ha wait --for ready=1, or look at qpid-ha list"
            )
        return max(ready, key=lambda member: member.position).name

    async def refresh(self) -> None:
        """Ask every healthy broker for its status, all at the same time."""
        healthy = [broker for broker in self.brokers.values() if broker.member.healthy]
        await asyncio.gather(*(self._ask(broker) for broker in healthy))

    async def stop(self) -> None:
        """End every broker: backups first, so that none of them misses its primary."""
        self.stopping = True
        primary = primary_of(self.members())
        order = sorted(
            self.brokers.values(),
            key=lambda broker: primary is not None and broker.spec.name == primary.name,
        )
        for broker in order:
            if broker.process is not None and broker.running:
                broker.process.signal(signal.SIGTERM)
                broker.process.signal(signal.SIGCONT)
                if not await broker.process.ended(STOP_PATIENCE):
                    broker.process.signal(signal.SIGKILL)
                    await broker.process.ended()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._write(0, {})
        self.events.add("stopped")

    def record(self) -> None:
        """Write down which processes belong to the cluster. On a full disk it works without."""
        processes = {
            name: (broker.process.pid, broker.process.started)
            for name, broker in self.brokers.items()
            if broker.process is not None and broker.running
        }
        self._write(os.getpid(), processes)

    def _write(self, manager_pid: int, processes: dict[str, tuple[int, int]]) -> None:
        try:
            write_state(self.options, manager_pid=manager_pid, processes=processes)
        except OSError as error:
            self.events.add("not written", what=str(self.options.state_file), reason=str(error))

    # One task per broker: keep it running, know how it is.

    def _adopt(self, broker: LocalBroker, before: dict[str, Any] | None) -> None:
        for known in (before or {}).get("brokers", []):
            pid, started = known.get("pid") or 0, known.get("pid_started")
            if (
                known.get("name") == broker.spec.name
                and pid
                and started
                and start_time(pid) == started
            ):
                broker.process = BrokerProcess(pid, lambda process: self._exited(broker, process))
                broker.restarts = 0
                broker.member.alive = True
                broker.member.state = "unknown"
                broker.may_be_primary = True
                self.events.add("adopted", broker=broker.spec.name, pid=pid)

    async def _attend(self, broker: LocalBroker) -> None:
        while not self.stopping:
            if not broker.running:
                self._launch(broker)
            while broker.running:
                await self._converse(broker)
            await self._rest(broker)

    def _launch(self, broker: LocalBroker) -> None:
        try:
            write_configuration(broker.spec, self.options)
            broker.spec.admin_socket.unlink(missing_ok=True)
            broker.process = BrokerProcess.start(
                self.options.daemon,
                broker.spec.config,
                broker.spec.log,
                on_exit=lambda process: self._exited(broker, process),
            )
        except (
            OSError
        ) as error:  # a full disk, or no more processes: the other brokers go on meanwhile
            broker.backoff = _longer(broker.backoff)
            self.events.add("not started", broker=broker.spec.name, reason=str(error))
            return
        broker.restarts += 1
        broker.launched = time.monotonic()
        broker.stopped = False
        broker.member.alive = True
        self._show(broker, "starting", 0)
        self.events.add(
            "started", broker=broker.spec.name, pid=broker.process.pid, address=broker.spec.address
        )
        self.record()

    async def _converse(self, broker: LocalBroker) -> None:
        link = await self._connect(broker)
        if link is None:
            return
        broker.link = link
        serving: asyncio.Task[None] | None = None
        try:
            while broker.running and not link.closed:
                await self._ask(broker)
                if broker.membership_store == "manager" and (serving is None or serving.done()):
                    serving = asyncio.create_task(self._serve_store(broker, link))
                await self._beat(broker)
        finally:
            broker.link = None
            link.close()
            if serving is not None:
                serving.cancel()

    async def _serve_store(self, broker: LocalBroker, link: AdminLink) -> None:
        async def change(record: InSyncRecord | None, instead: InSyncRecord) -> InSyncRecord:
            kept = (
                self._in_sync.newest if record is None else self._in_sync.replace(record, instead)
            )
            if kept == record:
                self.events.add(
                    "in-sync set", epoch=kept.epoch, version=kept.version, members=len(kept.members)
                )
            return kept

        try:
            await serve_membership_store(link.call, change)
        except (LinkBroken, RefusedRequest) as error:
            if not link.closed:
                self.events.add(
                    "refused", broker=broker.spec.name, what="recording", reason=error.text
                )

    async def _connect(self, broker: LocalBroker) -> AdminLink | None:
        began = time.monotonic()
        while broker.running:
            try:
                return await AdminLink.open(str(broker.spec.admin_socket))
            except LinkBroken:
                # A broker that an earlier manager started has had its time; a new one is not yet
                # expected to listen.
                if broker.may_be_primary and time.monotonic() - began > self.options.heartbeat:
                    self._hung(broker)
                await self._pause(broker, QUICK_LOOK)
        return None

    async def _ask(self, broker: LocalBroker) -> None:
        link = broker.link
        if link is None:
            return
        heartbeat = self.options.heartbeat
        for _ in range(2):
            asked = time.monotonic()
            try:
                status = await link.call("status", timeout=heartbeat)
                if broker.link is link and broker.running:  # else the dead have spoken
                    self._learn(broker, status, asked)
                return
            except RefusedRequest as error:
                self.events.add(
                    "refused", broker=broker.spec.name, what="status", reason=error.text
                )
                return
            except LinkBroken:
                # When we were late ourselves, silence proves nothing: ask once more.
                if link.closed or time.monotonic() - asked < heartbeat * 1.25:
                    break
        if broker.running and not link.closed:
            self._hung(broker)

    async def _beat(self, broker: LocalBroker) -> None:
        await self._pause(broker, self.options.heartbeat / 2 if self.settled else QUICK_LOOK)

    async def _pause(self, broker: LocalBroker, seconds: float) -> None:
        broker.poke.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await broker.poke.wait()

    async def _rest(self, broker: LocalBroker) -> None:
        until = time.monotonic() + RESTART_PATIENCE
        while not self.stopping and time.monotonic() < until and primary_of(self.members()) is None:
            if not any(member.healthy and member.state == "ready" for member in self.members()):
                break
            await self._pause(broker, QUICK_LOOK)
        if broker.backoff and not self.stopping:
            await asyncio.sleep(broker.backoff)

    def _learn(self, broker: LocalBroker, status: dict[str, Any], asked: float) -> None:
        member = broker.member
        in_sync = status.get("in_sync") or {}
        member.sequence = int(status.get("sequence", 0))
        member.system_id = str(status.get("system_id", ""))
        broker.membership_store = str(status.get("recorder", ""))
        member.in_sync = tuple(in_sync.get("members") or ())
        member.in_sync_version = (int(in_sync.get("epoch", 0)), int(in_sync.get("version", 0)))
        self._record_set(member)
        handing_over = str(status.get("handing_over") or "")
        if handing_over and handing_over != member.handing_over:
            self._note_hand_over(broker, handing_over)
        member.handing_over = handing_over
        broker.hung_since = 0.0
        state = str(status.get("state", "unknown"))
        if (
            state in PRIMARY_STATES or asked > broker.promotion_asked_at
        ):  # an answer from before it was told proves nothing
            broker.may_be_primary = state in PRIMARY_STATES
        if not member.healthy:
            member.healthy = True
            self._changed.set()
        self._show(broker, state, int(status.get("epoch", 0)))

    def _record_set(self, member: Member) -> None:
        if self.brokers[member.name].membership_store == "manager":
            return  # It is recorded as they want it, and before it is so.
        try:
            if self.record_in_sync(*member.in_sync_version, member.in_sync):
                epoch, version = member.in_sync_version
                self.events.add(
                    "in-sync set", epoch=epoch, version=version, members=len(member.in_sync)
                )
        except OSError as error:
            self.events.add("not written", what=str(self.options.in_sync_file), reason=str(error))

    def _note_hand_over(self, broker: LocalBroker, to: str) -> None:
        """An operator told the broker itself to hand over: keep still for it as well."""
        for other in self.brokers.values():
            if (
                to in (other.spec.address, other.member.system_id, other.spec.name)
                and not self._hand_over[0]
            ):
                self.events.add("switchover", broker=broker.spec.name, to=other.spec.name)
                self._hand_over = (other.spec.name, time.monotonic() + HAND_OVER_PATIENCE)

    def _hands_over(self) -> bool:
        """Whether a primary's successor is about to come by itself."""
        name, until = self._hand_over
        if name and time.monotonic() < until and self.brokers[name].member.healthy:
            return True
        self._hand_over = ("", 0.0)
        return False

    def _hung(self, broker: LocalBroker) -> None:
        if not broker.hung_since:
            broker.hung_since = time.monotonic()
            broker.member.healthy = False
            self.events.add("hung", broker=broker.spec.name, was=broker.member.state)
            self._show(broker, "hung", broker.member.epoch)
            self._changed.set()
        elif (
            self.options.fence
            and time.monotonic() - broker.hung_since > HUNG_BACKUP_BEATS * self.options.heartbeat
        ):
            if broker.process is not None:
                self.events.add("fence", broker=broker.spec.name, why="hung for too long")
                broker.process.signal(signal.SIGKILL)

    def _exited(self, broker: LocalBroker, process: BrokerProcess) -> None:
        member = broker.member
        was = member.state
        member.alive = member.healthy = False
        broker.may_be_primary = False
        broker.hung_since = 0.0
        lived = time.monotonic() - broker.launched
        broker.short_lives = broker.short_lives + 1 if lived < SHORT_LIFE else 0
        # On a busy machine a start takes long, so a broker that never served gave up at any age.
        is_early = was == "starting" or lived < SHORT_LIFE
        gave_up = process.exit_code is not None and process.exit_code > 0 and is_early
        broker.backoff = _longer(broker.backoff) if gave_up or broker.short_lives > 1 else 0.0
        where = str(broker.spec.log) if gave_up else ""
        fields = {
            "code": process.exit_code,
            "was": was,
            "lived": round(lived, 3),
            "gave_up": gave_up,
            "log": where,
        }
        self.events.add("exited", broker=broker.spec.name, pid=process.pid, **fields)
        self._show(broker, "down", member.epoch)
        if not self.stopping:
            self.record()
        for other in self.brokers.values():
            other.poke.set()
        self._changed.set()

    def _show(self, broker: LocalBroker, state: str, epoch: int) -> None:
        member = broker.member
        if (member.state, member.epoch) != (state, epoch):
            member.state, member.epoch = state, epoch
            broker.since = time.time_ns()
            self.events.add("state", broker=broker.spec.name, state=state, epoch=epoch)
            self._changed.set()

    # The task that decides.

    async def _direct(self) -> None:
        while not self.stopping:
            await self._changed.wait()
            self._changed.clear()
            primary = primary_of(self.members())
            if primary is None:
                self.settled = False
                await self._fail_over()
            else:
                self._note(primary)

    def _note(self, primary: Member) -> None:
        if primary.name == self._hand_over[0]:
            self._hand_over = ("", 0.0)
        self._refused = ()
        self._reason = ""
        if primary.name != self._primary:
            self._primary = primary.name
            self.settled = False
            self.events.add("primary", broker=primary.name, epoch=primary.epoch)
        others = [member for member in self.members() if member is not primary]
        settled = primary.state == "active" and all(
            member.healthy and member.state == "ready" for member in others
        )
        if settled and not self.settled:
            self.events.add(
                "settled", broker=primary.name, epoch=primary.epoch, backups=len(others)
            )
        self.settled = settled

    async def _fail_over(self) -> None:
        suspects = [
            broker
            for broker in self.brokers.values()
            if broker.running and broker.may_be_primary and not broker.member.healthy
        ]
        if any(not broker.hung_since for broker in suspects):
            return  # It may still answer; when it does, or is hung, we are called again.
        if self.options.fence:
            for broker in suspects:
                self.events.add("fence", broker=broker.spec.name, why="hung, and may be primary")
                await self.fence(broker.spec.name)
        await self.refresh()
        if self.stopping or primary_of(self.members()) is not None:
            self._changed.set()
            return
        if not self._hands_over():
            await self._choose()
        asyncio.get_running_loop().call_later(QUICK_LOOK, self._changed.set)

    async def _choose(self) -> None:
        waited = time.monotonic() - self._started > START_PATIENCE
        choice = choose(
            self.members(), waited=waited, refused=self._refused, recorded=self.newest_in_sync()
        )
        if choice.compare:
            choice = await self._compared(choice)
        if choice.reason != self._reason:
            self._reason = choice.reason
            self.events.add(
                "chosen" if choice.name else "waiting", broker=choice.name, reason=choice.reason
            )
        if choice.name:
            await self._try_promote(choice.name)

    async def _compared(self, choice: Choice) -> Choice:
        """Let the brokers themselves compare what they have, and take the one that they
        recommend.
        """
        link = self.brokers[choice.name].link
        if link is None:
            return choice
        try:
            found = await link.call("recover", timeout=COMPARE_PATIENCE)
        except (RefusedRequest, LinkBroken) as error:
            return Choice("", f"{choice.name} cannot compare what the brokers have: {error.text}")
        reason = str(found.get("reason") or choice.reason)
        named = [
            broker.spec.name
            for broker in self.brokers.values()
            if broker.spec.address == found.get("recommended")
        ]
        return Choice(named[0] if named else "", reason)

    async def _try_promote(self, name: str) -> None:
        broker = self.brokers[name]
        self.events.add(
            "promote",
            broker=name,
            state=broker.member.state,
            epoch=broker.member.epoch,
            sequence=broker.member.sequence,
        )
        broker.may_be_primary = True  # until it says what it is
        broker.promotion_asked_at = math.inf
        try:
            await self.promote(name)
        except (RefusedRequest, LinkBroken) as error:
            broker.may_be_primary = isinstance(error, LinkBroken) and broker.running
            broker.promotion_asked_at = time.monotonic()
            self._refused = (*self._refused, name) if len(self._refused) < len(self.brokers) else ()
            self.events.add("refused", broker=name, what="promote", reason=error.text)
        else:
            broker.promotion_asked_at = time.monotonic()
            self.events.add("promoted", broker=name)
            await self._ask(broker)


def _longer(backoff: float) -> float:
    """Give the pause before the next start that follows one of `backoff` seconds."""
    return min(5.0, max(0.25, backoff * 2))
