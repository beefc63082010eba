"""Replicas of single queues elsewhere: streams of what happens on a queue, and their followers."""
