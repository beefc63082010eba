"""Events over HTTP: as a stream of server-sent events, and as a list of those that are kept.

A stream is a connection for as long as its client likes, so there are `MOST_STREAMS` at most; other
connections are left for health checks.
Source: https://html.spec.whatwg.org/multipage/server-sent-events.html.
"""

from __future__ import annotations

import json
import time
from typing import Annotated

from fastapi import FastAPI, Query, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from qpidha.console.events import KINDS, Wanted
from qpidha.console.problems import Problem, problem_answer
from qpidha.console.resources import LONGEST_PAGE, PAGE, link_to
from qpidha.console.watchers import API, Broker, Watchers, on_get
from qpidha.model.duration import SECOND, parse_duration

MOST_STREAMS = 100
"""Clients that may follow at a time."""
MEDIA_TYPE = "text/event-stream"
Kind = Annotated[
    str, Query(description="kinds of events, with commas between; all without it", max_length=200)
]
After = Annotated[str, Query(description="those behind the event of this id", max_length=64)]


class EventStream(StreamingResponse):
    """A stream to one client, if there are not too many already."""

    media_type = MEDIA_TYPE
    open = 0
    """Streams that there are now."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream until the client goes."""
        if EventStream.open >= MOST_STREAMS:
            hint = "try again later, or read /api/v1/history"
            headers = {"retry-after": "10"}
            text = f"{MOST_STREAMS} clients follow the events already"
            await problem_answer(Problem(503, text, hint=hint, headers=headers))(
                scope, receive, send
            )
            return
        EventStream.open += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            EventStream.open -= 1


def add_events(app: FastAPI, watchers: Watchers) -> None:
    """Add the paths of events to the application."""
    _add_stream(app, watchers)
    _add_history(app, watchers)


def _add_stream(app: FastAPI, watchers: Watchers) -> None:
    async def answer(
        request: Request, broker: Broker = "", kind: Kind = "", after: After = ""
    ) -> Response:
        wanted = _wanted(watchers, kind, broker)
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        if request.method == "HEAD":
            return Response(media_type=MEDIA_TYPE, headers=headers)
        last = request.headers.get("last-event-id", "") or after
        return EventStream(watchers.events.stream(last, wanted), headers=headers)

    on_get(
        app,
        f"{API}/events",
        answer,
        summary="What happens to the brokers from now on, as server-sent events",
        responses={200: {"description": "events", "content": {MEDIA_TYPE: {}}}},
        tags=["api"],
    )


def _add_history(app: FastAPI, watchers: Watchers) -> None:
    events = watchers.events

    async def answer(
        broker: Broker = "",
        kind: Kind = "",
        after: After = "",
        since: Annotated[str, Query(description="those of the last 2h, 10m or 30s")] = "",
        limit: Annotated[int, Query(description="events of a page", ge=1, le=LONGEST_PAGE)] = PAGE,
    ) -> Response:
        wanted = _wanted(watchers, kind, broker)
        try:
            earliest = time.time() - parse_duration(since) / SECOND if since else 0.0
        except ValueError as error:
            raise Problem(400, f"since={since}: {error}", hint="since=2h or since=90s") from None
        number = events.number_of(after) if after else 0
        if number is None:
            text = f"after={after}: it is not known here which events came after that one"
            raise Problem(410, text, hint="leave it out")
        found = [
            (each, event)
            for each, event in events.recent.after(number, events.recent.last)
            if event.at >= earliest and wanted.has(event)
        ]
        items = [
            {"id": events.id_of(each), "event": event.name, **json.loads(event.data)}
            for each, event in found[:limit]
        ]
        given = {"kind": kind, "since": since, "limit": limit}
        more = {name: value for name, value in given.items() if value}
        if items:
            more["after"] = items[-1]["id"]
        return JSONResponse(
            {
                "items": items,
                "next": link_to(f"{API}/history", more, broker) if len(found) > limit else None,
                "last": events.last,
                "missed": number < events.recent.dropped,
            }
        )

    on_get(
        app,
        f"{API}/history",
        answer,
        summary="What happened to the brokers, the oldest first, as far as it is kept",
        tags=["api"],
    )


def _wanted(watchers: Watchers, kind: str, broker: str) -> Wanted:
    place = watchers.chosen(broker).place if broker else ""
    kinds = kind.replace(",", " ").split()
    for each in kinds:
        if each not in KINDS:
            hint = f"kinds: {', '.join(KINDS)}"
            raise Problem(400, f"there is no kind {each} of events", hint=hint)
    return Wanted(frozenset(kinds), place)
