"""Selectors as clients of others ask for them: rhea by SQL, Qpid JMS, and Proton in Python. What
they do not select stays in its place and order, and so it is behind the next primary.
"""

from __future__ import annotations

import pytest
from proton import Message
from proton.reactor import Copy, Selector
from proton.utils import BlockingConnection, LinkDetached

from qpidha.client.message import Message as Sent
from tests.interop.faults import kill
from tests.interop.programs import Access, Program, SelectingJms, SelectingRhea
from tests.patience import STATE
from tests.system.clients import browse, connect
from tests.system.cluster import wait_for

ALL = range(40)
SELECTED = [number for number in ALL if number % 3 == 1]


@pytest.fixture(params=[SelectingRhea, SelectingJms], ids=lambda kind: kind.__name__)
def client(request, prepared):
    """Return a client whose application can be run."""
    return prepared(request.param)


def send(broker, address, numbers):
    """Send messages that say their numbers."""
    with connect(broker) as sends:
        sender = sends.sender(address)
        for number in numbers:
            properties = {"n": number}
            sender.send(Sent(number, subject=f"no-{number}", application_properties=properties))


def test_row_121_what_others_do_not_select_stays_in_order_through_a_failover(
    a_cluster, client, tmp_path
):
    cluster = a_cluster(3)
    cluster[0].declare_queue("q")
    with Program(client.command("q", Access.to(cluster, 0)), tmp_path) as program:
        wait_for(lambda: program.events("open"), bool, what="a receiver with a selector")
        send(cluster[0], "q", ALL[:20])
        wait_for(lambda: program.numbers("received"), lambda got: len(got) == 7, what="messages")
        kill(cluster)
        send(cluster[2], "q", ALL[20:])
        wait_for(
            lambda: sorted(set(program.numbers("received"))),
            lambda got: got == SELECTED,
            what="messages after the failover",
        )
        assert browse(cluster[2], "q") == [number for number in ALL if number not in SELECTED]
        if isinstance(client, SelectingJms):
            send(cluster[2], "amq.fanout", range(100, 105))
            send(cluster[2], "amq.fanout", ALL)
            wait_for(
                lambda: program.numbers("heard"),
                lambda heard: heard[-len(SELECTED) :] == SELECTED,
                what="messages of the topic",
            )
        program.stop()


def test_qpid_2_a_selector_of_proton_selects_and_a_browser_too(a_cluster):
    cluster = a_cluster(1)
    cluster[0].declare_queue("q")
    send(cluster[0], "q", ALL)
    connection = BlockingConnection(cluster[0].address, timeout=STATE)
    for text, expected in (
        ("n < 3 OR JMSType = 'no-9'", [0, 1, 2, 9]),
        ("n BETWEEN 30 AND 32 AND NOT n = 31", [30, 32]),
    ):
        for modes in ([Copy()], []):
            receiver = connection.create_receiver("q", credit=9, options=[Selector(text), *modes])
            got = [receiver.receive() for _ in expected]
            assert [int(message.properties["n"]) for message in got] == expected
            while not modes and receiver.fetcher.unsettled:
                receiver.accept()
            receiver.close()
    with pytest.raises(LinkDetached, match="at character 3"):
        connection.create_receiver("q", options=Selector("n ! 3"))
    connection.create_sender("q").send(Message(body=99))
    connection.close()
    left = [number for number in ALL if number not in (0, 1, 2, 9, 30, 32)]
    assert browse(cluster[0], "q") == [*left, 99]
