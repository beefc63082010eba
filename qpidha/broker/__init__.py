"""Broker: exchanges, queues, bindings and their limits; knows nothing of clusters, connections,
disks or clocks.
"""
