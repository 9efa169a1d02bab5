"""Bad records, named by the handler or to be found; a sink that flaps; and a letter of a topic that is gone."""

from __future__ import annotations

import json
import time

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from devstack.demo.story import TOPIC
from devstack.errors import DevstackError
from devstack.incident.command_line import muster
from devstack.incident.handlers.flights import FLAPS, REJECTED, TAKES_ALL, UNNAMED, WHY
from devstack.incident.kafka_log import PATIENCE, produce_one
from devstack.incident.part import CLUSTER, ON_CLUSTER, PARTITIONS, Part
from devstack.progress import Step
from devstack.silence import silent_logger
from muster.edges.dead_letters import Record, letter

REJECTS, SHARE = 30, 100
"""Records that the handler rejects: one for so many flights."""
IN_DOUBT = (1, 2, 4)
"""The partitions that get a bad record each that the handler does not name."""
GONE = "cancelled-flights"
"""A topic that is deleted, of which a letter is left."""
FLAPS_FOR = 120.0


class BadRecords(Part):
    """The handler takes the records only once it is mended again."""

    def _bad_records(self) -> None:
        before = len(self._letters())
        with self.timeline.step("Bad records: the handler rejects 1% of all, in all partitions") as progress:
            for number in range(REJECTS):
                self._wait_for_more(progress)
                self._produce(number % PARTITIONS, REJECTED)
            self._settle(progress)
            progress.result = f"{len(self._letters()) - before} letters, without a question"
        self._answer_from_now_on()
        if len(self._letters()) != before + REJECTS + len(IN_DOUBT):
            raise DevstackError(
                f"{REJECTS} rejected and {len(IN_DOUBT)} answered records were to have letters, and there are "
                f"{len(self._letters()) - before}; see 'muster deadletters'"
            )
        self._leave_a_letter_of_a_deleted_topic()
        (self.stack.data / TAKES_ALL).touch()
        self.timeline.say("The handler is mended again")
        self.timeline.say(self._muster("replay-deadletters", *ON_CLUSTER, "--preview")["preview"][-1])
        done = self._muster("deadletters", "replay", *ON_CLUSTER, "--reason", "the handler takes them now")
        if done["replayed"] != REJECTS + len(IN_DOUBT) or GONE not in str(done["left_out"]):
            raise DevstackError(
                f"{REJECTS + len(IN_DOUBT)} letters were to be written back, without that of {GONE!r}, not: {done}"
            )
        with self.timeline.step("Replay: the bad records come again") as progress:
            self._settle(progress)
            progress.result = f"left out: {'; '.join(done['left_out'])}"

    def _wait_for_more(self, progress: Step) -> None:
        due = self.producer.produced + SHARE
        self.wait(progress, "more flights", lambda: self.producer.produced >= due)

    def _answer_from_now_on(self) -> None:
        bad = {partition: self._produce(partition, UNNAMED) for partition in IN_DOUBT}

        def failing() -> bool:
            topics = [status["topics"].get(TOPIC, {}) for status in self.view.statuses().values()]
            found = {int(p): one["offset"] for of in topics for p, one in of.get("failing", {}).items()}
            return found == bad

        with self.timeline.step("Bad records: one in each of three partitions is found") as progress:
            self.wait(progress, "each fails alone", failing)
            progress.result = ", ".join(f"partition {p}, offset {at}" for p, at in bad.items())
        about = (TOPIC, *ON_CLUSTER, "--error", "ValueError", "--text", WHY)
        give = ("standing-answer", *about, "--answer", "dead-letter", "--reason", "known, it is being mended")
        seen = self._muster(*give, "--preview")
        if seen["matched"] != len(bad):
            raise DevstackError(f"the preview was to show {len(bad)} records that match, not: {seen}")
        self._muster(*give)
        with self.timeline.step("Standing answer: the consumers give it") as progress:
            self._settle(progress)
            progress.result = "the partitions go on, without a question"
        self._muster("end-standing-answer", *about, "--reason", "the handler is about to be mended")

    def _flapping_sink(self) -> None:
        before, switch = len(self._letters()), self.stack.data / FLAPS
        switch.touch()
        with self.timeline.step(f"Sink flaps: every other batch fails for {FLAPS_FOR:g} s") as progress:
            until = time.monotonic() + FLAPS_FOR
            self.wait(progress, "the time", lambda: time.monotonic() > until)
            switch.unlink()
            self._settle(progress)
            if len(self._letters()) != before:
                raise DevstackError(
                    "a good record was taken for poison while the sink flapped; see 'muster deadletters'"
                )
            progress.result = "no record is taken for poison, and all is written"

    def _leave_a_letter_of_a_deleted_topic(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.stack.kafka.address}, logger=silent_logger())
        admin.create_topics([NewTopic(GONE, num_partitions=1, replication_factor=1)])[GONE].result(30)
        admin.delete_topics([GONE])[GONE].result(30)
        topic = muster("deadletters", *ON_CLUSTER)["topic"]
        said = {"error": "ValueError: cancelled", "attempts": 1, "cluster": CLUSTER, "by": "ann (cancelled)"}
        one = letter(Record(GONE, 0, 0, None, None, b"{}"), topic, said)
        producer = Producer({"bootstrap.servers": self.stack.kafka.address}, logger=silent_logger())
        producer.produce(one.topic, one.value, headers=[*one.headers])
        producer.flush(PATIENCE)
        self.timeline.say(f"A letter of topic {GONE}, which is deleted, is among the others")

    def _produce(self, partition: int, row: int) -> int:
        value = json.dumps({"row": row, "carrier": "XX", "dep_delay": 0}).encode()
        offset = produce_one(self.stack.kafka.address, TOPIC, partition, value)
        self.bad.add((partition, offset))
        return offset
