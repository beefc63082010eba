"""Applications of others in processes of their own: rhea, amqp10, Qpid JMS, and Qpid Proton in C++.

Each is one source beside this file, written as users of its client write it: it sends 1, 2, 3... to
a queue and receives them, and prints what becomes of them.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.patience import STATE
from tests.system.cluster import Cluster

HERE = Path(__file__).parent
DEBIAN = Path("/usr/share/java")
NETTY = ("buffer", "codec", "common", "handler", "handler-proxy", "resolver", "transport")
JMS_CLASSPATH = "QPIDHA_TEST_JMS_CLASSPATH"
JMS_JAR = HERE.parents[2] / "shared" / "peers" / "qpid-jms.jar"
STORE_PASSWORD = "changeit"


@dataclass(frozen=True)
class Access:
    """How an application gets at brokers."""

    urls: Sequence[str]
    """In the order in which it is given them."""
    user: str = ""
    password: str = ""
    authority: Path | None = None
    """Whose certificates it trusts; None: it uses no TLS."""

    @classmethod
    def to(cls, cluster: Cluster, first: int, **given: Any) -> Access:
        """Return the access to brokers without TLS, with the address of one of them first."""
        brokers = [cluster[(first + number) % len(cluster)] for number in range(len(cluster))]
        return cls([f"amqp://{broker.address}" for broker in brokers], **given)

    @classmethod
    def encrypted_to(cls, cluster: Cluster, first: int, **given: Any) -> Access:
        """Return the access to brokers with TLS, with the address of one of them first."""
        brokers = [cluster[(first + number) % len(cluster)] for number in range(len(cluster))]
        return cls([f"amqps://{broker.encrypted_address}" for broker in brokers], **given)

    def after(self, address: str) -> Access:
        """Return the access with another address before the brokers."""
        scheme = self.urls[0].partition("://")[0]
        return replace(self, urls=[f"{scheme}://{address}", *self.urls])


class Client(ABC):
    """A client, and how an application that uses it is started."""

    @abstractmethod
    def prepare(self, folder: Path) -> None:
        """Compile the application, or skip the test where that cannot be."""

    @abstractmethod
    def command(self, queue: str, access: Access) -> list[str]:
        """Return the command that runs the application."""


class Program:
    """A running application; each line that it prints is an event."""

    def __init__(self, command: Sequence[str], output: Path) -> None:
        self._output = output / "application.out"
        self._errors = output / "application.err"
        with self._output.open("wb") as out, self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=out, stderr=errors
            )

    def __enter__(self) -> Program:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        ended = self._process.poll()
        self._process.kill()
        self._process.wait()
        if error is not None:
            state = "still ran" if ended is None else f"had ended with {ended}"
            error.add_note(f"the application {state}: {self.told()}")

    def events(self, *kinds: str) -> list[dict[str, Any]]:
        lines = self._output.read_text().rpartition("\n")[0].splitlines()
        return [event for line in lines if (event := json.loads(line))["event"] in kinds]

    def numbers(self, kind: str) -> list[int]:
        return [event["number"] for event in self.events(kind)]

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """It does nothing at all meanwhile, as on a machine that is paused."""
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """Let it end when all that was accepted is received."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            code = self._process.wait(STATE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the application goes on: {self.told()}") from None
        assert code == 0, self.told()

    def told(self) -> str:
        """Return what it said at the end, for people."""
        return f"{self._output.read_text()[-1000:]}\n{self._errors.read_text()[-4000:]}"


class Node(Client):
    """Node.js with a client beside the application, from the lock file."""

    package: str

    def prepare(self, folder: Path) -> None:
        node, npm = shutil.which("node"), shutil.which("npm")
        if node is None or npm is None:
            pytest.skip("node and npm are not installed")
        self._node = node
        if not (HERE / "node_modules" / self.package).is_dir():
            self._install(npm)

    @staticmethod
    def _install(npm: str) -> None:
        done = subprocess.run(
            [npm, "ci", "--no-audit", "--no-fund"],
            cwd=HERE,
            capture_output=True,
            text=True,
            timeout=STATE,
        )
        if done.returncode:
            pytest.skip(f"npm ci cannot install its packages: {done.stderr[-500:]}")


class Rhea(Node):
    """rhea, with a list of addresses."""

    package = "rhea"

    def command(self, queue: str, access: Access) -> list[str]:
        addresses = ",".join(url.partition("://")[2] for url in access.urls)
        return [
            self._node,
            str(HERE / "application.js"),
            *(queue, access.user, access.password, str(access.authority or ""), addresses),
        ]


class SelectingRhea(Rhea):
    """rhea, with an SQL filter of RabbitMQ's."""

    selector = "a.n % 3 = 1 AND properties.subject LIKE 'no-%'"

    def command(self, queue: str, access: Access) -> list[str]:
        addresses = ",".join(url.partition("://")[2] for url in access.urls)
        return [self._node, str(HERE / "selecting.js"), queue, self.selector, addresses]


class Amqp10(Node):
    """amqp10, which knows one address."""

    package = "amqp10"

    def command(self, queue: str, access: Access) -> list[str]:
        url = access.urls[0]
        if access.user:
            url = url.replace("://", f"://{access.user}:{access.password}@")
        application = str(HERE / "amqp10_application.js")
        return [self._node, application, queue, url, str(access.authority or "")]


class Jms(Client):
    """Qpid JMS, whose jar this repository does not have, with Netty and SLF4J of Debian."""

    application = "Application"

    def prepare(self, folder: Path) -> None:
        java, javac = shutil.which("java"), shutil.which("javac")
        if java is None or javac is None:
            pytest.skip("java and javac are not installed")
        self._java = java
        classpath = os.environ.get(JMS_CLASSPATH) or self._beside()
        self._classpath = f"{classpath}:{folder}"
        subprocess.run(
            [javac, "-cp", classpath, "-d", folder, *HERE.glob("*.java")], check=True, timeout=STATE
        )

    @staticmethod
    def _beside() -> str:
        names = [*(f"netty-{name}" for name in NETTY), "slf4j-api", "slf4j-simple"]
        jars = [JMS_JAR, *(DEBIAN / f"{name}.jar" for name in names)]
        missing = [str(jar) for jar in jars if not jar.exists()]
        if missing:
            pytest.skip(f"{JMS_CLASSPATH} is not set, and there is no {', '.join(missing)}")
        return ":".join(map(str, jars))

    def command(self, queue: str, access: Access) -> list[str]:
        if access.authority is not None:
            self._trust(access.authority)
        return self.command_with(queue, access, self.url(access))

    @staticmethod
    def url(access: Access) -> str:
        """Return the URL that `docs/clients.md` has, for this access."""
        options = {"amqp.idleTimeout": "2000"}
        if access.authority is not None:
            options["transport.trustStoreLocation"] = str(access.authority.with_suffix(".p12"))
            options["transport.trustStorePassword"] = STORE_PASSWORD
        nested = "&".join(f"failover.nested.{key}={value}" for key, value in options.items())
        return f"failover:({','.join(access.urls)})?{nested}"

    def command_with(self, queue: str, access: Access, url: str) -> list[str]:
        """Return the command with this URL, instead of one that is made of the access."""
        return [
            *(self._java, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", self._classpath),
            *(self.application, queue, access.user, access.password, url),
        ]

    @staticmethod
    def _trust(authority: Path) -> None:
        store = authority.with_suffix(".p12")
        command = [
            *("keytool", "-importcert", "-noprompt", "-alias", "ca", "-file", authority),
            *("-keystore", store, "-storetype", "PKCS12", "-storepass", STORE_PASSWORD),
        ]
        subprocess.run(command, check=True, capture_output=True, timeout=STATE)


class JmsSubscriptions(Jms):
    """Qpid JMS with subscriptions to a topic."""

    application = "Subscriptions"


class JmsDelays(Jms):
    """Qpid JMS with a delivery delay."""

    application = "Delays"


class JmsGroups(Jms):
    """Qpid JMS with message groups."""

    application = "Groups"


class JmsTransactions(Jms):
    """Qpid JMS with sessions that are transacted, or acknowledge when their client says so."""

    application = "Transactions"


class SelectingJms(Jms):
    """Qpid JMS with a selector, on a queue and on a topic."""

    application = "Selecting"
    selector = "JMSType LIKE 'no-%' AND (n - 1) / 3 * 3 = n - 1"

    def command(self, queue: str, access: Access) -> list[str]:
        arguments = (queue, self.selector, "amq.fanout", self.url(access))
        return [
            *(self._java, "-XX:TieredStopAtLevel=1"),
            "-cp",
            self._classpath,
            "Selecting",
            *arguments,
        ]


class Cpp(Client):
    """Qpid Proton in C++, compiled against the headers of the machine."""

    def prepare(self, folder: Path) -> None:
        compiler = shutil.which("g++")
        if compiler is None or not Path("/usr/include/proton/container.hpp").exists():
            pytest.skip("g++ and libqpid-proton-cpp12-dev are not installed")
        self._program = folder / "application"
        source = HERE / "application.cpp"
        subprocess.run(
            [compiler, "-o", self._program, source, "-lqpid-proton-cpp", "-lpthread"],
            check=True,
            timeout=STATE,
        )

    def command(self, queue: str, access: Access) -> list[str]:
        return [
            str(self._program),
            *(queue, access.user, access.password, str(access.authority or ""), *access.urls),
        ]
