"""The console of this daemon: `qpidha-console` as a child process, where `http-port` asks for one.

It is told where the admin socket is, and ends when its standard input does: with the daemon,
however that ends. One that ends before is started again, later each time. Nothing waits for it: a
broker serves without. A console that is to outlive its broker is started by itself
(docs/console.md).
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from importlib.util import find_spec

from qpidha.model.exit_codes import CONFIG
from qpidha.model.settings import Settings
from qpidha.runtime.exits import CannotStart

NEEDS = ("fastapi", "jinja2", "prometheus_client", "uvicorn")
"""What the extra `console` brings."""
FIRST_WAIT, LONGEST_WAIT = 1.0, 60.0
"""Seconds before it is started again."""
PATIENCE = 5.0
"""Seconds that it may take to end."""


def check_console(http_port: int) -> None:
    """Raise CannotStart where a console is asked for and its extra is not installed."""
    if not http_port:
        return
    missing = [name for name in NEEDS if find_spec(name) is None]
    if missing:
        raise CannotStart(
            f"http-port={http_port}: the console needs {' and '.join(missing)}, not installed here",
            hint="pip install 'qpidha[console]', or leave http-port out",
            code=CONFIG,
        )


class ConsoleProcess:
    """A console that is kept running."""

    def __init__(
        self, settings: Settings, admin_socket: str, log: Callable[[str, str], None]
    ) -> None:
        """`log` takes a level and a text."""
        consoles = settings.http_consoles
        self._port = settings.http_port
        self._admin_socket = admin_socket
        self._log = log
        self._consoles = ("--consoles", ",".join(consoles)) if consoles else ()
        self._process: asyncio.subprocess.Process | None = None
        self._task = asyncio.get_running_loop().create_task(self._keep_running())

    async def close(self) -> None:
        """End it."""
        self._task.cancel()
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), PATIENCE)
        except TimeoutError:
            process.kill()

    async def _keep_running(self) -> None:
        wait = FIRST_WAIT
        while True:
            code = await self._run()
            text = f"the console ended with code {code}, and is started again in {wait:g} s"
            self._log("error", text)
            await asyncio.sleep(wait)
            wait = min(2 * wait, LONGEST_WAIT)

    async def _run(self) -> int:
        """Start it, pass on what it says, and return its exit code."""
        options = ("--admin-socket", self._admin_socket, "--port", str(self._port), "--until-eof")
        try:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "qpidha.console.main", *options, *self._consoles),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            self._log("error", f"the console cannot be started: {error.strerror}")
            return error.errno or 1
        assert self._process.stderr is not None
        while line := await self._process.stderr.readline():
            text = line.decode("utf-8", "replace").rstrip()
            self._log("notice" if text.startswith("qpidha-console: http") else "warning", text)
        return await self._process.wait()
