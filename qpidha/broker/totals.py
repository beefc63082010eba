"""Totals: what the queues of a broker have counted, those included that are deleted.

Each queue counts what comes and goes; a sum over the queues that exist would fall when one is
deleted, and a total must not. So the counts of a deleted queue are added to what is kept here. It
begins anew with everything else, when a backup is given all objects again.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from qpidha.broker.queues.queue import CAUSES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from qpidha.broker.queues.queue import Queue

COUNTED = (
    "enqueued",
    "bytes_enqueued",
    "bytes_departed",
    "transacted_in",
    "transacted_in_bytes",
    "transacted_out",
    "transacted_out_bytes",
    "released",
    "refused",
    "deduplicated",
    "left_out",
    "not_rerouted",
    "flow_stops",
)
"""Counts of a queue, beside its departures."""
_counts = attrgetter(*COUNTED)


class Totals:
    """The counts of queues that are gone."""

    def __init__(self) -> None:
        self._counts = [0] * len(COUNTED)
        self._departed = [0] * len(CAUSES)

    def clear(self) -> None:
        """Forget them."""
        self._counts = [0] * len(COUNTED)
        self._departed = [0] * len(CAUSES)

    def add(self, queue: Queue) -> None:
        """Keep the counts of a queue that is closed."""
        self._counts = _sums([self._counts, list(_counts(queue))])
        self._departed = _sums([self._departed, queue.departed])

    def counts(self, queues: Collection[Queue]) -> dict[str, int]:
        """Return each count, with those of these queues."""
        return dict(zip(COUNTED, _sums([self._counts, *map(_counts, queues)]), strict=True))

    def departures(self, queues: Collection[Queue]) -> dict[str, int]:
        """Return how many messages left, by the name of the cause."""
        sums = _sums([self._departed, *(queue.departed for queue in queues)])
        return {name: sums[cause] for cause, name in CAUSES}


def _sums(rows: Iterable[Iterable[int]]) -> list[int]:
    """Add rows up, column by column; what one has more than the first is left out."""
    return list(map(sum, zip(*rows, strict=False)))
