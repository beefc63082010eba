"""Synthetic histories with planted faults."""
