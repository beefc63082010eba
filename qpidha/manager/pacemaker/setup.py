"""Setting up Pacemaker: does the steps of the plan that are not done yet, through pcs and nothing
else.

They are done in a copy of the configuration, which is put in place at once, so that no half of it
ever rules the cluster.
"""

from __future__ import annotations

import shlex
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from qpidha.manager.pacemaker.cib import Cib, is_done
from qpidha.manager.pacemaker.plan import (
    BROKER,
    PLAIN_BROKER,
    PlanOptions,
    Step,
    fetch,
    push,
    steps,
)
from qpidha.manager.tool_runner import need_root, run
from qpidha.model.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class Done:
    """What became of a step."""

    step: Step
    is_new: bool
    """False: it was there already."""


def set_up(options: PlanOptions, *, tell: Callable[[str], None]) -> list[Done]:
    """Make the cluster that was planned; `tell` hears each command before it is run.

    Raises ToolFailed with the command that failed and its error; the cluster is then as it was.
    """
    need_root("setting up Pacemaker")
    with tempfile.TemporaryDirectory(prefix="qpidha-") as folder:
        file = str(Path(folder) / "cib.xml")
        for words in fetch(file):
            run("pcs", *words)
        shutil.copy(file, f"{file}.before")
        cib = Cib(Path(file).read_text())
        done = [Done(step, is_new=not is_done(step, cib)) for step in steps(_placed(options, cib))]
        for one in done:
            if one.is_new:
                tell(shlex.join(("pcs", *one.step.words)))
                run("pcs", "-f", file, *one.step.words)
        if Path(file).read_text() != Path(f"{file}.before").read_text():
            for words in push(file):
                tell(shlex.join(("pcs", *words)))
                run("pcs", *words)
    return done


def _placed(options: PlanOptions, cib: Cib) -> PlanOptions:
    """Keep brokers away from the nodes that are not named. Raises InvalidArgument for one that is
    named and cannot have a broker.
    """
    nodes = cib.nodes()
    unknown = [node for node in options.nodes if node not in nodes]
    if unknown:
        text = f"Pacemaker has no node {' and no node '.join(unknown)}"
        raise InvalidArgument(
            text,
            hint=(
                f"it has {', '.join(nodes) or 'none'}; one that is missing has not joined "
                "yet: pcs status nodes"
            ),
        )
    for clone in (f"{BROKER}-clone", f"{PLAIN_BROKER}-clone"):
        for ban in cib.all(f".//rsc_location[@rsc='{clone}'][@score='-INFINITY']"):
            if ban.get("node") in options.nodes:
                text = (
                    f"{ban['node']} is to have a broker, and the constraint {ban['id']} "
                    "keeps it away"
                )
                raise InvalidArgument(
                    text, hint=f"pcs constraint delete {ban['id']}, and then again"
                )
    return replace(options, others=tuple(node for node in nodes if node not in options.nodes))
