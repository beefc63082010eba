"""AMQP server: what a broker does with a connection: attaches, deliveries both ways, transactions.
Knows nothing of HA.
"""
