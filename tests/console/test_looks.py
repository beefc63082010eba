"""Looks: shared, never waited for longer than a deadline, and never more than some at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from qpidha.console.access import Access
from qpidha.console.api import make_app
from qpidha.console.looks import MOST_UNANSWERED, NotAnswered, Watched
from qpidha.model.errors import RefusedRequest
from tests.console.consoles import ask_app, status_of

SOON = 0.01
"""Seconds of a deadline that a test waits for."""


class Link:
    """A broker that answers when the test says so."""

    def __init__(self, *refused: str) -> None:
        self.refused = refused
        self.asked: list[str] = []
        self.answers = asyncio.Event()

    async def ask(self, method: str, params: dict[str, Any]) -> Any:
        self.asked.append(method)
        await self.answers.wait()
        if method in self.refused:
            raise RefusedRequest("not allowed", reason="by a rule")
        return {"status": status_of("active"), "explain": {}}.get(method, params)

    def close(self) -> None:
        """Nothing is open."""


async def late(watched: Watched, method: str = "status", **params: Any) -> NotAnswered:
    with pytest.raises(NotAnswered) as caught:
        await watched.ask(method, params, deadline=SOON)
    return caught.value


def test_a_question_that_is_late_answers_those_who_come_later() -> None:
    async def play() -> None:
        link = Link()
        watched = Watched("b1", link)
        assert not (await late(watched)).in_time
        later = [asyncio.create_task(watched.ask("status")) for _ in range(10)]
        await asyncio.sleep(0)
        link.answers.set()
        assert {found["state"] for found in await asyncio.gather(*later)} == {"active"}
        assert link.asked == ["status"]

    asyncio.run(play())


def test_different_questions_that_wait_are_counted() -> None:
    async def play() -> None:
        link = Link()
        watched = Watched("b1", link)
        await asyncio.gather(
            *(late(watched, "list_queues", after=str(number)) for number in range(MOST_UNANSWERED))
        )
        refused = await late(watched, "list_queues", after="one more")
        assert refused.in_time and "questions to answer first" in refused.reason
        assert len(link.asked) == MOST_UNANSWERED
        # Whether the broker lives is asked all the same: who asks much must not make it look dead.
        assert not (await late(watched)).in_time
        link.answers.set()
        await asyncio.sleep(0)
        assert await watched.ask("list_queues", {"after": "one more"}) == {"after": "one more"}
        watched.close()

    asyncio.run(play())


def test_what_is_asked_for_one_answer_is_asked_at_the_same_time() -> None:
    async def play() -> None:
        link = Link()
        app = make_app([Watched("b1", link)], Access())
        answer = asyncio.create_task(ask_app(app, "/readyz", "verbose"))
        while set(link.asked) != {"status", "explain"}:
            assert not answer.done(), "one was given up before the other was asked"
            await asyncio.sleep(0)
        link.answers.set()
        status, text = await answer
        assert status == 200 and text.startswith("[+]state b1 is active\n[+]publishing ok\n")

    asyncio.run(play())


def test_a_user_who_may_not_ask_for_alarms_has_an_answer_all_the_same() -> None:
    async def play() -> None:
        link = Link("explain")
        link.answers.set()
        app = make_app([Watched("b1", link)], Access())
        status, text = await ask_app(app, "/readyz", "verbose")
        assert status == 200
        assert text == "[+]state b1 is active\n[-]explain not allowed: by a rule\n"

    asyncio.run(play())
