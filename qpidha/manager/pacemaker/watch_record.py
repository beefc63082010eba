"""The record in Pacemaker's store as the only one that counts: what the watch does where
`ha-recorder=manager`.

Pacemaker's CIB is a file that each node has. A change on one node is that node's alone until the
others have it too, and a node that has just been cut off does not know that yet. So before and
after the change as many nodes as make a majority are asked which record they have, each for itself,
over the cluster's own messages: what so many have is kept, and survives whoever is lost. Where so
many do not answer, as with two nodes when one is gone, those that do not must be off for certain:
fenced, or stopped in good order. A node that was lost and is not fenced yet may have another
record, and a primary that goes by it; so that is waited for. Knows nothing of the broker. Source:
rules S2 and S8 in docs/internals/safety.md; cibadmin(8), crm_mon(8) of Pacemaker 2.1.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from xml.etree import ElementTree

from qpidha.manager.in_sync_record import InSyncRecord
from qpidha.manager.membership_store import StoreUnavailable
from qpidha.manager.pacemaker.state import ClusterState, Node, read_state
from qpidha.manager.pacemaker.watch_commands import (
    NO_SUCH_OBJECT,
    RECORD_NAME,
    CommandFailed,
    Pacemaker,
    parse_record,
    record_command,
)
from qpidha.model.errors import InvalidArgument

REMOTE_PATIENCE = 2
"""Seconds for another node to say which record it has."""


LOOKS = 4
"""How often is looked whether a change is kept, before it is wanted anew; with LOOK_AGAIN seconds
in between.
"""
LOOK_AGAIN = 0.05


class NotQuorate(StoreUnavailable):
    """This part of the cluster may not change the store, or cannot: a primary here is cut off."""


class NotFenced(StoreUnavailable):
    """A node is gone, and it is not certain yet that it does nothing."""


class PacemakerRecord:
    """The record, as the watch of one node reads and changes it."""

    def __init__(self, pacemaker: Pacemaker) -> None:
        self.pacemaker = pacemaker

    async def change(self, record: InSyncRecord | None, instead: InSyncRecord) -> InSyncRecord:
        """Put `record`, if there is one, in the place of `instead`, if that is kept; return what is
        kept then.

        Raises NotQuorate or NotFenced where that is not certain, and CommandFailed for a command of
        Pacemaker's that failed.
        """
        kept = await self._kept()
        if record is None or kept != instead:
            return kept
        try:
            await self.pacemaker.ask(record_command(record, instead))
        except CommandFailed as error:
            if error.code != NO_SUCH_OBJECT:
                raise
        kept = await self._spread()
        if kept == instead:
            raise NotQuorate("Pacemaker changed nothing: the partition is not quorate any more")
        return kept

    async def _spread(self) -> InSyncRecord:
        """Return what is kept after a change, which may be on its way to the other nodes for a
        moment.
        """
        for _ in range(LOOKS - 1):
            try:
                return await self._kept()
            except NotQuorate:
                await asyncio.sleep(LOOK_AGAIN)
        return await self._kept()

    async def _kept(self) -> InSyncRecord:
        """Return the record that nodes enough have."""
        state = await self._state()
        nodes = [node for node in state.nodes if node.has_store]
        others = [node for node in nodes if node.name != self.pacemaker.node]
        online = [node for node in others if node.online]
        own, found = await asyncio.gather(
            self._local(), asyncio.gather(*(self._remote(node.name) for node in online))
        )
        agreeing = [node for node, record in zip(online, found, strict=True) if record == own]
        if not state.quorate:
            raise NotQuorate("this part of the cluster is not quorate")
        if 2 * (1 + len(agreeing)) <= len(nodes):
            self._check_off([node for node in others if node not in agreeing], state)
        return own

    def _check_off(self, silent: Sequence[Node], state: ClusterState) -> None:
        on = [node.name for node in silent if node.online]
        if on:
            raise NotQuorate(f"{', '.join(on)}: no answer, or another record as yet")
        unsure = [node.name for node in silent if not node.clean or not state.fencing]
        if unsure:
            why = (
                "is not fenced yet"
                if state.fencing
                else "is gone, and without fencing (stonith-enabled) its state is unknown"
            )
            raise NotFenced(f"{', '.join(unsure)} {why}")

    async def _state(self) -> ClusterState:
        try:
            return read_state(await self.pacemaker.ask(["crm_mon", "-1", "--output-as=xml"]))
        except InvalidArgument as error:
            raise CommandFailed(error.text) from error

    async def _local(self) -> InSyncRecord:
        return _record_in(await self.pacemaker.ask([*QUERY, "--local"], NO_SUCH_OBJECT))

    async def _remote(self, node: str) -> InSyncRecord | None:
        """Return the record that another node has; None if it does not say."""
        try:
            return _record_in(
                await self.pacemaker.ask(
                    [*QUERY, "--node", node, "--timeout", str(REMOTE_PATIENCE)], NO_SUCH_OBJECT
                )
            )
        except CommandFailed:
            return None


QUERY = (
    "cibadmin",
    "--query",
    "--xpath",
    f"/cib/configuration/crm_config//nvpair[@name='{RECORD_NAME}']",
)


def _record_in(text: str) -> InSyncRecord:
    """Read what cibadmin shows of the property; nothing is no record."""
    if not text.strip():
        return InSyncRecord()
    try:
        element = ElementTree.fromstring(text)
        pair = element if element.tag == "nvpair" else element.find(".//nvpair")
        return parse_record("" if pair is None else pair.get("value", ""))
    except (ElementTree.ParseError, ValueError) as error:
        raise CommandFailed(
            f"the property {RECORD_NAME} is no in-sync record: {' '.join(text.split())[:100]}"
        ) from error
