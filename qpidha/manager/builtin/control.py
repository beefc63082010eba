"""The manager's own socket: what an operator's command may ask of it, and the stream of events."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import Any

from qpidha.manager.builtin.supervisor import LocalBroker, LocalManager
from qpidha.manager.json_server import JsonServer
from qpidha.manager.placement import primary_of
from qpidha.model.errors import InvalidArgument, NotFound

KILL_PATIENCE = 5.0
"""Seconds to wait for a killed process to be gone."""


class Control:
    """Serves `manager.sock`."""

    def __init__(self, manager: LocalManager) -> None:
        self.manager = manager
        self.down = asyncio.Event()
        """Set when the operator asked for the end."""
        self.gone = asyncio.Event()
        """Set when the brokers have ended; the answer to `down` waits for it."""
        methods = {
            "status": self._status,
            "kill": self._kill,
            "restart": self._restart,
            "switchover": self._switchover,
            "failover": self._failover,
            "down": self._down,
        }
        self._server = JsonServer(
            manager.options.socket, methods, owner="the manager", events=manager.events
        )

    async def listen(self) -> None:
        """Open the socket."""
        await self._server.listen()

    async def close(self) -> None:
        """Answer who waits for the end, hang up, and remove the socket."""
        self.gone.set()
        await self._server.close()

    async def _status(self, params: dict[str, Any]) -> dict[str, Any]:
        await self.manager.refresh()
        members = self.manager.members()
        primary = primary_of(members)
        return {
            "schema_version": 1,
            "name": self.manager.options.name,
            "directory": str(self.manager.options.directory),
            "manager_pid": os.getpid(),
            "heartbeat": self.manager.options.heartbeat,
            "fence": self.manager.options.fence,
            "clients": self.manager.options.clients(),
            "settled": self.manager.settled,
            "primary": primary.name if primary is not None else None,
            "epoch": max(member.epoch for member in members),
            "in_sync": _in_sync(self.manager),
            "brokers": [_describe(broker) for broker in self.manager.brokers.values()],
        }

    async def _kill(self, params: dict[str, Any]) -> dict[str, Any]:
        broker = self.manager.broker(str(params.get("name", "")))
        number = _signal_number(str(params.get("signal", "KILL")))
        process = broker.process
        if process is None or not process.running:
            raise NotFound(
                f"{broker.spec.name} is not running", hint="qpid-ha local status shows the brokers"
            )
        at = time.time_ns()
        process.signal(number)
        if number in (signal.SIGSTOP, signal.SIGCONT):
            broker.stopped = number == signal.SIGSTOP
        self.manager.events.add(
            "signal",
            broker=broker.spec.name,
            signal=signal.Signals(number).name,
            pid=process.pid,
            sent_ns=at,
        )
        if number in (signal.SIGKILL, signal.SIGTERM):
            await process.ended(KILL_PATIENCE)
        return {
            "name": broker.spec.name,
            "pid": process.pid,
            "signal": signal.Signals(number).name,
            "time_ns": at,
        }

    async def _restart(self, params: dict[str, Any]) -> dict[str, Any]:
        answer = await self._kill({"name": params.get("name"), "signal": "TERM"})
        broker = self.manager.broker(str(params.get("name", "")))
        if (
            broker.process is not None
            and broker.process.pid == answer["pid"]
            and broker.process.running
        ):
            await self.manager.fence(broker.spec.name)
        return answer

    async def _switchover(self, params: dict[str, Any]) -> dict[str, Any]:
        before = primary_of(self.manager.members())
        await self.manager.switch_over(str(params.get("target") or ""))
        after = primary_of(self.manager.members())
        names = {
            "from": before.name if before is not None else None,
            "to": after.name if after is not None else None,
        }
        return {**names, "epoch": after.epoch if after is not None else None}

    async def _failover(self, params: dict[str, Any]) -> dict[str, Any]:
        before = primary_of(self.manager.members())
        to = await self.manager.take_over(str(params.get("target") or ""))
        epoch = self.manager.broker(to).member.epoch
        return {"from": before.name if before is not None else None, "to": to, "epoch": epoch}

    async def _down(self, params: dict[str, Any]) -> dict[str, Any]:
        self.down.set()
        await self.gone.wait()
        return {"down": True}


def _in_sync(manager: LocalManager) -> dict[str, Any]:
    """Show the recorded in-sync set; a member that no broker of ours has the id of keeps its id."""
    newest = manager.newest_in_sync()
    names = {member.system_id: member.name for member in manager.members() if member.system_id}
    return {
        "epoch": newest.epoch,
        "version": newest.version,
        "members": [names.get(member, member) for member in newest.members],
    }


def _describe(broker: LocalBroker) -> dict[str, Any]:
    member = broker.member
    return {
        "name": member.name,
        "address": member.address,
        "pid": broker.process.pid if broker.process is not None and broker.running else None,
        "state": member.state,
        "epoch": member.epoch,
        "sequence": member.sequence,
        "healthy": member.healthy,
        "stopped": broker.stopped,
        "restarts": broker.restarts,
        "since_ns": broker.since,
        "system_id": member.system_id,
        "admin_socket": str(broker.spec.admin_socket),
        "data_dir": str(broker.spec.data_dir),
        "log": str(broker.spec.log),
    }


def _signal_number(name: str) -> int:
    try:
        return int(signal.Signals[name if name.startswith("SIG") else f"SIG{name}"])
    except KeyError:
        raise InvalidArgument(f"no signal {name!r}", hint="use KILL, TERM, STOP or CONT") from None
