"""The data directory."""

from __future__ import annotations

import os
import stat

import pytest

from qpidha.model.exit_codes import CONFIG, UNAVAILABLE
from qpidha.runtime.data_dir import Disk
from qpidha.runtime.exits import CannotStart


def test_identity_and_state_survive(tmp_path):
    disk = Disk(str(tmp_path / "data"))
    identity = disk.system_id
    assert disk.state == b""
    disk.save_state(b"one")
    disk.save_state(b"two")
    disk.close()
    again = Disk(str(tmp_path / "data"))
    assert (again.system_id, again.state) == (identity, b"two")
    again.close()
    assert sorted(os.listdir(tmp_path / "data")) == ["lock", "state", "systemId"]


def test_a_second_daemon_on_the_directory_is_refused(tmp_path):
    first = Disk(str(tmp_path))
    with pytest.raises(CannotStart) as caught:
        Disk(str(tmp_path))
    assert str(os.getpid()) in caught.value.text and str(tmp_path) in caught.value.text
    assert caught.value.code == UNAVAILABLE and caught.value.hint
    first.close()
    Disk(str(tmp_path)).close()


def test_without_a_directory_all_is_in_memory():
    one, two = Disk(), Disk()
    one.save_state(b"x")
    assert one.state == b"x" and two.state == b"" and one.system_id != two.system_id


def test_a_damaged_identity_is_refused_and_kept(tmp_path):
    (tmp_path / "systemId").write_text("not one")
    with pytest.raises(CannotStart) as caught:
        Disk(str(tmp_path))
    assert caught.value.code == CONFIG
    assert (tmp_path / "systemId").read_text() == "not one"


def test_a_save_that_fails_leaves_the_old_state(tmp_path):
    disk = Disk(str(tmp_path))
    disk.save_state(b"old")
    (tmp_path / "state.new").mkdir()
    with pytest.raises(OSError):
        disk.save_state(b"new")
    assert disk.state == b"old" and (tmp_path / "state").read_bytes() == b"old"
    disk.close()


def test_a_place_that_is_no_directory_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotStart) as caught:
        Disk(str(tmp_path / "file"))
    assert str(tmp_path / "file") in caught.value.text


def test_others_cannot_read_the_directory(tmp_path):
    Disk(str(tmp_path / "data")).close()
    assert stat.S_IMODE(os.stat(tmp_path / "data").st_mode) & 0o007 == 0


def test_each_directory_that_is_made_has_its_name_synced(tmp_path, monkeypatch):
    synced = []
    fsync = os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda file: (synced.append(os.readlink(f"/proc/self/fd/{file}")), fsync(file))
    )
    Disk(str(tmp_path / "a" / "b" / "data")).close()
    assert synced[:3] == [str(tmp_path), str(tmp_path / "a"), str(tmp_path / "a" / "b")]
    synced.clear()
    Disk(str(tmp_path / "a" / "b" / "data")).close()
    assert synced == []


def test_code_7_nobody_else_can_read_identity_and_state(tmp_path):
    umask = os.umask(0)
    try:
        disk = Disk(str(tmp_path))
        (tmp_path / "state.new").touch(0o666)  # Left by a former version that was killed.
        disk.save_state(b"one")
        disk.close()
        assert [mode(tmp_path / name) for name in ("state", "systemId")] == [0o600, 0o600]
        (tmp_path / "state").chmod(0o644)
        (tmp_path / "systemId").chmod(0o644)
        Disk(str(tmp_path)).close()
    finally:
        os.umask(umask)
    assert [mode(tmp_path / name) for name in ("state", "systemId")] == [0o600, 0o600]


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)
