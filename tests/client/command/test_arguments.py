"""Global options are found wherever they stand."""

from __future__ import annotations

import pytest

from qpidha.client.command.arguments import hoist
from qpidha.client.command.exits import Failure


@pytest.mark.parametrize(
    "line",
    [
        "-b h:1 status --all",
        "status -b h:1 --all",
        "status --all -b h:1",
        "--broker h:1 status --all",
        "status --all --broker=h:1",
        "-bh:1 status --all",
    ],
)
def test_the_broker_may_stand_before_or_after_the_command(line: str) -> None:
    options, rest = hoist(line.split())
    assert options.broker == "h:1" and rest == ["status", "--all"]


def test_a_value_that_is_a_command_name_is_not_taken_for_the_command() -> None:
    options, rest = hoist(["-b", "status", "ping"])
    assert options.broker == "status" and rest == ["ping"]


def test_nothing_is_taken_after_two_dashes() -> None:
    options, rest = hoist(["send", "q", "--", "-b", "x"])
    assert options.broker == "" and rest == ["send", "q", "--", "-b", "x"]


@pytest.mark.parametrize(
    ("text", "seconds"), [("10", 10.0), ("0.5", 0.5), ("500ms", 0.5), ("2s", 2.0), ("1m", 60.0)]
)
def test_a_timeout_takes_units(text: str, seconds: float) -> None:
    assert hoist(["--timeout", text])[0].timeout == pytest.approx(seconds)


def test_timeout_0_is_for_ever_and_none_is_the_default() -> None:
    assert hoist(["--timeout", "0"])[0].patience() is None
    assert hoist([])[0].patience() == 10.0


@pytest.mark.parametrize(
    "line",
    [
        "--timeout",
        "--timeout x",
        "--timeout -1",
        "-o yaml",
        "--ssl-key k",
        "--ssl-key-password-file p",
        "-b",
    ],
)
def test_wrong_values_are_usage_errors(line: str) -> None:
    with pytest.raises(Failure) as failure:
        hoist(line.split())
    assert failure.value.code == 2
