"""Definitions of Apache Qpid (C++): what `qpid-config exchanges`, `qpid-config queues` and these
with `-r` print, and the commands of `qpid-config` that make the same, as definitions of this
broker.

The lists show attributes as the options that would recreate them, and `-r` shows bindings, so both
are needed; they may stand in one file in any order. Source: Qpid `qpid-config` (ExchangeList,
QueueList, ExchangeListRecurse, QueueListRecurse).
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from qpidha.broker.declaration import REFUSED_TYPES
from qpidha.broker.queues.limits import MAX_COUNT, MAX_SIZE, MEMORY, POLICY_TYPE, RING, RING_STRICT
from qpidha.broker.vocabulary import Kind as Place
from qpidha.model.errors import InvalidArgument
from qpidha.model.records import BUILT_IN_EXCHANGES
from qpidha.model.replication_level import HA_UUID
from qpidha.tools.definitions import FIELDS, Definition, Kind, in_order
from qpidha.tools.foreign import Translation, Verdict

QPIDS_OWN = ("qmf.", "qpid.")
"""Beginnings of names that Qpid's broker gives."""
OPTIONS = {
    "--replicate": "qpid.replicate",
    "--file-size": "qpid.file_size",
    "--file-count": "qpid.file_count",
    "--efp-partition-num": "qpid.efp_partition_num",
    "--efp-pool-file-size": "qpid.efp_pool_file_size",
    "--max-queue-size": "qpid.max_size",
    "--max-queue-count": "qpid.max_count",
    "--limit-policy": "qpid.policy_type",
    "--lvq-key": "qpid.last_value_queue_key",
    "--generate-queue-events": "qpid.queue_event_generation",
    "--flow-stop-size": "qpid.flow_stop_size",
    "--flow-resume-size": "qpid.flow_resume_size",
    "--flow-stop-count": "qpid.flow_stop_count",
    "--flow-resume-count": "qpid.flow_resume_count",
    "--group-header": "qpid.group_header_key",
}
"""Option with a value -> the argument that it stands for."""
FLAGS = {
    "--cluster-durable": "qpid.persist_last_node",
    "--shared-groups": "qpid.shared_msg_group",
    "--sequence": "qpid.msg_sequence",
    "--ive": "qpid.ive",
}
"""Option without a value -> the argument that is 1 by it."""
FLOW_TO_DISK = "flow-to-disk"
ORDERS = {"lvq": "qpid.last_value_queue", "lvq-no-browse": "qpid.last_value_queue_no_browse"}
COMMON = ("-a", "--broker-addr", "-b", "--broker", "-t", "--timeout", "--sasl-mechanism")
"""Options of a command that say where and how to connect; each has a value."""
ATTRIBUTE = re.compile(r"\s+(?=--[a-z]|auto-del\b|excl\b)")
EXCHANGE = re.compile(r"Exchange '(?P<name>.*)' \((?P<type>[\w-]+)\)")
QUEUE = re.compile(r"Queue '(?P<name>.*)'")
BIND = re.compile(r"\s+bind \[(?P<key>.*?)\] => (?P<name>.*?)(?: (?P<arguments>\{.*\}))?\s*")
COMMAND = re.compile(r"(?:\$ )?(?:\S*/)?qpid-config\s+(?P<words>.*)")


@dataclass(slots=True)
class Table:
    """A list of exchanges or queues: where its columns begin."""

    kind: Kind
    name: int
    attributes: int


@dataclass(slots=True)
class Listing:
    """What was read of a file so far."""

    found: Translation = field(default_factory=Translation)
    exchanges: dict[str, Definition] = field(default_factory=dict)
    queues: dict[str, Definition] = field(default_factory=dict)
    bindings: list[Definition] = field(default_factory=list)
    mentioned: dict[str, str] = field(default_factory=dict)
    """Exchanges that only lists of bindings name -> where."""
    table: Table | None = None
    current: tuple[Kind, str] | None = None
    """The exchange or queue whose bindings are listed."""


def read(text: str) -> Translation:
    """Read the lists and commands. Raises InvalidArgument for a line that is none of them."""
    listing = Listing()
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#") or set(line.strip()) == {"="}:
            continue
        try:
            _line(listing, line, f"line {number}")
        except InvalidArgument as error:
            raise InvalidArgument(
                f"line {number}: {error.text}", reason=error.reason, hint=error.hint
            ) from None
    found = listing.found
    if not (listing.exchanges or listing.queues or listing.bindings):
        raise InvalidArgument(
            "nothing of qpid-config is in it",
            hint="qpid-config exchanges, qpid-config queues and qpid-config exchanges -r print it",
        )
    for name, where in listing.mentioned.items():
        is_taken = name in listing.exchanges or (Kind.EXCHANGE, name) in found.absent
        if not is_taken and not _is_own(name):
            one = _new(Kind.EXCHANGE, name, where)
            found.leave_out(
                one, "its attributes are not in the file: add what qpid-config exchanges prints"
            )
    for one in (*listing.exchanges.values(), *listing.queues.values()):
        found.add(one)
    for binding in listing.bindings:
        _add_binding(listing, binding)
    found.definitions = in_order(found.definitions)
    return found


def _line(listing: Listing, line: str, where: str) -> None:
    command = COMMAND.fullmatch(line)
    if command is not None:
        listing.table = listing.current = None
        _command(listing, command["words"], where)
        return
    if "Attributes" in line and ("Queue Name" in line or "Exchange Name" in line):
        kind = Kind.QUEUE if "Queue Name" in line else Kind.EXCHANGE
        caption = "Queue Name" if kind is Kind.QUEUE else "Exchange Name"
        listing.table = Table(kind, line.index(caption), line.index("Attributes"))
        listing.current = None
        return
    for kind, pattern in ((Kind.EXCHANGE, EXCHANGE), (Kind.QUEUE, QUEUE)):
        head = pattern.fullmatch(line.rstrip())
        if head is not None:
            listing.table, listing.current = None, (kind, head["name"])
            if kind is Kind.EXCHANGE:
                listing.mentioned.setdefault(head["name"], where)
            return
    bind = BIND.fullmatch(line)
    if bind is not None and listing.current is not None:
        _listed_binding(listing, bind, where)
    elif listing.table is not None:
        _row(listing, listing.table, line, where)
    else:
        is_list = line.startswith("Objects of type")
        raise InvalidArgument(
            f"{line.strip()[:60]!r} is no line of these lists",
            reason="qpid-config list does not show arguments" if is_list else "",
            hint="use what qpid-config exchanges, qpid-config queues and -r print",
        )


def _new(kind: Kind, name: str, where: str, **more: Any) -> Definition:
    return Definition(kind, {**FIELDS[kind], "arguments": {}, "name": name, **more}, where)


def _is_own(name: str) -> bool:
    return not name or name in BUILT_IN_EXCHANGES or name.startswith(QPIDS_OWN)


# -- lists ----------------------------------------------------------------------------------------


def _row(listing: Listing, table: Table, line: str, where: str) -> None:
    """Read one row; a name may have spaces in it, so the columns are those of the heading."""
    name = line[table.name : table.attributes].strip()
    attributes = [each for each in ATTRIBUTE.split(f" {line[table.attributes :].strip()}") if each]
    type = line[: table.name].strip()
    _object(listing, table.kind, type, name, [each.strip() for each in attributes], where)


def _object(
    listing: Listing, kind: Kind, type: str, name: str, attributes: list[str], where: str
) -> None:
    """Take an exchange or a queue with its attributes, each as an option."""
    found = listing.found
    more = {"type": type} if kind is Kind.EXCHANGE else {}
    one = _new(kind, name, where, **more)
    if kind is Kind.EXCHANGE and _is_own(name):
        what = "every broker has it" if not name or name in BUILT_IN_EXCHANGES else "it is Qpid's"
        found.note(Verdict.IGNORED, one.title, "", what)
        return
    if type in REFUSED_TYPES:
        found.leave_out(one, f"the type {type} is not offered: {REFUSED_TYPES[type]}")
        return
    given: dict[str, Any] = {}
    for attribute in filter(None, attributes):
        _attribute(found, one, given, attribute)
    if "excl" in attributes:
        found.leave_out(one, "it is exclusive: it ends with its session", Verdict.IGNORED)
        return
    _settle_limits(found, one, given)
    place = Place.QUEUE if kind is Kind.QUEUE else Place.EXCHANGE
    one.values["arguments"] = found.arguments(place, one.title, given)
    (listing.queues if kind is Kind.QUEUE else listing.exchanges).setdefault(name, one)


def _settle_limits(found: Translation, one: Definition, given: dict[str, Any]) -> None:
    """Say what Qpid does about limits as it is said here."""
    policy = str(given.get(POLICY_TYPE, "")).replace("_", "-")
    if policy in (RING, RING_STRICT):
        for name in [each for each in given if each.startswith("qpid.flow_")]:
            del given[name]
            reason = "Qpid does not heed it either, as the queue makes room by itself"
            found.note(Verdict.IGNORED, one.title, name, reason)
    elif policy == FLOW_TO_DISK:
        del given[POLICY_TYPE]
        size = given.pop(MAX_SIZE, None)
        count = given.pop(MAX_COUNT, None)
        told = "what is beyond the memory of a queue is on disk by itself"
        if size is not None:
            given[MEMORY] = size
            told = f"{MEMORY}={size}"
        found.note(Verdict.MAPPED, one.title, "--limit-policy=flow-to-disk", told)
        if count is not None:
            found.note(Verdict.IGNORED, one.title, MAX_COUNT, "memory is counted in bytes")


def _attribute(found: Translation, one: Definition, given: dict[str, Any], text: str) -> None:
    """Read an option as lists show it; what it means goes into the definition or its arguments."""
    option, equals, value = text.partition("=")
    option = option.strip()
    name, _, rest = text.partition(" ")
    if name in ("--argument", "--order"):
        option, value, equals = name, rest.strip(), "="
    if option == "--durable":
        one.values["durable"] = True
        found.note(Verdict.KEPT, one.title, option)
    elif option in ("auto-del", "excl"):
        one.values["auto_delete"] |= option == "auto-del"
        found.note(Verdict.MAPPED, one.title, option, "auto_delete")
    elif option == "--alternate-exchange" and equals:
        one.values["alternate"] = value
        found.note(Verdict.MAPPED, one.title, option, f"alternate={value}")
    elif option == "--argument":
        key, _, text_ = value.partition("=")
        if key == HA_UUID:
            found.note(Verdict.IGNORED, one.title, key, "every cluster gives its own")
        else:
            given[key] = _value(text_)
    elif option == "--order" and value in ORDERS:
        given[ORDERS[value]] = 1
    elif option == "--order" and value == "fifo":
        found.note(Verdict.IGNORED, one.title, option, "that is the order of every queue")
    elif option == "--limit-policy" and value in ("none", ""):
        found.note(Verdict.IGNORED, one.title, option, "it asks for nothing")
    elif option in OPTIONS and equals:
        given[OPTIONS[option]] = _value(value)
    elif option in FLAGS and not equals:
        given[FLAGS[option]] = 1
    else:
        found.note(Verdict.LEFT_OUT, one.title, text, "the attribute is not known")


def _value(text: str) -> Any:
    text = text.strip()
    if re.fullmatch(r"-?[0-9]{1,18}L?", text):
        return int(text.rstrip("L"))
    return {"True": True, "False": False}.get(text, text)


def _listed_binding(listing: Listing, match: re.Match[str], where: str) -> None:
    assert listing.current is not None
    kind, name = listing.current
    other = match["name"].strip()
    other = "" if other == "''" else other
    exchange, queue = (name, other) if kind is Kind.EXCHANGE else (other, name)
    if kind is Kind.QUEUE:
        listing.mentioned.setdefault(exchange, where)
    arguments: Any = {}
    if match["arguments"]:
        try:
            # Python 2 writes an L behind long numbers.
            arguments = ast.literal_eval(re.sub(r"(?<=\d)L(?=[,}])", "", match["arguments"]))
        except (ValueError, SyntaxError):
            raise InvalidArgument(
                f"{match['arguments'][:60]} is no map", hint="print the list again"
            ) from None
    _bound(listing, exchange, queue, match["key"], arguments, where)


def _bound(
    listing: Listing, exchange: str, queue: str, key: str, arguments: dict[str, Any], where: str
) -> None:
    values = {"exchange": exchange, "queue": queue, "key": key, "arguments": arguments}
    listing.bindings.append(Definition(Kind.BINDING, {**FIELDS[Kind.BINDING], **values}, where))


def _add_binding(listing: Listing, one: Definition) -> None:
    found = listing.found
    exchange, queue, _, _ = one.identity
    if not exchange:
        found.note(Verdict.IGNORED, one.title, "", "every queue is bound to the default exchange")
        return
    if _is_own(exchange) and exchange not in BUILT_IN_EXCHANGES:
        found.leave_out(one, f"exchange {exchange} is Qpid's", Verdict.IGNORED)
        return
    given = {str(key): value for key, value in one.values["arguments"].items()}
    before = len(found.notes)
    one.values["arguments"] = found.arguments(Place.BINDING, one.title, given)
    for note in found.notes[before:]:
        if note.verdict in (Verdict.IGNORED, Verdict.LEFT_OUT):
            # Without it other messages would fit.
            found.leave_out(one, f"{note.key}: {note.reason}")
            return
    if queue == "<unknown>":
        found.leave_out(one, "the list does not say where it leads")
    elif found.add_binding(one):
        found.note(Verdict.KEPT, one.title, "")


# -- commands -------------------------------------------------------------------------------------


def _command(listing: Listing, text: str, where: str) -> None:
    """Read a command that adds something."""
    try:
        words = iter(shlex.split(text))
    except ValueError as error:
        raise InvalidArgument(
            f"{text[:60]!r} cannot be read", reason=str(error).lower(), hint="mend the line"
        ) from None
    names, options = _sorted(words)
    commands: dict[tuple[str, ...], tuple[int, Callable[[list[str]], None]]] = {
        ("add", "exchange"): (
            4,
            lambda rest: _object(listing, Kind.EXCHANGE, rest[0], rest[1], options, where),
        ),
        ("add", "queue"): (
            3,
            lambda rest: _object(listing, Kind.QUEUE, "", rest[0], options, where),
        ),
        ("bind",): (3, lambda rest: _bind(listing, rest, options, where)),
    }
    for path, (most, do) in commands.items():
        if tuple(names[: len(path)]) == path and len(names) >= most:
            do(names[len(path) :])
            return
    raise InvalidArgument(
        f"qpid-config {text[:60]} adds nothing",
        hint="add exchange TYPE NAME, add queue NAME and bind EXCHANGE QUEUE KEY are read",
    )


def _sorted(words: Iterator[str]) -> tuple[list[str], list[str]]:
    """Split a command into names and options, each of these with its value."""
    valued = {*OPTIONS, "--alternate-exchange", "--argument", "--order"}
    names, options = [], []
    for word in words:
        if word in COMMON:
            next(words, None)
        elif word in ("--argument", "--order"):
            options.append(f"{word} {next(words, '')}")
        elif word in valued:
            options.append(f"{word}={next(words, '')}")
        elif word.startswith("-") and word.partition("=")[0] not in COMMON:
            option, equals, value = word.partition("=")
            spaced = option in ("--argument", "--order") and equals
            options.append(f"{option} {value}" if spaced else word)
        elif not word.startswith("-"):
            names.append(word)
    return names, options


def _bind(listing: Listing, names: list[str], options: list[str], where: str) -> None:
    exchange, queue, *rest = names
    key, match = rest[0] if rest else "", rest[1:]
    arguments: dict[str, Any] = {}
    if match and match[0] in ("all", "any"):
        pairs = [pair.rstrip(",").partition("=") for pair in match[1:]]
        arguments = {"x-match": match[0], **{name: _value(value) for name, _, value in pairs}}
    _bound(listing, exchange, queue, key, arguments, where)
    for option in options:
        one = listing.bindings[-1]
        listing.found.note(Verdict.LEFT_OUT, one.title, option, "the attribute is not known")
