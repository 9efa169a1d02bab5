"""What each part of the incident has: the story's stack, its tables and timeline, and the doors that people have."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from devstack.airflow_api import AirflowApi
from devstack.demo.cluster_view import ClusterView
from devstack.demo.flights import FlightsProducer
from devstack.demo.story import TOPIC, Story
from devstack.incident.command_line import muster, typed
from devstack.incident.report import Timeline
from devstack.incident.tables import Tables
from devstack.postgresql import PostgreSQL
from devstack.progress import Step
from devstack.stack import Stack

CLUSTER = "incident"
ON_CLUSTER = ("--cluster", CLUSTER)
PARTITIONS = 6
SHARES = [3, 3]
RATE = 60.0
"""Flights a second."""


class Part(Story):
    """A part of the story on a stack that is up and has the database `database`. `bad` are the partitions and offsets
    of the records that the handler cannot take. Times are in seconds."""

    def __init__(self, stack: Stack, api: AirflowApi, view: ClusterView, database: PostgreSQL) -> None:
        super().__init__(stack, api, view, FlightsProducer(stack.kafka.address, TOPIC, 0, RATE))
        self.database = database
        self.tables = Tables(stack.data / "delta", database.url("postgresql"))
        self.timeline = Timeline()
        self.stuck_dag = f"muster_stuck__{self.cluster}"
        self.bad: set[tuple[int, int]] = set()

    def _muster(self, *arguments: str) -> Any:
        """Give a command, and note it."""
        answer = muster(*arguments)
        self.timeline.say(f"$ {typed(*arguments)}")
        return answer

    def _answer(self, progress: Step, subject: str, option: str, done: Callable[[], bool]) -> None:
        """Wait for a question, choose `option`, and again where Airflow puts it again, until it is `done`."""
        answered = False

        def asked_and_done() -> bool:
            nonlocal answered
            for question in self.api.questions(self.stuck_dag):
                if question["subject"] == subject:
                    self.timeline.say(f"Airflow asks: {subject} The answer: {option}")
                    self.api.answer(self.stuck_dag, question, option)
                    answered = True
            return answered and done()

        self.wait(progress, f"{subject!r} is asked, and {option!r} carried out", asked_and_done)

    def _settle(self, progress: Step, topic: str = TOPIC) -> None:
        """Wait until all that is in a topic now is written and committed."""
        ends = self.wait(progress, "where the topic ends", lambda: self.view.ends(topic))

        def written() -> bool:
            committed = self.view.committed(topic)
            return all(committed.get(partition, 0) >= end for partition, end in ends.items())

        self.wait(progress, f"up to {sum(ends.values()):,} is committed", written)
        progress.result = "all is written"

    def _statuses(self) -> dict[str, dict[str, Any]]:
        """Return the status of every consumer. Raises TimeoutError if one does not answer."""

        def answered() -> dict[str, dict[str, Any]] | None:
            found = self.view.statuses()
            return found if len(found) == len(SHARES) else None

        found: dict[str, dict[str, Any]] = self.wait(None, "all status pages", answered)
        return found

    def _parked(self, statuses: dict[str, dict[str, Any]], offset: int | None = None) -> Any:
        """Return what a person is asked about, at `offset` if there is one; None if nothing is."""
        for status in statuses.values():
            for failing in status["topics"].get(TOPIC, {}).get("failing", {}).values():
                if failing["parked"] and offset in {None, failing["offset"]}:
                    return failing
        return None

    def _letters(self) -> list[dict[str, Any]]:
        """Return the dead letters of the topic, each with the topic that it is `in`."""
        found = muster("deadletters", *ON_CLUSTER)
        return [letter | {"in": found["topic"]} for letter in found["letters"] if letter["topic"] == TOPIC]

    @contextmanager
    def _consumption_paused(self, why: str) -> Iterator[None]:
        """Have the topic's consumption paused meanwhile, from when all that was read is committed."""
        self._muster("pause-consumption", TOPIC, *ON_CLUSTER, "--reason", why)

        def stopped() -> bool:
            pages = self.view.statuses().values()
            return sum(len(page["topics"].get(TOPIC, {}).get("paused", ())) for page in pages) == PARTITIONS

        with self.timeline.step("Pause: the owners commit what they have read") as progress:
            self.wait(progress, "all are paused", stopped)
            progress.result = "nothing is read"
        yield
        self._muster("resume-consumption", TOPIC, *ON_CLUSTER, "--reason", f"done: {why}")

    def _seek(self, *arguments: str, why: str) -> None:
        """Have the topic go on elsewhere, and wait until its owners have carried that out."""
        seek = ("seek", *arguments, TOPIC, *ON_CLUSTER, "--reason", why)
        for line in self._muster(*seek, "--preview")["preview"][-2:]:  # of both tables
            self.timeline.say(line)
        self._muster(*seek)
        with self.timeline.step("Seek: the owners carry it out") as progress:
            status = ("status", *ON_CLUSTER)
            self.wait(progress, "it is carried out", lambda: not muster(*status)["seeks"])
            progress.result = "they go on there"
