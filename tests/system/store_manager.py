"""The recording half of a cluster manager, over real admin sockets: one record in a file, and one
process's work beside each broker.

It promotes nobody; tests do. `reach` says which brokers it can be reached from: to the others it
says that they are not quorate.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from pathlib import Path

from qpidha.client.admin import AdminLink, LinkBroken
from qpidha.manager.in_sync_record import InSyncRecord, InSyncStore
from qpidha.manager.membership_store import StoreUnavailable, serve_membership_store
from qpidha.model.errors import RefusedRequest
from tests.system.cluster import Broker

AGAIN = 0.05
"""Seconds until a broker that could not be asked is asked again."""


class StoreManager:
    """Records for brokers, in a thread, until it is closed."""

    def __init__(self, path: Path, brokers: Iterable[Broker]) -> None:
        self.store = InSyncStore(path)
        self.brokers = list(brokers)
        self.reach = {broker.name for broker in self.brokers}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def members(self) -> tuple[str, ...]:
        """Return the members of the record."""
        return self.store.newest.members

    def close(self) -> None:
        """End it."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def __enter__(self) -> StoreManager:
        return self

    def __exit__(self, *ignored: object) -> None:
        self.close()

    def _run(self) -> None:
        tasks = [self._loop.create_task(self._record_for(broker)) for broker in self.brokers]
        self._loop.run_forever()
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.close()

    async def _record_for(self, broker: Broker) -> None:
        async def change(record: InSyncRecord | None, instead: InSyncRecord) -> InSyncRecord:
            if broker.name not in self.reach:
                raise StoreUnavailable("this part of the cluster is not quorate")
            return self.store.newest if record is None else self.store.replace(record, instead)

        while True:
            try:
                link = await AdminLink.open(str(broker.admin_socket))
                try:
                    await serve_membership_store(link.call, change)
                finally:
                    link.close()
            except (LinkBroken, RefusedRequest):
                await asyncio.sleep(AGAIN)
