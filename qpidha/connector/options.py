"""Options of the data source: read from what Spark hands over, checked before anything else
happens, and never a secret among them.

Spark's names are case-insensitive. A password is read where a connection is made, on the driver or
on a worker, so that it is in no plan, log or checkpoint.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path

from qpidha.client.endpoint import Endpoint
from qpidha.model.errors import InvalidArgument
from qpidha.model.url import parse_address

NAME = "qpidha"
"""What `format()` is given."""
PASSWORD = "QPIDHA_PASSWORD"
"""The environment variable that has the password where there is no `passwordFile`."""
MODES = ("browse", "consume")
LARGEST = 1_000_000
"""Of every number of messages."""

OPTIONS: dict[str, tuple[str, str, str]] = {
    "url": (
        "",
        "all",
        "addresses of all brokers with commas between: `host`, `host:port`, "
        "`amqp://host:port`, or all of them `amqps://host:port`",
    ),
    "queue": (
        "",
        "all",
        "queue to read (a batch: several with commas between); to write: queue of rows "
        "without a column `queue`",
    ),
    "mode": ("browse", "batch read", "`browse` leaves the messages there, `consume` takes them"),
    "username": ("", "all", "user name; without it the client does not log in"),
    "passwordFile": (
        "",
        "all",
        "file with the password on driver and workers; without it the environment "
        f"variable `{PASSWORD}`",
    ),
    "tlsCa": (
        "",
        "all",
        "PEM file of certificate authorities for `amqps`; without it the system's",
    ),
    "prefetch": (
        "1000",
        "all",
        "messages on their way at a time: asked of a broker before they are read, or "
        "sent and not accepted yet",
    ),
    "rowsPerBatch": (
        "10000",
        "read",
        "rows of a micro-batch at most, while as many wait; of a batch read: rows handed "
        "to Spark at once",
    ),
    "partitions": (
        "1",
        "stream, consume",
        "tasks that share the rows of a micro-batch, or receivers of each queue",
    ),
    "timeout": (
        "60",
        "all",
        "seconds to find a primary, and for a broker to accept or settle a message",
    ),
}
"""Name -> default, where it is used, meaning."""
_NAMES = {name.lower(): name for name in OPTIONS}
SPARKS = {"path", "checkpointlocation", "queryname", "outputmode"}
"""Keys that Spark puts beside ours."""
ASYNC = "asyncprogresstracking"


@dataclass(frozen=True, slots=True)
class Options:
    """What the user asks for; `given` are the options that he named."""

    addresses: tuple[str, ...]
    """`host:port` of each broker."""
    encrypted: bool = False
    queues: tuple[str, ...] = ()
    mode: str = "browse"
    username: str = ""
    password_file: str = ""
    tls_ca: str = ""
    prefetch: int = 1000
    rows_per_batch: int = 10_000
    partitions: int = 1
    timeout: float = 60.0
    """Seconds."""
    given: frozenset[str] = field(default_factory=frozenset)

    def endpoints(self) -> list[Endpoint]:
        """Return where the brokers are and how one logs in; reads the password. Raises
        InvalidArgument when there is none.
        """
        password = _password(self) if self.username else ""
        return [
            Endpoint(address.host, address.port, address.encrypted, self.username, password)
            for address in (
                parse_address(text, encrypted=self.encrypted) for text in self.addresses
            )
        ]

    def for_reading(self) -> Options:
        """Return these options for a batch read; raises InvalidArgument for what does not fit
        one.
        """
        self._need_queue()
        if self.mode == "browse" and "partitions" in self.given:
            raise InvalidArgument(
                "option partitions is for mode=consume and for streams: a browse has one "
                "partition for each queue"
            )
        return self

    def for_stream(self) -> Options:
        """Return these options for a streaming read; raises InvalidArgument for what does not fit
        one.
        """
        self._need_queue()
        if len(self.queues) > 1:
            raise InvalidArgument(
                f"option queue names {len(self.queues)} queues, a stream reads one: make "
                "a stream of each, and union them"
            )
        if "mode" in self.given and self.mode != "consume":
            raise InvalidArgument(
                f"option mode is {self.mode}, and a stream always consumes: leave it "
                "out, or browse with spark.read"
            )
        return self

    def for_writing(self) -> Options:
        """Return these options for a write; raises InvalidArgument for what does not fit one."""
        for name in ("mode", "rowsPerBatch", "partitions"):
            if name in self.given:
                raise InvalidArgument(f"option {name} is for reading: leave it out of a write")
        if len(self.queues) > 1:
            raise InvalidArgument(
                f"option queue names {len(self.queues)} queues, a row goes to one: name "
                "it in a column queue"
            )
        return self

    def _need_queue(self) -> None:
        if not self.queues:
            raise InvalidArgument("option queue is missing: name the queue to read")


def parse_options(options: Mapping[str, str]) -> Options:
    """Read the options of a read or a write; raises InvalidArgument that names the option and what
    it may be.
    """
    found: dict[str, str] = {}
    for key, value in options.items():
        lower = key.lower()
        if lower in SPARKS or (lower.startswith(ASYNC) and value.strip().lower() != "true"):
            continue
        if lower.startswith(ASYNC):
            raise InvalidArgument(
                "option asyncProgressTrackingEnabled is refused: with it Spark asks for "
                "more before a batch is committed"
            )
        if lower not in _NAMES:
            raise InvalidArgument(_unknown(key))
        found[_NAMES[lower]] = value.strip()
    values = {name: found.get(name) or default for name, (default, _, _) in OPTIONS.items()}
    addresses, encrypted = _addresses(values["url"])
    if values["mode"] not in MODES:
        raise InvalidArgument(f"option mode is {values['mode']!r}, must be {' or '.join(MODES)}")
    if values["passwordFile"] and not values["username"]:
        raise InvalidArgument("option passwordFile is given without username")
    if values["tlsCa"] and not encrypted:
        raise InvalidArgument("option tlsCa is given, but the addresses of url are not amqps://")
    return Options(
        addresses=addresses,
        encrypted=encrypted,
        queues=_queues(values["queue"]),
        mode=values["mode"],
        username=values["username"],
        password_file=values["passwordFile"],
        tls_ca=values["tlsCa"],
        prefetch=_number("prefetch", values["prefetch"]),
        rows_per_batch=_number("rowsPerBatch", values["rowsPerBatch"]),
        partitions=_number("partitions", values["partitions"], 10_000),
        timeout=_seconds("timeout", values["timeout"]),
        given=frozenset(name for name, value in found.items() if value),
    )


def documentation() -> str:
    """Return the table of options for docs/connector.md."""
    lines = ["| Option | Default | For | Meaning |", "|---|---|---|---|"]
    lines += [
        f"| `{name}` | {f'`{default}`' if default else '-'} | {use} | {meaning} |"
        for name, (default, use, meaning) in OPTIONS.items()
    ]
    return "\n".join(lines)


def _unknown(key: str) -> str:
    if key.lower() == "password":
        return (
            "option password is refused, for plans and logs would show it: give "
            f"passwordFile, or {PASSWORD} in the environment"
        )
    near = [_NAMES[name] for name in get_close_matches(key.lower(), _NAMES, 2, 0.6)]
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(OPTIONS)}"
    return f"option {key} is unknown: {hint}"


def _addresses(text: str) -> tuple[tuple[str, ...], bool]:
    if not text:
        raise InvalidArgument(
            "option url is missing: give the addresses of the brokers, such as "
            "host1:5672,host2:5672"
        )
    if "@" in text:
        raise InvalidArgument(
            "option url has a user or a password in it: give username, and passwordFile "
            f"or {PASSWORD} in the environment"
        )
    found, schemes = [], set()
    for part in text.split(","):
        scheme, separator, rest = part.strip().rpartition("://")
        if separator and scheme not in ("amqp", "amqps"):
            raise InvalidArgument(
                f"option url: {part.strip()} begins with {scheme}://, must be amqp:// or amqps://"
            )
        try:
            address = parse_address(rest.rstrip("/"), encrypted=scheme == "amqps")
        except ValueError as error:
            raise InvalidArgument(f"option url: {error}") from None
        schemes.add(address.encrypted)
        found.append(address.host_port)
    if len(schemes) > 1:
        raise InvalidArgument(
            "option url mixes amqp:// and amqps://: all addresses must be of one kind"
        )
    return tuple(found), schemes == {True}


def _queues(text: str) -> tuple[str, ...]:
    if not text:
        return ()
    found = tuple(name.strip() for name in text.split(","))
    if not all(found) or len(set(found)) < len(found):
        raise InvalidArgument(f"option queue is {text!r}: a name is empty or there twice")
    return found


def _number(name: str, text: str, largest: int = LARGEST) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= largest:
        raise InvalidArgument(
            f"option {name} is {text!r}, must be a whole number from 1 to {largest}"
        )
    return int(text)


def _seconds(name: str, text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0.1 <= found <= 86_400:
        raise InvalidArgument(f"option {name} is {text!r}, must be seconds from 0.1 to 86400")
    return found


def _password(options: Options) -> str:
    if not options.password_file:
        if PASSWORD not in os.environ:
            raise InvalidArgument(
                "option username is given without a password: give passwordFile, or set "
                f"{PASSWORD} where Spark runs"
            )
        return os.environ[PASSWORD]
    try:
        return Path(options.password_file).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(
            f"option passwordFile: {options.password_file} cannot be read here: {error}"
        ) from None
