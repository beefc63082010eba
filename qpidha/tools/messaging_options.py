"""Connection options of Qpid's messaging programs: `{reconnect: true, heartbeat: 10, ...}`.

Each key of qpid::messaging is one of the client here, or is refused by name with what to do; a
dash in a key is an underscore. Knows no address of a queue.
Source: qpid-cpp src/qpid/messaging/ConnectionOptions.cpp; the keys that begin with `ssl_` and name
files are those of Qpid's Python client.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from qpidha.client.blocking import Client
from qpidha.client.command.passwords import PASSWORD, USER
from qpidha.client.core import PAUSES
from qpidha.client.endpoint import Endpoint, Tls, parse_endpoints
from qpidha.client.errors import ClientError, ConnectError
from qpidha.tools.address_strings import parse_map
from qpidha.tools.connection_options import ADMIN, ToolError
from qpidha.tools.messaging_log import Log

LOCALHOST = "127.0.0.1"
"""The broker that is meant where none is named."""
PROTOCOL = "amqp1.0"
SHORTEST_PAUSE = 0.001
HEARTBEAT = 10
"""Seconds, where none are given."""
REFUSED = {
    "bounds": "it bounds what AMQP 0-10 has unsent; give --capacity",
    "locale": "brokers speak English; leave it out",
    "max_channels": "channels are made as links need them; leave it out",
    "max_frame_size": "frames are as large as the broker takes them; set its max-frame-size",
    "ssl_cert_name": "there is no NSS database of certificates; name the files in ssl_certfile and "
    "ssl_keyfile",
}
"""Keys without a meaning here -> why, and what to do."""
FIXED: Mapping[str, tuple[tuple[Any, ...], str]] = {
    "sasl_min_ssf": ((0,), "SASL encrypts nothing here; connect under TLS: ssl:HOST"),
    "tcp_nodelay": ((True,), "the client sends at once; leave it out"),
    "ssl_ignore_hostname_verification_failure": (
        (False,),
        "the name in a certificate is always checked; give the broker one with its address",
    ),
    "ssl_skip_hostname_check": (
        (False,),
        "the name in a certificate is always checked; give the broker one with its address",
    ),
    "reconnect_urls_replace": (
        (False,),
        "reconnect-urls are tried beside the addresses of -b; name there what is wanted",
    ),
    "x_reconnect_on_limit_exceeded": (
        (True,),
        "with reconnect the client goes on after any loss; leave it out",
    ),
}
"""Keys of which only some values are as things are here."""
FLAGS = ("reconnect", "nest_annotations", "set_to_on_send", "address_passthrough", "raise_rejected")
NUMBERS = (
    "reconnect_timeout",
    "reconnect_interval",
    "reconnect_interval_min",
    "reconnect_interval_max",
    "redelivery_timeout",
    "heartbeat",
)
COUNTS = ("reconnect_limit", "max_delivery_attempts", "sasl_max_ssf")
TEXTS = (
    "username",
    "password",
    "sasl_mechanisms",
    "sasl_service",
    "transport",
    "protocol",
    "container_id",
    "ssl_trustfile",
    "ssl_certfile",
    "ssl_keyfile",
)
ALIASES = {
    "sasl_mechanism": "sasl_mechanisms",
    "client_properties": "properties",
    "sasl_service_name": "sasl_service",
    "user": "username",
}


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """How the programs connect, and what they do with messages that are not taken."""

    endpoints: tuple[Endpoint, ...]
    tls: Tls
    values: Mapping[str, Any]

    @staticmethod
    def read(brokers: str, text: str) -> ConnectionOptions:
        """Read the URL of brokers and the map of options. Raises ToolError or ClientError."""
        values = _checked(parse_map(text))
        more = values.get("reconnect_urls", [])
        urls = [brokers, *(more if isinstance(more, list) else [more])]
        endpoints = parse_endpoints(
            [str(each) for each in urls],
            user=values.get("username", os.environ.get(USER, "")),
            password=values.get("password", os.environ.get(PASSWORD, "")),
        )
        mechanism = values.get("sasl_mechanisms", "")
        service = values.get("sasl_service", "")
        encrypts = values.get("transport") == "ssl"
        return ConnectionOptions(
            tuple(
                replace(each, mechanism=mechanism, service=service, tls=each.tls or encrypts)
                for each in endpoints
            ),
            Tls(
                values.get("ssl_trustfile", ""),
                values.get("ssl_certfile", ""),
                values.get("ssl_keyfile", ""),
            ),
            values,
        )

    @property
    def reconnects(self) -> bool:
        """Whether a connection that is lost is made again."""
        return bool(self.values["reconnect"])

    def client(
        self, program: str, log: Log, *, learns: bool = False, is_admin: bool = False
    ) -> Client:
        """Make a client; with `learns` it goes to addresses that brokers name, too."""
        values = self.values
        pause = values.get("reconnect_interval")
        first = values.get("reconnect_interval_min", PAUSES[0] if pause is None else pause)
        longest = values.get("reconnect_interval_max", PAUSES[1] if pause is None else pause)
        return Client(
            list(self.endpoints),
            tls=self.tls,
            container_id=values.get("container_id", ""),
            timeout=None,
            reconnect=self.reconnects,
            reconnect_timeout=values.get("reconnect_timeout") if self.reconnects else 0.0,
            reconnect_pause=(max(first, SHORTEST_PAUSE), longest),
            fail_fast=not self.reconnects,
            heartbeat=values.get("heartbeat", HEARTBEAT),
            follow_redirects=learns,
            properties={
                "product": program,
                "qpid.client_process": program,
                "qpid.client_pid": os.getpid(),
                **({ADMIN: 1} if is_admin else {}),
                **values.get("properties", {}),
            },
            on_event=_Watch(log, values.get("reconnect_limit", -1), len(self.endpoints)),
        )


class _Watch:
    """Tells the log of a client's connections, and ends it when it has tried often enough."""

    def __init__(self, log: Log, limit: int, addresses: int) -> None:
        self._log = log
        self._most = (limit + 1) * addresses if limit >= 0 else None
        self._missed = 0

    def __call__(self, what: str, endpoint: Endpoint, error: ClientError | None) -> None:
        if what == "connected":
            self._missed = 0
            self._log.write("info", f"connected to {endpoint}")
            return
        level = "warning" if what == "lost" else "info"
        self._log.write(level, str(error or what))
        self._missed += what == "failed"
        if self._most is not None and self._missed >= self._most:
            raise ConnectError(
                f"no broker was reached in {self._most} attempts",
                reason=error.explanation if error is not None else "",
                hint="reconnect-limit is how often each address is tried again",
            )


def _checked(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options under one name each; refuse what cannot be done."""
    values: dict[str, Any] = {"reconnect": False, "raise_rejected": True}
    for key, value in given.items():
        name = key.replace("-", "_")
        name = ALIASES.get(name, name)
        if name in REFUSED:
            _refuse(f"{key} has no meaning here: {REFUSED[name]}")
        if name in FIXED:
            allowed, hint = FIXED[name]
            if value not in allowed:
                _refuse(f"{key}: {_shown(value)} cannot be done: {hint}")
        elif name in FLAGS:
            if not isinstance(value, bool) and value not in (0, 1):
                _refuse(f"{key} is true or false, not {_shown(value)}")
            values[name] = bool(value)
        elif name in NUMBERS:
            if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
                _refuse(f"{key} is a number of seconds, not {_shown(value)}")
            values[name] = float(value)
        elif name in COUNTS:
            if isinstance(value, bool) or not isinstance(value, int) or value < -1:
                _refuse(f"{key} is a whole number, not {_shown(value)}")
            values[name] = int(value)
        elif name in TEXTS:
            if isinstance(value, dict | list):
                _refuse(f"{key} is text, not {_shown(value)}")
            values[name] = str(value)
        elif name == "properties":
            if not isinstance(value, dict):
                _refuse(f"{key} is a map, not {_shown(value)}")
            values[name] = value
        elif name == "reconnect_urls":
            values[name] = value
        else:
            _refuse(f"{key} is no connection option. Try: one of {', '.join(known())}")
    _check_together(values)
    return values


def _check_together(values: Mapping[str, Any]) -> None:
    spoken = [part.strip() for part in values.get("protocol", PROTOCOL).split(",")]
    if PROTOCOL not in spoken:
        _refuse(
            f"protocol: {values['protocol']} is not spoken, {PROTOCOL} alone is: say so or "
            "leave it out"
        )
    if values.get("transport", "tcp") not in ("tcp", "ssl"):
        _refuse(f"transport: {values['transport']} is not there. Try: tcp or ssl")
    if values.get("ssl_keyfile") and not values.get("ssl_certfile"):
        _refuse("ssl_keyfile is given without ssl_certfile. Try: both")


def known() -> list[str]:
    """Every key that does something, in the order of the alphabet."""
    named = (*FLAGS, *NUMBERS, *COUNTS, *TEXTS, *FIXED, "properties", "reconnect_urls")
    return sorted(each.replace("_", "-") for each in named)


def _shown(value: Any) -> str:
    return repr(value) if isinstance(value, str) else str(value)


def _refuse(text: str) -> NoReturn:
    raise ToolError("InvalidOption", f"connection option {text}")
