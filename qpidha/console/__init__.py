"""The console: health endpoints, metrics and an HTTP API beside a broker, in a process of its own
that survives the broker.
"""
