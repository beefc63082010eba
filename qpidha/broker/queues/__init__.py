"""Queues: one queue and the parts it is made of: order, dispatch, limits, lifetime, departures."""
