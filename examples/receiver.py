"""Receive messages and print them: python examples/receiver.py BROKERS QUEUE COUNT [CA-FILE]"""

import sys
from contextlib import suppress

from qpidha.client.blocking import Client
from qpidha.client.endpoint import Tls
from qpidha.client.errors import DeliveryLost

with Client(sys.argv[1], tls=Tls(*sys.argv[4:])) as client:
    receiver = client.receiver(sys.argv[2])
    accepted = 0
    while accepted < int(sys.argv[3]):
        message = receiver.receive(timeout=60)
        print(message.body, flush=True)
        with suppress(DeliveryLost):  # A failover came between: the broker delivers it again.
            message.accept()
            accepted += 1
