"""The `/management` service: management as HTTP over a pair of links, as RabbitMQ 4 clients speak
it.

A client attaches one link in each direction at `/management`, both with the same name. A request
has the HTTP method in `subject`, the path in `to` and `$me` in `reply-to`; its answer leaves by the
paired link with the status code in `subject` and the request's message-id as correlation-id; the
body of an error is its text, and its condition, reason and hint are application-properties.
Requests may be pipelined; their answers come in the order of the requests, also when one waits for
its record. Knows HTTP's words only; what a path does is in `routes.py`. Source: RabbitMQ
deps/rabbit/src/rabbit_amqp_management.erl; AMQP link pairing 1.0; HTTP over AMQP (draft).
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

from qpidha.management.reply_link import REQUEST, ReplyLinks, open_envelope, seal
from qpidha.management.routes import Routes
from qpidha.management.status_codes import status_of
from qpidha.model.errors import InvalidArgument, LimitExceeded, RefusedRequest

if TYPE_CHECKING:
    from qpidha.management.port import ManagedNode
    from qpidha.management.reply_link import Envelope, ServiceLink
    from qpidha.management.requests import Requests
    from qpidha.model.errors import QpidHaError

ADDRESS = "/management"
ME = "$me"
MOST_WAITING = 1000
"""Requests of one link that may wait for their answers."""


class _Slot:
    """The place of one answer in the order of a link's answers."""

    __slots__ = ("payload",)

    def __init__(self) -> None:
        self.payload = b""


class _Requester:
    """One link that sends requests, and its answers in order."""

    __slots__ = ("link", "slots")

    def __init__(self, link: ServiceLink) -> None:
        self.link = link
        self.slots: deque[_Slot] = deque()


class LinkPairService:
    """The service at `/management`."""

    __slots__ = ("_node", "_replies", "_requesters", "_routes", "unanswered")

    def __init__(self, requests: Requests, node: ManagedNode) -> None:
        self._node = node
        self._routes = Routes(requests, node)
        self._replies = ReplyLinks()
        self._requesters: dict[ServiceLink, _Requester] = {}
        self.unanswered = 0
        """Answers that had nowhere to go."""

    def attached(self, link: ServiceLink) -> None:
        """Take a link of either direction; its other half may come before or after."""
        if link.sends:
            self._replies.add(link)
        else:
            self._requesters[link] = _Requester(link)

    def detached(self, link: ServiceLink) -> None:
        """Forget a link; answers to what it asked are dropped."""
        self._replies.remove(link)
        self._requesters.pop(link, None)

    def credited(self, link: ServiceLink) -> None:
        """Nothing to do: answers wait in the link itself."""

    def received(self, link: ServiceLink, payload: bytes) -> None:
        """Answer one request, at once, when its turn comes, or when its change is committed; a bad
        one by the pair as well. Raise RefusedRequest for one that cannot be answered.
        """
        requester = self._requesters.get(link)
        if requester is None:
            raise InvalidArgument(
                f"link {link.name} is not attached to {ADDRESS}", hint="attach it as a sender first"
            )
        request = open_envelope(payload)
        if self._replies.paired(link) is None:
            raise RefusedRequest(
                f"link {link.name} has no pair",
                hint=f"attach a receiver named {link.name} at {ADDRESS} as well",
            )
        if len(requester.slots) >= MOST_WAITING:
            raise LimitExceeded(
                f"{MOST_WAITING} requests of link {link.name} wait for answers",
                hint="wait for some of them first",
            )
        owed = len(payload) + REQUEST
        link.owe(owed)
        serve = partial(self._serve, requester, request, owed)
        self._node.lines.add(link, owed, serve, is_read=request.text("subject") == "GET")

    def _serve(self, requester: _Requester, request: Envelope, owed: int) -> None:
        link = requester.link
        slot = _Slot()
        requester.slots.append(slot)
        correlation = request.properties.get("message_id")

        def answer(status: int, body: Any, error: QpidHaError | None) -> None:
            properties = {"subject": str(status), "correlation_id": correlation}
            application = {"http:response": "1.1"}
            if error is not None:
                application |= {"condition": error.condition, **error.details}
            slot.payload = seal(properties, application, body)
            link.owe(len(slot.payload) - owed)
            self._flush(requester)

        fault = request.fault
        if fault is None and request.text("reply_to") != ME:
            fault = InvalidArgument(
                f"reply-to is not {ME}", hint=f"set reply-to to {ME}: answers come by the pair"
            )
        if fault is not None:
            answer(status_of(fault, link.connection.principal), fault.text, fault)
            return
        self._routes.serve(
            request.text("subject"),
            request.text("to"),
            request.body,
            connection=link.connection,
            answer=answer,
        )

    def _flush(self, requester: _Requester) -> None:
        """Send the answers that are ready, up to the first that is not."""
        slots = requester.slots
        while slots and slots[0].payload:
            payload = slots.popleft().payload
            requester.link.owe(-len(payload))
            reply_link = self._replies.paired(requester.link)
            if reply_link is None:
                self.unanswered += 1
                continue
            try:
                reply_link.send(payload)
            except RefusedRequest:
                # The peer asks without reading the answers; what it did not leave room for is lost
                # to it.
                self.unanswered += 1
