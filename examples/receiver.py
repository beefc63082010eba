"""Receive messages and print them: python examples/receiver.py BROKERS QUEUE COUNT [CA-FILE]"""

import sys

from qpidha.client.blocking import Client
from qpidha.client.endpoint import Tls

with Client(sys.argv[1], tls=Tls(*sys.argv[4:])) as client:
    receiver = client.receiver(sys.argv[2])
    for _ in range(int(sys.argv[3])):
        message = receiver.receive(timeout=60)
        print(message.body, flush=True)
        message.accept()
