"""Stagehands: commands of a play beyond those of `stage.py`, for what few plays need.

They change what clients cannot (a wiped machine, the delay of the network, the size of a snapshot's
parts), look where no client can (how a backup catches up, what a journal has set aside), or do in
one step what takes a client several (a transaction, which here begins where `amqp.coordinator`
hands it to the broker model). `conftest.py` puts them on the stage.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from qpidha.broker import broker as broker_module
from qpidha.broker.transaction import Post, Transaction
from qpidha.model.effects import Announce
from qpidha.model.errors import RefusedRequest
from qpidha.model.events import Tick
from qpidha.store import recovery
from tests.scenarios.stage import COMMANDS, PATIENCE, PAUSE, Actor, PlayError, Stage, duration
from tests.sim.disk import Files
from tests.sim.history import DURABLE_HEADER, key_of
from tests.sim.machine import Machine
from tests.sim.model_node import whole
from tests.sim.world import MILLISECOND

CHUNK = recovery.CHUNK
"""How large the parts of a snapshot are when no play says otherwise."""
WALKED_A_TURN = broker_module.WALKED_A_TURN
"""How many messages of a purge go in a turn when no play says otherwise."""
EMPTY_FRAME = 8
"""Bytes of an AMQP frame that says nothing but that its sender lives."""
KEY = re.compile(rb"<(\d+)>")


def numbers(text: str) -> range:
    """Read `4` or `1..3`."""
    first, _, last = text.partition("..")
    if not (first.isdecimal() and (last or first).isdecimal()):
        raise PlayError(f"{text} is no number of a message, nor a range such as 1..3")
    return range(int(first), int(last or first) + 1)


def the_primary(stage: Stage) -> Machine:
    """Return the primary that clients find."""
    primaries = stage.cluster.primaries()
    if not primaries:
        raise PlayError("there is no primary")
    return primaries[-1]


def body(stage: Stage, message: int) -> bytes:
    """Write the body of a message as the stage does."""
    text = f"<{message}>".encode()
    return (
        (DURABLE_HEADER if stage.is_durable else b"")
        + b"\x00\x53\x75\xb0"
        + len(text).to_bytes(4, "big")
        + text
    )


class Shy(Actor):
    """A sender that takes no for an answer."""

    def outcome(self, number: int, state: int) -> None:
        """The broker said what became of a message."""
        super().outcome(number, state)
        self.waiting.clear()


class Discharge:
    """The answer to a commit, which comes when it is committed."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.is_answered = False

    def on_committed(self, item: object) -> None:
        """It is committed."""
        self.is_answered = True
        self.stage.say(f"committed: {item}")


def commit(stage: Stage, *posts: str) -> None:
    """commit q:1..2 p:3: send messages to several queues in one transaction."""
    machine = the_primary(stage)
    broker = machine.node.broker
    transaction = Transaction(broker)
    for word in posts:
        queue, _, messages = word.partition(":")
        for message in numbers(messages):
            transaction.post(Post(body(stage, message), 0, queue=broker.queue(queue)))
    discharge = Discharge(stage)
    try:
        machine.node.when_committed(transaction.commit(), discharge, " ".join(posts))
    except RefusedRequest as error:
        stage.say(f"rolled back: {error.text}")
        return
    machine.put(Tick())
    stage.world.run_for(PAUSE)
    if not discharge.is_answered:
        stage.say(f"waiting for the answer to the commit: {' '.join(posts)}")


def declare_dedup(stage: Stage, name: str) -> None:
    """declare-dedup q: make a queue that knows messages by their ids; from now on messages have
    some.
    """
    stage._ask(
        "declare_queue",
        name=name,
        durable=stage.is_durable,
        arguments={"qpidha.dedup": "message-id"},
    )

    def sent(sender: Any, message: int, number: int) -> bytes:
        identity = f"id-{message}".encode()
        fields = b"\x01\xa1" + bytes([len(identity)]) + identity
        plain = body(stage, message)
        header, rest = (
            (plain[: len(DURABLE_HEADER)], plain[len(DURABLE_HEADER) :])
            if stage.is_durable
            else (b"", plain)
        )
        return header + b"\x00\x53\x73\xc0" + bytes([len(fields)]) + fields + rest

    stage.sent = sent  # type: ignore[method-assign]


def wipe(stage: Stage, name: str) -> None:
    """wipe a: empty the disk of a machine that is down; the broker on it will have another
    identity.
    """
    machine = stage.machine(name)
    if machine.is_up:
        raise PlayError(f"{name} runs; crash it first")
    machine.saved = b""
    machine.files = Files() if machine.files is not None else None
    machine.system_id = f"{name}-new-id"


def accept_loss(stage: Stage, name: str) -> None:
    """accept-loss a: the operator promotes it whatever is lost, with `qpid-ha promote
    --accept-loss`.
    """
    _promote(stage, name, f"accept-loss {name}", {"accept_loss": True})


def forget(stage: Stage, name: str, *gone: str) -> None:
    """forget a b: the operator says that b will not come back, and promotes a."""
    addresses = " ".join(f"{stage.machine(each).host}:5672" for each in gone)
    _promote(stage, name, f"forget {' '.join((name, *gone))}", {"forget": addresses})


def _promote(stage: Stage, name: str, what: str, params: dict[str, Any]) -> None:
    machine = stage.machine(name)
    machine.request("promote", params, lambda reply: stage._replied(what, reply))
    end = stage.world.now + PATIENCE
    while machine.requests and stage.world.now < end:
        stage.world.run_for(PAUSE)
    stage.world.run_for(PAUSE)


def losses(stage: Stage, name: str) -> None:
    """losses a: what would be lost if this or that broker were promoted, as `qpid-ha recover`
    says.
    """

    def answered(reply: dict[str, Any]) -> None:
        for loss in reply["result"]["losses"]:
            stage.say(loss["text"])

    stage.machine(name).request("recover", {}, answered)
    stage.world.run_for(2 * PAUSE)


def discarded(stage: Stage, name: str) -> None:
    """discarded a: the messages in what a journal has set aside, of all that was cut off."""
    machine = stage.machine(name)
    files = machine.files.written if machine.files is not None else {}
    folders = [data for file, data in sorted(files.items()) if file.startswith("discarded-")]
    found = dict.fromkeys(match[1].decode() for data in folders for match in KEY.finditer(data))
    stage.say(f"{name} has set aside: {' '.join(found) or 'nothing'}")


def watch(stage: Stage, *words: str) -> None:
    """watch catching up: from now on also say what brokers announce with these words in it, however
    unimportant.
    """
    announced, text = stage.announced, " ".join(words)

    def overheard(machine: Machine, effect: Announce) -> None:
        if effect.level in ("debug", "info") and text in effect.text:
            stage.say(f"{machine.host}: {effect.text}")
        else:
            announced(machine, effect)

    stage.announced = overheard  # type: ignore[method-assign]


def memory(stage: Stage, size: str) -> None:
    """memory 500: brokers keep so many bytes of the log for those that come back, also those that
    start later.
    """
    stage.cluster.settings = replace(stage.cluster.settings, log_memory=int(size))
    for machine in stage.cluster:
        machine.node.log.limit = int(size)


def offer(stage: Stage, address: str, message: str) -> None:
    """offer q 3: send one message, and do not try again if it is refused."""
    sender = Shy(
        stage.world,
        stage.cluster,
        stage,
        f"offerer{len(stage.clients)}",
        address,
        {"durable": stage.is_durable},
        window=1,
        pause=10 * MILLISECOND,
        durable=stage.is_durable,
        queues=(),
    )
    stage.clients.append(sender)
    sender.hint = the_primary(stage)
    sender.waiting.extend(numbers(message))
    sender.connect()
    stage.world.run_for(PAUSE)


def queue(stage: Stage, name: str) -> None:
    """queue q: what is on it at each broker that runs, ready or not."""
    for machine in stage.cluster:
        if machine.is_up:
            found = machine.node.broker.queues.get(name)
            messages = (
                [
                    found.messages[sequence]
                    for sequence in found.ordered()
                    if sequence in found.messages
                ]
                if found
                else []
            )
            keys = " ".join(key_of(whole(message)) for message in messages)
            stage.say(f"{machine.host} {name}: {keys or 'empty' if found else 'no such queue'}")


def latency(stage: Stage, time: str) -> None:
    """latency 40ms: everything sent from now on is so long on its way."""
    stage.world.latency = (duration(time), duration(time))


def parts(stage: Stage, size: str) -> None:
    """parts 100: snapshots are sent in parts of so many bytes."""
    recovery.CHUNK = int(size)


def lose_end(stage: Stage, source: str, *targets: str) -> None:
    """lose-end a b c: of what is held up on its way from a, the last byte never arrives; crash a
    next, for it dies in mid-sending.
    """
    lost = 0
    for stream in stage.world.streams.values():
        for pipe in stream.pipes.values():
            if pipe.source == source and pipe.target in targets:
                data = [chunk for chunk in pipe.queue if len(chunk) > EMPTY_FRAME]
                if data:
                    lost += 1
                    pipe.queue.clear()
                    pipe.queue.extend([*data[:-1], data[-1][:-1]])
    if not lost:
        raise PlayError(f"nothing is on its way from {source}; clog its ways first")


def low(stage: Stage, name: str, is_low: str) -> None:
    """low a yes: there is little space left on its disk, or (no) enough again."""
    disk = stage.machine(name).disk
    if disk is None:
        raise PlayError("there are no disks; say so with: brokers a b c disks")
    disk.set_space(low=is_low == "yes", free=0 if is_low == "yes" else 1 << 40)
    stage.world.run_for(PAUSE)


def purge(stage: Stage, name: str, most: str) -> None:
    """purge q 2: an administrator empties a queue; a turn takes so many messages off it."""
    broker_module.WALKED_A_TURN = int(most)

    def answered(reply: dict[str, Any]) -> None:
        result = reply.get("result")
        stage.say(f"purged: {result['messages']}" if result else f"purge: {reply['error']['text']}")

    machine = the_primary(stage)
    machine.request("purge_queue", {"name": name}, answered)
    stage.world.run_for(PAUSE)
    if machine.is_up and machine.requests:
        stage.say(f"waiting for the answer to the purge of {name}")


def rehearse() -> None:
    """Put these commands on the stage beside those it has; none replaces one of its own."""
    for action in (
        commit,
        declare_dedup,
        wipe,
        accept_loss,
        forget,
        losses,
        discarded,
        watch,
        memory,
        offer,
        queue,
        latency,
        parts,
        lose_end,
        low,
        purge,
    ):
        COMMANDS.setdefault(action.__name__.replace("_", "-"), action)
