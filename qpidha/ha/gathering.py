"""Gathering: when what is appended is better sealed, and sent to the backups, a moment later.

Each batch costs every broker a turn. So what nobody waits for travels with the next one, and what
is about to be consumed is not sent at all:

- That messages left their queues waits for company, up to `DEPARTURES`: a primary that dies
  meanwhile has them delivered again. Numbers of which no trace is left wait longer, for nothing
  depends on them.
- While nearly all messages are consumed within a few times what backups take to confirm one, a
  message waits that long. Consumed meanwhile, it is accepted and leaves no trace (`store/log.py`).
  One message after the other is followed, without waiting, to see whether that is so. Where waiting
  proves to be of no use nothing waits.

Must not know who waits for what, nor who the backups are. Source: `docs/internals/safety.md`.
"""

from __future__ import annotations

from qpidha.ha.port import Log

DEPARTURES = 5_000_000
"""How long departures of messages wait for a batch to travel with, in ns."""
NUMBERS = 100_000_000
"""How long numbers of which no trace is left wait, in ns."""
TIMES = 4
"""Messages wait to be consumed for so many times what backups took to confirm the last ones: where
both share a machine consumers are quicker when backups have nothing to do.
"""
MESSAGES = 5_000_000
"""How long messages wait to be consumed, at most, in ns."""
PROBES = 16
"""So many messages are followed to decide whether the next ones wait, ..."""
SAMPLE = 64
"""... and so many that waited, to decide whether that goes on."""
SHARE = 7 / 8
"""Of either so many have to be consumed in that time."""
REST = 128
"""For so many times `PROBES` none waits, at most, where it was of no use: for one after the first
time, for twice as many after each further one.
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
        "_probed_at",
        "_probes",
        "_rest",
        "_soon",
        "is_quick",
        "until",
    )

    def __init__(self, log: Log) -> None:
        self._log = log
        self.is_quick = False
        """Whether messages are consumed so soon that they wait for it."""
        self._rest, self._next_rest = 0, 1
        self._messages = self._gone = 0
        """How many messages there had been when the sample began, and how many had been consumed
        while they waited.
        """
        self._probes = self._soon = 0
        """How many messages were followed, and how many of them were consumed soon."""
        self._probed_at = 0
        """When the one that is followed came; 0 if it has still to come."""
        log.probe = -1
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
        soon = min(TIMES * took, MESSAGES)
        if not self.is_quick:
            self._follow(now, soon)
        elif log.messages - self._messages >= SAMPLE:
            self._judge()
        if not self.is_quick if log.unsealed else is_awaited:
            self.over()
            return False
        due = 0
        if log.unsealed:
            self._messages_since = self._messages_since or now
            due = self._messages_since + soon
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

    def _follow(self, now: int, soon: int) -> None:
        """Look after the message that is followed; by some of them it is seen whether consumers
        are quick.
        """
        log = self._log
        if log.probe < 0:
            return
        if not self._probed_at:
            self._probed_at = now  # It came in this turn, and may be gone again.
        took = now - self._probed_at
        if log.probe and took <= soon:
            return
        self._probed_at = 0
        log.probe = -1
        self._probes += 1
        self._soon += took <= soon
        if self._probes < PROBES:
            return
        is_quick = self._soon >= SHARE * PROBES
        self._probes = self._soon = 0
        if not is_quick:
            self._rest, self._next_rest = 0, 1
        elif self._rest:
            self._rest -= 1
        else:
            self.is_quick = True
            self._messages, self._gone = log.messages, log.elided

    def _judge(self) -> None:
        """Say by the last messages, which waited, whether the next ones do."""
        log = self._log
        if log.elided - self._gone >= SHARE * (log.messages - self._messages):
            self._next_rest = 1
        else:
            self.is_quick = False
            log.probe = -1  # The last one came while messages waited.
            self._rest, self._next_rest = self._next_rest, min(2 * self._next_rest, REST)
        self._messages, self._gone = log.messages, log.elided
