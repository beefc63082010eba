"""Every name of the vocabulary, through every window that it can come by: done, done as an alias,
or refused by name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from qpidha.amqp.peer.terminus import source, target
from qpidha.broker.broker import Broker
from qpidha.broker.vocabulary import (
    ALTERNATE,
    AUTO_DELETE,
    DURABLE,
    EXCLUSIVE,
    INSTRUCTIONS,
    NO_LOCAL_FILTER,
    TABLE,
    Entry,
    Fate,
    Kind,
)
from qpidha.management.amqp_management import ManagementService
from qpidha.management.requests import Requests
from qpidha.model.encoding import Described, Symbol, ULong
from qpidha.model.features import FEATURES
from tests.amqp.builders import AHost, Pair
from tests.broker.arguments_page import PAGES, with_tables
from tests.management.builders import (
    LOCAL,
    FakeConnection,
    FakeLink,
    FakeNode,
    a_request,
    open_answer,
)
from tests.management.test_link_pair import Client

FIELDS = {
    DURABLE: "durable",
    EXCLUSIVE: "exclusive",
    AUTO_DELETE: "auto_delete",
    ALTERNATE: "alternate",
}
NEEDS = {
    "qpidha.dedup_window": {"qpidha.dedup": "message-id"},
    "qpid.default-message-group": {"qpid.group_header_key": "group"},
    "qpid.shared_msg_group": {"qpid.group_header_key": "group"},
    "x-dead-letter-routing-key": {"x-dead-letter-exchange": "amq.direct"},
    "x-dead-letter-strategy": {"x-dead-letter-exchange": "amq.direct"},
    "qpidha.dead-letter-on-delete": {"x-dead-letter-exchange": "amq.direct"},
    **dict.fromkeys(
        ("qpid.fairshare", "qpid.fairshare-N", "x-qpid-fairshare", "x-qpid-fairshare-N"),
        {"qpid.priorities": 3},
    ),
    "qpid.alert_count_down": {"qpid.alert_count": 1000},
    "qpid.alert_size_down": {"qpid.alert_size": 1000},
    "qpidha.delivery-limit-action": {"x-delivery-limit": 1},
    **dict.fromkeys(
        ("x-delayed-retry-min", "x-delayed-retry-max"),
        {"x-delayed-retry-type": "all", "x-delayed-retry-min": 100},
    ),
}
"""Arguments that make sense only with another one."""


def one_of(name: str) -> str:
    """A name of those that are there as one."""
    return f"{name[:-1]}1" if name.endswith("-N") else name


@dataclass
class Answer:
    """What a window said, and what is there now."""

    broker: Broker
    condition: str = ""
    text: str = ""
    reason: str = ""
    hint: str = ""


def by_admin_socket(method: str, params: dict[str, Any]) -> Answer:
    node = FakeNode(recorded=False)
    node.broker.declare_queue("there")
    replies: list[Any] = []
    Requests(node).call(method, params, replies.append, principal=LOCAL)
    error = replies[0].error
    if error is None:
        return Answer(node.broker)
    return Answer(node.broker, error.condition, error.text, error.reason, error.hint)


def by_amqp_management(operation: str, kind: str, name: str, body: dict[str, Any]) -> Answer:
    node = FakeNode(recorded=False)
    node.broker.declare_queue("there")
    service, connection = ManagementService(Requests(node), node), FakeConnection(1)
    sender = FakeLink(connection, "s", "$management")
    receiver = FakeLink(connection, "r", "$management", sends=True, peer_address="me")
    service.attached(sender)
    service.attached(receiver)
    asked = {"operation": operation, "type": kind, "name": name}
    service.received(sender, a_request(body, application=asked, reply_to="me"))
    _, application, _ = open_answer(receiver.sent[0])
    return Answer(
        node.broker,
        application.get("condition", ""),
        application["statusDescription"],
        application.get("reason", ""),
        application.get("hint", ""),
    )


def by_link_pair(verb: str, path: str, body: dict[str, Any]) -> Answer:
    client = Client()
    client.target.broker.features.update(dict.fromkeys(FEATURES, 0))
    client.target.broker.declare_queue("there")
    client.details = {}
    status, text = client.ask(verb, path, body)
    if status < 400:
        return Answer(client.target.broker)
    told = client.details
    return Answer(
        client.target.broker, told["condition"], text, told.get("reason", ""), told.get("hint", "")
    )


def by_attach(sender: bool, terminus: Any, **options: Any) -> Answer:
    pair = Pair(AHost())
    pair.host.broker.declare_queue("there")
    link, _ = pair.attach("", sender=sender, name="link", terminus=terminus, **options)
    return answered(pair, link)


def answered(pair: Pair, link: Any) -> Answer:
    error = link.error
    if error is None:
        return Answer(pair.host.broker)
    info = error.info
    return Answer(
        pair.host.broker,
        error.condition,
        error.description,
        str(info.get("reason", "")),
        str(info.get("hint", "")),
    )


def on_demand(describe: Any, name: str, *kind: str) -> Callable[[dict[str, Any]], Answer]:
    def attach(given: dict[str, Any]) -> Answer:
        properties = {Symbol(key): value for key, value in given.items()}
        terminus = describe(name, capabilities=["create-on-demand", *kind], properties=properties)
        return by_attach(describe is target, terminus)

    return attach


def dynamic(given: dict[str, Any]) -> Answer:
    properties = {Symbol(key): value for key, value in given.items()}
    return by_attach(False, source(None, dynamic=True, properties=properties))


QUEUE_WINDOWS: dict[str, Callable[[dict[str, Any]], Answer]] = {
    "admin socket": lambda given: by_admin_socket(
        "declare_queue",
        {"name": "new", "durable": given.get("x-queue-type") == "quorum", "arguments": given},
    ),
    "$management": lambda given: by_amqp_management(
        "CREATE", "queue", "new", {"durable": "x-queue-type" in given, "arguments": given}
    ),
    "/management": lambda given: by_link_pair("PUT", "/queues/new", {"arguments": given}),
    "target on demand": lambda given: on_demand(target, "new")(
        {**({"durable": True} if "x-queue-type" in given else {}), **given}
    ),
    "source on demand": lambda given: on_demand(source, "new")(
        {**({"durable": True} if "x-queue-type" in given else {}), **given}
    ),
    "dynamic source": lambda given: dynamic(
        {**({"durable": True} if "x-queue-type" in given else {}), **given}
    ),
}


def type_for(given: dict[str, Any]) -> str:
    """Return a type of exchange that has these arguments."""
    return "x-consistent-hash" if any(name.startswith("hash-") for name in given) else "direct"


EXCHANGE_WINDOWS: dict[str, Callable[[dict[str, Any]], Answer]] = {
    "admin socket": lambda given: by_admin_socket(
        "declare_exchange", {"name": "new", "type": type_for(given), "arguments": given}
    ),
    "$management": lambda given: by_amqp_management(
        "CREATE", "exchange", "new", {"type": type_for(given), "arguments": given}
    ),
    "/management": lambda given: by_link_pair(
        "PUT", "/exchanges/new", {"type": type_for(given), "arguments": given}
    ),
    "target on demand": lambda given: on_demand(target, "new", "topic")(
        {"exchange-type": type_for(given), **given}
    ),
    "source on demand": lambda given: on_demand(source, "new", "topic")(
        {"exchange-type": type_for(given), **given}
    ),
}


def filtered(descriptor: Any, value: Any, address: str) -> Answer:
    wanted = {Symbol("mine"): Described(descriptor, value)}
    return by_attach(False, source(address, filter=wanted))


BINDING_WINDOWS: dict[str, Callable[[dict[str, Any]], Answer]] = {
    "admin socket": lambda given: by_admin_socket(
        "bind", {"exchange": "amq.match", "queue": "there", "key": "k", "arguments": given}
    ),
    "$management": lambda given: by_amqp_management(
        "BIND", "exchange", "amq.match", {"queue": "there", "key": "k", "arguments": given}
    ),
    "/management": lambda given: by_link_pair(
        "POST",
        "/bindings",
        {
            "source": "amq.match",
            "destination_queue": "there",
            "binding_key": "k",
            "arguments": given,
        },
    ),
    "filter": lambda given: filtered(
        Symbol("apache.org:legacy-amqp-headers-binding:map"), given, "amq.match"
    ),
}
WINDOWS = {
    Kind.QUEUE: QUEUE_WINDOWS,
    Kind.POLICY: QUEUE_WINDOWS,
    Kind.EXCHANGE: EXCHANGE_WINDOWS,
    Kind.BINDING: BINDING_WINDOWS,
}


def through_windows(wanted: Callable[[Entry], bool]) -> list[Any]:
    """Make a case of each argument that is wanted and each window that it can come by."""
    return [
        pytest.param(entry, window, id=f"{entry.kind}-{entry.name}-{window}".replace(" ", "_"))
        for entry in TABLE
        if entry.kind in WINDOWS and wanted(entry)
        for window in WINDOWS[entry.kind]
        # The key of a subscription would be no weight.
        if not (entry.name.startswith("hash-") and window == "source on demand")
    ]


def objects(broker: Broker) -> tuple[list[str], list[str], int]:
    """Return what was made: queues, exchanges and the number of bindings to amq.match."""
    return (
        [name for name in broker.queues if name != "there"],
        [name for name in broker.exchanges if name and not name.startswith("amq.")],
        broker.exchanges["amq.match"].binding_count,
    )


def made(entry: Entry, broker: Broker) -> Any:
    """Return the queue, exchange or binding that was made."""
    queues, exchanges, _ = objects(broker)
    if entry.kind is Kind.EXCHANGE:
        return broker.exchanges[exchanges[0]].options
    if entry.kind is Kind.BINDING:
        ((_, _, arguments),) = broker.exchanges["amq.match"].bindings()
        return arguments
    return broker.queues[queues[0]].options


def check_refused(answer: Answer, entry: Entry, condition: str) -> None:
    """Check a refusal: its condition, the name, a reason, a hint, and nothing made."""
    assert answer.condition == condition
    assert entry.name in answer.text and answer.reason == entry.text and answer.hint == entry.hint
    assert entry.text and entry.hint
    assert objects(answer.broker) == ([], [], 0)


@pytest.mark.parametrize(("entry", "window"), through_windows(lambda entry: True))
def test_each_argument_is_done_or_refused_by_every_window(entry: Entry, window: str) -> None:
    answer = WINDOWS[entry.kind][window](
        {**NEEDS.get(entry.name, {}), one_of(entry.name): entry.example}
    )
    if entry.fate is Fate.REFUSED:
        check_refused(answer, entry, "amqp:invalid-field")
        return
    assert answer.condition == ""
    there = made(entry, answer.broker)
    known = one_of(entry.alias_of or entry.name)
    value = entry.example if entry.read is None else entry.read(entry.example)
    if known in FIELDS:
        assert getattr(there, FIELDS[known]) == value
    else:
        arguments = there if entry.kind is Kind.BINDING else there.arguments
        assert arguments.get(known) == value or known == "qpid.ha-uuid"
        for name, implied in entry.implies:
            assert arguments[name] == implied
    if entry.fate is Fate.ALIAS:
        assert one_of(entry.name) not in there.arguments, "records have known names only"


@pytest.mark.parametrize(
    ("entry", "window"),
    through_windows(lambda entry: entry.fate is not Fate.REFUSED and entry.name != "qpid.ha-uuid"),
)
def test_each_argument_refuses_a_value_of_another_type(entry: Entry, window: str) -> None:
    wrong = {"a map": 1}
    answer = WINDOWS[entry.kind][window]({**NEEDS.get(entry.name, {}), one_of(entry.name): wrong})
    assert answer.condition == "amqp:invalid-field" and answer.hint
    assert objects(answer.broker) == ([], [], 0)


@pytest.mark.parametrize(("entry", "window"), through_windows(lambda entry: bool(entry.harmless)))
def test_a_value_that_asks_for_nothing_is_no_reason_to_refuse(entry: Entry, window: str) -> None:
    for value in entry.harmless:
        answer = WINDOWS[entry.kind][window]({entry.name: value})
        assert answer.condition == ""
        there = made(entry, answer.broker)
        assert entry.name not in (there if entry.kind is Kind.BINDING else there.arguments)


@pytest.mark.parametrize("kind", WINDOWS)
@pytest.mark.parametrize("name", ["x-no-such", "qpid.no_such", "qpidha.no_such", "ha-no-such"])
def test_what_looks_like_an_instruction_is_refused(kind: Kind, name: str) -> None:
    for window in WINDOWS[kind].values():
        answer = window({name: 1})
        assert answer.condition == "amqp:invalid-field" and name in answer.text and answer.hint
        assert objects(answer.broker) == ([], [], 0)


@pytest.mark.parametrize("kind", WINDOWS)
def test_other_arguments_are_the_applications_own(kind: Kind) -> None:
    for window in WINDOWS[kind].values():
        answer = window({"colour": "red"})
        assert answer.condition == ""
        entry = next(each for each in TABLE if each.kind is kind)
        there = made(entry, answer.broker)
        assert (there if kind is Kind.BINDING else there.arguments)["colour"] == "red"


# -- attaches -------------------------------------------------------------------------------------


def descriptors(entry: Entry) -> list[Any]:
    return [Symbol(entry.name), *([ULong(entry.code)] if entry.code else [])]


ON = {"topic": "amq.topic", "direct": "amq.direct", "headers": "amq.match"}


FILTERS = [
    each for each in TABLE if each.kind is Kind.FILTER and each.name != NO_LOCAL_FILTER
]  # that one is in tests/amqp/server/test_attaching.py
SELECTING = [
    each for each in FILTERS if each.fate is not Fate.REFUSED and "binding" not in each.name
]


@pytest.mark.parametrize("entry", SELECTING, ids=lambda entry: entry.name)
def test_row_140_each_filter_that_selects_is_in_effect_or_ends_the_attach(entry: Entry) -> None:
    for descriptor in descriptors(entry):
        wanted = {Symbol("mine"): Described(descriptor, entry.example)}
        for address in ("there", "amq.fanout"):
            pair = Pair(AHost())
            pair.host.broker.declare_queue("there")
            link, _ = pair.receiver("", name="sub", terminus=source(address, filter=wanted))
            if address == "there" or isinstance(entry.example, str):
                assert link.error is None and link.remote_source.filter == wanted
            else:
                assert link.error.condition == "amqp:not-implemented" and link.error.hint
        answer = filtered(descriptor, 5, "there")
        assert answer.condition == "amqp:invalid-field" and entry.name in answer.text


@pytest.mark.parametrize("entry", [each for each in FILTERS if each not in SELECTING])
def test_each_filter_is_in_effect_or_ends_the_attach(entry: Entry) -> None:
    for descriptor in descriptors(entry):
        answers = [filtered(descriptor, entry.example, "there")]
        if entry.fate is Fate.REFUSED:
            answers += [filtered(descriptor, entry.example, address) for address in ON.values()]
        else:
            answers.append(filtered(descriptor, entry.example, "amq.fanout"))
        for answer in answers:
            assert answer.condition == "amqp:not-implemented"
            assert entry.name in answer.text and answer.reason and answer.hint
            assert objects(answer.broker) == ([], [], 0)
        if entry.fate is Fate.REFUSED:
            continue
        kind = entry.name.split("-")[2]
        pair = Pair(AHost())
        wanted = {Symbol("mine"): Described(descriptor, entry.example)}
        link, _ = pair.receiver("", name="sub", terminus=source(ON[kind], filter=wanted))
        assert link.error is None
        assert link.remote_source.filter == wanted
        bindings = list(pair.host.broker.exchanges[ON[kind]].bindings())
        assert [binding[2] if kind == "headers" else binding[1] for binding in bindings] == [
            entry.example
        ]


@pytest.mark.parametrize("entry", [each for each in TABLE if each.kind is Kind.SOURCE])
def test_each_capability_of_a_source_is_honoured_or_ends_the_attach(entry: Entry) -> None:
    named = ("topic", "temporary-topic", "shared")
    address = dict.fromkeys(named, "amq.topic") | {"create-on-demand": "new"}
    check_capability(entry, False, address.get(entry.name, "there"))


@pytest.mark.parametrize("entry", [each for each in TABLE if each.kind is Kind.TARGET])
def test_each_capability_of_a_target_is_honoured_or_ends_the_attach(entry: Entry) -> None:
    address = dict.fromkeys(("topic", "temporary-topic"), "amq.topic") | {"create-on-demand": "new"}
    check_capability(entry, True, address.get(entry.name, "there"))


def check_capability(entry: Entry, sender: bool, address: str) -> None:
    pair = Pair(AHost())
    pair.host.broker.declare_queue("there", durable=True)
    describe = target if sender else source
    link, _ = pair.attach(
        "", sender=sender, name="link", terminus=describe(address, capabilities=[entry.name])
    )
    if entry.fate is Fate.REFUSED:
        check_refused(answered(pair, link), entry, "amqp:not-implemented")
        return
    assert link.error is None
    answer = link.remote_target if sender else link.remote_source
    assert answer.capabilities == [entry.name]


@pytest.mark.parametrize("sender", [True, False])
@pytest.mark.parametrize("entry", [each for each in TABLE if each.kind is Kind.LINK])
def test_each_property_of_a_link_is_done_or_ends_the_attach(entry: Entry, sender: bool) -> None:
    for value in (entry.example, *entry.harmless):
        describe = target if sender else source
        answer = by_attach(sender, describe("there"), properties={Symbol(entry.name): value})
        if entry.fate is Fate.REFUSED and value not in entry.harmless:
            check_refused(answer, entry, "amqp:not-implemented")
        else:
            assert answer.condition == ""


@pytest.mark.parametrize("beginning", INSTRUCTIONS)
def test_a_property_of_a_link_that_begins_like_an_instruction_is_not_passed_over(
    beginning: str,
) -> None:
    """As `qpidha:fencing_token` is not, which is `qpidha:fencing-token` spelled otherwise."""
    answer = by_attach(False, source("there"), properties={Symbol(f"{beginning}nonsense"): True})
    assert (answer.condition, "nonsense is not known" in answer.text) == (
        "amqp:not-implemented",
        True,
    )


def test_every_kind_of_the_table_has_a_test_above() -> None:
    assert {entry.kind for entry in TABLE} == {
        *WINDOWS,
        Kind.FILTER,
        Kind.SOURCE,
        Kind.TARGET,
        Kind.LINK,
    }
    assert len({(entry.kind, entry.name) for entry in TABLE}) == len(TABLE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_pages_have_the_table(page: Path) -> None:
    text = page.read_text()
    assert "x-max-length" in text and text == with_tables(page), (
        "run python -m tests.broker.arguments_page"
    )


def test_the_default_of_each_argument_of_a_queue_is_said() -> None:
    known = (entry for entry in TABLE if (entry.kind, entry.fate) == (Kind.QUEUE, Fate.KNOWN))
    assert [entry.name for entry in known if not entry.default] == []
