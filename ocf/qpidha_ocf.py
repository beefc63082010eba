"""What the OCF agents of provider `qpidha` share: a call from Pacemaker, admin sockets, and
processes by their pid files.

A call has parameters, a deadline of its own (one second before Pacemaker's) and an exit code, with
a reason that Pacemaker shows. Brokers and watches are asked in JSON lines; the kernel says who
listens. Knows little of brokers. Standard library only and few modules, because a monitor is called
every few seconds. Source: OCF Resource Agent API 1.1; Pacemaker Administration, "OCF Return Codes".
"""

import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time

(
    OK,
    ERROR,
    ARGS,
    UNIMPLEMENTED,
    NO_PERMISSION,
    NOT_INSTALLED,
    NOT_CONFIGURED,
    NOT_RUNNING,
    PROMOTED,
    FAILED_PROMOTED,
) = range(10)
DEGRADED_PROMOTED = 191
"""Promoted, and no backup is ready: Pacemaker shows it and leaves the primary alone."""
# ARGS, NO_PERMISSION and NOT_INSTALLED keep the resource off this node only. NOT_CONFIGURED stops
# it on every node, so it is for parameters of the resource alone, which are the same everywhere,
# and never for a file of one node.

PRIMARY_STATES = ("recovering", "active")
"""States of a broker that serves."""
TOOL_PATIENCE = 2.0
"""Seconds that a tool of Pacemaker may take."""
LOG_LIMIT = 1 << 20
"""Bytes of output after which the next start begins a new file and keeps the old one as `.old`."""


class Failure(Exception):
    """The action ends with this exit code, and Pacemaker shows the text as the reason."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


class NobodyThere(Exception):
    """Nobody listens on the socket."""


class NoAnswer(Exception):
    """Somebody listens and did not answer in time."""


class Refused(Exception):
    """The answer is no, with the reason and what to do about it."""


# -- a call from Pacemaker --


class Call:
    """One call of an agent: which resource, which parameters, until when."""

    def __init__(self, agent, action, parameters):
        self.action = action
        self.resource = os.environ.get("OCF_RESOURCE_INSTANCE", agent).partition(":")[0]
        self.parameters = {
            name: os.environ.get(f"OCF_RESKEY_{name}") or default
            for name, _, default, *_ in parameters
        }
        self.defaults = {name: default for name, _, default, *_ in parameters}
        about = {
            name: os.environ.get(f"OCF_RESKEY_CRM_meta_{name}", "")
            for name in ("interval", "role", "timeout", "on_node")
        }
        self.is_probe = about["interval"] in ("", "0")
        self.is_promoted = about["role"].lower() in ("promoted", "master")
        self.node = about["on_node"]
        """This node's name in the cluster, which need not be that of the machine; empty by hand."""
        given = about["timeout"]
        seconds = int(given) / 1000 if given.isdigit() and int(given) else 20.0
        self.allowed = max(seconds - 1, seconds / 2)
        self.deadline = time.monotonic() + self.allowed
        self.doing = ""
        """What is being waited for, for the reason when the deadline comes."""

    def text(self, name):
        """Return a parameter as it was given, or its default."""
        return self.parameters[name]

    def seconds(self, name):
        """Return a parameter that is a time, in seconds."""
        text = self.text(name)
        try:
            value = float(text.removesuffix("s"))
        except ValueError:
            value = -1.0
        if not 0 <= value < 86400:
            if self.action == "stop":
                return float(self.defaults[name])  # a stop that fails gets this node fenced
            raise Failure(
                NOT_CONFIGURED, f"{name}={text} is not a time: give seconds, such as 1 or 0.5"
            )
        return value

    def path(self, name):
        """Return a parameter that is an absolute path."""
        path = self.text(name)
        if not path.startswith("/"):
            if self.action == "stop":
                return self.defaults[name]  # nothing was ever started with it
            raise Failure(NOT_CONFIGURED, f"{name}={path} is not an absolute path: give one")
        return path

    def program(self, name):
        """Return a parameter that is a program of this node."""
        path = self.path(name)
        if not os.path.exists(path):
            raise Failure(
                NOT_INSTALLED, f"{path} is missing: install it on this node, or set {name}"
            )
        if not os.access(path, os.X_OK):
            raise Failure(NO_PERMISSION, f"{path} may not be run: check its permissions")
        return path

    def left(self):
        """Seconds until the deadline."""
        return max(0.0, self.deadline - time.monotonic())

    def too_late(self, *_):
        """End the action: called by the alarm at the deadline."""
        waiting = f" while {self.doing}" if self.doing else ""
        raise Failure(
            ERROR,
            f"not done after {self.allowed:g} s{waiting}: see the log, or give the "
            "operation a longer timeout",
        )


def run(agent, about, parameters, actions):
    """Do the action that the command line names; return its exit code. `actions` has a function and
    a table row each.
    """
    action = sys.argv[1] if len(sys.argv) == 2 else ""
    if action == "meta-data":
        sys.stdout.write(meta_data(agent, about, parameters, actions))
        return OK
    if action not in actions:
        tell(f"usage: {agent} {'|'.join(actions)}|meta-data")
        return UNIMPLEMENTED
    call = Call(agent, action, parameters)
    signal.signal(signal.SIGALRM, call.too_late)
    signal.setitimer(signal.ITIMER_REAL, call.allowed)
    try:
        return actions[action][0](call)
    except Failure as failure:
        return failed(failure.code, str(failure))
    except (NobodyThere, NoAnswer, Refused) as why:
        return failed(ERROR, f"{action}: {why}")
    except PermissionError as error:
        return failed(
            NO_PERMISSION,
            f"not permitted: {error.filename or 'a process or socket of another user'}: "
            "agents run as root",
        )
    except OSError as error:
        return failed(ERROR, f"{error.filename or action}: {error.strerror or error}")


def failed(code, text):
    """Tell Pacemaker the reason; return the exit code."""
    tell(os.environ.get("OCF_EXIT_REASON_PREFIX", "ocf-exit-reason:") + " ".join(text.split()))
    return code


def tell(text):
    """Write a line to Pacemaker's log. That nobody reads it is no failure."""
    try:
        if sys.stderr is not None:  # else this file descriptor is something else's
            os.write(2, f"{text}\n".encode(errors="replace"))
    except OSError:
        pass


def meta_data(agent, about, parameters, actions):
    """Describe an agent as OCF 1.1 wants it: parameters are (name, type, default, sentence), the
    first line of `about` is its title.
    """
    title, _, story = about.strip().partition("\n")
    lines = [
        '<?xml version="1.0"?>',
        '<!DOCTYPE resource-agent SYSTEM "ra-api-1.dtd">',
        f'<resource-agent name="{agent}" version="1.0">',
    ]
    lines += [
        "<version>1.1</version>",
        described("longdesc", story),
        described("shortdesc", title),
        "<parameters>",
    ]
    for name, kind, default, sentence, *required in parameters:
        lines.append(f'<parameter name="{name}" required="{int(bool(required))}" unique="0">')
        lines += [
            described("longdesc", sentence),
            described("shortdesc", sentence.partition(".")[0].partition(":")[0]),
        ]
        lines.append(
            f'<content type="{kind}"'
            + (f' default="{escape(default)}"' if default else "")
            + "/></parameter>"
        )
    lines += ["</parameters>", "<actions>"]
    for action, (_, *rows) in actions.items():
        lines += [f'<action name="{action}" {row}/>' for row in rows]
    return "\n".join(
        [*lines, '<action name="meta-data" timeout="5s"/>', "</actions>", "</resource-agent>", ""]
    )


def described(kind, text):
    """Return a description as XML."""
    return f'<{kind} lang="en">{escape(text)}</{kind}>'


def escape(text):
    """Return text for XML."""
    return text.strip().replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")


def tool(*command):
    """Run a tool of Pacemaker and return whether it did its work; without a cluster it does not,
    and that is no failure of ours.
    """
    path = os.environ.get("PATH", "") + ":/usr/sbin:/usr/bin"
    try:
        done = subprocess.run(
            command,
            env={**os.environ, "PATH": path},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=TOOL_PATIENCE,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        tell(f"{command[0]}: {error}")
        return False
    return done.returncode == 0


# -- admin sockets --


class Admin:
    """A conversation over the UNIX socket of a broker or of its watch; a step that takes longer
    than `seconds` is no answer.
    """

    def __init__(self, path, seconds):
        self.path, self.seconds, self.pid = path, seconds, 0
        self.buffer = b""
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(seconds)
        try:
            self.socket.connect(path)
            self.pid = struct.unpack(
                "3i", self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            )[0]
        except PermissionError:
            raise Failure(NO_PERMISSION, f"{path} may not be opened: agents run as root") from None
        except (BlockingIOError, TimeoutError, socket.timeout):  # noqa: UP041 - they are the same from Python 3.10 on
            raise NoAnswer(f"{path} takes no more connections") from None
        except OSError:  # also a path that no socket can have
            raise NobodyThere(f"no process listens on {path}") from None

    def ask(self, method, **params):
        """Send a request."""
        try:
            self.socket.sendall(
                json.dumps({"id": 1, "method": method, "params": params}).encode() + b"\n"
            )
        except OSError as error:
            raise NoAnswer(f"{self.path}: {error.strerror or error}") from None

    def answer(self, seconds=None):
        """Return the result of the request."""
        seconds = self.seconds if seconds is None else seconds
        end = time.monotonic() + seconds
        try:
            while b"\n" not in self.buffer:
                self.socket.settimeout(max(0.001, end - time.monotonic()))
                data = self.socket.recv(65536)
                if not data:
                    raise NoAnswer(f"{self.path} hung up")
                self.buffer += data
            line, _, self.buffer = self.buffer.partition(b"\n")
            reply = json.loads(line)
            error, result = reply.get("error"), reply.get("result") or {}
        except (TimeoutError, socket.timeout):  # noqa: UP041
            raise NoAnswer(f"{self.path} did not answer within {seconds:g} s") from None
        except (OSError, ValueError, AttributeError) as error:
            raise NoAnswer(f"{self.path} answered nonsense: {error}") from None
        if error:
            hint = error.get("hint", "")
            raise Refused(f"{error.get('message', 'refused')}{'; next: ' + hint if hint else ''}")
        return result


def ask(path, seconds, method, **params):
    """Ask one thing; return the result."""
    admin = Admin(path, seconds)
    try:
        admin.ask(method, **params)
        return admin.answer()
    finally:
        admin.socket.close()


# -- processes --


class Process:
    """A living process; its pidfd means it and no later one with the same pid."""

    def __init__(self, pid, fd):
        self.pid, self.fd = pid, fd

    def signal(self, number):
        """Send a signal; a process that just ended is no error."""
        try:
            signal.pidfd_send_signal(self.fd, number)
        except ProcessLookupError:
            pass

    def ended(self, seconds):
        """Wait for the end; return whether it came."""
        return bool(select.select([self.fd], [], [], seconds)[0])


def living(pid, started=0):
    """Return the process with this pid if it lives and, where that is given, began at this tick
    since boot; else None.
    """
    try:
        fd = os.pidfd_open(pid)
    except (OSError, OverflowError):
        return None
    begun = start_time(pid)
    if begun and started in (0, begun):
        return Process(pid, fd)
    os.close(fd)
    return None


def start_time(pid):
    """Return when a process began, in clock ticks since boot; 0 for none, or one that is dead and
    not yet buried.

    A dead first thread does not make it dead: another one may still have its locks and sockets.
    """
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        threads = len(os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return 0
    return 0 if fields[0] in "ZX" and threads < 2 else int(fields[19])


def record(path, pid, note=""):
    """Write a pid file: pid, start time and a note. Replaced as a whole, so a reader sees the old
    or the new one.
    """
    with open(path + ".new", "w") as file:
        file.write(f"{pid} {start_time(pid)} {note}\n")
    os.replace(path + ".new", path)


def recorded(path):
    """Return the living process of a pid file and its note; (None, "") if there is none or the pid
    is another's by now.
    """
    try:
        with open(path) as file:
            pid, started, note = (file.read().rstrip("\n") + "  ").split(" ", 2)
        # A process that had ended before it was recorded has the time 0, which is nobody's.
        return (
            (process, note.strip())
            if (process := living(int(pid), int(started) or -1))
            else (None, "")
        )
    except (OSError, ValueError):
        return None, ""


def launch(command, log, **how):
    """Start a process in a session of its own, its output appended to a log; return it and where in
    the log it begins.
    """
    if os.path.exists(log) and os.path.getsize(log) > LOG_LIMIT:
        os.replace(log, log + ".old")
    with open(log, "ab") as output:
        begin = output.tell()
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            **how,
        )
    return child, begin
