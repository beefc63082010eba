"""Runs a Python program for whoever asks, in forks of a process that has imported it: the import is
most of what a short call costs. tests/programs.py starts it, with the Python that the program is
installed for.

A caller sends one packet: the arguments, the environment and the directory, with its three standard
files; the answer is the exit code. A caller that goes away takes its call with it.
"""

import gc
import importlib
import json
import os
import select
import signal
import socket
import sys

PACKET = 100_000


def become(main, name, packet, files):
    """Be the program that was asked for; return its exit code."""
    asked = json.loads(packet)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    sys.argv = [name, *asked["words"]]
    try:
        code = main()
    except SystemExit as ended:
        code = ended.code
    sys.stdout.flush()
    sys.stderr.flush()
    return code if isinstance(code, int) else 0 if code is None else 1


def call(main, name, caller):
    """Do what one caller asks, and tell it the exit code."""
    packet, files, _, _ = socket.recv_fds(caller, PACKET, 3)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if not pid:
        caller.close()
        os._exit(become(main, name, packet, files))
    ended = os.pidfd_open(pid)
    if ended not in select.select([ended, caller], [], [])[0]:
        os.kill(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    caller.send(str(code if code >= 0 else 128 - code).encode())


def serve(path, module, *more):
    """Serve calls of `main` of a module, any number at a time, until this process is killed."""
    main = importlib.import_module(module).main
    for other in more:
        importlib.import_module(other)
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(path)
        listener.listen(100)
        print("ready", flush=True)
        while True:
            caller, _ = listener.accept()
            if not os.fork():
                listener.close()
                call(main, os.path.basename(os.path.dirname(path)), caller)
                os._exit(0)
            caller.close()


if __name__ == "__main__":
    serve(*sys.argv[1:])
