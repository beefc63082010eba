"""The console: health endpoints, metrics, an HTTP API and a dashboard beside a broker, in a process
of its own that survives the broker.
"""
