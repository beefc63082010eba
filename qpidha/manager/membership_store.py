"""The membership store of a manager: serves one broker with `ha-recorder=manager`, over its admin
socket.

The manager polls with `recording`. The broker answers when it wants one record replaced by another,
or wants to know the newest record. The manager has its store do that and reports the outcome with
`recorded`: the newest record, or the trouble. Nothing is remembered in between: after any failure
the manager polls anew, and the store compares. Knows neither the store nor the broker's reasons.
Source: docs/internals/safety.md, S2.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from qpidha.manager.in_sync_record import InSyncRecord
from qpidha.model.errors import QpidHaError

LONG_POLL = 20.0
"""Seconds for an answer to `recording`; the broker gives one after ten if there is nothing."""
ANSWER = 5.0
RETRY = 0.5
"""Seconds after the store did not do what was wanted."""
LONGEST_TEXT = 250
"""Characters of a parameter of the admin socket."""


class Call(Protocol):
    """Asks the broker over its admin socket."""

    def __call__(
        self, method: str, params: dict[str, Any], *, timeout: float
    ) -> Awaitable[dict[str, Any]]:
        """Ask and return the result; raise LinkBroken for no answer and RefusedRequest for a no."""
        ...


class StoreUnavailable(QpidHaError):
    """The store cannot be read or changed now; the text says why."""


Change = Callable[[InSyncRecord | None, InSyncRecord], Awaitable[InSyncRecord]]
"""Puts the first record, if there is one, in the place of the second, if that is what is kept;
returns what is kept then.

Raises a StoreUnavailable, or an OSError, where what is kept is not known for certain.
"""


async def serve_membership_store(call: Call, change: Change) -> None:
    """Do what a broker wants, for ever; raises LinkBroken or RefusedRequest if it cannot be
    asked.
    """
    while True:
        wanted = await call("recording", {}, timeout=LONG_POLL)
        if not wanted.get("wanted"):
            continue
        record = record_of(wanted["record"]) if wanted.get("record") else None
        instead = record_of(wanted.get("instead") or {})
        try:
            kept = await change(record, instead)
            if record is not None and kept == instead:
                raise StoreUnavailable("the store did not change, and did not say why")
        except (QpidHaError, OSError) as error:
            await call("recorded", {"trouble": _line(str(error))}, timeout=ANSWER)
            await asyncio.sleep(RETRY)
        else:
            told = {"epoch": kept.epoch, "version": kept.version, "members": list(kept.members)}
            await call("recorded", {"kept": told}, timeout=ANSWER)


def record_of(fields: Mapping[str, Any]) -> InSyncRecord:
    """Read a record as brokers write it; no fields are no record."""
    return InSyncRecord(
        int(fields.get("epoch") or 0),
        int(fields.get("version") or 0),
        tuple(fields.get("members") or ()),
    )


def _line(text: str) -> str:
    return " ".join(text.split())[:LONGEST_TEXT] or "it failed"
