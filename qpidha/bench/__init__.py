"""Bench: demo, load, measurements and timelines."""
