"""A process of clients, and the stream that reads what it tells."""

from __future__ import annotations

from pathlib import Path

import pytest

from qpidha.manager.builtin.launch import EventStream
from qpidha.pipeline.workload import run


def test_a_finished_pool_is_read_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run.sys, "executable", "/bin/true")
    stream = EventStream()
    pool = run.ClientPool(stream, "founder", [], tmp_path / "log", {})
    pool.finish()
    assert not stream.wait(lambda: False, 0.01)
