"""The door for TLS and the newcomers behind it, on sockets and a loop that are none."""

from __future__ import annotations

import errno
import io
import os
from unittest.mock import Mock

import pytest

from qpidha.model.settings import Settings
from qpidha.runtime.clock import Clock
from qpidha.runtime.log_lines import Log
from qpidha.runtime.log_sinks import StreamSink
from qpidha.runtime.newcomers import Newcomers
from qpidha.runtime.secure_door import SecureDoor


class Door:
    """A door to which come what it is given: the addresses of peers, or errors."""

    def __init__(self, monkeypatch):
        self.output = io.StringIO()
        self.listener = Mock()
        log = Log([StreamSink(self.output)], Clock())
        self.newcomers = Newcomers(Settings(), log)
        monkeypatch.setattr(SecureDoor, "_greet", Mock())
        streams = (Mock(connection_id=number) for number in range(1000))
        self.door = SecureDoor(
            Mock(), self.listener, Mock(), self.newcomers, lambda: next(streams), 1.0, log, Mock()
        )

    def come(self, *peers):
        self.listener.accept.side_effect = [
            peer if isinstance(peer, OSError) else (Mock(), (peer, 1)) for peer in peers
        ]
        self.door._accept()


def exhausted():
    return OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def test_that_there_are_no_descriptors_left_is_told_once_until_somebody_comes(monkeypatch):
    door = Door(monkeypatch)
    for count in (1, 2):
        for _ in range(3):
            door.come(exhausted())
            assert door.output.getvalue().count("Too many open files") == count
        door.come("192.0.2.9", BlockingIOError())


@pytest.mark.parametrize(
    ("given", "host"),
    [("::ffff:192.0.2.9", "192.0.2.9"), ("2001:DB8:0::1", "2001:db8::/64"), ("::1", "::/64")],
)
def test_a_peer_is_counted_where_its_connection_will_be(monkeypatch, given, host):
    door = Door(monkeypatch)
    door.come(given, BlockingIOError())
    assert list(door.newcomers.silent.crowds) == [host]


def test_who_is_taken_again_at_another_address_is_counted_there_alone(monkeypatch):
    newcomers = Door(monkeypatch).newcomers
    newcomers.take(1, "a", Mock())
    newcomers.take(1, "b", Mock())
    assert len(newcomers) == 1 and list(newcomers.silent.crowds) == ["b"]
    newcomers.forget(1)
    assert len(newcomers) == 0 and not newcomers.silent.crowds
