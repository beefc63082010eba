"""Virtual addresses on real interfaces: one holder, neighbours that know it, and no address that
outlives its withdrawal.
"""

from __future__ import annotations

import json
import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from qpidha.manager.vip.state import Held, Notes, Wanted
from qpidha.model.errors import InvalidArgument
from tests.manager.vip_hosts import VIP, VIP6, Hosts, need_namespaces
from tests.system.cluster import wait_for


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    """A client and two hosts on one network."""
    need_namespaces()
    made = Hosts()
    yield made
    made.close()


def test_notes_survive_and_one_that_cannot_be_read_still_names_its_address(tmp_path: Path) -> None:
    notes = Notes(tmp_path / "vip")
    assert notes.all() == []
    notes.write(Held(VIP, 24, "eth0"))
    notes.write(Held(VIP6, 64, "eth0"))
    (tmp_path / "vip" / "10.0.0.9").write_text("{")
    assert Notes(tmp_path / "vip").all() == [
        Held("10.0.0.9", 0, ""),
        Held(VIP, 24, "eth0"),
        Held(VIP6, 64, "eth0"),
    ]
    notes.drop(VIP)
    notes.drop(VIP)
    assert not notes.has(VIP) and notes.has(VIP6)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "10.0.0",
        "10.0.0.1/33",
        "eth0",
        "0.0.0.0",
        "224.0.0.1",
        "10.0.0.0/24",
        "../../etc/passwd",
    ],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument):
        Wanted.parse(text)


def test_an_address_is_written_in_one_way() -> None:
    assert Wanted.parse("FD99:0:0::0100/64") == Wanted("fd99::100", 64, "")
    assert Wanted.parse(VIP, "eth1") == Wanted(VIP, 0, "eth1")
    assert Wanted.parse(f"{VIP}/255.255.255.0") == Wanted(VIP, 24)


@pytest.mark.parametrize(("address", "prefix"), [(VIP, 24), (VIP6, 64)])
def test_an_address_is_added_and_removed_as_often_as_one_likes(
    hosts: Hosts, tmp_path: Path, address: str, prefix: int
) -> None:
    said = hosts.vip("a", tmp_path, "add", address, "-o", "json")
    assert json.loads(said.stdout) == {
        "schema_version": 1,
        "address": address,
        "prefix": prefix,
        "interface": "eth0",
        "changed": True,
    }, said.stderr
    assert hosts.has("a", address)
    assert (
        json.loads(hosts.vip("a", tmp_path, "add", address, "-o", "json").stdout)["changed"]
        is False
    )
    assert json.loads(hosts.vip("a", tmp_path, "show", "-o", "json").stdout)["addresses"] == [
        {"address": address, "prefix": prefix, "interface": "eth0", "present": True}
    ]
    assert hosts.vip("a", tmp_path, "remove", address).stdout == f"{address} is removed\n"
    assert hosts.vip("a", tmp_path, "remove", address).stdout == f"{address} was not here\n"
    assert not hosts.has("a", address)
    assert Notes(tmp_path).all() == []


def test_an_ipv6_address_is_never_the_source_of_own_connections(
    hosts: Hosts, tmp_path: Path
) -> None:
    hosts.vip("a", tmp_path, "add", VIP6, "--force")
    assert "deprecated" in hosts.ip("a", f"addr show to {VIP6}")


@pytest.mark.parametrize("address", [VIP, VIP6])
def test_an_address_that_another_host_has_is_not_added(
    hosts: Hosts, tmp_path: Path, address: str
) -> None:
    assert hosts.vip("a", tmp_path / "a", "add", address).returncode == 0
    said = hosts.vip("b", tmp_path / "b", "add", address)
    assert said.returncode == 1
    assert f"{address} is in use on the network of eth0" in said.stderr
    if address == VIP:
        assert hosts.hardware("a") in said.stderr
    assert not hosts.has("b", address)
    assert Notes(tmp_path / "b").all() == []
    assert hosts.vip("b", tmp_path / "b", "add", address, "--force").returncode == 0
    assert hosts.has("b", address)


@pytest.mark.parametrize("address", [VIP, VIP6])
def test_neighbours_learn_at_once_where_the_address_went(
    hosts: Hosts, tmp_path: Path, address: str
) -> None:
    assert hosts.vip("a", tmp_path / "a", "add", address).returncode == 0
    hosts.run("client", "ping", "-c1", "-W1", address) if shutil.which("ping") else _knock(
        hosts, address
    )
    assert wait_for(lambda: hosts.neighbour(address), what="the client's entry") == hosts.hardware(
        "a"
    )
    assert hosts.vip("a", tmp_path / "a", "remove", address).returncode == 0
    assert hosts.vip("b", tmp_path / "b", "add", address).returncode == 0
    wait_for(
        lambda: hosts.neighbour(address), hosts.hardware("b").__eq__, what="the client's entry"
    )


def test_arping_finds_one_holder(hosts: Hosts, tmp_path: Path) -> None:
    if shutil.which("arping") is None:
        pytest.skip("needs arping")
    words = ("arping", "-c", "2", "-w", "2", "-I", "br0", VIP)
    assert hosts.run("client", *words).returncode != 0
    hosts.vip("a", tmp_path, "add", VIP)
    said = hosts.run("client", *words)
    assert (
        said.returncode == 0
        and hosts.hardware("a") in said.stdout.lower()
        and hosts.hardware("b") not in said.stdout.lower()
    )


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("add", "10.0.0.300"), 2, "is no address"),
        (("add", "192.0.2.1"), 1, "no interface has a network that holds 192.0.2.1"),
        (
            ("add", VIP, "--interface", "eth9"),
            1,
            "there is no interface eth9. Try: one of lo, eth0",
        ),
    ],
)
def test_what_cannot_be_done_says_why(
    hosts: Hosts, tmp_path: Path, words: tuple[str, ...], code: int, says: str
) -> None:
    said = hosts.vip("a", tmp_path, *words)
    assert (said.returncode, says in said.stderr) == (code, True), said.stderr


def test_the_loopback_has_no_neighbours_to_ask_or_tell(hosts: Hosts, tmp_path: Path) -> None:
    assert hosts.vip("a", tmp_path, "add", VIP, "--interface", "lo").returncode == 0
    assert f" {VIP}/32 " in hosts.ip("a", "addr show dev lo")


def test_an_interface_that_is_down_is_refused(hosts: Hosts, tmp_path: Path) -> None:
    hosts.ip("a", "link set eth0 down")
    said = hosts.vip("a", tmp_path, "add", f"{VIP}/24", "--interface", "eth0")
    assert (said.returncode, "eth0 is down" in said.stderr) == (1, True), said.stderr


def test_an_address_that_the_kernel_refuses_is_not_noted(hosts: Hosts, tmp_path: Path) -> None:
    words = ("add", f"{VIP6}/64", "--interface", "eth0", "--force")
    assert hosts.vip("a", tmp_path, *words).returncode == 0
    hosts.run("a", "sysctl", "-qw", "net.ipv6.conf.eth0.disable_ipv6=1")
    said = hosts.vip("a", tmp_path, *words)
    assert (said.returncode, "IPv6 is switched off on eth0" in said.stderr) == (1, True), (
        said.stderr
    )
    assert Notes(tmp_path).has(VIP6), "one that was held before stays noted until it is removed"
    assert hosts.vip("a", tmp_path, "remove", VIP6).returncode == 0
    assert hosts.vip("a", tmp_path, *words).returncode == 1
    assert Notes(tmp_path).all() == []


def test_after_a_withdrawal_nothing_is_left_and_nothing_comes(hosts: Hosts, tmp_path: Path) -> None:
    program = f"""
import sys, threading
from pathlib import Path
from qpidha.manager.vip.addresses import VirtualAddresses
from qpidha.manager.vip.state import Wanted
from qpidha.model.errors import RefusedRequest
held = VirtualAddresses(Path({str(tmp_path)!r}))
held.add(Wanted("{VIP}"))
def add(number, generation):
    try:
        held.add(Wanted(f"10.99.0.{{number}}"), generation=generation)
    except RefusedRequest as error:
        assert "withdrawn" in str(error), error
turn = held.generation
adding = [threading.Thread(target=add, args=(number, turn)) for number in range(101, 120)]
for one in adding:
    one.start()
held.withdraw()
for one in adding:
    one.join()
print(len(held.notes.all()))
"""
    said = hosts.run("a", sys.executable, "-c", program)
    assert said.stdout == "0\n", said.stderr
    assert "10.99.0.1" in hosts.ip("a", "addr show dev eth0") and not any(
        hosts.has("a", f"10.99.0.{n}") for n in range(100, 120)
    )


def test_a_note_of_an_interface_that_is_called_otherwise_now_is_followed(
    hosts: Hosts, tmp_path: Path
) -> None:
    hosts.vip("a", tmp_path, "add", VIP)
    Notes(tmp_path).write(Held(VIP, 24, "old0"))
    program = (
        "from pathlib import Path; from qpidha.manager.vip.addresses import "
        f"VirtualAddresses as V; print(V(Path({str(tmp_path)!r})).withdraw())"
    )
    assert hosts.run("a", sys.executable, "-c", program).stdout == f"['{VIP}']\n"
    assert not hosts.has("a", VIP)


def _knock(hosts: Hosts, address: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    program = (
        f"import socket; socket.socket({int(family)}, socket.SOCK_DGRAM).sendto(b'', "
        f"({address!r}, 9))"
    )
    hosts.run("client", sys.executable, "-c", program)
