"""Asking: one question of one broker, or of all brokers of its cluster, with failures that carry
exit codes. What carries a question is an admin socket, or AMQP.
"""

from __future__ import annotations

import threading
from importlib import import_module
from typing import Any, Protocol

from qpidha.client.admin import AdminSocket
from qpidha.client.command.arguments import Options
from qpidha.client.command.exits import Failure, failures
from qpidha.client.command.target import Target, addresses, beside, brokers_url, resolve


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


def connect(target: Target, options: Options) -> BrokerLink:
    """Open a conversation with a broker."""
    if target.socket:
        return open_socket(target.socket, options.patience())
    # Loaded only here, because most calls go to a socket and have to be quick.
    with failures():
        return BrokerLink(
            import_module("qpidha.client.command.clients").management(target, options)
        )


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
    link = connect(target or resolve(options), options)
    try:
        return link.call(method, params)
    finally:
        link.close()


def ask_all(options: Options, method: str) -> list[tuple[str, Any]]:
    """Ask all brokers of the contacted one's brokers URL; a broker that fails has a Failure for an
    answer.

    If that one does not answer, the others are found in --config or the local cluster.
    """
    first = resolve(options)
    own, mine = "", None
    try:
        link: BrokerLink = connect(first, options)
        try:
            known = link.call("status")
            own = str(known.get("address", ""))
            mine = link.call(method)
        finally:
            link.close()
        listed = addresses(known.get("brokers_url", "")) or [own]
    except Failure as failure:
        listed = addresses(brokers_url(options))
        if not listed:
            raise
        own, mine = str(first), failure
    answers: dict[str, Any] = {address: mine for address in listed if address == own}

    def ask_one(address: str) -> None:
        try:
            answers[address] = ask(options, method, target=beside(address, first))
        except Failure as failure:
            answers[address] = failure

    # All at once: one that is frozen must not keep the others waiting.
    asking = [
        threading.Thread(target=ask_one, args=(address,), daemon=True)
        for address in listed
        if address != own
    ]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join()
    return [(address, answers[address]) for address in listed]
