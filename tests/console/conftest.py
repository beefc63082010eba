"""A daemon and its console, for all tests that do not end them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.console.consoles import Console
from tests.runtime.daemons import Running

HEARTBEAT = ("--link-heartbeat-interval", "1")


class Pair(NamedTuple):
    """A daemon and its console."""

    daemon: Running
    console: Console
    place: Path


@pytest.fixture(scope="session")
def pair() -> Iterator[Pair]:
    with tempfile.TemporaryDirectory(prefix="qpidha-") as name:
        place = Path(name)
        with (
            Running("--data-dir", place, *HEARTBEAT) as daemon,
            Console("--data-dir", place) as console,
        ):
            yield Pair(daemon, console, place)
