"""The two tables that the flights go to, and what stands in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import deltalake
import psycopg
import pyarrow as pa

from devstack.incident.account import Place
from devstack.incident.handlers.flights import TABLE

COLUMNS = pa.schema(
    {
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "row": pa.int32(),
        "carrier": pa.string(),
        "dep_delay": pa.float64(),
    }
)
_CREATE = f"""
CREATE TABLE {TABLE} (
  topic TEXT, partition INTEGER, "offset" BIGINT, "row" INTEGER, carrier TEXT, dep_delay DOUBLE PRECISION
);
CREATE TABLE muster_offsets (
  target           VARCHAR(255)  NOT NULL,
  topic            VARCHAR(249)  NOT NULL,
  partition_number INTEGER       NOT NULL,
  topic_id         VARCHAR(22)   NOT NULL,
  first_offset     BIGINT        NOT NULL,
  next_offset      BIGINT        NOT NULL,
  PRIMARY KEY (target, topic, partition_number, topic_id, first_offset)
);
"""


@dataclass(frozen=True)
class Tables:
    """A Delta table at `path`, and one in the `database`, a URL. Raises what `deltalake` and `psycopg` raise."""

    path: Path
    database: str

    def create(self) -> None:
        """Create both, empty."""
        deltalake.DeltaTable.create(str(self.path), COLUMNS)
        with psycopg.connect(self.database) as connection:
            connection.execute(_CREATE)

    def append(self, rows: pa.Table) -> None:
        """Append rows to both, as a program does that knows nothing of Muster's sinks."""
        deltalake.write_deltalake(str(self.path), rows, mode="append")
        names = ", ".join(f'"{name}"' for name in COLUMNS.names)
        markers = ", ".join(["%s"] * len(COLUMNS.names))
        values = zip(*(rows.column(name).to_pylist() for name in COLUMNS.names), strict=True)
        with psycopg.connect(self.database) as connection, connection.cursor() as cursor:
            cursor.executemany(f"INSERT INTO {TABLE} ({names}) VALUES ({markers})", list(values))  # noqa: S608

    @property
    def version(self) -> int:
        """The version of the Delta table."""
        return int(deltalake.DeltaTable(str(self.path)).version())

    def restore(self, version: int) -> None:
        """Restore the Delta table to a version."""
        deltalake.DeltaTable(str(self.path)).restore(version)

    def delete(self, topic: str, begins: Mapping[int, int]) -> None:
        """Delete the rows of each partition from an offset on, from both tables."""
        delta = deltalake.DeltaTable(str(self.path))
        with psycopg.connect(self.database) as connection:
            for partition, begin in begins.items():
                delta.delete(f"topic = '{topic}' AND partition = {partition} AND offset >= {begin}")
                connection.execute(
                    f'DELETE FROM {TABLE} WHERE topic = %s AND partition = %s AND "offset" >= %s',  # noqa: S608
                    (topic, partition, begin),
                )

    def places(self) -> dict[str, Counter[Place]]:
        """Count the rows that each table has of each record, by the table's name."""
        columns = ["topic", "partition", "offset"]
        delta = deltalake.DeltaTable(str(self.path)).to_pyarrow_table(columns=columns)
        with psycopg.connect(self.database) as connection:
            rows = connection.execute(f'SELECT topic, partition, "offset" FROM {TABLE}').fetchall()  # noqa: S608
        return {
            "Delta": Counter(zip(*(delta.column(name).to_pylist() for name in columns), strict=True)),
            "PostgreSQL": Counter((topic, partition, offset) for topic, partition, offset in rows),
        }
