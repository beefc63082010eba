"""Fields beside a queue: what keeps it small, and that they are each queue's own."""

from __future__ import annotations

import gc
import sys

from qpidha.broker.queues.apart import Apart, WithApart
from qpidha.broker.queues.queue import Queue
from tests.broker.queues.test_queue import a_queue

SMALL = 512
"""Bytes up to which Python takes an object from pages of its own."""


class Two(WithApart):
    """Has two such fields."""

    __slots__ = ("near",)
    one = Apart[int]()
    other = Apart[str]()


def test_fields_are_each_objects_own() -> None:
    first, second = Two(), Two()
    first.one, first.other, second.one = 1, "a", 2
    assert (first.one, first.other, second.one) == (1, "a", 2)
    first.one += 1
    assert (first.one, second.one) == (2, 2)


def test_a_queue_is_a_small_object() -> None:
    queue = a_queue()
    assert gc.is_tracked(queue)
    assert sys.getsizeof(queue) <= SMALL, "move a field that is seldom used: see apart.py"
    assert not hasattr(queue, "__dict__")
    assert Queue.__weakrefoffset__ == 0
