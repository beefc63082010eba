"""Audit: lines of the log about who was refused, and who has changed what, with user and address.

Strangers cause those of the first kind, so that there are no more than so many in a second of each
sort, and of each address one at least: nobody hides what another one does. How many more there were
is told later. Names that strangers give are cut. Of what was done each has its line. Knows nothing
of how anybody logs in, nor of the rules of access control.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from qpidha.model.duration import SECOND
from qpidha.model.errors import QpidHaError
from qpidha.model.event_codes import LOGIN_REFUSED
from qpidha.model.ip import neighbourhood
from qpidha.model.principal import Action, ObjectType, Principal

LINES = 20
"""Lines of one sort in one second."""
ADDRESSES = 100
"""That have one line of a sort in a second whatever the others have; of IPv6 a network of 64 bits
is one.
"""
CONNECTIONS, LOGINS, REQUESTS, ROLES = "connections", "logins", "requests", "claims to a role"
"""The sorts of what is refused."""
LONGEST = 64
"""Characters of a name that a stranger gives."""
DEEDS = {
    Action.CREATE: "created",
    Action.DELETE: "deleted",
    Action.PURGE: "purged",
    Action.CONSUME: "moved messages from",
    Action.BIND: "bound",
    Action.UNBIND: "unbound",
}
"""What is done -> the word for it when it was done."""
DETAILS = {
    "queuename": "queue",
    "destinationexchange": "destination",
    "routingkey": "key",
    "target": "target",
}
"""What access control is told of a binding, or of where messages go -> how it is written."""


Say = Callable[[str, str, dict[str, object], str], None]
"""Writes a line: its level, text, fields and event code."""


class Audit:
    """Tells who was refused, and who did what."""

    __slots__ = ("_begin", "_heard", "_lines", "_say", "_unsaid")

    def __init__(self, say: Say) -> None:
        self._say = say
        self._begin = 0
        self._lines: Counter[str] = Counter()
        """Sort -> its lines in this second."""
        self._unsaid: Counter[str] = Counter()
        self._heard: dict[str, set[str]] = {}
        """Sort -> the neighbourhoods that have had a line of it in this second."""

    def login_refused(
        self, now: int, principal: Principal, user: str, mechanism: str, reason: str
    ) -> None:
        """Tell that somebody at the address of `principal` did not get in as `user`."""
        name = user[:LONGEST]
        who = f"'{name}' at {principal.address}" if name else principal.address
        self._tell(
            now,
            LOGINS,
            principal,
            "notice",
            f"refused the login of {who} by {mechanism[:LONGEST] or 'no mechanism'}: {reason}",
            {"user": name, "address": principal.address, "mechanism": mechanism[:LONGEST]},
            LOGIN_REFUSED,
        )

    def not_opened(self, now: int, principal: Principal, reason: str) -> None:
        """Tell of a connection that ended before anybody said who he is."""
        text = f"no connection with {principal.address}: {reason}"
        self._tell(now, CONNECTIONS, principal, "info", text, {"address": principal.address})

    def denied(
        self,
        now: int,
        principal: Principal,
        error: QpidHaError,
        *,
        is_role: bool = False,
        source: str = "",
        is_each: bool = False,
    ) -> None:
        """Tell that somebody who is in may not do something, and where that is said; with `is_each`
        there is a line whatever their number. Tools claim a role as a matter of course, and do
        without where they may not have it: that is less than a notice.
        """
        level, sort = ("info", ROLES) if is_role else ("notice", REQUESTS)
        name = str(principal)
        text = f"denied {name} at {principal.address}: {error.text}"
        fields: dict[str, object] = {"user": name, "address": principal.address}
        if source:
            text, fields = f"{text} ({source})", {**fields, "rule": source}
        if is_each:
            self._say(level, text, fields, error.event_code)
        else:
            self._tell(now, sort, principal, level, text, fields, error.event_code)

    def allowed(self, principal: Principal, text: str, source: str) -> None:
        """Tell that somebody does something, where a rule asks for that."""
        name = str(principal)
        fields: dict[str, object] = {"user": name, "address": principal.address, "rule": source}
        self._say("info", f"allowed {name} at {principal.address}: {text} ({source})", fields, "")

    def done(
        self,
        principal: Principal,
        action: Action,
        object_type: ObjectType,
        name: str,
        properties: Mapping[str, object],
    ) -> None:
        """Tell that somebody has changed something."""
        user = str(principal)
        given = {word: properties[key] for key, word in DETAILS.items() if key in properties}
        details = "".join(f", {word} '{value}'" for word, value in given.items())
        self._say(
            "info",
            f"{user} at {principal.address} {DEEDS[action]} {object_type} '{name}'{details}",
            {"user": user, "address": principal.address, object_type.value: name, **given},
            "",
        )

    def asked(self, principal: Principal, method: str, values: Mapping[str, object]) -> None:
        """Tell that somebody has the broker do something, before it is done: what came of it the
        log says in other lines, or not at all if that is its end.
        """
        user = str(principal)
        given = {key: value for key, value in values.items() if value}
        details = "".join(
            f", {key}" if value is True else f", {key} '{value}'" for key, value in given.items()
        )
        self._say(
            "notice",
            f"{user} at {principal.address} asks for {method}{details}",
            {"user": user, "address": principal.address, "method": method, **given},
            "",
        )

    def tick(self, now: int) -> None:
        """Tell of those there was no line for, when the second is over."""
        if now - self._begin < SECOND:
            return
        for sort, number in self._unsaid.items():
            text = f"{sort} that were refused and have no line: {number}"
            self._say("notice", text, {"refused": number}, "")
        self._begin = now
        self._lines.clear()
        self._unsaid.clear()
        self._heard.clear()

    def _tell(
        self,
        now: int,
        sort: str,
        principal: Principal,
        level: str,
        text: str,
        fields: dict[str, object],
        event_code: str = "",
    ) -> None:
        self.tick(now)
        heard, place = self._heard.setdefault(sort, set()), neighbourhood(principal.address)
        is_first = place not in heard and len(heard) < ADDRESSES
        if not is_first and self._lines[sort] >= LINES:
            self._unsaid[sort] += 1
            return
        if is_first:
            heard.add(place)
        self._lines[sort] += 1
        self._say(level, text, fields, event_code)
