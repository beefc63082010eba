"""Messages become rows and rows messages: nothing legal is refused, ids and text survive both ways,
and wrong rows say what is wrong.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from random import Random
from typing import Any

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from qpidha.connector import columns, options
from qpidha.connector.columns import (
    BY_NAME,
    COLUMNS,
    SCHEMA,
    check_written,
    digest,
    message_of,
    read_schema,
    record_batch,
    row_of,
    rows,
)
from qpidha.model.encoding import Described, Symbol, Timestamp, UByte, ULong, Uuid, encode, sections
from qpidha.model.errors import InvalidArgument
from qpidha.model.message_view import SEQUENCE, VALUE, build, departure
from qpidha.model.message_view import body as body_of
from qpidha.model.message_view import properties as properties_of
from tests.fidelity import raw_types
from tests.model.test_encoding import VALUES

DOCUMENT = Path(__file__).parents[2] / "docs" / "connector.md"
ARROW = read_schema(SCHEMA)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
ASCII = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=20)
TIMES = st.integers(columns.FIRST_MS, columns.LAST_MS)
IDS = st.one_of(
    TEXTS,
    ASCII.map("AMQP_STRING:{}".format),
    ASCII.map("AMQP_ULONG:{}".format),
    st.integers(0, 2**64 - 1).map(ULong),
    st.binary(max_size=20),
    st.binary(min_size=16, max_size=16).map(Uuid),
)


@given(VALUES)
def test_every_value_has_a_text_and_a_place_as_body_property_and_annotation(value: Any) -> None:
    payload = build(
        value,
        application_properties={"a": value},
        annotations={"b": value},
        properties={"to": value, "subject": value},
    )
    batch = record_batch(ARROW, "q", [payload])
    (row,) = batch.to_pylist()
    assert row["body_type"] == {str: "text", bytes: "data"}.get(type(value), "value")
    if row["body_type"] == "value":
        assert json.loads(row["body"]) == json.loads(json.dumps(columns.plain(value)))
    assert dict(row["properties"]).keys() == {"a"} and dict(row["annotations"]).keys() == {"b"}


@pytest.mark.parametrize("seed", range(4))
def test_no_message_is_refused_in_whatever_encoding_it_comes(seed: int) -> None:
    random = Random(seed)
    payloads = [raw_types.make_message(random, number) for number in range(250)]
    batch = record_batch(ARROW, "q", payloads)
    assert batch.num_rows == 250 and batch.schema == ARROW
    kinds = set(batch.column("body_type").to_pylist())
    assert {"data", "text", "value", "sequence"} <= kinds
    for row, payload in zip(batch.to_pylist(), payloads, strict=True):
        if row["body_type"] == "message":
            assert row["body"] == payload


@given(st.binary(max_size=60))
def test_what_is_no_message_is_a_row_with_all_its_bytes(payload: bytes) -> None:
    row = row_of("q", payload)
    assert row["body_type"] in columns.BODY_TYPES and row.keys() == BY_NAME.keys()
    record_batch(ARROW, "q", [payload])


def test_a_map_that_python_cannot_hold_is_a_message_as_it_came() -> None:
    payload = (
        bytes.fromhex("005377") + bytes.fromhex("c1") + bytes([3, 2]) + b"\x45\x41"
    )  # {[]: true}
    row = row_of("q", payload)
    assert row["body_type"] == "message" and row["body"] == payload
    assert message_of({"body": payload, "body_type": "message"}, "x") == payload


@given(IDS, IDS)
def test_ids_are_written_back_as_what_they_were(message_id: Any, correlation_id: Any) -> None:
    given_ = build(b"", properties={"message_id": message_id, "correlation_id": correlation_id})
    row = row_of("q", given_)
    found = properties_of(
        message_of({name: row[name] for name in ("message_id", "correlation_id")}, "x")
    )
    assert (found["message_id"], found["correlation_id"]) == (message_id, correlation_id)
    assert (type(found["message_id"]), type(found["correlation_id"])) == (
        type(message_id),
        type(correlation_id),
    )


ROWS = st.fixed_dictionaries(
    {"body": st.binary(max_size=300)},
    optional={
        **dict.fromkeys(
            (
                "message_id",
                "correlation_id",
                "to",
                "subject",
                "reply_to",
                "group_id",
                "reply_to_group_id",
            ),
            TEXTS,
        ),
        "content_type": ASCII,
        "content_encoding": ASCII,
        "user_id": st.binary(max_size=10),
        "durable": st.booleans(),
        "priority": st.integers(0, 255),
        "ttl_ms": st.integers(0, 2**32 - 1),
        "group_sequence": st.integers(0, 2**32 - 1),
        "creation_time": TIMES,
        "absolute_expiry_time": TIMES,
        "properties": st.dictionaries(TEXTS, TEXTS, max_size=3).map(dict.items),
    },
)


@given(ROWS)
def test_a_row_is_read_as_it_was_written(row: dict[str, Any]) -> None:
    read = row_of("q", message_of(row, "made"))
    expected = {
        "durable": True,
        "priority": 4,
        "properties": [],
        **row,
        "message_id": row.get("message_id", "made"),
    }
    for name in ("creation_time", "absolute_expiry_time"):
        if name in expected:
            expected[name] *= 1000
    expected["properties"] = list(expected["properties"])
    assert {name: read[name] for name in expected} == expected
    assert all(
        read[name] is None
        for name in BY_NAME
        if name not in expected and name not in columns._EMPTY
    )


@given(
    st.lists(
        st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), TEXTS), max_size=4
    )
)
def test_json_bodies_are_read_as_they_were_written(items: list[Any]) -> None:
    for kind in ("value", "sequence"):
        row = row_of("q", message_of({"body_type": kind, "body": json.dumps(items)}, "x"))
        assert (row["body_type"], json.loads(row["body"])) == (kind, items)
    several = b"".join(encode(Described(ULong(SEQUENCE), [item])) for item in items) or build(
        [], section=SEQUENCE
    )
    assert json.loads(row_of("q", several)["body"]) == items


def test_a_text_is_a_string_for_other_clients() -> None:
    assert body_of(message_of({"body_type": "text", "body": "grüße"}, "x")) == "grüße"
    assert body_of(message_of({"body": "grüße"}, "x")) == "grüße".encode()
    as_value = message_of({"body_type": "binary", "body": b"\xff"}, "x")
    assert body_of(as_value) == b"\xff" and sections(as_value)[-1][0] == VALUE
    assert (row_of("q", as_value)["body_type"], row_of("q", as_value)["body"]) == (
        "binary",
        b"\xff",
    )


def test_a_delivery_that_failed_says_so_and_is_the_same_message() -> None:
    payload = build(
        "a", header={"durable": True, "priority": UByte(200)}, properties={"message_id": "1"}
    )
    again = departure(payload, 2, b"")
    row = row_of("q", again)
    assert (row["delivery_count"], row["first_acquirer"], row["durable"], row["priority"]) == (
        2,
        False,
        True,
        200,
    )
    assert again != payload and digest(again) == digest(payload) != digest(
        build("b", properties={"message_id": "1"})
    )


def test_times_outside_of_what_spark_can_show_are_absent() -> None:
    for time in (columns.FIRST_MS - 1, columns.LAST_MS + 1, -(2**63), 2**63 - 1):
        assert (
            row_of("q", build(b"", properties={"creation_time": Timestamp(time)}))["creation_time"]
            is None
        )
    assert (
        row_of("q", build(b"", properties={"creation_time": Timestamp(1)}))["creation_time"] == 1000
    )


def test_rows_of_a_batch_lose_what_is_null_and_times_are_milliseconds() -> None:
    schema = pyarrow.schema(
        [
            ("body", pyarrow.string()),
            ("subject", pyarrow.string()),
            ("creation_time", pyarrow.timestamp("us", "UTC")),
        ]
    )
    batch = pyarrow.RecordBatch.from_arrays(
        [
            pyarrow.array(values, kind.type)
            for values, kind in zip((["a", "b"], [None, "s"], [1_999, None]), schema, strict=True)
        ],
        schema=schema,
    )
    assert list(rows(batch)) == [{"body": "a", "creation_time": 1}, {"body": "b", "subject": "s"}]


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"body": IntegerType()}, "column body is int, must be binary or string"),
        (
            {"body": StringType(), "properties": StringType()},
            "column properties is string, must be map<string,string>",
        ),
        (
            {"body": StringType(), "properties": MapType(StringType(), LongType())},
            "column properties is map<string,bigint>, must be map<",
        ),
        (
            {"body": StringType(), "priority": StringType()},
            "column priority is string, must be tinyint or smallint or int or bigint",
        ),
        (
            {"body": StringType(), "creation_time": LongType()},
            "column creation_time is bigint, must be timestamp",
        ),
        (
            {"body": StringType(), "delivery_count": LongType()},
            "column delivery_count is the broker's to say: drop it",
        ),
        (
            {"body": StringType(), "Subject": StringType()},
            "column Subject is unknown: a message has queue, message_id",
        ),
        ({"subject": StringType()}, "column body is missing"),
    ],
)
def test_columns_that_no_message_has_are_named(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidArgument, match=re.escape(says)):
        check_written(
            StructType([StructField(name, kind) for name, kind in fields.items()]), has_queue=True
        )


def test_rows_need_to_go_somewhere() -> None:
    schema = StructType([StructField("body", StringType())])
    check_written(schema, has_queue=True)
    check_written(
        schema.add("queue", StringType()).add("creation_time", TimestampType()), has_queue=False
    )
    with pytest.raises(InvalidArgument, match="give option queue, or a column queue"):
        check_written(StructType([StructField("body", StringType())]), has_queue=False)


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"priority": 256}, "column priority is 256, must be from 0 to 255"),
        ({"ttl_ms": -1}, "column ttl_ms is -1, must be from 0 to"),
        ({"group_sequence": 2**32}, "column group_sequence is 4294967296"),
        ({"content_type": "ü"}, "column content_type is 'ü', must be ASCII"),
        (
            {"body_type": "json"},
            "column body_type is 'json', must be one of data, text, binary, value, "
            "sequence, message",
        ),
        ({"body_type": "text", "body": b"\xff"}, "column body_type is text, and body is not that"),
        ({"body_type": "value", "body": "{"}, "column body_type is value, and body is not that"),
        (
            {"body_type": "value", "body": str(2**64)},
            "column body_type is value, and body is not that",
        ),
        ({"body_type": "sequence", "body": "1"}, "body is not a JSON array"),
        ({"body_type": "message", "body": "1"}, "body is no encoded AMQP message"),
    ],
)
def test_values_that_no_message_has_are_named(row: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidArgument, match=re.escape(says)):
        message_of({"body": b"", **row}, "x")


def test_some_columns_in_any_order_may_be_asked_for() -> None:
    schema = read_schema(StructType([SCHEMA["body"], SCHEMA["message_id"]]))
    assert record_batch(
        schema, "q", [build("a", properties={"message_id": Symbol("i")})]
    ).to_pylist() == [{"body": b"a", "message_id": "i"}]
    for fields, says in (
        ({"id": StringType()}, "column id is unknown"),
        ({"body": StringType()}, "column body is string in the schema"),
    ):
        with pytest.raises(InvalidArgument, match=says):
            read_schema(StructType([StructField(name, kind) for name, kind in fields.items()]))


def test_tables_in_the_documentation_are_those_of_the_code() -> None:
    text = DOCUMENT.read_text()
    assert columns.documentation() in text and options.documentation() in text
    assert all(f"`{column.name}`" in text for column in COLUMNS)
