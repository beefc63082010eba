"""`qpidhad --check --from-qpidd`: what real files of sites mean here, as golden texts.

`python -m tests.runtime.test_from_qpidd` writes them anew.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from qpidha.model.qpidd import QPIDD
from qpidha.model.settings import OPTIONS
from qpidha.model.sources import COMMANDS, IGNORED, IGNORED_FAMILIES, OLD_NAMES, why_ignored
from qpidha.runtime import from_qpidd
from qpidha.runtime.exits import CannotStart
from qpidha.runtime.from_qpidd import OUTSIDE, judge
from tests.patience import STATE
from tests.runtime.daemons import ENVIRONMENT

FILES = Path(__file__).parent / "qpidd"
SITES = {"chapter": 78, "fedora": 78, "secured": 78, "rgmanager": 78}


def run(*options: object) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "qpidha.runtime.daemon", *map(str, options)],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        timeout=STATE,
    )
    return done.returncode, done.stdout, done.stderr


def told(site: str) -> str:
    code, out, log = run("--check", "--from-qpidd", FILES / f"{site}.conf")
    assert code == SITES[site] and not log
    return out.replace(f"{FILES}{os.sep}", "")


@pytest.mark.parametrize("site", SITES)
def test_what_a_site_is_told(site: str) -> None:
    written = (FILES / f"{site}.txt").read_text()
    assert told(site) == written, "if it is right: python -m tests.runtime.test_from_qpidd"


def verdicts(text: str, *options: str, path: str = "/etc/qpid/qpidd.conf") -> dict[str, str]:
    found = judge(path, text, ["--auth=no", *options])
    return {each.subject: str(each.verdict) for each in found.findings if each.place != "-"}


def test_with_what_is_missing_on_the_command_line_nothing_is_refused(tmp_path: Path) -> None:
    code, out, _ = run("--check", "--from-qpidd", FILES / "chapter.conf", "--auth=no")
    assert code == 1 and "refused" not in out
    (tmp_path / "same.conf").write_text("port=5672\nauth=no\ntcp-nodelay=yes\n")
    found = judge(str(tmp_path / "same.conf"), (tmp_path / "same.conf").read_text(), [])
    assert [str(each.verdict) for each in found.findings if each.place != "-"] == ["same"] * 3


def test_each_line_is_judged_by_itself() -> None:
    text = (
        "ha-brokers-url=rdma:a\n"
        "ha-backup-timeout=soon\n"
        "ha-min-in-sync=2\n"
        "fedration=1\n"
        "no-data-dir=yes\n"
        "link-heartbeat-interval=10\n"
        "worker-threads=3\n"
    )
    assert verdicts(text) == {
        "ha-brokers-url=rdma:a": "refused",
        "ha-backup-timeout=soon": "refused",
        "ha-min-in-sync=2": "differs",
        "fedration=1": "refused",
        "no-data-dir=yes": "same",
        "link-heartbeat-interval=10": "same",
        "worker-threads=3": "ignored",
    }


def test_no_password_is_shown() -> None:
    text = "ha-username=ha\nha-password=secret\n"
    found = judge("/x", text, ["--auth=no"])
    assert "secret" not in found.text().replace("(secret)", "")


def test_an_acl_file_is_looked_for_where_qpidd_does(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "my.acl").write_text("acl deny all all\n")
    text = f"acl-file=my.acl\ndata-dir={tmp_path}/data\n"
    found = judge(str(tmp_path / "qpidd.conf"), text, ["--auth=no"])
    remarks = [each.remark for each in found.findings if each.subject == "acl-file=my.acl"]
    assert f"write acl-file={tmp_path}/data/my.acl" in remarks[-1]
    assert "acl deny all all" in [each.subject for each in found.findings]
    found = judge(str(tmp_path / "qpidd.conf"), "acl-file=no.acl\n", ["--auth=no"])
    assert found.code == 78


def test_hosts_that_nobody_knows_here_are_said_in_their_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody(name: str) -> list[str]:
        raise CannotStart("the name service is away", hint="again", code=69)

    monkeypatch.setattr(from_qpidd, "resolve", nobody)
    (tmp_path / "my.acl").write_text("acl allow all create connection host=far\nacl deny all all\n")
    found = judge(str(tmp_path / "qpidd.conf"), f"acl-file={tmp_path}/my.acl\n", ["--auth=no"])
    said = {each.place: str(each.verdict) for each in found.findings}
    assert said["my.acl:1"] == "refused" and said["my.acl:2"] == "same"


def test_what_is_no_file_of_options_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("port 5672\n")
    code, _, log = run("--check", "--from-qpidd", tmp_path / "x")
    assert code == 78 and "is not name=value" in log
    assert run("--check", "--from-qpidd", tmp_path / "none")[0] == 78
    code, _, log = run("--from-qpidd", tmp_path / "x")
    assert code == 78 and "--check --from-qpidd" in log
    code, _, log = run("--check", "--from-qpidd")
    assert code == 78 and "needs a file" in log


def test_every_option_of_qpidd_is_known() -> None:
    """A qpidd.conf is never refused for a name that qpidd takes."""
    known = (*OPTIONS, *OLD_NAMES, *OUTSIDE, *COMMANDS)
    assert [name for name in QPIDD if name not in known and why_ignored(name) is None] == []
    assert [name for name in IGNORED if name not in QPIDD] == []
    assert [name for name in OLD_NAMES if name not in QPIDD] == []
    families = [start for start in IGNORED_FAMILIES if not any(n.startswith(start) for n in QPIDD)]
    assert families == ["paging-", "link-credit-"] or families == ["link-credit-"]


def test_defaults_are_written_as_the_option_takes_them() -> None:
    for name, known in QPIDD.items():
        if name in OPTIONS and known.default and not known.default.startswith("~"):
            OPTIONS[name].kind.parse(known.default)


if __name__ == "__main__":
    for site in SITES:
        (FILES / f"{site}.txt").write_text(told(site))
