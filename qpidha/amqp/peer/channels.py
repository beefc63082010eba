"""Channels: what a peer's frames make of its sessions and links, and the rules that hold from one
frame to the next.

The engine keeps to some of these rules and ends the connection where one is broken; others it does
not know. So they are kept here, before it has a frame: an error of a session is raised and ends
that session. An error of a link, and what else there is to do that the engine does not, is a
`Notice`. Frames come one by one, in their order; must not know how they are read, or the engine.
Source: AMQP 1.0 sections 2.5.6, 2.6.1, 2.6.12, 2.7.3 to 2.7.6, 4.4.3.
"""

from __future__ import annotations

from qpidha.amqp.peer.terminus import Outcome
from qpidha.model.errors import InvalidArgument, NotImplementedHere, ProtocolViolation, QpidHaError

MASK = 2**32 - 1
UNKNOWN = -1
LONGEST_NAME = 1024
"""Bytes of the name of a link."""
LONGEST_DESCRIPTION, USUAL_DESCRIPTION, LEAST_DESCRIBED = 32 << 10, 1 << 10, 4 << 20
"""Bytes of source, target and properties that a link may have, that each may of as many as a
connection may have, and that all of a connection may in any case: what is made of them takes many
times as much.
"""


class HandleInUse(ProtocolViolation):
    """An attach with the handle of another link."""

    condition = "amqp:session:handle-in-use"


class UnattachedHandle(ProtocolViolation):
    """A frame for a link that is not there."""

    condition = "amqp:session:unattached-handle"


class WindowViolation(ProtocolViolation):
    """A transfer for which the session has no window."""

    condition = "amqp:session:window-violation"


class NotTheSender(ProtocolViolation):
    """A transfer on a link on which the peer receives."""

    condition = "amqp:not-allowed"


class DescribedAtLength(ProtocolViolation):
    """An attach that says more of its link than is kept."""

    condition = "amqp:resource-limit-exceeded"


class NoHandleLeft(ProtocolViolation):
    """An attach that cannot be answered: the peer takes no more handles."""

    condition = "amqp:resource-limit-exceeded"


class Notice(Exception):
    """Something to see to before the engine has a frame, if raised, or after it."""

    channel = UNKNOWN


class LinkFault(Notice):
    """An error of one link, before its frame."""

    def __init__(self, handle: int, error: QpidHaError, *, declines: bool = False) -> None:
        super().__init__(error.text)
        self.handle = handle
        self.error = error
        self.declines = declines
        """Whether the error is of one delivery only, which begins with the frame."""


class Stolen(Notice):
    """An attach comes, with the name of another link of the session."""

    def __init__(self, name: str, handle: int) -> None:
        super().__init__(name)
        self.handle = handle
        """The other link, as the peer numbers it."""


class Retiring(Notice):
    """An outcome in a transaction comes for some deliveries."""

    def __init__(
        self,
        transaction_id: bytes,
        outcome: Outcome | None,
        first: int,
        count: int,
        *,
        settled: bool,
    ) -> None:
        super().__init__()
        self.transaction_id = transaction_id
        self.outcome = outcome
        self.first = first
        self.count = count
        self.settled = settled
        self.is_told = False
        """Whether the engine has it by now."""


class Flowed(Notice):
    """A flow has come that the engine does not follow as a whole."""

    def __init__(self, link: Link | None, shift: int, granted: int, *, echoes: bool) -> None:
        super().__init__()
        self.link = link
        self.shift = shift
        """By how much the next transfer-id is not what the transfers that came make it."""
        self.granted = granted
        """The delivery-count at which the credit of the link is used up."""
        self.echoes = echoes
        """Whether the peer wants a flow for an answer."""


class Link:
    """What is known of a link of the peer's."""

    __slots__ = (
        "available",
        "delivery",
        "described",
        "granted",
        "handle",
        "is_excused",
        "is_pending",
        "is_settled",
        "message_format",
        "name",
        "receives",
        "wants_echo",
    )

    def __init__(self, handle: int, name: str, *, receives: bool, described: int) -> None:
        self.handle = handle
        self.name = name
        self.described = described
        """Bytes of its source, target and properties."""
        self.receives = receives
        """Whether the peer receives on it."""
        self.granted = 0
        """The delivery-count up to which it has given credit."""
        self.available: int | None = None
        """How many messages it has and does not send, if it said that in its last flow."""
        self.is_pending = False
        """Whether a part of a delivery has come: of this id, message-format and settlement."""
        self.delivery = 0
        self.message_format = 0
        self.is_settled = False
        self.is_excused = False
        """The next frame was found faulty, which was seen to."""
        self.wants_echo = False

    def find(self, fault: LinkFault) -> None:
        """Raise what is wrong with a frame, once."""
        if not self.is_excused:
            self.is_excused = True
            raise fault


class Channel:
    """What is known of a session of the peer's."""

    __slots__ = (
        "_announced",
        "_handle_max",
        "_names",
        "ahead",
        "is_answered",
        "is_ended",
        "links",
        "next_id",
        "pending",
    )

    def __init__(self, next_transfer: int, handle_max: int | None, *, is_answered: bool) -> None:
        self.is_ended = False
        """We have ended it; what still comes is of no interest."""
        self.is_answered = is_answered
        """Whether our begin went out, without which the session has no window."""
        self.links: dict[int, Link] = {}
        """Attached links by their handles."""
        self._names: dict[tuple[str, bool], Link] = {}
        self.next_id = UNKNOWN
        """The delivery-id of the next delivery, not cut to 32 bits."""
        self.ahead = next_transfer - self.next_id
        """By how much the id of the next transfer is more."""
        self._announced = False
        self._handle_max = MASK if handle_max is None else handle_max
        """The largest handle that the peer takes."""
        self.pending = 0
        """Links of which a delivery is not complete."""

    def attach(self, handle: int, name: str, *, receives: bool, described: int = 0) -> None:
        """Note a link that is described in so many bytes."""
        if handle in self.links:
            raise HandleInUse(f"handle {handle} is that of another link")
        if len(self.links) > self._handle_max:
            raise NoHandleLeft(
                f"no handle is left to answer the attach of '{name}' with",
                reason=f"the begin of the session has handle-max {self._handle_max}",
            )
        stolen = self._names.pop((name, receives), None)
        if stolen is not None:
            raise Stolen(name, stolen.handle)
        link = Link(handle, name, receives=receives, described=described)
        self.links[handle] = self._names[name, receives] = link

    def described(self) -> int:
        """Count the bytes that its links are described in."""
        return sum(link.described for link in self.links.values())

    def detach(self, handle: int) -> Link:
        """Forget a link."""
        link = self.find(handle, "detach")
        del self.links[handle]
        self.pending -= link.is_pending
        if self._names.get((link.name, link.receives)) is link:
            del self._names[link.name, link.receives]
        return link

    def find(self, handle: int, frame: str) -> Link:
        """Return the link that a frame names."""
        link = self.links.get(handle)
        if link is None:
            raise UnattachedHandle(f"{frame} names handle {handle}, which has no link")
        return link

    def transfer(
        self,
        handle: int,
        delivery: int | None,
        *,
        tagged: bool,
        message_format: int | None,
        settled: bool | None,
        more: bool,
        second: bool,
        resumed: bool,
        aborted: bool,
    ) -> Link:
        """Note a transfer; raise what is wrong with it. `second` is whether its receiver is to
        settle second, `resumed` whether it is of a delivery of an earlier link.
        """
        link = self.find(handle, "transfer")
        if link.receives:
            raise NotTheSender(f"transfer came on handle {handle}, whose link is a receiver's")
        if not self.is_answered:
            raise WindowViolation("transfer came before our begin, which opens the window for it")
        if link.is_pending:
            self._continue(link, delivery, message_format, settled)
            self.ahead += 1
        else:
            if resumed:
                error = NotImplementedHere(
                    "a delivery is resumed, which is not offered",
                    reason="nothing outlives a detach here, so no attach has an unsettled map",
                    hint="send it as a new one",
                )
                link.find(LinkFault(handle, error))
            self._begin(link, delivery, message_format, tagged=tagged, second=second)
            link.is_settled = False
        link.is_excused = False
        link.is_settled |= bool(settled)
        is_pending = more and not aborted
        self.pending += is_pending - link.is_pending
        link.is_pending = is_pending
        return link

    def _begin(
        self,
        link: Link,
        delivery: int | None,
        message_format: int | None,
        *,
        tagged: bool,
        second: bool,
    ) -> None:
        if delivery is None:
            raise InvalidArgument("the first transfer of a delivery has no delivery-id")
        if self.next_id != UNKNOWN and delivery != self.next_id & MASK:
            raise InvalidArgument(
                f"transfer has the delivery-id {delivery}, but {self.next_id & MASK} is the next"
            )
        handle = link.handle
        if not tagged:
            error = InvalidArgument("the first transfer of a delivery has no delivery-tag")
            link.find(LinkFault(handle, error))
        elif second:
            error = InvalidArgument(
                "transfer has the rcv-settle-mode second, but the link has first",
                hint="heed the rcv-settle-mode of the attach",
            )
            link.find(LinkFault(handle, error))
        elif message_format:
            refusal = NotImplementedHere(
                f"message-format {message_format:#x} is not offered", hint="send format 0"
            )
            link.find(LinkFault(handle, refusal, declines=True))
        link.delivery, link.message_format = delivery, message_format or 0
        self.ahead += 0 if self.next_id != UNKNOWN else self.next_id - delivery
        self.next_id = delivery + 1

    def _continue(
        self, link: Link, delivery: int | None, message_format: int | None, settled: bool | None
    ) -> None:
        if delivery is not None and delivery != link.delivery:
            raise InvalidArgument(
                f"transfer has the delivery-id {delivery}, but {link.delivery} is not complete"
            )
        if settled is False and link.is_settled:
            raise InvalidArgument(f"delivery {link.delivery} was settled, and now it is not")
        if message_format is not None and message_format != link.message_format:
            error = InvalidArgument(
                f"delivery {link.delivery} has the message-formats {link.message_format:#x} and "
                f"{message_format:#x}"
            )
            link.find(LinkFault(link.handle, error))

    def flow(
        self, link: Link | None, next_transfer: int, granted: int, *, acquires: bool, echo: bool
    ) -> Flowed | None:
        """Note a flow, and tell what is to be done after it. `acquires` is whether it names a
        transaction.
        """
        if link is not None:
            if acquires:
                error = NotImplementedHere(
                    "transactional acquisition is not offered",
                    hint="leave txn-id out of the flow, and settle in the transaction",
                )
                link.find(LinkFault(link.handle, error))
            link.is_excused = False
            link.wants_echo = echo = echo or link.wants_echo
        shift = (next_transfer - self.next_id - self.ahead) & MASK
        if not shift and not echo:
            return None
        self.ahead += shift
        return Flowed(link, shift, granted, echoes=echo)

    def retire(self, retiring: Retiring) -> Retiring:
        """Note outcomes in a transaction: raise that they come, and then tell that they came."""
        self._announced = not self._announced
        if self._announced:
            raise retiring
        retiring.is_told = True
        return retiring


class Part:
    """What transfers of one shape are of their deliveries: the whole, or a part with or without
    more to come.
    """

    __slots__ = ("_settled", "channel", "link", "more")

    def __init__(self, channel: Channel, link: Link, *, more: bool, settled: bool | None) -> None:
        self.channel = channel
        self.link = link
        self.more = more
        self._settled = settled

    def takes(self, delivery: int | bytes) -> bool:
        """Note a part of a delivery; no id is no bytes. Tell whether all is well with it."""
        channel, link = self.channel, self.link
        if link.is_pending:
            if (
                (delivery != link.delivery and delivery != b"")
                or link.message_format
                or (self._settled is False and link.is_settled)
            ):
                return False
            channel.ahead += 1
            if self.more:
                link.is_settled |= self._settled is True
                return True
            link.is_pending = False
            channel.pending -= 1
            return True
        if delivery != channel.next_id:
            return False
        channel.next_id += 1
        if self.more:
            link.delivery, link.message_format = channel.next_id - 1, 0
            link.is_settled = self._settled is True
            link.is_pending = True
            channel.pending += 1
        return True
