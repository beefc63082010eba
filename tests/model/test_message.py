"""Messages: their bytes may be elsewhere, their size is known all the same."""

from __future__ import annotations

from qpidha.model.message import Message


class Shelf:
    """A body that has the bytes of each sequence."""

    def read(self, sequence: int) -> bytes:
        return f"bytes of {sequence}".encode()


def test_bytes_in_memory_are_the_body() -> None:
    message = Message(7, b"payload")
    assert message.body() is message.payload
    assert message.size == 7


def test_bytes_elsewhere_are_read_by_the_sequence_and_the_size_stays() -> None:
    message = Message(7, b"payload")
    message.payload = Shelf()
    assert message.body() == b"bytes of 7"
    assert message.size == 7
    assert repr(message) == "Message(7, 7 bytes)"
