"""A consumer's processes: the JVM that `spark-submit` becomes, its Python driver, and the Python workers."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import psutil

from muster.airflow.submission import Submission
from muster.edges.consul import ConsulCluster
from tests.faults.real.whose import processes_of_sessions


class Job:
    """The job that is submitted for `consumer` now. AssertionError where a part of it is not there."""

    def __init__(self, discovery: ConsulCluster, consumer: str) -> None:
        self._discovery = discovery
        self.consumer = consumer

    @property
    def session(self) -> int:
        """The session of all its processes, which is the JVM's pid."""
        submission = Submission.from_dict(self._discovery.jobs.submission(self.consumer))
        assert submission is not None, f"{self.consumer} is not submitted"
        assert submission.process is not None, f"{self.consumer} is being submitted"
        return submission.process.pid

    @property
    def incarnation(self) -> str:
        """Of the registration."""
        found = self._discovery.catalog.members().registered.get(self.consumer)
        assert found is not None, f"{self.consumer} is not registered"
        return str(found.incarnation)

    def asked_or_gone(self) -> bool:
        """Whether Consul has a request to stop for the incarnation that is registered, or none is registered."""
        found = self._discovery.catalog.members().registered.get(self.consumer)
        request = self._discovery.jobs.stop_request(self.consumer)
        return found is None or (request is not None and request.incarnation == found.incarnation)

    def processes(self) -> list[psutil.Process]:
        """All of them."""
        return processes_of_sessions([self.session])

    def jvm(self) -> psutil.Process:
        """Spark's JVM."""
        return psutil.Process(self.session)

    def driver(self) -> psutil.Process:
        """The Python process with the agent."""
        return self._only("consume.py")

    def workers(self) -> list[psutil.Process]:
        """The daemon that forks the Python workers that write, and those that there are."""
        return [process for process in self._running("pyspark.worker") if process.pid != self.session]

    def forked(self) -> list[psutil.Process]:
        """The workers without the daemon. AssertionError if there are none now."""
        found = [process for process in self.workers() if process.ppid() != self.session]
        assert found, f"{self.consumer} has no Python worker now"
        return found

    def _only(self, word: str) -> psutil.Process:
        found = [process for process in self._running(word) if process.pid != self.session]
        assert len(found) == 1, f"{self.consumer}: {len(found)} processes run {word}"
        return found[0]

    def _running(self, word: str) -> list[psutil.Process]:
        found = []
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):
                if any(argument.endswith(word) for argument in process.cmdline()):
                    found.append(process)
        return found


@contextmanager
def frozen(processes: Sequence[psutil.Process]) -> Iterator[None]:
    """Stop these with SIGSTOP, and let them go on with SIGCONT, if they are still there."""
    stopped: list[psutil.Process] = []
    try:
        for process in processes:
            with suppress(psutil.NoSuchProcess):  # a short-lived one has ended meanwhile
                process.send_signal(signal.SIGSTOP)
                stopped.append(process)
        _wait_stopped(stopped)
        yield
    finally:
        for process in stopped:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGCONT)


def _wait_stopped(processes: Sequence[psutil.Process]) -> None:
    deadline = time.monotonic() + 10
    while any(map(_goes_on, processes)):
        assert time.monotonic() < deadline, "not stopped within 10 s of SIGSTOP"
        time.sleep(0.01)


def _goes_on(process: psutil.Process) -> bool:
    try:
        return process.status() not in {psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE}
    except psutil.NoSuchProcess:
        return False
