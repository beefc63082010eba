"""The admin socket: JSON lines, for whoever may read the broker's directory."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from qpidha.model.errors import RefusedRequest
from tests.patience import STATE
from tests.system.clients import browse, send
from tests.system.cluster import Admin

pytestmark = pytest.mark.system


def test_every_reading_method_answers(a_cluster):
    """On the primary and on a backup."""
    cluster = a_cluster(2)
    cluster[0].declare_queue("q")
    send(cluster[0], "q", ["a"])
    for broker in cluster:
        assert broker.call("ping") is not None
        status = broker.status()
        assert status["schema_version"] == 1
        assert status["address"] == broker.address
        assert status["state"] == ("active" if broker is cluster[0] else "ready")
        assert status["primary"]["address"] == cluster[0].address
        assert status["primary"]["system_id"] == cluster[0].system_id
        assert sorted(status["in_sync"]["members"]) == sorted(b.system_id for b in cluster)
        assert broker.call("query")
        assert {member["address"] for member in broker.call("members")} == set(cluster.addresses)
        assert isinstance(broker.call("list_connections"), list)
    assert "q" in cluster[0].queue_names()
    assert {"amq.direct", "amq.topic", "amq.fanout", "amq.match"} <= set(
        cluster[0].exchange_names()
    )


def test_objects_are_made_changed_and_deleted(a_cluster):
    """Each change is answered when it is committed, so it can be seen at once."""
    (broker,) = a_cluster(1)
    broker.declare_queue("q")
    broker.declare_exchange("ex", "topic")
    broker.bind("ex", "q", "a.*")
    assert broker.bindings() == [("ex", "q", "a.*")]
    send(broker, "ex/a.b", ["x", "y"])
    assert browse(broker, "q") == ["x", "y"]
    assert broker.call("purge_queue", name="q") == {"messages": 2}
    assert browse(broker, "q") == []
    broker.unbind("ex", "q", "a.*")
    assert broker.bindings() == []
    broker.delete_exchange("ex")
    broker.delete_queue("q")
    assert "q" not in broker.queue_names()
    assert "ex" not in broker.exchange_names()


def test_what_cannot_be_done_is_answered_with_its_condition(a_cluster):
    """The session stays usable after it."""
    (broker,) = a_cluster(1)
    cannot = (
        ("no_such_method", {}, "amqp:not-implemented"),
        ("delete_queue", {"name": "missing"}, "amqp:not-found"),
        ("declare_queue", {}, "amqp:invalid-field"),
        ("declare_queue", {"name": "q", "misspelt": 1}, "amqp:invalid-field"),
    )
    with Admin(broker.admin_socket) as admin:
        for method, params, condition in cannot:
            with pytest.raises(RefusedRequest) as refused:
                admin.call(method, **params)
            assert refused.value.condition == condition, method
            assert refused.value.text
        assert admin.call("ping") is not None


def test_lines_that_are_no_requests_are_answered(a_cluster):
    """Rubbish, a list, and several requests in one write; answers carry the id of their request."""
    (broker,) = a_cluster(1)
    with socket.socket(socket.AF_UNIX) as admin:
        admin.connect(str(broker.admin_socket))
        answers = admin.makefile()
        admin.sendall(b"rubbish\n[]\n")
        for _ in range(2):
            assert json.loads(answers.readline())["error"]["condition"] == "amqp:invalid-field"
        requests = [json.dumps({"id": i, "method": "ping"}).encode() for i in range(20)]
        admin.sendall(b"\n".join(requests) + b"\n")
        assert [json.loads(answers.readline())["id"] for _ in range(20)] == list(range(20))


def test_a_backup_changes_nothing_and_names_the_primary(a_cluster):
    """Changes are refused there with amqp:not-allowed."""
    cluster = a_cluster(2)
    cluster[0].declare_queue("q")
    with pytest.raises(RefusedRequest) as refused:
        cluster[1].delete_queue("q")
    assert refused.value.condition == "amqp:not-allowed"
    assert "q" in cluster[0].queue_names()


def test_the_primary_is_demoted_and_another_promoted(a_cluster):
    """A resource manager can move the primary without killing it, and nothing is lost."""
    cluster = a_cluster(2)
    cluster[0].declare_queue("q")
    send(cluster[0], "q", ["a"])
    cluster[0].call("demote")
    cluster[0].wait_state("joining", "catchup", "ready")
    cluster.promote(1)
    cluster.wait_settled(1)
    assert browse(cluster[1], "q") == ["a"]
    assert browse(cluster[0], "q", admin=True) == ["a"]


def test_shutdown_ends_the_process_cleanly(a_cluster):
    """It answers first; the exit code is 0."""
    (broker,) = a_cluster(1)
    broker.call("shutdown")
    assert broker.process.wait(STATE) == 0


def test_promoting_the_primary_again_changes_nothing(a_cluster):
    """A resource manager may repeat itself."""
    cluster = a_cluster(2)
    epoch = cluster[0].status()["epoch"]
    cluster.promote(0)
    assert cluster[0].state == "active"
    assert cluster[0].status()["epoch"] == epoch


def test_a_second_broker_on_the_same_data_directory_does_not_start(a_cluster):
    """The directory is locked, so that a manager and an init script cannot both run one."""
    (broker,) = a_cluster(1)
    first = broker.process
    broker.start()
    second, broker.process = broker.process, first
    assert second.wait(STATE) != 0
    assert broker.state == "active"


DOCUMENT = Path(__file__).parents[2] / "docs" / "admin-socket.md"
SOCAT = """#!{python}
import os, socket, sys
options, (_, address) = sys.argv[1:-2], sys.argv[-2:]
link = socket.socket(socket.AF_UNIX)
link.connect(address.removeprefix("UNIX-CONNECT:"))
link.sendall(sys.stdin.buffer.read())
link.shutdown(socket.SHUT_WR)
while data := link.recv(65536):
    os.write(1, data)
"""
"""Does what socat is used for, where it is not installed."""


@pytest.mark.parametrize("language", ["sh", "python"])
def test_the_examples_of_the_document_run(a_cluster, tmp_path, language):
    """As they stand, in a directory beside the broker's."""
    (broker,) = a_cluster(1)
    (tmp_path / "data").symlink_to(broker.admin_socket.parent)
    if shutil.which("socat") is None:
        (tmp_path / "socat").write_text(SOCAT.format(python=sys.executable))
        (tmp_path / "socat").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    examples = re.findall(rf"```{language}\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert examples
    for example in examples:
        program = [sys.executable, "-c"] if language == "python" else ["sh", "-c"]
        done = subprocess.run(
            [*program, example], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        said = json.loads(done.stdout)["result"]["state"] if language == "sh" else done.stdout
        assert said.strip() == "active"
