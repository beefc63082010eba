"""What is shown again and again: on a terminal, into a pipe, and until somebody interrupts."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import termios
from collections.abc import Callable

import pytest

from qpidha.cli import screen
from qpidha.cli.screen import ENTER, LEAVE, watch
from qpidha.client.command.arguments import Options, hoist
from qpidha.client.command.exits import Failure
from tests.cli.conftest import STATUS, FakeBroker, Said
from tests.cli.terminals import terminal
from tests.patience import STATE

Run = Callable[..., Said]
COMMAND = [sys.executable, "-m", "qpidha.cli.main"]


@pytest.fixture
def busy(broker: FakeBroker) -> FakeBroker:
    """A broker that answers all that `top` asks."""
    row = {"messages": 5, "unreplicated": 0, "consumers": 1, "acquired": 0}
    broker.answers["list_queues"] = [
        {"name": f"q{number}", "enqueued": 10 * number, "dequeued": 0, **row} for number in range(9)
    ]
    broker.answers["statistics"] = {
        "name": "b1",
        "enqueued": 100,
        "departures": {"accepted": 90, "expired": 5},
        "connections": {"client": 3, "broker": 0, "outgoing": 0},
        "bytes": 7,
        "unsafe_queues": 0,
        "queues": 9,
        **row,
    }
    broker.answers["explain"] = {}
    return broker


@pytest.mark.parametrize(
    "words", [("queue", "list", "-w0.1"), ("top", "--watch=100ms"), ("list", "-w0.1")]
)
@pytest.mark.parametrize("how", ["Ctrl-C", "q", "SIGTERM"])
def test_friendliness_5_the_terminal_is_as_it_was_whatever_ends_a_watch(
    busy: FakeBroker, words: tuple[str, ...], how: str
) -> None:
    with terminal(*COMMAND, *words, "-b", busy.socket) as shown:
        shown.see("\x1b[H", 3)
        if how == "SIGTERM":
            shown.process.send_signal(signal.SIGTERM)
        else:
            shown.press(b"\x03" if how == "Ctrl-C" else b"q")
        assert shown.end() == (0 if how == "q" else 130)
        assert shown.shown.startswith(ENTER) and shown.shown.endswith(LEAVE)
        assert "Traceback" not in shown.shown
        assert termios.tcgetattr(shown.side) == shown.before


@pytest.mark.parametrize(("columns", "last"), [(200, 3), (30, 2)])
def test_what_does_not_fit_is_counted(busy: FakeBroker, columns: int, last: int) -> None:
    """Of eight rows the last is left free, one has the count, and the title may need two."""
    words = ("queue", "list", "--no-headers", "-w9", "-b", busy.socket)
    with terminal(*COMMAND, *words, columns=columns, rows=8) as shown:
        shown.see(f"... and {8 - last} more lines")
        assert f"q{last}" in shown.shown and f"q{last + 1}" not in shown.shown


@pytest.mark.parametrize("environment", [{"TERM": "dumb"}, {"TERM": ""}])
def test_friendliness_4_a_terminal_that_can_do_nothing_gets_lines(
    busy: FakeBroker, environment: dict[str, str]
) -> None:
    with terminal(*COMMAND, "top", "-n", "2", "-w0.1", "-b", busy.socket, **environment) as shown:
        assert shown.end() == 0
        assert "\x1b" not in shown.shown and shown.shown.count("unsafe queues 0") == 2


def test_into_a_pipe_the_looks_stand_one_below_the_other(busy: FakeBroker) -> None:
    words = [*COMMAND, "top", "-n", "2", "-w0.1", "-b", busy.socket]
    done = subprocess.run(words, capture_output=True, text=True, timeout=STATE)
    assert done.returncode == 0 and done.stderr == "" and "\x1b" not in done.stdout
    first, second = done.stdout.split("\n\nepoch")
    assert "in -/s" in first and "in 0/s" in second
    line = " ".join([*COMMAND, "queue", "list", "-w0.1", "-b", busy.socket, "| head -1"])
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=STATE)
    assert done.stdout.startswith("NAME") and done.stderr == ""


def test_each_look_is_a_line_of_json(busy: FakeBroker) -> None:
    words = [*COMMAND, "top", "-n", "3", "-w0.1", "-o", "json", "-b", busy.socket]
    done = subprocess.run(words, capture_output=True, text=True, timeout=STATE, check=True)
    looks = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(looks) == 3 and looks[0]["totals"]["in"] is None
    assert {look["totals"]["out"] for look in looks[1:]} == {0}
    assert [queue["name"] for queue in looks[0]["queues"]] == [f"q{n}" for n in range(9)]


def test_top_sorts_queues_and_counts_by_the_second(busy: FakeBroker, qpid_ha: Run) -> None:
    said = qpid_ha(
        "top", "-n", "1", "--by", "name", "--queues", "2", "-o", "json", "-b", busy.socket
    )
    assert said.code == 2 and "queues have no name" in said.err
    said = qpid_ha("top", "--by", "mesages", "-b", busy.socket)
    assert said.code == 2 and "did you mean messages?" in said.err
    busy.answers["list_queues"][4]["messages"] = 8
    said = qpid_ha(
        "top", "-n", "1", "--by", "messages", "--queues", "1", "-o", "json", "-b", busy.socket
    )
    (row,) = json.loads(said.out)["queues"]
    assert (row["name"], row["in"]) == ("q4", None)


def test_the_first_failure_ends_a_watch_and_a_later_one_is_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def never() -> None:
        raise Failure(69, "nobody is there")

    with pytest.raises(Failure, match="nobody"):
        watch(Options(), "t", never, seconds=0.1)
    looks: list[int] = []

    def look() -> None:
        looks.append(len(looks))
        if len(looks) == 2:
            raise Failure(69, "gone")
        print(looks[-1])

    assert watch(Options(), "t", look, seconds=0.1, count=3) == 0
    captured = capsys.readouterr()
    assert captured.out == "0\n\n2\n" and captured.err == "error: gone\n"


def test_an_interrupt_that_the_parser_of_a_command_has_taken_ends_a_watch() -> None:
    with pytest.raises(KeyboardInterrupt):
        watch(Options(), "t", lambda: 130, seconds=0.1)


def test_friendliness_3_where_nobody_answers_nothing_is_on_standard_output(qpid_ha: Run) -> None:
    for words in (("top",), ("list", "-w1"), ("queue", "list", "-w"), ("status", "--watch=1")):
        said = qpid_ha(*words, "-b", "127.0.0.1:1", "--timeout", "5")
        assert (said.code, said.out) == (69, "")


@pytest.mark.parametrize(
    ("line", "seconds"),
    [
        ("list -w", 2.0),
        ("-w list", 2.0),
        ("list --watch", 2.0),
        ("list -w5", 5.0),
        ("list -w=5", 5.0),
        ("list -w0.5", 0.5),
        ("list --watch=250ms", 0.25),
        ("list", None),
        ("send -- -w", None),
    ],
)
def test_seconds_may_follow(line: str, seconds: float | None) -> None:
    assert hoist(line.split())[0].watch == seconds


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("queue", "purge", "q", "-w"), "--watch is for what only reads: not for queue purge"),
        (("list", "--watch=x"), "'x' is not a duration"),
        (("events", "--follow", "-w"), "--watch does not go with --follow"),
        (("status", "--sort", "state"), "--sort is for lists"),
        (("ping", "--no-headers"), "--no-headers is for lists"),
    ],
)
def test_what_cannot_be_is_refused(
    broker: FakeBroker, qpid_ha: Run, words: tuple[str, ...], told: str
) -> None:
    said = qpid_ha(*words, "-b", broker.socket)
    assert said.code == 2 and told in said.err and said.out == ""


def test_the_state_is_watched(broker: FakeBroker) -> None:
    assert screen.LEAST_SECONDS <= 0.1 and STATUS["state"] == "active"
    line = " ".join([*COMMAND, "status", "-w0.1", "-b", broker.socket, "| head -3"])
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=STATE)
    assert done.stdout == "active\n\nactive\n" and done.stderr == ""
