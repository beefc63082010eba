"""Choices: how many brokers of a cluster may fail before it stops, and what that costs.

It follows from the number of brokers, ha-safety, ha-recorder and ha-min-in-sync alone. What really
becomes of a cluster is tried out, for two and three hosts, in docs/choices.md. Must not know how a
cluster decides.
"""

from __future__ import annotations

from qpidha.model.settings import Settings


def sustained(settings: Settings) -> int:
    """Return how many brokers may fail, one after the other, and the others still accept."""
    brokers = max(len(settings.ha_brokers_url), 1)
    needs_majority = settings.ha_safety == "strict" and settings.ha_recorder == "brokers"
    by_consent = (brokers - 1) // 2 if needs_majority else brokers - 1
    return max(min(by_consent, brokers - settings.ha_min_in_sync), 0)


def choice_text(settings: Settings) -> str:
    """Say in one line what a cluster of these settings does when brokers fail."""
    brokers = max(len(settings.ha_brokers_url), 1)
    most = sustained(settings)
    safety = f"ha-safety={settings.ha_safety}"
    if settings.ha_recorder == "manager":
        safety += ", ha-recorder=manager"
    if settings.ha_min_in_sync > 1:
        safety += f", ha-min-in-sync={settings.ha_min_in_sync}"
    parts = []
    if most:
        store = " and its manager's store can be changed"
        parts.append(
            f"it goes on when {_failed(most)} failed{store * (settings.ha_recorder == 'manager')}"
        )
    if most < brokers - 1 or not most:
        back = "one of them is" if most else "it is"
        parts.append(f"when {_failed(most + 1)} failed nothing is accepted until {back} back")
    if settings.ha_safety == "trust-manager":
        parts.append(
            "the manager has to fence: with two primaries, or one that had missed something, "
            "what was accepted is lost"
        )
    return f"{brokers} broker{'s' * (brokers > 1)}, {safety}: {'; '.join(parts)}"


def _failed(number: int) -> str:
    return f"{number} has" if number == 1 else f"{number} have"
