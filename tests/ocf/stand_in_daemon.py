"""A stand-in for qpidhad that is in any state, or broken in any way, that `stand-in.json` in its
data directory says.

The file is read at each request: `state`, `members`, `refuse` (text of a refusal), `deaf` (accepts
and never answers), `nonsense`, `keeps` (answers a demotion and stays primary), `late` (promotion
takes for ever). `exit` and `says` are read at the start, `stubborn` (ignores SIGTERM) as well. Real
brokers come to most of this only by bad luck.
"""

import json
import os
import signal
import socketserver
import sys
import threading
from pathlib import Path

CONFIG = Path(sys.argv[sys.argv.index("--config") + 1])
VALUES = dict(line.split("=", 1) for line in CONFIG.read_text().split() if "=" in line)
FILE = Path(VALUES["data-dir"]) / "stand-in.json"


def told():
    return json.loads(FILE.read_text()) if FILE.exists() else {}


def become(state):
    fresh = FILE.with_suffix(".new")
    fresh.write_text(json.dumps({**told(), "state": state}))
    fresh.replace(FILE)


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            request, how = json.loads(line), told()
            if how.get("deaf") or (how.get("late") and request["method"] == "promote"):
                threading.Event().wait()
            self.wfile.write(
                b"what?\n"
                if how.get("nonsense")
                else json.dumps(self.reply(request, how)).encode() + b"\n"
            )

    def reply(self, request, how):
        if request["method"] in ("promote", "demote"):
            if how.get("refuse"):
                return {
                    "id": request["id"],
                    "error": {
                        "condition": "amqp:not-allowed",
                        "message": how["refuse"],
                        "hint": "do better",
                    },
                }
            if not how.get("keeps"):
                become("recovering" if request["method"] == "promote" else "joining")
        how = told()
        result = {
            "state": how.get("state", "joining"),
            "members": how.get("members", []),
            "address": how.get("address", ""),
        }
        return {"id": request["id"], "result": result}


def main():
    how = told()
    if how.get("exit"):
        sys.stderr.write(how.get("says", "qpidhad: error: it is broken\n  next: mend it\n"))
        sys.exit(how["exit"])
    if "--check" in sys.argv:
        return
    if how.get("stubborn"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    path = Path(VALUES["data-dir"]) / "admin.sock"
    path.unlink(missing_ok=True)
    server = socketserver.ThreadingUnixStreamServer(str(path), Handler)
    server.daemon_threads = True
    server.serve_forever(poll_interval=60)


if __name__ == "__main__":
    os.umask(0o077)
    main()
