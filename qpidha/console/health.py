"""Health: what each health endpoint answers, from one look at a broker.

Three questions that are never mixed: whether the broker answers (`healthz`), whether it does what
its role asks for (`readyz`), and which role it has (`primary`, `active`, `backup`, `synced`). What
is not known is a no with the reason. Knows no HTTP. Source: docs/console.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from qpidha.console.looks import Look
from qpidha.model.broker_states import ACTIVE, PRIMARY_STATES, READY, STANDALONE


class Verdict(NamedTuple):
    """An answer, and a sentence that says why."""

    is_yes: bool
    text: str


def _unknown(look: Look) -> Verdict:
    return Verdict(False, f"not known: {look.reason}")


def healthz(look: Look) -> Verdict:
    """Whether the broker answers, or is only late: less than two heartbeats, at least 5 s."""
    if look.status is not None:
        return Verdict(True, f"{look.name} answers")
    late = f"{look.name} did not answer for {look.silent:.1f} s; it hangs from {look.bound:g} s on"
    if look.in_time or look.silent == float("inf"):
        return Verdict(False, look.reason)
    return Verdict(look.silent < look.bound, late)


def readyz(look: Look) -> Verdict:
    """Whether the broker does what its role asks for."""
    return _is_one_of(look, (ACTIVE, READY, STANDALONE))


def primary(look: Look) -> Verdict:
    """Whether it is the primary."""
    return _is_one_of(look, PRIMARY_STATES)


def active(look: Look) -> Verdict:
    """Whether it is the primary and has all backups that it waits for."""
    return _is_one_of(look, (ACTIVE,))


def backup(look: Look, lag: int | None = None, age: float | None = None) -> Verdict:
    """Whether it is a ready backup, at most `lag` records and `age` seconds behind."""
    verdict = _is_one_of(look, (READY,))
    if not verdict.is_yes:
        return verdict
    text = f"{verdict.text}, {look.behind} records behind, the oldest for {look.age:.1f} s"
    is_near = (lag is None or look.behind <= lag) and (age is None or look.age <= age)
    return Verdict(is_near, text)


def synced(look: Look) -> Verdict:
    """Whether it is the primary and every other broker of the cluster is a ready backup: then every
    acknowledged message is there twice at least.
    """
    verdict = primary(look)
    if look.status is None or not verdict.is_yes:
        return verdict
    others = [
        member
        for member in look.status["members"]
        if member["system_id"] != look.status["system_id"]
    ]
    if not others:
        return Verdict(False, f"{verdict.text}, and the cluster has no other broker")
    missing = [
        f"{member['name'] or member['address']} is {member['state']}"
        + ("" if member["in_sync"] else ", not in sync")
        for member in others
        if not is_synced(member)
    ]
    if missing:
        return Verdict(False, f"{verdict.text}; {'; '.join(missing)}")
    return Verdict(True, f"{verdict.text}, and all {len(others)} backups are ready")


def is_synced(member: dict[str, Any]) -> bool:
    """Whether another broker, as the primary reports it, has all that is acknowledged."""
    return bool(member["connected"] and member["in_sync"] and member["state"] == READY)


def _is_one_of(look: Look, states: tuple[str, ...]) -> Verdict:
    if look.status is None:
        return _unknown(look)
    return Verdict(look.state in states, f"{look.name} is {look.state}")


def alarms(explained: dict[str, Any]) -> list[tuple[bool, str]]:
    """Return what `/readyz?verbose` shows beside the state: what is good or not, and its name with
    the reason. None of it makes a broker unready: a restart would not help.
    """
    lines = []
    for name, what in (("publishing", "refuses"), ("credit", "withholds")):
        reason = explained.get(what, "")
        lines.append((not reason, f"{name} {reason or 'ok'}"))
    waits = [entry["text"] for entry in explained.get("waits", ())]
    return [*lines, *((False, f"waits {text}") for text in waits)]


CHECKS: dict[str, Callable[[Look], Verdict]] = {
    "healthz": healthz,
    "livez": healthz,
    "readyz": readyz,
    "primary": primary,
    "active": active,
    "synced": synced,
}
"""The endpoints without parameters of their own."""
