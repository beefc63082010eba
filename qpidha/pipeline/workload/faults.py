"""Faults of the verification workload: what can be done to a cluster, to whom, and when.

To brokers of the built-in manager they are done through the manager (kill, terminate, stop,
switchover) or to the links between them (partition). To any other cluster they are done by a
program of the user's: `CMD start NAME TARGET`, later `CMD stop NAME TARGET`. One fault follows the
other, each is noted before it begins, and the choices come from a seed.
"""

from __future__ import annotations

import random
import shlex
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from qpidha.client.command.exits import Failure
from qpidha.manager.builtin.cluster import ClusterOptions
from qpidha.manager.builtin.launch import manager_link
from qpidha.model.exit_codes import NO, USAGE
from qpidha.pipeline.history import History
from qpidha.pipeline.workload.fault_proxies import FaultProxies

KINDS = ("kill", "terminate", "stop", "partition", "switchover")
"""What the built-in manager's cluster knows."""
LASTS = (1.0, 5.0)
"""Seconds for which a fault lasts."""
PAUSE = (2.0, 6.0)
"""Seconds between the end of a fault and the next one."""
FIRST = 2.0
PRIMARY_SHARE = 0.7
"""How often the victim is the primary."""
HOOK_PATIENCE = 120.0


class FaultRunner(Protocol):
    """Carries out faults: on a local cluster, or by a hook of the operator."""

    kinds: Sequence[str]

    def targets(self) -> tuple[str, list[str]]:
        """Return the primary, empty if none is known, and all brokers."""

    def start(self, kind: str, target: str) -> None:
        """Begin a fault; raises Failure if that cannot be."""

    def stop(self, kind: str, target: str) -> None:
        """End it."""


class LocalFaults:
    """Faults of a cluster of the built-in manager."""

    def __init__(
        self,
        plan: ClusterOptions,
        kinds: Sequence[str],
        proxies: FaultProxies | None,
        primary: Callable[[], str],
    ) -> None:
        unknown = [kind for kind in kinds if kind not in KINDS]
        if unknown:
            raise Failure(
                USAGE,
                f"{unknown[0]!r} is not a fault",
                hint=f"--faults with some of {','.join(KINDS)}, or none",
            )
        self.kinds = kinds
        self._plan = plan
        self._proxies = proxies
        self._primary = primary

    def targets(self) -> tuple[str, list[str]]:
        """Return the brokers by their names."""
        return self._primary(), [spec.name for spec in self._plan.brokers()]

    def start(self, kind: str, target: str) -> None:
        """Begin a fault."""
        if kind == "partition":
            assert self._proxies is not None
            self._proxies.isolate([spec.name for spec in self._plan.brokers()].index(target))
        elif kind == "switchover":
            self._ask("switchover", {})
        else:
            self._ask(
                "kill",
                {
                    "name": target,
                    "signal": {"kill": "KILL", "terminate": "TERM", "stop": "STOP"}[kind],
                },
            )

    def stop(self, kind: str, target: str) -> None:
        """End a fault; who was killed has been started again by the manager."""
        if kind == "partition":
            assert self._proxies is not None
            self._proxies.heal()
        elif kind == "stop":
            self._ask("kill", {"name": target, "signal": "CONT"})

    def _ask(self, method: str, params: dict[str, str]) -> None:
        link = manager_link(self._plan.directory, timeout=30.0)
        try:
            link.call(method, params)
        finally:
            link.close()


class HookFaults:
    """Faults that a program of the user's does; the primary is where the clients are."""

    def __init__(
        self,
        command: str,
        kinds: Sequence[str],
        addresses: Sequence[str],
        primary: Callable[[], str],
    ) -> None:
        self.kinds = kinds
        self._command = shlex.split(command)
        self._addresses = list(addresses)
        self._primary = primary

    def targets(self) -> tuple[str, list[str]]:
        """Return the brokers by their addresses."""
        return self._primary(), self._addresses

    def start(self, kind: str, target: str) -> None:
        """Begin a fault."""
        self._run("start", kind, target)

    def stop(self, kind: str, target: str) -> None:
        """End a fault."""
        self._run("stop", kind, target)

    def _run(self, *words: str) -> None:
        shown = shlex.join([*self._command, *words])
        try:
            done = subprocess.run(
                [*self._command, *words],
                capture_output=True,
                text=True,
                timeout=HOOK_PATIENCE,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Failure(NO, f"{shown} did not work: {error}") from error
        if done.returncode != 0:
            raise Failure(
                NO,
                f"{shown} ended with code {done.returncode}: "
                f"{(done.stderr or done.stdout).strip()[-300:]}",
            )


class Nemesis:
    """Starts a fault when it is time, and ends it some time later."""

    def __init__(
        self, runner: FaultRunner, history: History, seed: int, say: Callable[[str, str], None]
    ) -> None:
        self.runner = runner
        self.history = history
        self.counts: dict[str, int] = {}
        self.problems: list[str] = []
        self._choices = random.Random(seed)
        self._say = say
        self._deck: list[str] = []
        self._number = 0
        self._under_way: tuple[int, str, str] | None = None
        self._at = time.monotonic() + FIRST

    def look(self) -> None:
        """Do what is due."""
        if time.monotonic() < self._at or not self.runner.kinds:
            return
        if self._under_way is None:
            self._start()
        else:
            self.end()
            self._at = time.monotonic() + self._choices.uniform(*PAUSE)

    def end(self) -> None:
        """End the fault that is under way."""
        if self._under_way is None:
            return
        number, kind, target = self._under_way
        self._under_way = None
        self._attempt("stop", kind, target)
        self.history.fault(number, "stop", kind, target)
        self._say("heal", f"{kind} {target}")

    def _start(self) -> None:
        if not self._deck:  # each kind once before one comes again
            self._deck = self._choices.sample(list(self.runner.kinds), len(self.runner.kinds))
        kind = self._deck.pop()
        primary, everybody = self.runner.targets()
        others = [name for name in everybody if name != primary] or everybody
        is_primary = self._choices.random() < PRIMARY_SHARE or kind == "switchover"
        target = primary if is_primary and primary else self._choices.choice(others)
        lasts = self._choices.uniform(*LASTS)
        self._number += 1
        # Noted first: nothing that it does may come before it.
        self.history.fault(self._number, "start", kind, target)
        self._under_way = (self._number, kind, target)
        self._say(
            "fault",
            f"{kind} {target} for {lasts:.1f} s" + (" (the primary)" if target == primary else ""),
        )
        if self._attempt("start", kind, target):
            self.counts[kind] = self.counts.get(kind, 0) + 1
            self._at = time.monotonic() + lasts

    def _attempt(self, step: str, kind: str, target: str) -> bool:
        try:
            (self.runner.start if step == "start" else self.runner.stop)(kind, target)
        except Failure as failure:
            # Who was to be continued may have been killed meanwhile; a fault that could not be is
            # none.
            if step == "start":
                self.problems.append(f"{kind} {target}: {failure.text}")
            self._say("refused", f"{step} {kind} {target}: {failure.text}")
            return False
        return True
