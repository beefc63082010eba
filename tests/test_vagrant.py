"""The Vagrant lab: it names what exists, has the networks of tests/lab, and its parts do what can
be tried without machines.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.hosts import CLIENTS, CLUSTER, NAMES, NETWORKS, PORT, SPARE, VIP
from vagrant import lab, power

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "vagrant"
VAGRANTFILE = (FOLDER / "Vagrantfile").read_text()
SHELLS = ("#!/bin/sh", "#!/bin/bash", "#!/usr/bin/env bash", "#!/bin/dash")
HYPERVISOR = """#!/bin/sh
# Stands in for VBoxManage and virsh: keeps the state in a file, notes what it was told.
echo "$(basename "$0") $*" >>"$STANDIN/calls"
case "$*" in
*showvminfo*) printf 'name="x"\\nVMState="%s"\\n' "$(cat "$STANDIN/state")" ;;
*domstate*) cat "$STANDIN/state" ;;
*poweroff*) echo poweroff >"$STANDIN/state" ;;
*destroy*) echo 'shut off' >"$STANDIN/state" ;;
*start*)
    if [ -e "$STANDIN/busy" ]; then rm "$STANDIN/busy"; echo 'it is locked' >&2; exit 1; fi
    echo running >"$STANDIN/state" ;;
esac
"""


def shell_scripts() -> list[Path]:
    """Return every shell script of the repository, by its first line."""
    folders = ("agents", "ocf", "vagrant", "tests", ".ci", "examples")
    found = []
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            if (
                path.is_file()
                and not {"node_modules", ".vagrant", "build"} & set(path.parts)
                and path.suffix not in (".py", ".md")
            ):
                with path.open("rb") as file:
                    if file.readline().decode(errors="replace").strip() in SHELLS:
                        found.append(path)
    return found


# What needs no tool


def test_machines_and_address_are_those_of_the_lab() -> None:
    assert re.search(r"^HOSTS = (\[.*\])$", VAGRANTFILE, re.MULTILINE)[1] == str(
        list(NAMES)
    ).replace("'", '"')  # type: ignore[index]
    assert f'SPARE = "{SPARE}"' in VAGRANTFILE
    assert f'VIP = "{VIP}"' in VAGRANTFILE


def test_networks_are_those_of_the_lab() -> None:
    found = re.findall(r'"private_network", ip: "([^"]+)", mac: "([^"]+)"', VAGRANTFILE)
    assert len(found) == len(NETWORKS)
    for network, (address, hardware) in zip(NETWORKS, found, strict=True):
        for name in (*NAMES, SPARE):
            number = str(10 + int(name.removeprefix("ha")))
            assert address.replace("#{10 + number}", number) == network.address(name)
            assert hardware.replace("#{10 + number}", number) == network.hardware(name).replace(
                ":", ""
            )


def test_every_path_that_is_named_exists() -> None:
    scripts = [FOLDER / "provision.sh", FOLDER / "cluster.sh"]
    named = re.findall(r"#\{SOURCE\}/(\S+\.sh)", VAGRANTFILE)
    for script in scripts:
        named += re.findall(r"(?<![/~\w])((?:tests|vagrant|\.ci)/[\w/.]*\w)", script.read_text())
    assert {
        "vagrant/provision.sh",
        "vagrant/cluster.sh",
        ".ci/setup",
        "tests/lab/provision/host.sh",
    } <= set(named)
    for name in named:
        assert os.access(ROOT / name, os.X_OK), f"{name} is missing or cannot be run"
    assert f'SOURCE = "{lab.SOURCE}"' in VAGRANTFILE


def test_what_the_readme_tells_to_run_exists() -> None:
    text = (FOLDER / "README.md").read_text()
    for name in re.findall(r"`((?:tests|docs|vagrant)/[\w/.]+\.(?:py|md|sh))`", text):
        assert (ROOT / name).exists(), name
    for network in NETWORKS:
        assert f"{network.name} ({network.prefix}0/24)" in text


def test_the_power_switch_is_where_the_fence_agent_looks() -> None:
    assert (
        f'SOCKET = "{power.REMOTE_RACK_SOCKET}"' in (ROOT / "tests/lab/sbin/fence_lab").read_text()
    )


# What needs a tool


def test_vagrant_finds_no_fault(tmp_path: Path) -> None:
    if shutil.which("vagrant") is None:
        pytest.skip("vagrant is not installed (Debian's package vagrant)")
    environment = {
        **os.environ,
        "VAGRANT_HOME": str(tmp_path / "home"),
        "VAGRANT_DOTFILE_PATH": str(tmp_path / "dot"),
        "VAGRANT_CHECKPOINT_DISABLE": "1",
    }
    done = subprocess.run(
        ["vagrant", "validate", "--ignore-provider"],
        cwd=FOLDER,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_shellcheck_finds_no_fault_in_any_of_our_scripts() -> None:
    scripts = shell_scripts()
    assert {"provision.sh", "qpidd", "init.sh", "host.sh", "setup"} <= {
        path.name for path in scripts
    }
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not installed")
    done = subprocess.run(
        ["shellcheck", *map(str, scripts)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


class OneHost(lab.VagrantLab):
    """A lab whose host's interfaces have the lab's own names; it keeps what it would have told the
    hosts.
    """

    def __init__(self) -> None:
        super().__init__()
        self.told: dict[str, list[str]] = {}

    def is_on(self, name: str) -> bool:
        return name != SPARE

    def run(
        self, name: str, *command: str, check: bool = True, timeout: float = 60
    ) -> subprocess.CompletedProcess[str]:
        if command[0] == "ip":
            interface = next(
                network.interface for network in NETWORKS if network.address(name) == command[-1]
            )
            return subprocess.CompletedProcess(
                command, 0, f"2: {interface} inet {command[-1]}/24", ""
            )
        self.told[name] = list(command)
        return subprocess.CompletedProcess(command, 0, "", "")


def in_a_namespace(command: list[str]) -> str:
    """Run a command and list the rules that it leaves, in a network namespace with the interfaces
    eth0 and eth1.
    """
    if os.geteuid() != 0 or shutil.which("nft", path="/usr/sbin:/usr/bin") is None:
        pytest.skip("packet filters need root and nft")
    script = 'ip link add eth0 type veth peer name eth1 || exit 99; "$@" && nft list ruleset'
    done = subprocess.run(
        ["unshare", "--net", "sh", "-c", script, "sh", *command],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 99:
        pytest.skip(f"no namespace with interfaces here: {done.stderr}")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_others_hear_nothing_of_a_host_that_is_cut_off() -> None:
    machines = OneHost()
    machines.cut("ha1")
    rules = in_a_namespace(machines.told["ha2"])
    for network in NETWORKS:
        assert f"ether saddr {network.hardware('ha1')} drop" in rules
        assert f"ether daddr {network.hardware('ha1')} drop" in rules
    assert "drop" not in in_a_namespace(machines.told["ha1"]), "it is the others who do not hear it"
    machines.heal()
    assert "drop" not in in_a_namespace(machines.told["ha2"])


def test_only_the_brokers_port_can_be_cut() -> None:
    machines = OneHost()
    machines.cut("ha3", CLUSTER, port=PORT)
    rules = in_a_namespace(machines.told["ha1"])
    assert rules.count("drop") == 4
    assert f"ether saddr {CLUSTER.hardware('ha3')} tcp dport {PORT} drop" in rules
    assert CLIENTS.hardware("ha3") not in rules


# The power switch, with stand-ins for the hypervisors


@pytest.fixture
def standin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("VBoxManage", "virsh"):
        (tmp_path / name).write_text(HYPERVISOR)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "state").write_text("running\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("STANDIN", str(tmp_path))
    for name, provider in (("ha1", "virtualbox"), ("ha2", "libvirt"), ("ha3", "docker")):
        path = tmp_path / "machines" / name / provider / "id"
        path.parent.mkdir(parents=True)
        path.write_text(f"{name}-id")
    monkeypatch.setattr(power, "DOTFILES", tmp_path)
    return tmp_path


@pytest.fixture
def rack(standin: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[power.Rack]:
    path = standin / "rack" / "power.sock"
    path.parent.mkdir()
    monkeypatch.setattr(power, "RACK_SOCKET", path)
    with power.Rack(power.machines()) as rack:
        thread = threading.Thread(target=rack.serve_forever, args=(0.01,))
        thread.start()
        yield rack
        rack.shutdown()
        thread.join()


def calls(standin: Path) -> list[str]:
    """Return what was told to a hypervisor, questions left out."""
    told = (standin / "calls").read_text().splitlines()
    return [call for call in told if "showvminfo" not in call and "domstate" not in call]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "ha1",
            ["VBoxManage controlvm ha1-id poweroff", "VBoxManage startvm ha1-id --type headless"],
        ),
        (
            "ha2",
            [
                "virsh --connect qemu:///system destroy ha2-id",
                "virsh --connect qemu:///system start ha2-id",
            ],
        ),
    ],
)
def test_a_fenced_machine_is_off_and_then_on_again(
    rack: power.Rack, standin: Path, name: str, expected: list[str]
) -> None:
    machines = lab.VagrantLab(standin)
    assert machines.power("reboot", name) == "on"
    assert calls(standin) == expected
    machines.off(name)
    machines.off(name)
    assert not machines.is_on(name)
    assert calls(standin) == [*expected, expected[0]], (
        "a machine that is off is not switched off again"
    )


def test_a_machine_that_the_hypervisor_still_holds_is_switched_on_a_moment_later(
    rack: power.Rack, standin: Path
) -> None:
    (standin / "state").write_text("aborted\n")
    (standin / "busy").touch()
    assert rack.answer("on", "ha1", "") == "on"


def test_cables_are_those_of_the_lab_s_networks(rack: power.Rack, standin: Path) -> None:
    machines = lab.VagrantLab(standin)
    machines.unplug("ha1", CLUSTER)
    machines.unplug("ha2", CLIENTS)
    machines.heal()
    virsh = f"virsh --connect qemu:///system domif-setlink ha2-id {CLIENTS.hardware('ha2')}"
    assert calls(standin) == [
        "VBoxManage controlvm ha1-id setlinkstate3 off",
        f"{virsh} down",
        "VBoxManage controlvm ha1-id setlinkstate3 on",
        f"{virsh} up",
    ]


def test_the_power_switch_says_what_it_cannot_do(rack: power.Rack, standin: Path) -> None:
    assert rack.answer("list", "", "") == "ha1 ha2"
    assert rack.answer("off", "ha3", "").startswith("error: no off ha3")
    (standin / "VBoxManage").write_text("#!/bin/sh\necho 'no such machine' >&2\nexit 1\n")
    assert rack.answer("status", "ha1", "").endswith("no such machine")
