"""Claims the partitions that are taken up, and commits what was processed, for as long as it takes.

Two threads a place (Kafka cluster and group), so that one that is away holds up no other, and that claiming many
partitions does not keep those that run from being committed. While a place is away both try again with a growing
pause; each attempt takes what is due then, and reading goes on.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

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
from muster.consumer.commits import Commits, open_commits
from muster.consumer.loop import Beat
from muster.core.ownership import Source, TopicPartition
from muster.edges.kafka import GroupOffsets, KafkaError
from muster.edges.kafka_admin import name_partitions
from muster.settings.connections import KafkaSettings

log = logging.getLogger(__name__)

LONGEST_PAUSE = 10.0
"""Seconds between two attempts, at most."""


class Committer:
    """Watches the agent for partitions to claim and offsets that are due. `run` is the loop, until `stop`.

    With `fencing`, the broker refuses the commits of whoever had a partition before; see `muster.consumer.commits`.
    """

    def __init__(self, agent: Agent, kafka: KafkaSettings, cluster: str, fencing: bool) -> None:
        self._agent = agent
        self._kafka = kafka
        self._cluster = cluster
        self._fencing = fencing
        self._stopped = threading.Event()
        self._places: dict[Source, _Place] = {}

    def stop(self) -> None:
        """End the loop, and everything that is being tried again."""
        self._stopped.set()

    def run(self, beat: Beat) -> None:
        """Serve each place where something becomes due. Raises RuntimeError if one of its threads dies."""
        try:
            while not self._stopped.is_set():
                beat()
                for source in self._agent.wait_for_source(self._places.keys(), timeout=1.0):
                    self._places[source] = self._open(source)
                for source, place in self._places.items():
                    if not place.alive and not self._stopped.is_set():
                        raise RuntimeError(f"a thread that commits for {source} has ended; the log says why")
        finally:
            self._stopped.set()
            for place in self._places.values():
                place.close()

    def _open(self, source: Source) -> _Place:
        settings = KafkaSettings(
            config={**self._kafka.config, "bootstrap.servers": source.bootstrap_servers},
            operation_timeout=self._kafka.operation_timeout,
        )
        group = GroupOffsets(settings, source.group_id)
        commits = open_commits(settings, group, self._cluster, self._fencing)
        return _Place(self._agent, source, group, commits, self._stopped)


class _Place:
    """One Kafka cluster and group, with its two threads."""

    def __init__(
        self, agent: Agent, source: Source, group: GroupOffsets, commits: Commits, stopped: threading.Event
    ) -> None:
        self._agent = agent
        self._source = source
        self._group = group
        self._commits = commits
        self._stopped = stopped
        self._claimed: dict[TopicPartition, int] = {}
        where = f"group {source.group_id} at {source.bootstrap_servers}"
        self._threads = [
            threading.Thread(target=self._serve, args=work, name=f"muster-{work[0]}", daemon=True)
            for work in (
                (f"commit of {where}", self._wait_for_due, self._commit),
                (f"taking up partitions of {where}", self._wait_for_claims, self._claim),
            )
        ]
        for thread in self._threads:
            thread.start()

    @property
    def alive(self) -> bool:
        """Whether both threads run."""
        return all(thread.is_alive() for thread in self._threads)

    def close(self) -> None:
        """Let go of the connections; a call under way ends by itself."""
        for thread in self._threads:
            thread.join(1.0)
        self._commits.close()
        self._group.close()

    def _serve(self, key: str, wait: Callable[[], bool], work: Callable[[], None]) -> None:
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
                if wait():
                    try:
                        retrying(work)
                    except RetryError as error:
                        log.warning("%s: given up, because the consumer stops: %s", key, error)
                        return
                    self._agent.problem(key, None)
        except Exception:
            log.exception("%s: stopped", key)

    def _wait_for_due(self) -> bool:
        return self._agent.wait_for_due(self._source, timeout=1.0)

    def _commit(self) -> None:
        due = self._agent.due(self._source)
        if not due:
            return
        terms = dict(self._claimed)
        began = time.monotonic()
        try:
            outcome = self._commits.commit(due)
        except KafkaError:
            self._agent.commit_failed()
            raise
        finally:
            self._agent.commit_took(time.monotonic() - began)
        if outcome.done:
            # One partition that cannot be committed must not keep the others from being closed.
            self._agent.committed(self._source, outcome.done)
        for (topic, partition), why in sorted(outcome.refused.items()):
            self._agent.refused(
                (topic, partition),
                terms.get((topic, partition), 0),
                f"topic {topic!r}, partition {partition}: commit of offset {due[topic, partition]} refused: {why}; "
                "this consumer has closed it without committing, and takes it up again only if ZooKeeper still "
                "assigns it and Consul still has it registered",
            )
        if outcome.failed:
            self._agent.commit_failed()
        self._raise_for("committing offsets", outcome.failed)

    def _wait_for_claims(self) -> bool:
        return any(self._agent.wait_for_claims(self._source, self._claimed, timeout=1.0))

    def _claim(self) -> None:
        wanted, over = self._agent.wait_for_claims(self._source, self._claimed, timeout=0.0)
        if over:
            self._commits.release(over.keys())
            self._claimed = {key: term for key, term in self._claimed.items() if key not in over}
        if not wanted:
            return
        failures = self._commits.claim(wanted.keys())
        claimed = {key: term for key, term in wanted.items() if key not in failures}
        self._claimed = self._claimed | claimed
        self._agent.claimed(claimed)
        self._raise_for("taking up", failures)

    def _raise_for(self, what: str, failures: dict[TopicPartition, str]) -> None:
        if failures:
            raise KafkaError(
                f"Kafka at {self._source.bootstrap_servers}: {what} for group {self._source.group_id}: "
                f"{name_partitions(failures)}; it is tried again"
            )
