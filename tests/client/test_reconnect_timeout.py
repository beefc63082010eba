"""How long a client looks for a broker: once, for a heartbeat or two, or until it gives up."""

from __future__ import annotations

import pytest

from qpidha.client.core import FIRST_SHARE, SECOND, SHARE_AFTER_LOSS, Core, CoreOptions
from qpidha.client.endpoint import Endpoint
from qpidha.client.errors import ClientError, ConnectError

ONE, TWO = Endpoint("one"), Endpoint("two")


def a_core(*endpoints: Endpoint, heard: list[str] | None = None, **options: float | bool) -> Core:
    def hear(event: str, endpoint: Endpoint, error: ClientError | None) -> None:
        if heard is not None:
            heard.append(f"{event} {endpoint.host}")

    return Core(
        list(endpoints),
        CoreOptions("container", **options),  # type: ignore[arg-type]
        lambda: "uuid",
        on_event=hear,
    )


@pytest.mark.parametrize(
    ("heartbeat", "share"),
    [(0.5, SECOND), (0.01, SECOND // 10), (10.0, FIRST_SHARE), (0.0, FIRST_SHARE)],
)
def test_an_address_may_take_two_heartbeats_to_let_a_client_in(
    heartbeat: float, share: int
) -> None:
    assert a_core(ONE, TWO, heartbeat=heartbeat).time_for_dial(0) == share


def test_with_a_timeout_of_0_each_address_is_tried_once_with_its_whole_share() -> None:
    core = a_core(ONE, TWO, reconnect_timeout=0.0, fail_fast=True)
    assert core.time_for_dial(0) == FIRST_SHARE
    error = ConnectError("it cannot be reached")
    assert core.next_dial(SECOND) == ONE
    core.dial_failed(SECOND, error)
    assert core.failure is None and core.next_dial(2 * SECOND) == TWO
    core.dial_failed(3 * SECOND, error)
    assert core.failure is error and core.next_dial(9 * SECOND) is None


@pytest.mark.parametrize("endpoints", [(ONE,), (ONE, TWO)])
def test_after_a_loss_an_address_is_soon_dialled_again(endpoints: tuple[Endpoint, ...]) -> None:
    """A virtual address that moves: what is sent to its old host is never answered."""
    core = a_core(*endpoints)
    core.next_dial(0)
    core.dialled(0, encrypted=False)
    core.admit(core.connection)
    core.hung_up("it was killed", SECOND)
    for share in (SHARE_AFTER_LOSS, 2 * SHARE_AFTER_LOSS):
        for _ in endpoints if share > SHARE_AFTER_LOSS else (TWO,):
            now = max(core.now, core.retry_at)
            assert core.next_dial(now) is not None
            assert core.time_for_dial(now) == share
            core.dial_failed(now + share, ConnectError("it did not answer"))


def test_with_a_timeout_of_0_a_client_ends_with_its_first_connection() -> None:
    heard: list[str] = []
    core = a_core(ONE, TWO, heard=heard, reconnect_timeout=0.0)
    assert core.next_dial(0) == ONE
    core.dialled(0, encrypted=False)
    core.admit(core.connection)
    core.hung_up("it was killed", SECOND)
    assert heard == ["connected one", "lost one"]
    assert core.failure is not None and "was lost" in core.failure.text
    assert core.next_dial(2 * SECOND) is None


def test_without_reconnect_a_client_looks_for_a_broker_and_ends_with_its_connection() -> None:
    heard: list[str] = []
    core = a_core(ONE, heard=heard, reconnect=False, reconnect_timeout=5.0)
    assert core.next_dial(0) == ONE
    core.dial_failed(SECOND, ConnectError("it cannot be reached"))
    assert core.failure is None and core.next_dial(2 * SECOND) == ONE
    core.dialled(2 * SECOND, encrypted=False)
    core.admit(core.connection)
    core.hung_up("it was killed", 3 * SECOND)
    assert heard == ["failed one", "connected one", "lost one"]
    assert core.failure is not None and "was lost" in core.failure.text
    assert core.next_dial(4 * SECOND) is None


def test_without_reconnect_a_client_that_finds_no_broker_says_how_long_it_looked() -> None:
    core = a_core(ONE, reconnect=False, reconnect_timeout=5.0)
    for second in range(6):
        assert core.next_dial(second * SECOND) == ONE
        core.dial_failed(second * SECOND, ConnectError("it cannot be reached"))
    assert core.failure is not None and "within 5 s" in core.failure.text


@pytest.mark.parametrize(
    ("pauses", "wanted"), [((0.5, 2.0), [0.5, 1.0, 2.0, 2.0]), ((0.0, 0.0), [0.0] * 4)]
)
def test_pauses_between_rounds_double_up_to_the_longest(
    pauses: tuple[float, float], wanted: list[float]
) -> None:
    core = a_core(ONE, pauses=pauses)  # type: ignore[arg-type]
    waited = []
    for _ in wanted:
        assert core.next_dial(core.retry_at) == ONE
        core.dial_failed(core.now, ConnectError("it cannot be reached"))
        waited.append((core.retry_at - core.now) / SECOND)
    assert waited == wanted
