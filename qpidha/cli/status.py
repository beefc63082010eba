"""`ping` and `status`: the calls that monitors make all day, so nothing heavy is imported for them.

The text of `status` is historic: one line with the state. `--expect` and `--is-primary` say nothing
and answer by exit code.
"""

from __future__ import annotations

import json

from qpidha.client.command.arguments import Options
from qpidha.client.command.ask import ask, ask_all, code_of
from qpidha.client.command.exits import Failure
from qpidha.model.broker_states import EXPECTED, PRIMARY_STATES
from qpidha.model.exit_codes import NO, OK, USAGE


def ping(options: Options) -> int:
    """Succeed if the broker answers."""
    ask(options, "ping")
    return OK


def status(options: Options, *, every: bool, expect: str | None, is_primary: bool) -> int:
    """Print the state of a broker, or of all brokers; or answer a question about it."""
    if expect is not None and not is_primary and expect not in EXPECTED:
        raise Failure(
            USAGE, f"{expect!r} is no state and no role", hint=f"one of {', '.join(EXPECTED)}"
        )
    if is_primary:
        return OK if ask(options, "status")["state"] in PRIMARY_STATES else NO
    if expect is not None:
        return OK if ask(options, "status")["state"] in EXPECTED[expect] else NO
    if every:
        return _status_all(options)
    found = ask(options, "status")
    print(json.dumps(found) if options.as_json else found["state"])
    return OK


def _status_all(options: Options) -> int:
    answers = ask_all(options)
    if options.as_json:
        rows = [
            {"address": address, "error": answer.text}
            if isinstance(answer, Failure)
            else {**answer, "address": address}
            for address, answer in answers
        ]
        print(json.dumps({"schema_version": 1, "brokers": rows}))
        return code_of(answers)
    for address, answer in answers:
        print(address, answer.text if isinstance(answer, Failure) else answer["state"])
    return code_of(answers)
