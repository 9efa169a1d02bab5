"""Commits what was processed to Kafka, as soon as a batch is done and for as long as it takes.

One thread a place (Kafka cluster and group), so that one that is away holds up no other. While it is away the
commit is tried again with a growing pause; each attempt takes the newest offsets, and reading goes on.
"""

from __future__ import annotations

import logging
import threading

from tenacity import (
    RetryCallState,
    RetryError,
    Retrying,
    retry_if_exception_type,
    sleep_using_event,
    stop_when_event_set,
    wait_exponential,
)

from muster.consumer.agent import Agent
from muster.consumer.loop import Beat
from muster.core.ownership import Source
from muster.edges.kafka import GroupOffsets, KafkaError, PartitionError
from muster.settings.connections import KafkaSettings

log = logging.getLogger(__name__)

LONGEST_PAUSE = 10.0
"""Seconds between two attempts, at most."""


class Committer:
    """Watches the agent for offsets that are due and commits them. `run` is the loop, until `stop`."""

    def __init__(self, agent: Agent, kafka: KafkaSettings) -> None:
        self._agent = agent
        self._kafka = kafka
        self._stopped = threading.Event()
        self._threads: dict[Source, threading.Thread] = {}

    def stop(self) -> None:
        """End the loop, and every commit that is being tried again."""
        self._stopped.set()

    def run(self, beat: Beat) -> None:
        """Start a thread for each place where offsets become due. Raises RuntimeError if one of them dies."""
        while not self._stopped.is_set():
            beat()
            for source in self._agent.wait_for_source(self._threads.keys(), timeout=1.0):
                thread = threading.Thread(
                    target=self._serve, args=(source,), name=f"muster-commit-{source.group_id}", daemon=True
                )
                self._threads[source] = thread
                thread.start()
            for source, thread in self._threads.items():
                if not thread.is_alive() and not self._stopped.is_set():
                    raise RuntimeError(f"the thread that commits for {source} has ended; the log says why")

    def _serve(self, source: Source) -> None:
        settings = KafkaSettings(
            config={**self._kafka.config, "bootstrap.servers": source.bootstrap_servers},
            operation_timeout=self._kafka.operation_timeout,
        )
        group = GroupOffsets(settings, source.group_id)
        key = f"commit of group {source.group_id} at {source.bootstrap_servers}"

        def failed(state: RetryCallState) -> None:
            if state.outcome is not None:
                self._agent.problem(key, str(state.outcome.exception()))

        retrying = Retrying(
            retry=retry_if_exception_type(KafkaError),
            wait=wait_exponential(multiplier=0.2, max=LONGEST_PAUSE),
            stop=stop_when_event_set(self._stopped),
            sleep=sleep_using_event(self._stopped),
            before_sleep=failed,
        )
        try:
            while not self._stopped.is_set():
                if self._agent.wait_for_due(source, timeout=1.0):
                    try:
                        retrying(self._commit, source, group)
                    except RetryError as error:
                        log.warning("%s: given up, because the consumer stops: %s", key, error)
                        return
                    self._agent.problem(key, None)
        except Exception:
            log.exception("%s: stopped", key)
        finally:
            group.close()

    def _commit(self, source: Source, group: GroupOffsets) -> None:
        due = self._agent.due(source)
        if not due:
            return
        try:
            group.commit(due)
        except KafkaError as error:
            self._agent.commit_failed()
            if isinstance(error, PartitionError) and error.offsets:
                # One partition that cannot be committed must not keep the others from being closed.
                self._agent.committed(source, error.offsets)
            raise
        self._agent.committed(source, due)
