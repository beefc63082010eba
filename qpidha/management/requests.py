"""Requests: the one way into the table of methods, for every window.

`Requests.call` finds the method, checks its parameters, asks access control, and answers exactly
once. Reads are answered at once and work on every broker. Changes are made only where clients are
served, and are answered when their record is committed, so that a confirmed change survives a
failover. Knows nothing of JSON or AMQP encodings.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from qpidha.management.methods import Call, Effect, find
from qpidha.management.parameters import read
from qpidha.management.port import Reply
from qpidha.model.broker_states import PRIMARY_STATES
from qpidha.model.errors import ConnectionForced, InvariantBroken, NotServing, QpidHaError
from qpidha.model.principal import Action, ObjectType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from qpidha.management.methods import Later, Method
    from qpidha.management.port import Answer, ManagedNode
    from qpidha.model.principal import Principal


class Requests:
    """Answers requests about one broker."""

    __slots__ = ("_last", "_node", "_waiting")

    def __init__(self, node: ManagedNode) -> None:
        self._node = node
        self._waiting: dict[int, tuple[Answer, object]] = {}
        """Number of a change that is under way, or whose record is not committed yet -> where its
        answer goes, and the answer.
        """
        self._last = 0

    def call(
        self,
        method: str,
        params: Mapping[Any, Any] | None,
        reply: Answer,
        *,
        principal: Principal,
        owner: object = None,
    ) -> None:
        """Do `method` for `principal` and call `reply` exactly once, now or when the change is
        committed; `owner`, the connection that asks, gets exclusive queues.
        """
        try:
            row, values = self.check(method, params, principal)
            deed = (principal, row.action, row.object_type, row.object_name(values))
            tell = partial(self._node.access.done, *deed, row.properties(values))
            if row.action is Action.UPDATE and row.object_type is ObjectType.BROKER:
                self._node.access.asked(principal, row.name, values)
            also = partial(self._node.access.check, principal)
            row.handler(Call(self._node, values, owner, reply, self._later, tell, also))
        except InvariantBroken:
            raise
        except QpidHaError as error:
            reply(Reply(error=error))

    def check(
        self, method: str, params: Mapping[Any, Any] | None, principal: Principal
    ) -> tuple[Method, dict[str, Any]]:
        """Return the method and its values if `principal` may do this here. Access control is asked
        about the method itself, as in Qpid, and about what it does; before anything is said of
        what there is.
        """
        row = find(method)
        if row.effect is Effect.CHANGE and not self._node.serving:
            raise self._not_serving()
        values = read(method, row.parameters, params)
        access = self._node.access
        package, schemaclass = row.schema
        if package:
            told = {"schemapackage": package, "schemaclass": schemaclass}
            name = row.qpid_name or row.name
            access.check(principal, Action.ACCESS, ObjectType.METHOD, name, told)
        access.check(
            principal, row.action, row.object_type, row.object_name(values), row.properties(values)
        )
        return row, values

    def _later(self, reply: Answer) -> Later:
        """Note a change that is not answered yet; when it is done, its answer waits until its last
        record is committed.
        """
        self._last += 1
        number = self._last
        self._waiting[number] = (reply, None)

        def done(sequence: int, result: object) -> None:
            if number not in self._waiting:
                return
            self._waiting[number] = (reply, result)
            if sequence > 0:
                self._node.when_committed(sequence, self, number)
            else:
                self.on_committed(number)

        return done

    def on_committed(self, item: object) -> None:
        """Answer a change whose record was committed."""
        assert isinstance(item, int)
        waiting = self._waiting.pop(item, None)
        if waiting is not None:
            reply, result = waiting
            reply(Reply(result))

    def abandon(self) -> None:
        """Answer every waiting change with an error: this broker stopped being primary before it
        was committed.
        """
        waiting = list(self._waiting.values())
        self._waiting.clear()
        for reply, _ in waiting:
            error = ConnectionForced(
                "the change may or may not have happened",
                reason="this broker stopped being primary before the change was committed",
                hint=f"look at the primary and repeat the request there{self._primary()}",
            )
            reply(Reply(error=error))

    def _not_serving(self) -> NotServing:
        state = self._node.status().get("state", "not primary")
        if state in PRIMARY_STATES:
            return NotServing(
                "this broker changes nothing now",
                reason="it is handing over to another broker",
                hint="try again in a moment",
            )
        return NotServing(
            "this broker changes nothing itself",
            reason=f"it is {state}",
            hint=f"send the request to the primary{self._primary()}",
        )

    def _primary(self) -> str:
        primary = self._node.status().get("primary")
        if not primary or not primary.get("address"):
            return "; which broker that is, is not known here at present"
        return f" at {primary['address']}"
