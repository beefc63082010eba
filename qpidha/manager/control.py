"""The manager's own socket: commands of the operator, one JSON line each, and the stream of events.

A request is `{"id": 1, "method": "status", "params": {}}` and its answer one line with `result` or `error`, as on a
broker's admin socket. After `events` the connection carries one line per event. Only the same user and root are let in.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import struct
import time
from typing import Any

from qpidha.manager.local import LocalManager
from qpidha.manager.local_broker import LocalBroker
from qpidha.manager.placement import primary_of
from qpidha.words.errors import InvalidArgument, LimitExceeded, NotFound, QpidHaError

KILL_PATIENCE = 5.0
"""Seconds to wait for a killed process to be gone."""
MOST_LISTENERS = 100
"""Sessions that may hear events at the same time."""
MOST_UNREAD = 16 << 20
"""Bytes of events that one of them may leave unread before it is cut off; all that are kept make a tenth of it."""


class Control:
    """Serves `manager.sock`."""

    def __init__(self, manager: LocalManager) -> None:
        self.manager = manager
        self.down = asyncio.Event()
        """Set when the operator asked for the end."""
        self.gone = asyncio.Event()
        """Set when the brokers have ended; the answer to `down` waits for it."""
        self._server: asyncio.Server | None = None
        self._sessions: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._listeners = 0

    async def listen(self) -> None:
        """Open the socket."""
        path = self.manager.options.socket
        path.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._serve, str(path))
        path.chmod(0o600)

    async def close(self) -> None:
        """Answer who waits for the end, hang up, and remove the socket."""
        self.manager.options.socket.unlink(missing_ok=True)
        if self._server is not None:
            self._server.close()
        self.gone.set()
        # A turn for the answers; then each session reads its end and finishes by itself.
        await asyncio.sleep(0)
        for writer in self._sessions.values():
            writer.close()
        if self._sessions:
            await asyncio.wait(list(self._sessions), timeout=1.0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._sessions[task] = writer
        try:
            if not _allowed(writer):
                return
            while line := await reader.readline():
                request = json.loads(line)
                if request.get("method") == "events" and self._listeners < MOST_LISTENERS:
                    await self._stream(reader, writer)
                    return
                writer.write(json.dumps(await self._answer(request)).encode() + b"\n")
                await writer.drain()
        except (OSError, ValueError):
            pass  # The operator hung up, or does not speak our language: nothing to answer.
        finally:
            del self._sessions[task]
            writer.close()

    async def _stream(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        transport = writer.transport

        def tell(entry: dict[str, Any]) -> None:
            if transport.get_write_buffer_size() > MOST_UNREAD:
                transport.abort()  # It listens no more, and its reader ends.
            else:
                writer.write(json.dumps(entry).encode() + b"\n")

        self.manager.events.subscribe(tell)
        self._listeners += 1
        try:
            await reader.read()
        finally:
            self._listeners -= 1
            self.manager.events.unsubscribe(tell)

    async def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        params = request.get("params") or {}
        try:
            if request.get("method") == "events":
                raise LimitExceeded(f"{MOST_LISTENERS} sessions hear the events already", hint="end one of them")
            method = METHODS.get(str(request.get("method")))
            if method is None:
                raise NotFound(f"the manager has no method {request.get('method')!r}", hint=f"it has {', '.join(METHODS)} and events")
            return {"id": request.get("id"), "result": await method(self, params)}
        except QpidHaError as error:
            return {"id": request.get("id"), "error": {"condition": error.condition, "message": error.text, "hint": error.hint}}

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
            raise NotFound(f"{broker.spec.name} is not running", hint="qpid-ha local status shows the brokers")
        at = time.time_ns()
        process.signal(number)
        if number in (signal.SIGSTOP, signal.SIGCONT):
            broker.stopped = number == signal.SIGSTOP
        self.manager.events.add("signal", broker=broker.spec.name, signal=signal.Signals(number).name, pid=process.pid, sent_ns=at)
        if number in (signal.SIGKILL, signal.SIGTERM):
            await process.ended(KILL_PATIENCE)
        return {"name": broker.spec.name, "pid": process.pid, "signal": signal.Signals(number).name, "time_ns": at}

    async def _restart(self, params: dict[str, Any]) -> dict[str, Any]:
        answer = await self._kill({"name": params.get("name"), "signal": "TERM"})
        broker = self.manager.broker(str(params.get("name", "")))
        if broker.process is not None and broker.process.pid == answer["pid"] and broker.process.running:
            await self.manager.fence(broker.spec.name)
        return answer

    async def _switchover(self, params: dict[str, Any]) -> dict[str, Any]:
        before = primary_of(self.manager.members())
        await self.manager.switch_over(str(params.get("target") or ""))
        after = primary_of(self.manager.members())
        names = {"from": before.name if before is not None else None, "to": after.name if after is not None else None}
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


METHODS = {
    "status": Control._status,
    "kill": Control._kill,
    "restart": Control._restart,
    "switchover": Control._switchover,
    "failover": Control._failover,
    "down": Control._down,
}


def _in_sync(manager: LocalManager) -> dict[str, Any]:
    """Show the recorded in-sync set; a member that no broker of ours has the id of keeps its id."""
    newest = manager.newest_in_sync()
    names = {member.system_id: member.name for member in manager.members() if member.system_id}
    return {"epoch": newest.epoch, "version": newest.version, "members": [names.get(member, member) for member in newest.members]}


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


def _allowed(writer: asyncio.StreamWriter) -> bool:
    peer = writer.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return struct.unpack("3i", peer)[1] in (0, os.getuid())
