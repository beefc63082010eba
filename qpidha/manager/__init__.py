"""Manager: cluster resource managers; they stand outside the broker and use only what an outsider
may use.
"""
