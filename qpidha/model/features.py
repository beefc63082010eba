"""Features: names for what one version of qpidha can write into the log and an older one cannot
read.

Brokers of several versions run in one cluster while it is upgraded. What the first version that is
supported there writes and says, commit 21a66c3, is the *base*: every broker knows it, and it has no
name. Each record, field, column or message between brokers that came later belongs to a feature.

1. A broker tells the others which features it knows, when a connection is opened.
2. The primary enables a feature with a record, `FeatureEnabled`, once every configured member is
   connected and knows it, and no other broker that is connected lacks it.
3. A feature is used only while its record is committed: then no broker that may become primary is
   without it.
4. An enabled feature stays enabled. A broker that lacks one is refused by the others and cannot
   read their files: it must be upgraded.

To add a feature: name it here, write nothing of it unless it is in `Log.features`, and add it to
the table in docs/internals/versions.md.
"""

from __future__ import annotations

from collections.abc import Iterable

DEPARTURE_CAUSES = "departure-causes"
QUEUE_KINDS = "queue-kinds"
FEDERATION = "federation"
QUEUE_REPLICATION = "queue-replication"

FEATURES: dict[str, str] = {
    DEPARTURE_CAUSES: "records say why messages left their queue",
    QUEUE_KINDS: "queues of every kind, policies, dead letters and times of delivery",
    FEDERATION: "links to other brokers, and the routes over them",
    QUEUE_REPLICATION: "queues that are replicas of queues elsewhere",
}
"""What this version knows beyond the base: name -> what it adds, in words for an operator."""


UPGRADE_HINT = (
    "upgrade qpidha on this broker to the version of the others, or of the one that wrote its files"
)


def read_features(value: object) -> frozenset[str]:
    """Return the features that another broker says it knows; none for a broker of the base, which
    says nothing.
    """
    if not isinstance(value, list | tuple):
        return frozenset()
    return frozenset(str(name) for name in value)


def lacking(enabled: Iterable[str], known: Iterable[str]) -> list[str]:
    """Return the enabled features that a broker does not know, sorted by name."""
    return sorted(set(enabled) - set(known))


def upgrade_text(name: str, missing: Iterable[str]) -> str:
    """Say what a broker lacks and what to upgrade."""
    features = ", ".join(missing)
    return (
        f"{name} does not know what this cluster uses: {features}. Upgrade qpidha on {name} to the "
        "version of the other brokers"
    )
