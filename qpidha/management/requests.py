"""Requests: everything that can be asked of a broker, by method name and parameters.

The admin socket and both AMQP services come through `Requests.call`. Reads are answered at once and
work on every broker. Changes are made only where clients are served, and are answered when their
record is safe, so that a change that was confirmed survives a failover.
Knows nothing of JSON or AMQP encodings.
Source: Qpid qpid/broker/Broker.cpp (ManagementMethod) and qpid/ha/HaBroker.cpp.
"""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from qpidha.management.explanation import explained
from qpidha.management.parameters import Parameters
from qpidha.management.schema import BINDING, CONNECTION, EXCHANGE, QUEUE, BindingView, binding_of, bindings_of, describe
from qpidha.management.target import Reply
from qpidha.words.errors import ConnectionForced, InvalidArgument, NotAllowed, NotFound, NotImplementedHere, QpidHaError, RefusedRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from qpidha.broker.broker import Broker
    from qpidha.broker.queue import Queue
    from qpidha.management.schema import ObjectClass
    from qpidha.management.target import Answer, Target

Read = Callable[[Parameters], object]
Change = Callable[[Parameters, object], tuple[int, object]]
Action = Callable[[Parameters, "Answer"], None]

PRIMARY_STATES = ("recovering", "active")
OF_THE_MANAGER = ("recording", "recorded")
"""What only the cluster manager beside the broker does: on its word about its store nothing less than everything depends."""
RESERVED = ("amq.", "qpid.", "qpidha.", "$")
"""Beginnings of names that belong to the broker."""


class Requests:
    """Answers requests about one broker."""

    __slots__ = ("_actions", "_changes", "_last", "_reads", "_target", "_waiting")

    def __init__(self, target: Target) -> None:
        self._target = target
        self._waiting: dict[int, tuple[Answer, object]] = {}
        self._last = 0
        self._reads: dict[str, Read] = {
            "ping": self._ping,
            "status": self._status,
            "query": self._query,
            "members": self._members,
            "explain": self._explain,
            "list_queues": self._list_queues,
            "list_exchanges": self._list_exchanges,
            "list_bindings": self._list_bindings,
            "list_connections": self._list_connections,
        }
        self._changes: dict[str, Change] = {
            "declare_queue": self._declare_queue,
            "delete_queue": self._delete_queue,
            "purge_queue": self._purge_queue,
            "declare_exchange": self._declare_exchange,
            "delete_exchange": self._delete_exchange,
            "bind": self._bind,
            "unbind": self._unbind,
        }
        self._actions: dict[str, Action] = {
            "promote": self._promote,
            "demote": self._demote,
            "recover": self._recover,
            "switchover": self._switchover,
            "shutdown": self._shutdown,
            "recording": self._recording,
            "recorded": self._recorded,
        }

    def call(self, method: str, params: Mapping[Any, Any] | None, reply: Answer, *, owner: object = None) -> None:
        """Do `method` and call `reply` exactly once, now or when the change is safe; `owner` gets exclusive queues."""
        try:
            parameters = Parameters(method, params)
            if method in self._reads:
                reply(Reply(self._reads[method](parameters)))
            elif method in self._changes:
                self._change(self._changes[method], parameters, reply, owner)
            elif method in self._actions:
                if owner is not None and method in OF_THE_MANAGER:
                    raise NotAllowed(f"{method} is for the cluster manager", hint="it speaks to the broker over the admin socket")
                self._actions[method](parameters, reply)
            else:
                raise self._unknown(method)
        except QpidHaError as error:
            if error.scope == "broker":
                raise
            reply(Reply(error=error))

    @property
    def methods(self) -> list[str]:
        """Name every method there is."""
        return [*self._reads, *self._changes, *self._actions]

    def released(self, item: object) -> None:
        """Answer a change that became safe; called by the holder."""
        assert isinstance(item, int)
        waiting = self._waiting.pop(item, None)
        if waiting is not None:
            reply, result = waiting
            reply(Reply(result))

    def abandon(self) -> None:
        """Answer every waiting change with an error: this broker stopped being primary before it was safe."""
        waiting = list(self._waiting.values())
        self._waiting.clear()
        for reply, _ in waiting:
            text = "this broker stopped being primary before the change was safe, so it may or may not have happened"
            reply(Reply(error=ConnectionForced(text, hint=f"look at the primary and repeat the request there{self._primary()}")))

    # Reads.

    def _ping(self, parameters: Parameters) -> object:
        parameters.finish()
        return {"state": self._target.status().get("state", "")}

    def _status(self, parameters: Parameters) -> object:
        parameters.finish()
        return self._target.status()

    def _query(self, parameters: Parameters) -> object:
        parameters.finish()
        return self._target.query()

    def _members(self, parameters: Parameters) -> object:
        parameters.finish()
        return self._target.status().get("members", [])

    def _explain(self, parameters: Parameters) -> object:
        parameters.finish()
        return explained(self._target)

    def _list_queues(self, parameters: Parameters) -> object:
        return self._list(QUEUE, parameters)

    def _list_exchanges(self, parameters: Parameters) -> object:
        return self._list(EXCHANGE, parameters)

    def _list_connections(self, parameters: Parameters) -> object:
        return self._list(CONNECTION, parameters)

    def _list(self, kind: ObjectClass, parameters: Parameters) -> list[dict[str, Any]]:
        name, match = parameters.text("name"), parameters.text("match")
        parameters.finish()
        entries = kind.find(self._target)
        return [describe(kind, entry, self._target) for entry in entries if match in kind.name(entry) and name in ("", kind.name(entry))]

    def _list_bindings(self, parameters: Parameters) -> object:
        exchange, queue, key = parameters.text("exchange"), parameters.text("queue"), parameters.text("key")
        parameters.finish()
        rows = []
        for binding in bindings_of(self._target.broker):
            if exchange in ("", binding.exchange) and queue in ("", binding.queue) and key in ("", binding.key):
                rows.append(describe(BINDING, binding, self._target))
        return rows

    # Changes: each returns the sequence to wait for and what to answer then.

    def _declare_queue(self, parameters: Parameters, owner: object) -> tuple[int, object]:
        name = parameters.name("name")
        durable, exclusive = parameters.flag("durable"), parameters.flag("exclusive")
        auto_delete, alternate = parameters.flag("auto_delete"), parameters.text("alternate")
        arguments = parameters.table("arguments")
        parameters.finish()
        created = name not in self._broker.queues
        self._check_reserved("queue", name, created)
        queue, sequence = self._broker.declare_queue(
            name, durable=durable, exclusive=exclusive, auto_delete=auto_delete, alternate=alternate, arguments=arguments, owner=owner
        )
        return sequence or self._declared(queue.uid), {"created": created, **describe(QUEUE, queue, self._target)}

    def _delete_queue(self, parameters: Parameters, owner: object) -> tuple[int, object]:
        name = parameters.name("name")
        if_unused, if_empty = parameters.flag("if_unused"), parameters.flag("if_empty")
        parameters.finish()
        messages = len(self._queue(name, owner).messages)
        return self._broker.delete_queue(name, if_unused=if_unused, if_empty=if_empty), {"messages": messages}

    def _purge_queue(self, parameters: Parameters, owner: object) -> tuple[int, object]:
        name = parameters.name("name")
        parameters.finish()
        queue = self._queue(name, owner)
        before = len(queue.messages)
        sequence = self._broker.purge(name)
        return sequence, {"messages": before - len(queue.messages)}

    def _declare_exchange(self, parameters: Parameters, owner: object) -> tuple[int, object]:
        name, kind = parameters.name("name"), parameters.text("type", "direct")
        durable, auto_delete = parameters.flag("durable"), parameters.flag("auto_delete")
        alternate, arguments = parameters.text("alternate"), parameters.table("arguments")
        parameters.finish()
        created = name not in self._broker.exchanges
        self._check_reserved("exchange", name, created)
        exchange, sequence = self._broker.declare_exchange(
            name, kind, durable=durable, auto_delete=auto_delete, alternate=alternate, arguments=arguments
        )
        return sequence or self._declared(exchange.uid), {"created": created, **describe(EXCHANGE, exchange, self._target)}

    def _delete_exchange(self, parameters: Parameters, owner: object) -> tuple[int, object]:
        name, if_unused = parameters.name("name"), parameters.flag("if_unused")
        parameters.finish()
        return self._broker.delete_exchange(name, if_unused=if_unused), {}

    def _bind(self, parameters: Parameters, owner: object) -> tuple[int, object]:
        exchange, queue, key = parameters.name("exchange"), parameters.name("queue"), parameters.text("key")
        arguments = parameters.table("arguments")
        parameters.finish()
        self._queue(queue, owner)
        sequence = self._broker.bind(exchange, queue, key, arguments)
        return sequence, describe(BINDING, BindingView(exchange, queue, key, arguments), self._target)

    def _unbind(self, parameters: Parameters, owner: object) -> tuple[int, object]:
        exchange, queue, key = parameters.name("exchange"), parameters.name("queue"), parameters.text("key")
        parameters.finish()
        if binding_of(self._broker, exchange, queue, key) is None:
            raise NotFound(
                f"unbind: no binding from exchange {exchange} to queue {queue} with key {key!r}", hint="list_bindings shows what there is"
            )
        return self._broker.unbind(exchange, queue, key), {}

    # Actions of the broker itself.

    def _promote(self, parameters: Parameters, reply: Answer) -> None:
        accept_loss = parameters.flag("accept_loss")
        parameters.finish()
        self._target.promote(reply, accept_loss)

    def _demote(self, parameters: Parameters, reply: Answer) -> None:
        parameters.finish()
        self._target.demote(reply)

    def _recover(self, parameters: Parameters, reply: Answer) -> None:
        parameters.finish()
        self._target.compare(reply)

    def _switchover(self, parameters: Parameters, reply: Answer) -> None:
        target = parameters.text("target")
        parameters.finish()
        self._target.switchover(target, reply)

    def _recording(self, parameters: Parameters, reply: Answer) -> None:
        parameters.finish()
        self._target.record(None, "", reply)

    def _recorded(self, parameters: Parameters, reply: Answer) -> None:
        kept, trouble = parameters.table("kept"), parameters.text("trouble")
        parameters.finish()
        if bool(kept) == bool(trouble):
            raise InvalidArgument("recorded: give what the store keeps, or why that is not known", hint='"kept": {...} or "trouble": "..."')
        self._target.record(kept or None, trouble, reply)

    def _shutdown(self, parameters: Parameters, reply: Answer) -> None:
        parameters.finish()
        reply(Reply({}))
        self._target.shutdown()

    @property
    def _broker(self) -> Broker:
        return self._target.broker

    def _change(self, change: Change, parameters: Parameters, reply: Answer, owner: object) -> None:
        if not self._target.serving:
            state = self._target.status().get("state", "not primary")
            if state in PRIMARY_STATES:
                raise NotAllowed("this broker is handing over to another one, and changes nothing meanwhile", hint="try again in a moment")
            text = f"this broker is {state} and changes nothing itself"
            raise NotAllowed(text, hint=f"send the request to the primary{self._primary()}")
        sequence, result = change(parameters, owner)
        if sequence <= 0:
            reply(Reply(result))
            return
        self._last += 1
        self._waiting[self._last] = (reply, result)
        self._target.hold(sequence, self, self._last)

    def _queue(self, name: str, owner: object) -> Queue:
        """Find a queue that may be changed; the admin socket, which has no owner, may change every one."""
        queue = self._broker.queue(name)
        if owner is not None:
            queue.check_access(owner)
        return queue

    def _check_reserved(self, kind: str, name: str, created: bool) -> None:
        if created and name.startswith(RESERVED):
            raise RefusedRequest(f"the {kind} name {name} begins with a reserved prefix", hint=f"reserved are {', '.join(RESERVED)}")

    def _declared(self, uid: int) -> int:
        """Return what to wait for when something exists already: its own record may not be safe yet."""
        return uid if uid > 0 and self._broker.recorder is not None else 0

    def _primary(self) -> str:
        primary = self._target.status().get("primary")
        if not primary or not primary.get("address"):
            return "; which broker that is, is not known here at present"
        return f" at {primary['address']}"

    def _unknown(self, method: str) -> QpidHaError:
        near = get_close_matches(method, self.methods, 1)
        hint = f"did you mean {near[0]}?" if near else f"methods: {', '.join(self.methods)}"
        return NotImplementedHere(f"there is no method {method[:100]!r}", hint=hint)
