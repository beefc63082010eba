"""The dashboard: pages for people, made on the server of what the brokers say.

A page is whole without JavaScript: links, forms and a reload. With it the module
`static/dashboard.js` fetches the same page again and puts in what is new, and goes to another
console when this one, or its broker, does not answer. Nothing of other hosts is loaded, and no
script or style stands in a page. Source: docs/dashboard.md.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any
from urllib.parse import quote, urlencode

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, Response
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.exceptions import HTTPException
from starlette.routing import Route

from qpidha.console.access import Token
from qpidha.console.actions import ACTIONS, Action, params_of
from qpidha.console.changing import carry_out, plan_of, who_asks
from qpidha.console.doorkeeper import demand
from qpidha.console.events import KINDS, LOG, MANY, STATE, Event
from qpidha.console.forms import read_form
from qpidha.console.history import UNKNOWN, History, Lane
from qpidha.console.looks import Look, NotAnswered, Watched
from qpidha.console.problems import HTTP_OF, Problem, other_error
from qpidha.console.queue_table import SIZES, SORTS, QueueTable
from qpidha.console.resources import LONGEST_PAGE, PATIENCE
from qpidha.console.watchers import Watchers, on_get
from qpidha.console.words import (
    age,
    ago,
    behind,
    clock,
    cluster_line,
    counted,
    instant,
    lag,
    listed,
    moment,
    number,
    rate,
    size,
    span,
    troubles,
    value,
)
from qpidha.model.broker_states import PRIMARY_STATES, UNREACHABLE
from qpidha.model.connection_kinds import kind_of_connection
from qpidha.model.errors import RefusedRequest

STATIC = files("qpidha.console").joinpath("static")
TYPES = {
    "dashboard.css": "text/css",
    "dashboard.js": "text/javascript",
    "mark.svg": "image/svg+xml",
}
"""Files of a page and their types."""
FILTERS: tuple[Callable[..., str], ...] = (
    age,
    ago,
    behind,
    clock,
    counted,
    instant,
    kind_of_connection,
    listed,
    moment,
    number,
    rate,
    size,
    span,
    value,
)
"""Functions that templates use."""
FEW = 10
"""Rows of a table on the overview."""
CONNECTIONS = 100
"""Connections of a page."""
WINDOWS = {
    "10m": (600, "10 min"),
    "1h": (3600, "1 hour"),
    "6h": (21600, "6 hours"),
    "all": (0, "all"),
}
"""What the timeline can show, in seconds; 0 is from the beginning."""
TICKS = 4
DO = "/do/"
"""Where actions are."""
KIND_GROUPS = {
    "cluster": ("the cluster", tuple({*KINDS} - {STATE, *MANY})),
    "links": ("links and replicas", ("federation", "replica")),
    "conn": ("clients", ("conn",)),
    "queue": ("queues", ("queue",)),
    "limit": ("limits and errors", ("limit", "error")),
    "all": ("all", KINDS),
}
"""What the list of events can show: how it is called, and kinds of events."""
MOST_EVENTS = 200
"""Events of the page."""


class NoSuchThing(Exception):
    """A page is asked for of what is not there."""

    def __init__(self, text: str, hint: str) -> None:
        super().__init__(text)
        self.hint = hint


@dataclass(slots=True)
class Kept:
    """What is kept of one broker between two pages."""

    table: QueueTable
    counted: tuple[float, int, int] | None = None
    """When statistics were taken, what had come to queues, and what had left them."""
    rates: tuple[float | None, float | None] = (None, None)


class Pages:
    """The pages of one console."""

    def __init__(self, watchers: Watchers, cluster: str, consoles: Sequence[str]) -> None:
        self._brokers = brokers = watchers.brokers
        self._told = watchers.events
        self._cluster = cluster
        self._consoles = tuple(consoles)
        self._kept = {broker.place: Kept(QueueTable(broker)) for broker in brokers}
        self._paths = {
            "/": self._overview,
            "/queues": self._queues,
            "/queues/{name:path}": self._queue,
            "/connections": self._connections,
            "/policies": self._policies,
            "/events": self._events,
            "/members/{name:path}": self._member,
            DO + "{name:path}": self._plan,
        }
        self._routes: list[Route] = []
        self._history = History(time.time())
        self._files = {name: STATIC.joinpath(name).read_bytes() for name in TYPES}
        whole = b"".join(self._files.values())
        self._digest = hashlib.sha256(whole).hexdigest()[:12]
        self._templates = Environment(
            loader=PackageLoader("qpidha.console"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters |= {each.__name__: each for each in FILTERS}
        self._templates.filters["in_path"] = lambda text: quote(text, safe="")
        self._headers = {
            "Cache-Control": "no-store",
            "Content-Security-Policy": "; ".join(
                (
                    "default-src 'none'",
                    "script-src 'self'",
                    "style-src 'self'",
                    "img-src 'self'",
                    " ".join(("connect-src 'self'", *self._consoles)),
                    "form-action 'self'",
                    "base-uri 'none'",
                    "frame-ancestors 'none'",
                )
            ),
            "Cross-Origin-Opener-Policy": "same-origin",
            # With no-referrer a form would not say from where it comes (its Origin would be null).
            "Referrer-Policy": "same-origin",
            "X-Content-Type-Options": "nosniff",
        }
        for broker in brokers:
            broker.heard.append(self._take)

    def _take(self, broker: Watched, look: Look) -> None:
        if look.status is not None or look.is_gone:
            self._history.take(broker.place, look, time.time())

    def add_to(self, app: FastAPI) -> None:
        """Let an application serve the pages."""
        for path, answer in self._paths.items():
            on_get(app, path, self._guarded(answer), include_in_schema=False)
        app.post(DO + "{name:path}", include_in_schema=False)(self._guarded(self._do))
        self._routes = [each for each in app.routes if isinstance(each, Route)]
        nothing = self._guarded(self._nothing)

        async def no_such_path(request: Request, error: HTTPException) -> Response:
            return await (nothing(request) if is_browser(request) else other_error(request, error))

        app.add_exception_handler(404, no_such_path)  # type: ignore[arg-type]

    def has(self, path: str) -> bool:
        """Whether a path is that of a page."""
        return path in self._paths or path.startswith(("/queues/", "/members/", DO))

    def is_nothing(self, path: str) -> bool:
        """Whether nothing at all is there: who opens it is told so by a page."""
        return not any(route.path_regex.match(path) for route in self._routes)

    def login(self, onward: str, *, has_tokens: bool, is_wrong: bool = False) -> Response:
        """Make the page that asks for a token, and goes on to another one."""
        context = {"onward": onward, "has_tokens": has_tokens, "is_wrong": is_wrong}
        return self.render("login.html", 403 if is_wrong else 200, context)

    async def file(self, name: str) -> Response:
        """Return a file that pages load."""
        if name not in self._files:
            return Response("there is no such file\n", 404, media_type="text/plain")
        headers = {
            "Cache-Control": "public, max-age=31536000, immutable",
            "X-Content-Type-Options": "nosniff",
        }
        return Response(self._files[name], media_type=TYPES[name], headers=headers)

    def _guarded(
        self, answer: Callable[[View], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        async def page(request: Request) -> Response:
            view = await self._view(request)
            try:
                return await answer(view)
            except NoSuchThing as error:
                return view.problem(404, str(error), error.hint)
            except NotAnswered as error:
                if error.is_open and request.method == "POST":
                    hint = "It may or may not have been done: look before you ask for it again."
                    return view.problem(504, error.reason, hint)
                return view.problem(503, error.reason, "The page tries again by itself.")
            except Problem as error:
                return view.problem(error.status, error.detail, error.hint)
            except RefusedRequest as error:
                status = HTTP_OF.get(error.condition, 409)
                return view.problem(status, error.explanation, error.hint)

        return page

    async def _view(self, request: Request) -> View:
        """Choose the broker that the page is of: the one that is named, else the primary, else one
        that answers.
        """
        asked = request.query_params.get("broker", "")
        ranked = sorted(self._brokers, key=_rank)
        named = [broker for broker in self._brokers if broker.is_called(asked)] if asked else []
        broker = (named or ranked)[0]
        view = View(self, request, broker, await broker.look(), asked if named else "")
        if asked and not named:
            view.notice = f"No broker {asked} is watched here: this is {view.look.name}."
        return view

    # The pages.

    async def _overview(self, view: View) -> Response:
        statistics, explained, queues = await asyncio.gather(
            view.statistics(), view.tried("explain"), view.top_queues()
        )
        return view.page(
            "overview.html",
            every=2,
            statistics=statistics,
            troubles=troubles(view.look, explained, statistics) if explained else [],
            queues=queues,
            failovers=self._history.failovers()[:FEW],
        )

    async def _queues(self, view: View) -> Response:
        sort = view.param("sort", "risk", tuple(SORTS))
        order = view.param("order", "down" if sort not in ("name",) else "up", ("up", "down"))
        rows = int(view.param("size", "100", tuple(map(str, SIZES))))
        match = view.query.get("match", "")
        page = view.query.get("page", "1")
        view.check()
        shown = await self._kept[view.broker.place].table.page(
            match=match,
            sort=sort,
            down=order == "down",
            page=int(page) if page.isdecimal() and len(page) < 9 else 1,
            size=rows,
        )
        await view.statistics()
        chosen = {"match": match, "sort": sort, "order": order, "size": str(rows)}
        return view.page(
            "queues.html", every=2, shown=shown, chosen=chosen, sorts=SORTS, sizes=SIZES
        )

    async def _queue(self, view: View) -> Response:
        name = view.path("name")
        found = await view.ask("list_queues", {"name": name})
        if not found:
            raise NoSuchThing(f"There is no queue “{name}”.", "The list of queues has them all.")
        policies, bindings = await asyncio.gather(
            view.ask("explain_policies", {"queue": name}),
            view.ask("list_bindings", {"queue": name}),
        )
        await view.statistics()
        return view.page(
            "queue.html", every=2, queue=found[0], policies=policies, bindings=bindings
        )

    async def _connections(self, view: View) -> Response:
        match, after = view.query.get("match", ""), view.query.get("after", "")
        params: dict[str, Any] = {"limit": LONGEST_PAGE}
        found: list[dict[str, Any]] = []
        if after.lstrip("-").isdecimal():
            params["after"] = after
        # What is looked for may be in any column; the broker finds ids only.
        while len(found) <= CONNECTIONS:
            some = await view.ask("list_connections", params)
            found += [each for each in some if _has(each, match)]
            if len(some) < LONGEST_PAGE:
                break
            params["after"] = str(some[-1]["id"])
        rows = found[:CONNECTIONS]
        more = str(rows[-1]["id"]) if len(found) > CONNECTIONS else ""
        statistics = await view.statistics()
        return view.page(
            "connections.html",
            every=2,
            connections=rows,
            match=match,
            after=after,
            more=more,
            statistics=statistics,
        )

    async def _policies(self, view: View) -> Response:
        policies, operators = await asyncio.gather(
            view.ask("list_policies"), view.ask("list_operator_policies")
        )
        await view.statistics()
        tables = (
            ("Policies", policies or [], "qpid-ha policy set NAME PATTERN KEY=VALUE"),
            ("Operator policies", operators or [], "qpid-ha operator-policy set"),
        )
        return view.page("policies.html", every=5, tables=tables)

    async def _events(self, view: View) -> Response:
        window = view.param("window", "1h", tuple(WINDOWS))
        now = time.time()
        length = WINDOWS[window][0]
        begin = max(self._history.began, now - length) if length else self._history.began
        kind = view.param("kind", "cluster", tuple(KIND_GROUPS))
        events = [
            (number, event, json.loads(event.data))
            for number, event in self._told.recent.after(0, self._told.recent.last)
            if event.name == LOG and event.at >= begin
        ]
        shown = [each for each in events if each[1].kind in KIND_GROUPS[kind][1]][::-1]
        await view.statistics()
        return view.page(
            "events.html",
            every=2,
            kind=kind,
            kinds=KIND_GROUPS,
            shown=shown[:MOST_EVENTS],
            found=len(shown),
            marks=self._marks([each[1:] for each in events], begin, now),
            accepted={
                told["epoch"]: event.at
                for _, event, told in events
                if event.kind == "failover" and told.get("what") == "accepted"
            },
            lanes=[self.lane(each, begin, now) for each in self._history.lanes.values()],
            ticks=[
                (100 * part / TICKS, begin + (now - begin) * part / TICKS)
                for part in range(TICKS + 1)
            ],
            window=window,
            windows=WINDOWS,
            began=self._history.began,
            failovers=self._history.failovers(),
            # What the console found when it began is no change.
            changes=[
                each
                for each in self._history.changes
                if each.at >= begin and (each.before or each.at > self._history.began + 2)
            ][::-1],
            name_of=self._history.name,
        )

    async def _member(self, view: View) -> Response:
        name = view.path("name")
        found = [each for each in view.members() if name in (each.name, each.address, each.key)]
        if not found:
            hint = "The overview has all brokers."
            raise NoSuchThing(f"The cluster has no broker “{name}”.", hint)
        member = found[0]
        is_seen = member.is_seen
        statistics = await view.statistics()
        explained = await view.tried("explain") if is_seen else None
        now = time.time()
        begin = max(self._history.began, now - 3600)
        lanes = [
            self.lane(each, begin, now)
            for each in self._history.lanes.values()
            if each.key == member.key
        ]
        return view.page(
            "member.html",
            every=2,
            member=member,
            statistics=statistics if is_seen else None,
            explained=explained,
            lanes=lanes,
            ticks=[(0, begin), (100, now)],
        )

    async def _nothing(self, view: View) -> Response:
        path = view.request.scope["path"]
        raise NoSuchThing(f"There is no page {path}.", "The links above lead to all pages.")

    async def _plan(self, view: View) -> Response:
        action, _ = view.action()
        params = params_of(action, view.query)
        plan = await plan_of(view.broker, action.change, params)
        await view.statistics()
        return view.page(
            "action.html", every=0, action=action, params=params, plan=plan, is_done=False
        )

    async def _do(self, view: View) -> Response:
        action, token = view.action()
        params = params_of(action, await read_form(view.request))
        who = who_asks(token, view.request)
        result = await carry_out(view.broker, action.change, params, who)
        view.look = await view.broker.look()
        await view.statistics()
        found = result if isinstance(result, dict) else {}
        return view.page(
            "action.html", every=0, action=action, params=params, result=found, is_done=True
        )

    def _marks(
        self, events: Sequence[tuple[Event, dict[str, Any]]], begin: float, now: float
    ) -> dict[str, list[dict[str, Any]]]:
        """Return what is marked on the lane of each broker that is watched: steps of failovers."""
        found: dict[str, list[dict[str, Any]]] = {}
        for event, told in events:
            if event.kind in ("promotion", "failover"):
                x = round(100 * (event.at - begin) / max(now - begin, 1e-9), 3)
                mark = {"x": x, "at": event.at, "text": told["text"]}
                found.setdefault(self._history.key_of(event.place), []).append(mark)
        return found

    # What several pages have.

    def lane(self, lane: Lane, begin: float, now: float) -> dict[str, Any]:
        """Return a lane of the timeline, in percent of its width."""
        whole = max(now - begin, 1e-9)
        spans = [
            {
                "x": round(100 * (each.begin - begin) / whole, 3),
                "width": round(100 * (each.end - each.begin) / whole, 3),
                "state": each.state,
                "epoch": each.epoch,
                "begin": each.begin,
                "seconds": each.end - each.begin,
            }
            for each in self._history.spans(lane.key, begin, now)
        ]
        about = {"key": lane.key, "name": lane.name}
        return {**about, "address": lane.address, "state": lane.state, "spans": spans}

    def kept(self, broker: Watched) -> Kept:
        """Return what is kept of a broker."""
        return self._kept[broker.place]

    @property
    def history(self) -> History:
        """What the console saw of all brokers."""
        return self._history

    def render(self, template: str, status: int, context: Mapping[str, Any]) -> Response:
        """Make a page."""
        text = self._templates.get_template(template).render(
            cluster=self._cluster,
            consoles=self._consoles,
            brokers=self._brokers,
            digest=self._digest,
            now=time.time(),
            **context,
        )
        return HTMLResponse(text, status, self._headers)


@dataclass(frozen=True, slots=True)
class Member:
    """One broker of the cluster, as a page shows it."""

    key: str
    name: str
    address: str
    state: str
    epoch: int
    sequence: int
    in_sync: bool | None
    """None while nobody can say."""
    lag: int | None
    goal: int
    """Last record of the primary, for one that catches up."""
    since: float
    """When it came to its state."""
    is_since: bool
    """Whether that is known; else it had come to it before."""
    seen: float
    """When it was last heard of; 0 for never."""
    is_seen: bool
    """Whether the page is as this broker sees it."""
    why: str = ""
    """Why it does not answer."""


@dataclass(slots=True)
class View:
    """One page: the broker that it is of, and what that says."""

    pages: Pages
    request: Request
    broker: Watched
    look: Look
    asked: str
    """The broker that the address names."""
    notice: str = ""
    counted: dict[str, Any] | None = field(default=None)

    @property
    def query(self) -> Mapping[str, str]:
        """The parameters of the address."""
        return self.request.query_params

    def path(self, name: str) -> str:
        """Return a part of the path."""
        return str(self.request.path_params[name])

    def param(self, name: str, default: str, offered: Sequence[str]) -> str:
        """Return a parameter that is one of some; the default in place of any other."""
        found = self.query.get(name, default)
        return found if found in offered else default

    def may(self, method: str) -> bool:
        """Whether who asks for the page may do this to the broker."""
        token: Token | None = self.request.state.token
        return token is not None and token.scope >= ACTIONS[method].change.scope

    def action(self) -> tuple[Action, Token]:
        """Return the action that the address names, and the token that allows it. Raises
        NoSuchThing and Problem.
        """
        name = self.path("name")
        if name not in ACTIONS:
            raise NoSuchThing(f"There is no action “{name}”.", "The pages offer what there is.")
        token = demand(self.request, ACTIONS[name].change.scope)
        self.check()
        return ACTIONS[name], token

    def link(self, path: str, **params: str) -> str:
        """Return the address of another page of the same broker."""
        if self.asked:
            params["broker"] = self.asked
        given = {name: text for name, text in params.items() if text}
        return f"{path}?{urlencode(given)}" if given else path

    async def ask(self, method: str, params: dict[str, Any] | None = None) -> Any:
        """Ask the broker. Raises NotAnswered and RefusedRequest."""
        self.check()
        return await self.broker.ask(method, params or {}, deadline=PATIENCE)

    def check(self) -> None:
        """Raise NotAnswered if the broker did not answer just now."""
        if self.look.status is None:
            raise NotAnswered(self.look.reason)

    async def tried(self, method: str) -> Any:
        """Ask the broker; None if it does not answer."""
        if self.look.status is None:
            return None
        try:
            return await self.broker.ask(method)
        except (NotAnswered, RefusedRequest):
            return None

    async def statistics(self) -> dict[str, Any] | None:
        """Return the sums over all queues, with what came and left in a second."""
        found = await self.tried("statistics")
        if found is None:
            return None
        kept, now = self.pages.kept(self.broker), time.monotonic()
        came, left = found["enqueued"], sum(found["departures"].values())
        if kept.counted is None or now - kept.counted[0] >= 1:
            if kept.counted is not None and kept.counted[1] <= came and kept.counted[2] <= left:
                seconds = now - kept.counted[0]
                kept.rates = (
                    (came - kept.counted[1]) / seconds,
                    (left - kept.counted[2]) / seconds,
                )
            else:
                kept.rates = (None, None)
            kept.counted = (now, came, left)
        self.counted = {**found, "arrivals": kept.rates[0], "leaving": kept.rates[1]}
        return self.counted

    async def top_queues(self) -> Any:
        """Return the first queues of the table; None if the broker does not answer."""
        if self.look.status is None:
            return None
        table = self.pages.kept(self.broker).table
        try:
            return await table.page(match="", sort="risk", down=True, page=1, size=FEW)
        except (NotAnswered, RefusedRequest):
            return None

    def members(self) -> list[Member]:
        """Return all brokers of the cluster; those that are not heard of as they were last."""
        history, status = self.pages.history, self.look.status
        own = status["system_id"] if status else ""
        rows = {
            row["system_id"] or row["address"]: row for row in (status or {}).get("members", ())
        }
        goal = max((int(row["sequence"]) for row in rows.values()), default=0)
        found = []
        for lane in history.lanes.values():
            if not lane.is_member:
                continue
            row = rows.get(lane.key) or rows.get(lane.address)
            is_seen = lane.key == own
            sequence = int(row["sequence"]) if row else 0
            if row is None and is_seen and status:
                sequence = int(status["sequence"])
            since, is_since = lane.since, lane.since > history.began + 2
            if is_seen and status and status["since_ns"]:
                since, is_since = status["since_ns"] / 1e9, True
            found.append(
                Member(
                    key=lane.key,
                    name=lane.name,
                    address=lane.address,
                    state=lane.state,
                    epoch=lane.epoch,
                    sequence=sequence,
                    in_sync=bool(row["in_sync"]) if row else None,
                    lag=lag(row, self.look) if row and row["connected"] else None,
                    goal=goal,
                    since=since,
                    is_since=is_since,
                    seen=lane.seen,
                    is_seen=is_seen,
                )
            )
        found.sort(key=lambda each: (each.state not in PRIMARY_STATES, each.name))
        return found

    def page(self, template: str, *, every: int, **context: Any) -> Response:
        """Make the page; it is fetched anew every so many seconds."""
        return self._render(template, 200, every, context)

    def problem(self, status: int, text: str, hint: str) -> Response:
        """Make the page for what cannot be shown."""
        # An action is not asked for again by itself.
        every = 0 if self.request.url.path.startswith(DO) else 2
        return self._render("problem.html", status, every, {"text": text, "hint": hint})

    def _render(self, template: str, status: int, every: int, context: dict[str, Any]) -> Response:
        look = self.look
        line = cluster_line(look, self.counted)
        whole = {
            "view": self,
            "look": look,
            "status": look.status,
            "members": self.members(),
            "line": line,
            "is_gone": look.is_gone,
            "silent": None if math.isinf(look.silent) else look.silent,
            "every": every,
            "here": path_of(self.request),
            "is_logged_in": self.request.scope.get("state", {}).get("by_cookie", False),
            "origin": f"{self.request.url.scheme}://{self.request.url.netloc}",
            "unheard": (UNREACHABLE, UNKNOWN),
            **context,
        }
        return self.pages.render(template, status, whole)


def path_of(request: Request) -> str:
    """Return the path that was asked for as it stands in a link to this host: quoted, and with one
    slash at its begin.
    """
    return "/" + quote(request.scope["path"].lstrip("/"))


def is_browser(request: Request) -> bool:
    """Whether somebody opens an address, and would rather have a page than JSON."""
    return "text/html" in request.headers.get("accept", "")


def _rank(broker: Watched) -> int:
    state = broker.last.state if broker.last is not None else ""
    if state in PRIMARY_STATES:
        return 0
    return 1 if state else 2


def _has(connection: dict[str, Any], match: str) -> bool:
    shown = ("peer", "user", "container", "process", "mechanism")
    return not match or any(match.lower() in str(connection[name]).lower() for name in shown)
