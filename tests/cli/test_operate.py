"""Changing the primary: what is asked of whom, what is refused, and what is printed."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from qpidha.cli.broker import operate
from qpidha.client.admin import LinkBroken
from qpidha.manager import plugins
from qpidha.manager.tool_runner import ToolFailed, ToolForbidden
from qpidha.model.errors import NotAllowed
from tests.cli.conftest import FakeBroker, Said

Run = Callable[..., Said]
LOSS = "b2 has 3:99; 127.0.0.1:1 did not answer and may have more"
COMPARISON: dict[str, Any] = {
    "schema_version": 1,
    "strict": True,
    "newest_set": {
        "epoch": 3,
        "version": 1,
        "members": [{"system_id": "s1", "address": "127.0.0.1:1"}],
    },
    "brokers": [
        {
            "system_id": "s1",
            "name": "b1",
            "address": "127.0.0.1:1",
            "state": "joining",
            "epoch": 3,
            "sequence": 90,
            "is_complete": False,
            "in_newest_set": True,
            "answered": True,
            "promised": 3,
            "refusal": "b2 has more",
        },
        {
            "system_id": "s2",
            "name": "b2",
            "address": "b2",
            "state": "joining",
            "epoch": 3,
            "sequence": 99,
            "is_complete": False,
            "in_newest_set": True,
            "answered": True,
            "promised": 3,
            "refusal": "",
        },
    ],
    "recommended": "b2",
    "reason": "all members of the in-sync set answered, and none has more than its 3:99",
    "losses": [
        {"address": "127.0.0.1:1", "text": "127.0.0.1:1 has 3:90; b2 has 3:99"},
        {"address": "b2", "text": LOSS},
    ],
}


@pytest.fixture
def compared(broker: FakeBroker) -> FakeBroker:
    """A broker that knows the comparison, and is itself the recommended one."""
    found = json.loads(json.dumps(COMPARISON))
    found["brokers"][1]["address"] = found["losses"][1]["address"] = found["recommended"] = (
        broker.socket
    )
    broker.answers["recover"] = found
    broker.answers["promote"] = {"state": "recovering", "epoch": 4}
    broker.answers["status"] |= {"state": "joining", "address": broker.socket}
    return broker


@pytest.fixture
def unsure(compared: FakeBroker) -> FakeBroker:
    """As `compared`, but nobody can be promoted safely."""
    compared.answers["recover"] |= {"recommended": None, "reason": "127.0.0.1:1 did not answer"}
    return compared


def test_recover_shows_what_every_broker_has_and_whom_to_promote(
    compared: FakeBroker, qpid_ha: Run
) -> None:
    said = qpid_ha("recover", "-b", compared.socket)
    lines = said.out.splitlines()
    assert said.code == 0 and lines[0].split() == [
        "NAME",
        "ADDRESS",
        "STATE",
        "EPOCH",
        "SEQUENCE",
        "COMPLETE",
        "IN",
        "SET",
        "ANSWERED",
    ]
    assert lines[1].split() == ["b1", "127.0.0.1:1", "joining", "3", "90", "no", "yes", "yes"]
    assert lines[3] == f"recommended: b2 ({compared.socket}): {COMPARISON['reason']}" and lines[
        4:
    ] == ["would be lost: nothing"]
    assert ("promote", {}) not in compared.asked


def test_recover_fails_and_says_what_would_be_lost_when_no_broker_has_everything(
    unsure: FakeBroker, qpid_ha: Run
) -> None:
    said = qpid_ha("recover", "-b", unsure.socket)
    assert said.code == 1 and "recommended: none: 127.0.0.1:1 did not answer\n" in said.out
    assert f"b2 ({unsure.socket}) has most; would be lost: {LOSS}\nnext: start" in said.out
    found = json.loads(qpid_ha("recover", "-b", unsure.socket, "-o", "json").out)
    assert (
        found["schema_version"] == 1 and found["recommended"] is None and len(found["brokers"]) == 2
    )


def test_recover_promotes_the_recommended_broker(compared: FakeBroker, qpid_ha: Run) -> None:
    said = qpid_ha("recover", "--promote", "-b", compared.socket)
    assert (
        said.code == 0
        and said.out.splitlines()[-1] == f"b2 ({compared.socket}) is promoted, epoch 4"
    )
    assert compared.asked[-1] == ("promote", {})
    found = json.loads(qpid_ha("recover", "--promote", "-b", compared.socket, "-o", "json").out)
    assert found["promoted"] == compared.socket and found["promoted_epoch"] == 4


def test_loss_is_accepted_only_by_name_and_after_a_yes(unsure: FakeBroker, qpid_ha: Run) -> None:
    said = qpid_ha("recover", "--promote", "-b", unsure.socket)
    assert said.code == 107 and LOSS in said.err and "--accept-loss" in said.err
    said = qpid_ha("recover", "--promote", "--accept-loss", "-b", unsure.socket)
    assert said.code == 107 and f"given up: {LOSS}" in said.err and "--yes" in said.err
    assert not [asked for asked in unsure.asked if asked[0] == "promote"]
    said = qpid_ha("recover", "--promote", "--accept-loss", "--yes", "-b", unsure.socket)
    assert said.code == 0 and unsure.asked[-1] == ("promote", {"accept_loss": True})


def test_a_member_of_the_set_that_was_not_heard_is_a_loss_also_where_the_manager_is_trusted(
    compared: FakeBroker, qpid_ha: Run
) -> None:
    found = compared.answers["recover"]
    found["strict"] = False
    found["brokers"][0] |= {
        "answered": False,
        "system_id": "",
        "name": "",
        "epoch": 0,
        "sequence": 0,
        "in_newest_set": False,
    }
    found["losses"][1]["not_heard"] = ["127.0.0.1:1"]
    said = qpid_ha("recover", "-b", compared.socket)
    assert said.code == 1
    assert "would be lost: what 127.0.0.1:1 alone accepted, if anything\nnext: " in said.out
    assert said.out.splitlines()[1].split() == [
        "-",
        "127.0.0.1:1",
        "unreachable",
        "-",
        "-",
        "-",
        "?",
        "no",
    ]
    said = qpid_ha("recover", "--promote", "-b", compared.socket)
    assert (
        said.code == 107
        and LOSS in said.err
        and not any(asked[0] == "promote" for asked in compared.asked)
    )
    assert (
        qpid_ha("recover", "--promote", "--accept-loss", "--yes", "-b", compared.socket).code == 0
    )
    assert ("promote", {}) in compared.asked


def test_a_loss_is_not_accepted_where_nothing_is_promoted(unsure: FakeBroker, qpid_ha: Run) -> None:
    for option in ("--accept-loss", "--yes"):
        said = qpid_ha("recover", option, "-b", unsure.socket)
        assert said.code == 2 and "without --promote" in said.err


def test_nobody_is_promoted_beside_a_primary(unsure: FakeBroker, qpid_ha: Run) -> None:
    unsure.answers["recover"]["brokers"][0]["state"] = "active"
    unsure.answers["recover"]["reason"] = "127.0.0.1:1 is the primary: there is nothing to recover"
    said = qpid_ha("recover", "--promote", "--accept-loss", "--yes", "-b", unsure.socket)
    assert said.code == 1 and "there is nothing to recover" in said.err
    assert not [asked for asked in unsure.asked if asked[0] == "promote"]


def test_promote_with_accept_loss_says_what_is_lost_before(
    unsure: FakeBroker, qpid_ha: Run
) -> None:
    assert qpid_ha("promote", "--accept-loss", "-b", unsure.socket).code == 107
    said = qpid_ha("promote", "--accept-loss", "--yes", "-b", unsure.socket)
    assert (
        said.code == 0 and f"would be lost: {LOSS}" in said.out and f"given up: {LOSS}" in said.err
    )
    assert unsure.asked[-1] == ("promote", {"accept_loss": True})


def test_demote_asks_the_broker(broker: FakeBroker, qpid_ha: Run) -> None:
    broker.answers["demote"] = {"state": "joining", "epoch": 2}
    assert qpid_ha("demote", "-b", broker.socket) == Said(0, "", "b1 is joining now\n")
    assert json.loads(qpid_ha("demote", "-b", broker.socket, "-o", "json").out) == {
        "schema_version": 1,
        "demoted": True,
        "state": "joining",
        "epoch": 2,
    }


def test_reload_asks_the_broker_and_tells_its_warnings(broker: FakeBroker, qpid_ha: Run) -> None:
    broker.answers["reload"] = {"warnings": ["port: a restart is needed for what has changed"]}
    said = qpid_ha("reload", "-b", broker.socket)
    assert said.code == 0 and said.out == "" and "has read its users" in said.err
    assert "warning: port: a restart is needed" in said.err
    assert json.loads(qpid_ha("reload", "-b", broker.socket, "-o", "json").out) == {
        "schema_version": 1,
        **broker.answers["reload"],
    }


def test_first_use_m11_a_backup_that_is_told_to_step_down_was_not_demoted(
    broker: FakeBroker, qpid_ha: Run
) -> None:
    broker.answers["status"]["state"] = "ready"
    broker.answers["demote"] = {"state": "ready", "epoch": 2}
    said = qpid_ha("demote", "-b", broker.socket)
    assert said == Said(0, "", "b1 is ready, and was no primary: nothing is changed\n")
    assert json.loads(qpid_ha("demote", "-b", broker.socket, "-o", "json").out)["demoted"] is False


def test_a_switchover_that_nobody_can_take_over_names_every_reason(
    broker: FakeBroker, qpid_ha: Run
) -> None:
    said = qpid_ha("switchover", "-b", broker.socket)
    assert said.code == 1 and "b1 (127.0.0.1:5672) is the primary" in said.err
    said = qpid_ha("switchover", "b9", "-b", broker.socket)
    assert said.code == 2 and "'b9'" in said.err
    said = qpid_ha("switchover", "--dry-run", "-b", broker.socket)
    assert (
        said.code == 1
        and said.out.startswith("plan: b1 (127.0.0.1:5672) -> none\n")
        and "is the primary" in said.out
    )
    assert (
        json.loads(qpid_ha("switchover", "--dry-run", "-b", broker.socket, "-o", "json").out)[
            "target"
        ]
        is None
    )


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (ToolFailed("`pcs resource move` failed", code=1), 1),
        (ToolFailed("`pcs resource move` did not end within 60 s"), 69),
        (ToolForbidden("moving needs root"), 77),
        (NotAllowed("b2 has no score"), 1),
        (LinkBroken("the manager does not answer"), 69),
    ],
)
def test_what_a_manager_answers_has_the_exit_code_of_its_kind(
    broker: FakeBroker, qpid_ha: Run, monkeypatch: pytest.MonkeyPatch, failure: Exception, code: int
) -> None:
    class Manager:
        def take_over(self, name: str) -> None:
            raise failure

    broker.answers["status"] |= {
        "state": "ready",
        "address": broker.socket,
        "brokers_url": broker.socket,
    }
    monkeypatch.setattr(operate, "manager_of", lambda place: Manager())
    said = qpid_ha("failover", broker.socket, "-b", broker.socket)
    assert said.code == code and str(failure) in said.err
    assert ("promote", {}) not in broker.asked, "nobody is promoted behind the manager's back"


def test_a_broken_plug_in_is_told_and_nobody_is_promoted(
    broker: FakeBroker, qpid_ha: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.answers["status"] |= {
        "state": "ready",
        "address": broker.socket,
        "brokers_url": broker.socket,
    }
    monkeypatch.setattr(
        plugins, "OURS", (EntryPoint("broken", "no_such_plug_in:find", plugins.GROUP),)
    )
    said = qpid_ha("failover", broker.socket, "-b", broker.socket)
    assert said.code == 2 and "'broken' cannot be loaded" in said.err
    assert ("promote", {}) not in broker.asked


def test_a_failover_without_a_ready_backup_points_to_recover(
    broker: FakeBroker, qpid_ha: Run
) -> None:
    broker.answers["status"]["state"] = "catchup"
    said = qpid_ha("failover", "-b", broker.socket)
    assert (
        said.code == 1
        and "b1 (127.0.0.1:5672) is catchup" in said.err
        and "qpid-ha recover" in said.err
    )
    broker.answers["status"] |= {
        "state": "ready",
        "in_sync": {"epoch": 9, "version": 1, "members": ["s7"]},
    }
    assert "is not in the newest in-sync set" in qpid_ha("failover", "-b", broker.socket).err


def test_a_failover_has_the_ready_backup_promoted_and_waits_until_it_is_active(
    broker: FakeBroker, qpid_ha: Run
) -> None:
    broker.answers["status"] |= {
        "state": "ready",
        "address": broker.socket,
        "brokers_url": broker.socket,
    }
    answer = broker.answer

    def promoted(method: str, params: dict[str, Any]) -> dict[str, Any]:
        if method == "promote":
            broker.answers["status"] |= {"state": "active", "epoch": 3}
        return answer(method, params)

    broker.answer = promoted  # type: ignore[method-assign]
    said = qpid_ha("failover", "-b", broker.socket, "-o", "json")
    found = json.loads(said.out)
    assert said.code == 0 and (found["from"], found["to"], found["epoch"]) == (
        None,
        broker.socket,
        3,
    )
    assert ("promote", {}) in broker.asked


def test_a_standalone_broker_has_nobody_to_switch_over_to(broker: FakeBroker, qpid_ha: Run) -> None:
    broker.answers["status"]["state"] = "standalone"
    for command in ("switchover", "failover"):
        said = qpid_ha(command, "-b", broker.socket)
        assert said.code == 1 and "not in a cluster" in said.err


def test_explain_says_in_sentences_what_is_waited_for(broker: FakeBroker, qpid_ha: Run) -> None:
    second = 1_000_000_000
    broker.answers["explain"] = {
        "address": "127.0.0.1:5672",
        "state": "recovering",
        "since_ns": 100 * second,
        "now_ns": 103 * second,
        "held": 1,
        "unreplicated_messages": 1204,
        "unreplicated_queues": 3,
        "queues": [{"name": "orders", "unreplicated": 1200}, {"name": "bills", "unreplicated": 3}],
        "waits": [
            {
                "waits_for": "backup",
                "since_ns": 101 * second,
                "text": "127.0.0.1:5673, which has 4 records less.",
                "until_ns": 111 * second,
            },
            {"waits_for": "majority", "since_ns": 0, "text": "the consent of a majority"},
        ],
    }
    broker.answers["explain"]["unwell_links"] = 3
    broker.answers["explain"]["unwell"] = [
        {"name": "link west", "state": "waiting", "since_ns": 0, "why": "refused", "next": "look"}
    ]
    said = qpid_ha("status", "--explain", "-b", broker.socket)
    assert "link west is waiting: refused; next: look\n" in said.out
    assert "and 2 more links, routes or replicas\n" in said.out
    del broker.answers["explain"]["unwell"], broker.answers["explain"]["unwell_links"]
    said = qpid_ha("status", "--explain", "-b", broker.socket)
    assert said.out.splitlines() == [
        "127.0.0.1:5672 is recovering, for 3.0 s",
        "waits: 127.0.0.1:5673, which has 4 records less, for 2.0 s; 8.0 s more, then "
        "the others go on without it",
        "waits: the consent of a majority",
        "1,204 messages in 3 queues not yet on every in-sync broker: orders 1,200, bills "
        "3, and 1 more",
        "answers to clients that wait until what they confirm is committed: 1",
        "next: start one of those that have not answered. If they are gone for good: qpid-ha "
        "demote -b 127.0.0.1:5672, then qpid-ha recover --promote --accept-loss -b 127.0.0.1:5672",
    ]
    assert (
        json.loads(qpid_ha("status", "--explain", "-b", broker.socket, "-o", "json").out)[
            "unreplicated_queues"
        ]
        == 3
    )
    assert qpid_ha("status", "--explain", "--all", "-b", broker.socket).code == 2


def test_explain_says_which_queues_stop_senders_and_keep_what_has_no_place(
    broker: FakeBroker, qpid_ha: Run
) -> None:
    broker.answers["explain"] = {
        "name": "b1",
        "state": "active",
        "stopped_queues": 3,
        "stopped": [{"name": "q", "messages": 1200, "bytes": 1, "waiting_senders": 2}],
        "unplaced_queues": 1,
        "unplaced": [{"name": "orders", "unplaced": 1, "why": "there is no exchange x"}],
    }
    assert qpid_ha("status", "--explain", "-b", broker.socket).out.splitlines() == [
        "b1 is active",
        "senders of queue q get no credit until less is on it: 1,200 messages, 1 byte, "
        "2 senders waiting",
        "queue orders keeps 1 dead message without a place elsewhere: there is no exchange x",
        "and 2 more queues like these: qpid-ha queue list",
    ]


def test_explain_speaks_of_senders_where_there_are_some(broker: FakeBroker, qpid_ha: Run) -> None:
    for state, said in (("active", "gives senders no credit"), ("ready", "is above a limit")):
        broker.answers["explain"] = {"name": "b1", "state": state, "withholds": "too much"}
        lines = qpid_ha("status", "--explain", "-b", broker.socket).out.splitlines()
        assert lines == [f"b1 is {state}", f"{said}: too much"]


def test_explain_says_what_only_this_broker_has(broker: FakeBroker, qpid_ha: Run) -> None:
    broker.answers["explain"] = {
        "name": "b1",
        "state": "active",
        "only_here_messages": 1203,
        "only_here_queues": 3,
        "only_here": [{"name": "orders", "messages": 1200}, {"name": "bills", "messages": 2}],
    }
    assert qpid_ha("status", "--explain", "-b", broker.socket).out.splitlines() == [
        "b1 is active",
        "nothing waits",
        "1,203 messages in 3 queues only on this broker, as they are not replicated: orders 1,200, "
        "bills 2, and 1 more",
    ]


def test_list_and_the_plan_of_a_switchover_say_what_stays_behind(
    broker: FakeBroker, qpid_ha: Run
) -> None:
    broker.answers["status"]["local_journal"] = {"messages": 12, "queues": 1}
    stays = (
        "12 messages on 1 queue that are not replicated, only on b1: there again when it is "
        "primary again"
    )
    said = qpid_ha("switchover", "--dry-run", "-b", broker.socket)
    assert said.out.splitlines()[1] == f"stays behind: {stays}"
    said = qpid_ha("switchover", "--dry-run", "-b", broker.socket, "-o", "json")
    assert json.loads(said.out)["stays_behind"] == stays
    assert "12 messages that no other broker has" in qpid_ha("list", "-b", broker.socket).err
    broker.answers["status"]["local_journal"]["messages"] = 0
    said = qpid_ha("switchover", "--dry-run", "-b", broker.socket)
    assert "stays behind" not in said.out


def test_explain_says_when_nothing_waits(broker: FakeBroker, qpid_ha: Run) -> None:
    broker.answers["explain"] = {"name": "b1", "state": "active", "waits": []}
    assert (
        qpid_ha("status", "--explain", "-b", broker.socket).out == "b1 is active\nnothing waits\n"
    )


def test_list_counts_the_queues_with_unreplicated_messages(
    broker: FakeBroker, qpid_ha: Run
) -> None:
    broker.answers["status"] |= {"address": broker.socket, "brokers_url": broker.socket}
    broker.answers["explain"] = {"unreplicated_queues": 2, "unreplicated_messages": 1500}
    assert (
        qpid_ha("list", "-b", broker.socket)
        .out.splitlines()[0]
        .endswith("   unreplicated queues 2 (1,500 messages)")
    )
    found = json.loads(qpid_ha("list", "-b", broker.socket, "-o", "json").out)
    assert (found["unreplicated_queues"], found["unreplicated_messages"]) == (2, 1500)


def test_recover_forgets_brokers_that_will_not_come_back(
    compared: FakeBroker, qpid_ha: Run
) -> None:
    compared.answers["recover"]["losses"][1]["gone"] = ["b3:5672"]
    said = qpid_ha("recover", "--forget", "b3", "--forget", "b4", "-b", compared.socket)
    assert said.code == 0 and ("recover", {"forget": "b3 b4"}) in compared.asked
    line = "would be lost: nothing durable; transient messages that only b3:5672 had"
    assert said.out.splitlines()[-1] == line
    said = qpid_ha("recover", "--promote", "--forget", "b3", "-b", compared.socket)
    assert said.code == 0 and compared.asked[-1] == ("promote", {"forget": "b3"})


def test_to_forget_brokers_is_not_to_accept_a_loss(unsure: FakeBroker, qpid_ha: Run) -> None:
    said = qpid_ha("recover", "--promote", "--forget", "b3", "-b", unsure.socket)
    assert said.code == 107 and "--accept-loss" in said.err
    assert not [asked for asked in unsure.asked if asked[0] == "promote"]
