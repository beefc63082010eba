"""Watchers: the brokers that are watched, and what paths of the console share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import FastAPI, Query

from qpidha.console.events import Events, Follower
from qpidha.console.looks import Watched
from qpidha.console.problems import Problem

API = "/api/v1"
BROKER = "name or address of the broker, where there are several"
Broker = Annotated[str, Query(description=BROKER)]


def on_get(app: FastAPI, path: str, handler: Callable[..., Any], **about: Any) -> None:
    """Let a handler answer GET and HEAD."""
    app.get(path, **about)(handler)
    app.head(path, include_in_schema=False)(handler)


class Watchers:
    """The brokers that are watched."""

    def __init__(self, brokers: Sequence[Watched]) -> None:
        self.brokers = brokers
        self.events = Events()

    def chosen(self, name: str) -> Watched:
        """Return the broker that is meant."""
        if not name:
            if len(self.brokers) == 1:
                return self.brokers[0]
            raise Problem(400, "several brokers are watched", hint=self._hint())
        for broker in self.brokers:
            if broker.is_called(name):
                return broker
        raise Problem(404, f"no broker {name} is watched", hint=self._hint())

    def _hint(self) -> str:
        return " or ".join(f"?broker={broker.name}" for broker in self.brokers)

    @asynccontextmanager
    async def watching(self, app: FastAPI) -> AsyncIterator[None]:
        """Look at every broker while the application runs."""
        followers = [Follower(broker, self.events) for broker in self.brokers]
        tasks = [asyncio.create_task(follower.follow()) for follower in followers]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            for broker in self.brokers:
                broker.close()
