"""The broker daemon of this node, as the OCF agents start, look at, promote, demote and stop it.

It is found by its pid file, or by the kernel's word for who listens on its admin socket. Its watch
(qpidha-watch) is a process beside it that sets the promotion score and pushes the broker's death;
the agents only take the score away. The score of a broker that is gone or hangs is taken away
before that is reported, so that it is not promoted again, empty, on its own node.
"""

import fcntl
import os
import pwd
import signal
import socket
import subprocess
import time

from qpidha_ocf import (
    ARGS,
    ERROR,
    FAILED_PROMOTED,
    NO_PERMISSION,
    NOT_RUNNING,
    OK,
    PRIMARY_STATES,
    Admin,
    Failure,
    NoAnswer,
    NobodyThere,
    Refused,
    ask,
    launch,
    living,
    record,
    recorded,
    tell,
    tool,
)

STARTED_CODES = {78: ARGS, 77: NO_PERMISSION}
"""Exit code of a daemon that cannot start (sysexits.h) -> exit code of `start`; ERROR for all
others.
"""
BACKUP_STATES = ("joining", "catchup", "ready")
GONE, HUNG = "gone", "hung"
"""What a broker is that cannot say it itself."""
PAUSE = 0.05
"""Seconds between two looks at what cannot be waited for."""
KILLING = 2.0
"""Seconds that the end of a killed process may take, with what follows it."""
WATCH_PATIENCE = 1.0
"""Seconds that the watch may take to remove its addresses and end."""
WATCH_START = 15.0
"""Seconds after which the watch listens, also on a node that has much to do: mostly a tenth of one.
"""

BROKER_PARAMETERS = (
    (
        "config",
        "string",
        "/etc/qpidha/qpidha.conf",
        "Configuration file of the broker, on every node.",
    ),
    (
        "admin_socket",
        "string",
        "",
        "The broker's admin socket. Empty: as the configuration says, admin-socket, else "
        "data-dir/admin.sock, else /run/qpidha/admin-PORT.sock.",
    ),
    (
        "rundir",
        "string",
        "/run/qpidha",
        "Directory of this broker alone: pid file, log, the watch's socket. Must not "
        "survive a reboot.",
    ),
    (
        "answer",
        "string",
        "1",
        "Seconds that the broker may take to answer. After them it counts as hung.",
    ),
)
DAEMON_PARAMETERS = (
    ("binary", "string", "/usr/bin/qpidhad", "The broker's program."),
    (
        "watch",
        "string",
        "/usr/bin/qpidha-watch",
        "Program of the watch: sets the promotion score and reports the broker's death at once.",
    ),
    (
        "user",
        "string",
        "",
        "User that the broker runs as. Empty is the user that runs the agent: root.",
    ),
    (
        "isolation",
        "string",
        "3",
        "Seconds that a primary may be cut off from a majority, or from Pacemaker's "
        "store, before it counts as failed. 0 is never.",
    ),
    (
        "term",
        "string",
        "3",
        "Seconds that the broker may take to end in good order before it is killed.",
    ),
)


class Broker:
    """The broker daemon of this node, under the name of the resource that starts it."""

    def __init__(self, call, name, *, publish="promotion"):
        self.call, self.name, self.publish = call, name, publish
        self.rundir = call.path("rundir")
        self.answer = min(call.seconds("answer"), call.allowed / 2)
        """Seconds for the broker; the rest of what is allowed is for what follows from them."""
        self.log, self.pid_file = self.file("log"), self.file("pid")
        self.process, self.socket = recorded(self.pid_file)
        """Who it is, if it is known, and the socket that it was started with."""
        self.status = {}
        self.trouble = ""
        """Why it is hung."""

    def file(self, kind):
        """Path of a file of ours about this broker."""
        return os.path.join(self.rundir, f"{self.name}.{kind}")

    def lock(self):
        """Wait until no other action changes this broker; the lock ends with this process."""
        file = self.lock_file()
        self.call.doing = "another action on this broker goes on"
        fcntl.flock(file, fcntl.LOCK_EX)
        self.call.doing = ""
        self.process, self.socket = recorded(self.pid_file)

    def lock_file(self):
        """Open the lock file."""
        os.makedirs(self.rundir, mode=0o755, exist_ok=True)
        return os.open(self.file("lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def look(self):
        """Ask the broker how it is: its state, or GONE, or HUNG with the trouble told."""
        self.status = {}
        try:
            self.socket = self.socket or self.configured_socket()
        except Failure:
            if self.process is None:
                # it would have been found by its pid file; that it cannot be started is said by
                # `start`
                return GONE
            raise
        try:
            admin = Admin(self.socket, self.answer)
            self.process = self.process or self.ours(admin.pid)
            admin.ask("status")
            self.status = admin.answer()
            admin.socket.close()
        except NobodyThere as why:
            if self.process is None or self.process.ended(
                PAUSE
            ):  # its socket goes a moment earlier
                return GONE
            self.trouble = f"the broker (pid {self.process.pid}) lives, but {why}"
        except (NoAnswer, Refused) as why:
            if self.process is not None and self.process.ended(PAUSE):
                return GONE
            self.trouble = (
                f"the broker (pid {self.process.pid if self.process else 'unknown'}) hangs: {why}"
            )
        state = self.status.get("state", HUNG)
        if state not in (HUNG, "standalone", *BACKUP_STATES, *PRIMARY_STATES):
            self.trouble, state = (
                f"the broker says that its state is {state!r}: is it a qpidhad of another version?",
                HUNG,
            )
        return state

    def ours(self, pid):
        """Return the process that listens on the admin socket; one of another user is none: our
        broker's could point at any socket.
        """
        process, account = living(pid), self.account()
        if process is not None and account and os.stat(f"/proc/{pid}").st_uid != account["user"]:
            raise NobodyThere(
                f"no process of user {self.call.text('user')} listens on {self.socket}"
            )
        return process

    def configured_socket(self):
        """Find the admin socket as the daemon does."""
        if self.call.text("admin_socket"):
            return self.call.path("admin_socket")
        config = self.call.path("config")
        try:
            with open(config, encoding="utf-8") as file:
                lines = [line.strip().replace("\t#", " #").partition(" #")[0] for line in file]
        except PermissionError:
            raise Failure(NO_PERMISSION, f"{config} may not be read: agents run as root") from None
        except (OSError, UnicodeDecodeError) as error:
            raise Failure(
                ARGS, f"{config} cannot be read: {error}; write it on this node, or set config"
            ) from None
        values = dict(
            (part.strip() for part in line.split("=", 1))
            for line in lines
            if "=" in line and not line.startswith("#")
        )
        path = values.get("admin-socket") or (
            values["data-dir"] + "/admin.sock" if values.get("data-dir") else ""
        )
        port = values.get("port", "5672")
        if not path and (self.call.text("user") or port == "0"):
            raise Failure(
                ARGS,
                f"{config} has neither data-dir nor admin-socket, so no agent can ask the "
                "broker: set data-dir",
            )
        path = path or f"/run/qpidha/admin-{port}.sock"
        return os.path.join(os.path.dirname(config), path)

    @property
    def has_ready_backup(self):
        """Whether another broker could take over at once."""
        return any(member.get("state") == "ready" for member in self.status.get("members", []))

    # Looking after it.

    def check(self):
        """Do what every monitor does, and return the state; the score of a broker that is gone or
        hung is taken away first.
        """
        state = self.look()
        if (
            state not in (GONE, HUNG)
            and os.environ.get("OCF_CHECK_LEVEL", "0") != "0"
            and not self.accepts_clients()
        ):
            state = HUNG
        if state in (GONE, HUNG) and not self.call.is_probe:
            self.forget_score()
        if state == HUNG:
            raise Failure(FAILED_PROMOTED if self.call.is_promoted else ERROR, self.trouble)
        self.refuse_standalone(state)
        if state != GONE and not self.call.is_probe:
            self.watch_it()
        return state

    def accepts_clients(self):
        """Whether the broker says something to a client that connects (the deeper monitor,
        OCF_CHECK_LEVEL=10).
        """
        host, _, port = str(self.status.get("address", "")).rpartition(":")
        try:
            place = (host.strip("[]"), int(port))
            # One that serves TLS only hangs up on those who begin with anything else.
            if not self.is_answered(place, b"AMQP\x03\x01\x00\x00") and not self.is_answered(
                place, tls_greeting()
            ):
                raise OSError("it hung up")
        except (OSError, ValueError) as error:
            self.trouble = (
                "the broker answers on its admin socket, but not to clients at "
                f"{self.status.get('address')}: {error}"
            )
            return False
        return True

    def is_answered(self, place, greeting):
        """Whether a client that greets is told anything before the connection ends."""
        with socket.create_connection(place, self.answer) as client:
            client.sendall(greeting)
            return bool(client.recv(8))

    def refuse_standalone(self, state):
        """A broker that is not in a cluster can never be promoted."""
        if state == "standalone":
            raise Failure(
                ARGS,
                "the broker is not in a cluster: set ha-cluster=yes and ha-brokers-url "
                f"in {self.call.text('config')}",
            )

    def forget_score(self):
        """Take away what makes Pacemaker prefer this broker as primary."""
        if self.publish == "promotion":
            tool("crm_attribute", "--promotion", "-D", "-q")
        else:
            tool("attrd_updater", "-n", "qpid-ready", "-D")

    # Starting and stopping.

    def validate(self):
        """Refuse parameters and files with which no broker could be started here."""
        for name in ("isolation", "term"):
            self.call.seconds(name)
        self.call.program("binary")
        self.call.program("watch")
        self.configured_socket()
        self.account()

    def validate_all(self):
        """Refuse also what the daemon itself does not like."""
        self.validate()
        command = [self.call.program("binary"), "--check", "--config", self.call.path("config")]
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            **self.account(),
        )
        if done.returncode:
            raise Failure(
                STARTED_CODES.get(done.returncode, ERROR),
                last_words(done.stderr.decode(errors="replace")),
            )
        return OK

    def account(self):
        """Return how to start a process as the configured user."""
        name = self.call.parameters.get("user")
        if not name:  # as the agent runs; or the agent starts no broker
            return {}
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            raise Failure(
                ARGS, f"there is no user {name} on this node: add it, or set user"
            ) from None
        if os.geteuid() not in (0, user.pw_uid):
            raise Failure(
                NO_PERMISSION, f"only root may start a broker as {name}: agents run as root"
            )
        groups = os.getgrouplist(name, user.pw_gid)
        return (
            {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": groups}
            if os.geteuid() == 0
            else {}
        )

    def start(self):
        """Start the daemon and its watch, if they do not run, and wait until the broker answers."""
        self.validate()
        self.lock()
        self.refuse_shared_rundir()
        state = self.look()
        if state == HUNG:
            raise Failure(ERROR, f"{self.trouble}; stop it before it is started again")
        if state == GONE:
            self.end_watch()
            state = self.launch()
            if state == "standalone":
                self.end_process(self.call.seconds("term"))
        self.refuse_standalone(state)
        if not recorded(self.file("watch.pid"))[0]:
            self.start_watch()
        return OK

    def refuse_shared_rundir(self):
        """Two brokers would share a watch's socket, and take each other's virtual addresses
        away.
        """
        for file in os.listdir(self.rundir):
            name = file.removesuffix(".pid")
            if (
                name not in (file, self.name)
                and not name.endswith(".watch")
                and recorded(os.path.join(self.rundir, file))[0]
            ):
                raise Failure(
                    ARGS,
                    f"{self.rundir} is the rundir of the broker of resource {name}: give "
                    f"{self.name} another rundir",
                )

    def launch(self):
        """Start the daemon; return its state when it answers."""
        config = self.call.path("config")
        self.socket = self.configured_socket()
        child, begin = launch(
            [self.call.program("binary"), "--config", config],
            self.log,
            cwd=os.path.dirname(config),
            **self.account(),
        )
        record(self.pid_file, child.pid, self.socket)
        self.process = living(child.pid)
        self.call.doing = (
            f"the broker (pid {child.pid}) opens its admin socket {self.socket}; its output "
            f"is in {self.log}"
        )
        while True:
            if child.poll() is not None:
                code = STARTED_CODES.get(child.returncode, ERROR)
                with open(self.log, errors="replace") as log:
                    log.seek(begin)
                    raise Failure(
                        code,
                        f"the broker ended with exit code {child.returncode}: "
                        f"{last_words(log.read())}",
                    )
            try:
                return ask(self.socket, self.answer, "status").get("state", HUNG)
            except (NobodyThere, NoAnswer, Refused):
                time.sleep(PAUSE)

    def stop(self):
        """End the watch and then the daemon, whatever its role and however it is; nothing that it
        keeps is deleted.
        """
        try:
            self.lock()
        except OSError as error:
            tell(f"no lock: {error}")  # a stop that fails gets this node fenced: go on without
        is_gone = self.process is None and self.look() == GONE
        self.end_watch()
        self.forget_score()  # now that nobody can set it again
        if not is_gone:
            self.kill(self.call.seconds("term"))
        return OK

    def kill(self, seconds=0.0):
        """End the broker: at once by force, or after `seconds` for good order. Its watch first
        gives up the virtual addresses.
        """
        self.end_watch()
        if self.process is None:
            raise Failure(
                ERROR,
                f"{self.trouble}; which process it is cannot be found: end it by hand, "
                "then clean up the resource",
            )
        self.end_process(seconds)

    def end_process(self, seconds):
        """Wait for the end of the process, with SIGTERM first if there are seconds for it."""
        self.call.doing = f"the broker (pid {self.process.pid}) ends"
        if seconds:
            self.process.signal(signal.SIGTERM)
            self.process.signal(signal.SIGCONT)
        left = self.call.left()
        if not seconds or not self.process.ended(min(seconds, max(left / 2, left - KILLING))):
            self.process.signal(signal.SIGKILL)
            self.process.ended(
                None
            )  # until the deadline: only a process that waits for its disk survives SIGKILL
        self.process = None

    # The watch.

    @property
    def watch_socket(self):
        """Where the watch listens."""
        return os.path.join(self.rundir, "watch.sock")

    def watch_it(self):
        """See that the watch lives and answers, unless another action is about to change that."""
        if self.is_watched():
            return
        file = -1
        try:
            file = self.lock_file()
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not self.is_watched():
                self.end_watch(
                    signal.SIGKILL
                )  # one that hangs; the next one takes its addresses over
                self.start_watch()
        except BlockingIOError:
            pass
        except (Failure, OSError) as why:
            tell(f"the watch cannot be started: {why}")  # no reason to end a broker that serves
        finally:
            if file >= 0:
                os.close(file)

    def is_watched(self):
        """Whether the watch lives and does not hang; one that has just begun need not listen
        yet.
        """
        if not recorded(self.file("watch.pid"))[0]:
            return False
        try:
            ask(self.watch_socket, self.answer, "status")
        except NobodyThere as why:
            if self.watch_age() > WATCH_START:
                tell(f"the watch hangs: {why}")
                return False
        except (Refused, Failure):
            pass
        except NoAnswer as why:
            tell(f"the watch hangs: {why}")
            return False
        return True

    def watch_age(self):
        """Return how many seconds ago the watch was started."""
        try:
            return time.time() - os.stat(self.file("watch.pid")).st_mtime
        except OSError:
            return 0.0  # It is being replaced.

    def start_watch(self):
        """Start the watch beside the running broker."""
        command = [
            self.call.program("watch"),
            "--admin-socket",
            self.socket,
            "--pid",
            str(self.process.pid),
            "--resource",
            self.name,
        ]
        command += [
            "--socket",
            self.watch_socket,
            "--vips",
            os.path.join(self.rundir, "vip"),
            "--publish",
            self.publish,
        ]
        command += [
            "--isolation",
            f"{self.call.seconds('isolation'):g}",
            "--answer",
            f"{self.call.seconds('answer'):g}",
        ]
        if self.call.node:
            command += ["--node", self.call.node]
        child, _ = launch(command, self.file("watch.log"), cwd="/")
        record(self.file("watch.pid"), child.pid)

    def end_watch(self, how=signal.SIGTERM):
        """End the watch, which removes the virtual addresses that it holds unless it is killed."""
        watch, _ = recorded(self.file("watch.pid"))
        if watch is not None:
            watch.signal(how)
            watch.signal(signal.SIGCONT)
            if not watch.ended(min(WATCH_PATIENCE, self.call.left() / 4)):
                watch.signal(signal.SIGKILL)
                watch.ended(self.call.left() / 4)

    def drop_addresses(self):
        """Have the watch remove every virtual address at once; what it cannot do is left to the
        resource of the address.
        """
        try:
            ask(self.watch_socket, self.answer, "vip_remove")
        except (NobodyThere, NoAnswer, Refused) as why:
            tell(f"virtual addresses: {why}")

    # Its role.

    def promote(self):
        """Make it primary, and wait until it is recovering or active; it says itself why not."""
        state = self.look()
        if state == GONE:
            return NOT_RUNNING
        if state == HUNG:
            raise Failure(ERROR, self.trouble)
        self.refuse_standalone(state)
        if state in PRIMARY_STATES:
            return OK
        asked = Admin(self.socket, self.answer)
        asked.ask("promote")
        self.call.doing = "the broker asks the others for their consent to its promotion"
        while True:
            try:
                asked.answer(PAUSE)
            except Refused as why:
                raise Failure(ERROR, f"the broker refuses to be promoted: {why}") from None
            except NoAnswer:
                pass  # not yet; whether it hangs shows the next look
            state = self.look()
            if state in PRIMARY_STATES:
                return OK
            if state in (GONE, HUNG):
                raise Failure(ERROR, self.trouble or "the broker ended while it was being promoted")

    def demote(self):
        """Make it a backup that follows the next primary; one that hangs is killed."""
        state = self.look()
        if state == GONE:
            return NOT_RUNNING
        if state == HUNG:
            self.kill()
            self.forget_score()
            return NOT_RUNNING
        if state not in PRIMARY_STATES:
            return OK
        self.drop_addresses()
        self.call.doing = "the broker stops to be primary"
        try:
            ask(self.socket, max(self.answer, self.call.left() / 2), "demote")
        except (Refused, NobodyThere, NoAnswer) as why:
            tell(f"demote: {why}")
        state = self.look()
        if state in BACKUP_STATES:
            return OK
        if state != GONE:
            self.kill()  # what should be no primary and serves on would be the worst of all
            self.forget_score()
        return NOT_RUNNING


def tls_greeting():
    """Return what a client of TLS says first."""
    import ssl  # takes longer to load than a whole monitor does without it

    sent = ssl.MemoryBIO()
    client = ssl._create_unverified_context().wrap_bio(ssl.MemoryBIO(), sent)
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        pass
    return sent.read()


def last_words(output):
    """Return why a daemon ended: the last error in its output with what to do next, else its last
    line.
    """
    lines = [line.strip() for line in output.splitlines() if line.strip()] or ["it printed nothing"]
    for number in range(len(lines) - 1, -1, -1):
        _, is_error, text = lines[number].partition(" error: ")
        if is_error:
            return "; ".join(
                [
                    text,
                    *(line for line in lines[number + 1 : number + 2] if line.startswith("next: ")),
                ]
            )
    return lines[-1]
