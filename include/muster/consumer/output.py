"""What a consumer's driver writes to its log file: kept small, however long it runs.

The file is the standard output of the JVM and of this process, which both append to it. So it cannot be moved away
under them: it is copied to `[FILE].1` and made empty (`muster.airflow.driver_log` reads on over that).
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
from pathlib import Path

from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

LARGEST = 4 * 2**20
"""Bytes of the file at which it is rotated; there are as many again in the copy."""
LOOK = 5.0
"""Seconds between two looks at its size."""

_CHATTY = (
    "org.apache.spark.sql.execution.streaming.ProcessingTimeExecutor",  # Spark 3.5
    "org.apache.spark.sql.execution.streaming.runtime.ProcessingTimeExecutor",  # Spark 4.2
)
"""The logger that warns of each batch that takes longer than the trigger interval, which is meant to be short: its
names in the versions of Spark."""


def quiet(spark: SparkSession) -> None:
    """Have Spark say only what a person needs, unless `spark.log.level` is set: at INFO it writes a page a batch."""
    context = spark.sparkContext
    if context.getConf().contains("spark.log.level"):
        return
    context.setLogLevel("WARN")
    log4j = context._gateway.jvm.org.apache.logging.log4j  # type: ignore[union-attr]
    for logger in _CHATTY:
        log4j.core.config.Configurator.setLevel(logger, log4j.Level.ERROR)


def rotate(path: Path, largest: int = LARGEST) -> bool:
    """Copy the file to `[FILE].1` and make it empty if it is larger than `largest` bytes; say whether it was."""
    if path.stat().st_size <= largest:
        return False
    copy = path.with_name(f"{path.name}.1")
    with path.open("rb") as source, copy.open("wb") as target:
        shutil.copyfileobj(source, target)  # up to what was written last
        os.truncate(path, 0)
    return True


def keep_small(path: str) -> None:
    """Rotate the file whenever it is too large, in a thread that ends with the process. Without a path do nothing."""
    if path:
        threading.Thread(target=_watch, args=(Path(path),), name="log-rotation", daemon=True).start()


def _watch(path: Path) -> None:
    never = threading.Event()
    while not never.wait(LOOK):
        try:
            rotate(path)
        except OSError as error:
            log.warning("log file %s is not rotated any more: %s", path, error)
            return
