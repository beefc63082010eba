"""The image and the compose file: what they name exists; and, where an image was made, a cluster in
containers that loses its primary.
"""

from __future__ import annotations

import os
import re
import shlex
import socket
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from qpidha.console.main import parser
from qpidha.manager.builtin.credentials import BROKERS, PROGRAMS, Credentials
from tests.patience import STATE
from tests.runtime.daemons import ENVIRONMENT
from tests.system.cluster import wait_for

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed: .ci/setup docs")
ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "packages" / "containers"
COMPOSE = yaml.safe_load((FOLDER / "compose.yaml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
NAMES = ("b1", "b2", "b3")
CREDENTIALS = Credentials(Path("/etc/qpidha"))
CONTAINERS = os.environ.get("QPIDHA_CONTAINERS", "")
needs_image = pytest.mark.skipif(not CONTAINERS, reason="it runs containers: make test-image")


def steps() -> list[tuple[str, str]]:
    """Return the instructions of the Containerfile: its word, and the rest."""
    text = (FOLDER / "Containerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines)]


def test_the_image_is_of_the_debian_that_the_package_is_for() -> None:
    assert [rest for word, rest in steps() if word == "FROM"] == [
        "docker.io/library/debian:bookworm-slim"
    ]
    assert "bookworm" in (ROOT / "packages" / "tree").read_text()


def test_what_is_copied_into_the_image_is_there_and_let_through() -> None:
    copied = [path for word, rest in steps() if word == "COPY" for path in rest.split()[:-1]]
    package, script = copied
    assert package == "dist/qpidha_*.deb" and os.access(ROOT / script, os.X_OK)
    let_through = re.findall(r"(?m)^!(.+)$", (ROOT / ".dockerignore").read_text())
    assert all(any(path.startswith(one) for one in let_through) for path in copied)


def test_the_user_of_the_image_and_its_programs_are_those_of_the_package() -> None:
    found = dict(steps())
    deb = (ROOT / "packages" / "deb").read_text()
    assert found["USER"] in (ROOT / "packages" / "debian" / "sysusers.conf").read_text().split()
    program = found["ENTRYPOINT"].strip('["]')
    assert program == "/usr/bin/qpidhad" and "qpidhad" in deb
    assert found["VOLUME"] == "/var/lib/qpidha"
    ports = {int(port) for port in found["EXPOSE"].split()}
    assert ports == {5671, 5672, parser().get_default("port")}


def test_every_option_of_the_compose_file_is_one_of_the_daemon() -> None:
    for name in NAMES:
        done = subprocess.run(
            [sys.executable, "-m", "qpidha.runtime.daemon", "--print-config"]
            + ["--config", ROOT / "packages" / "debian" / "qpidha.conf"],
            capture_output=True,
            text=True,
            check=False,
            env=ENVIRONMENT | SERVICES[name]["environment"],
        )
        assert (done.returncode, done.stderr) == (0, "")
        options = dict(re.findall(r"(?m)^([\w-]+)=(.*)$", done.stdout))
        assert (options["name"], options["interface"]) == (name, "")
        assert options["ha-brokers-url"] == "amqp:ssl:b1:5671,ssl:b2:5671,ssl:b3:5671"


def test_the_console_takes_its_options() -> None:
    given = parser().parse_args(SERVICES["console"]["command"])
    assert given.brokers == "amqps://" + ",".join(NAMES) and given.token_file
    (port,) = SERVICES["console"]["ports"]
    assert port.startswith("127.0.0.1:") and port.endswith(f":{given.port}")


def test_every_file_that_a_container_is_given_is_made() -> None:
    hosts = SERVICES["credentials"]["entrypoint"][1:]
    assert hosts == [name for name in SERVICES if name != "credentials"]
    made = {CREDENTIALS.trusted, CREDENTIALS.users, CREDENTIALS.rules}
    made |= {CREDENTIALS.password_file(name) for name in (BROKERS, PROGRAMS)}
    made |= {make(host) for host in hosts for make in (CREDENTIALS.certificate, CREDENTIALS.key)}
    script = (FOLDER / "make-credentials").read_text()
    made |= {CREDENTIALS.folder / name for name in re.findall(r'folder / "(\w+)"', script)}
    text = yaml.safe_dump(COMPOSE)
    named = {Path(path) for path in re.findall(r"/etc/qpidha/credentials/[\w.]+", text)}
    assert named <= made and len(named) == 13
    volumes = {each for service in SERVICES.values() for each in service["volumes"]}
    assert {each.partition(":")[0] for each in volumes} == COMPOSE["volumes"].keys()


class Composed:
    """The containers of the compose file, and what is asked of them."""

    def __init__(self) -> None:
        compose = "podman-compose" if CONTAINERS == "podman" else f"{CONTAINERS} compose"
        self.compose = [*compose.split(), "-f", str(FOLDER / "compose.yaml")]
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            self.port = int(one.getsockname()[1])

    def call(self, *words: str, code: int | None = 0) -> str:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=4 * STATE,
            check=False,
            env={**os.environ, "CONSOLE_PORT": str(self.port)},
        )
        assert code is None or done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def container(self, service: str) -> str:
        """Return the container of a service; tools name them with a dash or an underscore."""
        names = self.call(CONTAINERS, "ps", "--all", "--format", "{{.Names}}").split()
        found = rf"containers[-_]{service}[-_]1"
        return next(name for name in names if re.fullmatch(found, name))

    def run(self, service: str, command: str, code: int | None = 0) -> str:
        return self.call(
            CONTAINERS, "exec", self.container(service), *shlex.split(command), code=code
        )

    def metrics(self, token: str) -> str:
        """Ask the console from outside."""
        context = ssl.create_default_context(cadata=self.run("b2", f"cat {CREDENTIALS.trusted}"))
        asked = urllib.request.Request(f"https://localhost:{self.port}/metrics")
        asked.add_header("Authorization", f"Bearer {token}")
        with urllib.request.urlopen(asked, context=context, timeout=STATE) as answer:
            return str(answer.read().decode())


@pytest.fixture
def composed() -> Iterator[Composed]:
    found = Composed()
    try:
        yield found
    finally:
        found.call(*found.compose, "down", "--volumes", code=None)


@needs_image
@pytest.mark.timeout(20 * STATE)
def test_three_containers_are_a_cluster_and_survive_a_primary(composed: Composed) -> None:
    composed.call(*composed.compose, "run", "--rm", "credentials")
    composed.call(*composed.compose, "up", "-d")
    wait_for(lambda: composed.run("b1", "qpid-ha status", code=None) == "joining\n")
    composed.run("b1", "qpid-ha promote --cluster-manager")
    composed.run("b1", "qpid-ha wait --for ready=2 --timeout 60")
    login = (
        f"--timeout 60 -b amqps://b1,b2,b3 --ssl-trusted {CREDENTIALS.trusted} --user {PROGRAMS}"
    )
    login += f" --password-file {CREDENTIALS.password_file(PROGRAMS)}"
    composed.run("b3", f"qpid-ha queue add orders --durable {login}")
    composed.run("b3", f"qpid-ha send orders one --durable {login}")
    composed.call(CONTAINERS, "kill", composed.container("b1"))
    composed.run("b2", "qpid-ha failover b2")
    composed.run("b2", "qpid-ha wait --for state=active --timeout 60")
    assert composed.run("b3", f"qpid-ha receive orders -m 1 {login}") == "one\n"
    token = composed.run("b2", f"cat {CREDENTIALS.folder}/tokens").split()[1]
    wait_for(
        lambda: composed.metrics(token),
        lambda text: (
            'qpidha_up{broker="b1",cluster="qpidha"} 0.0' in text
            and 'qpidha_is_primary{broker="b2",cluster="qpidha"} 1.0' in text
        ),
    )
    composed.call(CONTAINERS, "start", composed.container("b1"))
    composed.run("b2", "qpid-ha wait --for ready=2 --timeout 60")
