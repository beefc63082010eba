"""The historic calls, their output and exit codes; and errors that say what to do."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from qpidha.cli.app import COMMANDS, GROUPS, _app
from qpidha.client.command.target import addresses
from qpidha.management.methods import METHODS, find, reference
from qpidha.model import exit_codes
from tests.cli.conftest import FakeBroker, Said

Run = Callable[..., Said]


def test_ping_prints_nothing_and_succeeds(broker: FakeBroker, qpid_ha: Run) -> None:
    assert qpid_ha("ping", "-b", broker.socket) == Said(0, "", "")


@pytest.mark.parametrize("order", [("-b", "{}", "status"), ("status", "-b", "{}")])
def test_status_prints_the_state_in_one_line(
    broker: FakeBroker, qpid_ha: Run, order: tuple[str, ...]
) -> None:
    assert qpid_ha(*(word.format(broker.socket) for word in order)) == Said(0, "active\n", "")


@pytest.mark.parametrize(
    ("state", "code"), [("active", 0), ("recovering", 0), ("ready", 1), ("standalone", 1)]
)
def test_is_primary_says_nothing_and_answers_by_its_exit_code(
    broker: FakeBroker, qpid_ha: Run, state: str, code: int
) -> None:
    broker.answers["status"]["state"] = state
    assert qpid_ha("-b", broker.socket, "status", "--is-primary") == Said(code, "", "")


@pytest.mark.parametrize(
    ("expected", "code"), [("active", 0), ("ready", 1), ("primary", 0), ("backup", 1)]
)
def test_qpid_12_expect_says_nothing_and_compares_exactly(
    broker: FakeBroker, qpid_ha: Run, expected: str, code: int
) -> None:
    assert qpid_ha("status", "--expect", expected, "-b", broker.socket) == Said(code, "", "")


def test_is_primary_wins_over_expect(broker: FakeBroker, qpid_ha: Run) -> None:
    assert qpid_ha("status", "--expect", "ready", "--is-primary", "-b", broker.socket).code == 0


def test_query_prints_labels_of_twenty_columns(broker: FakeBroker, qpid_ha: Run) -> None:
    said = qpid_ha("query", "-b", broker.socket)
    assert said.out.splitlines() == [
        "Status:              active",
        "Broker ID:           11111111-1111-1111-1111-111111111111",
        "Brokers URL:         amqp:127.0.0.1:5672",
        "Public URL:          amqp:10.0.0.9:5672",
        "Replicate:           all",
    ]


@pytest.mark.parametrize(
    "command",
    [
        ("status",),
        ("status", "--all"),
        ("query",),
        ("query", "--all"),
        ("list",),
        ("queue", "list"),
        ("exchange", "list"),
    ],
)
def test_reading_commands_give_json(
    broker: FakeBroker, qpid_ha: Run, command: tuple[str, ...]
) -> None:
    broker.answers["list_queues"] = [{"name": "q", "messages": 3}]
    broker.answers["list_exchanges"] = [{"name": "amq.topic", "type": "topic"}]
    said = qpid_ha(*command, "-o", "json", "-b", broker.socket)
    assert said.code == 0 and json.loads(said.out)["schema_version"] == 1


def test_status_all_names_each_address(broker: FakeBroker, qpid_ha: Run) -> None:
    broker.answers["status"]["brokers_url"] = "amqp:127.0.0.1:5672,127.0.0.1:1"
    said = qpid_ha("status", "--all", "-b", broker.socket)
    first, second = said.out.splitlines()
    assert said.code == 0 and first == "127.0.0.1:5672 active" and second.startswith("127.0.0.1:1 ")


def test_qpid_19_all_brokers_are_asked_though_the_first_is_down(
    broker: FakeBroker, qpid_ha: Run, tmp_path: Path
) -> None:
    config = tmp_path / "qpidd.conf"
    config.write_text("ha-brokers-url=amqp:127.0.0.1:1,127.0.0.1:2\nport=1\n")
    said = qpid_ha("status", "--all", "--config", str(config))
    assert [line.split()[0] for line in said.out.splitlines()] == ["127.0.0.1:1", "127.0.0.1:2"]
    assert said.code == 69, "none of them could be asked"
    for words in (("status", "--all", "-o", "json"), ("query", "--all")):
        assert qpid_ha(*words, "--config", str(config)).code == 69
    said = qpid_ha("list", "--config", str(config))
    assert said.code == 69 and said.out == ""


def test_a_tls_address_of_the_brokers_url_stays_one() -> None:
    assert addresses("amqp:ssl:b1:5671,tcp:b2:5672,b3") == ["ssl:b1:5671", "b2:5672", "b3:5672"]
    assert addresses("amqps:b1,b2:1") == ["ssl:b1:5671", "ssl:b2:1"]


def test_a_broker_that_is_not_there_is_69_with_nothing_on_stdout(qpid_ha: Run) -> None:
    said = qpid_ha("status", "-b", "/nowhere/admin.sock")
    assert said.code == 69 and said.out == "" and "Try:" in said.err


def test_errors_are_json_too_when_asked(qpid_ha: Run) -> None:
    said = qpid_ha("status", "-o", "json", "-b", "/nowhere/admin.sock")
    assert said.out == "" and json.loads(said.err)["error"]["code"] == 69


def test_a_refusal_names_reason_and_next_step(broker: FakeBroker, qpid_ha: Run) -> None:
    broker.answers["promote"] = Exception(
        {"condition": "amqp:not-allowed", "message": "b1 is catching up", "hint": "wait"}
    )
    said = qpid_ha("promote", "--cluster-manager", "-b", broker.socket)
    assert said.code == 1 and said.err == "error: b1 is catching up. Try: wait\n"


def test_a_refusal_has_the_code_that_the_broker_gave(broker: FakeBroker, qpid_ha: Run) -> None:
    told = {"condition": "amqp:not-allowed", "message": "no", "hint": "", "event_code": "QHA2104"}
    broker.answers["promote"] = Exception(told)
    words = ("promote", "--cluster-manager", "-b", broker.socket)
    assert qpid_ha(*words).err == "error: no [QHA2104]\n"
    error = json.loads(qpid_ha(*words, "-o", "json").err)["error"]
    assert (error["code"], error["event_code"]) == (1, "QHA2104")


def test_not_permitted_is_77(broker: FakeBroker, qpid_ha: Run) -> None:
    broker.answers["status"] = Exception(
        {"condition": "amqp:unauthorized-access", "message": "no", "hint": ""}
    )
    assert qpid_ha("status", "-b", broker.socket).code == 77


def test_promote_needs_the_flag_of_a_cluster_manager(broker: FakeBroker, qpid_ha: Run) -> None:
    said = qpid_ha("promote", "-b", broker.socket)
    assert (
        said.code == 1
        and len(said.err.splitlines()) == 3
        and "--cluster-manager" in said.err
        and not broker.asked
    )
    assert qpid_ha("--cluster-manager", "promote", "-b", broker.socket).code == 0
    assert broker.asked == [("promote", {})]


def test_promote_is_shown_only_to_cluster_managers(qpid_ha: Run) -> None:
    assert "\n  promote " not in qpid_ha("help").out
    assert "\n  promote " in qpid_ha("help", "--cluster-manager").out


@pytest.mark.parametrize(
    ("line", "near"),
    [
        ("stauts", "status"),
        ("--brokr x ping", "--broker"),
        ("queue ad q", "add"),
        ("local up --brokrs 3", "--brokers"),
        ("status --al", "--all"),
    ],
)
def test_a_misspelt_word_is_answered_with_the_nearest(qpid_ha: Run, line: str, near: str) -> None:
    said = qpid_ha(*line.split())
    assert said.code == 2 and near in said.err and said.out == ""


def test_no_command_is_a_usage_error(qpid_ha: Run) -> None:
    said = qpid_ha()
    assert said.code == 2 and said.out == "" and "usage:" in said.err


def test_an_unknown_state_is_a_usage_error(broker: FakeBroker, qpid_ha: Run) -> None:
    assert qpid_ha("status", "--expect", "redy", "-b", broker.socket).code == 2


@pytest.mark.parametrize(
    ("condition", "code"),
    [
        ("state=active", 0),
        ("role=primary", 0),
        ("ready=1", 0),
        ("synced", 0),
        ("state=ready", 75),
        ("ready=2", 75),
        ("state=x", 2),
        ("nothing", 2),
    ],
)
def test_rabbitmq_d1_wait_succeeds_when_the_condition_holds_and_times_out_otherwise(
    broker: FakeBroker, qpid_ha: Run, condition: str, code: int
) -> None:
    assert (
        qpid_ha("wait", "--for", condition, "--timeout", "10ms", "-b", broker.socket).code == code
    )


@pytest.mark.parametrize("missing", ["connected", "in_sync"])
@pytest.mark.parametrize("condition", ["ready=1", "synced"])
def test_rabbitmq_d1_a_backup_that_was_ready_when_it_was_lost_is_waited_for(
    broker: FakeBroker, qpid_ha: Run, condition: str, missing: str
) -> None:
    primary, backup = broker.answers["status"]["members"]
    lost = {**backup, missing: False}
    broker.answers["status"] |= {"members": [primary, lost]}
    said = qpid_ha("wait", "--for", condition, "--timeout", "10ms", "-b", broker.socket)
    assert said.code == 75


def test_objects_are_changed_with_the_flags_of_qpid_config(
    broker: FakeBroker, qpid_ha: Run
) -> None:
    at = ("-b", broker.socket)
    assert (
        qpid_ha(
            "queue",
            "add",
            "q",
            "--replicate",
            "all",
            "--max-queue-count",
            "5",
            "--limit-policy",
            "ring",
            "--argument",
            "x=1",
            *at,
        ).code
        == 0
    )
    assert qpid_ha("queue", "del", "q", "--force-if-not-empty", *at).code == 0
    assert (
        qpid_ha("exchange", "add", "topic", "t", "--alternate-exchange", "amq.fanout", *at).code
        == 0
    )
    assert qpid_ha("bind", "amq.match", "q", "k", "all", "colour=red", *at).code == 0
    assert qpid_ha("unbind", "amq.match", "q", "k", *at).code == 0
    arguments = {"qpid.replicate": "all", "qpid.max_count": 5, "qpid.policy_type": "ring", "x": 1}
    assert broker.asked == [
        ("declare_queue", {"name": "q", "durable": False, "arguments": arguments}),
        ("delete_queue", {"name": "q", "if_unused": True, "if_empty": False}),
        (
            "declare_exchange",
            {
                "name": "t",
                "type": "topic",
                "durable": False,
                "arguments": {},
                "alternate": "amq.fanout",
            },
        ),
        (
            "bind",
            {
                "exchange": "amq.match",
                "queue": "q",
                "key": "k",
                "arguments": {"x-match": "all", "colour": "red"},
            },
        ),
        ("unbind", {"exchange": "amq.match", "queue": "q", "key": "k"}),
    ]


@pytest.mark.parametrize(
    "line", ["queue add q --replicate some", "bind e q k some a=b", "queue add q --argument x"]
)
def test_wrong_values_are_found_before_anything_is_asked(
    broker: FakeBroker, qpid_ha: Run, line: str
) -> None:
    assert qpid_ha(*line.split(), "-b", broker.socket).code == 2 and not broker.asked


def test_first_use_m28_a_list_that_matches_nothing_is_1(broker: FakeBroker, qpid_ha: Run) -> None:
    broker.answers["list_queues"] = []
    said = qpid_ha("queue", "list", "zzz", "-b", broker.socket)
    assert said.code == 1 and said.err == "no queues with 'zzz' in their names\n"
    assert broker.asked == [("list_queues", {"match": "zzz"})]
    said = qpid_ha("queue", "list", "-b", broker.socket)
    assert said.code == 0 and said.err == "no queues\n"


def test_local_commands_say_so_when_no_cluster_runs(broker: FakeBroker, qpid_ha: Run) -> None:
    for command in ("status", "kill b1", "down"):
        said = qpid_ha("local", *command.split())
        assert said.code == 69 and "local up" in said.err


def test_the_hot_calls_load_neither_typer_nor_proton_nor_asyncio(broker: FakeBroker) -> None:
    script = (
        "import sys; from qpidha.cli.main import main; code = main(sys.argv[1:]);"
        "print(code, [name for name in ('typer', 'click', 'asyncio', 'cproton_ffi', "
        "'ssl') if name in sys.modules])"
    )
    for command in (["status", "--is-primary"], ["ping"], ["status", "--expect", "active"]):
        done = subprocess.run(
            [sys.executable, "-c", script, *command, "-b", broker.socket],
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout == "0 []\n"


def test_version_is_an_option_too(qpid_ha: Run) -> None:
    assert qpid_ha("--version") == qpid_ha("version") and qpid_ha("--version").code == 0


def test_first_use_m25_help_has_every_exit_code(qpid_ha: Run) -> None:
    named = {int(word) for word in re.findall(r"\d+", qpid_ha("help").out.partition("codes: ")[2])}
    assert named == {value for value in vars(exit_codes).values() if isinstance(value, int)}


def test_every_command_has_help(qpid_ha: Run) -> None:
    said = qpid_ha("help-all", "--cluster-manager")
    assert said.code == 0
    for name in ("ping", "wait", "local", "demo", "bench", "send", "receive", "queue", "promote"):
        assert f"Usage: qpid-ha {name}" in said.out


def test_help_all_explains_the_commands_of_groups_too(qpid_ha: Run) -> None:
    said = qpid_ha("help-all")
    for group in GROUPS:
        of_group: Any = get_command(_app([COMMANDS[group][0]]))
        for name in of_group.commands[group].commands:
            assert f"Usage: qpid-ha {group} {name} " in said.out


@pytest.mark.parametrize("words", [["help-all"], ["list"], ["queue", "list"]])
def test_a_reader_that_has_enough_is_no_error(broker: FakeBroker, words: list[str]) -> None:
    at = [] if words == ["help-all"] else ["-b", broker.socket]
    command = [sys.executable, "-m", "qpidha.cli.main", *words, *at]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


def test_a_member_that_has_to_catch_up_is_behind_and_not_in_sync(
    broker: FakeBroker, qpid_ha: Run
) -> None:
    broker.answers["status"]["state"] = "joining"
    assert "behind" in qpid_ha("list", "-b", broker.socket).out
    found = json.loads(qpid_ha("list", "-b", broker.socket, "-o", "json").out)
    assert found["brokers"][0]["in_sync"] is False
    broker.answers["status"]["state"] = "ready"
    assert (
        json.loads(qpid_ha("list", "-b", broker.socket, "-o", "json").out)["brokers"][0]["in_sync"]
        is True
    )


def test_first_use_m13_a_standalone_broker_is_in_no_cluster_and_not_out_of_sync(
    broker: FakeBroker, qpid_ha: Run
) -> None:
    broker.answers["status"] |= {"state": "standalone", "in_sync": None, "members": []}
    head, _, row = qpid_ha("list", "-b", broker.socket).out.splitlines()
    assert head == "b1 is in no cluster" and row.split()[-3:-1] != ["no", "-"]
    assert "no primary" not in head and row.split()[5] == "-"


@pytest.mark.parametrize(
    ("seconds", "shown"), [(5, r"\d+s"), (200, "3m"), (7300, "2h"), (7_776_000, "90d")]
)
def test_first_use_m12_times_are_told_in_units_that_one_reads(
    broker: FakeBroker, qpid_ha: Run, seconds: int, shown: str
) -> None:
    broker.answers["status"]["since_ns"] = time.time_ns() - seconds * 10**9
    row = qpid_ha("list", "-b", broker.socket).out.splitlines()[-1]
    assert re.search(rf" {shown} ago$", row)


def test_first_use_m9_a_local_cluster_that_was_stopped_is_meant_by_nobody(
    qpid_ha: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broker = {"name": "b1", "address": "127.0.0.1:31090", "admin_socket": str(tmp_path / "gone")}
    (tmp_path / "cluster.json").write_text(json.dumps({"brokers": [broker]}))
    monkeypatch.setenv("QPIDHA_DIR", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr("os.getuid", lambda: 1000)  # root's daemons of this machine are not ours
    for command in ("list", "status", "switchover", "failover"):
        said = qpid_ha(command, "--timeout", "1")
        assert said.code == 69 and "localhost:5672" in said.err and "31090" not in said.err


def test_a_recovering_primary_says_whom_it_waits_for(broker: FakeBroker, qpid_ha: Run) -> None:
    members = [{"system_id": "2222", "address": "127.0.0.1:27302", "state": "unknown"}]
    broker.answers["status"] |= {
        "state": "recovering",
        "expected": ["2222"],
        "leaving": [],
        "members": members,
    }
    assert "recovering: waits for 127.0.0.1:27302\n" in qpid_ha("list", "-b", broker.socket).out
    assert json.loads(qpid_ha("list", "-b", broker.socket, "-o", "json").out)["waits_for"] == [
        "127.0.0.1:27302"
    ]


def test_a_standalone_broker_is_not_promoted(broker: FakeBroker, qpid_ha: Run) -> None:
    broker.answers["promote"] = {"state": "standalone"}
    said = qpid_ha("promote", "--cluster-manager", "-b", broker.socket)
    assert said.code == 1 and "not in a cluster" in said.err and "ha-cluster=yes" in said.err


# -- methods --------------------------------------------------------------------------------------


def test_methods_lists_what_a_broker_offers(broker: FakeBroker, qpid_ha: Run) -> None:
    broker.answers["help"] = [reference(method) for method in METHODS]
    said = qpid_ha("methods", "-b", broker.socket)
    heads, *rows = said.out.splitlines()
    assert heads.split() == ["NAME", "EFFECT", "ACCESS", "HELP"]
    assert [row.split()[0] for row in rows] == [method.name for method in METHODS]
    assert all(row.endswith(method.help) for row, method in zip(rows, METHODS, strict=True))
    assert broker.asked == [("help", {})]


def test_methods_explains_one(broker: FakeBroker, qpid_ha: Run) -> None:
    broker.answers["help"] = [reference(find("purge_queue"))]
    said = qpid_ha("methods", "purge_queue", "-b", broker.socket)
    assert said.code == 0
    assert said.out.splitlines() == [
        "purge_queue: Remove the available messages of a queue.",
        "  effect:          change",
        "  access:          purge queue, access method name=purge",
        "  answer:          messages: how many were discarded",
        "  AMQP operations: PURGE queue",
        "  paths:           DELETE /queues/{name}/messages",
        "",
        "PARAMETER  TYPE  REQUIRED  HELP",
        "name       name  yes       name of the queue",
    ]
    assert broker.asked == [("help", {"method": "purge_queue"})]


def test_methods_as_json(broker: FakeBroker, qpid_ha: Run) -> None:
    broker.answers["help"] = [reference(find("ping"))]
    said = qpid_ha("methods", "ping", "-o", "json", "-b", broker.socket)
    assert json.loads(said.out) == {"schema_version": 1, "methods": [reference(find("ping"))]}
