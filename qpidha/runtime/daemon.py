"""Daemon: qpidhad, one broker process. Starts, serves until it is asked to stop, and says by its
exit code how it ended.

Order of start: settings, lock and identity, users, sockets, node, accepting. Everything that can be
wrong with the surroundings is found before the first client is accepted, and is said with what to
do about it. Source: Qpid src/qpidd.cpp; exit codes as in sysexits.h.
"""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import os
import signal
import socket
import ssl
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import uvloop

from qpidha.amqp.peer.sasl import Users
from qpidha.management.acl import AccessList
from qpidha.model.choices import choice_text
from qpidha.model.effects import (
    Announce,
    Compute,
    Reload,
    SaveState,
    SetLogLevel,
    Stop,
    WriteEvents,
)
from qpidha.model.errors import InvalidArgument, LogDamaged, QpidHaError, StateLost
from qpidha.model.event_codes import (
    INVARIANT_BROKEN,
    LISTENS,
    LOG_NOT_WRITTEN,
    NOT_COMMANDED,
    ODD_SETTING,
    RELOAD_REFUSED,
    RELOADED,
    STARTS,
    STATE_COPY_USED,
    STATE_NOT_SAVED,
    STOPS,
    STOPS_BY_FAULT,
)
from qpidha.model.event_log import quoted
from qpidha.model.events import Event, Reloaded, StateSaved, StopRequested
from qpidha.model.exit_codes import (
    CONFIG,
    DATA_ERROR,
    INTERRUPTED,
    IO_ERROR,
    NO,
    OK,
    SOFTWARE,
    TIMED_OUT,
)
from qpidha.model.memory import peer_share
from qpidha.model.paths import CONFIGURATION, QPIDD_CONFIGURATION
from qpidha.model.settings import Settings
from qpidha.node import NOT_RELOADED, VERSION, Node, check_patterns, newest_state
from qpidha.runtime.access_list import load_access_list
from qpidha.runtime.arithmetic import Arithmetic
from qpidha.runtime.clock import Clock, new_uuid
from qpidha.runtime.configuration import Configuration, configure
from qpidha.runtime.console import ConsoleProcess, check_console
from qpidha.runtime.data_dir import Disk
from qpidha.runtime.describe import changed_text, config_text, help_text
from qpidha.runtime.descriptors import allowed, fit
from qpidha.runtime.detached import Caller, detach, in_background
from qpidha.runtime.event_log import EventLogWriter
from qpidha.runtime.exits import CannotStart, reason_of
from qpidha.runtime.log_disk import LOG_FOLDER, SWITCH_INTERVAL, LogDisk
from qpidha.runtime.log_lines import Log
from qpidha.runtime.log_sinks import Sink, open_sinks
from qpidha.runtime.memory import available, limit_of, limit_text, watch
from qpidha.runtime.network import Network
from qpidha.runtime.node_loop import NodeLoop
from qpidha.runtime.pid_file import PidFile, end, pid_path, running
from qpidha.runtime.policy_file import load_policies
from qpidha.runtime.reload import Reread, Surroundings, read_again
from qpidha.runtime.service_manager import ServiceManager
from qpidha.runtime.sockets import (
    admin_group,
    admin_socket_path,
    bind_admin,
    bind_port,
    inherited,
    listen,
    own_address,
)
from qpidha.runtime.state_saver import StateSaver
from qpidha.runtime.tls import certificate_end, check_certificate, client_context, server_context
from qpidha.runtime.users import SECRET, check_kerberos, check_users, load_users

_FLUSH = 2.0
"""Seconds that the last bytes may take to leave when the daemon stops."""
_PATIENCE = 10.0
"""Seconds that the node may take to stop in good order."""
_SYNC = 10.0
"""Seconds that the disk may take for what is queued when the daemon stops."""
PROCESS_COMMANDS = ("running", "quit", "kill")
"""Commands about the process of a broker that runs, or does not."""


class Daemon:
    """One broker and its surroundings."""

    def __init__(
        self,
        settings: Settings,
        env: Mapping[str, str],
        loop: asyncio.AbstractEventLoop,
        reread: Reread,
        caller: Caller | None = None,
        *,
        in_data: bool,
    ) -> None:
        """`reread` is what the settings came from; `caller` waits until clients are served;
        `in_data` says whether the admin socket may be in the data directory, as that was given.
        """
        self._in_data = in_data
        self._settings = settings
        self._reread = reread
        self._secret = os.urandom(SECRET)
        self._known: tuple[str, ...] = ()
        """Who can log in with a password."""
        self._reloads: set[asyncio.Task[None]] = set()
        self._reloading = asyncio.Lock()
        self._env = env
        self._loop = loop
        self._clock = Clock()
        self._log = Log(
            open_sinks(settings, env),
            self._clock,
            selectors=settings.log_level,
            disabled=settings.log_disable,
            form=settings.log_format,
            name=settings.name,
        )
        self._service = ServiceManager(env, loop)
        self._caller = caller
        self._node_loop = NodeLoop(loop, self._clock)
        self._network = Network(loop, settings, self._node_loop.put, self._log)
        self._disk = Disk(settings.data_dir)
        self._log_disk: LogDisk | None = None
        self._saver: StateSaver | None = None
        self._events: EventLogWriter | None = None
        self._plain: list[socket.socket] = []
        self._secure: list[socket.socket] = []
        self._admin_path = ""
        self._pid_file: PidFile | None = None
        self._console: ConsoleProcess | None = None
        self._ended: asyncio.Future[int] = loop.create_future()
        self._is_stopping = False

    async def run(self, warnings: Sequence[str], files: Sequence[str] = ()) -> int:
        """Serve until asked to stop; the exit code. `files` are those of the settings."""
        try:
            try:
                await self._start(warnings, files)
            except CannotStart:
                self._disk.forget()
                raise
            code = await self._ended
            self._node_loop.stop()
            await self._network.close(_FLUSH)
            reason = await self._loop.run_in_executor(None, self._close_log_disk)
            if self._events is not None:
                await self._loop.run_in_executor(None, self._events.close, _SYNC)
            if reason and code != IO_ERROR:
                self._log.write("critical", "store", reason, event_code=LOG_NOT_WRITTEN)
            return IO_ERROR if reason else code
        finally:
            self._node_loop.stop()
            self._network.stop_listening()
            for one in (*self._plain, *self._secure):
                one.close()
            if self._admin_path:
                _unlink(self._admin_path)
            if self._pid_file is not None:
                self._pid_file.close()
            self._close_log_disk()
            self._service.close()
            if self._close_saver():
                self._disk.close()  # Else the lock ends with the process, and with what it writes.

    async def _start(self, warnings: Sequence[str], files: Sequence[str]) -> None:
        settings = self._settings
        self._loop.set_exception_handler(self._failed)
        users = load_users(settings, self._secret)
        self._known = tuple(users.verifiers)
        acl, _ = load_access_list(settings)
        tls = (
            server_context(settings)
            if settings.ssl_cert and "ssl" not in settings.listen_disable
            else None
        )
        self._bind(tls)
        port = _port_of(self._plain or self._secure)
        address = own_address(
            settings,
            [_port_of(sockets) for sockets in (self._plain, self._secure) if sockets]
            or [settings.port],
        )
        self._log.name = settings.name or address.host_port
        self._log.state = "joining" if settings.ha_cluster else "standalone"
        with_files = f"qpidha {VERSION} starts, process {os.getpid()}{_with(files)}"
        text = f"{with_files}: {changed_text(settings)}"
        self._log.write("notice", "broker", text, event_code=STARTS)
        for warning in warnings:
            self._log.write("warning", "broker", warning, event_code=ODD_SETTING)
        path = admin_socket_path(settings, port, self._env, in_data=self._in_data)
        admin = bind_admin(path, group := admin_group(settings))
        self._admin_path = path
        self._pid_file = PidFile(_pid_folder(settings, port), port)
        # A write-ahead log of millions of messages is read below, and none of them is garbage.
        gc.collect()
        gc.disable()
        node = self._make_node(users, acl, address.host_port)
        if node.event_log.is_on:
            self._events = EventLogWriter(
                settings, node.name, offset=self._clock.offset, warn=self._warn_soon
            )
            for at, row in self._events.story.read():
                node.event_log.recent.note(at, [row])
        self._node_loop.start(node, {**self._network.handlers, **self._handlers()})
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._stop_requested)
        self._loop.add_signal_handler(signal.SIGHUP, self._reload_soon)
        await self._network.serve_admin(admin, group)
        await self._network.trusted_hosts.start()
        await self._network.serve(self._plain)
        if tls is not None:
            await self._network.serve(self._secure, tls)
        self._tell_ready(port)
        if settings.http_port:
            self._console = ConsoleProcess(settings, path, self._log_of_console)
        # What exists by now lives as long as the process; the collector need not look at it again.
        gc.freeze()
        # Messages come and go by their reference counts; a full collection over millions of them
        # would only stop the broker. Every surviving object is scanned twice.
        # Measured with nothing else: (2k, 5) pauses 0.9 ms, (10k, 5) 4, and all pauses come to
        # the same; (50k, 50) 300 ms.
        gc.set_threshold(2_000, 5, 100_000)
        gc.enable()

    def _make_node(self, users: Users, acl: AccessList | None, address: str) -> Node:
        """Make the node, which reads its write-ahead log; the longer that is, the longer it takes.
        Raises CannotStart.
        """
        disk = self._disk
        state = newest_state(disk.state, disk.state_copy)
        if state != disk.state:
            text = f"the state file in {disk.directory} cannot be read: its copy is used"
            self._log.write("warning", "store", text, event_code=STATE_COPY_USED)
            disk.state = state
        log_disk = self._open_log_disk() if disk.directory else None
        begin = self._clock.now()
        memory_limit = limit_of(self._settings, available())
        self._network.peer_share = peer_share(memory_limit)
        watch(self._loop, memory_limit)
        try:
            node = Node(
                self._settings,
                system_id=disk.system_id,
                users=users,
                state=disk.state,
                address=address,
                make_uuid=new_uuid,
                disk=log_disk,
                acl=acl,
                policies=load_policies(self._settings),
                memory_limit=memory_limit,
                certificate_end=certificate_end(self._settings),
            )
        except StateLost as error:
            raise CannotStart(
                f"{disk.directory}: {error.text}",
                hint=error.hint,
                code=DATA_ERROR,
                event_code=error.event_code,
            ) from error
        except LogDamaged as error:
            hint = error.hint or f"see what is left with qpid-ha journal verify {disk.directory}"
            raise CannotStart(
                error.text, hint=hint, code=DATA_ERROR, event_code=error.event_code
            ) from error
        except OSError as error:
            raise CannotStart(
                f"write-ahead log {error.filename or disk.directory} cannot be read: "
                f"{reason_of(error)}",
                hint="look for the disk in the kernel's log (dmesg)",
                code=IO_ERROR,
            ) from error
        if disk.directory and self._settings.ha_cluster:
            self._saver = StateSaver(disk, self._put_soon, self._not_saved_soon)
        if log_disk is not None and log_disk.sizes():
            size, seconds = sum(log_disk.sizes().values()) / 1e6, (self._clock.now() - begin) / 1e9
            self._log.write(
                "notice",
                "store",
                f"the write-ahead log was read: {size:.1f} MB in {len(log_disk.sizes())} files, "
                f"in {seconds:.2f} s",
            )
        return node

    def _open_log_disk(self) -> LogDisk:
        """Open the directory of the write-ahead log and start its thread."""
        log_disk = LogDisk(
            os.path.join(self._disk.directory, LOG_FOLDER),
            self._put_soon,
            free_limit=self._settings.disk_free_limit,
        )
        self._log_disk = log_disk
        sys.setswitchinterval(SWITCH_INTERVAL)
        for name in log_disk.strays:
            self._log.write(
                "warning",
                "store",
                f"{os.path.join(log_disk.directory, name)} is no file of the write-ahead log, and "
                "left alone",
            )
        return log_disk

    def _put_soon(self, event: Event) -> None:
        """Take an event from the thread of the write-ahead log."""
        try:
            self._loop.call_soon_threadsafe(self._node_loop.put, event)
        except RuntimeError:
            pass  # the loop is closed: the daemon did not wait for the disk any longer

    def _close_log_disk(self) -> str:
        """Have the write-ahead log written and synced; why that cannot be done, or empty."""
        log_disk, self._log_disk = self._log_disk, None
        if log_disk is None or log_disk.close(_SYNC):
            return ""
        return log_disk.failure or (
            f"{log_disk.directory} could not be synced within {_SYNC:g} s: what was just "
            "accepted may be lost"
        )

    def _close_saver(self) -> bool:
        """Have the state saved; whether nobody writes it any more."""
        return self._saver is None or self._saver.close(_SYNC)

    def _bind(self, tls: ssl.SSLContext | None) -> None:
        """Bind and listen, so that the ports are ours before anything is said about them."""
        settings = self._settings
        if not settings.require_encryption and "tcp" not in settings.listen_disable:
            self._plain = inherited(settings) or bind_port(settings, settings.port, "port")
            listen(self._plain, settings.connection_backlog, "port")
        if tls is not None:
            self._secure = bind_port(settings, settings.ssl_port, "ssl-port")
            listen(self._secure, settings.connection_backlog, "ssl-port")

    def _tell_ready(self, port: int) -> None:
        """Tell the log and the parent that clients are served, and where."""
        ports = [f"port {_port_of(self._plain)}"] * bool(self._plain) + [
            f"port {_port_of(self._secure)} (TLS)"
        ] * bool(self._secure)
        self._log.write(
            "notice",
            "network",
            f"listening on {' and '.join(ports) or 'no port'}; admin socket {self._admin_path}",
            event_code=LISTENS,
        )
        if self._settings.port == 0 and not self._settings.socket_fd:
            print(port, flush=True)
        self._service.ready(self._condition())
        if self._settings.ready_fd >= 0:
            try:
                os.write(self._settings.ready_fd, f"{port}\n".encode())
                os.close(self._settings.ready_fd)
            except OSError as error:
                self._log.write(
                    "warning", "broker", f"ready-fd {self._settings.ready_fd}: {reason_of(error)}"
                )
        if self._caller is not None:
            self._caller.tell()

    def _log_of_console(self, level: str, text: str) -> None:
        self._log.write(level, "network", text)

    # Effects.

    def _handlers(self) -> dict[type, Callable[[Any], None]]:
        return {
            SaveState: self._save,
            Announce: self._announce,
            Stop: self._stop,
            WriteEvents: self._write_events,
            Reload: lambda effect: self._reload_soon(effect.number),
            SetLogLevel: self._set_log_level,
            Compute: Arithmetic(self._loop, self._node_loop.put).take,
        }

    def _announce(self, effect: Announce) -> None:
        self._log.write(
            effect.level, effect.category, effect.text, effect.fields, effect.event_code
        )
        if effect.fields and "after" in effect.fields:
            self._service.status(self._condition())

    def _condition(self) -> str:
        """Say in a few words what this broker is at present."""
        return f"{self._log.name} is {self._log.state}"

    def _save(self, effect: SaveState) -> None:
        if self._saver is not None:
            self._saver.save(effect)
        else:
            self._node_loop.put(StateSaved(effect.mark))

    def _not_saved_soon(self, reason: str) -> None:
        """Take from the thread that saves the state why it cannot."""
        try:
            self._loop.call_soon_threadsafe(self._not_saved, reason)
        except RuntimeError:
            pass  # the loop is closed

    def _not_saved(self, reason: str) -> None:
        """Stop: nothing may follow a state that cannot be saved."""
        text = f"stopping: the state cannot be saved in {self._disk.directory}: {reason}"
        self._log.write("critical", "store", text, event_code=STATE_NOT_SAVED)
        self._node_loop.stop()
        self._end(IO_ERROR)

    def _write_events(self, effect: WriteEvents) -> None:
        if self._events is not None:
            self._events.take(effect)

    def _warn_soon(self, text: str) -> None:
        """Take a warning from the thread of the event log."""
        try:
            self._loop.call_soon_threadsafe(self._log.write, "warning", "events", text)
        except RuntimeError:
            pass  # the loop is closed

    def _stop(self, effect: Stop) -> None:
        if effect.failed:
            self._write_events(
                WriteEvents(
                    self._clock.now(), [f'"k":"error","err":{quoted(effect.reason)},"x":"stopping"']
                )
            )
        self._log.write(
            "critical" if effect.failed else "notice",
            "broker",
            f"stopping: {effect.reason}",
            event_code=STOPS_BY_FAULT if effect.failed else STOPS,
        )
        self._service.status(f"stopping: {effect.reason}")
        has_disk_failed = self._log_disk is not None and bool(self._log_disk.failure)
        self._end(
            DATA_ERROR
            if effect.damaged
            else IO_ERROR
            if has_disk_failed
            else NO
            if effect.failed
            else OK
        )

    # The surroundings.

    def _stop_requested(self) -> None:
        """SIGTERM or SIGINT; the second one does not wait for good order."""
        if self._is_stopping:
            self._log.write("warning", "broker", "stopping at once: a second signal to stop")
            self._end(OK)
            return
        self._is_stopping = True
        self._service.stopping()
        self._network.stop_listening()
        self._node_loop.put(StopRequested())
        self._loop.call_later(_PATIENCE, self._out_of_patience)

    def _reload_soon(self, number: int = 0) -> None:
        """Read again what may change while a broker serves, for SIGHUP or an effect."""
        task = self._loop.create_task(self._reload(number))
        self._reloads.add(task)
        task.add_done_callback(self._reloads.discard)

    async def _reload(self, number: int) -> None:
        async with self._reloading:
            if self._is_stopping:
                return
            self._service.reloading()
            try:
                # In a thread, as the names of hosts in an acl-file are asked for.
                found = await self._loop.run_in_executor(None, self._read_again)
                await self._use(found)
            except CannotStart as error:
                self._reopen_log()
                text = f"{NOT_RELOADED}: {error.text}; {error.hint}"
                self._log.write("error", "broker", text, event_code=RELOAD_REFUSED)
                event = Reloaded(number, trouble=error.text, hint=error.hint)
            else:
                settings = found.settings
                event = Reloaded(
                    number,
                    found.users,
                    found.acl,
                    tuple(found.warnings),
                    found.certificate_end,
                    (settings.log_level, settings.log_disable),
                )
            self._service.ready(self._condition())
            self._node_loop.put(event)

    def _reopen_log(self) -> None:
        """Write to the log's file under its name, which may be a new one: logrotate relies on it,
        whatever mistake there is in other files.
        """
        settings = self._settings
        try:
            sinks = open_sinks(settings, self._env)
        except CannotStart:
            return
        self._log_to(sinks, settings)

    def _set_log_level(self, effect: SetLogLevel) -> None:
        self._settings = replace(
            self._settings, log_level=effect.enabled, log_disable=effect.disabled
        )
        self._log.select(effect.enabled, effect.disabled)

    def _log_to(self, sinks: Sequence[Sink], settings: Settings) -> None:
        self._log.reopen(
            sinks,
            selectors=settings.log_level,
            disabled=settings.log_disable,
            form=settings.log_format,
        )

    def _read_again(self) -> Surroundings:
        return read_again(self._reread(), self._settings, self._secret, self._known)

    async def _use(self, found: Surroundings) -> None:
        if self._is_stopping:
            return
        self._settings, self._known = found.settings, tuple(found.users.verifiers)
        self._log_to(found.log, found.settings)
        self._network.renew(found.settings, found.tls)
        users = f"users ({len(found.users.verifiers)})"
        text = f"{users}, access control, certificates and the log's options were read again"
        self._log.write("notice", "broker", text, event_code=RELOADED)
        for warning in found.warnings:
            self._log.write("warning", "broker", warning, event_code=ODD_SETTING)

    def _out_of_patience(self) -> None:
        if not self._ended.done():
            self._log.write(
                "warning",
                "broker",
                f"stopping without good order, which took longer than {_PATIENCE:g} s",
            )
            self._end(NO)

    def _end(self, code: int) -> None:
        """Let `run` end; what else this turn asks for, such as last words to peers, is still
        done.
        """
        if not self._ended.done():
            self._service.stopping()
            self._ended.set_result(code)

    def _failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Something escaped to the loop: trouble of one connection is logged, anything else is ours
        and ends the broker.
        """
        error = context.get("exception")
        text = str(context.get("message", "")) or "error in the event loop"
        if error is None or isinstance(error, OSError | EOFError):
            self._log.write("warning", "network", f"{text}: {error}" if error else text)
            return
        if self._ended.done():
            return
        self._log.write(
            "critical",
            "broker",
            f"stopping: internal error: invariant violated: {error.__class__.__name__}: {error}",
            event_code=INVARIANT_BROKEN,
        )
        traceback.print_exception(error)
        self._end(SOFTWARE)


def _with(files: Sequence[str]) -> str:
    """Say which files the settings come from."""
    instead = f" (there is no {CONFIGURATION})" if QPIDD_CONFIGURATION in files[:1] else ""
    return f", with {' and '.join(files)}{instead}" if files else ""


def _port_of(sockets: Sequence[socket.socket]) -> int:
    return int(sockets[0].getsockname()[1]) if sockets else 0


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass


def _fitted(configuration: Configuration) -> Configuration:
    """Make the settings fit into what this process may have. Raises CannotStart."""
    configuration.settings, warnings = fit(configuration.settings, allowed())
    configuration.warnings += warnings
    return configuration


def _check(configuration: Configuration) -> None:
    """Look at every file that the settings name; what is odd comes to the warnings. Raises
    CannotStart.
    """
    settings = configuration.settings
    check_console(settings.http_port)
    configuration.warnings += check_users(settings, load_users(settings))
    configuration.warnings += load_access_list(settings)[1]
    load_policies(settings)
    check_kerberos(settings)
    _check_patterns(settings)
    if settings.ssl_cert:
        server_context(settings)
        configuration.warnings += check_certificate(settings)
    if settings.ssl_trusted:
        client_context(settings)


def _check_patterns(settings: Settings) -> None:
    try:
        check_patterns(settings)
    except InvalidArgument as error:
        why = ", ".join(filter(None, (error.text, error.reason)))
        raise CannotStart(
            f"queue-patterns and topic-patterns: {why}", hint=error.hint, code=CONFIG
        ) from error


def _serve(configuration: Configuration, reread: Reread, caller: Caller | None) -> int:
    faulthandler.enable()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    loop = uvloop.new_event_loop()
    in_data = "data-dir" in configuration.origins
    try:
        return loop.run_until_complete(
            Daemon(configuration.settings, os.environ, loop, reread, caller, in_data=in_data).run(
                configuration.warnings, configuration.files
            )
        )
    finally:
        loop.close()


def _serve_detached(configuration: Configuration, reread: Callable[[], Configuration]) -> int:
    """Serve in the background; return to the caller what he is to know. Raises CannotStart."""
    settings = configuration.settings
    keep = [settings.ready_fd, *(int(number) for number in settings.socket_fd if number.isdigit())]
    caller = detach(configuration.wait, keep)
    if isinstance(caller, int):
        return caller
    code = SOFTWARE
    try:
        code = _serve(configuration, lambda: _detached(reread()), caller)
    except CannotStart as error:
        _complain(error)
        code = error.code
    finally:
        caller.tell(code or NO)
    return code


def _detached(configuration: Configuration) -> Configuration:
    """Have the log go elsewhere than to standard error."""
    configuration.settings, warnings = in_background(configuration.settings)
    configuration.warnings += warnings
    return configuration


def main(argv: Sequence[str] | None = None) -> int:
    """Run the daemon, or the command that the command line names; the exit code."""
    _fill_streams()
    if not __debug__:
        print(
            "qpidhad: error: assertions are off\n  next: start it without -O and without "
            "PYTHONOPTIMIZE",
            file=sys.stderr,
        )
        return CONFIG
    try:
        words = list(sys.argv[1:] if argv is None else argv)
        program = os.path.basename(sys.argv[0])
        configuration = configure(words, os.environ, program=program)
        if configuration.command in PROCESS_COMMANDS:
            return _of_process(configuration)
        if configuration.command:
            _tell(configuration)
            judgement = configuration.judgement
            return OK if judgement is None else judgement.code

        def reread() -> Configuration:
            return _fitted(configure(words, os.environ, program=program))

        _check(_fitted(configuration))
        if configuration.daemon:
            given = len(configuration.warnings)
            _detached(configuration)
            _warn(configuration.warnings[given:])
            return _serve_detached(configuration, reread)
        return _serve(configuration, reread, None)
    except CannotStart as error:
        _complain(error)
        return error.code
    except QpidHaError as error:
        _complain(error)
        return SOFTWARE
    except KeyboardInterrupt:
        return INTERRUPTED  # Whoever waited for a start, or an end, that goes on.


def _pid_folder(settings: Settings, port: int) -> str:
    """Return the folder of the pid file of the broker at a port."""
    folder = settings.pid_dir or settings.data_dir
    return folder or os.path.dirname(admin_socket_path(settings, port, os.environ))


def _pid_path(settings: Settings) -> str:
    """Return where the pid file of a broker with these settings is."""
    is_secure = settings.require_encryption or "tcp" in settings.listen_disable
    port = settings.ssl_port if is_secure else settings.port
    return pid_path(_pid_folder(settings, port), port)


def _of_process(configuration: Configuration) -> int:
    """Tell whether the broker of a configuration runs, or end it. Raises CannotStart."""
    path, command = _pid_path(configuration.settings), configuration.command
    pid = running(path)
    if pid and (command == "running" or configuration.tells_process):
        _print(f"{pid}\n")
    code = OK if pid else NO
    if pid and command != "running":
        number = signal.SIGKILL if command == "kill" else signal.SIGTERM
        code = end(path, number, configuration.wait)
    if code == NO:
        print(f"qpidhad: no broker of this configuration runs ({path})", file=sys.stderr)
    if code == TIMED_OUT:
        raise CannotStart(
            f"process {pid} still runs after {configuration.wait:g} s",
            hint="wait longer (--wait), or end it at once: qpidhad -k",
            code=TIMED_OUT,
            event_code=NOT_COMMANDED,
        )
    return code


def _complain(error: QpidHaError) -> None:
    """Say why the daemon does not run: what is wrong, its event code, what to do next."""
    code = f" [{error.event_code}]" if error.event_code else ""
    hint = f"\n  next: {error.hint}" if error.hint else ""
    print(f"qpidhad: error: {error.text}{code}{hint}", file=sys.stderr)


def _fill_streams() -> None:
    """Open standard streams that are closed: the next socket would get their numbers."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(fd)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)


def _check_text(configuration: Configuration) -> str:
    """Say what an operator should know of settings that are good."""
    settings = configuration.settings
    lines = [limit_text(settings, available())]
    lines += [choice_text(settings)] * settings.ha_cluster
    lines.append(_process_text(settings))
    return "\n".join([*lines, "the configuration is good\n"])


def _tell(configuration: Configuration) -> None:
    """Print what the command line asks for."""
    judgement = configuration.judgement
    if configuration.command == "check" and judgement is None:
        _check(_fitted(configuration))
        _warn(configuration.warnings)
    texts: dict[str, Callable[[], str]] = {
        "help": help_text,
        "version": lambda: f"qpidhad {VERSION}\n",
        "print-config": lambda: config_text(configuration.settings, configuration.origins),
        "check": lambda: _check_text(configuration),
    }
    _print(judgement.text() if judgement else texts[configuration.command]())


def _process_text(settings: Settings) -> str:
    try:
        pid = running(_pid_path(settings))
    except CannotStart as error:
        return error.text
    return f"a broker of it runs, process {pid}" if pid else "no broker of it runs"


def _warn(warnings: Sequence[str]) -> None:
    for warning in warnings:
        print(f"qpidhad: warning: {warning}", file=sys.stderr)


def _print(text: str) -> None:
    """Write to standard output. Raises CannotStart."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        # Let the interpreter's own flush go nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            raise CannotStart(
                f"standard output cannot be written: {reason_of(error)}",
                hint="send it to where there is space",
                code=IO_ERROR,
            ) from error


if __name__ == "__main__":
    sys.exit(main())
