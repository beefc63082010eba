"""A lab of three hosts made of namespaces, with real corosync, Pacemaker and pcs, and the scenarios
played on it.
"""
