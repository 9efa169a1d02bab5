"""A real Spark standalone cluster with two workers, and nothing left of it afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from devstack.guard import guard
from devstack.leftovers import MARKER, end_all, processes_of
from devstack.spark_standalone import SparkMaster, SparkWorker


@dataclass
class SparkCluster:
    """The processes of a Spark cluster. All that they start is marked with `folder`."""

    folder: Path
    master: SparkMaster
    workers: Sequence[SparkWorker]


@contextmanager
def standing(folder: Path, hosts: Sequence[str] = ("127.0.0.1", "127.0.0.1")) -> Iterator[SparkCluster]:
    """A master and, at each of these addresses of this machine, a worker with one core."""
    mark = {MARKER: str(folder)}
    guard.watch_marker(MARKER, str(folder))
    master = SparkMaster(folder / "master", guarded=True, extra_environment=mark)
    workers = [
        SparkWorker(folder / f"worker-{number}", master, guarded=True, extra_environment=mark, host=host)
        for number, host in enumerate(hosts, 1)
    ]
    try:
        master.start()
        with ThreadPoolExecutor() as pool:
            list(pool.map(SparkWorker.start, workers))
        yield SparkCluster(folder, master, workers)
    finally:
        for server in (*workers, master):
            server.stop()
        end_all(folder)
        assert not processes_of(folder)
