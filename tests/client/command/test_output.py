"""Output: what others have named does not rewrite what an operator reads."""

from __future__ import annotations

import pytest

from qpidha.client.command.exits import Failure, report
from qpidha.client.command.output import print_table
from qpidha.model.exit_codes import NO

HOSTILE = "q\x1b[2J\nfake  0\x9b0m"
ESCAPED = "q\\x1b[2J\\nfake  0\\x9b0m"


def test_a_row_is_a_line_whatever_is_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["name", "messages"], [[HOSTILE, 7], ["größe", 8]])
    assert capsys.readouterr().out.splitlines()[1:] == [
        f"{ESCAPED}  7",
        f"{'größe'.ljust(len(ESCAPED))}  8",
    ]


def test_a_terminal_obeys_no_answer(capsys: pytest.CaptureFixture[str]) -> None:
    report(Failure(NO, f"no queue {HOSTILE}"), as_json=False)
    assert capsys.readouterr().err == "error: no queue q\\x1b[2J\nfake  0\\x9b0m\n"
