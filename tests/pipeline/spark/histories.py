"""Thousands of small random histories: of messages, locks, faults and brokers, odd ones included,
each with its number.

Times come from a small range, so that events coincide, and numbers of operations are used twice now
and then: both engines must agree on that, too.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

from qpidha.pipeline.events import CLIENT, Event
from tests.pipeline.builders import Story

MS = 1_000_000
OUTCOMES = ("ok", "ok", "ok", "fail", "info", "invoke")


class Histories:
    """A seeded series of histories."""

    def __init__(self, seed: int) -> None:
        self.choices = random.Random(seed)

    def story(self, steps: int) -> Story:
        """Tell one history of everything."""
        choices, story = self.choices, Story()
        kinds = choices.sample(
            [
                "send",
                "take",
                "take",
                "ack",
                "lock",
                "lock",
                "fault",
                "journal",
                "journal",
                "pause",
                "foreign",
                "drain",
            ],
            choices.randrange(2, 9),
        )
        epoch = choices.choice((0, 1, 1))
        for _ in range(steps):
            story.at += (
                choices.choice((0, 1000, 1000, 5 * MS, 700 * MS))
                if choices.random() < 0.5
                else -1000
            )
            kind = choices.choice(kinds)
            if kind == "journal":
                epoch = self.journal(story, epoch)
            else:
                getattr(self, kind)(story)
        for queue in "qr":
            if choices.random() < 0.6:
                story.drain(queue)
        return story

    def value(self) -> dict[str, int]:
        """Choose a value."""
        return {"w": self.choices.randrange(1, 3), "u": self.choices.randrange(1, 6)}

    def send(self, story: Story) -> None:
        """Send, with all outcomes; sometimes with an intended begin, an id, or a number of another
        operation.
        """
        choices, queue = self.choices, self.choices.choice("qqr")
        fields: dict[str, object] = {**self.value()}
        if choices.random() < 0.3:
            fields["i"] = f"m{choices.randrange(4)}"
        o = story.next_op() if choices.random() < 0.95 else choices.randrange(1, 4)
        intended = (
            {"j": story.at - choices.randrange(-5 * MS, 30 * MS)} if choices.random() < 0.2 else {}
        )
        if choices.random() < 0.97:
            story.op("enqueue", "invoke", queue, o, c=CLIENT, **fields, **intended)
        outcome = choices.choice(OUTCOMES)
        if outcome != "invoke":
            story.op(
                "enqueue",
                outcome,
                queue,
                o,
                c=CLIENT,
                at=story.at + choices.choice((0, 1000, 3 * MS, 2500 * MS)),
                **fields,
            )

    def take(self, story: Story) -> None:
        """Take one value, as one of two clients."""
        choices = self.choices
        fields: dict[str, object] = {**self.value()}
        if choices.random() < 0.9:
            fields["d"] = choices.choice((0, 0, 0, 1))
        if choices.random() < 0.3:
            fields["fa"] = choices.randrange(2)
        story.op(
            "dequeue",
            "ok",
            choices.choice("qqr"),
            c=choices.choice((2, 2, 3)) * CLIENT + choices.randrange(2),
            **fields,
        )

    def ack(self, story: Story) -> None:
        """Acknowledge, perhaps in vain."""
        story.op(
            "ack",
            self.choices.choice(("ok", "ok", "info")),
            self.choices.choice("qr"),
            **self.value(),
        )

    def foreign(self, story: Story) -> None:
        """Send or take what is none of ours."""
        story.op(
            self.choices.choice(("enqueue", "dequeue")),
            self.choices.choice(("ok", "invoke", "fail")),
            "q",
        )

    def drain(self, story: Story) -> None:
        """Drain in the middle."""
        story.op("drain", self.choices.choice(("ok", "info")), self.choices.choice("qr"))

    def pause(self, story: Story) -> None:
        """Let time pass."""
        story.at += self.choices.randrange(4) * 900 * MS

    def fault(self, story: Story) -> None:
        """Break something, and perhaps mend it."""
        o = story.next_op()
        at = story.at
        story.add("nemesis", "fault", at, run=story.run, o=o, y="start", f="kill", x="a")
        if self.choices.random() < 0.7:
            story.add(
                "nemesis",
                "fault",
                at + self.choices.randrange(3000 * MS),
                run=story.run,
                o=o,
                y="stop",
                f="kill",
                x="a",
            )
        story.at = at

    def lock(self, story: Story) -> None:
        """Take, release or lose a lock, with all outcomes."""
        choices = self.choices
        lock, process = choices.choice(("lock", "lock", "other")), choices.randrange(1, 4)
        what = choices.choice(("acquire", "acquire", "release", "lost", "write", "write"))
        token: dict[str, int] = {}
        if what in ("acquire", "write") and choices.random() < 0.9:
            token = {"e": choices.randrange(1, 4), "p": choices.randrange(1, 6)}
        o = story.next_op()
        if what == "lost":
            story.op("lost", choices.choice(("info", "info", "invoke")), lock, o, c=process)
            return
        invoked = {} if what == "acquire" else token
        story.op(what, "invoke", lock, o, c=process, **invoked)
        outcome = choices.choice(OUTCOMES)
        if outcome != "invoke":
            at = story.at + choices.choice((0, 1000, 2000))
            story.op(what, outcome, lock, o, c=process, at=at, **token)

    def journal(self, story: Story, epoch: int) -> int:
        """Note something as one of three brokers."""
        choices = self.choices
        node = choices.choice("aaab")
        what = choices.choice(
            (
                "role",
                "epoch",
                "insync",
                "insync",
                "rep",
                "rep",
                "rep",
                "conf",
                "conf",
                "enq",
                "enq",
                "deq",
                "failover",
                "promotion",
            )
        )
        position = choices.randrange(-3, 10)
        span = {"hi": position + choices.choice((-1, 0, 1, 2, 6))} if choices.random() < 0.5 else {}
        took = {"dt": choices.randrange(10**9)} if choices.random() < 0.7 else {}
        if what == "role":
            epoch += choices.random() < 0.4
            story.add(
                node, "role", r=choices.choice(("active", "active", "recovering", "ready")), e=epoch
            )
        elif what == "epoch":
            story.add(node, "epoch", e=choices.randrange(1, 4))
        elif what == "insync":
            story.add(node, "insync", e=epoch, set=choices.choice(("a", "a b", "a b c", "b c", "")))
        elif what == "rep":
            story.add(node, "rep", x=choices.choice("abc"), e=epoch, p=position, **span, **took)
        elif what == "conf":
            story.add(
                node,
                "conf",
                e=epoch,
                p=position,
                **span,
                **took,
                **({"q": "q"} if choices.random() < 0.5 else {}),
            )
        elif what == "enq":
            # One message has several places now and then: it was sent again, or went to two queues.
            for queue in choices.choice(("q", "q", "qr")):
                story.add(node, "enq", q=queue, e=epoch, p=position, i=f"m{choices.randrange(4)}")
        elif what == "deq":
            story.add(
                node,
                "deq",
                q="q",
                e=epoch,
                p=position,
                **({"i": f"m{choices.randrange(4)}"} if choices.random() < 0.5 else {}),
            )
        elif what == "failover":
            story.add(
                node,
                "failover",
                f=choices.choice(("detected", "accepted")),
                x="a",
                **({"e": epoch} if choices.random() < 0.8 else {}),
            )
        else:
            story.add(node, "promotion", f=choices.choice(("asked", "granted")))
        return epoch


def many(seed: int, number: int, steps: int) -> Iterable[list[Event]]:
    """Yield the events of so many histories."""
    histories = Histories(seed)
    for _ in range(number):
        yield histories.story(histories.choices.randrange(1, steps)).events
