"""What the tests of the runtime share."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest


@pytest.fixture
def place():
    """A short directory: a UNIX socket's path is limited."""
    with tempfile.TemporaryDirectory(prefix="qpidha-") as name:
        yield Path(name)
