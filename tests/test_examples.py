"""The files that people copy: they parse, and what they refer to exists."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parent.parent
CLUSTER = ElementTree.parse(ROOT / "examples" / "cluster.conf").getroot()


def names(path: str, attribute: str = "name") -> list[str]:
    return [element.attrib[attribute] for element in CLUSTER.iterfind(path)]


def test_the_rgmanager_example_has_three_nodes_with_a_restricted_domain_each() -> None:
    assert len(names("clusternodes/clusternode")) == 3
    domains = [[node.attrib["name"] for node in domain] for domain in CLUSTER.iterfind("rm/failoverdomains/failoverdomain")]
    assert domains == [[name] for name in names("clusternodes/clusternode")]
    assert names("rm/failoverdomains/failoverdomain", "restricted") == ["1"] * 3


def test_every_broker_service_restarts_in_place_on_a_node_of_its_own() -> None:
    services = [service for service in CLUSTER.iterfind("rm/service") if service.attrib["recovery"] == "restart"]
    assert [service.attrib["domain"] for service in services] == names("rm/failoverdomains/failoverdomain")


def test_one_service_relocates_and_takes_the_virtual_address_along() -> None:
    (primary,) = [service for service in CLUSTER.iterfind("rm/service") if service.attrib["recovery"] == "relocate"]
    assert [child.tag for child in primary] == ["script", "ip"]
    assert primary.attrib["autostart"] == "1" and primary.attrib["exclusive"] == "0"


def test_every_reference_names_a_resource() -> None:
    scripts, addresses = names("rm/resources/script"), names("rm/resources/ip", "address")
    assert all(reference in scripts for reference in names("rm/service/script", "ref"))
    assert all(reference in addresses for reference in names("rm/service/ip", "ref"))


def test_every_script_it_names_exists_or_is_said_to_come_with_the_agents() -> None:
    text = (ROOT / "examples" / "cluster.conf").read_text()
    for script in names("rm/resources/script", "file"):
        assert (ROOT / "agents" / Path(script).name).exists() or "come with the agents" in text


def test_the_lock_files_pin_by_hash_and_name_no_registry() -> None:
    for lock in ROOT.glob("requirements*.lock"):
        text = lock.read_text()
        assert "://" not in text and "--index" not in text and "--extra-index" not in text
        pinned = re.findall(r"^[a-z0-9][\w.-]*==", text, flags=re.MULTILINE)
        assert pinned
        assert len(re.findall(r"^[a-z0-9]\S*==[^\\]*\\$", text, flags=re.MULTILINE)) == len(pinned), "a package without a hash"
    assert "://" not in (ROOT / "tests" / "interop" / "package-lock.json").read_text()
