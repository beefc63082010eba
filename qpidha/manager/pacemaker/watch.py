"""The watch: one process beside a broker that Pacemaker runs; it tells Pacemaker at once what a
monitor would find later.

The agent starts it and it ends with the broker. The kernel reports the broker's end, and what has
to happen then waits for nothing: the virtual addresses go, the promotion score goes, and the
failure is told, all at the same time. Otherwise the broker is asked how it is several times a
second, which keeps score and in-sync record current, and takes the addresses away as soon as it is
primary no more. It must not know how a broker works inside. Source: rules S2 and S3 in
docs/internals/safety.md.
"""

from __future__ import annotations

import argparse
import asyncio
import concurrent.futures
import fcntl
import os
import signal
import sys
import threading
import time
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qpidha.client.admin import AdminLink, LinkBroken
from qpidha.manager.in_sync_record import InSyncRecord
from qpidha.manager.json_server import JsonServer
from qpidha.manager.membership_store import serve_membership_store
from qpidha.manager.pacemaker.score import (
    Status,
    follows_primary,
    has_manager_store,
    is_cut_off,
    is_primary,
    needs_comparison,
    own_record,
    promotion_score,
)
from qpidha.manager.pacemaker.watch_commands import CommandFailed, Pacemaker
from qpidha.manager.pacemaker.watch_record import NotQuorate, PacemakerRecord
from qpidha.manager.vip.state import Notes, Wanted
from qpidha.manager.vip.wire import repeat
from qpidha.model.errors import NotImplementedHere, QpidHaError, RefusedRequest

if TYPE_CHECKING:
    from qpidha.manager.vip.addresses import VirtualAddresses

REPUBLISH = 30.0
"""Seconds after which an unchanged score is set again and the record read again, in case that
somebody else changed them.
"""
RECORD_INTERVAL = 1.0
"""Seconds between looks at the record while there is no primary that would tell the broker of a
newer set.
"""
FIRST_START_PATIENCE = 5.0
"""Seconds that a connected majority waits for the others at the first start of a cluster."""
RETRY = 1.0
"""Seconds after a command that failed."""
COMPARE_PATIENCE = 10.0
OVERSLEPT = 0.25
"""Seconds that we may be late ourselves; what seemed unanswered for longer proves nothing of the
broker.
"""


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """What is watched. Durations are in seconds."""

    admin_socket: str
    pid: int
    socket: Path
    vips: Path
    isolation: float = 3.0
    """How long a primary may be cut off from a majority; 0 is for ever."""
    answer: float = 1.0
    """How long an answer may take."""
    interval: float = 0.25


class Watch:
    """Watches one broker until it ends or `stop` is called."""

    def __init__(self, options: WatchOptions, pacemaker: Pacemaker) -> None:
        self.options = options
        self.pacemaker = pacemaker
        self.status: Status | None = None
        self.unfit = ""
        """Why the broker counts as failed although it runs; empty if it does not."""
        self.recorded: InSyncRecord | None = None
        """Newest in-sync set in Pacemaker's store; None until it was read."""
        self.score: int | None = None
        self._record = PacemakerRecord(pacemaker)
        self._store_fails = False
        """Whether the store could not be read or changed here when the broker wanted that last."""
        self._published: tuple[int | None, float] | None = None
        self._over: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._news = asyncio.Event()
        self._link: AdminLink | None = None
        self._opening = asyncio.Lock()
        self._answered_at = time.monotonic()
        self._cut_since: float | None = None
        self._majority_since: float | None = None
        self._recommended = False
        self._retry_at = self._read_at = self._compared_at = 0.0
        self._complaint = ""
        self._telling: asyncio.Task[None] | None = None
        self._notes = Notes(options.vips)
        # pyroute2 takes a tenth of a second and more to import; the end of the broker must be
        # noticed meanwhile.
        self._threads = concurrent.futures.ThreadPoolExecutor(8, "vip")
        self._addresses: concurrent.futures.Future[VirtualAddresses | None] = self._threads.submit(
            _load, options.vips
        )

    async def run(self) -> None:
        """Watch until the end."""
        loop = asyncio.get_running_loop()
        pidfd = _pidfd(self.options.pid)
        if pidfd < 0:
            self._broker_ended()
        else:
            loop.add_reader(pidfd, self._broker_ended)
        methods = {
            "vip_add": self._vip_add,
            "vip_remove": self._vip_remove,
            "vip_show": self._vip_show,
            "status": self._status,
        }
        server = JsonServer(self.options.socket, methods, owner="the watch")
        await server.listen()
        working = [
            asyncio.create_task(work)
            for work in (self._poll(), self._publish(), self._serve_store())
        ]
        waiting: list[asyncio.Future[Any]] = [self._over, *working]
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if pidfd >= 0:
            loop.remove_reader(pidfd)
            os.close(pidfd)
        gone = await asyncio.wrap_future(self._withdraw())
        await server.close()
        for task in working:
            task.cancel()
        if self._telling is not None:
            await self._telling
        why = self._over.result() if self._over.done() else "it broke"
        _say(f"the watch ends: {why}{'; removed ' + ', '.join(gone) if gone else ''}")
        for one in done:
            one.result()  # Raises what broke it.

    def stop(self) -> None:
        """End without telling Pacemaker anything: the agent is about to stop the broker."""
        self.pacemaker.close()
        if not self._over.done():
            self._over.set_result("asked to stop")

    def _broker_ended(self) -> None:
        if self._over.done():
            return
        self._withdraw()
        if (
            not self.unfit
        ):  # Otherwise it was told already, and the agent may have ended the broker because of it.
            self._tell()
        self.unfit = f"broker {self.options.pid} ended"
        self._over.set_result(self.unfit)

    # Knowing how the broker is.

    async def _poll(self) -> None:
        while not self._over.done():
            asked = time.monotonic()
            try:
                self._heard(await self._ask("status", timeout=self.options.answer))
            except (LinkBroken, RefusedRequest) as error:
                self._unheard(asked, error.text)
            await asyncio.sleep(self.options.interval)

    async def _ask(
        self, method: str, params: dict[str, Any] | None = None, *, timeout: float
    ) -> dict[str, Any]:
        try:
            async with self._opening, asyncio.timeout(self.options.answer):
                if self._link is None or self._link.closed:
                    self._link = await AdminLink.open(self.options.admin_socket)
        except TimeoutError:
            raise LinkBroken(
                f"admin socket {self.options.admin_socket}: no connection within "
                f"{self.options.answer:g} s"
            ) from None
        return await self._link.call(method, params, timeout=timeout)

    def _heard(self, status: Status) -> None:
        now = self._answered_at = time.monotonic()
        self.status = status
        self._cut_since = (
            (self._cut_since or now) if is_cut_off(status, store_fails=self._store_fails) else None
        )
        self._majority_since = (
            (self._majority_since or now)
            if status.get("majority") or has_manager_store(status)
            else None
        )
        if self._cut_since is not None and 0 < self.options.isolation <= now - self._cut_since:
            what = (
                "waited for Pacemaker's store"
                if has_manager_store(status)
                else "had no connection to a majority"
            )
            self._fail(f"the primary has {what} for {self.options.isolation:g} s")
        elif self.unfit and not self._over.done():
            _say("the broker works again")
            self.unfit = ""
        if self.unfit or not is_primary(status):
            self._revoke()
        waited = (
            self._majority_since is not None and now - self._majority_since >= FIRST_START_PATIENCE
        )
        score = promotion_score(status, self.recorded, waited=waited, recommended=self._recommended)
        self.score = None if self.unfit else score
        self._news.set()

    def _unheard(self, asked: float, why: str) -> None:
        now = time.monotonic()
        if (
            now - asked > self.options.answer + OVERSLEPT
            or now - self._answered_at < self.options.answer
        ):
            return
        self._fail(f"the broker has not answered for {now - self._answered_at:.1f} s: {why}")

    def _fail(self, why: str) -> None:
        """Count the running broker as failed; tell it once."""
        if self.unfit or self._over.done():
            return
        self._withdraw()
        self._tell()
        self.unfit, self.score = why, None
        _say(why)

    # Virtual addresses.

    def _withdraw(self) -> concurrent.futures.Future[list[str]]:
        """Begin to remove all addresses; what is being added does not complete."""
        return self._threads.submit(self._withdraw_now)

    def _withdraw_now(self) -> list[str]:
        addresses = self._addresses.result()
        try:
            return addresses.withdraw() if addresses is not None else []
        except (OSError, RefusedRequest) as error:
            _say(f"the addresses cannot be removed: {error}")
            return []

    def _revoke(self) -> None:
        """Let no address stay or come, as the broker is no primary. Asked for each time, so that
        nothing is overlooked.
        """
        addresses = self._addresses.result() if self._addresses.done() else None
        if addresses is not None:
            addresses.generation += 1
        if self._notes.all():
            self._withdraw()

    async def _loaded(self) -> VirtualAddresses:
        addresses = await asyncio.wrap_future(self._addresses)
        if addresses is None:
            raise NotImplementedHere(
                "pyroute2 is not installed, so there are no virtual addresses",
                hint="pip install 'qpidha[vip]'",
            )
        return addresses

    async def _vip_add(self, params: dict[str, Any]) -> dict[str, Any]:
        addresses = await self._loaded()
        prefix = int(params.get("prefix") or 0)
        text = f"{params.get('address', '')}{f'/{prefix}' if prefix else ''}"
        wanted = Wanted.parse(text, str(params.get("interface") or ""))
        try:
            status = await self._ask("status", timeout=self.options.answer)
        except LinkBroken as error:
            raise RefusedRequest(
                f"the broker of this node does not answer: {error.text}", hint="qpid-ha status"
            ) from error
        if self.unfit or self._over.done() or not is_primary(status):
            why = self.unfit or f"the broker of this node is {status.get('state')}"
            raise RefusedRequest(
                f"{wanted.address} belongs where the primary is: {why}", hint="qpid-ha status --all"
            )
        generation = addresses.generation
        added = await asyncio.wrap_future(
            self._threads.submit(
                addresses.add, wanted, force=bool(params.get("force")), generation=generation
            )
        )
        if added.announcer is not None:
            notes, address = self._notes, added.held.address
            threading.Thread(
                target=repeat, args=(added.announcer, lambda: notes.has(address)), daemon=True
            ).start()
        if generation != addresses.generation:
            await asyncio.wrap_future(self._threads.submit(addresses.remove, added.held.address))
            raise RefusedRequest(
                f"{added.held.address} was withdrawn, the broker is primary no more",
                hint="qpid-ha status --all",
            )
        return {**added.held._asdict(), "changed": added.changed}

    async def _vip_remove(self, params: dict[str, Any]) -> dict[str, Any]:
        addresses = await self._loaded()
        if "address" not in params:
            return {"removed": await asyncio.wrap_future(self._withdraw())}
        address = Wanted.parse(str(params["address"])).address
        found = await asyncio.wrap_future(self._threads.submit(addresses.remove, address))
        return {"removed": [address] if found else []}

    async def _vip_show(self, params: dict[str, Any]) -> dict[str, Any]:
        addresses = await self._loaded()
        return {"addresses": await asyncio.wrap_future(self._threads.submit(addresses.show))}

    async def _status(self, params: dict[str, Any]) -> dict[str, Any]:
        return {
            "schema_version": 1,
            "resource": self.pacemaker.resource,
            "pid": os.getpid(),
            "broker_pid": self.options.pid,
            "state": (self.status or {}).get("state", "unknown"),
            "unfit": self.unfit,
            "score": self.score,
            "published": self._published[0] if self._published is not None else None,
            "recorded": self.recorded._asdict() if self.recorded is not None else None,
            "addresses": [one._asdict() for one in self._notes.all()],
            "complaint": self._complaint,
        }

    # Telling Pacemaker.

    def _tell(self, *commands: list[str]) -> None:
        """Delete the score and tell the failure; begins at once. What fails is repeated while the
        broker runs on and counts as failed.
        """
        begun = self.pacemaker.tell_failure(*commands)

        async def wait() -> None:
            wrong = await self.pacemaker.results_of(begun)
            self._published = None
            _say(
                "reported the failure to "
                f"Pacemaker{': ' + '; '.join(why for _, why in wrong) if wrong else ''}"
            )
            if wrong:
                await asyncio.wait([self._over], timeout=RETRY)
                if self.unfit and not self._over.done():
                    self._tell(*(command for command, _ in wrong))

        self._telling = asyncio.create_task(wait())

    async def _publish(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            now = time.monotonic()
            if self.status is None or self.unfit or now < self._retry_at or self._over.done():
                continue
            try:
                await self._publish_score(now)
                await self._keep_record(now, self.status)
                await self._compare(now, self.status)
            except CommandFailed as error:
                self._retry_at = now + RETRY
                if self._complaint != error.text:
                    _say(error.text)
                self._complaint = error.text
            else:
                self._complaint = ""

    async def _publish_score(self, now: float) -> None:
        score = self.score
        if (
            self._published is not None
            and score == self._published[0]
            and now - self._published[1] < REPUBLISH
        ):
            return
        if await self.pacemaker.set_score(score):
            self._published = (score, now)

    async def _keep_record(self, now: float, status: Status) -> None:
        """Know what is recorded; write the primary's newest in-sync set, if that is not for the
        broker to say.
        """
        primary, own = is_primary(status), own_record(status)
        is_behind, is_ours = (
            self.recorded is None or own.order > self.recorded.order,
            has_manager_store(status),
        )
        newer = primary and bool(own.members) and is_behind and not is_ours
        fresh_for = (
            REPUBLISH
            if (primary or follows_primary(status)) and not (is_behind and is_ours)
            else RECORD_INTERVAL
        )
        if newer or self.recorded is None or now - self._read_at >= fresh_for:
            self.recorded = await self.pacemaker.read_record()
            self._read_at = now
            if newer and own.order > self.recorded.order:
                await self.pacemaker.write_record(own, self.recorded)
                self.recorded = own

    async def _serve_store(self) -> None:
        """Have the store keep what the broker wants, where that is what counts."""
        while True:
            if self.status is not None and has_manager_store(self.status):
                try:
                    await serve_membership_store(self._ask, self._change)
                except (LinkBroken, RefusedRequest):
                    # The broker ended or hangs, which others notice; or it was started anew and
                    # records otherwise.
                    pass
            await asyncio.sleep(self.options.interval)

    async def _change(self, record: InSyncRecord | None, instead: InSyncRecord) -> InSyncRecord:
        try:
            self.recorded = await self._record.change(record, instead)
        except (NotQuorate, CommandFailed):
            self._store_fails = True
            raise
        except QpidHaError:
            self._store_fails = False
            raise
        self._store_fails, self._read_at = False, time.monotonic()
        self._news.set()
        return self.recorded

    async def _compare(self, now: float, status: Status) -> None:
        """After a total failure: let the broker compare what all have."""
        if not needs_comparison(status, self.recorded):
            self._recommended = False
        elif now - self._compared_at >= RETRY:
            try:
                found = await self._ask("recover", timeout=COMPARE_PATIENCE)
            except (LinkBroken, RefusedRequest) as error:
                found = {"reason": error.text}
            self._recommended = bool(found.get("recommended")) and found.get(
                "recommended"
            ) == status.get("address")
            self._compared_at = time.monotonic()


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line and watch; 0 when the broker ended or we were told to end."""
    parser = argparse.ArgumentParser(
        prog="qpidha-watch",
        description="Watch one broker for Pacemaker. Started by the resource agent.",
    )
    parser.add_argument("--admin-socket", required=True, help="of the broker")
    parser.add_argument("--pid", type=int, required=True, help="of the broker")
    parser.add_argument("--resource", required=True, metavar="NAME", help="whose failure to tell")
    parser.add_argument(
        "--node", default=os.uname().nodename, help="this node's name in the cluster (uname -n)"
    )
    parser.add_argument(
        "--socket",
        type=Path,
        default=Path("/run/qpidha/watch.sock"),
        help="where to answer the agents",
    )
    parser.add_argument(
        "--vips", type=Path, default=Path("/run/qpidha/vip"), help="folder of the held addresses"
    )
    parser.add_argument(
        "--isolation",
        type=float,
        default=3.0,
        help="seconds a primary may hear no majority; 0: for ever",
    )
    parser.add_argument("--answer", type=float, default=1.0, help="seconds for an answer")
    parser.add_argument("--interval", type=float, default=0.25, help="seconds between questions")
    parser.add_argument(
        "--publish",
        choices=("promotion", "attribute"),
        default="promotion",
        help="how to publish the score",
    )
    given = parser.parse_args(arguments)
    given.socket.parent.mkdir(parents=True, exist_ok=True)
    lock = os.open(f"{given.socket}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.stderr.write(
            f"error: another watch has {given.socket}. Try: end it, or name another --socket\n"
        )
        return 1
    options = WatchOptions(
        given.admin_socket,
        given.pid,
        given.socket,
        given.vips,
        given.isolation,
        given.answer,
        given.interval,
    )
    asyncio.run(_watch(options, Pacemaker(given.resource, given.node, given.publish)))
    return 0


async def _watch(options: WatchOptions, pacemaker: Pacemaker) -> None:
    watch = Watch(options, pacemaker)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, watch.stop)
    await watch.run()


def _load(folder: Path) -> VirtualAddresses | None:
    """Import pyroute2, if it is installed."""
    try:
        addresses: VirtualAddresses = import_module(
            "qpidha.manager.vip.addresses"
        ).VirtualAddresses(folder)
    except ImportError:
        return None
    return addresses


def _pidfd(pid: int) -> int:
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return -1


def _say(text: str) -> None:
    sys.stderr.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} watch: {text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
