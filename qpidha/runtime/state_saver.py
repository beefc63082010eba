"""State saver: the thread that writes the state file, so that no sync of it stops the broker.

What is asked for while it writes is written next, the last of it once for all: the slower the disk,
the more gathers. Knows nothing of what the state means. Source: group commit, as in `log_disk.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from qpidha.model.effects import SaveState
from qpidha.model.events import Event, StateSaved
from qpidha.runtime.data_dir import Disk
from qpidha.runtime.exits import reason_of


class StateSaver:
    """Saves the state of one broker. In its thread, `post` gets an event for what is saved, and
    `failed` the reason if the disk fails; then no more is done.
    """

    __slots__ = ("_changed", "_disk", "_failed", "_is_closing", "_next", "_post", "_thread")

    def __init__(
        self, disk: Disk, post: Callable[[Event], None], failed: Callable[[str], None]
    ) -> None:
        self._disk = disk
        self._post = post
        self._failed = failed
        self._changed = threading.Condition()
        self._next: SaveState | None = None
        self._is_closing = False
        self._thread = threading.Thread(target=self._work, name="state-saver", daemon=True)
        self._thread.start()

    def save(self, effect: SaveState) -> None:
        """Save this next, in the place of what waits for that."""
        with self._changed:
            self._next = effect
            self._changed.notify()

    def close(self, timeout: float) -> bool:
        """Save what waits, and end; whether that is done. The thread is left behind if the disk
        takes longer than `timeout`.
        """
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _work(self) -> None:
        try:
            while (effect := self._take()) is not None:
                self._disk.save_state(effect.data)
                self._post(StateSaved(effect.mark))
                self._disk.settle_state()
        except OSError as error:
            self._failed(reason_of(error))
        except BaseException as error:
            # Ours, not the disk's. Who waits must hear of it all the same.
            self._failed(f"{error.__class__.__name__}: {error}")
            raise

    def _take(self) -> SaveState | None:
        """Wait for something to save; None when there will be nothing more."""
        with self._changed:
            self._changed.wait_for(lambda: self._next is not None or self._is_closing)
            effect, self._next = self._next, None
            return effect
