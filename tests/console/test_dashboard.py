"""The dashboard in a real Chromium, on real brokers: states live, another console when one is gone,
5,000 queues, the keyboard, contrast, narrow, and without JavaScript.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from qpidha.client.admin import AdminLink
from tests.console.consoles import Console
from tests.patience import FACTOR, LONG_TEST, STATE
from tests.runtime.daemons import Running
from tests.system.cluster import wait_for

pytest.importorskip("playwright", reason="no playwright: pip install '.[dev]'")

from playwright.sync_api import Browser, Page, expect

from tests.chromium import CHROMIUM, MISSING
from tests.console.dashboards import Watched, browser, watched

pytestmark = [
    pytest.mark.system,
    pytest.mark.xdist_group("dashboard"),
    pytest.mark.timeout(LONG_TEST),
    pytest.mark.skipif(CHROMIUM is None, reason=MISSING),
]
MS = 1000 * STATE
expect.set_options(timeout=MS)
ODD = "odd/ name?&=%é <b>"
PATHS = (
    "/",
    "/queues",
    "/queues?match=q&sort=messages&order=up&size=50",
    "/queues/odd%2F%20name%3F%26%3D%25%C3%A9%20%3Cb%3E",
    "/queues/nothing",
    "/connections",
    "/policies",
    "/events",
    "/members/b1",
    "/members/b3",
)
MOVED = 20.0 * FACTOR
"""Seconds in which a page is to be at another console: on an idle machine it takes up to 5."""
DRAWN = 1.0
"""Seconds in which a page of 5,000 queues is to be there."""

# The contrast of all that can be read on a page, and of shapes: a text's own colour on the colours
# that lie below it, from the page's up.
CONTRAST = """() => {
  const parse = text => {
    const probe = text.match(/[\\d.]+/g).map(Number);
    if (text.startsWith("color(srgb")) for (const i of [0, 1, 2]) probe[i] *= 255;
    return probe.length < 4 ? [...probe, 1] : probe;
  };
  const over = (top, below) => [0, 1, 2].map(i => top[i] * top[3] + below[i] * (1 - top[3]));
  const ground = element => {
    const layers = [];
    for (let one = element; one; one = one.parentElement)
      layers.push(parse(getComputedStyle(one).backgroundColor));
    return layers.reduceRight((below, top) => over(top, below), [255, 255, 255]);
  };
  const light = colour => {
    const [r, g, b] = colour.map(v => v / 255)
      .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratio = (one, other) => {
    const [high, low] = [light(one), light(other)].sort((a, b) => b - a);
    return (high + 0.05) / (low + 0.05);
  };
  const found = [];
  const add = (what, colour, below, least) => {
    const value = ratio(over(parse(colour), below), below);
    found.push([Math.round(value * 100) / 100, least, what]);
  };
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const text = texts.currentNode.data.trim(), element = texts.currentNode.parentElement;
    if (!text || !element.getClientRects().length || element.closest("title, .unseen")) continue;
    const style = getComputedStyle(element);
    if (element.closest("svg")) {
      const bar = element.previousElementSibling;
      add(text, style.fill, parse(getComputedStyle(bar).fill), 4.5);
    } else add(text, style.color, ground(element), 4.5);
  }
  for (const shape of document.querySelectorAll(".shape .fill, .shape .stroke, .bar")) {
    const style = getComputedStyle(shape);
    const colour = style.fill === "none" ? style.stroke : style.fill;
    add(shape.getAttribute("class"), colour, ground(shape.closest("div, p, td, h1")), 3);
  }
  for (const box of document.querySelectorAll("input:not([type=hidden]), select"))
    add(box.name, getComputedStyle(box).borderTopColor, ground(box.parentElement), 3);
  for (const button of document.querySelectorAll("button"))
    add(button.textContent, getComputedStyle(button).color, ground(button), 4.5);
  const badge = document.querySelector(".verdict");
  if (!badge) return found;
  const style = getComputedStyle(badge, "::before");
  add(style.content, style.color, parse(style.backgroundColor), 4.5);
  return found;
}"""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as found:
        yield found


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    with watched(tmp_path_factory.mktemp("dashboard")) as found:
        first = found.cluster[0]
        for name in (ODD, "q1", "q2"):
            first.call("declare_queue", name=name)
        first.call("set_policy", name="all", pattern=".*", definition={"max-length": 1000})
        first.call("bind", exchange="amq.topic", queue=ODD, key="a.#")
        yield found


@pytest.fixture
def page(chromium: Browser) -> Iterator[Page]:
    found = chromium.new_page(viewport={"width": 1400, "height": 900})
    found.set_default_timeout(MS)
    yield found
    found.close()


def card(page: Page, name: str) -> Any:
    return page.locator(".card", has=page.get_by_role("heading", name=name, exact=True))


def live(page: Page, address: str) -> None:
    """Open a page and wait until it keeps itself new."""
    page.goto(address)
    page.locator("body.is-live").wait_for()


@pytest.mark.parametrize("path", PATHS)
def test_a_page_is_whole_on_wide_and_narrow_screens_and_nobody_complains(
    run: Watched, page: Page, path: str
) -> None:
    complaints: list[str] = []
    page.on("console", lambda said: complaints.append(said.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    answers: dict[str, int] = {}
    page.on("response", lambda answer: answers.update({answer.url: answer.status}))
    live(page, run.address(0) + path)
    for width in (1400, 800, 400, 320):
        page.set_viewport_size({"width": width, "height": 800})
        size = page.evaluate(
            "() => [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
        )
        assert size == [width, width], (path, size)
        cut = page.evaluate(
            """() => [...document.querySelectorAll("main *, header *")].filter(e =>
              e.getClientRects().length && !e.closest(".unseen, svg")
              && e.getBoundingClientRect().right > document.documentElement.clientWidth + 1
            ).map(e => e.outerHTML.slice(0, 100))"""
        )
        assert width < 800 or cut == []
    assert page.locator("h1").count() == 1
    expect(page.locator(".verdict")).to_contain_text("3 brokers, b1 active, 2 of 2 backups ready")
    # On a machine with much to do an answer may be late, and be asked for again, also elsewhere.
    loud = [text for text in complaints if not re.search(r"Failed to load|Timeout|ERR_", text)]
    assert loud == []
    ours = tuple(run.address(number) + "/" for number in range(3))
    assert [url for url in asked if not url.startswith(ours)] == []
    assert [status for url, status in answers.items() if "/static/" in url] == [200] * 3


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everything_can_be_read(run: Watched, page: Page, scheme: Any) -> None:
    page.emulate_media(color_scheme=scheme)
    seen = set()
    for path in PATHS:
        page.goto(run.address(0) + path)
        found = page.evaluate(CONTRAST)
        assert len(found) > 20
        assert [row for row in found if row[0] < row[1]] == [], path
        seen |= {row[1] for row in found}
    assert seen == {3, 4.5}


def test_what_cannot_be_read_would_be_found(run: Watched, page: Page) -> None:
    page.goto(run.address(0) + "/queues")
    # In one go, as the page becomes new in between.
    pale = "document.querySelector('main p').style.color = '#aaa'"
    found = page.evaluate(f"() => {{ {pale}; return ({CONTRAST})(); }}")
    assert [row for row in found if row[0] < row[1]] != []


def test_a_script_or_a_style_in_a_page_does_nothing(run: Watched, page: Page) -> None:
    live(page, run.address(0) + "/queues/" + PATHS[3].rpartition("/")[2])
    expect(page.locator("h1")).to_have_text(ODD)
    assert page.locator("h1 b").count() == 0
    page.evaluate(
        """() => {
          const script = document.createElement("script");
          script.textContent = "window.hurt = true";
          document.body.append(script);
          document.body.insertAdjacentHTML("beforeend", "<img src=x onerror='window.hurt = true'>");
        }"""
    )
    page.wait_for_function("() => document.images.length > 1 && document.images[1].complete")
    assert page.evaluate("() => window.hurt") is None


def test_all_can_be_done_by_the_keyboard(run: Watched, page: Page) -> None:
    live(page, run.address(0) + "/queues")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    expect(page.locator(".skip")).to_be_in_viewport()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    reached = []
    while "q1" not in reached:
        page.keyboard.press("Tab")
        label, outline = page.evaluate(
            """() => [document.activeElement.name || document.activeElement.textContent.trim(),
                      getComputedStyle(document.activeElement).outlineStyle]"""
        )
        reached.append(label)
        assert outline == "solid", f"{label} does not show that it has the focus"
        assert len(reached) < 40, reached
    assert {"match", "sort", "size", "Show", "Messages"} <= set(reached)
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("q1")
    page.goto(run.address(0) + "/queues")
    page.get_by_label("Name contains").focus()
    page.keyboard.type("q2")
    page.keyboard.press("Enter")
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.locator("tbody tr th")).to_have_text("q2")


def test_what_somebody_does_stays_while_the_page_becomes_new(run: Watched, page: Page) -> None:
    live(page, run.address(0) + "/queues")
    page.get_by_label("Name contains").fill("half a na")
    page.get_by_role("link", name="q1").focus()
    page.evaluate("() => { window.same = true }")
    before = page.locator("#seen").inner_text()
    run.cluster[0].call("declare_queue", name="q0-new")
    expect(page.locator("tbody")).to_contain_text("q0-new")
    assert page.locator("#seen").inner_text() != before
    assert page.evaluate("document.activeElement.textContent") == "q1"
    assert page.get_by_label("Name contains").input_value() == "half a na"
    assert page.evaluate("window.same") is True, "it was loaded anew"
    run.cluster[0].call("delete_queue", name="q0-new")
    expect(page.locator("tbody")).not_to_contain_text("q0-new")
    names = page.locator("tbody th").all_inner_texts()
    assert names == [ODD, "q1", "q2"]


def test_states_are_live(run: Watched, page: Page) -> None:
    live(page, run.address(0) + "/")
    page.evaluate("() => { window.same = true }")
    expect(card(page, "b3").locator(".state")).to_have_text("ready")
    run.cluster[2].kill()
    expect(card(page, "b3").locator(".state")).to_have_text("unreachable")
    expect(page.locator(".line")).to_have_class("line is-wary")
    expect(page.locator(".troubles")).to_contain_text("b3 is unreachable")
    run.cluster[2].restart()
    expect(card(page, "b3").locator(".state")).to_have_text("ready")
    expect(page.locator(".line")).to_have_class("line is-good")
    assert page.evaluate("window.same") is True
    page.goto(run.address(0) + "/events")
    lane = page.locator(".lane", has_text="b3").locator(".lane-bar")
    assert "unreachable for" in (lane.get_attribute("aria-label") or "")


@pytest.mark.parametrize("left", ["%", "broker not-an-address", "broker https://evil.example"])
def test_an_address_that_somebody_made_up_says_nothing(run: Watched, page: Page, left: str) -> None:
    """It would be believed: what stands there is of the page that one comes from."""
    live(page, f"{run.address(0)}/#left={left if left == '%' else quote(left)}")
    expect(page.locator("#notices")).to_have_text("")


def test_all_is_there_without_javascript(run: Watched, chromium: Browser) -> None:
    with chromium.new_context(java_script_enabled=False) as context:
        page = context.new_page()
        page.set_default_timeout(MS)
        loads: list[str] = []
        page.on(
            "request", lambda asked: loads.append(asked.url) if "/static" not in asked.url else 0
        )
        page.goto(run.address(0) + "/")
        expect(card(page, "b1").locator(".state")).to_have_text("active")
        expect(page.locator("#seen")).to_contain_text("every 5 s")
        wait_for(lambda: (page.wait_for_timeout(100), len(loads))[1], (2).__le__)
        page.get_by_role("link", name="Queues", exact=True).click()
        page.get_by_label("Name contains").fill("q")
        page.get_by_label("Order").select_option("name")
        page.get_by_role("button", name="Show").click()
        expect(page.locator("tbody th")).to_have_text(["q1", "q2"])
        page.get_by_role("link", name="Messages").click()
        assert "sort=messages" in page.url and "match=q" in page.url
        page.get_by_role("link", name="q1").click()
        expect(page.locator("h1")).to_have_text("q1")
        there = run.address(1)
        page.get_by_role("link", name=there.partition("//")[2]).click()
        assert page.url == f"{there}/queues/q1"
        expect(page.locator(".facts")).to_contain_text("b2, ready")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_who_logs_in_can_hand_over_by_the_keyboard(page: Page, tmp_path: Path, scheme: Any) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("administrator administrator-0123456789 ann\n")
    tokens.chmod(0o600)

    def can_be_read() -> None:
        assert [row for row in page.evaluate(CONTRAST) if row[0] < row[1]] == []

    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": 400, "height": 800})
    with watched(tmp_path, 2, "--token-file", tokens) as run:
        page.goto(run.address(0) + "/")
        assert page.evaluate("document.activeElement.name") == "token"
        can_be_read()
        page.keyboard.type("not a token that is known")
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_contain_text("not known")
        can_be_read()
        page.keyboard.type("administrator-0123456789")
        page.keyboard.press("Enter")
        page.get_by_role("link", name="Hand over to b2").focus()
        page.keyboard.press("Enter")
        expect(page.locator(".plan").first).to_contain_text(f"({run.cluster[1].address})")
        expect(page.locator(".plan tbody")).to_contain_text("is the primary")
        can_be_read()
        page.get_by_role("button", name="Hand over").focus()
        page.keyboard.press("Enter")
        expect(page.locator("h1")).to_have_text("Done: hand over")
        page.get_by_role("link", name="Go on").focus()
        page.keyboard.press("Enter")
        expect(card(page, "b2").locator(".state")).to_have_text("active")
        expect(page.locator(".verdict")).to_contain_text("b2 active, 1 of 1 backup ready")
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width == 400
        page.get_by_role("button", name="Log out").click()
        expect(page.locator("h1")).to_have_text("Log in")


async def declare(path: str, count: int) -> None:
    link = await AdminLink.open(path)
    for first in range(0, count, 500):
        given = [{"name": f"queue-{first + number:05}"} for number in range(500)]
        calls = [link.call("declare_queue", one, timeout=STATE) for one in given]
        await asyncio.gather(*calls)
    link.close()


def test_5000_queues_are_there_in_a_second(page: Page, tmp_path: Path) -> None:
    with Running("--data-dir", tmp_path) as _, Console("--data-dir", tmp_path) as console:
        with ThreadPoolExecutor(1) as apart:  # Here runs a loop of Playwright's.
            apart.submit(asyncio.run, declare(str(tmp_path / "admin.sock"), 5000)).result()
        address = f"http://127.0.0.1:{console.port}/queues"
        times = []
        for turn in range(30):
            begun = time.monotonic()
            page.goto(f"{address}?page={turn + 1}&sort=name")
            expect(page.locator("tbody tr")).to_have_count(100)
            times.append(round(time.monotonic() - begun, 3))
            first = page.locator("tbody th").first
            expect(first).to_have_text(f"queue-{100 * turn:05}")
            if times[-1] < DRAWN:
                break
        print(f"seconds: {times}")
        assert min(times) < DRAWN, times
        expect(page.locator("main")).to_contain_text("of 5,000 queues")
        page.get_by_role("link", name="Last").click()
        expect(page.locator("tbody th").last).to_have_text("queue-04999")


def test_a_page_goes_on_elsewhere_when_its_broker_or_console_is_gone(
    page: Page, tmp_path: Path
) -> None:
    with watched(tmp_path) as run:
        path = "/queues?match=q&sort=name"
        run.cluster[0].call("declare_queue", name="q1")
        live(page, run.address(0) + path)

        run.cluster[0].kill()
        begun = time.monotonic()
        page.wait_for_url(lambda url: not url.startswith(run.address(0)))
        page.locator("#notices p").wait_for()
        assert time.monotonic() - begun < MOVED
        expect(page.locator("#notices")).to_contain_text("The broker of the console at")
        expect(page.locator("#notices")).to_contain_text(run.address(0).partition("//")[2])
        assert page.url.endswith(path)
        run.cluster[1].promote()
        expect(page.locator(".verdict")).to_contain_text("b2 active, 1 of 2 backups ready")
        expect(page.locator("tbody th")).to_have_text("q1")

        page.goto(run.address(1) + "/")
        page.locator("body.is-live").wait_for()
        run.consoles[1].process.kill()
        begun = time.monotonic()
        page.wait_for_url(lambda url: url.startswith(run.address(2)))
        page.locator("#notices p").wait_for()
        assert time.monotonic() - begun < MOVED
        expect(page.locator("#notices")).to_contain_text("The console at")

        run.consoles[0].process.kill()
        run.consoles[2].process.kill()
        page.locator("body.is-stale").wait_for()
        expect(page.locator("#notices")).to_contain_text("What stands here is old")
        socket = run.cluster[2].admin_socket
        with Console("--admin-socket", socket, port=run.consoles[2].port):
            page.locator("body.is-live").wait_for()
            expect(page.locator("#notices p")).to_have_count(0)


def test_a_page_moves_to_the_new_primary_when_the_old_one_hangs(page: Page, tmp_path: Path) -> None:
    """A broker that is stopped has its process, its socket and its console still."""
    with watched(tmp_path) as run:
        run.cluster[0].call("declare_queue", name="q1")
        live(page, run.address(0) + "/queues")
        expect(page.locator(".verdict")).to_contain_text("b1 active, 2 of 2 backups ready")
        run.cluster[0].stop()
        try:
            page.wait_for_url(lambda url: not url.startswith(run.address(0)))
            expect(page.locator("#notices")).to_contain_text(run.address(0).partition("//")[2])
            run.cluster[1].promote()
            expect(page.locator(".verdict")).to_contain_text("b2 active, 1 of 2 backups ready")
            assert page.url in (run.address(1) + "/queues", run.address(2) + "/queues")
            expect(page.locator("tbody th")).to_have_text("q1")
        finally:
            run.cluster[0].cont()
        expect(page.locator(".verdict")).to_contain_text("b2 active, 2 of 2 backups ready")
