"""Events in words."""

from __future__ import annotations

from qpidha.manager.builtin.events import summary_line


def test_a_primary_of_an_old_epoch_is_told_as_stale_and_not_as_active() -> None:
    entry = {"event": "state", "broker": "b1", "state": "active", "epoch": 1}
    assert summary_line(entry, newest_epoch=1) == ("active", "b1 (epoch 1)")
    assert summary_line(entry, newest_epoch=2) == (
        "stale",
        "b1 (epoch 1): wakes up and will step down",
    )


def test_a_backup_that_joins_with_an_old_epoch_is_not_stale() -> None:
    entry = {"event": "state", "broker": "b1", "state": "joining", "epoch": 1}
    assert summary_line(entry, newest_epoch=2) == ("joining", "b1 (epoch 1)")
