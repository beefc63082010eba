"""What the plays need before the curtain: all commands on the stage, and no play's settings left
over for the next.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from qpidha.broker import broker
from qpidha.store import recovery
from tests.scenarios.stagehands import CHUNK, WALKED_A_TURN, rehearse

rehearse()


@pytest.fixture(autouse=True)
def bare_stage() -> Iterator[None]:
    """Let every play begin with snapshots and purges in parts of the usual size."""
    yield
    recovery.CHUNK = CHUNK
    broker.WALKED_A_TURN = WALKED_A_TURN
