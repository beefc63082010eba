"""Several clients in several threads of one program: none has the bytes of another."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from qpidha.client.blocking import Client
from tests.client.served import Served

CLIENTS = 4
COUNT = 400


def test_clients_in_several_threads_keep_their_bytes_apart() -> None:
    together = threading.Barrier(CLIENTS)

    def send_and_receive(number: int) -> None:
        wanted = [bytes([number]) * (100 + turn) for turn in range(COUNT)]
        with Served("q") as served, Client(served.address, reconnect_timeout=0) as client:
            sender, receiver = client.sender("q"), client.receiver("q")
            together.wait()
            got = []
            for body in wanted:
                sender.send_nowait(body)
                message = receiver.receive()
                got.append(message.body)
                message.accept()
            sender.flush()
        assert got == wanted

    with ThreadPoolExecutor(CLIENTS) as threads:
        for done in [threads.submit(send_and_receive, number) for number in range(CLIENTS)]:
            done.result()
