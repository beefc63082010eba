"""Commands that tell what happened: events of all brokers, and the history of their primaries."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from queue import Empty, SimpleQueue
from typing import Annotated, Any

import typer

from qpidha.cli.app import settings_of
from qpidha.client.command.arguments import Options
from qpidha.client.command.ask import Brokers, connect
from qpidha.client.command.exits import Failure
from qpidha.client.command.output import EPILOG, Listing, print_list, talk
from qpidha.client.command.streams import reader_is_gone
from qpidha.model.duration import parse_duration
from qpidha.model.event_log import SHOWN, STORY
from qpidha.model.exit_codes import USAGE
from qpidha.model.printable import printable
from qpidha.model.promotions import promotions

FOLLOW_SECONDS = 0.5
"""Between two questions of `events --follow` to one broker."""
AWAY_SECONDS = 1.0
"""Between two attempts to reach one that is gone."""
LAST = 50


def _time(row: Mapping[str, Any], column: str = "at_ns") -> str:
    at = datetime.fromtimestamp(row[column] / 1e9, UTC)
    return f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1000:03}Z"


def _seconds(column: str) -> Any:
    return lambda row: None if row[column] is None else f"{row[column] / 1e9:.3f}s"


EVENTS = Listing(
    "events",
    ("at_ns", "broker", "kind", "text"),
    key="",
    cells={"at_ns": _time},
    heads={"at_ns": "TIME"},
)
HISTORY = Listing(
    "promotions",
    ("epoch", "when_ns", "from", "to", "cause", "away_ns", "promotion_ns"),
    key="epoch",
    cells={
        "when_ns": lambda row: _time(row, "when_ns"),
        "away_ns": _seconds("away_ns"),
        "promotion_ns": _seconds("promotion_ns"),
    },
    heads={"when_ns": "WHEN", "away_ns": "AWAY", "promotion_ns": "PROMOTION"},
)
Since = Annotated[
    str, typer.Option(metavar="TIME", help="only what is no older, such as 10m, 24h or 7d")
]


def add(app: typer.Typer) -> None:
    """Put the commands into the tree."""
    app.command("events", epilog=EPILOG)(_events)
    app.command("history", epilog=EPILOG)(_history)


def _events(
    context: typer.Context,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="go on with what happens, until interrupted")
    ] = False,
    kinds: Annotated[
        str,
        typer.Option(
            "--type", metavar="KINDS", help=f"only these, with commas: {', '.join(SHOWN)}"
        ),
    ] = "",
    since: Since = "",
    last: Annotated[
        int, typer.Option("-n", "--last", help="how many of the last ones; 0 is all", min=0)
    ] = LAST,
) -> None:
    """Show what happened in the life of all brokers of a cluster, oldest first.

    Each broker keeps some thousand events: states, promotions, other brokers that come and go,
    clients, queues, limits, errors. The times are those of the brokers' clocks. With --follow it
    goes on when brokers go and come back.

    Example: qpid-ha events --follow --type role,member,conn
    """
    options = settings_of(context)
    wanted = _kinds(kinds)
    if follow and (options.as_json or options.sort or options.watch is not None):
        given = "-o json" if options.as_json else "--sort" if options.sort else "--watch"
        raise Failure(USAGE, f"{given} does not go with --follow", hint="-o jsonl, or without it")
    brokers = Brokers.find(options)
    answers = _ask(options, brokers, {"kinds": " ".join(wanted)})
    rows = _rows(answers)
    begin = _begin(since)
    shown = [row for row in rows if row["at_ns"] >= begin]
    shown = shown[-last:] if last else shown
    if not follow:
        print_list(options, EVENTS, shown)
        if not shown and options.as_table:
            talk(options, "no events")
        return
    _follow(options, brokers, wanted, answers, shown)


def _history(context: typer.Context, since: Since = "") -> None:
    """Show which broker was primary in which epoch, and why it changed; the newest first.

    AWAY is the time from when the former primary was missed, or stepped down, to when the new one
    was active; PROMOTION that from the request. The times are those of the brokers' clocks. It is
    made of what all brokers that answer remember: some hundred events each, also of before their
    last start.

    Example: qpid-ha history --since 7d
    """
    options = settings_of(context)
    begin = _begin(since)
    answers = _ask(options, Brokers.find(options), {"kinds": " ".join(STORY)})
    told = {
        _name(address, answer): answer["events"]
        for address, answer in answers
        if not isinstance(answer, Failure)
    }
    rows = [row for row in promotions(told) if row["when_ns"] >= begin]
    print_list(options, HISTORY, rows)
    if not rows and options.as_table:
        talk(options, "no promotion is known")


def _kinds(text: str) -> list[str]:
    """Read a list of kinds. Raises Failure for one that there is not."""
    found = text.replace(",", " ").split()
    for kind in found:
        if kind not in SHOWN:
            near = get_close_matches(kind, SHOWN, 1)
            hint = f"did you mean {near[0]}?" if near else f"one of {', '.join(SHOWN)}"
            raise Failure(USAGE, f"there is no kind of events {kind!r}", hint=hint)
    return found


def _begin(since: str) -> int:
    """The time from which on events are shown, in ns since 1970."""
    if not since:
        return 0
    try:
        return time.time_ns() - parse_duration(since)
    except ValueError as error:
        raise Failure(
            USAGE, f"--since {since}: {error}", hint="a number and s, m, h or d: --since 24h"
        ) from error


def _ask(
    options: Options, brokers: Brokers, params: dict[str, Any]
) -> list[tuple[str, dict[str, Any] | Failure]]:
    """Ask all brokers for events; tell of those that do not answer. Raises Failure if none does."""
    answers = brokers.ask_each("events", params)
    failures = [(address, one) for address, one in answers if isinstance(one, Failure)]
    if len(failures) == len(answers):
        raise failures[0][1]
    for address, failure in failures:
        talk(options, f"{address} is not asked: {failure.explanation}")
    return answers


def _name(address: str, answer: Mapping[str, Any]) -> str:
    return str(answer.get("name") or address)


def _rows(answers: Sequence[tuple[str, Any]]) -> list[dict[str, Any]]:
    """Put the events of all brokers in the order of their times."""
    rows = [
        {"broker": _name(address, answer), **event}
        for address, answer in answers
        if not isinstance(answer, Failure)
        for event in answer["events"]
    ]
    return sorted(rows, key=lambda row: (row["at_ns"], row["broker"]))


def _follow(
    options: Options,
    brokers: Brokers,
    kinds: list[str],
    answers: Sequence[tuple[str, Any]],
    shown: list[dict[str, Any]],
) -> None:
    """Print what is known, and then what comes, whichever broker it comes from."""
    news: SimpleQueue[tuple[str, Any]] = SimpleQueue()
    options.may_ask = False
    names = [_name(address, answer) for address, answer in answers if isinstance(answer, dict)]
    width = max(map(len, names))
    _print_news(options, shown, width)
    options.no_headers = True
    now = time.time_ns()
    for address, answer in answers:
        last = now if isinstance(answer, Failure) else _last(answer)
        arguments = (options, brokers, address, kinds, last, news)
        threading.Thread(target=_read, args=arguments, daemon=True).start()
    while True:
        try:
            address, answer = news.get(timeout=AWAY_SECONDS)
        except Empty:
            if reader_is_gone():
                raise BrokenPipeError from None
            continue
        if isinstance(answer, Failure):
            talk(options, f"{address}: {answer.explanation}; going on with the others")
        else:
            _print_news(options, _rows([(address, answer)]), width)


def _print_news(options: Options, rows: list[dict[str, Any]], width: int) -> None:
    """Print events in lines that stand below each other, whichever come when."""
    if options.as_table:
        for row in rows:
            text = printable(f"{row['broker']:<{width}}  {row['kind']:<9}  {row['text']}")
            print(f"{_time(row)}  {text}")
    else:
        print_list(options, EVENTS, rows)
    sys.stdout.flush()


def _read(
    options: Options,
    brokers: Brokers,
    address: str,
    kinds: list[str],
    last: int,
    news: SimpleQueue[tuple[str, Any]],
) -> None:
    """Follow one broker for ever; a failure is told once."""
    is_told = False
    while True:
        try:
            link = connect(brokers.target(address), options)
            try:
                while True:
                    asked = {"kinds": " ".join(kinds), "after": last}
                    answer = link.call("events", asked)
                    is_told, last = False, max(last, _last(answer))
                    if answer["events"]:
                        news.put((address, answer))
                    time.sleep(FOLLOW_SECONDS)
            finally:
                link.close()
        except Failure as failure:
            if not is_told:
                news.put((address, failure))
            is_told = True
            time.sleep(AWAY_SECONDS)


def _last(answer: Mapping[str, Any]) -> int:
    """Where one goes on behind an answer: at 1, where there was nothing yet."""
    return max((event["at_ns"] for event in answer["events"]), default=1)
