"""amqp10, an old AMQP 1.0 client of JavaScript: it knows one address and no list, so it is for
clusters behind a virtual address.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.interop.faults import hang, kill, restart_all, switch_over, terminate
from tests.interop.programs import Amqp10, Program
from tests.system.cluster import wait_for


def wait_told(program, kind, more):
    """Wait until so many more numbers are told than now."""
    enough = len(program.numbers(kind)) + more
    wait_for(lambda: len(program.numbers(kind)), enough.__le__, what=f"numbers {kind}")


CELLS = [("plain", fault) for fault in (kill, hang, switch_over)] + [
    ("encrypted", fault) for fault in (kill, hang, terminate, switch_over, restart_all)
]


def port_of(broker, access):
    """Return the port where a broker serves who has this access."""
    return (broker.encrypted_port if access.authority else broker.port).number


@pytest.mark.parametrize(("brokers", "fault"), CELLS)
def test_an_application_goes_on_when_the_address_moves(
    request, floating_address, tmp_path, prepared, brokers, fault
):
    """Its own reconnection is enough where the policy has its links attached again; each message
    that was accepted is received.
    """
    client = prepared(Amqp10)
    cluster, access = request.getfixturevalue(brokers)(0)
    cluster[0].declare_queue("q")
    address = floating_address(port_of(cluster[0], access))
    scheme = "amqps" if access.authority else "amqp"
    access = replace(access, urls=[f"{scheme}://{address.address}"])
    with Program(client.command("q", access), tmp_path) as program:
        wait_told(program, "received", 20)
        fault(cluster)
        address.move(port_of(cluster[2], access))
        wait_told(program, "accepted", 50)
        if cluster[0].is_frozen:
            cluster[0].cont()
        program.stop()
        assert len(program.events("open")) > 1
        accepted, received = program.numbers("accepted"), program.numbers("received")
    assert accepted == list(range(1, len(accepted) + 1))
    assert set(accepted) <= set(received)
