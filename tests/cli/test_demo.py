"""The demo as a user runs it: one killed primary under load, and what is left behind."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from array import array
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

from qpidha.bench.demo import Demo, DemoOptions, verdict
from qpidha.client.command.arguments import Options
from tests.cli.conftest import Said
from tests.patience import STATE

ROOT = Path(__file__).parents[2]


def test_a_killed_primary_loses_nothing_and_the_result_has_every_number(
    qpid_ha: Callable[..., Said],
) -> None:
    with tempfile.TemporaryDirectory(prefix="qpidha-") as directory:
        said = qpid_ha("demo", "--seconds", "2", "--rate", "300", "--dir", directory, "-o", "json")
        result = json.loads(said.out)
        assert said.code == 0, said.err
        assert result["lost"] == 0 and result["accepted"] == result["received"] > 0
        assert result["victim"] == "b1" and result["new_primary"] != "b1"
        assert set(result["phases"]) == {"detect", "promote", "recover"}
        assert 0 < result["client_gap_seconds"] < STATE and 0 < result["failover_seconds"] < STATE
        assert json.loads((Path(directory) / "result.json").read_text()) == result
        ElementTree.parse(Path(directory) / "timeline.svg")


LOSSY = """
import sys
from qpidha.broker.queues.queue import Queue
from qpidha.runtime.daemon import main
enqueue, count = Queue.enqueue, 0
def lossy(self, payload, expires=0):
    global count
    count += 1
    return 0 if count % 100 == 0 else enqueue(self, payload, expires)
Queue.enqueue = lossy
sys.exit(main(sys.argv[1:]))
"""
"""A broker that accepts every hundredth message and forgets it."""


def test_a_broker_that_loses_what_it_accepted_fails_the_demo(
    qpid_ha: Callable[..., Said], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "lossy.py").write_text(LOSSY)
    monkeypatch.setenv("QPIDHA_DAEMON", shlex.join([sys.executable, str(tmp_path / "lossy.py")]))
    with tempfile.TemporaryDirectory(prefix="qpidha-") as directory:
        said = qpid_ha("demo", "--seconds", "2", "--rate", "300", "--dir", directory, "-o", "json")
        result = json.loads(said.out)
    assert said.code == 1
    assert result["lost"] == result["accepted"] - result["received"] > 0


def test_the_last_lines_name_commands_that_work_and_what_was_in_flight(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("sys.argv", [".venv/bin/qpid-ha", "demo"])
    options = DemoOptions(directory=tmp_path / "demo")
    result = dict.fromkeys(
        (
            "client_gap_seconds",
            "failover_seconds",
            "lost",
            "duplicates",
            "accepted",
            "received",
            "passed",
            "problem",
        ),
        0,
    )
    files = {
        "timeline_file": str(tmp_path / "demo" / "timeline.svg"),
        "result_file": "/elsewhere/result.json",
    }
    lines = verdict({**result, **files, "phases": {}, "sent_again": 10}, options)
    assert lines[0].endswith("10 in flight were sent again")
    assert lines[-2] == "files   demo/timeline.svg   /elsewhere/result.json"
    assert lines[-1].startswith("next    .venv/bin/qpid-ha demo --fault stop --dir demo   ")
    assert verdict({**result, **files, "phases": {}, "sent_again": 0}, options)[0].endswith(
        "nothing in flight had to be sent again"
    )


class Client:
    """A client of the demo, as far as its numbers go: what it recorded, and what it said last."""

    def __init__(self, record: Iterable[int], **last: int) -> None:
        self.record = array("q", record)
        self.last = last

    def records(self) -> array[int]:
        return self.record

    def count(self, name: str) -> int:
        return self.last.get(name, 0)


def test_m33_what_a_killed_sender_had_said_of_its_acceptances_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It records them when it ends, and a sender that has to be killed has recorded nothing."""
    demo = Demo(DemoOptions(directory=tmp_path, fault="stop"), Options(quiet=True))
    monkeypatch.setattr(demo, "_primary", lambda: "b1")
    demo.problem = "a client ended early"
    vars(demo).update(
        sender=Client([], accepted=1181, sent=1181),
        receiver=Client(number for pair in enumerate(range(1181)) for number in pair),
        stream=SimpleNamespace(events=[]),
    )
    result = demo._result({}, 0)
    assert (result["accepted"], result["received"], result["passed"]) == (1181, 1181, False)


def test_a_directory_with_other_files_is_refused_before_anything_starts(
    qpid_ha: Callable[..., Said],
) -> None:
    with tempfile.TemporaryDirectory(prefix="qpidha-") as directory:
        (Path(directory) / "notes.txt").touch()
        said = qpid_ha("demo", "--dir", directory)
        assert said.code == 1 and "it holds notes.txt" in said.err
        assert [path.name for path in Path(directory).iterdir()] == ["notes.txt"]


def test_an_unknown_fault_is_a_usage_error(qpid_ha: Callable[..., Said]) -> None:
    said = qpid_ha("demo", "--fault", "explode")
    assert said.code == 2 and "stop-backup" in said.err


def test_first_use_m33_a_heartbeat_that_outlasts_the_demo_is_a_usage_error(
    qpid_ha: Callable[..., Said],
) -> None:
    said = qpid_ha("demo", "--fault", "stop", "--heartbeat", "100")
    assert said.code == 2 and "150 s, and the demo waits for 60 s" in said.err


def test_friendliness_1_a_fresh_environment_runs_the_demo_without_root() -> None:
    """The project's wheel is installed as a stranger does it; what it needs is that of the tests,
    whose installation takes a network.
    """
    with tempfile.TemporaryDirectory(prefix="qpidha-") as name:
        place = Path(name)
        place.chmod(0o755)
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
        build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", name, str(ROOT)]
        subprocess.run(build, check=True, timeout=STATE, umask=0o022)
        (wheel,) = place.glob("qpidha-*.whl")
        subprocess.run(
            [sys.executable, "-m", "venv", place / "venv"], check=True, timeout=STATE, umask=0o022
        )
        (site,) = (place / "venv" / "lib").glob("python3*/site-packages")
        (site / "needed.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
        programs = place / "venv" / "bin"
        install = [programs / "pip", "install", "--quiet", "--no-index", "--no-deps", wheel]
        subprocess.run(install, check=True, timeout=STATE, umask=0o022)
        # Root gives all away that it can: nobody may not enter every home that has a Python.
        folders = Path(sys.executable).resolve().parents
        is_open = all(folder.stat().st_mode & 0o001 for folder in folders)
        is_root = os.geteuid() == 0
        stranger = "nobody" if is_root and is_open else None
        without = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
        done = subprocess.run(
            [
                *(without if is_root and stranger is None else ()),
                programs / "qpid-ha",
                "demo",
                "--seconds",
                "5",
                "--rate",
                "100",
                "-o",
                "json",
            ]
            + ["--dir", place / "stranger" / "demo"],
            capture_output=True,
            text=True,
            timeout=STATE,
            cwd="/",
            user=stranger,
            env={"PATH": f"{programs}:/usr/bin:/bin", "HOME": str(strangers_home(place, stranger))},
        )
        assert done.returncode == 0, done.stderr
        result = json.loads(done.stdout)
        assert result["lost"] == 0 and result["accepted"] == result["received"] > 0


def strangers_home(place: Path, user: str | None) -> Path:
    """A directory of the user's own."""
    home = place / "stranger"
    home.mkdir()
    if user is not None:
        shutil.chown(home, user)
    return home
