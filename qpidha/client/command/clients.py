"""AMQP clients of commands: made from global options, with errors as failures that carry exit
codes.

They know the address that was given, the brokers of the local cluster or of `--config`, and what
brokers tell. Where no broker has served for `--timeout`, the command ends.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from qpidha.client.blocking import Client
from qpidha.client.command.arguments import Options
from qpidha.client.command.exits import Failure, failure_of
from qpidha.client.command.output import talk
from qpidha.client.command.passwords import read_password
from qpidha.client.command.target import Target, beside, known_brokers
from qpidha.client.endpoint import Endpoint, Tls
from qpidha.client.errors import ClientError, TimedOut
from qpidha.client.management import AmqpManagement
from qpidha.model.errors import QpidHaError
from qpidha.model.exit_codes import UNAVAILABLE


class CommandClient:
    """A client that goes on over failovers and says so; `forever` looks for a broker for ever, once
    one has served.
    """

    def __init__(
        self,
        targets: Sequence[Target],
        options: Options,
        *,
        heartbeat: float,
        forever: bool = False,
    ) -> None:
        self.served = False
        """Whether a broker has let us in."""
        self.connected = False
        self.last: ClientError | None = None
        """Why the last address that was tried does not serve."""
        self.options = options
        self.patience = options.patience()
        with self.failures():
            self.client = Client(
                endpoints_of(targets, options),
                tls=tls_of(options),
                timeout=self.patience,
                reconnect_timeout=None if forever else self.patience,
                fail_fast=True,
                heartbeat=heartbeat,
                properties={
                    "product": "qpid-ha",
                    "qpid.client_process": "qpid-ha",
                    "qpid.client_pid": os.getpid(),
                },
                on_event=self._on_event,
            )

    @contextmanager
    def opened(self) -> Iterator[Client]:
        """Connect for the block; errors in it become failures."""
        with self.failures(), self.client:
            _tell_unused(self.options, self.client.endpoint, self.client.mechanism)
            yield self.client

    @contextmanager
    def failures(self) -> Iterator[None]:
        """Turn errors of the client into failures."""
        try:
            yield
        except TimedOut as error:
            if self.connected:
                raise failure_of(error) from error
            last = failure_of(self.last) if self.last is not None else Failure(UNAVAILABLE, "")
            raise Failure(
                UNAVAILABLE,
                f"no broker served within {self.patience or 0:g} s",
                reason=last.explanation,
                hint=last.hint or "qpid-ha list, or a longer --timeout",
            ) from error
        except (ClientError, QpidHaError) as error:
            raise failure_of(error) from error

    def _on_event(self, event: str, endpoint: Endpoint, error: ClientError | None) -> None:
        self.connected = event == "connected"
        self.last = error
        self.served = self.served or self.connected
        if event == "lost" and error is not None:
            talk(self.options, f"{error.explanation}; going on elsewhere")


def management(target: Target, options: Options, *, follow: bool) -> AmqpManagement:
    """Open a conversation with one broker over AMQP; with `follow`, with the primary."""
    endpoint = endpoint_of(target)
    found = AmqpManagement(endpoint, tls=tls_of(options), timeout=options.patience(), follow=follow)
    _tell_unused(options, endpoint, found.mechanism)
    return found


def _tell_unused(options: Options, endpoint: Endpoint, mechanism: str) -> None:
    """Say which of the options about safety had no effect: one may rely on them."""
    texts = []
    is_given = options.user or "@" in options.broker
    if is_given and endpoint.user and mechanism in ("ANONYMOUS", "EXTERNAL"):
        texts.append(f"{endpoint} asks for no password: user {endpoint.user} is not used")
    if (options.ssl_trusted or options.ssl_certificate) and not endpoint.tls:
        texts.append(
            f"there is no TLS to {endpoint}: the --ssl options are not used; with TLS it is "
            "-b amqps://host:port"
        )
    for text in texts:
        if text not in options.told:
            options.told.add(text)
            talk(options, f"warning: {text}")


def endpoint_of(target: Target) -> Endpoint:
    """A target as the client's room has it."""
    return Endpoint(
        target.host,
        target.port,
        target.encrypted,
        target.user,
        target.password,
        target.mechanism,
        target.service,
    )


def tls_of(options: Options) -> Tls:
    """The TLS files of the global options."""
    trusted, certificate, key, password_file = options.configured_tls
    if options.ssl_certificate:
        certificate, key = options.ssl_certificate, options.ssl_key
        password_file = options.ssl_key_password_file
    password = read_password(password_file) if password_file else ""
    return Tls(options.ssl_trusted or trusted, certificate, key, password=password)


def endpoints_of(targets: Sequence[Target], options: Options) -> list[Endpoint]:
    """The given addresses, and those of their cluster as far as this machine knows them; one logs
    in there as at the first, and does not go from TLS to a plain port.
    """
    first = targets[0]
    listed = known_brokers(options)
    is_one = str(first) in [address.removeprefix("ssl:") for address in listed]
    others = []
    for address in listed if options.config or is_one else []:
        with suppress(Failure):
            others.append(beside(address, first))
    return [endpoint_of(target) for target in (*targets, *others)]
