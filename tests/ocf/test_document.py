"""docs/ocf.md says what the agents do: the tables that the tests run, and every parameter with its
default.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.ocf.node import AGENTS, ROOT, Node
from tests.ocf.table import TABLES, render

DOCUMENT = ROOT / "docs" / "ocf.md"
DTD = Path("/usr/share/resource-agents/ra-api-1.dtd")
PCS = Path("/usr/share/pcs/data/ocf-1.1.rng")
PARAMETER = re.compile(
    r'<parameter name="(\w+)".*?<content type="\w+"(?: default="([^"]*)")?/>', re.DOTALL
)


@pytest.mark.parametrize("agent", TABLES)
def test_the_document_has_the_table_that_is_tested(agent: str) -> None:
    assert render(agent) in DOCUMENT.read_text(), (
        f"python -m tests.ocf.table prints what belongs there:\n{render(agent)}"
    )


@pytest.mark.parametrize("agent", AGENTS)
def test_the_document_has_every_parameter_with_its_default(node: Node, agent: str) -> None:
    found = PARAMETER.findall(node.run(agent, "meta-data").output)
    lines = [
        f"| `{name}` | {f'`{default}`' if default else ''} |".replace("|  |", "| |")
        for name, default in found
    ]
    assert found and [line for line in lines if line not in DOCUMENT.read_text()] == []


@pytest.mark.parametrize("agent", AGENTS)
def test_meta_data_keep_to_the_rules_of_ocf_and_of_pcs(
    node: Node, tmp_path: Path, agent: str
) -> None:
    if not DTD.exists() or not PCS.exists():
        pytest.skip("needs the packages resource-agents, pcs and libxml2-utils")
    (tmp_path / DTD.name).write_bytes(DTD.read_bytes())
    described = tmp_path / "described.xml"
    described.write_text(node.run(agent, "meta-data").output)
    for rule in (["--valid"], ["--relaxng", str(PCS)]):
        done = subprocess.run(
            ["xmllint", "--noout", *rule, str(described)], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("agent", AGENTS)
def test_an_unknown_action_is_not_implemented(node: Node, agent: str) -> None:
    done = node.run(agent, "migrate_to")
    assert (done.code, done.output) == (3, "") and "usage" in done.log
