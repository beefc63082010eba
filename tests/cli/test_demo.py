"""The demo as a user runs it: one killed primary under load, and what is left behind."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.cli.conftest import Said


@pytest.mark.timeout(90)
def test_a_killed_primary_loses_nothing_and_the_result_has_every_number(qpid_ha: Callable[..., Said]) -> None:
    with tempfile.TemporaryDirectory(prefix="qpidha-") as directory:
        said = qpid_ha("demo", "--seconds", "2", "--rate", "300", "--dir", directory, "-o", "json")
        result = json.loads(said.out)
        assert said.code == 0, said.err
        assert result["lost"] == 0 and result["accepted"] == result["received"] > 0
        assert result["victim"] == "b1" and result["new_primary"] != "b1"
        assert set(result["phases"]) == {"detect", "promote", "recover"}
        assert 0 < result["client_gap_seconds"] < 10 and 0 < result["failover_seconds"] < 10
        assert json.loads((Path(directory) / "result.json").read_text()) == result
        ElementTree.parse(Path(directory) / "timeline.svg")


def test_an_unknown_fault_is_a_usage_error(qpid_ha: Callable[..., Said]) -> None:
    said = qpid_ha("demo", "--fault", "explode")
    assert said.code == 2 and "stop-backup" in said.err
