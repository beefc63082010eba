"""Asking: one question over an admin socket, for a caller that has no event loop. Knows nothing of what the question means."""

from __future__ import annotations

import asyncio
from typing import Any

from qpidha.manager.admin import AdminLink


def ask(path: str, method: str, params: dict[str, Any] | None = None, *, timeout: float) -> dict[str, Any]:
    """Ask and return the result; raise RefusedRequest for a no and LinkBroken for no answer within `timeout` seconds."""
    return asyncio.run(_ask(path, method, params, timeout))


async def _ask(path: str, method: str, params: dict[str, Any] | None, timeout: float) -> dict[str, Any]:
    link = await AdminLink.open(path)
    try:
        return await link.call(method, params, timeout=timeout)
    finally:
        link.close()
