"""Writes examples/grafana-dashboard.json anew: `python -m tests.console.grafana_dashboard`.

`PANELS` is the dashboard in short: what each panel is called, asks, and is there for.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qpidha.model.broker_states import STATES

ROOT = Path(__file__).parents[2]
DASHBOARD = ROOT / "examples" / "grafana-dashboard.json"
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
WIDTH = 24
"""Columns of Grafana's grid."""
OF_CLUSTER = 'cluster="$cluster"'
OF_BROKERS = 'cluster="$cluster", broker=~"$broker"'
RATE = "[$__rate_interval]"
GOOD, BAD, UNSURE = "green", "red", "orange"
CODES = {"does not answer": 0} | {state.value: code for code, state in enumerate(STATES, 1)}
"""State of a broker -> its number in the lanes."""
COLOURS = dict.fromkeys(CODES, UNSURE) | {
    "does not answer": BAD,
    "standalone": "blue",
    "ready": "semi-dark-green",
    "active": GOOD,
}


@dataclass(frozen=True)
class Panel:
    """One panel."""

    title: str
    text: str
    """What it shows, and what to do."""
    asks: dict[str, str]
    """Legend -> expression."""
    kind: str = "timeseries"
    width: int = 8
    height: int = 8
    unit: str = "short"
    steps: tuple[tuple[float, str], ...] = ()
    """From which value on it has which colour."""
    mappings: tuple[dict[str, Any], ...] = ()
    options: dict[str, Any] = field(default_factory=dict)


def of_brokers(metric: str, labels: str = "") -> str:
    """Return a metric of the brokers that were chosen."""
    return f"qpidha_{metric}{{{OF_BROKERS}{', ' if labels else ''}{labels}}}"


def of_cluster(metric: str) -> str:
    """Return a metric of the cluster that was chosen."""
    return f"qpidha_{metric}{{{OF_CLUSTER}}}"


def slowest(metric: str) -> str:
    """Return what gives the time that 99 of 100 stayed below."""
    buckets = f"rate({of_brokers(f'{metric}_bucket')}{RATE})"
    return f"histogram_quantile(0.99, sum by (broker, le) ({buckets}))"


def state_code() -> str:
    """Return what gives the number of each broker's state."""
    codes = {of_brokers("broker_state", f'state="{state}"'): code for state, code in CODES.items()}
    known = [f"{metric} * {code}" for metric, code in codes.items() if code]
    return f"sum by (broker) ({' or '.join([*known, of_brokers('up') + ' * 0'])})"


def figure(
    title: str, text: str, ask: str, *steps: tuple[float, str], unit: str = "short"
) -> Panel:
    """Return a panel with one number."""
    return Panel(title, text, {"": ask}, "stat", 4, 4, unit, steps or ((0, GOOD),))


PANELS = (
    figure(
        "Primaries",
        "One is right. None: qpid-ha list, qpid-ha recover. Two: one of them is cut off.",
        f"sum({of_cluster('is_primary')}) or vector(0)",
        (0, BAD),
        (1, GOOD),
        (2, BAD),
    ),
    figure(
        "Unsafe queues",
        "Queues with replicated messages that no ready backup has: lost if the primary dies now.",
        f"sum({of_cluster('unsafe_queues')})",
        (0, GOOD),
        (1, BAD),
    ),
    figure(
        "Backups that are not ready",
        "As the primary sees them. qpid-ha list shows which.",
        f"sum({of_cluster('expected_backups')} - {of_cluster('ready_backups')})",
        (0, GOOD),
        (1, UNSURE),
    ),
    figure(
        "Brokers that do not answer",
        "/healthz of their consoles says whether they are dead or hang.",
        f"sum(1 - {of_cluster('up')})",
        (0, GOOD),
        (1, BAD),
    ),
    figure(
        "Messages",
        "On all queues of the primary.",
        f"sum({of_cluster('messages')} * on (cluster, broker) {of_cluster('is_primary')})",
    ),
    figure(
        "Backups behind",
        "How long the oldest record has been known of that a backup has not.",
        f"max({of_cluster('replication_behind_seconds')})",
        (0, GOOD),
        (5, UNSURE),
        (30, BAD),
        unit="s",
    ),
    Panel(
        "States",
        "What each broker was. An epoch begins with each promotion.",
        {"{{broker}}": state_code()},
        "state-timeline",
        16,
        mappings=(
            {
                "type": "value",
                "options": {
                    str(code): {"text": state, "color": COLOURS[state], "index": code}
                    for state, code in CODES.items()
                },
            },
        ),
        options={"mergeValues": True, "showValue": "auto", "rowHeight": 0.8},
    ),
    Panel(
        "Alerts",
        "Those of prometheus-rules.yml that fire, or are about to.",
        # That of a console which does not answer has no cluster.
        {
            "{{alertstate}} {{alertname}} {{broker}}{{instance}}": (
                'ALERTS{alertname=~"Qpidha.+", cluster=~"$cluster|"}'
            )
        },
    ),
    Panel(
        "Messages in",
        "A second, to the queues of each broker. Backups have those of the primary.",
        {"{{broker}}": f"rate({of_brokers('messages_enqueued_total')}{RATE})"},
        unit="ops",
    ),
    Panel(
        "Messages out, by cause",
        "A second, from the queues of the primary.",
        {
            "{{cause}}": f"sum by (cause) (rate({of_cluster('messages_dequeued_total')}{RATE})"
            f" * on (cluster, broker) group_left {of_cluster('is_primary')}) > 0"
        },
        unit="ops",
    ),
    Panel(
        "Depth", "Messages on the queues of each broker.", {"{{broker}}": of_brokers("messages")}
    ),
    Panel(
        "Records that a backup has not confirmed",
        "As the primary sees it. Senders of these wait.",
        {"{{broker}} to {{backup}}": of_brokers("replication_unconfirmed_records")},
    ),
    Panel(
        "Answers that wait",
        "For backups, or for the disk.",
        {"{{broker}}": of_brokers("pending_acknowledgements")},
    ),
    Panel(
        "Senders that are held back",
        "Queues that give no credit, the senders that wait for it, and whether the broker refuses "
        "messages or withholds credit, for memory or a disk.",
        {
            "{{broker}} queues": of_brokers("stopped_queues"),
            "{{broker}} senders": of_brokers("waiting_senders"),
            "{{broker}} refuses": of_brokers("publishing_refused"),
            "{{broker}} withholds": of_brokers("credit_withheld"),
        },
    ),
    Panel(
        "Not delivered",
        "A second: messages without room on their queue, without a place elsewhere, given back.",
        {
            f"{{{{broker}}}} {name}": f"rate({of_brokers(f'messages_{name}_total')}{RATE})"
            for name in ("refused", "dropped", "released")
        },
        unit="ops",
    ),
    Panel(
        "Connections",
        "Of clients, of other brokers, and to other brokers.",
        {"{{broker}} {{role}}": of_brokers("connections")},
    ),
    Panel(
        "Time to answer",
        "How long a broker took for a status report. More than half a second: its host is "
        "overloaded.",
        {"{{broker}}": of_brokers("answer_seconds")},
        unit="s",
    ),
    Panel(
        "Memory",
        "What memory-limit counts, and that limit.",
        {
            "{{broker}}": of_brokers("memory_used_bytes"),
            "{{broker}} limit": f"{of_brokers('memory_limit_bytes')} > 0",
        },
        unit="bytes",
    ),
    Panel(
        "Write-ahead log",
        "Its size on the disk.",
        {"{{broker}}": of_brokers("journal_bytes")},
        unit="bytes",
    ),
    Panel(
        "Syncs of the disk",
        "A second.",
        {"{{broker}}": f"rate({of_brokers('journal_syncs_total')}{RATE})"},
        unit="ops",
    ),
    Panel(
        "Wait for a commit",
        "How long 99 of 100 records waited for backups and disks: so long their senders wait.",
        {"{{broker}}": slowest("commit_seconds")},
        unit="s",
    ),
    Panel(
        "Time of a sync",
        "How long 99 of 100 syncs took the disk. More than 0.1 s: it is slow, or shared.",
        {"{{broker}}": slowest("journal_sync_seconds")},
        unit="s",
    ),
    Panel(
        "Stalls",
        "Share of the time in which a broker heard nobody: its host is overloaded, or was paused.",
        {"{{broker}}": f"rate({of_brokers('stall_seconds_total')}{RATE})"},
        unit="percentunit",
    ),
    Panel(
        "Logins",
        "A second: let in, and refused by the reason.",
        {
            "{{broker}} accepted": f"rate({of_brokers('logins_accepted_total')}{RATE})",
            "{{broker}} {{reason}}": f"rate({of_brokers('logins_refused_total')}{RATE}) > 0",
        },
        unit="ops",
    ),
    Panel(
        "Free space of data-dir",
        "Below disk-free-limit no message is accepted.",
        {"{{broker}}": of_brokers("disk_free_bytes")},
        unit="bytes",
    ),
    Panel(
        "The last promotion",
        "Of each broker: from the loss of the primary until somebody asked, until it was primary, "
        "until it was active.",
        {"{{broker}} {{phase}}": of_brokers("promotion_seconds")},
        "bargauge",
        unit="s",
    ),
)


def variable(name: str, ask: str, *, several: bool = False) -> dict[str, Any]:
    """Return a choice at the top, of the values of a label."""
    return {
        "name": name,
        "label": name.capitalize(),
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": f"label_values({ask}, {name})", "refId": name},
        "refresh": 2,
        "sort": 1,
        "multi": several,
        "includeAll": several,
        "current": {"text": ["All"], "value": ["$__all"]} if several else {},
    }


def panel(number: int, what: Panel, x: int, y: int) -> dict[str, Any]:
    """Return a panel as Grafana has it."""
    return {
        "id": number,
        "type": what.kind,
        "title": what.title,
        "description": what.text,
        "datasource": SOURCE,
        "gridPos": {"x": x, "y": y, "w": what.width, "h": what.height},
        "targets": [
            {"refId": chr(ord("A") + place), "expr": ask, "legendFormat": legend}
            for place, (legend, ask) in enumerate(what.asks.items())
        ],
        "fieldConfig": {
            "defaults": {
                "unit": what.unit,
                "mappings": list(what.mappings),
                "thresholds": {
                    "mode": "absolute",
                    "steps": [
                        {"value": value if place else None, "color": colour}
                        for place, (value, colour) in enumerate(what.steps or ((0, GOOD),))
                    ],
                },
            },
            "overrides": [],
        },
        "options": what.options,
    }


def dashboard() -> dict[str, Any]:
    """Return the dashboard."""
    panels = []
    x = y = 0
    for number, what in enumerate(PANELS, 1):
        panels.append(panel(number, what, x, y))
        x += what.width
        if x == WIDTH:
            x, y = 0, y + what.height
    return {
        "title": "qpidha",
        "uid": "qpidha",
        "description": "A cluster of brokers, as its consoles see it: docs/metrics.md.",
        "tags": ["qpidha"],
        "schemaVersion": 38,
        "refresh": "5s",
        "time": {"from": "now-1h", "to": "now"},
        "graphTooltip": 1,
        "templating": {
            "list": [
                {
                    "name": "datasource",
                    "label": "Prometheus",
                    "type": "datasource",
                    "query": "prometheus",
                },
                variable("cluster", "qpidha_up"),
                variable("broker", of_cluster("up"), several=True),
            ]
        },
        "panels": panels,
    }


def asked(cluster: str = "c") -> list[str]:
    """Return the expressions of the dashboard, with the choices at its top made."""
    choices = {"$cluster": cluster, "$broker": "b1|b2|b3", "$__rate_interval": "1m"}
    return [
        re.sub(r"\$\w+", lambda found: choices[found[0]], expression)
        for panel in PANELS
        for expression in panel.asks.values()
    ]


def written() -> str:
    """Return the text of the file."""
    return json.dumps(dashboard(), indent=1) + "\n"


if __name__ == "__main__":
    DASHBOARD.write_text(written())
