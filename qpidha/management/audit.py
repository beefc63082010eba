"""Audit: lines of the log about who was refused, and who has changed what, with user and address.

Strangers cause those of the first kind, so that there are no more than so many in a second; how
many more there were is told later. Names that strangers give are cut. Of what was done each has its
line. Knows nothing of how anybody logs in, nor of the rules of access control.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from qpidha.model.duration import SECOND
from qpidha.model.errors import QpidHaError
from qpidha.model.principal import Action, ObjectType, Principal

LINES = 20
"""Lines in one second."""
LONGEST = 64
"""Characters of a name that a stranger gives."""
DEEDS = {
    Action.CREATE: "created",
    Action.DELETE: "deleted",
    Action.PURGE: "purged",
    Action.BIND: "bound",
    Action.UNBIND: "unbound",
}
"""What is done -> the word for it when it was done."""
DETAILS = {"queuename": "queue", "routingkey": "key"}
"""What access control is told of a binding -> how it is written."""


class Audit:
    """Tells who was refused, and who did what; `say` writes a line of a level, with fields."""

    __slots__ = ("_begin", "_lines", "_say", "_unsaid")

    def __init__(self, say: Callable[[str, str, dict[str, object]], None]) -> None:
        self._say = say
        self._begin = self._lines = self._unsaid = 0

    def login_refused(
        self, now: int, principal: Principal, user: str, mechanism: str, reason: str
    ) -> None:
        """Tell that somebody at the address of `principal` did not get in as `user`."""
        name = user[:LONGEST]
        who = f"'{name}' at {principal.address}" if name else principal.address
        self._tell(
            now,
            "notice",
            f"refused the login of {who} by {mechanism[:LONGEST] or 'no mechanism'}: {reason}",
            {"user": name, "address": principal.address, "mechanism": mechanism[:LONGEST]},
        )

    def not_opened(self, now: int, principal: Principal, reason: str) -> None:
        """Tell of a connection that ended before anybody said who he is."""
        text = f"no connection with {principal.address}: {reason}"
        self._tell(now, "info", text, {"address": principal.address})

    def denied(
        self,
        now: int,
        principal: Principal,
        error: QpidHaError,
        level: str,
        *,
        source: str = "",
        is_each: bool = False,
    ) -> None:
        """Tell that somebody who is in may not do something, and where that is said; with `is_each`
        there is a line whatever their number.
        """
        name = str(principal)
        text = f"denied {name} at {principal.address}: {error.text}"
        fields: dict[str, object] = {"user": name, "address": principal.address}
        if source:
            text, fields = f"{text} ({source})", {**fields, "rule": source}
        if is_each:
            self._say(level, text, fields)
        else:
            self._tell(now, level, text, fields)

    def allowed(self, principal: Principal, text: str, source: str) -> None:
        """Tell that somebody does something, where a rule asks for that."""
        name = str(principal)
        fields: dict[str, object] = {"user": name, "address": principal.address, "rule": source}
        self._say("info", f"allowed {name} at {principal.address}: {text} ({source})", fields)

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
        )

    def tick(self, now: int) -> None:
        """Tell of those there was no line for."""
        if self._unsaid and now - self._begin >= SECOND:
            self._begin, self._lines = now, 0
            unsaid, self._unsaid = self._unsaid, 0
            text = f"connections, logins and requests that were refused and have no line: {unsaid}"
            self._say("notice", text, {"refused": unsaid})

    def _tell(self, now: int, level: str, text: str, fields: dict[str, object]) -> None:
        self.tick(now)
        if now - self._begin >= SECOND:
            self._begin, self._lines = now, 0
        if self._lines >= LINES:
            self._unsaid += 1
            return
        self._lines += 1
        self._say(level, text, fields)
