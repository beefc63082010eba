"""Promising: what this broker answers when another asks it to promise an epoch, or to record an in-sync set.

An epoch is promised once, to one candidate, and only a higher one than before. A set is recorded unless a
higher epoch is promised. A primary that hears of a higher epoch by either steps down. Whoever records
elsewhere than we do (`ha-recorder`) gets no promise at all: a majority of brokers and a store are two ways
to agree, and one cluster has one. Must not know what the answer decides. Source: DESIGN section 5, S2, S3 and S5.
"""

from __future__ import annotations

from typing import Protocol

from qpidha.ha.in_sync import InSyncSet, SavedState
from qpidha.ha.peers import Peers, foreign_text
from qpidha.ha.port import Port
from qpidha.ha.primary import Primary
from qpidha.ha.wire import Answer, Ask, Status, encode


class Promiser(Protocol):
    """The broker that is asked."""

    port: Port
    peers: Peers
    saved: SavedState
    primary: Primary | None
    name: str
    granted: tuple[int, str]

    def status(self) -> Status:
        """Return how this broker is."""

    def save(self) -> None:
        """Make what is in `saved` last."""

    def set_in_sync(self, set_: InSyncSet) -> None:
        """Remember the newest set, and let the others know."""

    def step_down(self, reason: str) -> None:
        """Be a backup again."""


def answer(promiser: Promiser, connection_id: int, question: Ask) -> None:
    """Answer with how this broker is, and whether it does what is asked."""
    saved = promiser.saved
    granted, reason = True, ""
    if question.recorder != promiser.peers.recorder:
        granted, reason = False, foreign_text(promiser.name, promiser.peers.recorder, question.recorder)
    elif question.version:
        granted = question.epoch >= saved.promised
        if granted:
            saved.promised = question.epoch
            promiser.set_in_sync(InSyncSet(question.epoch, question.version, question.members))
            if promiser.primary is not None and question.epoch > promiser.primary.in_sync.epoch:
                promiser.step_down(f"{promiser.peers.address_of(question.candidate)} is the primary of epoch {question.epoch}")
    elif question.epoch and (question.epoch, question.candidate) != promiser.granted:  # not asked again by the same
        granted = question.epoch > saved.promised
        if granted:
            promiser.granted = (question.epoch, question.candidate)
            saved.promised = question.epoch
            promiser.save()
            if promiser.primary is not None:
                promiser.step_down(f"{promiser.peers.address_of(question.candidate)} asked for epoch {question.epoch}")
    if not granted and not reason:
        reason = f"epoch {saved.promised} is promised already"
    promiser.port.say(connection_id, encode(promiser.status()))
    promiser.port.say(connection_id, encode(Answer(question.nonce, granted, reason)))
