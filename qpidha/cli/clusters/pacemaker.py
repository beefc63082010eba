"""`qpid-ha pacemaker`: a cluster of brokers under Pacemaker: planned, set up, looked at and
checked.
"""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from qpidha.cli.app import settings_of
from qpidha.cli.manager_errors import manager_failures
from qpidha.client.command.exits import Failure
from qpidha.client.command.output import print_json, print_table, talk
from qpidha.manager.pacemaker.agents import install
from qpidha.manager.pacemaker.manager import PacemakerManager, connect
from qpidha.manager.pacemaker.plan import (
    IPADDR2,
    OUR_VIP,
    PROMOTABLE,
    RULES_IN_ONE_WORD,
    STYLES,
    TWO_PRIMITIVES,
    PlanOptions,
    advice,
    script,
    steps,
    virtual_address,
)
from qpidha.manager.pacemaker.setup import set_up
from qpidha.manager.pacemaker.state import ClusterState
from qpidha.manager.pacemaker.verify import look, verify
from qpidha.manager.tool_runner import need_root, pcs_version, run
from qpidha.model.exit_codes import NO, NO_PERMISSION, OK, USAGE

VIP_AGENTS = {"qpidha": OUR_VIP, "IPaddr2": IPADDR2}
SYSTEM_PROGRAMS = "/usr/bin"
"""Where the agents look for our programs by themselves."""
FENCE_FORM = (
    "'NAME AGENT [PARAMETER=VALUE ...]', as in 'ipmi-a fence_ipmilan ip=10.0.0.1 pcmk_host_list=a'"
)
ROW = ("node", "pacemaker", "role", "score", "address", "state", "in_sync")
NodeNames = Annotated[
    str,
    typer.Option(
        "--nodes",
        metavar="A,B,C",
        help="the nodes that are to have a broker, as Pacemaker calls them",
    ),
]
Vips = Annotated[
    list[str] | None,
    typer.Option(
        "--vip", metavar="IP/PREFIX[@IF]", help="a virtual address for clients; may be repeated"
    ),
]
Fence = Annotated[
    list[str] | None,
    typer.Option(
        "--fence",
        metavar="WORDS",
        help="what follows 'pcs stonith create' for a fence device; may be repeated",
    ),
]
HasFencing = Annotated[
    bool, typer.Option("--fencing-exists", help="the cluster has its fence devices already")
]
NoFencing = Annotated[
    bool,
    typer.Option("--no-fencing", help="do without; a lost node may then go on as a second primary"),
]
Style = Annotated[str, typer.Option("--style", help=f"{' or '.join(STYLES)} (rgmanager's shape)")]
VipAgent = Annotated[
    str,
    typer.Option(
        "--vip-agent", help="qpidha (announces, and leaves with the primary at once) or IPaddr2"
    ),
]
Monitor = Annotated[
    int,
    typer.Option(
        "--monitor",
        min=1,
        help="seconds between two looks at a broker; its death is reported at once anyway",
    ),
]
Deadtime = Annotated[
    int,
    typer.Option(
        "--dc-deadtime",
        min=1,
        help="seconds for which a starting cluster waits for its other nodes",
    ),
]
Recheck = Annotated[
    int,
    typer.Option(
        "--recheck", min=1, help="seconds after which Pacemaker looks at everything again"
    ),
]
FencingDelay = Annotated[
    int,
    typer.Option(
        "--fencing-delay",
        min=0,
        help="two nodes only: seconds that a backup's waits before it fences the primary's",
    ),
]
BrokerParameters = Annotated[
    list[str] | None,
    typer.Option(
        "--broker-set",
        metavar="NAME=VALUE",
        help="a parameter of the broker's agent; may be repeated",
    ),
]
VipParameters = Annotated[
    list[str] | None,
    typer.Option(
        "--vip-set",
        metavar="NAME=VALUE",
        help="a parameter of the address's agent; may be repeated",
    ),
]


def add(app: typer.Typer) -> None:
    """Put the commands into the tree."""
    pacemaker = typer.Typer(help="Run a cluster of brokers under Pacemaker.", no_args_is_help=True)
    pacemaker.command("plan")(_plan)
    pacemaker.command("setup")(_setup)
    pacemaker.command("status")(_status)
    pacemaker.command("verify")(_verify)
    pacemaker.command("maintenance")(_maintenance)
    pacemaker.command("install-agents")(_install_agents)
    app.add_typer(pacemaker, name="pacemaker")


def _plan(
    context: typer.Context,
    nodes: NodeNames,
    vip: Vips = None,
    fence: Fence = None,
    fencing_exists: HasFencing = False,
    no_fencing: NoFencing = False,
    style: Style = PROMOTABLE,
    vip_agent: VipAgent = "qpidha",
    monitor: Monitor = 2,
    dc_deadtime: Deadtime = 5,
    recheck: Recheck = 60,
    fencing_delay: FencingDelay = 5,
    broker_set: BrokerParameters = None,
    vip_set: VipParameters = None,
) -> None:
    """Print the pcs commands that make the cluster, as a shell script. Change nothing; neither
    pcs nor Pacemaker is needed.

    Example: qpid-ha pacemaker plan --nodes ha1,ha2,ha3 --vip 10.77.0.100/24@eth0 --fence 'power
    fence_ipmilan ip=10.77.0.9'
    """
    given = {**locals()}
    _print_plan(context, _options(given))


def _setup(
    context: typer.Context,
    nodes: NodeNames,
    vip: Vips = None,
    fence: Fence = None,
    fencing_exists: HasFencing = False,
    no_fencing: NoFencing = False,
    style: Style = PROMOTABLE,
    vip_agent: VipAgent = "qpidha",
    monitor: Monitor = 2,
    dc_deadtime: Deadtime = 5,
    recheck: Recheck = 60,
    fencing_delay: FencingDelay = 5,
    broker_set: BrokerParameters = None,
    vip_set: VipParameters = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="run the commands; without it they are only printed")
    ] = False,
) -> None:
    """Make the cluster where corosync and Pacemaker run already; leave alone what is there and
    equal.

    Run it on one node. Nodes that are not named get no broker. The configuration changes at
    once, or, if a command fails, not at all.

    Example: qpid-ha pacemaker setup --nodes ha1,ha2,ha3 --vip 10.77.0.100/24@eth0 --fence
    'power fence_ipmilan ip=10.77.0.9' --apply
    """
    given = {**locals()}
    plan = _options(given)
    if not apply:
        _print_plan(context, plan)
        return
    options = settings_of(context)
    with manager_failures():
        done = set_up(plan, tell=lambda command: talk(options, command))
    for text in advice(plan):
        talk(options, text)
    if options.as_json:
        rows = [
            {"what": one.step.what, "command": ["pcs", *one.step.words], "is_new": one.is_new}
            for one in done
        ]
        print_json({"schema_version": 1, "applied": True, "steps": rows})
    else:
        new = sum(one.is_new for one in done)
        there = len(done) - new
        print(
            f"{new} steps done{f', {there} were done already' if there else ''}; next: "
            "qpid-ha pacemaker status, and verify on each node"
        )


def _status(context: typer.Context) -> None:
    """Show nodes, brokers and addresses as Pacemaker sees them, and the brokers' own states.

    Example: qpid-ha pacemaker status
    """
    options = settings_of(context)
    with manager_failures():
        manager = connect()
        state = manager.state()
        found = _describe(manager, state)
    if options.as_json:
        print_json({"schema_version": 1, **found})
        return
    quorum = "quorate" if state.quorate else "NO QUORUM: nothing runs here"
    fencing = "on" if state.fencing else "OFF"
    print(
        f"{quorum}   primary {found['primary'] or 'none'}   fencing "
        f"{fencing}{'   MAINTENANCE' if state.maintenance else ''}"
    )
    print_table(
        [key.upper().replace("_", " ") for key in ROW],
        [[row[key] for key in ROW] for row in found["brokers"]],
    )
    for address in found["addresses"]:
        print(f"address {address['address']}: {address['node'] or 'nowhere'}")
    print(f"recorded in-sync set: {_text(found['recorded'])}")
    for failure in state.failures:
        print(f"failure: {failure}")
    for fenced in state.fenced:
        print(f"fenced: {fenced}")


def _verify(context: typer.Context) -> None:
    """Find errors in the configuration: fencing, timings, constraints, units beside Pacemaker,
    this node's file. Run it on each node.

    Example: qpid-ha pacemaker verify
    """
    options = settings_of(context)
    with manager_failures():
        findings = verify(look(connect()))
    if options.as_json:
        print_json({"schema_version": 1, "findings": [asdict(finding) for finding in findings]})
    else:
        for finding in findings:
            print(f"{finding.what}: {finding.why}. Try: {finding.next}")
        talk(options, f"{len(findings)} found" if findings else "nothing found")
    raise typer.Exit(NO if findings else OK)


def _maintenance(
    context: typer.Context, switch: Annotated[str, typer.Argument(help="on or off")]
) -> None:
    """Switch Pacemaker's maintenance mode on (it leaves all resources alone) or off: for work on
    corosync, Pacemaker or all brokers.

    Example: qpid-ha pacemaker maintenance on
    """
    if switch not in ("on", "off"):
        raise Failure(
            USAGE, f"{switch!r} is neither on nor off", hint="qpid-ha pacemaker maintenance on"
        )
    options = settings_of(context)
    with manager_failures():
        need_root("maintenance mode")
        run("pcs", "property", "set", f"maintenance-mode={'true' if switch == 'on' else 'false'}")
    if options.as_json:
        print_json({"schema_version": 1, "maintenance": switch == "on"})
    else:
        talk(
            options,
            "Pacemaker does not monitor the brokers now"
            if switch == "on"
            else "Pacemaker monitors the brokers again",
        )


def _install_agents(
    context: typer.Context,
    destdir: Annotated[
        Path, typer.Option("--destdir", help="a folder that stands for / (for packages and images)")
    ] = Path("/"),
) -> None:
    """Copy the OCF agents to /usr/lib/ocf, where Pacemaker looks for them. Run it on each node,
    and again after an update.

    Example: qpid-ha pacemaker install-agents
    """
    options = settings_of(context)
    with manager_failures():
        try:
            written = install(str(destdir))
        except PermissionError as error:
            raise Failure(
                NO_PERMISSION,
                f"{error.filename}: {error.strerror}",
                hint="again with sudo, or --destdir",
            ) from error
    if options.as_json:
        print_json({"schema_version": 1, "written": [str(path) for path in written]})
    else:
        print("\n".join(str(path) for path in written))


# What they share: the plan.


def _options(given: dict[str, Any]) -> PlanOptions:
    """Read the words of the command line."""
    with manager_failures():
        fence = tuple(_fence_words(words) for words in given["fence"] or [])
        if not (fence or given["fencing_exists"] or given["no_fencing"]):
            text = (
                "nothing says how a lost node is fenced, and without that two brokers can be "
                "primary at once"
            )
            raise Failure(
                USAGE,
                text,
                hint=(
                    "--fence 'NAME AGENT pcmk_host_list=...', --fencing-exists, or "
                    "--no-fencing at your own risk"
                ),
            )
        if given["no_fencing"] and (fence or given["fencing_exists"]):
            raise Failure(
                USAGE, "--no-fencing contradicts --fence and --fencing-exists", hint="leave one out"
            )
        if given["vip_agent"] not in VIP_AGENTS:
            raise Failure(
                USAGE,
                f"there is no agent {given['vip_agent']!r} for addresses",
                hint=f"one of {', '.join(VIP_AGENTS)}",
            )
        vip_agent = VIP_AGENTS[given["vip_agent"]]
        vip = {
            **(_programs({"qpid_ha": "qpid-ha"}) if vip_agent == OUR_VIP else {}),
            **_pairs("--vip-set", given["vip_set"]),
        }
        broker = {
            **_programs({"binary": "qpidhad", "watch": "qpidha-watch"}),
            **_pairs("--broker-set", given["broker_set"]),
        }
        # Only one step of that style is said otherwise to an older pcs.
        version = pcs_version() if given["style"] == TWO_PRIMITIVES else ()
        return PlanOptions(
            nodes=tuple(name.strip() for name in given["nodes"].split(",") if name.strip()),
            vips=tuple(virtual_address(text) for text in given["vip"] or []),
            fence=fence,
            fencing=not given["no_fencing"],
            style=given["style"],
            vip_agent=vip_agent,
            monitor=given["monitor"],
            dc_deadtime=given["dc_deadtime"],
            recheck=given["recheck"],
            fencing_delay=given["fencing_delay"],
            broker=broker,
            vip=vip,
            pcs=version or RULES_IN_ONE_WORD,
        )


def _fence_words(text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise Failure(
            USAGE,
            f"--fence {text!r} cannot be read: {str(error).lower()}",
            hint=f"--fence {FENCE_FORM}",
        ) from error


def _print_plan(context: typer.Context, plan: PlanOptions) -> None:
    with manager_failures():
        made, text = steps(plan), script(plan)
    if settings_of(context).as_json:
        rows = [{"what": step.what, "command": ["pcs", *step.words]} for step in made]
        print_json({"schema_version": 1, "applied": False, "steps": rows})
    else:
        print(text, end="")


def _pairs(option: str, given: list[str] | None) -> dict[str, str]:
    for pair in given or []:
        if "=" not in pair:
            raise Failure(USAGE, f"{option} {pair!r} is not NAME=VALUE", hint=f"{option} answer=2")
    return dict(pair.split("=", 1) for pair in given or [])


def _programs(wanted: dict[str, str]) -> dict[str, str]:
    """Say where our programs are, unless they are where the agents look anyway."""
    folder = os.path.dirname(os.path.abspath(sys.argv[0]))
    if folder == SYSTEM_PROGRAMS or not os.path.exists(os.path.join(folder, "qpidhad")):
        return {}
    return {parameter: os.path.join(folder, program) for parameter, program in wanted.items()}


# What they share: the cluster.


def _describe(manager: PacemakerManager, state: ClusterState) -> dict[str, Any]:
    members = {member.name: member for member in manager.members()}
    roles = {instance.node: instance.role for instance in state.brokers()}
    primary = state.primary()
    recorded = manager.newest_in_sync()
    brokers = []
    for node in state.nodes:
        member = members[node.name]
        brokers.append(
            {
                "node": node.name,
                "pacemaker": node.text,
                "role": roles.get(node.name, "stopped"),
                "score": state.score(node),
                "address": member.address,
                "state": member.state,
                "in_sync": member.system_id in recorded.members
                if member.system_id and recorded.members
                else None,
                "healthy": member.healthy,
            }
        )
    where = {instance.resource: instance.node for instance in state.addresses()}
    addresses = [
        {"address": resource.parameters.get("ip", ""), "node": where.get(name) or None}
        for name, resource in manager.cib.primitives.items()
        if name in where
    ]
    # A member that no node has keeps its identity.
    names = {member.system_id: member.name for member in members.values() if member.system_id}
    kept = {
        "epoch": recorded.epoch,
        "version": recorded.version,
        "members": [names.get(one, one) for one in recorded.members],
    }
    return {
        "quorate": state.quorate,
        "controller": state.controller,
        "fencing": state.fencing,
        "maintenance": state.maintenance,
        "primary": None if primary is None else primary.node,
        "brokers": brokers,
        "addresses": addresses,
        "recorded": kept if recorded.members else None,
        "failures": state.failures,
        "fenced": state.fenced,
    }


def _text(recorded: dict[str, Any] | None) -> str:
    return (
        "none"
        if recorded is None
        else f"{recorded['epoch']}.{recorded['version']} of {', '.join(recorded['members'])}"
    )
