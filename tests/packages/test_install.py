"""The packages on hosts: installed, started, asked, made a cluster, removed and purged.

A host is a Debian 12 made by mmdebstrap, in namespaces of its own, that go with the test. systemd
is installed there and does not run: what a unit would do is done here, as the broker's user.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from qpidha.cli.app import QPID_TOOLS
from qpidha.manager.builtin.credentials import PROGRAMS, Credentials
from qpidha.node import VERSION
from tests.console.grafana_dashboard import asked
from tests.documents import blocks
from tests.packages.test_files import EXPOSURE, SERVICES
from tests.patience import LONG_TEST, STATE
from tests.system.cluster import wait_for

ROOT = Path(__file__).parents[2]
SOCKET = "/run/qpidha/admin-5672.sock"
CONFIGURATION = "/etc/qpidha/qpidha.conf"
PACEMAKER = "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"
HOLD = """
mount -t tmpfs tmpfs "$2" && mkdir "$2/upper" "$2/work" "$2/root"
mount -t overlay overlay -o lowerdir="$1",upperdir="$2/upper",workdir="$2/work" "$2/root"
mount -t proc proc "$2/root/proc" && mount -t tmpfs tmpfs "$2/root/run"
mount --rbind /dev "$2/root/dev"
ip link set lo up
echo up && exec cat
"""
"""What the first process of a host does: $1 is the tree, $2 a folder to mount on. It ends with this
process, and the mounts with it.
"""

pytestmark = pytest.mark.timeout(2 * LONG_TEST)


class Host:
    """A Debian 12 with namespaces of its own, and the packages beside it, in /srv."""

    def __init__(self, tree: Path, packages: list[Path], folder: Path) -> None:
        self.holder = subprocess.Popen(
            ["unshare", "--mount", "--net", "--uts", "--propagation", "private"]
            + ["sh", "-ec", HOLD, "sh", str(tree), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.holder.stdout is not None and self.holder.stdout.readline() == "up\n"
        self.pid = self.holder.pid
        self.root = Path(f"/proc/{self.pid}/root{folder}/root")
        self.credentials = self.root / "etc/qpidha/credentials"
        self.daemons: list[subprocess.Popen[str]] = []
        for package in packages:
            (self.root / "srv" / package.name).write_bytes(package.read_bytes())
        self.enter = ["nsenter", f"--target={self.pid}", "--mount", "--net", "--uts"]
        self.enter += ["chroot", f"{folder}/root"]

    def run(self, *words: str, code: int | None = 0) -> str:
        """Run a command as root; what it printed. Another exit code than `code` is a failure."""
        done = subprocess.run(
            [*self.enter, "env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8"]
            + ["DEBIAN_FRONTEND=noninteractive", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=STATE,
            check=False,
        )
        assert code is None or done.returncode == code, f"{words}: {done.stdout}"
        return done.stdout

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start a program as its unit would: as user qpidha, who gets /run/qpidha."""
        self.run("install", "-d", "-o", "qpidha", "-g", "qpidha", "/run/qpidha")
        daemon = subprocess.Popen(
            [*self.enter, "setpriv", "--reuid=qpidha", "--regid=qpidha", "--init-groups"]
            + ["--no-new-privs", "--bounding-set=-all", "--reset-env", *words],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.daemons.append(daemon)
        return daemon

    def status(self) -> dict[str, object]:
        """Return the broker's status, as root asks for it; nothing if there is no answer."""
        said = self.run("qpid-ha", "-o", "json", "status", code=None)
        try:
            found = dict(json.loads(said))
            return {} if "error" in found else found
        except ValueError:
            return {}

    def wait_for_state(self, *states: str) -> None:
        wait_for(lambda: self.status().get("state") in states)

    def configure(self, **options: str) -> None:
        """Edit the sample: comment out what is there of these options, and append them."""
        path = self.root / CONFIGURATION[1:]
        names = {name.replace("_", "-"): value for name, value in options.items()}
        kept = [
            line for line in path.read_text().splitlines() if line.partition("=")[0] not in names
        ]
        with path.open("w") as file:  # In place: the owner and the mode are the package's.
            lines = kept + [f"{name}={value}" for name, value in names.items() if value]
            file.write("\n".join(lines) + "\n")

    def install(self) -> str:
        packages = sorted(f"/srv/{path.name}" for path in (self.root / "srv").glob("*.deb"))
        return self.run("apt-get", "install", "-y", "--no-install-recommends", *packages)

    def end(self) -> None:
        for process in (*self.daemons, self.holder):
            process.kill()
            process.communicate()


@pytest.fixture
def folders() -> Iterator[list[Path]]:
    with tempfile.TemporaryDirectory(prefix="qpidha-deb-") as place:
        found = [Path(place, name) for name in ("b1", "b2", "b3")]
        for folder in found:
            folder.mkdir()
        yield found


@pytest.fixture
def hosts(tree: Path, packages: list[Path], folders: list[Path]) -> Iterator[list[Host]]:
    found: list[Host] = []
    try:
        for folder in folders:
            found.append(Host(tree, packages, folder))
        yield found
    finally:
        for host in found:
            host.end()


@pytest.fixture
def host(tree: Path, packages: list[Path], folders: list[Path]) -> Iterator[Host]:
    found = Host(tree, packages, folders[0])
    yield found
    found.end()


def test_installed_started_reloaded_removed_and_purged(host: Host) -> None:
    host.install()
    version = host.run("dpkg-query", "-W", "-f", "${Version}", "qpidha")
    assert version == VERSION
    assert host.run("qpidhad", "--version") == f"qpidhad {VERSION}\n"
    assert host.run("qpid-ha", "version").strip().endswith(VERSION)
    for program in ("qpidha-watch", "qpidha-console"):
        assert "usage" in host.run(program, "--help")
    for page in ("man1/qpid-ha.1.gz", "man8/qpidhad.8.gz"):
        assert "qpidha" in host.run("zcat", f"/usr/share/man/{page}")
    for tool in QPID_TOOLS:
        assert "sage" in host.run(tool, "--help")
        assert tool in host.run("zcat", f"/usr/share/man/man1/{tool}.1.gz")
    modes = host.run("stat", "-c", "%U:%G %a", "/etc/qpidha", CONFIGURATION, "/var/lib/qpidha")
    assert modes.splitlines() == ["root:qpidha 750", "root:qpidha 640", "qpidha:qpidha 750"]
    for program in ("qpid-ha", "qpidhad", *QPID_TOOLS):
        assert program in host.run("cat", f"/usr/share/bash-completion/completions/{program}")
        script = f"/usr/share/fish/vendor_completions.d/{program}.fish"
        assert f"complete -c {program} " in host.run("cat", script)
    assert "<resource-agent" in host.run(
        "/usr/lib/ocf/resource.d/qpidha/broker", "meta-data", code=0
    )
    host.run("logrotate", "--debug", "/etc/logrotate.d/qpidha")
    said = host.run("systemd-analyze", "verify", "--man=no", *SERVICES, code=None)
    assert "qpidha" not in said, said
    for service in SERVICES:
        words = ("--offline=yes", "--no-pager", f"--threshold={EXPOSURE}", service)
        assert "OK" in host.run("systemd-analyze", "security", *words).splitlines()[-1]

    host.configure(port="5673", admin_socket="/run/qpidha/admin-5673.sock")
    daemon = host.start("qpidhad")
    host.wait_for_state("standalone")
    host.run("qpid-ha", "queue", "add", "orders", "--durable")
    host.run("qpid-ha", "--config", CONFIGURATION, "--timeout", "30", "reload")
    examined = json.loads(host.run("qpid-ha", "-q", "-o", "json", "version", "--doctor"))
    found = {row["check"]: row for row in examined["checks"] if row["level"] != "error"}
    assert "qpidhad (pid " in found["port 5673"]["text"], examined
    assert "/var/lib/qpidha on " in found["data-dir"]["text"], examined
    assert "built with TLS" in found["proton"]["text"], examined
    console = host.start("qpidha-console", "--admin-socket", "/run/qpidha/admin-5673.sock")
    ask = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:8672/healthz').status)"
    wait_for(lambda: host.run("/usr/bin/python3", "-c", ask, code=None).strip() == "200")
    console.terminate()
    check = "/usr/lib/qpidha/libexec/not-under-pacemaker"
    host.run(check)
    (host.root / "etc/systemd/system/pacemaker.service").write_text(PACEMAKER)
    host.run("systemctl", "enable", "pacemaker")
    host.run(check)
    folder = host.root / "var/lib/pacemaker/cib"
    folder.mkdir(parents=True)
    (folder / "cib.xml").write_text('<primitive id="b" class="ocf" provider="qpidha"/>')
    assert "Pacemaker runs the broker" in host.run(check, code=1)

    daemon.terminate()
    wait_for(lambda: not host.status())
    unit = "/etc/systemd/system/multi-user.target.wants/qpidha.service"
    host.run("test", "-L", unit, code=1)
    host.run("systemctl", "enable", "qpidha")
    host.run("test", "-L", unit)
    host.run("apt-get", "remove", "-y", "qpidha")
    host.run("test", "-d", "/var/lib/qpidha/journal")
    host.run("test", "-e", CONFIGURATION)
    host.run("test", "-L", unit, code=1)
    left = host.run("find", "/usr/lib/qpidha", "/usr/lib/ocf/resource.d/qpidha", code=None)
    assert left.count("No such file") == 2, left

    host.install()
    daemon = host.start("qpidhad")
    host.wait_for_state("standalone")
    assert "orders" in host.run("qpid-ha", "queue", "list")
    daemon.terminate()
    wait_for(lambda: not host.status())
    said = host.run("apt-get", "purge", "-y", "qpidha", "qpidha-resource-agents")
    assert "/var/lib/qpidha is kept" in said and "the user qpidha is kept" in said
    host.run("test", "-d", "/var/lib/qpidha/journal")
    host.run("test", "-e", CONFIGURATION, code=1)
    host.run("test", "-e", "/etc/logrotate.d/qpidha", code=1)


@pytest.mark.usefixtures("packages")
def test_the_wheels_are_all_that_a_host_needs() -> None:
    pip = [str(ROOT / "build" / "tools" / "bin" / "python"), "-m", "pip", "--isolated", "install"]
    done = subprocess.run(
        [*pip, "--dry-run", "--ignore-installed", "--no-index", "--find-links", "dist/wheels"]
        + ["qpidha[console,vip]"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={"PATH": os.environ["PATH"]},
        check=False,
    )
    assert done.returncode == 0 and f"qpidha-{VERSION}" in done.stdout, done.stderr


def wire(hosts: list[Host]) -> None:
    """Put hosts on one network, with the first as its switch: 192.0.2.1, .2 and so on."""
    first, *others = hosts
    first.run("ip", "link", "add", "switch", "type", "bridge")
    first.run("ip", "link", "set", "switch", "up")
    first.run("ip", "address", "add", "192.0.2.1/24", "dev", "switch")
    for number, host in enumerate(others, 2):
        subprocess.run(
            ["nsenter", f"--target={first.pid}", "--net", "ip", "link", "add"]
            + [f"port{number}", "type", "veth", "peer", "name", "eth0", "netns", str(host.pid)],
            check=True,
        )
        first.run("ip", "link", "set", f"port{number}", "master", "switch", "up")
        host.run("ip", "address", "add", f"192.0.2.{number}/24", "dev", "eth0")
        host.run("ip", "link", "set", "eth0", "up")


def start_cluster(hosts: list[Host], **options: str) -> list[subprocess.Popen[str]]:
    """Install the packages on wired hosts, start their brokers, and promote that of the first."""
    daemons = []
    for number, host in enumerate(hosts, 1):
        host.configure(
            interface="",
            name=f"b{number}",
            advertised_address=f"192.0.2.{number}",
            ha_cluster="yes",
            ha_replicate="all",
            link_heartbeat_interval="1",
            **{name: value.replace("NAME", f"b{number}") for name, value in options.items()},
        )
        daemons.append(host.start("qpidhad"))
    for host in hosts:
        host.wait_for_state("joining")
    hosts[0].run("qpid-ha", "--cluster-manager", "promote")
    hosts[0].wait_for_state("active")
    for host in hosts[1:]:
        host.wait_for_state("ready")
    return daemons


def test_three_hosts_are_a_cluster_and_survive_a_primary(hosts: list[Host]) -> None:
    wire(hosts)
    for host in hosts:
        host.install()
    first = hosts[0]
    daemons = start_cluster(hosts, auth="no", ha_brokers_url="192.0.2.1,192.0.2.2,192.0.2.3")
    first.run("qpid-ha", "queue", "add", "orders", "--durable")
    first.run("qpid-ha", "send", "orders", "one", "--durable")
    daemons[0].kill()
    wait_for(lambda: not first.status())
    hosts[1].run("qpid-ha", "failover", "b2")
    hosts[1].wait_for_state("active")
    assert hosts[1].run("qpid-ha", "receive", "orders", "-m", "1").startswith("one\n")


class Prometheus:
    """Debian's Prometheus on a host, as docs/metrics.md configures it, but that it looks each
    second.
    """

    def __init__(self, host: Host) -> None:
        self.host = host
        page = ROOT / "docs" / "metrics.md"
        (text,) = [block.text for block in blocks(page) if "scrape_configs" in block.text]
        for number in (1, 2, 3):
            text = text.replace(f"ha{number}:", f"192.0.2.{number}:")
        text = re.sub(r"interval: \d+s", "interval: 1s", text)
        folder = host.root / "etc" / "prometheus"
        folder.mkdir()
        examples = host.root / "usr/share/doc/qpidha/examples"
        (folder / "prometheus.yml").write_text(text)
        (folder / "prometheus-rules.yml").write_bytes(
            (examples / "prometheus-rules.yml").read_bytes()
        )
        for name in ("ca.pem", "token"):
            (folder / f"qpidha-{name}").write_bytes((host.credentials / name).read_bytes())
        program = shutil.which("prometheus")
        assert program is not None
        (host.root / "usr/bin/prometheus").write_bytes(Path(program).read_bytes())
        host.run("chmod", "755", "/usr/bin/prometheus")
        words = ["--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/tmp/tsdb"]
        host.start("prometheus", *words, "--web.listen-address=127.0.0.1:9090")

    def ask(self, path: str) -> Any:
        """Return what its API says; None while it does not answer."""
        code = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).read().decode())"
        address = f"http://127.0.0.1:9090/api/v1/{path}"
        said = self.host.run("/usr/bin/python3", "-c", code, address, code=None)
        try:
            return json.loads(said)["data"]
        except (ValueError, KeyError):
            return None

    def query(self, expression: str) -> list[dict[str, Any]]:
        found = self.ask(f"query?query={quote(expression)}")
        return found["result"] if found else []

    def firing(self) -> set[str]:
        """Return the names of the alerts that fire."""
        found = self.ask("alerts") or {"alerts": []}
        return {
            str(alert["labels"]["alertname"])
            for alert in found["alerts"]
            if alert["state"] == "firing"
        }


@pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="Debian's package prometheus is not installed"
)
def test_prometheus_sees_a_cluster_and_warns_of_a_killed_backup(
    hosts: list[Host], tmp_path: Path
) -> None:
    wire(hosts)
    made = Credentials(tmp_path)
    names = {f"b{number}": [f"192.0.2.{number}", "127.0.0.1"] for number in (1, 2, 3)}
    made.make(names)
    token = secrets.token_hex(32)
    (made.folder / "token").write_text(token)
    (made.folder / "tokens").write_text(f"monitor {token}\n")
    for host in hosts:
        host.install()
        host.credentials.mkdir()
        for path in made.folder.iterdir():
            (host.credentials / path.name).write_bytes(path.read_bytes())
        host.run("chown", "-R", "root:qpidha", "/etc/qpidha/credentials")
        host.run("chmod", "-R", "u=rwX,g=rX,o=", "/etc/qpidha/credentials")
    installed = Credentials(Path("/etc/qpidha"))
    options = {name.replace("-", "_"): value for name, value in installed.settings("NAME").items()}
    url = "amqps:192.0.2.1,192.0.2.2,192.0.2.3"
    daemons = start_cluster(hosts, ha_brokers_url=url, **options)
    for number, host in enumerate(hosts, 1):
        words = ["--admin-socket", SOCKET, "--cluster", "shop", "--interface", "0.0.0.0"]
        words += ["--token-file", str(installed.folder / "tokens")]
        words += ["--ssl-cert", str(installed.certificate(f"b{number}"))]
        host.start("qpidha-console", *words, "--ssl-key", str(installed.key(f"b{number}")))
    prometheus = Prometheus(hosts[0])
    wait_for(lambda: len(prometheus.query("qpidha_up == 1")), (3).__eq__)
    primaries = prometheus.query('sum by (cluster) (qpidha_is_primary{broker="b1"})')
    assert [(each["metric"], each["value"][1]) for each in primaries] == [
        ({"cluster": "shop"}, "1")
    ]
    login = ["-b", "amqps://192.0.2.1,192.0.2.2,192.0.2.3", "--ssl-trusted", str(installed.trusted)]
    login += ["--user", PROGRAMS, "--password-file", str(installed.password_file(PROGRAMS))]
    hosts[0].run("qpid-ha", "queue", "add", "orders", "--durable", *login)
    hosts[0].run("qpid-ha", "send", "orders", "-m", "100", "--durable", *login)
    hosts[0].run("qpid-ha", "receive", "orders", "-m", "50", *login)
    for expression in asked("shop"):
        if "ALERTS" not in expression:
            wait_for(lambda ask=expression: prometheus.query(ask), what=expression)
    assert not prometheus.firing() & {"QpidhaBrokerDown", "QpidhaConsoleDown", "QpidhaNoPrimary"}

    daemons[2].kill()
    wait_for(prometheus.firing, lambda names: "QpidhaBrokerDown" in names)
    (down,) = prometheus.query('ALERTS{alertname="QpidhaBrokerDown", alertstate="firing"}')
    assert (down["metric"]["broker"], down["metric"]["severity"]) == ("b3", "warning")
    assert "QpidhaNoPrimary" not in prometheus.firing()
    daemons[2] = hosts[2].start("qpidhad")
    hosts[2].wait_for_state("ready")
    wait_for(prometheus.firing, lambda names: "QpidhaBrokerDown" not in names)
