"""Effects: everything a node can ask of the world, in the imperative; carried out in the order
given.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from qpidha.model.event_log import Happening


@dataclass(slots=True)
class SendBytes:
    """Write `data` to a connection; where that is `limited`, a peer that lets more than
    `max-output-buffer` bytes wait is cut off.
    """

    connection_id: int
    data: bytes
    limited: bool = True


@dataclass(slots=True)
class SendParts:
    """Write these buffers to a connection, one after the other; none of them changes any more. All
    else is as with `SendBytes`.
    """

    connection_id: int
    parts: list[bytes | memoryview]
    limited: bool = True

    @property
    def data(self) -> bytes:
        """All of them in one."""
        return b"".join(self.parts)


@dataclass(slots=True)
class Connect:
    """Open a stream to another broker; ConnectionOpened or ConnectionLost with this id follows."""

    connection_id: int
    host: str
    port: int
    encrypted: bool


@dataclass(slots=True)
class Disconnect:
    """Close a connection after what was written has left."""

    connection_id: int


@dataclass(slots=True)
class Admitted:
    """The peer of an accepted connection has logged in and was let in. What other brokers and tools
    say `comes_first`: it does not wait for clients.
    """

    connection_id: int
    comes_first: bool = False


@dataclass(slots=True)
class LoginWaits:
    """The peer of an accepted connection has tried a password, and hears later how that ended."""

    connection_id: int


@dataclass(slots=True)
class SaveState:
    """Make this the content of the small state file (promised epoch, in-sync set), synced; the
    event StateSaved with this `mark`, or a later one, follows. Later effects do not wait for that.
    """

    data: bytes
    mark: int


@dataclass(slots=True)
class Announce:
    """Say what happened: a log line, and what tests read.

    `level` is one of debug, info, notice, warning, error, critical; `category` is a word such as
    ha, amqp or broker. `about` says the same to the event log; without it the event log takes
    errors only. `event_code` is what the line is looked up by, see `event_codes.py`.
    """

    level: str
    category: str
    text: str
    fields: dict[str, object] = field(default_factory=dict)
    about: Happening | None = None
    event_code: str = ""


@dataclass(slots=True)
class Stop:
    """End the daemon; `failed` is whether its exit code says so, `damaged` that its data are to
    blame.
    """

    reason: str
    failed: bool = False
    damaged: bool = False


@dataclass(slots=True)
class WriteEvents:
    """Write events to the event log.

    `at` is the time of all, ns since the Unix epoch; each row is what stands in a line after its
    times, as JSON without braces.
    """

    at: int
    rows: list[str]


@dataclass(slots=True)
class Reload:
    """Read again what may change while a broker serves; the event Reloaded has the `number`."""

    number: int


@dataclass(slots=True)
class SetLogLevel:
    """Log what these selectors say from now on, whatever `log-enable` and `log-disable` say; until
    they are read again.
    """

    enabled: str
    disabled: str


@dataclass(slots=True)
class Compute:
    """Do arithmetic that takes long, for a connection and beside everything else; Computed follows,
    whatever becomes of the connection. `work` looks at nothing that changes. If it `blocks` it is
    no arithmetic but asks the network, and nothing else is to wait for it.
    """

    connection_id: int
    work: Callable[[], object] = field(repr=False)
    blocks: bool = False


Effect = (
    SendBytes
    | SendParts
    | Connect
    | Disconnect
    | Admitted
    | LoginWaits
    | SaveState
    | Announce
    | Stop
    | WriteEvents
    | Reload
    | SetLogLevel
    | Compute
)
