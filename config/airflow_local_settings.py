"""What Airflow loads as it starts, from the folder `config` of its home.

The scheduler (or a Celery worker) forks the process of each task. What it has loaded by then, no task has to load
again: a quarter of a second of CPU for the clients of ZooKeeper, Consul and Kafka, in each of a coordinator's tasks.
Modules only; what has connections or threads must not be there before a fork.
"""

from __future__ import annotations

import sys

if {"scheduler", "celery"} & set(sys.argv):
    import muster.coordinator.coordinator  # noqa: F401
