"""The handler of the story: flights as JSON into a Delta table and a table of a database, with a fault to be mended.

Its faults are switched by files in the folder `switches`.
"""

from __future__ import annotations

import os
import secrets
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from muster.sinks import DatabaseSink, DeltaSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from muster.sinks import Batch

TABLE = "flights"
MENDED, HANG, HANGS, FLAPS, TAKES_ALL = "mended", "hang", "hangs", "flaps", "takes-all"
REJECTED, UNNAMED = -2, -3
"""The rows of flights that the handler rejects, and that it raises with."""
WHY, WHY_REJECTED = "no such carrier", "it is cancelled"
SCHEMA = "row INT, carrier STRING, dep_delay DOUBLE"


class Flights:
    """Writes what it takes of each flight to the Delta table at `path` and to the `database`, a conninfo of libpq.

    A flight that is not as `SCHEMA` says makes it raise, until the file `mended` is there: then the value that cannot
    be read is null. When the file `hang` is there, the first consumer with a batch takes it away, writes its process
    id to the file `hangs`, and does not come back. While the file `flaps` is there, every other batch fails. Until
    the file `takes-all` is there, it rejects flights with row `REJECTED`, and raises for those with row `UNNAMED`.
    """

    def __init__(self, switches: str, path: str, database: str) -> None:
        self._switches = Path(switches)
        self._sinks = (DeltaSink(path), DatabaseSink("psycopg", {"conninfo": database}, TABLE))

    def __call__(self, batch_df: DataFrame, batch: Batch) -> None:
        """Write one batch to both tables."""
        from pyspark.sql.functions import col, from_json  # noqa: PLC0415 - the story itself runs no Spark

        self._hang_if_asked()
        mode = "PERMISSIVE" if (self._switches / MENDED).exists() else "FAILFAST"
        flight = from_json(col("value").cast("string"), SCHEMA, {"mode": mode})
        parsed = batch_df.select("topic", "partition", "offset", flight.alias("flight"))
        rows = parsed.select("topic", "partition", "offset", "flight.*").persist()
        try:
            self._flap_if_asked()
            good = rows if (self._switches / TAKES_ALL).exists() else self._without_bad(rows, batch)
            for sink in self._sinks:
                sink(good, batch)
        finally:
            rows.unpersist()

    def _without_bad(self, rows: DataFrame, batch: Batch) -> DataFrame:
        named = rows.where(rows["row"].isin(REJECTED, UNNAMED))
        bad = named.select("topic", "partition", "offset", "row").collect()
        if any(one.row == UNNAMED for one in bad):
            raise ValueError(WHY)
        if bad:
            batch.reject(
                [(one.topic, one.partition, one.offset) for one in bad], f"ValueError: {WHY_REJECTED}"
            )
        return rows.where(rows["row"].isNull() | (rows["row"] != REJECTED))

    def _flap_if_asked(self) -> None:
        if (self._switches / FLAPS).exists() and secrets.randbelow(2):
            raise ConnectionError("the sink flaps")

    def _hang_if_asked(self) -> None:
        try:
            (self._switches / HANG).unlink()
        except FileNotFoundError:
            return
        (self._switches / HANGS).write_text(str(os.getpid()), encoding="utf-8")
        threading.Event().wait()
