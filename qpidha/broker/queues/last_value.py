"""Last values: of the messages with one key only the last is on the queue.

A queue with `qpid.last_value_queue_key` reads a key from each message, the application property of
that name. A message that comes takes the place of the one with its key: that one leaves with the
cause REPLACED, in the batch in which the new one comes, also if a consumer has it. The consumer
keeps what it has, and its outcome then finds nothing. The new message is the last of the queue, so
a browser that has seen the former value sees the new one as well.

As in Qpid the key is a text, so a number and its digits are the same key; messages without the
property have the empty key, all of them.

Only the primary replaces, by records. A backup takes note of keys, as a message comes, from what is
in it, so that a successor knows which message a key has, however it got them: the one with the
highest sequence.
Source: Qpid `MessageMap.cpp`, `QueueSettings.cpp`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from qpidha.broker.queues.arguments import LONGEST_KEY, short_name
from qpidha.broker.queues.dead_letters import is_of_deaths
from qpidha.broker.queues.messages import Messages
from qpidha.broker.queues.ordering import BySequence
from qpidha.model.errors import InvalidArgument, ProtocolViolation
from qpidha.model.message import Message
from qpidha.model.message_view import (
    ACQUIRED_COUNT,
    BCC,
    CC,
    DELIVERY_DELAY,
    DELIVERY_TIMES,
    FAILED_OVER,
    application_property,
)

LAST_VALUE_KEY = "qpid.last_value_queue_key"
SEQUENCE_KEY = "qpid.queue_msg_sequence"
TAKEN = frozenset({ACQUIRED_COUNT, BCC, CC, DELIVERY_DELAY, FAILED_OVER, *DELIVERY_TIMES})
"""Annotations that brokers write or follow, beside those of dead letters."""
LEGACY_KEY = "qpid.LVQ_key"
"""The property that Qpid's older names for such a queue mean."""


class KeyedMessage(Message):
    """A message on a queue of last values."""

    __slots__ = ("key",)
    key: str


class LastValue(BySequence):
    """The order of the sequences, and the message that each key has."""

    __slots__ = ("_by_key", "_last", "_name")
    kind: type[Message] = KeyedMessage

    def __init__(self, messages: Messages, name: str) -> None:
        super().__init__(messages)
        self._by_key: dict[str, int] = {}
        self._name = name.encode()
        self._last: tuple[bytes, str] = (b"", "")
        """The message whose key was read last: it is looked for, and then added."""

    def key(self, payload: bytes) -> str:
        """Return the key of a message."""
        if self._last[0] is not payload:
            self._last = (payload, self._read(payload))
        return self._last[1]

    def _read(self, payload: bytes) -> str:
        try:
            value = application_property(payload, self._name)
        except ProtocolViolation:
            return ""  # What nobody can read has no key for anybody.
        return "" if value is None else short_name(str(value))

    def replaced_by(self, payload: bytes) -> Message | None:
        """Return the message with the key of this one."""
        sequence = self._by_key.get(self.key(payload))
        return None if sequence is None else self._messages.get(sequence)

    def add(self, sequence: int) -> None:
        """Put a message at the end, and take note of its key."""
        message: Any = self._messages[sequence]
        key = message.key = self.key(message.payload)
        former = self._by_key.get(key)
        # On a backup an earlier one may come later; it is on its way out.
        if former is None or former < sequence:
            self._by_key[key] = sequence
        self._order.append(sequence)

    def add_run(self, sequences: list[int]) -> None:
        """Put messages at the end."""
        for sequence in sequences:
            self.add(sequence)

    def left(self, message: Any) -> None:
        """Forget the key of a message, unless another has it by now."""
        if self._by_key.get(message.key) == message.sequence:
            del self._by_key[message.key]


def read_last_value(arguments: Mapping[str, Any]) -> str:
    """Return the property by which last values are known, empty if all messages stay."""
    return str(arguments.get(LAST_VALUE_KEY, ""))


def check_last_value(arguments: Mapping[str, Any]) -> None:
    """Raise InvalidArgument for a name that no property can have."""
    _check_text(arguments, LAST_VALUE_KEY)


def _check_text(arguments: Mapping[str, Any], argument: str) -> None:
    name = arguments.get(argument, "-")
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_KEY:
        raise InvalidArgument(
            f"{argument} is no name that a property or an annotation can have",
            hint=f"use a text of 1 to {LONGEST_KEY} characters",
        )


def read_sequence_key(arguments: Mapping[str, Any]) -> str:
    """Return the annotation with the number of each message, empty if messages have none."""
    return str(arguments.get(SEQUENCE_KEY, ""))


def check_sequence_key(arguments: Mapping[str, Any]) -> None:
    """Raise InvalidArgument for a name that no annotation can have, or that is taken."""
    _check_text(arguments, SEQUENCE_KEY)
    name = arguments.get(SEQUENCE_KEY, "")
    if name in TAKEN or is_of_deaths(name):
        raise InvalidArgument(
            f"{SEQUENCE_KEY}={name} is taken",
            reason="an annotation of this name says something else of a message",
            hint="use another name",
        )
    if SEQUENCE_KEY in arguments and not arguments[SEQUENCE_KEY].isascii():
        raise InvalidArgument(
            f"{SEQUENCE_KEY} is a symbol, of ASCII characters", hint="use another name"
        )
