"""The HTTP application: health endpoints, metrics, an API and pages of one broker or several.

Every path but those of changes answers GET and HEAD. Health endpoints answer in plain text, a
sentence, with 200 or 503; errors are `application/problem+json` (RFC 9457). Where several brokers
are watched, `?broker=` names the one that is meant. Source: docs/console.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from starlette.middleware.cors import CORSMiddleware

from qpidha.console.access import Access
from qpidha.console.browsers import Browsers
from qpidha.console.changing import add_changes
from qpidha.console.description import describe
from qpidha.console.doorkeeper import Doorkeeper
from qpidha.console.health import CHECKS, Verdict, alarms, backup, readyz, synced
from qpidha.console.looks import Look, NotAnswered, Watched
from qpidha.console.metrics import DETAILED, MOST, Families, QueueFamilies, aggregated, detailed
from qpidha.console.pages import Pages
from qpidha.console.problems import Problem, answer_problems
from qpidha.console.resources import (
    CLUSTER,
    PATIENCE,
    RESOURCES,
    Given,
    Resource,
    link_to,
    next_page,
    params_of,
)
from qpidha.console.stream import add_events
from qpidha.console.watchers import API, BROKER, Broker, Watchers, on_get
from qpidha.model.broker_states import UNREACHABLE
from qpidha.model.duration import SECOND, parse_duration
from qpidha.model.errors import RefusedRequest


def make_app(
    brokers: Sequence[Watched], access: Access, cluster: str = "", consoles: Sequence[str] = ()
) -> FastAPI:
    """Make the application; `cluster` is a label of all metrics, `consoles` are the addresses of
    the cluster's other consoles.
    """
    watchers = Watchers(brokers)
    app = FastAPI(
        title="qpidha-console",
        summary="Health, metrics, events and changes of qpidha brokers",
        version="1",
        docs_url=None,
        redoc_url=None,
        lifespan=watchers.watching,
    )
    app.state.events = watchers.events
    app.add_middleware(Doorkeeper, access=access)
    pages = Pages(watchers, cluster, consoles)
    app.add_middleware(Browsers, access=access, pages=pages, consoles=consoles)
    if consoles:
        # A page of one console asks the others whether they answer.
        app.add_middleware(CORSMiddleware, allow_origins=list(consoles))
    answer_problems(app)
    _add_health(app, watchers)
    _add_metrics(app, watchers, cluster)
    _add_resources(app, watchers)
    _add_cluster(app, watchers, cluster)
    add_events(app, watchers)
    add_changes(app, watchers)
    pages.add_to(app)
    describe(app)
    return app


def _add_health(app: FastAPI, watchers: Watchers) -> None:
    yes_or_no: dict[int | str, dict[str, Any]] = {
        200: {"description": "yes", "content": {"text/plain": {}}},
        503: {"description": "no, or not known, with the reason", "content": {"text/plain": {}}},
    }

    def add(name: str, check: Callable[[Look], Verdict]) -> None:
        async def answer(broker: Broker = "") -> Response:
            return _text(check(await watchers.chosen(broker).look()))

        about = _summary(check)
        on_get(
            app, f"/{name}", answer, name=name, responses=yes_or_no, summary=about, tags=["health"]
        )

    for name, check in CHECKS.items():
        if name != "readyz":
            add(name, check)

    async def answer_readyz(broker: Broker = "", verbose: str | None = None) -> Response:
        chosen = watchers.chosen(broker)
        if verbose is None:
            return _text(readyz(await chosen.look()))
        # At the same time, so that both together take no longer than one.
        look, found = await asyncio.gather(chosen.look(), _alarms(chosen))
        verdict = readyz(look)
        lines = [(verdict.is_yes, f"state {verdict.text}"), *found]
        text = "".join(f"[{'+' if is_good else '-'}]{line}\n" for is_good, line in lines)
        return PlainTextResponse(text, 200 if verdict.is_yes else 503)

    async def answer_backup(broker: Broker = "", lag: int | None = None, age: str = "") -> Response:
        try:
            seconds = parse_duration(age) / SECOND if age else None
        except ValueError as error:
            raise Problem(400, f"age={age}: {error}", hint="age=2s or age=500ms") from None
        look = await watchers.chosen(broker).look()
        return _text(backup(look, lag, seconds))

    for name, answer, check in (
        ("readyz", answer_readyz, readyz),
        ("backup", answer_backup, backup),
    ):
        about = _summary(check)
        on_get(app, f"/{name}", answer, responses=yes_or_no, summary=about, tags=["health"])


def _add_metrics(app: FastAPI, watchers: Watchers, cluster: str) -> None:
    samples: dict[int | str, dict[str, Any]] = {
        200: {"description": "samples", "content": {"text/plain": {}}}
    }

    async def answer(request: Request, families: Families | QueueFamilies) -> Response:
        # In a thread, as the text of 10,000 queues takes long, and others wait for health.
        accept = request.headers.get("accept", "")
        text, content_type = await asyncio.to_thread(families.encoded, accept)
        return Response(text, media_type=content_type)

    async def answer_metrics(request: Request) -> Response:
        return await answer(request, await aggregated(watchers.brokers, cluster))

    async def answer_detailed(
        request: Request,
        family: Annotated[str, Query(description=f"needed; one of: {', '.join(DETAILED)}")] = "",
        broker: Broker = "",
        queue: Annotated[str, Query(description="name, with * and ?", max_length=255)] = "*",
        limit: Annotated[int, Query(description="queues at most", ge=1, le=MOST)] = 500,
    ) -> Response:
        if family not in DETAILED:
            hint = " or ".join(f"?family={name}" for name in DETAILED)
            text = f"there is no family {family}" if family else "a family is to be named"
            raise Problem(400, text, hint=hint)
        chosen = watchers.chosen(broker)
        return await answer(request, await detailed(chosen, cluster, family, queue, limit))

    for path, handler, about in (
        ("/metrics", answer_metrics, "Sums over each broker, for Prometheus"),
        ("/metrics/detailed", answer_detailed, "Each queue of a broker, for Prometheus"),
    ):
        on_get(app, path, handler, responses=samples, summary=about, tags=["metrics"])


def _add_resources(app: FastAPI, watchers: Watchers) -> None:
    async def brokers() -> Response:
        looks = await asyncio.gather(*(broker.look() for broker in watchers.brokers))
        return JSONResponse(
            {
                "items": [
                    {
                        "name": look.name,
                        "place": broker.place,
                        "state": look.state or UNREACHABLE,
                        "reason": look.reason,
                    }
                    for broker, look in zip(watchers.brokers, looks, strict=True)
                ],
                "next": None,
            }
        )

    on_get(app, f"{API}/brokers", brokers, summary="Brokers that are watched", tags=["api"])
    for resource in RESOURCES:
        _add_resource(app, watchers, resource)
        if resource.key:
            _add_one(app, watchers, resource)


def _add_cluster(app: FastAPI, watchers: Watchers, name: str) -> None:
    async def status(broker: str) -> Look:
        look = await watchers.chosen(broker).look()
        if look.status is None:
            raise NotAnswered(look.reason)
        return look

    async def answer(broker: Broker = "") -> Response:
        look = await status(broker)
        assert look.status is not None
        is_synced, why = synced(look)
        fields = {field: look.status[field] for field in CLUSTER}
        found = {"name": name, "asked": look.name, **fields, "synced": is_synced, "why": why}
        return JSONResponse(found)

    async def answer_member(name: str, broker: Broker = "") -> Response:
        look = await status(broker)
        assert look.status is not None
        for member in look.status["members"]:
            if name in (member["name"], member["address"], member["system_id"]):
                return JSONResponse(member)
        hint = f"{API}/cluster/members lists them"
        raise Problem(404, f"the cluster has no broker {name}", hint=hint)

    for path, handler, about in (
        ("cluster", answer, "The cluster as the broker sees it, and whether all is synced"),
        ("cluster/members/{name}", answer_member, "A broker, by its name, address or system id"),
    ):
        on_get(app, f"{API}/{path}", handler, summary=about, tags=["api"])


def _add_resource(app: FastAPI, watchers: Watchers, resource: Resource) -> None:
    path = f"{API}/{resource.path}"

    async def answer(request: Request) -> Response:
        query = dict(request.query_params)
        name = query.pop("broker", "")
        params = params_of(resource, query)
        found = await watchers.chosen(name).ask(resource.method, params, deadline=PATIENCE)
        if not resource.is_list:
            return JSONResponse(found)
        items = list(found)
        link = link_to(path, next_page(resource, params, items), name)
        return JSONResponse({"items": items, "next": link})

    parameters = [
        {
            "name": given.name,
            "in": "query",
            "description": given.help,
            "schema": {"type": "integer" if given.is_number else "string"},
        }
        for given in (*resource.given, Given("broker", BROKER))
    ]
    about = {"parameters": parameters}
    on_get(app, path, answer, summary=resource.help, tags=["api"], openapi_extra=about)


def _add_one(app: FastAPI, watchers: Watchers, resource: Resource) -> None:
    async def answer(name: str, broker: Broker = "") -> Response:
        chosen = watchers.chosen(broker)
        params = {"name": name, "limit": 1}
        found = await chosen.ask(resource.method, params, deadline=PATIENCE)
        if not found or str(found[0][resource.key]) != name:
            hint = f"{API}/{resource.path} lists what there is"
            raise Problem(404, f"there is no {name} in {resource.path}", hint=hint)
        return JSONResponse(found[0])

    path = f"{API}/{resource.path}/{{name:path}}"
    on_get(app, path, answer, summary=f"One of: {resource.help}", tags=["api"])


def _summary(check: Callable[..., Verdict]) -> str:
    """Return what a check asks, for the description of the API."""
    return " ".join((check.__doc__ or "").partition("\n\n")[0].split())


async def _alarms(broker: Watched) -> list[tuple[bool, str]]:
    try:
        return alarms(await broker.ask("explain"))
    except NotAnswered as error:
        return [(False, f"explain {error.reason}")]
    except RefusedRequest as error:
        return [(False, f"explain {error.explanation}")]


def _text(verdict: Verdict) -> Response:
    return PlainTextResponse(f"{verdict.text}\n", 200 if verdict.is_yes else 503)
