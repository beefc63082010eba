"""`qpid-config`: queues, exchanges and bindings of a broker, shown and changed.

The commands, options, output and exit codes are those of Qpid's tool of this name, so that scripts
of sites go on. What a broker does not offer it refuses by its name, as for every other client.
Without a command there is an overview. Why to add what exists is a failure: scripts ask so whether
they made it.
Source: Qpid management/python/bin/qpid-config.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from optparse import OptionGroup, Values
from typing import Any

from qpidha.client.errors import ClientError, ConnectError
from qpidha.client.management import Conversation
from qpidha.model.errors import RefusedRequest
from qpidha.model.event_codes import EXISTS_OTHERWISE
from qpidha.model.exit_codes import NO, OK
from qpidha.model.printable import printable, printable_lines
from qpidha.model.replication_level import LEVELS, NONE, REPLICATE
from qpidha.tools.connection_options import (
    Connecting,
    Parser,
    ToolError,
    add_connection_options,
    add_output_option,
    agent_error,
    print_document,
    run,
)
from qpidha.tools.display import Column, print_table

USAGE = """Usage:  qpid-config [OPTIONS]
        qpid-config [OPTIONS] exchanges [filter-string]
        qpid-config [OPTIONS] queues    [filter-string]
        qpid-config [OPTIONS] add exchange <type> <name> [AddExchangeOptions]
        qpid-config [OPTIONS] del exchange <name>
        qpid-config [OPTIONS] add queue <name> [AddQueueOptions]
        qpid-config [OPTIONS] del queue <name> [DelQueueOptions]
        qpid-config [OPTIONS] bind   <exchange-name> <queue-name> [binding-key]
                  <for type headers>  all|any k1=v1 [k2=v2...]
        qpid-config [OPTIONS] unbind <exchange-name> <queue-name> [binding-key]
        qpid-config [OPTIONS] reload-acl
        qpid-config [OPTIONS] add <type> <name> [--argument <property-name>=<property-value>]
        qpid-config [OPTIONS] del <type> <name>
        qpid-config [OPTIONS] list <type> [--show-property <property-name>]
        qpid-config [OPTIONS] log [<logstring>]
        qpid-config [OPTIONS] shutdown
"""
DESCRIPTION = """Show and change queues, exchanges and bindings of a broker.

Examples:

$ qpid-config add queue q --durable --replicate all
$ qpid-config add exchange direct d -a localhost:5672
$ qpid-config exchanges -b 10.1.1.7:10000
$ qpid-config queues -b guest/guest@broker-host:10000
$ qpid-config bind amq.match q key all colour=red size=5
"""
LEAST = {
    "exchanges": 1,
    "queues": 1,
    "add": 3,
    "del": 3,
    "bind": 3,
    "unbind": 3,
    "reload-acl": 1,
    "list": 2,
    "log": 1,
    "shutdown": 1,
}
"""Command -> how many words it has at least."""
KINDS = ("exchange", "queue", "binding")
FOLLOWING = {"": (*LEAST,), "add": KINDS, "del": KINDS, "list": KINDS}
"""Words of a command -> words that may follow, for completion."""
LIMIT_POLICIES = ("none", "reject", "ring", "ring-strict")
SHOWN_QUEUE = "name,durable,auto_delete,exclusive,alternate,replicate,arguments"
SHOWN_EXCHANGE = "name,type,durable,alternate,replicate,arguments"
POLICY_TYPE = "qpid.policy_type"
SHARED_GROUPS = "qpid.shared_msg_group"
SIZES = {
    "file_count": "qpid.file_count",
    "file_size": "qpid.file_size",
    "efp_partition_num": "qpid.efp_partition_num",
    "efp_pool_file_size": "qpid.efp_pool_file_size",
    "wcache_page_size": "qpid.wcache-page-size",
    "wcache_num_pages": "qpid.wcache-num-pages",
}
LIMITS = {"max_queue_size": "qpid.max_size", "max_queue_count": "qpid.max_count"}
FLOW = {
    "flow_stop_size": "qpid.flow_stop_size",
    "flow_resume_size": "qpid.flow_resume_size",
    "flow_stop_count": "qpid.flow_stop_count",
    "flow_resume_count": "qpid.flow_resume_count",
}
LVQ_KEY, GROUP_HEADER = "qpid.last_value_queue_key", "qpid.group_header_key"
MARKS = {"sequence": "qpid.msg_sequence", "ive": "qpid.ive"}
"""Options, as they are called in `Values`, and the arguments that they stand for."""
SPECIAL = frozenset(
    (
        *SIZES.values(),
        *LIMITS.values(),
        *FLOW.values(),
        *MARKS.values(),
        *(REPLICATE, POLICY_TYPE, LVQ_KEY, GROUP_HEADER, SHARED_GROUPS),
    )
)
"""Arguments that a list shows as the options that ask for them."""
DEFAULT_PROPERTIES = {
    "exchange": ["name", "type", "durable"],
    "queue": ["name", "durable", "autoDelete"],
}
"""Type -> what `list` shows of it, if nothing else is asked for; of other types the first six."""
MOST_PROPERTIES = 6
CLASSES = {"bridge": "route", "habroker": "org.apache.qpid.ha:habroker"}
"""Types of Qpid -> what management calls them, where that is something else."""
OWN = ("identity", "type", "exchangeType")
"""Attributes that say how AMQP management names an object."""


class UsageError(Exception):
    """The words are no command, or lack something: what is printed then."""

    def __init__(self, text: str = USAGE) -> None:
        super().__init__(text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    return run(_work, arguments)


def _work(arguments: list[str]) -> int:
    parser = make_parser()
    options, words = parser.parse_args(arguments)
    connecting = Connecting.read(parser, options)
    if options.replicate is not None and options.replicate not in LEVELS:
        raise ToolError(
            "Exception",
            f"Invalid replication level '{options.replicate}', should be one of: "
            f"{', '.join(LEVELS)}",
        )
    for text in options.extra_arguments:
        if not text.partition("=")[0]:
            parser.error(f"option --argument: {text!r} has no name")
    brokers = connecting.brokers(options.broker_addr, options.broker)
    try:
        _check(words)
        needs_admin = _needs_admin(words, options)
        with connecting.management(brokers, needs_admin=needs_admin) as link:
            return Config(link, options).do(words)
    except UsageError as error:
        print(printable_lines(str(error)))
        return NO


def make_parser() -> Parser:
    """Make the parser of the command line."""
    parser = Parser(prog="qpid-config", usage=USAGE, description=DESCRIPTION)
    general = OptionGroup(parser, "General Options")
    add_connection_options(general, broker_addr=True)
    add_output_option(general)
    parser.add_option_group(general)
    listing = OptionGroup(parser, "Options for Listing Exchanges and Queues")
    listing.add_option(
        *("-r", "--recursive"),
        action="store_true",
        help="Show the bindings of each queue or exchange.",
    )
    listing.add_option(
        "--ignore-default",
        action="store_true",
        help="Leave out the default exchange, and the bindings to it.",
    )
    listing.add_option(
        "--show-property",
        dest="list_properties",
        action="append",
        default=[],
        metavar="<property-name>",
        help="Show this property of the objects that 'list' finds; may be repeated.",
    )
    parser.add_option_group(listing)
    parser.add_option_group(_adding(parser))
    parser.add_option_group(_adding_queues(parser))
    exchanges = OptionGroup(parser, "Options for Adding Exchanges")
    exchanges.add_option(
        "--sequence", action="store_true", help="Refused: exchanges do not number messages."
    )
    exchanges.add_option(
        "--ive", action="store_true", help="Refused: exchanges do not keep the last message."
    )
    parser.add_option_group(exchanges)
    deleting = OptionGroup(parser, "Options for Deleting Queues")
    for name, what in (
        ("--force", "it has messages or consumers"),
        ("--force-if-not-empty", "it has messages"),
        ("--force-if-used", "it has consumers"),
    ):
        deleting.add_option(name, action="store_true", help=f"Delete a queue even if {what}.")
    parser.add_option_group(deleting)
    binding = OptionGroup(parser, "Options for Declaring Bindings")
    binding.add_option(
        *("-f", "--file"),
        metavar="<file.xq>",
        help="Refused: an XQuery is for exchanges of the type xml, which are not offered.",
    )
    parser.add_option_group(binding)
    return parser


def _adding(parser: Parser) -> OptionGroup:
    group = OptionGroup(parser, "Options for Adding Exchanges and Queues")
    group.add_option(
        "--alternate-exchange",
        metavar="<aexname>",
        help="Send messages there that go to no queue, are rejected, or were on a deleted queue.",
    )
    group.add_option("--durable", action="store_true", help="Make the queue or exchange durable.")
    group.add_option(
        "--replicate", metavar="<level>", help=f"Set the replication level: {', '.join(LEVELS)}."
    )
    group.add_option(
        "--argument",
        dest="extra_arguments",
        action="append",
        default=[],
        metavar="<NAME=VALUE>",
        help="Add an argument; may be repeated.",
    )
    return group


def _adding_queues(parser: Parser) -> OptionGroup:
    group = OptionGroup(parser, "Options for Adding Queues")
    for name in SIZES:
        group.add_option(
            _option(name),
            type="int",
            metavar="<n>",
            help="Refused: brokers keep all queues in one log.",
        )
    for name, what in (
        ("max_queue_size", "Limit the queue to this many bytes."),
        ("max_queue_count", "Limit the queue to this many messages."),
        ("flow_stop_size", "Stop senders when the queue has more bytes than this."),
        ("flow_resume_size", "Resume senders when the queue has no more bytes than this."),
        ("flow_stop_count", "Stop senders when the queue has more messages than this."),
        ("flow_resume_count", "Resume senders when the queue has no more messages than this."),
    ):
        group.add_option(_option(name), type="int", metavar="<n>", help=what)
    group.add_option(
        "--limit-policy",
        type="choice",
        choices=LIMIT_POLICIES,
        metavar="<policy>",
        help=f"Choose what a full queue does: {', '.join(LIMIT_POLICIES)}.",
    )
    group.add_option(
        "--lvq-key",
        metavar="<key>",
        help="Keep only the last message for each value of this property.",
    )
    group.add_option(
        "--group-header",
        metavar="<header-name>",
        help="Deliver messages with the same value of this property to one consumer at a time.",
    )
    group.add_option(
        "--shared-groups",
        action="store_true",
        help="Accepted without effect: groups always may change consumers.",
    )
    group.add_option(
        "--start-replica",
        metavar="<broker-url>",
        help="Make the queue a replica of the queue of this name at that broker.",
    )
    return group


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _check(words: Sequence[str]) -> None:
    """Raise UsageError for words that are no command, before a broker is asked."""
    if not words:
        return
    command = words[0]
    is_exchange = command == "add" and words[1:2] == ["exchange"]
    if len(words) < LEAST.get(command, len(words) + 1) + is_exchange:
        raise UsageError
    if command == "log" and len(words) > 2:
        raise UsageError


def _needs_admin(words: Sequence[str], options: Values) -> bool:
    """Whether a command is for administrators: it is about the broker itself."""
    if words[:2] == ["add", "queue"]:
        return options.start_replica is not None
    return words[:1] in (["reload-acl"], ["shutdown"]) or (words[:1] == ["log"] and len(words) > 1)


def arguments_of(options: Values) -> dict[str, Any]:
    """Return what --argument gives: whole numbers as such, all else as text."""
    found: dict[str, Any] = {}
    for text in options.extra_arguments:
        name, equals, value = text.partition("=")
        try:
            found[name] = int(value) if equals else None
        except ValueError:
            found[name] = value
    return found


class Config:
    """One command at one broker."""

    def __init__(self, link: Conversation, options: Values) -> None:
        self._link = link
        self._options = options
        self._as_json = options.output == "json"

    def do(self, words: Sequence[str]) -> int:
        """Do the command and return the exit code."""
        command, rest = (words[0], words[1:]) if words else ("", [])
        kind = rest[0] if rest else ""
        if command == "add":
            self._add(kind, rest[1:])
        elif command == "del":
            self._delete(kind, rest[1])
        elif command == "bind":
            self._bind(*rest)
        elif command == "unbind":
            self._unbind(rest[0], rest[1], rest[2] if len(rest) > 2 else "")
        elif command == "list":
            self._list(kind)
        elif command == "log":
            self._log(kind)
        elif command == "reload-acl":
            self._reload_acl()
        elif command == "shutdown":
            self._shutdown()
        elif command == "queues":
            return self._queues(kind)
        elif command == "exchanges":
            return self._exchanges(kind)
        else:
            self._overview()
        return OK

    # -- what there is ----------------------------------------------------------------------------

    def _overview(self) -> None:
        exchanges = self._link.pages("list_exchanges", "name,type")
        queues = self._link.pages("list_queues", "name,durable")
        types: dict[str, int] = {}
        for exchange in exchanges:
            types[exchange["type"]] = types.get(exchange["type"], 0) + 1
        durable = sum(queue["durable"] for queue in queues)
        if self._as_json:
            counts = {"durable": durable, "non_durable": len(queues) - durable}
            found = {"exchanges": len(exchanges), "exchange_types": types, "queues": len(queues)}
            print_document({**found, **counts})
            return
        print(f"Total Exchanges: {len(exchanges)}")
        for name, count in types.items():
            print(f"{name:>15}: {count}")
        print()
        print(f"   Total Queues: {len(queues)}")
        print(f"        durable: {durable}")
        print(f"    non-durable: {len(queues) - durable}")

    def _exchanges(self, match: str) -> int:
        found = self._link.pages("list_exchanges", SHOWN_EXCHANGE, match)
        found = [each for each in found if each["name"] or not self._options.ignore_default]
        if self._options.recursive:
            self._exchanges_with_bindings(found)
            return OK
        if self._as_json:
            print_document({"exchanges": found})
        elif found:
            width = max(len("Exchange Name"), *(len(shown(each["name"])) for each in found))
            print(f"Type      {'Exchange Name':<{width}}  Attributes")
            print("=====" * ((width + len("Type      ")) // 5 + 5))
            for each in found:
                name = shown(each["name"])
                head = f"{each['type']:<10}{name:<{width}}  "
                print((head + " ".join(exchange_attributes(each))).rstrip())
        return OK if found else NO

    def _queues(self, match: str) -> int:
        found = self._link.pages("list_queues", SHOWN_QUEUE, match)
        if self._options.recursive:
            self._queues_with_bindings(found)
            return OK
        if self._as_json:
            print_document({"queues": found})
        elif found:
            width = max(len("Queue Name"), *(len(shown(each["name"])) for each in found))
            print(f"{'Queue Name':<{width}}  Attributes")
            print("=====" * (width // 5 + 5))
            for each in found:
                head = f"{shown(each['name']):<{width}}  "
                print((head + " ".join(queue_attributes(each))).rstrip())
        return OK if found else NO

    def _exchanges_with_bindings(self, exchanges: list[dict[str, Any]]) -> None:
        bindings = self._bindings("exchange")
        for exchange in exchanges:
            own = bindings.get(exchange["name"], [])
            if self._as_json:
                exchange["bindings"] = own
                continue
            print(f"Exchange '{shown(exchange['name'])}' ({exchange['type']})")
            for each in own:
                other = each["destination_exchange"]
                print_binding(each, f"exchange {other}" if other else each["queue"])
        if self._as_json:
            print_document({"exchanges": exchanges})

    def _queues_with_bindings(self, queues: list[dict[str, Any]]) -> None:
        bindings = self._bindings("queue")
        for queue in queues:
            own = bindings.get(queue["name"], [])
            if self._as_json:
                queue["bindings"] = own
                continue
            print(f"Queue '{shown(queue['name'])}'")
            for each in own:
                print_binding(each, each["exchange"] or "''")
        if self._as_json:
            print_document({"queues": queues})

    def _bindings(self, end: str) -> dict[str, list[dict[str, Any]]]:
        """List bindings by one of their ends. Each queue is bound to the default exchange by its
        name, which brokers do not list.
        """
        found: dict[str, list[dict[str, Any]]] = {}
        if not self._options.ignore_default:
            for queue in self._link.pages("list_queues", "name"):
                name = queue["name"]
                implied = {"exchange": "", "queue": name, "key": name, "arguments": {}}
                found.setdefault(implied[end], []).append({**implied, "destination_exchange": ""})
        for binding in self._link.call("list_bindings"):
            found.setdefault(binding[end], []).append(binding)
        return found

    def _list(self, kind: str) -> None:
        objects = self._link.objects(CLASSES.get(kind, kind))
        rows = [attributes_of(kind, each) for each in objects]
        known = dict.fromkeys(name for row in rows for name in row)
        wanted = self._options.list_properties
        if self._as_json:
            names = wanted or list(known)
            print_document({"objects": [{name: row.get(name) for name in names} for row in rows]})
            return
        for name in wanted:
            if name not in known:
                print(f"Warning: No such property '{shown(name)}' for type '{shown(kind)}'")
        names = (
            [name for name in wanted if name in known]
            if wanted
            else DEFAULT_PROPERTIES.get(kind) or list(known)[:MOST_PROPERTIES]
        )
        print_table(
            f"Objects of type '{kind}'",
            [Column(name) for name in names],
            [[row.get(name, "n/a") for name in names] for row in rows] if names else [],
        )

    # -- what is changed --------------------------------------------------------------------------

    def _add(self, kind: str, rest: Sequence[str]) -> None:
        options = self._options
        arguments = arguments_of(options)
        if kind == "binding":
            self._link.call("bind", {**binding_named(rest[0]), "arguments": arguments})
            return
        if kind not in ("exchange", "queue"):
            self._link.operate("CREATE", arguments, type=kind, name=rest[0])
            return
        name = rest[0]
        if options.replicate is not None:
            arguments[REPLICATE] = options.replicate
        asked: dict[str, Any] = {
            "durable": bool(options.durable),
            "alternate": options.alternate_exchange or "",
        }
        if kind == "exchange":
            asked["type"], name = rest[0], rest[1]
            arguments |= {MARKS[mark]: 1 for mark in MARKS if getattr(options, mark)}
        else:
            arguments |= queue_arguments(options)
        self._make(kind, {"name": name, **asked, "arguments": arguments})
        if options.start_replica is not None and kind == "queue":
            try:
                self._link.call("replicate", {"broker": options.start_replica, "queue": name})
            except RefusedRequest:
                # Not half of it: who tries again would find the queue there.
                with suppress(ClientError, RefusedRequest):
                    self._link.call(
                        "delete_queue", {"name": name, "if_empty": True, "if_unused": True}
                    )
                raise

    def _make(self, kind: str, asked: dict[str, Any]) -> None:
        """Declare something. Raises ToolError if there is one of its name already."""
        why = ""
        try:
            if self._link.call(f"declare_{kind}", asked)["created"]:
                return
        except RefusedRequest as error:
            if error.event_code != EXISTS_OTHERWISE:
                raise
            why = f"; {error.text}"
        raise agent_error(f"object already exists: {asked['name']}{why}")

    def _delete(self, kind: str, name: str) -> None:
        options = self._options
        if kind == "exchange":
            self._link.call("delete_exchange", {"name": name})
        elif kind == "queue":
            force = options.force
            asked = {
                "if_empty": not (force or options.force_if_not_empty),
                "if_unused": not (force or options.force_if_used),
            }
            self._link.call("delete_queue", {"name": name, **asked})
        elif kind == "binding":
            self._unbind(**binding_named(name))
        else:
            self._link.operate("DELETE", type=kind, name=name)

    def _bind(self, exchange: str, queue: str, key: str = "", *conditions: str) -> None:
        if self._options.file is not None:
            raise ToolError(
                "InvalidOption",
                "-f is for exchanges of the type xml, which brokers do not offer. Try: a headers "
                "exchange, and all|any NAME=VALUE",
            )
        found = self._link.call("list_exchanges", {"name": exchange, "fields": "type"})
        is_headers = bool(found) and found[0]["type"] == "headers"
        arguments = headers(conditions) if is_headers else {}
        asked = {"exchange": exchange, "queue": queue, "key": key, "arguments": arguments}
        self._link.call("bind", asked)

    def _unbind(self, exchange: str, queue: str, key: str) -> None:
        asked = {"exchange": exchange, "queue": queue, "key": key}
        # Qpid's broker takes what is not bound for unbound, and scripts rely on that.
        is_bound = self._link.call("list_bindings", asked)
        if is_bound or not (
            self._link.call("list_queues", {"name": queue, "fields": "name"})
            and self._link.call("list_exchanges", {"name": exchange, "fields": "name"})
        ):
            self._link.call("unbind", asked)

    def _log(self, level: str) -> None:
        if level:
            self._link.call("set_log_level", {"level": level})
            return
        found = self._link.call("log_level")
        if self._as_json:
            print_document(found)
        else:
            print(f"Log level: {found['level']}")

    def _reload_acl(self) -> None:
        if not self._link.call("acl")["file"]:
            print("Failed: ACL Module Not Loaded in Broker")
            return
        for warning in self._link.call("reload")["warnings"]:
            print(f"Warning: {printable(warning)}")

    def _shutdown(self) -> None:
        with suppress(ConnectError):  # The broker may be gone before its answer has come.
            self._link.call("shutdown")


def binding_named(name: str) -> dict[str, str]:
    """Take the name of a binding apart: QUEUE, EXCHANGE/QUEUE or EXCHANGE/QUEUE/KEY."""
    parts = name.split("/")
    if len(parts) > 3:
        raise ToolError("Exception", f"invalid binding: {name}. Try: EXCHANGE/QUEUE/KEY")
    exchange, queue, key = ["", *parts, ""] if len(parts) == 1 else [*parts, ""][:3]
    return {"exchange": exchange, "queue": queue, "key": key}


def queue_arguments(options: Values) -> dict[str, Any]:
    """Return the arguments that options for queues stand for."""
    found = {
        argument: getattr(options, name)
        for name, argument in (*SIZES.items(), *LIMITS.items(), *FLOW.items())
        if getattr(options, name) is not None
    }
    if options.limit_policy not in (None, "none"):
        found[POLICY_TYPE] = options.limit_policy
    if options.lvq_key is not None:
        found[LVQ_KEY] = options.lvq_key
    if options.group_header is not None:
        found[GROUP_HEADER] = options.group_header
    if options.shared_groups:
        found[SHARED_GROUPS] = 1
    return found


def headers(conditions: Sequence[str]) -> dict[str, Any]:
    """Return what a headers exchange is to match: `all` or `any`, and NAME=VALUE of each header."""
    if len(conditions) < 2:
        raise UsageError("Invalid args to bind headers:  need 'any'/'all' plus conditions")
    if conditions[0] not in ("all", "any"):
        raise UsageError(
            f"Invalid condition arg to bind headers, need 'any' or 'all', not '{conditions[0]}'"
        )
    # A comma between conditions is written in the help of Qpid's tool.
    pairs = [each.rstrip(",").partition("=") for each in conditions[1:] if each != ","]
    for name, equals, _ in pairs:
        if not name or not equals:
            raise UsageError(f"Invalid condition '{name}' to bind headers, need NAME=VALUE")
    return {"x-match": conditions[0], **{name: value for name, _, value in pairs}}


def attributes_of(kind: str, found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of an object under Qpid's names, the name first."""
    rest = {name: value for name, value in found.items() if name not in ("name", *OWN)}
    own = {"type": found["exchangeType"]} if kind == "exchange" else {}
    return {"name": found["name"], **own, **rest}


def queue_attributes(queue: Mapping[str, Any]) -> Iterable[str]:
    """Write what a queue is as the options that make such a one."""
    arguments = queue["arguments"]
    yield from _durable_and_level(queue)
    if queue["auto_delete"]:
        yield "auto-del"
    if queue["exclusive"]:
        yield "excl"
    yield from _given(arguments, {**SIZES, **LIMITS})
    if POLICY_TYPE in arguments:
        yield f"--limit-policy={shown(arguments[POLICY_TYPE]).replace('_', '-')}"
    yield from _given(arguments, {"lvq_key": LVQ_KEY})
    if queue["alternate"]:
        yield f"--alternate-exchange={shown(queue['alternate'])}"
    yield from _given(arguments, {**FLOW, "group_header": GROUP_HEADER})
    if arguments.get(SHARED_GROUPS):
        yield "--shared-groups"
    for name, value in arguments.items():
        if name not in SPECIAL:
            yield f"--argument {shown(name)}={shown(value)}"


def exchange_attributes(exchange: Mapping[str, Any]) -> Iterable[str]:
    """Write what an exchange is as the options that make such a one."""
    yield from _durable_and_level(exchange)
    for mark, argument in MARKS.items():
        if exchange["arguments"].get(argument):
            yield f"--{mark}"
    if exchange["alternate"]:
        yield f"--alternate-exchange={shown(exchange['alternate'])}"


def _durable_and_level(found: Mapping[str, Any]) -> Iterable[str]:
    if found["durable"]:
        yield "--durable"
    # A broker writes down that there is none, where nobody has asked for any.
    level = found["arguments"].get(REPLICATE, NONE)
    if level != NONE:
        yield f"--replicate={shown(level)}"


def _given(arguments: Mapping[str, Any], names: Mapping[str, str]) -> Iterable[str]:
    for name, argument in names.items():
        if argument in arguments:
            yield f"{_option(name)}={shown(arguments[argument])}"


def print_binding(binding: Mapping[str, Any], end: str) -> None:
    """Print a binding below what it is of."""
    arguments = f" {binding['arguments']}" if binding["arguments"] else ""
    print(f"    bind [{shown(binding['key'])}] => {shown(end)}{printable(arguments)}")


def shown(value: Any) -> str:
    """Show a value, with what a terminal would obey escaped."""
    return printable(str(value))


if __name__ == "__main__":
    sys.exit(main())
