"""The files that people copy: they parse, and what they refer to exists."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

from tests.documents import blocks

ROOT = Path(__file__).parent.parent
CLUSTER = ElementTree.parse(ROOT / "examples" / "cluster.conf").getroot()


def names(path: str, attribute: str = "name") -> list[str]:
    return [element.attrib[attribute] for element in CLUSTER.iterfind(path)]


def test_the_rgmanager_example_has_three_nodes_with_a_restricted_domain_each() -> None:
    assert len(names("clusternodes/clusternode")) == 3
    domains = [
        [node.attrib["name"] for node in domain]
        for domain in CLUSTER.iterfind("rm/failoverdomains/failoverdomain")
    ]
    assert domains == [[name] for name in names("clusternodes/clusternode")]
    assert names("rm/failoverdomains/failoverdomain", "restricted") == ["1"] * 3


def test_every_broker_service_restarts_in_place_on_a_node_of_its_own() -> None:
    services = [
        service
        for service in CLUSTER.iterfind("rm/service")
        if service.attrib["recovery"] == "restart"
    ]
    assert [service.attrib["domain"] for service in services] == names(
        "rm/failoverdomains/failoverdomain"
    )


def test_one_service_relocates_and_takes_the_virtual_address_along() -> None:
    """The address inside the script: rgmanager starts parents before children, and beside each
    other addresses before scripts.
    """
    (primary,) = [
        service
        for service in CLUSTER.iterfind("rm/service")
        if service.attrib["recovery"] == "relocate"
    ]
    (script,) = primary
    assert (script.tag, script.attrib["ref"]) == ("script", "qpidd-primary")
    assert [child.tag for child in script] == ["action", "ip"]
    assert primary.attrib["autostart"] == "1" and primary.attrib["exclusive"] == "0"


def test_the_status_of_every_script_is_asked_for_as_often_as_rgmanager_looks() -> None:
    scripts = list(CLUSTER.iterfind("rm/service/script"))
    (poll,) = names("rm", "status_poll_interval")
    assert [script.find("action[@name='status']").attrib["interval"] for script in scripts] == [
        poll
    ] * 4


def test_every_reference_names_a_resource() -> None:
    scripts, addresses = names("rm/resources/script"), names("rm/resources/ip", "address")
    assert all(reference in scripts for reference in names("rm/service/script", "ref"))
    assert set(names("rm/service/script/ip", "ref")) == set(addresses)
    assert set(names("clusternodes/clusternode/fence/method/device")) == set(
        names("fencedevices/fencedevice")
    )


def test_every_node_can_be_fenced() -> None:
    assert all(
        node.find("fence/method/device") is not None
        for node in CLUSTER.iterfind("clusternodes/clusternode")
    )


def test_every_script_it_names_exists_and_can_be_run() -> None:
    for script in names("rm/resources/script", "file"):
        assert os.access(ROOT / "agents" / Path(script).name, os.X_OK)


def test_the_example_is_what_the_plan_writes_for_its_nodes() -> None:
    """In the documents' own words, so that these cannot be wrong either."""
    text = (ROOT / "docs" / "rgmanager.md").read_text()
    (command,) = re.findall(
        r"^qpid-ha rgmanager plan (.*?[^\\])$", text, flags=re.MULTILINE | re.DOTALL
    )
    words = shlex.split(command.replace("\\\n", " ").partition(">")[0])
    written = subprocess.run(
        [sys.executable, "-m", "qpidha.cli.main", "rgmanager", "plan", *words],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    assert (
        written.stdout == (ROOT / "examples" / "cluster.conf").read_text() and written.stderr == ""
    )


def test_the_lock_files_pin_by_hash_and_name_no_registry() -> None:
    for lock in ROOT.glob("requirements*.lock"):
        text = lock.read_text()
        assert "://" not in text and "--index" not in text and "--extra-index" not in text
        pinned = re.findall(r"^[a-z0-9][\w.-]*==", text, flags=re.MULTILINE)
        assert pinned
        assert len(re.findall(r"^[a-z0-9]\S*==[^\\]*\\$", text, flags=re.MULTILINE)) == len(
            pinned
        ), "a package without a hash"
    assert "://" not in (ROOT / "tests" / "interop" / "package-lock.json").read_text()


def test_the_programs_of_the_readme_are_the_files() -> None:
    shown = [each.text for each in blocks(ROOT / "README.md") if each.tag == "python"]
    files = [ROOT / "examples" / name for name in ("sender.py", "receiver.py")]
    assert shown == [file.read_text().rstrip() for file in files]
    assert all(len(text.splitlines()) <= 20 for text in shown)
