"""A run that goes on: what is not there may still come, so nothing is invalid for its absence until
all clients have ended.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from qpidha.model.duration import SECOND
from qpidha.pipeline.checks import Settings
from qpidha.pipeline.history import History
from qpidha.pipeline.oracle.engine import check, check_paths
from qpidha.pipeline.segments import Inputs
from qpidha.pipeline.verdict import Verdict
from tests.patience import STATE
from tests.pipeline.builders import Story

ROOT = Path(__file__).parents[2]


def sends(history: History, first: int, last: int) -> None:
    for u in range(first, last + 1):
        for y in ("invoke", "ok"):
            history.op(u, 1_000_000, y, "enqueue", q="q", w=1, u=u)


def takes(history: History, first: int, last: int) -> None:
    for u in range(first, last + 1):
        history.op(1000 + u, 2_000_000, "ok", "dequeue", q="q", w=1, u=u, d=0)


def at_different_times(directory: Path) -> tuple[History, History]:
    """A receiver whose first segment is closed, and its sender, of whom nothing is there yet."""
    receiver, sender = (History(directory, "r", node=name) for name in ("receiver", "sender"))
    takes(receiver, 1, 3)
    return receiver, sender


@pytest.mark.parametrize("progress", ["running", "ending"])
def test_a_delivery_whose_send_is_not_there_yet_is_not_invented(
    tmp_path: Path, progress: str
) -> None:
    receiver, sender = at_different_times(tmp_path)
    settings = Settings(progress=progress)

    def judged(settings: Settings = settings) -> Verdict:
        return check_paths([tmp_path], settings, names=["total-queue"])

    assert judged(Settings()).valid is False
    assert judged().valid is None
    assert (
        judged()["total-queue"]
        .reasons[0]
        .startswith("so far 3 deliveries of messages that no client sent")
    )
    sends(sender, 1, 3)
    assert judged().valid is True
    takes(receiver, 9, 9)
    assert judged().valid is None
    for history in (receiver, sender):
        history.close()
    assert judged().valid is (False if progress == "ending" else None), (
        "all clients have ended, so it was invented"
    )


def overlap(story: Story) -> None:
    for process in (1, 2):
        story.op(
            "acquire", "ok", "lock", story.op("acquire", "invoke", "lock", c=process), c=process
        )


def disorder(story: Story) -> None:
    for u in (1, 2):
        story.send(u)
    for u in (2, 1):
        story.take(u)


def pause(story: Story) -> None:
    story.send(1)
    story.at += 9 * SECOND
    story.send(2, "invoke")


def loss(story: Story) -> None:
    story.send(1)
    story.drain()


def unconfirmed(story: Story) -> None:
    story.add("a", "insync", e=1, set="a b")
    story.add("a", "enq", q="q", e=1, p=1, i="m")
    story.send(1, i="m")


def refused(story: Story) -> None:
    story.send(1, "fail")
    story.take(1)


def early(story: Story) -> None:
    story.add("a", "insync", e=1, set="a b")
    story.add("a", "conf", e=1, p=1)


def two_primaries(story: Story) -> None:
    for node in "ab":
        story.add(node, "conf", e=1, p=1)


def back(story: Story) -> None:
    story.add("a", "conf", e=2, p=1)
    for epoch in (2, 1):
        story.add("a", "epoch", e=epoch)


@pytest.mark.parametrize(
    "tells",
    [overlap, disorder, pause, loss, unconfirmed, refused],
    ids=lambda tells: tells.__name__,
)
def test_what_may_be_explained_by_what_is_to_come_is_unknown(
    tells: Callable[[Story], None],
) -> None:
    assert verdicts(tells) == (False, None)


@pytest.mark.parametrize("tells", [early, two_primaries, back], ids=lambda tells: tells.__name__)
def test_what_brokers_have_written_is_not_taken_back(tells: Callable[[Story], None]) -> None:
    assert verdicts(tells) == (False, False)


def verdicts(tells: Callable[[Story], None]) -> tuple[bool | None, ...]:
    """Return the verdicts on a run that is over, and on one that goes on."""
    story = Story()
    tells(story)
    settings = (
        Settings(max_unavailable_ns=SECOND, progress=progress) for progress in ("ended", "running")
    )
    return tuple(check(story.events, each, inputs=Inputs()).valid for each in settings)


def test_a_watch_of_a_growing_history_is_never_invalid_without_cause(tmp_path: Path) -> None:
    receiver, sender = at_different_times(tmp_path)
    line = [
        sys.executable,
        "-m",
        "qpidha.cli.main",
        "pipeline",
        "watch",
        str(tmp_path),
        "--engine",
        "python",
        "--every",
        "0.2",
    ]
    line += ["--checks", "total-queue", "-o", "json"]
    with subprocess.Popen(line, cwd=ROOT, stdout=subprocess.PIPE, text=True) as watch:
        try:
            assert watch.stdout is not None
            seen = [json.loads(watch.stdout.readline())["valid"]]
            sends(sender, 1, 3)
            while seen[-1] is not True:
                seen.append(json.loads(watch.stdout.readline())["valid"])
            takes(receiver, 4, 4)
            while seen[-1] is True:
                seen.append(json.loads(watch.stdout.readline())["valid"])
            watch.send_signal(signal.SIGINT)
            seen += [json.loads(each)["valid"] for each in watch.stdout.read().splitlines()]
            assert watch.wait(STATE) == 2, "the sender may have more to say"
        finally:
            watch.kill()
    assert set(seen) == {"unknown", True}
