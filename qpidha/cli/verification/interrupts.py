"""Interrupts: SIGINT and SIGTERM as something that a command looks for when it is ready.

A handler runs between two instructions of the main thread, which may be in the middle of a
`threading.Event` then and have its lock: `set` would wait for ever. So the handler writes a byte
into a pipe, and who waits reads there.
"""

from __future__ import annotations

import os
import select
import signal


class Interrupts:
    """Whether the command was interrupted, from the making of this on."""

    def __init__(self) -> None:
        self._reader, writer = os.pipe()
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: None)

    def wait(self, seconds: float) -> bool:
        """Wait so long, or until the first interrupt; return whether there was one."""
        return bool(select.select([self._reader], [], [], seconds)[0])
