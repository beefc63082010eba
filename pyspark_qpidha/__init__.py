"""Where Spark looks for data sources by itself: with this package installed `format("qpidha")`
needs no registration.
"""

from importlib.util import find_spec

# Spark imports this for sources of any name; one that cannot work here must not break the others.
if find_spec("pyarrow") is not None:
    from qpidha.connector.source import QueueSource as DefaultSource

    __all__ = ["DefaultSource"]
