"""The histories of the soak: the recorder is the package's own; `read` brings a whole directory
into memory, by time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from qpidha.pipeline.events import Event
from qpidha.pipeline.history import History
from qpidha.pipeline.segments import BadInput, Reader

__all__ = ["History", "Read", "read"]


@dataclass(slots=True)
class Read:
    """What a directory of segments holds."""

    events: list[Event] = field(default_factory=list)
    """All events, by the clock that all processes of a host share."""
    segments: int = 0
    incomplete: list[str] = field(default_factory=list)
    """Segments without their last line: their writer did not end in good order."""
    torn: int = 0
    """Last lines that were cut off."""
    problems: list[str] = field(default_factory=list)
    """What makes this no evidence: a wrong checksum, a line that is no event, a gap in the numbers.
    """


def read(directory: Path) -> Read:
    """Read everything that was written in a directory."""
    try:
        reader = Reader([directory])
    except BadInput:
        return Read()
    events = sorted(reader, key=lambda event: (event["m"], event["n"], event["b"], event["s"]))
    segments = reader.inputs.segments
    incomplete = [Path(segment.file).name for segment in segments if segment.state != "closed"]
    return Read(
        events,
        len(segments),
        incomplete,
        sum(segment.torn for segment in segments),
        reader.inputs.problems,
    )
