"""Real sockets on the loopback, with a node that echoes."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest
import uvloop

from qpidha.model.effects import (
    Admitted,
    Announce,
    Compute,
    Connect,
    Disconnect,
    SaveState,
    SendBytes,
    Stop,
)
from qpidha.model.events import (
    BytesReceived,
    ConnectionKind,
    ConnectionLost,
    ConnectionOpened,
    HandshakeFailed,
    OutputWaiting,
)
from qpidha.model.settings import Settings
from qpidha.runtime import network
from qpidha.runtime.arithmetic import Arithmetic
from qpidha.runtime.clock import Clock
from qpidha.runtime.log_lines import Log
from qpidha.runtime.log_sinks import StreamSink
from qpidha.runtime.network import (
    ADMIN_CONNECTIONS,
    ALL_TURN_BYTES,
    RESERVED_CONNECTIONS,
    SMALL,
    TURN,
    TURN_BYTES,
    Network,
    Stream,
)
from qpidha.runtime.node_loop import NodeLoop
from qpidha.runtime.sockets import bind_admin, bind_port
from qpidha.runtime.tls import client_context, identity_of, server_context
from tests.patience import STATE
from tests.runtime.echo import PARTS, EchoNode


class World:
    """An echo node on real sockets."""

    def __init__(self, settings, tls=None):
        self.loop = asyncio.get_running_loop()
        self.settings = settings
        self.node = EchoNode()
        self.output = io.StringIO()
        self.node_loop = NodeLoop(self.loop, Clock())
        self.network = Network(
            self.loop,
            settings,
            self.node_loop.put,
            Log([StreamSink(self.output)], Clock(), selectors="debug+"),
        )
        self.stopped = []
        self.saved = []
        self.tls = tls
        self.port = 0

    async def __aenter__(self):
        sockets = bind_port(self.settings, 0, "port")
        self.port = sockets[0].getsockname()[1]
        handlers = {
            **self.network.handlers,
            Announce: lambda effect: None,
            SaveState: self.saved.append,
            Compute: Arithmetic(self.loop, self.node_loop.put).take,
            Stop: self.stopped.append,
        }
        self.node_loop.start(self.node, handlers)
        await self.network.serve(sockets, self.tls)
        return self

    async def __aexit__(self, *ignored):
        self.node_loop.stop()
        await self.network.close(0.2)

    async def connect(self, **options):
        return await asyncio.open_connection("127.0.0.1", self.port, **options)

    async def until(self, condition):
        async with asyncio.timeout(STATE):
            while not condition():
                await asyncio.sleep(0.002)


def play(scene, **settings):
    """Run a scene in a world of its own."""

    async def run():
        async with World(Settings(interface=("127.0.0.1",), **settings)) as world:
            await scene(world)

    uvloop.run(run())


def test_bytes_go_to_the_node_and_back():
    async def scene(world):
        reader, writer = await world.connect()
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"
        opened = world.node.opened[0]
        assert (
            opened.kind is ConnectionKind.CLIENT
            and opened.peer.startswith("127.0.0.1:")
            and opened.trusted_host
            and not opened.encrypted
        )
        writer.close()
        await world.until(lambda: world.node.lost)
        assert world.node.lost[0].connection_id == opened.connection_id

    play(scene)


def test_bytes_of_many_connections_share_a_step():
    async def scene(world):
        streams = [await world.connect() for _ in range(20)]
        await world.until(lambda: len(world.node.opened) == 20)
        before = len(world.node.steps)
        for _, writer in streams:
            writer.write(b"x")
        for reader, _ in streams:
            await reader.readexactly(1)
        assert len(world.node.steps) - before < 20
        for _, writer in streams:
            writer.close()

    play(scene)


def test_what_takes_long_is_worked_out_while_others_are_served():
    async def scene(world):
        (reader, writer), (others, other) = [await world.connect() for _ in range(2)]
        writer.write(b"think")
        await world.until(
            lambda: any(
                isinstance(each, BytesReceived) for step in world.node.steps for each in step
            )
        )
        other.write(b"meanwhile")
        assert await others.readexactly(9) == b"meanwhile"
        world.node.gate.set()
        assert await reader.readexactly(4) == b"True"

    play(scene)


def test_no_client_fills_a_turn_and_all_it_sent_arrives_in_order():
    flood = b"".join(b"%07d " % number for number in range(200_000))

    async def scene(world):
        reader, writer = await world.connect()
        writer.write(flood)
        assert await reader.readexactly(len(flood)) == flood
        shares = [
            sum(len(event.data) for event in events if isinstance(event, BytesReceived))
            for events in world.node.steps
        ]
        assert sum(shares) == len(flood) and max(shares) <= TURN_BYTES
        writer.close()
        await world.until(lambda: world.node.lost)

    play(scene)


class Turns:
    """A network whose loop is turned by hand, and what each turn has of its streams."""

    def __init__(self):
        self.soon = []
        self.events = []
        self.lost = []
        self.time = 0.0
        self.cost = 0.0
        """Seconds that each byte takes."""
        loop = SimpleNamespace(call_soon=self.soon.append, time=lambda: self.time)
        self.network = Network(loop, Settings(), self.events.append, None)
        self.reading = {}

    def stream(self, number, *, comes_first=False):
        """An open stream of a client, or of another broker."""
        stream = Stream(self.network, number, ConnectionKind.CLIENT)
        stream.transport = SimpleNamespace(
            get_extra_info=lambda name: None,
            set_write_buffer_limits=lambda high: None,
            pause_reading=lambda: self.reading.update({number: False}),
            resume_reading=lambda: self.reading.update({number: True}),
        )
        stream.is_open = stream._shares = True
        self.network._streams[number] = stream
        if comes_first:
            self.network.handlers[Admitted](Admitted(number, comes_first=True))
        return stream

    def turn(self):
        """Take the events of this turn, and begin the next one."""
        events, self.events[:] = self.events[:], []
        soon, self.soon[:] = self.soon[:], []
        self.lost += [one.connection_id for one in events if isinstance(one, ConnectionLost)]
        events = [one for one in events if isinstance(one, BytesReceived)]
        self.time += self.cost * sum(len(event.data) for event in events)
        for call in soon:
            call()
        return [(event.connection_id, event.data) for event in events]


def test_all_clients_together_do_not_fill_a_turn_and_other_brokers_do_not_wait_for_them():
    turns = Turns()
    clients = [turns.stream(number) for number in range(100)]
    broker = turns.stream(100, comes_first=True)
    text = {number: bytes([number]) * (2 * TURN_BYTES + 5) for number in range(100)}
    for number, client in enumerate(clients):
        client.data_received(text[number])
    broker.data_received(b"b" * 2 * SMALL)
    events = turns.turn()
    assert (100, b"b" * 2 * SMALL) in events
    seen = dict.fromkeys(range(100), b"")
    idle = Counter()
    while events:
        events = [event for event in events if event[0] < 100]
        assert sum(len(data) for _, data in events) < ALL_TURN_BYTES + TURN_BYTES
        assert len(dict(events)) == len(events)
        for number, data in events:
            seen[number] += data
        waiting = {number for number in seen if len(seen[number]) < len(text[number])}
        events = turns.turn()
        # Nobody waits so long that he would be taken for dead.
        idle = Counter({number: idle[number] + 1 for number in waiting - dict(events).keys()})
        assert max(idle.values(), default=0) <= 3
    assert seen == text
    assert all(turns.reading[number] for number in range(100))


def test_where_bytes_cost_much_a_turn_has_fewer_of_them():
    turns = Turns()
    turns.cost = 1 / ALL_TURN_BYTES
    text = b"x" * (3 * TURN_BYTES)
    for number in range(300):
        turns.stream(number).data_received(text)
    turns.turn()
    served, longest = Counter(), 0.0
    while events := turns.turn():
        served.update(number for number, _ in events)
        longest = max(longest, turns.cost * sum(len(data) for _, data in events))
        if all(not turns.reading[number] for number in range(300)):
            assert max(served.values()) - min(served[number] for number in range(300)) <= 2
    assert longest < 2 * TURN and all(turns.reading[number] for number in range(300))
    turns.cost = 0.0
    for number in range(300):
        turns.stream(number).data_received(text)
    sizes = [sum(len(data) for _, data in turns.turn()) for _ in range(20)]
    assert max(sizes) > ALL_TURN_BYTES // 2


def test_what_is_small_does_not_wait_for_a_later_turn():
    turns = Turns()
    for number in range(50):
        turns.stream(number).data_received(b"x" * TURN_BYTES)
    late, small = turns.stream(60), turns.stream(61)
    late.data_received(b"x" * (SMALL + 1))
    small.data_received(b"x" * SMALL)
    assert {60, 61} & {number for number, _ in turns.turn()} == {61}
    late.data_received(b"y")  # behind what it sent before
    said = b""
    while events := turns.turn():
        said += b"".join(data for number, data in events if number == 60)
    assert said == b"x" * (SMALL + 1) + b"y"


def test_uamqp_all_that_clients_sent_before_they_hung_up_arrives():
    """More of it than a turn handles may be there when their streams break, and more of all of them
    than the others can wait for.
    """
    turns = Turns()
    flood = b"".join(b"%07d " % number for number in range(80_000))
    streams = [turns.stream(number) for number in range(30)]
    for stream in streams:
        stream.data_received(flood)
    seen, sizes = dict.fromkeys(range(30), b""), []
    for stream in streams:
        stream.connection_lost(None)
    while events := turns.turn():
        sizes.append(sum(len(data) for _, data in events))
        for number, data in events:
            seen[number] += data
    assert seen == dict.fromkeys(range(30), flood)
    assert sorted(turns.lost) == list(range(30))
    assert max(sizes) < ALL_TURN_BYTES + TURN_BYTES


def test_what_is_still_to_be_heard_of_a_peer_is_forgotten_when_its_connection_ends():
    turns = Turns()
    stream = turns.stream(1)
    stream.data_received(b"x" * (9 * TURN_BYTES))
    stream.connection_lost(None)
    turns.turn()
    turns.network.handlers[SendBytes](SendBytes(1, b"nobody reads this"))
    turns.network.handlers[Disconnect](Disconnect(1))
    turns.turn()
    assert turns.lost == [1] and not turns.turn() and not turns.turn()


def test_a_disconnect_lets_what_was_written_leave_first():
    async def scene(world):
        reader, writer = await world.connect()
        writer.write(b"bye")
        assert len(await reader.read(-1)) == 1_000_000
        await world.until(lambda: world.node.lost)
        assert world.node.lost[0].reason == "closed by us"

    play(scene)


def test_a_peer_that_does_not_read_is_cut_off_and_others_are_served():
    async def scene(world):
        slow = socket.create_connection(("127.0.0.1", world.port))
        slow.sendall(b"flood")
        await world.until(lambda: world.node.lost)
        assert "does not read" in world.node.lost[0].reason
        assert (
            "warning" in world.output.getvalue() and "max-output-buffer" in world.output.getvalue()
        )
        reader, writer = await world.connect()
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"
        slow.close()
        writer.close()

    play(scene, max_output_buffer=1 << 20)


def test_what_is_not_limited_waits_for_a_peer_however_much_it_is():
    async def scene(world):
        reader, writer = await world.connect(limit=1 << 16)
        writer.write(b"backlog")
        assert len(await reader.readexactly(20_000_000)) == 20_000_000
        assert not world.node.lost
        writer.write(b"flood")
        await world.until(lambda: world.node.lost)
        assert "does not read" in world.node.lost[0].reason
        writer.close()

    play(scene, max_output_buffer=1 << 20)


def test_code_d6_the_node_hears_how_much_waits_for_peers(monkeypatch):
    monkeypatch.setattr(network, "WEIGH", 0.01)

    async def scene(world):
        def waiting():
            return [one.size for step in world.node.steps for one in step if is_size(one)]

        def is_size(event):
            return isinstance(event, OutputWaiting)

        reader, writer = await world.connect(limit=1 << 16)
        writer.write(b"backlog")
        await world.until(waiting)
        assert waiting()[0] > 1_000_000
        await reader.readexactly(20_000_000)
        await world.until(lambda: waiting()[-1] == 0)
        writer.close()

    play(scene)


def test_connections_beyond_the_limit_are_closed_and_room_is_found_again():
    async def scene(world):
        streams = [await world.connect() for _ in range(2 + RESERVED_CONNECTIONS)]
        for reader, writer in streams:
            await log_in(reader, writer)
        reader, writer = await world.connect()
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        assert (
            len(world.node.opened) == len(streams) and "max-connections" in world.output.getvalue()
        )
        streams.pop()[1].close()
        await world.until(lambda: len(world.node.lost) == 1)
        streams.append(await world.connect())
        await world.until(lambda: len(world.node.opened) == 3 + RESERVED_CONNECTIONS)
        for _, writer in streams:
            writer.close()

    play(scene, max_connections=2)


async def log_in(reader, writer):
    writer.write(b"login")
    assert await reader.readexactly(5) == b"login"


def test_clients_500_silent_connections_make_room_for_others():
    """Who was let in stays; of the others the oldest goes, and only as many as are too many."""

    async def scene(world):
        inside = []
        for _ in range(5):
            inside.append(await world.connect())
            await log_in(*inside[-1])
        silent = [await world.connect() for _ in range(9)]
        await world.until(lambda: len(world.node.lost) == 6)
        assert [lost.connection_id for lost in world.node.lost] == [
            opened.connection_id for opened in world.node.opened[5:11]
        ]
        assert world.output.getvalue().count("max-unauthenticated") == 1
        assert "4 of them from 127.0.0.1" in world.output.getvalue()
        for reader, writer in (*inside, *silent[6:]):
            await log_in(reader, writer)
        assert len(world.node.lost) == 6
        for _, writer in (*inside, *silent):
            writer.close()

    play(scene, max_connections=10, max_unauthenticated=3)


def test_who_hears_later_how_his_login_ended_makes_no_room_for_silent_connections():
    async def scene(world):
        reader, writer = await world.connect()
        writer.write(b"guess")
        assert await reader.readexactly(5) == b"guess"
        silent = [await world.connect() for _ in range(5)]
        await world.until(lambda: len(world.node.lost) == 3)
        await log_in(reader, writer)
        for _, other in (*silent, (reader, writer)):
            other.close()

    play(scene, max_unauthenticated=3)


def test_connect_reports_success_as_an_outgoing_stream():
    async def scene(world):
        _, writer = await world.connect()
        writer.write(f"dial 127.0.0.1 {world.port}".encode())
        await world.until(lambda: len(world.node.opened) == 3)
        outgoing = [
            opened for opened in world.node.opened if opened.kind is ConnectionKind.OUTGOING
        ]
        assert [(opened.connection_id, opened.peer) for opened in outgoing] == [
            (-1, f"127.0.0.1:{world.port}")
        ]
        writer.close()

    play(scene)


@pytest.mark.parametrize("host", ["127.0.0.1", "a..b"])
def test_connect_reports_failure_as_a_loss(host):
    async def scene(world):
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            _, writer = await world.connect()
            writer.write(f"dial {host} {nobody.getsockname()[1]}".encode())
            await world.until(lambda: world.node.lost)
        assert (
            world.node.lost[0].connection_id == -1
            and "cannot connect to" in world.node.lost[0].reason
        )
        writer.close()

    play(scene)


def test_a_stream_that_is_given_up_as_it_opens_is_lost():
    """The loop tells nobody, where nobody waits any more for the stream that it has made."""

    async def scene(world):
        put = world.network.put

        def give_up(event):
            put(event)
            if isinstance(event, ConnectionOpened) and event.connection_id == -1:
                world.network.handlers[Disconnect](Disconnect(-1))

        world.network.put = give_up
        world.network.handlers[Connect](Connect(-1, "127.0.0.1", world.port, False))
        await world.until(lambda: any(one.connection_id == -1 for one in world.node.lost))

    play(scene)


def test_the_last_words_leave_before_the_end():
    async def scene(world):
        reader, writer = await world.connect()
        writer.write(b"stop")
        await world.until(lambda: world.stopped)
        await world.network.close(1)
        assert await reader.read(-1) == b"stopping"

    play(scene)


def test_the_admin_socket_knows_its_user(tmp_path, monkeypatch):
    async def scene(world):
        path = "admin.sock"
        await world.network.serve_admin(bind_admin(path))
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(b"hello")
        writer.write_eof()
        assert await reader.readexactly(5) == b"hello"
        opened = world.node.opened[0]
        assert (
            opened.kind is ConnectionKind.LOCAL
            and opened.peer == f"process {os.getpid()}"
            and opened.identity
        )
        assert os.stat(path).st_mode & 0o077 == 0
        writer.close()

    monkeypatch.chdir(tmp_path)
    play(scene)


@pytest.mark.parametrize("uid", ["ours", "roots", "another"])
def test_the_admin_socket_serves_root_and_our_user_only(tmp_path, monkeypatch, uid):
    """The rights of the file keep others away too; they may have been changed."""
    uids = {"ours": 4711, "roots": 0, "another": 4712}

    async def scene(world):
        await world.network.serve_admin(bind_admin("admin.sock"))
        reader, writer = await asyncio.open_unix_connection("admin.sock")
        if uid == "another":
            async with asyncio.timeout(STATE):
                assert await reader.read() == b""
            assert not world.node.opened
            assert "on the admin socket: not root nor our user" in world.output.getvalue()
        else:
            writer.write(b"hello")
            assert await reader.readexactly(5) == b"hello"
        writer.close()

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "getuid", lambda: uids["ours"])
    monkeypatch.setattr(network, "peer_of", lambda descriptor: (1, uids[uid]))
    play(scene)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_code_d8_a_process_of_another_user_is_refused_on_the_admin_socket(monkeypatch):
    code = (
        "import os, socket; os.setuid(65534); s = socket.socket(socket.AF_UNIX); "
        "s.connect('admin.sock'); print(s.recv(1))"
    )

    async def scene(world):
        await world.network.serve_admin(bind_admin("admin.sock"))
        os.chmod("admin.sock", 0o777)
        other = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE
        )
        try:
            async with asyncio.timeout(STATE):
                out, _ = await other.communicate()
        finally:
            if other.returncode is None:
                other.kill()
        assert out == b"b''\n" and not world.node.opened

    with tempfile.TemporaryDirectory(prefix="qpidha-") as folder:
        os.chmod(folder, 0o755)
        monkeypatch.chdir(folder)
        play(scene)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
@pytest.mark.parametrize(
    ("group", "groups", "is_member"),
    [(60001, [60001], True), (60002, [60009, 60001], True), (60001, [60002], False)],
    ids=["own", "other", "no"],
)
def test_members_of_the_group_are_served_on_the_admin_socket(monkeypatch, group, groups, is_member):
    """Whichever of its groups it is. The rights of the file say the same, so here they are open."""
    code = (
        f"import os, socket; os.setgid({group if is_member else 65534}); os.setgroups({groups}); "
        "os.setuid(65534); s = socket.socket(socket.AF_UNIX); s.connect('admin.sock'); "
        "s.send(b'hello'); print(s.recv(5))"
    )

    async def scene(world):
        await world.network.serve_admin(bind_admin("admin.sock", 60001), 60001)
        found = os.stat("admin.sock")
        assert (found.st_mode & 0o777, found.st_gid) == (0o660, 60001)
        os.chmod("admin.sock", 0o666)
        other = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            code,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(STATE):
                out, _ = await other.communicate()
        finally:
            if other.returncode is None:
                other.kill()
        assert (out == b"b'hello'\n") is bool(world.node.opened) is is_member
        if not is_member:
            assert "not root nor our user, nor in the group gid 60001" in world.output.getvalue()

    with tempfile.TemporaryDirectory(prefix="qpidha-") as folder:
        os.chmod(folder, 0o755)
        monkeypatch.chdir(folder)
        play(scene)


def test_many_quick_visitors_of_the_admin_socket_leave_room_for_the_next(tmp_path, monkeypatch):
    async def scene(world):
        await world.network.serve_admin(bind_admin("admin.sock"))
        for number in range(ADMIN_CONNECTIONS + 20):
            await world.until(
                lambda gone=number: len(world.node.lost) >= gone - ADMIN_CONNECTIONS // 2
            )
            reader, writer = await asyncio.open_unix_connection("admin.sock")
            writer.write(b"hello")
            assert await reader.readexactly(5) == b"hello"
            writer.close()
        await world.until(lambda: len(world.node.lost) == ADMIN_CONNECTIONS + 20)

    monkeypatch.chdir(tmp_path)
    play(scene)


def encryption(tmp_path):
    """Return the settings of a broker that has a certificate, and trusts it."""
    certificate, key = tmp_path / "c.pem", tmp_path / "k.pem"
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "2",
        ]
        + [
            "-subj",
            "/DC=org/CN=guest",
            "-addext",
            "subjectAltName=DNS:localhost",
            "-keyout",
            str(key),
            "-out",
            str(certificate),
        ],
        check=True,
        capture_output=True,
    )
    return Settings(
        interface=("127.0.0.1",),
        ssl_cert=str(certificate),
        ssl_key=str(key),
        ssl_trusted=str(certificate),
        max_negotiate_time=200_000_000,
    )


def test_uamqp_all_that_came_over_tls_before_the_end_arrives(tmp_path):
    settings = encryption(tmp_path)
    flood = b"x" * (20 * TURN_BYTES)

    def hang_up_behind(port):
        with (
            socket.create_connection(("127.0.0.1", port)) as plain,
            client_context(settings).wrap_socket(plain, server_hostname="localhost") as stream,
        ):
            stream.sendall(flood)
            stream.shutdown(socket.SHUT_WR)
            while socket.socket.recv(stream, 65536):
                pass

    async def run():
        async with World(settings, server_context(settings)) as world:
            world.node._answer = lambda event: []
            await asyncio.to_thread(hang_up_behind, world.port)
            await world.until(lambda: world.node.lost)
            shares = [
                sum(len(event.data) for event in events if isinstance(event, BytesReceived))
                for events in world.node.steps
            ]
            # What is left when the stream ends comes at once: what was read ahead.
            assert sum(shares) == len(flood) and max(shares) <= 6 * TURN_BYTES

    uvloop.run(run())


def test_a_stream_with_tls_ends_though_the_peer_waits_for_that(tmp_path, monkeypatch):
    """Java does not answer the end of TLS, and waits for the end of the stream."""
    monkeypatch.setattr(network, "LINGER", 10 * STATE)
    settings = encryption(tmp_path)

    def hear_out(port):
        with (
            socket.create_connection(("127.0.0.1", port), STATE) as plain,
            client_context(settings).wrap_socket(plain, server_hostname="localhost") as stream,
        ):
            stream.sendall(b"bye")
            heard = 0
            while heard < 1_000_000:
                heard += len(stream.recv(65536))
            while socket.socket.recv(stream, 65536):
                pass

    async def run():
        async with World(settings, server_context(settings)) as world:
            await asyncio.to_thread(hear_out, world.port)
            await world.until(lambda: world.node.lost)

    uvloop.run(run())


@pytest.mark.parametrize("is_secure", [False, True])
def test_parts_arrive_in_their_order_however_slowly_they_are_read(tmp_path, is_secure):
    settings = encryption(tmp_path)

    async def run():
        async with World(settings, server_context(settings) if is_secure else None) as world:
            options = (
                {"ssl": client_context(settings), "server_hostname": "localhost", "limit": 4096}
                if is_secure
                else {"limit": 4096}
            )
            reader, writer = await world.connect(**options)
            writer.write(b"parts")
            for part in (*PARTS, b"behind"):
                assert await reader.readexactly(len(part)) == bytes(part)
            writer.close()
            await world.until(lambda: world.node.lost)

    uvloop.run(run())


def test_tls_serves_and_makes_the_certificate_an_identity(tmp_path):
    settings = encryption(tmp_path)

    async def run():
        async with World(settings, server_context(settings)) as world:
            reader, writer = await world.connect(
                ssl=client_context(settings), server_hostname="localhost"
            )
            writer.write(b"hello")
            assert await reader.readexactly(5) == b"hello"
            assert world.node.opened[0].encrypted and world.node.opened[0].identity == "guest@org"
            writer.close()
            reader, writer = await world.connect()
            with contextlib.suppress(ConnectionError):
                assert (
                    await reader.read() == b""
                )  # who never begins TLS is cut off after max-negotiate-time
            await world.until(lambda: not len(world.network.newcomers) and world.node.lost)
            assert len(world.node.opened) == 1

    uvloop.run(run())


def test_peers_that_do_not_begin_or_end_a_tls_handshake_make_room_for_others(tmp_path):
    """They count among those who were not let in from the start."""
    settings = replace(
        encryption(tmp_path), max_unauthenticated=3, max_negotiate_time=int(10 * STATE * 1e9)
    )
    hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"  # The beginning of one.

    async def ended(reader):
        with contextlib.suppress(ConnectionError):
            return await reader.read() == b""
        return True

    async def run():
        async with World(settings, server_context(settings)) as world:
            silent = []
            for number in range(9):
                silent.append(await world.connect())
                silent[-1][1].write(hello * (number % 2))
            async with asyncio.timeout(STATE):
                assert all([await ended(reader) for reader, _ in silent[:6]])
            assert len(world.network.newcomers) == 3 and not world.node.opened
            assert world.output.getvalue().count("max-unauthenticated") == 1
            inside = []
            for _ in range(5):
                inside.append(
                    await world.connect(ssl=client_context(settings), server_hostname="localhost")
                )
                await log_in(*inside[-1])
            assert len(world.node.opened) == 5 and not world.node.lost
            for _, writer in (*silent, *inside):
                writer.close()
            await world.until(lambda: not len(world.network.newcomers))

    uvloop.run(run())


def test_who_does_not_get_through_tls_is_told_of(tmp_path):
    """By a certificate that nobody trusts, by none where one is needed, or by plain text; whoever
    just hangs up is not.
    """
    ours, other = (tmp_path / name for name in ("ours", "other"))
    for place in (ours, other):
        place.mkdir()
    settings, theirs = encryption(ours), encryption(other)
    stranger, nobody = (
        client_context(replace(theirs, ssl_cert=cert, ssl_trusted=settings.ssl_trusted))
        for cert in (theirs.ssl_cert, "")
    )
    settings = replace(
        settings, ssl_require_client_authentication=True, max_negotiate_time=int(STATE * 1e9)
    )

    def failures(world):
        events = [event for step in world.node.steps for event in step]
        return [event for event in events if isinstance(event, HandshakeFailed)]

    async def come(world, **options):
        before, name = len(failures(world)), ""
        with contextlib.suppress(OSError):
            _, writer = await world.connect(**options)
            host, port = writer.get_extra_info("sockname")
            name = f"{host}:{port}"
            writer.write(b"AMQP\3\1\0\0")
        await world.until(lambda: len(failures(world)) > before)
        (failure,) = failures(world)[before:]
        assert failure.peer == name or not name and failure.peer.startswith("127.0.0.1:")
        return failure.reason, failure.by_certificate

    async def run():
        async with World(settings, server_context(settings)) as world:
            world.node._answer = lambda event: []
            (await world.connect())[1].close()
            for context, why in (
                (stranger, "self-signed certificate"),
                (nobody, "peer did not return a certificate"),
            ):
                options = {"ssl": context, "server_hostname": "localhost"}
                assert await come(world, **options) == (f"TLS: {why}", True)
            assert await come(world) == ("TLS: the peer speaks no TLS", False)
            await world.until(lambda: not len(world.network.newcomers))
            assert len(failures(world)) == 3

    uvloop.run(run())


def test_an_identity_without_common_name_is_the_whole_subject():
    assert (
        identity_of({"subject": ((("organizationName", "O"),), (("countryName", "C"),))})
        == "organizationName=O,countryName=C"
    )
    assert identity_of(None) == identity_of({}) == ""
