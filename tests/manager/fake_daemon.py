"""A stand-in for qpidhad that manager tests start in its place: one state, an admin socket, and a
shared file.

`primary.json` beside the brokers' directories plays the network: who is promoted writes itself
there, and the others see it. A file `refuse` in a broker's own directory makes it refuse one
promotion, a file `freeze` stops it in the middle of one; a file `sequence` says how far it is.
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
        self.handing_over = ""

    def tell(self, name: str, epoch: int, pid: int) -> None:
        """Write down who is primary."""
        temporary = self.shared.with_suffix(f".{os.getpid()}")
        temporary.write_text(json.dumps({"name": name, "epoch": epoch, "pid": pid}))
        temporary.replace(self.shared)

    def answer(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Do what a request asks; return its result or error."""
        if (self.directory / "crash").exists():
            os.kill(os.getpid(), signal.SIGKILL)
        if method == "recover":
            return {"result": json.loads((self.directory.parent / "comparison.json").read_text())}
        primary = (
            json.loads(self.shared.read_text())
            if self.shared.exists()
            else {"epoch": 0, "name": ""}
        )
        if (
            primary.get("pid") == 0
            and primary["name"] == self.settings["name"]
            and not (self.directory.parent / "wait").exists()
        ):
            self.state, self.epoch = "active", primary["epoch"]
            self.tell(primary["name"], self.epoch, os.getpid())
            primary["pid"] = os.getpid()
        mine = primary["name"] == self.settings["name"] and primary["pid"] == os.getpid()
        if method == "switchover":
            target = f"b{params['target'].rpartition(':')[2]}"  # the port of b2 is 2
            self.state, self.handing_over = "joining", params["target"]
            self.tell(target, self.epoch + 1, 0)
            return {"result": {"state": self.state}}
        if not mine and primary.get("pid") == 0:
            return {"result": self.status()}  # no broker is primary just now
        if method == "promote":
            refuse = self.directory / "refuse"
            if refuse.exists():
                refuse.unlink()
                return {
                    "error": {"condition": "amqp:not-allowed", "message": "not now", "hint": "wait"}
                }
            freeze = self.directory / "freeze"
            if freeze.exists():
                freeze.unlink()
                os.kill(os.getpid(), signal.SIGSTOP)
            self.epoch = primary["epoch"] + 1
            self.state = "active"
            self.tell(self.settings["name"], self.epoch, os.getpid())
        elif primary["epoch"] and not mine and primary["name"] != self.settings["name"]:
            self.state, self.epoch, self.handing_over = "ready", primary["epoch"], ""
        return {"result": self.status()}

    def status(self) -> dict[str, Any]:
        """Say how it is."""
        sequence, in_sync = self.directory / "sequence", self.directory / "in_sync"
        return {
            "state": self.state,
            "epoch": self.epoch,
            "sequence": int(sequence.read_text()) if sequence.exists() else 10,
            "system_id": self.settings["name"],
            "handing_over": self.handing_over,
            "in_sync": json.loads(in_sync.read_text())
            if in_sync.exists()
            else {"epoch": 0, "version": 0, "members": []},
        }


class Handler(socketserver.StreamRequestHandler):
    """Answers one admin connection."""

    def handle(self) -> None:
        """Answer until the peer hangs up."""
        for line in self.rfile:
            request = json.loads(line)
            reply = {
                "id": request["id"],
                **self.server.broker.answer(request["method"], request["params"]),
            }  # type: ignore[attr-defined]
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
