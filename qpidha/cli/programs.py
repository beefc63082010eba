"""The programs, as they are installed: each imports its own module when it is called, so that an
interrupt meanwhile ends it as one at work does, without a traceback.
"""

from __future__ import annotations

from importlib import import_module

from qpidha.model.exit_codes import INTERRUPTED


def qpid_config() -> int:
    """Run `qpid-config`."""
    return _run("qpidha.tools.qpid_config")


def qpid_ha() -> int:
    """Run `qpid-ha`."""
    return _run("qpidha.cli.main")


def qpid_printevents() -> int:
    """Run `qpid-printevents`."""
    return _run("qpidha.tools.qpid_printevents")


def qpid_receive() -> int:
    """Run `qpid-receive`."""
    return _run("qpidha.tools.qpid_receive")


def qpid_route() -> int:
    """Run `qpid-route`."""
    return _run("qpidha.tools.qpid_route")


def qpid_send() -> int:
    """Run `qpid-send`."""
    return _run("qpidha.tools.qpid_send")


def qpid_stat() -> int:
    """Run `qpid-stat`."""
    return _run("qpidha.tools.qpid_stat")


def qpidha_console() -> int:
    """Run `qpidha-console`."""
    return _run("qpidha.console.main")


def qpidha_watch() -> int:
    """Run `qpidha-watch`."""
    return _run("qpidha.manager.pacemaker.watch")


def qpidhad() -> int:
    """Run `qpidhad`."""
    return _run("qpidha.runtime.daemon")


def _run(module: str) -> int:
    """Run the function `main` of a module, and return the exit code."""
    try:
        main = import_module(module).main
    except KeyboardInterrupt:
        return INTERRUPTED
    return int(main())
