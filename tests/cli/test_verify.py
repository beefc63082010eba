"""`qpid-ha verify run` as a user runs it, judged by the engine without Spark; and that each
doctored history is found out.
"""

from __future__ import annotations

import json
import shlex
import shutil
import sys
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from qpidha.pipeline.checks import Settings
from qpidha.pipeline.generate.histories import Plan
from qpidha.pipeline.generate.histories import write as generate
from qpidha.pipeline.history import History
from qpidha.pipeline.oracle.engine import check_paths
from qpidha.pipeline.verdict import Verdict
from qpidha.pipeline.workload.faults import Nemesis
from qpidha.pipeline.workload.run import next_command
from tests.cli.conftest import Said
from tests.patience import LONG_TEST
from tests.system.cluster import Cluster

pytestmark = [pytest.mark.xdist_group("real-brokers"), pytest.mark.timeout(LONG_TEST)]

Events = list[dict[str, Any]]
Fits = Callable[[dict[str, Any]], bool]
SMALL = ("--queues", "2", "--senders", "2", "--receivers", "2", "--rate", "60")


@pytest.fixture(scope="module")
def finished() -> Iterator[Path]:
    """The directory of a run with a killed and a stopped primary, and with TLS, SCRAM and rules."""
    from qpidha.cli.main import main

    with tempfile.TemporaryDirectory(prefix="qpidha-") as name:
        out = Path(name) / "v"
        words = [
            "verify",
            "run",
            *SMALL,
            "--minutes",
            "0.2",
            "--faults",
            "kill,stop",
            "--secure",
            "--seed",
            "3",
            "--out",
            str(out),
            "-q",
            "-o",
            "json",
        ]
        assert main(words) == 0, (out / "verify.log").read_text()
        yield out


def test_a_run_under_faults_leaves_evidence_in_which_everything_is_in_order(finished: Path) -> None:
    summary = json.loads((finished / "summary.json").read_text())
    assert (
        summary["finished"] and summary["drained"] and summary["faults"] and not summary["problems"]
    )
    assert summary["counts"]["accepted"] > 100 and summary["next"] == next_command(
        finished, "queue"
    )
    verdict = check_paths([finished])
    checks = {check.name: check for check in verdict.checks}
    assert verdict.exit_code == 0, [check.reasons for check in verdict.checks]
    total = checks["total-queue"].counts
    assert total["lost"] == total["unexpected"] == total["undrained"] == 0
    assert total["acknowledged"] == summary["counts"]["accepted"]
    safe = checks["accepted-before-safe"].counts
    assert (
        safe["accepted"] > 0
        and safe["client_accepted"] == total["acknowledged"]
        and safe["client_unsafe"] == 0
    )
    assert checks["primaries"].counts["epochs"] > 1 and checks["failover"].counts["failovers"] > 0
    assert checks["latency"].counts["replication"] > 0


# -- doctored histories ---------------------------------------------------------------------------


def doctor(directory: Path, change: Callable[[Events], Events]) -> None:
    """Change the events of segments, and make heads, numbers and checksums fit."""
    for path in sorted(
        [*directory.rglob("journal-*.jsonl"), *directory.rglob(".journal-*.jsonl.open")]
    ):
        lines = [json.loads(line) for line in path.read_bytes().splitlines()]
        head, foot = lines[0], lines[-1] if lines[-1].get("end") else None
        before = lines[1 : -1 if foot else None]
        after = change([dict(event) for event in before])
        if after == before:
            continue
        data = b"".join(
            json.dumps(event, separators=(",", ":")).encode() + b"\n" for event in [head, *after]
        )
        if foot:
            foot |= {"lines": len(after), "crc32": zlib.crc32(data)}
            data += json.dumps(foot).encode() + b"\n"
        path.write_bytes(data)


class Once:
    """A change at the first event that fits."""

    def __init__(
        self, fits: Callable[[dict[str, Any]], bool], put: Callable[[dict[str, Any]], Events]
    ) -> None:
        self.fits = fits
        self.put = put
        self.at: dict[str, Any] = {}

    def __call__(self, events: Events) -> Events:
        for index, event in enumerate(events):
            if not self.at and self.fits(event):
                self.at = dict(event)
                return [*events[:index], *self.put(event), *events[index + 1 :]]
        return events


def value(event: dict[str, Any]) -> tuple[Any, ...]:
    return event.get("q"), event.get("w"), event.get("u")


@pytest.fixture(scope="module")
def delivery(finished: Path) -> Fits:
    """Tells the delivery of a message that was sent once, accepted and delivered once, whatever the
    faults did to others.
    """
    steps: Counter[tuple[Any, ...]] = Counter()
    for path in (finished / "history").rglob("*journal-*"):
        for event in map(json.loads, path.read_bytes().splitlines()):
            if event["k"] == "op" and "u" in event:
                steps[*value(event), event["f"], event["y"]] += 1

    def fits(event: dict[str, Any]) -> bool:
        if event["k"] != "op" or (event["f"], event["y"]) != ("dequeue", "ok") or "u" not in event:
            return False
        return all(
            steps[*value(event), *step] == 1
            for step in (("enqueue", "invoke"), ("enqueue", "ok"), ("dequeue", "ok"))
        )

    return fits


def other(event: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Another event of the same writer, under a number that nobody else has."""
    return {**event, "s": event["s"] + (1 << 40), **fields}


def filler(event: dict[str, Any]) -> dict[str, Any]:
    """What stands in for an event that was taken out, so that no number is missing."""
    return {**event, "y": "info", "f": "drain", "err": "doctored", "o": event["o"] + (1 << 50)}


def judged(
    finished: Path, tmp_path: Path, change: Callable[[Events], Events], **settings: Any
) -> Verdict:
    copy = tmp_path / "doctored"
    shutil.copytree(finished / "history", copy / "history")
    shutil.copytree(finished / "journals", copy / "journals")
    doctor(copy, change)
    return check_paths([copy], **settings)


def offences(verdict: Verdict, check: str, what: str) -> list[dict[str, Any]]:
    (found,) = [each for each in verdict.checks if each.name == check]
    return [dict(row) for row in found.offenders.get(what, [])]


def test_a_dropped_value_is_lost(finished: Path, delivery: Fits, tmp_path: Path) -> None:
    change = Once(delivery, lambda event: [filler(event)])
    verdict = judged(finished, tmp_path, change)
    (lost,) = offences(verdict, "total-queue", "lost")
    assert verdict.valid is False
    assert (lost["queue"], lost["producer"], lost["seq"]) == value(change.at) and lost["enq_op"]


def test_a_duplicate_is_counted_and_named(finished: Path, delivery: Fits, tmp_path: Path) -> None:
    change = Once(delivery, lambda event: [event, other(event, o=event["o"] + (1 << 50))])
    found = offences(judged(finished, tmp_path, change), "total-queue", "duplicated")
    (row,) = [
        row for row in found if (row["queue"], row["producer"], row["seq"]) == value(change.at)
    ]
    assert row["deq_op"]


def test_an_invented_value_is_unexpected(finished: Path, delivery: Fits, tmp_path: Path) -> None:
    change = Once(
        delivery, lambda event: [event, other(event, u=999_999, o=event["o"] + (1 << 50))]
    )
    verdict = judged(finished, tmp_path, change)
    (row,) = offences(verdict, "total-queue", "unexpected")
    assert verdict.valid is False and (row["queue"], row["seq"]) == (change.at["q"], 999_999)


def test_two_values_that_changed_places_are_out_of_order(
    finished: Path, delivery: Fits, tmp_path: Path
) -> None:
    """A value is said to have come after those that were sent after it; `strict_order`, since it
    may have been during a fault.
    """
    moved: dict[str, Any] = {}

    def change(events: Events) -> Events:
        ours = [event for event in events if delivery(event)]
        if len(ours) < 20 or moved:
            return events
        first = ours[0]
        same = [event for event in ours if value(event)[:2] == value(first)[:2]]
        moved.update(first)
        at = events.index(first)
        late = {**first, "m": same[3]["m"] + 1, "t": same[3]["t"]}
        return [*events[:at], late, *events[at + 1 :]]

    verdict = judged(finished, tmp_path, change, settings=Settings(strict_order=True))
    found = offences(verdict, "order", "violations")
    assert verdict.valid is False and value(moved) in [
        (row["queue"], row["producer"], row["seq"]) for row in found
    ]


def test_two_primaries_of_one_epoch_are_found(finished: Path, tmp_path: Path) -> None:
    change = Once(
        lambda event: event["k"] == "role" and event["r"] == "ready" and event["e"] > 0,
        lambda event: [{**event, "r": "active"}],
    )
    verdict = judged(finished, tmp_path, change)
    (row,) = offences(verdict, "primaries", "shared_epochs")
    assert (
        verdict.valid is False
        and row["epoch"] == change.at["e"]
        and change.at["n"] in row["writers"]
    )


def test_an_acceptance_before_all_had_the_message_is_found(finished: Path, tmp_path: Path) -> None:
    change = Once(
        lambda event: event["k"] == "conf" and event["p"] > 50,
        lambda event: [{**event, "hi": event["hi"] + 1000}],
    )
    verdict = judged(finished, tmp_path, change)
    (row,) = offences(verdict, "accepted-before-safe", "unsafe")
    assert verdict.valid is False and (row["node"], row["s"]) == (change.at["n"], change.at["s"])


# -- other ways to run ----------------------------------------------------------------------------


def test_locks_are_held_by_one_at_a_time_as_long_as_sessions_last(
    qpid_ha: Callable[..., Said],
) -> None:
    with tempfile.TemporaryDirectory(prefix="qpidha-") as name:
        out = Path(name) / "v"
        said = qpid_ha(
            "verify",
            "run",
            "--workload",
            "mutex",
            "--queues",
            "1",
            "--minutes",
            "0.08",
            "--faults",
            "none",
            "--out",
            str(out),
        )
        assert said.code == 0, said.err + said.out
        (check,) = [each for each in check_paths([out]).checks if each.name == "mutex"]
        assert (
            check.counts["holds"] > 3
            and check.counts["overlaps"] == check.counts["lease_overlaps"] == 0
        )
        assert check.counts["tokens"] == check.counts["holds"] and check.counts["writes"] > 3
        assert check.counts["stale"] == check.counts["regressions"] == 0
        assert "--mutex report" in said.out


HOOK = """
import sys
with open(sys.argv[1], "a") as file:
    print(*sys.argv[2:], file=file)
"""


def test_a_given_cluster_is_hurt_by_a_program_of_the_users(
    qpid_ha: Callable[..., Said], tmp_path: Path
) -> None:
    hook, calls = tmp_path / "hook.py", tmp_path / "calls"
    hook.write_text(HOOK)
    with tempfile.TemporaryDirectory(prefix="qpidha-") as name:
        cluster = Cluster(Path(name), 3, options={"link_heartbeat_interval": "0.5"})
        try:
            cluster.start()
            addresses = list(cluster.addresses)
            out = tmp_path / "v"
            said = qpid_ha(
                "verify",
                "run",
                "--brokers",
                ",".join(addresses),
                *SMALL,
                "--minutes",
                "0.1",
                "--faults",
                "pause",
                "--fault-command",
                f"{sys.executable} {hook} {calls}",
                "--out",
                str(out),
                "-o",
                "json",
            )
            left = cluster[0].call("list_queues")
        finally:
            cluster.close()
    summary = json.loads(said.out)
    assert said.code == 0, said.err
    assert summary["faults"] == {"pause": 1} and summary["counts"]["accepted"] > 50
    lines = calls.read_text().splitlines()
    assert [line.split()[:2] for line in lines] == [
        ["start", "pause"],
        ["stop", "pause"],
    ] and lines[0].split()[2] in addresses
    assert not [queue for queue in left if queue["name"].startswith("verify-")]
    verdict = check_paths([out], names=["total-queue"])
    assert verdict.valid is True, [check.reasons for check in verdict.checks]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--faults", "earthquake"], "'earthquake' is not a fault"),
        (["--brokers", "a:1", "--faults", "kill"], "started here only"),
        (
            ["--brokers", "amqps://me:secret@a,b", "--faults", ""],
            "mixes encrypted addresses and others",
        ),
        (["--fault-command", "true"], "is for a given cluster"),
        (
            ["--brokers", "a:1", "--fault-command", "true"],
            "--fault-command would never be called. Try: --faults with names",
        ),
        (
            ["--brokers", "a:1", "--fault-command", "true", "--faults", "none"],
            "--fault-command would never be called",
        ),
        (
            ["--brokers", "a:1", "--journal", "full"],
            "--journal is for brokers that are started. Try: leave out --brokers, or --journal",
        ),
        (["--brokers", "a:1", "--set", "b1:threads=2"], "--set is for brokers"),
        (["--brokers", "a:1", "--secure"], "--secure is for brokers"),
        (
            ["--workload", "mutex", "--rate", "5", "--senders", "3"],
            "--senders and --rate are for --workload queue",
        ),
        (["--workload", "mutex", "--size", "5"], "--size is for --workload queue"),
        (["--receivers", "1", "--queues", "2"], "as many receivers"),
        (["--workload", "race"], "not a workload"),
        (["--minutes", "0"], "must be above 0"),
        (["--journal", "some"], "not a level"),
    ],
)
def test_wrong_words_are_answered(
    qpid_ha: Callable[..., Said], tmp_path: Path, words: list[str], says: str
) -> None:
    said = qpid_ha("verify", "run", *words, "--out", str(tmp_path / "v"))
    assert said.code == 2 and says in said.err and not (tmp_path / "v").exists()


def test_what_comes_next_is_a_command_that_works_without_spark_too(
    qpid_ha: Callable[..., Said], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("qpidha.pipeline.workload.run.find_spec", lambda name: None)
    generate(Plan(messages=100), tmp_path / "a run" / "history")
    words = shlex.split(next_command(tmp_path / "a run", "mutex"))
    said = qpid_ha(*words[words.index("pipeline") :])
    assert said.code == 0 and "verdict on synthetic: valid" in said.out, said.err


def test_histories_of_two_runs_do_not_mix(qpid_ha: Callable[..., Said], tmp_path: Path) -> None:
    (tmp_path / "old").write_text("")
    said = qpid_ha("verify", "run", "--out", str(tmp_path))
    assert said.code == 1 and "there already" in said.err


class Hurts:
    """Takes note of what it is to do."""

    kinds = ("kill", "stop", "partition")

    def __init__(self) -> None:
        self.done: list[tuple[str, str, str]] = []

    def targets(self) -> tuple[str, list[str]]:
        return "b1", ["b1", "b2", "b3"]

    def start(self, kind: str, target: str) -> None:
        self.done.append(("start", kind, target))

    def stop(self, kind: str, target: str) -> None:
        self.done.append(("stop", kind, target))


def test_a_seed_chooses_faults_each_kind_before_one_comes_again_and_notes_them_first(
    tmp_path: Path,
) -> None:
    found = []
    for number in range(2):
        doer = Hurts()
        nemesis = Nemesis(
            doer, History(tmp_path / str(number), "run", node="nemesis"), 4, lambda word, text: None
        )
        for _ in range(12):
            nemesis._at = 0.0
            nemesis.look()
        found.append(doer.done)
        assert [step for step, _, _ in doer.done] == ["start", "stop"] * 6
        assert {kind for _, kind, _ in doer.done[:6]} == set(doer.kinds)
    assert found[0] == found[1]
