"""The report: its numbers are those of the verdict, text from files is shown and not obeyed, and
what is missing is said.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from qpidha.cli.main import main
from qpidha.pipeline.oracle.engine import check
from qpidha.pipeline.report.page import write_report
from qpidha.pipeline.report.text import NUMBERS, shown_count
from qpidha.pipeline.segments import BadInput, Gap, Inputs, Quarantined, Segment
from tests.pipeline.builders import Story
from tests.pipeline.report.lakes import around, lake_of

ROOT = Path(__file__).parents[3]
SECOND = 1_000_000_000
SECTIONS = [
    "checks",
    "what",
    "timeline",
    "failovers",
    "windows",
    "latency",
    "queues",
    "anomalies",
    "evidence",
    "glossary",
]


class Text(HTMLParser):
    """What a page says: its visible text, its tags, and the rows of its tables."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.rows: list[list[str]] = []
        self._hidden = 0
        self._cell = False
        self.feed(source)
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._hidden += tag in ("style", "svg")
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self._cell = True
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag in ("style", "svg")
        self._cell = self._cell and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.words.append(data)
            if self._cell:
                self.rows[-1][-1] = " ".join(f"{self.rows[-1][-1]} {data}".split())

    def row(self, *begin: str) -> list[str]:
        """Return the one row that begins so."""
        (found,) = [row for row in self.rows if row[: len(begin)] == list(begin)]
        return found


def cluster(queue: str = "q") -> Story:
    """Tell of a cluster that loses one message, fails over once under a fault, and is drained."""
    story = Story()
    story.at = 10 * SECOND
    for node in ("b1", "b2"):
        story.add(node, "role", r="active" if node == "b1" else "ready", e=1)
    for u in range(1, 11):
        story.at += SECOND // 2
        story.send(u, q=queue, i=f"m{u}")
        if u != 4:
            story.take(u, q=queue)
    start = story.at + 1000
    story.fault(start, start + SECOND, f="kill", x="b1")
    story.at = start
    for offset, kind, fields in (
        (100, "failover", {"f": "detected", "x": "b1", "e": 1}),
        (200, "promotion", {"f": "asked"}),
        (300, "role", {"r": "recovering", "e": 2}),
        (400, "role", {"r": "active", "e": 2}),
        (450, "failover", {"f": "accepted", "e": 2}),
    ):
        story.add("b2", kind, start + offset * 1_000_000, **fields)
    story.at = start + SECOND
    story.send(11, q=queue)
    story.take(11, q=queue)
    story.drain(queue)
    return story


def report(folder: Path, story: Story, **tables: list[dict[str, Any]]) -> Text:
    """Write a story's lake and its report; return what that says."""
    files = write_report(
        lake_of(story, story.judged(), folder, **tables), str(folder / "lake"), folder
    )
    assert files[0].name == "report.html" and all(file.suffix == ".png" for file in files[1:])
    return Text(files[0].read_text())


def test_the_numbers_are_those_of_the_verdict(tmp_path: Path) -> None:
    page = report(tmp_path, cluster())
    assert (
        "Invalid The cluster broke a promise. 1 accepted messages were never delivered "
        "(check total-queue)."
    ) in page.text
    verdict = json.loads((tmp_path / "verdict.json").read_text())
    source = (tmp_path / "report.html").read_text()
    for entry in verdict["checks"]:
        row = page.row(entry["name"])
        assert row[1] == (
            {True: "valid", False: "invalid"}[entry["valid"]]
            if entry["applies"]
            else "nothing to judge"
        )
        part = source.split(f"<tr><td>{entry['name']}</td>")[1].split("</tr>")[0]
        shown = re.findall(r"<span>([^<]+) <b>([^<]+)</b></span>", part)
        wanted = NUMBERS[entry["name"]] if entry["applies"] else ()
        assert shown == [shown_count(number, entry["counts"][number]) for number in wanted]
    told = [
        row[0] for row in page.rows if "nothing that it finds makes a run invalid" in " ".join(row)
    ]
    assert told == ["redelivery", "latency", "failover", "throughput"]
    assert page.row("epoch", "begin, s")[5:] == [
        "detected",
        "asked",
        "promoted",
        "active",
        "accepted",
        "served",
        "total",
    ]
    assert page.row("2")[2:5] == ["kill b1", "b1", "b2"]
    assert page.row("2")[5:10] == ["100.0", "200.0", "300.0", "400.0", "450.0"], (
        "milliseconds since the fault"
    )
    (changed,) = [row for row in verdict["checks"] if row["name"] == "failover"]
    assert page.row("2")[11] == f"{changed['table'][1]['total_ns'] / 1e6:,.1f}"
    (gave,) = [row for row in verdict["checks"] if row["name"] == "throughput"]
    row = page.row("q", "11")
    assert row[1:4] == [
        str(gave["table"][0][name]) for name in ("enqueued", "delivered", "acknowledged")
    ]
    assert (
        "lost 1" in page.text
        and "q, producer 1, number 4: sent once, accepted once, delivered never" in page.text
    )


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (None, "not known: times of different hosts are in no order"),
        (2_000_000, "Clock error at most 2"),
    ],
)
def test_first_use_m29_the_error_of_clocks_is_told_in_words(
    tmp_path: Path, error: int | None, says: str
) -> None:
    story = cluster()
    verdict = story.judged()
    times = {"start_ns": 0, "end_ns": 60 * SECOND, "offset_ns": 0, "epsilon_ns": error}
    folder = lake_of(story, verdict, tmp_path, run=[{"run": verdict.run, **times}])
    path = folder / "verdict.json"
    told = json.loads(path.read_text())
    told["inputs"]["clock"] = {"one": False, "error_ns": error}
    path.write_text(json.dumps(told))
    write_report(folder, str(folder / "lake"), folder)
    assert says in Text((folder / "report.html").read_text()).text


def test_sections_stand_in_their_order_and_links_lead_to_them(tmp_path: Path) -> None:
    page = report(tmp_path, cluster())
    named = [attributes["id"] for tag, attributes in page.tags if tag in ("header", "section")]
    assert named == ["verdict", *SECTIONS]
    assert [
        attributes["href"]
        for tag, attributes in page.tags
        if tag == "a" and attributes["href"] != "#glossary"
    ][:9] == [f"#{name}" for name in SECTIONS[:9]]


def test_the_documents_name_the_sections(tmp_path: Path) -> None:
    report(tmp_path, cluster())
    titles = re.findall(r"<h2>(.*?)</h2>", (tmp_path / "report.html").read_text())
    rows = re.findall(
        r"^\| ([^|]+) \|",
        (ROOT / "docs" / "report.md").read_text().split("## What it shows")[1],
        re.MULTILINE,
    )
    assert titles == [row for row in rows if row not in ("Section", "---", "verdict")]


EVIL = '<script>alert("1")</script>&amp;\x00\x1b[2J\u202e$x^{$_'


def test_text_from_files_is_shown_and_not_obeyed(tmp_path: Path) -> None:
    story = cluster(EVIL)
    story.run = EVIL
    for event in story.events:
        if "run" in event:
            event["run"] = EVIL
        if event["n"] == "b1":
            event["n"] = EVIL
    lost = [event for event in story.events if event.get("u") == 4]
    lost[0]["err"] = EVIL
    inputs = Inputs(
        segments=[Segment(EVIL, node=EVIL)],
        problems=[EVIL],
        quarantined=1,
        quarantine=[Quarantined(EVIL, 3, EVIL, EVIL)],
    )
    inputs.gaps.append(Gap(EVIL, EVIL, 1, 2))
    inputs.unknown_fields[EVIL] = 2
    verdict = check(story.events, inputs=inputs)
    lake_of(story, verdict, tmp_path, around=around("total-queue", "lost", 0, lost))
    page = write_report(tmp_path, str(tmp_path / "lake"), tmp_path)[0].read_text()
    found = Text(page)
    assert not {tag for tag, _ in found.tags} & {
        "script",
        "iframe",
        "img",
        "object",
        "embed",
        "form",
    }
    assert "<script" not in page and "alert(" in page
    assert not re.search("[\x00-\x08\x0b-\x1f\u202e]", page)
    shown = '<script>alert("1")</script>&amp;\\x00\\x1b[2J\\u202e$x^{$_'
    assert f"Report on the run {shown}" in found.text
    assert [row for row in found.rows if row[:3] == [shown, "3", shown]], "quarantine"
    assert found.text.count(shown) >= 8
    pictures = "".join(re.findall(r"<svg.*?</svg>", page, re.DOTALL))
    assert "&lt;script&gt;…" in pictures and "script>" not in pictures


def test_a_report_asks_nothing_of_the_network(tmp_path: Path) -> None:
    report(tmp_path, cluster())
    page = (tmp_path / "report.html").read_text()
    assert "default-src 'none'" in page
    assert set(re.findall(r"https?://[^\"' ]+", page)) <= {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }
    assert not re.search(r"\s(src|srcset|action|poster)=|@import|url\((?!#)", page)
    assert len(page) < 3_000_000


def test_names_in_pictures_are_their_own(tmp_path: Path) -> None:
    report(tmp_path, cluster())
    page = (tmp_path / "report.html").read_text()
    names = re.findall(r'\sid="([^"]+)"', page)
    assert len(names) == len(set(names)) and len(names) > 50
    for name in re.findall(r'(?:url\(|href=")#([^)"]+)', page):
        assert name in names, name


def test_examples_come_with_their_events_and_the_faults_meanwhile(tmp_path: Path) -> None:
    story = cluster()
    life = [event for event in story.events if event.get("u") == 4]
    life += [event for event in story.events if event["k"] == "fault"]
    page = report(tmp_path, story, around=around("total-queue", "lost", 0, life))
    start = story.events[2]["m"]
    at = f"{(life[0]['m'] - start) / 1e9:.6f}"
    assert page.row(at) == [
        at,
        "client",
        "enqueue invoke, producer 1, number 4, id m4",
        f"process 1, operation {life[0]['o']}",
    ]
    assert "fault kill of b1: begins" in page.text
    begin, end = ((event["m"] - start) / 1e9 for event in life[-2:])
    assert f"Faults meanwhile: kill b1 ({begin:.3f} to {end:.3f} s)." in page.text
    assert "this makes the run invalid" in page.text


def test_an_older_lake_has_no_events_around_examples_and_the_report_says_so(tmp_path: Path) -> None:
    story = cluster()
    lake_of(story, story.judged(), tmp_path)
    shutil.rmtree(next((tmp_path / "lake").glob("runs/*/around")))
    page = Text(write_report(tmp_path, str(tmp_path / "lake"), tmp_path)[0].read_text())
    assert "an older check made them. Check again" in page.text and "delivered never" in page.text


def test_a_run_without_brokers_faults_and_times(tmp_path: Path) -> None:
    story = Story()
    story.send(1)
    story.take(1)
    story.drain()
    page = report(tmp_path, story)
    assert "Valid Nothing that was checked went wrong." in page.text
    assert "no event logs of brokers" in page.text and "so their states are not known" in page.text
    assert (
        "The primary did not change" in page.text
        and "There was no window of unavailability" in page.text
    )
    assert "None was found." in page.text and page.row("Faults") == ["Faults", "none"]
    assert [file.name for file in sorted(tmp_path.glob("*.png"))] == [
        "report-backlog.png",
        "report-timeline.png",
    ]


def test_an_empty_run_has_a_report_that_says_that_nothing_is_known(tmp_path: Path) -> None:
    page = report(tmp_path, Story())
    assert (
        "Unknown It cannot be said whether all went well. No check had anything to judge."
        in page.text
    )
    assert "There is nothing to draw" in page.text and not list(tmp_path.glob("*.png"))


def test_brokers_without_clients_are_drawn(tmp_path: Path) -> None:
    story = Story()
    for at, role in ((1, "joining"), (2, "recovering"), (3, "active"), (9, "standalone")):
        story.add("b1", "role", at * SECOND, r=role, e=1)
    page = report(tmp_path, story)
    assert page.row("Began")[1].endswith("lasted 8.00 s")
    assert ">active</text>" in (tmp_path / "report.html").read_text()


def test_an_unknown_verdict_names_its_doubts(tmp_path: Path) -> None:
    story = Story()
    for u in range(1, 4):
        story.send(u)
    page = report(tmp_path, story)
    assert "Unknown It cannot be said whether all went well." in page.text
    assert (
        "3 accepted messages may still be in queues that were not drained (check total-queue)."
        in page.text
    )
    assert page.row("total-queue")[1] == "unknown"


def test_evidence_tells_what_is_missing(tmp_path: Path) -> None:
    story = cluster()
    others = [Segment("b.jsonl", node="of another run", run="other"), Segment("c.jsonl", node="b9")]
    segments = [Segment("a.jsonl", node="client", run=story.run, state="damaged"), *others]
    inputs = Inputs(segments=segments, events=20, quarantined=70, missing=5)
    inputs.problems.append("client 0: 5 events are in no file")
    inputs.quarantine += [
        Quarantined("a.jsonl", line, "not an object", "[1]") for line in range(1, 30)
    ]
    inputs.gaps.append(Gap("client", "0", 3, 7))
    lake_of(story, check(story.events, inputs=inputs), tmp_path)
    page = Text(write_report(tmp_path, str(tmp_path / "lake"), tmp_path)[0].read_text())
    assert (
        "The evidence is incomplete" in page.text
        and "client 0: 5 events are in no file" in page.text
    )
    assert page.row("client", "0") == ["client", "0", "3", "7"]
    assert page.row("a.jsonl", "1") == ["a.jsonl", "1", "not an object", "[1]"]
    assert "20 of 70 lines and files." in page.text
    assert page.row("Clients") == ["Clients", "client"]


def test_long_tables_are_cut_and_say_how_long_they_are(tmp_path: Path) -> None:
    story = Story()
    for number in range(120):
        story.send(1, q=f"q{number:03}")
        story.take(1, q=f"q{number:03}")
    page = report(tmp_path, story)
    assert "50 of 120 queues." in page.text and "50 of 120 rows" not in page.text
    assert page.row("q049")[0] == "q049" and not [row for row in page.rows if row[:1] == ["q050"]]


def words(*more: str | Path) -> int:
    return main(["pipeline", "report", *map(str, more)])


def test_the_command_writes_and_its_code_is_not_the_verdicts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    story = cluster()
    lake_of(story, story.judged(), tmp_path / "check")
    assert words("--check", tmp_path / "check") == 0
    assert (
        f"report: {tmp_path / 'check' / 'report.html'}, and 3 pictures" in capsys.readouterr().out
    )
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "report-failover-77.png").write_bytes(b"of an earlier run")
    assert (
        words(
            "--check",
            tmp_path / "check",
            "--lake",
            f"file://{tmp_path}/check/lake",
            "--out",
            tmp_path / "out",
            "-o",
            "json",
        )
        == 0
    )
    told = json.loads(capsys.readouterr().out)
    assert told["report"] == str(tmp_path / "out" / "report.html")
    assert (
        sorted(told["pictures"]) == sorted(str(path) for path in (tmp_path / "out").glob("*.png"))
        and len(told["pictures"]) == 3
    )
    assert Path(told["pictures"][0]).read_bytes()[:4] == b"\x89PNG"


def broken(folder: Path, what: str) -> None:
    """Break a good folder in one way."""
    verdict = folder / "verdict.json"
    content = json.loads(verdict.read_text())
    run = next((folder / "lake" / "runs").iterdir())
    if what == "no verdict":
        verdict.unlink()
    elif what == "no json":
        verdict.write_text("{")
    elif what == "other schema":
        verdict.write_text(json.dumps(content | {"schema": 2}))
    elif what == "no checks":
        verdict.write_text(
            json.dumps({name: value for name, value in content.items() if name != "checks"})
        )
    elif what == "no lake":
        shutil.rmtree(folder / "lake")
    elif what == "no table":
        shutil.rmtree(run / "latency_1s")
    elif what == "other lake":
        (folder / "lake" / "lake.json").write_text('{"schema": 99}')
    elif what == "other run":
        verdict.write_text(json.dumps(content | {"run": "another"}))
    elif what == "other columns":
        shutil.copy(run / "faults" / "part-0.parquet", run / "roles" / "part-0.parquet")
    elif what == "no parquet":
        (run / "roles" / "part-0.parquet").write_bytes(b"something else")
    elif what == "later check":
        for entry in content["checks"]:
            entry["counts"] |= {"enqueued": 7} if entry["name"] == "throughput" else {}
        verdict.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("no verdict", "verdict.json is missing: qpid-ha pipeline check --out"),
        ("no json", "cannot be read"),
        ("other schema", "its schema is 2, and this is for 1: qpid-ha pipeline check"),
        ("no checks", "has no checks"),
        (
            "no lake",
            "has no table run for the run 'r': qpid-ha pipeline check --engine spark --lake",
        ),
        (
            "no table",
            "has no table latency_1s for the run 'r': qpid-ha pipeline check --engine spark --lake",
        ),
        ("other lake", "its tables have version 99, and this is for 1"),
        ("other run", "has no table run for the run 'another'"),
        ("other columns", "table roles has no column node, boot, role"),
        ("no parquet", "table roles cannot be read"),
        ("later check", "verdict.json counts 7 enqueued and the tables"),
    ],
)
def test_what_is_missing_or_of_another_kind_is_told_with_what_to_do(
    tmp_path: Path, what: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    story = cluster()
    lake_of(story, story.judged(), tmp_path / "check")
    broken(tmp_path / "check", what)
    assert words("--check", tmp_path / "check", "--out", tmp_path / "out") == 3
    assert says in capsys.readouterr().err
    assert not (tmp_path / "out").exists(), "nothing is left of it"


def test_a_lake_that_pyarrow_cannot_open_is_told(tmp_path: Path) -> None:
    story = cluster()
    lake_of(story, story.judged(), tmp_path)
    with pytest.raises(
        BadInput,
        match=r"s3a://bucket/lake: pyarrow cannot open it .*; "
        "copy runs/r of it and name the copy's root",
    ):
        write_report(tmp_path, "s3a://bucket/lake", tmp_path)


def test_checks_that_were_not_asked_for_are_not_told_from_older_tables(tmp_path: Path) -> None:
    story = cluster()
    lake_of(story, story.judged(), tmp_path)
    check(story.events, names=["total-queue", "throughput"]).write(tmp_path)
    page = Text(write_report(tmp_path, str(tmp_path / "lake"), tmp_path)[0].read_text())
    assert "The primary did not change, as far as the event logs" in page.text and not [
        row for row in page.rows if row[:1] == ["availability"]
    ]


def test_without_its_packages_the_command_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "qpidha.pipeline.report.page", None)
    assert words("--check", tmp_path) == 3
    assert "pip install 'qpidha[data]'" in capsys.readouterr().err


def test_a_report_needs_no_spark() -> None:
    code = "import sys; import qpidha.pipeline.report.page; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
