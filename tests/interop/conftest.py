"""Real brokers, as the system tests have them."""

from __future__ import annotations

import pytest

from tests.system.conftest import a_cluster, pytest_runtest_makereport
from tests.system.net import FloatingAddress

__all__ = ["a_cluster", "pytest_runtest_makereport"]


@pytest.fixture
def floating_address():
    made = []

    def make(port):
        made.append(FloatingAddress(port))
        made[0].start()
        return made[0]

    yield make
    for address in made:
        address.close()
