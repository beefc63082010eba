"""`qpid-stat`: what there is at a broker in figures: connections, exchanges, queues, subscriptions,
memory, the access control list, and sums of all.

Views, columns and the forms of numbers are those of Qpid's tool of this name. A figure that brokers
do not count has an empty place. In the place of the cluster of Qpid's older releases stands the
state of the broker.
Source: Qpid management/python/bin/qpid-stat.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from optparse import OptionGroup, Values
from typing import Any

from qpidha.client.management import Conversation
from qpidha.model.exit_codes import OK
from qpidha.tools.connection_options import (
    Connecting,
    Parser,
    ToolError,
    add_connection_options,
    add_output_option,
    print_document,
    run,
)
from qpidha.tools.display import (
    Column,
    commas,
    duration,
    in_order,
    kmg,
    moment,
    print_table,
    y_or_blank,
    y_or_n,
)

USAGE = """%prog -g [options]
       %prog -c [options]
       %prog -e [options]
       %prog -q [options] [queue-name]
       %prog -u [options]
       %prog -m [options]
       %prog --acl [options]"""
LIMIT = 50
"""Rows that are shown of a sorted view."""
PUBLISHING = ("all", "publish")
"""Actions of rules that decide about messages."""
VIEWS = (
    ("-g", "--general", "Show totals of the broker."),
    ("-c", "--connections", "Show connections."),
    ("-e", "--exchanges", "Show exchanges."),
    ("-q", "--queues", "Show queues, or the details of the named one."),
    ("-u", "--subscriptions", "Show subscriptions of queues, and their connections."),
    ("-m", "--memory", "Show the memory use of the broker."),
    ("", "--acl", "Show the access control list that the broker enforces."),
)

LISTS = ("connections", "exchanges", "queues", "subscriptions")
"""Views that can be sorted."""

Row = Sequence[Any]
Rows = list[Row]

SUMMARY = (
    Column("uptime", duration),
    Column("cluster"),
    Column("connections", commas),
    Column("sessions", commas),
    Column("exchanges", commas),
    Column("queues", commas),
)
STATISTICS = (Column("Statistic"), Column("Messages", commas), Column("Bytes", commas))
CONNECTIONS = (
    Column("connection"),
    Column("cproc"),
    Column("cpid"),
    Column("mech"),
    Column("auth"),
    Column("connected", duration),
    Column("idle", duration),
    Column("msgIn", kmg),
    Column("msgOut", kmg),
)
EXCHANGES = (
    Column("exchange"),
    Column("type"),
    Column("dur", y_or_blank),
    Column("bind", kmg),
    Column("msgIn", kmg),
    Column("msgOut", kmg),
    Column("msgDrop", kmg),
    Column("byteIn", kmg),
    Column("byteOut", kmg),
    Column("byteDrop", kmg),
)
QUEUES = (
    Column("queue"),
    Column("dur", y_or_blank),
    Column("autoDel", y_or_blank),
    Column("excl", y_or_blank),
    Column("msg", kmg),
    Column("msgIn", kmg),
    Column("msgOut", kmg),
    Column("bytes", kmg),
    Column("bytesIn", kmg),
    Column("bytesOut", kmg),
    Column("cons", kmg),
    Column("bind", kmg),
)
OF_QUEUES = (
    "name,durable,auto_delete,exclusive,messages,enqueued,dequeued,bytes,bytes_enqueued,"
    "bytes_departed,consumers,bindings"
)
"""Fields of queues that make a row."""
PROPERTIES = (
    Column("Name"),
    Column("Durable", y_or_n),
    Column("AutoDelete", y_or_n),
    Column("Exclusive", y_or_n),
    Column("FlowStopped", y_or_n),
    Column("FlowStoppedCount", commas),
    Column("Consumers", commas),
    Column("Bindings", commas),
)
SUBSCRIPTIONS = (
    Column("subscr"),
    Column("queue"),
    Column("conn"),
    Column("procName"),
    Column("procId"),
    Column("browse", y_or_blank),
    Column("acked", y_or_blank),
    Column("excl", y_or_blank),
    Column("creditMode"),
    Column("delivered", commas),
    Column("sessUnacked", commas),
)
CREDIT = "CREDIT"
"""The mode of all links of AMQP 1.0: who receives says how many messages he takes."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    return run(_work, arguments, separator=" - ")


def _work(arguments: list[str]) -> int:
    parser = make_parser()
    options, names = parser.parse_args(arguments)
    if not options.show:
        parser.error(
            "You must specify one of these options: -g, -c, -e, -q, -m, or -u. For details, try "
            "$ qpid-stat --help"
        )
    is_list = options.show in LISTS and not (options.show == "queues" and names)
    if options.sort_by is not None and not is_list:
        parser.error("option -S: only connections, exchanges, queues and subscriptions are sorted")
    connecting = Connecting.read(parser, options)
    needs_admin = options.show == "acl"
    with connecting.management(connecting.brokers(options.broker), needs_admin=needs_admin) as link:
        view = View(link, options)
        if options.show == "queues" and names:
            view.queue(names[0])
        else:
            getattr(view, options.show)()
    return OK


def make_parser() -> Parser:
    """Make the parser of the command line."""
    parser = Parser(prog="qpid-stat", usage=USAGE)
    general = OptionGroup(parser, "General Options")
    add_connection_options(general)
    parser.add_option_group(general)
    views = OptionGroup(parser, "Command Options")
    for short, long, what in VIEWS:
        views.add_option(
            *filter(None, (short, long)),
            action="store_const",
            const=long.removeprefix("--"),
            dest="show",
            help=what,
        )
    parser.add_option_group(views)
    display = OptionGroup(parser, "Display Options")
    display.add_option(
        *("-S", "--sort-by"), metavar="<colname>", help="Sort by this column, in decreasing order."
    )
    display.add_option(
        *("-I", "--increasing"),
        action="store_true",
        default=False,
        help="Sort in increasing order.",
    )
    display.add_option(
        *("-L", "--limit"),
        type="int",
        default=LIMIT,
        metavar="<n>",
        help="Show this many rows of a sorted view, 0 for all (default: %default)",
    )
    add_output_option(display)
    parser.add_option_group(display)
    return parser


class View:
    """The views of one broker."""

    def __init__(self, link: Conversation, options: Values) -> None:
        self._link = link
        self._options = options
        self._as_json: bool = options.output == "json"

    def general(self) -> None:
        """Show the sums of all."""
        found = self._link.call("statistics")
        now = self._now()
        exchanges = self._link.pages("list_exchanges", "name,dropped")
        dropped = sum(exchange["dropped"] for exchange in exchanges)
        if self._is_json({"statistics": found, "now_ns": now, "dropped": dropped}):
            return
        uptime = now - found["since_ns"]
        connections = sum(found["connections"].values())
        counts = (connections, found["sessions"], found["exchanges"], found["queues"])
        print_table("Broker Summary:", SUMMARY, [(uptime, f"<{found['state']}>", *counts)])
        print()
        print_table("Aggregate Broker Statistics:", STATISTICS, totals(found, dropped))

    def connections(self) -> None:
        """Show connections."""
        now, found = self._now(), self._link.call("list_connections")
        rows = [
            (
                connection["peer"],
                connection["process"] or "-",
                connection["pid"],
                connection["mechanism"] or "-",
                connection["user"] or "-",
                now - connection["since_ns"],
                now - connection["heard_ns"],
                connection["messages_in"],
                connection["messages_out"],
                connection,
            )
            for connection in found
        ]
        self._print("Connections", CONNECTIONS, rows, now_ns=now)

    def exchanges(self) -> None:
        """Show exchanges."""
        found = self._link.pages("list_exchanges")
        queues = self._link.call("statistics")["queues"]
        rows = [
            (
                exchange["name"],
                exchange["type"],
                exchange["durable"],
                exchange["bindings"] if exchange["name"] else queues,
                exchange["received"],
                exchange["routed"],
                exchange["dropped"],
                exchange["bytes_received"],
                exchange["bytes_received"] - exchange["bytes_dropped"],
                exchange["bytes_dropped"],
                exchange,
            )
            for exchange in found
        ]
        self._print("Exchanges", EXCHANGES, rows)

    def queues(self) -> None:
        """Show queues."""
        found = self._link.pages("list_queues", "" if self._as_json else OF_QUEUES)
        rows = [
            (
                queue["name"],
                queue["durable"],
                queue["auto_delete"],
                queue["exclusive"],
                queue["messages"],
                queue["enqueued"],
                queue["dequeued"],
                queue["bytes"],
                queue["bytes_enqueued"],
                queue["bytes_departed"],
                queue["consumers"],
                queue["bindings"] + 1,
                queue,
            )
            for queue in found
        ]
        self._print("Queues", QUEUES, rows)

    def queue(self, name: str) -> None:
        """Show all about one queue."""
        # An empty name asks for all of them.
        found = self._link.call("list_queues", {"name": name}) if name else []
        if self._is_json({"queues": found}):
            return
        if not found:
            print(f"Queue '{name}' not found")
            return
        queue = found[0]
        flags = [queue[flag] for flag in ("durable", "auto_delete", "exclusive", "flow_stopped")]
        counts = (queue["flow_stops"], queue["consumers"], queue["bindings"] + 1)
        print_table("Properties:", PROPERTIES, [(name, *flags, *counts)])
        print()
        print_table(
            "Optional Properties:",
            (Column("Property"), Column("Value")),
            [("arguments", queue["arguments"]), ("alt-exchange", queue["alternate"] or None)],
        )
        print()
        print_table("Statistics:", STATISTICS, totals(queue))

    def subscriptions(self) -> None:
        """Show who consumes from which queue."""
        found = self._link.call("list_subscriptions")
        connections = {each["id"]: each for each in self._link.call("list_connections")}
        sessions = {each["id"]: each for each in self._link.call("list_sessions")}
        rows = []
        for each in found:
            # One that came or went between these questions is left out, as it is by Qpid's tool.
            connection = connections.get(each["connection"])
            session = sessions.get(each["session"])
            if connection is not None and session is not None:
                rows.append(
                    (
                        each["link"],
                        each["queue"],
                        each["peer"],
                        connection["process"] or "-",
                        connection["pid"],
                        each["browsing"],
                        each["acknowledged"],
                        each["exclusive"],
                        CREDIT,
                        each["delivered"],
                        session["unsettled"],
                        each,
                    )
                )
        self._print("Subscriptions", SUBSCRIPTIONS, rows)

    def memory(self) -> None:
        """Show what memory is used for, in bytes."""
        found = self._link.call("status")["memory"]
        if not self._is_json({"memory": found}):
            columns = (Column("Statistic"), Column("Value", commas))
            print_table("Broker Memory Statistics:", columns, list(found.items()))

    def acl(self) -> None:
        """Show what there is of access control."""
        found = self._link.call("acl")
        denials = self._link.call("statistics")["denials"]
        if self._is_json({**found, "denials": denials}):
            return
        if not found["file"]:
            print("ACL Policy Module is not installed")
            return
        actions = {rule["action"] for rule in found["rules"]}
        rows = [
            ("policy-file", found["file"]),
            ("enforcing", y_or_n(True)),
            ("has-transfer-acls", y_or_n(actions.intersection(PUBLISHING))),
            ("last-acl-load", moment(found["since_ns"])),
            ("acl-denials", commas(denials)),
        ]
        print_table("ACL Policy Statistics:", (Column("Statistic"), Column("Value")), rows)

    def _now(self) -> int:
        """What the broker's clock says."""
        return int(self._link.call("status")["wall_ns"])

    def _is_json(self, content: Mapping[str, Any]) -> bool:
        """Print a document, if one is asked for."""
        if self._as_json:
            print_document(content)
        return self._as_json

    def _print(
        self, title: str, columns: Sequence[Column], rows: Sequence[Row], **about: Any
    ) -> None:
        """Print a view, sorted and cut if that is asked for. The last of a row, behind its columns,
        is what it is made of, and stands in a document.
        """
        options = self._options
        if options.sort_by is not None:
            try:
                rows = in_order(
                    columns, rows, options.sort_by, rises=options.increasing, limit=options.limit
                )
            except ValueError as error:
                raise ToolError("Exception", str(error)) from None
        if not self._is_json({**about, title.lower(): [row[-1] for row in rows]}):
            print_table(title, columns, rows)


def totals(found: Mapping[str, Any], dropped: int | None = None) -> Rows:
    """Return the rows of what came and went, of a queue or, with `dropped`, of all. What is not
    counted is None.
    """
    left = found["departures"]
    rows: Rows = [
        ("queue-depth", found["messages"], found["bytes"]),
        ("total-enqueues", found["enqueued"], found["bytes_enqueued"]),
        ("total-dequeues", sum(left.values()), found["bytes_departed"]),
        ("persistent-enqueues",),
        ("persistent-dequeues",),
        ("transactional-enqueues", found["transacted_in"], found["transacted_in_bytes"]),
        ("transactional-dequeues", found["transacted_out"], found["transacted_out_bytes"]),
        ("flow-to-disk-depth", None, found["paged_out"]),
        ("flow-to-disk-enqueues",),
        ("flow-to-disk-dequeues",),
        ("acquires",),
        ("releases", found["released"]),
    ]
    if dropped is not None:
        rows.append(("discards-no-route", dropped))
    rows += [
        ("discards-ttl-expired", left["expired"]),
        ("discards-limit-overflow", found["refused"]),
        ("discards-ring-overflow", left["overflow"]),
        ("discards-lvq-replace", left["replaced"]),
        ("discards-subscriber-reject", left["rejected"]),
        ("discards-purged", left["purged"]),
        ("reroutes", left["moved"]),
    ]
    if dropped is not None:
        rows += [("abandoned", left["deleted"]), ("abandoned-via-alt",)]
    return rows


if __name__ == "__main__":
    sys.exit(main())
