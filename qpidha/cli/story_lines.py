"""Story lines: a manager's event as two columns for people, or None when it is not worth a line."""

from __future__ import annotations

from typing import Any


def is_stale(entry: dict[str, Any], newest_epoch: int) -> bool:
    """Tell whether a broker reports to be primary though another was active in a newer epoch: it slept through that."""
    return entry["state"] in ("active", "recovering") and int(entry.get("epoch", newest_epoch)) < newest_epoch


def in_words(entry: dict[str, Any], *, newest_epoch: int = 0) -> tuple[str, str] | None:
    """Say what happened: a word and a text; `newest_epoch` is the newest in which a broker was active."""
    broker = entry.get("broker", "")
    event = entry["event"]
    if event == "exited":
        code = entry.get("code")
        how = f"signal {-code}" if isinstance(code, int) and code < 0 else f"exit code {code}"
        return "detect", f"{broker} is gone ({how}); it was {entry['was']}"
    if event == "hung":
        return "detect", f"{broker} does not answer; it was {entry['was']}"
    if event == "fenced":
        return "fence", f"{broker} killed, and dead"
    if event == "promote":
        return "promote", f"{broker} ({entry['state']}, epoch {entry['epoch']}, sequence {entry['sequence']:,})"
    if event == "refused" and entry.get("what") == "promote":
        return "refused", f"{broker}: {entry['reason']}"
    if event == "waiting":
        return "waiting", str(entry["reason"])
    if event == "started":
        return "restart", f"{broker} (pid {entry['pid']})"
    if event == "state" and is_stale(entry, newest_epoch):
        return "stale", f"{broker} (epoch {entry['epoch']}): wakes up and will step down"
    if event == "state" and entry["state"] in ("recovering", "active", "catchup", "ready", "joining"):
        return entry["state"], f"{broker} (epoch {entry['epoch']})"
    return None
