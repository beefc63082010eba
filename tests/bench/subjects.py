"""What is measured: a cluster, and how it is loaded. Each kind has a load generator of its own, in
C, so that the generator costs little beside the brokers; all three take a window, a size, a time
and so on, and print the same JSON object.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Protocol

from tests.bench.cases import Load
from tests.bench.ours import QpidhaBrokers
from tests.bench.processes import BenchError

HERE = Path(__file__).parent
BUILD = HERE / "build"
GENERATORS = {
    "amqpbench": ["-lqpid-proton"],
    "rabbitbench": ["-lrabbitmq", "-lpthread"],
    "natsbench": ["-lnats", "-lpthread"],
}
PACKAGES = {
    "amqpbench": "libqpid-proton11-dev",
    "rabbitbench": "librabbitmq-dev",
    "natsbench": "libnats-dev",
}
"""Debian's, with the headers of each."""
GRACE = 60.0
"""Seconds that a generator may take for what was sent in time, and to end."""


def build(generator: str) -> Path:
    """Compile a load generator unless that is done."""
    source, program = HERE / f"{generator}.c", BUILD / generator
    changed = max(each.stat().st_mtime for each in (source, HERE / "measure.h"))
    if not program.exists() or program.stat().st_mtime < changed:
        BUILD.mkdir(exist_ok=True)
        new = program.with_suffix(f".{os.getpid()}")
        done = subprocess.run(
            [os.environ.get("CC", "cc"), "-O2", "-o", new, source, *GENERATORS[generator]],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise BenchError(
                f"{generator} does not compile; is {PACKAGES[generator]} (Debian) installed?\n"
                f"{done.stderr}"
            )
        new.replace(program)
    return program


def said(command: list[str | Path], timeout: float) -> dict[str, Any]:
    """Run a load generator and return its JSON object, also when it was cut off."""
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    if not done.stdout.strip():
        raise BenchError(
            f"{Path(command[0]).name} failed with code {done.returncode}: "
            f"{done.stderr.strip()[:500]}"
        )
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def generate(command: list[str | Path], timeout: float) -> dict[str, Any]:
    """Run a load generator to its end and return its JSON object."""
    found = said(command, timeout)
    if found["timed_out"]:
        raise BenchError(f"{Path(command[0]).name} was cut off: {found}")
    return found


class Cluster(Protocol):
    """Brokers of one kind, each a process of its own."""

    @property
    def address(self) -> str:
        """Where clients go."""
        ...

    def up(self) -> None:
        """Start all and wait until they can be used."""
        ...

    def down(self) -> None:
        """Stop all."""
        ...

    def pids(self) -> list[int]:
        """The processes whose CPU time and memory count."""
        ...


class Subject(Protocol):
    """A cluster, loaded in one way. What `prepare` and `clean` do is not measured."""

    name: str
    protocol: str
    """The one that idle connections speak (tests/bench/idle.py)."""

    @property
    def cluster(self) -> Cluster:
        """What it loads."""
        ...

    def suits(self, load: Load) -> bool:
        """Whether the load means something here."""
        ...

    def remark(self, load: Load) -> str:
        """Where it does something else than the others; empty if it does not."""
        ...

    def prepare(self, load: Load, queue: str) -> None:
        """Make the queues of a load."""
        ...

    def clean(self, load: Load, queue: str) -> None:
        """Remove them."""
        ...

    def run(self, load: Load, queue: str, seconds: float, messages: int) -> dict[str, Any]:
        """Send for so many seconds, or so many messages, whichever ends first."""
        ...

    def declare(self, prefix: str, count: int, seconds: float) -> tuple[int, float]:
        """Declare queues, at most so many or for so long; how many that were, and how long."""
        ...

    def forget(self, prefix: str, count: int) -> None:
        """Delete what was declared."""
        ...


def queues_of(load: Load, queue: str) -> list[str]:
    """The queues of a load, as the generators call them."""
    if load.fan_out:
        return [f"{queue}.q{at}" for at in range(load.fan_out)]
    pairs = [queue]
    if load.is_pair_apart:
        pairs = [f"{queue}{at}" for at in range(max(load.producers, load.consumers))]
    if load.queues > 1:
        dot = "." if load.is_pair_apart else ""
        return [f"{pair}{dot}{at}" for pair in pairs for at in range(load.queues)]
    return pairs


def _flags(**values: object) -> list[str | Path]:
    """Flags of a generator: none for what is False or 0, no value for what is True."""
    given = {name: value for name, value in values.items() if value is not False and value != 0}
    return [
        part
        for name, value in given.items()
        for part in ([f"-{name}"] if value is True else [f"-{name}", f"{value}"])
    ]


class OfQpidha:
    """Our brokers, loaded by amqpbench."""

    protocol = "amqp10"
    cluster: QpidhaBrokers

    def __init__(self, name: str, cluster: QpidhaBrokers) -> None:
        self.name, self.cluster = name, cluster
        self._program = build("amqpbench")

    def suits(self, load: Load) -> bool:
        return True

    def remark(self, load: Load) -> str:
        return ""

    def prepare(self, load: Load, queue: str) -> None:
        if load.fan_out:
            durable = load.is_durable
            self.cluster.ask(0, "declare_exchange", name=queue, type="fanout", durable=durable)
        self.cluster.declare_all(
            queues_of(load, queue),
            durable=load.is_durable,
            exchange=queue if load.fan_out else "",
            **load.arguments,
        )

    def clean(self, load: Load, queue: str) -> None:
        if load.fan_out:
            self.cluster.ask(0, "delete_exchange", name=queue)
        self.cluster.delete_all(queues_of(load, queue))

    def run(self, load: Load, queue: str, seconds: float, messages: int) -> dict[str, Any]:
        return said(self.command(load, queue, seconds, messages), seconds + 2 * GRACE)

    def command(self, load: Load, queue: str, seconds: float, messages: int) -> list[str | Path]:
        """The generator with the flags of a load."""
        # A flag of no receivers or senders is said: their default is one.
        return [
            self._program,
            *("-p", str(load.producers), "-c", str(load.fan_out or load.consumers)),
            *_flags(n=messages, T=seconds, t=seconds + GRACE, w=load.window, k=load.credit),
            *_flags(s=load.size, a=queue, r=load.rate, d=load.is_durable, Q=load.is_pair_apart),
            *(_flags(m=load.queues) if load.queues > 1 else []),
            *(_flags(F=True, R=f"{queue}.q") if load.fan_out else []),
            *load.flags,
            self.cluster.address,
        ]

    def declare(self, prefix: str, count: int, seconds: float) -> tuple[int, float]:
        began = time.monotonic()
        names = (f"{prefix}{at}" for at in range(count))
        made = self.cluster.declare_all(names, seconds=seconds)
        return made, time.monotonic() - began

    def forget(self, prefix: str, count: int) -> None:
        self.cluster.delete_all(f"{prefix}{at}" for at in range(count))


class _OfPeer(ABC):
    """A peer whose generator makes and deletes queues itself."""

    name: str
    cluster: Cluster

    @abstractmethod
    def command(self, load: Load, queue: str) -> list[str | Path]:
        """The generator with the flags of a load, but for its address."""

    @abstractmethod
    def declaring(self, prefix: str) -> list[str | Path]:
        """The generator with what it needs to declare queues."""

    @abstractmethod
    def time_flag(self, seconds: float) -> list[str | Path]:
        """When the generator is to give up."""

    def suits(self, load: Load) -> bool:
        return not load.flags

    def prepare(self, load: Load, queue: str) -> None:
        self._only("-Z", load, queue)

    def clean(self, load: Load, queue: str) -> None:
        self._only("-X", load, queue)

    def run(self, load: Load, queue: str, seconds: float, messages: int) -> dict[str, Any]:
        limits = [*_flags(n=messages, T=seconds), *self.time_flag(seconds + GRACE)]
        command = [*self.command(load, queue), *limits, *self.keeping(), self.cluster.address]
        return said(command, seconds + 2 * GRACE)

    @abstractmethod
    def keeping(self) -> list[str | Path]:
        """What makes the generator leave its queues there."""

    def declare(self, prefix: str, count: int, seconds: float) -> tuple[int, float]:
        flags = [*_flags(N=count, T=seconds), *self.keeping(), self.cluster.address]
        found = said([*self.declaring(prefix), *flags], seconds + 2 * GRACE)
        return int(found["declared"]), float(found["seconds"])

    def forget(self, prefix: str, count: int) -> None:
        said([*self.declaring(prefix), *_flags(N=count, X=True), self.cluster.address], 3 * GRACE)

    def _only(self, flag: str, load: Load, queue: str) -> None:
        said([*self.command(load, queue), flag, self.cluster.address], 3 * GRACE)


class OfRabbit(_OfPeer):
    """A kind of queue of RabbitMQ, loaded by rabbitbench."""

    protocol = "amqp091"

    def __init__(self, name: str, cluster: Cluster, kind: str, prefix: str) -> None:
        self.name, self.cluster = name, cluster
        self._kind, self._prefix = kind, prefix
        self._program = build("rabbitbench")

    def remark(self, load: Load) -> str:
        is_synced_anyway = self._kind == "quorum" and not load.is_durable
        return "on disk, synced" if is_synced_anyway else ""

    def command(self, load: Load, queue: str) -> list[str | Path]:
        return [
            *self.declaring(queue),
            *("-P", str(load.producers), "-K", str(load.fan_out or load.consumers)),
            *_flags(w=load.window, s=load.size, e=load.credit, a=min(10, load.credit)),
            *_flags(p=load.is_durable or self._kind == "quorum", Q=load.is_pair_apart),
            *_flags(F=bool(load.fan_out), r=load.rate),
            *(_flags(m=load.queues) if load.queues > 1 else []),
        ]

    def declaring(self, prefix: str) -> list[str | Path]:
        return [self._program, "-q", self._prefix + prefix, "-t", self._kind]

    def time_flag(self, seconds: float) -> list[str | Path]:
        return _flags(o=seconds)

    def keeping(self) -> list[str | Path]:
        return ["-k"]


class OfNats(_OfPeer):
    """Work-queue streams of JetStream, loaded by natsbench: in memory if the messages are
    transient, else in files.
    """

    protocol = "nats"

    def __init__(self, name: str, cluster: Cluster, replicas: int) -> None:
        self.name, self.cluster = name, cluster
        self._replicas = replicas
        self._program = build("natsbench")

    def suits(self, load: Load) -> bool:
        return super().suits(load) and not load.fan_out

    def remark(self, load: Load) -> str:
        if load.queues > 1:
            return "subjects of one stream"
        return "not synced" if load.is_durable else ""

    def command(self, load: Load, queue: str) -> list[str | Path]:
        # A thousand streams would take minutes to make; as subjects of one they cost it least.
        many = load.queues > 1
        credit = max(load.credit, load.window) if many else load.credit
        return [
            *self.declaring(queue),
            *("-p", str(load.producers), "-c", str(load.consumers)),
            *_flags(w=load.window, s=load.size, k=credit, d=load.is_durable),
            *_flags(Q=load.is_pair_apart, r=load.rate),
            *([*_flags(m=load.queues), "-1"] if many else []),
        ]

    def declaring(self, prefix: str) -> list[str | Path]:
        return [self._program, "-a", prefix.replace(".", "_"), "-R", str(self._replicas)]

    def time_flag(self, seconds: float) -> list[str | Path]:
        return _flags(t=seconds)

    def keeping(self) -> list[str | Path]:
        return ["-K"]
