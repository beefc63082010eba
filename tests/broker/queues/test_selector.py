"""The languages of selectors: what they say of a message, compared with a small oracle, and how
what cannot be used is refused.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qpidha.broker.queues.selector import MAX_DEPTH, MAX_PARTS, MAX_TEXT, parse
from qpidha.broker.queues.selector_names import Dialect
from qpidha.model.encoding import Described, Symbol, Uuid, encode
from qpidha.model.errors import InvalidArgument
from qpidha.model.message import Message
from qpidha.model.message_view import build

JMS, SQL = Dialect.JMS, Dialect.SQL
MESSAGE = Message(
    7,
    build(
        b"body",
        header={"durable": True, "priority": 7, "delivery_count": 1},
        properties={
            "message_id": "ID:1",
            "user_id": b"ann",
            "to": "q",
            "subject": "order",
            "reply_to": "r",
            "correlation_id": 12,
            "creation_time": 1_700_000_000_000,
            "group_id": "g",
            "group_sequence": 3,
        },
        annotations={"jms-type": "t", "x-region": "eu"},
        application_properties={
            "colour": "red",
            "n": 5,
            "x": 2.5,
            "yes": True,
            "no": False,
            "quote": "it's",
            "a.b": "dotted",
            "with space": 1,
            "größe": "groß",
            "data": b"bytes",
            "JMSXAppID": "app",
        },
    ),
    expires=9_000_000,
    delivery_count=2,
)


def selects(text: str, dialect: Dialect = JMS, message: Message = MESSAGE) -> bool:
    selector = parse(dialect, text)
    return selector is None or selector.selects(message)


TRUE = """
colour = 'red'
colour <> 'blue'
'red' = colour
n = 5 AND x = 2.5
n = 5.0
n > 4 and n >= 5 and n < 6 and n <= 5
n BETWEEN 5 AND 6
n NOT BETWEEN 6 AND 7
colour IN ('blue', 'red')
colour NOT IN ('blue', 'green')
n in (1, 5.0)
n in (x, n)
colour LIKE 'r%'
colour LIKE '_e_'
colour LIKE '%'
colour LIKE 'red'
colour not like 're'
quote LIKE 'it''s'
quote = 'it''s'
'50%' LIKE '50\\%' ESCAPE '\\'
'5_' like '5$_' escape '$'
'aXbXc' LIKE 'a%b%c'
'ab' NOT LIKE 'ab%b'
missing IS NULL
colour IS NOT NULL
data IS NULL
n + 1 = 6 and n - 1 = 4 and n * 2 = 10 and x / 2 = 1.25
7 / 2 = 3 and -7 / 2 = -3
-n = -5 and +n = 5 and - -n = 5
1 + 2 * 3 = 7 and (1 + 2) * 3 = 9
10 - 4 - 3 = 3
n / 0 IS NULL
x / 0 IS NULL
colour + 1 IS NULL
yes
NOT no
yes = TRUE and no = false
yes <> no
NOT yes = no
no OR yes AND yes
NOT (no AND missing)
yes OR missing
missing IS NULL OR missing > 3
0x1F = 31 and 017 = 15 and 0b101 = 5 and 1_000L = 1000
0xFFFFFFFFFFFFFFFF = -1
-9223372036854775808 < 0
7. = 7 and .5 = 0.5 and 1e3 = 1000 and 1.5E-1 = 0.15 and 2f = 2 and 3.0d = 3
9223372036854775807 + 9223372036854775807 > 9223372036854775807
a.b = 'dotted'
"with space" = 1
größe = 'groß'
'b' > 'a'
JMSType = 'order' and JMSMessageID = 'ID:1' and JMSCorrelationID = '12' or JMSCorrelationID = 12
JMSPriority = 7 and JMSDeliveryMode = 'PERSISTENT' and JMSTimestamp = 1700000000000
JMSXGroupID = 'g' and JMSXGroupSeq = 3 and JMSXUserID = 'ann' and JMSXDeliveryCount = 4
JMSRedelivered and JMSDestination = 'q' and JMSReplyTo = 'r' and JMSExpiration = 9
JMSXAppID = 'app'
JMS_AMQP_NACK IS NULL
amqp.durable and amqp.priority = 7 and amqp.delivery_count = 3 and amqp.jms_type = 't'
amqp.subject = 'order' and amqp.delivery_mode = 'PERSISTENT'
"""
FALSE_OR_UNKNOWN = """
colour = 'blue'
missing = 1
missing <> 1
NOT missing = 1
missing IN (1, 2)
missing NOT IN (1, 2)
missing LIKE '%'
missing NOT LIKE 'x'
n LIKE '5'
n NOT LIKE '6'
missing BETWEEN 1 AND 2
missing NOT BETWEEN 1 AND 2
colour = 5
colour <> 5
n = TRUE
n IN (TRUE)
yes = 1
yes > no
colour > 5
data = 'bytes'
colour
n
1 + 1
1 / 0 = 1
colour like 'RED'
colour like 'r'
NOT yes
"""


@pytest.mark.parametrize("text", [line for line in TRUE.splitlines() if line])
def test_row_121_what_is_true_is_selected(text: str) -> None:
    assert selects(text) and not selects(f"NOT ({text})")


@pytest.mark.parametrize("text", [line for line in FALSE_OR_UNKNOWN.splitlines() if line])
def test_row_121_what_is_false_or_unknown_is_not_selected(text: str) -> None:
    assert not selects(text)


@pytest.mark.parametrize("text", ["", "  \n"])
def test_an_empty_selector_selects_everything(text: str) -> None:
    assert parse(JMS, text) is None


@pytest.mark.parametrize(
    "text",
    [
        "header.priority = 7 AND h.durable AND h.delivery-count = 3 AND header.ttl IS NULL",
        "properties.subject = 'order' AND p.group-id LIKE 'g%' AND p.group-sequence + 1 = 4",
        "p.message-id = 'ID:1' AND p.correlation-id = 12 AND p.user-id = 'ann'",
        "properties.creation-time >= 1700000000000 AND p.absolute-expiry-time IS NULL",
        "application-properties.colour = 'red' AND a.n % 2 = 1 AND n != 4",
        "a.a.b = 'dotted' AND \"a.with space\" = 1",
        "message-annotations.x-region = 'eu' AND m.nothing IS NULL",
        "017 = 17 AND 7 / 2 = 3.5 AND 7 % 0 IS NULL AND x % 2 IS NULL AND -7 % 3 = -1",
        "n -1 = 4",
        "n BETWEEN 1 AND 9",
    ],
)
def test_row_140_the_sql_filter_knows_sections(text: str) -> None:
    assert selects(text, SQL)


def test_what_is_beside_a_message_counts_as_it_is_now() -> None:
    message = Message(1, build("x", application_properties={"n": 1}))
    fresh = (
        "amqp.delivery_count = 0 and not JMSRedelivered and JMSPriority = 4 and JMSExpiration = 0"
    )
    assert selects(fresh + " and JMSDeliveryMode = 'NON_PERSISTENT'", message=message)
    message.delivery_count = 1
    assert selects("JMSXDeliveryCount = 2 and JMSRedelivered", message=message)
    message.annotations = build(annotations={"x-place": 5}, section=0x77)[: -len(encode(None)) - 3]
    assert selects("m.x-place = 5", SQL, message)


def test_identifiers_of_any_type_have_a_text() -> None:
    identity = Uuid(bytes(range(16)))
    message = Message(1, build("x", properties={"message_id": identity, "correlation_id": b"\xff"}))
    assert selects(f"JMSMessageID = '{identity}' and JMSCorrelationID is null", message=message)


@pytest.mark.parametrize(
    "payload", [b"", b"junk", b"\0", build("x")[:-1], b"\0\x53\x74\xc1\xff\x04\xa1\x01a"]
)
def test_a_message_that_cannot_be_read_is_not_selected_by_what_it_has_not(payload: bytes) -> None:
    assert not selects("a = 1", message=Message(1, payload))
    assert selects("TRUE", message=Message(1, payload))


def test_values_are_read_from_messages_built_in_unusual_ways() -> None:
    properties = encode(
        Described(Symbol("amqp:application-properties:map"), {"n": 1, "k" * 300: 2})
    )
    for head in (b"", build("x", properties={"subject": "s" * 300})[: -len(build("x"))]):
        message = Message(1, head + properties + build("x"))
        assert selects(f"n = 1 and {'k' * 300} = 2", message=message)
    assert not selects("n = 1", message=Message(1, build("x")))


REFUSED = [
    (JMS, "n >", 4, "ends too early"),
    (JMS, "colour = 'red", 10, "quote has no end"),
    (JMS, "n = 1 -- note", 7, "comments"),
    (JMS, "n = 1 /* note */", 7, "comments"),
    (JMS, "a = and", 5, "'and' cannot be here"),
    (JMS, "a = 1 2", 7, "an operator"),
    (JMS, "a # b", 3, "no meaning"),
    (JMS, "a != 1", 3, "no meaning"),
    (JMS, "a % 2 = 1", 3, "no meaning"),
    (JMS, "a IS 5", 6, "cannot be here"),
    (JMS, "a LIKE b", 8, "a text in ' is expected"),
    (JMS, "a LIKE 'x' ESCAPE 'ab'", 19, "one character"),
    (JMS, "a LIKE 'x' ESCAPE '%'", 19, "one character"),
    (JMS, "a LIKE 'x!' ESCAPE '!'", 8, "ends with its ESCAPE"),
    (JMS, "a IN ()", 7, "a value"),
    (JMS, "a BETWEEN 1", 12, "ends too early"),
    (JMS, "(a = 1", 7, "ends too early"),
    (JMS, "a = 089", 5, "octal"),
    (JMS, "a = 99999999999999999999", 5, "too large"),
    (JMS, "a = 1e999", 5, "too large"),
    (JMS, "b = 1 and JMSPrioritaet = 1", 11, "name JMSPrioritaet is not known"),
    (JMS, "amqp.nothing = 1", 1, "not known"),
    (JMS, "a\n= 1\nor or", 10, "cannot be here"),
    (SQL, "properties.nothing = 1", 1, "not known"),
    (SQL, "footer.a = 1", 1, "not known"),
    (SQL, "p.creation-time > UTC()", 22, "cannot be here"),
]


@pytest.mark.parametrize(("dialect", "text", "place", "why"), REFUSED)
def test_what_cannot_be_used_is_refused_with_its_place(
    dialect: Dialect, text: str, place: int, why: str
) -> None:
    with pytest.raises(InvalidArgument, match=f"at character {place}: .*{re.escape(why)}"):
        parse(dialect, text)


@pytest.mark.parametrize(
    "text",
    [
        "a" * (MAX_TEXT + 1),
        " or ".join(["a"] * MAX_PARTS),
        "a in (" + ",".join("1" * MAX_PARTS) + ")",
        "NOT " * MAX_DEPTH + "a",
        "- " * MAX_DEPTH + "a = 1",
        "(1 + " * MAX_DEPTH + "a" + ")" * MAX_DEPTH + " = 1",
        pytest.param("(" * 3000 + "a" + ")" * 3000 + " = 1", id="one in parentheses"),
        pytest.param("+".join(["(((((1)))))"] * (MAX_PARTS // 2)) + " = a", id="many in them"),
    ],
)
def test_what_is_too_large_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="characters|too large"):
        parse(JMS, text)


def test_parentheses_alone_are_not_deep() -> None:
    assert selects("(" * 900 + "n" + ")" * 900 + " = 5")


def test_a_pattern_is_matched_in_one_pass() -> None:
    """A regular expression would go back and forth over this for hours."""
    message = Message(1, build("x", application_properties={"a": "a" * 20_000}))
    assert not selects("a LIKE '%" + "a%" * 100 + "b'", message=message)
    assert selects("a LIKE '%" + "a_%" * 100 + "'", message=message)


def test_the_same_text_is_parsed_once_and_equal() -> None:
    one = parse(JMS, "n = 1")
    assert one is parse(JMS, "n = 1") and one != parse(SQL, "n = 1") and one is not None
    parse.cache_clear()
    assert one == parse(JMS, "n = 1") and hash(one) == hash(parse(JMS, "n = 1"))


def test_a_long_selector_costs_more_to_look_with() -> None:
    long, short = (parse(JMS, " or ".join(["a = 1"] * times)) for times in (100, 1))
    assert long is not None and short is not None and long.cost > 10 * short.cost == 10


# A selector as a tree, how it is written, and what it means: the oracle.

NAMES = {"s": "ab", "t": "b", "i": 3, "j": -1, "f": 0.5, "y": True, "z": False, "u": None}
LITERALS = {"'ab'": "ab", "''": "", "'a%'": "a%", "3": 3, "2": 2, "0.5": 0.5, "TRUE": True}
LEAVES = st.one_of(
    st.tuples(st.just("name"), st.sampled_from(sorted(NAMES))),
    st.tuples(st.just("literal"), st.sampled_from(sorted(LITERALS))),
)
PATTERNS = st.text("ab%_", max_size=4)


def _larger(below: Any) -> Any:
    return st.one_of(
        st.tuples(st.sampled_from(("=", "<>", "<", ">", "<=", ">=")), below, below),
        st.tuples(st.sampled_from(("+", "-", "*", "/")), below, below),
        st.tuples(st.sampled_from(("AND", "OR")), below, below),
        st.tuples(st.sampled_from(("NOT", "neg", "null", "not null")), below),
        st.tuples(st.sampled_from(("LIKE", "NOT LIKE")), below, PATTERNS),
        st.tuples(
            st.sampled_from(("IN", "NOT IN")), below, st.lists(below, min_size=1, max_size=3)
        ),
        st.tuples(st.sampled_from(("BETWEEN", "NOT BETWEEN")), below, below, below),
    )


TREES = st.recursive(LEAVES, _larger, max_leaves=12)


def written(tree: Any) -> str:
    kind, *parts = tree
    if kind in ("name", "literal"):
        return str(parts[0])
    one = written(parts[0])
    if kind in ("NOT", "neg"):
        return f"({'NOT' if kind == 'NOT' else '-'} {one})"
    if kind in ("null", "not null"):
        return f"({one} IS {kind})"
    if kind.endswith("LIKE"):
        return f"({one} {kind} '{parts[1]}')"
    if kind.endswith("IN"):
        return f"({one} {kind} ({', '.join(map(written, parts[1]))}))"
    if kind.endswith("BETWEEN"):
        return f"({one} {kind} {written(parts[1])} AND {written(parts[2])})"
    return f"({one} {kind} {written(parts[1])})"


def kind_of(value: Any) -> str:
    return {bool: "truth", str: "text"}.get(type(value), "number")


def compared(sign: str, one: Any, other: Any) -> Any:
    if one is None or other is None:
        return None
    if kind_of(one) != kind_of(other) or (kind_of(one) == "truth" and sign not in ("=", "<>")):
        return False
    below, same = one < other, one == other
    return {
        "=": same,
        "<>": not same,
        "<": below,
        ">": not (below or same),
        "<=": below or same,
        ">=": not below,
    }[sign]


def inverse(value: Any) -> Any:
    return {True: False, False: True}[value] if isinstance(value, bool) else None


def either(values: list[Any]) -> Any:
    truths = [value if isinstance(value, bool) else None for value in values]
    return True if True in truths else None if None in truths else False


def calculated(sign: str, one: Any, other: Any) -> Any:
    if one is None or other is None or {kind_of(one), kind_of(other)} != {"number"}:
        return None
    if sign == "/":
        if other == 0:
            return None
        return int(one / other) if isinstance(one, int) and isinstance(other, int) else one / other
    return {"+": one + other, "-": one - other, "*": one * other}[sign]


def meant(tree: Any) -> Any:
    kind, *parts = tree
    if kind == "name":
        return NAMES[parts[0]]
    if kind == "literal":
        return LITERALS[parts[0]]
    if kind.startswith("NOT ") and kind != "NOT BETWEEN":
        return inverse(meant((kind[4:], *parts)))
    one = meant(parts[0])
    if kind == "NOT":
        return inverse(one)
    if kind == "neg":
        return calculated("-", 0, one)
    if kind in ("null", "not null"):
        return (one is None) is (kind == "null")
    if kind == "LIKE":
        pattern = "".join({"%": ".*", "_": "."}.get(letter, letter) for letter in parts[1])
        return re.fullmatch(pattern, one) is not None if isinstance(one, str) else None
    if kind == "IN":
        return either([compared("=", one, meant(part)) for part in parts[1]])
    other = meant(parts[1])
    if kind in ("AND", "OR"):
        if kind == "OR":
            return either([one, other])
        return inverse(either([inverse(one), inverse(other)]))
    if kind.endswith("BETWEEN"):
        high = meant(parts[2])
        if kind == "BETWEEN":
            both = [compared(">=", one, other), compared("<=", one, high)]
            return inverse(either([inverse(value) for value in both]))
        return either([compared("<", one, other), compared(">", one, high)])
    if kind in ("+", "-", "*", "/"):
        return calculated(kind, one, other)
    return compared(kind, one, other)


@settings(max_examples=200, deadline=None)
@given(TREES)
def test_row_121_a_selector_means_what_the_oracle_says(tree: Any) -> None:
    properties = {name: value for name, value in NAMES.items() if value is not None}
    message = Message(1, build("x", application_properties=properties))
    text, meaning = written(tree), meant(tree)
    for asked, expected in (
        (text, meaning is True),
        (f"NOT {text}", meaning is False),
        (f"{text} IS NULL", meaning is None),
    ):
        assert selects(asked, message=message) is expected, asked


@settings(max_examples=100, deadline=None)
@given(st.text("ab'\" ()=<>-+*/%.,_0123456789eExXlLnotandrike\n", max_size=40))
def test_no_text_is_more_than_refused(text: str) -> None:
    for dialect in Dialect:
        try:
            selects(text, dialect)
        except InvalidArgument as error:
            assert "at character" in error.text or "too large" in error.text
