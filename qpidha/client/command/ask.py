"""Asking: one question of one broker, of the primary, or of all brokers of a cluster, with failures
that carry exit codes. What carries a question is an admin socket, or AMQP.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from importlib import import_module
from queue import SimpleQueue
from typing import Any, Protocol

from qpidha.client.admin import AdminSocket
from qpidha.client.command.arguments import Options
from qpidha.client.command.exits import Failure, failures
from qpidha.client.command.target import (
    PLAIN_ADDRESS,
    Target,
    addresses,
    beside,
    known_brokers,
    local_cluster,
    public_address,
    resolve,
)
from qpidha.model.broker_states import BACKUP_STATES, SERVING_STATES
from qpidha.model.exit_codes import OK, UNAVAILABLE

NOT_ALLOWED = "amqp:not-allowed"
"""Condition with which a backup refuses a change."""


class Carrier(Protocol):
    """What carries a conversation: an admin socket, or AMQP."""

    def call(self, method: str, params: dict[str, Any] | None = None) -> Any:
        """Ask and return the result."""
        ...

    def close(self) -> None:
        """Hang up."""
        ...


class BrokerLink:
    """A conversation with one broker or manager as commands have it: errors are Failures."""

    __slots__ = ("_carrier",)

    def __init__(self, carrier: Carrier) -> None:
        self._carrier = carrier

    def call(self, method: str, params: dict[str, Any] | None = None) -> Any:
        """Ask and return the result. Raises UnicodeEncodeError for a name that is no text."""
        for value in (params or {}).values():
            if isinstance(value, str):
                value.encode()
        with failures():
            return self._carrier.call(method, params)

    def close(self) -> None:
        """Hang up."""
        self._carrier.close()


def connect(target: Target, options: Options, *, follow: bool = False) -> BrokerLink:
    """Open a conversation with a broker; with `follow`, over AMQP, with the primary in place of a
    backup that it was to be with, or that refuses a change.
    """
    if target.socket:
        return open_socket(target.socket, options.patience())
    # Loaded only here, because most calls go to a socket and have to be quick.
    with failures():
        clients = import_module("qpidha.client.command.clients")
        return BrokerLink(clients.management(target, options, follow=follow))


def open_socket(path: str, timeout: float | None) -> BrokerLink:
    """Open a conversation over an admin socket; `timeout` is in seconds, None waits for ever."""
    with failures():
        return BrokerLink(AdminSocket(path, timeout))


def ask(
    options: Options,
    method: str,
    params: dict[str, Any] | None = None,
    *,
    target: Target | None = None,
) -> Any:
    """Ask one question of one broker."""
    link = connect(target or chosen(options), options)
    try:
        return link.call(method, params)
    finally:
        link.close()


def ask_primary(options: Options, method: str, params: dict[str, Any] | None = None) -> Any:
    """Ask for a change. A backup changes nothing: then the primary is asked."""
    target = chosen(options)
    link = connect(target, options, follow=True)
    try:
        return link.call(method, params)
    except Failure as failure:
        if not target.socket or failure.condition != NOT_ALLOWED:
            raise
        known = link.call("status")
        place = (known.get("primary") or {}).get("address", "")
        if known["state"] not in BACKUP_STATES or not place:
            raise
    finally:
        link.close()
    return ask(options, method, params, target=Brokers(options, target, known).target(place))


def chosen(options: Options) -> Target:
    """Return the broker to ask: of several that -b names the primary, else the first that
    answers.
    """
    targets = resolve(options)
    if len(targets) == 1:
        return targets[0]
    answers: dict[str, Any] = {}
    for target, answer in _answers(options, targets):
        if not isinstance(answer, Failure) and answer["state"] in SERVING_STATES:
            return target
        answers[str(target)] = answer
    return _heard(targets, answers)[0]


class Brokers:
    """The brokers of a cluster: what they are called, how each is reached, and how it is."""

    def __init__(self, options: Options, first: Target, known: dict[str, Any] | Failure) -> None:
        self.first = first
        """The one that was asked about the others."""
        self._options = options
        self._answers: dict[str, Any] = {}
        """What brokers have said already, or why they could not, by address."""
        self._named: dict[str, Target] = {}
        """Those that -b names."""
        self._public: list[str] = []
        if isinstance(known, Failure):
            self.addresses = known_brokers(options)
            if not self.addresses:
                raise known
            self._note(str(first), first, known)
        else:
            own = str(known.get("address", ""))
            self.addresses = addresses(known.get("brokers_url", "")) or [own]
            self._public = addresses(known.get("public_url", ""))
            self._note(own, first, known)

    @classmethod
    def find(cls, options: Options) -> Brokers:
        """Find the brokers of the contacted one's brokers URL; if none that is named answers, in
        --config or the local cluster.
        """
        targets = resolve(options)
        answers = {str(target): answer for target, answer in _answers(options, targets)}
        try:
            heard = _heard(targets, answers)
        except Failure as failure:
            return cls(options, targets[0], failure)
        serving = [one for one in heard if answers[str(one)]["state"] in SERVING_STATES]
        first = (serving or heard)[0]
        found = cls(options, first, answers[str(first)])
        for one in heard:
            found._note(str(answers[str(one)].get("address", "")), one, answers[str(one)])
        return found

    def _note(self, address: str, target: Target, answer: dict[str, Any] | Failure) -> None:
        listed = self._listed(address)
        self._named[listed] = target
        self._answers[listed] = answer

    def _listed(self, address: str) -> str:
        """Find a broker's own address in the brokers URL, where it may have `ssl:` before it."""
        return next((one for one in self.addresses if one.removeprefix("ssl:") == address), address)

    def target(self, address: str) -> Target:
        """Say how to reach a broker. Raises Failure."""
        address = self._listed(address)
        if address in self._named:
            return self._named[address]
        for broker in (local_cluster() or {}).get("brokers", []) if self.first.socket else []:
            if address.removeprefix("ssl:") == broker["address"] or address == public_address(
                broker
            ):
                return Target(socket=broker["admin_socket"])
        try:
            return beside(address, self.first)
        except Failure as failure:
            # Where each broker has a public address of its own, they stand in one order.
            if failure.condition != PLAIN_ADDRESS or len(self._public) != len(self.addresses):
                raise
            return beside(self._public[self.addresses.index(address)], self.first)

    def statuses(self) -> list[tuple[str, Any]]:
        """Ask all how they are; a broker that cannot be asked has a Failure for an answer."""
        return self._ask_each("status", {}, dict(self._answers))

    def ask_each(self, method: str, params: dict[str, Any]) -> list[tuple[str, Any]]:
        """Ask all something; a broker that cannot be asked has a Failure for an answer."""
        return self._ask_each(method, params, {})

    def _ask_each(
        self, method: str, params: dict[str, Any], answers: dict[str, Any]
    ) -> list[tuple[str, Any]]:
        targets = {}
        for address in self.addresses:
            if address not in answers:
                try:
                    targets[address] = self.target(address)
                except Failure as failure:
                    answers[address] = failure
        asked = _answers(self._options, [*targets.values()], method, params)
        said = {id(one): answer for one, answer in asked}
        answers |= {address: said[id(target)] for address, target in targets.items()}
        return [(address, answers[address]) for address in self.addresses]


def ask_all(options: Options) -> list[tuple[str, Any]]:
    """Ask all brokers of the cluster how they are; a broker that cannot be asked has a Failure for
    an answer.
    """
    return Brokers.find(options).statuses()


def code_of(answers: Sequence[tuple[str, Any]]) -> int:
    """The exit code for what brokers answered: 0 if one did, else why none could be asked."""
    failures = [answer for _, answer in answers if isinstance(answer, Failure)]
    return OK if len(failures) < len(answers) else _telling(failures).code


def _answers(
    options: Options,
    targets: Sequence[Target],
    method: str = "status",
    params: dict[str, Any] | None = None,
) -> Iterator[tuple[Target, Any]]:
    """Ask brokers, how they are unless something else is said; yield each with its answer, or the
    Failure, as they come. All are asked at once: one that is frozen must not keep the others
    waiting.
    """
    answers: SimpleQueue[tuple[Target, Any]] = SimpleQueue()

    def ask_one(target: Target) -> None:
        answer: Any = None
        try:
            answer = ask(options, method, params, target=target)
        except Failure as failure:
            answer = failure
        finally:
            answers.put((target, answer))

    if len(targets) == 1:
        ask_one(targets[0])
    else:
        for target in targets:
            threading.Thread(target=ask_one, args=(target,), daemon=True).start()
    for _ in targets:
        yield answers.get()


def _heard(targets: Sequence[Target], answers: dict[str, Any]) -> list[Target]:
    """Return those brokers that answered. Raises Failure if none did."""
    heard = [one for one in targets if not isinstance(answers[str(one)], Failure)]
    if heard:
        return heard
    failures = [answers[str(target)] for target in targets]
    if len(failures) == 1:
        raise failures[0]
    told = _telling(failures)
    raise Failure(
        told.code,
        f"none of {', '.join(str(target) for target in targets)} can be asked",
        reason="; ".join(dict.fromkeys(failure.explanation for failure in failures)),
        hint=told.hint,
        condition=told.condition,
    )


def _telling(failures: Sequence[Failure]) -> Failure:
    """Choose the failure that says most: whoever answers "you may not", or nothing in time, is
    there.
    """
    return next((one for one in failures if one.code != UNAVAILABLE), failures[0])
