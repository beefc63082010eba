"""Valuing: in some runs the queues have last values, so that of the messages with one key only the
last is there.

Which of three values a message is of is a matter of its key. What may have been replaced need not
be kept: that one of its value which came later is there, or was consumed. A primary never has two
of one value. Somebody browses each queue meanwhile: what nobody had before comes in order, and who
begins to browse at the end is shown what is there, and each value once. Chance has a generator of
its own here, so that a seed without last values is the history that it would be without this.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any
from zlib import crc32

from tests.sim.clients import Receiver
from tests.sim.history import ACCEPTED, Violation, is_present, key_of
from tests.sim.model_node import whole
from tests.sim.plan import QUEUES, Plan

if TYPE_CHECKING:
    from tests.sim.checkers import Contents
    from tests.sim.history import Duty, Facts

SHARE = 0.2
"""Of the runs in which all brokers are of one version, so many have last values."""
VALUES = 3
"""Values of which the messages are."""


def value(plan: Plan, seed: int) -> None:
    """Have the queues of a run have last values, or not, as its seed has it."""
    chance = Random(f"values {plan.depth} {seed}")
    # A queue with groups or levels has no last values.
    if chance.random() < SHARE and not (plan.mixed or plan.grouped or plan.ranks):
        plan.valued = QUEUES


def value_of(key: str) -> str:
    """Say of which value the message with a key is."""
    return f"v{crc32(key.encode()) % VALUES}"


def is_replaced(facts: Facts, queue: str, duty: Duty, present: Contents) -> bool:
    """Whether a message may be gone because another one of its value came later; or because it is
    the copy that was taken elsewhere, and that other copy is gone which is taken for it.
    """
    return _gave_way(facts, queue, duty, present) or any(
        _gave_way(facts, origin, twin, present) for origin, twin in _taken_twins(facts, queue, duty)
    )


def _taken_twins(facts: Facts, queue: str, duty: Duty) -> list[tuple[str, Duty]]:
    """Return the copies of a message that were sent to other queues, and may be those that were not
    taken: where they are taken for it is where this one may have been, too.
    """
    twins = [(origin, facts.duties.get((origin, duty.key))) for origin in facts.alternates]
    return [
        (origin, twin)
        for origin, twin in twins
        if twin is not None
        and origin != queue
        and twin.consumed
        and twin.taken_from in duty.places.keys() - {origin}
    ]


def _gave_way(facts: Facts, queue: str, duty: Duty, present: Contents) -> bool:
    """Whether another message of its value may have come later, which is there, or is gone for
    another reason.
    """
    if queue not in facts.valued:
        return False
    began = facts.transmissions[duty.key].began
    for other in facts.values.get((queue, value_of(duty.key)), ()):
        later, sent = facts.duties[queue, other], facts.transmissions[other]
        is_known = sent.state == ACCEPTED and not (sent.was_in_doubt or later.displaced)
        if later is duty or (is_known and sent.ended <= began):
            continue
        if later.consumed or later.purged or later.excused or later.adrift:
            return True
        if is_present(later, present) or _taken_twins(facts, queue, later):
            return True
    return False


def check_values(queues: tuple[str, ...], machine: Any) -> None:
    """A primary has one message of each value."""
    for name in queues:
        queue = machine.node.broker.queues.get(name)
        if queue is None or len(queue.messages) < 2:
            continue
        known: dict[str, str] = {}
        for message in queue.messages.values():
            key = key_of(whole(message))
            other = known.setdefault(value_of(key), key)
            if other != key:
                raise Violation(
                    f"two values: queue {name} of {machine.host} has {other} and {key}, which are "
                    f"both of value {value_of(key)}"
                )


class Browser(Receiver):
    """Looks at messages, and takes none; at the model depth."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.options["browse"] = True
        self.shown: list[str] = []
        """What it was shown on this connection."""

    def message(
        self, number: int, payload: bytes, count: int, token: tuple[int, int] | None = None
    ) -> None:
        """A message is shown."""
        self.shown.append(self.history.browsed(self, payload, count))
        self.world.at(self.world.between(0, self.think), self._go_on, self.generation)

    def _go_on(self, generation: int) -> None:
        if generation == self.generation and self.transport is not None:
            self.transport.flow(1)

    def lost(self) -> None:
        """What it was shown is shown again."""
        super().lost()
        self.shown.clear()


def check_browsers(run: Any) -> None:
    """Who begins to browse a queue when nothing happens is shown what is there, and each value
    once.
    """
    if run.plan.depth != "model" or not run.plan.valued:
        return
    queues = run.cluster.primaries()[0].node.broker.queues
    # What somebody has, or what is due later, is not shown to those who saw what came after it.
    run._wait(
        lambda: all(queue.acquired == len(queue.unplaced) for queue in queues.values()),
        "messages are with nobody, and nobody may have them",
    )
    browsers = [
        run._receiver(f"x{number}", queue, (0, 0, 0), Browser)
        for number, queue in enumerate(run.plan.valued)
    ]
    for browser in browsers:
        browser.connect()
    run._wait(
        lambda: all(available(queues, browser.address) <= {*browser.shown} for browser in browsers),
        "the browsers are not shown what is there",
    )
    for browser in browsers:
        values = [value_of(key) for key in browser.shown]
        if len(values) > len({*values}):
            raise Violation(
                f"two values: {browser.host} is shown {', '.join(browser.shown)} on queue "
                f"{browser.address}"
            )
        browser.stop()


def available(queues: Any, name: str) -> set[str]:
    """Return what nobody has of the messages of a queue, if there is such a queue."""
    queue = queues.get(name)
    return set() if queue is None else {key_of(whole(each)) for each in queue.available()}
