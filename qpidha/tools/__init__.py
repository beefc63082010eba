"""Tools: programs beside qpid-ha."""
