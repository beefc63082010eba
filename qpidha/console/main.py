"""`qpidha-console`: the command line, and the process that serves HTTP.

It speaks to one broker over its admin socket, or to several over AMQP. It binds the loopback;
elsewhere it needs a token file and TLS. Ends by SIGTERM or SIGINT; on SIGHUP it reads its token
file and its certificate again.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Sequence
from typing import NoReturn
from urllib.parse import urlsplit

from qpidha.client.endpoint import Tls, parse_endpoints
from qpidha.client.errors import ClientError
from qpidha.console.access import Access, Token, read_tokens
from qpidha.console.events import Events
from qpidha.console.log_lines import log_line
from qpidha.console.looks import AmqpChanges, AmqpLink, SocketLink, Watched
from qpidha.model.errors import InvalidArgument
from qpidha.model.exit_codes import CONFIG, OK, UNAVAILABLE
from qpidha.model.ip import address_of, is_loopback
from qpidha.model.password_file import password_in
from qpidha.model.paths import admin_socket
from qpidha.model.url import PORT as AMQP_PORT
from qpidha.model.url import parse_consoles

try:
    import uvicorn
    from fastapi import FastAPI

    from qpidha.console.api import make_app
    from qpidha.console.connections import Connection, Door
except ModuleNotFoundError as missing:
    sys.exit(
        f"qpidha-console: error: {missing.name} is not installed\n"
        "  next: pip install 'qpidha[console]'"
    )

PORT = 8672
BACKLOG = 2048
"""Clients that the kernel keeps until they are accepted."""
CLUSTER = "qpidha"
LOCALHOST = "127.0.0.1"
PASSWORD = "QPIDHA_PASSWORD"
"""Variable of the environment, as for qpid-ha."""


class Server(uvicorn.Server):
    """Serves until it is to end; then it lets those go who follow events. `reload` is called for
    SIGHUP.
    """

    def __init__(
        self, config: uvicorn.Config, events: Events, reload: Callable[[], object]
    ) -> None:
        super().__init__(config)
        self._events = events
        self._reload = reload
        self._doors: list[Door] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._reload)
        await super().startup([])  # A server of the loop would not count TLS handshakes.
        self._doors = [Door(each, self.config.ssl, self._connection) for each in sockets or ()]

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End."""
        for door in self._doors:
            door.close()
        self._events.close()
        await super().shutdown(sockets)

    def _connection(self) -> Connection:
        return Connection(self.config, self.server_state, self.lifespan.state)


def parser() -> argparse.ArgumentParser:
    """Make the parser of the command line."""
    found = argparse.ArgumentParser(
        "qpidha-console",
        description="Health, metrics and an API of brokers, in a process that survives them.",
        epilog="Example: qpidha-console --data-dir /var/lib/qpidha",
    )
    broker = found.add_argument_group("the broker").add_mutually_exclusive_group()
    broker.add_argument("--admin-socket", metavar="PATH", help="admin socket of the broker")
    broker.add_argument("--data-dir", metavar="DIR", help="its data directory, with admin.sock")
    broker.add_argument(
        "--brokers",
        metavar="URL",
        help="brokers to watch over AMQP: [amqps://][user@]host[:port],...",
    )
    found.add_argument(
        "--cluster", metavar="NAME", default=CLUSTER, help=f"label of all metrics; {CLUSTER}"
    )
    found.add_argument(
        "--consoles",
        metavar="URL,...",
        default="",
        help="addresses of all consoles of the cluster, for pages that go on at another",
    )
    login = found.add_argument_group("with --brokers")
    login.add_argument("--user", default="", help="user name; $QPIDHA_USER without it")
    login.add_argument(
        "--password-file", metavar="FILE", help=f"its first line is the password; else ${PASSWORD}"
    )
    login.add_argument("--ssl-trusted", metavar="FILE", default="", help="authorities of brokers")
    server = found.add_argument_group("HTTP")
    server.add_argument("--port", type=int, default=PORT, help=f"TCP port, {PORT}; 0 is any")
    server.add_argument("--interface", default=LOCALHOST, help="address to listen on")
    server.add_argument("--token-file", metavar="FILE", help="lines of `SCOPE TOKEN [NAME]`")
    server.add_argument("--ssl-cert", metavar="FILE", help="certificate of the console, in PEM")
    server.add_argument("--ssl-key", metavar="FILE", help="its key, if not in --ssl-cert")
    server.add_argument(
        "--host-name", action="append", default=[], help="a name it is called by; repeat for others"
    )
    server.add_argument(
        "--until-eof", action="store_true", help="end with standard input, as qpidhad has it"
    )
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until a signal ends it; the exit code."""
    given = parser().parse_args(argv)
    given.interface = LOCALHOST if given.interface == "localhost" else given.interface
    try:
        consoles = _consoles(given)
        access = _access(given, consoles)
        brokers = _brokers(given)
        listening = _listen(given.interface, given.port)
    except (InvalidArgument, ClientError) as error:
        _fail(CONFIG, error.explanation, error.hint)
    except OSError as error:
        where = address_of(given.interface, given.port)
        hint = "choose another with --port or --interface"
        _fail(UNAVAILABLE, f"cannot listen on {where}: {error.strerror}", hint)
    port = listening.getsockname()[1]
    if not given.port:
        print(port, flush=True)
    scheme = "https" if given.ssl_cert else "http"
    watched = ", ".join(broker.place for broker in brokers)
    log_line(f"{scheme}://{address_of(given.interface, port)} watches {watched}")
    app = make_app(brokers, access, given.cluster, consoles)
    config = uvicorn.Config(
        app,
        log_level="error",
        access_log=False,
        server_header=False,
        http=Connection,
        ws="none",
        proxy_headers=False,
        timeout_graceful_shutdown=2,
        ssl_certfile=given.ssl_cert,
        ssl_keyfile=given.ssl_key,
    )
    server = Server(config, app.state.events, lambda: _reload(given, access, config, app))
    if given.until_eof:
        threading.Thread(target=_end_with_input, args=(server,), daemon=True).start()
    server.run(sockets=[listening])
    return OK


def _reload(
    given: argparse.Namespace, access: Access, config: uvicorn.Config, app: FastAPI
) -> None:
    """Read the token file and the certificate again; if anything is wrong nothing changes."""
    try:
        tokens = _read_files(given)
    except InvalidArgument as error:
        log_line(f"error: {error.explanation}; nothing is changed\n  next: {error.hint}")
        return
    if config.ssl is not None:
        config.ssl.load_cert_chain(given.ssl_cert, given.ssl_key, password=lambda: "")
    former, access.tokens = access.tokens, tokens
    if set(former) - set(tokens):
        app.state.events.part()
    log_line(
        f"read again: {', '.join(filter(None, (given.token_file, given.ssl_cert))) or 'nothing'}"
    )


def _end_with_input(server: uvicorn.Server) -> None:
    """Wait until whoever started us is gone."""
    while os.read(0, 1 << 16):
        pass
    server.should_exit = True


def _access(given: argparse.Namespace, consoles: Sequence[str]) -> Access:
    """Read who may ask. Raises InvalidArgument."""
    if given.ssl_key and not given.ssl_cert:
        raise InvalidArgument("--ssl-key without --ssl-cert", hint="give both")
    if not is_loopback(given.interface):
        for option, value in (("token-file", given.token_file), ("ssl-cert", given.ssl_cert)):
            if not value:
                raise InvalidArgument(
                    f"--interface {given.interface} needs --{option}: others could read, or listen",
                    hint="or leave --interface out, and put a proxy before the console",
                )
    tokens = _read_files(given)
    named = (urlsplit(each).hostname or "" for each in consoles)
    return Access(tokens, (*given.host_name, *named))


def _read_files(given: argparse.Namespace) -> tuple[Token, ...]:
    """Return the tokens, after a look at the certificate. Raises InvalidArgument."""
    if given.ssl_cert:
        try:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(given.ssl_cert, given.ssl_key, password=lambda: "")
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", "") or getattr(error, "strerror", "") or str(error)
            hint = "name a certificate and its key in PEM form, the key without a password"
            raise InvalidArgument(f"--ssl-cert {given.ssl_cert}: {reason}", hint=hint) from error
    return read_tokens(given.token_file) if given.token_file else ()


def _consoles(given: argparse.Namespace) -> tuple[str, ...]:
    """Say where all consoles of the cluster are. Raises InvalidArgument."""
    try:
        return parse_consoles(given.consoles)
    except ValueError as error:
        hint = "--consoles http://b1:8672,http://b2:8672"
        raise InvalidArgument(f"--consoles: {error}", hint=hint) from error


def _brokers(given: argparse.Namespace) -> list[Watched]:
    """Say which brokers are watched. Raises InvalidArgument and ClientError."""
    if not given.brokers:
        for option, value in (
            ("user", given.user),
            ("password-file", given.password_file),
            ("ssl-trusted", given.ssl_trusted),
        ):
            if value:
                text = f"--{option} is for --brokers: an admin socket asks for no password"
                raise InvalidArgument(text, hint="leave it out, or name --brokers")
        path = given.admin_socket or (
            os.path.join(given.data_dir, "admin.sock")
            if given.data_dir
            else admin_socket(os.environ, os.getuid(), AMQP_PORT)
        )
        folder = os.path.dirname(os.path.abspath(path))
        if (given.admin_socket or given.data_dir) and not os.path.isdir(folder):
            named = "--admin-socket" if given.admin_socket else "--data-dir"
            log_line(
                f"warning: there is no directory {folder}: no broker can be there\n"
                f"  next: give {named} that of a broker, or start one there"
            )
        return [Watched(path, SocketLink(path))]
    user = given.user or os.environ.get("QPIDHA_USER", "")
    password = _password(given.password_file) if given.password_file else ""
    endpoints = parse_endpoints(
        given.brokers, user=user, password=password or os.environ.get(PASSWORD, "")
    )
    tls = Tls(given.ssl_trusted) if any(each.tls for each in endpoints) else None
    return [Watched(str(each), AmqpLink(each, tls), AmqpChanges(each, tls)) for each in endpoints]


def _password(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return password_in(file.read())
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        hint = "name a file whose first line is the password"
        raise InvalidArgument(f"--password-file {path}: {reason}", hint=hint) from error


def _listen(interface: str, port: int) -> socket.socket:
    """Bind the port. Raises OSError and InvalidArgument."""
    if not 0 <= port <= 65535:
        text = f"--port {port}: a port is a number from 0 to 65535"
        raise InvalidArgument(text, hint=f"--port {PORT}")
    ((family, kind, protocol, _, address), *_) = socket.getaddrinfo(
        interface, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    found = socket.socket(family, kind, protocol)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind(address)
        found.listen(BACKLOG)
    except OSError:
        found.close()
        raise
    return found


def _fail(code: int, text: str, hint: str) -> NoReturn:
    print(f"qpidha-console: error: {text}" + (f"\n  next: {hint}" if hint else ""), file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    sys.exit(main())
