"""Applications of rhea, Qpid JMS and Qpid Proton in C++, as their users write them: a list of
addresses in any order and the client's own reconnection, without a line about redirects.
"""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from pathlib import Path

import pytest

from tests.documents import ROOT, blocks
from tests.interop.faults import FAULTS, befall, come_late_again, kill, restart_all, switch_over
from tests.interop.programs import HERE, Access, Cpp, Jms, Program, Rhea
from tests.patience import STATE
from tests.system.cluster import wait_for


@pytest.fixture(params=[Rhea, Jms, Cpp], ids=lambda kind: kind.__name__.lower())
def client(request, prepared):
    """Return a client whose application can be run."""
    return prepared(request.param)


class Doorbell:
    """An address where nobody serves, which counts who comes."""

    def __init__(self):
        self.rings = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *ignored):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(STATE)

    def _run(self):
        with contextlib.suppress(OSError):  # it is closed
            while True:
                self._listener.accept()[0].close()
                self.rings += 1


def wait_received(program):
    wait_for(
        lambda: len(program.numbers("received")), lambda seen: seen > 20, what="numbers received"
    )


def check(program):
    """Nothing that was accepted is lost, nothing settled comes again, and no error is told."""
    program.stop()
    assert program.events("error") == []
    accepted, received = program.numbers("accepted"), program.numbers("received")
    assert set(accepted) <= set(received)
    assert come_late_again(received) == []


def go_on(program, cluster, fault):
    wait_received(program)
    befall(cluster, fault, lambda: len(program.numbers("accepted")))
    check(program)


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("fault", FAULTS)
def test_qpid_1_and_first_use_d15_an_application_with_a_list_of_addresses_goes_on(
    a_cluster, client, tmp_path, fault, first
):
    cluster = a_cluster(3)
    cluster[0].declare_queue("q")
    with Program(client.command("q", Access.to(cluster, first)), tmp_path) as program:
        go_on(program, cluster, fault)


@pytest.mark.parametrize("fault", [kill, switch_over, restart_all])
def test_an_application_with_tls_and_a_password_goes_on(encrypted, client, tmp_path, fault):
    cluster, access = encrypted(1)
    cluster[0].declare_queue("q")
    with Program(client.command("q", access), tmp_path) as program:
        go_on(program, cluster, fault)


@pytest.mark.parametrize("kind", [Jms, Cpp])
def test_an_application_that_was_silent_for_too_long_goes_on(a_cluster, prepared, tmp_path, kind):
    """The broker has given up both of its connections by then, and told it in a way that is not the
    end. (One of rhea goes on too, but what it sends before it looks whether its stream has ended
    has no outcome.)
    """
    client = prepared(kind)
    cluster = a_cluster(1)
    cluster[0].declare_queue("q")
    with Program(client.command("q", Access.to(cluster, 0)), tmp_path) as program:
        wait_received(program)
        with program.paused():
            wait_for(
                lambda: cluster[0].call("list_connections"),
                lambda seen: not seen,
                what="connections",
            )
        before = len(program.numbers("accepted"))
        wait_for(
            lambda: len(program.numbers("accepted")),
            lambda seen: seen > before + 50,
            what="accepted after the pause",
        )
        check(program)


@pytest.mark.parametrize("brokers", ["plain", "encrypted"])
def test_an_application_waits_for_the_first_primary(request, brokers, client, tmp_path):
    """Whoever comes before there is a primary is served when there is one."""
    cluster, access = request.getfixturevalue(brokers)(1)
    cluster[0].declare_queue("q")
    cluster[0].call("demote")
    with (
        Doorbell() as doorbell,
        Program(client.command("q", access.after(doorbell.address)), tmp_path) as program,
    ):
        # One of its two connections comes back: it was at every broker.
        wait_for(lambda: doorbell.rings, lambda seen: seen > 2, what="rings")
        cluster[0].promote()
        wait_received(program)
        check(program)


@pytest.mark.parametrize(
    "options",
    [
        "",
        "?failover.maxReconnectAttempts=20",
        "?failover.amqpOpenServerListAction=ADD&failover.randomize=true",
        "?failover.amqpOpenServerListAction=IGNORE&jms.prefetchPolicy.all=10&jms.username=ann",
    ],
)
def test_the_options_of_jms_do_not_matter(a_cluster, tmp_path, prepared, options):
    client = prepared(Jms)
    cluster = a_cluster(3)
    cluster[0].declare_queue("q")
    access = Access.to(cluster, 1)
    url = f"failover:({','.join(access.urls)}){options}"
    with Program(client.command_with("q", access, url), tmp_path) as program:
        go_on(program, cluster, kill)


def test_what_comes_late_again_is_found():
    numbers = list(range(500))
    assert come_late_again([*numbers, 499, 500]) == []  # it was under way
    assert come_late_again([*numbers, 3, 500]) == [3]


def example(tag):
    (found,) = (block.text for block in blocks(ROOT / "docs" / "clients.md") if block.tag == tag)
    return found


def test_the_url_of_jms_is_the_one_of_the_documentation():
    urls = [f"amqps://ha{number}:5671" for number in (1, 2, 3)]
    url = Jms.url(Access(urls, authority=Path("/etc/pki/ca.pem")))
    assert "".join(re.findall(r'"([^"]*)"', example("java").partition(";")[0])) == url


def test_the_application_in_cpp_has_the_lines_of_the_documentation():
    named = example("cpp")
    for value, name in {
        '"ann"': "user",
        '"secret"': "password",
        '"/etc/pki/ca.pem"': "authority",
        '{"amqps://ha2:5671", "amqps://ha3:5671"}': "others",
        '"amqps://ha1:5671"': "first",
    }.items():
        assert value in named
        named = named.replace(value, name)
    application = (HERE / "application.cpp").read_text()
    assert [line for line in named.splitlines() if line not in application] == []
