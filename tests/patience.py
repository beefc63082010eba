"""How long tests wait for what does not come.

Only a test that fails or hangs ever waits so long, so it is long enough for a machine with other
work to do. The environment variable TEST_PATIENCE multiplies all of it.
"""

from __future__ import annotations

import os

FACTOR = float(os.environ.get("TEST_PATIENCE", "1"))
STATE = 120.0 * FACTOR
"""Seconds for one state, one answer, or the end of one process."""
TEST = 300.0 * FACTOR
"""Seconds of one test."""
LONG_TEST = 600.0 * FACTOR
"""Seconds of one test with real brokers, or one that computes for long."""
