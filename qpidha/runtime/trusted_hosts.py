"""Trusted hosts: from which addresses brokers and administrators are believed where nobody logs in.

They are this machine's own and those of the brokers of `ha-brokers-url`, whose names are looked up
when the broker starts and every 30 s. While a name cannot be looked up it keeps its last addresses.
Must not know what is believed of anybody.
"""

from __future__ import annotations

import asyncio
import socket

from qpidha.model.ip import is_loopback, plain_host
from qpidha.model.settings import Settings

INTERVAL = 30.0
"""Seconds after which names are looked up again."""
PATIENCE = 1.0
"""Seconds that the start of a broker waits for names; who comes too early comes again."""


class TrustedHosts:
    """The addresses of the cluster's machines."""

    def __init__(self, settings: Settings) -> None:
        hosts = [address.host for address in settings.ha_brokers_url]
        self._addresses = {host: {plain_host(host)} for host in hosts if settings.anonymous}
        """Host as it is named -> its addresses."""
        self._is_known = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Look all names up, now and again and again."""
        if not self._addresses:
            return
        self._task = asyncio.get_running_loop().create_task(self._go_on())
        try:
            async with asyncio.timeout(PATIENCE):
                await self._is_known.wait()
        except TimeoutError:
            pass

    def stop(self) -> None:
        """Look nothing up any more."""
        if self._task is not None:
            self._task.cancel()

    def has(self, peer: str, local: str) -> bool:
        """Whether a peer is at one of the addresses; `local` is that of ours which it dialled, and
        has itself if it is on this machine.
        """
        return bool(peer) and (
            is_loopback(peer)
            or peer == local
            or any(peer in addresses for addresses in self._addresses.values())
        )

    async def _go_on(self) -> None:
        while True:
            await asyncio.gather(*map(self._look_up, self._addresses))
            self._is_known.set()
            await asyncio.sleep(INTERVAL)

    async def _look_up(self, host: str) -> None:
        loop = asyncio.get_running_loop()
        try:
            answers = await loop.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            return
        self._addresses[host] = {plain_host(str(address[0])) for *_, address in answers}
