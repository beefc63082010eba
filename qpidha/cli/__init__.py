"""CLI: the commands qpid-ha and qpidhad, and the blocking client they speak with."""
