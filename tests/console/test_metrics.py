"""What Prometheus is told: every metric of the table, of a broker that answers or does not; and the
alert rules.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as openmetrics_families,
)
from prometheus_client.parser import text_string_to_metric_families

from qpidha.client.admin import LinkBroken
from qpidha.console.looks import Watched
from qpidha.console.metrics import CUT, DETAILED, METRICS, PREFIX, aggregated, detailed
from tests.console.consoles import member, status_of
from tests.console.grafana_dashboard import CODES, DASHBOARD, WIDTH, asked, written
from tests.console.metrics_page import PAGE, RULES, with_tables

NAMES = {PREFIX + row.name for row in (*METRICS, *DETAILED["queue"], CUT)}
LABELS = {PREFIX + row.name: {"cluster", "broker", *row.labels} for row in METRICS}
for row in METRICS:
    if row.histogram:
        NAMES.add(f"{PREFIX}{row.name}_bucket")
        LABELS[f"{PREFIX}{row.name}_bucket"] = {"cluster", "broker", "le"}
SELECTOR = re.compile(r"\b(qpidha_\w+)(?:\{([^}]*)\})?")
OF_ONE = 'cluster="c", broker="b1"'
OF_B1 = '{broker="b1"}'
NEEDS_PROMTOOL = pytest.mark.skipif(
    shutil.which("promtool") is None,
    reason="promtool is not installed (Debian's package prometheus)",
)
STATUS = status_of(
    "active",
    epoch=2,
    since_ns=1_500_000_000,
    sequence=10,
    committed=8,
    pending_acknowledgements=3,
    records_set_aside=0,
    internal_errors=0,
    in_sync={"epoch": 2, "version": 1, "members": ["1", "2"]},
    certificate_expires_ns=2_000_000_000_000_000_000,
    memory={"used": 1, "limit": 2},
    journal={"bytes": 1, "files": 1, "written": 1, "syncs": 1, "free": 5},
    local_journal={"bytes": 2, "files": 1, "written": 3, "syncs": 4, "messages": 12, "queues": 2},
    primary={"system_id": "1"},
    members=[
        member("1", "active", sequence=10),
        member("2", "ready", sequence=7),
        member("3", "unreachable", sequence=0, connected=False),
    ],
)
SUMMED = (
    *("queues", "exchanges", "consumers", "messages", "bytes", "paged_out", "acquired", "delayed"),
    *("unplaced", "enqueued", "released", "refused", "deduplicated", "left_out", "not_rerouted"),
    *("flow_stops", "unreplicated_queues", "unreplicated_messages", "unsafe_queues"),
    *("unsafe_messages", "stopped_queues", "waiting_senders"),
    *("stall_seconds", "logins_accepted", "promotions"),
)
TIMES = {"bounds": [0.001, 0.5], "counts": [3, 2, 1], "sum": 2.5}
STATISTICS = {
    **dict.fromkeys(SUMMED, 1),
    "refuses": "",
    "withholds": "memory",
    "connections": {"client": 4, "broker": 2},
    "departures": {"accepted": 5, "expired": 1},
    "links": {"operational": 2},
    "routes": {"operational": 2, "waiting": 1},
    "routed_messages": {"in": 7, "out": 3},
    "route_lag": 4,
    "sync_seconds": TIMES,
    "commit_seconds": TIMES,
    "logins_refused": {"credentials": 7, "limit": 0},
    "promotion_seconds": {"wait": 0.5, "recover": 2.0},
}


class Broker:
    """A broker that answers as a test says."""

    def __init__(self, queues: int = 0, *, is_dead: bool = False) -> None:
        self.is_dead = is_dead
        self.status = STATUS
        self.statistics: dict[str, Any] = STATISTICS
        self.queues = [
            {"name": f"q{number:04}"}
            | {row.field: number for row in DETAILED["queue"]}
            | {"flow_stopped": False, "backups": {"b2": number, "b3": None}}
            for number in range(queues)
        ]
        self.asked: list[dict[str, Any]] = []

    async def ask(self, method: str, params: dict[str, Any]) -> Any:
        if self.is_dead:
            raise LinkBroken("nobody listens")
        self.asked.append(params)
        if method == "list_queues":
            behind = [
                queue
                for queue in self.queues
                if params["match"] in queue["name"] and queue["name"] > params["after"]
            ]
            return behind[: params["limit"]]
        return {"status": self.status, "statistics": self.statistics}[method]

    def close(self) -> None:
        """Nothing is open."""


def scraped(*brokers: Broker) -> dict[tuple[str, ...], float]:
    """Return the samples of a scrape: (name, values of the labels) -> value."""

    async def scrape() -> bytes:
        watched = [Watched(f"place{number}", broker) for number, broker in enumerate(brokers, 1)]
        return (await aggregated(watched, "c")).encoded("")[0]

    return samples(asyncio.run(scrape()))


def samples(text: bytes) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def test_every_metric_of_the_table_is_told_and_no_other() -> None:
    found = scraped(Broker())
    backup = Broker()
    backup.status = STATUS | {"state": "ready", "applied": 4, "primary": {"system_id": "2"}}
    replica = {"queue": "q", "state": "following", "behind": 3, "late_ns": 2_500_000_000}
    backup.status["replicas"] = [replica]
    found |= scraped(backup)
    told = {re.sub("_seconds_(bucket|count|sum)$", "_seconds", name) for name, *_ in found}
    assert told == {PREFIX + row.name for row in METRICS}
    assert found["qpidha_is_primary", "b1", "c"] == 0.0
    assert found["qpidha_replica_late_seconds", "b1", "c", "q"] == 2.5
    assert found["qpidha_replica_behind", "b1", "c", "q"] == 3.0
    assert found["qpidha_replication_behind_records", "b1", "c"] == 3.0


def test_a_primary_is_told_with_its_backups() -> None:
    found = scraped(Broker())
    assert found["qpidha_up", "b1", "c"] == found["qpidha_is_primary", "b1", "c"] == 1.0
    assert found["qpidha_broker_state", "b1", "c", "active"] == 1.0
    assert found["qpidha_broker_state", "b1", "c", "ready"] == 0.0
    assert found["qpidha_expected_backups", "b1", "c"] == 2.0
    assert found["qpidha_ready_backups", "b1", "c"] == 1.0
    assert found["qpidha_in_sync_members", "b1", "c"] == 2.0
    assert found["qpidha_replication_unconfirmed_records", "b2", "b1", "c"] == 3.0
    assert found["qpidha_state_change_timestamp_seconds", "b1", "c"] == 1.5
    assert found["qpidha_messages_dequeued_total", "b1", "accepted", "c"] == 5.0
    assert found["qpidha_credit_withheld", "b1", "c"] == 1.0
    assert found["qpidha_publishing_refused", "b1", "c"] == 0.0


def test_times_are_told_in_buckets_each_with_all_below_it() -> None:
    found = scraped(Broker())
    name = "qpidha_journal_sync_seconds"
    counts = [found[f"{name}_bucket", "b1", "c", end] for end in ("0.001", "0.5", "+Inf")]
    assert counts == [3.0, 5.0, 6.0]
    assert (found[f"{name}_count", "b1", "c"], found[f"{name}_sum", "b1", "c"]) == (6.0, 2.5)
    assert found["qpidha_logins_refused_total", "b1", "c", "credentials"] == 7.0
    assert found["qpidha_promotion_seconds", "b1", "c", "recover"] == 2.0
    assert found["qpidha_disk_free_bytes", "b1", "c"] == 5.0


def test_an_older_broker_that_measures_less_is_told_of_all_the_same() -> None:
    broker = Broker()
    broker.statistics = {name: STATISTICS[name] for name in ("queues", "messages")}
    found = scraped(broker)
    assert found["qpidha_up", "b1", "c"] == found["qpidha_queues", "b1", "c"] == 1.0
    assert not any(name.startswith("qpidha_commit_seconds") for name, *_ in found)


def test_a_broker_that_is_dead_is_down_and_says_nothing_else() -> None:
    found = scraped(Broker(), Broker(is_dead=True))
    assert found["qpidha_up", "place2", "c"] == 0.0
    of_the_dead = {name for name, *labels in found if "place2" in labels}
    assert of_the_dead == {PREFIX + row.name for row in METRICS if not row.needs}
    assert found["qpidha_up", "b1", "c"] == 1.0


def test_scrapes_at_the_same_time_share_a_look() -> None:
    broker = Broker()

    async def scrape() -> int:
        watched = Watched("place", broker)
        await asyncio.gather(*(aggregated([watched], "c") for _ in range(50)))
        return watched.looks

    assert asyncio.run(scrape()) == 2 == len(broker.asked)


@pytest.mark.parametrize(
    ("glob", "limit", "count", "is_cut"),
    [
        ("*", 500, 500, 1),
        ("*", 2500, 2500, 0),
        ("*", 2499, 2499, 1),
        ("q00*", 500, 100, 0),
        ("q?001", 500, 3, 0),
        ("q0[0-1]00", 500, 2, 0),
        ("q0001", 500, 1, 0),
        ("x*", 500, 0, 0),
    ],
)
def test_queues_are_told_in_the_order_of_their_names(
    glob: str, limit: int, count: int, is_cut: int
) -> None:
    broker = Broker(2500)

    async def scrape() -> bytes:
        return (await detailed(Watched("b1", broker), "c", "queue", glob, limit)).encoded("")[0]

    found = samples(asyncio.run(scrape()))
    assert {name for name, *_ in found} <= NAMES
    queues = [labels[-1] for name, *labels in found if name == "qpidha_queue_messages"]
    assert len(queues) == count and queues == sorted(queues)
    assert found["qpidha_detailed_is_cut", "b1", "c"] == is_cut
    for queue in queues[:3]:
        assert found["qpidha_queue_enqueued_total", "b1", "c", queue] == int(queue[1:])


def told_in_detail(*queues: dict[str, Any], accept: str = "") -> str:
    broker = Broker(1)
    broker.queues = [broker.queues[0] | queue for queue in queues]

    async def scrape() -> bytes:
        return (await detailed(Watched("b1", broker), "c", "queue")).encoded(accept)[0]

    return asyncio.run(scrape()).decode()


def test_each_backup_of_a_queue_and_the_age_of_its_oldest_message_are_told() -> None:
    found = samples(
        told_in_detail(
            {"name": "a", "backups": {"b2": 0, "b3": 7}, "oldest_age_seconds": 1.5},
            {"name": "b", "backups": {"b2": 3, "b3": None}, "oldest_age_seconds": None},
        ).encode()
    )
    behind = {
        (labels[-1], labels[0]): value
        for (name, *labels), value in found.items()
        if name == "qpidha_queue_backup_behind_messages"
    }
    assert behind == {("a", "b2"): 0, ("a", "b3"): 7, ("b", "b2"): 3}  # of b3 nothing is known
    ages = {key[-1]: value for key, value in found.items() if key[0].endswith("_age_seconds")}
    assert ages == {"a": 1.5}


@pytest.mark.parametrize("accept", ["", "application/openmetrics-text; version=1.0.0"])
def test_queues_are_told_as_prometheus_client_would(accept: str) -> None:
    """Whatever is in their names, in both formats."""
    names = ['q"uo\\te', "li\nne", "plain", "é☃"]
    text = told_in_detail(*({"name": name} for name in names), accept=accept)
    read = openmetrics_families if accept else text_string_to_metric_families
    families = {family.name: family for family in read(text)}
    messages = families["qpidha_queue_messages"]
    assert [sample.labels["queue"] for sample in messages.samples] == names
    assert messages.samples[0].labels.keys() == {"cluster", "broker", "queue"}
    kinds = {PREFIX + row.name.removesuffix("_total"): row.kind for row in DETAILED["queue"]}
    found = {name: family.type for name, family in families.items()}
    assert found == kinds | {PREFIX + CUT.name: "gauge"}
    assert all(family.documentation for family in families.values())
    assert promtool_if_any(text, accept) == ""


def promtool_if_any(text: str, accept: str) -> str:
    return "" if accept or not shutil.which("promtool") else promtool("check", "metrics", text=text)


def test_names_and_types_follow_the_practice() -> None:
    for row in (*METRICS, *DETAILED["queue"], CUT):
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", row.name) and row.help.endswith(".")
    names = {row.name for row in (*METRICS, *DETAILED["queue"], CUT)}
    assert len(names) == len(METRICS) + len(DETAILED["queue"]) + 1


def test_the_page_has_the_tables() -> None:
    text = PAGE.read_text()
    assert "`qpidha_up`" in text and text == with_tables(text), (
        "run python -m tests.console.metrics_page"
    )


def test_every_metric_of_the_alert_rules_exists() -> None:
    named = set(re.findall(r"\bqpidha_\w+", RULES.read_text()))
    assert named <= NAMES and "qpidha_unsafe_queues" in named


@NEEDS_PROMTOOL
def test_promtool_finds_the_alert_rules_right(tmp_path: Path) -> None:
    play = tmp_path / "rules_test.yml"
    source = Path(__file__).parent / "rules_test.yml"
    play.write_text(source.read_text().replace("RULES", str(RULES)))
    for words in (["check", "rules", str(RULES)], ["test", "rules", str(play)]):
        assert promtool(*words) == ""
    metrics = asyncio.run(aggregated([Watched("b1", Broker())], "c")).encoded("")[0]
    assert promtool("check", "metrics", text=metrics.decode()) == ""


def promtool(*words: str, text: str = "") -> str:
    """Return what promtool objects to."""
    done = subprocess.run(["promtool", *words], input=text, capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def wrong_in(expression: str) -> list[str]:
    """Return what an expression names that no broker has: metrics, labels, states."""
    wrong = []
    for metric, selected in SELECTOR.findall(expression):
        labels = dict(re.findall(r'(\w+)=~?"([^"]*)"', selected))
        wrong += [metric] if metric not in NAMES else sorted(labels.keys() - LABELS[metric])
        wrong += sorted({labels.get("state", "active")} - CODES.keys())
    return wrong


def test_the_dashboard_asks_for_what_there_is() -> None:
    assert DASHBOARD.read_text() == written(), "run python -m tests.console.grafana_dashboard"
    assert [found for each in asked() if (found := wrong_in(each))] == []
    assert wrong_in('qpidha_up{cluster="c"} + qpidha_gone{x="y"}') == ["qpidha_gone"]
    assert wrong_in('qpidha_broker_state{queue="q", state="lost"}') == ["queue", "lost"]


def test_no_panel_of_the_dashboard_lies_on_another() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    places = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(places)) == len(places) == WIDTH * (max(y for _, y in places) + 1)
    assert len({panel["id"] for panel in panels}) == len(panels)


@NEEDS_PROMTOOL
def test_promtool_understands_what_the_dashboard_asks(tmp_path: Path) -> None:
    rules = tmp_path / "rules.yml"
    records = [{"record": f"r{at}", "expr": each} for at, each in enumerate(asked())]
    rules.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": records}]}))
    assert promtool("check", "rules", str(rules)) == ""
    states = [
        {"series": f'qpidha_broker_state{{{OF_ONE}, state="ready"}}', "values": "1 1 0 _"},
        {"series": f'qpidha_broker_state{{{OF_ONE}, state="active"}}', "values": "0 0 1 _"},
        {"series": f"qpidha_up{{{OF_ONE}}}", "values": "1 1 1 0"},
    ]
    (state,) = [each for each in asked() if "broker_state" in each]
    seen = [
        {"expr": state, "eval_time": f"{at}m", "exp_samples": [{"labels": OF_B1, "value": code}]}
        for at, code in ((0, CODES["ready"]), (1, CODES["ready"]), (2, CODES["active"]))
    ]
    play = {"interval": "1m", "input_series": states, "promql_expr_test": seen}
    rules.with_name("play.yml").write_text(json.dumps({"rule_files": [], "tests": [play]}))
    assert promtool("test", "rules", str(rules.with_name("play.yml"))) == ""
