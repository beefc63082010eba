"""What the broker agent does beyond exit codes: scores, the watch, deadlines, hung processes, calls
at the same time.
"""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from tests.ocf.node import Node, script, wait_for
from tests.system.cluster import held_ports

DELETED = "crm_attribute --promotion -D -q"
ACTIVE = {"state": "active", "members": [{"state": "active"}, {"state": "ready"}]}


def started(node: Node, **how: object) -> Node:
    """Start the stand-in and make it so."""
    assert node.run("broker", "start").code == 0
    node.tell(**how)
    wait_for(lambda: "watch --resource" in "".join(node.calls))
    node.forget_calls()
    return node


# Scores and the watch.


def test_start_sets_no_score_and_starts_the_watch(node: Node) -> None:
    assert node.run("broker", "start", isolation=5, answer=0.5).code == 0
    wait_for(lambda: node.calls)
    assert node.calls == ["watch --resource=broker --publish=promotion --isolation=5 --answer=0.5"]


@pytest.mark.parametrize("deed", [signal.SIGKILL, signal.SIGSTOP])
def test_the_score_of_a_broker_that_is_gone_or_hangs_is_deleted_first_but_not_by_a_probe(
    node: Node, deed: signal.Signals
) -> None:
    started(node)
    watch = node.pid("watch.pid")
    os.kill(node.pid(), deed)
    if deed is signal.SIGKILL:
        wait_for(lambda: watch not in node.processes())
    assert node.run("broker", "monitor", interval=0, answer=0.2).code in (1, 7)
    assert node.calls == []
    assert node.run("broker", "monitor", answer=0.2).code in (1, 7)
    assert node.calls == [DELETED]


def test_a_healthy_monitor_touches_no_score(node: Node) -> None:
    started(node, state="ready")
    assert node.run("broker", "monitor").code == 0
    assert node.calls == []


def test_a_monitor_starts_a_watch_that_died_and_a_probe_does_not(node: Node) -> None:
    started(node)
    node.kill_watch()
    assert node.run("broker", "monitor", interval=0).code == 0
    assert not node.watches()
    waiting = [node.begin("broker", "monitor") for _ in range(6)]
    assert [done().code for done in waiting] == [0] * 6
    assert len(node.watches()) == 1


def test_a_monitor_replaces_a_watch_that_hangs(node: Node) -> None:
    started(node)
    hung = node.pid("watch.pid")
    os.kill(hung, signal.SIGSTOP)
    assert node.run("broker", "monitor", answer=2).code == 0
    assert hung not in node.processes()
    wait_for(lambda: node.watches() == [node.pid("watch.pid")])
    assert not any("watch ended" in call for call in node.calls), (
        "it gives up no address of a primary that is well"
    )


def test_a_monitor_replaces_a_watch_that_never_comes_to_listen(node: Node) -> None:
    started(node)
    hung = node.pid("watch.pid")
    listening = node.directory / "run" / "watch.sock"
    wait_for(listening.exists)
    listening.unlink()
    assert node.run("broker", "monitor").code == 0
    assert node.watches() == [hung], "it has just begun"
    os.utime(node.pid_file.with_suffix(".watch.pid"), (0, 0))
    assert node.run("broker", "monitor").code == 0
    assert hung not in node.processes()
    wait_for(lambda: node.watches() == [node.pid("watch.pid")])


def test_the_watch_is_told_the_name_that_the_cluster_has_for_this_node(node: Node) -> None:
    assert node.run("broker", "start", OCF_RESKEY_CRM_meta_on_node="ha1").code == 0
    assert "--node ha1 " in node.processes()[node.pid("watch.pid")] + " "


def test_a_missing_watch_is_no_reason_to_end_a_broker_that_serves(node: Node) -> None:
    started(node, **ACTIVE)
    node.kill_watch()
    done = node.run("broker", "monitor", watch="/nowhere/qpidha-watch")
    assert done.code == 8 and "the watch cannot be started" in done.log


def test_demote_drops_the_addresses_first_and_stop_ends_the_watch_first(node: Node) -> None:
    started(node, **ACTIVE)
    assert node.run("broker", "demote").code == 0
    assert node.calls == ["watch vip_remove {}"]
    assert node.run("broker", "stop").code == 0
    assert node.calls[1:] == ["watch ended", DELETED] and not node.processes()


def test_a_broker_that_was_started_by_hand_gets_a_watch(node: Node) -> None:
    child = subprocess.Popen([node.parameters["binary"], "--config", node.parameters["config"]])
    wait_for(node.socket.exists)
    wait_for(lambda: node.run("broker", "monitor").code, lambda code: code == 0, what="the monitor")
    assert len(node.watches()) == 1
    assert node.run("broker", "stop").code == 0 and child.wait() and not node.processes()


# Processes.


def test_what_could_never_have_been_started_is_stopped(node: Node) -> None:
    assert node.run("broker", "stop", rundir="run").code == 0
    node.data.rmdir()
    node.data.write_text("a file where the directory should be")
    assert [node.run("broker", action).code for action in ("monitor", "stop", "demote")] == [
        7,
        0,
        7,
    ]


@pytest.mark.parametrize("closed", ["2>&-", "2>/dev/full"])
def test_a_stop_that_cannot_say_anything_is_done_all_the_same(node: Node, closed: str) -> None:
    command = f"OCF_RESKEY_ip=wrong exec {node.agents}/vip stop {closed}"
    assert subprocess.run(["/bin/sh", "-c", command], env=node.environment).returncode == 0


def test_two_brokers_do_not_share_a_directory(node: Node) -> None:
    started(node)
    done = node.run("broker", "start", resource="other")
    assert done.code == 2 and "is the rundir of the broker of resource broker" in done.reason
    assert node.run("broker", "stop").code == 0
    assert [node.run("broker", action, resource="other").code for action in ("start", "stop")] == [
        0,
        0,
    ]


def test_a_start_of_what_runs_and_a_stop_of_what_does_not_change_nothing(node: Node) -> None:
    started(node, **ACTIVE)
    pids = sorted(node.processes())
    assert node.run("broker", "start").code == 0 and sorted(node.processes()) == pids
    assert [node.run("broker", "stop").code for _ in range(3)] == [0, 0, 0] and not node.processes()


@pytest.mark.parametrize(
    "content",
    [
        "",
        "what",
        "{self} 1 ",
        "{self}",
        "99999999999999999999 1 x",
        "-1 1 x",
        "{self} 1 1 1",
        "{self} 0 x",
    ],
)
def test_a_pid_file_that_names_another_process_harms_nobody(node: Node, content: str) -> None:
    other = subprocess.Popen(["sleep", "infinity"])
    node.pid_file.parent.mkdir()
    node.pid_file.write_text(content.format(self=other.pid))
    assert [
        node.run("broker", action).code for action in ("monitor", "stop", "demote", "promote")
    ] == [7, 0, 7, 7]
    assert other.poll() is None
    assert node.run("broker", "start").code == 0 and node.run("broker", "stop").code == 0
    assert other.poll() is None
    other.kill()
    other.wait()


def test_a_broker_without_a_pid_file_is_found_by_its_socket_also_when_it_hangs(node: Node) -> None:
    started(node)
    pid = node.pid()
    node.pid_file.unlink()
    assert node.run("broker", "monitor").code == 0
    os.kill(pid, signal.SIGSTOP)
    done = node.run("broker", "monitor", answer=0.2)
    assert done.code == 1 and f"pid {pid}" in done.reason
    assert node.run("broker", "stop", answer=0.2, term=0.2).code == 0
    assert pid not in node.processes()


def test_a_socket_that_a_dead_broker_left_is_nobody(node: Node) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(node.socket))
    assert node.run("broker", "monitor").code == 7


def test_stop_ends_a_frozen_broker_in_good_order_and_a_stubborn_one_by_force(node: Node) -> None:
    node.tell(stubborn=True)
    started(node, stubborn=True)
    assert node.run("broker", "stop", term=0.2).code == 0 and not node.brokers()
    node.tell()
    started(node)
    os.kill(node.pid(), signal.SIGSTOP)
    assert node.run("broker", "stop", term=30).code == 0 and not node.brokers()


def test_demote_of_a_hung_primary_kills_it_after_its_watch_gave_up_the_addresses(
    node: Node,
) -> None:
    started(node, **ACTIVE)
    os.kill(node.pid(), signal.SIGSTOP)
    assert node.run("broker", "demote", answer=0.2).code == 7
    assert not node.processes() and node.calls == ["watch ended", DELETED]


# Reasons.


def test_a_refused_promotion_gives_the_text_and_the_hint_of_the_broker(node: Node) -> None:
    started(node, state="ready", refuse="b2 has more")
    done = node.run("broker", "promote")
    assert (done.code, done.reason) == (
        1,
        "the broker refuses to be promoted: b2 has more; next: do better",
    )


def test_a_failed_start_gives_the_last_error_of_the_daemon(node: Node) -> None:
    node.tell(exit=78, says="noise\nqpidhad: error: port=x is no number\n  next: give a port\n")
    done = node.run("broker", "start")
    assert done.code == 2
    assert (
        done.reason == "the broker ended with exit code 78: port=x is no number; next: give a port"
    )
    node.tell(exit=3, says="Traceback:\n  boom\n")
    assert node.run("broker", "start").reason == "the broker ended with exit code 3: boom"


# Deadlines: each action ends by itself, with a reason, before Pacemaker would kill it.


def test_start_gives_up_before_pacemaker_does(node: Node) -> None:
    binary = script(node.directory / "bin" / "slow", "sh", "-c", "exec sleep 1000")
    done = node.run("broker", "start", timeout=1000, binary=binary)
    assert done.code == 1 and done.reason.startswith("not done after 0.5 s while the broker (pid ")
    os.kill(node.pid(), signal.SIGKILL)


def test_promote_gives_up_before_pacemaker_does(node: Node) -> None:
    started(node, state="ready", late=True)
    done = node.run("broker", "promote", timeout=1500)
    assert done.code == 1 and "while the broker asks the others for their consent" in done.reason


def test_promote_does_not_wait_for_a_broker_that_hangs_meanwhile(node: Node) -> None:
    started(node, state="ready", late=True)
    promotion = node.begin("broker", "promote", timeout=40000, answer=0.2)
    assert node.run("broker", "monitor").code == 0
    node.tell(deaf=True)
    done = promotion()
    assert done.code == 1 and "hangs" in done.reason


@pytest.mark.parametrize("action", ["start", "stop", "promote", "demote"])
def test_an_action_waits_for_another_one_only_until_its_deadline(node: Node, action: str) -> None:
    started(node)
    with open(node.directory / "run" / "broker.lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = node.run("broker", action, timeout=1000)
        assert done.code == 1 and "while another action on this broker goes on" in done.reason
        assert node.run("broker", "monitor").code == 0


# At the same time.


def test_many_starts_at_once_make_one_broker_and_one_watch(node: Node) -> None:
    waiting = [node.begin("broker", "start") for _ in range(6)]
    assert [done().code for done in waiting] == [0] * 6
    assert len(node.brokers()) == 1 and len(node.watches()) == 1


def test_starts_and_stops_at_once_all_succeed_and_leave_nothing_that_stop_does_not_find(
    node: Node,
) -> None:
    waiting = [
        node.begin("broker", action)
        for action in ("start", "stop", "start", "stop", "start", "stop")
    ]
    assert [done().code for done in waiting] == [0] * 6
    assert len(node.brokers()) <= 1 and len(node.watches()) <= 1
    assert node.run("broker", "stop").code == 0 and not node.processes()


def test_promotions_and_demotions_at_once_end_in_one_role(node: Node) -> None:
    started(node, state="ready")
    waiting = [
        node.begin("broker", action) for action in ("promote", "demote", "promote", "demote")
    ]
    assert [done().code for done in waiting] == [0] * 4
    assert node.run("broker", "monitor").code in (0, 191)


# The deeper monitor.


def test_the_deeper_monitor_connects_as_a_client(node: Node) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        started(node, **ACTIVE, address=address)
        assert node.run("broker", "monitor").code == 8
        done = node.run("broker", "monitor", role="Promoted", answer=0.2, OCF_CHECK_LEVEL=10)
    assert (
        done.code == 9 and f"not to clients at {address}" in done.reason and node.calls == [DELETED]
    )


def test_a_broker_that_accepts_clients_and_hangs_up_is_no_good(node: Node) -> None:
    with socketserver.ThreadingTCPServer(
        ("127.0.0.1", 0), socketserver.BaseRequestHandler
    ) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,)).start()
        started(node, **ACTIVE, address=f"127.0.0.1:{server.server_address[1]}")
        done = node.run("broker", "monitor", role="Promoted", OCF_CHECK_LEVEL=10)
        server.shutdown()
    assert done.code == 9 and "it hung up" in done.reason and node.calls == [DELETED]


def test_a_broker_that_may_take_longer_to_answer_than_the_monitor_has_loses_its_score_all_the_same(
    node: Node,
) -> None:
    started(node, **ACTIVE, deaf=True)
    done = node.run("broker", "monitor", role="Promoted", answer=30, timeout=3000)
    assert done.code == 9 and node.calls == [DELETED]


# Real brokers.


@pytest.fixture
def ports() -> Iterator[list[int]]:
    with held_ports(3) as found:
        yield found


def options(ports: list[int], i: int) -> dict[str, object]:
    url = ",".join(f"127.0.0.1:{port}" for port in ports)
    return {
        "ha_cluster": "yes",
        "ha_brokers_url": url,
        "port": ports[i],
        "interface": "127.0.0.1",
        "ha_replicate": "all",
        "link_maintenance_interval": "0.1",
        "link_heartbeat_interval": "1",
    }


def test_a_real_cluster_lives_and_fails_over(make_node, ports) -> None:  # type: ignore[no-untyped-def]
    nodes = [make_node(real=True, **options(ports, i)) for i in range(3)]
    assert [done().code for done in [node.begin("broker", "start") for node in nodes]] == [0, 0, 0]
    first, second, _ = nodes
    wait_for(
        lambda: first.run("broker", "promote").code, lambda code: code == 0, what="the promotion"
    )
    wait_for(lambda: second.state(), lambda state: state == "ready", what="the second broker")
    wait_for(
        lambda: first.run("broker", "monitor").code, lambda code: code == 8, what="the monitor"
    )
    assert first.run("broker", "monitor", role="Promoted", OCF_CHECK_LEVEL=10).code == 8
    assert second.run("broker", "monitor", OCF_CHECK_LEVEL=10).code == 0
    # A planned move.
    assert first.run("broker", "demote").code == 0 and first.run("broker", "monitor").code == 0
    wait_for(
        lambda: second.run("broker", "promote").code, lambda code: code == 0, what="the promotion"
    )
    wait_for(lambda: first.state(), lambda state: state == "ready", what="the former primary")
    # The primary hangs: Pacemaker's order of calls.
    os.kill(second.pid(), signal.SIGSTOP)
    assert [
        second.run("broker", action, role="Promoted", answer=0.5).code
        for action in ("monitor", "demote", "stop")
    ] == [9, 7, 0]
    wait_for(
        lambda: first.run("broker", "promote").code, lambda code: code == 0, what="the promotion"
    )
    # The primary dies.
    wait_for(lambda: second.run("broker", "start").code, lambda code: code == 0, what="the restart")
    wait_for(lambda: second.state(), lambda state: state == "ready", what="the restarted broker")
    os.kill(first.pid(), signal.SIGKILL)
    wait_for(
        lambda: first.run("broker", "monitor", role="Promoted").code,
        lambda code: code == 7,
        what="the monitor",
    )
    assert [first.run("broker", action).code for action in ("demote", "stop")] == [7, 0]
    wait_for(
        lambda: second.run("broker", "promote").code, lambda code: code == 0, what="the promotion"
    )
    assert [node.run("broker", "stop").code for node in nodes] == [0, 0, 0] and not any(
        node.processes() for node in nodes
    )


def test_a_real_daemon_says_why_it_cannot_start(make_node) -> None:  # type: ignore[no-untyped-def]
    wrong = make_node(real=True, ha_cluster="perhaps")
    for action in ("start", "validate-all"):
        done = wrong.run("broker", action)
        assert (
            done.code == 2
            and "ha-cluster=perhaps" in done.reason
            and "next: " not in done.reason.partition("next: ")[2]
        )
    lone = make_node(real=True, port=0)
    done = lone.run("broker", "start")
    assert done.code == 2 and "set ha-cluster=yes" in done.reason and not lone.processes()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        busy = make_node(real=True, **options([port], 0))
        done = busy.run("broker", "start")
        assert done.code == 1 and f"port {port} is in use" in done.reason


def test_a_broker_runs_as_another_user(node: Node) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can start a broker as another user")
    os.chown(node.data, 65534, 65534)
    assert node.run("broker", "start", OCF_RESKEY_user="nobody").code == 0
    assert os.stat(f"/proc/{node.pid()}").st_uid == 65534
    assert [
        node.run("broker", action).code
        for action in ("monitor", "promote", "monitor", "stop", "monitor")
    ] == [0, 0, 191, 0, 7]


def test_a_broker_of_another_user_cannot_have_a_daemon_of_root_killed(node: Node) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can start a broker as another user")
    other = node.directory / "other.sock"
    script = (
        f"import socket, time; s = socket.socket(socket.AF_UNIX); s.bind({str(other)!r}); "
        "s.listen(); time.sleep(600)"
    )
    daemon = subprocess.Popen([sys.executable, "-c", script])
    wait_for(other.exists)
    node.socket.symlink_to(other)
    assert [
        node.run("broker", action, answer=0.2, OCF_RESKEY_user="nobody").code
        for action in ("monitor", "demote", "stop")
    ] == [7, 7, 0]
    assert daemon.poll() is None
    daemon.kill()
    daemon.wait()


def test_an_unknown_user_is_refused(node: Node) -> None:
    done = node.run("broker", "start", OCF_RESKEY_user="nosuchuser")
    assert done.code == 2 and "there is no user nosuchuser" in done.reason
