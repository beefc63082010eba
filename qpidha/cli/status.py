"""`ping` and `status`: the calls that monitors make all day, so nothing heavy is imported for them.

The text of `status` is historic: one line with the state. `--expect` and `--is-primary` say nothing and answer by exit code.
"""

from __future__ import annotations

import json
import threading
from typing import Any

from qpidha.cli.arguments import Options
from qpidha.cli.exits import NO, OK, USAGE, Failure
from qpidha.cli.target import PRIMARY_STATES, BrokerLink, Target, beside, brokers_url, connect, resolve

STATES = ("standalone", "joining", "catchup", "ready", "recovering", "active")


def ping(options: Options) -> int:
    """Succeed if the broker answers."""
    ask(options, "ping")
    return OK


def status(options: Options, *, every: bool, expect: str | None, is_primary: bool) -> int:
    """Print the state of a broker, or of all brokers; or answer a question about it."""
    if expect is not None and not is_primary and expect not in STATES:
        raise Failure(USAGE, f"{expect!r} is not a state", hint=f"one of {', '.join(STATES)}")
    if is_primary:
        return OK if ask(options, "status")["state"] in PRIMARY_STATES else NO
    if expect is not None:
        return OK if ask(options, "status")["state"] == expect else NO
    if every:
        return _status_all(options)
    found = ask(options, "status")
    print(json.dumps(found) if options.as_json else found["state"])
    return OK


def ask(options: Options, method: str, params: dict[str, Any] | None = None, *, target: Target | None = None) -> Any:
    """Ask one question of one broker."""
    link = connect(target or resolve(options), options)
    try:
        return link.call(method, params)
    finally:
        link.close()


def ask_all(options: Options, method: str) -> list[tuple[str, Any]]:
    """Ask all brokers of the contacted one's brokers URL; a broker that fails has a Failure for an answer.

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
    asking = [threading.Thread(target=ask_one, args=(address,), daemon=True) for address in listed if address != own]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join()
    return [(address, answers[address]) for address in listed]


def addresses(url: object) -> list[str]:
    """List the addresses of a brokers URL: host:port, or ssl:host:port."""
    if isinstance(url, (list, tuple)):
        return [str(entry) for entry in url]
    rest = str(url).removeprefix("amqp://").removeprefix("amqp:").rpartition("@")[2]
    return [part.removeprefix("tcp:") for part in rest.split(",") if part]


def _status_all(options: Options) -> int:
    answers = ask_all(options, "status")
    if options.as_json:
        rows = [
            {"address": address, "error": answer.text} if isinstance(answer, Failure) else {**answer, "address": address}
            for address, answer in answers
        ]
        print(json.dumps({"schema_version": 1, "brokers": rows}))
        return OK
    for address, answer in answers:
        print(address, answer.text if isinstance(answer, Failure) else answer["state"])
    return OK
