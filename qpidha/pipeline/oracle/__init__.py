"""The checks in plain Python, for histories that one process can hold."""
