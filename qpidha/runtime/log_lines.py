"""Log: turns announcements into lines; text in Qpid's shape or JSON, filtered by `log-enable`.

`2026-11-20 15:41:23.123+01:00 [HA] notice b2(ready): text [QHA1203]`. The state in the parentheses
is that after the last announced change of it; the event code is what `docs/messages.md` explains.
Control characters are escaped, since names and texts come from clients. Must not be called for
every message. Source: Qpid src/qpid/log/Statement.h.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from qpidha.model.options import LEVELS
from qpidha.model.printable import printable
from qpidha.runtime.clock import Clock, local_time, utc_time
from qpidha.runtime.log_sinks import Sink

_UPPER = ("ha", "amqp", "tls")
_RANK = {level: rank for rank, level in enumerate(LEVELS)}


class Log:
    """Where announcements are written."""

    __slots__ = ("_clock", "_disabled", "_enabled", "_is_json", "_known", "_sinks", "name", "state")

    def __init__(
        self,
        sinks: Sequence[Sink],
        clock: Clock,
        *,
        selectors: str = "notice+",
        disabled: str = "",
        form: str = "text",
        name: str = "",
    ) -> None:
        self._sinks = sinks
        self._clock = clock
        self._enabled, self._disabled = _read(selectors), _read(disabled)
        self._is_json = form == "json"
        self._known: dict[tuple[str, str], bool] = {}
        self.name = name
        self.state = ""

    def reopen(self, sinks: Sequence[Sink], *, selectors: str, disabled: str, form: str) -> None:
        """Write elsewhere from now on, or to the same file under its name again."""
        old, self._sinks = self._sinks, sinks
        for sink in old:
            sink.close()
        self._is_json = form == "json"
        self.select(selectors, disabled)

    def select(self, selectors: str, disabled: str) -> None:
        """Write what these select from now on."""
        self._enabled, self._disabled = _read(selectors), _read(disabled)
        self._known.clear()

    def enabled(self, level: str, category: str) -> bool:
        """Whether a line of this level and category is written."""
        key = (level, category)
        answer = self._known.get(key)
        if answer is None:
            # What is critical is always written, as by qpidd.
            answer = level == "critical" or (
                _selects(self._enabled, *key) and not _selects(self._disabled, *key)
            )
            self._known[key] = answer
        return answer

    def write(
        self,
        level: str,
        category: str,
        text: str,
        fields: Mapping[str, object] | None = None,
        event_code: str = "",
    ) -> None:
        """Write one line, if it is enabled."""
        fields = fields or {}
        if "after" in fields:
            self.state = str(fields["after"])
        if not self.enabled(level, category):
            return
        now = self._clock.now()
        if self._is_json:
            line = stamped = self._json(now, level, category, text, fields, event_code)
        else:
            label = category.upper() if category.lower() in _UPPER else category.capitalize()
            code = f" [{event_code}]" if event_code else ""
            line = f"[{label}] {level} {self._who()}: {printable(text)}{code}"
            stamped = f"{local_time(now)} {line}"
        for sink in self._sinks:
            sink.write(level, line if sink.has_clock else stamped)

    def _who(self) -> str:
        return f"{self.name}({self.state})" if self.state else self.name

    def _json(
        self,
        now: int,
        level: str,
        category: str,
        text: str,
        fields: Mapping[str, object],
        event_code: str,
    ) -> str:
        line: dict[str, Any] = {
            "ts": utc_time(now),
            "level": level,
            "category": category,
            "broker": self.name,
        }
        if event_code:
            line["event_code"] = event_code
        if self.state:
            line["state"] = self.state
        line["msg"] = text
        if fields:
            line["fields"] = fields
        return json.dumps(line, default=str)


def _read(selectors: str) -> tuple[tuple[int, int, str], ...]:
    """Read `LEVEL[+|-][:category],...` as lowest rank, highest rank and the beginning of the
    category.
    """
    found = []
    for part in selectors.split(",") if selectors else ():
        level, _, category = part.strip().partition(":")
        rank = _RANK[level.rstrip("+-")]
        low = 0 if level.endswith("-") else rank
        high = len(LEVELS) if level.endswith("+") else rank
        found.append((low, high, category.lower()))
    return tuple(found)


def _selects(selectors: tuple[tuple[int, int, str], ...], level: str, category: str) -> bool:
    rank = _RANK.get(level, len(LEVELS))
    return any(
        low <= rank <= high and category.lower().startswith(only) for low, high, only in selectors
    )
