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
- Sealed is what is due, up to the end of a turn, and what came later waits on. Were it all sealed,
  departures of what was sealed would take along what has just come, whose departures follow.

Must not know who waits for what, nor who the backups are. Source: `docs/internals/safety.md`.
"""

from __future__ import annotations

from collections import deque

from qpidha.ha.port import Log, Port

DEPARTURES = 5_000_000
"""How long departures of messages wait for a batch to travel with, in ns; beside messages that wait
as long as those, if that is longer.
"""
NUMBERS = 100_000_000
"""How long numbers of which no trace is left wait, in ns."""
TIMES = 4
"""Messages wait to be consumed for so many times what backups took to confirm the last ones: where
both share a machine consumers are quicker when backups have nothing to do.
"""
MESSAGES = 20_000_000
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
        "_decided",
        "_departures_since",
        "_gone",
        "_log",
        "_next_rest",
        "_noted",
        "_passed",
        "_port",
        "_probed_at",
        "_probes",
        "_rest",
        "_sealed",
        "_since",
        "_soon",
        "_turns",
        "is_quick",
        "until",
    )

    def __init__(self, log: Log, port: Port) -> None:
        self._log, self._port = log, port
        self.is_quick = False
        """Whether messages are consumed so soon that they wait for it."""
        self._rest, self._next_rest = 0, 1
        self._decided = self._gone = 0
        """Of how many messages it was known what came of them when the sample began, and how many
        of those had been consumed while they waited.
        """
        self._probes = self._soon = 0
        """How many messages were followed, and how many of them were consumed soon."""
        self._probed_at = 0
        """When the one that is followed came; 0 if it has still to come."""
        log.probe = -1
        self._turns: deque[tuple[int, int]] = deque()
        """The last sequence of each turn of which some message waits still, and its time."""
        self._passed = self._noted = self._sealed = 0
        """The last sequence of the turns before those, that of the last turn of all, and how far
        the log was sealed then.
        """
        self._since = self._departures_since = 0
        """Since when anything waits, and departures do; 0 if none do."""
        self.until = 0
        """When what waits is due; 0 if nothing does."""

    def over(self) -> None:
        """Nothing waits."""
        if self._since:
            self._turns.clear()
            self._since = self._departures_since = self._noted = self.until = 0

    def ripe(self, now: int, took: int) -> int:
        """Return up to where messages that are pending, and that others left, are to be sealed now;
        0 if all of it is better sealed later. Called at the end of each turn. Backups `took` so
        long to confirm a batch, in ns.
        """
        log = self._log
        soon = min(TIMES * took, MESSAGES)
        if not self.is_quick:
            self._follow(now, soon)
        elif log.messages - log.unsealed - self._decided >= SAMPLE:
            self._judge()
        if not self.is_quick if log.unsealed else self._port.is_awaited:
            self.over()
            return log.end
        self._note(now)
        departures = max(soon, DEPARTURES) if log.unsealed else DEPARTURES
        is_awaited = self._port.is_awaited_before(log.first_unsealed())
        dues = [self._since + (departures if is_awaited else NUMBERS)]
        if self._turns:
            dues.append(self._turns[0][1] + soon)
        if self._departures_since:
            dues.append(self._departures_since + departures)
        self.until = min(dues)
        if now < self.until:
            return 0
        if not log.unsealed:
            self.until = 0
            return log.end
        # What came in the last moment waits on, but for what is in one turn with what is due.
        through, self.until = max(self._passed, log.last), 0
        for end, since in self._turns:
            if since + soon > now and through > log.last:
                self.until = since + soon
                break
            through = end
        return through

    def _note(self, now: int) -> None:
        """Note what this turn left, and what of the turns before was sealed or consumed."""
        log, turns = self._log, self._turns
        if log.last != self._sealed:
            self._sealed = log.last
            while turns and turns[0][0] <= log.last:
                turns.popleft()
            self._since = self._departures_since = turns[0][1] if turns else 0
        if log.unsealed and log.end > self._noted:
            log.end_turn()
            self._noted = log.end
            turns.append((log.end, now))
        first = log.first_unsealed()
        while turns and turns[0][0] < first:
            self._passed = turns.popleft()[0]
        self._since = self._since or now
        self._departures_since = (self._departures_since or now) if log.has_departures else 0

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
            self._decided, self._gone = log.messages - log.unsealed, log.elided

    def _judge(self) -> None:
        """Say by the last messages, which waited, whether the next ones do."""
        log = self._log
        decided = log.messages - log.unsealed
        if log.elided - self._gone >= SHARE * (decided - self._decided):
            self._next_rest = 1
        else:
            self.is_quick = False
            log.probe = -1  # The last one came while messages waited.
            self._rest, self._next_rest = self._next_rest, min(2 * self._next_rest, REST)
        self._decided, self._gone = decided, log.elided
