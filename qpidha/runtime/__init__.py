"""Runtime: the only room with sockets, files, clocks and randomness; it feeds events to the node
and obeys effects.
"""
