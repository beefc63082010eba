"""Where runs go, and what becomes of earlier ones."""

from __future__ import annotations

import json
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from qpidha.bench import run as bench
from qpidha.client.command.exits import Failure
from qpidha.model.exit_codes import NO
from qpidha.pipeline.workload.run_dirs import KEPT, home, program, prune, renew


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A directory with a short name, because sockets lie in it."""
    with tempfile.TemporaryDirectory(prefix="qpidha-") as path:
        yield Path(path)


def demo_directory(directory: Path, *, cluster: str = "demo") -> Path:
    """A directory as an earlier demo leaves it."""
    (directory / "b1" / "data").mkdir(parents=True)
    (directory / "b1" / "qpidhad.log").touch()
    (directory / "cluster.json").write_text(json.dumps({"name": cluster}))
    (directory / "result.json").write_text(json.dumps({"fault": "kill"}))
    return directory


def test_runs_go_under_qpidha_dir_when_it_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QPIDHA_DIR", str(tmp_path / "mine"))
    assert bench.default_directory().parent == tmp_path / "mine" / "bench"
    monkeypatch.delenv("QPIDHA_DIR")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert home("bench") == tmp_path / "qpidha" / "bench"


def test_an_earlier_demo_is_replaced(tmp_path: Path) -> None:
    renew(demo_directory(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_new_or_empty_directory_is_fine(tmp_path: Path) -> None:
    renew(tmp_path)
    renew(tmp_path / "new")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["notes.txt", "b10", "unfinished"])
def test_a_directory_with_anything_else_is_refused_and_left_as_it_is(
    tmp_path: Path, name: str
) -> None:
    (demo_directory(tmp_path) / name).touch()
    with pytest.raises(Failure, match=f"it holds {name}") as refused:
        renew(tmp_path)
    assert refused.value.code == NO and (tmp_path / "b1" / "qpidhad.log").exists()


def test_the_directory_of_another_cluster_or_benchmark_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Failure, match=r"cluster\.json is of something else"):
        renew(demo_directory(tmp_path / "local", cluster="local"))
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "result.json").write_text(json.dumps({"sent": 1}))
    with pytest.raises(Failure, match=r"result\.json is of something else"):
        renew(tmp_path / "bench")


def test_a_directory_too_deep_for_sockets_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="too long a name"):
        renew(tmp_path / ("x" * 100))


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    directory = demo_directory(tmp_path / "demo")
    (directory / "b2").symlink_to(tmp_path / "precious")
    with pytest.raises(Failure, match="it holds b2"):
        renew(directory)


def test_a_demo_whose_broker_still_answers_is_not_removed() -> None:
    with (
        tempfile.TemporaryDirectory(prefix="qpidha-") as path,
        socket.socket(socket.AF_UNIX) as broker,
    ):
        directory = demo_directory(Path(path) / "demo")
        broker.bind(str(directory / "b1" / "admin.sock"))
        broker.listen()
        with pytest.raises(Failure, match=r"b1/admin\.sock answers"):
            renew(directory)


def test_only_the_newest_runs_of_the_default_directory_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QPIDHA_DIR", str(tmp_path))
    runs = [demo_directory(home("demo") / f"20260101-00000{number}") for number in range(KEPT + 3)]
    (runs[1] / "notes.txt").touch()
    (home("demo") / "mine").mkdir()
    prune("demo", tmp_path / "elsewhere")
    assert all(run.exists() for run in runs)
    prune("demo", runs[-1])
    assert [run.exists() for run in runs] == [False, True, False] + [True] * KEPT
    assert (home("demo") / "mine").exists()


def test_the_program_is_named_by_the_path_it_was_started_with_when_it_is_not_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.argv", [".venv/bin/qpid-ha", "demo"])
    assert program() == ".venv/bin/qpid-ha"
    monkeypatch.setattr("sys.argv", ["main.py"])
    assert program().endswith(" -m qpidha.cli.main")
    (tmp_path / "qpid-ha").touch(mode=0o755)
    assert program() == "qpid-ha"
