"""A stand-in for qpidhad that manager tests start in its place: one state, an admin socket, and a shared file.

`primary.json` beside the brokers' directories plays the network: who is promoted writes itself there, and the others see
it. A file `refuse` in a broker's own directory makes it refuse one promotion, a file `freeze` stops it in the middle of one; a
file `sequence` says how far it is.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socketserver
from pathlib import Path
from typing import Any


class Broker:
    """The state of one pretended broker."""

    def __init__(self, config: Path) -> None:
        lines = [line.partition("=") for line in config.read_text().splitlines() if "=" in line]
        self.settings = {name: value for name, _, value in lines}
        self.directory = config.parent
        self.shared = self.directory.parent / "primary.json"
        self.state = "joining"
        self.epoch = 0

    def answer(self, method: str) -> dict[str, Any]:
        """Do what a request asks; return its result or error."""
        primary = json.loads(self.shared.read_text()) if self.shared.exists() else {"epoch": 0, "name": ""}
        mine = primary["name"] == self.settings["name"] and primary["pid"] == os.getpid()
        if method == "promote":
            refuse = self.directory / "refuse"
            if refuse.exists():
                refuse.unlink()
                return {"error": {"condition": "amqp:not-allowed", "message": "not now", "hint": "wait"}}
            freeze = self.directory / "freeze"
            if freeze.exists():
                freeze.unlink()
                os.kill(os.getpid(), signal.SIGSTOP)
            self.epoch = primary["epoch"] + 1
            self.state = "active"
            temporary = self.shared.with_suffix(f".{os.getpid()}")
            temporary.write_text(json.dumps({"name": self.settings["name"], "epoch": self.epoch, "pid": os.getpid()}))
            temporary.replace(self.shared)
        elif primary["epoch"] and not mine and primary["name"] != self.settings["name"]:
            self.state, self.epoch = "ready", primary["epoch"]
        sequence = self.directory / "sequence"
        status = {
            "state": self.state,
            "epoch": self.epoch,
            "sequence": int(sequence.read_text()) if sequence.exists() else 10,
            "system_id": self.settings["name"],
            "in_sync": {"epoch": 0, "version": 0, "members": []},
        }
        return {"result": status}


class Handler(socketserver.StreamRequestHandler):
    """Answers one admin connection."""

    def handle(self) -> None:
        """Answer until the peer hangs up."""
        for line in self.rfile:
            request = json.loads(line)
            reply = {"id": request["id"], **self.server.broker.answer(request["method"])}  # type: ignore[attr-defined]
            self.wfile.write(json.dumps(reply).encode() + b"\n")


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=Path, required=True)
    broker = Broker(parser.parse_args().config)
    server = socketserver.ThreadingUnixStreamServer(broker.settings["admin-socket"], Handler)
    server.daemon_threads = True
    server.broker = broker  # type: ignore[attr-defined]
    server.serve_forever()


if __name__ == "__main__":
    main()
