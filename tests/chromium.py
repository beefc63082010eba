"""The browser of this machine, for tests that look at pages as people do; none is downloaded."""

from __future__ import annotations

import os
import shutil

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
MISSING = "no Chromium: apt-get install chromium"
"""Why a test is skipped without it."""
AS_ROOT = ["--no-sandbox"] if os.geteuid() == 0 else []
"""What it asks of root."""
