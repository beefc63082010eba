"""World: time, chance and the network of one simulated history.

One heap of (time, tie, number, action) is all that ever happens; one `random.Random(seed)` decides
everything that is left to chance, ties included, so a seed is a history. Hosts are named; a
`Stream` joins two of them with two ordered pipes that delay what they carry, stall while the way is
cut or clogged, and may lose what is in flight when they break. Nothing is ever reordered inside one
pipe. What is carried is bytes, or at the model depth messages as Python values. Knows nothing of
brokers or clients: whoever is at an end of a stream is an `Endpoint`.
"""

from __future__ import annotations

import heapq
import random
import zlib
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

MICROSECOND = 1_000
MILLISECOND = 1_000_000
SECOND = 1_000_000_000
EPOCH = 1_700_000_000 * SECOND
"""When every history begins."""


class Endpoint(Protocol):
    """Whoever is at one end of a stream."""

    host: str

    def stream_data(self, stream: Stream, chunk: Any) -> None:
        """A chunk came."""

    def stream_lost(self, stream: Stream, reason: str) -> None:
        """The stream ended; nothing more comes on it, and nothing more can be sent."""


class Pipe:
    """One direction of a stream."""

    __slots__ = ("closed", "free_at", "queue", "receiver", "source", "stalled", "target")

    def __init__(self, source: str, target: str, receiver: Endpoint) -> None:
        self.source = source
        self.target = target
        self.receiver: Endpoint | None = receiver
        self.queue: deque[Any] = deque()
        """What is in flight, oldest first; the end of the stream is an `_End`."""
        self.stalled = 0
        """Arrivals that are due but cannot happen while the way is blocked."""
        self.free_at = 0
        self.closed = False


class _End:
    """The end of a stream, in its place behind what was sent before it."""

    __slots__ = ("reason",)

    def __init__(self, reason: str) -> None:
        self.reason = reason


class Stream:
    """A connection between two hosts."""

    __slots__ = ("dialler", "number", "pipes")

    def __init__(self, number: int, dialler: Endpoint, acceptor: Endpoint) -> None:
        self.number = number
        self.dialler = dialler
        self.pipes = {
            id(dialler): Pipe(dialler.host, acceptor.host, acceptor),
            id(acceptor): Pipe(acceptor.host, dialler.host, dialler),
        }

    def between(self, one: str, other: str) -> bool:
        """Tell whether these are its hosts."""
        pipe = next(iter(self.pipes.values()))
        return {pipe.source, pipe.target} == {one, other}

    def from_(self, endpoint: Endpoint) -> Pipe:
        """Return the pipe that an end writes to."""
        return self.pipes[id(endpoint)]

    def towards(self, endpoint: Endpoint) -> Pipe:
        """Return the pipe that an end reads from."""
        return next(pipe for key, pipe in self.pipes.items() if key != id(endpoint))


class World:
    """Time, chance, the network, and a trace of what happened."""

    def __init__(self, seed: int | str, *, tracing: bool = False, quiet: bool = False) -> None:
        self.number_of_seed = seed
        self.rng = random.Random(seed)
        self.now = EPOCH
        self.quiet = quiet
        """Whether every delay is the same, as in a play."""
        self.tracing = tracing
        self.lines: list[str] = []
        self.trace_hash = 0
        self.events = 0
        self.latency = (50 * MICROSECOND, 1 * MILLISECOND)
        self.silence = 0
        """ns after which an end that hears nothing gives up by itself, where no heartbeats are
        simulated; 0 for never.
        """
        self.carries_bytes = False
        """Whether what is carried are bytes, that may be cut anywhere, and not whole messages."""
        self.split_chunks = False
        """Whether bytes may arrive in smaller pieces than they were sent in."""
        self.streams: dict[int, Stream] = {}
        self.blocks: dict[tuple[str, str], int] = {}
        """(from, to) -> number of the block: nothing passes in this direction."""
        self._heap: list[tuple[int, float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._number = 0

    # -- time -------------------------------------------------------------------------------------

    def at(self, delay: int, action: Callable[..., None], *args: Any) -> None:
        """Have something happen after a delay; what is due at the same time happens in an order
        left to chance.
        """
        self._number += 1
        tie = 0.0 if self.quiet else self.rng.random()
        heapq.heappush(self._heap, (self.now + delay, tie, self._number, action, args))

    def run(self, until: int) -> None:
        """Let everything happen that is due before a time, and let it be that time."""
        heap = self._heap
        while heap and heap[0][0] <= until:
            when, _, _, action, args = heapq.heappop(heap)
            self.now = when
            self.events += 1
            action(*args)
        self.now = until

    def run_for(self, duration: int) -> None:
        """Let time go by."""
        self.run(self.now + duration)

    def chance(self, probability: float) -> bool:
        """Decide something."""
        return self.rng.random() < probability

    def between(self, low: int, high: int) -> int:
        """Draw a duration."""
        return low if self.quiet else self.rng.randrange(low, high + 1)

    # -- trace ------------------------------------------------------------------------------------

    def note(self, who: str, text: str) -> None:
        """Write a line of the trace."""
        self.trace_hash = zlib.crc32(f"{self.now}{who}{text}".encode(), self.trace_hash)
        if self.tracing:
            self.lines.append(f"{(self.now - EPOCH) / 1e9:10.6f} {who:>5} {text}")

    # -- the network ------------------------------------------------------------------------------

    def join(self, dialler: Endpoint, acceptor: Endpoint) -> Stream:
        """Make a stream between two hosts."""
        self._number += 1
        stream = Stream(self._number, dialler, acceptor)
        self.streams[stream.number] = stream
        return stream

    def delay(self) -> int:
        """Draw how long something is on its way; now and then much longer."""
        low, high = self.latency
        if self.quiet:
            return low
        delay = self.rng.randrange(low, high)
        return delay * 20 if self.rng.random() < 0.01 else delay

    def send(self, stream: Stream, sender: Endpoint, chunk: Any) -> None:
        """Put something on the way to the other end."""
        pipe = stream.from_(sender)
        if pipe.closed:
            return
        if (
            self.split_chunks
            and type(chunk) is bytes
            and len(chunk) > 1
            and self.rng.random() < 0.2
        ):
            place = self.rng.randrange(1, len(chunk))
            self._put(stream, pipe, chunk[:place])
            chunk = chunk[place:]
        self._put(stream, pipe, chunk)

    def close(self, stream: Stream, closer: Endpoint, reason: str = "closed by the peer") -> None:
        """End a stream in good order: the other end gets what was sent, and then the end. The
        closer hears nothing more.
        """
        mine, theirs = stream.from_(closer), stream.towards(closer)
        if theirs.receiver is None:
            return
        theirs.receiver = None
        theirs.closed = True
        theirs.queue.clear()
        if mine.receiver is None:
            self.streams.pop(stream.number, None)
        elif not mine.closed:
            self._put(stream, mine, _End(reason))
            mine.closed = True

    def vanish(self, stream: Stream, gone: Endpoint) -> None:
        """One end is no more, and cannot say so: what it sent may still arrive, but no end of the
        stream.
        """
        theirs = stream.towards(gone)
        theirs.receiver = None
        theirs.closed = True
        theirs.queue.clear()
        stream.from_(gone).closed = True

    def reset(self, stream: Stream, reason: str) -> None:
        """Break a stream: both ends are told, after what of their last bytes still came through."""
        for pipe in stream.pipes.values():
            if pipe.receiver is None:
                continue
            if self.quiet:
                pipe.queue.clear()
            self.lose_tail(pipe)
            pipe.closed = False
            self._put(stream, pipe, _End(reason))
            pipe.closed = True

    def lose_tail(self, pipe: Pipe) -> None:
        """Lose the end of what is in flight, or nothing, or everything; but not the word that the
        stream has ended.
        """
        queue = pipe.queue
        if not queue or self.quiet or type(queue[-1]) is _End:
            return
        keep = self.rng.randint(0, len(queue))
        while len(queue) > keep:
            queue.pop()
        if (
            self.carries_bytes
            and queue
            and type(last := queue[-1]) is bytes
            and self.rng.random() < 0.5
        ):
            queue[-1] = last[: self.rng.randrange(len(last) + 1)]

    def _put(self, stream: Stream, pipe: Pipe, chunk: Any) -> None:
        pipe.queue.append(chunk)
        due = max(self.now + self.delay(), pipe.free_at)
        pipe.free_at = due
        self._number += 1
        # Chunks of one pipe that arrive at the same time arrive in their order: which arrival is
        # which does not matter.
        heapq.heappush(
            self._heap,
            (
                due,
                0.0 if self.quiet else self.rng.random(),
                self._number,
                self._arrive,
                (stream, pipe),
            ),
        )

    def _arrive(self, stream: Stream, pipe: Pipe) -> None:
        if (pipe.source, pipe.target) in self.blocks:
            pipe.stalled += 1
            return
        if not pipe.queue:
            return  # it was lost in flight
        chunk = pipe.queue.popleft()
        receiver = pipe.receiver
        if receiver is None:
            return
        if type(chunk) is bytes:
            self.trace_hash = zlib.crc32(chunk, self.trace_hash)
        if type(chunk) is _End:
            self._end(stream, receiver, chunk.reason)
        else:
            receiver.stream_data(stream, chunk)

    def _end(self, stream: Stream, endpoint: Endpoint, reason: str) -> None:
        towards, from_ = stream.towards(endpoint), stream.from_(endpoint)
        towards.receiver = None
        from_.closed = True
        if from_.receiver is None:
            self.streams.pop(stream.number, None)
        endpoint.stream_lost(stream, reason)

    # -- blocked ways -----------------------------------------------------------------------------

    def is_blocked(self, source: str, target: str) -> bool:
        """Tell whether nothing passes from one host to another."""
        return (source, target) in self.blocks

    def block(self, source: str, target: str) -> None:
        """Let nothing pass from one host to another; it is kept, as TCP would send it again."""
        if (source, target) not in self.blocks:
            self._number += 1
            number = self.blocks[source, target] = self._number
            if self.silence:
                self.at(
                    self.silence + self.between(0, self.silence // 4),
                    self._silent,
                    source,
                    target,
                    number,
                )

    def unblock(self, source: str, target: str) -> None:
        """Let what was held pass, in its order."""
        if self.blocks.pop((source, target), None) is None:
            return
        for stream in list(self.streams.values()):
            for pipe in stream.pipes.values():
                if pipe.source == source and pipe.target == target:
                    stalled, pipe.stalled = pipe.stalled, 0
                    pipe.free_at = max(pipe.free_at, self.now + self.delay())
                    for _ in range(stalled):
                        self.at(pipe.free_at - self.now, self._arrive, stream, pipe)

    def _silent(self, source: str, target: str, number: int) -> None:
        """A block has lasted so long that the ends behind it find nobody there."""
        if self.blocks.get((source, target)) != number:
            return
        self.give_up(source, target)
        self.at(self.silence, self._silent, source, target, number)

    def give_up(self, source: str, target: str) -> None:
        """Have the ends that hear nothing from a host take it for gone."""
        for stream in list(self.streams.values()):
            for pipe in stream.pipes.values():
                endpoint = pipe.receiver
                if pipe.source == source and pipe.target == target and endpoint is not None:
                    self.close(stream, endpoint, "the peer heard nothing")
                    endpoint.stream_lost(stream, "silent for twice the heartbeat")
