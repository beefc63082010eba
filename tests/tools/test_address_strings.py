"""Address strings and maps: read as Qpid's messaging programs read them, refused with the place."""

from __future__ import annotations

from typing import Any

import pytest

from qpidha.model.encoding import Described, Symbol, ULong
from qpidha.tools.address_strings import AddressString, parse_address_string, parse_map, typed
from qpidha.tools.connection_options import ToolError
from qpidha.tools.messaging_addresses import RECEIVER, SENDER, read_address


@pytest.mark.parametrize(
    ("text", "name", "subject", "options"),
    [
        ("q", "q", "", {}),
        (" q ", "q", "", {}),
        ("q;", "q", "", {}),
        ("q;{}", "q", "", {}),
        ("amq.topic/a.b.#", "amq.topic", "a.b.#", {}),
        ("e/a/b", "e", "a/b", {}),
        ("e/", "e", "", {}),
        ("'my queue'", "my queue", "", {}),
        ("\"a;b\"/'c;d'", "a;b", "c;d", {}),
        ("q;{create:always}", "q", "", {"create": "always"}),
        ("q ; { create : always , }", "q", "", {"create": "always"}),
        (
            "q;{node:{x-declare:{arguments:{'qpid.max_count':5,a:[1,'1',x]}}}}",
            "q",
            "",
            {"node": {"x-declare": {"arguments": {"qpid.max_count": 5, "a": [1, "1", "x"]}}}},
        ),
        ("q;{link:{selector:\"colour='blue'\"}}", "q", "", {"link": {"selector": "colour='blue'"}}),
        ("#reply", "#reply", "", {}),
    ],
)
def test_an_address_is_read(text: str, name: str, subject: str, options: dict[str, Any]) -> None:
    assert parse_address_string(text) == AddressString(name, subject, options)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "a name is expected, character 0 of "),
        (";{}", "a name is expected, character 0 of ;{}"),
        ("my queue", "nothing is expected after it, not 'queue', character 3 of my queue"),
        ("q;{create}", "'create' has no value: a ':' is expected, character 9 of q;{create}"),
        ("q;{create:", "a value is expected, character 10 of q;{create:"),
        ("q;{create:always", "a '}' is expected, character 16 of q;{create:always"),
        ("q;{a:[1,2}", "a ']' is expected, character 9 of q;{a:[1,2}"),
        ("q;{a:'b}", "the ' is not closed, character 5 of q;{a:'b}"),
        ("q;{} x", "nothing is expected after it, not 'x', character 5 of q;{} x"),
        ("q;" + "{a:" * 100, "more than 32 maps and lists are in one another"),
    ],
)
def test_what_is_no_address_is_told_with_its_place(text: str, said: str) -> None:
    with pytest.raises(ToolError) as error:
        parse_address_string(text)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("7", 7),
        ("-7", -7),
        ("+7", 7),
        ("9223372036854775807", 2**63 - 1),
        ("18446744073709551615", ULong(2**64 - 1)),
        ("18446744073709551616", 2.0**64),
        ("1.5", 1.5),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("true", True),
        ("False", False),
        ("1_0", "1_0"),
        ("0x10", "0x10"),
        ("red", "red"),
        ("", ""),
    ],
)
def test_a_word_is_what_it_looks_like(word: str, value: Any) -> None:
    assert typed(word) == value
    assert type(typed(word)) is type(value)


def test_a_map_alone_is_read() -> None:
    assert parse_map("{reconnect:true, heartbeat:10, urls:[a,'b,c']}") == {
        "reconnect": True,
        "heartbeat": 10,
        "urls": ["a", "b,c"],
    }
    assert parse_map("") == parse_map(" ") == parse_map("{}") == {}
    with pytest.raises(ToolError, match="a '{' is expected, character 0 of reconnect=true"):
        parse_map("reconnect=true")


@pytest.mark.parametrize(
    "text",
    [
        "{username: u, password: hush",
        "{Password: 'hush}",
        "{password: hush} hush",
        "{password: {hush: 1}, x}",
        "password=hush",
    ],
)
def test_what_cannot_be_read_is_told_without_the_password_in_it(text: str) -> None:
    with pytest.raises(ToolError, match=r"(?i)password\.\.\.$") as caught:
        parse_map(text)
    assert "hush" not in str(caught.value)


def test_policies_are_for_the_role_that_they_name() -> None:
    for policy, roles in (
        ("always", {SENDER, RECEIVER}),
        ("sender", {SENDER}),
        ("receiver", {RECEIVER}),
        ("never", set()),
    ):
        for role in (SENDER, RECEIVER):
            text = f"q;{{create:{policy},assert:{policy},delete:{policy}}}"
            address = read_address(text, role)
            wanted = role in roles
            assert (address.creates, address.asserts, address.deletes) == (wanted,) * 3


def test_the_whole_of_an_address_is_understood() -> None:
    address = read_address(
        "t/k;{create:always,mode:browse,node:{type:topic,durable:true,"
        "capabilities:[shared],properties:{a:1},"
        "x-declare:{type:direct,alternate-exchange:amq.fanout,arguments:{'qpid.replicate':none}},"
        "x-bindings:[{queue:q,key:x,arguments:{y:1}}]},"
        'link:{name:mine,durable:true,timeout:60,reliability:unreliable,selector:"a = 1",'
        "filter:[{name:f,descriptor:'d:string',value:v},{name:g,descriptor:5,value:6}],"
        "x-declare:{exclusive:false,arguments:{'qpid.max_count':3}},"
        "x-subscribe:{exclusive:true,arguments:{x-priority:2}}}}",
        RECEIVER,
    )
    assert (address.name, address.subject, address.type, address.browses) == (
        *("t", "k", "topic"),
        True,
    )
    assert address.properties == {
        "a": 1,
        "exchange-type": "direct",
        "alternate-exchange": "amq.fanout",
        "qpid.replicate": "none",
        "durable": True,
    }
    assert address.bindings == ({"exchange": "t", "queue": "q", "key": "x", "arguments": {"y": 1}},)
    assert address.capabilities == ("shared",)
    assert (address.link_name, address.settled, address.selector) == ("mine", True, "a = 1")
    assert address.filters == {"f": Described(Symbol("d:string"), "v"), "g": Described(ULong(5), 6)}
    assert address.link_properties == {"x-priority": 2, "qpidha:exclusive": True}
    subscription = address.subscription
    assert (subscription.durable, subscription.lives, subscription.shared) == (True, False, True)
    assert subscription.arguments == {"qpid.auto_delete_timeout": 60, "qpid.max_count": 3}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("{creat:always}", "there is no option 'creat'. Try: create, assert, delete, mode"),
        ("{create:yes}", "create: 'yes' is not one of never, always, sender, receiver"),
        ("{mode:peek}", "mode: 'peek' is not one of consume, browse"),
        ("{node:queue}", "node is a map, not 'queue'"),
        ("{node:{kind:queue}}", "there is no option 'kind' of node"),
        ("{node:{type:stream}}", "type: 'stream' is not one of queue, topic"),
        ("{node:{durable:maybe}}", "durable is true or false, not 'maybe'"),
        ("{node:{x-bindings:[{key:k}]}}", "a binding names no exchange"),
        ("{node:{x-bindings:[k]}}", "x-bindings is a list of maps, not of 'k'"),
        ("{link:{reliability:exactly-once}}", "Try: at-least-once, and a receiver that"),
        ("{link:{x-bindings:[]}}", "x-bindings of a link is not offered: bind the queue in"),
        ("{link:{sender-source:s}}", "sender-source of a link is not offered"),
        ("{link:{timeout:soon}}", "timeout is a whole number of seconds, not 'soon'"),
        ("{link:{filter:{name:f}}}", "filter is {name: N, descriptor: D, value: V}"),
        ("{link:{x-subscribe:{resume_id:1}}}", "there is no option 'resume_id' of x-subscribe"),
        ("{link:{x-declare:{queue:n}}}", "there is no option 'queue' of link x-declare"),
    ],
)
def test_what_has_no_meaning_is_refused_by_name(options: str, said: str) -> None:
    with pytest.raises(ToolError) as error:
        read_address(f"q;{options}", RECEIVER)
    assert said in str(error.value)
    assert str(error.value).startswith(f"address {f'q;{options}'!r}: ")


def test_a_node_that_the_broker_names_is_for_receivers() -> None:
    assert read_address("#q", RECEIVER).is_temporary
    with pytest.raises(ToolError, match="a node that the broker names is for receivers"):
        read_address("#q", SENDER)
    assert not read_address("#q", RECEIVER, passthrough=True).is_temporary
    assert read_address("a/b;c", SENDER, passthrough=True).name == "a/b;c"
