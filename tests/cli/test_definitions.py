"""`qpid-ha definitions`, against a broker alone."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import FakeBroker, Said
from tests.cli.test_messages import Run, address

__all__ = ["address"]


@pytest.fixture
def at(qpid_ha: Run, address: str) -> Iterator[Callable[..., Said]]:
    """Run a command on the broker, with a queue that is bound and a policy."""

    def run(*words: str) -> Said:
        return qpid_ha(*words, "-b", address)

    assert run("queue", "add", "orders", "--max-queue-count", "9").code == 0
    assert run("bind", "amq.topic", "orders", "order.#").code == 0
    assert run("policy", "set", "limit", "^o", "ttl=5000").code == 0
    yield run
    run("queue", "del", "orders")
    run("policy", "clear", "limit")


def write(path: Path, **sections: Any) -> str:
    path.write_text(json.dumps({"schema_version": 1, **sections}))
    return str(path)


def test_what_is_exported_is_unchanged_when_it_is_imported(
    at: Callable[..., Said], tmp_path: Path
) -> None:
    file = tmp_path / "all.json"
    assert at("definitions", "export", str(file)) == Said(0, "", f"3 definitions are in {file}\n")
    assert at("definitions", "export").out == file.read_text()
    said = at("definitions", "import", str(file), "-o", "json")
    found = json.loads(said.out)
    assert (said.code, found["counts"]["unchanged"], found["dry_run"]) == (0, 3, False)
    assert [(row["kind"], row["name"]) for row in found["definitions"]] == [
        ("queue", "orders"),
        ("binding", "amq.topic -> orders 'order.#'"),
        ("policy", "limit"),
    ]
    said = at("definitions", "import", str(file), "--skip-if-unchanged")
    assert said == Said(0, "", "3 unchanged\n")


def test_what_was_deleted_comes_back_and_a_dry_run_brings_nothing(
    at: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = at("definitions", "export", "-").out
    assert at("queue", "del", "orders").code == 0

    def bring_in(*words: str) -> Said:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        return at("definitions", "import", "-", *words)

    said = bring_in("--dry-run")
    assert said.code == 0 and said.out.count("created ") == 2
    assert said.err == "nothing was changed; it would be: 2 created, 1 unchanged\n"
    assert at("queue", "list", "orders").code == 1
    assert bring_in().err == "2 created, 1 unchanged\n"
    assert at("definitions", "export").out == text


def test_what_differs_or_is_refused_is_listed_and_exits_1(
    at: Callable[..., Said], tmp_path: Path
) -> None:
    file = write(
        tmp_path / "d.json",
        queues=[{"name": "orders", "arguments": {"qpid.max_count": 3}}],
        bindings=[{"exchange": "amq.direct", "queue": "none"}],
    )
    for more in ((), ("--dry-run",)):
        said = at("definitions", "import", file, *more)
        assert said.code == 1 and "qpid.max_count=9" in said.out and "1 differs" in said.err
        assert "there is no queue none" in said.out and "1 refused" in said.err


@pytest.mark.parametrize(
    ("text", "code", "told"),
    [
        (b"{", 65, "line 1, column 2: it is no JSON"),
        (b"\xff", 65, "not text in UTF-8"),
        (b'{"schema_version": 1, "queues": [{"name": "a", "nam": 1}]}', 65, "queues[0]: a queue"),
        (None, 66, "No such file"),
    ],
)
def test_a_bad_file_is_refused_and_nothing_is_done(
    at: Callable[..., Said], tmp_path: Path, text: bytes | None, code: int, told: str
) -> None:
    file = tmp_path / "bad.json"
    if text is not None:
        file.write_bytes(text)
    said = at("definitions", "import", str(file))
    assert said.code == code and told in said.err and "Try: " in said.err and not said.out


def test_a_file_that_cannot_be_written_is_told_and_a_device_is_not_replaced(
    at: Callable[..., Said], tmp_path: Path
) -> None:
    said = at("definitions", "export", str(tmp_path / "none" / "x.json"))
    assert said.code == 73 and "cannot write" in said.err
    assert at("definitions", "export", "/dev/null").code == 0
    assert Path("/dev/null").is_char_device()
    assert list(tmp_path.iterdir()) == []


LISTS = ("bindings", "exchanges", "queues", "policies", "operator_policies", "links", "routes")


def test_what_was_not_tried_is_listed_when_the_broker_goes_away(
    broker: FakeBroker, qpid_ha: Run, tmp_path: Path
) -> None:
    for name in LISTS:
        broker.answers[f"list_{name}"] = []
    broker.answers["declare_queue"] = Exception(
        {"condition": "amqp:unauthorized-access", "message": "you may not", "hint": "ask"}
    )
    file = write(tmp_path / "d.json", queues=[{"name": "q"}, {"name": "r"}])
    said = qpid_ha("definitions", "import", file, "-b", broker.socket)
    assert said.code == 1 and said.out.count("refused  queue") == 2 and "you may not" in said.out

    def gone(method: str, params: dict[str, Any]) -> dict[str, Any]:
        if method == "declare_queue":
            raise OSError("gone")
        return {"result": broker.answers[method]}

    broker.answer = gone  # type: ignore[method-assign]
    said = qpid_ha("definitions", "import", file, "-b", broker.socket)
    assert said.code == 69 and said.out.count("not tried  queue") == 2
    assert "2 not tried" in said.err


def test_a_backup_leads_to_the_primary(broker: FakeBroker, qpid_ha: Run) -> None:
    broker.answers["status"] |= {"state": "ready", "address": "127.0.0.1:1", "primary": None}
    for name in LISTS:
        broker.answers[f"list_{name}"] = []
    assert qpid_ha("definitions", "export", "-b", broker.socket).code == 0
    broker.answers["status"] |= {
        "primary": {"address": "127.0.0.1:1"},
        "brokers_url": "amqp:127.0.0.1:1",
    }
    assert qpid_ha("definitions", "export", "-b", broker.socket, "--timeout", "1").code == 0


EXPORTS = Path(__file__).parent.parent / "tools" / "exports"


def test_row_164_a_file_of_rabbitmq_is_brought_in_and_what_is_lost_is_listed(
    at: Callable[..., Said],
) -> None:
    file = str(EXPORTS / "rabbitmq-4.1.json")
    said = at("definitions", "import", "--from", "rabbitmq", file, "--dry-run")
    assert said.code == 65 and "--vhost NAME" in said.err
    words = ("definitions", "import", "--from", "rabbitmq", file, "--vhost", "shop")
    said = at(*words, "--dry-run")
    assert said.code == 1 and "left out  exchange near" in said.out
    assert "left out" in said.err and "nothing was changed; it would be: " in said.err
    assert "x-single-active-consumer" not in said.out
    assert "x-single-active-consumer" in at(*words, "--dry-run", "-v").out
    found = json.loads(at(*words, "--dry-run", "-o", "json").out)
    assert {row["verdict"] for row in found["translation"]} == {
        "kept",
        "mapped",
        "ignored",
        "left out",
    }


def test_what_qpid_config_printed_is_brought_in(at: Callable[..., Said], tmp_path: Path) -> None:
    file = tmp_path / "commands"
    # With the mark that some editors put before a text.
    file.write_text("\ufeffqpid-config add queue made --max-queue-count=5\n")
    said = at("definitions", "import", str(file), "--from", "qpid")
    assert (said.code, said.err) == (0, "of the file: 1 kept\n1 created\n")
    assert at("queue", "del", "made").code == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [(("--from", "kafka"), "'kafka' is not known"), (("--vhost", "/"), "files of RabbitMQ")],
)
def test_wrong_words_are_told(at: Callable[..., Said], words: tuple[str, ...], told: str) -> None:
    said = at("definitions", "import", "x", *words)
    assert said.code == 2 and told in said.err
