"""The verification workload: clients that write everything down, and faults."""
