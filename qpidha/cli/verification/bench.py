"""`qpid-ha bench`: throughput, latency and broker CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from qpidha.bench.run import Bench, BenchOptions, default_directory
from qpidha.cli.app import settings_of
from qpidha.client.command.exits import Failure
from qpidha.client.command.output import print_json
from qpidha.model.exit_codes import USAGE


def add(app: typer.Typer) -> None:
    """Put the command into the tree."""
    app.command("bench")(_bench)


def _bench(
    context: typer.Context,
    seconds: Annotated[float, typer.Option(help="how long to send")] = 5.0,
    messages: Annotated[
        int, typer.Option("-m", "--messages", help="end after this many; 0 is no limit")
    ] = 0,
    size: Annotated[int, typer.Option(help="bytes in a message")] = 100,
    window: Annotated[int, typer.Option(help="messages that may be without an outcome")] = 500,
    brokers: Annotated[
        int, typer.Option("-n", "--brokers", help="brokers of a temporary cluster")
    ] = 3,
    replicate: Annotated[str, typer.Option(help="replication level of the queue")] = "all",
    durable: Annotated[bool, typer.Option("--durable", help="durable messages")] = False,
    no_receiver: Annotated[bool, typer.Option("--no-receiver", help="send only")] = False,
    temporary: Annotated[
        bool, typer.Option("--temporary", help="start a cluster of its own even if one runs")
    ] = False,
    directory: Annotated[Path | None, typer.Option("--dir", help="where results go")] = None,
) -> None:
    """Measure the local cluster, the broker of -b, or a temporary cluster of three.

    Example: qpid-ha bench --temporary --durable
    """
    options = settings_of(context)
    if seconds <= 0 or window <= 0 or size < 0 or messages < 0:
        raise Failure(
            USAGE,
            "seconds and window must be above 0, size and messages not below",
            hint="qpid-ha bench --seconds 5",
        )
    asked = BenchOptions(
        (directory or default_directory()).absolute(),
        seconds=seconds,
        messages=messages,
        size=size,
        window=window,
    )
    asked.brokers, asked.replicate, asked.durable = brokers, replicate, durable
    asked.receive, asked.temporary = not no_receiver, temporary
    result, code = Bench(asked, options).run()
    if options.as_json:
        print_json(result)
    else:
        latency, cpu = result["latency_ms"], result["broker_cpu_us_per_message"]
        print(
            f"accepted {result['accepted']:,}   received {result['received']:,}   in "
            f"{result['seconds']:.1f} s"
        )
        print(
            f"rate     {result['accepted_per_second']:,}/s accepted   "
            f"{result['received_per_second']:,}/s received"
        )
        print(
            f"latency  p50 {latency['p50']} ms   p99 {latency['p99']} ms   max "
            f"{latency['max']} ms (send to acceptance)"
        )
        if cpu is not None:
            print(f"cpu      {cpu} us a message, over {result['brokers']} brokers")
        print(f"files    {result['timeline_file']}   {result['result_file']}")
    raise typer.Exit(code)
