"""AMQP: one connection, its sessions and links, and what they ask of the broker model; knows
nothing of HA.
"""
