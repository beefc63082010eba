"""AMQP peer: one AMQP connection, its sessions, links and login, without I/O. Brokers, links
between brokers and clients stand on it; it knows no broker.
"""
