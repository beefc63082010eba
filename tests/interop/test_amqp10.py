"""amqp10, an old AMQP 1.0 client of JavaScript: it knows one address and no list, so it is for
clusters behind a virtual address.
"""

from __future__ import annotations

import pytest

from tests.interop.faults import hang, kill, switch_over
from tests.interop.programs import Access, Amqp10, Program
from tests.system.cluster import wait_for


def wait_told(program, kind, more):
    """Wait until so many more numbers are told than now."""
    enough = len(program.numbers(kind)) + more
    wait_for(lambda: len(program.numbers(kind)), enough.__le__, what=f"numbers {kind}")


@pytest.mark.parametrize("fault", [kill, hang, switch_over])
def test_an_application_goes_on_when_the_address_moves(
    a_cluster, floating_address, tmp_path, prepared, fault
):
    """Its own reconnection is enough where the policy has its links attached again; each message
    that was accepted is received.
    """
    client = prepared(Amqp10)
    cluster = a_cluster(3)
    cluster[0].declare_queue("q")
    address = floating_address(cluster[0].port.number)
    access = Access([f"amqp://{address.address}"])
    with Program(client.command("q", access), tmp_path) as program:
        wait_told(program, "received", 20)
        fault(cluster)
        address.move(cluster[2].port.number)
        wait_told(program, "accepted", 50)
        if cluster[0].is_frozen:
            cluster[0].cont()
        program.stop()
        assert len(program.events("open")) > 1
        accepted, received = program.numbers("accepted"), program.numbers("received")
    assert accepted == list(range(1, len(accepted) + 1))
    assert set(accepted) <= set(received)
