"""`qpid-printevents`: what happens at brokers, a line for each event as it happens.

Each broker that is named, or the one of several with commas that serves, is asked for its events
again and again; where it goes, the next one is, from when the former was lost, so that a failover
is told by who took over. Events that Qpid's brokers have too have their names and keys.
Source: Qpid management/python/bin/qpid-printevents, and the events of its management schemas.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from optparse import OptionGroup
from queue import Empty, SimpleQueue
from typing import Any

from qpidha.client.command.streams import reader_is_gone
from qpidha.client.errors import ClientError, LoginError, TlsError
from qpidha.client.management import Conversation
from qpidha.model.errors import RefusedRequest
from qpidha.model.exit_codes import NO, OK
from qpidha.model.printable import printable
from qpidha.tools.connection_options import (
    LOCALHOST,
    Connecting,
    Parser,
    add_connection_options,
    add_output_option,
    run,
    told,
)
from qpidha.tools.display import moment

USAGE = "%prog [options] [broker-addr]..."
DESCRIPTION = f"""Print the events of brokers as they happen.

Without a broker-addr it is {LOCALHOST}. With commas between addresses it is the broker of these
that serves, also after a failover.

Examples:

$ qpid-printevents localhost:5672
$ qpid-printevents guest/guest@broker-host:10000
$ qpid-printevents node1,node2,node3
$ qpid-printevents --ha-admin node1 node2 node3
"""
HEARTBEAT = 5.0
"""Seconds."""
PAUSE, AWAY, GOODBYE = 0.5, 1.0, 0.2
"""Seconds between two questions, before a broker that is not there is tried again, and for one that
may be silent to say goodbye.
"""
BROKER, HA, OWN = "org.apache.qpid.broker", "org.apache.qpid.ha", "qpidha"
"""Packages of events: Qpid's, and ours."""
NAMES = {
    ("conn", "up"): (BROKER, "clientConnect", {"about": "rhost"}),
    ("conn", "down"): (BROKER, "clientDisconnect", {"about": "rhost", "error": "reason"}),
    ("link", "up"): (BROKER, "brokerLinkUp", {"about": "rhost"}),
    ("link", "down"): (BROKER, "brokerLinkDown", {"about": "rhost", "error": "reason"}),
    ("queue", "created"): (BROKER, "queueDeclare", {"queue": "qName"}),
    ("queue", "deleted"): (BROKER, "queueDelete", {"queue": "qName"}),
    ("alert", "crossed upward"): (
        *(BROKER, "queueThresholdCrossedUpward"),
        {"queue": "qName", "count": "msgDepth"},
    ),
    ("alert", "crossed downward"): (
        *(BROKER, "queueThresholdCrossedDownward"),
        {"queue": "qName", "count": "msgDepth"},
    ),
    ("insync", ""): (HA, "membersUpdate", {"in_sync": "members", "epoch": "epoch"}),
}
"""Kind and what happened -> package, name, and the keys that Qpid has, of events that it has too;
others have our kind for a name.
"""
REST = ("what", "state", "epoch", "about", "queue", "count", "in_sync", "error")
"""Fields of events, in the order of a line."""


@dataclass(frozen=True, slots=True)
class Line:
    """What is to be printed; `is_last` if nothing follows from there."""

    text: str = ""
    trouble: str = ""
    """What an operator is told who waits for events."""
    is_last: bool = False


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    return run(_work, arguments, separator=" - ", interrupted=OK)


def _work(arguments: list[str]) -> int:
    parser = make_parser()
    options, brokers = parser.parse_args(arguments)
    connecting = Connecting.read(parser, options)
    brokers = brokers or [LOCALHOST]
    lines: SimpleQueue[Line] = SimpleQueue()
    is_one = len(brokers) == 1 and "," not in brokers[0]
    for each in brokers:
        connecting.endpoints(each)  # A wrong address is told at once.
        follower = Follower(
            connecting,
            each,
            lines,
            heartbeat=HEARTBEAT if options.heartbeats else 0.0,
            as_json=options.output == "json",
            names_broker=not is_one,
        )
        threading.Thread(target=follower.run, daemon=True).start()
    left = len(brokers)
    while left:
        try:
            line = lines.get(timeout=AWAY)
        except Empty:
            if reader_is_gone():
                raise BrokenPipeError from None
            continue
        if line.text:
            print(line.text, flush=True)
        if line.trouble:
            print(f"qpid-printevents: {line.trouble}", file=sys.stderr, flush=True)
        left -= line.is_last
    return NO


def make_parser() -> Parser:
    """Make the parser of the command line."""
    parser = Parser(prog="qpid-printevents", usage=USAGE, description=DESCRIPTION)
    group = OptionGroup(parser, "General Options")
    group.add_option(
        "--heartbeats",
        action="store_true",
        default=False,
        help=f"Notice within {2 * HEARTBEAT:g} s that a broker is silent.",
    )
    add_connection_options(group, broker=False, timeout="")
    add_output_option(group)
    parser.add_option_group(group)
    return parser


class Follower:
    """Follows the events of one broker, or of whichever serves of several, in a thread."""

    def __init__(
        self,
        connecting: Connecting,
        brokers: str,
        lines: SimpleQueue[Line],
        *,
        heartbeat: float,
        as_json: bool,
        names_broker: bool,
    ) -> None:
        self._connecting = connecting
        self._brokers = brokers
        self._lines = lines
        self._heartbeat = heartbeat
        self._as_json = as_json
        self._names_broker = names_broker
        self._seen: dict[str, int] = {}
        """Name of a broker -> the time of its last event that was told."""
        self._lost: float | None = None
        """When the last connection was lost, on our own clock."""
        self._trouble = ""

    def run(self) -> None:
        """Go on until that makes no sense."""
        while True:
            try:
                self._follow()
            except (ClientError, RefusedRequest) as error:
                # What is wrong with a user, a certificate or a broker stays so.
                is_last = isinstance(error, LoginError | TlsError | RefusedRequest)
                self._tell_trouble(error, is_last)
                if is_last:
                    return
            time.sleep(AWAY)

    def _follow(self) -> None:
        """Follow the broker that lets us in until it is lost. Raises ClientError for one that does
        not, and RefusedRequest for one that has no events.
        """
        client = self._connecting.open(self._brokers, heartbeat=self._heartbeat)
        place, self._trouble = str(client.endpoint), ""
        try:
            link = Conversation(client)
            name = self._begin(link)
            self._note("brokerConnected", place)
            with suppress(ClientError):
                while True:
                    self._ask(link, name, place)
                    time.sleep(PAUSE)
            self._lost = time.monotonic()
            self._note("brokerDisconnected", place)
        finally:
            with suppress(ClientError):
                client.close(GOODBYE)

    def _begin(self, link: Conversation) -> str:
        """Find out behind which time to begin: from now on, or from the loss of another broker.
        Return the name of this one.
        """
        found = link.call("events", {"limit": 1})
        last = max((event["at_ns"] for event in found["events"]), default=1)
        if self._lost is not None:
            away = int((time.monotonic() - self._lost + AWAY) * 1e9)
            last = min(last, max(1, found["now_ns"] - away))
        name = str(found["name"])
        self._seen.setdefault(name, last)
        return name

    def _ask(self, link: Conversation, name: str, place: str) -> None:
        """Tell what has happened since the last question."""
        found = link.call("events", {"after": self._seen[name]})
        for event in found["events"]:
            self._seen[name] = max(self._seen[name], event["at_ns"])
            if self._as_json:
                text = json.dumps({"broker": name, **event})
            else:
                text = line_of(event) + (f" broker={printable(place)}" * self._names_broker)
            self._lines.put(Line(text))

    def _note(self, what: str, place: str) -> None:
        now = time.time_ns()
        if self._as_json:
            text = json.dumps({"broker": place, "at_ns": now, "kind": what})
        else:
            text = f"{moment(now)} NOTIC qpid-printevents:{what} broker={place}"
        self._lines.put(Line(text))

    def _tell_trouble(self, error: ClientError | RefusedRequest, is_last: bool) -> None:
        """Tell once why there are no events."""
        kind, text = told(error)
        if is_last:
            self._lines.put(Line(f"Failed: {kind} - {printable(text)}", is_last=True))
        elif text != self._trouble:
            self._lines.put(Line(trouble=f"{printable(text)}; trying again"))
            self._trouble = text


def line_of(event: Mapping[str, Any]) -> str:
    """Write an event as Qpid's tool does: when, what, and its values."""
    kind, what = event["kind"], event.get("what", "")
    if kind == "limit" and what == "alert":
        kind, what = what, event.get("about", "")
    package, name, keys = NAMES.get((kind, what), (OWN, kind, {field: field for field in REST}))
    values = "".join(
        f" {key}={printable(str(event[field]))}" for field, key in keys.items() if field in event
    )
    return f"{moment(event['at_ns'])} {package}:{name}{values}"


if __name__ == "__main__":
    sys.exit(main())
