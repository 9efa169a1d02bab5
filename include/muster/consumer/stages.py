"""Tells how far this process has come, until it is live."""

from __future__ import annotations

import logging
import threading
import time
from queue import SimpleQueue

from muster.core.starting import Stage
from muster.edges.consul_api import ConsulError
from muster.edges.consul_jobs import JobMailbox

log = logging.getLogger(__name__)


class Stages:
    """Notes each stage in Consul, in a thread, in order. If Consul does not take one, the start goes on."""

    def __init__(self, jobs: JobMailbox, consumer: str, incarnation: str) -> None:
        self._jobs = jobs
        self._consumer = consumer
        self._incarnation = incarnation
        self._reached: SimpleQueue[tuple[Stage, float]] = SimpleQueue()
        threading.Thread(target=self._note, daemon=True, name="muster-stages").start()

    def reach(self, stage: Stage) -> None:
        """Have it noted that this stage is done now."""
        self._reached.put((stage, time.time()))

    def _note(self) -> None:
        last = None
        while last is not Stage.LIVE:
            last, at = self._reached.get()
            try:
                self._jobs.note_stage(self._consumer, self._incarnation, last, at)
            except ConsulError as error:
                log.warning("that the stage %r is done cannot be noted: %s", str(last), error)
