"""The options that Qpid's tools share: which broker, as whom, by TLS, as an administrator or not.

A tool gives its parser the group of these options, reads the command line with it, and speaks to
brokers by `Connecting`: a client, or a conversation with the management of one. `run` turns what
goes wrong into the line and the exit code that scripts know. Options are read as Qpid's tools read
them: anywhere on the line, long ones by any beginning that only one has, `-bHOST` as `-b HOST`. Why
a connection to a backup fails without `--ha-admin`: a tool is a client then as any other.
Source: Qpid management/python/bin (qpid-config, qpid-stat, qpid-route), Python's optparse.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from optparse import OptionGroup, OptionParser, Values
from typing import Any

from qpidha.client.blocking import Client
from qpidha.client.command.passwords import PASSWORD, USER
from qpidha.client.command.streams import mend_streams, silence_output
from qpidha.client.endpoint import Endpoint, Tls, parse_endpoints
from qpidha.client.errors import (
    KEY_PASSWORD,
    NO_LOGIN,
    UNTRUSTED,
    WRONG_LOGIN,
    ClientError,
    ConnectError,
    LinkError,
    LoginError,
    TimedOut,
    TlsError,
    WrongProtocol,
)
from qpidha.client.management import ADMINISTRATOR, Conversation
from qpidha.model.errors import QpidHaError, RefusedRequest
from qpidha.model.exit_codes import NO, OK
from qpidha.model.printable import printable_lines

LOCALHOST = "localhost"
"""The broker that is meant where none is named; its port is 5672."""
HUNG_UP = "the broker ended the connection"
"""What a backup does to clients, as the client's room says it."""
ADMIN = "qpid.ha-admin"
"""The property of a connection that asks for the role of an administrator."""
TIMEOUT = 10
"""Seconds."""
HINTS = {
    KEY_PASSWORD: "use a key without a password",
    UNTRUSTED: "--ssl-trusted FILE, with the certificate of who signed the broker's",
    NO_LOGIN: "-b user/password@host, or --sasl-mechanism with one that the broker offers",
    WRONG_LOGIN: "another user, password or --sasl-mechanism",
}
"""What the client's room says to do next, in the words of these options."""
EXCEPTIONS = {"amqp:invalid-field": 4, "amqp:not-implemented": 5, "amqp:unauthorized-access": 6}
"""AMQP condition -> the error code of QMF that says the same."""
EXCEPTION = 7
"""QMF's error code for everything else that an agent refuses."""


class ToolError(Exception):
    """A tool cannot do what it was asked; `kind` is what scripts know this failure by."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


def agent_error(text: str, code: int = EXCEPTION) -> ToolError:
    """Return the failure of a request that the broker refuses, as QMF has it."""
    values = {"error_code": code, "error_text": text}
    return ToolError("Exception", f"Exception from Agent: {values}")


class Parser(OptionParser):
    """A parser whose usage and description keep their lines."""

    def format_description(self, formatter: Any) -> str:
        """Return the description as it was written."""
        return f"{self.get_description()}\n" if self.description else ""


def add_connection_options(
    parser: OptionParser | OptionGroup,
    *,
    broker: bool = True,
    broker_addr: bool = False,
    timeout: str = "-t",
    mechanism: str = "--sasl-mechanism",
) -> None:
    """Add the options that say how a broker is reached; `broker_addr` is for `-a`, `timeout` the
    short name of `--timeout`, empty for none.
    """
    if broker:
        parser.add_option(
            "-b",
            "--broker",
            metavar="<address>",
            help="Connect to the broker at [user/password@]host[:port], or to the primary of a "
            "comma-separated list; ssl: or amqps:// before an address selects TLS "
            f"(default: {LOCALHOST})",
        )
    if broker_addr:
        parser.add_option("-a", "--broker-addr", metavar="<address>", help="The same as -b.")
    parser.add_option(
        *([timeout] if timeout else []),
        "--timeout",
        type="int",
        default=TIMEOUT,
        metavar="<secs>",
        help="Wait this many seconds for the broker, 0 for ever (default: %default)",
    )
    parser.add_option(
        mechanism,
        dest="sasl_mechanism",
        metavar="<mech>",
        help="Log in by this SASL mechanism (default: the best that the broker offers).",
    )
    parser.add_option(
        "--sasl-service-name",
        metavar="<name>",
        help="Use this service name of the broker for Kerberos, in place of amqp.",
    )
    parser.add_option(
        "--ssl-certificate", metavar="<cert>", help="Use this client certificate (PEM)."
    )
    parser.add_option(
        "--ssl-key", metavar="<key>", help="Use this private key of the client certificate (PEM)."
    )
    parser.add_option(
        "--ssl-trusted",
        metavar="<cert>",
        help="Trust the certificate authorities in this file (PEM).",
    )
    parser.add_option(
        "--ha-admin",
        action="store_true",
        default=False,
        help="Connect as an administrator, also to a backup.",
    )


def add_output_option(parser: OptionParser | OptionGroup) -> None:
    """Add the option for programs that read what a tool shows."""
    parser.add_option(
        "-o",
        "--output",
        type="choice",
        choices=["text", "json"],
        default="text",
        metavar="<format>",
        help="Print text, or the same content as json (default: %default)",
    )


def print_document(content: Mapping[str, Any]) -> None:
    """Print one JSON document."""
    print(json.dumps({"schema_version": 1, **content}))


@dataclass(frozen=True, slots=True)
class Connecting:
    """How a tool reaches brokers."""

    program: str
    timeout: float | None
    """Seconds; None is for ever."""
    mechanism: str
    service: str
    """The name of the service in Kerberos."""
    tls: Tls
    is_admin: bool

    @staticmethod
    def read(parser: OptionParser, options: Values) -> Connecting:
        """Take the shared options of a command line; ends the program if they do not fit."""
        if options.ssl_key and not options.ssl_certificate:
            parser.error("missing '--ssl-certificate' (required by '--ssl-key')")
        if options.timeout < 0:
            parser.error(f"option --timeout: {options.timeout} is less than 0")
        return Connecting(
            parser.get_prog_name(),
            options.timeout or None,
            options.sasl_mechanism or "",
            options.sasl_service_name or "",
            Tls(options.ssl_trusted or "", options.ssl_certificate or "", options.ssl_key or ""),
            options.ha_admin,
        )

    @staticmethod
    def brokers(*given: str | None) -> str:
        """Return the first of the values of -b, -a and their like that was given; one may be empty,
        and then no broker is meant, rather than the usual one.
        """
        return next((each for each in given if each is not None), LOCALHOST)

    def endpoints(self, brokers: str) -> list[Endpoint]:
        """Read the addresses of brokers. A user in an address comes before the environment's."""
        user, password = os.environ.get(USER, ""), os.environ.get(PASSWORD, "")
        found = parse_endpoints(brokers, user=user, password=password)
        return [
            replace(endpoint, mechanism=self.mechanism, service=self.service) for endpoint in found
        ]

    def client(
        self,
        brokers: str | Endpoint | list[Endpoint],
        *,
        properties: Mapping[str, Any] | None = None,
        is_admin: bool | None = None,
        **options: Any,
    ) -> Client:
        """Make a client that tries each address once; `options` are those of `Client`."""
        wants_role = self.is_admin if is_admin is None else is_admin
        usual = {
            "timeout": self.timeout,
            "reconnect_timeout": 0.0,
            "fail_fast": True,
            "follow_redirects": False,
        }
        return Client(
            self.endpoints(brokers) if isinstance(brokers, str) else brokers,
            tls=self.tls,
            properties={
                "product": self.program,
                "qpid.client_process": self.program,
                "qpid.client_pid": os.getpid(),
                **({ADMIN: 1} if wants_role else {}),
                **(properties or {}),
            },
            **{**usual, **options},
        )

    def open(self, brokers: str, **options: Any) -> Client:
        """Connect. Who asks to be an administrator and is none is a client as any other."""
        try:
            return self.client(brokers, **options).open()
        except LoginError as denied:
            if not self.is_admin:
                raise
            try:
                return self.client(brokers, is_admin=False, **options).open()
            except ClientError:
                raise denied from None

    def open_as_admin(self, brokers: str) -> Client:
        """Connect as an administrator; without --ha-admin to a broker that lets clients in too."""
        serving: str | Endpoint = brokers
        if not self.is_admin:
            client = self.open(brokers)
            with suppress(ClientError):
                client.close()
            serving = client.endpoint
        try:
            return self.client(serving, is_admin=True).open()
        except LoginError as denied:
            if ADMIN in denied.reason:
                denied.hint = ADMINISTRATOR
            raise

    @contextmanager
    def management(self, brokers: str, *, needs_admin: bool = False) -> Iterator[Conversation]:
        """Hold a conversation with the first broker of these that lets us in."""
        client = self.open_as_admin(brokers) if needs_admin else self.open(brokers)
        try:
            yield Conversation(client)
        finally:
            with suppress(ClientError):  # What was asked has its answer; one that stopped has gone.
                client.close()


def run(
    work: Callable[[list[str]], int],
    arguments: Sequence[str] | None = None,
    *,
    separator: str = ": ",
    interrupted: int = NO,
) -> int:
    """Do the work of a tool with its command line, and return the exit code. A failure is told on
    standard output, `separator` between its type and its text.
    """
    mend_streams()
    try:
        code = work(list(sys.argv[1:] if arguments is None else arguments))
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        print()
        return interrupted
    except BrokenPipeError:
        silence_output()
        return OK
    except (ClientError, QpidHaError, ToolError, OSError, UnicodeEncodeError) as error:
        kind, text = told(error)
        try:
            print(printable_lines(f"Failed: {kind}{separator}{text}"), flush=True)
        except OSError as unwritten:  # A full disk, or nobody there: then nothing can be told here.
            silence_output()
            print(f"cannot write: {unwritten.strerror}", file=sys.stderr)
        return NO


def told(error: Exception) -> tuple[str, str]:
    """Say by which name scripts know a failure, and what failed, why, and what to do next."""
    if isinstance(error, ToolError):
        return error.kind, str(error)
    if isinstance(error, RefusedRequest):
        code = EXCEPTIONS.get(error.condition, EXCEPTION)
        text = f"{error.condition.removeprefix('amqp:')}: {_explained(error)}"
        return told(agent_error(text, code))
    if isinstance(error, ClientError):
        return _name_of(error), _explained(error)
    if isinstance(error, UnicodeEncodeError):
        # Bytes of the command line that are no text are surrogates in Python.
        return "UnicodeEncodeError", f"{error.object!r} is not text in UTF-8"
    return type(error).__name__, str(error)


def _explained(error: ClientError | QpidHaError) -> str:
    hint = HINTS.get(error.hint, error.hint)
    if isinstance(error, ConnectError) and not hint and error.reason == HUNG_UP:
        hint = "--ha-admin, if it is a backup; or -b with all brokers, and commas between"
    if isinstance(error, TlsError) and not hint and error.__cause__ is None:
        hint = HINTS[UNTRUSTED]
    if isinstance(error, ConnectError) and not hint:
        is_other = isinstance(error, WrongProtocol)
        hint = "-b with the AMQP address of a broker" if is_other else "does a broker run there?"
    return f"{error.explanation}. Try: {hint}" if hint else error.explanation


def _name_of(error: ClientError) -> str:
    if isinstance(error, LoginError):
        return "AuthenticationFailure"
    if isinstance(error, TimedOut):
        return "Timeout"
    if isinstance(error, LinkError):
        names = {"amqp:not-found": "NotFound", "amqp:unauthorized-access": "UnauthorizedAccess"}
        return names.get(error.condition, "LinkError")
    return "ConnectError" if isinstance(error, ConnectError) else "ConnectionError"
