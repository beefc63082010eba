"""The open transactions of one connection: by their ids, with who began them and who takes part.

A transaction belongs to the coordinator link that declared it, but any link of the connection may
find it here: one that posts puts messages into it, one that receives puts outcomes into it and is
told when it comes to its end. Knows no link. Source: AMQP 1.0 section 4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from qpidha.amqp.peer.channels import MASK
from qpidha.broker.transaction import Transaction
from qpidha.model.errors import LimitExceeded, PreconditionFailed, QpidHaError, RefusedRequest

if TYPE_CHECKING:
    from qpidha.amqp.peer.channels import Retiring
    from qpidha.amqp.peer.terminus import Outcome
    from qpidha.broker.broker import Broker
    from qpidha.broker.transaction import Post, Retirement
    from qpidha.model.memory import MemoryUse

MAX_TRANSACTIONS = 1000
"""Open transactions of one connection."""
MAX_BYTES = 64 << 20
"""Bytes of messages and outcomes in the open transactions of one connection: until a commit they
are in nobody's queue and under no other limit, but that of the memory, of which all of one user
have a share.
"""


class UnknownTransaction(RefusedRequest):
    """No such transaction is open on this connection."""

    condition = "amqp:transaction:unknown-id"


class Owner(Protocol):
    """The coordinator that a transaction was declared on."""

    def fail(self, error: QpidHaError) -> None:
        """End, because a rule was broken, and roll back everything that was begun here."""


class Participant(Protocol):
    """A receiving client's link with outcomes in a transaction."""

    def discharged(self, work: Work, sequence: int, committed: bool) -> None:
        """A transaction came to its end; what a commit did is committed with `sequence`."""


class Work:
    """One open transaction of a connection."""

    __slots__ = ("owner", "participants", "posting", "transaction", "transaction_id", "unsettled")

    def __init__(self, transaction_id: bytes, transaction: Transaction, owner: Owner) -> None:
        self.transaction_id = transaction_id
        self.transaction = transaction
        self.owner = owner
        self.participants: dict[Participant, None] = {}
        self.posting: dict[object, None] = {}
        """Links on which a part of a message for this transaction has come."""
        self.unsettled: dict[tuple[int, int], Outcome] = {}
        """Outcomes in this transaction that did not settle, by channel and delivery-id."""


class OpenTransactions:
    """The open transactions of one connection."""

    __slots__ = ("_holder", "_open", "_use", "bytes", "taken")

    def __init__(self, use: MemoryUse) -> None:
        self._use = use
        self._holder = ""
        """Whose they are."""
        self._open: dict[bytes, Work] = {}
        self.bytes = 0
        self.taken = 0
        """Outcomes in transactions that came for deliveries that are there."""

    def __len__(self) -> int:
        return len(self._open)

    def declare(self, transaction_id: bytes, broker: Broker, owner: Owner, holder: str) -> Work:
        """Begin a transaction. All of this connection count for the holder of the first one."""
        self._holder = self._holder or holder
        if len(self._open) >= MAX_TRANSACTIONS:
            raise LimitExceeded(
                f"this connection has {MAX_TRANSACTIONS} open transactions",
                hint="discharge some of them",
            )
        work = self._open[transaction_id] = Work(transaction_id, Transaction(broker), owner)
        return work

    def find(self, transaction_id: bytes) -> Work:
        """Return an open transaction."""
        work = self._open.get(transaction_id)
        if work is None:
            raise UnknownTransaction(
                f"no transaction {transaction_id.hex() or '(without an id)'} is open on "
                "this connection",
                hint="declare one",
            )
        return work

    def post(self, work: Work, post: Post) -> None:
        """Put a message into a transaction; raise what refuses it; the transaction can
        only be rolled back then.
        """
        refusal = self._refusal(len(post.payload))
        if refusal is not None and work.transaction.cause is None:
            self.mark_rollback_only(work, refusal)
        before = work.transaction.bytes
        try:
            work.transaction.post(post)
        finally:
            self._count(work.transaction.bytes - before)

    def _refusal(self, size: int) -> LimitExceeded | None:
        """Return what refuses so many bytes more, if anything does. Nobody but their client can end
        transactions: they must not have so much of the memory that all others wait for that.
        """
        use, holder = self._use, self._holder
        for whose, held, most in (
            ("this connection", self.bytes, MAX_BYTES),
            (holder, use.transactions_of.get(holder, 0), use.transaction_share),
        ):
            if size > most:
                return LimitExceeded(
                    f"a message of {size} bytes is more than the open transactions of {whose} may "
                    f"hold, which is {most}",
                    hint="send it outside of transactions; the operator can raise memory-limit",
                )
            if held + size > most:
                return LimitExceeded(
                    f"the open transactions of {whose} hold {held} of {most} bytes",
                    hint="commit more often",
                )
        if use.transactions + size > use.transactions_share:
            return LimitExceeded(
                f"the open transactions of all connections hold {use.transactions} of "
                f"{use.transactions_share} bytes",
                hint="try again later; the broker's operator can raise memory-limit",
            )
        return None

    def retire(self, work: Work, retirement: Retirement) -> None:
        """Put what becomes of a message into a transaction; where there is no room the message is
        given back, and the transaction can only be rolled back then.
        """
        refusal = self._refusal(retirement.size)
        if refusal is not None:
            self.mark_rollback_only(work, refusal)
            work.transaction.give_back(retirement)
            return
        before = work.transaction.bytes
        work.transaction.retire(retirement)
        self._count(work.transaction.bytes - before)

    def changed(self, work: Work, retirement: Retirement) -> None:
        """Something else is to become of a message."""
        before = work.transaction.bytes
        work.transaction.changed(retirement)
        self._count(work.transaction.bytes - before)
        refusal = self._refusal(0)
        if refusal is not None:
            self.mark_rollback_only(work, refusal)

    def mark_rollback_only(self, work: Work, error: QpidHaError) -> None:
        """Let a transaction end in no way but a rollback."""
        before = work.transaction.bytes
        work.transaction.mark_rollback_only(error)
        self._count(work.transaction.bytes - before)
        work.unsettled.clear()

    def retired(self, retiring: Retiring) -> None:
        """Make sure that a commit carries out an outcome that came: all of its deliveries were
        there to take it, or it repeats what was taken before they were gone.
        """
        work = self._open.get(retiring.transaction_id)
        if work is None or work.transaction.cause is not None:
            return
        first, count, outcome = retiring.first, retiring.count, retiring.outcome
        if self.taken < count and count > len(work.unsettled):
            self._throw_away(work)
            return
        places = [(retiring.channel, (first + index) & MASK) for index in range(count)]
        if self.taken == count:
            for place in places:
                if retiring.settled:
                    work.unsettled.pop(place, None)
                elif outcome is not None:
                    work.unsettled[place] = outcome
        elif not all(
            place in work.unsettled and outcome in (None, work.unsettled[place]) for place in places
        ):
            self._throw_away(work)

    def _throw_away(self, work: Work) -> None:
        """An outcome was lost, which a commit would seem to carry out."""
        self.mark_rollback_only(
            work,
            PreconditionFailed(
                "an outcome in the transaction was for a delivery that is settled already, or gone "
                "with its link",
                hint="detach when the transaction is discharged, and settle in it or outside",
            ),
        )

    def discharge(self, work: Work, *, failed: bool) -> int:
        """End a transaction; return the sequence to wait for, or raise what prevents the commit."""
        del self._open[work.transaction_id]
        self._count(-work.transaction.bytes)
        participants, work.participants = work.participants, {}
        try:
            sequence = 0
            if failed:
                work.transaction.rollback()
            else:
                sequence = work.transaction.commit()
        except QpidHaError:
            failed = True
            raise
        finally:
            for participant in participants:
                participant.discharged(work, sequence, not failed)
        return sequence

    def _count(self, size: int) -> None:
        """So many bytes of messages came, or have left if it is below 0."""
        self.bytes += size
        self._use.count_transactions(self._holder, size)

    def abandon(self, owner: Owner) -> None:
        """Roll back everything that a coordinator began."""
        for work in list(self._open.values()):
            if work.owner is owner:
                self.discharge(work, failed=True)
