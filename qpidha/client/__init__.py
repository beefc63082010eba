"""Client: AMQP for applications, with failover; and how tools find and ask a broker.

For applications, and stable: what stands here keeps its names and meaning.

    qpidha.client.blocking   Client, Sender, Receiver, Transaction: for programs with threads
    qpidha.client.aio        the same names, for asyncio
    qpidha.client.message    Message, Header, Properties, Outcome
    qpidha.client.endpoint   Endpoint, Tls: where brokers are and how they are spoken to
    qpidha.client.errors     ClientError and its kinds: text, reason, hint, condition
    qpidha.client.links      Delivery (of a message that was sent), Received (one that came)
    qpidha.model.encoding    Symbol, UInt, Timestamp, ...: AMQP types that Python has not

    client = Client("amqps://one,amqps://two", user="ann", password="...", tls=Tls("ca.pem"))
    sender = client.sender("orders", window=1000)
    sender.send(message)                       # waits until it is accepted
    delivery = sender.send_nowait(message)     # delivery.outcome, sender.flush()
    receiver = client.receiver("orders", credit=100)
    message = receiver.receive(timeout=5)      # message.body, message.accept()
    with client.transaction() as transaction:  # commits at the end of the block
        sender.send(message, transaction=transaction)
    reply = client.request("service", message)

Everything else in this room (core, the classes of links but those two, management, admin) serves
the above and the commands, and may change. `qpidha` ships its types (PEP 561).
"""
