"""Defaults: what counts for a queue whose arguments and policies say nothing, as the options of the
broker have it. Every broker goes by its own: nothing of this is in a record, and a replica has the
same messages whatever its numbers are. Source: Qpid `QueueSettings.cpp`, `QueueFlowLimit.cpp`.
"""

from __future__ import annotations

from dataclasses import dataclass

STOP_PERCENT, RESUME_PERCENT = 80, 70
"""Of a limit: where senders stop and go on; as in Qpid."""
NO_GROUP = "qpid.no-group"
"""The group of messages that name none, as in Qpid."""


@dataclass(slots=True, frozen=True)
class QueueDefaults:
    """The numbers of one broker."""

    max_bytes: int = 0
    """The limit of a queue; 0 is none."""
    memory: int = 0
    """Bytes of messages that need be in memory; 0 is no limit."""
    flow_stop: int = STOP_PERCENT
    """Hundredths of a limit beyond which senders wait; 0 is never."""
    flow_resume: int = RESUME_PERCENT
    """Hundredths of a limit with which they go on."""
    alert: int = 0
    """Hundredths of a limit at which an alert is told; 0 is never."""
    group: str = NO_GROUP
    """The group of messages that name none."""
