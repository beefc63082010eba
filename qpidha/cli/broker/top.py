"""`top`: what a cluster does, again and again: its brokers, how many messages come and go, and the
queues with most to do.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Annotated, Any

import typer

from qpidha.cli.app import settings_of
from qpidha.cli.broker.observe import ClusterLook, look_at_cluster, print_cluster
from qpidha.cli.screen import watch
from qpidha.client.command.arguments import WATCH_SECONDS, Options
from qpidha.client.command.ask import ask
from qpidha.client.command.exits import Failure
from qpidha.client.command.output import EPILOG, print_json, print_table
from qpidha.model.exit_codes import USAGE

FIELDS = ("name", "messages", "unreplicated", "consumers", "acquired", "enqueued", "dequeued")
COLUMNS = ("name", "in", "out", "messages", "unreplicated", "consumers", "acquired")
HEADS = ("QUEUE", "IN/S", "OUT/S", "MESSAGES", "UNREPLICATED", "CONSUMERS", "ACQUIRED")
ORDERS = ("rate", *COLUMNS[1:])
"""What --by takes."""
RATES = {"in": "enqueued", "out": "dequeued"}
"""What is shown for each second -> the total that it is the difference of."""
QUEUES = 20


def add(app: typer.Typer) -> None:
    """Put the command into the tree."""
    app.command("top", epilog=EPILOG)(_top)


def _top(
    context: typer.Context,
    by: Annotated[str, typer.Option(help=f"which queues come first: {', '.join(ORDERS)}")] = "rate",
    queues: Annotated[int, typer.Option(help="how many queues", min=0)] = QUEUES,
    count: Annotated[
        int, typer.Option("-n", "--count", help="end after so many looks; 0 is never", min=0)
    ] = 0,
) -> None:
    """Show what a cluster does, every two seconds: brokers, rates, and the busiest queues.

    IN/S and OUT/S count messages that came and that left for good, since the look before. --watch=5
    looks every five seconds. Where there is no terminal the looks stand one below the other; with
    -o json each is an object on a line. On a terminal q leaves.

    Example: qpid-ha top --by messages
    """
    options = settings_of(context)
    if by not in ORDERS:
        near = get_close_matches(by, ORDERS, 1)
        hint = f"did you mean {near[0]}?" if near else f"--by with one of {', '.join(ORDERS)}"
        raise Failure(USAGE, f"--by {by}: queues have no {by}", hint=hint)
    top = Top(options, by, queues)
    seconds = WATCH_SECONDS if options.watch is None else options.watch
    raise typer.Exit(watch(options, "qpid-ha top", top.look, seconds=seconds, count=count))


class Top:
    """Looks at a cluster, and knows what it saw the last time."""

    def __init__(self, options: Options, by: str, queues: int) -> None:
        self._options = options
        self._by = by
        self._most = queues
        self._at = 0.0
        self._who = ""
        """The broker whose totals these are: another one begins at 0."""
        self._totals: Mapping[str, Any] = {}
        self._of_queues: dict[str, Mapping[str, Any]] = {}

    def look(self) -> None:
        """Look once, and print what there is to see."""
        options = self._options
        seen = look_at_cluster(options)
        totals, queues = self._ask(seen)
        if options.as_json:
            document = {"schema_version": 1, **seen.about, "brokers": seen.rows}
            print_json({**document, "totals": totals, "queues": queues})
            return
        print_cluster(options, seen)
        if totals:
            print(f"\n{_line(totals)}")
        if queues:
            print_table(HEADS, [[row[column] for column in COLUMNS] for row in queues])

    def _ask(self, seen: ClusterLook) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Ask the primary, or a broker alone, for its totals and queues; nothing without one."""
        primary, brokers = seen.primary, seen.brokers
        if primary is None and seen.newest["state"] != "standalone":
            return {}, []
        target = brokers.target(str((primary or seen.newest).get("address", "")))
        totals = ask(self._options, "statistics", target=target)
        totals["dequeued"] = sum(totals["departures"].values())
        asked = {"fields": " ".join(FIELDS)}
        rows = ask(self._options, "list_queues", asked, target=target)
        now, who = time.monotonic(), str(totals.get("name"))
        past = now - self._at if who == self._who else 0.0
        found = [row | _rates(row, self._of_queues.get(row["name"]), past) for row in rows]
        known = totals | _rates(totals, self._totals, past)
        self._at, self._who, self._totals = now, who, totals
        self._of_queues = {row["name"]: row for row in rows}
        found.sort(key=lambda row: str(row["name"]))
        found.sort(key=self._order, reverse=True)
        return known, found[: self._most]

    def _order(self, row: Mapping[str, Any]) -> tuple[float, float]:
        rate = (row["in"] or 0) + (row["out"] or 0)
        return (rate if self._by == "rate" else row[self._by] or 0, row["messages"])


def _rates(
    now: Mapping[str, Any], before: Mapping[str, Any] | None, seconds: float
) -> dict[str, int | None]:
    """Return how many messages came and left in a second; None where that is not known."""
    if not before or seconds <= 0:
        return dict.fromkeys(RATES)
    gone = {name: now[total] - before[total] for name, total in RATES.items()}
    return {name: round(count / seconds) if count >= 0 else None for name, count in gone.items()}


def _line(totals: Mapping[str, Any]) -> str:
    """Say in a line what there is in all."""
    clients = totals["connections"]["client"]
    rates = [
        f"{name} {'-' if totals[name] is None else format(totals[name], ',')}/s" for name in RATES
    ]
    counts = [
        f"{text} {totals[name]:,}"
        for text, name in (
            ("messages", "messages"),
            ("bytes", "bytes"),
            ("unsafe queues", "unsafe_queues"),
            ("queues", "queues"),
            ("consumers", "consumers"),
        )
    ]
    return "   ".join([*rates, *counts, f"clients {clients:,}"])
