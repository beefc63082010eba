"""Options: names in any case, and one sentence that names the option for everything that is
wrong.
"""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import StructType

from qpidha.client.endpoint import Endpoint
from qpidha.connector.columns import SCHEMA
from qpidha.connector.options import parse_options
from qpidha.connector.source import QueueSource
from qpidha.model.errors import InvalidArgument

GOOD = {"url": "a:1,b", "queue": "q"}


def test_options_are_read_in_any_case_and_have_defaults() -> None:
    found = parse_options(
        {
            "URL": "amqp://a:1, b,[::1]:7",
            "Queue": " q , r ",
            "ROWSPERBATCH": "5",
            "timeout": "0.5",
            "mode": "consume",
        }
    )
    assert found.addresses == ("a:1", "b:5672", "[::1]:7") and not found.encrypted
    assert (found.queues, found.rows_per_batch, found.timeout, found.mode, found.prefetch) == (
        ("q", "r"),
        5,
        0.5,
        "consume",
        1000,
    )
    assert found.given == {"url", "queue", "rowsPerBatch", "timeout", "mode"}
    assert parse_options({"url": "amqps://a,amqps://b:1"}).addresses == ("a:5671", "b:1")


def test_what_spark_adds_is_let_pass() -> None:
    keys = ("path", "checkpointLocation", "queryName", "asyncProgressTrackingEnabled")
    assert parse_options({**GOOD, **dict.fromkeys(keys, "false")}) == parse_options(GOOD)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"url": ""}, "option url is missing"),
        ({"url": "a:b:c"}, "option url: a:b:c is not an address"),
        ({"url": "a,,b"}, "option url: an address is empty"),
        ({"url": "a:70000"}, "option url: port 70000"),
        (
            {"url": "http://a"},
            "option url: http://a begins with http://, must be amqp:// or amqps://",
        ),
        ({"url": "amqp://a,amqps://b"}, "option url mixes"),
        ({"url": "amqp://me:secret@a"}, "option url has a user or a password in it"),
        ({"queue": "q,,r"}, "option queue is 'q,,r'"),
        ({"mode": "peek"}, "option mode is 'peek', must be browse or consume"),
        ({"password": "secret"}, "option password is refused"),
        ({"passwordFile": "/x"}, "option passwordFile is given without username"),
        ({"tlsCa": "/x"}, "option tlsCa is given, but the addresses of url are not amqps://"),
        ({"prefetch": "0"}, "option prefetch is '0', must be a whole number from 1 to 1000000"),
        ({"rowsPerBatch": "many"}, "option rowsPerBatch is 'many'"),
        ({"partitions": "1.5"}, "option partitions is '1.5'"),
        ({"timeout": "nan"}, "option timeout is 'nan', must be seconds from 0.1 to 86400"),
        ({"row_per_batch": "5"}, "option row_per_batch is unknown: did you mean rowsPerBatch?"),
        ({"zzz": "5"}, "option zzz is unknown: there are url, queue, mode"),
        (
            {"asyncProgressTrackingEnabled": "true"},
            "option asyncProgressTrackingEnabled is refused",
        ),
    ],
)
def test_what_is_wrong_is_named_and_no_secret_is(wrong: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidArgument, match=re.escape(says)) as error:
        QueueSource(CaseInsensitiveDict({**GOOD, **wrong}))
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "call", "says"),
    [
        ({"queue": ""}, "reader", "option queue is missing"),
        ({"partitions": "2"}, "reader", "option partitions is for mode=consume"),
        ({"queue": "a,b"}, "streamReader", "a stream reads one"),
        ({"mode": "browse"}, "streamReader", "a stream always consumes"),
        ({"mode": "consume"}, "writer", "option mode is for reading"),
        ({"rowsPerBatch": "1"}, "streamWriter", "option rowsPerBatch is for reading"),
        ({"queue": "a,b"}, "writer", "a row goes to one"),
    ],
)
def test_what_does_not_fit_the_use_is_named(options: dict[str, str], call: str, says: str) -> None:
    source = QueueSource({**GOOD, **options})
    written = StructType([SCHEMA["body"]])
    with pytest.raises(InvalidArgument, match=re.escape(says)):
        getattr(source, call)(*((written, False) if "riter" in call else (SCHEMA,)))


@pytest.mark.parametrize("call", ["writer", "streamWriter"])
def test_a_queue_is_not_overwritten(call: str) -> None:
    with pytest.raises(InvalidArgument, match="a queue cannot be overwritten"):
        getattr(QueueSource(GOOD), call)(StructType([SCHEMA["body"]]), True)


def test_everything_that_spark_sends_to_workers_can_be_pickled_and_connects_to_nobody() -> None:
    source = QueueSource(GOOD)
    written = StructType([SCHEMA["body"]])
    for one in (
        source,
        source.reader(SCHEMA),
        source.streamReader(SCHEMA),
        source.writer(written, False),
        source.streamWriter(written, False),
    ):
        assert type(pickle.loads(pickle.dumps(one))) is type(one)
    reader = source.streamReader(SCHEMA)
    assert (
        reader.initialOffset() == {"v": 1, "n": 0}
        and len(reader.partitions({"v": 1, "n": 0}, {"v": 1, "n": 9})) == 1
    )
    with pytest.raises(InvalidArgument, match="not version 1 of this source"):
        reader.partitions({"v": 2, "n": 0}, {"v": 2, "n": 9})


def test_a_password_comes_from_a_file_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("QPIDHA_PASSWORD", raising=False)
    named = parse_options({**GOOD, "username": "me"})
    with pytest.raises(InvalidArgument, match="without a password"):
        named.endpoints()
    monkeypatch.setenv("QPIDHA_PASSWORD", "from the environment")
    assert [end.password for end in named.endpoints()] == ["from the environment"] * 2
    file = tmp_path / "password"
    file.write_text("from a file\n")
    with_file = parse_options({**GOOD, "username": "me", "passwordFile": str(file)})
    assert with_file.endpoints()[0].password == "from a file"
    assert "from a file" not in repr(with_file) + repr(with_file.endpoints())
    file.unlink()
    with pytest.raises(InvalidArgument, match="option passwordFile: .* cannot be read here"):
        with_file.endpoints()


def test_addresses_are_where_brokers_are_and_whether_they_speak_tls() -> None:
    plain = parse_options({**GOOD, "url": "a:1,[::1]:7"}).endpoints()
    assert plain == [Endpoint("a", 1), Endpoint("::1", 7)]
    encrypted = parse_options({**GOOD, "url": "amqps://a,amqps://b:1"}).endpoints()
    assert encrypted == [Endpoint("a", 5671, tls=True), Endpoint("b", 1, tls=True)]
