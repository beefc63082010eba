"""Where lines of the log go: standard error and the journal behind it, a file, syslog."""

from __future__ import annotations

import io
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from qpidha.model.settings import Settings
from qpidha.runtime import log_sinks
from qpidha.runtime.clock import Clock
from qpidha.runtime.exits import CannotStart
from qpidha.runtime.log_lines import Log
from qpidha.runtime.log_sinks import LONGEST, StreamSink, SyslogSink, leads_to_journal, open_sinks
from tests.patience import STATE


class Syslog:
    """A syslog daemon: a socket, and what comes to it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.start()

    def start(self) -> None:
        self.path.unlink(missing_ok=True)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(self.path))
        self.socket.settimeout(STATE)

    def line(self) -> str:
        return self.socket.recv(1 << 16).decode()


@pytest.fixture
def syslog(monkeypatch: pytest.MonkeyPatch) -> Iterator[Syslog]:
    with tempfile.TemporaryDirectory(prefix="qpidha-") as place:
        path = Path(place, "log")
        monkeypatch.setattr(log_sinks, "SYSLOG", str(path))
        daemon = Syslog(path)
        yield daemon
        daemon.socket.close()


def test_syslog_gets_priority_name_and_text_without_our_time(syslog: Syslog) -> None:
    settings = Settings(log_to_syslog=True, syslog_name="b7", syslog_facility="local3")
    log = Log(open_sinks(settings, {}), Clock(), name="b7")
    log.write("warning", "HA", "Backup has stalled: b2", {}, "QHA2207")
    shape = rf"<{19 * 8 + 4}>\w{{3}} [ \d]\d \d\d:\d\d:\d\d b7\[{os.getpid()}\]: (.*)"
    match = re.fullmatch(shape, syslog.line())
    assert match is not None and match[1] == "[HA] warning b7: Backup has stalled: b2 [QHA2207]"


def test_json_goes_to_syslog_as_it_is(syslog: Syslog) -> None:
    log = Log([SyslogSink("b7", "daemon")], Clock(), form="json")
    log.write("critical", "store", "full", {}, "QHA3102")
    line = syslog.line()
    assert line.startswith(f"<{3 * 8 + 2}>")
    assert json.loads(line.partition("]: ")[2])["event_code"] == "QHA3102"


def test_a_syslog_daemon_may_be_restarted_hang_or_be_gone(syslog: Syslog) -> None:
    sink = SyslogSink("b", "daemon")
    sink.write("notice", "one")
    assert syslog.line().endswith(": one")
    syslog.socket.close()
    sink.write("notice", "nobody reads this")
    syslog.start()
    sink.write("notice", "two")
    assert syslog.line().endswith(": two")
    for _ in range(5000):
        sink.write("notice", "it does not keep up" * 100)
    sink.write("notice", "x" * 2 * LONGEST)
    sink.close()


def test_a_broker_whose_syslog_is_not_there_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_sinks, "SYSLOG", "/nowhere/log")
    with pytest.raises(CannotStart) as refused:
        open_sinks(Settings(log_to_syslog=True), {})
    assert "/nowhere/log" in refused.value.text and "log-to-syslog=no" in refused.value.hint


@pytest.mark.parametrize(
    ("options", "kinds"),
    [
        ({}, ["stderr"]),
        ({"log_to_file": "F"}, ["file"]),
        ({"log_to_file": "F", "log_to_stderr": True}, ["file", "stderr"]),
        ({"log_to_syslog": True}, ["syslog"]),
        ({"log_to_file": "F", "log_to_syslog": True, "log_to_stderr": True}, None),
    ],
)
def test_a_log_may_go_to_several_places(
    syslog: Syslog, tmp_path: Path, options: dict[str, object], kinds: list[str] | None
) -> None:
    given = (
        {**options, "log_to_file": str(tmp_path / "log")} if "log_to_file" in options else options
    )
    sinks = open_sinks(Settings(**given), {})  # type: ignore[arg-type]
    found = [
        "syslog"
        if isinstance(sink, SyslogSink)
        else "stderr"
        if isinstance(sink, StreamSink) and sink._stream is sys.stderr
        else "file"
        for sink in sinks
    ]
    assert found == (kinds or ["file", "syslog", "stderr"])
    for sink in sinks:
        sink.close()


def test_the_journal_is_told_the_level_of_each_line() -> None:
    stream = io.StringIO()
    log = Log([StreamSink(stream, is_journal=True)], Clock(), name="b1", selectors="trace+")
    for level in ("debug", "info", "notice", "warning", "error", "critical"):
        log.write(level, "HA", "x")
    lines = stream.getvalue().splitlines()
    assert [line[:3] for line in lines] == ["<7>", "<6>", "<5>", "<4>", "<3>", "<2>"]
    assert lines[2] == "<5>[HA] notice b1: x"


@pytest.mark.parametrize("is_ours", [True, False])
def test_the_journal_is_found_by_its_stream(tmp_path: Path, is_ours: bool) -> None:
    """The variable is inherited; only who has that very stream writes to the journal."""
    with open(tmp_path / "stream", "w") as stream:
        found = os.fstat(stream.fileno())
        inode = found.st_ino if is_ours else found.st_ino + 1
        script = (
            "import os; from qpidha.runtime.log_sinks import leads_to_journal;"
            "print(leads_to_journal(os.environ))"
        )
        done = subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "JOURNAL_STREAM": f"{found.st_dev}:{inode}"},
            stdout=subprocess.PIPE,
            stderr=stream,
            text=True,
            check=True,
        )
    assert done.stdout == f"{is_ours}\n"
    assert not leads_to_journal({})
