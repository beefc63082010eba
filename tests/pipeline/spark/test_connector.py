"""The data source `qpidha` as users have it: found by its name, batches and streams, and errors
that say what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from qpidha.connector.columns import SCHEMA
from qpidha.pipeline.spark.session import package_zip
from tests.connector.clients import messages, options_of
from tests.patience import STATE
from tests.system.cluster import Cluster, wait_for


@pytest.fixture
def cluster(a_cluster: Callable[..., Cluster]) -> Cluster:
    """One broker with the queues q, r and once, which takes each id once."""
    cluster = a_cluster(1, ha_cluster="no", promote=False)
    for name in ("q", "r"):
        cluster[0].declare_queue(name)
    cluster[0].call("declare_queue", name="once", arguments={"qpidha.dedup": "message-id"})
    return cluster


def fill(spark: Any, cluster: Cluster, count: int, queue: str = "q") -> None:
    rows = spark.range(count).selectExpr(
        "cast(id as string) as body", "map('n', cast(id as string)) as properties", "4S as priority"
    )
    rows.write.format("qpidha").options(**options_of(cluster, queue)).mode("append").save()


def read(spark: Any, cluster: Cluster, queue: str, **more: object) -> Any:
    return spark.read.format("qpidha").options(**options_of(cluster, queue, **more)).load()


def stream(spark: Any, cluster: Cluster, queue: str = "q", **more: object) -> Any:
    return spark.readStream.format("qpidha").options(**options_of(cluster, queue, **more)).load()


def test_rows_written_are_rows_read_and_queries_see_columns(spark: Any, cluster: Cluster) -> None:
    fill(spark, cluster, 500)
    frame = read(spark, cluster, "q")
    assert frame.schema == SCHEMA
    assert frame.where("properties['n'] < 10 and priority = 4 and durable").count() == 10
    assert {bytes(row.body).decode() for row in frame.select("body").collect()} == {
        str(number) for number in range(500)
    }
    ids = [row.message_id for row in frame.select("message_id").collect()]
    assert len(set(ids)) == 500 and len({name.split("/")[0] for name in ids}) == 1
    assert read(spark, cluster, "q,r").groupBy("queue").count().collect()[0]["count"] == 500
    some = (
        spark.read.schema("body binary, subject string")
        .format("qpidha")
        .options(**options_of(cluster, "q"))
        .load()
    )
    assert some.columns == ["body", "subject"] and some.count() == 500
    assert read(spark, cluster, "q", mode="consume", partitions=2).count() == 500
    assert messages(cluster[0], "q") == 0


def test_a_consuming_task_that_fails_before_its_last_row_gives_all_back(
    spark: Any, cluster: Cluster
) -> None:
    """80 MB do not fit between Python and Spark, where Linux may buffer 40: the first row fails
    while many have not been handed out.
    """
    rows = spark.range(100).selectExpr(
        "repeat('x', 800000) as body", "cast(id as string) as message_id"
    )
    rows.write.format("qpidha").options(**options_of(cluster, "q")).mode("append").save()
    frame = read(spark, cluster, "q", mode="consume", rowsPerBatch=10)
    with pytest.raises(Exception, match="boom at first"):
        frame.selectExpr("if(message_id = '0', raise_error('boom at first'), body)").collect()
    wait_for(
        lambda: cluster[0].call("list_queues")[0]["acquired"],
        lambda acquired: acquired == 0,
        what="acquired messages",
    )
    assert messages(cluster[0], "q") == 100
    again = frame.select("message_id", "delivery_count").collect()
    assert {row.message_id for row in again} == {str(number) for number in range(100)} and again[
        0
    ].delivery_count == 1


def test_a_stream_settles_on_an_idle_queue_and_empties_it(
    spark: Any, cluster: Cluster, tmp_path: Path
) -> None:
    seen: list[int] = []
    fill(spark, cluster, 300)
    query = (
        stream(spark, cluster, rowsPerBatch=100, partitions=2)
        .writeStream.foreachBatch(lambda batch, number: seen.append(batch.count()))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        wait_for(lambda: sum(seen), lambda count: count >= 300, what="rows that came")
        batches = len(seen)
        wait_for(
            lambda: messages(cluster[0], "q"),
            lambda count: count == 0,
            what="messages on the idle queue",
        )
        assert sum(seen) == 300 and len(seen) == batches and max(seen) <= 100
        fill(spark, cluster, 5)
        wait_for(lambda: sum(seen), lambda count: count >= 305, what="rows that came")
        assert query.exception() is None
    finally:
        query.stop()
    wait_for(
        lambda: cluster[0].call("list_queues")[0]["consumers"],
        lambda count: count == 0,
        what="receivers of the stopped query",
    )


def test_available_now_takes_all_settles_all_and_a_failed_batch_comes_again(
    spark: Any, cluster: Cluster, tmp_path: Path
) -> None:
    fill(spark, cluster, 250)
    bodies: list[str] = []
    counts: list[int] = []
    failing = [True]

    def take(batch: Any, number: int) -> None:
        rows = batch.collect()
        if failing and len(bodies) >= 100:
            raise ValueError("boom")
        bodies.extend(bytes(row.body).decode() for row in rows)
        counts.extend(row.delivery_count for row in rows)

    def run() -> None:
        writer = stream(spark, cluster, rowsPerBatch=100).writeStream.foreachBatch(take)
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(
            availableNow=True
        ).start().awaitTermination()

    with pytest.raises(Exception, match="boom"):
        run()
    failing.clear()
    assert 100 <= len(bodies) < 250
    wait_for(
        lambda: cluster[0].call("list_queues")[0]["acquired"],
        lambda acquired: acquired == 0,
        what="acquired messages",
    )
    run()
    assert sorted(map(int, bodies)) == list(range(250)) and 1 in counts
    assert messages(cluster[0], "q") == 0


def test_a_stream_writes_and_a_batch_done_again_is_taken_once(
    spark: Any, cluster: Cluster, tmp_path: Path
) -> None:
    """The checkpoint of a query that ended loses its last commit, which is what a crash before it
    leaves.
    """
    source = tmp_path / "source"
    source.mkdir()
    (source / "a").write_text("\n".join(map(str, range(40))))
    checkpoint = tmp_path / "checkpoint"

    def run(queue: str) -> None:
        writer = (
            spark.readStream.schema("body string")
            .text(str(source))
            .writeStream.format("qpidha")
            .options(**options_of(cluster, queue))
        )
        writer.option("checkpointLocation", str(checkpoint / queue)).trigger(
            availableNow=True
        ).start().awaitTermination()

    for queue in ("r", "once"):
        run(queue)
        assert messages(cluster[0], queue) == 40
        for file in (checkpoint / queue / "commits").iterdir():
            file.unlink()
        run(queue)
    assert messages(cluster[0], "r") == 80 and messages(cluster[0], "once") == 40
    ids = {row.message_id for row in read(spark, cluster, "r").select("message_id").collect()}
    assert len(ids) == 40 and {name.split("/")[1] for name in ids} == {"0"}


def test_errors_name_what_is_wrong(spark: Any, cluster: Cluster, tmp_path: Path) -> None:
    rows = spark.range(1).selectExpr("'a' as body", "id")
    to = options_of(cluster, "q")
    plans: list[tuple[str, Callable[[], Any]]] = [
        (
            "option rowsPerBatc is unknown|option rowsperbatc is unknown: did you mean "
            "rowsPerBatch",
            lambda: read(spark, cluster, "q", rowsPerBatc=1),
        ),
        ("option url is missing", lambda: spark.read.format("qpidha").option("queue", "q").load()),
        ("option queue is missing", lambda: read(spark, cluster, "").count()),
        (
            "refuses to serve queue nowhere: amqp:not-found",
            lambda: read(spark, cluster, "nowhere").count(),
        ),
        (
            "column id is unknown: a message has queue",
            lambda: rows.write.format("qpidha").options(**to).mode("append").save(),
        ),
        (
            "column body is bigint",
            lambda: (
                rows.selectExpr("id as body")
                .write.format("qpidha")
                .options(**to)
                .mode("append")
                .save()
            ),
        ),
        (
            "a queue cannot be overwritten",
            lambda: rows.drop("id").write.format("qpidha").options(**to).mode("overwrite").save(),
        ),
        ("Append", lambda: rows.drop("id").write.format("qpidha").options(**to).save()),
        ("queue r rejects message .*resource-limit-exceeded", lambda: reject(rows.drop("id"))),
    ]

    def reject(frame: Any) -> None:
        cluster[0].delete_queue("r")
        cluster[0].declare_queue("r", max_count=1, policy_type="reject", flow_stop_count=0)
        for _ in range(2):
            frame.write.format("qpidha").options(**options_of(cluster, "r")).mode("append").save()

    for says, plan in plans:
        with pytest.raises(Exception, match=says):
            plan()
    query = (
        stream(spark, cluster, "nowhere")
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    with pytest.raises(Exception, match="refuses to serve queue nowhere"):
        query.awaitTermination(STATE)


def test_the_zip_for_workers_has_the_source(tmp_path: Path) -> None:
    import zipfile

    names = set(zipfile.ZipFile(package_zip(tmp_path / "qpidha.zip")).namelist())
    assert {"pyspark_qpidha/__init__.py", "qpidha/connector/source.py"} <= names
