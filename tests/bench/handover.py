"""What it costs to hand messages from a process to another one: `python -m tests.bench.handover`.

What clients send could be read by processes of their own, and handed to the broker in batches. Here
two processes do nothing but that: one hands over numbered messages, is told that each is accepted,
gets it again for a consumer, and tells that it was accepted there: the four ways of a message that
is consumed. A batch is an array of numbers, an array of sizes and the bodies, over a pair of
sockets, or through memory that both have, with a socket that only wakes. The CPU of both, for each
message; what a broker would do beside it is not in it. The bound that follows from it is in
docs/internals/scale.md.
"""

from __future__ import annotations

import argparse
import os
import socket
import struct
import sys
import time
from array import array
from collections.abc import Callable
from multiprocessing.shared_memory import SharedMemory

HEAD = struct.Struct("<IBI")
"""Bytes behind it, what it is, how many messages."""
MESSAGES, NUMBERS = 1, 2
RING = 8 << 20
WINDOW = 16
"""Batches on their way."""


def encode(numbers: array[int], bodies: list[bytes]) -> bytes:
    """Encode a batch of messages, or of numbers where there are no bodies."""
    sizes = array("I", map(len, bodies))
    data = b"".join((numbers.tobytes(), sizes.tobytes(), *bodies))
    return HEAD.pack(len(data), MESSAGES if bodies else NUMBERS, len(numbers)) + data


def decode(data: memoryview, kind: int, count: int) -> tuple[array[int], list[bytes]]:
    """Decode what follows the head of a batch."""
    numbers, sizes, bodies = array("I"), array("I"), []
    numbers.frombytes(data[: 4 * count])
    if kind == MESSAGES:
        at = 8 * count
        sizes.frombytes(data[4 * count : at])
        for size in sizes:
            bodies.append(bytes(data[at : at + size]))
            at += size
    return numbers, bodies


class Sockets:
    """One end of a pair of sockets."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._read = b""

    def send(self, data: bytes) -> None:
        self._end.sendall(data)

    def receive(self) -> list[tuple[array[int], list[bytes]]]:
        """Wait for some batches."""
        self._read += self._end.recv(1 << 20)
        data, at, found = memoryview(self._read), 0, []
        while len(data) - at >= HEAD.size:
            size, kind, count = HEAD.unpack_from(data, at)
            if len(data) - at < HEAD.size + size:
                break
            found.append(decode(data[at + HEAD.size : at + HEAD.size + size], kind, count))
            at += HEAD.size + size
        self._read = bytes(data[at:])
        return found


class Rings:
    """One end of two rings in memory that both processes have; a byte on a socket wakes the other
    end. Never more is on its way than a ring takes.
    """

    def __init__(self, end: socket.socket, out: memoryview, into: memoryview) -> None:
        self._end, self._out, self._in = end, out, into
        self._written = self._taken = 0

    def send(self, data: bytes) -> None:
        if self._written + len(data) > RING:
            self._written = 0
        self._out[self._written : self._written + len(data)] = data
        self._end.sendall(struct.pack("<I", self._written))
        self._written += len(data)

    def receive(self) -> list[tuple[array[int], list[bytes]]]:
        """Wait for some batches."""
        found = []
        for (at,) in struct.iter_unpack("<I", self._end.recv(4 * WINDOW * 4)):
            size, kind, count = HEAD.unpack_from(self._in, at)
            found.append(decode(self._in[at + HEAD.size : at + HEAD.size + size], kind, count))
        return found


End = Sockets | Rings


def core(end: End, messages: int) -> None:
    """Accept each message, hand it to a consumer, and hear that it has it."""
    heard = 0
    while heard < messages:
        for numbers, bodies in end.receive():
            if bodies:
                end.send(encode(numbers, []))
                end.send(encode(numbers, bodies))
            else:
                heard += len(numbers)


def acceptor(end: End, messages: int, batch: int, size: int) -> None:
    """Hand over messages, and accept what comes for consumers."""
    body, sent, done, accepted = bytes(size), 0, 0, 0
    while done < messages or accepted < messages:
        while sent < messages and sent - min(done, accepted) < WINDOW * batch:
            numbers = array("I", range(sent, sent + batch))
            end.send(encode(numbers, [body] * batch))
            sent += batch
        for numbers, bodies in end.receive():
            if bodies:
                end.send(encode(numbers, []))
                done += len(numbers)
            else:
                accepted += len(numbers)


def measured(make: Callable[[], tuple[End, End]], messages: int, batch: int, size: int) -> str:
    """Run both, each in a process; their CPU for a message, in microseconds."""
    first, second = make()
    read, write = os.pipe()
    children = []
    for what in (lambda: core(first, messages), lambda: acceptor(second, messages, batch, size)):
        if not (child := os.fork()):
            began = time.process_time()
            what()
            spent = (time.process_time() - began) / messages * 1e6
            os.write(write, f"{spent:.2f} ".encode())
            os._exit(0)
        children.append(child)
        os.waitpid(child, 0) if len(children) == 2 else None
    os.waitpid(children[0], 0)
    os.close(write)
    told = os.read(read, 100).decode().split()
    os.close(read)
    return " and ".join(told)


def main() -> int:
    """Measure as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1 << 18)
    parser.add_argument("--size", type=int, default=100)
    ask = parser.parse_args()
    shared = [SharedMemory(create=True, size=RING) for _ in range(2)]
    one, two = shared[0].buf, shared[1].buf

    def sockets() -> tuple[End, End]:
        ends = socket.socketpair()
        return Sockets(ends[0]), Sockets(ends[1])

    def rings() -> tuple[End, End]:
        ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        return Rings(ends[0], one, two), Rings(ends[1], two, one)

    for batch in (1, 8, 64):
        count = ask.messages if batch > 1 else ask.messages // 16
        for name, make in (("sockets", sockets), ("shared memory", rings)):
            told = measured(make, count, batch, ask.size)
            print(f"{name}, batches of {batch}: {told} us of CPU a message")
    for each in shared:
        each.close()
        each.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
