"""`qpid-ha pipeline`: words, exit codes by verdict, a watch, spark-submit, and a standalone master
with two workers.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
import pytest

from qpidha.cli.main import main
from qpidha.pipeline.generate.histories import Plan, write
from qpidha.pipeline.workload.run import next_command
from tests.patience import LONG_TEST, STATE
from tests.pipeline.spark.settings import JAVA, SMALL_JOBS
from tests.system.cluster import held_ports

ROOT = Path(__file__).parents[3]
SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"


@pytest.fixture
def history(tmp_path: Path) -> Path:
    write(
        Plan(messages=600, plant={"lost": 2, "dup": 1}), tmp_path / "history", segment_bytes=50_000
    )
    return tmp_path / "history"


def run(*words: str | Path) -> int:
    return main(["pipeline", *map(str, words)])


@pytest.mark.parametrize("engine", ["spark", "python"])
def test_exit_codes_are_those_of_verdicts(
    spark: Any, history: Path, tmp_path: Path, engine: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert (
        run(
            "check",
            history,
            "--out",
            out,
            "--checks",
            "total-queue,evidence",
            "--engine",
            engine,
            "--all-offenders",
        )
        == 1
    )
    shown = capsys.readouterr().out
    assert (
        "2 accepted messages were never delivered" in shown
        and "verdict on synthetic: invalid" in shown
    )
    verdict = json.loads((out / "verdict.json").read_text())
    assert verdict["valid"] is False and verdict["versions"]["engine"] == engine
    lost = verdict["checks"][0]["offenders"]
    assert len((out / next(file for file in lost if "lost" in file)).read_text().splitlines()) == 2
    (out / "offenders" / "mine.jsonl").touch()
    words = ["--checks", "order,evidence", "--engine", engine, "--all-offenders"]
    assert run("check", history, "--out", out, *words, "-o", "json") == 0
    verdict = json.loads(capsys.readouterr().out)
    assert verdict["valid"] is True
    assert [check["offenders"] for check in verdict["checks"]] == [[], []]
    assert [path.name for path in (out / "offenders").iterdir()] == ["mine.jsonl"], (
        "those of an earlier check are gone"
    )
    sorted(history.iterdir())[0].unlink()
    assert (
        run(
            "check", history, "--out", tmp_path / "less", "--checks", "evidence", "--engine", engine
        )
        == 2
    )
    (tmp_path / "empty").mkdir()
    assert run("check", tmp_path / "empty", "--out", tmp_path / "no", "--engine", engine) == 3
    assert "no segments" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["check"], "nothing to judge"),
        (["check", "x", "--engine", "abacus"], "no such engine"),
        (["check", "x"], "tables need a place"),
        (["check", "--lake", "x", "--engine", "python"], "nothing to judge"),
        (["check", "x", "--out", "y", "--mutex", "loose"], "--mutex cannot be"),
        (["check", "x", "--lake", "y", "--all-offenders"], "--all-offenders needs a place"),
        (["check", "nowhere", "--engine", "python"], "no such file or directory"),
        (["check", "--colour"], "no such option"),
        (["watch", "x"], "watch needs a lake"),
        (["watch", "x", "--lake", "y", "--every", "0"], "--every"),
        (["watch", "x", "--engine", "abacus"], "no such engine"),
        (["watch", "x", "--lake", "y", "--mutex", "loose"], "--mutex cannot be"),
        (["watch", "x", "--lake", "y", "--max-unavailable", "-1"], "no number of seconds"),
        (["watch", "x", "--engine", "python", "--lake", "y"], "are for Spark"),
        (["watch", "x", "--engine", "python", "--master", "local"], "are for Spark"),
        (["watch", "x", "--engine", "python", "--conf", "a=b"], "are for Spark"),
        (["watch", "x", "--engine", "python", "--trigger", "3"], "are for Spark"),
        (["check", "x", "--out", "y", "--unavailable", "nan"], "no number of seconds"),
        (["check", "x", "--out", "y", "--max-unavailable", "-1"], "no number of seconds"),
        (["check", "x", "--engine", "python", "--lake", "y"], "are for Spark"),
        (["check", "x", "--engine", "python", "--conf", "a=b"], "are for Spark"),
        (["ingest", "x", "--lake", "y", "--once", "--stream"], "both --once and --stream"),
        (["ingest", "x", "--lake", "y", "--trigger", "3"], "--trigger is for --stream"),
        (["generate", "--out", "x", "--messages", "-5"], "--messages"),
        (["generate", "--out", "x", "--plant", "lost"], "--plant lost: how many lost?"),
        (["generate", "--out", "x", "--plant", "lost=-3"], "--plant lost=-3"),
        (["generate", "--out", "x", "--plant", "boredom=1"], "cannot plant boredom"),
        (["colour"], "no such command"),
    ],
)
def test_wrong_words_are_told_and_are_no_verdict(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*words) == 3
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("engine", ["spark", "python"])
def test_a_run_that_is_not_there_is_no_verdict(
    spark: Any, history: Path, tmp_path: Path, engine: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        run("check", history, "--out", tmp_path / "out", "--run", "nope", "--engine", engine) == 3
    )
    assert "no run 'nope': the files hold 'synthetic'" in capsys.readouterr().err


def test_what_spark_cannot_open_is_told_in_a_line(
    spark: Any, history: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert run("check", history, "--lake", tmp_path / "file") == 3
    said = capsys.readouterr().err
    assert said.startswith("error: Spark: ") and len(said.splitlines()) == 1 and "file" in said


def test_directories_that_spark_would_take_for_patterns_are_refused_as_a_stream_only(
    spark: Any, history: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = [tmp_path / name for name in ("a,b", "c{1}", "d[x]", "e*")]
    segments = sorted(history.iterdir())
    assert len(segments) >= len(odd)
    for number, folder in enumerate(odd):
        folder.mkdir()
        for path in segments[number :: len(odd)]:
            path.rename(folder / path.name)
        assert run("ingest", tmp_path, folder, "--lake", tmp_path / "lake", "--once") == 3
        assert f"{folder}: Spark takes such a name for a pattern" in capsys.readouterr().err
    words = ["--out", tmp_path / "out", "--checks", "evidence", "-o", "json"]
    assert run("check", *odd, *words) == 0, "something is missing"
    assert json.loads(capsys.readouterr().out)["inputs"]["segments"]["closed"] == len(segments)


def test_what_is_generated_is_found(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "--out",
        tmp_path / "h",
        "--messages",
        "700",
        "--seed",
        "3",
        "--plant",
        "lost=1,invented=2",
        "--locks",
        "1",
        "--overlaps",
        "1",
    ]
    assert run("generate", *words) == 0
    expected = json.loads(capsys.readouterr().out)["expected"]
    assert run("ingest", tmp_path / "h", "--lake", tmp_path / "lake", "--once") == 0
    assert "set aside" in capsys.readouterr().out
    assert (
        run("check", "--lake", tmp_path / "lake", "-o", "json", "--checks", "total-queue,mutex")
        == 1
    )
    checks = {
        check["name"]: check["counts"] for check in json.loads(capsys.readouterr().out)["checks"]
    }
    for name in checks:
        assert {key: checks[name][key] for key in expected[name]} == expected[name]


def test_what_a_verify_run_prints_as_next_is_a_command_that_works(
    spark: Any, history: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = shlex.split(next_command(history.parent, "queue"))
    assert main(words[words.index("pipeline") :]) == 1
    assert (
        "2 accepted messages were never delivered" in capsys.readouterr().out
        and (history.parent / "check" / "verdict.json").exists()
    )


def test_the_doctor_looks_at_every_part(spark: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("doctor", "-o", "json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["job"] == "sum of 0..999 is 499500" and sys.executable in found["worker"]
    assert (
        found["package"] == str(ROOT / "qpidha" / "pipeline" / "spark" / "ingest.py")
        and found["spark"] == pyspark.__version__
    )


def test_the_doctor_names_an_interpreter_that_does_not_run(
    spark: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "/nowhere/python")
    assert run("doctor") == 3
    said = capsys.readouterr().err.splitlines()
    assert (
        len(said) == 1
        and "error: no worker runs with /nowhere/python (PYSPARK_PYTHON): Cannot run program"
        in said[0]
    )


def environment() -> dict[str, str]:
    return os.environ | {
        "PYTHONPATH": str(ROOT),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def test_a_watch_follows_and_ends_with_the_verdict(tmp_path: Path) -> None:
    write(Plan(messages=600, plant={"lost": 2}), tmp_path / "whole", segment_bytes=20_000)
    segments = sorted((tmp_path / "whole").iterdir())
    journals = tmp_path / "journals"
    journals.mkdir()
    line = [
        sys.executable,
        "-m",
        "qpidha.cli.main",
        "pipeline",
        "watch",
        str(journals),
        "--lake",
        str(tmp_path / "lake"),
        "--every",
        "1",
    ]
    line += [
        "--trigger",
        "0.5",
        "--checks",
        "total-queue,evidence",
        "--master",
        "local[2]",
        "-o",
        "json",
    ]
    for setting in SMALL_JOBS.items():
        line += ["--conf", "=".join(setting)]
    with subprocess.Popen(
        line,
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as watch:
        try:
            assert watch.stdout is not None
            for path in segments[:-1]:
                (journals / path.name).write_bytes(path.read_bytes())
            first = json.loads(watch.stdout.readline())
            assert first["valid"] in (False, "unknown")
            (journals / f".{segments[-1].name}.open").write_bytes(segments[-1].read_bytes())
            watch.send_signal(signal.SIGINT)
            lines = watch.stdout.read().splitlines()
            assert watch.wait(STATE) == 1
        finally:
            watch.kill()
    last = json.loads(lines[-1])
    assert last["valid"] is False and last["reasons"] == [
        "total-queue: 2 accepted messages were never delivered"
    ]


@contextmanager
def standalone(folder: Path) -> Iterator[str]:
    """Run a standalone master with two workers from the installed package; yield its URL."""
    with held_ports(1) as (port,), _standalone(folder, port) as url:
        yield url


@contextmanager
def _standalone(folder: Path, port: int) -> Iterator[str]:
    url = f"spark://127.0.0.1:{port}"
    quick = environment() | {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": JAVA}
    master = [
        SPARK_CLASS,
        "org.apache.spark.deploy.master.Master",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--webui-port",
        "0",
    ]
    worker = [
        SPARK_CLASS,
        "org.apache.spark.deploy.worker.Worker",
        "--host",
        "127.0.0.1",
        "-c",
        "1",
        "-m",
        "1g",
        "--webui-port",
        "0",
    ]
    lines = [master, *([*worker, "-d", folder / f"worker-{number}", url] for number in range(2))]
    started: list[subprocess.Popen[bytes]] = []
    try:
        for number, line in enumerate(lines):
            with (folder / f"log-{number}").open("wb") as log:
                started.append(
                    subprocess.Popen(list(map(str, line)), env=quick, stdout=log, stderr=log)
                )
        wanted = time.monotonic() + STATE
        while (folder / "log-0").read_text().count("Registering worker") < 2:
            assert time.monotonic() < wanted, (folder / "log-0").read_text()
            time.sleep(0.1)
        yield url
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait(STATE)


def test_the_same_command_runs_on_a_standalone_master_with_two_workers(
    history: Path, tmp_path: Path
) -> None:
    with standalone(tmp_path) as url:
        words = [
            "--master",
            url,
            "--zip",
            tmp_path / "qpidha.zip",
            "--conf",
            "spark.executor.memory=512m",
        ]
        for setting in (
            f"spark.driver.extraJavaOptions={JAVA}",
            f"spark.executor.extraJavaOptions={JAVA}",
            "spark.sql.shuffle.partitions=4",
        ):
            words += ["--conf", setting]
        check = [
            "check",
            history,
            "--out",
            tmp_path / "out",
            "--checks",
            "total-queue,evidence",
            "-o",
            "json",
        ]
        line = [
            sys.executable,
            "-m",
            "qpidha.cli.main",
            "pipeline",
            "submit",
            *words,
            "--exec",
            "--",
            *check,
        ]
        done = subprocess.run(
            list(map(str, line)),
            cwd=ROOT,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=LONG_TEST,
            check=False,
        )
        assert done.returncode == 1, done.stderr[-3000:]
        workers = re.findall(
            r"Launched executor .* on worker (\S+)",
            "\n".join(path.read_text() for path in tmp_path.glob("log-*")),
        )
    verdict = json.loads(done.stdout.splitlines()[-1])
    assert verdict["checks"][0]["counts"]["lost"] == 2 and verdict["versions"]["engine"] == "spark"
    used = [path for path in tmp_path.glob("worker-*/app-*/*") if path.is_dir()]
    assert len({path.parts[len(tmp_path.parts)] for path in used}) == 2, (used, workers)


def test_in_cluster_mode_the_driver_is_not_told_of_this_machines_interpreter(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "submit",
        "--master",
        "yarn",
        "--zip",
        tmp_path / "q.zip",
        "--conf",
        "spark.submit.deployMode=cluster",
    ]
    assert run(*words, "--python", "./env/bin/python", "--", "check", "--lake", "hdfs:///lake") == 0
    line = capsys.readouterr().out
    assert "spark.pyspark.python=./env/bin/python" in line and sys.executable not in line


def test_submit_prints_a_line_that_can_be_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        run(
            "submit",
            "--master",
            "yarn",
            "--zip",
            tmp_path / "q.zip",
            "--conf",
            "a=b c",
            "--",
            "check",
            "--lake",
            "hdfs:///lake",
            "-o",
            "json",
        )
        == 0
    )
    line = shlex.split(capsys.readouterr().out)
    assert (
        Path(line[0]).name == "spark-submit"
        and line[1:3] == ["--master", "yarn"]
        and "a=b c" in line
    )
    assert line[-6:] == ["pipeline", "check", "--lake", "hdfs:///lake", "-o", "json"]
    assert (tmp_path / "q.zip").exists() and Path(line[-7]).read_text().startswith('"""`qpid-ha`')
