"""The report in a real browser: complete, in order, nothing cut off, nothing asked of the network,
no complaint.

A page around the report measures it in a frame of a given width and writes down what it finds;
Chromium prints that page and ends. It runs with a profile and a time limit of its own.
"""

from __future__ import annotations

import html
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from matplotlib import image

from qpidha.pipeline.report.page import write_report
from tests.chromium import AS_ROOT, CHROMIUM, MISSING
from tests.patience import STATE
from tests.pipeline.report.lakes import around, lake_of
from tests.pipeline.report.test_page import SECTIONS, cluster

SECONDS = STATE
FLAGS = (
    "--headless",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--hide-scrollbars",
    "--allow-file-access-from-files",
)

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason=MISSING),
    pytest.mark.timeout(3 * SECONDS),
]

# What measures: it looks at the frame when all of it is there.
AROUND = """<!doctype html><meta charset="utf-8"><pre id="found"></pre>
<iframe src="report.html" style="border:0;width:{width}px;height:9000px"></iframe>
<script>
const frame = document.querySelector("iframe");
frame.onload = () => {{
  const page = frame.contentDocument, view = frame.contentWindow;
  const box = element => {{
    const b = element.getBoundingClientRect();
    return [b.left, b.top, b.width, b.height].map(Math.round);
  }};
  const shown = element => element.getClientRects().length > 0;
  for (const one of page.querySelectorAll("details")) one.open = true;
  const root = page.documentElement;
  const beyond = element => element.getBoundingClientRect().right > root.clientWidth + 1;
  const wide = [...page.querySelectorAll("body *:not(svg *)")]
    .filter(e => shown(e) && beyond(e) && !e.closest(".wide"));
  const out = [];
  for (const text of page.querySelectorAll("svg text")) {{
    const t = text.getBoundingClientRect(), s = text.closest("svg").getBoundingClientRect();
    const beside = t.left < s.left - 2 || t.right > s.right + 2;
    if (beside || t.top < s.top - 2 || t.bottom > s.bottom + 2)
      out.push(text.textContent);
  }}
  document.getElementById("found").textContent = JSON.stringify({{
    width: root.clientWidth, scroll: root.scrollWidth, out: out,
    wide: wide.map(e => e.tagName + " " + e.className),
    sections: [...page.querySelectorAll("header, section")].map(e => [e.id, ...box(e)]),
    pictures: [...page.querySelectorAll("svg")].map(box),
    texts: [...page.querySelectorAll("svg text")].filter(shown).length,
    empty: [...page.querySelectorAll("svg path, svg text")]
      .filter(e => e.getBBox().width + e.getBBox().height === 0).length,
    drawn: page.querySelectorAll("svg path, svg text").length, text: page.body.innerText,
    asked: view.performance.getEntriesByType("resource").map(e => e.name),
    colour: view.getComputedStyle(page.querySelector(".banner")).borderLeftColor,
    letters: Math.min(
      ...[...page.querySelectorAll("svg text")].map(e => e.getBoundingClientRect().height)),
  }});
}};
</script>
"""


def browse(folder: Path, page: str, *more: str) -> subprocess.CompletedProcess[str]:
    """Run Chromium on a page of a folder until it has nothing to do, and take what it prints."""
    assert CHROMIUM is not None
    line = [
        CHROMIUM,
        *FLAGS,
        *AS_ROOT,
        f"--user-data-dir={folder / 'profile'}",
        "--virtual-time-budget=10000",
        "--enable-logging=stderr",
        *more,
    ]
    line += ["--window-size=1400,1000", f"file://{folder / page}"]
    return subprocess.run(line, capture_output=True, text=True, timeout=SECONDS, check=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a report on a run in which much happened, with names of every length."""
    found = tmp_path_factory.mktemp("browser")
    story = cluster("a.queue.with.a.very.long.name." * 6)
    for number in range(9):
        story.send(1, q=f"queue {number} <b>")
    story.add("b1", "rep", x="b2", e=1, p=1, dt=900_000)
    story.add("b1", "conf", q="q", e=1, p=1, dt=950_000)
    life = [event for event in story.events if event.get("u") == 4]
    times = [event["m"] // 1_000_000_000 for event in story.events]
    seconds = [
        {
            "what": what,
            "name": name,
            "second": at,
            "n": 1,
            "p50_us": 900,
            "p95_us": 2500,
            "p99_us": 7000 + at,
            "max_us": 90_000,
        }
        for what, name in (("enqueue", "q"), ("replication", "b2"), ("acceptance", "q"))
        for at in range(min(times), max(times) + 1)
    ]
    lake_of(
        story,
        story.judged(unavailable_ns=1_000_000),
        found,
        around=around("total-queue", "lost", 0, life),
        latency_1s=seconds,
    )
    write_report(found, str(found / "lake"), found)
    return found


@pytest.fixture(scope="module", params=[1280, 800])
def seen(folder: Path, request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return what the page looks like at a width."""
    (folder / "around.html").write_text(AROUND.format(width=request.param))
    done = browse(folder, "around.html", "--dump-dom")
    found = re.search(r'<pre id="found">(.+?)</pre>', done.stdout, re.DOTALL)
    assert found, (done.stdout[:2000], done.stderr[-2000:])
    measured: dict[str, Any] = json.loads(html.unescape(found.group(1)))
    assert measured["width"] == request.param
    return measured | {"log": done.stderr}


def test_nothing_sticks_out(seen: dict[str, Any]) -> None:
    assert seen["scroll"] == seen["width"] and seen["wide"] == []
    assert seen["out"] == [], "text of a picture beyond its edge"


def test_sections_stand_below_each_other_in_order(seen: dict[str, Any]) -> None:
    assert [section[0] for section in seen["sections"]] == ["verdict", *SECTIONS]
    tops = [section[2] for section in seen["sections"]]
    assert tops == sorted(tops) and all(
        width > 600 and height > 40 for *_, width, height in seen["sections"]
    )


def test_what_matters_is_visible(seen: dict[str, Any]) -> None:
    assert seen["text"].startswith("Report on the run r\n")
    for words in (
        "Invalid",
        "1 accepted messages were never delivered",
        "Failovers",
        "kill b1",
        "Lost messages",
        "enqueue invoke",
        "in-sync set",
    ):
        assert words in seen["text"], words
    assert "queue 3 <b>" in seen["text"]
    assert seen["colour"] == "rgb(179, 71, 0)", "the style is used"


def test_pictures_are_drawn(seen: dict[str, Any]) -> None:
    assert len(seen["pictures"]) == 4
    for _, _, width, height in seen["pictures"]:
        assert width > 700 and 100 < height < width
    assert seen["drawn"] > 200 and seen["texts"] > 60 and seen["empty"] < seen["drawn"] / 10
    assert seen["letters"] > 6, "letters can be read"


def test_the_page_asks_for_nothing_and_nobody_complains(seen: dict[str, Any]) -> None:
    assert seen["asked"] == []
    assert not re.findall(r"CONSOLE|net::ERR|Refused to", seen["log"]), seen["log"][-2000:]


def test_a_complaint_would_be_heard(folder: Path) -> None:
    (folder / "loud.html").write_text(
        "<script>console.error('wrong')</script><img src='https://127.0.0.1:1/x.png'>"
    )
    assert re.search(r"CONSOLE.*wrong", browse(folder, "loud.html", "--dump-dom").stderr)


def test_it_is_no_white_sheet(folder: Path) -> None:
    browse(folder, "report.html", f"--screenshot={folder / 'shot.png'}")
    picture = image.imread(folder / "shot.png")
    assert picture.shape[:2] == (1000, 1400)
    colours = {
        tuple(pixel) for pixel in (picture[::7, ::7, :3] * 255).astype(int).reshape(-1, 3).tolist()
    }
    assert len(colours) > 20


def test_it_prints_on_a_few_pages(folder: Path) -> None:
    browse(
        folder, "report.html", f"--print-to-pdf={folder / 'report.pdf'}", "--no-pdf-header-footer"
    )
    content = (folder / "report.pdf").read_bytes()
    assert content.startswith(b"%PDF") and 2 <= len(re.findall(rb"/Type\s*/Page\b", content)) <= 20
