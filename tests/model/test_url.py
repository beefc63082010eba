"""URLs of brokers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qpidha.model.url import Address, Url, parse_address, parse_url

HOSTS = st.sampled_from(["a", "node-1.example.org", "127.0.0.1", "::1", "fe80::1%eth0"])
ADDRESSES = st.builds(Address, st.sampled_from(["tcp", "ssl"]), HOSTS, st.integers(1, 65535))


def test_protocol_and_port_have_defaults():
    assert parse_url("amqp:a,tcp:b:1,ssl:c,ssl:[::1]:4") == (
        Address("tcp", "a", 5672),
        Address("tcp", "b", 1),
        Address("ssl", "c", 5671),
        Address("ssl", "::1", 4),
    )


def test_amqps_makes_tls_the_default():
    assert parse_url("amqps://a") == (Address("ssl", "a", 5671),)


@pytest.mark.parametrize(
    "text", ["amqp:guest/secret@a", "guest:secret@a", "amqp://guest:secret@a:5672"]
)
def test_credentials_are_read_and_never_shown(text):
    url = parse_url(text)
    assert (url.user, url.password, url[0].host) == ("guest", "secret", "a")
    assert "secret" not in str(url) + repr(url)


@pytest.mark.parametrize(
    ("text", "user", "password"),
    [
        ("amqp://u%3A:p%40ss%2C%25@a", "u:", "p@ss,%"),
        ("amqp:u%2F/p%40@a,b", "u/", "p@"),
        ("u:p%C3%A4@a", "u", "pä"),
        ("amqps://u/p:w@a", "u", "p:w"),
        ("amqp://u:p/w@a", "u", "p/w"),
        ("amqp:u:v/p@a", "u:v", "p"),
        ("u:v/p@a", "u:v", "p"),
    ],
)
def test_credentials_are_percent_encoded(text, user, password):
    url = parse_url(text)
    assert (url.user, url.password) == (user, password)


@pytest.mark.parametrize("text", ["amqp://u:hush%@a", "amqp://u:hush%zz@a", "amqp:hush%ff/p@a"])
def test_broken_credentials_are_refused_and_not_shown(text):
    with pytest.raises(ValueError, match="%25") as found:
        parse_url(text)
    assert "hush" not in str(found.value)


@pytest.mark.parametrize("text", ["", "none", "  "])
def test_no_url_is_empty(text):
    assert parse_url(text) == Url() and not parse_url(text) and str(parse_url(text)) == ""


@pytest.mark.parametrize(
    "text",
    [
        "a,",
        ",a",
        "a:0",
        "a:65536",
        "a:b",
        "rdma:a",
        "a b",
        "[::1",
        "amqp:",
        "a/b,c",
        "http://a:b@c",
    ],
)
def test_a_broken_url_is_refused(text):
    with pytest.raises(ValueError):
        parse_url(text)


@given(st.lists(ADDRESSES, min_size=1, max_size=4))
def test_a_written_url_reads_back(addresses):
    assert parse_url(str(Url(addresses))) == tuple(addresses)


def test_an_address_is_written_as_others_write_it():
    assert str(parse_address("a")) == "a:5672"
    assert str(parse_address("ssl:[::1]")) == "ssl:[::1]:5671"
