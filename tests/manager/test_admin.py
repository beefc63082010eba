"""Admin links: a call ends when it is cancelled, whatever comes at that moment."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from qpidha.manager.admin import AdminLink


def test_a_call_that_is_cancelled_while_its_answer_comes_is_cancelled(tmp_path: Path) -> None:
    async def play() -> None:
        silent = await asyncio.start_unix_server(lambda reader, writer: None, tmp_path / "admin.sock")
        link = await AdminLink.open(str(tmp_path / "admin.sock"))
        call = asyncio.create_task(link.call("ping", timeout=60))
        await asyncio.sleep(0)
        (answer,) = link._waiting.values()
        answer.set_result({"result": {}})
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        link.close()
        silent.close()

    asyncio.run(play())
