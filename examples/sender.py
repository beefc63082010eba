"""Send numbered messages: python examples/sender.py BROKERS QUEUE COUNT [CA-FILE]"""

import sys

from qpidha.client.blocking import Client
from qpidha.client.endpoint import Tls

with Client(sys.argv[1], tls=Tls(*sys.argv[4:])) as client:
    sender = client.sender(sys.argv[2], window=100)
    for number in range(int(sys.argv[3])):
        sender.send_nowait(f"message {number}")
    sender.flush()  # The broker has accepted all of them.
