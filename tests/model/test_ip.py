"""What the text of an address means."""

from __future__ import annotations

import pytest

from qpidha.model.ip import host_of, ip_of, is_loopback, neighbourhood, network_of, plain_host


@pytest.mark.parametrize(
    ("address", "host", "plain", "place"),
    [
        ("192.0.2.9:4711", "192.0.2.9", "192.0.2.9", "192.0.2.9"),
        ("[::ffff:192.0.2.9]:4711", "::ffff:192.0.2.9", "192.0.2.9", "192.0.2.9"),
        ("[::FFFF:C000:209]:4711", "::FFFF:C000:209", "192.0.2.9", "192.0.2.9"),
        ("[2001:DB8:1:2::6]:1", "2001:DB8:1:2::6", "2001:db8:1:2::6", "2001:db8:1:2::/64"),
        ("[2001:db8:1:3::1]:4711", "2001:db8:1:3::1", "2001:db8:1:3::1", "2001:db8:1:3::/64"),
        ("[::1]:4711", "::1", "::1", "::/64"),
        ("[fe80::1%eth0]:4711", "fe80::1%eth0", "fe80::1%eth0", "fe80::/64"),
        ("localhost:4711", "localhost", "localhost", "localhost"),
        ("client", "", "", "client"),
        ("", "", "", ""),
    ],
)
def test_the_host_of_a_peer(address: str, host: str, plain: str, place: str) -> None:
    assert (host_of(address), plain_host(host), neighbourhood(address)) == (host, plain, place)
    assert (ip_of(host) is None) == (host in ("", "localhost"))
    assert network_of(plain) == (place if host else "")


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True),
        ("127.9.8.7", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("192.0.2.1", False),
        ("127.evil.example", False),
        ("localhost", False),
        ("", False),
    ],
)
def test_the_loopback_is_of_this_machine(host: str, local: bool) -> None:
    assert is_loopback(host) is local
