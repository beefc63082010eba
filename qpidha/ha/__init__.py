"""HA: states, membership, the in-sync set, primary and backup; pure, and blind to exchanges, queues
and AMQP.
"""
