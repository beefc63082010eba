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
    assert (again.system_id, again.state, again.state_copy) == (identity, b"two", b"one")
    again.settle_state()
    again.close()
    assert sorted(os.listdir(tmp_path / "data")) == ["lock", "state", "state.copy", "systemId"]
    assert Disk(str(tmp_path / "data")).state_copy == b"two"


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
    (tmp_path / "state.new").mkdir()
    with pytest.raises(OSError):
        disk.save_state(b"new")
    assert disk.state == b"" and not (tmp_path / "state").exists()
    disk.close()


def syncs(monkeypatch):
    """Note what is synced from now on."""
    synced = []
    for name in ("fsync", "fdatasync"):
        call = getattr(os, name)

        def note(file, call=call):
            synced.append(os.path.basename(os.readlink(f"/proc/self/fd/{file}")))
            call(file)

        monkeypatch.setattr(os, name, note)
    return synced


def test_faults_b2_a_state_is_saved_with_one_sync_when_the_last_one_is_in_both_files(
    tmp_path, monkeypatch
):
    disk = Disk(str(tmp_path))
    disk.save_state(b"one")
    disk.settle_state()
    synced = syncs(monkeypatch)
    disk.save_state(b"two, which is longer")
    assert synced == ["state"]
    disk.settle_state()
    disk.settle_state()
    assert synced == ["state", "state.copy"]
    disk.save_state(b"three")
    disk.save_state(b"four")
    assert synced[2:] == ["state", "state.copy", "state"]
    disk.close()


def test_a_torn_state_was_not_saved_and_the_former_one_is_in_the_copy(tmp_path, monkeypatch):
    disk = Disk(str(tmp_path))
    disk.save_state(b"one")
    disk.settle_state()
    monkeypatch.setattr(os, "fdatasync", failing)
    with pytest.raises(OSError):
        disk.save_state(b"two")
    disk.close()
    (tmp_path / "state").write_bytes(b"tw\0\0")
    again = Disk(str(tmp_path))
    assert (again.state, again.state_copy) == (b"tw\0\0", b"one")
    again.state = again.state_copy
    monkeypatch.undo()
    again.settle_state()
    again.close()
    assert Disk(str(tmp_path)).state == b"one"


def test_both_files_are_written_and_synced_once_by_each_process_that_reads_them(
    tmp_path, monkeypatch
):
    disk = Disk(str(tmp_path))
    disk.save_state(b"one")
    disk.settle_state()
    disk.close()
    synced = syncs(monkeypatch)
    again = Disk(str(tmp_path))
    again.save_state(b"one")
    assert synced == ["state"], "it may not have been synced before"
    again.settle_state()
    again.settle_state()
    again.save_state(b"one")
    assert synced == ["state", "state.copy"]
    again.close()
    third = Disk(str(tmp_path))
    third.save_state(b"two")
    assert synced[2:] == ["state", "state.copy", "state"], "what was read is safe before it goes"
    third.close()


@pytest.mark.parametrize("has_copy", [False, True], ids=["no copy", "a copy"])
def test_a_full_disk_without_a_copy_of_the_state_ends_no_broker(tmp_path, monkeypatch, has_copy):
    disk = Disk(str(tmp_path))
    disk.save_state(b"one")
    if has_copy:
        disk.settle_state()
    disk.close()

    def full(file):
        if os.path.basename(os.readlink(f"/proc/self/fd/{file}")).startswith("state.copy"):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    monkeypatch.setattr(os, "fdatasync", full)
    again = Disk(str(tmp_path))
    if has_copy:  # It needs no space, so this is a fault.
        with pytest.raises(OSError):
            again.settle_state()
    else:
        again.settle_state()
        again.save_state(b"two")
        assert (tmp_path / "state").read_bytes().rstrip() == b"two"
        assert not (tmp_path / "state.copy.new").exists()
        monkeypatch.undo()
        again.settle_state()
        assert again.state_copy == b"two", "made when there is space"
    again.close()


def failing(file):
    raise OSError(5, "Input/output error")


def test_a_state_that_outgrew_its_block_is_kept_whole(tmp_path):
    disk = Disk(str(tmp_path))
    for state in (b"one", b"x" * 10_000, b"short"):
        disk.save_state(state)
        disk.settle_state()
        assert (tmp_path / "state").read_bytes().rstrip() == state
    disk.close()
    again = Disk(str(tmp_path))
    assert (again.state, again.state_copy) == (b"short", b"short")
    again.close()


def test_a_state_of_a_version_without_a_copy_gets_one_before_it_is_written_over(tmp_path):
    Disk(str(tmp_path)).close()
    (tmp_path / "state").write_bytes(b"one")
    disk = Disk(str(tmp_path))
    assert (disk.state, disk.state_copy) == (b"one", b"")
    disk.save_state(b"two")
    assert (disk.state, disk.state_copy) == (b"two", b"one")
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
        disk.settle_state()
        disk.close()
        assert [mode(tmp_path / name) for name in ("state", "systemId")] == [0o600, 0o600]
        assert mode(tmp_path / "state.copy") == 0o600
        (tmp_path / "state").chmod(0o644)
        (tmp_path / "systemId").chmod(0o644)
        Disk(str(tmp_path)).close()
    finally:
        os.umask(umask)
    assert [mode(tmp_path / name) for name in ("state", "systemId")] == [0o600, 0o600]


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)
