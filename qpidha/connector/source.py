"""The data source `qpidha`: what Spark asks first. Options and schemas are checked here; nothing
connects.
"""

from __future__ import annotations

from collections.abc import MutableMapping

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from qpidha.connector.columns import SCHEMA
from qpidha.connector.options import NAME, parse_options
from qpidha.connector.reading import QueueReader
from qpidha.connector.stream import QueueStreamReader
from qpidha.connector.writing import QueueStreamWriter, QueueWriter
from qpidha.model.errors import InvalidArgument


class QueueSource(DataSource):  # type: ignore[misc]  # pyspark is not followed
    """Queues of a cluster; `spark.read`, `readStream`, `write` and `writeStream` with
    `.format("qpidha")`.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        """Raise InvalidArgument that names the option if one is wrong."""
        super().__init__(options)
        self.parsed = parse_options(options)

    @classmethod
    def name(cls) -> str:
        """Return what `format()` is given."""
        return NAME

    def schema(self) -> StructType:
        """Return the columns of a message."""
        return SCHEMA

    def reader(self, schema: StructType) -> QueueReader:
        """Return the reader of a batch."""
        return QueueReader(self.parsed.for_reading(), schema)

    def streamReader(self, schema: StructType) -> QueueStreamReader:
        """Return the reader of a stream."""
        return QueueStreamReader(self.parsed.for_stream(), schema)

    def writer(self, schema: StructType, overwrite: bool) -> QueueWriter:
        """Return the writer of a batch."""
        if overwrite:
            raise InvalidArgument('a queue cannot be overwritten: write with .mode("append")')
        return QueueWriter(self.parsed.for_writing(), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> QueueStreamWriter:
        """Return the writer of a stream."""
        if overwrite:
            raise InvalidArgument(
                'a queue cannot be overwritten: write with .outputMode("append") or "update"'
            )
        return QueueStreamWriter(self.parsed.for_writing(), schema)
