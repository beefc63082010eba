"""Store: the one log and the codec of its records; knows nothing of what a record does to a
broker.
"""
