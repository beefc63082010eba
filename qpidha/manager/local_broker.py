"""One broker of a local cluster as its manager sees it: its process, its admin link, and what is known of its state."""

from __future__ import annotations

import asyncio
import time

from qpidha.manager.admin import AdminLink
from qpidha.manager.cluster import BrokerSpec
from qpidha.manager.placement import Member
from qpidha.manager.process import BrokerProcess


class LocalBroker:
    """One broker as its manager sees it."""

    __slots__ = (
        "backoff", "hung_since", "launched", "link", "may_be_primary", "member", "poke", "process", "recorder", "restarts", "short_lives",
        "since", "spec", "stopped", "told",
    )  # fmt: skip

    def __init__(self, spec: BrokerSpec) -> None:
        self.spec = spec
        self.member = Member(spec.name, spec.address, state="down")
        self.process: BrokerProcess | None = None
        self.link: AdminLink | None = None
        self.may_be_primary = False
        """Whether it could be serving clients although it does not answer."""
        self.told = 0.0
        """When it was last told to be primary."""
        self.hung_since = 0.0
        self.since = time.time_ns()
        self.restarts = -1
        self.launched = 0.0
        self.backoff = 0.0
        self.short_lives = 0
        """How many times in a row it ended soon after its start."""
        self.recorder = ""
        """Its ha-recorder, as it said."""
        self.stopped = False
        """Whether it was sent SIGSTOP through us; only shown."""
        self.poke = asyncio.Event()

    @property
    def running(self) -> bool:
        """Whether its process lives."""
        return self.process is not None and self.process.running
