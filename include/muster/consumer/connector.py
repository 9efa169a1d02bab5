"""The Spark connector: a jar of Java that reads what the agent plans, beside this module.

It is built from `sparkjobs/connector`: by `make env` in a checkout, and into the wheel.
"""

from __future__ import annotations

from pathlib import Path

FORMAT = "muster-kafka"
"""Its name in Spark."""
SCRATCH, SCRATCH_CLASS = "muster-scratch", "muster.connector.ScratchFileSystem"
"""The scheme and the class of its file system for checkpoints."""
JAR = Path(__file__).with_name("muster-connector.jar")
"""What `spark-submit` has to get with `--jars`."""


def runs_with_driver(master: str | None) -> bool:
    """Tell whether tasks run in the driver's JVM, by Spark's master; the connector asks `SparkContext.isLocal`."""
    return master == "local" or (master or "").startswith("local[")
