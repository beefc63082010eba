"""The thread that writes the state file: what gathers is written once, and who waits is told."""

from __future__ import annotations

import threading

import pytest

from qpidha.model.effects import SaveState
from qpidha.model.events import StateSaved
from qpidha.runtime.state_saver import StateSaver
from tests.patience import STATE


class HeldDisk:
    """A disk whose next write waits until it is let go."""

    def __init__(self):
        self.done = []
        self.begun = threading.Semaphore(0)
        self.go = threading.Semaphore(0)
        self.error = None

    def save_state(self, data):
        self.begun.release()
        assert self.go.acquire(timeout=STATE)
        if self.error is not None:
            raise self.error
        self.done.append(data)

    def settle_state(self):
        self.done.append("settled")


class Ears:
    """What the thread tells."""

    def __init__(self):
        self.events, self.reasons = [], []
        self.heard = threading.Semaphore(0)

    def post(self, event):
        self.events.append(event)
        self.heard.release()

    def failed(self, reason):
        self.reasons.append(reason)
        self.heard.release()

    def wait(self):
        assert self.heard.acquire(timeout=STATE)


@pytest.fixture
def disk():
    return HeldDisk()


@pytest.fixture
def ears():
    return Ears()


def test_faults_b2_what_gathers_during_a_write_is_written_once(disk, ears):
    saver = StateSaver(disk, ears.post, ears.failed)
    saver.save(SaveState(b"one", 1))
    assert disk.begun.acquire(timeout=STATE)
    for mark, data in ((2, b"two"), (3, b"three"), (4, b"four")):
        saver.save(SaveState(data, mark))
    assert ears.events == []
    disk.go.release(2)
    ears.wait()
    ears.wait()
    assert saver.close(STATE)
    assert ears.events == [StateSaved(1), StateSaved(4)]
    assert disk.done == [b"one", "settled", b"four", "settled"]


def test_what_waits_is_saved_before_the_end(disk, ears):
    disk.go.release()
    saver = StateSaver(disk, ears.post, ears.failed)
    saver.save(SaveState(b"last", 7))
    assert saver.close(STATE) and b"last" in disk.done


def test_a_disk_that_takes_too_long_is_left_behind(disk, ears):
    saver = StateSaver(disk, ears.post, ears.failed)
    saver.save(SaveState(b"one", 1))
    assert disk.begun.acquire(timeout=STATE)
    assert not saver.close(0.01)
    disk.go.release()
    assert saver.close(STATE)


def test_a_disk_that_fails_is_told_and_nothing_more_is_saved(disk, ears):
    disk.error = OSError(28, "No space left on device")
    disk.go.release(2)
    saver = StateSaver(disk, ears.post, ears.failed)
    saver.save(SaveState(b"one", 1))
    ears.wait()
    saver.save(SaveState(b"two", 2))
    assert saver.close(STATE)
    assert ears.events == [] and len(ears.reasons) == 1 and "no space left" in ears.reasons[0]
