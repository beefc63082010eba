"""The soak: three brokers, six clients and a nemesis for minutes; every operation is on disk before
it counts.
"""
