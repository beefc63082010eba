"""Pictures of every page of the dashboard: `python -m tests.console.screenshots FOLDER`.

A cluster of three with queues, clients and policies is made, its primary is killed under load, and
another takes over; then each page is taken at 1,400 and 400 pixels, in light and some in dark.
Those of docs/dashboard.md are written, too, with few colours, to be small. Needs Chromium, and
Pillow, which comes with the extra `data`.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page

from tests.console.dashboards import Watched, browser, watched
from tests.system.clients import connect, send
from tests.system.cluster import Broker
from tests.system.failover_clients import FailoverReceiver, FailoverSender

DOCS = Path(__file__).parents[2] / "docs"
TOKEN = "administrator-0123456789"
WIDTHS = (1400, 400)
QUEUES = (
    "orders.eu",
    "orders.us",
    "orders.asia",
    "invoices",
    "invoices.retry",
    "mail.outgoing",
    "audit.trail.of.everything.that.was.changed.by.anybody",
    "telemetry",
    "thumbnails",
)


def fill(broker: Broker) -> None:
    """Declare queues and policies, and send some messages."""
    for name in QUEUES:
        level = "none" if name == "telemetry" else "all"
        arguments = {"qpid.replicate": level}
        broker.call("declare_queue", name=name, durable=name != "thumbnails", arguments=arguments)
    for number in range(240):
        broker.call("declare_queue", name=f"tenant-{number:03}.jobs", arguments={})
    for name, pattern, priority, definition in (
        ("limits", "^tenant-", 10, {"max-length": 10_000, "overflow": "reject-publish"}),
        ("retention", "^audit", 20, {"message-ttl": 86_400_000}),
        ("everything", ".*", 0, {"max-length": 1_000_000}),
    ):
        given = {"pattern": pattern, "priority": priority, "definition": definition}
        broker.call("set_policy", name=name, **given)
    cap = {"max-length-bytes": 1 << 30}
    broker.call("set_operator_policy", name="cap", pattern=".*", priority=1, definition=cap)
    broker.call("bind", exchange="amq.topic", queue="orders.eu", key="orders.eu.#")
    for number, name in enumerate(QUEUES[:6]):
        send(
            broker, name, [f"{name} {count} " + 200 * "x" for count in range(7 * (6 - number) ** 2)]
        )


def take(page: Page, folder: Path, address: str, broker: str) -> None:
    """Take all pages of a console."""
    pages = {
        "overview": "/",
        "queues": "/queues",
        "search": "/queues?match=tenant&sort=name&size=50&page=2",
        "queue": "/queues/orders.eu",
        "connections": "/connections",
        "policies": "/policies",
        "events": "/events?window=10m",
        "member": f"/members/{broker}",
        "nothing": "/queues/nothing",
        "plan": "/do/switchover",
    }
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        for name, path in pages.items():
            page.goto(address + path)
            if name != "plan":  # It stays as it is.
                page.locator("body.is-live").wait_for()
            page.screenshot(path=folder / f"{name}-{width}.png", full_page=True)
    page.emulate_media(color_scheme="dark")
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        for name in ("overview", "queues", "events"):
            page.goto(address + pages[name])
            page.locator("body.is-live").wait_for()
            page.screenshot(path=folder / f"{name}-dark-{width}.png", full_page=True)


def take_for_documents(page: Page, folder: Path, address: str) -> None:
    """Take the pictures of docs/dashboard.md."""
    for name, path, scheme, width, height in (
        ("dashboard", "/", "light", 1100, 1000),
        ("dashboard-narrow", "/", "light", 400, 800),
        ("dashboard-events", "/events?window=10m", "dark", 900, 720),
    ):
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": height})
        page.goto(address + path)
        page.locator("body.is-live").wait_for()
        whole = folder / f"{name}.png"
        page.screenshot(path=whole)
        few = Image.open(whole).convert("RGB").quantize(64, dither=Image.Dither.NONE)
        few.save(DOCS / whole.name, optimize=True)


def play(run: Watched, folder: Path) -> None:
    """Let something happen, and take pictures of it."""
    cluster = run.cluster
    fill(cluster[0])
    with (
        FailoverSender(cluster.addresses, "orders.us", rate=8, tick=0.1) as sender,
        FailoverReceiver(cluster.addresses, "orders.us") as receiver,
    ):
        receiver.wait_received(lambda received: len(received) > 1000)
        cluster[0].kill()
        time.sleep(3)
        cluster[1].promote()
        cluster[1].wait_state("active", "recovering")
        before = len(sender.accepted)
        sender.wait_accepted(before + 800)
        clients = [connect(cluster[1], container_id=f"billing-{n}") for n in range(3)]
        with browser() as chromium:
            page = chromium.new_page()
            page.goto(run.address(1) + "/")
            page.screenshot(path=folder / "login-1400.png")
            page.get_by_label("Token").fill(TOKEN)
            page.keyboard.press("Enter")
            page.locator("body.is-live").wait_for()
            take(page, folder, run.address(1), "b2")
            take_for_documents(page, folder, run.address(1))
            page.emulate_media(color_scheme="light")
            page.set_viewport_size({"width": 1400, "height": 900})
            page.goto(run.address(0) + "/")
            page.wait_for_url(lambda url: not url.startswith(run.address(0)))
            page.locator("#notices p").wait_for()
            page.screenshot(path=folder / "moved-1400.png", full_page=True)
        for client in clients:
            client.close()


def main() -> None:
    """Take them."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        tokens = Path(place) / "tokens"
        tokens.write_text(f"administrator {TOKEN} ann\n")
        tokens.chmod(0o600)
        with watched(Path(place), 3, "--token-file", tokens) as run:
            play(run, folder)


if __name__ == "__main__":
    main()
