"""The record in Pacemaker's store, as the watch keeps it where ha-recorder=manager: with pretended
commands, and a real broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from qpidha.manager.in_sync_record import InSyncRecord
from qpidha.manager.pacemaker.score import is_cut_off, promotion_score
from qpidha.manager.pacemaker.watch_commands import CommandFailed, Pacemaker, record_text
from qpidha.manager.pacemaker.watch_record import NotFenced, NotQuorate, PacemakerRecord
from qpidha.model.errors import RefusedRequest
from tests.manager.pacemaker.test_watch import FAIL, Pretended, Room
from tests.manager.pacemaker.test_watch import pretended as pretended
from tests.manager.pacemaker.test_watch import room as room
from tests.system.cluster import wait_for

BOTH, ALONE = InSyncRecord(4, 2, ("id-a", "id-b")), InSyncRecord(4, 3, ("id-a",))
NOTHING = InSyncRecord()

CIBADMIN = """#!/bin/sh
# One record for all nodes; a node may have another (record.NODE) or not answer (silent.NODE).
echo "0 cibadmin $*" >> "$FAKE/calls"
record="$FAKE/record"
case "$*" in
*--node*)
    node=${*#*--node }; node=${node%% *}
    [ -e "$FAKE/silent.$node" ] && exit 124
    [ -e "$FAKE/record.$node" ] && record="$FAKE/record.$node" ;;
esac
case "$*" in
*--query*)
    [ -e "$record" ] || exit 105
    value=$(cat "$record")
    echo "<nvpair id='qpidha-qpidha-in-sync' name='qpidha-in-sync' value='$value'/>" ;;
*--modify*)
    [ "$(cat "$FAKE/quorum" 2>/dev/null || echo 1)" = 1 ] || exit 105
    if [ -e "$record" ]; then
        case "$*" in *"[@value='$(cat "$record")']"*) ;; *) exit 105 ;; esac
    else
        case "$*" in *"[not("*) ;; *) exit 105 ;; esac
    fi
    for last; do :; done
    last=${last#* value=?}
    echo "${last%%'"'*}" > "$record" ;;
esac
"""
CRM_MON = """#!/bin/sh
quorum=$([ "$(cat "$FAKE/quorum" 2>/dev/null || echo 1)" = 1 ] && echo true || echo false)
fencing=$([ -e "$FAKE/no-fencing" ] && echo false || echo true)
cat <<END
<pacemaker-result>
<summary><current_dc name="n1" with_quorum="$quorum"/>
<cluster_options stonith-enabled="$fencing"/></summary><nodes>
$(cat "$FAKE/nodes" 2>/dev/null || echo '<node name="n1" online="true" unclean="false"/>')
</nodes></pacemaker-result>
END
"""


class Cib:
    """Pretended nodes of Pacemaker's, and what each has in its configuration."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "bin").mkdir(exist_ok=True)
        for name, body in {"cibadmin": CIBADMIN, "crm_mon": CRM_MON}.items():
            self.set(f"bin/{name}", body)
            (folder / "bin" / name).chmod(0o755)

    def nodes(self, **how: str) -> None:
        """Say how each node is: online, off, or lost (and not fenced)."""
        line = '<node name="{}" online="{}" unclean="{}"/>'
        lines = [
            line.format(name, str(state == "online").lower(), str(state == "lost").lower())
            for name, state in how.items()
        ]
        self.set("nodes", "\n".join(lines))

    def keep(self, record: InSyncRecord) -> None:
        """Put a record there."""
        self.set("record", record_text(record))

    def kept(self) -> str:
        """Return what is there."""
        path = self.folder / "record"
        return path.read_text().strip() if path.exists() else ""

    def set(self, name: str, text: str = "") -> None:
        """Let something be so."""
        fresh = self.folder / "fresh"
        fresh.write_text(f"{text}\n")
        fresh.chmod(0o755)
        fresh.replace(self.folder / name)

    def change(self, record: InSyncRecord | None, instead: InSyncRecord = NOTHING) -> InSyncRecord:
        """Do as the watch does."""
        return asyncio.run(
            PacemakerRecord(Pacemaker("broker", "n1", "promotion")).change(record, instead)
        )

    def changes(self) -> int:
        """Count the attempts to change something."""
        path = self.folder / "calls"
        return (
            sum("--modify" in line for line in path.read_text().splitlines())
            if path.exists()
            else 0
        )


@pytest.fixture
def cib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cib]:
    """A pretended cluster of two nodes, both online; this is n1."""
    made = Cib(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    monkeypatch.setenv("FAKE", str(tmp_path))
    made.nodes(n1="online", n2="online")
    yield made


def test_a_record_takes_the_place_of_the_one_that_is_kept_and_of_no_other(cib: Cib) -> None:
    assert cib.change(None) == NOTHING
    assert cib.change(BOTH, NOTHING) == BOTH and cib.kept() == "4:2:id-a,id-b"
    assert cib.change(ALONE, BOTH) == ALONE
    assert cib.change(InSyncRecord(5, 0, ("id-b",)), BOTH) == ALONE, (
        "what is kept is told, and nothing changed"
    )
    assert cib.changes() == 2 and cib.kept() == "4:3:id-a"


def test_of_two_writers_one_wins_and_the_other_hears_who(cib: Cib) -> None:
    cib.keep(BOTH)
    other = InSyncRecord(5, 0, ("id-b", "id-a"))
    cib.set(
        "bin/cibadmin",
        CIBADMIN.replace(
            "*--modify*)", f"*--modify*)\n    echo '{record_text(other)}' > $FAKE/record"
        ),
    )
    assert cib.change(ALONE, BOTH) == other and cib.changes() == 1


def test_nothing_is_changed_where_the_partition_is_not_quorate(cib: Cib) -> None:
    cib.keep(BOTH)
    cib.set("quorum", "0")
    with pytest.raises(NotQuorate, match="not quorate"):
        cib.change(ALONE, BOTH)
    assert cib.changes() == 0


@pytest.mark.parametrize("silence", ["silent.n2", "record.n2"])
def test_what_the_other_of_two_nodes_does_not_have_is_not_kept(cib: Cib, silence: str) -> None:
    cib.keep(BOTH)
    cib.set(silence, "3:1:id-b")
    with pytest.raises(NotQuorate, match="n2: no answer, or another record"):
        cib.change(ALONE, BOTH)
    assert cib.changes() == 0, "nor is anything changed here that might not be kept"


def test_a_lost_node_is_waited_for_until_it_is_fenced(cib: Cib) -> None:
    cib.keep(BOTH)
    cib.nodes(n1="online", n2="lost")
    with pytest.raises(NotFenced, match="n2 is not fenced yet"):
        cib.change(ALONE, BOTH)
    assert cib.changes() == 0
    cib.nodes(n1="online", n2="off")
    assert cib.change(ALONE, BOTH) == ALONE


def test_without_fencing_a_node_that_is_gone_may_do_anything(cib: Cib) -> None:
    cib.keep(BOTH)
    cib.nodes(n1="online", n2="off")
    cib.set("no-fencing")
    with pytest.raises(NotFenced, match="without fencing"):
        cib.change(ALONE, BOTH)


def test_of_three_nodes_two_are_enough(cib: Cib) -> None:
    cib.keep(BOTH)
    cib.nodes(n1="online", n2="online", n3="lost")
    assert cib.change(ALONE, BOTH) == ALONE
    cib.set("silent.n2")
    with pytest.raises(NotQuorate):
        cib.change(None)


def test_a_remote_node_has_no_store_and_is_not_counted(cib: Cib) -> None:
    cib.keep(BOTH)
    lines = [
        f'<node name="{name}" online="{online}" type="{kind}"/>'
        for name, online, kind in NODES_AND_REMOTES
    ]
    cib.set("nodes", "\n".join(lines))
    assert cib.change(ALONE, BOTH) == ALONE


NODES_AND_REMOTES = (
    ("n1", "true", "member"),
    ("n2", "true", "member"),
    ("n3", "false", "member"),
    ("r1", "true", "remote"),
)


def test_what_is_no_record_and_a_command_that_fails_are_said(cib: Cib) -> None:
    cib.set("record", "perhaps")
    with pytest.raises(CommandFailed, match="no in-sync record"):
        cib.change(None)
    cib.set("bin/crm_mon", "#!/bin/sh\necho no cluster >&2\nexit 102")
    with pytest.raises(CommandFailed, match="no cluster"):
        cib.change(None)


# The watch beside a broker.


@pytest.fixture
def of_one(room: Room) -> Cib:
    """The room's commands, and a cluster of one node."""
    return Cib(room.path)


MANAGER = "ha-recorder=manager\n"


def test_a_broker_is_promoted_by_what_its_watch_records(room: Room, of_one: Cib) -> None:
    broker = room.broker(promote=False, more=MANAGER)
    room.watch(broker)
    broker.ask("promote")
    status = broker.ask("status")
    assert of_one.kept() == f"1:0:{status['system_id']}" and status["to_record"] is None
    wait_for(lambda: room.calls("crm_attribute --promotion -v 1000 -q"))
    assert room.ask("status")["recorded"]["epoch"] == 1
    assert of_one.changes() == 1, "nothing is written beside what the broker wants"


def test_a_new_watch_goes_on_where_a_killed_one_was(room: Room, of_one: Cib) -> None:
    broker = room.broker(promote=False, more=MANAGER)
    of_one.set("quorum", "0")
    watch = room.watch(broker)
    with pytest.raises(RefusedRequest, match="not quorate"):
        broker.ask("promote")
    watch.kill()
    watch.wait()
    of_one.set("quorum", "1")
    room.watch(broker)
    broker.ask("promote")
    assert of_one.kept().startswith("1:0:")


def test_a_broker_that_records_with_others_has_nothing_for_the_manager(room: Room) -> None:
    broker = room.broker()
    room.watch(broker)
    wait_for(room.record)
    with pytest.raises(RefusedRequest, match="ha-recorder=brokers"):
        broker.ask("recording")


def test_a_primary_that_waits_for_a_store_out_of_reach_is_given_up(
    room: Room, of_one: Cib, pretended: Pretended
) -> None:
    of_one.keep(InSyncRecord(3, 1, ("id-a", "id-b")))
    of_one.nodes(n1="online", n2="lost")
    pretended.status |= {"recorder": "manager", "leaving": ["id-b"], "majority": False}
    pretended.wanted = {
        "wanted": True,
        "record": {"epoch": 3, "version": 2, "members": ["id-a"]},
        "instead": {"epoch": 3, "version": 1, "members": ["id-a", "id-b"]},
    }
    room.watch(pretended, "--isolation", "0.3")
    assert wait_for(lambda: pretended.told)["trouble"] == "n2 is not fenced yet"
    wait_for(lambda: room.calls("-v 1000"))
    assert not room.calls("--fail"), "who waits for fencing is not cut off"
    of_one.set("quorum", "0")
    wait_for(lambda: room.calls("--fail"), [FAIL].__eq__)
    assert "waited for Pacemaker's store for 0.3 s" in room.ask("status")["unfit"]
    of_one.nodes(n1="online", n2="off")
    of_one.set("quorum", "1")
    wait_for(lambda: pretended.told, lambda told: "kept" in told)
    assert of_one.kept() == "3:2:id-a" and pretended.told["kept"] == {
        "epoch": 3,
        "version": 2,
        "members": ["id-a"],
    }


def test_a_backup_has_a_score_by_the_record_whatever_set_is_in_force() -> None:
    status = {
        "state": "ready",
        "complete": True,
        "strict": True,
        "majority": False,
        "recorder": "manager",
        "system_id": "id-b",
        "address": "b:1",
        "in_sync": {"epoch": 3, "version": 5, "members": ["id-a", "id-b"]},
        "members": [],
    }
    assert promotion_score(status, InSyncRecord(3, 4, ("id-a",))) is None
    assert promotion_score(status, InSyncRecord(3, 5, ("id-a", "id-b"))) == 100
    assert promotion_score(status, InSyncRecord(3, 6, ("id-a",))) is None
    assert promotion_score({**status, "recorder": "brokers"}, InSyncRecord(3, 4, ("id-a",))) is None
    assert not is_cut_off({**status, "state": "active", "leaving": ["id-a"]})
    assert is_cut_off({**status, "state": "active", "leaving": ["id-a"]}, store_fails=True)
    assert not is_cut_off({**status, "state": "active", "leaving": []}, store_fails=True)
