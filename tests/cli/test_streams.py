"""What a command does with standard streams that are closed, full, or cannot show a text."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys

import pytest

from qpidha.cli.main import main
from qpidha.model.exit_codes import SOFTWARE
from tests.cli.conftest import FakeBroker
from tests.patience import STATE

COMMAND = [sys.executable, "-m", "qpidha.cli.main"]


def shell(line: str, broker: FakeBroker, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command with redirections of the shell; `@` is the broker."""
    words = line.replace("qpid-ha", " ".join(COMMAND)).replace("@", f"-b {broker.socket}")
    return subprocess.run(
        ["bash", "-c", words],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=STATE,
    )


@pytest.mark.parametrize("where", [">&-", "> /dev/full"])
def test_first_use_m1_output_that_cannot_be_written_is_an_error_and_says_so(
    broker: FakeBroker, where: str
) -> None:
    done = shell(f"qpid-ha status @ {where}", broker, PYTHONUNBUFFERED="")
    assert done.returncode == 74
    assert done.stderr.startswith("error: cannot write: ")
    assert len(done.stderr.splitlines()) == 1


def test_where_nothing_is_printed_a_closed_output_is_no_error(broker: FakeBroker) -> None:
    done = shell("qpid-ha ping @ >&- 2>&- <&-", broker)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_first_use_m1_talk_does_not_go_to_standard_output_when_standard_error_is_closed(
    broker: FakeBroker,
) -> None:
    broker.answers["purge_queue"] = {"messages": 3}
    assert shell("qpid-ha queue purge q @ 2>&-", broker).stdout == ""
    done = shell("qpid-ha wait --for state=active @ -o json 2>&-", broker)
    assert done.returncode == 0 and json.loads(done.stdout)["state"] == "active"


@pytest.mark.parametrize("locale", [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C"}])
def test_first_use_m1_a_table_is_printed_where_the_locale_has_no_such_letters(
    broker: FakeBroker, locale: dict[str, str]
) -> None:
    broker.answers["list_queues"] = [{"name": "m\u00e4rz"}, {"name": "zz"}]
    done = shell("qpid-ha queue list @", broker, **locale, PYTHONUTF8="0")
    rows = [line.split()[0] for line in done.stdout.splitlines()]
    assert done.returncode == 0 and rows == ["NAME", "m\\xe4rz", "zz"]


def test_first_use_m1_a_name_that_is_no_text_is_a_usage_error(broker: FakeBroker) -> None:
    for line in ("queue add $'bad\\xffname'", "queue purge $'bad\\xffname'"):
        done = shell(f"qpid-ha {line} @", broker)
        assert done.returncode == 2 and "is not text in UTF-8" in done.stderr
    assert not broker.asked


@pytest.mark.parametrize(
    "words",
    ["--max-queue-count 99999999999999999999999", "--argument qpid.max_size=99999999999999999999"],
)
def test_first_use_m1_a_number_that_is_too_large_is_a_usage_error(
    broker: FakeBroker, words: str
) -> None:
    done = shell(f"qpid-ha queue add q {words} @", broker)
    assert done.returncode == 2 and "error: " in done.stderr and not broker.asked


def test_a_wrong_descriptor_elsewhere_is_no_fault_of_the_output(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_options: object, _rest: object) -> int:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))

    monkeypatch.setattr("qpidha.cli.main._hot", fail)
    assert main(["status"]) == SOFTWARE
    assert "Bad file descriptor" in capsys.readouterr().err
