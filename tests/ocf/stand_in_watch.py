"""A stand-in for qpidha-watch: adds and removes addresses with iproute2, records what it is told,
ends with its broker.
"""

import json
import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

GIVEN = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=True))
VIPS = Path(GIVEN["--vips"])


def note(text):
    with open(os.environ["RECORD"], "a") as record:
        record.write(text + "\n")


def ended(*_):
    note("watch ended")
    sys.exit(0)


def answer(method, params):
    if method == "status":
        return {"result": {}}
    note(f"watch {method} {json.dumps(params, sort_keys=True)}")
    if method == "vip_add" and (VIPS / "refuse").exists():
        return {"error": {"message": "the broker is not primary", "hint": "promote it"}}
    if method == "vip_add":
        text = f"{params['address']}/{params['prefix'] or 24}"
        subprocess.run(["ip", "address", "add", text, "dev", params["interface"]], check=False)
    if method == "vip_remove" and "address" in params:
        subprocess.run(
            ["ip", "address", "del", f"{params['address']}/24", "dev", "d0"], check=False
        )
    return {"result": {}}


signal.signal(signal.SIGTERM, ended)
VIPS.mkdir(parents=True, exist_ok=True)
Path(GIVEN["--socket"]).unlink(missing_ok=True)
listener = socket.socket(socket.AF_UNIX)
listener.bind(GIVEN["--socket"])
listener.listen(16)
note(
    "watch "
    + " ".join(
        f"{name}={value}"
        for name, value in GIVEN.items()
        if name in ("--resource", "--publish", "--isolation", "--answer")
    )
)
broker = os.pidfd_open(int(GIVEN["--pid"]))
while broker not in select.select([broker, listener], [], [])[0]:
    client, _ = listener.accept()
    for line in client.makefile():
        request = json.loads(line)
        client.sendall(
            json.dumps(
                {"id": request["id"], **answer(request["method"], request["params"])}
            ).encode()
            + b"\n"
        )
    client.close()
