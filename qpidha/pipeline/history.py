"""Histories: what clients and the nemesis did, as JSON lines in segments, written so that a crash
costs the last line at most.

Each event goes to the kernel with one write before whatever it announces happens, so killing the
writer leaves whole lines. A write that fails raises OSError: an operation that cannot be noted must
not be done. Not for use from several threads. The files are those of `runtime/event_segments.py`,
the fields those of `events.py`. Files: docs/pipeline.md.
"""

from __future__ import annotations

from collections.abc import Sequence

from qpidha.model.event_log import quoted
from qpidha.runtime.event_segments import SegmentWriter


class History(SegmentWriter):
    """The events of one process of a run; `node` defaults to `client-<host>`."""

    def op(
        self,
        o: int,
        c: int,
        y: str,
        f: str,
        *,
        q: str,
        w: int | None = None,
        u: int | None = None,
        d: int | None = None,
        i: str = "",
        fa: int | None = None,
        j: int | None = None,
        token: Sequence[int] = (),
        err: str = "",
    ) -> None:
        """Note one step of an operation: `o` its number, `c` the process, `y` how it stands, `f`
        what it does.

        The value is (`w` producer, `u` sequence); `d` the delivery count, `fa` the first-acquirer,
        `i` the message id, `j` the intended begin in ns of the monotonic clock, and `token` a
        fencing token. Queue, id and error may hold any text.
        """
        rest = (
            f'"k":"op","run":{quoted(self.run)},"o":{o},"c":{c},"y":"{y}","f":"{f}","q":{quoted(q)}'
        )
        if w is not None:
            rest += f',"w":{w},"u":{u}'
        if d is not None:
            rest += f',"d":{d}'
        if fa is not None:
            rest += f',"fa":{fa}'
        if j is not None:
            rest += f',"j":{j}'
        if token:
            rest += f',"e":{token[0]},"p":{token[1]}'
        if i:
            rest += f',"i":{quoted(i)}'
        if err:
            rest += f',"err":{quoted(err)}'
        self.write(rest)

    def fault(self, o: int, y: str, f: str, target: str) -> None:
        """Note the start or the stop of a fault of kind `f` at `target`."""
        self.write(
            f'"k":"fault","run":{quoted(self.run)},"o":{o},"y":"{y}",'
            f'"f":{quoted(f)},"x":{quoted(target)}'
        )
