"""`qpid-route`: links to other brokers and the routes over them, shown and changed.

The commands, options, output and exit codes are those of Qpid's tool of this name. A link is found
by where it leads; one that is made is called so, and a route by what it moves. Where a broker is
named, several with commas between are those of a cluster. Links and routes are records of the
cluster here, so that they need not be made again after a failover.
Source: Qpid management/python/bin/qpid-route.
"""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from optparse import OptionGroup, Values
from typing import Any
from uuid import uuid4

from qpidha.client.endpoint import Endpoint, parse_endpoints
from qpidha.client.errors import ClientError, LoginError
from qpidha.client.management import Conversation
from qpidha.model.errors import QpidHaError
from qpidha.model.exit_codes import NO, OK
from qpidha.model.printable import printable, printable_lines
from qpidha.model.url import Address, parse_address
from qpidha.tools.connection_options import (
    LOCALHOST,
    Connecting,
    Parser,
    ToolError,
    add_connection_options,
    add_output_option,
    print_document,
    run,
    told,
)
from qpidha.tools.display import y_or_n

NAME = "qpid-route"
MORE = "[tag] [exclude-list] [mechanism]"
USAGE = f"""Usage:  qpid-route [OPTIONS] dynamic add <dest-broker> <src-broker> <exchange> {MORE}
        qpid-route [OPTIONS] dynamic del <dest-broker> <src-broker> <exchange>

        qpid-route [OPTIONS] route add   <dest-broker> <src-broker> <exchange> <routing-key> {MORE}
        qpid-route [OPTIONS] route del   <dest-broker> <src-broker> <exchange> <routing-key>
        qpid-route [OPTIONS] queue add   <dest-broker> <src-broker> <exchange> <queue> [mechanism]
        qpid-route [OPTIONS] queue del   <dest-broker> <src-broker> <exchange> <queue>
        qpid-route [OPTIONS] route list  [<dest-broker>]
        qpid-route [OPTIONS] route flush [<dest-broker>]
        qpid-route [OPTIONS] route map   [<broker>]

        qpid-route [OPTIONS] link add  <dest-broker> <src-broker> [mechanism]
        qpid-route [OPTIONS] link del  <dest-broker> <src-broker>
        qpid-route [OPTIONS] link list [<dest-broker>]
"""
DESCRIPTION = """Show and change links to other brokers, and routes over them.

Examples:

$ qpid-route link add localhost:10001 user/password@localhost:10002
$ qpid-route -d route add localhost:10001 localhost:10002 amq.topic 'news.#'
$ qpid-route link list localhost:10001
"""
WRONG = 255
"""The exit code of a command line that is none."""
UNLIMITED = 0xFFFFFFFF
TRANSPORTS = {"tcp": False, "ssl": True}
"""Transport -> whether TLS is spoken."""
BRIEFLY, LOOKS = 1.0, 3
"""Seconds between looks at a new link, and how many looks it is given."""
UNSETTLED = ("waiting", "connecting", "closing")
"""States of a link that may be about to change."""
QUEUE, EXCHANGE, DYNAMIC = "queue", "exchange", "dynamic"
LONGEST_NAME = 255
COMMANDS = {
    ("dynamic", "add"): (5, 8),
    ("dynamic", "del"): (5, 5),
    ("route", "add"): (6, 9),
    ("route", "del"): (6, 6),
    ("route", "list"): (2, 3),
    ("route", "flush"): (2, 3),
    ("route", "map"): (2, 3),
    ("queue", "add"): (6, 7),
    ("queue", "del"): (6, 6),
    ("link", "add"): (4, 5),
    ("link", "del"): (4, 4),
    ("link", "list"): (2, 3),
}
"""Command -> how many words it has, at least and at most."""
FOLLOWING = {
    "": tuple(dict.fromkeys(group for group, _ in COMMANDS)),
    **{group: tuple(verb for each, verb in COMMANDS if each == group) for group, _ in COMMANDS},
}
"""Words of a command -> words that may follow, for completion."""
READS = (("route", "list"), ("route", "map"), ("link", "list"))

Object = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    return run(_work, arguments, separator=" - ")


def make_parser() -> Parser:
    """Make what reads the command line."""
    parser = Parser(prog=NAME, usage=USAGE.removeprefix("Usage:  "), description=DESCRIPTION)
    general = OptionGroup(parser, "General Options")
    add_connection_options(general, broker=False, timeout="", mechanism="--client-sasl-mechanism")
    add_output_option(general)
    general.add_option(
        "-v", "--verbose", action="store_true", default=False, help="Print what is done."
    )
    general.add_option(
        "-q",
        "--quiet",
        action="store_true",
        default=False,
        help="Ignore what exists already or is gone, and do not wait for a link.",
    )
    parser.add_option_group(general)
    added = OptionGroup(parser, "Options for Adding Links and Routes")
    added.add_option("-d", "--durable", action="store_true", default=False, help="Make it durable.")
    added.add_option(
        "-s",
        "--src-local",
        action="store_true",
        default=False,
        help="Create link and route at the source broker, which pushes.",
    )
    added.add_option(
        "-t",
        "--transport",
        default="tcp",
        metavar="<transport>",
        help="Choose the transport of the link: tcp or ssl (default: %default)",
    )
    added.add_option(
        "--ack",
        type="int",
        default=0,
        metavar="<n>",
        help="Acknowledge messages in batches of this size (default: 1)",
    )
    added.add_option(
        "--credit",
        type="int",
        default=UNLIMITED,
        metavar="<msgs>",
        help="Limit the messages in flight; without it, or with 0, the broker chooses",
    )
    parser.add_option_group(added)
    deleted = OptionGroup(parser, "Options for Deleting Routes")
    deleted.add_option(
        "-e",
        "--del-empty-link",
        action="store_true",
        default=False,
        help="Delete the link with its last route.",
    )
    parser.add_option_group(deleted)
    return parser


def _work(arguments: list[str]) -> int:
    parser = make_parser()
    options, words = parser.parse_args(arguments)
    group, verb, *_ = *words, "", ""
    command = (group, verb)
    least, most = COMMANDS.get(command, (1, 0))
    if not least <= len(words) <= most:
        print(USAGE, end="")
        return WRONG
    if options.output == "json" and command not in READS:
        parser.error("option -o: json is for what is read: route list, route map, link list")
    connecting = Connecting.read(parser, options)
    _check(options, command)
    brokers = words[2:4] or [LOCALHOST]
    if options.src_local and len(brokers) == 2:
        brokers.reverse()
    changes = command not in READS
    with _conversation(connecting, brokers[0], changes=changes) as (link, local):
        manager = RouteManager(options, connecting, link, local)
        manager.do(group, verb, brokers[1:], words[4:])
    return OK


def _check(options: Values, command: tuple[str, str]) -> None:
    """Refuse what has no meaning, before anybody is asked."""
    if options.transport not in TRANSPORTS:
        raise ToolError(
            "InvalidOption",
            f"the transport {options.transport} is not there. Try: {' or '.join(TRANSPORTS)}",
        )
    for name in ("ack", "credit"):
        if not 0 <= (value := getattr(options, name)) <= UNLIMITED:
            raise ToolError("InvalidOption", f"--{name} {value} is not from 0 to {UNLIMITED}")
    if command == ("dynamic", "add") and options.src_local:
        raise ToolError("Exception", "--src-local is not permitted on dynamic routes")


@contextmanager
def _conversation(
    connecting: Connecting, brokers: str, *, changes: bool
) -> Iterator[tuple[Conversation, Endpoint]]:
    """Ask the first of these brokers that serves; it is told as well. Links are for administrators
    to change, or for whom an acl-file allows it.
    """
    try:
        client = (connecting.open_as_admin if changes else connecting.open)(brokers)
    except LoginError:
        client = connecting.open(brokers)
    try:
        yield Conversation(client), client.endpoint
    finally:
        with suppress(ClientError):  # What was asked has its answer; one that stopped has gone.
            client.close()


class RouteManager:
    """Changes links and routes of one broker."""

    def __init__(
        self, options: Values, connecting: Connecting, link: Conversation, local: Endpoint
    ) -> None:
        self._options = options
        self._connecting = connecting
        self._link = link
        self._local = local

    def do(self, group: str, verb: str, remote: list[str], rest: list[str]) -> None:
        """Do a command: at this broker, with the other one if it names one, and what follows."""
        reading = {
            ("link", "list"): self._list_links,
            ("route", "list"): self._list_routes,
            ("route", "flush"): self._flush,
            ("route", "map"): self._map,
        }
        if alone := reading.get((group, verb)):
            alone()
        elif group == "link":
            if verb == "add":
                self._add_link(remote[0], rest[0] if rest else "")
            else:
                self._del_link(remote[0])
        elif verb == "add":
            self._add_route(group, remote[0], rest)
        else:
            self._del_route(group, remote[0], rest)

    # Links.

    def _links(self) -> list[Object]:
        return list(self._link.call("list_links"))

    def _routes(self) -> list[Object]:
        return list(self._link.call("list_routes"))

    def _remote(self, text: str) -> list[Endpoint]:
        """Read where the other end is. Its login is in the address or there is none."""
        tls = TRANSPORTS[self._options.transport]
        return [
            Endpoint(each.host, each.port, each.tls or tls, each.user, each.password)
            for each in parse_endpoints(text)
        ]

    def _find(self, remote: list[Endpoint]) -> Object | None:
        """Return the link that leads to one of these addresses."""
        places = {place for each in remote for place in _places(each.host, each.port)}
        for link in self._links():
            for address in map(parse_address, link["addresses"]):
                if places & _places(address.host, address.port):
                    return link
        return None

    def _add_link(self, text: str, mechanism: str) -> Object:
        remote = self._remote(text)
        if any(_is_same(self._local, each) for each in remote):
            raise ToolError("Exception", "Linking broker to itself is not permitted")
        if self._find(remote) is None:
            self._link.call(
                "declare_link",
                {
                    "name": str(remote[0]),
                    "addresses": ",".join(each.url for each in remote),
                    "mechanism": mechanism,
                    "username": remote[0].user,
                    "password": remote[0].password,
                    "durable": self._options.durable,
                },
            )
        return self._settled(remote)

    def _settled(self, remote: list[Endpoint]) -> Object:
        """Return a link, and give one that is new some time to connect."""
        found = self._find(remote)
        for _ in range(0 if self._options.quiet else LOOKS):
            if found is not None and found["state"] not in UNSETTLED:
                break
            time.sleep(BRIEFLY)
            found = self._find(remote)
        if found is None:
            raise ToolError("Exception", "Link failed to create")
        self._say(f"Link state is {_state(found)}")
        return found

    def _del_link(self, text: str) -> None:
        found = self._find(self._remote(text))
        if found is None:
            raise ToolError("Exception", "Link not found")
        self._close(found)
        self._say("Close method returned: 0 OK")

    def _close(self, link: Object) -> None:
        self._link.call("delete_link", {"name": link["name"], "with_routes": True})

    def _list_links(self) -> None:
        links = self._links()
        if self._options.output == "json":
            print_document({"links": links})
        elif not links:
            print("No Links Found")
        else:
            print()
            print("Host            Port    Transport Durable  State             Last Error")
            print("=" * 77)
            for link in links:
                address = _address(link)
                print(
                    f"{printable(address.host):<16}{address.port:<8}{address.protocol:<13}"
                    f"{y_or_n(link['durable'])}     {_state(link):<18}"
                    f"{printable(link['last_error'])}"
                )

    # Routes.

    def _add_route(self, group: str, text: str, rest: list[str]) -> None:
        wanted = _Wanted(group, rest, is_push=self._options.src_local)
        link = self._add_link(text, wanted.mechanism)
        for route in self._routes():
            if wanted.is_same(route, link):
                if self._options.quiet:
                    return
                what = f"{wanted.exchange}({wanted.key or wanted.source})"
                raise ToolError("Exception", f"Duplicate Route - ignoring: {what}")
        self._say("Creating inter-broker binding...")
        credit = self._options.credit
        self._link.call(
            "declare_route",
            {
                "name": wanted.name(link),
                "link": link["name"],
                "kind": wanted.kind,
                "direction": wanted.direction,
                "source": wanted.source,
                "destination": wanted.exchange,
                "destination_type": "" if wanted.is_push else EXCHANGE,
                "key": wanted.key,
                "tag": wanted.tag,
                "excludes": wanted.excludes,
                "ack": self._options.ack or 1,
                "credit": 0 if credit == UNLIMITED else credit,
                "durable": self._options.durable,
            },
        )
        self._say("Bridge method returned: 0 OK")

    def _del_route(self, group: str, text: str, rest: list[str]) -> None:
        wanted = _Wanted(group, rest, is_push=self._options.src_local)
        remote = self._remote(text)
        link = self._find(remote)
        if link is None:
            if not self._options.quiet:
                raise ToolError("Exception", f"No link found from {remote[0]} to {self._local}")
            return
        routes = self._routes()
        for route in routes:
            if wanted.is_same(route, link):
                self._say("Closing bridge...")
                self._link.call("delete_route", {"name": route["name"]})
                over = [each for each in routes if each["link"] == link["name"]]
                if len(over) == 1 and self._options.del_empty_link:
                    self._say("Last bridge on link, closing link...")
                    self._close(link)
                return
        if not self._options.quiet:
            raise ToolError("Exception", "Route not found")

    def _list_routes(self) -> None:
        routes = self._routes()
        if self._options.output == "json":
            print_document({"routes": routes})
            return
        links = {link["name"]: link for link in self._links()}
        for route in routes:
            if route["link"] in links:
                where = _address(links[route["link"]]).host_port
                print(printable(f"{self._local} {where} {route['destination']} {_key_text(route)}"))

    def _flush(self) -> None:
        """Delete all routes, and all links if they are not to be left empty."""
        links = {link["name"]: link for link in self._links()}
        for route in self._routes():
            where = _address(links[route["link"]]).host_port if route["link"] in links else ""
            key = route["key"]
            begin = f"Deleting Bridge: {where} {route['destination']} {key}... "
            self._delete("delete_route", {"name": route["name"]}, begin)
        if self._options.del_empty_link:
            for link in links.values():
                begin = f"Deleting Link: {_address(link).host_port}... "
                asked = {"name": link["name"], "with_routes": True}
                self._delete("delete_link", asked, begin)

    def _delete(self, method: str, asked: Object, begin: str) -> None:
        """Delete something of many: what goes wrong is told, and the rest is done."""
        if self._options.verbose:
            print(printable(begin), end="")
        try:
            self._link.call(method, asked)
        except QpidHaError as error:
            print(printable_lines(f"Error: {NO} - {told(error)[1]}"))
            return
        if self._options.verbose:
            print("Ok")

    def _map(self) -> None:
        with ExitStack() as stack:
            found = self._linked_brokers(stack)
        if self._options.output == "json":
            print_document({"brokers": found})
        else:
            _print_map(found)

    def _linked_brokers(self, stack: ExitStack) -> list[Object]:
        """Ask this broker, and those that links lead to, and so on."""
        says = self._options.output != "json"
        if says:
            print("\nFinding Linked Brokers:")
            print(f"    {self._local}... Ok")
        seen = set(_places(self._local.host, self._local.port))
        found = [_broker(self._local, self._link)]
        at = 0
        while at < len(found):
            for link in found[at]["links"]:
                addresses = list(map(parse_address, link["addresses"]))
                places = {one for each in addresses for one in _places(each.host, each.port)}
                if places & seen:
                    seen |= places
                    continue
                seen |= places
                if says:
                    print(f"    {addresses[0].host_port}...", end=" ", flush=True)
                there = [
                    Endpoint(
                        each.host,
                        each.port,
                        each.encrypted,
                        self._local.user,
                        self._local.password,
                        self._local.mechanism,
                    )
                    for each in addresses
                ]
                try:
                    client = stack.enter_context(self._connecting.client(there).open())
                    found.append(_broker(client.endpoint, Conversation(client)))
                    said = "Ok"
                except (ClientError, QpidHaError) as error:
                    said = told(error)[1]
                    found.append(
                        {"broker": addresses[0].host_port, "error": said, "links": [], "routes": []}
                    )
                if says:
                    print(printable(said))
            at += 1
        return found

    def _say(self, text: str) -> None:
        if self._options.verbose:
            print(printable(text))


class _Wanted:
    """The route that a command names."""

    def __init__(self, group: str, rest: list[str], *, is_push: bool) -> None:
        self.kind = {"route": EXCHANGE, "queue": QUEUE, "dynamic": DYNAMIC}[group]
        self.is_push = is_push
        self.direction = "push" if is_push else "pull"
        self.exchange, *rest = rest
        self.source = rest.pop(0) if group == "queue" else self.exchange
        self.key = rest.pop(0) if group == "route" else ""
        more = [*rest, "", "", ""]
        self.tag, self.excludes, self.mechanism = (
            ("", "", more[0]) if group == "queue" else more[:3]
        )

    def is_same(self, route: Object, link: Object) -> bool:
        """Whether a route that is there is the one."""
        return (
            route["link"] == link["name"]
            and (route["kind"], route["direction"]) == (self.kind, self.direction)
            and (route["source"], route["destination"]) == (self.source, self.exchange)
            and route["key"] == self.key
        )

    def name(self, link: Object) -> str:
        """What the route is called: by what tells it from others, if that is not too long."""
        parts = (self.kind, self.direction, self.exchange, self.key or self.source, link["name"])
        name = ":".join(parts)
        return name if len(name) <= LONGEST_NAME else f"{self.kind}:{self.direction}:{uuid4()}"


def _print_map(found: list[Object]) -> None:
    """Print the routes between brokers."""
    routes = [
        (broker["broker"], _address(link).host_port, route)
        for broker in found
        for route in broker["routes"]
        for link in broker["links"]
        if link["name"] == route["link"]
    ]
    print("\nDynamic Routes:")
    dynamic = [each for each in routes if each[2]["kind"] == DYNAMIC]
    exchanges = list(dict.fromkeys(route["source"] for _, _, route in dynamic))
    print("" if exchanges else "  none found\n")
    for exchange in exchanges:
        print(printable(f"  Exchange {exchange}:"))
        pairs: list[tuple[str, str]] = []
        both: set[tuple[str, str]] = set()
        for here, there, route in dynamic:
            if route["source"] != exchange:
                continue
            if (here, there) in pairs:
                both.add((here, there))
            elif (there, here) not in pairs:
                pairs.append((there, here))
        for pair in pairs:
            print(f"    {pair[0]} {'<=>' if pair in both else ' =>'} {pair[1]}")
        print()
    print("Static Routes:")
    static = [each for each in routes if each[2]["kind"] != DYNAMIC]
    print("" if static else "  none found\n")
    for here, there, route in static:
        source, destination = route["source"], route["destination"]
        kind = "queue" if route["kind"] == QUEUE else "ex"
        if route["direction"] == "push":
            line = f"  {here}({kind}={source}) => {there}(ex={destination})"
        else:
            line = f"  {here}(ex={destination}) <= {there}({kind}={source})"
        print(printable(line if kind == "queue" else f"{line} key={route['key']}"))
    print()


def _broker(where: Endpoint, link: Conversation) -> Object:
    return {
        "broker": str(where),
        "links": link.call("list_links"),
        "routes": link.call("list_routes"),
    }


def _address(link: Object) -> Address:
    """Return where a link leads: where it is connected, or the first of its addresses."""
    return parse_address(link.get("address") or link["addresses"][0])


def _state(link: Object) -> str:
    return str(link["state"]).capitalize()


def _key_text(route: Object) -> str:
    if route["kind"] == DYNAMIC:
        return "<dynamic>"
    return str(route["source"] if route["kind"] == QUEUE else route["key"])


def _is_same(one: Endpoint, other: Endpoint) -> bool:
    return bool(_places(one.host, one.port) & _places(other.host, other.port))


def _places(host: str, port: int) -> set[tuple[str, int]]:
    """Return a place by its name, and by each address that the name has."""
    found = {(host.lower(), port)}
    try:
        infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return found  # It has no address here, which the broker may know better.
    return found | {(str(info[4][0]), port) for info in infos}


if __name__ == "__main__":
    sys.exit(main())
