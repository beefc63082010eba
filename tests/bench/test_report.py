"""The benchmark's arithmetic: medians, ratios within a round, targets, and the table."""

from __future__ import annotations

import os
from typing import Any

from tests.bench.cases import TABLE
from tests.bench.processes import cpu_seconds, memory_bytes, metered
from tests.bench.report import COLUMNS, summarise, table, target


def a_run(subject: str, number: int, cpu: float, case: str = "consumed") -> dict[str, Any]:
    return {
        "subject": subject,
        "case": case,
        "round": number,
        "cpu_us_per_message": cpu,
        "messages_per_second": 1000.0 * number,
        "ack_p50_ms": 1.0,
        "ack_p99_ms": 9.0,
        "other": 0.25,
        "remark": "",
    }


RUNS = [
    *(a_run("rabbitmq-mirrored", at, cpu) for at, cpu in ((1, 80.0), (2, 160.0), (3, 90.0))),
    *(a_run("qpidha-3", at, cpu) for at, cpu in ((1, 10.0), (2, 20.0), (3, 10.0))),
]


def test_the_summary_holds_medians_and_the_spread_and_ours_is_first() -> None:
    ours, _ = summarise(RUNS)
    assert ours["subject"] == "qpidha-3"
    spread = (ours["cpu_us_per_message"], ours["cpu_us_lowest"], ours["cpu_us_highest"])
    assert spread == (10.0, 10.0, 20.0)
    assert (ours["rounds"], ours["messages_per_second"]) == (3, 2000.0)


def test_the_ratio_is_taken_within_a_round_so_that_a_busy_machine_does_not_count() -> None:
    ours, rabbit = summarise(RUNS)
    assert (ours["cpu_ratio_to_qpidha_3"], rabbit["cpu_ratio_to_qpidha_3"]) == (1.0, 8.0)


def test_without_our_cluster_there_is_no_ratio() -> None:
    (alone,) = summarise([a_run("rabbitmq-quorum", 1, 70.0)])
    assert alone["cpu_ratio_to_qpidha_3"] is None
    assert "x qpidha-3" not in table([alone])


def test_a_kind_of_queue_is_compared_with_the_order_of_arrival_on_the_same_broker() -> None:
    kinds = [
        a_run("qpidha-1", number, cpu * ratio, case)
        for case, ratio in (("fifo", 1.0), ("groups", 1.5))
        for number, cpu in ((1, 10.0), (2, 20.0))
    ]
    fifo, groups, other = summarise([*kinds, a_run("qpidha-1", 1, 30.0)])
    assert (fifo["cpu_ratio_to_fifo"], groups["cpu_ratio_to_fifo"]) == (1.0, 1.5)
    assert other["cpu_ratio_to_fifo"] is None
    assert "x fifo" in table([groups]) and "x fifo" not in table([other])


def test_the_table_has_a_line_for_each_subject_and_case() -> None:
    lines = table(summarise([*RUNS, a_run("qpidha-3", 1, 8.0, case="kept")])).splitlines()
    assert len(lines) == 2 + 3
    assert "8.00" in lines[3]  # the ratio
    assert "7 us" in lines[2] and "us" not in lines[3] and "5 us" in lines[4]  # the target is ours


def test_a_run_without_a_figure_leaves_the_column_of_it_out() -> None:
    idle = {"subject": "nats", "case": "idle", "round": 1, "other": 0.0, "remark": "1 LOST"}
    lines = table(summarise([{**idle, "bytes_each": 23_700.0}])).splitlines()
    assert "bytes each" in lines[0] and "CPU" not in lines[0] and "p50" not in lines[0]
    assert "23,700" in lines[2] and "1 LOST" in lines[2]


def test_every_target_is_of_a_column_with_a_unit() -> None:
    units = {column.figure for column in COLUMNS if column.unit}
    assert all(case.target and set(case.target) <= units for case in TABLE.values())
    assert target(TABLE["window-1"].target) == "180 us, p50 0.13 ms"


def test_cpu_time_and_memory_of_a_process_are_read() -> None:
    before = cpu_seconds([os.getpid()])
    with metered([os.getpid()]) as meter:
        while cpu_seconds([os.getpid()]) == before:
            pass
    assert meter.cpu > 0 and meter.wall > 0 and meter.other >= 0
    assert memory_bytes([os.getpid()]) > 1_000_000
