"""Connection kinds: one word for who is at the other end of a connection that `list_connections`
tells of, the same in commands and on pages. The words are those of the fields, and of
`connections` in `statistics`. Source: management/schema.py. Must not know how they are shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def kind_of_connection(row: Mapping[str, Any]) -> str:
    """Return `outgoing`, `backup`, `admin` or `client`; connections that a broker makes itself have
    ids below 0.
    """
    if row["id"] < 0:
        return "outgoing"
    if row["backup"]:
        return "backup"
    return "admin" if row["admin"] else "client"
