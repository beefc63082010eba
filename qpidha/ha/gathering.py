"""Gathering: when what is appended is better sealed, and sent to the backups, a moment later.

Each batch costs every broker a turn. So what nobody waits for travels with the next one, and what
is about to be consumed is not sent at all:

- That messages left their queues waits for company, up to `DEPARTURES`: a primary that dies
  meanwhile has them delivered again. Numbers of which no trace is left wait longer, for nothing
  depends on them.
- While nearly all messages are consumed sooner than backups would confirm them, a message waits for
  as long as that took the last time. Consumed meanwhile, it is accepted and leaves no trace
  (`store/log.py`). Where waiting proves to be of no use nothing waits.

Must not know who waits for what, nor who the backups are. Source: `docs/internals/safety.md`.
"""

from __future__ import annotations

from qpidha.ha.port import Log

DEPARTURES = 5_000_000
"""How long departures of messages wait for a batch to travel with, in ns."""
NUMBERS = 100_000_000
"""How long numbers of which no trace is left wait, in ns."""
MESSAGES = 5_000_000
"""How long messages wait to be consumed, at most, in ns."""
SAMPLE = 64
"""So many messages decide how it is with the next ones."""
TRY = 1 / 4
"""Of them so many have to be consumed before backups confirm them for the next ones to wait, ..."""
SHARE = 7 / 8
"""... and so many while they wait, for that to go on."""
REST = 128
"""For so many samples none waits, at most, where it was of no use: for one after the first time,
for twice as many after each further one.
"""


class Gathering:
    """What of the log waits, and until when."""

    __slots__ = (
        "_departures_since",
        "_gone",
        "_log",
        "_messages",
        "_messages_since",
        "_next_rest",
        "_numbers_since",
        "_rest",
        "is_quick",
        "until",
    )

    def __init__(self, log: Log) -> None:
        self._log = log
        self.is_quick = False
        """Whether messages are consumed so soon that they wait for it."""
        self._rest, self._next_rest = 0, 1
        self._messages = log.messages
        """How many messages there had been when the sample began, ..."""
        self._gone = log.overtaken
        """... and how many had been consumed soon enough."""
        self._messages_since = self._departures_since = self._numbers_since = 0
        """Since when some wait; 0 if none do."""
        self.until = 0
        """When what waits is due; 0 if nothing does."""

    def over(self) -> None:
        """Nothing waits."""
        if self.until:
            self._messages_since = self._departures_since = self._numbers_since = 0
            self.until = 0

    def waits(self, now: int, took: int, *, is_awaited: bool) -> bool:
        """Whether to seal messages that are pending, and that others left, later. Backups `took` so
        long to confirm a batch, in ns; `is_awaited` tells whether a client waits.
        """
        log = self._log
        if log.messages - self._messages >= SAMPLE:
            self._judge()
        if not self.is_quick if log.unsealed else is_awaited:
            self.over()
            return False
        due = 0
        if log.unsealed:
            self._messages_since = self._messages_since or now
            due = self._messages_since + min(took, MESSAGES)
        else:
            self._messages_since = 0
        if log.has_departures:
            self._departures_since = self._departures_since or now
            due = min(due or now + DEPARTURES, self._departures_since + DEPARTURES)
        elif not due:
            self._numbers_since = self._numbers_since or now
            due = self._numbers_since + NUMBERS
        if now >= due:
            self.over()
            return False
        self.until = due
        return True

    def _judge(self) -> None:
        """Say by the last messages whether the next ones wait."""
        log = self._log
        count = log.messages - self._messages
        gone = (log.elided if self.is_quick else log.overtaken) - self._gone
        if self.is_quick:
            self.is_quick = gone >= SHARE * count
            self._rest = 0 if self.is_quick else self._next_rest
            self._next_rest = 1 if self.is_quick else min(2 * self._next_rest, REST)
        elif self._rest:
            self._rest -= 1
        else:
            self.is_quick = gone >= TRY * count
        self._messages = log.messages
        self._gone = log.elided if self.is_quick else log.overtaken
