"""Log lines."""

from __future__ import annotations

import io
import json
import re
import time
from datetime import datetime

import pytest

from qpidha.runtime.clock import Clock, local_time
from qpidha.runtime.log_lines import Log
from qpidha.runtime.log_sinks import StreamSink


def lines(log_options, *calls):
    stream = io.StringIO()
    log = Log([StreamSink(stream)], Clock(), name="b2", **log_options)
    for call in calls:
        log.write(*call)
    return stream.getvalue().splitlines()


def test_first_use_m23_a_line_has_the_shape_of_qpid():
    (line,) = lines({}, ("notice", "HA", "ready"))
    when = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d"
    assert re.fullmatch(rf"{when} \[HA\] notice b2: ready", line)


@pytest.mark.parametrize(
    ("zone", "offset"),
    [("UTC0", "+00:00"), ("XST-5:30", "+05:30"), ("XST3:30", "-03:30"), ("XST-13:45", "+13:45")],
)
def test_first_use_m23_the_time_is_local_and_has_its_zone(monkeypatch, zone, offset):
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        written = local_time(1_500_000_000_987_654_321)
    finally:
        monkeypatch.undo()
        time.tzset()
    assert written.endswith(f".987{offset}")
    assert datetime.fromisoformat(written).timestamp() == 1_500_000_000.987


def test_the_state_follows_announced_changes():
    written = lines(
        {},
        ("notice", "HA", "Status change", {"before": "joining", "after": "ready"}),
        ("notice", "broker", "hello"),
    )
    assert (
        "b2(ready): Status change" in written[0]
        and "[Broker] notice b2(ready): hello" in written[1]
    )


def test_selectors_choose_levels_and_categories():
    calls = [
        (level, category, level)
        for level in ("debug", "info", "notice", "error")
        for category in ("HA", "amqp")
    ]
    assert len(lines({"selectors": "notice+"}, *calls)) == 4
    assert len(lines({"selectors": "error,debug+:ha"}, *calls)) == 5
    assert len(lines({"selectors": "info"}, *calls)) == 2


def test_qpid_17_selectors_go_down_too_and_what_is_disabled_is_not_written():
    calls = [
        (level, category, level)
        for level in ("debug", "info", "notice", "error")
        for category in ("HA", "amqp")
    ]
    assert len(lines({"selectors": "info-"}, *calls)) == 4
    assert len(lines({"selectors": "trace+", "disabled": "info-:amqp"}, *calls)) == 6
    assert len(lines({"selectors": "trace+", "disabled": "notice,error:ha"}, *calls)) == 5
    assert lines({"selectors": "trace+", "disabled": "trace+"}, *calls) == []
    critical = ("critical", "HA", "critical")
    for chosen in ({"selectors": "trace+", "disabled": "trace+"}, {"selectors": "info"}):
        assert len(lines(chosen, critical)) == 1, "as by qpidd, that cannot be disabled"


def test_json_lines_hold_the_fields():
    (line,) = lines({"form": "json"}, ("warning", "HA", "gone", {"backup": "b3", "other": object}))
    read = json.loads(line)
    assert (
        read["level"] == "warning"
        and read["msg"] == "gone"
        and read["broker"] == "b2"
        and read["fields"]["backup"] == "b3"
    )
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3,9}Z", read["ts"])
    assert "event_code" not in read


def test_a_line_ends_with_its_code_in_text_and_has_it_in_json():
    call = ("error", "HA", "promotion refused: still", {}, "QHA2104")
    (line,) = lines({}, call)
    assert line.endswith("[HA] error b2: promotion refused: still [QHA2104]")
    (line,) = lines({"form": "json"}, call)
    assert json.loads(line)["event_code"] == "QHA2104" and "QHA" not in json.loads(line)["msg"]


def test_a_name_of_a_client_cannot_forge_a_line():
    (line,) = lines(
        {}, ("notice", "amqp", "queue a\n2026-01-01 00:00:00 [HA] critical \x1b[31mdead")
    )
    assert "\\n2026" in line and "\x1b" not in line


def test_a_closed_log_does_not_stop_the_broker():
    stream = io.StringIO()
    log = Log([StreamSink(stream)], Clock())
    stream.close()
    log.write("error", "broker", "nobody reads this")
