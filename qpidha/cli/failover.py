"""Going on after a failover: finds the broker that serves now, and repeats work on it whose connection was lost.

`Route` knows the addresses that were given, those of the local cluster or of `--config`, and whatever brokers told: where
they redirect to and their failover-server-list. It gives up when nothing went on for `--timeout`, unless it is to go on
for ever. What the work is, and what of it has to be repeated, is known by the command.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from dataclasses import replace

from qpidha.cli.arguments import Options
from qpidha.cli.client import Client, Lost
from qpidha.cli.exits import TIMED_OUT, UNREACHABLE, Failure
from qpidha.cli.output import talk
from qpidha.cli.status import addresses
from qpidha.cli.target import Target, brokers_url, parse

SHARE = 2.0
"""Seconds for one address, where there are others: a hung broker must not use up all the time."""
PAUSE = 0.1
"""Seconds between two rounds of all addresses."""
CHANGING = ("amqp:connection:redirect", "amqp:connection:forced")
"""How a backup sends away a client: there is a cluster, and it will have a primary soon."""


class Route:
    """The way to whichever broker serves."""

    def __init__(self, first: Target, options: Options, *, heartbeat: int, forever: bool = False) -> None:
        self.options = options
        self.served = False
        """Whether a broker has let us in."""
        self._heartbeat = heartbeat
        self._forever = forever
        self._known = [first]
        listed = addresses(brokers_url(options))
        if options.config or str(first) in listed:
            self._learn(tuple(_like(address, first) for address in listed))

    def work(self, do: Callable[[Client], None], progress: Callable[[], int]) -> None:
        """Do something on a connection, and again on the next one whenever it is lost; `progress` grows as it goes on."""
        patience = self.options.patience()
        done, began = progress(), time.monotonic()
        while True:
            client = self._connect(None if patience is None else began + patience)
            try:
                do(client)
                return
            except Lost as lost:
                if progress() > done:
                    done, began = progress(), time.monotonic()
                self._lost(client, lost)
            finally:
                client.close()

    def _lost(self, client: Client, lost: Lost) -> None:
        talk(self.options, f"{lost.text}; going on elsewhere")
        # The one that was lost comes last, and the one that it named first.
        self._known.remove(client.target)
        self._known.append(client.target)
        self._learn(lost.servers)
        if lost.servers and lost.condition == CHANGING[0]:
            self._known.remove(lost.servers[0])
            self._known.insert(0, lost.servers[0])
        select.select([], [], [], PAUSE)

    def _connect(self, deadline: float | None) -> Client:
        """Try all addresses until one serves, or it is too late."""
        if self._forever and self.served:
            deadline = None
        while True:
            changing = self.served
            last: Failure | None = None
            for target in list(self._known):
                try:
                    return self._try(target, deadline)
                except Failure as failure:
                    if isinstance(failure, Lost):
                        self._learn(failure.servers)
                        changing = changing or (failure.answered and (failure.condition in CHANGING or not failure.condition))
                    elif failure.code != TIMED_OUT:
                        raise
                    if last is None or (isinstance(failure, Lost) and failure.answered):
                        last = failure
            assert last is not None
            if not changing:
                raise last
            if deadline is not None and time.monotonic() >= deadline:
                text = f"no broker served within {self.options.patience():g} s; {last.text}"
                raise Failure(UNREACHABLE, text, hint="qpid-ha list, or a longer --timeout", condition=last.condition)
            select.select([], [], [], PAUSE)

    def _try(self, target: Target, deadline: float | None) -> Client:
        left = self.options.patience() if deadline is None else max(deadline - time.monotonic(), PAUSE)
        share = left if len(self._known) == 1 else min(left or SHARE, SHARE)
        client = Client(target, replace(self.options, timeout=share or 0.0), follow=True, heartbeat=self._heartbeat)
        client.options = self.options
        self.served = True
        self._learn((client.target, *client.servers))
        return client

    def _learn(self, servers: tuple[Target, ...]) -> None:
        for server in servers:
            if server not in self._known:
                self._known.append(server)


def _like(address: str, first: Target) -> Target:
    """Read an address of a brokers URL; one logs in there as at the first."""
    return replace(parse(address), user=first.user, password=first.password, mechanism=first.mechanism)
