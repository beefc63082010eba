"""The policy-file: what it may say, and that it is heeded once."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from qpidha.model.exit_codes import CONFIG
from qpidha.model.settings import Settings
from qpidha.node import Node
from qpidha.runtime.exits import CannotStart
from qpidha.runtime.policy_file import load_policies
from tests.runtime.daemons import Running, run
from tests.system.cluster import Admin, wait_for

LIMIT = {"name": "limit", "pattern": "^q", "definition": {"max-length": 5}, "priority": 3}
CAP = {"name": "cap", "pattern": ".*", "definition": {"max-length": 9}, "merge": True}


def written(place: Path, content: Any) -> Path:
    path = place / "policies.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_without_a_file_there_are_none() -> None:
    assert load_policies(Settings()) == []


def test_a_file_has_both_kinds_as_lists_show_them(tmp_path: Path) -> None:
    shown = {**LIMIT, "matches": 3, "in_effect_on": 3, "shadowed_by": [], "warning": ""}
    content = {"schema_version": 1, "policies": [shown], "operator_policies": [CAP]}
    limit, cap = load_policies(Settings(policy_file=str(written(tmp_path, content))))
    assert (limit.name, limit.priority, limit.is_operator) == ("limit", 3, False)
    assert (cap.name, cap.is_layer, cap.is_operator) == ("cap", True, True)
    assert cap.settings == {"qpid.max_count": 9}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("{", "policies.json"),
        ([], "no JSON object"),
        ({"policy": []}, "'policy' is not one of"),
        ({"policies": {}}, "no list"),
        ({"policies": ["limit"]}, "no policy"),
        ({"policies": [{"name": "limit", "pattern": "q"}]}, "has no definition"),
        ({"policies": [{**LIMIT, "prio": 3}]}, "'prio'"),
        ({"policies": [{**LIMIT, "priority": True}]}, "priority=true"),
        ({"policies": [{**LIMIT, "pattern": "("}]}, "pattern"),
        ({"policies": [{**LIMIT, "definition": {"max-age": 1}}]}, "max-age"),
        ({"policies": [LIMIT, LIMIT]}, "twice"),
    ],
)
def test_what_cannot_be_followed_is_refused(tmp_path: Path, content: Any, why: str) -> None:
    path = written(tmp_path, content)
    with pytest.raises(CannotStart, match=r"policy-file") as refused:
        load_policies(Settings(policy_file=str(path)))
    assert why in str(refused.value)
    assert refused.value.code == CONFIG


def test_a_check_looks_at_the_file(tmp_path: Path) -> None:
    code, _, said = run("--check", "--policy-file", tmp_path / "nowhere")
    assert code == CONFIG
    assert "nowhere cannot be read" in said


def test_row_17_policies_of_a_file_are_set_once(place: Path, tmp_path: Path) -> None:
    path = written(tmp_path, {"policies": [LIMIT]})
    options = ("--data-dir", place, "--policy-file", path)
    with Running(*options) as daemon, Admin(place / "admin.sock") as admin:
        (row,) = wait_for(lambda: admin.call("list_policies"), what="the policies")
        assert row["definition"] == LIMIT["definition"]
        admin.call("clear_policy", name="limit")
        daemon.end(signal.SIGTERM)
    with Running(*options), Admin(place / "admin.sock") as admin:
        assert admin.call("list_policies") == []


def test_a_broker_without_a_disk_sets_them_with_every_start(tmp_path: Path) -> None:
    node = Node(
        Settings(),
        system_id="s",
        users=None,
        state={},
        address="h:1",
        make_uuid=lambda: "u",
        policies=load_policies(Settings(policy_file=str(written(tmp_path, {"policies": [LIMIT]})))),
    )
    node.start(1)
    assert node.broker.policies.get("limit") is not None
